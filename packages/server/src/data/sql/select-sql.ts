import type { IntBits } from '@offshoot/contract/schema'
import type { Node, SelectStmt } from 'libpg-query'
import { DEFINED_ROW_FUNCTIONS, ROW_FUNCTIONS } from '../../dialect/allowed.js'
import { collected, Effort } from '../../dialect/bounded-values.js'
import { commonOf, type DeclaredType, type EnumType } from '../../dialect/declared-types.js'
import { functionName, writeCall } from '../../dialect/expressions/calls.js'
import type {
  ExpressionWriter,
  StatementContext,
} from '../../dialect/expressions/expression-writer.js'
import { BRANCH_SCHEMA } from '../../dialect/expressions/parts.js'
import { createWriter } from '../../dialect/expressions/writers.js'
import { invalidSql, unusedParameters } from '../../dialect/invalid-sql.js'
import { NodeNumbers } from '../../dialect/node-numbers.js'
import {
  contentOf,
  hasStar,
  kindOf,
  type NodeOf,
  namesOf,
  requireKnown,
} from '../../dialect/nodes.js'
import {
  Aliases,
  type ColumnTypes,
  type NamedQuery,
  NameIndex,
  type Relation,
  Scope,
} from '../../dialect/scope.js'
import {
  COLUMNS_IN_ALL_MAX,
  COLUMNS_MAX,
  INLINED_NODES_MAX,
  NAMED_QUERIES_MAX,
  RELATIONS_MAX,
  WRITTEN_LENGTH_MAX,
} from '../../dialect/sql-limits.js'
import { textLength } from '../../postgres/place.js'
import { empty, ident, join, type Sql, sql } from '../../postgres/sql.js'
import { outputName } from './output-name.js'
import type { GivenParameters } from './parameters.js'
import { listColumnRefs } from './schema/parse-schema.js'
import {
  orderedQuery,
  relationOf,
  shownQuery,
  typesByName,
  typesOf,
  valuesOf,
  type WrittenBody,
  type WrittenQuery,
  writeSortedOf,
} from './written-query.js'

/** A table of the branch that a statement can read. */
export interface SqlTable {
  readonly name: string
  readonly columns: readonly string[]
  /** Types that the columns are declared with, if they are stored as others. */
  readonly types?: ColumnTypes
  /** A query for the rows of the table on the branch. */
  readonly rows: Sql
  /** The type of the ids in PostgreSQL. */
  readonly idType: Sql
}

/** The tables that a statement can use. There are no others. */
export interface SqlTables {
  /** Finds an exact match, or else the only table whose name differs in case. */
  find(name: string): SqlTable | undefined
  /** Finds the enum type of this name, if a column has it. */
  findEnum?(name: string): EnumType | undefined
}

/** A parameter that must be a value of an enum. */
export interface ComparedParameter {
  /** From 1. */
  readonly number: number
  readonly name: string
  readonly values: readonly string[]
}

const LEFT_OUT: Sql = empty
/** The alias of a function in FROM, inside its relation. */
const ROWS = ident('function rows')
/** Rewrites a query. Names of tables are replaced by queries on the storage of the branch. */
export class QueryWriter implements StatementContext {
  readonly #statement: string
  readonly #tables: SqlTables
  readonly #aliases = new Aliases()
  readonly #numbers = new NodeNumbers()
  /** The aliases in the subqueries of the expressions of a query. */
  readonly #subqueries = new WeakMap<Scope, Map<string, readonly string[]>>()
  readonly #parameters = new Set<number>()
  /** The sizes of parameters that are whole numbers beside those of columns. undefined: a use before that found another type. */
  readonly #parameterBits = new Map<number, IntBits | undefined>()
  #misplaced: { number: number; position: number | undefined } | undefined
  #relationCount = 0
  #namedQueryCount = 0
  #columnCount = 0
  #namedLength = 0

  readonly effort: Effort
  expanded = 0
  /** The tables that are read. */
  readonly reads = new Set<string>()
  /** The enums that parameters must be values of. */
  readonly compared: ComparedParameter[] = []
  readonly #given: GivenParameters

  constructor(
    statement: { readonly text: string; readonly nodeCount: number; readonly callCount: number },
    tables: SqlTables,
    given: GivenParameters,
  ) {
    this.#statement = statement.text
    this.effort = new Effort(statement)
    this.#tables = tables
    this.#given = given
  }

