import type { OperationInfo } from './api.js'
import { errorOf, errorOfBody, OffshootError } from './errors.js'
import { toJson } from './json.js'

/** A body that can be sent more than once. */
export type RepeatableBody = string | Blob | Uint8Array<ArrayBuffer>

export interface ApiRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  readonly path: string
  readonly query?: Readonly<Record<string, unknown>> | undefined
  /** A body that is sent as JSON. */
  readonly json?: unknown
  /** A body that is sent as it is. A stream is sent only once; a function returns a new one for each attempt. */
  readonly body?: RepeatableBody | ReadableStream<Uint8Array> | (() => ReadableStream<Uint8Array>)
  readonly headers?: Readonly<Record<string, string>>
  /** The request changes nothing, so it may be repeated after any failure. */
  readonly isRead?: boolean
  /** The service executes the request once, however often it is sent: all attempts have the same idempotency key. */
  readonly isOnce?: boolean
  readonly signal?: AbortSignal | undefined
  /** Called after each attempt that failed and is going to be repeated. */
  readonly onFailure?: (error: OffshootError) => void
  /** Called with the headers of the answer. */
  readonly onHeaders?: (headers: Headers) => void
  readonly onProgress?: LongCallOptions['onProgress']
}

/** Options that every method takes. */
export interface CallOptions {
  /** Cancels the request. */
  readonly signal?: AbortSignal
}

/** Options of methods that can take long. */
export interface LongCallOptions extends CallOptions {
  /**
   * Called about once a second while the service goes on with work that takes longer than a request may. With the id of the
   * operation, another process can wait for its end, or cancel it.
   */
  readonly onProgress?: ((operation: OperationInfo) => void) | undefined
}

export interface TransportOptions {
  /** The address of the service, such as `http://127.0.0.1:6001`. */
  readonly url: string
  readonly apiKey: string
  /** Replaces the global `fetch`. */
  readonly fetch?: typeof fetch
  /** How often a request is repeated after a failure that passes. Default: 5. */
  readonly retries?: number
  /** The time limit of one attempt in milliseconds. Default: none. */
  readonly timeoutMs?: number
}

const RETRIES_DEFAULT = 5
/** How often the state of an operation is read. */
const FOLLOW_MS = 1000
const FIRST_DELAY_MS = 100
const DELAY_MS_MAX = 10_000
/** A server that asks for more patience than this gets no further attempt. */
const RETRY_AFTER_SECONDS_MAX = 60

/**
 * A database keeps a limited number of answers, and refuses further keys with `limit_reached`, before anything is executed.
 * For this time, requests are sent without a key.
 */
const NO_KEYS_MS = 60_000

/** With these codes the service promises that it has executed nothing. */
const NOTHING_EXECUTED: ReadonlySet<string> = new Set([
  'rate_limited',
  'overloaded',
  'starting',
  'draining',
])

/** Reasons why there is no connection, so that the service has not even got the request. */
const NOT_CONNECTED: ReadonlySet<unknown> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
])

/** Returns whether it is certain that the service has executed nothing of a request that failed. */
export function isNothingExecuted(error: OffshootError): boolean {
  if (NOTHING_EXECUTED.has(error.code)) return true
  const { cause } = (error.cause ?? {}) as { cause?: { code?: unknown } }
  return error.code === 'unreachable' && NOT_CONNECTED.has(cause?.code)
}

/** Sends requests, and repeats them where that is safe. */
export class Transport {
  readonly #origin: string
  readonly #apiKey: string
  readonly #fetch: typeof fetch
  readonly #retries: number
  readonly #timeoutMs: number | undefined
  readonly #options: TransportOptions
  readonly #query: Readonly<Record<string, unknown>>
  /** Until then, the database has no room for further answers to requests with a key. */
  #noKeysUntilMs = 0

  /** `query` is added to the parameters of each request. */
  constructor(options: TransportOptions, query: Readonly<Record<string, unknown>> = {}) {
    this.#options = options
    this.#query = query
    this.#origin = originOf(options.url)
    this.#apiKey = options.apiKey
    this.#fetch = options.fetch ?? ((...args) => fetch(...args))
    this.#retries = options.retries ?? RETRIES_DEFAULT
    this.#timeoutMs = options.timeoutMs
  }

