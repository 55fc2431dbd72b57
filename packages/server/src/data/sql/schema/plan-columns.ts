import type { Column } from '@offshoot/contract/schema'
import type { Node } from 'libpg-query'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { contentOf, type NodeOf, namesOf } from '../../../dialect/nodes.js'
import { ID_TYPE_OF } from '../../../domain/schemas/added-links.js'
import { type Default, readDefault } from './default-values.js'
import type { SchemaTypes } from './enum-types.js'
import { notSupported, requireParts } from './not-supported.js'
import {
  addCheck,
  addKey,
  addReference,
  addUnique,
  noteLinkSize,
  type TableConstraint,
  wordsOf,
} from './plan-constraints.js'
import {
  type ColumnModel,
  findColumn,
  getColumn,
  indexableForm,
  type TableModel,
} from './schema-model.js'
import { requireOther, type SchemaWork } from './schema-work.js'
import { type ColumnForm, readCast, readType, type SqlType } from './sql-types.js'

export function addColumn(work: SchemaWork, table: TableModel, node: NodeOf<'ColumnDef'>): void {
  requireParts(node, COLUMN_PARTS, { of: 'a column', names: COLUMN_WORDS })
  const name = work.newName(node.colname ?? '')
  const { form, isSerial = false } = readColumnType(work, node.typeName, name)
  if (name.includes('.')) {
    addInside(work, table, { name, form, hasRules: isSerial || node.constraints !== undefined })
    return
  }
  const constraints = (node.constraints ?? []).map((each) => contentOf(each, 'Constraint') ?? {})
  const defaults = constraints.map((each) => columnDefault(work, each, form))
  const given = defaults.filter((each) => each !== undefined)
  const isIdentity = constraints.some(({ contype }) => contype === 'CONSTR_IDENTITY')
  if (isSerial || isIdentity) given.push({ generate: 'sequence' })
  if (given.length > 1) throw invalidSql(`column [${name}] has more than one default`)
  const generated = constraints.find(({ contype }) => contype === 'CONSTR_GENERATED')
  const computed = generated && { computed: work.expressionOf(generated.raw_expr) }
  const own = computed === undefined ? form : computedForm(work, name, form)
  const definition = { name, ...own, ...given[0], ...computed }
  const column = work.model.addColumn(table, definition as Column)
  // As in PostgreSQL, such a column has a value in each row.
  if (isSerial || isIdentity) work.model.requireValues(table, column)
  for (const [index, constraint] of constraints.entries()) {
    if (defaults[index] === undefined) columnConstraint(work, table, column, constraint)
  }
  const isLink = constraints.some(({ contype }) => contype === 'CONSTR_FOREIGN')
  const deferred = constraints.find(({ contype }) => DEFERRED.has(contype ?? ''))
  if (deferred !== undefined && !isLink) throw notSupported(wordsOf(deferred.contype))
}

/** Adds a column inside an object. In SQL, its name has the path to it. */
function addInside(
  work: SchemaWork,
  table: TableModel,
  { name, form, hasRules }: { name: string; form: ColumnForm; hasRules: boolean },
): void {
  if (hasRules) {
    throw notSupported(
      `column [${name}] with a default or a constraint, because it is in an object`,
    )
  }
  const [outer = '', ...path] = name.split('.')
  const known = findColumn(table, outer)
  const object = known ?? work.model.addColumn(table, { name: outer, type: 'object', columns: [] })
  if (object.added === undefined || object.definition.type !== 'object') {
    throw notSupported(`column [${name}] in column [${outer}], which exists`)
  }
  const columns = withColumn(object.definition.columns ?? [], path, form)
  object.definition = { ...object.definition, columns }
  object.added.column = object.definition
}

/** Returns the columns of an object with another one at a path. */
function withColumn(
  columns: readonly Column[],
  [name = '', ...path]: readonly string[],
  form: ColumnForm,
): Column[] {
  const others = [...columns]
  if (path.length === 0) return [...others, { name, ...form } as Column]
  const index = others.findIndex((each) => each.name === name && each.type === 'object')
  const inner = withColumn(others[index]?.columns ?? [], path, form)
  const object: Column = { name, type: 'object', columns: inner }
  return index === -1 ? [...others, object] : others.with(index, object)
}

