import type { Column, Constraint, IdType } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { toCanonicalJson } from '../../common/write-json.js'
import { conversionFault } from '../../rows/columns/conversions.js'
import { ID_TYPE_OF } from './added-links.js'
import { type Alteration, copyOf, detailChanges } from './alter-column.js'
import { checkGenerate } from './check-column.js'

interface ColumnDifference {
  readonly removed: readonly string[]
  readonly added: readonly Column[]
  /** Columns that keep their values. */
  readonly altered: readonly Altered[]
}

type Altered = Omit<Alteration, 'table'>

/** What a schema need not name. Without it, a column keeps what it has. */
const OPTIONS = ['description', 'generate', 'computed'] as const

/** Returns whether a column can become another one and keep its values. */
export type CanBecome = (before: Column, after: Column) => boolean

/** For clients that know no operation that alters columns, and for columns inside of an object, which cannot be altered. */
export const NEVER: CanBecome = () => false

/**
 * Compares two lists of columns by name and ignores their order. Returns the columns to remove and to
 * add to turn one list into the other. A changed column is in both results, unless it keeps its values. A column that the target
 * lists twice is added twice, which applying the edits refuses.
 */
export function compareColumns(
  source: readonly Column[],
  target: readonly Column[],
  canBecome: CanBecome,
): ColumnDifference {
  const kept = new Map(source.map((column) => [column.name, column]))
  const added: Column[] = []
  const altered: Altered[] = []
  const keptNames = new Set<string>()
  for (const column of target) {
    const old = kept.get(column.name)
    const isKept =
      old && !keptNames.has(column.name) && (isSameColumn(old, column) || canBecome(old, column))
    if (isKept) {
      keptNames.add(column.name)
      const changes = changesTo(old, column)
      if (Object.keys(changes).length > 0) altered.push({ column: column.name, ...changes })
    } else added.push(column)
  }
  const removed = source.map(({ name }) => name).filter((name) => !keptNames.has(name))
  return { removed, added, altered }
}

/** The edits of the columns of a table, in the order in which they can be applied. */
interface ColumnEdits {
  readonly removals: readonly SchemaOperation[]
  readonly changes: readonly SchemaOperation[]
  /** Changed expressions use columns that are there by then. */
  readonly expressions: readonly SchemaOperation[]
}

export function columnEdits(
  table: string,
  { removed, added, altered }: ColumnDifference,
): ColumnEdits {
  const alterations = altered.map((column) => ({ alterColumn: { table, ...column } }))
  const isComputed = ({ alterColumn }: (typeof alterations)[number]) =>
    alterColumn.computed !== undefined
  return {
    removals: removed.map((column) => ({ removeColumn: { table, column } })),
    changes: [
      ...alterations.filter((each) => !isComputed(each)),
      // An added column can use columns that are added after it, so the order is that of the schema.
      ...added.map((column) => ({ addColumn: { table, column } })),
    ],
    expressions: alterations.filter(isComputed),
  }
}

/** Returns whether a column can become another one, if all of its values can. `idTypeOf` returns the type of the ids of a table. */
export function canAlter(idTypeOf: (table: string) => IdType): CanBecome {
  return (before, after) => {
    if (before.computed !== undefined || after.computed !== undefined) {
      return before.computed !== undefined && after.computed !== undefined
    }
    return (
      canTakeType(before, after, idTypeOf) &&
      before.vector?.dimension === after.vector?.dimension &&
      isPublic(before) === isPublic(after) &&
      isSameList(before.columns ?? [], after.columns ?? [])
    )
  }
}

function canTakeType(before: Column, after: Column, idTypeOf: (table: string) => IdType): boolean {
  if (before.type === after.type) return before.link?.table === after.link?.table
  const made = { id: 0, name: after.name, type: after.type }
  const from = { id: 0, name: before.name, type: before.type }
  if (conversionFault({ ...made, from }) !== undefined) return false
  return after.link === undefined || ID_TYPE_OF[before.type] === idTypeOf(after.link.table)
}

