import type { ColumnDefinition } from '@offshoot/client'
import Papa from 'papaparse'
import { type Parsed, parseText, toWire } from './values.js'

/** Rows of a file that the preview reads. */
export const SAMPLE_ROWS = 200

export interface CsvSample {
  readonly header: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

/** Bytes of a file that are parsed at a time. */
const PART_BYTES = 1024 * 1024

/**
 * Returns the file in the form that the parser takes, with parts that end between two characters. The parser
 * decodes each part by itself, so a character of several bytes on a boundary would be lost.
 */
async function inParts(file: File): Promise<File> {
  const ends = new Map<number, number>()
  for (let end = PART_BYTES; end < file.size; end += PART_BYTES) {
    ends.set(end, end + (await restOfCharacter(file, end)))
  }
  const endOf = (position: number) => ends.get(position) ?? position
  const parts: Pick<File, 'size' | 'slice'> = {
    size: file.size,
    slice: (start = 0, end = file.size) => file.slice(endOf(start), endOf(end)),
  }
  return parts as File
}

/** Counts the bytes after a position that belong to the character before it. UTF-8 has at most three. */
async function restOfCharacter(file: File, position: number): Promise<number> {
  const bytes = new Uint8Array(await file.slice(position, position + 3).arrayBuffer())
  const first = bytes.findIndex((byte) => (byte & 0b1100_0000) !== 0b1000_0000)
  return first < 0 ? bytes.length : first
}

/** Reads the header and the first rows of a file. */
export async function readSample(file: File): Promise<CsvSample> {
  const lines: (readonly string[])[] = []
  for await (const { cells } of readLines(file)) {
    if (lines.push(cells) > SAMPLE_ROWS) break
  }
  const [header = [], ...rows] = lines
  return { header: header.map((name) => name.trim()), rows }
}

/** Reads the rows of a file one after the other, without its header. */
export async function* readRows(file: File): AsyncGenerator<FileRow, void> {
  let isHeader = true
  for await (const row of readLines(file)) {
    if (!isHeader) yield row
    isHeader = false
  }
}

interface FileRow {
  readonly cells: readonly string[]
  /** The part of the file up to the end of the row, from 0 to 1. */
  readonly share: number
}

/** Reads a file line by line; a line in quotes may have several. A part of the file is in memory at a time. */
async function* readLines(file: File): AsyncGenerator<FileRow, void> {
  const waiting: string[][][] = []
  let wake = () => {}
  let isDone = false
  let failure: unknown
  let parser: Papa.Parser | undefined
  Papa.parse<string[]>(await inParts(file), {
    chunkSize: PART_BYTES,
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
  try {
    for (let part = 0; ; ) {
      const lines = waiting.shift()
      if (lines !== undefined) {
        const start = Math.min(1, (part * PART_BYTES) / file.size)
        const end = Math.min(1, ((part + 1) * PART_BYTES) / file.size)
        for (const [index, cells] of lines.entries()) {
          yield { cells, share: start + ((end - start) * (index + 1)) / lines.length }
        }
        part++
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
  } finally {
    parser?.abort()
  }
}

/** Types to try for a new column, the strictest first. */
const GUESSES: readonly ColumnDefinition['type'][] = [
  'bool',
  'int',
  'float',
  'date',
  'time',
  'datetime',
  'uuid',
  'email',
]
/** Longer texts become `text`, which has no limit. */
const STRING_LENGTH_MAX = 500

/** A number with as many digits after the point as amounts of money have, or more. */
const DECIMAL = /^\s*-?(?:0|[1-9]\d{0,11})\.(\d{2,6})\s*$/
/** Exact numbers, with room for twelve digits before the point, and six after it. */
export const exactNumber = (scale: number): Pick<ColumnDefinition, 'type' | 'decimal'> => ({
  type: 'decimal',
  decimal: { precision: 18, scale },
})

/** Guesses the type of a column from some of its texts. Numbers are exact if all have equally many digits after the point. */
export function guessColumn(texts: readonly string[]): Pick<ColumnDefinition, 'type' | 'decimal'> {
  const given = texts.filter((text) => text !== '')
  const scales = new Set(given.map((text) => DECIMAL.exec(text)?.[1]?.length))
  const [scale] = scales
  if (scales.size === 1 && scale !== undefined) return exactNumber(scale)
  return longDecimal(given) ?? { type: guessType(given) }
}

const PLAIN_NUMBER = /^\s*-?(0|[1-9]\d*)(?:\.(\d+))?\s*$/
/** A float keeps any number of this many digits. */
const FLOAT_DIGITS = 15
const WHOLE_DIGITS = 12
/** Digits of the longest decimal that a column can have. */
const DECIMAL_DIGITS_MAX = 1000

/** Returns the definition of a decimal with room for all numbers, if a float would round one of them. */
function longDecimal(
  given: readonly string[],
): Pick<ColumnDefinition, 'type' | 'decimal'> | undefined {
  const numbers = given.map((text) => PLAIN_NUMBER.exec(text))
  if (numbers.some((number) => number === null) || !given.some(isRounded)) return undefined
  const lengthMax = (part: number) =>
    Math.max(0, ...numbers.map((number) => number?.[part]?.length ?? 0))
  const scale = lengthMax(2)
  const precision = Math.max(WHOLE_DIGITS, lengthMax(1)) + scale
  // Whole numbers that are too large for a number are texts, such as the ids of other systems.
  if (scale === 0 || precision > DECIMAL_DIGITS_MAX) return undefined
  return { type: 'decimal', decimal: { precision, scale } }
}

/** Whether a float has another value than a number. */
function isRounded(text: string): boolean {
  const digits = text.replace(/[^\d]/g, '').replace(/^0+|0+$/g, '')
  return digits.length > FLOAT_DIGITS && String(Number(text)) !== text.trim()
}

function guessType(given: readonly string[]): ColumnDefinition['type'] {
  if (given.length === 0) return 'string'
  const fits = GUESSES.find((type) =>
    given.every((text) => {
      // 0 and 1 are numbers, and 007 is a name.
      if (type === 'bool') return /^(true|false|yes|no)$/i.test(text.trim())
      if (/^[+-]?0\d/.test(text.trim()) && (type === 'int' || type === 'float')) return false
      if (type === 'float' && /^\s*[+-]?[\d.]+\s*$/.test(text) && isRounded(text)) return false
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
  // A column can have the name `__proto__`, which only an object without a prototype keeps.
  const record = Object.create(null) as Record<string, unknown>
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
