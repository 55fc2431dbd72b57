import { arrayLiteral } from '../../postgres/carriers.js'
import { sql } from '../../postgres/sql.js'
import { compileStatement, slot } from '../../postgres/statement.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'

const FIND = compileStatement(sql`
  select oid, typname from pg_catalog.pg_type where oid = any(${slot(0)}::oid[])`)

/** Built-in types have the same OID on every server. */
const OWN_ID_MAX = 9_999
const known = new Map<string, string>()

/** Finds the names of types in the catalogue, such as `text`, `int8` and `_text`. */
export async function findTypeNames(
  transaction: OpenTransaction,
  typeIds: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const unknown = [...new Set(typeIds)].filter((id) => !known.has(id))
  if (unknown.length === 0) return known
  const [rows = []] = await transaction.run([{ statement: FIND, values: [arrayLiteral(unknown)] }])
  const found = new Map(rows.map(([id, name]) => [id ?? '', name ?? '']))
  for (const [id, name] of found) if (Number(id) <= OWN_ID_MAX) known.set(id, name)
  return new Map([...known, ...found])
}
