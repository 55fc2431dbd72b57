import { allDone } from '../common/all-done.js'
import type { Queryable } from '../postgres/database.js'
import { SCHEMA_PREFIX } from '../postgres/place.js'
import { type Sql, sql } from '../postgres/sql.js'
import { prepared } from '../postgres/statement.js'
import { createGate } from './gates/gate.js'
import { deleteUnseenVersions, insertSweepSql } from './heaps/collect.js'
import { dropUnread } from './heaps/collect-layers.js'
import { lockFolds } from './heaps/publish-fold.js'
import { releaseKeptIndexes } from './indexes/heap-indexes.js'
import {
  closeEpochSql,
  type ForkOutcome,
  type ForkPoint,
  type ForkSource,
  forkSql,
  pinSql,
} from './layout/fork.js'
import { type BranchRows, findLayout } from './layout/layout.js'
import { isWrittenBetween } from './merging/written-between.js'
import { RowState } from './row-state.js'

/** The columns of `offshoot.branches` that describe storage. A branch that takes storage over copies them. */
const STORAGE_COLUMNS = sql`parent_id, fork_epoch, fork_stamp, epoch`

/** The least size of a row in a heap: its header, the common columns and an id. */
const ROW_BYTES_MIN = 60
/** The size of more heaps is not read. */
const SIZED_HEAPS_MAX = 50

/** What a branch stores, in a transaction: how it is forked, reset, collected and deleted. The branch may be hidden. */
export class StoredBranch {
  readonly #transaction: Queryable
  readonly #id: string

  constructor(transaction: Queryable, id: string) {
    this.#transaction = transaction
    this.#id = id
  }

  /** Returns a statement for `fork` or `Storage.fork`. */
  static readonly forkSql = forkSql

  /** Expressions of a `with` that pin the present state of a branch. `pin` has the row of the hidden fork. */
  static readonly pinSql = pinSql

  /** Queues a branch for the collector, see `insertSweepSql`. */
  static readonly sweepSql = insertSweepSql

  /** Turns a branch without rows into a fork of a state. `assignments` set other columns of the branch. */
  static restartSql(branchId: string, point: ForkPoint, assignments: Sql): Sql {
    return sql`
      update offshoot.branches
      set parent_id = ${point.id}, fork_epoch = ${point.epoch}, epoch = 1,
        fork_stamp = nextval('offshoot.stamps'), resets = resets + 1,
        stamp = nextval('offshoot.stamps'), ${assignments}
      where id = ${branchId}`
  }

