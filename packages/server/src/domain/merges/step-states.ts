import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../../postgres/database.js'
import { empty, sql } from '../../postgres/sql.js'
import type { BranchAccess } from '../access/resolve.js'
import { type BranchState, getStartOf } from '../branches/branch-state.js'
import { getCheckpointAt } from '../checkpoints/find-at.js'
import { type EntryRow, findEntry } from '../log/queries.js'
import { withoutAdded } from '../schemas/additions.js'

/** A change of a branch that can be taken back. */
export interface Step {
  /** How a message names the change. */
  readonly name: string
  /** What the log tells about a revert of the change. */
  readonly details: Readonly<Record<string, unknown>>
  /** The ids of checkpoints before and after it, or of what a migration has added to the schema. */
  readonly kept:
    | { readonly before: string; readonly after: string }
    | { readonly added: readonly number[] }
}

/** The change that a request names: an entry of the log, or two checkpoints. */
export interface StepName {
  readonly entry?: string | undefined
  readonly from?: string | undefined
  readonly to?: string | undefined
}

/** Finds the change that a request names. Throws if there is none, or if it cannot be taken back. */
export async function getStep(
  database: Queryable,
  access: BranchAccess,
  { entry, from, to }: StepName,
): Promise<Step> {
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
): Promise<Step> {
  const found = await findEntry(database, { branchId }, entry)
  if (found === undefined) {
    throw new AppError('entry_not_found', `branch [${branchName}]: entry [${entry}] not found`)
  }
  const { checkpoint: before, after, added } = found.details
  const step = { name: `entry [${entry}]`, details: { reverts: entry } }
  if (Array.isArray(added)) return { ...step, kept: { added } }
  if (typeof before === 'string' && typeof after === 'string') {
    return { ...step, kept: { before, after } }
  }
  throw new AppError(
    'not_revertible',
    `entry [${entry}]: ${whyNot(found)}, so it cannot be reverted; revert from one checkpoint to another instead`,
  )
}

/** Why a bulk load has kept no states. */
const LOAD_REASONS: Readonly<Record<string, string>> = {
  few: 'a bulk load of so few records keeps no states',
  many: 'the bulk load has more records than can be written while others wait, so it has kept no states',
  parts: 'a bulk load that is stored in parts keeps no states',
}

function whyNot({ kind, details }: Pick<EntryRow, 'kind' | 'details'>): string {
  const { notRevertible } = details
  const reason = typeof notRevertible === 'string' ? LOAD_REASONS[notRevertible] : undefined
  return reason ?? `this [${kind}] has kept no states`
}

async function getPairStep(
  database: Queryable,
  access: BranchAccess,
  { from, to }: { from: string; to: string },
): Promise<Step> {
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
    name: `the changes from checkpoint [${before.name}] to [${after.name}]`,
    details: { fromCheckpoint: before.id, toCheckpoint: after.id },
    kept: { before: before.id, after: after.id },
  }
}

/**
 * Returns the states before and after a change of a branch, whose present state is given. With `locks`, they are kept until
 * the transaction ends.
 */
export async function getStepStates(
  transaction: Queryable,
  { name, kept }: Step,
  { now, locks, limits }: { now: BranchState; locks: boolean; limits: Limits },
): Promise<Record<'before' | 'after', BranchState>> {
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
    where c.id = any(${[before, after]}::text[])
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
