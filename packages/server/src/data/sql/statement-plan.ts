import type { Node } from 'libpg-query'
import { ExpressionWriter } from '../../dialect/expression-sql.js'
import { invalidSql, unusedParameters } from '../../dialect/invalid-sql.js'
import { contentOf, kindOf, type NodeKind, type NodeOf, requireKnown } from '../../dialect/nodes.js'
import { parseSql, SqlSyntaxError, tooDeep } from '../../dialect/parser.js'
import { cutName, findName, Scope } from '../../dialect/scope.js'
import { textLength } from '../../postgres/place.js'
import { empty, ident, join, type Sql, sql } from '../../postgres/sql.js'
import { type Slot, slot } from '../../postgres/statement.js'
import {
  type BranchTable,
  PROPOSED_POSITION,
  type TableKey,
  type TargetColumn,
  type WritableTables,
  type WrittenColumn,
  type WrittenKey,
} from './branch-tables.js'
import { isLookup } from './lookup.js'
import { QueryWriter, type WrittenQuery } from './select-sql.js'

/** A syntactically valid statement of a supported kind. */
export interface ParsedStatement {
  readonly text: string
  readonly node: Node
  readonly nodeCount: number
  readonly callCount: number
  readonly relationNames: ReadonlySet<string>
}

/** The query of a statement, and what to write afterwards. Plain data that can be sent between threads. */
export type StatementPlan =
  | {
      readonly kind: 'select'
      readonly query: Sql
      /** Whether it finds one record by its id, so that it never takes long. */
      readonly isLookup: boolean
    }
  | ({
      readonly kind: 'insert'
      readonly values: InsertValues
      readonly conflict: ConflictPlan | undefined
    } & WritePlan)
  | ({
      readonly kind: 'update'
      /** The written columns, in the order of their values after the id. */
      readonly columns: readonly WrittenColumn[]
      /** A query for rows of JSON texts, one for each record: its id and the new values. */
      readonly rows: Sql
    } & WritePlan)
  | ({ readonly kind: 'delete'; readonly rows: Sql } & WritePlan)
  /** Deletes all records of some tables, by their names in the schema. */
  | { readonly kind: 'truncate'; readonly tables: readonly string[] }

interface WritePlan {
  /** The name of the table in the schema. */
  readonly table: string
  /** A query for the written records. Their ids are in the slot after the parameters. */
  readonly returning: Sql | undefined
}

interface InsertValues {
  readonly columns: readonly WrittenColumn[]
  /** A query for rows of JSON texts, one for each record. undefined: one record with only default values. */
  readonly rows: Sql | undefined
  /** The values that are DEFAULT, as `defaultKey` of row and column. */
  readonly defaults: ReadonlySet<string>
}

/** The plan of ON CONFLICT, for records that conflict with existing ones. */
export interface ConflictPlan {
  /** The unique keys that are checked for conflicts. */
  readonly keys: readonly WrittenKey[]
  /**
   * A query for rows of JSON texts, one for each conflict: the position of the record (from 1), the id of the
   * existing record, and for an update whether to change it and its new values. The records to insert are in
   * the slot after the parameters, and their values of each key in the following slots.
   */
  readonly rows: Sql
  /** The columns to update in the existing record. undefined: DO NOTHING. */
  readonly update: readonly WrittenColumn[] | undefined
}

/** Returns the length of the queries of a plan. */
export function lengthOf(plan: StatementPlan): number {
  if (plan.kind === 'select') return textLength(plan.query)
  if (plan.kind === 'truncate') return 0
  const read = plan.kind === 'insert' ? plan.values.rows : plan.rows
  const conflict = plan.kind === 'insert' ? plan.conflict?.rows : undefined
  return [read, conflict, plan.returning].reduce(
    (length, query) => length + (query === undefined ? 0 : textLength(query)),
    0,
  )
}

/** Returns the names of the tables that a statement writes to. */
export function writtenTables(plan: StatementPlan): readonly string[] {
  if (plan.kind === 'select') return []
  return plan.kind === 'truncate' ? plan.tables : [plan.table]
}

export const defaultKey = (row: number, column: number): string => `${row} ${column}`

const plainColumns = (columns: readonly TargetColumn[]): WrittenColumn[] =>
  columns.map(({ name, path }) => ({ name, path }))
