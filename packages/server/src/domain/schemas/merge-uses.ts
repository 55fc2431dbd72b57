import type { Column, Constraint } from '@offshoot/contract/schema'
import { toCanonicalJson } from '../../common/write-json.js'
import { listAllColumns, type StoredColumn } from '../../rows/columns/stored-schema.js'
import { isMadeOf, type MergeStrategy, type Take } from './merge-definitions.js'
import { columnIdsOf, columnIdsUsedBy, type StoredConstraint } from './store-constraint.js'

/*
 * One side may have added a computed column or a constraint that uses a column, and the other side may have removed that
 * column, or changed its type. Expressions are those of one type, so one of the two changes must be left out.
 */

/** The columns and constraints of a table. */
export interface TableParts {
  readonly columns: readonly StoredColumn[]
  readonly constraints: readonly StoredConstraint[]
}

interface UseConflict {
  readonly id: number
  readonly column?: string
  readonly constraint?: string
  readonly message: string
  readonly takes: readonly Take[]
  readonly ours: Column | Constraint | null
  readonly theirs: Column | Constraint | null
}

interface Context {
  strategyOf(id: number): MergeStrategy
  conflict(conflict: UseConflict): void
  /** Gets the id of a column of theirs that is not taken. */
  reject(id: number): void
  /** Returns the definition of a column or constraint of a side. */
  definitionOf(part: Part, side: Take): Column | Constraint
}

type Part =
  | { readonly kind: 'column'; readonly item: StoredColumn }
  | { readonly kind: 'constraint'; readonly item: StoredConstraint }

interface Sides {
  readonly ours: TableParts
  readonly theirs: TableParts
}

/** Settles the uses of columns that are not there after a merge, by the decisions about what uses them. */
export function settleUses(sides: Sides, merged: TableParts, context: Context): TableParts {
  let parts = merged
  // Each step leaves out a use, or takes back a column of ours, which no other step leaves out.
  for (;;) {
    const ids = new Set(listAllColumns(parts.columns).map(({ id }) => id))
    const isBroken = (part: Part) => idsUsedBy(part).some((id) => !ids.has(id))
    const part = listUses(parts).find(isBroken)
    if (part === undefined) return parts
    parts = settle(sides, parts, { part, ids, context })
  }
}

function settle(
  { ours, theirs }: Sides,
  parts: TableParts,
  { part, ids, context }: { part: Part; ids: ReadonlySet<number>; context: Context },
): TableParts {
  const { id, name } = part.item
  const [mine, other] = [findPart(ours, part), findPart(theirs, part)]
  const isOurs = mine !== undefined && expressionOf(mine) === expressionOf(part)
  const strategy = context.strategyOf(id)
  const takes: readonly Take[] = isOurs ? ['ours', 'theirs'] : ['ours']
  if (strategy === 'fail' || !takes.includes(strategy)) {
    const used = (isOurs ? ours : theirs).columns.find((column) => hasMissing(column, part, ids))
    const isChanged = used !== undefined && parts.columns.some((column) => isMadeOf(column, used))
    const side = isOurs ? 'the merged branch' : 'the target'
    context.conflict({
      ...{ id, [part.kind]: name, takes },
      message:
        `uses column [${used?.name}], ${isChanged ? 'whose type was changed' : 'which was removed'} on ${side}; ` +
        (isOurs
          ? `[ours] keeps that column as it is on the target, and [theirs] leaves out [${name}]`
          : `[ours] leaves out [${name}]`),
      ours: mine === undefined ? null : context.definitionOf(mine, 'ours'),
      theirs: other === undefined ? null : context.definitionOf(other, 'theirs'),
    })
  }
  if (isOurs && strategy === 'theirs') return replacePart(parts, part, other)
  const reject = (each: { readonly id: number }) => {
    if (strategy === 'ours') context.reject(each.id)
  }
  if (isOurs) return takeBack(parts, { part, ids, columns: ours.columns, reject })
  if (mine === undefined && part.kind === 'column') reject(part.item)
  return replacePart(parts, part, mine)
}

/** Takes back the columns of ours that a part uses. */
function takeBack(
  parts: TableParts,
  options: {
    part: Part
    ids: ReadonlySet<number>
    columns: readonly StoredColumn[]
    reject(column: StoredColumn): void
  },
): TableParts {
  const own = new Set(options.columns.map(({ id }) => id))
  let { columns } = parts
  for (const column of options.columns) {
    if (!hasMissing(column, options.part, options.ids)) continue
    const replaces = (each: StoredColumn) =>
      isMadeOf(each, column) ||
      (!own.has(each.id) && each.name.toLowerCase() === column.name.toLowerCase())
    const place = columns.findIndex(replaces)
    for (const each of columns.filter(replaces)) options.reject(each)
    const others = columns.filter((each) => !replaces(each))
    columns = place === -1 ? [...others, column] : others.toSpliced(place, 0, column)
  }
  return { ...parts, columns }
}

/** Returns whether a part uses a column that is not there. */
function hasMissing(column: StoredColumn, part: Part, ids: ReadonlySet<number>): boolean {
  const used = new Set(idsUsedBy(part))
  return listAllColumns([column]).some(({ id }) => used.has(id) && !ids.has(id))
}

function listUses({ columns, constraints }: TableParts): Part[] {
  return [
    ...columns.map((item) => ({ kind: 'column', item }) as const),
    ...constraints.map((item) => ({ kind: 'constraint', item }) as const),
  ]
}

function idsUsedBy(part: Part): readonly number[] {
  return part.kind === 'column' ? columnIdsUsedBy(part.item) : columnIdsOf(part.item)
}

/** Finds the part of a side that is the same: the column by its id, or the constraint by its name. */
function findPart(side: TableParts, part: Part): Part | undefined {
  return listUses(side).find(({ kind, item }) => {
    if (kind !== part.kind) return false
    return kind === 'column'
      ? item.id === part.item.id
      : item.name.toLowerCase() === part.item.name.toLowerCase()
  })
}

function expressionOf(part: Part): string {
  if (part.kind === 'column') return toCanonicalJson(part.item.computed ?? null)
  const { id: _, name: __, ...rule } = part.item
  return toCanonicalJson(rule)
}

/** Replaces a part by that of a side, or leaves it out. */
function replacePart(parts: TableParts, part: Part, by: Part | undefined): TableParts {
  const replace = <Item extends { readonly id: number }>(items: readonly Item[], item?: Item) =>
    items.flatMap((each) => (each.id !== part.item.id ? each : (item ?? [])))
  if (part.kind === 'column') {
    return {
      ...parts,
      columns: replace(parts.columns, by?.kind === 'column' ? by.item : undefined),
    }
  }
  const item = by?.kind === 'constraint' ? by.item : undefined
  return { ...parts, constraints: replace(parts.constraints, item) }
}
