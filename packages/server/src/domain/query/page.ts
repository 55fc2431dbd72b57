import type { Limits } from '@offshoot/contract/limits'
import { type Cursor, type Position, readCursor } from './cursor.js'
import { queryFault } from './query-fault.js'

/** Which part of the result is asked for. */
export interface Page {
  readonly filter: unknown
  readonly sort: unknown
  readonly columns: unknown
  readonly size: number
  readonly offset: number
  /** Only what comes after, or before, a position. */
  readonly after: Position | undefined
  readonly before: Position | undefined
  /** Read from the end towards the beginning; the answer is turned around again. */
  readonly isBackward: boolean
  /** Nothing yet: only a cursor to wait for what will come after the last record. */
  readonly isTail: boolean
}

export const PAGE_SIZE = 20
export const OFFSET_MAX = 49_000

/** In the place of a cursor: the end of the result. */
const END = 'end'

export interface QueryRequest {
  readonly filter?: unknown
  readonly sort?: unknown
  readonly columns?: unknown
  readonly page?: {
    readonly size?: number
    readonly offset?: number
    readonly after?: string
    readonly before?: string
    readonly start?: string
    readonly end?: string
  }
}

/** Brings together what the request says and what its cursor remembers. */
export function readPage(request: QueryRequest, limits: Limits): Page {
  const { page = {} } = request
  const { after, before, start, end } = page
  if (start !== undefined || end !== undefined) {
    const others = [after, before, start, end].filter((cursor) => cursor !== undefined)
    if (others.length > 1) throw queryFault('page: [start] and [end] stand alone')
  }
  const text = [after, before, start, end].find((value) => value !== undefined && value !== END)
  const cursor = text === undefined ? undefined : readCursor(text)
  if (cursor !== undefined && (request.filter !== undefined || request.sort !== undefined)) {
    throw queryFault('page: a cursor brings its own filter and sort; they cannot be given besides')
  }
  const size = page.size ?? cursor?.size ?? PAGE_SIZE
  if (size > limits.pageSizeMax) {
    throw queryFault(`page size exceeds max limit of ${limits.pageSizeMax}`)
  }
  const offset = page.offset ?? (start === undefined ? 0 : (cursor?.offset ?? 0))
  if (offset > OFFSET_MAX) throw queryFault(`page offset must not exceed ${OFFSET_MAX}`)
  return {
    filter: cursor?.filter ?? request.filter,
    sort: cursor?.sort ?? request.sort,
    columns: request.columns ?? cursor?.columns,
    size,
    offset,
    after: after === undefined || after === END ? undefined : lastOf(after),
    before: before === undefined || before === END ? undefined : firstOf(before),
    isBackward: end !== undefined || (before !== undefined && after === undefined),
    isTail: after === END,
  }
}

function lastOf(text: string): Position | undefined {
  return readCursor(text).last
}

function firstOf(text: string): Position | undefined {
  return readCursor(text).first
}

export type { Cursor }
