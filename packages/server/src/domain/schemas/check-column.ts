import type { Limits } from '@offshoot/contract/limits'
import { RESERVED_COLUMN_NAMES } from '@offshoot/contract/names'
import {
  COLUMN_TYPES,
  type Column,
  type ColumnGenerator,
  type ColumnType,
  INT_BITS,
} from '@offshoot/contract/schema'
import { USER_ID_LENGTH, UUID_LENGTH } from '../../common/ids.js'
import { COLUMN_TYPE_ENTRIES, isFileType } from '../../rows/columns/column-types.js'
import { checkText } from '../../rows/columns/text-types.js'
import { checkName } from './check-name.js'

export interface ColumnChecks {
  readonly limits: Limits
  /** Validates a default value by the type of its column. Returns the fault, if there is one. */
  checkDefault(column: Column, text: string): string | undefined
}

/** Fields that only one column type can have, with that type. */
const TYPE_FIELDS = [
  ['link', 'link'],
  ['vector', 'vector'],
  ['decimal', 'decimal'],
  ['bits', 'int'],
  ['withoutZone', 'datetime'],
  ['enum', 'enum'],
  ['file', 'file'],
  ['file[]', 'file[]'],
  ['columns', 'object'],
] as const satisfies readonly (readonly [keyof Column, ColumnType])[]

/**
 * Validates the definition of a column. Returns the fault, if there is one. Checks that depend on the
 * schema are made elsewhere: whether the name is free and whether the linked table exists.
 */
export function checkColumn(column: Column, checks: ColumnChecks): string | undefined {
  return named(
    column,
    checkAnyColumn(column, checks) ??
      checkConstraints(column, checks) ??
      checkNested(column, checks, 1),
  )
}

/** Validates the name of a column. Returns the fault, if there is one. */
export function checkColumnName(name: string, limits: Limits): string | undefined {
  const isReserved = RESERVED_COLUMN_NAMES.has(name.toLowerCase())
  return checkName(name, limits) ?? (isReserved ? 'name is reserved' : undefined)
}

interface Nesting {
  readonly columns?: readonly Nesting[]
}

/** Counts a column and the columns nested in it. */
export function countColumns(column: Nesting): number {
  return (column.columns ?? []).reduce((count, nested) => count + countColumns(nested), 1)
}

/** Returns the number of columns of a table, including nested ones. */
export function widthOf(table: { readonly columns: readonly Nesting[] } | undefined): number {
  return (table?.columns ?? []).reduce((width, column) => width + countColumns(column), 0)
}

export function totalWidth(tables: readonly { readonly columns: readonly Nesting[] }[]): number {
  return tables.reduce((total, table) => total + widthOf(table), 0)
}

function named(column: Column, fault: string | undefined): string | undefined {
  return fault === undefined ? undefined : `column [${column.name}]: ${fault}`
}

function checkAnyColumn(column: Column, { limits }: ColumnChecks): string | undefined {
  const nameFault = checkColumnName(column.name, limits)
  if (nameFault !== undefined) return nameFault
  if (!COLUMN_TYPES.includes(column.type)) return `type [${column.type}] is unknown`
  for (const [field, type] of TYPE_FIELDS) {
    if (column[field] !== undefined && column.type !== type) return mismatch(column, field)
  }
  if (column.type === 'link' && column.link === undefined) return missing(column, 'link')
  if (column.link?.constraint !== undefined && (column.link.onDelete ?? 'none') === 'none') {
    return 'field [link.constraint] needs [link.onDelete]: without a rule, there is nothing to name'
  }
  if (column.bits !== undefined && !INT_BITS.includes(column.bits)) {
    return `bits must be ${INT_BITS.join(' or ')}`
  }
  if (column.maxLength !== undefined) return checkMaxLength(column, column.maxLength, limits)
  if (column.type === 'vector') return checkVector(column, limits)
  if (column.type === 'decimal') return checkDecimal(column, limits)
  if (column.type === 'enum') return checkEnum(column, limits)
  if (column.type === 'object' && !column.columns?.length) return missing(column, 'columns')
  return undefined
}

function checkVector(column: Column, limits: Limits): string | undefined {
  if (column.vector === undefined) return missing(column, 'vector')
  const { vectorDimensionMin: min, vectorDimensionMax: max } = limits
  const { dimension } = column.vector
  if (Number.isInteger(dimension) && dimension >= min && dimension <= max) return undefined
  return `vector dimension must be a whole number from ${min} to ${max}`
}

function checkDecimal(column: Column, { decimalPrecisionMax }: Limits): string | undefined {
  if (column.decimal === undefined) return missing(column, 'decimal')
  const { precision, scale } = column.decimal
  if (!Number.isInteger(precision) || precision < 1 || precision > decimalPrecisionMax) {
    return `decimal precision must be a whole number from 1 to ${decimalPrecisionMax}`
  }
  if (Number.isInteger(scale) && scale >= 0 && scale <= precision) return undefined
  return `decimal scale must be a whole number from 0 to the precision, ${precision}`
}

function checkMaxLength(column: Column, maxLength: number, limits: Limits): string | undefined {
  const { stringLengthMax, recordBytesMax } = limits
  if (column.type !== 'string' && column.type !== 'text') return mismatch(column, 'maxLength')
  // A text is limited by the size of its record.
  const max = column.type === 'string' ? stringLengthMax : recordBytesMax
  if (Number.isInteger(maxLength) && maxLength >= 1 && maxLength <= max) return undefined
  return `maxLength of type [${column.type}] must be a whole number from 1 to ${max}`
}

