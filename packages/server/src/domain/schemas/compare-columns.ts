import type { Column, Constraint, LinkAction } from '@offshoot/contract/schema'
import { toCanonicalJson } from '../../common/write-json.js'
import { detailChanges } from './alter-column.js'

interface ColumnDifference {
  readonly removed: readonly string[]
  readonly added: readonly Column[]
  /** Columns that keep their values. */
  readonly altered: readonly Altered[]
}

/** What a schema need not name. Without it, a column keeps what it has. */
const OPTIONS = ['description', 'generate', 'computed'] as const

type Altered = { readonly column: string } & Pick<Column, (typeof OPTIONS)[number]> &
  ReturnType<typeof detailChanges> & {
    readonly link?: { readonly onDelete?: LinkAction; readonly constraint?: string }
  }

/**
 * Compares two lists of columns by name and ignores their order. Returns the columns to remove and to
 * add to turn one list into the other. A changed column is in both results, unless it keeps its values. A column that the target
 * lists twice is added twice, which applying the edits refuses.
 */
export function compareColumns(
  source: readonly Column[],
  target: readonly Column[],
): ColumnDifference {
  const kept = new Map(source.map((column) => [column.name, column]))
  const added: Column[] = []
  const altered: Altered[] = []
  const keptNames = new Set<string>()
  for (const column of target) {
    const old = kept.get(column.name)
    if (old && !keptNames.has(column.name) && isSameColumn(old, column)) {
      keptNames.add(column.name)
      const changed = OPTIONS.filter(
        (option) => column[option] !== undefined && column[option] !== old[option],
      )
      const { onDelete, constraint } = column.link ?? {}
      const link = {
        ...(onDelete !== undefined && onDelete !== (old.link?.onDelete ?? 'none') && { onDelete }),
        ...(constraint !== undefined && constraint !== old.link?.constraint && { constraint }),
      }
      const changes = {
        ...Object.fromEntries(changed.map((option) => [option, column[option]])),
        ...detailChanges(old, column),
        ...(Object.keys(link).length > 0 && { link }),
      }
      if (Object.keys(changes).length > 0) altered.push({ column: column.name, ...changes })
    } else added.push(column)
  }
  const removed = source.map(({ name }) => name).filter((name) => !keptNames.has(name))
  return { removed, added, altered }
}

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
    isSameValues(one, other) &&
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
  const { removed, added, altered } = compareColumns(source, target)
  // Columns inside of an object cannot be altered.
  const isDetailed = altered.some(
    ({ bits, maxLength, withoutZone, link }) =>
      (bits ?? maxLength ?? withoutZone ?? link) !== undefined,
  )
  return removed.length === 0 && added.length === 0 && !isDetailed
}

function isSameValues({ enum: one }: Column, { enum: other }: Column): boolean {
  return (
    one?.type === other?.type &&
    one?.values.length === other?.values.length &&
    (one?.values ?? []).every((value, index) => value === other?.values[index])
  )
}

function isPublic(column: Column): boolean {
  return (column.file ?? column['file[]'])?.defaultPublicAccess ?? false
}
