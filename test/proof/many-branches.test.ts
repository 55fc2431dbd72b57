import { afterAll, beforeAll, describe, expect, it as test } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { createTestDatabase, listWorkers, type TestDatabase } from '../support/database.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * The cost of an operation on one branch must not depend on the number of branches. PostgreSQL counts the rows that
 * statements read, and has the counts of a connection at the latest when it has ended. So each operation is run by a
 * process of its own.
 */

const BRANCHES = 2000
/** Connections make a plan for all values of a prepared statement when they have run it five times. */
const TIMES = 8
/** Upper limit of rows of the catalogue that an operation reads. A reset, which reads most, reads about 50. */
const READ_MAX = 200

// The catalogue of a cluster is on its coordinator, which plans the same statements.
const it = test.skipIf((await listWorkers()).length > 0)

const DATABASE = 'many'
let own: TestDatabase
let first: TestService

/** Runs something with a process of its own. Its counts are complete afterwards. */
async function withService(run: (branches: TestBranches) => Promise<unknown>): Promise<void> {
  const service = await createTestService({ url: own.url })
  try {
    await run(new TestBranches(first, DATABASE, service))
  } finally {
    await service.close()
  }
  await until(async () => (await countConnections()) === 0)
}

async function countConnections(): Promise<number> {
  const { rows } = await own.pool.query(`
    select count(*)::integer as count
    from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`)
  return rows[0].count
}

beforeAll(async () => {
  own = await createTestDatabase({ copiesCatalogue: true })
  first = await createTestService({ url: own.url })
  const branches = await TestBranches.create(first, DATABASE, {
    items: [{ name: 'value', type: 'int' }],
  })
  await branches.put('main', 'items', 'a', { value: 1 })
  await branches.fork('like')
  // The API would take longer.
  await first.database.query(sql`
    insert into offshoot.branches (id, database_id, name, schema_id, last_migration_id, metadata, started_from,
      fork_schema_id, protected, parent_id, fork_epoch)
    select 'bb_filled_' || n, database_id, 'filled' || n, schema_id, last_migration_id, metadata, started_from,
      fork_schema_id, protected, parent_id, n + 1
    from offshoot.branches, generate_series(1, ${BRANCHES}) n
    where name = 'like'`)
  await first.database.query(sql`
    insert into offshoot.heaps (database_id, branch_id, table_id, column_ids)
    select h.database_id, b.id, h.table_id, h.column_ids
    from offshoot.heaps h, offshoot.branches b
    where b.name like 'filled%'`)
  await first.database.query(sql`
    insert into offshoot.merges (into_branch_id, into_epoch, from_branch_id, from_epoch, base_branch_id, left_out)
    select id, 1, parent_id, fork_epoch, id, '{}' from offshoot.branches where name like 'filled%'`)
  await first.database.query(sql`
    update offshoot.branches set epoch = ${BRANCHES + 2}, stamp = nextval('offshoot.stamps') where name = 'main'`)
  await first.database.query(sql`analyze`)
  await first.close()
})
afterAll(() => own.close())

type Step = (branches: TestBranches, name: string) => Promise<unknown>

/** Returns how many rows of each table an operation reads, on average. `before` is not counted. */
async function rowsRead(before: Step, operation: Step): Promise<Record<string, number>> {
  const names = Array.from(
    { length: TIMES },
    (_, n) => `${expect.getState().currentTestName}-${n}`,
  ).map((name) => name.replaceAll(/[^a-z0-9]/gi, '-'))
  const each = (step: Step) =>
    withService(async (branches) => {
      for (const name of names) await step(branches, name)
    })
  const count = async () => {
    const { rows } = await own.pool.query(`
      select t.relname as name, t.seq_tup_read::integer + coalesce((
          select sum(i.idx_tup_read)::integer from pg_stat_user_indexes i where i.relid = t.relid
        ), 0) as read
      from pg_stat_user_tables t
      where t.schemaname = 'offshoot'`)
    return new Map<string, number>(rows.map(({ name, read }) => [name, read]))
  }
  if (before !== nothing) await each(before)
  const start = await count()
  await each(operation)
  const end = await count()
  const read = [...end].map(([name, total]) => [name, (total - (start.get(name) ?? 0)) / TIMES])
  return Object.fromEntries(read)
}

const call = async (branches: TestBranches, ...options: Parameters<TestBranches['call']>) =>
  expectOk(await branches.call(...options))

const nothing: Step = async () => undefined
const fork: Step = (branches, name) => branches.fork(name)
const forkAndWrite: Step = async (branches, name) => {
  await branches.fork(name)
  await branches.put(name, 'items', name, { value: 1 })
}
const forkTwice: Step = async (branches, name) => {
  await forkAndWrite(branches, name)
  await branches.fork(`${name}-2`, name)
  await branches.put(`${name}-2`, 'items', name, { value: 2 })
}

describe('with many branches, few rows of the catalogue are read', () => {
  it.each<[string, Step, Step]>([
    ['to fork the default branch', nothing, (b, name) => call(b, name, 'PUT', '', {})],
    ['to fork a named branch', nothing, fork],
    ['to fork a fork', fork, (b, name) => b.fork(`${name}-2`, name)],
    ['to read a record', fork, (b, name) => b.record(name, 'items', 'a')],
    ['to write first', fork, (b, name) => b.put(name, 'items', 'a', { value: 2 })],
    ['to write again', forkAndWrite, (b, name) => b.put(name, 'items', 'a', { value: 2 })],
    ['to query', fork, (b, name) => call(b, name, 'POST', '/tables/items/query', {})],
    ['to read a branch', fork, (b, name) => call(b, name, 'GET', '')],
    ['to measure a branch', fork, (b, name) => call(b, name, 'GET', '/stats')],
    [
      'to edit a schema',
      fork,
      (b, name) =>
        b.edit(name, { addColumn: { table: 'items', column: { name: 'extra', type: 'int' } } }),
    ],
    ['for a difference', forkAndWrite, (b, name) => call(b, name, 'GET', '/diff')],
    ['to merge into a fork', forkTwice, (b, name) => call(b, `${name}-2`, 'POST', '/merge', {})],
    ['to merge', forkAndWrite, (b, name) => call(b, name, 'POST', '/merge', {})],
    ['to pull', forkAndWrite, (b, name) => call(b, name, 'POST', '/pull', {})],
    ['to reset', forkAndWrite, (b, name) => call(b, name, 'POST', '/reset', {})],
    ['to change a branch', fork, (b, name) => call(b, name, 'PATCH', '', { protected: false })],
    ['to delete', forkAndWrite, (b, name) => b.delete(name)],
    [
      'to resolve a git branch',
      fork,
      async (b, name) => {
        const { workspace, key } = b.service
        const path = `${workspace}/dbs/${DATABASE}/resolveBranch?gitBranch=${name}`
        expectOk(await b.via.call('GET', path, { key }))
      },
    ],
  ])('%s', async (_, before, operation) => {
    const read = await rowsRead(before, operation)
    for (const [table, rows] of Object.entries(read)) expect({ table, rows }).toSatisfy(isFew)
  })

  it('for each branch in a round of background work', async () => {
    const settle: Step = async (branches) => {
      while (await runBackground(branches.via));
    }
    await rowsRead(forkAndWrite, settle)
    const read = await rowsRead(nothing, settle)
    expect(read.branches).toBeLessThan(2 * BRANCHES)
    expect(read.heaps).toBeLessThan(2 * BRANCHES)
  })
})

const isFew = ({ rows }: { rows: number }) => rows <= READ_MAX
