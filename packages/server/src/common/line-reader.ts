import { isUtf8 } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import { AppError } from '@offshoot/contract/errors'
import { inTurns } from './in-turns.js'
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

export interface LineReaderOptions {
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

  async *batches(): AsyncGenerator<ParsedLine[]> {
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
      yield await inTurns(this.#parse(complete))
    }
    const last = Buffer.concat(rest)
    if (last.length > 0) yield await inTurns(this.#parse(last))
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

  *#parse(bytes: Buffer): Generator<undefined, ParsedLine[]> {
    if (bytes.length <= 2 * SLICE_BYTES && isUtf8(bytes)) {
      const texts = bytes.toString().split('\n')
      const first = this.#line + 1
      // Parsing many lines at once is much faster than parsing each.
      const values = parseTogether(texts)
      if (values !== undefined) {
        this.#line += texts.length
        return values.map((value, index) => ({ line: first + index, value }))
      }
    }
    const lines: ParsedLine[] = []
    for (const line of splitLines(bytes)) {
      const number = ++this.#line
      if (line.length > SLICE_BYTES) lines.push(yield* this.#parseLong(line, number))
      else if (!isUtf8(line)) lines.push({ line: number, fault: 'is not valid UTF-8' })
      else lines.push(...parseLine(line.toString(), number))
      if (number % LINES_PER_STEP === 0) yield
    }
    return lines
  }

  *#parseLong(text: Buffer, line: number): Generator<undefined, ParsedLine> {
    try {
      return { line, value: yield* parseJsonSteps(text, this.#options.limits) }
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
    return [{ line, value: JSON.parse(text) as unknown }]
  } catch (error) {
    return [{ line, fault: `is not valid JSON: ${(error as Error).message}` }]
  }
}

/**
 * Separator of lines that are parsed as one JSON array. Two incomplete lines could form a valid
 * value together, but would then contain this random text in the wrong place, which a client cannot
 * guess.
 */
const SEPARATOR = randomBytes(9).toString('base64')

/** Returns undefined unless each line is one valid value. */
function parseTogether(lines: readonly string[]): unknown[] | undefined {
  // A blank line is not a value. The check costs less than a failed parse.
  if (lines.includes('')) return undefined
  let values: unknown[]
  try {
    values = JSON.parse(`[${lines.join(`,"${SEPARATOR}",`)}]`) as unknown[]
  } catch {
    return undefined
  }
  if (values.length !== 2 * lines.length - 1) return undefined
  for (let index = 1; index < values.length; index += 2) {
    if (values[index] !== SEPARATOR) return undefined
  }
  return values.filter((_, index) => index % 2 === 0)
}