  /** Finds the rows of the branch. Returns undefined if it does not exist or is hidden. */
  findRows(): Promise<BranchRows | undefined> {
    return findLayout(this.#transaction, this.#id)
  }

  /** Finds the rows that the branch started with, as a fork. */
  async findStartRows(): Promise<BranchRows | undefined> {
    const rows = await findLayout(this.#transaction, this.#id, { hidden: true })
    return rows && new RowState(rows).start
  }

  /** Returns a bound of the number of rows that the branch has written itself. It can be infinite. */
  async boundRows(): Promise<number> {
    const heap = sql`to_regclass(${SCHEMA_PREFIX} || h.database_id || '.heap_' || h.id)`
    const [row] = await this.#transaction.query<{ bytes: number; count: number }>(
      prepared(sql`
      select count(*)::integer as count,
        coalesce(sum(${this.#transaction.server.boundRowBytes(heap)}), 0)::float8 as bytes
      from (
        select id, database_id
        from offshoot.heaps
        where branch_id = ${this.#id} and kind = 'heap'
        limit ${SIZED_HEAPS_MAX + 1}
      ) h`),
    )
    const { bytes = 0, count = 0 } = row ?? {}
    return count > SIZED_HEAPS_MAX ? Number.POSITIVE_INFINITY : bytes / ROW_BYTES_MIN
  }

  /** Returns whether the branch has written rows after one epoch and until another, both of which were forked. */
  isWrittenBetween(after: number, until: number): Promise<boolean> {
    return isWrittenBetween(this.#transaction, { branchId: this.#id, after, until })
  }

  /** Creates the gate of a new branch. A fork gets one with its first writer. */
  createGate(): Promise<void> {
    return createGate(this.#transaction, this.#id)
  }

  /** Forks the branch by a statement of `forkSql`. Requires the exclusive gate. */
  async fork(statement: Sql): Promise<ForkOutcome> {
    const [row] = await this.#transaction.query<{ outcome: ForkOutcome }>(statement)
    if (row === undefined) throw new Error('a fork has an outcome')
    return row.outcome
  }

  /** Closes the epoch of the branch, so that it can be forked. Returns undefined if it does not exist. */
  async closeEpoch(): Promise<ForkSource | undefined> {
    const [source] = await this.#transaction.query<ForkSource>(
      prepared(sql`
      with source as (${closeEpochSql(this.#id)})
      select id, schema_id as "schemaId", last_migration_id as "lastMigrationId", epoch
      from source`),
    )
    return source
  }

  /** Finds the state that the branch started with, as a fork, and keeps it until the transaction ends. */
  async findSource(): Promise<ForkSource | undefined> {
    const [source] = await this.#transaction.query<ForkSource>(sql`
      select parent_id as id, fork_epoch as epoch, schema_id as "schemaId",
        last_migration_id as "lastMigrationId"
      from offshoot.branches
      where id = ${this.#id}
      for key share`)
    return source
  }

  /** Moves the rows of the branch, and the forks that read them, to a new hidden branch with the same state. */
  async hideAs(hiddenId: string, { databaseId }: { databaseId: string }): Promise<void> {
    const [hidden] = await allDone([
      this.#transaction.query(sql`
      insert into offshoot.branches
        (id, database_id, name, ${STORAGE_COLUMNS}, schema_id, version,
          last_migration_id, started_from, fork_schema_id, deleted_at)
      select ${hiddenId}, database_id, name, ${STORAGE_COLUMNS}, schema_id, version,
        last_migration_id, started_from, fork_schema_id, now()
      from offshoot.branches
      where id = ${this.#id} and deleted_at is null
      returning id`),
      lockFolds(this.#transaction, databaseId),
      // First the heaps, then the forks: `deleteUnseenVersions` relies on this order.
      this.#transaction.query(sql`
      update offshoot.heaps set branch_id = ${hiddenId} where branch_id = ${this.#id}`),
      this.#transaction.query(sql`
      update offshoot.heaps set next_branch_id = ${hiddenId} where next_branch_id = ${this.#id}`),
      // The stamps of the forks change, because sessions cache the layout of a branch.
      this.#transaction.query(sql`
      update offshoot.branches
      set parent_id = ${hiddenId}, stamp = nextval('offshoot.stamps')
      where parent_id = ${this.#id}`),
    ])
    if (hidden.length === 0) throw new Error('a locked branch must exist')
  }

  /** Begins a sweep: queues the indexes that were kept for forks again. */
  beginSweep(): Promise<void> {
    return releaseKeptIndexes(this.#transaction, this.#id)
  }

  /** Lists some heaps and layers of the branch, in the order of their ids. */
  async listHeapsAfter(afterId: string, limit: number): Promise<string[]> {
    const rows = await this.#transaction.query<{ id: string }>(sql`
      select id
      from offshoot.heaps
      where branch_id = ${this.#id} and id > ${afterId}
      order by id
      limit ${limit}`)
    return rows.map(({ id }) => id)
  }

  /**
   * Drops a heap or layer that nobody reads. Otherwise deletes some of its row versions that no fork can see; if it deletes
   * none, none are left. With `forkEpochs`, only looks at versions that forks of these epochs could see.
   */
  async sweepHeap(
    heapId: string,
    forkEpochs: readonly number[] | null,
  ): Promise<{ isDropped: boolean; versions: number }> {
    const heap = { branchId: this.#id, heapId }
    if (await dropUnread(this.#transaction, heap)) return { isDropped: true, versions: 0 }
    const versions = await deleteUnseenVersions(this.#transaction, { ...heap, forkEpochs })
    return { isDropped: false, versions }
  }

  /** Deletes the row of the branch, and the requests to sweep it. One that a worker has taken ends by itself. */
  async delete(databaseId: string): Promise<void> {
    await this.#transaction.query(sql`
      with swept as (
        delete from offshoot.work
        where id = any(array(
          select id
          from offshoot.work
          where database_id = ${databaseId} and kind = 'sweep' and subject = ${this.#id}
          for update skip locked
        ))
      )
      delete from offshoot.branches where id = ${this.#id}`)
  }
}
