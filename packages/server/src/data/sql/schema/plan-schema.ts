import { AppError } from '@offshoot/contract/errors'
import type { Column, LinkAction } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import type { Node } from 'libpg-query'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { contentOf, kindOf, type NodeOf, namesOf } from '../../../dialect/nodes.js'
import { cutName, enumNameOf } from '../../../dialect/scope.js'
import { ID_TYPE_OF } from '../../../domain/schemas/added-links.js'
import { type Default, readDefault } from './default-values.js'
import { readIndex } from './index-statement.js'
import { notSupported, requireParts } from './not-supported.js'
import { listColumnRefs, type ParsedSchema, type ParsedSchemaStatement } from './parse-schema.js'
import {
  type ColumnModel,
  findColumn,
  getColumn,
  type IdForm,
  indexableForm,
  type SchemaModel,
  type TableModel,
} from './schema-model.js'
import { type ColumnForm, nameOf, readCast, readType } from './sql-types.js'

export interface SchemaPlan {
  readonly operations: readonly SchemaOperation[]
  readonly indexes: readonly {
    readonly table: string
    readonly column: string
    readonly isWanted: boolean
  }[]
  /** What was skipped, and in what the outcome differs from that in PostgreSQL. */
  readonly notices: readonly string[]
  /** The enums that statements can name afterwards. */
  readonly types: SchemaTypes
  /** The command tag of the last statement, as PostgreSQL reports it. */
  readonly tag: string
}

/** The values of enums, by the names of types that columns can have. */
export type SchemaTypes = ReadonlyMap<string, readonly string[]>

/** Types that are remembered at the same time. */
const TYPES_MAX = 200

/** Plans the operations that statements stand for. `types` were made by earlier statements. */
export function planSchema(
  { texts, expressions }: ParsedSchema,
  model: SchemaModel,
  types: SchemaTypes = new Map(),
): SchemaPlan {
  const statements = texts.flat()
  const planner = new SchemaPlanner(model, expressions, types)
  for (const [index, statement] of statements.entries()) {
    planner.plan(statement, { isFirst: index === 0, isLast: index === statements.length - 1 })
  }
  return planner.finish()
}

type TableConstraint = NodeOf<'Constraint'>
type RangeVar = NodeOf<'RangeVar'>
type Enums = SchemaTypes

const PUBLIC = 'public'

class SchemaPlanner {
  readonly #model: SchemaModel
  readonly #expressions: ReadonlyMap<object, string>
  /** All types that statements can name. */
  readonly #enums: Map<string, readonly string[]>
  /** The names of the types that columns have had before. */
  readonly #had: ReadonlySet<string>
  /** The names of types that this client has made. */
  readonly #made: Set<string>
  readonly #notices = new Set<string>()
  #source = ''
  #tag = ''

  constructor(model: SchemaModel, expressions: ReadonlyMap<object, string>, types: SchemaTypes) {
    this.#model = model
    this.#expressions = expressions
    // The types that columns have are newer: others may have changed them since this connection made its own.
    const had = typesOf(model)
    this.#had = new Set(had.keys())
    this.#enums = new Map([...types, ...had])
    this.#made = new Set(types.keys())
  }

  finish(): SchemaPlan {
    const { operations, indexes, tables } = this.#model
    const known = new Set(tables)
    const left = typesOf(this.#model)
    // A type goes with its last column.
    const isGone = (name: string) => this.#had.has(name) && !left.has(name)
    return {
      operations,
      indexes: indexes
        .filter(({ table, column }) => known.has(table) && table.columns.includes(column))
        .map(({ table, column, isWanted }) => ({
          table: table.name,
          column: column.definition.name,
          isWanted,
        })),
      notices: [...this.#notices],
      types: new Map([...this.#enums].filter(([name]) => this.#made.has(name) && !isGone(name))),
      tag: this.#tag,
    }
  }

  plan(
    { node, source }: ParsedSchemaStatement,
    { isFirst, isLast }: { isFirst: boolean; isLast: boolean },
  ): void {
    this.#source = source
    const transaction = contentOf(node, 'TransactionStmt')
    const isBegin = ['TRANS_STMT_BEGIN', 'TRANS_STMT_START'].includes(transaction?.kind ?? '')
    // The statements are applied all or not at all in any case.
    if (isBegin && isFirst) return
    if (transaction?.kind === 'TRANS_STMT_COMMIT' && isLast) return
    this.#tag = this.#planOne(node)
  }

  #planOne(node: Node): string {
    const create = contentOf(node, 'CreateStmt')
    if (create !== undefined) return this.#createTable(create)
    const alter = contentOf(node, 'AlterTableStmt')
    if (alter !== undefined) return this.#alterTable(alter)
    const rename = contentOf(node, 'RenameStmt')
    if (rename !== undefined) return this.#rename(rename)
    const drop = contentOf(node, 'DropStmt')
    if (drop !== undefined) return this.#drop(drop)
    const index = contentOf(node, 'IndexStmt')
    if (index !== undefined) return this.#createIndex(index)
    const comment = contentOf(node, 'CommentStmt')
    if (comment !== undefined) return this.#comment(comment)
    const type = contentOf(node, 'CreateEnumStmt')
    if (type !== undefined) return this.#createEnum(type)
    const values = contentOf(node, 'AlterEnumStmt')
    if (values !== undefined) return this.#alterEnum(values)
    const sequence = contentOf(node, 'CreateSeqStmt')
    if (sequence !== undefined) return this.#createSequence(sequence)
    const altered = contentOf(node, 'AlterSeqStmt')
    if (altered !== undefined) return this.#alterSequence(altered)
    const schema = contentOf(node, 'CreateSchemaStmt')
    if (schema?.schemaname === PUBLIC && schema.if_not_exists && !schema.schemaElts) {
      return 'CREATE SCHEMA'
    }
    const words = kindOf(node)
      .replace(/Stmt$/, '')
      .replace(/([a-z])([A-Z])/g, '$1 $2')
    throw notSupported(`${words.toUpperCase()} among statements that change the schema`)
  }

  /** Notes that a statement with IF [NOT] EXISTS has nothing to do. Returns its tag. */
  #skip(tag: string, reason: string): string {
    this.#notices.add(`${reason}, skipping`)
    return tag
  }

  // Names

  /** Returns the name of a relation. Only the schema `public` exists. */
  #nameOf(relation: RangeVar | undefined): string {
    const { catalogname, schemaname, relname = '', relpersistence = 'p' } = relation ?? {}
    if (catalogname !== undefined) throw notSupported(`database [${catalogname}]`)
    if (schemaname !== undefined && schemaname !== PUBLIC) {
      throw notSupported(`schema [${schemaname}]`)
    }
    if (relpersistence === 't') throw notSupported('a temporary table')
    if (relpersistence !== 'p') throw notSupported('UNLOGGED')
    return relname
  }

  #getTable(relation: RangeVar | undefined): TableModel {
    const name = this.#nameOf(relation)
    const table = this.#model.findTable(name)
    if (table === undefined) throw invalidSql(`table [${name}] not found`)
    return table
  }

