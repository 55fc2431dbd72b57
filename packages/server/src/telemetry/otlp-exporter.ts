import type { Attributes, EndedSpan } from './tracer.js'

/** Spans per request to the collector, and spans kept while it cannot be reached. */
const BATCH_MAX = 512
const QUEUE_MAX = 4096
export const EXPORT_PAUSE_MS = 2_000
const TIMEOUT_MS = 10_000

interface ExporterOptions {
  /** The full URL that traces are sent to. */
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  /** Resource attributes such as `service.name`. */
  readonly resource: Attributes
  readonly version: string
  /** How long spans are collected before they are sent. */
  readonly pauseMs: number
  onError(error: unknown): void
}

/**
 * Sends spans as OTLP/JSON over HTTP. Spans that the collector does not accept are dropped and
 * counted.
 */
export class OtlpExporter {
  readonly #options: ExporterOptions
  readonly #timer: NodeJS.Timeout
  #queue: EndedSpan[] = []
  #sending: Promise<void> = Promise.resolve()
  #isFailing = false
  /** Number of spans that could not be sent. */
  dropped = 0

  constructor(options: ExporterOptions) {
    this.#options = options
    this.#timer = setInterval(() => this.#send(), options.pauseMs)
    this.#timer.unref()
  }

  add(span: EndedSpan): void {
    if (this.#queue.length >= QUEUE_MAX) {
      this.dropped++
      return
    }
    this.#queue.push(span)
    if (this.#queue.length === BATCH_MAX) this.#send()
  }

  /** Sends the remaining spans. */
  async stop(): Promise<void> {
    clearInterval(this.#timer)
    this.#send()
    await this.#sending
  }

  #send(): void {
    this.#sending = this.#sending.then(async () => {
      while (this.#queue.length > 0) await this.#sendBatch(this.#queue.splice(0, BATCH_MAX))
    })
  }

  async #sendBatch(spans: readonly EndedSpan[]): Promise<void> {
    const { url, headers, onError } = this.#options
    try {
      const response = await fetch(url, {
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/json' },
        body: JSON.stringify(this.#toDocument(spans)),
        signal: AbortSignal.timeout(TIMEOUT_MS),
      })
      await response.arrayBuffer()
      if (!response.ok) throw new Error(`the collector of traces answered ${response.status}`)
      this.#isFailing = false
    } catch (error) {
      this.dropped += spans.length
      // Report only the first failure in a row.
      if (!this.#isFailing) onError(error)
      this.#isFailing = true
    }
  }

  #toDocument(spans: readonly EndedSpan[]): unknown {
    const { resource, version } = this.#options
    const scope = { name: 'offshoot', version }
    return {
      resourceSpans: [
        {
          resource: { attributes: toAttributes(resource) },
          scopeSpans: [{ scope, spans: spans.map(toSpan) }],
        },
      ],
    }
  }
}

const ERROR_STATUS = 2

function toSpan(span: EndedSpan): unknown {
  const { traceId, spanId, parentSpanId, name, kind, startedAt, endedAt, attributes } = span
  return {
    traceId,
    spanId,
    ...(parentSpanId === undefined ? {} : { parentSpanId }),
    name,
    kind,
    startTimeUnixNano: toNanoseconds(startedAt),
    endTimeUnixNano: toNanoseconds(endedAt),
    attributes: toAttributes(attributes),
    status: span.hasFailed ? { code: ERROR_STATUS } : {},
  }
}

/** Nanoseconds exceed the precision of a JSON number, so they are sent as text. */
function toNanoseconds(milliseconds: number): string {
  return String(BigInt(Math.round(milliseconds * 1000)) * 1000n)
}

function toAttributes(attributes: Attributes): unknown[] {
  return Object.entries(attributes).map(([key, value]) => ({
    key,
    value: typeof value === 'number' ? { intValue: String(value) } : { stringValue: value },
  }))
}
