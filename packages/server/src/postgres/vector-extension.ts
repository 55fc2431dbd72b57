import type { Database, Queryable } from './database.js'
import { sql } from './sql.js'

/** Where pgvector is, in this very database. */
export interface VectorExtension {
  /** Its schema, of which its type and operators are. */
  readonly schema: string
  /** `[0, 8]` for 0.8.1. */
  readonly version: readonly [major: number, minor: number]
}

const known = new WeakMap<Database, Promise<VectorExtension | undefined>>()

/** pgvector, when the server has it and lets us use it. Looked for once. */
export function findVectorExtension(database: Database): Promise<VectorExtension | undefined> {
  let found = known.get(database)
  if (found === undefined) {
    found = prepareExtension(database)
    known.set(database, found)
    // PostgreSQL may have been away.
    found.catch(() => known.delete(database))
  }
  return found
}

async function prepareExtension(database: Database): Promise<VectorExtension | undefined> {
  const [available] = await database.query(sql`
    select from pg_available_extensions where name = 'vector'`)
  if (available === undefined) return undefined
  const installed = await installedExtension(database)
  if (installed !== undefined) return installed
  try {
    await database.query(sql`create extension if not exists vector`)
  } catch {
    // Not everybody may; without it, vectors are compared as arrays.
  }
  return installedExtension(database)
}

/** The same without creating it; also inside a transaction. */
export async function installedExtension(
  database: Queryable,
): Promise<VectorExtension | undefined> {
  const [row] = await database.query<{ schema: string; version: string }>(sql`
    select n.nspname as schema, e.extversion as version
    from pg_extension e
    join pg_namespace n on n.oid = e.extnamespace
    where e.extname = 'vector' and has_schema_privilege(n.oid, 'usage')`)
  if (row === undefined) return undefined
  const [major = 0, minor = 0] = row.version.split('.').map(Number)
  return { schema: row.schema, version: [major, minor] }
}