  useParameter(number: number): void {
    this.#parameters.add(number)
    if (!this.#parameterBits.has(number)) this.#parameterBits.set(number, undefined)
  }

  parameterBits(number: number, bits: IntBits): IntBits | undefined {
    const { parameterTypes } = this.#given
    // Callers that declare no types send numbers of any size.
    if (parameterTypes === undefined || parameterTypes[number - 1] !== undefined) return undefined
    if (!this.#parameterBits.has(number)) this.#parameterBits.set(number, bits)
    return this.#parameterBits.get(number)
  }

  compareParameter(number: number, { name, values }: EnumType): void {
    const found = this.compared.find((each) => each.number === number && each.values === values)
    if (found === undefined) this.compared.push({ number, name, values })
  }

  misplaceParameter(number: number, location: number | undefined): void {
    this.#misplaced ??= { number, position: this.positionOf(location) }
  }

  /** Throws unless every parameter is used, and only where parameters are allowed. */
  requireParameters(count: number): void {
    const used = this.#parameters
    const missing = Math.max(0, ...used)
    if (missing > count) {
      throw invalidSql(`missing parameters: $${missing} is used, but there are ${count} parameters`)
    }
    if (used.size < count) throw unusedParameters(used.size, count)
    if (this.#misplaced === undefined) return
    const { number, position } = this.#misplaced
    throw invalidSql(`syntax error at or near "$${number}"`, position)
  }

  positionOf(location: number | undefined): number | undefined {
    if (location === undefined) return undefined
    const before = Buffer.from(this.#statement).subarray(0, location).toString()
    // As in PostgreSQL, characters outside of the basic plane count once.
    return [...before].length + 1
  }

  /**
   * Writes a subquery of an expression. Those of a query that are written alike get the same aliases, because PostgreSQL
   * compares the expressions of GROUP BY, DISTINCT and ORDER BY with others.
   */
  subquery(node: Node | undefined, scope: Scope): WrittenQuery {
    const write = () => this.effort.apart(() => this.#query(node, scope))
    const written = this.#subqueries.get(scope) ?? new Map<string, readonly string[]>()
    this.#subqueries.set(scope, written)
    // Where more relations can be named, the same names can mean others.
    const key = `${scope.relations.length} ${this.#numbers.of(node)}`
    const before = written.get(key)
    if (before !== undefined) return this.#aliases.repeated(before, write)
    const { result, aliases } = this.#aliases.recorded(write)
    written.set(key, aliases)
    return result
  }

  findEnum(name: string): EnumType | undefined {
    return this.#tables.findEnum?.(name)
  }

  parameterSize(number: number): number {
    return this.#given.parameterSizes[number - 1] ?? 0
  }

  parameterType(number: number): string | undefined {
    return this.#given.parameterTypes?.[number - 1]
  }

  /** Writes a subquery. Throws if the node is not a query. */
  #query(node: Node | undefined, scope: Scope): WrittenQuery {
    const query = contentOf(node, 'SelectStmt')
    if (query === undefined) throw invalidSql('only SELECT can be nested in a statement')
    return this.select(query, scope)
  }

  select(query: SelectStmt, outer: Scope | undefined, onFirst?: OnFirst): WrittenQuery {
    // FOR UPDATE and FOR SHARE have no effect: transactions are serializable, and a conflict ends one of them.
    const { lockingClause: _, ...locked } = query
    requireKnown(locked, 'SELECT', SELECT_PARTS)
    const scope = new Scope(outer)
    const named = withSql(this.writeWith(query.withClause, scope))
    const body =
      query.op === undefined || query.op === 'SETOP_NONE'
        ? this.#plainSelect(query, scope)
        : this.#combination(query, scope, onFirst)
    return { ...body, text: sql`${named}${this.#ending(query, scope, body)}` }
  }

  /**
   * Writes UNION, INTERSECT or EXCEPT. The first part of a recursive query defines the columns of the whole.
   */
  #combination(query: SelectStmt, scope: Scope, onFirst?: OnFirst): WrittenBody {
    if (query.larg === undefined || query.rarg === undefined) throw invalidSql('a query is missing')
    const first = this.select(query.larg, scope, onFirst)
    onFirst?.(first)
    const second = this.select(query.rarg, scope)
    const isRecursive = onFirst !== undefined
    const types = this.#commonTypes(query, [first, second], scope)
    const [firstText, typed] = [first, second].map((each) => {
      // PostgreSQL finds the type of values that have different ones. Those of a recursive query must be the same.
      const isShown = (type: DeclaredType | undefined, index: number) =>
        types?.[index] === undefined || (isRecursive && type?.kind === 'integer')
      const shown = each.types?.map((type, index) => (isShown(type, index) ? type : undefined))
      return shownQuery(each.text, { columns: each.columns, types: shown })
    }) as [Sql, Sql]
    // A recursive query with UNION keeps all rows in memory, to remove duplicates.
    const isKept = isRecursive && !query.all
    const secondText = isKept ? countedRows(typed, second.columns) : typed
    const operator = SET_OPERATIONS[query.op ?? '']
    if (operator === undefined) throw invalidSql(`[${query.op}] is not supported`)
    const all = query.all ? sql` all` : LEFT_OUT
    scope.addOutputs(first.columns)
    return {
      text: sql`(${firstText}) ${operator}${all} (${secondText})`,
      columns: first.columns,
      types,
      weight: Math.max(first.weight ?? 1, second.weight ?? 1),
      values: [],
      isClosed: true,
    }
  }

  /** Returns the types of the columns of two queries. A constant or parameter beside an enum is one of its values. */
  #commonTypes(
    { larg, rarg }: SelectStmt,
    [first, second]: readonly [WrittenQuery, WrittenQuery],
    scope: Scope,
  ): ColumnTypes | undefined {
    const [left, right] = [untypedTargets(larg), untypedTargets(rarg)]
    return first.types?.map((type, index) => {
      const other = second.types?.[index]
      const common = commonOf(type, other)
      if (common !== undefined) return common
      const [known, beside] = type === undefined ? [other, left[index]] : [type, right[index]]
      if (known?.kind !== 'enum' || beside === undefined) return undefined
      createWriter(this, scope).requireValues(known, [beside])
      return known
    })
  }

  #plainSelect(query: SelectStmt, scope: Scope): WrittenBody {
    if (query.valuesLists !== undefined) return this.#values(query.valuesLists, scope)
    const from = this.writeFrom(query.fromClause, scope)
    const writer = createWriter(this, scope)
    const targets = this.writeTargets(query.targetList, scope)
    const where =
      query.whereClause === undefined ? LEFT_OUT : sql` where ${writer.write(query.whereClause)}`
    const windows = this.#windows(query, writer)
    scope.addOutputs(targets.columns)
    const distinct = this.#distinct(query, targets, writer)
    const group = this.#grouping(query, writer)
    const having =
      query.havingClause === undefined ? LEFT_OUT : sql` having ${writer.write(query.havingClause)}`
    return {
      text: sql`select ${distinct}${targets.text}${from}${where}${group}${having}${windows}`,
      columns: targets.columns,
      types: targets.types,
      weight: targets.weight ?? 1,
      values: targets.values,
      isClosed: isDistinct(query),
      hasGroupingSets: query.distinctClause === undefined && hasGroupingSets(query),
    }
  }

  #values(lists: readonly Node[], scope: Scope): WrittenBody {
    const writer = createWriter(this, scope)
    const before = this.expanded
    const values = lists.map((node) => contentOf(node, 'List')?.items ?? [])
    const columns = (values[0] ?? []).map((_, index) => `column${index + 1}`)
    const types = columns.map((_, index) => writer.commonType(values.map((row) => row[index])))
    const rows = values.map((row) =>
      row.map((node, index) =>
        types[index] === undefined ? writer.writeTyped(node) : writer.write(node),
      ),
    )
    this.#countColumns(columns.length)
    scope.addOutputs(columns)
    return {
      text: sql`values ${join(
        rows.map((row) => sql`(${join(row, ', ')})`),
        ', ',
      )}`,
      columns,
      types,
      weight: this.expanded - before,
      values: [],
      isClosed: false,
    }
  }

