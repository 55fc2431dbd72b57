import type { Limits } from '@offshoot/contract/limits'
import {
  listAllColumns,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import { mergeEnum } from './merge-enum.js'

type Values = readonly string[]

/** A column of the merged tables that has an enum type. */
interface TypedColumn {
  readonly table: StoredTable
  readonly column: StoredColumn
  readonly values: Values
}

interface Options {
  readonly base: StoredSchema
  readonly ours: StoredSchema
  readonly theirs: StoredSchema
  readonly limits: Limits
  /** Whether the definition of a column is in conflict already. */
  isContested(id: number): boolean
  conflict(conflict: { table: string; column: string; message: string }): void
}

/**
 * Gives all columns of an enum type the same values, if they had them on both sides: one side can have added columns of the
 * type, and the other side values. No column loses values that its own merge has kept.
 */
export function withMergedTypes(tables: readonly StoredTable[], options: Options): StoredTable[] {
  const merged = new Map<string, Values>()
  for (const [type, columns] of columnsByType(tables)) {
    const [first, ...others] = columns
    const other = others.find((each) => !isSame(each.values, first?.values))
    if (other === undefined || columns.some(({ column }) => options.isContested(column.id)))
      continue
    const values = mergeType(columns, options)
    if (values === 'apart') continue
    if (values !== undefined) merged.set(type, values)
    else {
      options.conflict({
        table: other.table.name,
        column: other.column.name,
        message:
          `both sides have changed the values of the type [${type}] of this and other columns, and no list has all of ` +
          'them in the order of both sides; give its columns the same values on both sides first',
      })
    }
  }
  if (merged.size === 0) return [...tables]
  const withValues = (column: StoredColumn): StoredColumn => {
    const values = merged.get(column.enum?.type ?? '')
    return {
      ...column,
      ...(values && { enum: { ...column.enum, values } }),
      ...(column.columns && { columns: column.columns.map(withValues) }),
    }
  }
  return tables.map((table) => ({ ...table, columns: table.columns.map(withValues) }))
}

function columnsByType(tables: readonly StoredTable[]): Map<string, TypedColumn[]> {
  const types = new Map<string, TypedColumn[]>()
  for (const table of tables) {
    for (const column of listAllColumns(table.columns)) {
      const { type, values } = column.enum ?? {}
      if (type === undefined || values === undefined) continue
      const known = types.get(type)
      if (known === undefined) types.set(type, [{ table, column, values }])
      else known.push({ table, column, values })
    }
  }
  return types
}

/** Returns the values of a type. undefined: they cannot be one list. `apart`: on one side, its columns have different ones. */
function mergeType(
  columns: readonly TypedColumn[],
  { base, ours, theirs, limits }: Options,
): Values | 'apart' | undefined {
  const ids = new Set(columns.map(({ column }) => column.id))
  const listsOf = ({ tables }: StoredSchema) => distinctLists(tables, ids)
  const [before = [], mine = [], others = []] = [base, ours, theirs].map(listsOf)
  if (mine.length > 1 || others.length > 1) return 'apart'
  const [own, other] = [mine[0] ?? [], others[0] ?? []]
  const values =
    mergeLists({ before: before.length === 1 ? before[0] : undefined, own, other }) ??
    decidedValues(columns, { ours, theirs })
  const isWide = columns.every((each) => each.values.every((value) => values?.includes(value)))
  return isWide && (values?.length ?? 0) <= limits.enumValuesMax ? values : undefined
}

function mergeLists({
  before,
  own,
  other,
}: {
  before: Values | undefined
  own: Values
  other: Values
}): Values | undefined {
  // Without a common list, each side has added what the other one does not have.
  const common = own.filter((value) => other.includes(value))
  const hasOrder = isSame(
    common,
    other.filter((value) => own.includes(value)),
  )
  if (before === undefined && !hasOrder) return undefined
  return mergeEnum({
    before: { values: before ?? common },
    ours: { values: own },
    theirs: { values: other },
  })?.values
}

/** Returns the values that all columns of both sides have after their own merge, such as by a decision. */
function decidedValues(
  columns: readonly TypedColumn[],
  { ours, theirs }: Pick<Options, 'ours' | 'theirs'>,
): Values | undefined {
  const [here, there] = [ours, theirs].map(
    ({ tables }) =>
      new Set(tables.flatMap((table) => listAllColumns(table.columns)).map(({ id }) => id)),
  )
  const [first, ...others] = columns.filter(({ column: { id } }) => here?.has(id) && there?.has(id))
  return others.every(({ values }) => isSame(values, first?.values)) ? first?.values : undefined
}

function distinctLists(tables: readonly StoredTable[], ids: ReadonlySet<number>): Values[] {
  const lists: Values[] = []
  for (const { id, enum: list } of tables.flatMap((table) => listAllColumns(table.columns))) {
    if (list === undefined || !ids.has(id)) continue
    if (!lists.some((each) => isSame(each, list.values))) lists.push(list.values)
  }
  return lists
}

const isSame = (one: Values | undefined, other: Values | undefined): boolean =>
  one?.length === other?.length && one?.every((value, index) => value === other?.[index]) === true
