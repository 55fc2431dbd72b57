import { WireError } from './wire-error.js'

/* The formats of COPY: text and csv, as PostgreSQL writes and reads them. */

export interface CopyFormat {
  readonly isCsv: boolean
  readonly delimiter: string
  readonly nullText: string
  readonly hasHeader: boolean
  /** The header that is read must have the names of the columns. */
  readonly matchesHeader: boolean
  /** Only of csv. */
  readonly quote: string
  readonly escaping: string
}

/** Bytes that a part of a line takes beside its content. */
const PART_BYTES = 32

export type CopyRow = readonly (string | null)[]

const invalid = (message: string) => new WireError('22P04', message)

const ESCAPES: Readonly<Record<string, string>> = {
  '\b': '\\b',
  '\f': '\\f',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\v': '\\v',
  '\\': '\\\\',
}
const UNESCAPES: Readonly<Record<string, string>> = {
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
}

/** Writes a line. */
export function formatRow(row: CopyRow, format: CopyFormat): string {
  const write = format.isCsv ? writeCsv : writeText
  const values = row.map((value) => (value === null ? format.nullText : write(value, format)))
  return `${values.join(format.delimiter)}\n`
}

function writeText(value: string, { delimiter }: CopyFormat): string {
  let text = ''
  for (const each of value) text += ESCAPES[each] ?? (each === delimiter ? `\\${each}` : each)
  return text
}

function writeCsv(value: string, { delimiter, quote, escaping, nullText }: CopyFormat): string {
  const isPlain =
    value !== nullText &&
    value !== '\\.' &&
    ![delimiter, quote, '\n', '\r'].some((each) => value.includes(each))
  if (isPlain) return value
  let text = quote
  for (const each of value) text += each === quote || each === escaping ? escaping + each : each
  return text + quote
}

/** Reads lines that arrive in parts. Each character is looked at once to find the end of its line. */
export class CopyReader {
  readonly #format: CopyFormat
  readonly #columns: readonly string[]
  readonly #lengthMax: number
  /** The parts of a line that has no end yet. */
  #parts: string[] = []
  #length = 0
  #isQuoted = false
  /** The next character is part of a value, whatever it is. */
  #isEscaped = false
  #isAtEnd = false
  #skipsHeader: boolean

  /** `columns`: their names; `lengthMax`: characters of one line. */
  constructor(
    format: CopyFormat,
    { columns, lengthMax }: { columns: readonly string[]; lengthMax: number },
  ) {
    this.#format = format
    this.#columns = columns
    this.#lengthMax = lengthMax
    this.#skipsHeader = format.hasHeader
  }

  /** The bytes of the line that has no end yet. */
  get bytes(): number {
    return this.#length + this.#parts.length * PART_BYTES
  }

  /** Returns the rows that are complete. */
  *push(text: string): Generator<CopyRow> {
    let start = 0
    for (let at = 0; at < text.length && !this.#isAtEnd; at++) {
      if (!this.#endsLine(text[at] as string)) continue
      const line = this.#parts.join('') + text.slice(start, at)
      this.#parts = []
      this.#length = 0
      start = at + 1
      yield* this.#read(line)
    }
    if (this.#isAtEnd) return
    this.#parts.push(text.slice(start))
    this.#length += text.length - start
    if (this.#length > this.#lengthMax) {
      throw new WireError('54000', `a line can have at most ${this.#lengthMax} characters`)
    }
  }

  /** Returns the row of a last line without an end. */
  *end(): Generator<CopyRow> {
    const line = this.#parts.join('')
    if (line === '' || this.#isAtEnd) return
    if (this.#isQuoted) throw invalid('unterminated CSV quoted field')
    yield* this.#read(line)
  }

  *#read(given: string): Generator<CopyRow> {
    const line = given.endsWith('\r') ? given.slice(0, -1) : given
    // In CSV it is a value, as in PostgreSQL 18.
    if (line === '\\.' && !this.#format.isCsv) {
      this.#isAtEnd = true
      return
    }
    const row = this.#format.isCsv ? readCsv(line, this.#format) : readText(line, this.#format)
    if (this.#skipsHeader) {
      this.#skipsHeader = false
      if (this.#format.matchesHeader) this.#requireHeader(row)
      return
    }
    yield row
  }

  #requireHeader(row: CopyRow): void {
    const { length } = this.#columns
    if (row.length !== length) {
      throw invalid(`wrong number of fields in header line: got ${row.length}, expected ${length}`)
    }
    const index = row.findIndex((name, column) => name !== this.#columns[column])
    if (index === -1) return
    throw invalid(
      `column name mismatch in header line field ${index + 1}: got "${row[index]}", expected "${this.#columns[index]}"`,
    )
  }

  /** Returns whether a character ends a line: a line end within quotes or behind a backslash is part of a value. */
  #endsLine(each: string): boolean {
    if (this.#isEscaped) {
      this.#isEscaped = false
      return false
    }
    const { isCsv, quote, escaping } = this.#format
    if (!isCsv) this.#isEscaped = each === '\\'
    else if (this.#isQuoted && each === escaping && escaping !== quote) this.#isEscaped = true
    else if (each === quote) this.#isQuoted = !this.#isQuoted
    return each === '\n' && !this.#isQuoted
  }
}

function readText(line: string, { delimiter, nullText }: CopyFormat): CopyRow {
  const row: (string | null)[] = []
  let start = 0
  for (let at = 0; at <= line.length; at++) {
    if (line[at] === '\\') at++
    else if (at === line.length || line[at] === delimiter) {
      const field = line.slice(start, at)
      row.push(field === nullText ? null : withoutEscapes(field))
      start = at + 1
    }
  }
  return row
}

function withoutEscapes(field: string): string {
  if (!field.includes('\\')) return field
  return field.replace(
    /\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|([\s\S]))/g,
    (_all, octal?: string, hex?: string, letter?: string) => {
      if (letter !== undefined) return UNESCAPES[letter] ?? letter
      const code = Number.parseInt(octal ?? hex ?? '', octal === undefined ? 16 : 8)
      if (code > 0x7f || code === 0) throw invalid('bytes beyond ASCII cannot be given by number')
      return String.fromCharCode(code)
    },
  )
}

function readCsv(line: string, { delimiter, quote, escaping, nullText }: CopyFormat): CopyRow {
  const row: (string | null)[] = []
  let [field, isQuoted, wasQuoted] = ['', false, false]
  for (let at = 0; at <= line.length; at++) {
    const each = line[at]
    if (each === undefined || (each === delimiter && !isQuoted)) {
      row.push(field === nullText && !wasQuoted ? null : field)
      field = ''
      wasQuoted = false
    } else if (
      isQuoted &&
      each === escaping &&
      (line[at + 1] === quote || line[at + 1] === escaping)
    ) {
      field += line[++at]
    } else if (each === quote) {
      isQuoted = !isQuoted
      wasQuoted = true
    } else field += each
  }
  return row
}