const plainKeys = (keys: readonly TableKey[]): WrittenKey[] =>
  keys.map(({ columns }) => ({ columns: columns.map(({ name, index }) => ({ name, index })) }))

const KINDS: ReadonlySet<NodeKind> = new Set([
  'SelectStmt',
  'InsertStmt',
  'UpdateStmt',
  'DeleteStmt',
  'TruncateStmt',
])

export async function parseStatement(
  text: string,
  parameterCount: number,
): Promise<ParsedStatement> {
  const {
    nodes,
    texts: _texts,
    ...counted
  } = await parseSql(text).catch((error: unknown) => {
    throw error instanceof SqlSyntaxError ? describeSyntax(error, text, parameterCount) : error
  })
  const [node, ...others] = nodes
  if (node === undefined) throw invalidSql('the statement is empty')
  if (others.length > 0) throw invalidSql('only one statement can be run at a time')
  if (!KINDS.has(kindOf(node))) {
    const words = kindOf(node)
      .replace(/Stmt$/, '')
      .replace(/([a-z])([A-Z])/g, '$1 $2')
    throw invalidSql(
      `${words.toUpperCase()} is not supported: only SELECT, INSERT, UPDATE, DELETE, TRUNCATE and statements that change the schema are`,
    )
  }
  return { text, node, ...counted }
}

/** Reports a parameter at an invalid place as unused, as clients expect. */
function describeSyntax({ message, position }: SqlSyntaxError, text: string, count: number) {
  if (count === 0 || !/ at or near "\$\d+"$/.test(message)) return invalidSql(message, position)
  const before = new Set(text.slice(0, position - 1).match(/\$\d+/g))
  return unusedParameters(Math.min(before.size, count - 1), count)
}

/** Rewrites a statement for the tables of a branch. */
export function planStatement(
  statement: ParsedStatement,
  options: {
    tables: WritableTables
    /** The size of the text of each parameter, in bytes. */
    parameterSizes: readonly number[]
  },
): StatementPlan {
  const planner = new Planner(statement, options.tables, options.parameterSizes)
  try {
    return planner.plan(statement.node)
  } catch (error) {
    if (error instanceof RangeError) throw tooDeep()
    throw error
  }
}

/** The alias of the query of a statement that writes. */
const SOURCE = sql`source`
const RETURNED = ident('returned ids')
const RETURNED_ID = ident('returned id')
const RETURNED_POSITION = ident('returned position')

class Planner {
  readonly #writer: QueryWriter
  readonly #tables: WritableTables
  readonly #parameterCount: number

  constructor(
    statement: ParsedStatement,
    tables: WritableTables,
    parameterSizes: readonly number[],
  ) {
    this.#writer = new QueryWriter(statement, tables, parameterSizes)
    this.#tables = tables
    this.#parameterCount = parameterSizes.length
  }

  plan(node: Node): StatementPlan {
    const plan = this.#plan(node)
    this.#writer.requireParameters(this.#parameterCount)
    return plan
  }