  /** Returns a name for something new. PostgreSQL's parser cuts longer ones off without telling. */
  #newName(name: string): string {
    if (Buffer.byteLength(name) < NAME_BYTES_MAX) return name
    const folded = this.#source.toLowerCase()
    for (let at = 0; ; ) {
      at = folded.indexOf(name.toLowerCase(), at)
      if (at < 0) break
      at += name.length
      if (/[\p{L}\p{N}_$~-]/u.test(folded.charAt(at))) {
        throw invalidSql(`name [${name}…] is longer than ${NAME_BYTES_MAX} bytes`)
      }
    }
    return name
  }

  // Tables

  #createTable(statement: NodeOf<'CreateStmt'>): string {
    requireParts(statement, ['relation', 'tableElts', 'if_not_exists', 'oncommit', 'options'], {
      of: 'CREATE TABLE',
      names: TABLE_PARTS,
    })
    for (const option of statement.options ?? []) {
      const parameter = contentOf(option, 'DefElem')?.defname ?? ''
      if (!STORAGE.test(parameter)) throw notSupported(`CREATE TABLE: WITH [${parameter}]`)
      this.#notices.add(`CREATE TABLE: WITH [${parameter}] has no effect`)
    }
    if (statement.oncommit !== undefined && statement.oncommit !== 'ONCOMMIT_NOOP') {
      throw notSupported('CREATE TABLE: ON COMMIT')
    }
    const name = this.#newName(this.#nameOf(statement.relation))
    const tag = 'CREATE TABLE'
    if (statement.if_not_exists && this.#model.findTable(name) !== undefined) {
      return this.#skip(tag, `table [${name}] already exists`)
    }
    const elements = statement.tableElts ?? []
    const columns = elements.flatMap((each) => contentOf(each, 'ColumnDef') ?? [])
    const constraints = elements.flatMap((each) => contentOf(each, 'Constraint') ?? [])
    if (columns.length + constraints.length < elements.length) {
      throw notSupported('CREATE TABLE: LIKE')
    }
    const key = primaryKeyOf(columns, constraints)
    const id = columns.find(({ colname }) => colname === 'id')
    if (id === undefined && key === undefined) {
      this.#notices.add(
        `table [${name}] has no primary key: its records get a column [id] of texts`,
      )
    }
    if (id !== undefined) requireIdKey(id, key)
    const table = this.#model.addTable(
      name,
      id === undefined ? { type: 'string' } : this.#idType(id),
    )
    for (const column of columns) if (column !== id) this.#addColumn(table, column)
    for (const each of constraints) this.#addConstraint(table, each)
    return tag
  }

  /** Keeps a primary key of other columns as a rule: the key of a record is its id. */
  #addKey(table: TableModel, constraint: TableConstraint): void {
    requireKeyParts(constraint)
    const { keys = [], conname } = constraint
    const names = namesOf(keys).map((name) => name ?? '')
    for (const name of names) this.#model.requireValues(table, getColumn(table, name))
    // The key of the ids has this name.
    const isUsual = conname === cutName(`${table.name}_pkey`)
    this.#makeUnique(table, names, isUsual ? undefined : conname)
    this.#notices.add(
      `table [${table.name}]: PRIMARY KEY (${names.join(', ')}) is UNIQUE and NOT NULL: the primary key is the column [id]`,
    )
  }

  /** Returns the type of ids, which are always generated. */
  #idType(column: NodeOf<'ColumnDef'>): IdForm {
    requireParts(column, COLUMN_PARTS, { of: 'PRIMARY KEY', names: COLUMN_WORDS })
    const { form, isSerial = false } = this.#readType(column.typeName, 'id')
    const type = ID_TYPE_OF[form.type]
    if (type === undefined) throw notSupported(`PRIMARY KEY of type [${form.type}]`)
    if (form.maxLength !== undefined) {
      this.#notices.add('column [id]: the length of ids is not checked')
    }
    for (const each of column.constraints ?? []) {
      const constraint = contentOf(each, 'Constraint') ?? {}
      switch (constraint.contype) {
        case 'CONSTR_PRIMARY':
        case 'CONSTR_NOTNULL':
        case 'CONSTR_UNIQUE':
          break
        case 'CONSTR_IDENTITY':
          this.#requireIdentity('id', constraint)
          if (type !== 'int' || isSerial) throw notSupported(`IDENTITY of type [${form.type}]`)
          break
        case 'CONSTR_DEFAULT': {
          // The default that the catalogue shows.
          if (type === 'string' && isUsualId(constraint.raw_expr)) break
          const { generate } = readDefault(constraint.raw_expr, form, this.#enums)
          if (type === 'uuid' && generate === 'uuid') break
          throw notSupported('DEFAULT of the primary key', 'ids are generated by the service')
        }
        default:
          throw notSupported(`PRIMARY KEY with ${wordsOf(constraint.contype)}`)
      }
    }
    return { type, bits: form.bits }
  }

  // Columns

  #readType(typeName: NodeOf<'TypeName'> | undefined, column: string) {
    const type = readType(typeName, this.#enums)
    if (type.notice !== undefined) this.#notices.add(`column [${column}]: ${type.notice}`)
    return type
  }

  #addColumn(table: TableModel, node: NodeOf<'ColumnDef'>): void {
    requireParts(node, COLUMN_PARTS, { of: 'a column', names: COLUMN_WORDS })
    const name = this.#newName(node.colname ?? '')
    const { form, isSerial = false } = this.#readType(node.typeName, name)
    const constraints = (node.constraints ?? []).map((each) => contentOf(each, 'Constraint') ?? {})
    const defaults = constraints.map((each) => this.#columnDefault(each, form))
    const given = defaults.filter((each) => each !== undefined)
    const isIdentity = constraints.some(({ contype }) => contype === 'CONSTR_IDENTITY')
    if (isSerial || isIdentity) given.push({ generate: 'sequence' })
    if (given.length > 1) throw invalidSql(`column [${name}] has more than one default`)
    const generated = constraints.find(({ contype }) => contype === 'CONSTR_GENERATED')
    const computed = generated && { computed: this.#expressionOf(generated.raw_expr) }
    const own = computed === undefined ? form : this.#computedForm(name, form)
    const definition = { name, ...own, ...given[0], ...computed }
    const column = this.#model.addColumn(table, definition as Column)
    // As in PostgreSQL, such a column has a value in each row.
    if (isSerial || isIdentity) this.#model.requireValues(table, column)
    for (const [index, constraint] of constraints.entries()) {
      if (defaults[index] === undefined) this.#columnConstraint(table, column, constraint)
    }
    const isLink = constraints.some(({ contype }) => contype === 'CONSTR_FOREIGN')
    const deferred = constraints.find(({ contype }) => DEFERRED.has(contype ?? ''))
    if (deferred !== undefined && !isLink) throw notSupported(wordsOf(deferred.contype))
  }

  /** Returns the type of a computed column, which has no size. */
  #computedForm(
    name: string,
    { bits, maxLength, withoutZone: _, ...form }: ColumnForm,
  ): ColumnForm {
    if ((bits ?? maxLength) !== undefined) {
      this.#notices.add(`column [${name}]: the size of computed values is not checked`)
    }
    return form
  }

  /** Returns the default that a constraint of a column is. */
  #columnDefault(constraint: TableConstraint, form: ColumnForm): Default | undefined {
    if (constraint.contype !== 'CONSTR_DEFAULT') return undefined
    return readDefault(constraint.raw_expr, form, this.#enums)
  }

  #columnConstraint(table: TableModel, column: ColumnModel, constraint: TableConstraint): void {
    const { name } = column.definition
    const { contype } = constraint
    if (contype === 'CONSTR_NULL' || DEFERRED.has(contype ?? '')) return
    // Its expression is a part of the definition.
    if (contype === 'CONSTR_GENERATED') return
    if (contype === 'CONSTR_IDENTITY') {
      this.#requireIdentity(name, constraint)
      if (column.definition.type !== 'int') throw notSupported(`IDENTITY of column [${name}]`)
    } else if (contype === 'CONSTR_NOTNULL') this.#model.requireValues(table, column)
    else if (contype === 'CONSTR_UNIQUE') {
      this.#addUnique(table, { ...constraint, keys: [{ String: { sval: name } }] })
    } else if (contype === 'CONSTR_PRIMARY') {
      this.#addKey(table, { ...constraint, keys: [{ String: { sval: name } }] })
    } else if (contype === 'CONSTR_CHECK') this.#addCheck(table, constraint)
    else if (contype === 'CONSTR_FOREIGN') {
      this.#addReference(table, { ...constraint, fk_attrs: [{ String: { sval: name } }] })
    } else throw notSupported(`${wordsOf(contype)} of column [${name}]`)
  }

  // Constraints

  #addConstraint(table: TableModel, constraint: TableConstraint): void {
    const { contype } = constraint
    if (contype === 'CONSTR_UNIQUE') this.#addUnique(table, constraint)
    else if (contype === 'CONSTR_CHECK') this.#addCheck(table, constraint)
    else if (contype === 'CONSTR_FOREIGN') this.#addReference(table, constraint)
    else if (contype === 'CONSTR_PRIMARY') {
      if (namesOf(constraint.keys).join() !== 'id') this.#addKey(table, constraint)
    } else throw notSupported(`${wordsOf(contype)} of table [${table.name}]`)
  }

  #addUnique(table: TableModel, constraint: TableConstraint): void {
    requireParts(constraint, ['contype', 'conname', 'keys', 'location'], {
      of: 'UNIQUE',
      names: CONSTRAINT_PARTS,
    })
    const keys = namesOf(constraint.keys).map((name) => name ?? '')
    if (constraint.keys === undefined) throw notSupported('UNIQUE USING INDEX')
    this.#makeUnique(table, keys, constraint.conname)
  }

  #makeUnique(table: TableModel, keys: readonly string[], given: string | undefined): void {
    const columns = keys.flatMap((key) => (key === 'id' ? [] : getColumn(table, key)))
    if (keys.includes('id')) {
      this.#notices.add(
        `table [${table.name}]: UNIQUE (${keys.join(', ')}) was not made: the id is unique by itself`,
      )
      return
    }
    for (const column of columns) this.#model.makeIndexable(table, column)
    const names = columns.map(({ definition }) => definition.name)
    const usual = cutName(`${table.name}_${names.join('_')}_key`)
    const name = given === undefined ? usual : this.#newName(given)
    const [column, ...others] = columns
    if (column !== undefined && others.length === 0 && name === usual) {
      const { defaultValue, generate } = column.definition
      const isDistinct = generate === undefined || ['uuid', 'sequence'].includes(generate)
      if (defaultValue === undefined && isDistinct) {
        this.#model.changeColumn(table, column, { unique: true })
        return
      }
    }
    this.#model.addConstraint(table, { name, unique: names }, names)
  }

  #addCheck(table: TableModel, constraint: TableConstraint): void {
    const known = ['contype', 'conname', 'raw_expr', 'is_enforced', ...VALIDITY, 'location']
    requireParts(constraint, known, { of: 'CHECK', names: CONSTRAINT_PARTS })
    this.#noteValidity(constraint)
    if (constraint.is_enforced !== true) throw notSupported('CHECK: NOT ENFORCED')
    const check = this.#expressionOf(constraint.raw_expr)
    const named = listColumnRefs(constraint.raw_expr).map(({ fields }) => namesOf(fields).at(-1))
    const columns = [...new Set(named)].flatMap((name = '') => {
      return findColumn(table, name)?.definition.name ?? []
    })
    const name =
      constraint.conname === undefined
        ? freeName(table, columns.length === 1 ? `${table.name}_${columns[0]}` : table.name)
        : this.#newName(constraint.conname)
    this.#model.addConstraint(table, { name, check }, columns)
  }

  #expressionOf(tree: Node | undefined): string {
    const text = tree && this.#expressions.get(tree)
    if (text === undefined) throw new Error('expressions are read before they are planned')
    return text
  }

  /** Makes a column a link whose records must exist. */
  #addReference(table: TableModel, constraint: TableConstraint): void {
    const { pktable, fk_attrs: keys, pk_attrs: targets = [], conname } = constraint
    requireParts(constraint, REFERENCE_PARTS, { of: 'REFERENCES', names: CONSTRAINT_PARTS })
    this.#noteValidity(constraint)
    if (constraint.is_enforced !== true) throw notSupported('REFERENCES: NOT ENFORCED')
    if ((constraint.fk_matchtype ?? 's') !== 's') throw notSupported('REFERENCES: MATCH FULL')
    const [key = '', ...others] = namesOf(keys)
    if (others.length > 0) throw notSupported('FOREIGN KEY over several columns')
    const target = this.#getTable(pktable)
    if (targets.length > 0 && namesOf(targets).join() !== 'id') {
      throw notSupported(
        `REFERENCES ${target.name} (${namesOf(targets).join(', ')})`,
        'links are ids',
      )
    }
    // Ids never change, so that it does not matter what an update of one would do.
    const onDelete = LINK_ACTIONS[constraint.fk_del_action ?? 'a']
    if (onDelete === undefined) throw notSupported('ON DELETE SET DEFAULT')
    if (constraint.fk_del_action === RESTRICT) {
      this.#notices.add('ON DELETE RESTRICT is NO ACTION: links are checked at the end')
    }
    requireOther(key, 'REFERENCES')
    const column = getColumn(table, key)
    const name = conname === undefined ? undefined : this.#newName(conname)
    if (name !== undefined) this.#requireFree(table, name)
    const isUsual = name === undefined || name === usualReference(table, column)
    const named = isUsual ? {} : { constraint: name }
    this.#link(table, column, { target, onDelete, ...named })
  }

  /** No record may break a rule, also if the rule could do without. */
  #noteValidity({ skip_validation: isSkipped = false }: TableConstraint): void {
    if (isSkipped) this.#notices.add('NOT VALID: existing records are checked nevertheless')
  }

  #link(
    table: TableModel,
    column: ColumnModel,
    { target, ...rule }: { target: TableModel; onDelete: LinkAction; constraint?: string },
  ): void {
    const { name, type, link, defaultValue, generate } = column.definition
    const changed = { link: { table: target.name, ...rule } }
    if (type === 'link') {
      if (link?.table !== target.name)
        throw notSupported(`REFERENCES of column [${name}] to another table`)
      this.#model.changeColumn(table, column, changed)
      return
    }
    if (ID_TYPE_OF[type] !== target.idType) {
      throw notSupported(`REFERENCES from type [${type}] to ids of type [${target.idType}]`)
    }
    if (defaultValue !== undefined || generate !== undefined) {
      throw notSupported(`DEFAULT of column [${name}], which has REFERENCES`)
    }
    this.#noteLinkSize(name, column.definition, target)
    this.#model.makeLink(table, column, changed.link)
  }

  #dropConstraint(table: TableModel, name: string): boolean {
    const constraint = table.constraints.find((each) => each.name === name)
    if (constraint !== undefined) {
      this.#model.removeConstraint(table, constraint)
      return true
    }
    const linked = findReference(table, name)
    if (linked !== undefined) {
      const { table: target = '' } = linked.definition.link ?? {}
      const changed = { table: target, onDelete: 'none' as const }
      this.#model.changeColumn(table, linked, { link: changed })
      return true
    }
    const column = findUnique(table, name)
    if (column === undefined) return false
    this.#model.changeColumn(table, column, { unique: false })
    return true
  }

  // Changes of tables

  #alterTable(statement: NodeOf<'AlterTableStmt'>): string {
    requireParts(statement, ['relation', 'cmds', 'objtype', 'missing_ok'], { of: 'ALTER TABLE' })
    const { objtype, relation, missing_ok: isOptional } = statement
    // `pg_dump` calls a sequence a table here.
    const isSequence =
      objtype === 'OBJECT_SEQUENCE' || this.#nameOf(relation).endsWith(SEQUENCE_END)
    if (isSequence && isOwnerChange(statement)) return `ALTER ${objectWords(objtype)}`
    if (objtype !== 'OBJECT_TABLE') throw notSupported(`ALTER ${objectWords(objtype)}`)
    const tag = 'ALTER TABLE'
    if (isOptional && this.#model.findTable(this.#nameOf(relation)) === undefined) {
      return this.#skip(tag, `table [${relation?.relname}] does not exist`)
    }
    const table = this.#getTable(relation)
    for (const each of statement.cmds ?? []) {
      this.#alter(table, contentOf(each, 'AlterTableCmd') ?? {})
    }
    return tag
  }

  #alter(table: TableModel, command: NodeOf<'AlterTableCmd'>): void {
    const { subtype, name = '', def, missing_ok: isOptional = false } = command
    switch (subtype) {
      case 'AT_AddColumn': {
        const column = contentOf(def, 'ColumnDef') ?? {}
        const isKnown = findColumn(table, column.colname ?? '') !== undefined
        if (!(isOptional && isKnown)) this.#addColumn(table, column)
        else this.#skip('', `column [${column.colname}] of table [${table.name}] already exists`)
        return
      }
      case 'AT_DropColumn': {
        requireOther(name, 'DROP COLUMN')
        const column = findColumn(table, name)
        if (column === undefined && isOptional) {
          this.#skip('', `column [${name}] of table [${table.name}] does not exist`)
          return
        }
        this.#model.removeColumn(table, getColumn(table, name))
        return
      }
      case 'AT_AlterColumnType':
        this.#alterType(table, name, contentOf(def, 'ColumnDef') ?? {})
        return
      case 'AT_ColumnDefault': {
        if (isNextNumber(def) && this.#numbers(table, name)) return
        if (name === 'id' && def === undefined) {
          this.#notices.add('DROP DEFAULT: ids are generated nevertheless')
          return
        }
        requireOther(name, 'ALTER COLUMN')
        const column = getColumn(table, name)
        const { defaultValue, generate } = def
          ? readDefault(def, column.definition, this.#enums)
          : ({} as Default)
        this.#model.changeColumn(table, column, {
          defaultValue: defaultValue ?? null,
          generate: generate ?? null,
        })
        return
      }
      case 'AT_SetNotNull':
        if (name !== 'id') this.#model.requireValues(table, getColumn(table, name))
        return
      case 'AT_DropNotNull':
        requireOther(name, 'DROP NOT NULL')
        this.#model.allowNulls(table, getColumn(table, name))
        return
      case 'AT_AddConstraint':
        this.#addConstraint(table, contentOf(def, 'Constraint') ?? {})
        return
      case 'AT_AddIdentity':
        this.#addIdentity(table, name, contentOf(def, 'Constraint') ?? {})
        return
      case 'AT_DropIdentity':
        this.#dropIdentity(table, name, isOptional)
        return
      // They change nothing that a statement can see, and dumps have them.
      case 'AT_ChangeOwner':
      case 'AT_SetStatistics':
      case 'AT_SetStorage':
      case 'AT_SetCompression':
        return
      case 'AT_ValidateConstraint':
        if (table.constraints.some((each) => each.name === name)) return
        if (findReference(table, name) !== undefined) return
        throw invalidSql(`constraint [${name}] of table [${table.name}] not found`)
      case 'AT_DropConstraint':
        if (this.#dropConstraint(table, name)) return
        if (isOptional) {
          this.#skip('', `constraint [${name}] of table [${table.name}] does not exist`)
          return
        }
        throw invalidSql(`constraint [${name}] of table [${table.name}] not found`)
      default:
        throw notSupported(`ALTER TABLE: ${subtypeWords(subtype)}`)
    }
  }

  #requireIdentity(column: string, { options, generated_when: when }: TableConstraint): void {
    requireNumbering(options, 'IDENTITY')
    if (when !== ALWAYS) return
    this.#notices.add(`column [${column}]: GENERATED ALWAYS is BY DEFAULT: values can be given`)
  }

  #addIdentity(table: TableModel, name: string, constraint: TableConstraint): void {
    this.#requireIdentity(name, constraint)
    if (this.#numbers(table, name)) return
    requireOther(name, 'ADD GENERATED')
    throw notSupported(`IDENTITY of column [${name}]`)
  }

  /** Lets the service number a column, if it has whole numbers. Ids are numbered in any case. */
  #numbers(table: TableModel, name: string): boolean {
    if (name === 'id') return table.idType === 'int'
    const column = getColumn(table, name)
    if (column.definition.type !== 'int') return false
    this.#model.changeColumn(table, column, { generate: 'sequence' })
    return true
  }

  // Sequences

  /** A column that takes its values from a sequence has one of its own, so there is nothing to make. */
  #createSequence({ sequence, options }: NodeOf<'CreateSeqStmt'>): string {
    const name = this.#nameOf(sequence)
    requireNumbering(options, 'SEQUENCE')
    this.#notices.add(
      `sequence [${name}] is that of the column that takes its values from it: nothing else can use it`,
    )
    return 'CREATE SEQUENCE'
  }

  #alterSequence({ sequence, options }: NodeOf<'AlterSeqStmt'>): string {
    this.#nameOf(sequence)
    requireNumbering(options, 'SEQUENCE')
    return 'ALTER SEQUENCE'
  }

  #alterType(table: TableModel, name: string, node: NodeOf<'ColumnDef'>): void {
    requireParts(node, ['typeName', 'raw_default', 'location'], {
      of: 'ALTER COLUMN',
      names: COLUMN_WORDS,
    })
    const { form: declared, isSerial } = this.#readType(node.typeName, name)
    if (this.#changesIds(table, name, declared)) return
    requireOther(name, 'ALTER COLUMN')
    const column = getColumn(table, name)
    const isComputed = column.definition.computed !== undefined
    const form = isComputed ? this.#computedForm(name, declared) : declared
    if (isSerial) throw notSupported(`type serial of column [${name}]`)
    const isConverted =
      node.raw_default === undefined ||
      isPlainCast(node.raw_default, { name, form, enums: this.#enums })
    if (!isConverted && (column.added ?? column.altered) !== undefined) {
      throw notSupported(
        `ALTER COLUMN ... USING of column [${name}], which the same request adds or changes`,
      )
    }
    const using = isConverted ? {} : { using: this.#expressionOf(node.raw_default) }
    const isUnique = table.constraints.some(
      (each) => each.isUnique && each.columns.includes(column.definition.name),
    )
    // A text column that is unique stays one whose values can be.
    const isKept = form.type === 'text' && (column.definition.unique || isUnique)
    const { bits, maxLength, withoutZone } = column.definition
    this.#model.changeColumn(table, column, {
      ...(bits !== undefined && { bits: null }),
      ...(maxLength !== undefined && { maxLength: null }),
      ...(withoutZone && { withoutZone: false }),
      ...form,
      ...(isKept && indexableForm(form)),
      ...using,
    } as ColumnForm & { enum?: { values: string[] } })
  }

  /** Returns whether a column has ids of the same type. Those of a table can get another size. Links have the size of the ids. */
  #changesIds(table: TableModel, name: string, form: ColumnForm): boolean {
    const { link } = name === 'id' ? {} : getColumn(table, name).definition
    const target = link === undefined ? undefined : this.#model.findTable(link.table)
    const idType = name === 'id' ? table.idType : target?.idType
    if (idType === undefined || ID_TYPE_OF[form.type] !== idType) return false
    if (target !== undefined) this.#noteLinkSize(name, form, target)
    else if (idType === 'int') this.#model.changeIds(table, form.bits)
    else this.#notices.add(`column [${name}]: the type of ids does not change`)
    return true
  }

  /** Notes that a link has another size than it was declared with. */
  #noteLinkSize(name: string, { bits, maxLength }: ColumnForm, target: TableModel): void {
    if (bits === target.idBits && maxLength === undefined) return
    this.#notices.add(`column [${name}]: links have the type of the ids of table [${target.name}]`)
  }

  /** The service numbers ids and other columns in any case, so nothing is lost of an identity. */
  #dropIdentity(table: TableModel, name: string, isOptional: boolean): void {
    if (name === 'id' && table.idType === 'int') {
      this.#notices.add('DROP IDENTITY: ids are numbered nevertheless')
      return
    }
    const column = name === 'id' ? undefined : getColumn(table, name)
    if (column?.definition.generate === 'sequence') {
      this.#model.changeColumn(table, column, { generate: null })
      return
    }
    if (!isOptional)
      throw invalidSql(`column [${name}] of table [${table.name}] is not an identity`)
    this.#skip('', `column [${name}] of table [${table.name}] is not an identity`)
  }

  #rename(statement: NodeOf<'RenameStmt'>): string {
    const { renameType, relation, subname = '', newname = '', missing_ok } = statement
    const tag = 'ALTER TABLE'
    if (renameType === 'OBJECT_TYPE') {
      return this.#renameType(statement.object, this.#newName(newname))
    }
    if (!['OBJECT_TABLE', 'OBJECT_COLUMN', 'OBJECT_TABCONSTRAINT'].includes(renameType ?? '')) {
      throw notSupported(`ALTER ${objectWords(renameType)} ... RENAME`)
    }
    if (missing_ok && this.#model.findTable(this.#nameOf(relation)) === undefined) {
      return this.#skip(tag, `table [${relation?.relname}] does not exist`)
    }
    const table = this.#getTable(relation)
    const newName = this.#newName(newname)
    if (renameType === 'OBJECT_TABLE') this.#model.renameTable(table, newName)
    else if (renameType === 'OBJECT_COLUMN') {
      requireOther(subname, 'RENAME COLUMN')
      this.#model.renameColumn(table, getColumn(table, subname), newName)
    } else this.#renameConstraint(table, subname, newName)
    return tag
  }

  #renameConstraint(table: TableModel, name: string, newName: string): void {
    this.#requireFree(table, newName)
    const constraint = table.constraints.find((each) => each.name === name)
    if (constraint !== undefined) {
      this.#model.renameConstraint(table, constraint, newName)
      return
    }
    const linked = findReference(table, name)
    if (linked?.definition.link !== undefined) {
      const { link } = linked.definition
      this.#model.changeColumn(table, linked, { link: { ...link, constraint: newName } })
      return
    }
    const unique = findUnique(table, name)
    if (unique !== undefined) {
      const columns = [unique.definition.name]
      this.#model.changeColumn(table, unique, { unique: false })
      this.#model.addConstraint(table, { name: newName, unique: columns }, columns)
      return
    }
    if (name !== cutName(`${table.name}_pkey`)) {
      throw invalidSql(`constraint [${name}] of table [${table.name}] not found`)
    }
    this.#notices.add(`constraint [${name}] keeps its name: it is that of the ids`)
  }

  #requireFree(table: TableModel, name: string): void {
    const isTaken = table.constraints.some((each) => each.name === name)
    if (!isTaken && findReference(table, name) === undefined) return
    throw new AppError(
      'already_exists',
      `constraint [${name}] of table [${table.name}] already exists`,
    )
  }

  #drop({ removeType, objects, missing_ok: isOptional = false }: NodeOf<'DropStmt'>): string {
    for (const each of objects ?? []) {
      if (removeType === 'OBJECT_TYPE') this.#dropType(each, isOptional)
      else {
        const parts = namesOf(contentOf(each, 'List')?.items)
        const name = parts.at(-1) ?? ''
        if (parts.length > 1 && parts.at(-2) !== PUBLIC) {
          throw notSupported(`schema [${parts.slice(0, -1).join('.')}]`)
        }
        if (removeType === 'OBJECT_TABLE') this.#dropTable(name, isOptional)
        else if (removeType === 'OBJECT_INDEX') this.#dropIndex(name, isOptional)
        else if (removeType === 'OBJECT_SEQUENCE') {
          this.#notices.add(`sequence [${name}] was not dropped: it goes with its column`)
        } else throw notSupported(`DROP ${objectWords(removeType)}`)
      }
    }
    return `DROP ${objectWords(removeType)}`
  }

  #dropTable(name: string, isOptional: boolean): void {
    const table = this.#model.findTable(name)
    if (table !== undefined) this.#model.removeTable(table)
    else if (!isOptional) throw invalidSql(`table [${name}] not found`)
    else this.#skip('', `table [${name}] does not exist`)
  }

  // Indexes

  #createIndex(statement: NodeOf<'IndexStmt'>): string {
    const { unique: isUnique = false, idxname } = statement
    const { keys, patternClasses, obstacle } = readIndex(statement)
    const table = this.#getTable(statement.relation)
    const named = listColumnRefs({ IndexStmt: statement }).map(({ fields }) =>
      namesOf(fields).at(-1),
    )
    const names = [...keys, ...named].flatMap((key) => {
      if (key === undefined || key === 'id') return key ?? []
      return getColumn(table, key).definition.name
    })
    const tag = 'CREATE INDEX'
    if (isUnique) {
      if (obstacle !== undefined) throw notSupported(`CREATE UNIQUE INDEX: ${obstacle}`)
      const isKnown = table.constraints.some(({ name }) => name === idxname)
      if (statement.if_not_exists && isKnown) {
        return this.#skip(tag, `index [${idxname}] already exists`)
      }
      // An index and a constraint of one name would be the same thing here.
      this.#makeUnique(table, names, idxname ?? cutName(`${table.name}_${names.join('_')}_idx`))
      return tag
    }
    const [name = ''] = names
    const shown = idxname ?? cutName(`${table.name}_${names.join('_')}_idx`)
    // It changes no answer, so that a migration need not stop for it.
    if (obstacle !== undefined) {
      this.#notices.add(`index [${shown}] was not made: CREATE INDEX: ${obstacle} is not supported`)
      return tag
    }
    if (name === 'id') {
      this.#notices.add(`index [${shown}] was not made: column [id] has an index`)
      return tag
    }
    for (const each of patternClasses) {
      this.#notices.add(`index [${shown}] has the usual order, and not that of ${each}`)
    }
    const usual = indexName(table, name)
    if (idxname !== undefined && idxname !== usual) {
      this.#notices.add(`index [${idxname}] is called [${usual}]`)
    }
    const column = getColumn(table, name)
    this.#model.makeIndexable(table, column)
    this.#model.indexes.push({ table, column, isWanted: true })
    return tag
  }

  #dropIndex(name: string, isOptional: boolean): void {
    const { tables } = this.#model
    const found = tables.find(
      (table) =>
        table.constraints.some((each) => each.isUnique && each.name === name) ||
        findUnique(table, name) !== undefined,
    )
    if (found !== undefined) {
      this.#dropConstraint(found, name)
      return
    }
    for (const table of tables) {
      const column = table.columns.find(
        ({ definition }) => indexName(table, definition.name) === name,
      )
      if (column === undefined) continue
      this.#model.indexes.push({ table, column, isWanted: false })
      return
    }
    if (isOptional) {
      this.#skip('', `index [${name}] does not exist`)
      return
    }
    // An index that was not made, or has another name here, cannot be told from one that never was.
    this.#notices.add(
      `index [${name}] was not dropped: there is none, or it is called {table}_{column}_idx`,
    )
  }

  // Comments and types

  #comment({ objtype, object, comment }: NodeOf<'CommentStmt'>): string {
    const words = `COMMENT ON ${objectWords(objtype)}`
    const parts = namesOf(contentOf(object, 'List')?.items)
    const [name = '', tableName = '', schemaname] = [...parts].reverse()
    // It changes nothing that a statement can see, so that a dump need not stop for it.
    if (objtype === 'OBJECT_TABLE') {
      this.#getTable({ relname: name, ...(tableName && { schemaname: tableName }) })
    } else if (objtype !== 'OBJECT_COLUMN' && !COMMENTED.has(objtype ?? '')) {
      throw notSupported(words, 'only columns have a description')
    }
    if (objtype !== 'OBJECT_COLUMN' || name === 'id') {
      this.#notices.add(`${words}: was not kept, because only columns have a description`)
      return 'COMMENT'
    }
    const table = this.#getTable({ relname: tableName, ...(schemaname && { schemaname }) })
    this.#model.changeColumn(table, getColumn(table, name), { description: comment ?? null })
    return 'COMMENT'
  }

  #createEnum({ typeName, vals }: NodeOf<'CreateEnumStmt'>): string {
    const name = this.#newName(nameOf({ names: typeName ?? [] }))
    if (this.#enums.has(name)) throw invalidSql(`type [${name}] already exists`)
    if (this.#made.size >= TYPES_MAX) {
      throw invalidSql(`at most ${TYPES_MAX} types can be created by one client`)
    }
    this.#made.add(name)
    this.#enums.set(
      name,
      namesOf(vals).map((value) => value ?? ''),
    )
    return 'CREATE TYPE'
  }

  #alterEnum(statement: NodeOf<'AlterEnumStmt'>): string {
    const { newVal: value = '', newValNeighbor: neighbour, newValIsAfter: isAfter } = statement
    const name = nameOf({ names: statement.typeName ?? [] })
    const tag = 'ALTER TYPE'
    if (statement.oldVal !== undefined) {
      throw notSupported('ALTER TYPE ... RENAME VALUE', 'add a value and change the records')
    }
    const values = this.#valuesOf(name)
    if (values.includes(value)) {
      if (!statement.skipIfNewValExists) {
        throw new AppError('already_exists', `type [${name}]: value [${value}] already exists`)
      }
      return this.#skip(tag, `value [${value}] of type [${name}] already exists`)
    }
    const added = (before: readonly string[]) => {
      const at = neighbour === undefined ? before.length : before.indexOf(neighbour)
      if (at < 0) throw invalidSql(`type [${name}]: value [${neighbour}] not found`)
      return before.toSpliced(neighbour !== undefined && isAfter ? at + 1 : at, 0, value)
    }
    this.#enums.set(name, added(values))
    for (const { table, column } of columnsOf(this.#model, name)) {
      const { values: own = [], ...type } = column.definition.enum ?? {}
      this.#model.changeColumn(table, column, { enum: { ...type, values: added(own) } })
    }
    return tag
  }

  #valuesOf(name: string): readonly string[] {
    const values = this.#enums.get(name)
    if (values !== undefined) return values
    throw invalidSql(`type [${name}] not found: a type is there as long as a column has it`)
  }

  #renameType(object: Node | undefined, newName: string): string {
    const name = nameOf({ names: contentOf(object, 'List')?.items ?? [] })
    const values = this.#valuesOf(name)
    if (this.#enums.has(newName)) throw invalidSql(`type [${newName}] already exists`)
    for (const { table, column } of columnsOf(this.#model, name)) {
      const { values: own = [] } = column.definition.enum ?? {}
      this.#model.changeColumn(table, column, { enum: { values: [...own], type: newName } })
    }
    this.#enums.delete(name)
    this.#enums.set(newName, values)
    if (this.#made.delete(name)) this.#made.add(newName)
    return 'ALTER TYPE'
  }

  #dropType(object: Node, isOptional: boolean): void {
    const name = nameOf(contentOf(object, 'TypeName') ?? {})
    const [user] = columnsOf(this.#model, name)
    if (user !== undefined) {
      const { definition } = user.column
      throw invalidSql(
        `type [${name}] cannot be dropped: column [${definition.name}] of table [${user.table.name}] has it`,
      )
    }
    this.#made.delete(name)
    if (this.#enums.delete(name)) return
    if (isOptional) this.#skip('', `type [${name}] does not exist`)
    // It may have gone with its last column.
    else this.#notices.add(`type [${name}] was not dropped: no column has it`)
  }
}

/** The name of the type of a column, as the catalogue shows it. */
const typeNameOf = (table: TableModel, { definition }: ColumnModel): string | undefined =>
  definition.type === 'enum' ? enumNameOf(table.name, definition) : undefined

/** Lists the columns of a type. */
const columnsOf = ({ tables }: SchemaModel, type: string) =>
  tables.flatMap((table) =>
    table.columns
      .filter((column) => typeNameOf(table, column) === type)
      .map((column) => ({ table, column })),
  )

/** Returns the types of columns. */
function typesOf({ tables }: SchemaModel): Map<string, readonly string[]> {
  const types = new Map<string, readonly string[]>()
  for (const table of tables) {
    for (const column of table.columns) {
      const name = typeNameOf(table, column)
      if (name !== undefined && !types.has(name)) {
        types.set(name, column.definition.enum?.values ?? [])
      }
    }
  }
  return types
}

/** Objects of dumps whose comments are not kept. */
const COMMENTED = new Set([
  'OBJECT_EXTENSION',
  'OBJECT_INDEX',
  'OBJECT_SCHEMA',
  'OBJECT_SEQUENCE',
  'OBJECT_TABCONSTRAINT',
  'OBJECT_TYPE',
])

const NAME_BYTES_MAX = 63
const SEQUENCE_END = '_seq'
/** What the parser has for GENERATED ALWAYS. */
const ALWAYS = 'a'

const COLUMN_PARTS = ['colname', 'typeName', 'is_local', 'constraints', 'location']
const COLUMN_WORDS = {
  collClause: 'COLLATE',
  compression: 'COMPRESSION',
  storage_name: 'STORAGE',
  fdwoptions: 'OPTIONS',
}
const TABLE_PARTS = {
  inhRelations: 'INHERITS',
  partspec: 'PARTITION BY',
  partbound: 'PARTITION OF',
  ofTypename: 'OF',
  options: 'WITH',
  tablespacename: 'TABLESPACE',
  accessMethod: 'USING',
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

const DEFERRED = new Set([
  'CONSTR_ATTR_DEFERRABLE',
  'CONSTR_ATTR_NOT_DEFERRABLE',
  'CONSTR_ATTR_DEFERRED',
  'CONSTR_ATTR_IMMEDIATE',
])

const wordsOf = (contype: string | undefined): string =>
  (contype ?? '').replace(/^CONSTR_(?:ATTR_)?/, '').replaceAll('_', ' ')
const objectWords = (objtype: string | undefined): string =>
  (objtype ?? '').replace(/^OBJECT_/, '').replaceAll('_', ' ')
const subtypeWords = (subtype: string | undefined): string =>
  (subtype ?? '')
    .replace(/^AT_/, '')
    .replace(/([a-z])([A-Z])/g, '$1 $2')
    .toUpperCase()

/** Parameters of a table that change no answer. */
const STORAGE = /^(?:fillfactor|toast_tuple_target|parallel_workers|autovacuum_\w+)$/

const indexName = (table: TableModel, column: string): string =>
  cutName(`${table.name}_${column}_idx`)

const usualReference = (table: TableModel, { definition }: ColumnModel): string =>
  cutName(`${table.name}_${definition.name}_fkey`)

/** Finds the column of a rule that linked records exist. */
const findReference = (table: TableModel, name: string): ColumnModel | undefined =>
  table.columns.find((each) => {
    const { onDelete = 'none', constraint = usualReference(table, each) } =
      each.definition.link ?? {}
    return onDelete !== 'none' && constraint === name
  })

/** Finds the unique column whose rule has a name. */
const findUnique = (table: TableModel, name: string): ColumnModel | undefined =>
  table.columns.find(
    ({ definition }) =>
      definition.unique === true && cutName(`${table.name}_${definition.name}_key`) === name,
  )

/** Refuses changes of the id, which is not a column of its own. */
function requireOther(name: string, what: string): void {
  if (name === 'id') throw notSupported(`${what} of column [id]`)
}

/** A sequence starts at one, as all sequences here do. Its other options do not matter. */
function requireNumbering(options: readonly Node[] = [], what: string): void {
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

/** Whether an expression is `nextval(...)`. */
function isNextNumber(node: Node | undefined): boolean {
  return namesOf(contentOf(node, 'FuncCall')?.funcname).at(-1) === 'nextval'
}

function isOwnerChange({ cmds = [] }: NodeOf<'AlterTableStmt'>): boolean {
  return cmds.every((each) => contentOf(each, 'AlterTableCmd')?.subtype === 'AT_ChangeOwner')
}

/** Returns the primary key of a table, also if it is declared with its column. */
function primaryKeyOf(
  columns: readonly NodeOf<'ColumnDef'>[],
  constraints: readonly TableConstraint[],
): TableConstraint | undefined {
  const found = constraints.filter(({ contype }) => contype === 'CONSTR_PRIMARY')
  for (const { colname = '', constraints: own = [] } of columns) {
    for (const each of own) {
      const constraint = contentOf(each, 'Constraint')
      if (constraint?.contype !== 'CONSTR_PRIMARY') continue
      found.push({ ...constraint, keys: [{ String: { sval: colname } }] })
    }
  }
  const [key, ...others] = found
  if (others.length > 0) throw invalidSql('a table cannot have several primary keys')
  const [name] = namesOf(key?.keys)
  if (name === 'id' && columns.every(({ colname }) => colname !== 'id')) {
    throw invalidSql('column [id] of the primary key not found')
  }
  return key
}

function requireKeyParts(constraint: TableConstraint): void {
  requireParts(constraint, ['contype', 'conname', 'keys', 'location'], {
    of: 'PRIMARY KEY',
    names: CONSTRAINT_PARTS,
  })
}

/** Throws unless a column [id] is the primary key. */
function requireIdKey(id: NodeOf<'ColumnDef'>, key: TableConstraint | undefined): void {
  // A dump adds the primary key when the table has its rows.
  if (key === undefined && isRequired(id)) return
  if (key === undefined) throw notSupported('a column [id] that is not the primary key')
  const names = namesOf(key.keys)
  if (names.length === 1 && names[0] === 'id') {
    requireKeyParts(key)
    return
  }
  throw notSupported(
    `PRIMARY KEY (${names.join(', ')}) of a table with a column [id]`,
    'the primary key is that column; use UNIQUE for others',
  )
}

/** Returns whether a column is declared NOT NULL. */
function isRequired({ constraints = [] }: NodeOf<'ColumnDef'>): boolean {
  return constraints.some((each) => contentOf(each, 'Constraint')?.contype === 'CONSTR_NOTNULL')
}

/** Returns whether an expression makes ids such as those of the service: `'rec_' || …`. */
function isUsualId(expression: Node | undefined): boolean {
  const { name, lexpr } = contentOf(expression, 'A_Expr') ?? {}
  const prefix = contentOf(contentOf(lexpr, 'TypeCast')?.arg ?? lexpr, 'A_Const')
  return namesOf(name).join() === '||' && prefix?.sval?.sval === 'rec_'
}

/** Whether a conversion is the one that a change of the type makes anyway: `column::type`, or `column::text::type`. */
function isPlainCast(
  node: Node,
  { name, form, enums }: { name: string; form: ColumnForm; enums: Enums },
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

/** Returns the name of a check that has none, as PostgreSQL would choose it. */
function freeName(table: TableModel, start: string): string {
  const taken = new Set(table.constraints.map(({ name }) => name))
  for (let count = 0; ; count++) {
    const suffix = `_check${count === 0 ? '' : count}`
    const name = `${cutName(start, NAME_BYTES_MAX - suffix.length)}${suffix}`
    if (!taken.has(name)) return name
  }
}
