import sql, { empty, join, raw, type Sql } from 'sql-template-tag'

export { empty, join, type Sql, sql }

/** PostgreSQL cuts longer names silently, so they must not get that far. */
const IDENTIFIER_BYTES_MAX = 63

/** A quoted identifier. The only way a name that is not written in the source gets into SQL. */
export function ident(name: string): Sql {
  return raw(quoteIdent(name))
}

/** The same as text, for statements that are composed once and kept. */
export function quoteIdent(name: string): string {
  if (name === '') throw new Error('an SQL identifier must not be empty')
  if (name.includes('\0')) throw new Error('an SQL identifier must not contain NUL')
  if (Buffer.byteLength(name) > IDENTIFIER_BYTES_MAX) {
    throw new Error(`an SQL identifier must not be longer than ${IDENTIFIER_BYTES_MAX} bytes`)
  }
  return `"${name.replaceAll('"', '""')}"`
}
