import type { Node } from 'libpg-query'
import { requireValueOf, typeOnceShown } from '../../dialect/declared-types.js'
import { createWriter } from '../../dialect/expressions/writers.js'
import { invalidSql, unusedParameters } from '../../dialect/invalid-sql.js'
import {
  contentOf,
  kindOf,
  type NodeKind,
  type NodeOf,
  namesOf,
  requireKnown,
} from '../../dialect/nodes.js'
import { parseSql, SqlSyntaxError, tooDeep } from '../../dialect/parser.js'
import {
  type ColumnTypes,
  cutName,
  findName,
  type NamedQuery,
  type Relation,
  Scope,
} from '../../dialect/scope.js'
import { textLength } from '../../postgres/place.js'
import { empty, ident, integer, join, type Sql, sql } from '../../postgres/sql.js'
import { type Parameter, type Slot, slot } from '../../postgres/statement.js'
import {
  PROPOSED_POSITION,
  type StatementTable,
  type TableKey,
  type TargetColumn,
  type WritableTables,
  type WrittenColumn,
  type WrittenKey,
} from './branch-tables.js'
import { isLookup } from './lookup.js'
import {
  keptColumns,
  listReferences,
  otherRelations,
  ReturnedRelations,
  returnsOthers,
} from './returned-relations.js'
import {
  type ComparedParameter,
  type NamedParts,
  namesSql,
  partsOf,
  QueryWriter,
  withSql,
} from './select-sql.js'
import { readNextNumber, readNextval, readSetval, type SetvalCall } from './setval-call.js'
import { StepRows } from './step-rows.js'
import { shownQuery, type WrittenQuery } from './written-query.js'

/** A syntactically valid statement of a supported kind. */
export interface ParsedStatement {
  readonly text: string
  readonly node: Node
  readonly nodeCount: number
  readonly callCount: number
  readonly relationNames: ReadonlySet<string>
  readonly typeNames: ReadonlySet<string>
}

/** The query of a statement, and what to write afterwards. Plain data that can be sent between threads. */
export type StatementPlan = (
  | SinglePlan
  /** Deletes all records of some tables, by their names in the schema. */
  | {
      readonly kind: 'truncate'
      readonly tables: readonly string[]
      /** Whether tables that link to them are emptied, too. */
      readonly cascades: boolean
      /** Whether it asks for sequences that start over. */
      readonly restarts: boolean
    }
  /** Lets a sequence go on after a number, or takes its next one. */
  | {
      readonly kind: 'setval'
      /** The name of the sequence. */
      readonly sequence: string
      /** A query for a row of JSON text: the number, and whether it is taken. undefined: the next number. */
      readonly number: Sql | undefined
      /** Returns the number. The next one is in the slot after the parameters. */
      readonly query: Sql
    }
  /** A statement whose WITH writes. What the steps return follows the parameters, and precedes other values. */
  | {
      readonly kind: 'with'
      readonly steps: readonly WithStep[]
      readonly last: SinglePlan
      /** The statement has no WITH that writes. Its only step reads the rows that it joins, which RETURNING has. */
      readonly isPlain?: boolean
    }
) & { readonly compared?: readonly ComparedParameter[] }

/** A query of a WITH that writes. */
export interface WithStep {
  readonly name: string
  readonly plan: SinglePlan
  /** The tables that are read by later steps or by the last one. */
  readonly readLater: readonly string[]
}

/** A plan without other plans. */
export type SinglePlan =
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

/** Throws if a parameter that is compared with an enum is none of its values. */
export function requireCompared(
  { compared = [] }: StatementPlan,
  parameters: readonly Parameter[],
): void {
  for (const { number, name, values } of compared) {
    const text = parameters[number - 1]
    if (typeof text === 'string') requireValueOf({ kind: 'enum', name, values }, text)
  }
}

/** Returns the length of the queries of a plan. */
export function lengthOf(plan: StatementPlan): number {
  if (plan.kind === 'select') return textLength(plan.query)
  if (plan.kind === 'truncate') return 0
  if (plan.kind === 'setval') {
    return textLength(plan.number ?? empty) + textLength(plan.query)
  }
  if (plan.kind === 'with') {
    return plan.steps.reduce((length, step) => length + lengthOf(step.plan), lengthOf(plan.last))
  }
  const read = plan.kind === 'insert' ? plan.values.rows : plan.rows
  const conflict = plan.kind === 'insert' ? plan.conflict?.rows : undefined
  return [read, conflict, plan.returning].reduce(
    (length, query) => length + (query === undefined ? 0 : textLength(query)),
    0,
  )
}

/** Returns the names of the tables that a statement writes to. */
export function writtenTables(plan: StatementPlan): readonly string[] {
  if (plan.kind === 'select' || plan.kind === 'setval') return []
  if (plan.kind === 'with') return singlePlans(plan).flatMap(writtenTables)
  return plan.kind === 'truncate' ? plan.tables : [plan.table]
}

