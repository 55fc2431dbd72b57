import type { Comment, Review } from '@offshoot/contract/proposals'
import { newCommentId } from '../../common/ids.js'
import type { Queryable } from '../../postgres/database.js'
import { empty, type Sql, sql } from '../../postgres/sql.js'
import type { DatabaseAccess } from '../access/resolve.js'
import { type Actor, keyName } from '../log/entries.js'

/** A proposal in the catalogue. */
export interface ProposalRow {
  readonly databaseId: string
  readonly number: number
  readonly fromId: string
  readonly fromName: string
  readonly intoId: string
  readonly intoName: string
  readonly title: string
  readonly body: string
  readonly userId: string
  readonly email: string | null
  readonly key: string | null
  readonly state: 'open' | 'merged' | 'closed'
  readonly revision: number
  /** Null if the state was deleted, which only a damaged catalogue has. */
  readonly fromPinId: string | null
  readonly intoPinId: string | null
  readonly createdAt: Date
  readonly endedAt: Date | null
  readonly endedBy: string | null
  readonly entryId: string | null
  readonly comments: number
}

/** Identifies a proposal. */
type ProposalId = Pick<ProposalRow, 'databaseId' | 'number'>

const COLUMNS = sql`p.database_id as "databaseId", p.number, p.from_branch_id as "fromId",
      p.from_name as "fromName", p.into_branch_id as "intoId", p.into_name as "intoName", p.title,
      p.body, p.user_id as "userId", u.email, p.key_name as key, p.state, p.revision,
      p.from_pin_id as "fromPinId", p.into_pin_id as "intoPinId", p.created_at as "createdAt",
      p.ended_at as "endedAt", p.ended_by as "endedBy", p.entry_id as "entryId", (
        select count(*)::integer
        from offshoot.proposal_comments c
        where c.database_id = p.database_id and c.number = p.number
      ) as comments`

/** Makes others who open a proposal of the database wait until the transaction ends. */
export async function lockNumbers(transaction: Queryable, databaseId: string): Promise<void> {
  await transaction.query(sql`
    select 1 from offshoot.databases where id = ${databaseId} for no key update`)
}

/** Takes the next number of a database. */
export async function takeNumber(transaction: Queryable, databaseId: string): Promise<number> {
  const [row] = await transaction.query<{ number: number }>(sql`
    update offshoot.databases
    set last_proposal = last_proposal + 1
    where id = ${databaseId}
    returning last_proposal as number`)
  if (row === undefined) throw new Error('a database with a locked branch must exist')
  return row.number
}

export async function countOpen(database: Queryable, databaseId: string): Promise<number> {
  const [row] = await database.query<{ count: number }>(sql`
    select count(*)::integer as count
    from offshoot.proposals
    where database_id = ${databaseId} and state = 'open'`)
  return row?.count ?? 0
}

export async function insertProposal(
  transaction: Queryable,
  proposal: Pick<
    ProposalRow,
    | 'databaseId'
    | 'number'
    | 'fromId'
    | 'fromName'
    | 'intoId'
    | 'intoName'
    | 'title'
    | 'body'
    | 'fromPinId'
    | 'intoPinId'
  > & { by: Actor },
): Promise<void> {
  const { databaseId, number, title, body, by, ...sides } = proposal
  await transaction.query(sql`
    insert into offshoot.proposals
      (database_id, number, from_branch_id, from_name, into_branch_id, into_name, title, body, user_id,
        key_name, from_pin_id, into_pin_id)
    select ${databaseId}, ${number}, ${sides.fromId}, ${sides.fromName}, ${sides.intoId},
      ${sides.intoName}, ${title}, ${body}, ${by.userId}, ${keyName(by)}, ${sides.fromPinId},
      ${sides.intoPinId}`)
}