  /** Writes the list of SELECT or RETURNING. Every column gets the name that PostgreSQL would give it. */
  writeTargets(
    nodes: readonly Node[] | undefined,
    scope: Scope,
    star: (relations: readonly Relation[]) => Sql = () => sql`*`,
  ): Omit<WrittenBody, 'isClosed'> {
    const writer = createWriter(this, scope)
    const columns: string[] = []
    const types: (DeclaredType | undefined)[] = []
    const values: (Sql | undefined)[] = []
    let weight = 1
    const parts = (nodes ?? []).map((node) => {
      const target = contentOf(node, 'ResTarget')
      if (target === undefined) throw invalidSql('a column is missing')
      const { fields = [], location } = contentOf(target.val, 'ColumnRef') ?? {}
      if (contentOf(fields.at(-1), 'A_Star') === undefined) {
        const name = target.name ?? outputName(target.val, scope)
        columns.push(name)
        const before = this.expanded
        const value = writer.write(target.val)
        weight = Math.max(weight, this.expanded - before)
        types.push(writer.declaredType(target.val))
        values.push(value)
        return sql`${value} as ${ident(name)}`
      }
      if (fields.length === 1) {
        this.#requireColumns(columns.length + scope.star.length)
        columns.push(...scope.star)
        types.push(...scope.starTypes)
        values.push(...scope.starValues)
        weight = Math.max(weight, scope.weight)
        return star(scope.relations)
      }
      const [name = ''] = namesOf(fields)
      const relation = fields.length === 2 ? scope.findRelation(name) : undefined
      if (relation === undefined) {
        throw writer.invalid(`missing FROM-clause entry for table "${name}"`, location)
      }
      this.#requireColumns(columns.length + relation.columns.length)
      columns.push(...relation.columns)
      types.push(...typesOf(relation))
      values.push(...valuesOf(relation))
      weight = Math.max(weight, relation.weight)
      return sql`${ident(relation.alias)}.*`
    })
    this.#countColumns(columns.length)
    return { text: parts.length === 0 ? empty : join(parts, ', '), columns, types, values, weight }
  }