export function readColumnType(
  work: SchemaWork,
  typeName: NodeOf<'TypeName'> | undefined,
  column: string,
): SqlType {
  const type = readType(typeName, work.enums)
  if (type.notice !== undefined) work.note(`column [${column}]: ${type.notice}`)
  return type
}

/** Returns the type of a computed column, which has no size. */
function computedForm(
  work: SchemaWork,
  name: string,
  { bits, maxLength, withoutZone: _, ...form }: ColumnForm,
): ColumnForm {
  if ((bits ?? maxLength) !== undefined) {
    work.note(`column [${name}]: the size of computed values is not checked`)
  }
  return form
}

/** Returns the default that a constraint of a column is. */
function columnDefault(
  work: SchemaWork,
  constraint: TableConstraint,
  form: ColumnForm,
): Default | undefined {
  if (constraint.contype !== 'CONSTR_DEFAULT') return undefined
  return readDefault(constraint.raw_expr, form, work)
}

function columnConstraint(
  work: SchemaWork,
  table: TableModel,
  column: ColumnModel,
  constraint: TableConstraint,
): void {
  const { name } = column.definition
  const { contype } = constraint
  if (contype === 'CONSTR_NULL' || DEFERRED.has(contype ?? '')) return
  // Its expression is a part of the definition.
  if (contype === 'CONSTR_GENERATED') return
  if (contype === 'CONSTR_IDENTITY') {
    requireIdentity(work, name, constraint)
    if (column.definition.type !== 'int') throw notSupported(`IDENTITY of column [${name}]`)
  } else if (contype === 'CONSTR_NOTNULL') work.model.requireValues(table, column)
  else if (contype === 'CONSTR_UNIQUE') {
    addUnique(work, table, { ...constraint, keys: [{ String: { sval: name } }] })
  } else if (contype === 'CONSTR_PRIMARY') {
    addKey(work, table, { ...constraint, keys: [{ String: { sval: name } }] })
  } else if (contype === 'CONSTR_CHECK') addCheck(work, table, constraint)
  else if (contype === 'CONSTR_FOREIGN') {
    addReference(work, table, { ...constraint, fk_attrs: [{ String: { sval: name } }] })
  } else throw notSupported(`${wordsOf(contype)} of column [${name}]`)
}

export function alterType(
  work: SchemaWork,
  table: TableModel,
  name: string,
  node: NodeOf<'ColumnDef'>,
): void {
  requireParts(node, ['typeName', 'raw_default', 'location'], {
    of: 'ALTER COLUMN',
    names: COLUMN_WORDS,
  })
  const { form: declared, isSerial } = readColumnType(work, node.typeName, name)
  if (changesIds(work, table, name, declared)) return
  requireOther(name, 'ALTER COLUMN')
  const column = getColumn(table, name)
  const isComputed = column.definition.computed !== undefined
  const form = isComputed ? computedForm(work, name, declared) : declared
  if (isSerial) throw notSupported(`type serial of column [${name}]`)
  const isConverted =
    node.raw_default === undefined ||
    isPlainCast(node.raw_default, { name, form, enums: work.enums })
  if (!isConverted && (column.added ?? column.altered) !== undefined) {
    throw notSupported(
      `ALTER COLUMN ... USING of column [${name}], which the same request adds or changes`,
    )
  }
  const using = isConverted ? {} : { using: work.expressionOf(node.raw_default) }
  const isUnique = table.constraints.some(
    (each) => each.isUnique && each.columns.includes(column.definition.name),
  )
  // A text column that is unique stays one whose values can be.
  const isKept = form.type === 'text' && (column.definition.unique || isUnique)
  const { bits, maxLength, withoutZone } = column.definition
  work.model.changeColumn(table, column, {
    ...(bits !== undefined && { bits: null }),
    ...(maxLength !== undefined && { maxLength: null }),
    ...(withoutZone && { withoutZone: null }),
    ...form,
    ...(isKept && indexableForm(form)),
    ...using,
  } as ColumnForm & { enum?: { values: string[] } })
}

/** Returns whether a column has ids of the same type. Those of a table can get another size. Links have the size of the ids. */
function changesIds(work: SchemaWork, table: TableModel, name: string, form: ColumnForm): boolean {
  const { link } = name === 'id' ? {} : getColumn(table, name).definition
  const target = link === undefined ? undefined : work.model.findTable(link.table)
  const idType = name === 'id' ? table.idType : target?.idType
  if (idType === undefined || ID_TYPE_OF[form.type] !== idType) return false
  if (target !== undefined) noteLinkSize(work, name, form, target)
  else if (idType === 'int') work.model.changeIds(table, form.bits)
  else work.note(`column [${name}]: the type of ids does not change`)
  return true
}

