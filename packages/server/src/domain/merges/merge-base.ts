import { AppError } from '@offshoot/contract/errors'
import { LIMITS } from '@offshoot/contract/limits'
import { allDone } from '../../common/all-done.js'
import { newBranchId } from '../../common/ids.js'
import type { Queryable } from '../../postgres/database.js'
import { empty, type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import type { StoredSchema, StoredTable } from '../../rows/columns/stored-schema.js'
import { Difference } from '../../rows/merging/difference.js'
import type { TableBase, TableState } from '../../rows/merging/table-states.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import type { BranchAccess } from '../access/resolve.js'
import {
  type BranchState,
  findStateAt,
  forkAtSql,
  readState,
  startOf,
} from '../branches/branch-state.js'
import type { SameIds } from '../schemas/same-ids.js'
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
import { findHistory, type StoredHistory } from './history/queries.js'
import { isUpToDate } from './history/up-to-date.js'
import { type Row, virtualRow } from './history/virtual-row.js'
import { virtualSchema } from './history/virtual-schema.js'

type Branch = Pick<BranchAccess, 'branchId' | 'branchName' | 'databaseId'>

interface Sides {
  readonly from: Branch
  readonly into: Branch
}

/** An epoch later than all others. It stands for the current state of a branch. */
export const NOW = 2_147_483_647

/** The states that a merge compares, by their place in the history. */
export interface ComparedStates {
  readonly theirs: State
  readonly ours: State
}

/** Returns the current states of two branches. They must be locked, or read in one snapshot. */
const statesNow = ({ from, into }: Sides): ComparedStates => ({
  theirs: { branchId: from.branchId, epoch: NOW },
  ours: { branchId: into.branchId, epoch: NOW },
})

/** The base of a merge: one state, or the virtual merge of several states. */
export interface Base {
  readonly states: readonly BranchState[]
  readonly schema: StoredSchema
  /** Computes the row of the base from the rows of its states, which are given in the same order. */
  rowOf(rows: readonly Row[]): Row
  /** The records that a bulk load has inserted, if they are what a revert takes back. */
  readonly loaded?: TableBase['loaded']
  /**
   * Whether the target contains all states of the merged branch that were ever forked or merged, apart from
   * states in which the branch had written nothing. If the current state has the same content as the base,
   * there is nothing to merge.
   */
  readonly isUpToDate: boolean
}

export interface Bases {
  /** The base of the schema, and of every table that is not in `ofTables`. */
  readonly general: Base
  /** The bases of tables that an earlier merge has left out, by table id. */
  readonly ofTables: ReadonlyMap<number, Base>
  /** Whether the general base is the state that the target was forked from. */
  readonly isForkOfTarget: boolean
}

/** Returns the base of a table. */
export function baseOfTable({ general, ofTables }: Bases, tableId: number): Base {
  return ofTables.get(tableId) ?? general
}

export function tableOf({ schema }: BranchState, { id }: StoredTable): StoredTable | undefined {
  return schema.tables.find((table) => table.id === id)
}

/** Returns a table in a state of a branch. */
export function stateOf(state: BranchState, table: StoredTable): TableState {
  const { rows, readAs } = state
  return { rows, table: tableOf(state, table), readAs: readAs?.get(table.id) }
}

/** Returns the base of one table. */
export function tableBase(
  { states, rowOf, loaded }: Pick<Base, 'states' | 'rowOf' | 'loaded'>,
  table: StoredTable,
): TableBase {
  return {
    loaded,
    states: states.map((state) => ({
      ...stateOf(state, table),
      removedIds: state.schema.removedIds,
    })),
    rowOf,
  }
}

/** Returns the schema of the base. Tables that an earlier merge left out are taken from their own base. */
export function baseSchema({ general, ofTables }: Bases): StoredSchema {
  const tableIn = ({ schema }: Base, tableId: number) =>
    schema.tables.filter((table) => table.id === tableId)
  return {
    ...general.schema,
    tables: [
      ...general.schema.tables.filter((table) => !ofTables.has(table.id)),
      ...[...ofTables].flatMap(([tableId, base]) => tableIn(base, tableId)),
    ],
  }
}

/** Reads the history of both sides of a merge. */
export function findHistoryOf(
  transaction: Queryable,
  { theirs, ours }: { theirs: Pick<State, 'branchId'>; ours: Pick<State, 'branchId'> },
): Promise<StoredHistory> {
  return findHistory(transaction, sql`values (${theirs.branchId}), (${ours.branchId})`)
}

interface BaseOptions {
  /** The history of both sides, of the same moment as the places of the states. */
  readonly history: StoredHistory
  /** The states whose base is wanted; by default the current ones. */
  readonly states?: ComparedStates | undefined
  /** The states of the bases are locked until the transaction ends. A snapshot needs no locks. */
  readonly locks: boolean
  /** States of the branches that the transaction has read, after it has locked them if it `locks`. */
  readonly known: readonly BranchState[]
  /** The ids by which the states of the bases are read. */
  readonly ids: SameIds
}

/**
 * Names the bases of two states. States keep their bases, so that another name tells that a reset has moved one of the
 * states, or that a compaction has removed a part of the history that only these states needed.
 */
export function nameBases(
  history: StoredHistory,
  sides: Sides,
  compared: ComparedStates = statesNow(sides),
): string {
  const nameOf = (tableId?: number) =>
    JSON.stringify(mergeBaseOf(new HistoryGraph(history, tableId), sides, compared) ?? null)
  const general = nameOf()
  const ofTables = tablesLeftOut(history)
    .flatMap((ids) => ids.map((id): [number, string] => [id, nameOf(ids[0])]))
    .filter(([, name]) => name !== general)
    .sort(([left], [right]) => left - right)
  return JSON.stringify([general, ofTables])
}

/** Finds the bases of a merge. */
export async function findBases(
  transaction: Queryable,
  sides: Sides,
  options: BaseOptions,
): Promise<Bases> {
  const bases = await tryFindBases(transaction, sides, options)
  if (bases !== undefined) return bases
  const { from, into } = sides
  throw unrelated(from.branchName, into.branchName)
}

/** Like `findBases`, but returns undefined if the branches have no common ancestor. */
export async function tryFindBases(
  transaction: Queryable,
  sides: Sides,
  options: BaseOptions,
): Promise<Bases | undefined> {
  const { states: compared = statesNow(sides) } = options
  const { theirs, ours } = compared
  const history = readHistory(options)
  const states = new StateReader(transaction, options)
  const baseOf = async (tableId?: number) => {
    const graph = new HistoryGraph(history, tableId)
    const found = mergeBaseOf(graph, sides, compared)
    if (found === undefined) return undefined
    const read = await states.readAll(statesOf(found))
    const base: Base = {
      ...(await toBase(transaction, found, read)),
      isUpToDate: await isUpToDate(transaction, {
        history,
        tableId,
        from: theirs,
        contained: graph.containedIn(ours),
      }),
    }
    return { found, base }
  }
  const general = await baseOf()
  if (general === undefined) return undefined
  const ofTables = new Map<number, Base>()
  for (const tableIds of tablesLeftOut(history)) {
    // Branches with a common ancestor also have one without the merges that left out a table.
    const ofTable = (await baseOf(tableIds[0]))?.base ?? general.base
    for (const tableId of tableIds) ofTables.set(tableId, ofTable)
  }
  const { found } = general
  const fork = history.forks.find(({ branchId }) => branchId === ours.branchId)?.parent
  return {
    general: general.base,
    ofTables,
    isForkOfTarget:
      found.kind === 'state' && fork !== undefined && stateKey(found.state) === stateKey(fork),
  }
}

/** Returns the history by the ids by which tables are read. */
function readHistory({ history, ids }: Pick<BaseOptions, 'history' | 'ids'>): StoredHistory {
  const readTables = (leftOut: readonly number[]) => [...new Set(leftOut.map((id) => ids.idOf(id)))]
  const merges = history.merges.map((merge) => ({ ...merge, leftOut: readTables(merge.leftOut) }))
  return { ...history, merges }
}

export function unrelated(one: string, other: string): AppError {
  return new AppError(
    'unrelated_branches',
    `branches [${one}] and [${other}] have no common ancestor that they inherit rows from`,
  )
}

/** Throws if two branches have no common ancestor. */
export async function requireRelated(transaction: Queryable, { from, into }: Sides): Promise<void> {
  const history = await findHistoryOf(transaction, { theirs: from, ours: into })
  const base = mergeBaseOf(new HistoryGraph(history), { from, into }, statesNow({ from, into }))
  if (base === undefined) throw unrelated(from.branchName, into.branchName)
}

function mergeBaseOf(
  graph: HistoryGraph,
  { from, into }: Sides,
  compared: ComparedStates,
): MergeBase | undefined {
  try {
    return findMergeBase(graph, compared)
  } catch (error) {
    if (!(error instanceof TooManyBasesError)) throw error
    throw new AppError(
      'conflict',
      `branches [${from.branchName}] and [${into.branchName}] have too many common ancestors; merge one of them into a third branch first`,
    )
  }
}

async function toBase(
  transaction: Queryable,
  base: MergeBase,
  states: ReadonlyMap<string, BranchState>,
): Promise<Omit<Base, 'isUpToDate'>> {
  const stateOf = (state: State) => must(states.get(stateKey(state)))
  const schema = await virtualSchema(base, {
    schemaIn: (state) => stateOf(state).schema,
    isWritten({ table, columns }, { origin, kept }) {
      const compared = { ...table, columns: columns ?? table.columns }
      const rowsIn = (part: MergeBase) =>
        tableBase({ states: statesOf(part).map(stateOf), rowOf: rowsOf(part) }, table)
      const difference = new Difference({
        table: compared,
        form: { limits: LIMITS, jsonAsText: false },
        base: rowsIn(origin),
        after: rowsIn(kept),
        inserted: columns === undefined ? 'all' : 'withValues',
      })
      return difference.isAny(transaction, 'written')
    },
  })
  return {
    states: statesOf(base).map(stateOf),
    schema,
    rowOf: rowsOf(base),
  }
}

/** Returns a function that computes a row of the base from the rows of its states, in the order of `statesOf`. */
function rowsOf(base: MergeBase): Base['rowOf'] {
  const order = new Map(statesOf(base).map((state, index) => [stateKey(state), index]))
  return (rows) => virtualRow(base, (state) => rows[order.get(stateKey(state)) ?? -1])
}

function must(state: BranchState | undefined): BranchState {
  if (state === undefined) throw new Error('a state of the base must have been read')
  return state
}

/**
 * Thrown when a state of the base is gone: since the history was read, a compaction has replaced it, or a reset has moved
 * it. Nothing was merged.
 */
export class StateGoneError extends AppError {
  constructor() {
    super(
      'retry_limit',
      'the history of the branches changed during the merge; nothing was merged, please try again',
    )
  }
}

/** Reads states by way of their forks. Every state that can be a base has a fork. */
class StateReader {
  readonly #transaction: Queryable
  readonly #lock: Sql
  readonly #ids: SameIds
  readonly #known = new Map<string, BranchState>()

  constructor(transaction: Queryable, { locks, known, ids }: Omit<BaseOptions, 'history'>) {
    this.#transaction = transaction
    this.#ids = ids
    this.#lock = locks ? sql`for key share` : empty
    for (const start of known.map(startOf)) {
      if (start !== undefined) this.#known.set(stateKey(start.at), start.state)
    }
  }

  async readAll(states: readonly State[]): Promise<ReadonlyMap<string, BranchState>> {
    const read = new Map<string, BranchState>()
    const found = await allDone(states.map((state) => this.#read(state)))
    for (const [index, state] of states.entries()) {
      read.set(stateKey(state), readState(must(found[index]), this.#ids))
    }
    return read
  }

  async #read(state: State): Promise<BranchState> {
    const known = this.#known.get(stateKey(state))
    if (known !== undefined) return known
    // The lock is a statement of its own, so that the next one sees the state as it is when the lock is granted.
    const [[fork], found] = await allDone([
      this.#transaction.query(prepared(sql`${forkAtSql(state)} ${this.#lock}`)),
      findStateAt(this.#transaction, state),
    ])
    if (fork === undefined || found === undefined) throw new StateGoneError()
    this.#known.set(stateKey(state), found)
    return found
  }
}

/**
 * Returns a statement that records that the current state of a branch has been merged, except for the tables in
 * `leftOut`. Like a fork, this takes constant time. Fails if one of the branches does not exist; they must be locked.
 */
export function insertMergeSql({
  from,
  into,
  leftOut,
}: Sides & { leftOut: readonly number[] }): Sql {
  return prepared(sql`
    with ${StoredBranch.pinSql(from, newBranchId())}, ${mergeSql({ into, leftOut })}
    select 1 / count(*) from merged`)
}

/** Closes the epoch of a branch and adds a hidden fork, which keeps that state readable. Returns its id. */
export async function insertPin(transaction: Queryable, branch: Branch): Promise<string> {
  const [pin] = await transaction.query<{ id: string }>(
    prepared(sql`with ${StoredBranch.pinSql(branch, newBranchId())} select id from pin`),
  )
  if (pin === undefined) throw new Error('a locked branch must exist')
  return pin.id
}

/** Returns the place of a pinned state in the history. A reset of its branch moves it. */
export async function getPin(transaction: Queryable, id: string): Promise<State> {
  const [pin] = await transaction.query<State>(
    prepared(sql`
    select parent_id as "branchId", fork_epoch as epoch from offshoot.branches where id = ${id}`),
  )
  if (pin === undefined) throw new Error('a pinned state must exist')
  return pin
}

/** Records that a pinned state has been merged. */
export async function insertMergeOfPin(
  transaction: Queryable,
  { pinId, into, leftOut }: { pinId: string; into: Sides['into']; leftOut: readonly number[] },
): Promise<void> {
  const rows = await transaction.query(
    prepared(sql`
    with pin as (
      select id, database_id, parent_id, fork_epoch from offshoot.branches where id = ${pinId}
    ),
    ${mergeSql({ into, leftOut })}
    select from merged`),
  )
  if (rows.length === 0) throw new Error('a pinned state must exist')
}

/** Expressions of a `with` that record the merge of the state in `pin`, and request a compaction. */
function mergeSql({ into, leftOut }: Pick<Sides, 'into'> & { leftOut: readonly number[] }): Sql {
  return sql`merged as (
      insert into offshoot.merges
        (into_branch_id, into_epoch, from_branch_id, from_epoch, base_branch_id, left_out)
      select b.id, b.epoch, pin.parent_id, pin.fork_epoch, pin.id, ${leftOut}::bigint[]
      from offshoot.branches b, pin
      where b.id = ${into.branchId}
      returning into_branch_id
    ),
    requested as (
      insert into offshoot.work (kind, database_id) select 'compact', database_id from pin
    )`
}

/** Replaces a branch by another one in all recorded merges, as the source and as the target. */
export async function updateMergesOf(
  transaction: Queryable,
  options: { branchId: string; newBranchId: string },
): Promise<void> {
  const { branchId, newBranchId: to } = options
  await allDone([
    transaction.query(sql`
      update offshoot.merges set from_branch_id = ${to} where from_branch_id = ${branchId}`),
    transaction.query(sql`
      update offshoot.merges set into_branch_id = ${to} where into_branch_id = ${branchId}`),
  ])
}
