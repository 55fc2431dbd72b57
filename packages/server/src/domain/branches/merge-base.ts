import { AppError } from '@offshoot/contract/errors'
import { newBranchId } from '../../common/ids.js'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { closeEpoch, FORK_COLUMNS, forkValues } from '../../rows/branches.js'
import type { StoredSchema } from '../../rows/columns.js'
import type { BranchAccess } from '../access/resolve.js'
import { type BranchState, getStartOf } from './branch-state.js'
import {
  findMergeBase,
  HistoryGraph,
  type MergeBase,
  type State,
  stateKey,
  statesOf,
  TooManyBasesError,
  tablesLeftOut,
} from './history/history.js'
import { findHistory, insertCompaction, type StoredHistory } from './history/queries.js'
import { type Row, virtualRow } from './history/virtual-row.js'
import { virtualSchema } from './history/virtual-schema.js'

interface Sides {
  readonly from: Pick<BranchAccess, 'branchId' | 'branchName' | 'databaseId'>
  readonly into: Pick<BranchAccess, 'branchId' | 'branchName'>
}

/** An epoch later than all others. It stands for the current state of a branch. */
const NOW = 2_147_483_647

/** The base of a merge: one state, or the virtual merge of several states. */
export interface Base {
  readonly states: readonly BranchState[]
  readonly schema: StoredSchema
  /** Computes the row of the base from the rows of its states, which are given in the same order. */
  rowOf(rows: readonly Row[]): Row
}

export interface Bases {
  /** The base of the schema, and of every table that is not in `ofTables`. */
  readonly general: Base
  /** The bases of tables that an earlier merge has left out, by table id. */
  readonly ofTables: ReadonlyMap<number, Base>
  /** Whether the target contains the merged branch as of its last closed epoch. */
  readonly isUpToDate: boolean
}

/** Finds the bases of a merge. Their states are locked until the transaction ends. */
export async function findBases(transaction: Queryable, sides: Sides): Promise<Bases> {
  const { from, into } = sides
  const history = await findHistory(transaction, [from.branchId, into.branchId])
  const states = new StateReader(transaction)
  const baseOf = async (tableId?: number) => {
    const base = mergeBaseOf(new HistoryGraph(history, tableId), sides)
    const read = await states.readAll(statesOf(base))
    return toBase(base, read)
  }
  const ofTables = new Map<number, Base>()
  for (const tableIds of tablesLeftOut(history)) {
    const base = await baseOf(tableIds[0])
    for (const tableId of tableIds) ofTables.set(tableId, base)
  }
  return { general: await baseOf(), ofTables, isUpToDate: isUpToDate(history, sides) }
}

function mergeBaseOf(graph: HistoryGraph, { from, into }: Sides): MergeBase {
  try {
    const base = findMergeBase(graph, {
      ours: { branchId: into.branchId, epoch: NOW },
      theirs: { branchId: from.branchId, epoch: NOW },
    })
    if (base !== undefined) return base
  } catch (error) {
    if (!(error instanceof TooManyBasesError)) throw error
    throw new AppError(
      'conflict',
      `branches [${from.branchName}] and [${into.branchName}] have too many common ancestors; merge one of them into a third branch first`,
    )
  }
  throw new AppError(
    'unrelated_branches',
    `branches [${from.branchName}] and [${into.branchName}] have no common ancestor that they inherit rows from`,
  )
}

function toBase(base: MergeBase, states: ReadonlyMap<string, BranchState>): Base {
  const order = new Map([...states.keys()].map((key, index) => [key, index]))
  const schemaIn = (state: State) => states.get(stateKey(state))?.schema ?? { tables: [] }
  return {
    states: [...states.values()],
    schema: virtualSchema(base, schemaIn),
    rowOf: (rows) => virtualRow(base, (state) => rows[order.get(stateKey(state)) ?? -1]),
  }
}

/**
 * Returns whether the target contains the merged branch as of its last closed epoch, and nothing has
 * been merged into that branch since then. Such a merge would bring states that the target lacks.
 */
function isUpToDate(history: StoredHistory, { from, into }: Sides): boolean {
  const { branchId } = from
  const open = history.openEpochs.get(branchId)
  if (open === undefined) return false
  const isMergedSince = history.merges.some(
    (merge) => merge.into.branchId === branchId && merge.into.epoch === open,
  )
  // A branch without a closed epoch contains only the state that it was forked from.
  const parent = history.forks.find((fork) => fork.branchId === branchId)?.parent
  const last = open > 1 ? { branchId, epoch: open - 1 } : parent
  const now = { branchId: into.branchId, epoch: NOW }
  return last !== undefined && !isMergedSince && new HistoryGraph(history).contains(now, last)
}

/** Reads states by way of their forks. Every state that can be a base has a fork. */
class StateReader {
  readonly #transaction: Queryable
  readonly #known = new Map<string, BranchState>()

  constructor(transaction: Queryable) {
    this.#transaction = transaction
  }

  async readAll(states: readonly State[]): Promise<ReadonlyMap<string, BranchState>> {
    const read = new Map<string, BranchState>()
    for (const state of states) read.set(stateKey(state), await this.#read(state))
    return read
  }

  async #read(state: State): Promise<BranchState> {
    const known = this.#known.get(stateKey(state))
    if (known !== undefined) return known
    const [fork] = await this.#transaction.query<{ id: string }>(sql`
      select id
      from offshoot.branches
      where parent_id = ${state.branchId} and fork_epoch = ${state.epoch}
      order by id
      limit 1
      for key share`)
    if (fork === undefined) {
      throw new AppError(
        'retry_limit',
        'the history of the branches changed during the merge; nothing was merged, please try again',
      )
    }
    const found = await getStartOf(this.#transaction, fork.id)
    this.#known.set(stateKey(state), found)
    return found
  }
}

/**
 * Records that the current state of a branch has been merged, except for the tables in `leftOut`. A
 * hidden fork keeps that state readable. Like a fork, this takes constant time.
 */
export async function insertMerge(
  transaction: Queryable,
  { from, into, leftOut }: Sides & { leftOut: readonly number[] },
): Promise<void> {
  const source = await closeEpoch(transaction, from.branchId)
  if (source === undefined) throw new Error('a locked branch must exist')
  const baseId = newBranchId()
  await transaction.query(sql`
    insert into offshoot.branches
      (id, database_id, name, schema_id, last_migration_id, ${FORK_COLUMNS},
        fork_schema_id, deleted_at)
    values (${baseId}, ${from.databaseId}, ${source.name}, ${source.schemaId},
      ${source.lastMigrationId}, ${forkValues(source)}, ${source.schemaId}, now())`)
  await transaction.query(sql`
    insert into offshoot.merges
      (into_branch_id, into_epoch, from_branch_id, from_epoch, base_branch_id, left_out)
    select id, epoch, ${source.id}, ${source.epoch}, ${baseId}, ${leftOut}::bigint[]
    from offshoot.branches
    where id = ${into.branchId}`)
  await insertCompaction(transaction, from.databaseId)
}

/** Replaces a branch by another one in all recorded merges, as the source and as the target. */
export async function updateMergesOf(
  transaction: Queryable,
  options: { branchId: string; newBranchId: string },
): Promise<void> {
  const { branchId, newBranchId: to } = options
  await transaction.query(sql`
    update offshoot.merges set from_branch_id = ${to} where from_branch_id = ${branchId}`)
  await transaction.query(sql`
    update offshoot.merges set into_branch_id = ${to} where into_branch_id = ${branchId}`)
}
