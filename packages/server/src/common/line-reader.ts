import { isUtf8 } from 'node:buffer'
import { AppError } from '@offshoot/contract/errors'
import { parseExactly } from './exact-json.js'
import { Turn } from './in-turns.js'
import { type JsonLimits, parseJsonSteps, SLICE_BYTES } from './json-text.js'

export interface ParsedLine {
  /** Counted from 1, blank lines included. */
  readonly line: number
  readonly value?: unknown
  readonly fault?: string
}

const NEWLINE = 0x0a
/** Lines that are parsed one by one between two pauses. */
const LINES_PER_STEP = 64
/** Lines that are parsed and passed on together, however short they are. */
const BATCH_LINES_MAX = 1000

interface LineReaderOptions {
  readonly lineBytesMax: number
  readonly limits: JsonLimits
  /** Called with each chunk as it arrives. */
  readonly onChunk?: (chunk: Buffer) => void
  /**
   * Called before more bytes of an incomplete line are kept; throws if there is no room for them.
   */
  readonly onHold?: (bytes: number) => void
}

/** Reads newline-delimited JSON; never holds more than one chunk and one unfinished line. */
export class LineReader {
  readonly #source: AsyncIterable<Buffer>
  readonly #options: LineReaderOptions
  #line = 0
  #heldBytes = SLICE_BYTES

  constructor(source: AsyncIterable<Buffer>, options: LineReaderOptions) {
    this.#source = source
    this.#options = options
  }

  /** Reads to the end and discards the lines. */
  async drain(): Promise<void> {
    for await (const _ of this.#chunks());
  }

  /**
   * Yields the lines in batches. A chunk of short lines has many of them, so batches are limited in number, and
   * the event loop runs between them if they take long, together with what the caller does with them.
   */
  async *batches(): AsyncGenerator<ParsedLine[]> {
    const turn = new Turn()
    let rest: Buffer[] = []
    let restBytes = 0
    for await (const chunk of this.#chunks()) {
      const end = chunk.lastIndexOf(NEWLINE)
      if (end === -1) {
        rest.push(chunk)
        restBytes += chunk.length
        this.#requireLength(restBytes)
        continue
      }
      const complete = Buffer.concat([...rest, chunk.subarray(0, end)])
      rest = [chunk.subarray(end + 1)]
      restBytes = rest[0]?.length ?? 0
      for (const batch of this.#parse(complete)) {
        if (turn.isOver) await turn.end()
        if (batch.length > 0) yield batch
      }
    }
    const last = Buffer.concat(rest)
    for (const batch of last.length > 0 ? this.#parse(last) : []) {
      if (turn.isOver) await turn.end()
      if (batch.length > 0) yield batch
    }
  }

  async *#chunks(): AsyncGenerator<Buffer> {
    for await (const chunk of this.#source) {
      this.#options.onChunk?.(chunk)
      yield chunk
    }
  }

  #requireLength(bytes: number): void {
    const { lineBytesMax, onHold } = this.#options
    if (bytes > lineBytesMax) {
      throw new AppError(
        'payload_too_large',
        `line ${this.#line + 1}: is longer than ${lineBytesMax} bytes`,
      )
    }
    if (bytes <= this.#heldBytes) return
    onHold?.(bytes - this.#heldBytes)
    this.#heldBytes = bytes
  }

  /** Yields batches of parsed lines. An empty batch is a pause. */
  *#parse(bytes: Buffer): Generator<ParsedLine[]> {
    const isPlain = bytes.length <= 2 * SLICE_BYTES && isUtf8(bytes)
    const texts: Iterable<string | Buffer> = isPlain
      ? bytes.toString().split('\n')
      : splitLines(bytes)
    let lines: ParsedLine[] = []
    for (const text of texts) {
      const number = ++this.#line
      if (typeof text === 'string') lines.push(...parseLine(text, number))
      else if (text.length > SLICE_BYTES) lines.push(yield* this.#parseLong(text, number))
      else if (!isUtf8(text)) lines.push({ line: number, fault: 'is not valid UTF-8' })
      else lines.push(...parseLine(text.toString(), number))
      if (lines.length === BATCH_LINES_MAX) {
        yield lines
        lines = []
      } else if (number % LINES_PER_STEP === 0) yield []
    }
    yield lines
  }

  *#parseLong(text: Buffer, line: number): Generator<ParsedLine[], ParsedLine> {
    try {
      const steps = parseJsonSteps(text, this.#options.limits)
      for (;;) {
        const step = steps.next()
        if (step.done) return { line, value: step.value }
        yield []
      }
    } catch (error) {
      if (!(error instanceof AppError)) throw error
      return { line, fault: error.message.replace(/^body: /, '') }
    }
  }
}

function* splitLines(bytes: Buffer): Generator<Buffer> {
  let start = 0
  for (;;) {
    const end = bytes.indexOf(NEWLINE, start)
    yield end === -1 ? bytes.subarray(start) : bytes.subarray(start, end)
    if (end === -1) return
    start = end + 1
  }
}

/** Parses one line. A blank line yields nothing. */
function parseLine(text: string, line: number): ParsedLine[] {
  if (text.trim() === '') return []
  try {
    return [{ line, value: parseWithoutTrace(text) }]
  } catch (error) {
    return [{ line, fault: `is not valid JSON: ${(error as Error).message}` }]
  }
}

/** Parses JSON. A stack trace, which nobody reads, would take most of the time of an invalid line. */
function parseWithoutTrace(text: string): unknown {
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 0
  try {
    return parseExactly(text)
  } finally {
    Error.stackTraceLimit = stackTraceLimit
  }
}
