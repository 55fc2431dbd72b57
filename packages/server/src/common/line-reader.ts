import { isUtf8 } from 'node:buffer'
import { randomBytes } from 'node:crypto'
import { AppError } from '@offshoot/contract/errors'

export interface ParsedLine {
  /** Counted from 1, blank lines included. */
  readonly line: number
  readonly value?: unknown
  readonly fault?: string
}

const NEWLINE = 0x0a

/** Reads newline-delimited JSON; never holds more than one chunk and one unfinished line. */
export class LineReader {
  readonly #source: AsyncIterable<Buffer>
  readonly #lineBytesMax: number
  readonly #onChunk: ((chunk: Buffer) => void) | undefined
  #line = 0

  constructor(
    source: AsyncIterable<Buffer>,
    options: { lineBytesMax: number; onChunk?: (chunk: Buffer) => void },
  ) {
    this.#source = source
    this.#lineBytesMax = options.lineBytesMax
    this.#onChunk = options.onChunk
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
      yield this.#parse(complete)
    }
    const last = Buffer.concat(rest)
    if (last.length > 0) yield this.#parse(last)
  }

  async *#chunks(): AsyncGenerator<Buffer> {
    for await (const chunk of this.#source) {
      this.#onChunk?.(chunk)
      yield chunk
    }
  }

  #requireLength(bytes: number): void {
    if (bytes > this.#lineBytesMax) {
      throw new AppError(
        'payload_too_large',
        `line ${this.#line + 1}: is longer than ${this.#lineBytesMax} bytes`,
      )
    }
  }

  #parse(bytes: Buffer): ParsedLine[] {
    const first = this.#line + 1
    if (!isUtf8(bytes)) {
      const lines = splitLines(bytes)
      this.#line += lines.length
      return lines.flatMap((line, index) =>
        isUtf8(line)
          ? parseLine(line.toString(), first + index)
          : [{ line: first + index, fault: 'is not valid UTF-8' }],
      )
    }
    const lines = bytes.toString().split('\n')
    this.#line += lines.length
    // Parsing many lines at once is much faster than parsing each.
    const values = parseTogether(lines)
    if (values !== undefined) return values.map((value, index) => ({ line: first + index, value }))
    return lines.flatMap((text, index) => parseLine(text, first + index))
  }
}

function splitLines(bytes: Buffer): Buffer[] {
  const lines: Buffer[] = []
  let start = 0
  for (;;) {
    const end = bytes.indexOf(NEWLINE, start)
    if (end === -1) return [...lines, bytes.subarray(start)]
    lines.push(bytes.subarray(start, end))
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