  /** Counts columns of a relation or result towards the limits of the statement. */
  #countColumns(count: number): void {
    this.#requireColumns(count)
    this.#columnCount += count
    if (this.#columnCount > COLUMNS_IN_ALL_MAX) {
      throw invalidSql(
        `the tables and queries of a statement can have at most ${COLUMNS_IN_ALL_MAX} columns in all`,
      )
    }
  }

  #requireColumns(count: number): void {
    if (count > COLUMNS_MAX) {
      throw invalidSql(`a table or query can have at most ${COLUMNS_MAX} columns`)
    }
  }

  /**
   * Returns the query for the rows of a table. On a fork, its length grows with the number of branches it
   * reads.
   */
  #rowsOf(table: SqlTable): Sql {
    this.countText(textLength(table.rows))
    return table.rows
  }

  countText(length: number): void {
    this.#namedLength += length
    if (this.#namedLength > WRITTEN_LENGTH_MAX) throw writtenTooLong()
  }

  #distinct(
    { distinctClause }: SelectStmt,
    targets: Omit<WrittenBody, 'isClosed'>,
    writer: ExpressionWriter,
  ): Sql {
    if (distinctClause === undefined) return LEFT_OUT
    if (isDistinct({ distinctClause })) return sql`distinct `
    const expressions = distinctClause.filter((node) => Object.keys(node).length > 0)
    // They are compared with those of ORDER BY, which are sorted.
    const sorted = expressions.map((node) => writeSortedOf(node, targets, writer))
    return sql`distinct on (${join(sorted, ', ')}) `
  }

  #grouping(query: SelectStmt, writer: ExpressionWriter): Sql {
    const { groupClause = [], groupDistinct } = query
    if (groupClause.length === 0) return LEFT_OUT
    const distinct = groupDistinct ? sql`distinct ` : LEFT_OUT
    const sets = groupClause.map((node) => this.#groupingSet(node, writer))
    const columns = [...dependentColumns(query, writer.scope)]
    return sql` group by ${distinct}${join([...sets, ...columns], ', ')}`
  }

  #groupingSet(node: Node, writer: ExpressionWriter): Sql {
    const set = contentOf(node, 'GroupingSet')
    const row = contentOf(node, 'RowExpr')
    // Expressions in brackets are no row here, unless ROW is written before them.
    if (row?.row_format === 'COERCE_IMPLICIT_CAST' && row.args !== undefined) {
      return sql`(${join(
        row.args.map((inner) => this.#groupingSet(inner, writer)),
        ', ',
      )})`
    }
    if (set === undefined) return writer.write(node)
    const content = (set.content ?? []).map((inner) => this.#groupingSet(inner, writer))
    const items = content.length === 0 ? empty : join(content, ', ')
    const kind = GROUPING_SETS[set.kind ?? '']
    if (kind === undefined) throw writer.invalid('GROUP BY: a part is not supported', set.location)
    return sql`${kind}(${items})`
  }

  #windows({ windowClause = [] }: SelectStmt, writer: ExpressionWriter): Sql {
    if (windowClause.length === 0) return LEFT_OUT
    const windows = windowClause.map((node) => {
      const window = contentOf(node, 'WindowDef')
      if (window?.name === undefined) throw invalidSql('a window has no name')
      return sql`${ident(window.name)} as ${writer.writeWindow(window)}`
    })
    return sql` window ${join(windows, ', ')}`
  }

  /** Writes a query with its ORDER BY, LIMIT and OFFSET. */
  #ending(
    { sortClause = [], limitCount, limitOffset, limitOption }: SelectStmt,
    scope: Scope,
    body: WrittenBody,
  ): Sql {
    const writer = createWriter(this, scope)
    const ordered = sortClause.length === 0 ? body.text : orderedQuery(body, sortClause, writer)
    const offset = limitOffset === undefined ? LEFT_OUT : sql` offset ${writer.write(limitOffset)}`
    if (limitCount === undefined) return sql`${ordered}${offset}`
    const count = writer.write(limitCount)
    const limit =
      limitOption === 'LIMIT_OPTION_WITH_TIES'
        ? sql` fetch first (${count}) rows with ties`
        : sql` limit ${count}`
    return sql`${ordered}${offset}${limit}`
  }

  /** Writes the queries of a WITH clause, and adds their names to the scope. */
  writeWith(clause: NodeOf<'WithClause'> | undefined, scope: Scope): NamedParts {
    if (clause === undefined) return { parts: [], isRecursive: false }
    const isRecursive = clause.recursive === true
    const parts = partsOf(clause).map((query) => this.#namedQuery(query, scope, isRecursive))
    return { parts, isRecursive }
  }

  /** Counts a query of WITH. Returns its name, an alias, and the columns of a list that names the first ones. */
  nameQuery(query: NodeOf<'CommonTableExpr'>) {
    this.#namedQueryCount++
    if (this.#namedQueryCount > NAMED_QUERIES_MAX) {
      throw invalidSql(`WITH can name at most ${NAMED_QUERIES_MAX} queries in a statement`)
    }
    const name = query.ctename ?? ''
    const given = namesOf(query.aliascolnames).map((column) => column ?? '')
    const columnsOf = (own: readonly string[]) => [...given, ...own.slice(given.length)]
    return { name, alias: this.#aliases.take(name), given, columnsOf }
  }

  #namedQuery(query: NodeOf<'CommonTableExpr'>, scope: Scope, isRecursive: boolean): Sql {
    const { name, alias, given, columnsOf } = this.nameQuery(query)
    const known: NamedQuery = { name, alias, columns: given, weight: 1 }
    const inner = contentOf(query.ctequery, 'SelectStmt')
    if (inner === undefined) {
      throw invalidSql(`WITH [${name}]: only the WITH of a whole statement can write`)
    }
    // A recursive query can refer to itself, with the columns of its first part.
    if (isRecursive) scope.queries.push(known)
    const written = this.select(inner, scope, (first) => {
      if (!isRecursive) return
      known.columns = columnsOf(first.columns)
      known.types = first.types
    })
    known.columns = columnsOf(written.columns)
    known.types = written.types
    if (!isRecursive) scope.queries.push(known)
    // NOT MATERIALIZED is only a hint, ignored for large queries: nested inlining grows exponentially.
    const isHeavy = (written.weight ?? 1) > INLINED_NODES_MAX
    const isKept = query.ctematerialized === 'CTEMaterializeAlways' || isHeavy
    known.weight = isKept ? 1 : (written.weight ?? 1)
    const kept = isKept ? sql` materialized` : LEFT_OUT
    return sql`${ident(known.alias)}${namesSql(given)} as${kept} (${written.text})`
  }

  /** Writes a FROM clause, and adds its relations to the scope. */
  writeFrom(nodes: readonly Node[] | undefined, scope: Scope): Sql {
    if (nodes === undefined || nodes.length === 0) return LEFT_OUT
    return sql` from ${this.writeRelations(nodes, scope)}`
  }

  writeRelations(nodes: readonly Node[], scope: Scope): Sql {
    const items = nodes.map((node) => {
      const item = this.#relation(node, scope)
      scope.addStar(item)
      return item.text
    })
    return join(items, ', ')
  }

  #relation(node: Node, scope: Scope): WrittenQuery {
    const named = contentOf(node, 'RangeVar')
    if (named !== undefined) return this.#named(named, scope)
    const subquery = contentOf(node, 'RangeSubselect')
    if (subquery !== undefined) return this.#subselect(subquery, scope)
    const calls = contentOf(node, 'RangeFunction')
    if (calls !== undefined) return this.#rowFunction(calls, scope)
    const joined = contentOf(node, 'JoinExpr')
    if (joined !== undefined) return this.#join(joined, scope)
    throw invalidSql(`FROM: ${kindOf(node)} is not supported`)
  }

  #countRelation(): void {
    this.#relationCount++
    if (this.#relationCount > RELATIONS_MAX) throw tooManyRelations()
  }

  /** Adds a relation to the scope. Returns it with its alias. */
  #introduce(
    scope: Scope,
    options: {
      name: string
      columns: readonly string[]
      types?: ColumnTypes | undefined
      given?: readonly string[]
      isStored?: boolean
      isScalar?: boolean
      weight?: number
    },
  ): { relation: Relation; alias: Sql } {
    this.#countRelation()
    const { name, given = [] } = options
    if (given.length > options.columns.length) {
      throw invalidSql(
        `table "${name}" has ${options.columns.length} columns available but ${given.length} columns specified`,
      )
    }
    if (scope.relations.some((other) => other.name === name)) {
      throw invalidSql(`table name "${name}" specified more than once`)
    }
    const columns = [...given, ...options.columns.slice(given.length)]
    this.#countColumns(columns.length)
    const relation = {
      name,
      alias: this.#aliases.take(name),
      columns,
      types: typesByName(columns, options.types),
      typesInOrder: options.types,
      names: new NameIndex(columns),
      isStored: options.isStored ?? false,
      isScalar: options.isScalar ?? false,
      weight: options.weight ?? 1,
    }
    scope.addRelation(relation)
    return { relation, alias: sql`${ident(relation.alias)}${namesSql(given)}` }
  }

  /** Writes a reference to a WITH query or to a table of the branch. */
  #named(node: NodeOf<'RangeVar'>, scope: Scope): WrittenQuery {
    const { name, given } = aliasOf(node.alias)
    const query =
      node.schemaname === undefined && isPlainName(node)
        ? scope.findQuery(node.relname ?? '')
        : undefined
    if (query !== undefined) {
      if (query.refusal !== undefined) throw invalidSql(query.refusal)
      query.isUsed = true
      const { columns, types, weight } = query
      const own = { name: name ?? query.name, columns, types, given, weight }
      const { relation, alias } = this.#introduce(scope, own)
      return relationOf(sql`${ident(query.alias)} as ${alias}`, relation)
    }
    const table = this.table(node)
    this.reads.add(table.name)
    const { relation, alias } = this.#introduce(scope, {
      name: name ?? table.name,
      columns: table.columns,
      types: table.types,
      given,
      isStored: true,
    })
    return relationOf(sql`(${this.#rowsOf(table)}) as ${alias}`, relation)
  }

  /** Finds the table of a name. Only tables of the branch can be used. */
  table(node: NodeOf<'RangeVar'>): SqlTable {
    requireKnown(node, 'a table', RANGE_PARTS)
    const { relname = '', location } = node
    if (!isPlainName(node)) {
      const shown = [node.catalogname, node.schemaname, relname].filter(Boolean).join('.')
      throw invalidSql(`table [${shown}] not found`, this.positionOf(location))
    }
    const table = this.#tables.find(relname)
    if (table === undefined) {
      throw invalidSql(`table [${relname}] not found`, this.positionOf(location))
    }
    return table
  }

  /** Adds the table that a statement writes to the scope. */
  target(node: NodeOf<'RangeVar'>, scope: Scope): { table: SqlTable; alias: Sql; text: Sql } {
    const table = this.table(node)
    const { name, given } = aliasOf(node.alias)
    if (given.length > 0) throw invalidSql('columns of the table cannot be renamed here')
    const { relation, alias } = this.#introduce(scope, {
      name: name ?? table.name,
      columns: table.columns,
      types: table.types,
      isStored: true,
    })
    scope.addStar(relationOf(sql`${alias}`, relation))
    return { table, alias, text: sql`(${this.#rowsOf(table)}) as ${alias}` }
  }

  /** Adds a relation that is not in the statement, such as EXCLUDED, to the scope. Returns its alias. */
  introduce(
    scope: Scope,
    own: Pick<Relation, 'name' | 'columns'> &
      Partial<Pick<Relation, 'isStored' | 'isScalar'>> & { types?: ColumnTypes | undefined },
  ): Sql {
    return this.#introduce(scope, own).alias
  }

  #subselect({ lateral, subquery, alias }: NodeOf<'RangeSubselect'>, scope: Scope): WrittenQuery {
    // Without LATERAL, a subquery sees outer queries but not the other relations of the same FROM clause.
    const query = this.#query(subquery, lateral ? scope : withoutRelations(scope))
    const { name, given } = aliasOf(alias)
    const isHeavy = (query.weight ?? 1) > INLINED_NODES_MAX
    const own = {
      name: name ?? 'subquery',
      columns: query.columns,
      types: query.types,
      given,
      weight: isHeavy ? 1 : (query.weight ?? 1),
    }
    const { relation, alias: written } = this.#introduce(scope, own)
    const before = lateral ? sql`lateral ` : LEFT_OUT
    // `offset 0` keeps PostgreSQL from inlining the subquery.
    const text = isHeavy ? sql`select * from (${query.text}) as ${ROWS} offset 0` : query.text
    return relationOf(sql`${before}(${text}) as ${written}`, relation)
  }

  #rowFunction(node: NodeOf<'RangeFunction'>, scope: Scope): WrittenQuery {
    requireKnown(node, 'a function in FROM', FUNCTION_PARTS)
    const [first, ...others] = node.functions ?? []
    const call = contentOf(contentOf(first, 'List')?.items?.[0], 'FuncCall')
    if (call === undefined || others.length > 0)
      throw invalidSql('FROM: expected a single function')
    const writer = createWriter(this, scope)
    const name = functionName(writer, call)
    const text = writeRows(writer, call)
    const { name: aliasName = name, given } = aliasOf(node.alias)
    if (DEFINED_ROW_FUNCTIONS.has(name)) {
      return this.#definedRows(node, { text, aliasName, scope, writer })
    }
    if ((node.coldeflist ?? []).length > 0) {
      throw invalidSql(`function [${name}] does not take a list of columns`)
    }
    const known = ROW_FUNCTIONS.get(name) ?? []
    const count = name === 'unnest' ? (call.args?.length ?? 1) : 1
    const own = known.length > 0 ? known : new Array<string>(count).fill(aliasName)
    const columns = node.ordinality ? [...own, 'ordinality'] : own
    const all = [...given, ...columns.slice(given.length)]
    if (given.length > columns.length) {
      throw invalidSql(`function [${name}] has ${columns.length} columns, not ${given.length}`)
    }
    const isScalar = all.length === 1
    const { alias } = this.#introduce(scope, {
      name: aliasName,
      columns: all,
      given: all,
      isScalar,
    })
    const ordinality = node.ordinality ? sql` with ordinality` : LEFT_OUT
    // The inner query ensures that the relation has exactly these columns.
    const inner = all.map((_, index) => ident(`column ${index}`))
    const rows = sql`select ${join(inner, ', ')} from ${text}${ordinality} as ${ROWS}(${join(inner, ', ')})`
    return { text: sql`lateral (${rows}) as ${alias}`, columns: all }
  }

  #definedRows(
    node: NodeOf<'RangeFunction'>,
    options: { text: Sql; aliasName: string; scope: Scope; writer: ExpressionWriter },
  ): WrittenQuery {
    const definitions = (node.coldeflist ?? []).map((each) => contentOf(each, 'ColumnDef'))
    if (definitions.length === 0 || node.ordinality) {
      throw invalidSql('a function of this kind needs a list of columns with their types')
    }
    const columns = definitions.map((definition) => definition?.colname ?? '')
    const { relation } = this.#introduce(options.scope, { name: options.aliasName, columns })
    const list = definitions.map(
      (definition) =>
        sql`${ident(definition?.colname ?? '')} ${options.writer.writeType(definition?.typeName)}`,
    )
    return {
      text: sql`${options.text} as ${ident(relation.alias)}(${join(list, ', ')})`,
      columns,
    }
  }

  #join(node: NodeOf<'JoinExpr'>, scope: Scope): WrittenQuery {
    requireKnown(node, 'JOIN', JOIN_PARTS)
    const kind = JOINS[node.jointype ?? '']
    if (kind === undefined || node.larg === undefined || node.rarg === undefined) {
      throw invalidSql(`JOIN: [${node.jointype}] is not supported`)
    }
    const left = this.#relation(node.larg, scope)
    const right = this.#relation(node.rarg, scope)
    const leftNames = new NameIndex(left.columns)
    const rightNames = new Set(right.columns)
    const using = namesOf(node.usingClause).map((name = '') => leftNames.find(name) ?? name)
    const shared = node.isNatural ? left.columns.filter((column) => rightNames.has(column)) : using
    const isShared = new Set(shared)
    const all = [left, right].flatMap(({ columns, types, values }) =>
      columns.map((column, index) => ({ column, type: types?.[index], value: values?.[index] })),
    )
    const rest = all.filter(({ column }) => !isShared.has(column))
    const sharedType = (name: string) => {
      const [one, other] = all.filter(({ column }) => column === name)
      return commonOf(one?.type, other?.type)
    }
    const natural = node.isNatural ? sql`natural ` : LEFT_OUT
    const isCross = node.quals === undefined && using.length === 0 && !node.isNatural
    const words = isCross ? sql`cross join` : sql`${natural}${kind}`
    return {
      text: sql`(${left.text} ${words} ${right.text}${this.#joinCondition(node, using, scope)})`,
      columns: [...shared, ...rest.map(({ column }) => column)],
      types: [...shared.map(sharedType), ...rest.map(({ type }) => type)],
      values: [...shared.map((column) => ident(column)), ...rest.map(({ value }) => value)],
    }
  }

  #joinCondition(node: NodeOf<'JoinExpr'>, using: readonly string[], scope: Scope): Sql {
    if (node.quals !== undefined) {
      return sql` on ${createWriter(this, scope).write(node.quals)}`
    }
    if (using.length === 0) return LEFT_OUT
    return sql` using (${join(
      using.map((column) => ident(column)),
      ', ',
    )})`
  }
}

