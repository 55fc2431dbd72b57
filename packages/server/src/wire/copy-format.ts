import { WireError } from './wire-error.js'

/* The formats of COPY: text and csv, as PostgreSQL writes and reads them. */

export interface CopyFormat {
  readonly isCsv: boolean
  readonly delimiter: string
  readonly nullText: string
  readonly hasHeader: boolean
  /** The header that is read must have the names of the columns. */
  readonly matchesHeader: boolean
  /** Only of csv, like the following. */
  readonly quote: string
  readonly escaping: string
  readonly force: {
    /** All values but null are written in quotes. */
    readonly quote: Columns
    /** A text for null is null in quotes, too. */
    readonly null: Columns
    /** A text for null is a text. */
    readonly notNull: Columns
  }
}

/** Columns by their names, or all of them. */
export type Columns = readonly string[] | 'all'

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

/** Returns for each column whether it is among some. */
export function isAmong(some: Columns, columns: readonly string[]): readonly boolean[] {
  if (some === 'all') return columns.map(() => true)
  const unknown = some.find((name) => !columns.includes(name))
  if (unknown === undefined) return columns.map((name) => some.includes(name))
  throw new WireError('42P10', `column "${unknown}" is not one of those that COPY names`)
}

/** Writes a line. `isQuoted`: by column, whether its values are in quotes anyway. */
export function formatRow(
  row: CopyRow,
  format: CopyFormat,
  isQuoted: readonly boolean[] = [],
): string {
  const write = format.isCsv ? writeCsv : writeText
  const values = row.map((value, column) =>
    value === null ? format.nullText : write(value, format, isQuoted[column] ?? false),
  )
  return `${values.join(format.delimiter)}\n`
}

const ESCAPED = /[\b\f\n\r\t\v\\]/

function writeText(value: string, { delimiter }: CopyFormat): string {
  if (!ESCAPED.test(value) && !value.includes(delimiter)) return value
  let text = ''
  for (const each of value) text += ESCAPES[each] ?? (each === delimiter ? `\\${each}` : each)
  return text
}

