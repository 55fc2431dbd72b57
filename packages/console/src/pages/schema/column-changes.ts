import type { ColumnChanges, ColumnDefinition } from '@offshoot/client'

/** Returns what is to change to turn one definition of a column into another. */
export function changesOf(before: ColumnDefinition, after: ColumnDefinition): ColumnChanges {
  const isSame = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other)
  const { vector, decimal, enum: values } = after
  const link = linkChanges(before.link, after.link)
  return {
    ...(before.name !== after.name && { name: after.name }),
    ...(before.type !== after.type && { type: after.type }),
    ...(link && { link }),
    ...(vector && !isSame(before.vector, vector) && { vector }),
    ...(decimal && !isSame(before.decimal, decimal) && { decimal }),
    ...detailChanges(before.type === after.type ? before : {}, after),
    ...(values && !isSame(before.enum, values) && { enum: { values: [...values.values] } }),
    ...(isTrue(before.notNull) !== isTrue(after.notNull) && { notNull: isTrue(after.notNull) }),
    ...(isTrue(before.unique) !== isTrue(after.unique) && { unique: isTrue(after.unique) }),
    ...(before.defaultValue !== after.defaultValue && { defaultValue: after.defaultValue ?? null }),
    ...(before.generate !== after.generate && { generate: after.generate ?? null }),
    ...(after.computed !== undefined &&
      before.computed !== after.computed && { computed: after.computed }),
    ...(before.description !== after.description && { description: after.description ?? null }),
  }
}

type Details = Pick<ColumnDefinition, 'bits' | 'maxLength' | 'withoutZone'>

/** The details of the type of a column end with its type. */
function detailChanges(before: Details, after: Details): Pick<ColumnChanges, keyof Details> {
  return {
    ...(isTrue(before.withoutZone) !== isTrue(after.withoutZone) && {
      withoutZone: isTrue(after.withoutZone),
    }),
    ...(before.bits !== after.bits && { bits: after.bits ?? null }),
    ...(before.maxLength !== after.maxLength && { maxLength: after.maxLength ?? null }),
  }
}

/** A column that becomes a link names its table. A link keeps its table. */
function linkChanges(
  before: ColumnDefinition['link'],
  after: ColumnDefinition['link'],
): ColumnChanges['link'] {
  if (after === undefined || before === undefined) return after
  const onDelete = after.onDelete ?? 'none'
  const changes = {
    ...((before.onDelete ?? 'none') !== onDelete && { onDelete }),
    // The name goes with the rule.
    ...(onDelete !== 'none' &&
      before.constraint !== after.constraint && { constraint: after.constraint ?? null }),
  }
  return Object.keys(changes).length === 0 ? undefined : changes
}

const isTrue = (value: boolean | undefined): boolean => value === true
