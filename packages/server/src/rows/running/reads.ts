import { AnswerReader, type Bounds, runBounded } from '../../postgres/bounds.js'
import { COMMIT } from '../../postgres/commit.js'
import type { Database } from '../../postgres/database.js'
import { toAppError } from '../../postgres/failures.js'
import { runPipeline } from '../../postgres/pipeline.js'
import { serverOf } from '../../postgres/server.js'
import type { Call, TextRows } from '../../postgres/statement.js'
import { BEGIN_READS, BEGIN_SNAPSHOT } from './calls.js'
import { brokenConnection, withConnection } from './connection.js'
import { type Guard, guardCall, ownerOf } from './guard.js'
import { confirmed, toStaleError } from './staleness.js'
import {
  type Connections,
  connectFor,
  type OpenTransaction,
  openTransaction,
} from './transactions.js'

/** Runs reads in one round trip. Each sees what was committed when it started (read committed). */
export async function runReads(
  database: Database,
  guard: Guard,
  calls: readonly Call[],
  bounds?: Bounds,
): Promise<TextRows[]> {
  const owner = ownerOf(guard)
  const client = await database.acquire({ owner, signal: bounds?.signal })
  let broken: Error | undefined
  try {
    const reader = new AnswerReader(database, { client, owner })
    const run = () => reader.run([guardCall(guard), ...calls])
    const [, ...rows] = await runBounded({ database, client, bounds }, run)
    return rows
  } catch (error) {
    broken = brokenConnection(error)
    throw toAppError(toStaleError(error))
  } finally {
    client.release(broken)
  }
}

export interface SnapshotOptions {
  readonly bounds?: Bounds | undefined
  readonly connections?: Connections | undefined
  readonly isAtOnce?: boolean
  /** The snapshot is consistent with the serial order of the writes. */
  readonly isSerial?: boolean
}

/**
 * Runs reads on one snapshot. An error of `body` ends the transaction. With `isAtOnce`, `body` knows all of its reads from
 * the start: each of its calls of `run` is a transaction of its own, in a single round trip. Connections for SQL of users
 * read one snapshot in each transaction, so nothing has to begin it.
 */
export async function runSnapshot<Result>(
  database: Database,
  guard: Guard,
  body: (transaction: OpenTransaction) => Promise<Result>,
  options: SnapshotOptions = {},
): Promise<Result> {
  const { bounds, connections, isAtOnce = false } = options
  const client = await connectFor({ database, guard, bounds, connections })
  const transaction = openTransaction(database, guard, { client })
  const opening = [options.isSerial ? BEGIN_READS : BEGIN_SNAPSHOT, guardCall(guard)]
  const runAtOnce = () =>
    body({
      client,
      run: async (calls) => {
        if (connections !== undefined && serverOf(client).joinsCalls) {
          const [, ...rows] = await transaction.run([guardCall(guard), ...calls])
          return rows
        }
        const rows = await transaction.run([...opening, ...calls, COMMIT])
        return rows.slice(opening.length, -1)
      },
    })
  const runInSteps = async (): Promise<Result> => {
    await runPipeline(client, opening)
    const result = await body(transaction).catch((error) => {
      throw confirmed(error)
    })
    await runPipeline(client, [COMMIT])
    return result
  }
  const canLose = connections !== undefined
  try {
    return await withConnection(client, () => {
      return runBounded({ database, client, bounds, canLose }, isAtOnce ? runAtOnce : runInSteps)
    })
  } catch (error) {
    throw toAppError(error)
  }
}
