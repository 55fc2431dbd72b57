import type { Checkpoint } from '@offshoot/contract/checkpoints'
import type { Limits } from '@offshoot/contract/limits'
import { newBranchId, newCheckpointId } from '../../common/ids.js'
import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import type { BranchAccess } from '../access/resolve.js'
import { insertEntrySql, type NewEntry } from '../log/entries.js'

/*
 * A checkpoint is a state of a branch that is kept. Its pin is a hidden fork of that state, as merges have them: it costs as
 * much as a fork, all collectors respect it, and it is read like a branch.
 */

type Branch = Pick<BranchAccess, 'branchId' | 'branchName' | 'databaseId'>

export interface NewCheckpoint {
  readonly id: string
  /** By default the id. */
  readonly name?: string | undefined
  readonly note?: string | undefined
  readonly kind: Checkpoint['kind']
  readonly before?: string
  /** At most this number of checkpoints of the kind. Undefined: further ones are deleted later. */
  readonly limit?: number
  readonly entry?: NewEntry
}

/**
 * Returns a statement that makes a checkpoint of a branch. Requires its exclusive gate. The outcome is `name in use` if the
 * name is taken, or the limit is reached.
 */
export function insertCheckpointSql({ branchId, databaseId }: Branch, made: NewCheckpoint): Sql {
  const { id, name = id, note = null, kind, before = null, limit, entry } = made
  const pinId = newBranchId()
  const isFull =
    limit === undefined
      ? sql`select where false`
      : sql`
      select
      from (
        select count(*) as number
        from offshoot.checkpoints
        where branch_id = ${branchId} and kind = ${kind}
      ) c
      where c.number >= ${limit}::integer`
  return StoredBranch.forkSql({
    sourceId: branchId,
    taken: sql`
      select from offshoot.checkpoints where branch_id = ${branchId} and name = ${name}
      union all
      ${isFull}`,
    inherits: true,
    columns: sql`id, database_id, name, schema_id, last_migration_id, fork_schema_id, deleted_at`,
    values: sql`${pinId}::text, ${databaseId}::bigint, source.name, source.schema_id,
      source.last_migration_id, source.schema_id, now()`,
    effects: [
      sql`
      insert into offshoot.checkpoints
        (id, database_id, branch_id, pin_id, name, note, kind, before, created_at)
      select ${id}::text, ${databaseId}::bigint, ${branchId}::text, inserted.id, ${name}::text,
        ${note}::text, ${kind}::text, ${before}::text,
        -- Answers show milliseconds, and such a time must find the checkpoint.
        date_trunc('milliseconds', clock_timestamp())
      from inserted`,
      ...(kind === 'manual' ? [] : [collectionSql({ branchId, databaseId })]),
      ...(entry === undefined ? [] : [insertEntrySql(entry, sql`from inserted`)]),
    ],
  })
}

/** Requests that the background deletes checkpoints of a branch that are no longer kept. */
const collectionSql = ({ branchId, databaseId }: Omit<Branch, 'branchName'>): Sql => sql`
      insert into offshoot.work (kind, database_id, subject)
      select 'checkpoints', ${databaseId}::bigint, ${branchId}::text from inserted`

/** Returns a statement that makes a checkpoint of a branch before a change, and the id of the checkpoint. */
function insertBeforeSql(
  branch: Branch,
  before: string,
): { readonly id: string; readonly statement: Sql } {
  const id = newCheckpointId()
  return { id, statement: insertCheckpointSql(branch, { id, kind: 'automatic', before }) }
}

/** Returns whether checkpoints are made before changes. */
export function hasCheckpoints({ automaticCheckpointsMax }: Limits): boolean {
  return automaticCheckpointsMax > 0
}

/**
 * Makes a checkpoint before a change of a branch, in the transaction of the change and before the branch is read. Returns
 * its id, or undefined if the limits say that there are none.
 */
export async function insertAutomatic(
  transaction: Queryable,
  branch: Branch,
  { before, limits }: { before: string; limits: Limits },
): Promise<string | undefined> {
  if (!hasCheckpoints(limits)) return undefined
  const { id, statement } = insertBeforeSql(branch, before)
  const outcome = await new StoredBranch(transaction, branch.branchId).fork(statement)
  if (outcome !== 'forked') throw new Error('a locked branch must exist')
  return id
}

const AFTER = '-after'
/** Returns the name of a checkpoint after a change: the id of the one before the change, and an end. */
export const afterName = (beforeId: Sql): Sql => sql`${beforeId} || ${AFTER}::text`
/** Returns the id of the checkpoint before a change by the name of the one after it; null for another name. */
export const beforeOfAfterName = (name: Sql): Sql =>
  sql`substring(${name} from ${`^(.*)${AFTER}$`}::text)`

/**
 * Returns a statement that makes a checkpoint of a branch after a change, as the last step of its transaction, and the id of
 * the checkpoint. Together with the one before the change, it tells what the change did, and it is deleted with that one.
 * undefined: the change has none before it.
 */
export function insertAfterSql(
  branch: Branch,
  beforeId: string | undefined,
): { readonly id: string; readonly statement: Sql } | undefined {
  if (beforeId === undefined) return undefined
  const id = newCheckpointId()
  const made = { id, name: `${beforeId}${AFTER}`, kind: 'automatic' } as const
  return { id, statement: insertCheckpointSql(branch, made) }
}

