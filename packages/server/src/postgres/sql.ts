import sql, { empty, join, raw, Sql } from 'sql-template-tag'

/**
 * `raw` is only for SQL that is written in the source, such as a type name; never for identifiers
 * from outside.
 */
export { empty, join, raw, Sql, sql }

/** PostgreSQL truncates longer names silently, so they are refused here. */
const IDENTIFIER_BYTES_MAX = 63

/**
 * Quotes an identifier. This is the only way for a name that is not written in the source into SQL.
 */
export function ident(name: string): Sql {
  return raw(quoteIdent(name))
}

/** Quotes an identifier as plain text, for statements that are composed once and kept. */
export function quoteIdent(name: string): string {
  if (name === '') throw new Error('an SQL identifier must not be empty')
  if (name.includes('\0')) throw new Error('an SQL identifier must not contain NUL')
  if (Buffer.byteLength(name) > IDENTIFIER_BYTES_MAX) {
    throw new Error(`an SQL identifier must not be longer than ${IDENTIFIER_BYTES_MAX} bytes`)
  }
  return `"${name.replaceAll('"', '""')}"`
}

/** Returns a whole number for a place where PostgreSQL takes no parameters. */
export function integer(value: number): Sql {
  if (!Number.isSafeInteger(value)) throw new Error('an SQL number must be whole')
  return raw(String(value))
}

/** Quotes a constant that is part of the statement, not a parameter of one run. */
export function literal(text: string): Sql {
  if (text.includes('\0')) throw new Error('an SQL constant must not contain NUL')
  // The E form treats backslashes the same under every server setting.
  return raw(`E'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`)
}
