import { invalidSql } from '../../dialect/invalid-sql.js'
import { cutName } from '../../dialect/scope.js'
import { sql } from '../../postgres/sql.js'
import { toCall } from '../../postgres/statement.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import type { TransactionContext } from '../records/transaction.js'
import type { PlannedOperation } from '../records/transaction-plan.js'
import { runOperations, type Write } from './write-records.js'

const SAVE = [toCall(sql`savepoint "with steps"`)]
const TAKE_BACK = [toCall(sql`rollback to "with steps"`), toCall(sql`release "with steps"`)]

/** The writes of the steps of a statement. They run as late as possible, because all steps see the tables as they were before. */
export class PendingWrites {
  readonly #context: TransactionContext
  readonly #transaction: OpenTransaction
  #writes: { readonly write: Write; readonly operations: readonly PlannedOperation[] }[] = []
  /** The records that a step changes or deletes, by their tables. */
  readonly #changed = new Map<Write['table'], Set<string>>()

  constructor(context: TransactionContext, transaction: OpenTransaction) {
    this.#context = context
    this.#transaction = transaction
  }

  /** Adds what a step writes. Throws if another one changes the same record: PostgreSQL does only one of both. */
  add(write: Write, operations: readonly PlannedOperation[]): void {
    const { table } = write
    const changed = this.#changed.get(table) ?? new Set()
    const ids = operations.flatMap(({ kind, id }) => (kind === 'insert' ? [] : [id]))
    const repeated = ids.find((id) => changed.has(id))
    if (repeated !== undefined) {
      throw invalidSql(
        `table [${table.codec.table.name}]: two parts of a statement cannot change the same record [${repeated}]`,
      )
    }
    for (const id of ids) changed.add(id)
    this.#changed.set(table, changed)
    this.#writes.push({ write, operations })
  }

  /** Runs `read` as if everything was written. It stays written unless one of the given tables has changed. */
  async readAfter<Result>(readLater: readonly string[], read: () => Promise<Result>) {
    const isSeen = this.#writes.some(({ write }) =>
      readLater.includes(cutName(write.table.codec.table.name)),
    )
    if (!isSeen) {
      await this.flush()
      return read()
    }
    await this.#transaction.run(SAVE)
    await this.#runAll()
    const result = await read()
    await this.#transaction.run(TAKE_BACK)
    return result
  }

  /** Writes everything. */
  async flush(): Promise<void> {
    await this.#runAll()
    this.#writes = []
  }

  async #runAll(): Promise<void> {
    for (const { write, operations } of this.#writes) {
      await runOperations(this.#context, write, operations)
    }
  }
}
