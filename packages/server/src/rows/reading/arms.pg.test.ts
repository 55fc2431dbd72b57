import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../../../../../test/support/database.js'
import { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { compileTable } from '../columns/table-codec.js'
import { createTables } from '../heaps/heap-ddl.js'
import { DatabaseSchema } from '../layout/database-schema.js'
import { heapName, type Layout, pastName } from '../layout/layout.js'
import { joinVisible, selectVisible } from './arms.js'

/*
 * How PostgreSQL looks up single rows. The statistics are those of a table before the latest fork: no row was changed
 * after the epoch that is read. Rows that were changed since are not in the statistics.
 */

let own: TestDatabase
let database: Database

const table = { id: 1, name: 'people', columns: [{ id: 2, name: 'age', type: 'int' as const }] }
const codec = compileTable(table, { limits: LIMITS, jsonAsText: false })
const heapOf = (heapId: string) => ({ databaseId: '1', heapId, columnIds: new Set([2]) })

/** A fork with rows of its own, of a branch as of epoch 2. */
const fork: Layout = {
  branchId: 'fork',
  databaseId: '1',
  stamp: '1',
  schemaId: '1',
  epoch: 1,
  latestFork: 0,
  hasForks: false,
  resets: 0,
  levels: ['1', '2'].map((heapId, level) => ({
    branchId: `b${level}`,
    asOf: level === 0 ? undefined : 2,
    heaps: new Map([[1, heapOf(heapId)]]),
    layers: new Map(),
  })),
}

const ROWS = 5000

beforeAll(async () => {
  own = await createTestDatabase()
  database = new Database({ poolMax: 1, statementTimeoutMs: 0, onIdleError: () => undefined })
  database.connect({ url: own.url })
  await runTransaction(database, async (transaction) => {
    await new DatabaseSchema('1').create(transaction)
    await createTables(
      transaction,
      ['1', '2'].map((heapId) => ({ databaseId: '1', heapId, table })),
    )
  })
  const [heap, past] = [heapName(heapOf('2')), pastName(heapOf('2'))]
  const change = (until: number) => sql`
    insert into ${past} (id, epoch, until) select 'r' || n, ${until - 1}, ${until}
    from generate_series(1, ${ROWS}) n`
  await database.query(sql`
    insert into ${heap} (id, epoch) select 'r' || n, 3 from generate_series(1, ${ROWS}) n`)
  await database.query(sql`alter table ${past} set (autovacuum_enabled = off)`)
  await database.query(change(2))
  await database.query(sql`analyze ${heap}`)
  await database.query(sql`analyze ${past}`)
  await database.query(change(3))
})
afterAll(async () => {
  await database?.close()
  await own?.close()
})

async function planOf(query: Sql): Promise<string> {
  const rows = await database.query<{ 'QUERY PLAN': string }>(sql`explain (costs off) ${query}`)
  return rows.map((row) => row['QUERY PLAN']).join('\n')
}

it('A row of an earlier state is looked up by its id, not among all that were changed since', async () => {
  const ids = sql`(select 'r' || n as id from generate_series(1, 100) n) k`
  const lookups = sql`
    select r.id from ${ids} ${joinVisible(fork, codec, { id: sql`k.id`, alias: sql`r` })}`
  expect(await database.query(lookups)).toHaveLength(100)
  const plan = await planOf(lookups)
  expect(plan).toContain('past_2_pkey')
  expect(plan).not.toContain('past_2_until_idx')
})

it('A row of an inherited state is looked for by its id in the nearer ones', async () => {
  const above: Layout = {
    ...fork,
    levels: [
      { branchId: 'top', asOf: undefined, heaps: new Map([[1, heapOf('1')]]), layers: new Map() },
      ...fork.levels.slice(1),
      { branchId: 'base', asOf: 2, heaps: new Map([[1, heapOf('1')]]), layers: new Map() },
    ],
  }
  const plan = await planOf(sql`select id from (${selectVisible(above, codec)}) v`)
  expect(plan).toContain('past_2_pkey')
})