/** Writes a function in FROM. PostgreSQL knows `unnest` of several arrays by another form, too. */
function writeRows(writer: ExpressionWriter, call: NodeOf<'FuncCall'>): Sql {
  const { args = [] } = call
  if (args.length < 2 || namesOf(call.funcname).at(-1) !== 'unnest') return writeCall(writer, call)
  const each = args.map((array) => writeCall(writer, { ...call, args: [array] }))
  return sql`rows from (${join(each, ', ')})`
}

/** Writes the rows of a query, and counts the size of each towards the collected values. */
function countedRows(text: Sql, columns: readonly string[]): Sql {
  const names = columns.map((_, index) => ident(`column ${index}`))
  const values = names.map((name, index) => {
    const value = sql`${ROWS}.${name}`
    return index === 0 ? collected(value) : value
  })
  return sql`select ${join(values, ', ')} from (${text}) as ${ROWS}(${join(names, ', ')})`
}

export function tooManyRelations() {
  return invalidSql(`a statement can draw on at most ${RELATIONS_MAX} tables and subqueries`)
}

export function writtenTooLong() {
  return invalidSql(
    `the statement is longer than ${WRITTEN_LENGTH_MAX} characters when its tables and enums are written out: name fewer of them`,
  )
}

/** Takes the first part of a recursive query, which defines its columns. */
type OnFirst = (first: WrittenQuery) => void

