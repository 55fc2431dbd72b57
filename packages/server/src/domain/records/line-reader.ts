import { isUtf8 } from 'node:buffer'
import type { Readable } from 'node:stream'
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
  readonly #source: Readable
  readonly #lineBytesMax: number
  readonly #onChunk: ((chunk: Buffer) => void) | undefined
  #line = 0

  constructor(
    source: Readable,
    options: { lineBytesMax: number; onChunk?: (chunk: Buffer) => void },
  ) {
    this.#source = source
    this.#lineBytesMax = options.lineBytesMax
    this.#onChunk = options.onChunk
  }

  async drain(): Promise<void> {
    for await (const chunk of this.#source) this.#onChunk?.(chunk as Buffer)
  }

  async *batches(): AsyncGenerator<ParsedLine[]> {
    let rest: Buffer[] = []
    let restBytes = 0
    for await (const piece of this.#source) {
      const chunk = piece as Buffer
      this.#onChunk?.(chunk)
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

  #requireLength(bytes: number): void {
    if (bytes > this.#lineBytesMax) {
      throw new AppError(
        'payload_too_large',
        `line ${this.#line + 1}: is longer than ${this.#lineBytesMax} bytes`,
      )
    }
  }

  #parse(bytes: Buffer): ParsedLine[] {
    if (!isUtf8(bytes)) throw new AppError('invalid_json', 'body: is not valid UTF-8')
    const lines = bytes.toString().split('\n')
    const first = this.#line + 1
    this.#line += lines.length
    // One call of the parser for many lines is much faster than one for each.
    const values = parseTogether(lines)
    if (values !== undefined) return values.map((value, index) => ({ line: first + index, value }))
    return lines.flatMap((text, index): ParsedLine[] => {
      const line = first + index
      if (text.trim() === '') return []
      this.#requireLength(text.length)
      try {
        return [{ line, value: JSON.parse(text) as unknown }]
      } catch (error) {
        return [{ line, fault: `is not valid JSON: ${(error as Error).message}` }]
      }
    })
  }
}

/** undefined when the lines are not one valid value each. */
function parseTogether(lines: readonly string[]): unknown[] | undefined {
  // A line must be an object by itself: two halves of one would otherwise pass as a whole.
  if (!lines.every((line) => line.startsWith('{') && /\}\s*$/.test(line.slice(-2))))
    return undefined
  try {
    const values = JSON.parse(`[${lines.join(',\n')}]`) as unknown[]
    return values.length === lines.length ? values : undefined
  } catch {
    return undefined
  }
}
