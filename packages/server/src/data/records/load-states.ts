import type { Limits } from '@offshoot/contract/limits'
import { withBranches } from '../../domain/branches/lock-branches.js'
import {
  BEFORE_LOAD,
  hasCheckpoints,
  insertAfterSql,
  insertBeforeSql,
} from '../../domain/checkpoints/queries.js'
import { entryOf, insertEntrySql } from '../../domain/log/entries.js'
import { type Call, toCall } from '../../postgres/statement.js'
import { StaleError } from '../../rows/running/staleness.js'
import type { Storage } from '../../rows/storage.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import type { Session } from '../session/session.js'

/*
 * A bulk load is an entry of the log. A large one keeps the states before and after it, by which it can be reverted. Both
 * are made by the transaction that writes the records. It has the branch alone, because a record that another writer wrote
 * between both states would be taken back with the load.
 */

/** What a load has written. */
interface Load {
  readonly tableName: string
  readonly inserted: number
  readonly updated?: number
}

interface LoadContext {
  readonly storage: Storage
  readonly session: Session
  readonly limits: Limits
}

type StepsOptions = NonNullable<Parameters<Session['branch']['runSteps']>[1]>

/** How a load is remembered in the log. */
export class LoadEntry {
  readonly #session: Session
  readonly #before: { readonly id: string; readonly statement: Call } | undefined
  readonly #reason: string | undefined

  private constructor(
    session: Session,
    kept: { isKept: true } | { isKept: false; reason?: string },
  ) {
    this.#session = session
    this.#reason = kept.isKept ? undefined : kept.reason
    if (!kept.isKept) return
    const { id, statement } = insertBeforeSql(session.access, BEFORE_LOAD)
    this.#before = { id, statement: toCall(statement) }
  }

  /** Returns the entry of a load that is stored in parts. */
  static ofPart(session: Session): LoadEntry {
    return new LoadEntry(session, { isKept: false, reason: 'parts' })
  }

  /**
   * Returns the entry of a load of so many records. With `isPublished`, they are written before the branch is locked. Throws
   * a `StaleError` if the branch must keep old versions of records from now on.
   */
  static async of(
    { storage, session, limits }: LoadContext,
    { records, isPublished = false }: { records: number; isPublished?: boolean },
  ): Promise<LoadEntry> {
    if (!hasCheckpoints(limits)) return new LoadEntry(session, { isKept: false })
    if (!keepsStates(limits, records)) {
      return new LoadEntry(session, { isKept: false, reason: 'few' })
    }
    if (records > limits.revertibleRecordsLockedMax && !isPublished) {
      return new LoadEntry(session, { isKept: false, reason: 'many' })
    }
    if (!session.branch.hasForks) {
      await keepVersions(storage, session)
      throw new StaleError('the branch keeps old versions now')
    }
    return new LoadEntry(session, { isKept: true })
  }

  get isKept(): boolean {
    return this.#before !== undefined
  }

  /** The options of the transaction that writes the records. */
  get options(): StepsOptions {
    return this.#before === undefined ? {} : { isAlone: true, closing: [this.#before.statement] }
  }

  /** Calls that make the state before the load, for a transaction that has the branch alone already. */
  get opening(): readonly Call[] {
    return this.#before === undefined ? [] : [this.#before.statement]
  }

  /** Calls that make the state after the load, and the entry. They are the last ones that change the branch. */
  calls({ tableName, ...counts }: Load): readonly Call[] {
    const { access, principal, requestId } = this.#session
    const entry = entryOf({ ...access, principal: { ...principal, requestId } })
    const after = insertAfterSql(access, this.#before?.id)
    const states = { checkpoint: this.#before?.id, after: after?.id, notRevertible: this.#reason }
    const details = { ...entry.details, table: tableName, ...states, counts }
    return [
      ...(after === undefined ? [] : [toCall(after.statement)]),
      toCall(insertEntrySql({ ...entry, kind: 'bulk', details })),
    ]
  }
}

/** Returns whether a load of at least so many records keeps its states. */
export function keepsStates(limits: Limits, records: number): boolean {
  return hasCheckpoints(limits) && records >= limits.revertibleRecordsMin
}

/** Makes writers of a branch keep old versions of records, as the first fork does. */
export async function keepVersions(storage: Storage, { access }: Session): Promise<void> {
  await withBranches(storage, [access], (transaction) =>
    new StoredBranch(transaction, access.branchId).keepVersions(),
  )
}
