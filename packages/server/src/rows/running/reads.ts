import { AnswerReader, type Bounds, runBounded } from '../../postgres/bounds.js'
import { COMMIT } from '../../postgres/commit.js'
import type { Database } from '../../postgres/database.js'
import { toAppError } from '../../postgres/failures.js'
import { runPipeline } from '../../postgres/pipeline.js'
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
  /** The snapshot is consistent with the serial order of the writes. */
  readonly isSerial?: boolean
}

/** Runs reads on one snapshot. An error of `body` ends the transaction. */
export async function runSnapshot<Result>(
  database: Database,
  guard: Guard,
  body: (transaction: OpenTransaction) => Promise<Result>,
  options: SnapshotOptions = {},
): Promise<Result> {
  const { bounds, connections } = options
  const client = await connectFor({ database, guard, bounds, connections })
  const transaction = openTransaction(database, guard, { client })
  const run = async (): Promise<Result> => {
    const begin = options.isSerial ? BEGIN_READS : BEGIN_SNAPSHOT
    await runPipeline(client, [begin, guardCall(guard)])
    const result = await body(transaction).catch((error) => {
      throw confirmed(error)
    })
    await runPipeline(client, [COMMIT])
    return result
  }
  const canLose = connections !== undefined
  try {
    return await withConnection(client, () =>
      runBounded({ database, client, bounds, canLose }, run),
    )
  } catch (error) {
    throw toAppError(error)
  }
}