/** Returns whether a query has DISTINCT without a list of expressions. */
function isDistinct({ distinctClause }: Pick<SelectStmt, 'distinctClause'>): boolean {
  return distinctClause?.every((node) => Object.keys(node).length === 0) === true
}

const SELECT_PARTS = [
  'distinctClause',
  'targetList',
  'fromClause',
  'whereClause',
  'groupClause',
  'groupDistinct',
  'havingClause',
  'windowClause',
  'valuesLists',
  'sortClause',
  'limitOffset',
  'limitCount',
  'limitOption',
  'withClause',
  'op',
  'all',
  'larg',
  'rarg',
]
const WITH_PARTS = ['ctename', 'aliascolnames', 'ctematerialized', 'ctequery', 'location']
const RANGE_PARTS = [
  'catalogname',
  'schemaname',
  'relname',
  'inh',
  'relpersistence',
  'alias',
  'location',
]
const FUNCTION_PARTS = ['lateral', 'ordinality', 'functions', 'alias', 'coldeflist']
const JOIN_PARTS = ['jointype', 'isNatural', 'larg', 'rarg', 'usingClause', 'quals', 'rtindex']

const SET_OPERATIONS: Readonly<Record<string, Sql>> = {
  SETOP_UNION: sql`union`,
  SETOP_INTERSECT: sql`intersect`,
  SETOP_EXCEPT: sql`except`,
}
const GROUPING_SETS: Readonly<Record<string, Sql>> = {
  GROUPING_SET_EMPTY: empty,
  GROUPING_SET_SIMPLE: empty,
  GROUPING_SET_ROLLUP: sql`rollup `,
  GROUPING_SET_CUBE: sql`cube `,
  GROUPING_SET_SETS: sql`grouping sets `,
}
const JOINS: Readonly<Record<string, Sql>> = {
  JOIN_INNER: sql`join`,
  JOIN_LEFT: sql`left join`,
  JOIN_RIGHT: sql`right join`,
  JOIN_FULL: sql`full join`,
}

