import type { LinkAction } from '@offshoot/contract/schema'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { type NodeOf, namesOf } from '../../../dialect/nodes.js'
import { cutName } from '../../../dialect/scope.js'
import { ID_TYPE_OF } from '../../../domain/schemas/added-links.js'
import {
  findReference,
  findUnique,
  freeName,
  isIdKey,
  requireFree,
  usualReference,
} from './constraint-names.js'
import { notSupported, requireParts } from './not-supported.js'
import { listColumnRefs } from './parse-schema.js'
import { type ColumnModel, findColumn, getColumn, type TableModel } from './schema-model.js'
import { requireOther, type SchemaWork } from './schema-work.js'
import type { ColumnForm } from './sql-types.js'

export type TableConstraint = NodeOf<'Constraint'>

export function addConstraint(
  work: SchemaWork,
  table: TableModel,
  constraint: TableConstraint,
): void {
  const { contype } = constraint
  if (contype === 'CONSTR_UNIQUE') addUnique(work, table, constraint)
  else if (contype === 'CONSTR_CHECK') addCheck(work, table, constraint)
  else if (contype === 'CONSTR_FOREIGN') addReference(work, table, constraint)
  else if (contype === 'CONSTR_PRIMARY') {
    if (namesOf(constraint.keys).join() !== 'id') addKey(work, table, constraint)
  } else throw notSupported(`${wordsOf(contype)} of table [${table.name}]`)
}

/** Keeps a primary key of other columns as a rule: the key of a record is its id. */
export function addKey(work: SchemaWork, table: TableModel, constraint: TableConstraint): void {
  requireKeyParts(constraint)
  const { keys = [], conname } = constraint
  const names = namesOf(keys).map((name) => name ?? '')
  for (const name of names) work.model.requireValues(table, getColumn(table, name))
  makeUnique(work, table, { keys: names, given: keyName(table, names, conname) })
  work.note(
    `table [${table.name}]: PRIMARY KEY (${names.join(', ')}) is UNIQUE and NOT NULL: the primary key is the column [id]`,
  )
}

/** Returns the name that a primary key of other columns keeps. undefined: that of a unique constraint. */
function keyName(
  { name, hidesId }: TableModel,
  keys: readonly string[],
  given: string | undefined,
): string | undefined {
  const usual = cutName(`${name}_pkey`)
  // In a table with a column for ids, their key has the usual name.
  if (!hidesId) return given === usual ? undefined : given
  return given ?? (keys.length > 1 ? usual : undefined)
}

export function addUnique(work: SchemaWork, table: TableModel, constraint: TableConstraint): void {
  requireParts(constraint, ['contype', 'conname', 'keys', 'location'], {
    of: 'UNIQUE',
    names: CONSTRAINT_PARTS,
  })
  const keys = namesOf(constraint.keys).map((name) => name ?? '')
  if (constraint.keys === undefined) throw notSupported('UNIQUE USING INDEX')
  makeUnique(work, table, { keys, given: constraint.conname })
}

/** Makes columns unique. With `isIndex`, the rule is shown as an index. */
export function makeUnique(
  work: SchemaWork,
  table: TableModel,
  {
    keys,
    given,
    isIndex = false,
  }: { keys: readonly string[]; given: string | undefined; isIndex?: boolean },
): void {
  const columns = keys.flatMap((key) => (key === 'id' ? [] : getColumn(table, key)))
  if (keys.includes('id')) {
    work.note(
      `table [${table.name}]: UNIQUE (${keys.join(', ')}) was not made: the id is unique by itself`,
    )
    return
  }
  const names = columns.map(({ definition }) => definition.name)
  const usual = cutName(`${table.name}_${names.join('_')}_key`)
  const name = given === undefined ? usual : work.newName(given)
  // A column that is unique already stays so.
  const isUsual = name === usual && columns.length === 1
  if (given !== undefined && !isUsual) requireFree(table, name)
  for (const column of columns) work.model.makeIndexable(table, column)
  const [column] = columns
  if (column !== undefined && isUsual) {
    const { defaultValue, generate } = column.definition
    const isDistinct = generate === undefined || ['uuid', 'sequence'].includes(generate)
    if (defaultValue === undefined && isDistinct) {
      work.model.changeColumn(table, column, { unique: true })
      return
    }
  }
  const rule = { name, unique: names, ...(isIndex && { index: true }) }
  work.model.addConstraint(table, rule, names)
}

