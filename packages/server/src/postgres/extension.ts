import type { Database, Queryable } from './database.js'
import { ident, sql } from './sql.js'

/** Optional extensions: pgvector and pg_trgm. */
type ExtensionName = 'vector' | 'pg_trgm'

/** An extension that is installed in the database. */
export interface Extension {
  /** The schema of its types and operators. */
  readonly schema: string
}

/** The extensions that one process has looked for. */
export class Extensions {
  readonly #database: Database
  readonly #known = new Map<ExtensionName, Promise<Extension | undefined>>()

  constructor(database: Database) {
    this.#database = database
  }

  /** Finds an extension, and installs it if the server has it and our role may. The result is cached. */
  find(name: ExtensionName): Promise<Extension | undefined> {
    let found = this.#known.get(name)
    if (found === undefined) {
      found = prepareExtension(this.#database, name)
      this.#known.set(name, found)
      // Do not cache a failure: PostgreSQL may have been unreachable.
      found.catch(() => this.#known.delete(name))
    }
    return found
  }
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
    // Our role may not create extensions; continue without.
  }
  return installedExtension(database, name)
}

/** Finds an installed extension without installing it. Can be used inside a transaction. */
export async function installedExtension(
  database: Queryable,
  name: ExtensionName,
): Promise<Extension | undefined> {
  const [row] = await database.query<Extension>(sql`
    select n.nspname as schema
    from pg_extension e
    join pg_namespace n on n.oid = e.extnamespace
    where e.extname = ${name} and has_schema_privilege(n.oid, 'usage')`)
  return row
}
