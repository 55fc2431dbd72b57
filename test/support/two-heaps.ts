import { Database } from '../../packages/server/src/postgres/database.js'
import { runTransaction } from '../../packages/server/src/postgres/run-transaction.js'
import { type Sql, sql } from '../../packages/server/src/postgres/sql.js'
import { createTables } from '../../packages/server/src/rows/heaps/heap-ddl.js'
import { DatabaseSchema } from '../../packages/server/src/rows/layout/database-schema.js'
import type { Layout } from '../../packages/server/src/rows/layout/layout.js'
import { createTestDatabase } from './database.js'

/* The heaps 1 and 2 of a table, without branches, for tests of how PostgreSQL reads them. */

export const PEOPLE = {
  id: 1,
  name: 'people',
  columns: [{ id: 2, name: 'age', type: 'int' as const }],
}

export const heapOf = (heapId: string) => ({ databaseId: '1', heapId, columnIds: new Set([2]) })

/** The layout of a branch whose levels have the given heaps. */
export const layoutOfHeaps = (
  ...levels: readonly { heapId: string; asOf: number | undefined }[]
): Layout => ({
  branchId: 'any',
  databaseId: '1',
  stamp: '1',
  schemaId: '1',
  epoch: 1,
  latestFork: 0,
  hasForks: false,
  resets: 0,
  levels: levels.map(({ heapId, asOf }, level) => ({
    branchId: `b${level}`,
    asOf,
    heaps: new Map([[PEOPLE.id, heapOf(heapId)]]),
    layers: new Map(),
  })),
})

export interface TwoHeaps {
  readonly database: Database
  planOf(query: Sql): Promise<string>
  close(): Promise<void>
}

export async function createTwoHeaps(): Promise<TwoHeaps> {
  const own = await createTestDatabase()
  const database = new Database({ poolMax: 1, statementTimeoutMs: 0, onIdleError: () => undefined })
  database.connect({ url: own.url })
  await runTransaction(database, async (transaction) => {
    await new DatabaseSchema('1').create(transaction)
    await createTables(
      transaction,
      ['1', '2'].map((heapId) => ({ databaseId: '1', heapId, table: PEOPLE })),
    )
  })
  return {
    database,
    async planOf(query) {
      const rows = await database.query<{ 'QUERY PLAN': string }>(sql`explain (costs off) ${query}`)
      return rows.map((row) => row['QUERY PLAN']).join('\n')
    },
    async close() {
      await database.close()
      await own.close()
    },
  }
}
