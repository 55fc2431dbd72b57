interface Statement {
  readonly text: string
  /** The position of its first character. */
  readonly start: number
  readonly end: number
}

/**
 * Splits SQL at its semicolons, which do not count inside of texts, quoted names, dollar quotes and
 * comments.
 */
export function splitStatements(sql: string): readonly Statement[] {
  const statements: Statement[] = []
  let start = 0
  let position = 0
  const take = (end: number) => {
    const part = sql.slice(start, end)
    const text = part.trim()
    if (withoutComments(text) !== '') {
      const lead = part.length - part.trimStart().length
      statements.push({ text, start: start + lead, end: start + lead + text.length })
    }
    start = end + 1
  }
  while (position < sql.length) {
    const length = quotedLength(sql, position)
    if (length > 0) position += length
    else {
      if (sql[position] === ';') take(position)
      position++
    }
  }
  take(sql.length)
  return statements
}

/** Returns the length of the text, quoted name, dollar quote or comment at a position; 0 if there is none. */
function quotedLength(sql: string, position: number): number {
  const rest = sql.slice(position, position + 2)
  if (rest === '--') return lengthUntil(sql, position, '\n')
  if (rest === '/*') return commentLength(sql, position)
  const first = rest[0]
  if (first === "'" || first === '"') return stringLength(sql, position, first)
  if (first === '$') {
    const tag = /^\$(?:[\p{L}_][\p{L}\p{N}_]*)?\$/u.exec(sql.slice(position, position + 70))?.[0]
    if (tag === undefined) return 0
    const end = sql.indexOf(tag, position + tag.length)
    return (end < 0 ? sql.length : end + tag.length) - position
  }
  return 0
}

function lengthUntil(sql: string, position: number, mark: string): number {
  const end = sql.indexOf(mark, position)
  return (end < 0 ? sql.length : end + mark.length) - position
}

/** Comments of PostgreSQL can be nested. */
function commentLength(sql: string, start: number): number {
  let depth = 0
  for (let position = start; position < sql.length; position++) {
    const two = sql.slice(position, position + 2)
    if (two === '/*') {
      depth++
      position++
    } else if (two === '*/') {
      depth--
      position++
      if (depth === 0) return position + 1 - start
    }
  }
  return sql.length - start
}

/** A quote inside of a text is doubled; after `E`, it can also follow a backslash. */
function stringLength(sql: string, start: number, quote: string): number {
  const isEscaped = quote === "'" && /(^|[^\p{L}\p{N}_])e$/iu.test(sql.slice(0, start).slice(-2))
  for (let position = start + 1; position < sql.length; position++) {
    if (isEscaped && sql[position] === '\\') position++
    else if (sql[position] === quote) {
      if (sql[position + 1] !== quote) return position + 1 - start
      position++
    }
  }
  return sql.length - start
}

/** The statement without its comments, for a short label. */
export function withoutComments(text: string): string {
  return text
    .replace(/--[^\n]*/g, '')
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .trim()
}
