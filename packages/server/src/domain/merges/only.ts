import type { Only } from '@offshoot/contract/branch-changes'
import { AppError } from '@offshoot/contract/errors'
import type { StoredTable } from '../../rows/columns/stored-schema.js'

/*
 * A merge can take a part of a difference. With tables, all others are left out, and the history records it: each of them
 * keeps the base that it had. With records, the history records nothing, because a state with some of the records of
 * another one does not contain it. A later merge of the whole compares with the old base, and finds that both sides have
 * these records.
 */

/** Throws if `only` names nothing, or names both tables and records. */
export function checkOnly(only: Only | undefined, tables: Readonly<Record<string, unknown>>): void {
  if (only === undefined) return
  if ((only.tables === undefined) === (only.records === undefined)) {
    throw new AppError(
      'invalid_request',
      'body: field [only]: must have either [tables] or [records]',
    )
  }
  const named = new Set(namesIn(only))
  const other = Object.keys(tables).find((name) => !named.has(name))
  if (other === undefined) return
  throw new AppError(
    'invalid_request',
    `body: field [tables.${other}]: table [${other}] is not among those of [only]`,
  )
}

/** Throws if `only` names a table that neither side has. */
export function requireKnownOnly(only: Only | undefined, known: ReadonlySet<string>): void {
  if (only === undefined) return
  const unknown = namesIn(only).findIndex((name) => !known.has(name))
  if (unknown < 0) return
  const field = only.tables === undefined ? `records.${unknown}.table` : `tables.${unknown}`
  throw new AppError(
    'invalid_request',
    `body: field [only.${field}]: table [${namesIn(only)[unknown]}] not found`,
  )
}

/** Returns whether a table of this name takes part in the merge. */
export function isNamed(only: Only | undefined, name: string): boolean {
  return only === undefined || namesIn(only).includes(name)
}

/** Returns the records to merge by the ids of their tables. undefined: all records of the tables. */
export function recordsByTable(
  only: Only | undefined,
  tables: readonly Pick<StoredTable, 'id' | 'name'>[],
): ReadonlyMap<number, readonly string[]> | undefined {
  if (only?.records === undefined) return undefined
  const byName = new Map<string, Set<string>>()
  for (const { table, id } of only.records) {
    byName.set(table, (byName.get(table) ?? new Set()).add(id))
  }
  const byId = new Map<number, Set<string>>()
  // Both sides may have different names for a table.
  for (const { id, name } of tables) {
    const named = byName.get(name)
    if (named !== undefined) byId.set(id, new Set([...(byId.get(id) ?? []), ...named]))
  }
  return new Map([...byId].map(([id, records]) => [id, [...records]]))
}

/** Returns what the log tells about a partial merge. The ids of records are not part of it. */
export function describeOnly({ tables, records }: Only): object {
  return tables === undefined ? { records: records?.length } : { tables }
}

function namesIn({ tables, records = [] }: Only): readonly string[] {
  return tables ?? records.map(({ table }) => table)
}