/** Returns whether a table has no schema but that of the branch. `only` has no effect: no table inherits from another. */
function isPlainName({ catalogname, schemaname, relpersistence }: NodeOf<'RangeVar'>): boolean {
  const isOther = catalogname !== undefined || (schemaname ?? BRANCH_SCHEMA) !== BRANCH_SCHEMA
  return !isOther && (relpersistence ?? 'p') === 'p'
}

const hasGroupingSets = ({ groupClause = [] }: SelectStmt): boolean =>
  groupClause.some((node) => contentOf(node, 'GroupingSet') !== undefined)

/**
 * Lists the columns that depend on the ids in GROUP BY. PostgreSQL knows the primary key of a table, but not that of the
 * query which a table is here. More columns than are needed do not change the groups.
 */
function* dependentColumns(query: SelectStmt, { relations }: Scope): Generator<Sql> {
  const { groupClause = [], targetList = [], havingClause, sortClause = [] } = query
  if (hasGroupingSets(query)) return
  const isNamed = ({ name }: Relation, path: readonly (string | undefined)[]) => {
    const own = path.at(-2)
    return own === undefined || own.toLowerCase() === name.toLowerCase()
  }
  const grouped = groupClause.map((node) => namesOf(contentOf(node, 'ColumnRef')?.fields))
  const used = listColumnRefs({
    List: { items: [...targetList, ...sortClause, ...(havingClause ? [havingClause] : [])] },
  }).map(({ fields }) => namesOf(fields))
  for (const relation of relations) {
    const { alias, columns, isStored } = relation
    const others = relations.filter((each) => each !== relation)
    const isOnly = (column: string) => others.every((each) => each.names.find(column) === undefined)
    const hasKey = grouped.some(
      (path) =>
        path.at(-1) === 'id' && isNamed(relation, path) && (path.length > 1 || isOnly('id')),
    )
    // The key is the first column, also if the statement gives the columns other names.
    if (!isStored || columns[0] !== 'id' || !hasKey) continue
    const wanted = new Set<string>()
    for (const path of used) {
      if (!isNamed(relation, path)) continue
      const name = path.at(-1)
      if (name === undefined) for (const column of columns) wanted.add(column)
      else {
        const column = relation.names.find(name)
        if (column !== undefined && (path.length > 1 || isOnly(column))) wanted.add(column)
      }
    }
    wanted.delete('id')
    for (const column of wanted) yield sql`${ident(alias)}.${ident(column)}`
  }
}