export interface CheckpointRow {
  readonly id: string
  readonly pinId: string
  readonly name: string
  readonly note: string | null
  readonly kind: Checkpoint['kind']
  readonly before: string | null
  readonly createdAt: Date
}

const COLUMNS = sql`id, pin_id as "pinId", name, note, kind, before, created_at as "createdAt"`

/** A checkpoint after a change belongs to the entry of the log, which names it. */
const isListed = sql`(kind <> 'automatic' or before is not null)`

/** Finds a checkpoint of a branch by its id or its name. */
export async function findCheckpoint(
  database: Queryable,
  { branchId, at }: { branchId: string; at: string },
): Promise<CheckpointRow | undefined> {
  const [row] = await database.query<CheckpointRow>(
    prepared(sql`
    select ${COLUMNS}
    from offshoot.checkpoints
    where branch_id = ${branchId} and (id = ${at} or name = ${at})
    order by id = ${at} desc
    limit 1`),
  )
  return row
}

/** Finds the newest checkpoint of a branch at or before a time. */
export async function findCheckpointBefore(
  database: Queryable,
  { branchId, time }: { branchId: string; time: Date },
): Promise<CheckpointRow | undefined> {
  const [row] = await database.query<CheckpointRow>(
    prepared(sql`
    select ${COLUMNS}
    from offshoot.checkpoints
    where branch_id = ${branchId} and created_at <= ${time}::timestamptz and ${isListed}
    order by created_at desc, id desc
    limit 1`),
  )
  return row
}

/** Lists checkpoints of a branch that are older than another one, newest first. */
export async function listCheckpoints(
  database: Queryable,
  branchId: string,
  { after, limit }: { after: CheckpointRow | undefined; limit: number },
): Promise<CheckpointRow[]> {
  const [time, id] = [after?.createdAt ?? null, after?.id ?? null]
  return database.query<CheckpointRow>(sql`
    select ${COLUMNS}
    from offshoot.checkpoints
    where branch_id = ${branchId} and ${isListed}
      and (${id}::text is null or (created_at, id) < (${time}::timestamptz, ${id}::text))
    order by created_at desc, id desc
    limit ${limit}`)
}

export async function updateCheckpoint(
  database: Queryable,
  { id, name, note }: Pick<CheckpointRow, 'id' | 'name' | 'note'>,
): Promise<void> {
  await database.query(sql`
    update offshoot.checkpoints set name = ${name}, note = ${note} where id = ${id}`)
}

/**
 * Deletes checkpoints, and those after the same changes. Returns their pins, which are unused now. The history may have states
 * that only the pins needed.
 */
export async function deleteCheckpoints(
  database: Queryable,
  ids: readonly string[],
): Promise<string[]> {
  const rows = await database.query<{ pinId: string }>(sql`
    with deleted as (
      delete from offshoot.checkpoints
      where id = any(${ids}::text[] || array(
        select a.id
        from offshoot.checkpoints b
        join offshoot.checkpoints a on a.branch_id = b.branch_id and a.name = ${afterName(sql`b.id`)}
        where a.kind = 'automatic' and a.before is null and b.id = any(${ids}::text[])
      ))
      returning pin_id, database_id
    ),
    requested as (
      insert into offshoot.work (kind, database_id) select distinct 'compact', database_id from deleted
    )
    select pin_id as "pinId" from deleted`)
  return rows.map(({ pinId }) => pinId)
}

/** Lists some checkpoints of a branch that are no longer kept: too many, or too old. */
export async function listOutdated(
  database: Queryable,
  branchId: string,
  { automaticMax, days, limit }: { automaticMax: number; days: number; limit: number },
): Promise<string[]> {
  const rows = await database.query<{ id: string }>(sql`
    select c.id
    from (
      select id, kind, created_at, branch_id,
        row_number() over (partition by kind order by created_at desc, id desc) as number
      from offshoot.checkpoints
      where branch_id = ${branchId} and kind <> 'manual' and ${isListed}
    ) c
    join offshoot.branches b on b.id = c.branch_id
    where case c.kind
      when 'automatic' then c.number > ${automaticMax}
        or c.created_at < now() - make_interval(days => ${days})
      -- Without a schedule, those that it has made stay until they are deleted.
      else c.number > b.checkpoint_keep end
    order by c.created_at
    limit ${limit}`)
  return rows.map(({ id }) => id)
}

/** Lists branches with automatic checkpoints that are too old. */
export async function listBranchesWithOld(
  database: Queryable,
  { days, limit }: { days: number; limit: number },
): Promise<string[]> {
  const rows = await database.query<{ branchId: string }>(sql`
    select branch_id as "branchId"
    from offshoot.checkpoints
    where kind = 'automatic' and ${isListed} and created_at < now() - make_interval(days => ${days})
    limit ${limit}`)
  return [...new Set(rows.map(({ branchId }) => branchId))]
}

/** Returns whether a branch is the pin of a checkpoint or of a proposal, which keeps it. */
export const isPinOf = (branchId: Sql | string): Sql => sql`(
        exists (select from offshoot.checkpoints c where c.pin_id = ${branchId})
        or exists (select from offshoot.proposals p where p.from_pin_id = ${branchId})
        or exists (select from offshoot.proposals p where p.into_pin_id = ${branchId})
      )`

/** Returns whether a branch is the pin of a checkpoint that the service has made after a change. */
export const isPinAfter = (branchId: Sql | string): Sql => sql`exists (
        select from offshoot.checkpoints c
        where c.pin_id = ${branchId} and c.kind = 'automatic' and c.before is null
      )`
