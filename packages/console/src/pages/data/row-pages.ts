import { type AnySchema, type Branch, OffshootError, type TableDefinition } from '@offshoot/client'
import type { ReadPage } from '../../ui/grid/page-store.js'
import type { Row } from './values.js'
import { sortOf, type View } from './view.js'

/** The service finds at most the first 1000 records of a full-text search. */
export const SEARCH_ROWS_MAX = 1000
export const SEARCH_PAGE_SIZE = 200
/** Enough for the first screen. */
export const FIRST_PAGE_SIZE = 60
/** How the console searches: the last word may be incomplete. */
export const SEARCH_OPTIONS = { prefix: 'phrase' } as const

interface RowQuestion {
  readonly view: View
  /** Columns to read; undefined for all. A search reads all. */
  readonly columns: readonly string[] | undefined
  readonly signal?: AbortSignal
}

/** Returns a function that reads the rows of a table that match the view, in the order of the grid. */
export function pageReader(
  branch: Branch<AnySchema>,
  table: string,
  { view: { filter, sort, search, at }, columns, signal }: RowQuestion,
): ReadPage<Row> {
  const source = stateOf(branch, at).table(table)
  const common = { ...(filter === undefined ? {} : { filter }), ...(signal && { signal }) }
  if (search !== '') {
    // Searches have pages of a fixed size, because the service limits their offset.
    return async (after) => {
      const offset = Number(after ?? 0)
      const { records } = await source.search(search, {
        ...SEARCH_OPTIONS,
        ...common,
        highlight: { enabled: false },
        page: { size: SEARCH_PAGE_SIZE, offset },
      })
      const next = offset + SEARCH_PAGE_SIZE
      return {
        records: records as unknown as readonly Row[],
        cursor: String(next),
        hasMore: records.length === SEARCH_PAGE_SIZE && next < SEARCH_ROWS_MAX,
      }
    }
  }
  const question = {
    ...common,
    ...(sort.length === 0 ? {} : { sort: sortOf(sort) }),
    ...(columns === undefined ? {} : { columns: [...columns] }),
  }
  return async (after, size) => {
    const page = await source.query({ ...question, size }).page(after)
    return { ...page, records: page.records as unknown as readonly Row[] }
  }
}

/** The branch as it was at a checkpoint; as it is now, if `at` is empty. */
export function stateOf(branch: Branch<AnySchema>, at: string): Branch<AnySchema> {
  return at === '' ? branch : branch.at(at)
}

/** Columns that are hidden are not read, since they may be large. */
export function namesToRead(
  table: TableDefinition,
  hidden: readonly string[],
): readonly string[] | undefined {
  const read = table.columns.filter(({ name }) => !hidden.includes(name))
  if (read.length === table.columns.length) return undefined
  if (read.length === 0) return ['id']
  // The name of a link alone would read the linked record as a whole.
  return read.map(({ name, type }) => (type === 'link' ? `${name}.id` : name))
}

/** Whether the service refused a page because it has too many bytes. */
export function isTooLarge(error: unknown): boolean {
  return error instanceof OffshootError && error.code === 'query_too_costly'
}

/** Reads all pages, one after the other. Rows that are large are read in smaller pages. */
export async function* readAll(
  read: ReadPage<Row>,
  size: number,
): AsyncGenerator<readonly Row[], void> {
  let after: string | undefined
  let sizeNow = size
  for (let hasMore = true; hasMore; ) {
    try {
      const page = await read(after, sizeNow)
      after = page.cursor
      hasMore = page.hasMore
      yield page.records
    } catch (error) {
      if (!isTooLarge(error) || sizeNow === 1) throw error
      sizeNow = Math.ceil(sizeNow / 4)
    }
  }
}