function aliasOf(alias: NodeOf<'Alias'> | undefined): {
  name: string | undefined
  given: readonly string[]
} {
  return { name: alias?.aliasname, given: namesOf(alias?.colnames).map((name) => name ?? '') }
}

/** Returns the scope of a subquery in FROM: everything except the relations of the same clause. */
function withoutRelations(scope: Scope): Scope {
  const seen = new Scope(scope.outer)
  seen.queries.push(...scope.queries)
  return seen
}

/** Written queries of a WITH clause. */
export interface NamedParts {
  readonly parts: readonly Sql[]
  readonly isRecursive: boolean
}

/** Returns the queries of a WITH clause. */
export function partsOf(clause: NodeOf<'WithClause'>): NodeOf<'CommonTableExpr'>[] {
  const names = new Set<string>()
  return (clause.ctes ?? []).map((node) => {
    const query = contentOf(node, 'CommonTableExpr')
    if (query === undefined) throw invalidSql('WITH: a query is missing')
    requireKnown(query, 'WITH', WITH_PARTS)
    const { ctename: name = '' } = query
    if (names.has(name)) throw invalidSql(`WITH query name "${name}" specified more than once`)
    names.add(name)
    return query
  })
}

/** Returns the columns of a query that are constants or parameters, which take the type of what is beside them. */
function untypedTargets(query: SelectStmt | undefined): readonly (Node | undefined)[] {
  const values = (query?.targetList ?? []).map((node) => contentOf(node, 'ResTarget')?.val)
  if (values.some(hasStar)) return []
  return values.map((value) => {
    const { sval, isnull } = contentOf(value, 'A_Const') ?? {}
    const isUntyped = sval !== undefined || isnull || contentOf(value, 'ParamRef') !== undefined
    return isUntyped ? value : undefined
  })
}

/** Writes a WITH clause, unless it is empty. */
export function withSql({ parts, isRecursive }: NamedParts): Sql {
  if (parts.length === 0) return LEFT_OUT
  return sql`with ${isRecursive ? sql`recursive ` : LEFT_OUT}${join(parts, ', ')} `
}

/** Writes the column aliases, if there are any. */
export function namesSql(given: readonly string[]): Sql {
  const names = given.map((column) => ident(column))
  return names.length === 0 ? LEFT_OUT : sql`(${join(names, ', ')})`
}
