import { AppError } from '@offshoot/contract/errors'
import { cutName } from '../../../dialect/scope.js'
import type { ColumnModel, TableModel } from './schema-model.js'
import { NAME_BYTES_MAX } from './schema-work.js'

export const indexName = (table: TableModel, column: string): string =>
  cutName(`${table.name}_${column}_idx`)

export const usualReference = (table: TableModel, { definition }: ColumnModel): string =>
  cutName(`${table.name}_${definition.name}_fkey`)

/** Finds the column of a rule that linked records exist. */
export const findReference = (table: TableModel, name: string): ColumnModel | undefined =>
  table.columns.find((each) => {
    const { onDelete = 'none', constraint = usualReference(table, each) } =
      each.definition.link ?? {}
    return onDelete !== 'none' && constraint === name
  })

/** Finds the unique column whose rule has a name. */
export const findUnique = (table: TableModel, name: string): ColumnModel | undefined =>
  table.columns.find(
    ({ definition }) =>
      definition.unique === true && cutName(`${table.name}_${definition.name}_key`) === name,
  )

/**
 * Returns whether a name can be meant for the key of the ids. That follows the table, but in PostgreSQL it keeps the name of the
 * table that it was made with, so migrations that have renamed the table know it by that one.
 */
export const isIdKey = (table: TableModel, name: string): boolean =>
  name.endsWith('_pkey') && table.constraints.every((each) => each.name !== name)

/** Returns the name of a check that has none, as PostgreSQL would choose it. */
export function freeName(table: TableModel, start: string): string {
  const taken = new Set(table.constraints.map(({ name }) => name))
  for (let count = 0; ; count++) {
    const suffix = `_check${count === 0 ? '' : count}`
    const name = `${cutName(start, NAME_BYTES_MAX - suffix.length)}${suffix}`
    if (!taken.has(name)) return name
  }
}

export function requireFree(table: TableModel, name: string): void {
  const isTaken = table.constraints.some((each) => each.name === name)
  const user = findReference(table, name) ?? findUnique(table, name)
  if (!isTaken && user === undefined) return
  throw new AppError(
    'already_exists',
    `constraint [${name}] of table [${table.name}] already exists`,
  )
}