/** Lists the plans of a statement whose WITH writes, in order. */
export const singlePlans = ({
  steps,
  last,
}: Extract<StatementPlan, { kind: 'with' }>): readonly SinglePlan[] => [
  ...steps.map(({ plan }) => plan),
  last,
]

export const defaultKey = (row: number, column: number): string => `${row} ${column}`

const plainColumns = (columns: readonly TargetColumn[]): WrittenColumn[] =>
  columns.map(({ name, path }) => ({ name, path }))
const plainKeys = (keys: readonly TableKey[]): WrittenKey[] =>
  keys.map(({ columns }) => ({ columns: columns.map(({ name, index }) => ({ name, index })) }))

const WRITING_KINDS = ['InsertStmt', 'UpdateStmt', 'DeleteStmt'] as const
const KINDS: ReadonlySet<NodeKind> = new Set(['SelectStmt', ...WRITING_KINDS, 'TruncateStmt'])

/** Returns the WITH clause of a statement if one of its queries writes. */
export function writingWith(node: Node): NodeOf<'WithClause'> | undefined {
  const { withClause } =
    contentOf(node, 'SelectStmt') ??
    contentOf(node, 'InsertStmt') ??
    contentOf(node, 'UpdateStmt') ??
    contentOf(node, 'DeleteStmt') ??
    {}
  const writes = (withClause?.ctes ?? []).some((each) => {
    const query = contentOf(each, 'CommonTableExpr')?.ctequery
    return query !== undefined && kindOf(query) !== 'SelectStmt'
  })
  return writes ? withClause : undefined
}

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
    throw invalidSql(
      `${wordsOf(node)} is not supported: only SELECT, INSERT, UPDATE, DELETE, TRUNCATE and statements that change the schema are`,
    )
  }
  return { text, node, ...counted }
}

/** Returns what a statement begins with. */
export function wordsOf(node: Node): string {
  const kind = kindOf(node)
  if (contentOf(node, 'CreateTableAsStmt')?.objtype === 'OBJECT_MATVIEW') {
    return 'CREATE MATERIALIZED VIEW'
  }
  if (contentOf(node, 'GrantStmt')?.is_grant === undefined && kind === 'GrantStmt') return 'REVOKE'
  const defined = contentOf(node, 'DefineStmt')?.kind?.replace('OBJECT_', '')
  if (defined !== undefined) return `CREATE ${defined}`
  const words = kind.replace(/Stmt$/, '').replace(/([a-z])([A-Z])/g, '$1 $2')
  return WORDS[kind] ?? words.toUpperCase()
}

