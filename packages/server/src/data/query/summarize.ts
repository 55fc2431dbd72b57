import type { SummarizeRequest } from '@offshoot/contract/aggregation'
import { mapInTurns } from '../../common/in-turns.js'
import { type JsonTree, putValue, writeTree } from '../../common/write-json.js'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileSharing } from '../../postgres/statement.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { TableLookup } from '../../rows/reading/read-plan.js'
import { BaseRows, runCalculation, textOfValue, writeValue } from './base-rows.js'
import { extremeOf, orderOf } from './enum-order.js'
import { type Field, type FieldType, NUMBERS, resolveField } from './field.js'
import { type Filter, parseFilter } from './filter.js'
import { filterSql } from './filter-sql.js'
import { invalidQuery } from './invalid-query.js'
import { PAGE_SIZE } from './page.js'
import { Parameters } from './parameters.js'
import { lookupOf, type QueryContext } from './query-records.js'
import { requireQuerySize } from './query-size.js'
import { parseSort, SORTABLE, type Sort } from './sort.js'

type Operation = 'count' | 'min' | 'max' | 'sum' | 'average'

interface Summary {
  readonly name: string
  readonly operation: Operation
  /** undefined: counts rows. */
  readonly field: Field | undefined
  readonly type: FieldType
}

interface Group {
  /** The path of the value in a row of the response. */
  readonly path: readonly string[]
  readonly field: Field
}

/** A request with resolved names. */
interface SummarizePlan {
  readonly lookup: TableLookup
  readonly codec: TableCodec
  readonly groups: readonly Group[]
  readonly summaries: readonly Summary[]
  readonly filter: Filter
  readonly summariesFilter: Filter
  readonly sort: Sort
  readonly limit: number
}

const GROUPABLE: ReadonlySet<FieldType> = new Set([...SORTABLE, 'list', 'json'])
const ORDERED: ReadonlySet<FieldType> = new Set(
  [...SORTABLE].filter((type) => type !== 'bool' && type !== 'uuid'),
)

/** The field types that each operation accepts. */
const OPERATIONS: ReadonlyMap<string, ReadonlySet<FieldType>> = new Map([
  ['count', new Set([...GROUPABLE, 'other'] as const)],
  ['min', ORDERED],
  ['max', ORDERED],
  ['sum', NUMBERS],
  ['average', NUMBERS],
])

const NAME = /^[a-zA-Z0-9_\-~]+$/
const GROUPS_MAX = 100
const SUMMARIES_MAX = 100

/** Summarizes groups of records. Returns JSON text. */
export async function summarizeRecords(
  context: QueryContext,
  request: SummarizeRequest,
): Promise<string> {
  const { session } = context
  const plan = planSummarize(context, request)
  const rows = await runCalculation(context, summarizeSql(plan))
  const options = { jsonAsText: session.metadata.key === 'xata' }
  const summaries = await mapInTurns(rows, (row) => writeSummary(plan, row, options))
  return `{"summaries":[${summaries.join(',')}]}`
}

function planSummarize(context: QueryContext, request: SummarizeRequest): SummarizePlan {
  const { session, limits } = context
  const { codec } = session.table(context.tableName)
  const lookup = lookupOf(session)
  const resolve = (path: string) => resolveField(lookup, codec, path)
  const { columns, summaries: wanted, filter, summariesFilter, sort } = request
  requireQuerySize(columns, wanted, filter, summariesFilter, sort)
  const size = request.page?.size ?? PAGE_SIZE
  if (size > limits.pageSizeMax) {
    throw invalidQuery(`page size exceeds max limit of ${limits.pageSizeMax}`)
  }
  const groups = planGroups(lookup, codec, request.columns ?? [])
  const summaries = Object.entries(request.summaries ?? {}).map(([name, summary]) =>
    planSummary(resolve, name, summary),
  )
  if (summaries.length > SUMMARIES_MAX) {
    throw invalidQuery(`summaries: there are more than ${SUMMARIES_MAX}`)
  }
  const taken = new Set(groups.map(({ path }) => path[0]))
  const clash = summaries.find(({ name }) => taken.has(name))
  if (clash !== undefined) throw invalidQuery(`summaries: the name [${clash.name}] is taken`)
  const resolveResult = resultResolver(groups, summaries)
  return {
    lookup,
    codec,
    groups,
    summaries,
    filter: parseFilter(resolve, request.filter ?? {}),
    summariesFilter: parseFilter(resolveResult, request.summariesFilter ?? {}),
    sort: parseSort(resolveResult, request.sort),
    limit: size,
  }
}

