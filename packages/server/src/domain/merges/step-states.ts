import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../../postgres/database.js'
import { empty, sql } from '../../postgres/sql.js'
import type { StoredSchema } from '../../rows/columns/stored-schema.js'
import type { TableBase } from '../../rows/merging/table-states.js'
import type { Storage } from '../../rows/storage.js'
import type { BranchAccess } from '../access/resolve.js'
import { type BranchState, getStartOf } from '../branches/branch-state.js'
import { getCheckpointAt } from '../checkpoints/find-at.js'
import { findLoad, readIds } from '../log/loads.js'
import { type EntryRow, findEntry } from '../log/queries.js'
import { withoutAdded } from '../schemas/additions.js'

/** A change of a branch that can be taken back. */
export interface Step {
  /** The branch that was changed. */
  readonly branchId: string
  /** How a message names the change. */
  readonly name: string
  /** What the log tells about a revert of the change. */
  readonly details: Readonly<Record<string, unknown>>
  /** What is known of it. */
  readonly kept: Kept
  /** The bulk load whose records a revert of this change brings back. */
  readonly restores?: { readonly load: string; readonly since: Date } | undefined
}

/**
 * The ids of checkpoints before and after a change, or of what a migration has added to the schema, or the records that a bulk
 * load has inserted.
 */
type Kept =
  | { readonly before: string; readonly after: string }
  | { readonly added: readonly number[] }
  | { readonly loaded: LoadedRows }

type LoadedRows = NonNullable<TableBase['loaded']>

/** The change that a request names: an entry of the log, or two checkpoints. */
export interface StepName {
  readonly entry?: string | undefined
  readonly from?: string | undefined
  readonly to?: string | undefined
}

/** A change that is found, before the ids of a bulk load are read. */
type FoundStep = Omit<Step, 'kept'> & {
  readonly kept: Exclude<Kept, { loaded: unknown }> | { readonly load: LoadName }
}

interface LoadName {
  readonly entry: string
  readonly tableId: number
}

/** Finds the change that a request names. Throws if there is none, or if it cannot be taken back. */
export async function getStep(
  database: Queryable,
  access: BranchAccess,
  { entry, from, to }: StepName,
): Promise<FoundStep> {
  const isPair = from !== undefined && to !== undefined
  if ((entry === undefined) !== isPair || (!isPair && (from ?? to) !== undefined)) {
    throw new AppError(
      'invalid_request',
      'body: needs either the field [entry], or the fields [from] and [to]',
    )
  }
  if (entry !== undefined) return getEntryStep(database, access, entry)
  return getPairStep(database, access, { from: from ?? '', to: to ?? '' })
}

async function getEntryStep(
  database: Queryable,
  { branchId, branchName }: BranchAccess,
  entry: string,
): Promise<FoundStep> {
  const found = await findEntry(database, { branchId }, entry)
  if (found === undefined) {
    throw new AppError('entry_not_found', `branch [${branchName}]: entry [${entry}] not found`)
  }
  const { checkpoint: before, after, added, removedLoad, restoredLoad } = found.details
  const step = { branchId, name: `entry [${entry}]`, details: { reverts: entry } }
  if (Array.isArray(added)) return { ...step, kept: { added } }
  if (typeof before === 'string' && typeof after === 'string') {
    const kept = { before, after }
    if (typeof restoredLoad === 'string') {
      return { ...step, details: { ...step.details, removedLoad: restoredLoad }, kept }
    }
    if (typeof removedLoad !== 'string') return { ...step, kept }
    const restores = { load: removedLoad, since: found.now }
    return { ...step, details: { ...step.details, restoredLoad: removedLoad }, kept, restores }
  }
  if (found.kind === 'bulk') {
    const load = await getLoad(database, { id: entry, ...found })
    return { ...step, details: { ...step.details, removedLoad: entry }, kept: { load } }
  }
  throw new AppError(
    'not_revertible',
    `entry [${entry}]: this [${found.kind}] has kept no states, so it cannot be reverted; revert from one checkpoint to another instead`,
  )
}