export function addIdentity(
  work: SchemaWork,
  table: TableModel,
  name: string,
  constraint: TableConstraint,
): void {
  requireIdentity(work, name, constraint)
  if (numberColumn(work, table, name)) return
  requireOther(name, 'ADD GENERATED')
  throw notSupported(`IDENTITY of column [${name}]`)
}

export function requireIdentity(
  work: SchemaWork,
  column: string,
  { options, generated_when: when }: TableConstraint,
): void {
  requireNumbering(options, 'IDENTITY')
  if (when !== ALWAYS) return
  work.note(`column [${column}]: GENERATED ALWAYS is BY DEFAULT: values can be given`)
}

/** Lets the service number a column, if it has whole numbers. Ids are numbered in any case. */
export function numberColumn(work: SchemaWork, table: TableModel, name: string): boolean {
  if (name === 'id') return table.idType === 'int'
  const column = getColumn(table, name)
  if (column.definition.type !== 'int') return false
  work.model.changeColumn(table, column, { generate: 'sequence' })
  return true
}

/** The service numbers ids and other columns in any case, so nothing is lost of an identity. */
export function dropIdentity(
  work: SchemaWork,
  table: TableModel,
  name: string,
  isOptional: boolean,
): void {
  if (name === 'id' && table.idType === 'int') {
    work.note('DROP IDENTITY: ids are numbered nevertheless')
    return
  }
  const column = name === 'id' ? undefined : getColumn(table, name)
  if (column?.definition.generate === 'sequence') {
    work.model.changeColumn(table, column, { generate: null })
    return
  }
  if (!isOptional) throw invalidSql(`column [${name}] of table [${table.name}] is not an identity`)
  work.skip('', `column [${name}] of table [${table.name}] is not an identity`)
}

export const COLUMN_PARTS = ['colname', 'typeName', 'is_local', 'constraints', 'location']

export const COLUMN_WORDS = {
  collClause: 'COLLATE',
  compression: 'COMPRESSION',
  storage_name: 'STORAGE',
  fdwoptions: 'OPTIONS',
}

const DEFERRED = new Set([
  'CONSTR_ATTR_DEFERRABLE',
  'CONSTR_ATTR_NOT_DEFERRABLE',
  'CONSTR_ATTR_DEFERRED',
  'CONSTR_ATTR_IMMEDIATE',
])

/** What the parser has for GENERATED ALWAYS. */
const ALWAYS = 'a'

/** A sequence starts at one, as all sequences here do. Its other options do not matter. */
export function requireNumbering(options: readonly Node[] = [], what: string): void {
  for (const each of options) {
    const { defname = '', arg } = contentOf(each, 'DefElem') ?? {}
    const value =
      contentOf(arg, 'Integer')?.ival ?? Number(contentOf(arg, 'Float')?.fval ?? Number.NaN)
    const isUsual =
      ['sequence_name', 'cache', 'maxvalue', 'as', 'owned_by'].includes(defname) ||
      (['start', 'increment', 'minvalue'].includes(defname) &&
        (arg === undefined || value === 1)) ||
      (defname === 'cycle' && !contentOf(arg, 'Boolean')?.boolval)
    if (!isUsual) throw notSupported(`${what} with ${defname.toUpperCase()}`)
  }
}

/** Whether a conversion is the one that a change of the type makes anyway: `column::type`, or `column::text::type`. */
function isPlainCast(
  node: Node,
  { name, form, enums }: { name: string; form: ColumnForm; enums: SchemaTypes },
): boolean {
  let inner: Node | undefined = node
  const types: string[] = []
  for (let cast = contentOf(inner, 'TypeCast'); cast !== undefined; ) {
    types.push(readCast(cast.typeName, enums))
    inner = cast.arg
    cast = contentOf(inner, 'TypeCast')
  }
  const [column, ...more] = namesOf(contentOf(inner, 'ColumnRef')?.fields)
  const [last = form.type, ...others] = types
  const isText = others.every((type) => type === 'text')
  return column === name && more.length === 0 && last === form.type && isText
}
