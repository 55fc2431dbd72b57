import type { Only } from '@offshoot/contract/branch-changes'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { Fault } from '../../rows/columns/fault.js'
import type { StoredTable } from '../../rows/columns/stored-schema.js'
import { compileTable, type TableCodec } from '../../rows/columns/table-codec.js'

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

/**
 * Returns the records to merge by the ids of their tables, with ids as the tables store them. undefined: all records of the
 * tables. Throws if an id is one that no table of the name can have.
 */
export function recordsByTable(
  only: Only | undefined,
  tables: readonly StoredTable[],
  limits: Limits,
): ReadonlyMap<number, readonly string[]> | undefined {
  if (only?.records === undefined) return undefined
  const wanted = new Set(namesIn(only))
  // Both sides may have different names for a table, and different tables of a name.
  const byName = new Map<string, { codec: TableCodec; records: Set<string> }[]>()
  const byId = new Map<number, Set<string>>()
  for (const table of tables.filter(({ name }) => wanted.has(name))) {
    const records = byId.get(table.id) ?? new Set()
    byId.set(table.id, records)
    const codec = compileTable(table, { limits, jsonAsText: false })
    byName.set(table.name, [...(byName.get(table.name) ?? []), { codec, records }])
  }
  for (const [index, { table, id }] of only.records.entries()) {
    const faults: Fault[] = []
    const named = byName.get(table) ?? []
    for (const { codec, records } of named) {
      const text = codec.encodeId(id)
      if (text instanceof Fault) faults.push(text)
      else records.add(text)
    }
    const [fault] = faults
    if (fault !== undefined && faults.length === named.length) {
      throw new AppError(
        'invalid_request',
        `body: field [only.records.${index}.id]: table [${table}]: record [${id}]: ${fault.message}`,
      )
    }
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
