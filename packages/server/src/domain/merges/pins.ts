import type { Limits } from '@offshoot/contract/limits'
import { allDone } from '../../common/all-done.js'
import { eachApart } from '../../common/each-apart.js'
import type { Database } from '../../postgres/database.js'
import { runTransaction, type Transaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import type { Work } from '../../postgres/work.js'
import { DatabaseSchema } from '../../rows/layout/database-schema.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import { Difference } from '../../rows/merging/difference.js'
import type { Storage } from '../../rows/storage.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import type { BranchAccess } from '../access/resolve.js'
import { getStartOf, getState } from '../branches/branch-state.js'
import { withBranches } from '../branches/lock-branches.js'
import { isPinOf } from '../checkpoints/queries.js'
import { getPin, insertPin } from './merge-base.js'
import { deleteUnusedBranches } from './unused-branches.js'

/*
 * Work that takes long is compared with a pinned state of a branch: its epoch is closed, and a hidden fork keeps
 * the state. So it needs no gate, and what was written since is found by its epoch.
 */

/** A pinned state of a branch. */
interface Pin {
  readonly id: string
  readonly rows: BranchRows
}

/**
 * Returns whether a branch has changed since a pin of it: by a write, an edit of its schema or a reset. Stops at the first
 * changed row.
 */
export async function isChangedSince(
  transaction: Transaction,
  access: BranchAccess,
  { pinId, limits }: { pinId: string; limits: Limits },
): Promise<boolean> {
  const [place, before, after] = await allDone([
    getPin(transaction, pinId),
    getStartOf(transaction, pinId),
    getState(transaction, access),
  ])
  // A reset has moved the pinned state to a hidden branch.
  if (place.branchId !== access.branchId) return true
  if (before.rows.schemaId !== after.rows.schemaId) return true
  const form = { limits, jsonAsText: false }
  const differences = after.schema.tables.map((table) => {
    const base = { rows: before.rows, table }
    return new Difference({ table, form, base, after: { rows: after.rows, table } })
  })
  return Difference.areMany(transaction, differences, { limit: 0, ownRowsMax: Infinity })
}

/** Runs work with a pin of a branch, and removes the pin. */
export async function withPin<Result>(
  storage: Storage,
  access: BranchAccess,
  body: (pin: Pin) => Promise<Result>,
): Promise<Result> {
  const { database } = storage
  await deleteLostPins(database, access.databaseId)
  const id = await withBranches(storage, [access], (transaction) => insertPin(transaction, access))
  try {
    const rows = await new StoredBranch(database, id).findStartRows()
    if (rows === undefined) throw new Error('a pin must exist')
    return await body({ id, rows })
  } finally {
    // The work is done by now. A pin that could not be deleted is found by the background.
    await deletePins(database, [id]).catch(() => undefined)
  }
}

/** Deletes pins, except those that a merge was recorded with. */
export function deletePins(database: Database, ids: readonly string[]): Promise<void> {
  return runTransaction(database, (transaction) => deleteUnusedBranches(transaction, ids), {
    // After waiting for a lock, each statement must see what was committed meanwhile.
    isolation: 'read committed',
  })
}

/** After this time, the process that pinned a state must have ended. */
export const PIN_MINUTES_MAX = 60

/** Deletes the pins and staged rows of processes that have crashed. */
export async function deleteLostPins(database: Database, databaseId: string): Promise<void> {
  const lost = await database.query<{ id: string }>(sql`
    select b.id
    from offshoot.branches b
    where b.database_id = ${databaseId}
      and b.deleted_at < now() - make_interval(mins => ${PIN_MINUTES_MAX})
      and not exists (select from offshoot.branches f where f.parent_id = b.id)
      and not exists (select from offshoot.merges m where m.base_branch_id = b.id)
      and not ${isPinOf(sql`b.id`)}`)
  if (lost.length > 0) {
    await deletePins(
      database,
      lost.map(({ id }) => id),
    )
  }
  await new DatabaseSchema(databaseId).dropLostStages(database)
}

/** Databases that one step looks at. */
const STEP_DATABASES = 10

/** Deletes the pins and staged rows that crashed processes have left in the next databases. */
export async function collectPins(
  database: Database,
  after: Pick<Work, 'position'>,
): Promise<void> {
  const databases = await database.query<{ id: string }>(sql`
    select id::text as id
    from offshoot.databases
    where id > ${after.position ?? '0'}::bigint
    order by id
    limit ${STEP_DATABASES}`)
  after.position = databases.length < STEP_DATABASES ? null : (databases.at(-1)?.id ?? null)
  await eachApart(databases, ({ id }) => deleteLostPins(database, id))
}