export function addCheck(work: SchemaWork, table: TableModel, constraint: TableConstraint): void {
  const known = ['contype', 'conname', 'raw_expr', 'is_enforced', ...VALIDITY, 'location']
  requireParts(constraint, known, { of: 'CHECK', names: CONSTRAINT_PARTS })
  noteValidity(work, constraint)
  if (constraint.is_enforced !== true) throw notSupported('CHECK: NOT ENFORCED')
  const check = work.expressionOf(constraint.raw_expr)
  const named = listColumnRefs(constraint.raw_expr).map(({ fields }) => namesOf(fields).at(-1))
  const columns = [...new Set(named)].flatMap((name = '') => {
    return findColumn(table, name)?.definition.name ?? []
  })
  const name =
    constraint.conname === undefined
      ? freeName(table, columns.length === 1 ? `${table.name}_${columns[0]}` : table.name)
      : work.newName(constraint.conname)
  requireFree(table, name)
  work.model.addConstraint(table, { name, check }, columns)
}

/** Makes a column a link whose records must exist. */
export function addReference(
  work: SchemaWork,
  table: TableModel,
  constraint: TableConstraint,
): void {
  const { pktable, fk_attrs: keys, pk_attrs: targets = [], conname } = constraint
  requireParts(constraint, REFERENCE_PARTS, { of: 'REFERENCES', names: CONSTRAINT_PARTS })
  const isEnforced = constraint.is_enforced === true
  if (isEnforced) noteValidity(work, constraint)
  if ((constraint.fk_matchtype ?? 's') !== 's') throw notSupported('REFERENCES: MATCH FULL')
  const [key = '', ...others] = namesOf(keys)
  if (others.length > 0) throw notSupported('FOREIGN KEY over several columns')
  const target = work.getTable(pktable)
  if (targets.length > 0 && namesOf(targets).join() !== 'id') {
    throw notSupported(
      `REFERENCES ${target.name} (${namesOf(targets).join(', ')})`,
      'links are ids',
    )
  }
  // Ids never change, so that it does not matter what an update of one would do.
  const onDelete = LINK_ACTIONS[constraint.fk_del_action ?? 'a']
  if (onDelete === undefined) throw notSupported('ON DELETE SET DEFAULT')
  if (isEnforced && constraint.fk_del_action === RESTRICT) {
    work.note('ON DELETE RESTRICT is NO ACTION: links are checked at the end')
  }
  requireOther(key, 'REFERENCES')
  const column = getColumn(table, key)
  const name = conname === undefined ? undefined : work.newName(conname)
  if (name !== undefined) requireFree(table, name)
  const isUsual = name === undefined || name === usualReference(table, column)
  if (!isEnforced) {
    linkUnkept(work, table, column, { target, name: isUsual ? undefined : name })
    return
  }
  const named = isUsual ? {} : { constraint: name }
  linkColumn(work, table, column, { target, onDelete, ...named })
}

/** Makes a column a link whose records need not exist. It has no rule that could have a name. */
function linkUnkept(
  work: SchemaWork,
  table: TableModel,
  column: ColumnModel,
  { target, name }: { target: TableModel; name: string | undefined },
): void {
  const { type, link } = column.definition
  if (type === 'link' && link?.table === target.name && (link.onDelete ?? 'none') !== 'none') {
    throw notSupported(
      `REFERENCES: NOT ENFORCED of column [${column.definition.name}], whose links must exist`,
    )
  }
  linkColumn(work, table, column, { target, onDelete: 'none' })
  if (name !== undefined)
    work.note(`constraint [${name}] is called [${usualReference(table, column)}]`)
}

/** No record may break a rule, also if the rule could do without. */
function noteValidity(
  work: SchemaWork,
  { skip_validation: isSkipped = false }: TableConstraint,
): void {
  if (isSkipped) work.note('NOT VALID: existing records are checked nevertheless')
}

