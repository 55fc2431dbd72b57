import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

/** Built-in types have the same OID on every server. */
const OWN_ID_MAX = 9_999
const known = new Map<string, string>()

/** Finds the names of types in the catalogue, such as `text`, `int8` and `_text`. */
export async function findTypeNames(
  database: Queryable,
  typeIds: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const unknown = [...new Set(typeIds)].filter((id) => !known.has(id))
  if (unknown.length === 0) return known
  const rows = await database.query<{ id: string; name: string }>(sql`
    select oid::text as id, typname as name from pg_catalog.pg_type where oid = any(${unknown}::oid[])`)
  const found = new Map(rows.map(({ id, name }) => [id, name]))
  for (const [id, name] of found) if (Number(id) <= OWN_ID_MAX) known.set(id, name)
  return new Map([...known, ...found])
}
