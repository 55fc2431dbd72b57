import type { StoredColumn } from '../../rows/columns/stored-schema.js'

type Enum = NonNullable<StoredColumn['enum']>

interface EnumSides {
  readonly before: Enum
  readonly ours: Enum
  readonly theirs: Enum
}

/**
 * Merges the values of an enum: those that either side has added are added, and those that either has removed are removed.
 * Returns undefined if both sides have changed the order of its values, or its type, in different ways.
 */
export function mergeEnum({ before, ours, theirs }: EnumSides): Enum | undefined {
  const values = mergeValues(before.values, ours.values, theirs.values)
  const isTypeContested =
    ours.type !== theirs.type && ours.type !== before.type && theirs.type !== before.type
  if (values === undefined || isTypeContested) return undefined
  const type = theirs.type === before.type ? ours.type : theirs.type
  return { values, ...(type !== undefined && { type }) }
}

function mergeValues(
  before: readonly string[],
  ours: readonly string[],
  theirs: readonly string[],
): readonly string[] | undefined {
  const isIn = (values: readonly string[]) => (value: string) => values.includes(value)
  const haveOrder = (one: readonly string[], other: readonly string[]) =>
    one.filter(isIn(other)).join('\0') === other.filter(isIn(one)).join('\0')
  if (haveOrder(before, theirs) || haveOrder(ours, theirs)) return addValues(before, ours, theirs)
  return haveOrder(before, ours) ? addValues(before, theirs, ours) : undefined
}

/** Adds to a list of values those that another one has added, after the value that precedes them there, and removes the others. */
function addValues(
  before: readonly string[],
  kept: readonly string[],
  other: readonly string[],
): readonly string[] {
  const [old, there] = [new Set(before), new Set(other)]
  const merged = kept.filter((value) => there.has(value) || !old.has(value))
  const present = new Set(merged)
  const lastOld = other.findLastIndex((value) => old.has(value))
  let position = 0
  for (const [index, value] of other.entries()) {
    if (present.has(value)) {
      position = merged.indexOf(value) + 1
    } else if (index > lastOld) {
      // What was added at the end stays there.
      merged.push(value)
    } else if (!old.has(value)) {
      // What was added to the list at the same place comes first.
      while (position < merged.length && !there.has(merged[position] ?? '')) position++
      merged.splice(position, 0, value)
      position++
    }
  }
  return merged
}