  #plan(node: Node): StatementPlan {
    const select = contentOf(node, 'SelectStmt')
    if (select !== undefined) {
      const query = this.#writer.select(select, undefined).text
      return { kind: 'select', query, isLookup: isLookup(select) }
    }
    const insert = contentOf(node, 'InsertStmt')
    if (insert !== undefined) return this.#insert(insert)
    const update = contentOf(node, 'UpdateStmt')
    if (update !== undefined) return this.#update(update)
    const remove = contentOf(node, 'DeleteStmt')
    if (remove !== undefined) return this.#delete(remove)
    const truncate = contentOf(node, 'TruncateStmt')
    if (truncate !== undefined) return this.#truncate(truncate)
    throw invalidSql(`${kindOf(node)} is not supported`)
  }

  #tableOf(relation: NodeOf<'RangeVar'> | undefined): BranchTable {
    if (relation === undefined) throw invalidSql('a table is missing')
    const { name } = this.#writer.table(relation)
    const table = this.#tables.find(name)
    if (table === undefined) throw invalidSql(`table [${name}] not found`)
    return table
  }

  #insert(statement: NodeOf<'InsertStmt'>): StatementPlan {
    requireKnown(statement, 'INSERT', [
      'relation',
      'cols',
      'selectStmt',
      'onConflictClause',
      'returningClause',
      'withClause',
      'override',
    ])
    const { override = 'OVERRIDING_NOT_SET' } = statement
    if (override !== 'OVERRIDING_NOT_SET') throw invalidSql('OVERRIDING is not supported')
    const table = this.#tableOf(statement.relation)
    const values = this.#insertValues(statement, table)
    const conflict = this.#conflict(statement, table)
    const returning = this.#returning(statement)
    return { kind: 'insert', table: table.fullName, values, conflict, returning }
  }

  #conflict(
    { onConflictClause: clause, relation, withClause }: NodeOf<'InsertStmt'>,
    table: BranchTable,
  ): ConflictPlan | undefined {
    if (clause === undefined || relation === undefined) return undefined
    requireKnown(clause, 'ON CONFLICT', CONFLICT_PARTS)
    const keys = conflictKeys(clause, table)
    const records = slot(this.#parameterCount)
    const textsOf = (position: number) => slot(this.#parameterCount + 1 + position)
    if (clause.action !== 'ONCONFLICT_UPDATE') {
      let first = 0
      const found = keys.map((key) => {
        const start = first
        first += key.columns.length
        return findOthers(table, { key, records, textsOf: (column) => textsOf(start + column) })
      })
      return { keys: plainKeys(keys), rows: join(found, ' union all '), update: undefined }
    }
    const [key] = keys
    if (clause.infer === undefined || key === undefined) {
      throw invalidSql('ON CONFLICT DO UPDATE needs the column in which records are in conflict')
    }
    const scope = new Scope(undefined)
    const named = this.#writer.writeWith(withClause, scope)
    const target = this.#writer.target(relation, scope)
    const proposed = this.#writer.introduce(scope, { name: 'excluded', columns: table.columns })
    const { columns, values } = this.#assignments(clause.targetList, table, scope)
    const isWanted =
      clause.whereClause === undefined
        ? sql`true`
        : sql`coalesce(${new ExpressionWriter(this.#writer, scope).write(clause.whereClause)}, false)`
    const texts = [
      sql`to_json(${proposed}.${PROPOSED_POSITION})`,
      sql`to_json(${target.alias}.id)`,
      sql`to_json(${isWanted})`,
      ...values,
    ]
    return {
      keys: plainKeys(keys),
      update: plainColumns(columns),
      rows: sql`
        ${named}select to_json(array[${join(texts, ', ')}]::json[])::text as row
        from (${table.proposed(records)}) as ${proposed}
        join ${target.text} on ${isInTheWay(target.alias, { key, proposed, textsOf })}`,
    }
  }

  #insertValues(statement: NodeOf<'InsertStmt'>, table: BranchTable): InsertValues {
    const given = this.#insertColumns(statement, table)
    const source = contentOf(statement.selectStmt, 'SelectStmt')
    if (source === undefined) {
      return { columns: [], rows: undefined, defaults: new Set() }
    }
    const scope = new Scope(undefined)
    const named = this.#writer.writeWith(statement.withClause, scope)
    const defaults = new Set<string>()
    const query = this.#writer.select(withoutDefaults(source, defaults), scope)
    const columns = given ?? table.targets.slice(0, query.columns.length)
    requireSameLength(columns, query)
    const names = columns.map((_, index) => ident(`value ${index}`))
    const texts = columns.map((column, index) =>
      column.valueOf(sql`${SOURCE}.${names[index] ?? empty}`),
    )
    return {
      columns: plainColumns(columns),
      rows: sql`
        ${named}select to_json(array[${join(texts, ', ')}]::json[])::text as row
        from (${query.text}) as ${SOURCE}(${join(names, ', ')})`,
      defaults,
    }
  }

  #insertColumns(
    { cols }: NodeOf<'InsertStmt'>,
    table: BranchTable,
  ): readonly TargetColumn[] | undefined {
    if (cols === undefined) return undefined
    const columns = cols.map((node) => this.#target(node, table))
    requireDistinct(columns)
    return columns
  }

  #target(node: Node, table: BranchTable): TargetColumn {
    const { name = '', indirection } = contentOf(node, 'ResTarget') ?? {}
    if (indirection !== undefined)
      throw invalidSql(`column [${name}]: only a whole column can be set`)
    return table.target(name)
  }

  #update(statement: NodeOf<'UpdateStmt'>): StatementPlan {
    requireKnown(statement, 'UPDATE', [
      'relation',
      'targetList',
      'whereClause',
      'fromClause',
      'returningClause',
      'withClause',
    ])
    const table = this.#tableOf(statement.relation)
    const { id, scope, from, named, where } = this.#written(statement, statement.fromClause)
    const { columns, values } = this.#assignments(statement.targetList, table, scope)
    const texts = join([sql`to_json(${id})`, ...values], ', ')
    return {
      kind: 'update',
      table: table.fullName,
      columns: plainColumns(columns),
      rows: sql`${named}select to_json(array[${texts}]::json[])::text as row${from}${where}`,
      returning: this.#returning(statement),
    }
  }

  /** Writes the columns and expressions of a SET clause. */
  #assignments(nodes: readonly Node[] | undefined, table: BranchTable, scope: Scope) {
    const writer = new ExpressionWriter(this.#writer, scope)
    const columns: TargetColumn[] = []
    const values = (nodes ?? []).map((node) => {
      const target = contentOf(node, 'ResTarget')
      const column = this.#target(node, table)
      if (column.name === 'id') throw invalidSql('column [id]: cannot be changed')
      if (column.path.length > 1) {
        throw invalidSql(`column [${column.name}]: is part of an object and cannot be set alone`)
      }
      columns.push(column)
      return column.valueOf(writer.write(target?.val))
    })
    requireDistinct(columns)
    return { columns, values }
  }

  #delete(statement: NodeOf<'DeleteStmt'>): StatementPlan {
    requireKnown(statement, 'DELETE', [
      'relation',
      'usingClause',
      'whereClause',
      'returningClause',
      'withClause',
    ])
    const table = this.#tableOf(statement.relation)
    const { id, from, named, where } = this.#written(statement, statement.usingClause)
    return {
      kind: 'delete',
      table: table.fullName,
      rows: sql`${named}select to_json(array[to_json(${id})])::text as row${from}${where}`,
      returning: this.#returning(statement),
    }
  }

  #truncate(statement: NodeOf<'TruncateStmt'>): StatementPlan {
    requireKnown(statement, 'TRUNCATE', ['relations', 'behavior', 'restart_seqs'])
    if (statement.behavior === 'DROP_CASCADE') {
      throw invalidSql('TRUNCATE ... CASCADE is not supported: name all tables')
    }
    const tables = (statement.relations ?? []).map((node) => {
      return this.#tableOf(contentOf(node, 'RangeVar')).fullName
    })
    return { kind: 'truncate', tables: [...new Set(tables)] }
  }

  /** Writes the parts that UPDATE and DELETE share: the table, further relations, and the condition. */
  #written(
    { relation, withClause, whereClause }: NodeOf<'UpdateStmt'> | NodeOf<'DeleteStmt'>,
    others: readonly Node[] | undefined,
  ) {
    if (relation === undefined) throw invalidSql('a table is missing')
    const scope = new Scope(undefined)
    const named = this.#writer.writeWith(withClause, scope)
    const target = this.#writer.target(relation, scope)
    const beside =
      others === undefined || others.length === 0
        ? empty
        : sql`, ${this.#writer.writeRelations(others, scope)}`
    const where =
      whereClause === undefined
        ? empty
        : sql` where ${new ExpressionWriter(this.#writer, scope).write(whereClause)}`
    const from = sql` from ${target.text}${beside}`
    return { scope, named, from, where, id: sql`${target.alias}.id` }
  }

  /** Writes the query for RETURNING. It returns the written records in order. */
  #returning({
    relation,
    returningClause,
  }: Pick<NodeOf<'UpdateStmt'>, 'relation' | 'returningClause'>): Sql | undefined {
    if (returningClause === undefined || relation === undefined) return undefined
    requireKnown(returningClause, 'RETURNING', ['exprs'])
    const scope = new Scope(undefined)
    const target = this.#writer.target(relation, scope)
    const star = () => sql`${target.alias}.*`
    const targets = this.#writer.writeTargets(returningClause.exprs, scope, star)
    const { idType } = target.table
    const ids = sql`${slot(this.#parameterCount)}::${idType}[]`
    // The ids are given twice, so that a fork can use its indexes; see `isInTheWay`.
    return sql`
      select ${targets.text}
      from unnest(${ids}) with ordinality as ${RETURNED}(${RETURNED_ID}, ${RETURNED_POSITION})
      join ${target.text}
        on ${target.alias}.id = ${RETURNED}.${RETURNED_ID} and ${target.alias}.id = any(${ids})
      order by ${RETURNED}.${RETURNED_POSITION}`
  }
}