  /** Returns a transport that adds parameters to each request. */
  withQuery(query: Readonly<Record<string, unknown>>): Transport {
    return new Transport(this.#options, { ...this.#query, ...query })
  }

  /** Sends a request and returns the JSON of its answer. An answer without a body gives undefined. */
  async json<Answer>(
    request: ApiRequest,
    parse: (text: string) => unknown = JSON.parse,
  ): Promise<Answer> {
    const { text, status, headers } = await this.#repeat(request, async (response) => ({
      text: await response.text(),
      status: response.status,
      headers: response.headers,
    }))
    request.onHeaders?.(headers)
    if (text === '') return undefined as Answer
    let answer: unknown
    try {
      answer = parse(text)
    } catch (cause) {
      throw new OffshootError('the answer of the server is not JSON', {
        code: 'unexpected_answer',
        status,
        cause,
      })
    }
    if (status !== 202) return answer as Answer
    return (await this.#follow(
      (answer as { operation: OperationInfo }).operation,
      request,
    )) as Answer
  }

  /** Waits for the end of an operation, and returns its result. */
  async #follow(started: OperationInfo, request: ApiRequest): Promise<unknown> {
    const { signal, onProgress } = request
    const path = `/operations/${segment(started.id)}`
    for (let operation = started; ; ) {
      const { state, result, error } = operation
      if (state === 'done') return result
      if (state !== 'running') throw failureOf(error)
      onProgress?.(operation)
      await pause(FOLLOW_MS, signal)
      operation = await this.json({ method: 'GET', path, isRead: true, signal })
    }
  }

  /** Sends a request. Throws an `OffshootError` for a status of 400 or more. */
  send(request: ApiRequest): Promise<Response> {
    return this.#repeat(request, async (response) => response)
  }

  /** Sends a request and reads its answer, and repeats both where that is safe. */
  async #repeat<Answer>(
    asked: ApiRequest,
    read: (response: Response) => Promise<Answer>,
  ): Promise<Answer> {
    const request = { ...asked, query: { ...this.#query, ...asked.query } }
    let key = request.isOnce && this.#sendsKeys ? crypto.randomUUID() : undefined
    for (let attempt = 0; ; attempt++) {
      const outcome = await this.#attempt(request, { key, read })
      if ('answer' in outcome) return outcome.answer
      const { error, retryAfter } = outcome
      const isFull = key !== undefined && error.code === 'limit_reached'
      if (attempt === 0 && isFull && !(request.body instanceof ReadableStream)) {
        this.#noKeysUntilMs = Date.now() + NO_KEYS_MS
        key = undefined
        continue
      }
      const isSafe = request.isRead === true || key !== undefined
      const isTooLong = Number(retryAfter) > RETRY_AFTER_SECONDS_MAX
      const canRepeat = mayRepeat(request, error, { isSafe })
      if (attempt >= this.#retries || isTooLong || !canRepeat) throw error
      request.onFailure?.(error)
      await pause(delayMs(attempt, retryAfter), request.signal)
    }
  }

  get #sendsKeys(): boolean {
    return Date.now() >= this.#noKeysUntilMs
  }

  async #attempt<Answer>(
    request: ApiRequest,
    { key, read }: { key: string | undefined; read: (response: Response) => Promise<Answer> },
  ): Promise<{ answer: Answer } | { error: OffshootError; retryAfter: string | null }> {
    // A value that cannot be sent is no failure of the connection.
    const init = this.#init(request, key)
    let response: Response
    try {
      response = await this.#fetch(this.#origin + pathOf(request), init)
      if (response.ok) return { answer: await read(response) }
    } catch (cause) {
      request.signal?.throwIfAborted()
      return { error: unreachable(this.#origin, cause), retryAfter: null }
    }
    return { error: await errorOf(response), retryAfter: response.headers.get('retry-after') }
  }

  #init(request: ApiRequest, key: string | undefined): RequestInit {
    const { method, json } = request
    const body = typeof request.body === 'function' ? request.body() : request.body
    const headers: Record<string, string> = { authorization: `Bearer ${this.#apiKey}` }
    if (json !== undefined) headers['content-type'] = 'application/json'
    if (key !== undefined) headers['idempotency-key'] = key
    Object.assign(headers, request.headers)
    const isStream = body instanceof ReadableStream
    const signal = this.#signalOf(request.signal, { isStream })
    return {
      method,
      headers,
      // The service never redirects its API, and the content is for the service alone.
      redirect: 'manual',
      ...(json === undefined ? {} : { body: toJson(json) ?? '' }),
      ...(body === undefined ? {} : { body }),
      // `fetch` requires this for a stream as the body.
      ...(isStream ? ({ duplex: 'half' } as object) : {}),
      ...(signal === undefined ? {} : { signal }),
    }
  }

  #signalOf(
    signal: AbortSignal | undefined,
    { isStream }: { isStream: boolean },
  ): AbortSignal | undefined {
    // A transfer of any length is not an attempt that hangs.
    if (this.#timeoutMs === undefined || isStream) return signal
    const timeout = AbortSignal.timeout(this.#timeoutMs)
    return signal === undefined ? timeout : AbortSignal.any([signal, timeout])
  }
}

function pathOf({ path, query = {} }: ApiRequest): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) search.set(name, String(value))
  }
  return search.size === 0 ? path : `${path}?${search}`
}

