/*
 * The text form of a value goes to PostgreSQL in one of three carriers: as a parameter of its own,
 * which needs no escaping, in an array literal, or in a line of COPY.
 */

/** Above this length, searching for each character on its own beats a regular expression. */
const SHORT_LENGTH_MAX = 64

// Backspace, form feed and vertical tab have escapes too, but COPY reads them as they are.
const COPY_SPECIAL = /[\\\t\n\r]/
const COPY_SPECIALS = /[\\\t\n\r]/g
const COPY_ESCAPES: Readonly<Record<string, string>> = {
  '\\': '\\\\',
  '\t': '\\t',
  '\n': '\\n',
  '\r': '\\r',
}

const ARRAY_SPECIAL = /["\\]/
const ARRAY_SPECIALS = /["\\]/g

function copyField(text: string): string {
  const special =
    text.length <= SHORT_LENGTH_MAX
      ? COPY_SPECIAL.test(text)
      : text.includes('\\') || text.includes('\n') || text.includes('\t') || text.includes('\r')
  return special
    ? text.replace(COPY_SPECIALS, (character) => COPY_ESCAPES[character] ?? character)
    : text
}

/**
 * One line of COPY in text format, with its line end. `prefix` is put in front as it is: fields the
 * caller knows to need no escaping, each with its tab.
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
  return special ? text.replace(ARRAY_SPECIALS, '\\$&') : text
}

/**
 * A PostgreSQL array literal. Every element is quoted, so that neither commas nor braces nor a text
 * that reads NULL need care.
 */
export function arrayLiteral(values: readonly (string | null)[]): string {
  let literal = '{'
  for (let index = 0; index < values.length; index++) {
    const text = values[index]
    if (index > 0) literal += ','
    literal += text === null || text === undefined ? 'NULL' : `"${arrayElement(text)}"`
  }
  return `${literal}}`
}