/** Returns what changes in a column that keeps its values. */
function changesTo(old: Column, column: Column): Omit<Altered, 'column'> {
  const isNewType = old.type !== column.type
  const changed = OPTIONS.filter(
    (option) => column[option] !== undefined && column[option] !== old[option],
  )
  const { defaultValue = null, notNull = false, unique = false } = column
  return {
    ...(isNewType && { type: column.type }),
    ...linkChanges(isNewType ? undefined : old.link, column.link),
    ...(column.decimal && !isSame(old.decimal, column.decimal) && { decimal: column.decimal }),
    ...detailChanges(isNewType ? {} : old, column),
    ...(column.enum && !isSame(old.enum, column.enum) && { enum: copyOf(column.enum) }),
    ...((old.notNull ?? false) !== notNull && { notNull }),
    ...((old.unique ?? false) !== unique && { unique }),
    ...((old.defaultValue ?? null) !== defaultValue && { defaultValue }),
    ...(endsGenerator(old, column) && { generate: null }),
    ...Object.fromEntries(changed.map((option) => [option, column[option]])),
  }
}

function linkChanges(before: Column['link'], link: Column['link']): Pick<Altered, 'link'> {
  if (link === undefined || before === undefined) return link === undefined ? {} : { link }
  const { onDelete, constraint } = link
  const changes = {
    ...(onDelete !== undefined && onDelete !== (before.onDelete ?? 'none') && { onDelete }),
    ...(constraint !== undefined && constraint !== before.constraint && { constraint }),
  }
  return Object.keys(changes).length === 0 ? {} : { link: changes }
}

/** Returns whether a column cannot keep the generator that its new definition does not name. */
function endsGenerator({ generate }: Column, { maxLength: _, ...column }: Column): boolean {
  if (generate === undefined || column.generate !== undefined) return false
  return checkGenerate({ ...column, generate }) !== undefined
}

const isSame = (one: unknown, other: unknown) => toCanonicalJson(one) === toCanonicalJson(other)

/** Compares constraints in the same way. A schema need not say that a rule is shown as an index. */
export function compareConstraints(
  source: readonly Constraint[],
  target: readonly Constraint[],
): { readonly removed: readonly string[]; readonly added: readonly Constraint[] } {
  const shown = new Map(source.map(({ name, index }) => [name, index]))
  const whole = target.map(({ index, ...rule }): Constraint => {
    const isIndex = index ?? shown.get(rule.name) ?? false
    return { ...rule, ...(isIndex && { index: true }) }
  })
  const kept = new Set(source.map(toCanonicalJson))
  const wanted = new Set(whole.map(toCanonicalJson))
  return {
    removed: source.filter((each) => !wanted.has(toCanonicalJson(each))).map(({ name }) => name),
    added: whole.filter((each) => !kept.has(toCanonicalJson(each))),
  }
}

function isSameColumn(one: Column, other: Column): boolean {
  return (
    one.name === other.name &&
    one.type === other.type &&
    one.link?.table === other.link?.table &&
    one.vector?.dimension === other.vector?.dimension &&
    one.decimal?.precision === other.decimal?.precision &&
    one.decimal?.scale === other.decimal?.scale &&
    isSame(one.enum ?? null, other.enum ?? null) &&
    isPublic(one) === isPublic(other) &&
    (one.notNull ?? false) === (other.notNull ?? false) &&
    (one.unique ?? false) === (other.unique ?? false) &&
    one.defaultValue === other.defaultValue &&
    (one.computed !== undefined || other.computed === undefined) &&
    isSameList(one.columns ?? [], other.columns ?? [])
  )
}

function isSameList(source: readonly Column[], target: readonly Column[]): boolean {
  if (source.length !== target.length) return false
  const { removed, added, altered } = compareColumns(source, target, NEVER)
  const isDetailed = altered.some(
    ({ bits, maxLength, withoutZone, link }) =>
      (bits ?? maxLength ?? withoutZone ?? link) !== undefined,
  )
  return removed.length === 0 && added.length === 0 && !isDetailed
}

function isPublic(column: Column): boolean {
  return (column.file ?? column['file[]'])?.defaultPublicAccess ?? false
}