function checkEnum(column: Column, limits: Limits): string | undefined {
  if (column.enum === undefined) return missing(column, 'enum')
  const { values } = column.enum
  if (values.length < 1 || values.length > limits.enumValuesMax) {
    return `enum must have 1 to ${limits.enumValuesMax} values`
  }
  const known = new Set<string>()
  for (const value of values) {
    if (value === '' || value.length > limits.enumValueLengthMax) {
      return `enum value [${value}] must have 1 to ${limits.enumValueLengthMax} characters`
    }
    const fault = checkText(value)
    if (fault !== undefined) return `enum value [${value}] ${fault.message}`
    if (known.has(value)) return `enum value [${value}] is listed twice`
    known.add(value)
  }
  return undefined
}

function checkConstraints(column: Column, checks: ColumnChecks): string | undefined {
  const { allows } = COLUMN_TYPE_ENTRIES[column.type]
  if (column.unique && !allows.unique) return mismatch(column, 'unique')
  if (column.notNull && !allows.notNull) return mismatch(column, 'notNull')
  const computedFault = checkComputed(column)
  if (computedFault !== undefined) return computedFault
  const generateFault = checkGenerate(column)
  if (generateFault !== undefined) return generateFault
  if (column.defaultValue === undefined) return undefined
  if (!allows.defaultValue) return mismatch(column, 'defaultValue')
  // The second row with the default value would violate the unique constraint.
  if (column.unique) return 'a unique column cannot have a default value'
  const fault = checks.checkDefault(column, column.defaultValue)
  return fault === undefined ? undefined : `default value: ${fault}`
}

function checkComputed(column: Column): string | undefined {
  if (column.computed === undefined) return undefined
  if (!COLUMN_TYPE_ENTRIES[column.type].allows.computed) return mismatch(column, 'computed')
  if (column.unique) return 'a computed column cannot be unique'
  for (const field of ['defaultValue', 'generate', 'bits', 'maxLength', 'withoutZone'] as const) {
    if (column[field] !== undefined)
      return `a column cannot have both fields [computed] and [${field}]`
  }
  return undefined
}

/** The types of the columns that a generator gives values. */
const GENERATED_TYPES: Readonly<Record<ColumnGenerator, readonly ColumnType[]>> = {
  uuid: ['uuid', 'string', 'text'],
  user: ['string', 'text'],
  updatedAt: ['datetime', 'date', 'time'],
  sequence: ['int'],
}

/** The characters of generated texts. */
const GENERATED_LENGTHS: Readonly<Partial<Record<ColumnGenerator, number>>> = {
  uuid: UUID_LENGTH,
  user: USER_ID_LENGTH,
}

/** The generators that give each record another value. */
const DISTINCT: readonly ColumnGenerator[] = ['uuid', 'sequence']

/** Returns why a column cannot have its generator. undefined: it can, or has none. */
export function checkGenerate(column: Column): string | undefined {
  const { generate } = column
  if (generate === undefined) return undefined
  if (!GENERATED_TYPES[generate].includes(column.type)) {
    return `field [generate]: [${generate}] is not possible for type [${column.type}]`
  }
  if (column.defaultValue !== undefined) {
    return 'a column cannot have both fields [generate] and [defaultValue]'
  }
  const { [generate]: length = 0 } = GENERATED_LENGTHS
  if (column.maxLength !== undefined && column.maxLength < length) {
    return `field [maxLength]: values of [${generate}] have ${length} characters`
  }
  // The records of one user, or of one moment, have the same value.
  return column.unique && !DISTINCT.includes(generate)
    ? `field [generate]: [${generate}] is not possible for a unique column`
    : undefined
}

function checkNested(column: Column, checks: ColumnChecks, depth: number): string | undefined {
  if (column.columns === undefined) return undefined
  const { objectDepthMax } = checks.limits
  if (depth > objectDepthMax) return `objects are nested more than ${objectDepthMax} deep`
  const names = new Set<string>()
  for (const nested of column.columns) {
    const fault =
      checkAnyColumn(nested, checks) ??
      checkInsideObject(nested) ??
      (names.has(nested.name.toLowerCase()) ? 'name is taken' : undefined) ??
      checkNested(nested, checks, depth + 1)
    if (fault !== undefined) return named(nested, fault)
    names.add(nested.name.toLowerCase())
  }
  return undefined
}

function checkInsideObject(column: Column): string | undefined {
  if (isFileType(column.type)) return `type [${column.type}] is not allowed inside an object`
  if (column.notNull) return 'field [notNull] is not allowed inside an object'
  if (column.unique) return 'field [unique] is not allowed inside an object'
  if (column.defaultValue !== undefined) {
    return 'field [defaultValue] is not allowed inside an object'
  }
  if (column.generate !== undefined) return 'field [generate] is not allowed inside an object'
  if (column.computed !== undefined) return 'field [computed] is not allowed inside an object'
  return undefined
}

function mismatch(column: Column, field: keyof Column): string {
  return `type mismatch: type [${column.type}] is not valid for field [${field}]`
}

function missing(column: Column, field: keyof Column): string {
  return `field [${field}] is required for type [${column.type}]`
}
