import type { ColumnChanges, ColumnDefinition } from '@offshoot/client'

/** Returns what is to change to turn one definition of a column into another. */
export function changesOf(before: ColumnDefinition, after: ColumnDefinition): ColumnChanges {
  const isSame = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other)
  const { link, vector, decimal, enum: values } = after
  const onDelete = link?.onDelete ?? 'none'
  return {
    ...(before.name !== after.name && { name: after.name }),
    ...(before.type !== after.type && { type: after.type }),
    ...(link && (before.link?.onDelete ?? 'none') !== onDelete && { link: { onDelete } }),
    ...(vector && !isSame(before.vector, vector) && { vector }),
    ...(decimal && !isSame(before.decimal, decimal) && { decimal }),
    ...(values && !isSame(before.enum, values) && { enum: { values: [...values.values] } }),
    ...(isTrue(before.notNull) !== isTrue(after.notNull) && { notNull: isTrue(after.notNull) }),
    ...(isTrue(before.unique) !== isTrue(after.unique) && { unique: isTrue(after.unique) }),
    ...(before.defaultValue !== after.defaultValue && { defaultValue: after.defaultValue ?? null }),
    ...(after.computed !== undefined &&
      before.computed !== after.computed && { computed: after.computed }),
    ...(before.description !== after.description && { description: after.description ?? null }),
  }
}

const isTrue = (value: boolean | undefined): boolean => value === true
