/*
 * PostgreSQL receives the text form of a value in one of three ways: as a parameter, which needs no
 * escaping, as an element of an array literal, or as a field of a COPY line.
 */

/** Above this length, one search per special character is faster than a regular expression. */
const SHORT_LENGTH_MAX = 64

/** Above this length, texts are escaped byte by byte: an expression takes long if most must be escaped. */
const LONG_LENGTH_MIN = 16 * 1024

// COPY also has escapes for backspace, form feed and vertical tab, but accepts these unescaped.
const COPY_SPECIAL = /[\\\t\n\r]/
const COPY_SPECIALS = /[\\\t\n\r]/g
const COPY_ESCAPES: Readonly<Record<string, string>> = {
  '\\': '\\\\',
  '\t': '\\t',
  '\n': '\\n',
  '\r': '\\r',
}

const BACKSLASH = 0x5c

/** Returns, for each byte, the letter that stands for it after a backslash; 0 if it needs no escape. */
function letterTable(escapes: Readonly<Record<string, string>>): Uint8Array {
  const letters = new Uint8Array(256)
  for (const [character, sequence] of Object.entries(escapes)) {
    letters[character.charCodeAt(0)] = sequence.charCodeAt(1)
  }
  return letters
}

const COPY_LETTERS = letterTable(COPY_ESCAPES)
const ARRAY_LETTERS = letterTable({ '"': '\\"', '\\': '\\\\' })

const ARRAY_SPECIAL = /["\\]/
const ARRAY_SPECIALS = /["\\]/g

function copyField(text: string): string {
  const special =
    text.length <= SHORT_LENGTH_MAX
      ? COPY_SPECIAL.test(text)
      : text.includes('\\') || text.includes('\n') || text.includes('\t') || text.includes('\r')
  if (!special) return text
  return text.length > LONG_LENGTH_MIN
    ? escapeLong(text, COPY_LETTERS)
    : text.replace(COPY_SPECIALS, (character) => COPY_ESCAPES[character] ?? character)
}

/**
 * Returns one line of COPY in text format, including the line end. `prefix` is written unescaped: it holds
 * fields that need no escaping, each followed by a tab.
 */
export function copyLine(values: readonly (string | null)[], prefix = ''): string {
  let line = prefix
  for (let index = 0; index < values.length; index++) {
    const text = values[index]
    if (index > 0) line += '\t'
    line += text === null || text === undefined ? '\\N' : copyField(text)
  }
  return `${line}\n`
}

function arrayElement(text: string): string {
  const special =
    text.length <= SHORT_LENGTH_MAX
      ? ARRAY_SPECIAL.test(text)
      : text.includes('"') || text.includes('\\')
  if (!special) return text
  return text.length > LONG_LENGTH_MIN
    ? escapeLong(text, ARRAY_LETTERS)
    : text.replace(ARRAY_SPECIALS, '\\$&')
}

/** Puts a backslash and the letter of the table in place of each byte that has one. */
function escapeLong(text: string, letters: Uint8Array): string {
  const bytes = Buffer.from(text)
  const escaped = Buffer.allocUnsafe(2 * bytes.length)
  let length = 0
  for (const byte of bytes) {
    const letter = letters[byte] ?? 0
    if (letter !== 0) escaped[length++] = BACKSLASH
    escaped[length++] = letter === 0 ? byte : letter
  }
  return escaped.toString('utf8', 0, length)
}

/** Elements of a list that is written at once. */
const SHORT_LIST_MAX = 1000

/**
 * Returns a PostgreSQL array literal. Every element is quoted, so commas, braces and the text `NULL` need
 * no special handling.
 */
export function arrayLiteral(values: readonly (string | null)[]): string {
  if (values.length > SHORT_LIST_MAX) return longArrayLiteral(values)
  let literal = '{'
  for (let index = 0; index < values.length; index++) {
    if (index > 0) literal += ','
    literal += quotedElement(values[index])
  }
  return `${literal}}`
}

/**
 * Joins the elements in parts. V8 represents the result of many concatenations as a tree, and the garbage collector
 * blocks the event loop while it copies a large one.
 */
function longArrayLiteral(values: readonly (string | null)[]): string {
  const parts: string[] = []
  for (let start = 0; start < values.length; start += SHORT_LIST_MAX) {
    parts.push(
      values
        .slice(start, start + SHORT_LIST_MAX)
        .map(quotedElement)
        .join(','),
    )
  }
  return `{${parts.join(',')}}`
}

function quotedElement(text: string | null | undefined): string {
  return text === null || text === undefined ? 'NULL' : `"${arrayElement(text)}"`
}