/** Returns whether it is safe and useful to send a request again. */
function mayRepeat(
  request: ApiRequest,
  { status, code }: OffshootError,
  { isSafe }: { isSafe: boolean },
): boolean {
  if (request.body instanceof ReadableStream) return false
  if (NOTHING_EXECUTED.has(code) || status === 429) return true
  // A request with the same idempotency key may still be running after a lost connection.
  return isSafe && (status === 0 || status === 503 || code === 'idempotency_conflict')
}

/** Waits as long as the service asks for, or twice as long with every attempt; with jitter. */
function delayMs(attempt: number, retryAfter: string | null): number {
  const seconds = Number(retryAfter ?? Number.NaN)
  const jitter = 0.5 + Math.random() / 2
  if (Number.isFinite(seconds) && seconds > 0) return (seconds + Math.random() / 2) * 1000
  return Math.min(FIRST_DELAY_MS * 2 ** attempt, DELAY_MS_MAX) * jitter
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', end)
      resolve()
    }, ms)
    if (signal?.aborted) end()
    else signal?.addEventListener('abort', end, { once: true })
  })
}

/** Returns the error of an operation that has failed. */
function failureOf(body: OperationInfo['error']): OffshootError {
  const { status, requestId } = { status: Number(body?.status ?? 0), requestId: String(body?.id) }
  const error = body && errorOfBody(body, { status, requestId })
  return (
    error ??
    new OffshootError('the operation failed, but not as those of Offshoot do', {
      code: 'unexpected_answer',
      status,
    })
  )
}

function unreachable(origin: string, cause: unknown): OffshootError {
  const reason = cause instanceof Error ? (cause.cause ?? cause) : cause
  const detail = reason instanceof Error ? reason.message || reason.name : String(reason)
  return new OffshootError(`no answer from ${origin}: ${detail}`, {
    code: 'unreachable',
    status: 0,
    cause,
  })
}

/**
 * Returns a name as one segment of a path. No encoding keeps `.` and `..` in their place: URLs take `%2e%2e` for
 * `..` as well. An empty name would be the path of the list. Such names are refused.
 */
export function segment(name: string): string {
  if (typeof name === 'string' && name !== '' && name !== '.' && name !== '..') {
    try {
      return encodeURIComponent(name)
    } catch {
      // Half of a surrogate pair is no text.
    }
  }
  throw new OffshootError(`[${String(name)}] cannot be a name or an id`, {
    code: 'invalid_request',
    status: 0,
  })
}

/** Returns the start of all addresses. Credentials, a query or a fragment would change what follows it. */
function originOf(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined
  const isHttp = parsed?.protocol === 'http:' || parsed?.protocol === 'https:'
  if (!isHttp || parsed.username || parsed.password || /[?#]/.test(url)) {
    throw new TypeError(`[${url}] is not the address of a service, such as http://127.0.0.1:6001`)
  }
  return url.replace(/\/+$/, '')
}