/** Returns what is known of a bulk load. Throws if that is not enough to take it back. */
async function getLoad(
  database: Queryable,
  { id: entry, details }: Pick<EntryRow, 'id' | 'details'>,
): Promise<LoadName> {
  if (details.notRevertible !== undefined) {
    throw new AppError(
      'not_revertible',
      `entry [${entry}]: the bulk load has replaced records, whose values are not kept, so it cannot be reverted; revert from one checkpoint to another instead`,
    )
  }
  const { inserted } = details.counts as { readonly inserted: number }
  const load = await findLoad(database, entry)
  if (load !== undefined && load.count === inserted) return { entry, tableId: load.tableId }
  if (inserted === 0) return { entry, tableId: 0 }
  throw new AppError(
    'state_collected',
    `entry [${entry}]: the ids of its records are not kept any more, so it cannot be reverted`,
  )
}

/** Runs work with a change whose records, if it is a bulk load, are known to PostgreSQL. */
export async function withStep<Result>(
  storage: Storage,
  { databaseId }: BranchAccess,
  { kept, ...step }: FoundStep,
  body: (step: Step) => Promise<Result>,
): Promise<Result> {
  if (!('load' in kept)) return body({ ...step, kept })
  const { entry, tableId } = kept.load
  const loaded = await storage.createLoadedRows({ databaseId, tableId })
  try {
    for await (const part of readIds(storage.database, entry)) await loaded.add(part)
    await loaded.end()
    return await body({ ...step, kept: { loaded } })
  } finally {
    // The revert is decided by now. What could not be dropped is found by the background.
    await loaded.drop().catch(() => undefined)
  }
}

async function getPairStep(
  database: Queryable,
  access: BranchAccess,
  { from, to }: { from: string; to: string },
): Promise<FoundStep> {
  const before = await getCheckpointAt(database, access, from)
  const after = await getCheckpointAt(database, access, to)
  const isLater = after.createdAt > before.createdAt
  if (!isLater && (after.createdAt < before.createdAt || after.id <= before.id)) {
    throw new AppError(
      'invalid_request',
      `body: field [to]: checkpoint [${after.name}] is not after checkpoint [${before.name}]`,
    )
  }
  return {
    branchId: access.branchId,
    name: `the changes from checkpoint [${before.name}] to [${after.name}]`,
    details: { fromCheckpoint: before.id, toCheckpoint: after.id },
    kept: { before: before.id, after: after.id },
  }
}

/** Throws if a table was removed and brought back: nobody knows its records any more by when they were created. */
function requireNotRestored(
  { tables, sameIds = [] }: StoredSchema,
  { tableId, name }: { tableId: number; name: string },
): void {
  const live = new Set(tables.map(({ id }) => id))
  const isRestored = sameIds.some((ids) => ids.includes(tableId) && ids.some((id) => live.has(id)))
  if (live.has(tableId) || !isRestored) return
  throw new AppError(
    'not_revertible',
    `${name}: its table was removed and brought back since, so it cannot be reverted; revert from one checkpoint to another instead`,
  )
}

/**
 * Returns the states before and after a change of a branch, whose present state is given. With `locks`, they are kept until
 * the transaction ends.
 */
export async function getStepStates(
  transaction: Queryable,
  { branchId, name, kept }: Step,
  { now, locks, limits }: { now: BranchState; locks: boolean; limits: Limits },
): Promise<Record<'before' | 'after', BranchState> & { loaded?: LoadedRows | undefined }> {
  if ('loaded' in kept) {
    // A table that was removed since has no records to take back.
    const { loaded } = kept
    requireNotRestored(now.schema, { tableId: loaded.tableId, name })
    const after = { rows: now.rows, schema: now.schema }
    const before = { rows: loaded.removedFrom(now.rows), schema: now.schema }
    return { before, after, loaded }
  }
  if ('added' in kept) {
    // Additions have changed no rows.
    const schema = await withoutAdded(now.schema, { added: kept.added, name, limits })
    return { before: { rows: now.rows, schema }, after: { rows: now.rows, schema: now.schema } }
  }
  const { before, after } = kept
  const pins = await transaction.query<{ id: string; pinId: string }>(sql`
    select c.id, b.id as "pinId"
    from offshoot.checkpoints c
    join offshoot.branches b on b.id = c.pin_id
    where c.branch_id = ${branchId} and c.id = any(${[before, after]}::text[])
    order by b.id
    ${locks ? sql`for key share of b` : empty}`)
  const stateOf = (id: string): Promise<BranchState> => {
    const pin = pins.find((each) => each.id === id)
    if (pin !== undefined) return getStartOf(transaction, pin.pinId)
    throw new AppError(
      'state_collected',
      `${name}: a checkpoint from before or after it was deleted, so it cannot be reverted any more`,
    )
  }
  return { before: await stateOf(before), after: await stateOf(after) }
}
