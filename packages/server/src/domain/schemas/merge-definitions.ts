import { toCanonicalJson } from '../../common/write-json.js'
import { haveSameForm } from '../../rows/columns/conversions.js'
import { listOrigins, type StoredColumn } from '../../rows/columns/stored-schema.js'
import { changesOf } from './alter-column.js'
import { mergeEnum } from './merge-enum.js'

export type MergeStrategy = 'fail' | 'ours' | 'theirs'

/** A decision about a conflict: the state of the target, or that of the merged branch. */
export type Take = Exclude<MergeStrategy, 'fail'>

/** A column in three states. Each can have been made of another one by a change of its type. */
interface ColumnSides {
  readonly before: StoredColumn | undefined
  readonly ours: StoredColumn
  readonly theirs: StoredColumn
}

interface Context {
  strategyOf(): MergeStrategy
  conflict(message: string, takes: readonly Take[]): void
  /** Gets the id of a column of theirs that is not taken. */
  reject(id: number): void
}

/** The parts of a definition that are merged one by one. */
const PARTS = [
  'onDelete',
  'rule',
  'decimal',
  'bits',
  'maxLength',
  'withoutZone',
  'enum',
  'notNull',
  'unique',
  'defaultValue',
  'generate',
  'description',
] as const

/** The parts that do not depend on the type. */
const PARTS_OF_ANY_TYPE = ['notNull', 'unique', 'defaultValue', 'generate', 'description'] as const

const EITHER: readonly Take[] = ['ours', 'theirs']

/** Returns whether one of two columns is the other one, or was made of it. */
function isSameColumn(one: StoredColumn, other: StoredColumn): boolean {
  const isOf = (id: number, column: StoredColumn) =>
    [column, ...listOrigins(column)].some((each) => each.id === id)
  return isOf(one.id, other) || isOf(other.id, one)
}

/** Returns whether a column was made of another one. */
export function isMadeOf(column: StoredColumn, of: StoredColumn): boolean {
  return listOrigins(column).some(({ id }) => id === of.id)
}

/** Finds a column that is the given one, that it was made of, or that was made of it. */
export function findSame(
  columns: readonly StoredColumn[],
  column: StoredColumn,
): StoredColumn | undefined {
  return (
    columns.find(({ id }) => id === column.id) ?? columns.find((each) => isSameColumn(each, column))
  )
}

/** Returns a column of ours with the definition that theirs has. */
export function withDefinitionOf(ours: StoredColumn, theirs: StoredColumn): StoredColumn {
  const nothing = { strategyOf: () => 'theirs' as const, conflict: () => {}, reject: () => {} }
  return mergeParts({ before: ours, ours, theirs }, nothing)
}

/**
 * Applies to the definition of a column in `ours` what `theirs` has changed in it since the base. Names and indexes are
 * merged elsewhere. If only one side has changed the type, values of the other side are converted, and what that side has
 * changed is combined with the new type, unless it is a part of the old one.
 */
export function mergeDefinitions(sides: ColumnSides, context: Context): StoredColumn {
  const { before, ours, theirs } = sides
  if (ours.id === theirs.id) return mergeParts(sides, context)
  const isTheirsNew = listOrigins(theirs).some(({ id }) => id === ours.id)
  const [kept, changed] = isTheirsNew ? [ours, theirs] : [theirs, ours]
  if (before === undefined || changesOf(before, kept) === undefined) return changed
  if (haveSameForm(before, kept) && !isTypeChanged(before, kept)) {
    return mergeEach(sides, PARTS_OF_ANY_TYPE, context, changed)
  }
  // Ours has no values of the old type any more.
  if (!isTheirsNew) {
    if (context.strategyOf() !== 'ours') {
      const message =
        before.id === ours.id
          ? `its type was changed back to [${theirs.type}] on the merged branch, which a merge cannot do on the target; change it there first`
          : 'its type was changed on the target, and its definition on the merged branch'
      context.conflict(message, ['ours'])
    }
    return ours
  }
  const strategy = context.strategyOf()
  if (strategy === 'fail') {
    context.conflict(
      'its type was changed on the merged branch, and its definition on the target',
      EITHER,
    )
  }
  if (strategy === 'theirs') return theirs
  if (strategy === 'ours') context.reject(theirs.id)
  return ours
}

/** Returns whether a part of a definition was changed that depends on the type. */
function isTypeChanged(before: StoredColumn, after: StoredColumn): boolean {
  const typed = ({ computed, ...column }: StoredColumn) => {
    const parts = PARTS.filter((part) => !PARTS_OF_ANY_TYPE.some((each) => each === part))
    return toCanonicalJson([computed ?? null, ...parts.map((part) => column[part] ?? null)])
  }
  return typed(before) !== typed(after)
}

/** The type of a computed column and its expression only make sense together. */
const COMPUTED_PARTS = ['type', 'decimal', 'computed'] as const

function mergeParts(sides: ColumnSides, context: Context): StoredColumn {
  if (sides.ours.computed === undefined) return mergeEach(sides, PARTS, context)
  const { before, ours, theirs } = sides
  const expressionIn = (column: StoredColumn | undefined) =>
    toCanonicalJson(COMPUTED_PARTS.map((part) => column?.[part] ?? null))
  const [old, mine, other] = [before, ours, theirs].map(expressionIn)
  const isContested = other !== old && other !== mine && mine !== old
  const strategy = isContested ? context.strategyOf() : 'theirs'
  if (strategy === 'fail') {
    context.conflict('[computed] was changed on both sides, to different values', EITHER)
  }
  const isTaken = other !== old && other !== mine && strategy === 'theirs'
  const rest = PARTS.filter((part) => part !== 'decimal')
  const merged = mergeEach(sides, rest, context)
  if (!isTaken) return merged
  const { type: _, decimal: __, computed: ___, ...kept } = merged
  const { type, decimal, computed } = theirs
  return { ...kept, type, ...(decimal && { decimal }), ...(computed && { computed }) }
}

/** Merges parts of a definition. The other parts are those of `typed`, which is one of the two sides. */
function mergeEach(
  { before, ours, theirs }: ColumnSides,
  parts: readonly (typeof PARTS)[number][],
  context: Context,
  typed = ours,
): StoredColumn {
  const same = (one: unknown, other: unknown) => toCanonicalJson(one) === toCanonicalJson(other)
  let merged = typed
  for (const part of parts) {
    const [old, mine, other] = [before?.[part], ours[part], theirs[part]]
    if (same(other, mine)) continue
    const isContested = !same(other, old) && !same(mine, old)
    if (isContested) {
      const values = part === 'enum' ? mergedEnum({ before, ours, theirs }) : undefined
      if (values !== undefined) {
        merged = { ...merged, enum: values }
        continue
      }
    }
    const strategy = isContested ? context.strategyOf() : 'theirs'
    if (strategy === 'fail') {
      context.conflict(`[${part}] was changed on both sides, to different values`, EITHER)
    }
    const value = strategy === 'theirs' && !same(other, old) ? other : mine
    const { [part]: _, ...rest } = merged
    if (!same(merged[part], value)) {
      merged = (value === undefined ? rest : { ...rest, [part]: value }) as StoredColumn
    }
  }
  return merged
}

function mergedEnum({ before, ours, theirs }: ColumnSides): StoredColumn['enum'] {
  if (before?.enum === undefined || ours.enum === undefined || theirs.enum === undefined) {
    return undefined
  }
  return mergeEnum({ before: before.enum, ours: ours.enum, theirs: theirs.enum })
}
