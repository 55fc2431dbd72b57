import {
  SEARCH_LIMITS,
  type SimilarityFunction,
  type VectorSearch,
} from '@offshoot/contract/search'
import { mapInTurns } from '../../common/in-turns.js'
import type { Extension } from '../../postgres/extension.js'
import { ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import {
  type Call,
  compileSharing,
  compileStatement,
  type Slot,
  slot,
  type TextRows,
} from '../../postgres/statement.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { findVectorIndex } from '../../rows/indexes/vector-index.js'
import type { TableLookup } from '../../rows/reading/read-plan.js'
import type { TableRead } from '../../rows/reading/table-read.js'
import { runCalculation } from '../query/base-rows.js'
import { resolveField } from '../query/field.js'
import { type Filter, parseFilter } from '../query/filter.js'
import { invalidQuery } from '../query/invalid-query.js'
import { Parameters } from '../query/parameters.js'
import { lookupOf } from '../query/query-records.js'
import { requireQuerySize } from '../query/query-size.js'
import { selectRows } from '../query/select-rows.js'
import { ROOT } from '../query/sort-sql.js'
import { planColumns } from '../session/session.js'
import { arraySimilarity, extensionSimilarity, similarityOf } from './distance-sql.js'
import type { SearchContext } from './search-records.js'

/** A vector search with resolved names and validated values. */
interface VectorPlan {
  readonly lookup: TableLookup
  readonly codec: TableCodec
  readonly read: TableRead
  /** Index of the vector column. */
  readonly column: number
  readonly query: readonly number[]
  readonly similarity: SimilarityFunction
  readonly size: number
  readonly filter: Filter
}

/** Searches the records whose vectors are most similar to a given one. Returns JSON text. */
export async function searchVectors(
  context: SearchContext & { readonly tableName: string },
  request: VectorSearch,
): Promise<string> {
  const { storage, session } = context
  requireQuerySize(request.filter, request.column)
  const table = session.table(context.tableName)
  const lookup = lookupOf(session)
  const { codec } = table
  const plan: VectorPlan = {
    lookup,
    codec,
    read: planColumns(table, ['*']),
    ...readVector(codec, request),
    size: request.size ?? SEARCH_LIMITS.vectorSize,
    filter: parseFilter((path) => resolveField(lookup, codec, path), request.filter ?? {}),
  }
  const extension = isSingle(plan.query) ? await storage.extensions.find('vector') : undefined
  const [first, ...rows] =
    (await searchIndex(context, plan, extension)) ??
    (await runCalculation(context, vectorSql(plan, extension)))
  const name = JSON.stringify(codec.table.name)
  const records = await mapInTurns(rows, ([, score, ...texts]) => {
    return plan.read.writeFound(texts, session.metadata, `"table":${name},"score":${score}`)
  })
  return `{"totalCount":${first?.[1] ?? 0},"records":[${records.join(',')}]}`
}

function readVector(
  codec: TableCodec,
  { column: name, queryVector, similarityFunction = 'cosineSimilarity' }: VectorSearch,
): Pick<VectorPlan, 'column' | 'query' | 'similarity'> {
  const column = codec.indexes.get(name) ?? -1
  const stored = codec.physical[column]?.column
  const invalid = (message: string) =>
    invalidQuery(`table [${codec.table.name}]: column [${name}]: ${message}`)
  if (stored === undefined) throw invalid('column not found')
  if (stored.type !== 'vector') throw invalid(`is of type [${stored.type}], not [vector]`)
  const dimension = stored.vector?.dimension
  if (queryVector.length !== dimension) {
    throw invalidQuery(
      `queryVector: column [${name}] has ${dimension} numbers, got ${queryVector.length}`,
    )
  }
  if (similarityFunction === 'cosineSimilarity' && queryVector.every((value) => value === 0)) {
    throw invalidQuery('queryVector: is all zeros; cosine similarity is not defined for it')
  }
  return { column, query: queryVector, similarity: similarityFunction }
}

/** Returns whether all components fit into single precision, in which pgvector computes. */
function isSingle(query: readonly number[]): boolean {
  return query.every((value) => Number.isFinite(Math.fround(value)))
}

/**
 * Compiles a search that compares all vectors. The first row has the number of compared vectors. Each further
 * row is a record: its place, its score and its texts.
 */
function vectorSql(plan: VectorPlan, extension: Extension | undefined): Call {
  const parameters = new Parameters()
  const query = parameters.add(`{${plan.query.join(',')}}`)
  const vectors = selectRows({ ...plan, parameters }, ({ record }) => {
    const own = visibleVector(plan, record.column)
    // The cast copies the array into memory, where its elements are read faster.
    const value = extension === undefined ? sql`${own}::double precision[]` : own
    return { selected: sql`${ROOT}.id, ${value} as own`, conditions: [sql`${own} is not null`] }
  })
  if (vectors.length === 0) {
    return { statement: compileStatement(sql`select 0, '0'`), values: [] }
  }
  const text = sql`
    with scored as materialized (
      select v.id, ${similaritySql(plan, extension, { query, parameters })} as score
      from (${join(vectors, ' union all ')} offset 0) v
      cross join (select ${query}::double precision[] as query offset 0) q
    ),
    ${pageSql(plan, sql`select count(*) from scored`)}`
  return { statement: compileSharing(text), values: parameters.values }
}

/** Selects the page and its records from the relation `scored`. */
function pageSql({ lookup, codec, read, size }: VectorPlan, count: Sql): Sql {
  const record = lookup.rowsOf(codec).record(ident('record'))
  const joined = lookup.rowsOf(codec).join({ id: sql`page.id`, alias: record.alias })
  const { selected, joins } = read.select(record)
  const nothing = selected.map(() => sql`null`)
  const texts = selected.map((value) => sql`${value}::text`)
  return sql`
    page as materialized (
      select row_number() over (order by score desc, id) as place, *
      from scored
      order by score desc, id
      limit ${raw(String(size))}
    )
    select 0::bigint as place, (${count})::text, ${join(nothing, ', ')}
    union all
    select page.place, page.score::text, ${join(texts, ', ')}
    from page
    ${joined}${joins}
    order by place`
}

function similaritySql(
  { similarity, query: vector }: VectorPlan,
  extension: Extension | undefined,
  { query, parameters }: { query: Slot; parameters: Parameters },
): Sql {
  if (extension === undefined) {
    const length = parameters.add(String(Math.hypot(...vector)))
    return arraySimilarity(similarity, {
      own: sql`v.own`,
      query: sql`q.query`,
      queryLength: sql`${length}::double precision`,
      dimension: vector.length,
    })
  }
  return extensionSimilarity(similarity, extension, {
    own: sql`v.own`,
    query: sql`${query}::real[]`,
  })
}

/** Returns the vector column. A nested vector is null if one of its objects is not present. */
function visibleVector({ codec, column }: VectorPlan, at: (index: number) => Sql): Sql {
  const objects = codec.enclosingObjects(column).map(at)
  if (objects.length === 0) return at(column)
  return sql`(case when ${join(objects, ' and ')} then ${at(column)} end)`
}

/**
 * The setting `hnsw.ef_search` of pgvector: the number of candidates. Its default is 40, its maximum 1000.
 */
const CANDIDATES_MIN = 200
const CANDIDATES_MAX = 1000
const SET_CANDIDATES = compileStatement(
  sql`select set_config('hnsw.ef_search', ${slot(0)}::text, true)`,
)

/**
 * Searches by the index of the column, which is fast and approximate. Returns undefined if there is no usable
 * index, or if it finds too few records.
 */
async function searchIndex(
  { session, bounds }: SearchContext,
  plan: VectorPlan,
  extension: Extension | undefined,
): Promise<TextRows | undefined> {
  const call = extension && indexSql(plan, extension)
  if (call === undefined) return undefined
  const candidates = Math.min(CANDIDATES_MAX, Math.max(CANDIDATES_MIN, 2 * plan.size))
  const settings = { statement: SET_CANDIDATES, values: [String(candidates)] }
  const [, rows = []] = await session.branch.runReads([settings, call], bounds)
  const count = Number(rows[0]?.[1])
  return rows.length - 1 < Math.min(plan.size, count) ? undefined : rows
}

/**
 * Compiles a search by the index. The index supports neither filters nor similarities other than the cosine.
 */
function indexSql(plan: VectorPlan, extension: Extension): Call | undefined {
  const { lookup, codec, column, similarity, filter } = plan
  const isServed =
    similarity === 'cosineSimilarity' && filter.kind === 'and' && filter.items.length === 0
  if (!isServed) return undefined
  const index = findVectorIndex(lookup, codec, { column, alias: ROOT, extension })
  if (index === undefined) return undefined
  const parameters = new Parameters()
  const query = sql`${parameters.add(`{${plan.query.join(',')}}`)}::real[]`
  const [own, other] = [index.column, query].map((value) => index.indexed(value))
  const distance = sql`(${own}) operator(${ident(extension.schema)}.<=>) (${other})`
  const text = sql`
    with scored as materialized (
      select n.id, ${similarityOf(similarity, sql`n.distance`)} as score
      from (
        select ${ROOT}.id, ${distance} as distance
        from ${index.table} ${ROOT}
        where ${index.column} is not null
        order by ${distance}
        limit ${raw(String(plan.size))}
      ) n
    ),
    ${pageSql(plan, sql`select count(${index.column}) from ${index.table} ${ROOT}`)}`
  return { statement: compileSharing(text), values: parameters.values }
}