function planGroups(lookup: TableLookup, codec: TableCodec, columns: readonly string[]): Group[] {
  const groups = new Map<string, Group>()
  for (const column of new Set(columns)) {
    for (const path of expand(lookup, codec, column)) add(path)
    if (groups.size > GROUPS_MAX) throw invalidQuery(`columns: there are more than ${GROUPS_MAX}`)
  }
  return [...groups.values()]

  function add(path: string): void {
    const field = resolveField(lookup, codec, path)
    if (!GROUPABLE.has(field.type) || field.source.kind === 'json') {
      throw invalidQuery(`columns: column [${path}]: cannot be grouped by`)
    }
    // A link is written as an object with an id, as in records.
    const at = isLink(codec, field) ? `${path}.id` : path
    groups.set(at, { path: at.split('.'), field })
  }
}

/** Expands `*`, `object.*` and `link.*` to the columns that can be grouped by. A link also has its id. */
function expand(lookup: TableLookup, codec: TableCodec, column: string): string[] {
  if (column !== '*' && !column.endsWith('.*')) {
    const isExpanded = isLink(codec, resolveField(lookup, codec, column))
    return isExpanded ? [column, ...expand(lookup, codec, `${column}.*`)] : [column]
  }
  const prefix = column === '*' ? '' : column.slice(0, -1)
  const field = prefix === '' ? undefined : resolveField(lookup, codec, prefix.slice(0, -1))
  const at = field === undefined ? codec : (targetOf(lookup, codec, field) ?? codec)
  const inside = at === codec ? prefix : ''
  return [...at.indexes.keys()]
    .filter((path) => path.startsWith(inside))
    .map((path) => `${prefix}${path.slice(inside.length)}`)
    .filter((path) => GROUPABLE.has(resolveField(lookup, codec, path).type))
}

/** Returns the linked table. */
function targetOf(lookup: TableLookup, codec: TableCodec, field: Field): TableCodec | undefined {
  const column = columnOf(codec, field)
  return column?.link === undefined ? undefined : lookup.tableById(column.link.tableId)
}

function isLink(codec: TableCodec, field: Field): boolean {
  return columnOf(codec, field)?.type === 'link'
}

function columnOf(codec: TableCodec, { links, source }: Field) {
  if (source.kind !== 'column') return undefined
  return (links.at(-1)?.target ?? codec).physical[source.index]?.column
}

function planSummary(resolve: (path: string) => Field, name: string, given: unknown): Summary {
  const invalid = (message: string) => invalidQuery(`summaries: [${name}]: ${message}`)
  if (!NAME.test(name)) throw invalid('is not a name')
  const entries = typeof given === 'object' && given !== null ? Object.entries(given) : []
  const [entry] = entries
  if (entry === undefined || entries.length > 1) {
    throw invalid('expected one of count, min, max, sum, average')
  }
  const [operation, path] = entry
  const types = OPERATIONS.get(operation)
  if (types === undefined)
    throw invalid(`[${operation}] is not one of count, min, max, sum, average`)
  if (typeof path !== 'string') throw invalid('expected the name of a column')
  if (path === '*') {
    if (operation !== 'count') throw invalid(`[${operation}] needs a column`)
    return { name, operation, field: undefined, type: 'int' }
  }
  const field = resolve(path)
  if (field.source.kind === 'id' || field.source.kind === 'metadata') {
    throw invalid(`column [${path}]: id and metadata cannot be summarized`)
  }
  if (!types.has(field.type)) {
    throw invalid(`column [${path}]: [${operation}] cannot be used with type [${field.type}]`)
  }
  const type = operation === 'count' ? 'int' : operation === 'average' ? 'float' : field.type
  return { name, operation: operation as Operation, field, type }
}

