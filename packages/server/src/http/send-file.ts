import { pipeline, Readable, Transform } from 'node:stream'
import { AppError } from '@offshoot/contract/errors'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { ByteRange } from '../blobs/blob-store.js'
import type { OpenFile } from '../data/files/operations.js'

/**
 * Media types that a browser may display. Others are downloads, because uploaded HTML, SVG and
 * scripts must not run with the origin of the service.
 */
const SHOWN =
  /^(image\/(png|jpeg|gif|webp|avif|bmp|tiff|heic)|(audio|video)\/[\w.+-]+|text\/plain)$/

/** Values of `Sec-Fetch-Dest` that would embed the file in a page as code. */
const ACTIVE_USES: ReadonlySet<string> = new Set([
  'script',
  'style',
  'worker',
  'sharedworker',
  'serviceworker',
  'audioworklet',
  'paintworklet',
  'xslt',
  'manifest',
  'frame',
  'iframe',
  'embed',
  'object',
])

/** Sends a file or the requested range of it; answers 204 if it has no content. */
export async function sendFile(
  request: FastifyRequest,
  reply: FastifyReply,
  options: { file: OpenFile | undefined; isPublic: boolean },
): Promise<FastifyReply> {
  if (options.file === undefined) return reply.code(204).send(null)
  const { file, open } = options.file
  const { name, mediaType, size, sha256 } = file
  const isShown = SHOWN.test(mediaType.toLowerCase())
  const use = String(request.headers['sec-fetch-dest'] ?? '')
  if (!isShown && ACTIVE_USES.has(use)) {
    throw new AppError('invalid_link', 'a file cannot be loaded as code of a page')
  }
  const etag = `"${sha256}"`
  reply.headers({
    etag,
    'accept-ranges': 'bytes',
    'cache-control': options.isPublic ? 'no-cache' : 'private, no-cache',
    'content-security-policy': "sandbox; default-src 'none'",
    'content-disposition': `${isShown ? 'inline' : 'attachment'}${
      name === '' ? '' : `; filename="${name}"`
    }`,
  })
  if (matches(request.headers['if-none-match'], etag)) return reply.code(304).send()
  const range = readRange(request, { size, etag })
  if (range === 'none') {
    reply.header('content-range', `bytes */${size}`)
    throw new AppError('range_not_satisfiable', `header [range]: the file has only ${size} bytes`)
  }
  reply.header('content-type', mediaType)
  const length = range === undefined ? size : range.end - range.start + 1
  reply.header('content-length', length)
  if (range !== undefined) {
    reply.code(206).header('content-range', `bytes ${range.start}-${range.end}/${size}`)
  }
  // HEAD does not need the content, so it is not opened.
  return reply.send(
    request.method === 'HEAD' ? Readable.from([]) : wholeContent(await open(range), length),
  )
}

/**
 * If the content is shorter than announced, for example after a disk failure, the connection is
 * aborted. Otherwise the client would wait for the rest.
 */
function wholeContent(source: Readable, length: number): Readable {
  let missing = length
  const counted = new Transform({
    highWaterMark: source.readableHighWaterMark,
    transform(chunk: Buffer, _encoding, done) {
      missing -= chunk.length
      done(null, chunk)
    },
    flush(done) {
      done(
        missing === 0 ? null : new Error(`the content of the file is ${missing} bytes too short`),
      )
    },
  })
  // An error of either stream destroys both, and aborts the answer.
  pipeline(source, counted, () => undefined)
  return counted
}

function matches(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false
  return header.split(',').some((part) => {
    const given = part.trim()
    return given === '*' || given === etag || given === `W/${etag}`
  })
}

/** Returns undefined for the whole file, also if the header is not a single valid range. */
function readRange(
  request: FastifyRequest,
  { size, etag }: { size: number; etag: string },
): ByteRange | 'none' | undefined {
  const { range, 'if-range': ifRange } = request.headers
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(range ?? '')
  if (match === null || (ifRange !== undefined && ifRange !== etag)) return undefined
  const [, first = '', last = ''] = match
  if (first === '' && last === '') return undefined
  if (first === '') {
    const length = Math.min(Number(last), size)
    return length === 0 ? 'none' : { start: size - length, end: size - 1 }
  }
  const start = Number(first)
  const end = last === '' ? size - 1 : Math.min(Number(last), size - 1)
  if (last !== '' && Number(last) < start) return undefined
  return start >= size ? 'none' : { start, end }
}