const CONFLICT_PARTS = ['action', 'infer', 'targetList', 'whereClause', 'location']

/** Returns the key of an ON CONFLICT clause, or all unique keys if it names none. */
function conflictKeys(
  { infer }: NonNullable<NodeOf<'InsertStmt'>['onConflictClause']>,
  table: BranchTable,
): readonly TableKey[] {
  if (infer === undefined) return table.keys
  if (infer.conname !== undefined) {
    const named = table.keys.find(({ name }) => cutName(name) === infer.conname)
    if (named !== undefined) return [named]
    throw invalidSql(
      `ON CONFLICT ON CONSTRAINT: [${infer.conname}] is not a unique constraint of table [${table.fullName}]`,
    )
  }
  requireKnown(infer, 'ON CONFLICT', ['indexElems', 'location'])
  const names = (infer.indexElems ?? []).map((node) => {
    const element = contentOf(node, 'IndexElem') ?? {}
    requireKnown(element, 'ON CONFLICT', ['name', 'ordering', 'nulls_ordering'])
    return element.name ?? ''
  })
  // As in PostgreSQL, the order of the columns does not matter.
  const key = table.keys.find(
    ({ columns }) =>
      columns.length === new Set(names).size &&
      names.every((name) => findName(columns, name, (column) => column.name) !== undefined),
  )
  if (key !== undefined) return [key]
  throw invalidSql(
    `ON CONFLICT: [${names.join(', ')}] is not the id, nor a unique column, nor the columns of a unique constraint`,
  )
}