/** Resolves the columns of the result, by position, for its filter and sort. */
function resultResolver(groups: readonly Group[], summaries: readonly Summary[]) {
  const types = new Map<string, Pick<Field, 'type' | 'values'> & { index: number }>()
  for (const [index, { field }] of groups.entries()) {
    types.set(field.path, { index, type: field.type, values: field.values })
  }
  for (const [index, { name, type, field }] of summaries.entries()) {
    types.set(name, {
      index: groups.length + index,
      type,
      values: type === 'enum' ? field?.values : undefined,
    })
  }
  return (path: string): Field => {
    const found = types.get(path)
    if (found === undefined)
      throw invalidQuery(`column [${path}]: is neither grouped nor summarized`)
    const { index, type, values } = found
    return { path, links: [], source: { kind: 'column', index }, type, values }
  }
}

const resultName = (index: number): Sql => ident(`result_${index}`)
/** Qualified, because the select has texts of the same names, which would sort differently. */
const resultValue = (index: number): Sql => sql`result.${resultName(index)}`

/** Returns the position of a column in the result. */
function indexOf({ source, path }: Field): number {
  if (source.kind === 'column') return source.index
  throw new Error(`the result has no ${path}`)
}

function summarizeSql(plan: SummarizePlan): Call {
  const { groups, summaries, sort, limit } = plan
  const parameters = new Parameters()
  const base = new BaseRows(plan.lookup, plan.codec, plan.filter)
  const keys = groups.map(({ field }) => base.value(field))
  const values = summaries.map((summary) => summarySql(summary, { base, parameters }))
  const named = [...keys, ...values].map((value, index) => sql`${value} as ${resultName(index)}`)
  const grouped = groups.length === 0 ? empty : sql`group by ${join(keys, ', ')}`
  const types = [...groups.map(({ field }) => field.type), ...summaries.map(({ type }) => type)]
  const texts = types.map((type, index) => textOfValue(type, resultName(index)))
  const order = [
    ...sort.keys.map(({ field, direction }) => {
      const sign = direction === 'asc' ? sql`asc` : sql`desc`
      return sql`${orderOf(field, resultValue(indexOf(field)), parameters)} ${sign} nulls last`
    }),
    ...(sort.isRandom ? [sql`random()`] : []),
    ...groups.map(({ field }, index) => {
      return sql`${orderOf(field, resultValue(index), parameters)} asc nulls last`
    }),
  ]
  const result = { expression: (field: Field) => resultName(indexOf(field)) }
  const text = sql`
    select ${join(texts.length === 0 ? [sql`null`] : texts, ', ')}
    from (
      select ${join(named.length === 0 ? [sql`count(*)`] : named, ', ')}
      from (${base.relation(parameters)}) base
      ${grouped}
    ) result
    where ${filterSql(plan.summariesFilter, result, parameters)}
    ${order.length === 0 ? empty : sql`order by ${join(order, ', ')}`}
    limit ${raw(String(limit))}`
  return { statement: compileSharing(text), values: parameters.values }
}

function summarySql(
  { operation, field, type }: Summary,
  { base, parameters }: { base: BaseRows; parameters: Parameters },
): Sql {
  if (field === undefined) return sql`count(*)`
  const value = base.value(field)
  switch (operation) {
    case 'count':
      return sql`count(${value})`
    case 'average':
      // Decimals and whole numbers are rounded once, at the end.
      return sql`avg(${value})::double precision`
    case 'min':
    case 'max':
      if (field.values !== undefined) {
        return extremeOf(field.values, value, { parameters, extreme: operation })
      }
      return operation === 'min' ? sql`min(${value})` : sql`max(${value})`
    case 'sum':
      return type === 'float' ? sql`sum(${value}::double precision)` : sql`sum(${value})`
  }
}

function writeSummary(
  { groups, summaries }: SummarizePlan,
  row: readonly (string | null)[],
  options: { jsonAsText: boolean },
): string {
  const tree: JsonTree = new Map()
  for (const [index, { path, field }] of groups.entries()) {
    putValue(tree, path, writeValue(field.ids ? 'text' : field.type, row[index], options))
  }
  for (const [index, { name, type }] of summaries.entries()) {
    tree.set(name, writeValue(type, row[groups.length + index], options))
  }
  return writeTree(tree)
}
