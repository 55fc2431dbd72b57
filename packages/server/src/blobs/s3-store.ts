import { createReadStream } from 'node:fs'
import http from 'node:http'
import https from 'node:https'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { AppError } from '@offshoot/contract/errors'
import { AwsClient } from 'aws4fetch'
import {
  type Blob,
  type BlobStore,
  type ByteRange,
  type PutOptions,
  type ReceivedBlob,
  requireSha256,
} from './blob-store.js'
import { Spool } from './spool.js'

interface S3Options {
  readonly endpoint: string
  readonly region: string
  readonly bucket: string
  /** Empty, or ending with a slash. */
  readonly prefix: string
  readonly keyId: string
  readonly secret: string
  /**
   * A local folder for incoming content. Objects are named by their hash, which is known only at
   * the end.
   */
  readonly spoolFolder: string
}

/** A request fails if the store sends nothing for this long. */
const SILENCE_MS = 30_000
/**
 * All requests are idempotent, so they can be retried. Several attempts are needed, because all
 * pooled connections may have been closed by the store.
 */
const ATTEMPTS_MAX = 5
const CLOSED_CODES: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE'])
const EMPTY_SHA256 = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'

/** A store with the S3 protocol and path-style addresses. */
export class S3Store implements BlobStore {
  readonly #options: S3Options
  readonly #client: AwsClient
  readonly #spool: Spool
  readonly #agent: http.Agent

  constructor(options: S3Options) {
    this.#options = options
    this.#spool = new Spool(options.spoolFolder)
    const { keyId: accessKeyId, secret: secretAccessKey, region } = options
    this.#client = new AwsClient({ accessKeyId, secretAccessKey, region, service: 's3' })
    const Agent = options.endpoint.startsWith('https:') ? https.Agent : http.Agent
    this.#agent = new Agent({ keepAlive: true })
  }

  prepare(): Promise<void> {
    return this.#spool.prepare()
  }

