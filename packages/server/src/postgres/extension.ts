import type { Database, Queryable } from './database.js'
import { ident, sql } from './sql.js'

/** What we use where there is it: pgvector, and trigrams. */
export type ExtensionName = 'vector' | 'pg_trgm'

/** Where an extension is, in this very database. */
export interface Extension {
  /** Its schema, of which its types and operators are. */
  readonly schema: string
  /** `[0, 8]` for 0.8.1. */
  readonly version: readonly [major: number, minor: number]
}

const known = new WeakMap<Database, Map<ExtensionName, Promise<Extension | undefined>>>()

/** An extension, when the server has it and lets us use it. Looked for once. */
export function findExtension(
  database: Database,
  name: ExtensionName,
): Promise<Extension | undefined> {
  const extensions = known.get(database) ?? new Map()
  known.set(database, extensions)
  let found = extensions.get(name)
  if (found === undefined) {
    found = prepareExtension(database, name)
    extensions.set(name, found)
    // PostgreSQL may have been away.
    found.catch(() => extensions.delete(name))
  }
  return found
}

async function prepareExtension(
  database: Database,
  name: ExtensionName,
): Promise<Extension | undefined> {
  const [available] = await database.query(sql`
    select from pg_available_extensions where name = ${name}`)
  if (available === undefined) return undefined
  const installed = await installedExtension(database, name)
  if (installed !== undefined) return installed
  try {
    await database.query(sql`create extension if not exists ${ident(name)}`)
  } catch {
    // Not everybody may; then we do without.
  }
  return installedExtension(database, name)
}

/** The same without creating it; also inside a transaction. */
export async function installedExtension(
  database: Queryable,
  name: ExtensionName,
): Promise<Extension | undefined> {
  const [row] = await database.query<{ schema: string; version: string }>(sql`
    select n.nspname as schema, e.extversion as version
    from pg_extension e
    join pg_namespace n on n.oid = e.extnamespace
    where e.extname = ${name} and has_schema_privilege(n.oid, 'usage')`)
  if (row === undefined) return undefined
  const [major = 0, minor = 0] = row.version.split('.').map(Number)
  return { schema: row.schema, version: [major, minor] }
}
