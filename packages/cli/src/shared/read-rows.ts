import { createReadStream } from 'node:fs'
import { readFile } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import type { parse } from 'csv-parse'
import { parseRounded } from './documents.js'
import { UsageError } from './failure.js'

export type Row = Record<string, unknown>

export const FORMATS = ['csv', 'ndjson', 'json'] as const
export type Format = (typeof FORMATS)[number]

export interface FileRow {
  /** In CSV, an empty cell without quotes is null. */
  readonly row: Row
  /** The first line of the row in the file. undefined in a JSON file, which is not divided by lines. */
  readonly line: number | undefined
  /** Whether it has numbers that JavaScript rounds, so that its long numbers are marked texts of `documents.ts`. */
  readonly isMarked?: boolean
}

/** Reads the rows of a file. `onBytes` is called with the number of bytes as they are read. */
export async function* readRows(
  file: string,
  format: Format,
  onBytes: (bytes: number) => void = () => undefined,
): AsyncGenerator<FileRow> {
  if (format === 'json') {
    yield* await jsonRows(file)
    return
  }
  // Loaded on demand, because few commands read CSV, and before the stream starts to flow.
  const csv = format === 'csv' ? await import('csv-parse') : undefined
  const input = createReadStream(file, { highWaterMark: 1024 * 1024 })
  input.on('data', (chunk) => onBytes(chunk.length))
  try {
    yield* csv === undefined ? ndjsonRows(input) : csvRows(input, csv.parse)
  } finally {
    input.destroy()
  }
}

async function* csvRows(input: Readable, parseCsv: typeof parse): AsyncGenerator<FileRow> {
  const table = new CsvTable()
  const parser = input.pipe(
    parseCsv({
      bom: true,
      skip_empty_lines: true,
      raw: true,
      cast: (cell, { quoting }) => (cell === '' && !quoting ? null : cell),
      on_record: (parsed: unknown) => {
        // Its types do not know that the parser gives more with `raw`, and takes any object.
        const { record, raw } = parsed as { record: (string | null)[]; raw: string }
        return table.add(record, raw) as unknown as string[]
      },
    }),
  )
  input.on('error', (error) => parser.destroy(error))
  try {
    yield* parser
  } catch (error) {
    throw error instanceof UsageError ? error : table.describe(error as Error)
  }
}

const LINE_BREAK = /\r\n|\n|\r/g
const countBreaks = (text = '') => text.match(LINE_BREAK)?.length ?? 0

/** Makes rows of CSV records. It counts lines itself: the parser counts those of Windows twice inside of quotes. */
class CsvTable {
  #names: readonly string[] | undefined
  /** The line after the last record. */
  #line = 1

  /** `raw` is the text of the record, with empty lines before it. Returns undefined for the header. */
  add(record: readonly (string | null)[], raw: string): FileRow | undefined {
    const line = this.#firstLine(raw)
    this.#line += countBreaks(raw)
    if (this.#names === undefined) {
      const names = record.map((name) => name ?? '')
      const twice = names.find((name, index) => names.indexOf(name) < index)
      // One value would overwrite the other.
      if (twice !== undefined)
        throw new UsageError(`line ${line}: column [${twice}] is there twice`)
      this.#names = names
      return undefined
    }
    const row = Object.fromEntries(this.#names.map((name, index) => [name, record[index]]))
    return { row, line }
  }

  /** Explains the error that the parser has met after the last record. */
  describe(error: Error): UsageError {
    const { code = '', raw } = error as Error & { code?: string; raw?: string }
    if (!code.startsWith('CSV_')) return new UsageError(`cannot read: ${error.message}`)
    const reason = error.message.replace(/ (?:on|at) line \d+/, '')
    return new UsageError(`line ${this.#firstLine(raw)}: not valid CSV: ${reason}`)
  }

  #firstLine(raw = ''): number {
    return this.#line + countBreaks(/^[\r\n]*/.exec(raw)?.[0])
  }
}

async function* ndjsonRows(input: Readable): AsyncGenerator<FileRow> {
  let number = 0
  for await (const text of linesOf(input)) {
    number++
    if (text.trim() !== '') yield { ...parseRow(text, `line ${number}`), line: number }
  }
}

/** Only \n ends a line: a text in JSON may have other characters that some take for line breaks. */
async function* linesOf(input: Readable): AsyncGenerator<string> {
  let rest: string[] = []
  let isFirst = true
  for await (const chunk of input.setEncoding('utf8') as AsyncIterable<string>) {
    const [head = '', ...lines] = (isFirst ? chunk.replace(/^\ufeff/, '') : chunk).split('\n')
    isFirst = false
    rest.push(head)
    for (const line of lines) {
      yield rest.join('')
      rest = [line]
    }
  }
  yield rest.join('')
}

async function jsonRows(file: string): Promise<FileRow[]> {
  const text = await readFile(file, 'utf8')
  const { value: rows, isMarked } = parseAny(text.replace(/^\ufeff/, ''), file)
  if (!Array.isArray(rows)) throw new UsageError(`[${file}]: expected a list of records`)
  return rows.map((row) => ({ row: row as Row, line: undefined, ...(isMarked && { isMarked }) }))
}

function parseRow(text: string, where: string): Omit<FileRow, 'line'> {
  const { value: row, isMarked } = parseAny(text, where)
  if (typeof row === 'object' && row !== null && !Array.isArray(row)) {
    return { row: row as Row, ...(isMarked && { isMarked }) }
  }
  throw new UsageError(`${where}: expected a record`)
}

function parseAny(text: string, where: string): ReturnType<typeof parseRounded> {
  try {
    return parseRounded(text)
  } catch (error) {
    throw new UsageError(`${where}: not valid JSON: ${(error as Error).message}`)
  }
}