  async put(source: AsyncIterable<Buffer>, options: PutOptions): Promise<ReceivedBlob> {
    return this.#spool.put(source, options, async ({ path, sha256, size }) => {
      if (!(await this.has(sha256))) await this.#upload(path, { sha256, size })
    })
  }

  async get(sha256: string, range?: ByteRange): Promise<Readable | undefined> {
    const headers = range === undefined ? {} : { range: `bytes=${range.start}-${range.end}` }
    const response = await this.#send('GET', this.#nameOf(sha256), { headers })
    if (response.statusCode === 404) {
      response.resume()
      return undefined
    }
    // A store that ignores the range would answer 200 with the whole content.
    const content = await expectStatus(response, [range === undefined ? 200 : 206])
    return range === undefined ? content : cutToRange(content, range)
  }

  async has(sha256: string): Promise<boolean> {
    const response = await this.#send('HEAD', this.#nameOf(sha256))
    response.resume()
    if (response.statusCode === 404) return false
    await expectStatus(response, [200])
    return true
  }

  async delete(sha256: string): Promise<void> {
    const response = await this.#send('DELETE', this.#nameOf(sha256))
    response.resume()
    await expectStatus(response, [200, 204, 404])
  }

  async *list(): AsyncIterable<string> {
    const { prefix } = this.#options
    let token: string | undefined
    do {
      const query = new URLSearchParams({ 'list-type': '2', prefix })
      if (token !== undefined) query.set('continuation-token', token)
      const response = await this.#send('GET', '', { query: query.toString() })
      const text = await readText(await expectStatus(response, [200]))
      for (const [, key = ''] of text.matchAll(/<Key>([^<]*)<\/Key>/g)) {
        const name = unescapeXml(key).slice(prefix.length)
        if (/^[0-9a-f]{64}$/.test(name)) yield name
      }
      const [, next] = /<NextContinuationToken>([^<]*)</.exec(text) ?? []
      token = next && unescapeXml(next)
    } while (token !== undefined)
  }

  #nameOf(sha256: string): string {
    return `/${this.#options.prefix}${requireSha256(sha256)}`
  }

  async #upload(file: string, { sha256, size }: Blob): Promise<void> {
    const response = await this.#send('PUT', this.#nameOf(sha256), {
      headers: { 'content-length': String(size) },
      sha256,
      body: () => createReadStream(file),
    })
    response.resume()
    await expectStatus(response, [200])
  }

  /**
   * Sends a request. The hash of the body is part of the signature, so the store detects damaged
   * content.
   */
  async #send(method: string, name: string, options: SendOptions = {}) {
    const { endpoint, bucket } = this.#options
    const url = new URL(`${endpoint}/${bucket}${name}`)
    if (options.query !== undefined) url.search = options.query
    const signed = await this.#client.sign(url, {
      method,
      headers: { ...options.headers, 'x-amz-content-sha256': options.sha256 ?? EMPTY_SHA256 },
    })
    const headers = { ...Object.fromEntries(signed.headers), ...options.headers }
    for (let count = 1; ; count++) {
      try {
        return await this.#attempt(url, { method, headers, body: options.body })
      } catch (error) {
        const isStale = error instanceof StaleConnectionError && count < ATTEMPTS_MAX
        if (!isStale) throw unreachable(error)
      }
    }
  }

  #attempt(
    url: URL,
    options: { method: string; headers: Record<string, string>; body: SendOptions['body'] },
  ): Promise<http.IncomingMessage> {
    const { method, headers } = options
    const { request } = url.protocol === 'https:' ? https : http
    return new Promise((resolve, reject) => {
      const outgoing = request(url, { method, headers, agent: this.#agent, timeout: SILENCE_MS })
      const fail = (error: NodeJS.ErrnoException) => {
        const isStale = outgoing.reusedSocket && CLOSED_CODES.has(error.code ?? '')
        reject(isStale ? new StaleConnectionError(error) : error)
      }
      outgoing.on('response', resolve)
      outgoing.on('error', fail)
      outgoing.on('timeout', () => outgoing.destroy(new Error('the file store does not answer')))
      if (options.body === undefined) outgoing.end()
      // A store can answer with a refusal before it has read the whole body.
      else pipeline(options.body(), outgoing).catch(fail)
    })
  }
}

interface SendOptions {
  readonly headers?: Record<string, string>
  readonly query?: string
  readonly sha256?: string
  /** Creates the body; called once per attempt. */
  readonly body?: () => Readable
}

/** A pooled connection failed before the answer; most likely the store had closed it. */
class StaleConnectionError extends Error {
  constructor(cause: Error) {
    super(cause.message, { cause })
  }
}

function unreachable(cause: unknown): AppError {
  return new AppError('unavailable', 'the file store cannot be reached', { cause })
}

async function expectStatus(
  response: http.IncomingMessage,
  statuses: readonly number[],
): Promise<http.IncomingMessage> {
  const { statusCode = 0 } = response
  if (statuses.includes(statusCode)) return response
  response.resume()
  throw unreachable(new Error(`the file store answered with status ${statusCode}`))
}

/**
 * Cuts the content to the range. Some stores treat a range that ends with byte 0 as the whole
 * content.
 */
function cutToRange(content: http.IncomingMessage, { start, end }: ByteRange): Readable {
  const [, from, to] = /^bytes (\d+)-(\d+)\//.exec(content.headers['content-range'] ?? '') ?? []
  if (Number(from) !== start || !(Number(to) >= end)) {
    content.destroy()
    throw new Error('the file store answered with another range than requested')
  }
  return Number(to) === end ? content : Readable.from(firstBytes(content, end - start + 1))
}

async function* firstBytes(stream: Readable, count: number): AsyncIterable<Buffer> {
  let left = count
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    yield chunk.subarray(0, left)
    left -= chunk.length
    if (left <= 0) return
  }
}

const XML_CHARACTERS: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
}

function unescapeXml(text: string): string {
  return text.replace(/&(\w+);/g, (escaped, name: string) => XML_CHARACTERS[name] ?? escaped)
}

async function readText(stream: Readable): Promise<string> {
  let text = ''
  for await (const chunk of stream.setEncoding('utf8')) text += chunk
  return text
}
