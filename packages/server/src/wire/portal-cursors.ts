import { ident, sql } from '../postgres/sql.js'
import type { StatementRun } from './branch-runner.js'
import type { RowStream } from './row-stream.js'
import type { TransactionBlock } from './transaction-block.js'

/**
 * The cursors of portals whose rows are read in parts. PostgreSQL keeps the rows that were not asked for yet, so they take no
 * memory here. Only a transaction can have them.
 */
export class PortalCursors {
  readonly #block: TransactionBlock
  #count = 0
  /** Those whose portals are gone. */
  #spent: string[] = []

  constructor(block: TransactionBlock) {
    this.#block = block
  }

  /** Creates the cursor of a portal. Returns its name. */
  async open(run: StatementRun): Promise<string> {
    await this.#closeSpent()
    const name = `offshoot portal ${++this.#count}`
    const words = sql`declare ${ident(name)} no scroll cursor for`
    await this.#block.declare(run, { name, words, isHeld: false, isForward: true })
    return name
  }

  /** Hands on the next rows of a portal. `rowsMax` is 0 for all that are left. */
  async read(
    name: string,
    { run, rowsMax }: { run: StatementRun; rowsMax: number },
    stream: RowStream,
  ): Promise<void> {
    const { signal, timeoutMs, timeZone } = run
    const movement = { direction: 'forward', count: rowsMax || Number.POSITIVE_INFINITY } as const
    const columns = this.#block.cursorColumns(name)
    await this.#block.fetch({ name, movement, columns, signal, timeoutMs, timeZone }, stream)
  }

  /** Notes that a portal is gone. Its cursor is closed when the next one is created, or with the transaction. */
  spend(name: string | undefined): void {
    if (name !== undefined) this.#spent.push(name)
  }

  /** The transaction has ended, and its cursors with it. */
  clear(): void {
    this.#spent = []
  }

  async #closeSpent(): Promise<void> {
    const spent = this.#spent
    this.#spent = []
    for (const name of spent) {
      // The return to a savepoint has closed those that were created since.
      if (this.#block.findCursor(name) !== undefined) await this.#block.closeCursor(name)
    }
  }
}