/** The words of statements whose nodes have other names. */
const WORDS: Readonly<Partial<Record<NodeKind, string>>> = {
  ViewStmt: 'CREATE VIEW',
  RuleStmt: 'CREATE RULE',
  CreateTrigStmt: 'CREATE TRIGGER',
  CreatePLangStmt: 'CREATE LANGUAGE',
  CreatePolicyStmt: 'CREATE POLICY',
  CompositeTypeStmt: 'CREATE TYPE of columns',
  CreateRangeStmt: 'CREATE TYPE of a range',
  CreatedbStmt: 'CREATE DATABASE',
  DropdbStmt: 'DROP DATABASE',
  CreateTableSpaceStmt: 'CREATE TABLESPACE',
  CreateStatsStmt: 'CREATE STATISTICS',
  CreateForeignServerStmt: 'CREATE SERVER',
  AlterObjectSchemaStmt: 'ALTER with SET SCHEMA',
  SecLabelStmt: 'SECURITY LABEL',
  CheckPointStmt: 'CHECKPOINT',
  RefreshMatViewStmt: 'REFRESH MATERIALIZED VIEW',
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

/** A plan, the columns of its result if it has one, and the tables that it reads. */
interface PlannedPart {
  readonly plan: SinglePlan
  readonly columns: readonly string[] | undefined
  readonly types?: ColumnTypes | undefined
  readonly reads: ReadonlySet<string>
  /** The query for what it writes, if that is a step of its own. */
  readonly source?: Sql | undefined
}

/** The step that has what a part writes. */
interface SourceStep {
  /** Its position among the steps. */
  readonly step: number
  readonly others: readonly Node[]
}

/** Rows of relations in FROM or USING that RETURNING reads, kept by a step of their own. */
interface KeptRows {
  readonly step: number
  readonly others: readonly Node[]
  readonly relations: readonly Relation[]
  readonly columns: ReturnType<typeof keptColumns>
}

/** A name that no statement can have. */
const SOURCE_NAME = '\0'
const WRITTEN_ID = ident('written id')
const KEPT = ident('kept row')

class Planner {
  readonly #writer: QueryWriter
  readonly #tables: WritableTables
  readonly #parameterCount: number
  /** The parameters and the results of steps, which precede other values. */
  #valueCount: number
  /** The names of the steps of a WITH that writes. */
  readonly #steps: NamedQuery[] = []
  /** The columns of RETURNING, and the tables that its queries read. */
  #returned: Omit<WrittenQuery, 'text'> | undefined
  /** The query for what a part writes, if that is a step of its own. */
  #source: Sql | undefined
  readonly #readAfter = new Set<string>()

  constructor(
    statement: ParsedStatement,
    tables: WritableTables,
    parameterSizes: readonly number[],
  ) {
    this.#writer = new QueryWriter(statement, tables, parameterSizes)
    this.#tables = tables
    this.#parameterCount = parameterSizes.length
    this.#valueCount = parameterSizes.length
  }

  plan(node: Node): StatementPlan {
    const plan = this.#plan(node)
    this.#writer.requireParameters(this.#parameterCount)
    const { compared } = this.#writer
    return compared.length === 0 ? plan : { ...plan, compared }
  }

  #plan(node: Node): StatementPlan {
    const clause = writingWith(node)
    if (clause !== undefined) return this.#planSteps(node, clause)
    const truncate = contentOf(node, 'TruncateStmt')
    if (truncate !== undefined) return this.#truncate(truncate)
    const call = readSetval(node)
    if (call !== undefined) return this.#setval(node, call)
    if (returnsOthers(node)) return { ...this.#planSteps(node, undefined), isPlain: true }
    const next = readNextNumber(node)
    if (next !== undefined) {
      const query = sql`select ${slot(this.#valueCount)}::bigint as ${ident(next.name)}`
      return { kind: 'setval', sequence: next.sequence, number: undefined, query }
    }
    return this.#part(node).plan
  }

  #setval(node: Node, { sequence, targets }: SetvalCall): StatementPlan {
    const targetList = targets.map((val): Node => ({ ResTarget: { val } }))
    const { plan } = this.#part({ SelectStmt: { ...contentOf(node, 'SelectStmt'), targetList } })
    if (plan.kind !== 'select') throw new Error('a query must be planned as one')
    const values = sql`(${plan.query}) as q(number, taken)`
    return {
      kind: 'setval',
      sequence,
      number: sql`
        select to_json(array[q.number::bigint::text, q.taken::boolean::text])::text as row from ${values}`,
      query: sql`select q.number::bigint as setval from ${values}`,
    }
  }

  /** Plans a statement whose WITH writes. */
  #planSteps(
    node: Node,
    clause: NodeOf<'WithClause'> | undefined,
  ): Extract<StatementPlan, { kind: 'with' }> {
    const isRecursive = clause?.recursive === true
    const given = clause === undefined ? [] : partsOf(clause)
    const queries = given.map((query) => ({ query, ...this.#writer.nameQuery(query) }))
    const rest = clause === undefined ? node : withoutWith(node)
    let count = 0
    const places = [...given.map(({ ctequery }) => ctequery), rest].map((inner) => {
      const hasSource = inner !== undefined && returnsOthers(inner)
      const source = hasSource ? { step: count++, others: otherRelations(inner) } : undefined
      return { source, own: count++ }
    })
    // The last part is not a step.
    this.#valueCount += count - 1
    const early = (name: string) => `WITH [${name}]: cannot be used before it has run`
    if (isRecursive) {
      for (let step = 0; step < count - 1; step++) this.#steps.push(NO_STEP)
      for (const [index, { name, alias }] of queries.entries()) {
        const own = places[index]?.own ?? 0
        this.#steps[own] = { name, alias, columns: [], weight: 1, refusal: early(name) }
      }
    }
    const parts = queries.map(({ query, name, alias, columnsOf }, index) => {
      const { source, own = 0 } = places[index] ?? {}
      if (queries.findIndex((other) => other.name === name) < index) {
        throw invalidSql(`WITH query name "${name}" specified more than once`)
      }
      const inner = query.ctequery
      if (inner === undefined) throw invalidSql(`WITH [${name}]: a query is missing`)
      const part =
        contentOf(inner, 'SelectStmt') === undefined
          ? this.#part(inner, source)
          : this.#selectStep(query, isRecursive)
      const refusal =
        part.columns === undefined
          ? `WITH query "${name}" does not have a RETURNING clause`
          : undefined
      const columns = columnsOf(part.columns ?? [])
      this.#steps[own] = { name, alias, columns, types: part.types, weight: 1, refusal }
      return { name, ...part }
    })
    const last = this.#part(rest, places.at(-1)?.source)
    this.#requireEarlyReads([...parts, last])
    const all = [...parts, { name: '', ...last }]
    const steps = all.flatMap(({ name, plan, source }, index): WithStep[] => {
      const later = all.slice(index + 1).flatMap(({ reads }) => [...reads])
      const query = source && ({ kind: 'select', query: source, isLookup: false } as const)
      return [
        ...(query === undefined ? [] : [{ name: 'FROM', plan: query, readLater: [] }]),
        { name, plan, readLater: [...new Set(later)] },
      ]
    })
    return { kind: 'with', steps: steps.slice(0, -1), last: last.plan }
  }

  /** RETURNING is read when its step has written, but PostgreSQL shows its queries what was there before. */
  #requireEarlyReads(parts: readonly PlannedPart[]): void {
    const written = new Set(
      parts.flatMap(({ plan }) => (plan.kind === 'select' ? [] : cutName(plan.table))),
    )
    const table = [...this.#readAfter].find((name) => written.has(name))
    if (table === undefined) return
    throw invalidSql(
      `RETURNING: a query on table [${table}] is not supported, because WITH writes to it`,
    )
  }

  /** Plans a query of WITH that reads, which can refer to itself. */
  #selectStep(query: NodeOf<'CommonTableExpr'>, isRecursive: boolean): PlannedPart {
    this.#writer.reads.clear()
    const scope = this.#newScope()
    const own = this.#writer.writeWith(
      { ctes: [{ CommonTableExpr: query }], recursive: isRecursive },
      scope,
    )
    const known = scope.queries.at(-1)
    if (known === undefined) throw new Error('a query of WITH must have a name')
    const text = sql`${this.#with(scope, own)}select * from ${ident(known.alias)}`
    return {
      plan: { kind: 'select', query: text, isLookup: false },
      columns: known.columns,
      types: known.types,
      reads: new Set(this.#writer.reads),
    }
  }

  /** Plans a statement, or a part of one. */
  #part(node: Node, source?: SourceStep): PlannedPart {
    this.#writer.reads.clear()
    this.#returned = undefined
    this.#source = undefined
    const select = contentOf(node, 'SelectStmt')
    if (select === undefined) {
      const plan = this.#write(node, source)
      const reads = new Set(this.#writer.reads)
      const { columns, types }: Partial<WrittenQuery> = this.#returned ?? {}
      return { plan, columns, types: types?.map(typeOnceShown), reads, source: this.#source }
    }
    const scope = this.#newScope()
    const written = this.#writer.select(select, scope)
    const query = shownQuery(sql`${this.#with(scope)}${written.text}`, written)
    return {
      plan: { kind: 'select', query, isLookup: isLookup(select) },
      columns: written.columns,
      reads: new Set(this.#writer.reads),
    }
  }

  /** Creates the scope of a query, which can refer to earlier steps. */
  #newScope(): Scope {
    const scope = new Scope(undefined)
    scope.queries.push(...this.#steps.map((step) => ({ ...step })))
    return scope
  }

  /** Writes the WITH clause of a query: the steps that it refers to, and its own queries. */
  #with(scope: Scope, { parts, isRecursive }: NamedParts = NO_PARTS): Sql {
    const used = this.#steps.flatMap(({ alias, columns }, index) =>
      scope.queries[index]?.isUsed === true
        ? [sql`${ident(alias)}${namesSql(columns)} as materialized (${new StepRows(index)})`]
        : [],
    )
    return withSql({ parts: [...used, ...parts], isRecursive })
  }

  #write(node: Node, source: SourceStep | undefined): SinglePlan {
    const insert = contentOf(node, 'InsertStmt')
    if (insert !== undefined) return this.#insert(insert)
    const update = contentOf(node, 'UpdateStmt')
    if (update !== undefined) return this.#update(update, source)
    const remove = contentOf(node, 'DeleteStmt')
    if (remove !== undefined) return this.#delete(remove, source)
    throw invalidSql(`${wordsOf(node)} is not supported`)
  }

  #tableOf(relation: NodeOf<'RangeVar'> | undefined): StatementTable {
    if (relation === undefined) throw invalidSql('a table is missing')
    const { name } = this.#writer.table(relation)
    const table = this.#tables.find(name)
    if (table === undefined) throw invalidSql(`table [${name}] not found`)
    return table
  }

  #insert(statement: NodeOf<'InsertStmt'>): SinglePlan {
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
    // Values that are given are those of the record, also for columns that are `generated always as identity`.
    if (override === 'OVERRIDING_USER_VALUE') {
      throw invalidSql('OVERRIDING USER VALUE is not supported')
    }
    const table = this.#tableOf(statement.relation)
    const values = this.#insertValues(statement, table)
    const conflict = this.#conflict(statement, table)
    const returning = this.#returning(statement)
    return { kind: 'insert', table: table.fullName, values, conflict, returning }
  }

  #conflict(
    { onConflictClause: clause, relation, withClause }: NodeOf<'InsertStmt'>,
    table: StatementTable,
  ): ConflictPlan | undefined {
    if (clause === undefined || relation === undefined) return undefined
    requireKnown(clause, 'ON CONFLICT', CONFLICT_PARTS)
    const keys = conflictKeys(clause, table)
    this.#writer.reads.add(table.name)
    const records = slot(this.#valueCount)
    const textsOf = (position: number) => slot(this.#valueCount + 1 + position)
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
    const scope = this.#newScope()
    const named = this.#writer.writeWith(withClause, scope)
    const target = this.#writer.target(relation, scope)
    const proposed = this.#writer.introduce(scope, {
      name: 'excluded',
      columns: table.columns,
      types: table.types,
    })
    const assigned = clause.targetList?.filter((node) => !keepsId(node, key))
    const { columns, values, sources } = this.#assignments(assigned, table, scope)
    const isWanted =
      clause.whereClause === undefined
        ? sql`true`
        : sql`coalesce(${createWriter(this.#writer, scope).write(clause.whereClause)}, false)`
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
        ${this.#with(scope, named)}select to_json(array[${join(texts, ', ')}]::json[])::text as row
        from (${table.proposed(records)}) as ${proposed}
        join ${target.text} on ${isInTheWay(target.alias, { key, proposed, textsOf })}${sources}`,
    }
  }

  #insertValues(statement: NodeOf<'InsertStmt'>, table: StatementTable): InsertValues {
    const given = this.#insertColumns(statement, table) ?? table.targets
    const source = contentOf(statement.selectStmt, 'SelectStmt')
    if (source === undefined) {
      return { columns: [], rows: undefined, defaults: new Set() }
    }
    const scope = this.#newScope()
    const named = this.#writer.writeWith(statement.withClause, scope)
    const defaults = new Set<string>()
    const isDefault = (item: Node, index: number) =>
      contentOf(item, 'SetToDefault') !== undefined ||
      isOwnNumber(item, { table, column: given[index] })
    const isOmitted = (item: Node, index: number) => {
      const column = given[index]
      if (!column?.isComputed) return false
      if (contentOf(item, 'SetToDefault') !== undefined) return true
      throw computedError(table, column)
    }
    const rows = withoutDefaults(source, { defaults, isDefault, isOmitted })
    const query = this.#writer.select(rows, scope)
    if (source.valuesLists === undefined) {
      const computed = given.slice(0, query.columns.length).find((each) => each.isComputed)
      if (computed !== undefined) throw computedError(table, computed)
    }
    const stored = given.filter((each) => !each.isComputed)
    const columns = statement.cols === undefined ? stored.slice(0, query.columns.length) : stored
    requireSameLength(columns, query)
    const names = columns.map((_, index) => ident(`value ${index}`))
    const texts = columns.map((column, index) =>
      column.valueOf(sql`${SOURCE}.${names[index] ?? empty}`),
    )
    return {
      columns: plainColumns(columns),
      rows: sql`
        ${this.#with(scope, named)}select to_json(array[${join(texts, ', ')}]::json[])::text as row
        from (${query.text}) as ${SOURCE}(${join(names, ', ')})`,
      defaults,
    }
  }

  #insertColumns(
    { cols }: NodeOf<'InsertStmt'>,
    table: StatementTable,
  ): readonly TargetColumn[] | undefined {
    if (cols === undefined) return undefined
    const columns = cols.map((node) => this.#target(node, table))
    requireDistinct(columns)
    return columns
  }

  #target(node: Node, table: StatementTable): TargetColumn {
    const { name = '', indirection } = contentOf(node, 'ResTarget') ?? {}
    if (indirection !== undefined)
      throw invalidSql(`column [${name}]: only a whole column can be set`)
    return table.target(name)
  }

  #update(statement: NodeOf<'UpdateStmt'>, source: SourceStep | undefined): SinglePlan {
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
    const { columns, values, sources } = this.#assignments(statement.targetList, table, scope)
    const first = this.#with(scope, named)
    const written = {
      kind: 'update',
      table: table.fullName,
      columns: plainColumns(columns),
    } as const
    if (source !== undefined) {
      const joined = { first, id, values, from: sql`${from}${sources}${where}` }
      const kept = this.#keepRows(statement, source, { scope, ...joined })
      return { ...written, rows: kept.rows, returning: this.#returning(statement, kept) }
    }
    const texts = join([sql`to_json(${id})`, ...values], ', ')
    const row = sql`to_json(array[${texts}]::json[])`
    const rows = { id, row, from: sql`${from}${sources}${where}` }
    return {
      ...written,
      rows: sql`${first}${statement.fromClause === undefined ? eachRow(rows) : firstRows(rows)}`,
      returning: this.#returning(statement),
    }
  }

  /**
   * Makes the rows that a part joins a step of its own. They have the ids and values to write, and the columns that RETURNING
   * may have. Returns the query for what is written.
   */
  #keepRows(
    statement: NodeOf<'UpdateStmt'> | NodeOf<'DeleteStmt'>,
    { step, others }: SourceStep,
    joined: { scope: Scope; first: Sql; id: Sql; values: readonly Sql[]; from: Sql },
  ): KeptRows & { rows: Sql } {
    const [, ...relations] = joined.scope.relations
    const columns = keptColumns(statement, { relations, others })
    const values = joined.values.map((value, index) => ({
      name: `value ${index}`,
      value: sql`(${value})::json`,
    }))
    const kept = columns.map(({ relation, column, name }) => {
      const { alias = '', columns: own = [] } = relations[relation] ?? {}
      return { name, value: sql`${ident(alias)}.${ident(own[column] ?? '')}` }
    })
    const all = [...values, ...kept]
    const list = join(
      [empty, ...all.map(({ name, value }) => sql`, ${value} as ${ident(name)}`)],
      '',
    )
    this.#source = sql`
      ${joined.first}select distinct on (w.${WRITTEN_ID}) w.*
      from (select ${joined.id} as ${WRITTEN_ID}${list}${joined.from}) as w`
    const { alias } = this.#writer.nameQuery({ ctename: 'rows of FROM' })
    const names = ['written id', ...all.map(({ name }) => name)]
    this.#steps[step] = { name: SOURCE_NAME, alias, columns: names, weight: 1 }
    const texts = [
      sql`to_json(${KEPT}.${WRITTEN_ID})`,
      ...values.map(({ name }) => sql`${KEPT}.${ident(name)}`),
    ]
    const rows = sql`
      ${this.#with(this.#scopeWith(step))}select to_json(array[${join(texts, ', ')}]::json[])::text as row
      from ${ident(alias)} as ${KEPT}`
    return { step, others, relations, columns, rows }
  }

  /** Creates the scope of a query that uses a step. */
  #scopeWith(step: number): Scope {
    const scope = this.#newScope()
    const query = scope.queries[step]
    if (query !== undefined) query.isUsed = true
    return scope
  }

  /** Writes the columns and expressions of a SET clause, and the relations that they need. */
  #assignments(given: readonly Node[] | undefined, table: StatementTable, scope: Scope) {
    const writer = createWriter(this.#writer, scope)
    // A computed column has its default anyway.
    const nodes = given?.filter((node) => {
      const isDefault = contentOf(contentOf(node, 'ResTarget')?.val, 'SetToDefault') !== undefined
      return !(isDefault && this.#target(node, table).isComputed)
    })
    const columns = (nodes ?? []).map((node) => this.#settable(node, table))
    requireDistinct(columns)
    const sources: Sql[] = []
    const values = columns.map((column, index) => {
      const value = contentOf(nodes?.[index], 'ResTarget')?.val
      const { source, colno = 1, ncolumns = 1 } = contentOf(value, 'MultiAssignRef') ?? {}
      const write = (node: Node | undefined) =>
        contentOf(node, 'SetToDefault') === undefined ? writer.write(node) : defaultOf(column)
      if (source === undefined) return column.valueOf(write(value))
      const row = contentOf(source, 'RowExpr')
      if (row !== undefined) {
        if (row.args?.length !== ncolumns) throw unequalColumns()
        return column.valueOf(write(row.args[colno - 1]))
      }
      if (colno === 1) {
        sources.push(this.#rowSource(source, columns.slice(index, index + ncolumns), scope))
      }
      const last = sources.length - 1
      return sql`${ident(`set row ${last}`)}.row -> ${integer(colno - 1)}`
    })
    const beside = sources.map((source, index) => sql`, ${source} as ${ident(`set row ${index}`)}`)
    return { columns, values, sources: beside.length === 0 ? empty : join(beside, '') }
  }

  #settable(node: Node, table: StatementTable): TargetColumn {
    const column = this.#target(node, table)
    if (column.name === 'id') throw invalidSql('column [id]: cannot be changed')
    if (column.isComputed) throw computedError(table, column)
    if (column.path.length > 1) {
      throw invalidSql(`column [${column.name}]: is part of an object and cannot be set alone`)
    }
    return column
  }

  /** Writes the query of `set (a, b) = (select ...)`. It runs once for each record, and has one row. */
  #rowSource(node: Node, columns: readonly TargetColumn[], scope: Scope): Sql {
    const link = contentOf(node, 'SubLink')
    if (link?.subLinkType !== 'EXPR_SUBLINK') {
      throw invalidSql('SET: several columns can be set to a list of values or to a query')
    }
    const query = this.#writer.subquery(link.subselect, scope)
    if (query.columns.length !== columns.length) throw unequalColumns()
    const names = columns.map((_, index) => ident(`value ${index}`))
    const values = columns.map((column, index) =>
      column.valueOf(sql`${SOURCE}.${names[index] ?? empty}`),
    )
    return sql`lateral (
      select (
        select json_build_array(${join(values, ', ')})
        from (${query.text}) as ${SOURCE}(${join(names, ', ')})
      ) as row
    )`
  }

  #delete(statement: NodeOf<'DeleteStmt'>, source: SourceStep | undefined): SinglePlan {
    requireKnown(statement, 'DELETE', [
      'relation',
      'usingClause',
      'whereClause',
      'returningClause',
      'withClause',
    ])
    const table = this.#tableOf(statement.relation)
    const { id, scope, from, named, where } = this.#written(statement, statement.usingClause)
    const first = this.#with(scope, named)
    const written = { kind: 'delete', table: table.fullName } as const
    if (source !== undefined) {
      const joined = { first, id, values: [], from: sql`${from}${where}` }
      const kept = this.#keepRows(statement, source, { scope, ...joined })
      return { ...written, rows: kept.rows, returning: this.#returning(statement, kept) }
    }
    const row = sql`to_json(array[to_json(${id})])`
    const rows = { id, row, from: sql`${from}${where}` }
    return {
      ...written,
      rows: sql`${first}${statement.usingClause === undefined ? eachRow(rows) : firstRows(rows)}`,
      returning: this.#returning(statement),
    }
  }

  #truncate(statement: NodeOf<'TruncateStmt'>): StatementPlan {
    requireKnown(statement, 'TRUNCATE', ['relations', 'behavior', 'restart_seqs'])
    const tables = (statement.relations ?? []).map((node) => {
      return this.#tableOf(contentOf(node, 'RangeVar')).fullName
    })
    const cascades = statement.behavior === 'DROP_CASCADE'
    const restarts = statement.restart_seqs === true
    return { kind: 'truncate', tables: [...new Set(tables)], cascades, restarts }
  }

  /** Writes the parts that UPDATE and DELETE share: the table, further relations, and the condition. */
  #written(
    { relation, withClause, whereClause }: NodeOf<'UpdateStmt'> | NodeOf<'DeleteStmt'>,
    others: readonly Node[] | undefined,
  ) {
    if (relation === undefined) throw invalidSql('a table is missing')
    const scope = this.#newScope()
    const named = this.#writer.writeWith(withClause, scope)
    const target = this.#writer.target(relation, scope)
    this.#writer.reads.add(target.table.name)
    const beside =
      others === undefined || others.length === 0
        ? empty
        : sql`, ${this.#writer.writeRelations(others, scope)}`
    const where =
      whereClause === undefined
        ? empty
        : sql` where ${createWriter(this.#writer, scope).write(whereClause)}`
    const from = sql` from ${target.text}${beside}`
    return { scope, named, from, where, id: sql`${target.alias}.id` }
  }

  /** Writes the query for RETURNING. It returns the written records in order. */
  #returning(
    { relation, returningClause }: Pick<NodeOf<'UpdateStmt'>, 'relation' | 'returningClause'>,
    kept?: KeptRows,
  ): Sql | undefined {
    if (returningClause === undefined || relation === undefined) return undefined
    if (returningClause.options !== undefined) throw noVersions()
    requireKnown(returningClause, 'RETURNING', ['exprs'])
    const scope = kept === undefined ? this.#newScope() : this.#scopeWith(kept.step)
    const target = this.#writer.target(relation, scope)
    const beside = kept && this.#besideReturned(kept, scope, target.alias)
    requireNoVersions(returningClause.exprs, scope)
    const star = () => join([sql`${target.alias}.*`, ...(beside?.star ?? [])], ', ')
    const before = new Set(this.#writer.reads)
    this.#writer.reads.clear()
    const targets = this.#writer.writeTargets(returningClause.exprs, scope, star)
    for (const table of this.#writer.reads) this.#readAfter.add(table)
    for (const table of before) this.#writer.reads.add(table)
    this.#returned = targets
    const { idType } = target.table
    const ids = sql`${slot(this.#valueCount)}::${idType}[]`
    // The ids are given twice, so that a fork can use its indexes; see `isInTheWay`.
    const rows = sql`
      ${this.#with(scope)}select ${targets.text}
      from unnest(${ids}) with ordinality as ${RETURNED}(${RETURNED_ID}, ${RETURNED_POSITION})
      join ${target.text}
        on ${target.alias}.id = ${RETURNED}.${RETURNED_ID} and ${target.alias}.id = any(${ids})${beside?.text ?? empty}
      order by ${RETURNED}.${RETURNED_POSITION}`
    return shownQuery(rows, targets)
  }

  /** Joins what was kept of other relations to the written records. */
  #besideReturned(kept: KeptRows, scope: Scope, target: Sql): { text: Sql; star: readonly Sql[] } {
    const { alias = '' } = this.#steps[kept.step] ?? {}
    const { text, star } = new ReturnedRelations(this.#writer, scope, { ...kept, row: KEPT }).write(
      kept.others,
    )
    const rows = sql` join ${ident(alias)} as ${KEPT} on ${KEPT}.${WRITTEN_ID} = ${target}.id`
    return { text: sql`${rows}, ${text}`, star }
  }
}

interface ChangedRows {
  readonly id: Sql
  readonly row: Sql
  readonly from: Sql
}

const eachRow = ({ row, from }: ChangedRows): Sql => sql`select ${row}::text as row${from}`

/** Returns one row for each record, because a record that is joined with several others is written once. */
const firstRows = ({ id, row, from }: ChangedRows): Sql => sql`
  select distinct on (w.id) w.row from (select ${id} as id, ${row}::text as row${from}) as w`

const NO_PARTS: NamedParts = { parts: [], isRecursive: false }
/** Stands for a step that is not planned yet, and that no query names. */
const NO_STEP: NamedQuery = { name: SOURCE_NAME, alias: '', columns: [], weight: 1 }

/** Returns a statement without its WITH clause. */
function withoutWith(node: Node): Node {
  const kind = kindOf(node)
  const { withClause: _, ...content } = Object.values(node)[0] as NodeOf<'SelectStmt'>
  return { [kind]: content } as unknown as Node
}

/** Throws if RETURNING names the record before or after the change. A relation of the statement can have these names. */
function requireNoVersions(nodes: readonly Node[] | undefined, scope: Scope): void {
  const names = new Set(listReferences(nodes).map((path) => path.at(-2)))
  for (const name of ['old', 'new']) {
    if (names.has(name) && scope.findRelation(name) === undefined) throw noVersions()
  }
}

const noVersions = () => invalidSql('RETURNING: old and new are not supported')

const CONFLICT_PARTS = ['action', 'infer', 'targetList', 'whereClause', 'location']

/** Returns the key of an ON CONFLICT clause, or all unique keys if it names none. */
function conflictKeys(
  { infer }: NonNullable<NodeOf<'InsertStmt'>['onConflictClause']>,
  table: StatementTable,
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

/** Returns whether an assignment gives a record that was found by its id this id. ORMs assign all columns that they insert. */
function keepsId(node: Node, { columns }: TableKey): boolean {
  const { name, val } = contentOf(node, 'ResTarget') ?? {}
  const [relation, column, ...others] = namesOf(contentOf(val, 'ColumnRef')?.fields)
  const isProposed = relation === 'excluded' && column === 'id' && others.length === 0
  return name === 'id' && isProposed && columns.some((each) => each.name === 'id')
}

/** Writes a query for existing records that have the unique value of a record to insert. */
function findOthers(
  table: StatementTable,
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

/** Returns whether a value is the next number of the sequence that the column has anyway. */
function isOwnNumber(
  node: Node,
  { table, column }: { table: StatementTable; column: TargetColumn | undefined },
): boolean {
  const sequence = readNextval(node)
  if (sequence === undefined) return false
  return column !== undefined && sequence === `${table.name}_${column.name}_seq`
}

/** Replaces DEFAULT by null, and adds its position to `defaults`. Leaves out values that are omitted. */
function withoutDefaults(
  query: NodeOf<'SelectStmt'>,
  options: {
    defaults: Set<string>
    isDefault: (item: Node, column: number) => boolean
    isOmitted: (item: Node, column: number) => boolean
  },
): NodeOf<'SelectStmt'> {
  const { defaults, isDefault, isOmitted } = options
  if (query.valuesLists === undefined) return query
  const valuesLists = query.valuesLists.map((node, row): Node => {
    const items: Node[] = []
    for (const [column, item] of (contentOf(node, 'List')?.items ?? []).entries()) {
      if (isOmitted(item, column)) continue
      if (isDefault(item, column)) {
        defaults.add(defaultKey(row, items.length))
        items.push({ A_Const: { isnull: true } })
      } else items.push(item)
    }
    return { List: { items } }
  })
  return { ...query, valuesLists }
}

const computedError = (table: StatementTable, { name }: TargetColumn) =>
  invalidSql(`table [${table.name}]: column [${name}]: is computed and cannot be written`)

function requireSameLength(columns: readonly TargetColumn[], query: WrittenQuery): void {
  const [targets, expressions] = [columns.length, query.columns.length]
  if (targets === expressions) return
  throw invalidSql(
    targets > expressions
      ? 'INSERT has more target columns than expressions'
      : 'INSERT has more expressions than target columns',
  )
}

function defaultOf({ name, defaultValue }: TargetColumn): Sql {
  if (defaultValue !== undefined) return defaultValue
  throw invalidSql(
    `SET: column [${name}]: DEFAULT is not possible, because the service generates it`,
  )
}

const unequalColumns = () => invalidSql('SET: number of columns does not match number of values')

function requireDistinct(columns: readonly TargetColumn[]): void {
  const names = columns.map(({ name }) => name)
  const repeated = names.find((name, index) => names.indexOf(name) !== index)
  if (repeated !== undefined) throw invalidSql(`column [${repeated}] is set more than once`)
}
