import type { EntryKind } from '@offshoot/contract/log'
import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'

export interface EntryRow {
  readonly id: string
  readonly position: string
  readonly kind: EntryKind
  readonly at: Date
  readonly userId: string | null
  readonly email: string | null
  readonly key: string | null
  readonly requestId: string | null
  readonly details: Readonly<Record<string, unknown>>
}

/** The entries of a branch, or all entries of a workspace. */
export type LogPlace = { readonly branchId: string } | { readonly workspaceId: string }

const isIn = (place: LogPlace): Sql =>
  'branchId' in place
    ? sql`l.branch_id = ${place.branchId}`
    : sql`l.workspace_id = ${place.workspaceId}`

/** Lists entries before a position, newest first. */
export async function listEntries(
  database: Queryable,
  place: LogPlace,
  options: { before: string | undefined; kind: EntryKind | undefined; limit: number },
): Promise<EntryRow[]> {
  const { before = null, kind = null, limit } = options
  return database.query<EntryRow>(sql`
    select l.id, l.position, l.kind, l.at, l.user_id as "userId", u.email, l.key_name as key,
      l.request_id as "requestId", l.details
    from offshoot.log l
    left join offshoot.users u on u.id = l.user_id
    where ${isIn(place)}
      and (${before}::bigint is null or l.position < ${before}::bigint)
      and (${kind}::text is null or l.kind = ${kind}::text)
    order by l.position desc
    limit ${limit}`)
}

interface FoundEntry extends Pick<EntryRow, 'position' | 'kind' | 'details'> {
  /** The time of PostgreSQL. */
  readonly now: Date
}

/** Finds an entry by its id. */
export async function findEntry(
  database: Queryable,
  place: LogPlace,
  id: string,
): Promise<FoundEntry | undefined> {
  const [row] = await database.query<FoundEntry>(sql`
    select l.position, l.kind, l.details, now() as now
    from offshoot.log l
    where l.id = ${id} and ${isIn(place)}`)
  return row
}