export async function findProposal(
  database: Queryable,
  { databaseId, number }: ProposalId,
): Promise<ProposalRow | undefined> {
  const [row] = await database.query<ProposalRow>(sql`
    select ${COLUMNS}
    from offshoot.proposals p
    left join offshoot.users u on u.id = p.user_id
    where p.database_id = ${databaseId} and p.number = ${number}`)
  return row
}

/** Locks a proposal until the transaction ends, and returns it. */
export async function lockProposal(
  transaction: Queryable,
  id: ProposalId,
): Promise<ProposalRow | undefined> {
  await transaction.query(sql`
    select 1
    from offshoot.proposals
    where database_id = ${id.databaseId} and number = ${id.number}
    for update`)
  return findProposal(transaction, id)
}

/** Lists proposals with smaller numbers than another one, largest first. */
export async function listProposals(
  database: Queryable,
  databaseId: string,
  options: {
    state: ProposalRow['state'] | undefined
    from: string | undefined
    before: number | undefined
    limit: number
  },
): Promise<ProposalRow[]> {
  const { state = null, from = null, before = null, limit } = options
  return database.query<ProposalRow>(sql`
    select ${COLUMNS}
    from offshoot.proposals p
    left join offshoot.users u on u.id = p.user_id
    where p.database_id = ${databaseId}
      and (${state}::text is null or p.state = ${state}::text)
      and (${from}::text is null or p.from_name = ${from}::text)
      and (${before}::integer is null or p.number < ${before}::integer)
    order by p.number desc
    limit ${limit}`)
}

/** Stores the states of a new revision. */
export async function updateRevision(
  transaction: Queryable,
  { databaseId, number }: ProposalId,
  { fromPinId, intoPinId }: { fromPinId: string; intoPinId: string },
): Promise<void> {
  await transaction.query(sql`
    update offshoot.proposals
    set revision = revision + 1, from_pin_id = ${fromPinId}, into_pin_id = ${intoPinId}
    where database_id = ${databaseId} and number = ${number}`)
}

export async function updateState(
  transaction: Queryable,
  { databaseId, number }: ProposalId,
  options: { state: ProposalRow['state']; by: Actor; entryId?: string | undefined },
): Promise<void> {
  const { state, by, entryId = null } = options
  const isEnd = state !== 'open'
  await transaction.query(sql`
    update offshoot.proposals
    set state = ${state}, entry_id = ${entryId},
      ended_at = case when ${isEnd}::boolean then clock_timestamp() end,
      ended_by = case when ${isEnd}::boolean then ${by.userId}::text end
    where database_id = ${databaseId} and number = ${number}`)
}

export async function updateTexts(
  transaction: Queryable,
  { databaseId, number }: ProposalId,
  { title, body }: { title?: string | undefined; body?: string | undefined },
): Promise<void> {
  await transaction.query(sql`
    update offshoot.proposals
    set title = coalesce(${title ?? null}::text, title), body = coalesce(${body ?? null}::text, body)
    where database_id = ${databaseId} and number = ${number}`)
}

export interface CommentRow {
  readonly id: string
  readonly position: string
  readonly userId: string
  readonly email: string | null
  readonly key: string | null
  readonly body: string
  readonly table: string | null
  readonly record: string | null
  readonly column: string | null
  readonly revision: number
  readonly createdAt: Date
}

export async function insertComment(
  transaction: Queryable,
  { databaseId, number, revision }: ProposalRow,
  comment: Pick<Comment, 'body' | 'table' | 'record' | 'column'> & { by: Actor },
): Promise<string> {
  const { body, table = null, record = null, column = null, by } = comment
  const id = newCommentId()
  await transaction.query(sql`
    insert into offshoot.proposal_comments
      (id, database_id, number, user_id, key_name, body, table_name, record_id, column_name, revision)
    select ${id}, ${databaseId}, ${number}, ${by.userId}, ${keyName(by)}, ${body}, ${table}, ${record},
      ${column}, ${revision}`)
  return id
}

