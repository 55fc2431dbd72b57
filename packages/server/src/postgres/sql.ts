import sql, { empty, join, raw, type Sql } from 'sql-template-tag'

/** `raw` is for SQL that is written in the source, such as the name of a type; never for a name. */
export { empty, join, raw, type Sql, sql }

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

/** A quoted constant, for values that belong to a statement and not to one run of it. */
export function literal(text: string): Sql {
  if (text.includes('\0')) throw new Error('an SQL constant must not contain NUL')
  // The E form reads backslashes the same whatever the server is set to.
  return raw(`E'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`)
}
