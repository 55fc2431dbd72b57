import type { Column } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { toCanonicalJson } from '../../common/write-json.js'
import { expressionText, type RowExpression } from '../../dialect/row-expression.js'
import { COLUMN_TYPE_ENTRIES } from '../../rows/columns/column-types.js'
import { conversionFault, haveSameForm } from '../../rows/columns/conversions.js'
import { listOrigins, type StoredColumn } from '../../rows/columns/stored-schema.js'

/**
 * Columns that a column remembers to have replaced. A merge with a branch that has an earlier one asks before it loses values
 * of that. Schemas are stored for each change, so a list without an end would take space with the square of the changes.
 */
export const REPLACED_MAX = 20

export type Alteration = Extract<SchemaOperation, { alterColumn: unknown }>['alterColumn']

/** Returns the definition of a column after a change. */
export function alterDefinition(before: Column, alteration: Alteration): Column {
  const { table: _, column: __, fillNulls: ___, name, type, ...changes } = alteration
  const {
    link,
    vector,
    decimal,
    bits,
    maxLength,
    withoutZone,
    enum: values,
    defaultValue,
    generate,
    description,
    ...kept
  } = before
  const isSameType = type === undefined || type === before.type
  const next = {
    ...kept,
    // The options of a type end with the type.
    ...linkOf(isSameType ? link : undefined, changes.link),
    ...(isSameType && { ...(vector && { vector }) }),
    ...(isSameType && { ...(decimal && { decimal }) }),
    ...(isSameType && { ...(values && { enum: values }) }),
    ...(changes.vector && { vector: changes.vector }),
    ...(changes.decimal && { decimal: changes.decimal }),
    ...(changes.enum && { enum: changes.enum }),
    ...given('bits', changes.bits, isSameType ? bits : undefined),
    ...given('maxLength', changes.maxLength, isSameType ? maxLength : undefined),
    // False is what a column has without the option, whatever its type.
    ...given(
      'withoutZone',
      changes.withoutZone === false ? null : changes.withoutZone,
      isSameType ? withoutZone : undefined,
    ),
    ...(changes.notNull !== undefined && { notNull: changes.notNull }),
    ...(changes.unique !== undefined && { unique: changes.unique }),
    ...given('defaultValue', changes.defaultValue, defaultValue),
    ...given('generate', changes.generate, generate),
    ...(changes.computed !== undefined && { computed: changes.computed }),
    ...given('description', changes.description, description),
    name: name ?? before.name,
    type: type ?? before.type,
  }
  return next
}

function linkOf(before: Column['link'], changes: Alteration['link']): Pick<Column, 'link'> {
  if (changes === undefined) return before === undefined ? {} : { link: before }
  const { constraint: name, ...link } = { table: '', ...before, ...changes }
  // The name is that of the rule, and goes with it.
  const isNamed = typeof name === 'string' && (changes.constraint || link.onDelete !== 'none')
  return { link: { ...link, ...(isNamed && { constraint: name }) } }
}

/** Returns a field that a change has set, removed by null, or left as it was. */
function given<Name extends string, Value>(
  name: Name,
  changed: Value | null | undefined,
  before: Value | undefined,
): Partial<Record<Name, Value>> {
  const value = changed === undefined ? before : (changed ?? undefined)
  return value === undefined ? {} : ({ [name]: value } as Record<Name, Value>)
}

/**
 * Returns the stored column after a change. It keeps its id, unless its values are stored anew: they have another form, or
 * records without a value get one.
 */
export function alterStored(
  before: StoredColumn,
  definition: Column,
  options: {
    fillNulls: boolean
    /** Its values come from an expression, and not from a conversion. */
    isRewritten: boolean
    /** The expression of a computed column. */
    computed: RowExpression | undefined
    nextId(): number
    defaultFill(column: StoredColumn): string | undefined
  },
): StoredColumn | { readonly fault: string } {
  const { computed } = options
  const after = define(before, definition)
  // Its values are not stored.
  if (computed !== undefined) return { ...after, computed }
  const isFilled = options.fillNulls && after.notNull === true && before.notNull !== true
  const fill = isFilled ? options.defaultFill(after) : undefined
  if (isFilled && fill === undefined) {
    return { fault: 'field [fillNulls]: the column has no default value to fill records with' }
  }
  if (haveSameForm(before, after) && !isFilled && !options.isRewritten) return after
  const { index, fill: _, from: __, ...rest } = after
  const canIndex = COLUMN_TYPE_ENTRIES[after.type].allows.index
  const stored = {
    ...rest,
    id: options.nextId(),
    ...(index !== undefined && canIndex && { index }),
    ...(fill !== undefined && { fill }),
  }
  if (options.isRewritten) {
    const ids = [before, ...listOrigins(before)].map(({ id }) => id)
    const replaced = [...ids, ...(before.replaced ?? [])].slice(0, REPLACED_MAX)
    return { ...stored, replaced }
  }
  const made = { ...stored, from: originOf(before) }
  const fault = conversionFault(made)
  return fault === undefined ? made : { fault }
}

