import { AppError } from '@offshoot/contract/errors'
import type { Sql } from '../../postgres/sql.js'
import { toCall } from '../../postgres/statement.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import {
  lacksRights,
  type ResultForm,
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
  const reader = await readers.find(branch.schemaName)
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
  const inside = (transaction: OpenTransaction): SqlTransaction => ({
    async run(own, request) {
      try {
        await runSqlInside(own, transaction, { ...request, reader })
      } catch (error) {
        if (await lacksRights(context, branch.schemaName, error)) {
          await readers.renew(branch.schemaName)
          throw new AppError('retry_limit', 'the privileges of the database were renewed', {
            cause: error,
          })
        }
        throw error
      }
    },
    async control(statement) {
      await transaction.run([{ ...toCall(statement), isUnnamed: true }])
    },
  })
  if (isReadOnly) await branch.runSnapshot(hold, { connections, isSerial: true })
  else await branch.runSteps(hold, { connections, isOnce: true, onWaited })
}
