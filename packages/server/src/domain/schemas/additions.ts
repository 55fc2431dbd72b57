import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { inTurns } from '../../common/in-turns.js'
import type { StoredSchema, StoredTable } from '../../rows/columns/stored-schema.js'
import { applyOperations } from './apply-operations.js'
import { dryRunOptions } from './edit-options.js'
import { rememberIds } from './remembered-ids.js'

/*
 * Edits that only add change no rows, so they are taken back without the state before them: what they have added is
 * removed. Its ids tell what that is, also after it was renamed.
 */

/** Returns whether operations only add tables, columns and constraints. */
export function onlyAdds(operations: readonly SchemaOperation[]): boolean {
  return operations.every(
    (operation) =>
      'addTable' in operation || 'addColumn' in operation || 'addConstraint' in operation,
  )
}

/** Lists the ids of tables, and of columns and constraints of other tables, that only the later schema has. */
export function listAdded(before: StoredSchema, after: StoredSchema): number[] {
  const known = new Set(before.tables.flatMap((table) => [table.id, ...partsOf(table)]))
  return after.tables
    .flatMap((table) => (known.has(table.id) ? partsOf(table) : [table.id]))
    .filter((id) => !known.has(id))
}

const partsOf = ({ columns, constraints = [] }: StoredTable): number[] =>
  [...columns, ...constraints].map(({ id }) => id)

/** Returns a schema without what was added. Throws if something that came later needs it. */
export async function withoutAdded(
  schema: StoredSchema,
  { added, name, limits }: { added: readonly number[]; name: string; limits: Limits },
): Promise<StoredSchema> {
  const operations = listRemovals(schema, liveIds(schema, added))
  try {
    const applied = applyOperations(schema, operations, dryRunOptions(limits))
    return rememberIds(schema, (await inTurns(applied)).schema)
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    throw new AppError('not_revertible', `${name}: what it has added is needed: ${error.message}`)
  }
}

/** Returns the ids that the schema uses for what was added. What a revert has brought back has another id. */
function liveIds({ sameIds = [] }: StoredSchema, added: readonly number[]): Set<number> {
  const given = new Set(added)
  return new Set([...added, ...sameIds.filter((ids) => ids.some((id) => given.has(id))).flat()])
}

/** Columns are removed in reverse order: later ones can be computed of earlier ones, and link to the tables. */
function listRemovals({ tables }: StoredSchema, ids: ReadonlySet<number>): SchemaOperation[] {
  const isAdded = ({ id }: { readonly id: number }) => ids.has(id)
  const others = tables.filter((table) => !isAdded(table))
  return [
    ...others.flatMap(({ name: table, constraints = [] }) =>
      constraints
        .filter(isAdded)
        .map(({ name: constraint }) => ({ removeConstraint: { table, constraint } })),
    ),
    ...others.flatMap(({ name: table, columns }) =>
      columns
        .filter(isAdded)
        .map(({ name: column }) => ({ removeColumn: { table, column } }))
        .reverse(),
    ),
    ...tables
      .filter(isAdded)
      .map(({ name: table }) => ({ removeTable: { table } }))
      .reverse(),
  ]
}
