import type { Limits } from '@offshoot/contract/limits'
import type { Database } from '../../postgres/database.js'
import { type ReadPlan, type TableLookup, writeRecord } from '../../rows/read-plan.js'
import { runReads } from '../../rows/run.js'
import { planColumns } from '../records/records.js'
import type { Session } from '../records/session.js'
import { type Cursor, type Position, writeCursor } from './cursor.js'
import { parseFilter } from './filter.js'
import { type Page, type QueryRequest, readPage } from './page.js'
import { queryFault } from './query-fault.js'
import { type QueryPlan, querySql } from './query-sql.js'
import { parseSort } from './sort.js'

/** `id`, `version`, `created_at`, `updated_at`. */
const METADATA_COUNT = 4

/** A page of the records that meet a filter, as JSON text. */
export async function queryRecords(
  context: { database: Database; session: Session; tableName: string; limits: Limits },
  request: QueryRequest,
): Promise<string> {
  const { database, session, limits } = context
  const table = session.table(context.tableName)
  const page = readPage(request, limits)
  const { plan: read } = planColumns(table, columnNames(page.columns))
  const lookup: TableLookup = {
    layout: session.guard.layout,
    tableById: (id) => session.schema.tableById(id),
  }
  const plan: QueryPlan = {
    lookup,
    codec: table.codec,
    read,
    filter: parseFilter(lookup, table.codec, page.filter ?? {}),
    sort: parseSort(lookup, table.codec, page.sort),
    after: page.after,
    before: page.before,
    isBackward: page.isBackward || page.isTail,
    // One more than asked for tells whether there is more.
    limit: page.isTail ? 1 : page.size + 1,
    offset: page.offset,
  }
  const [rows = []] = await runReads(database, session.guard, [querySql(plan)])
  const hasMore = rows.length > page.size
  const shown = page.isTail ? [] : rows.slice(0, page.size)
  if (plan.isBackward) shown.reverse()
  const records = shown.map((row) => writeRecord(read, row, session.metadata))
  const places = page.isTail ? rows.slice(0, 1) : shown
  const cursor = writeCursor(toCursor(page, read, places))
  return `{"records":[${records.join(',')}],"meta":{"page":{"cursor":"${cursor}","more":${hasMore && !page.isTail},"size":${page.size}}}}`
}

function columnNames(columns: unknown): string[] {
  if (columns === undefined) return ['*']
  if (!Array.isArray(columns)) throw queryFault('columns: expected a list')
  const names = columns.map((column) => {
    if (typeof column !== 'string') {
      throw queryFault('columns: reverse links are not supported yet')
    }
    return column
  })
  return names.length === 0 ? ['*'] : names
}

type Row = readonly (string | null)[]

/** An empty page keeps the place it was asked for. */
function toCursor(page: Page, read: ReadPlan, rows: readonly Row[]): Cursor {
  const { filter, sort, columns, size, offset } = page
  const first = rows[0] === undefined ? page.after : positionOf(read, rows[0])
  const final = rows.at(-1)
  const last = final === undefined ? (page.after ?? page.before) : positionOf(read, final)
  return {
    filter,
    sort,
    columns,
    size,
    offset,
    ...(first === undefined ? {} : { first }),
    ...(last === undefined ? {} : { last }),
  }
}

function positionOf(read: ReadPlan, row: Row): Position {
  return { keys: row.slice(countTexts(read), -1), id: row.at(-1) ?? '' }
}

/** How many texts of a row belong to the record and to those its links lead to. */
function countTexts({ projection, links }: ReadPlan): number {
  return links.reduce(
    (count, link) => count + countTexts(link.plan),
    METADATA_COUNT + projection.columns.length,
  )
}