/** Returns a stored column with another definition. What is not part of definitions stays. */
function define(before: StoredColumn, definition: Column): StoredColumn {
  const { id, link, defaultPublicAccess, index, columns, fill, from, replaced } = before
  const { name, type, vector, decimal, defaultValue, generate, description } = definition
  return {
    id,
    name,
    type,
    ...(link && type === 'link' && { link }),
    ...onDeleteOf(definition),
    ...(vector && { vector }),
    ...(decimal && { decimal }),
    ...detailsOf(definition),
    ...(definition.enum && { enum: definition.enum }),
    ...(defaultPublicAccess && { defaultPublicAccess }),
    ...(definition.notNull && { notNull: true }),
    ...(defaultValue !== undefined && { defaultValue }),
    ...(definition.unique && { unique: true }),
    ...(generate && { generate }),
    ...(description !== undefined && { description }),
    ...(index !== undefined && { index }),
    ...(columns && { columns }),
    ...(fill !== undefined && { fill }),
    ...(from && { from }),
    ...(replaced && { replaced }),
  }
}

/** Options of the type of a column. They do not change how PostgreSQL stores its values. */
type Details = Pick<Column, 'bits' | 'maxLength' | 'withoutZone'>

/** Returns the details of its type that a column has. */
export function detailsOf({
  bits,
  maxLength,
  withoutZone,
}: { readonly [Name in keyof Details]?: Details[Name] | undefined }): Details {
  return {
    ...(bits && { bits }),
    ...(maxLength !== undefined && { maxLength }),
    ...(withoutZone && { withoutZone }),
  }
}

/** Returns what is stored of the rule of a link. */
export function onDeleteOf({ link }: Column): Pick<StoredColumn, 'onDelete' | 'rule'> {
  const { onDelete = 'none', constraint } = link ?? {}
  return onDelete === 'none' ? {} : { onDelete, ...(constraint && { rule: constraint }) }
}

/** The parts of a column that reading its values takes. */
function originOf({ id, name, type, decimal, enum: values, vector, fill, from }: StoredColumn) {
  return {
    id,
    name,
    type,
    ...(vector && { vector }),
    ...(decimal && { decimal }),
    ...(values && { enum: values }),
    ...(fill !== undefined && { fill }),
    ...(from && { from }),
  }
}

/** The definition of a column that an operation can change, apart from its name. */
type Changes = Omit<Alteration, 'table' | 'column' | 'name'>

/**
 * Returns what an operation changes to turn one definition into another. undefined: nothing. `nameOf` returns the names
 * of the columns that expressions use.
 */
export function changesOf(
  before: StoredColumn,
  after: StoredColumn,
  nameOf: (id: number) => string = String,
): Changes | undefined {
  const isSame = (one: unknown, other: unknown) => toCanonicalJson(one) === toCanonicalJson(other)
  const isNewType = before.type !== after.type
  const isFilled = before.id !== after.id && after.fill !== undefined
  const changes: Changes = {
    ...(isNewType && { type: after.type }),
    ...linkChanges(before, after),
    ...(after.vector && !isSame(before.vector, after.vector) && { vector: after.vector }),
    ...(after.decimal && !isSame(before.decimal, after.decimal) && { decimal: after.decimal }),
    ...detailChanges(isNewType ? {} : before, after),
    ...(after.enum && !isSame(before.enum, after.enum) && { enum: copyOf(after.enum) }),
    ...(before.notNull !== after.notNull && { notNull: after.notNull ?? false }),
    ...(before.unique !== after.unique && { unique: after.unique ?? false }),
    ...(before.defaultValue !== after.defaultValue && { defaultValue: after.defaultValue ?? null }),
    ...(before.generate !== after.generate && { generate: after.generate ?? null }),
    ...(after.computed &&
      !isSame(before.computed, after.computed) && {
        computed: expressionText(after.computed.text, nameOf),
      }),
    ...(before.description !== after.description && { description: after.description ?? null }),
    ...(isFilled && { fillNulls: true }),
  }
  return Object.keys(changes).length === 0 ? undefined : changes
}

/** Returns the details of a type that have changed. Null: the column has none any more. */
export function detailChanges(before: Details, after: Details): Pick<Changes, keyof Details> {
  const isZoneless = after.withoutZone ?? false
  return {
    ...((before.withoutZone ?? false) !== isZoneless && { withoutZone: isZoneless }),
    ...(before.bits !== after.bits && { bits: after.bits ?? null }),
    ...(before.maxLength !== after.maxLength && { maxLength: after.maxLength ?? null }),
  }
}

function linkChanges(before: StoredColumn, after: StoredColumn): Pick<Changes, 'link'> {
  const isSame = before.onDelete === after.onDelete && before.rule === after.rule
  if (isSame || after.type !== 'link') return {}
  const { onDelete = 'none', rule = null } = after
  return { link: { onDelete, ...(before.rule !== after.rule && { constraint: rule }) } }
}

export const copyOf = ({ values, type }: NonNullable<StoredColumn['enum']>) => ({
  values: [...values],
  ...(type !== undefined && { type }),
})

/**
 * Pairs the columns of two versions of a table that are the same one, or that one was made of the other. Returns the later
 * ones, by the ids of the earlier ones.
 */
export function pairColumns(
  before: readonly StoredColumn[],
  after: readonly StoredColumn[],
): ReadonlyMap<number, StoredColumn> {
  const known = new Set(before.map(({ id }) => id))
  return new Map(
    after.flatMap((column): [number, StoredColumn][] => {
      const origin = [column, ...listOrigins(column)].find(({ id }) => known.has(id))
      return origin === undefined ? [] : [[origin.id, column]]
    }),
  )
}
