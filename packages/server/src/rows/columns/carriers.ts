/*
 * PostgreSQL receives the text form of a value in one of three ways: as a parameter, which needs no
 * escaping, as an element of an array literal, or as a field of a COPY line.
 */

/** Above this length, one search per special character is faster than a regular expression. */
const SHORT_LENGTH_MAX = 64

// COPY also has escapes for backspace, form feed and vertical tab, but accepts these unescaped.
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
  return special ? text.replace(ARRAY_SPECIALS, '\\$&') : text
}

/**
 * Returns a PostgreSQL array literal. Every element is quoted, so commas, braces and the text `NULL` need
 * no special handling.
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
