import type { ColumnDefinition } from '@offshoot/client'
import Papa from 'papaparse'
import { type Parsed, parseText, toWire } from './values.js'

/** Rows of a file that the preview reads. */
export const SAMPLE_ROWS = 200

export interface CsvSample {
  readonly header: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

/** Reads the header and the first rows of a file. */
export function readSample(file: File): Promise<CsvSample> {
  return new Promise((resolve, reject) => {
    Papa.parse<string[]>(file, {
      preview: SAMPLE_ROWS + 1,
      skipEmptyLines: 'greedy',
      complete: ({ data }) => {
        const [header = [], ...rows] = data
        resolve({ header: header.map((name) => name.trim()), rows })
      },
      error: reject,
    })
  })
}

/** Reads the rows of a file one after the other, without its header. A part is in memory at a time. */
export async function* readRows(file: File): AsyncGenerator<readonly string[], void> {
  const waiting: string[][][] = []
  let wake = () => {}
  let isDone = false
  let failure: unknown
  let parser: Papa.Parser | undefined
  Papa.parse<string[]>(file, {
    skipEmptyLines: 'greedy',
    chunk: ({ data }, running) => {
      parser = running
      waiting.push(data)
      running.pause()
      wake()
    },
    complete: () => {
      isDone = true
      wake()
    },
    error: (error) => {
      failure = error
      wake()
    },
  })
  let isHeader = true
  for (;;) {
    const chunk = waiting.shift()
    if (chunk !== undefined) {
      yield* isHeader ? chunk.slice(1) : chunk
      isHeader = false
      parser?.resume()
      continue
    }
    if (failure !== undefined) throw failure
    if (isDone) return
    await new Promise<void>((resolve) => {
      wake = resolve
      if (waiting.length > 0 || isDone || failure !== undefined) resolve()
    })
  }
}

/** Types to try for a new column, the strictest first. */
const GUESSES: readonly ColumnDefinition['type'][] = ['bool', 'int', 'float', 'datetime', 'email']
/** Longer texts become `text`, which has no limit. */
const STRING_LENGTH_MAX = 500

/** Guesses the type of a column from some of its texts. */
export function guessType(texts: readonly string[]): ColumnDefinition['type'] {
  const given = texts.filter((text) => text !== '')
  if (given.length === 0) return 'string'
  const fits = GUESSES.find((type) =>
    given.every((text) => {
      // 0 and 1 are numbers, and 007 is a name.
      if (type === 'bool') return /^(true|false|yes|no)$/i.test(text.trim())
      if (/^[+-]?0\d/.test(text.trim()) && (type === 'int' || type === 'float')) return false
      return 'value' in parseText({ name: '', type }, text)
    }),
  )
  if (fits !== undefined) return fits
  if (
    given.every(
      (text) => /^\s*[[{]/.test(text) && 'value' in parseText({ name: '', type: 'json' }, text),
    )
  )
    return 'json'
  return given.some((text) => text.length > STRING_LENGTH_MAX || text.includes('\n'))
    ? 'text'
    : 'string'
}

/** Turns a heading into a name that a column may have. */
export function columnName(heading: string, index: number): string {
  const name = heading
    .trim()
    .replace(/[^\p{L}\p{N}_~-]+/gu, '_')
    .replace(/^_+|_+$/g, '')
    .slice(0, 255)
  return name === '' || ['id', 'service', 'xata'].includes(name.toLowerCase())
    ? `column_${index + 1}`
    : name
}

/** Makes a record of a row. `targets` has the column for each cell; undefined leaves the cell out. */
export function recordOf(
  row: readonly string[],
  targets: readonly (ColumnDefinition | undefined)[],
): { readonly record: Record<string, unknown>; readonly faults: readonly string[] } {
  const record: Record<string, unknown> = {}
  const faults: string[] = []
  targets.forEach((column, index) => {
    if (column === undefined) return
    const text = row[index] ?? ''
    const parsed = cellOf(column, text)
    if ('fault' in parsed) faults.push(`${column.name}: ${parsed.fault}${quoted(text)}`)
    else if (parsed.value !== null) record[column.name] = toWire(column, parsed.value)
  })
  return { record, faults }
}

/** Characters of a faulty cell that a message shows. */
const FAULTY_SHOWN = 40

function quoted(text: string): string {
  if (text === '') return ''
  return `, got “${text.length > FAULTY_SHOWN ? `${text.slice(0, FAULTY_SHOWN)}…` : text}”`
}

export function cellOf(column: ColumnDefinition, text: string): Parsed {
  return parseText(column, text)
}