/** Lists comments of a proposal after a position, oldest first, or one of them. */
export async function listComments(
  database: Queryable,
  { databaseId, number }: ProposalId,
  options: { after?: string | undefined; id?: string | undefined; limit: number },
): Promise<CommentRow[]> {
  const { after = null, id, limit } = options
  const isMeant: Sql = id === undefined ? empty : sql`and c.id = ${id}`
  return database.query<CommentRow>(sql`
    select c.id, c.position, c.user_id as "userId", u.email, c.key_name as key, c.body,
      c.table_name as "table", c.record_id as record, c.column_name as "column", c.revision,
      c.created_at as "createdAt"
    from offshoot.proposal_comments c
    left join offshoot.users u on u.id = c.user_id
    where c.database_id = ${databaseId} and c.number = ${number} ${isMeant}
      and (${after}::bigint is null or c.position > ${after}::bigint)
    order by c.position
    limit ${limit}`)
}

export interface ReviewRow {
  readonly userId: string
  readonly email: string | null
  readonly key: string | null
  readonly verdict: Review['verdict']
  readonly body: string
  readonly revision: number
  readonly createdAt: Date
}

/** Adds or replaces the review of a user. */
export async function insertReview(
  transaction: Queryable,
  { databaseId, number, revision }: ProposalId & { revision: number },
  { verdict, body, by }: Pick<ReviewRow, 'verdict' | 'body'> & { by: Actor },
): Promise<void> {
  await transaction.query(sql`
    insert into offshoot.proposal_reviews
      (database_id, number, user_id, key_name, verdict, body, revision)
    select ${databaseId}, ${number}, ${by.userId}, ${keyName(by)}, ${verdict}, ${body}, ${revision}::integer
    on conflict (database_id, number, user_id) do update
    set verdict = excluded.verdict, body = excluded.body, revision = excluded.revision,
      key_name = excluded.key_name, created_at = excluded.created_at`)
}

/** Deletes the review of a user. Returns whether there was one. */
export async function deleteReview(
  transaction: Queryable,
  { databaseId, number, userId }: ProposalId & { userId: string },
): Promise<boolean> {
  const rows = await transaction.query(sql`
    delete from offshoot.proposal_reviews
    where database_id = ${databaseId} and number = ${number} and user_id = ${userId}
    returning 1`)
  return rows.length > 0
}

/** Lists the reviews of a proposal by users who are still members of the workspace. */
export async function listReviews(
  database: Queryable,
  { databaseId, number, workspaceId }: ProposalId & Pick<DatabaseAccess, 'workspaceId'>,
): Promise<ReviewRow[]> {
  return database.query<ReviewRow>(sql`
    select r.user_id as "userId", u.email, r.key_name as key, r.verdict, r.body, r.revision,
      r.created_at as "createdAt"
    from offshoot.proposal_reviews r
    join offshoot.members m on m.user_id = r.user_id and m.workspace_id = ${workspaceId}
    left join offshoot.users u on u.id = r.user_id
    where r.database_id = ${databaseId} and r.number = ${number}
    order by r.created_at, r.user_id`)
}

/** Deletes some proposals that ended long ago, or of which a database has too many. Returns their pins. */
export async function deleteOutdated(
  transaction: Queryable,
  { endedMax, days, limit }: { endedMax: number; days: number; limit: number },
): Promise<{ fromPinId: string | null; intoPinId: string | null }[]> {
  return transaction.query(sql`
    delete from offshoot.proposals
    where (database_id, number) in (
      select database_id, number
      from (
        select database_id, number, ended_at,
          row_number() over (partition by database_id order by ended_at desc, number desc) as rank
        from offshoot.proposals
        where state <> 'open'
      ) p
      where rank > ${endedMax} or ended_at < now() - make_interval(days => ${days})
      order by ended_at
      limit ${limit}
    )
    returning from_pin_id as "fromPinId", into_pin_id as "intoPinId"`)
}
