import { randomInt } from 'node:crypto'
import type { Limits } from '@offshoot/contract/limits'
import { writeExactly } from '../../common/write-json.js'
import { type Cursor, type CursorScope, type Position, readCursor } from './cursor.js'
import { invalidQuery } from './invalid-query.js'
import { requireQuerySize } from './query-size.js'

/** The requested part of the result. */
export interface Page {
  readonly filter: unknown
  readonly sort: unknown
  readonly columns: unknown
  readonly size: number
  readonly offset: number
  readonly seed: number
  /** Returns only records after, or before, a position. */
  readonly after: Position | undefined
  readonly before: Position | undefined
  /** Records are read from the end; the response reverses them again. */
  readonly isBackward: boolean
  /** The page is empty. Its cursor is at the end of the result, to read records that are added later. */
  readonly isTail: boolean
}

export const PAGE_SIZE = 20
export const OFFSET_MAX = 49_000

/** Stands for the end of the result, in place of a cursor. */
const END = 'end'
const SEED_MAX = 2 ** 47

export interface QueryRequest {
  readonly filter?: unknown
  readonly sort?: unknown
  readonly columns?: unknown
  readonly page?: {
    readonly size?: number
    readonly offset?: number
    readonly after?: string | null
    readonly before?: string | null
    readonly start?: string | null
    readonly end?: string | null
  }
}

/** Combines the request with the query in its cursor. */
export function readPage(
  request: QueryRequest,
  { limits, scope }: { limits: Limits; scope: CursorScope },
): Page {
  const { page = {} } = request
  requireQuerySize(request.filter, request.sort, request.columns)
  const cursorOf = (text: string | undefined): Cursor | undefined =>
    text === undefined || text === END ? undefined : readCursor(scope, text)
  const given = [page.after, page.before, page.start, page.end].map((text) => text ?? undefined)
  const [afterText, beforeText, start, end] = given
  const whole = start ?? end
  if (whole !== undefined && given.filter((text) => text !== undefined).length > 1) {
    throw invalidQuery('page: [start] and [end] stand alone')
  }
  const after = cursorOf(afterText)
  const before = cursorOf(beforeText)
  const cursor = after ?? before ?? (whole === undefined ? undefined : readCursor(scope, whole))
  if (cursor !== undefined && (request.filter ?? request.sort ?? undefined) !== undefined) {
    throw invalidQuery(
      'page: a cursor brings its own filter and sort; they cannot be given besides',
    )
  }
  if (after !== undefined && before !== undefined && !isSameQuery(after, before)) {
    throw invalidQuery('page: [after] and [before] are of different queries')
  }
  const size = page.size ?? cursor?.size ?? PAGE_SIZE
  if (size > limits.pageSizeMax) {
    throw invalidQuery(`page size exceeds max limit of ${limits.pageSizeMax}`)
  }
  const offset = page.offset ?? 0
  if (offset > OFFSET_MAX) throw invalidQuery(`page offset must not exceed ${OFFSET_MAX}`)
  return {
    filter: cursor === undefined ? request.filter : cursor.filter,
    sort: cursor === undefined ? request.sort : cursor.sort,
    columns: request.columns ?? cursor?.columns,
    size,
    offset,
    seed: cursor?.seed ?? randomInt(SEED_MAX),
    after: after?.last,
    before: before?.first,
    isBackward: end !== undefined || (beforeText !== undefined && afterText === undefined),
    isTail: afterText === END,
  }
}

function isSameQuery(one: Cursor, other: Cursor): boolean {
  const texts = [one, other].map(({ filter, sort, seed }) => {
    // The seed matters only for a random order.
    const text = writeExactly([filter ?? {}, sort ?? []])
    return text.includes('"random"') ? `${text}${seed}` : text
  })
  return texts[0] === texts[1]
}