function linkColumn(
  work: SchemaWork,
  table: TableModel,
  column: ColumnModel,
  { target, ...rule }: { target: TableModel; onDelete: LinkAction; constraint?: string },
): void {
  const { name, type, link, defaultValue, generate } = column.definition
  const changed = { link: { table: target.name, ...rule } }
  if (type === 'link') {
    if (link?.table !== target.name)
      throw notSupported(`REFERENCES of column [${name}] to another table`)
    work.model.changeColumn(table, column, changed)
    return
  }
  if (ID_TYPE_OF[type] !== target.idType) {
    throw notSupported(`REFERENCES from type [${type}] to ids of type [${target.idType}]`)
  }
  if (defaultValue !== undefined || generate !== undefined) {
    throw notSupported(`DEFAULT of column [${name}], which has REFERENCES`)
  }
  noteLinkSize(work, name, column.definition, target)
  work.model.makeLink(table, column, changed.link)
}

/** Notes that a link has another size than it was declared with. */
export function noteLinkSize(
  work: SchemaWork,
  name: string,
  { bits, maxLength }: ColumnForm,
  target: TableModel,
): void {
  if (bits === target.idBits && maxLength === undefined) return
  work.note(`column [${name}]: links have the type of the ids of table [${target.name}]`)
}

export function dropConstraint(work: SchemaWork, table: TableModel, name: string): boolean {
  const constraint = table.constraints.find((each) => each.name === name)
  if (constraint !== undefined) {
    work.model.removeConstraint(table, constraint)
    return true
  }
  const linked = findReference(table, name)
  if (linked !== undefined) {
    const { table: target = '' } = linked.definition.link ?? {}
    const changed = { table: target, onDelete: 'none' as const }
    work.model.changeColumn(table, linked, { link: changed })
    return true
  }
  const column = findUnique(table, name)
  if (column === undefined) return false
  work.model.changeColumn(table, column, { unique: false })
  return true
}

export function renameConstraint(
  work: SchemaWork,
  table: TableModel,
  { name, newName }: { name: string; newName: string },
): void {
  requireFree(table, newName)
  const constraint = table.constraints.find((each) => each.name === name)
  if (constraint !== undefined) {
    work.model.renameConstraint(table, constraint, newName)
    return
  }
  const linked = findReference(table, name)
  if (linked?.definition.link !== undefined) {
    const { link } = linked.definition
    work.model.changeColumn(table, linked, { link: { ...link, constraint: newName } })
    return
  }
  const unique = findUnique(table, name)
  if (unique !== undefined) {
    const columns = [unique.definition.name]
    work.model.changeColumn(table, unique, { unique: false })
    work.model.addConstraint(table, { name: newName, unique: columns }, columns)
    return
  }
  if (!isIdKey(table, name)) {
    throw invalidSql(`constraint [${name}] of table [${table.name}] not found`)
  }
  work.note(`constraint [${name}] keeps its name: it is that of the ids`)
}

export function requireKeyParts(constraint: TableConstraint): void {
  requireParts(constraint, ['contype', 'conname', 'keys', 'location'], {
    of: 'PRIMARY KEY',
    names: CONSTRAINT_PARTS,
  })
}

const CONSTRAINT_PARTS = {
  deferrable: 'DEFERRABLE',
  initdeferred: 'INITIALLY DEFERRED',
  skip_validation: 'NOT VALID',
  is_no_inherit: 'NO INHERIT',
  nulls_not_distinct: 'NULLS NOT DISTINCT',
  without_overlaps: 'WITHOUT OVERLAPS',
  including: 'INCLUDE',
  options: 'WITH',
  indexname: 'USING INDEX',
  indexspace: 'USING INDEX TABLESPACE',
}

/** Whether PostgreSQL would check existing rows. */
const VALIDITY = ['initially_valid', 'skip_validation']

const REFERENCE_PARTS = [
  'contype',
  'conname',
  'pktable',
  'fk_attrs',
  'pk_attrs',
  'fk_matchtype',
  'fk_upd_action',
  'fk_del_action',
  'is_enforced',
  ...VALIDITY,
  // Links are checked at the end of each transaction.
  'deferrable',
  'initdeferred',
  'location',
]

/** What the parser has for ON DELETE RESTRICT. */
const RESTRICT = 'r'

const LINK_ACTIONS: Readonly<Record<string, LinkAction | undefined>> = {
  a: 'restrict',
  r: 'restrict',
  c: 'cascade',
  n: 'setNull',
}

export const wordsOf = (contype: string | undefined): string =>
  (contype ?? '').replace(/^CONSTR_(?:ATTR_)?/, '').replaceAll('_', ' ')
