import type { Queryable } from '../../../postgres/database.js'
import { type Sql, sql } from '../../../postgres/sql.js'
import { prepared } from '../../../postgres/statement.js'
import { isPinAfter, isPinOf } from '../../checkpoints/queries.js'
import type { History, Merge, State } from './history.js'

/** A merge in the catalogue. */
export interface StoredMerge extends Merge {
  readonly id: string
  /** The hidden fork that keeps the merged state readable. */
  readonly baseId: string
}

export interface StoredHistory extends History {
  readonly merges: readonly StoredMerge[]
  /** The open epoch of each branch. */
  readonly openEpochs: ReadonlyMap<string, number>
  /**
   * The last epoch of each branch that a fork reads. Forks that keep merged states count too, and checkpoints that were made
   * after a change do not: each merge has one, and would then be new for the branch that it came from.
   */
  readonly forkedEpochs: ReadonlyMap<string, number>
  /** The current states of the branches that are not deleted, and checkpoints, which can be forked. */
  readonly heads: readonly State[]
}

/** Reads the history of branches, whose ids `branchIds` selects: all states that they contain. */
export function findHistory(transaction: Queryable, branchIds: Sql): Promise<StoredHistory> {
  const statement = historySql(
    sql`
      ${branchIds}
      union
      select next.id
      from reached r
      cross join lateral (
        select b.parent_id as id from offshoot.branches b where b.id = r.id
        union all
        select m.from_branch_id from offshoot.merges m where m.into_branch_id = r.id
      ) next
      where next.id is not null`,
  )
  return readHistory(transaction, prepared(statement))
}

/** Reads the history of a branch and of its source, if it has one. */
export function findHistoryWithSource(
  transaction: Queryable,
  branchId: string,
): Promise<StoredHistory> {
  return findHistory(
    transaction,
    sql`
      select unnest(array[at.id, at.started_from ->> 'dbBranchID'])
      from offshoot.branches at
      where at.id = ${branchId}`,
  )
}

/** Reads the history of all branches of a database, including deleted ones. */
export function findDatabaseHistory(
  transaction: Queryable,
  databaseId: string,
): Promise<StoredHistory> {
  const reached = sql`select id from offshoot.branches where database_id = ${databaseId}`
  return readHistory(transaction, historySql(reached))
}

interface HistoryRow {
  readonly branches: [
    id: string,
    epoch: number,
    isLive: boolean,
    parentId: string | null,
    forkEpoch: number,
    forkedEpoch: number | null,
  ][]
  readonly merges: [
    id: number,
    intoId: string,
    intoEpoch: number,
    fromId: string,
    fromEpoch: number,
    baseId: string,
    leftOut: number[],
  ][]
}

/**
 * Reads all in a single statement, because compaction could replace merges between two statements. The ids are an array,
 * because PostgreSQL expects a recursive query to find many rows, and would join it with all branches of all databases.
 */
function historySql(reached: Sql): Sql {
  return sql`
    with recursive reached (id) as (${reached})
    select
      coalesce((
        select json_agg(json_build_array(b.id, b.epoch, b.deleted_at is null or ${isPinOf(sql`b.id`)}, b.parent_id,
          b.fork_epoch, (
            select f.fork_epoch
            from offshoot.branches f
            where f.parent_id = b.id and not ${isPinAfter(sql`f.id`)}
            order by f.fork_epoch desc
            limit 1
          )))
        from offshoot.branches b
        where b.id = any(array(select id from reached))
      ), '[]') as branches,
      coalesce((
        select json_agg(json_build_array(m.id, m.into_branch_id, m.into_epoch, m.from_branch_id,
          m.from_epoch, m.base_branch_id, m.left_out))
        from offshoot.merges m
        where m.into_branch_id = any(array(select id from reached))
      ), '[]') as merges`
}

async function readHistory(transaction: Queryable, statement: Sql): Promise<StoredHistory> {
  const [row] = await transaction.query<HistoryRow>(statement)
  const { branches, merges } = row ?? { branches: [], merges: [] }
  return {
    openEpochs: new Map(branches.map(([id, epoch]) => [id, epoch])),
    forkedEpochs: new Map(
      branches.flatMap(([id, , , , , epoch]) => (epoch === null ? [] : [[id, epoch] as const])),
    ),
    heads: branches.flatMap(([branchId, epoch, isLive]) => (isLive ? { branchId, epoch } : [])),
    forks: branches.flatMap(([branchId, , , parentId, epoch]) =>
      parentId === null ? [] : [{ branchId, parent: { branchId: parentId, epoch } }],
    ),
    merges: merges.map(([id, intoId, intoEpoch, fromId, fromEpoch, baseId, leftOut]) => ({
      id: String(id),
      baseId,
      into: { branchId: intoId, epoch: intoEpoch },
      from: { branchId: fromId, epoch: fromEpoch },
      leftOut,
    })),
  }
}

/** Requests a compaction. It only inserts a row, so concurrent requests do not block each other. */
export const insertCompactionSql = (databaseId: string): Sql =>
  prepared(sql`
    insert into offshoot.work (kind, database_id) values ('compact', ${databaseId})`)