function writeCsv(
  value: string,
  { delimiter, quote, escaping, nullText }: CopyFormat,
  isQuoted: boolean,
): string {
  const isPlain =
    !isQuoted &&
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
  /** Finds what can end a line or keep a line end from doing so, and what can end a value. */
  readonly #marks: { readonly line: RegExp; readonly value: RegExp }
  readonly #columns: readonly string[]
  readonly #lengthMax: number
  readonly #nulls: NullRules
  /** The parts of a line that has no end yet. */
  #parts: string[] = []
  #length = 0
  #isQuoted = false
  /** The next character is part of a value, whatever it is. */
  #isEscaped = false
  #isAtEnd = false
  #skipsHeader: boolean
  #lineCount = 0

  /** `columns`: their names; `lengthMax`: characters of one line. */
  constructor(
    format: CopyFormat,
    { columns, lengthMax }: { columns: readonly string[]; lengthMax: number },
  ) {
    const { isCsv, delimiter, quote, escaping } = format
    const special = isCsv ? [quote, escaping] : ['\\']
    this.#format = format
    this.#marks = { line: anyOf('\n', ...special), value: anyOf(delimiter, ...special) }
    this.#columns = columns
    this.#lengthMax = lengthMax
    this.#skipsHeader = format.hasHeader
    this.#nulls = {
      isNull: isAmong(format.force.null, columns),
      isText: isAmong(format.force.notNull, columns),
    }
  }

  /** The bytes of the line that has no end yet. */
  get bytes(): number {
    return this.#length + this.#parts.length * PART_BYTES
  }

  /** The number of the line that was read last. */
  get line(): number {
    return this.#lineCount
  }

  /** Returns the rows that are complete. */
  *push(text: string): Generator<CopyRow> {
    let start = 0
    for (
      let at = this.#endOf(text, 0);
      at !== -1 && !this.#isAtEnd;
      at = this.#endOf(text, start)
    ) {
      const line =
        this.#length === 0 ? text.slice(start, at) : this.#parts.join('') + text.slice(0, at)
      this.#parts = []
      this.#length = 0
      start = at + 1
      this.#count(line)
      const row = this.#read(line)
      if (row !== undefined) yield row
    }
    if (this.#isAtEnd || start === text.length) return
    this.#parts.push(text.slice(start))
    this.#length += text.length - start
    if (this.#length > this.#lengthMax) {
      this.#lineCount++
      throw new WireError('54000', `a line can have at most ${this.#lengthMax} characters`)
    }
  }

  /** Returns the row of a last line without an end. */
  *end(): Generator<CopyRow> {
    const line = this.#parts.join('')
    if (line === '' || this.#isAtEnd) return
    this.#count(line)
    if (this.#isQuoted) throw invalid('unterminated CSV quoted field')
    const row = this.#read(line)
    if (row !== undefined) yield row
  }

  /** Counts a line of CSV as often as PostgreSQL does: its quotes can have further ones. */
  #count(line: string): void {
    const isLong = this.#format.isCsv && line.includes('\n')
    this.#lineCount += isLong ? line.split('\n').length : 1
  }

  /** Returns the row of a line. undefined: it is the header, or the end of all rows. */
  #read(given: string): CopyRow | undefined {
    const line = given.endsWith('\r') ? given.slice(0, -1) : given
    // In CSV it is a value, as in PostgreSQL 18.
    if (line === '\\.' && !this.#format.isCsv) {
      this.#isAtEnd = true
      return undefined
    }
    const row = this.#format.isCsv
      ? readCsv(line, this.#format, { marks: this.#marks.value, nulls: this.#nulls })
      : readText(line, this.#format, this.#marks.value)
    if (this.#skipsHeader) {
      this.#skipsHeader = false
      if (this.#format.matchesHeader) this.#requireHeader(row)
      return undefined
    }
    return row
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

  /**
   * Returns where the line ends that begins or goes on at a position; -1 if its end has not arrived. A line end within quotes or
   * behind a backslash is part of a value.
   */
  #endOf(text: string, from: number): number {
    const { isCsv, quote, escaping } = this.#format
    let at = from
    if (this.#isEscaped && at < text.length) {
      this.#isEscaped = false
      at++
    }
    for (;;) {
      at = find(this.#marks.line, text, at)
      if (at === text.length) return -1
      const each = text[at]
      if (each === '\n' && !this.#isQuoted) return at
      at++
      const isEscape = isCsv
        ? this.#isQuoted && each === escaping && escaping !== quote
        : each === '\\'
      if (!isEscape) {
        if (isCsv && each === quote) this.#isQuoted = !this.#isQuoted
      } else if (at === text.length) this.#isEscaped = true
      else at++
    }
  }
}

/** Returns an expression that finds any of some characters. */
function anyOf(...characters: readonly string[]): RegExp {
  const codes = characters.map((each) => each.charCodeAt(0).toString(16).padStart(4, '0'))
  return new RegExp(`[${codes.map((code) => `\\u${code}`).join('')}]`, 'g')
}

/** Returns where a character is found from a position on; the length of the text if there is none. */
function find(marks: RegExp, text: string, from: number): number {
  marks.lastIndex = from
  return marks.test(text) ? marks.lastIndex - 1 : text.length
}

function readText(line: string, { nullText }: CopyFormat, marks: RegExp): CopyRow {
  const row: (string | null)[] = []
  let start = 0
  for (let at = 0; ; ) {
    const end = find(marks, line, at)
    at = end + 1
    if (line[end] === '\\') {
      // The character behind it is part of the value.
      at++
      continue
    }
    const field = line.slice(start, end)
    row.push(field === nullText ? null : withoutEscapes(field))
    if (end === line.length) return row
    start = at
  }
}

function withoutEscapes(field: string): string {
  if (!field.includes('\\')) return field
  return field.replace(
    /\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|([\s\S]?))/g,
    (_all, octal?: string, hex?: string, letter?: string) => {
      if (letter !== undefined) return UNESCAPES[letter] ?? letter
      const code = Number.parseInt(octal ?? hex ?? '', octal === undefined ? 16 : 8)
      if (code > 0x7f || code === 0) throw invalid('bytes beyond ASCII cannot be given by number')
      return String.fromCharCode(code)
    },
  )
}

/** What the text for null is, by column: null in quotes, too, or a text. */
interface NullRules {
  readonly isNull: readonly boolean[]
  readonly isText: readonly boolean[]
}

function readCsv(
  line: string,
  { delimiter, quote, escaping, nullText }: CopyFormat,
  { marks, nulls }: { marks: RegExp; nulls: NullRules },
): CopyRow {
  const row: (string | null)[] = []
  let [field, isQuoted, wasQuoted] = ['', false, false]
  for (let at = 0; ; ) {
    const end = find(marks, line, at)
    field += line.slice(at, end)
    at = end + 1
    const [each, next] = [line[end], line[at]]
    if (each === undefined || (each === delimiter && !isQuoted)) {
      const isNull = wasQuoted ? nulls.isNull[row.length] : !nulls.isText[row.length]
      row.push(field === nullText && isNull ? null : field)
      if (each === undefined) return row
      field = ''
      wasQuoted = false
    } else if (isQuoted && each === escaping && (next === quote || next === escaping)) {
      field += next
      at++
    } else if (each === quote) {
      isQuoted = !isQuoted
      wasQuoted = true
    } else field += each
  }
}
