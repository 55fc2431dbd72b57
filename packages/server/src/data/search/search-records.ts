import { type BranchSearch, SEARCH_LIMITS, type TableSearch } from '@offshoot/contract/search'
import { mapInTurns } from '../../common/in-turns.js'
import type { Bounds } from '../../postgres/bounds.js'
import { codeOf } from '../../postgres/failures.js'
import type { TextRows } from '../../postgres/statement.js'
import type { Storage } from '../../rows/storage.js'
import { runCalculation } from '../query/base-rows.js'
import { invalidQuery } from '../query/invalid-query.js'
import { lookupOf } from '../query/query-records.js'
import { requireQuerySize } from '../query/query-size.js'
import type { Session } from '../session/session.js'
import { type Part, writeHighlight } from './highlight.js'
import { makePatterns, type Patterns } from './patterns.js'
import { planTable, readSearchPage, type TablePlan } from './search-plan.js'
import { type SearchPlan, searchSql } from './search-sql.js'
import { findStems } from './stems.js'
import { hasStem, readTerms } from './terms.js'

export interface SearchContext {
  readonly storage: Storage
  readonly session: Session
  readonly bounds: Bounds
}

const FUZZINESS = 1
const NUMBER = /^-?\d{1,15}(\.\d{1,15})?$/

/** Searches records of a branch for the words of a query. Returns JSON text, best matches first. */
export async function searchBranch(context: SearchContext, request: BranchSearch): Promise<string> {
  const { session } = context
  const lookup = lookupOf(session)
  const { tables: listed = [] } = request
  const named = listed.map((entry) => (typeof entry === 'string' ? { table: entry } : entry))
  const all = session.schema.tableNames.map((table) => ({ table }))
  requireQuerySize(listed)
  const searched = named.length === 0 ? all : named
  if (searched.length > SEARCH_LIMITS.tablesMax) {
    throw invalidQuery(
      `tables: at most ${SEARCH_LIMITS.tablesMax} of the ${all.length} tables of the branch can be named at once`,
    )
  }
  const seen = new Set<string>()
  const tables = searched.map(({ table: name, ...options }) => {
    const table = session.findTable(name)
    if (table === undefined) throw invalidQuery(`tables: table [${name}] not found`)
    if (seen.has(name)) throw invalidQuery(`tables: table [${name}] is named twice`)
    seen.add(name)
    return planTable(lookup, table, options)
  })
  return search(context, tables, request)
}

/** Searches records of one table. Without a query, finds all records that meet the filter. */
export async function searchTable(
  context: SearchContext & { readonly tableName: string },
  request: TableSearch,
): Promise<string> {
  const { session, tableName } = context
  requireQuerySize(request.filter, request.target, request.boosters)
  const table = planTable(lookupOf(session), session.table(tableName), request)
  return search(context, [table], request)
}

type Options = Pick<TableSearch, 'query' | 'fuzziness' | 'prefix' | 'highlight' | 'page'>

async function search(
  context: SearchContext,
  tables: readonly TablePlan[],
  options: Options,
): Promise<string> {
  const { session } = context
  const columns = tables.reduce((count, table) => count + table.columns.length, 0)
  if (columns > SEARCH_LIMITS.columnsMax) {
    throw invalidQuery(
      `target: at most ${SEARCH_LIMITS.columnsMax} columns can be searched at once, not ${columns}`,
    )
  }
  const { patterns, warnings } = await readQuery(context, options)
  const plan: SearchPlan = {
    lookup: lookupOf(session),
    // A query without words finds nothing.
    tables: patterns?.terms.length === 0 ? [] : tables,
    patterns,
    numbers: (options.query ?? '').split(/\s+/).filter((word) => NUMBER.test(word)),
    isHighlighted: options.highlight?.enabled ?? true,
    page: readSearchPage(options.page),
  }
  const { call, tables: searched } = searchSql(plan)
  // Estimates are read from PostgreSQL's statistics, which the node has.
  const node = { schema: session.branch.schemaName }
  const [first, ...rows] = await run(context, { ...call, node })
  const records = await mapInTurns(rows, (row) =>
    writeHit(row, { session, plan, searched, options }),
  )
  const warning = warnings.length === 0 ? '' : `,"warning":${JSON.stringify(warnings.join('; '))}`
  return `{"totalCount":${first?.[2] ?? 0},"records":[${records.join(',')}]${warning}}`
}

async function readQuery(
  { storage }: SearchContext,
  { query, fuzziness = FUZZINESS, prefix }: Options,
): Promise<{ patterns: Patterns | undefined; warnings: readonly string[] }> {
  if (query === undefined) return { patterns: undefined, warnings: [] }
  const { terms, warnings } = readTerms(query, fuzziness)
  const words = terms.filter(hasStem).map(({ text }) => text)
  const stems = await findStems(storage.database, words)
  return { patterns: makePatterns(terms, { stems, isPrefix: prefix === 'phrase' }), warnings }
}

const INVALID_PATTERN = '2201B'

async function run(
  context: SearchContext,
  call: Parameters<typeof runCalculation>[1],
): Promise<TextRows> {
  try {
    return await runCalculation(context, call)
  } catch (error) {
    if (codeOf(error) === INVALID_PATTERN) throw invalidQuery('query: is too complex')
    throw error
  }
}

function writeHit(
  [, tableNumber, score, texts, highlight]: readonly (string | null)[],
  context: {
    session: Session
    plan: SearchPlan
    searched: readonly TablePlan[]
    options: Options
  },
): string {
  const table = context.searched[Number(tableNumber)]
  if (table === undefined) throw new Error('a found record must belong to a searched table')
  const row = JSON.parse(texts ?? '[]') as (string | null)[]
  const members = [`"table":${JSON.stringify(table.codec.table.name)}`, `"score":${score}`]
  if (context.plan.isHighlighted) {
    const parts = JSON.parse(highlight ?? '[]') as (Part[] | null)[]
    const encodeHTML = context.options.highlight?.encodeHTML ?? true
    members.push(`"highlight":${writeHighlight(table.columns, parts, { encodeHTML })}`)
  }
  return table.read.writeFound(row, context.session.metadata, members.join(','))
}
