import { AsyncLocalStorage } from 'node:async_hooks'
import { randomBytes } from 'node:crypto'

/** Span kinds as OpenTelemetry numbers them. */
const SERVER = 2
const CLIENT = 3

export type Attributes = Readonly<Record<string, string | number>>

/** A finished span. */
export interface EndedSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly name: string
  readonly kind: number
  /** Milliseconds since 1970, with fractions. */
  readonly startedAt: number
  readonly endedAt: number
  readonly attributes: Attributes
  readonly hasFailed: boolean
}

export interface Span {
  readonly traceId: string
  readonly spanId: string
  /** Ends the span; further calls are no-ops. */
  end(result: { name?: string; attributes: Attributes; hasFailed: boolean }): void
}

/** `00-{trace}-{parent}-{flags}` of W3C Trace Context; later versions may add to it. */
const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/
const SAMPLED = 1

/** Traces requests and their statements, and passes every span on when it ends. */
export class Tracer {
  readonly #current = new AsyncLocalStorage<Span | undefined>()
  readonly #onEnd: (span: EndedSpan) => void
  readonly #sampleRatio: number

  constructor(options: { sampleRatio: number; onEnd(span: EndedSpan): void }) {
    this.#sampleRatio = options.sampleRatio
    this.#onEnd = options.onEnd
  }

  /**
   * Starts the span of a request; undefined if the request is not sampled, which its sender may
   * have decided.
   */
  startRequest(traceparent: unknown): Span | undefined {
    const match = typeof traceparent === 'string' ? TRACEPARENT.exec(traceparent) : null
    const [, traceId = '', parentSpanId = '', flags = ''] = match ?? []
    if (match !== null && /[^0]/.test(traceId) && /[^0]/.test(parentSpanId)) {
      if ((Number.parseInt(flags, 16) & SAMPLED) === 0) return undefined
      return this.#start({ traceId, parentSpanId, name: 'request', kind: SERVER })
    }
    if (Math.random() >= this.#sampleRatio) return undefined
    const newId = randomBytes(16).toString('hex')
    return this.#start({ traceId: newId, parentSpanId: undefined, name: 'request', kind: SERVER })
  }

  /** Starts a client span within the current request. */
  startCall(name: string): Span | undefined {
    const parent = this.#current.getStore()
    if (parent === undefined) return undefined
    const { traceId, spanId: parentSpanId } = parent
    return this.#start({ traceId, parentSpanId, name, kind: CLIENT })
  }

  /** Runs a function with the span as the current one, also for its asynchronous work. */
  run<Result>(span: Span | undefined, body: () => Result): Result {
    return this.#current.run(span, body)
  }

  #start(options: Pick<EndedSpan, 'traceId' | 'parentSpanId' | 'name' | 'kind'>): Span {
    const spanId = randomBytes(8).toString('hex')
    const startedAt = now()
    let isOver = false
    return {
      traceId: options.traceId,
      spanId,
      end: ({ name = options.name, attributes, hasFailed }) => {
        if (isOver) return
        isOver = true
        this.#onEnd({ ...options, spanId, name, startedAt, endedAt: now(), attributes, hasFailed })
      },
    }
  }
}

function now(): number {
  return performance.timeOrigin + performance.now()
}
