import { withBranches } from '../../domain/branches/lock-branches.js'
import { withPin } from '../../domain/merges/pins.js'
import { StreamLayer } from '../../rows/merging/publish-stream.js'
import type { WritableTable } from '../../rows/open-branch.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import type { Storage } from '../../rows/storage.js'
import type { StagedRows } from '../../rows/writing/staged-rows.js'
import type { RecordContext } from './records.js'

/** A stream of more rows is published as a layer, because inserting them would keep forks waiting. */
export const INSERTED_ROWS_MAX = 10_000

/** How often a stream is compared again, because rows with its ids or values were written meanwhile. */
const ATTEMPTS_MAX = 2

/**
 * Publishes a long stream as a layer, whose rows the background moves to the heap. The time for which it locks the
 * branch does not depend on the number of rows. Returns false, and has no effect, if the rows must be inserted instead.
 * `finish` runs in the transaction that publishes the rows.
 */
export async function publishLongStream(
  context: RecordContext & { readonly storage: Storage },
  stream: { table: WritableTable; rows: StagedRows },
  finish: (transaction: OpenTransaction) => Promise<unknown>,
): Promise<boolean> {
  const { rows } = stream
  const { branch } = context.session
  // A pin is a fork. Without any fork, writers keep no old versions, and it should stay that way.
  if (rows.count <= INSERTED_ROWS_MAX || !rows.isLasting || !branch.hasForks) return false
  for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
    try {
      await publish(context, stream, finish)
      return true
    } catch (error) {
      if (!StreamLayer.isOutdated(error)) throw error
    }
  }
  return false
}

async function publish(
  { storage, session }: RecordContext & { readonly storage: Storage },
  { table, rows }: { table: WritableTable; rows: StagedRows },
  finish: (transaction: OpenTransaction) => Promise<unknown>,
): Promise<void> {
  const { access, branch } = session
  await storage.absorb(access.branchId)
  await withPin(storage, access, async (pin) => {
    // The session may be outdated by now, which is better known before the rows are compared.
    await branch.runReads([])
    const stream = branch.streamLayer({ table, rows, pin })
    const layer = await rows.toLayer()
    await stream.compare(storage.database)
    await withBranches(storage, [access], async (transaction) => {
      await stream.publish(transaction, layer)
      await finish(branch.inTransaction(transaction.client))
    })
  })
}
