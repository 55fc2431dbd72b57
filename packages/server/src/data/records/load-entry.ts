import { newEntryId } from '../../common/ids.js'
import { entryOf, growEntrySql, insertEntrySql } from '../../domain/log/entries.js'
import { deleteIds, insertIdsSql, PART_IDS_MAX } from '../../domain/log/loads.js'
import type { Queryable } from '../../postgres/database.js'
import { serverOf } from '../../postgres/server.js'
import { type Call, toCall } from '../../postgres/statement.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import type { Session } from '../session/session.js'

/*
 * A bulk load is an entry of the log. The ids of the records that it inserts are kept with the entry, by which the load is
 * reverted. Ids and entry are written by the transactions that write the records.
 */

/** The numbers of records that a load has written. */
interface Counts {
  readonly inserted: number
  readonly updated?: number
}

/** How a load of one table is remembered in the log. */
export class LoadEntry {
  readonly id = newEntryId()
  readonly #databaseId: string
  readonly #schemaName: string
  readonly #table: { readonly id: number; readonly name: string }
  #isAdded = false

  constructor(
    { access, branch }: Pick<Session, 'access' | 'branch'>,
    table: { id: number; name: string },
  ) {
    this.#databaseId = access.databaseId
    this.#schemaName = branch.schemaName
    this.#table = table
  }

  get #load() {
    return { entry: this.id, databaseId: this.#databaseId, tableId: this.#table.id }
  }

  /** Returns calls that keep the ids of records, in the transaction that has inserted these. */
  async keeping(transaction: OpenTransaction, ids: readonly string[]): Promise<Call[]> {
    if (ids.length === 0) return []
    const createdAt = await this.#timeIn(transaction)
    return partsOf(ids).map((part) => toCall(insertIdsSql(this.#load, part, { createdAt })))
  }

  /** Returns the time of the records that a transaction writes, unless it is that of the transaction. */
  async #timeIn({ client, run }: OpenTransaction): Promise<string | undefined> {
    const call = serverOf(client).rowTime(this.#schemaName)
    if (call === undefined) return undefined
    const [rows] = await run([call])
    return rows?.[0]?.[0] ?? undefined
  }

  /** Keeps the ids of records that are staged, and visible later. Must be called before the first of them is staged. */
  async keepStaged(database: Queryable, ids: readonly string[]): Promise<void> {
    await database.query(insertIdsSql(this.#load, ids, { isStaged: true }))
  }

  /** Forgets the ids that were staged. */
  async forget(database: Queryable): Promise<void> {
    await deleteIds(database, this.id)
  }

  /** A call that adds the entry, in the transaction that makes the records visible. */
  adding({ access, principal, requestId }: Session, counts: Counts): Call {
    const entry = entryOf({ ...access, principal: { ...principal, requestId } })
    const { id } = this
    const details = {
      ...{ ...entry.details, table: this.#table.name, ...revertibility(counts) },
      counts,
    }
    return toCall(insertEntrySql({ ...entry, id, kind: 'bulk', details }))
  }

  /**
   * A call that adds records to a load that is stored in parts. All parts count the same. `onStored` must be called when they
   * are stored.
   */
  growing(session: Session, counts: Counts): Call {
    return this.#isAdded
      ? toCall(growEntrySql(this.id, counts, revertibility(counts)))
      : this.adding(session, counts)
  }

  onStored(): void {
    this.#isAdded = true
  }
}

/** The values that were replaced are not kept. */
function revertibility({ updated = 0 }: Counts): { readonly notRevertible?: 'replaced' } {
  return updated > 0 ? { notRevertible: 'replaced' } : {}
}

function partsOf(ids: readonly string[]): (readonly string[])[] {
  const parts: (readonly string[])[] = []
  for (let start = 0; start < ids.length; start += PART_IDS_MAX) {
    parts.push(ids.slice(start, start + PART_IDS_MAX))
  }
  return parts
}