/** Writes a query for existing records that have the unique value of a record to insert. */
function findOthers(
  table: BranchTable,
  { key, records, textsOf }: { key: TableKey; records: Slot; textsOf(column: number): Slot },
): Sql {
  const proposed = sql`p`
  return sql`
    select to_json(array[to_json(p.${PROPOSED_POSITION}), to_json(t.id)]::json[])::text as row
    from (${table.proposed(records)}) as ${proposed}
    join (${table.rows}) as t on ${isInTheWay(sql`t`, { key, proposed, textsOf })}`
}

/**
 * Returns the condition that a record has the unique value of another. For inherited rows of a fork, PostgreSQL
 * uses an index only if the values are also given as a separate array, besides the join.
 */
function isInTheWay(
  record: Sql,
  { key, proposed, textsOf }: { key: TableKey; proposed: Sql; textsOf(column: number): Slot },
): Sql {
  const conditions = key.columns.map(({ name, valuesOf }, position) => {
    const value = sql`${record}.${ident(name)}`
    return sql`${value} = ${proposed}.${ident(name)} and ${value} = any(${valuesOf(textsOf(position))})`
  })
  return join(conditions, ' and ')
}

/** Replaces DEFAULT by null, and adds its position to `defaults`. */
function withoutDefaults(query: NodeOf<'SelectStmt'>, defaults: Set<string>): NodeOf<'SelectStmt'> {
  if (query.valuesLists === undefined) return query
  const valuesLists = query.valuesLists.map((node, row): Node => {
    const items = (contentOf(node, 'List')?.items ?? []).map((item, column): Node => {
      if (contentOf(item, 'SetToDefault') === undefined) return item
      defaults.add(defaultKey(row, column))
      return { A_Const: { isnull: true } }
    })
    return { List: { items } }
  })
  return { ...query, valuesLists }
}

function requireSameLength(columns: readonly TargetColumn[], query: WrittenQuery): void {
  const [targets, expressions] = [columns.length, query.columns.length]
  if (targets === expressions) return
  throw invalidSql(
    targets > expressions
      ? 'INSERT has more target columns than expressions'
      : 'INSERT has more expressions than target columns',
  )
}

function requireDistinct(columns: readonly TargetColumn[]): void {
  const names = columns.map(({ name }) => name)
  const repeated = names.find((name, index) => names.indexOf(name) !== index)
  if (repeated !== undefined) throw invalidSql(`column [${repeated}] is set more than once`)
}
