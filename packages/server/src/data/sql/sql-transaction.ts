import { AppError } from '@offshoot/contract/errors'
import { invalidSql } from '../../dialect/invalid-sql.js'
import { serverOf } from '../../postgres/server.js'
import type { Sql } from '../../postgres/sql.js'
import { toCall } from '../../postgres/statement.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import type { ResultColumn } from './evaluate.js'
import {
  cursorForm,
  fetchInside,
  lacksRights,
  type OpenSql,
  type ResultForm,
  type RowSink,
  type RunStatement,
  runSqlInside,
  type SqlContext,
} from './run-sql.js'
import type { SqlEngine } from './sql-engine.js'

/*
 * A transaction that a client keeps open between its statements. It holds the gate of the branch together with other
 * writers, and a connection of its own kind.
 */

/**
 * A transaction gets storage for all tables of a schema that has no more: it cannot get any when it has begun, because
 * that needs the branch alone.
 */
const TABLES_MAX = 200

/** A transaction of a client. */
interface SqlTransaction {
  run(context: SqlContext, request: { statement: RunStatement; form: ResultForm }): Promise<void>
  /** Creates a cursor. `words` precede its query, which is the statement. */
  declare(
    context: SqlContext,
    request: { statement: RunStatement; words: Sql; sink: Pick<RowSink, 'describe'> },
  ): Promise<void>
  /** Reads rows of a cursor. */
  fetch(
    context: SqlContext,
    request: { fetch: Sql; columns: readonly ResultColumn[]; sink: RowSink },
  ): Promise<void>
  /** Runs a statement about savepoints. */
  control(statement: Sql): Promise<void>
}

export interface HoldOptions {
  /** The transaction cannot write, and keeps nobody waiting. */
  readonly isReadOnly: boolean
  /** Called when others wait for the transaction. */
  onWaited(): void
}

/** Runs a transaction as long as `body` does. If that throws, the transaction is rolled back. */
export async function holdTransaction(
  context: SqlContext & Pick<SqlEngine, 'blockingWatch'>,
  { isReadOnly, onWaited }: HoldOptions,
  body: (transaction: SqlTransaction) => Promise<void>,
): Promise<void> {
  const { session, readers, bounds } = context
  const { branch, schema } = session
  if (!isReadOnly && schema.tableNames.length <= TABLES_MAX) {
    const tables = schema.tableNames.map((name) => session.table(name))
    // Another transaction may have created the storage, and is open already: it should not be ended for nothing.
    if (tables.some(({ writer }) => writer === undefined)) await branch.runReads([])
    await branch.makeWritable(tables)
  }
  const role = await readers.find(branch.schemaName)
  const { workspaceId } = session.access
  const connections = {
    connect: () =>
      context.connections.connect(workspaceId, { lane: 'open', signal: bounds.signal }),
  }
  const hold = async (transaction: OpenTransaction) => {
    const { processID } = transaction.client as unknown as { processID: number }
    const stopWatching = context.blockingWatch.watch(processID, onWaited)
    try {
      await body(inside(transaction))
    } finally {
      stopWatching()
    }
  }
  const renewing = async (work: () => Promise<void>) => {
    try {
      await work()
    } catch (error) {
      if (await lacksRights(context, branch.schemaName, error)) {
        await readers.renew(branch.schemaName)
        throw new AppError('retry_limit', 'the privileges of the database were renewed', {
          cause: error,
        })
      }
      throw error
    }
  }
  const inside = (transaction: OpenTransaction): SqlTransaction => {
    let countsOn = false
    const open = (): OpenSql => ({ transaction, role, countsOn })
    return {
      run: (own, request) => renewing(() => runSqlInside(own, open(), request)),
      async declare(own, { statement, words, sink }) {
        if (!serverOf(transaction.client).wrapsQueries) {
          throw invalidSql('DECLARE is not supported on a cluster')
        }
        const form = cursorForm(words, sink)
        await renewing(() => runSqlInside(own, open(), { statement, form }))
        countsOn = true
      },
      fetch: (own, request) => renewing(() => fetchInside(own, open(), request)),
      async control(statement) {
        await transaction.run([{ ...toCall(statement), isUnnamed: true }])
      },
    }
  }
  if (isReadOnly) await branch.runSnapshot(hold, { connections, isSerial: true })
  else await branch.runSteps(hold, { connections, isOnce: true, onWaited })
}
