import { afterAll, beforeAll, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'

/*
 * Large internal statements must not depend on what autovacuum has done by then. These tests look at statistics of
 * PostgreSQL instead of times.
 */

let service: TestService

beforeAll(async () => {
  service = await createTestService()
})
afterAll(async () => {
  await service.close()
})

const TABLES = { t: [{ name: 'code', type: 'string', unique: true }] } as const

/** More rows, and more bytes, than a stream has that is inserted, or a merge that is done in one transaction. */
const ROWS = 12_000

const recordsOf = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, n) => ({
    id: `${prefix}-${n}`,
    code: `${prefix}-${n}`.padEnd(100, '.'),
  }))

async function insert(branches: TestBranches, branch: string, records: readonly object[]) {
  const body = records.map((record) => `${JSON.stringify(record)}\n`).join('')
  const answer = await branches.call(branch, 'POST', '/tables/t/bulk', body, {
    headers: { 'content-type': 'application/x-ndjson' },
  })
  expect(answer.status).toBe(200)
}

/** The physical table of a branch. */
async function tableOf(branches: TestBranches, branch: string, kind: string) {
  const { rows } = await service.database.pool.query(
    `select format('offshoot_db_%s.heap_%s', h.database_id, h.id) as name, b.id as "branchId"
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.databases d on d.id = b.database_id
    where d.name = $1 and b.name = $2 and h.kind = $3`,
    [branches.database, branch, kind],
  )
  expect(rows).toHaveLength(1)
  return rows[0] as { name: string; branchId: string }
}

/** Rows that PostgreSQL has read from a table by now, also for other conditions. */
async function readRows(name: string): Promise<number> {
  await reportStatistics()
  const { rows } = await service.database.pool.query(
    `select (seq_tup_read + coalesce((
      select sum(idx_tup_read) from pg_stat_user_indexes i where i.relid = t.relid
    ), 0))::integer as count
    from pg_stat_user_tables t
    where relid = $1::regclass`,
    [name],
  )
  return rows[0].count
}

/** Makes all connections of the service report what they have read. PostgreSQL does so about once a second. */
async function reportStatistics() {
  const { pool } = service.database
  const clients = await Promise.all(
    Array.from({ length: service.database.poolMax }, () => pool.connect()),
  )
  for (const client of clients) {
    await client.query('select pg_stat_force_next_flush()')
    client.release()
  }
}

it('a large merge has statistics of heaps that were filled a moment ago', async () => {
  const { pool } = service.database
  const branches = await TestBranches.create(service, 'grown', TABLES)
  await insert(branches, 'main', recordsOf('main', 10))
  await branches.fork('dev')
  await insert(branches, 'dev', recordsOf('first', 10))
  const { name } = await tableOf(branches, 'dev', 'heap')
  await pool.query(`alter table ${name} set (autovacuum_enabled = false)`)
  await pool.query(`analyze ${name}`)
  await insert(branches, 'dev', recordsOf('dev', ROWS))
  const known = async () => {
    const { rows } = await pool.query(
      'select reltuples::integer as rows from pg_class where oid = $1::regclass',
      [name],
    )
    return rows[0].rows
  }
  expect(await known()).toBe(10)
  const merged = await branches.call('dev', 'POST', '/merge', {})
  expect(merged.status).toBe(200)
  expect(await known()).toBe(ROWS + 10)
  // They are of a small sample, so autovacuum still has to collect better ones.
  await until(async () => {
    await reportStatistics()
    const { rows } = await pool.query(
      'select pg_stat_get_mod_since_analyze($1::regclass)::integer as count',
      [name],
    )
    return rows[0].count >= ROWS
  })
})

it('moving the rows of a layer reads each of them a few times, whoever else reads them', async () => {
  const { pool } = service.database
  const branches = await TestBranches.create(service, 'moved', TABLES)
  await insert(branches, 'main', recordsOf('before', 10))
  await branches.fork('dev')
  await insert(branches, 'main', recordsOf('many', ROWS))
  const { name, branchId } = await tableOf(branches, 'main', 'layer')
  await pool.query(`alter table ${name} set (autovacuum_enabled = false)`)
  const counted = async () => {
    const { rows } = await pool.query(
      `select n_tup_del::integer as deleted, seq_tup_read::integer as scanned,
        coalesce((
          select sum(idx_tup_read) from pg_stat_user_indexes i where i.relid = t.relid
        ), 0)::integer as found
      from pg_stat_user_tables t
      where relid = $1::regclass`,
      [name],
    )
    return rows[0] as { deleted: number; scanned: number; found: number }
  }
  await reportStatistics()
  const before = await counted()
  // Another snapshot still sees the rows, and the layer cannot be dropped.
  const reader = await pool.connect()
  try {
    await reader.query('begin isolation level repeatable read')
    await reader.query(`select from ${name} limit 1`)
    await service.storage.absorb(branchId)
    let after = before
    await until(async () => {
      after = await counted()
      return after.deleted - before.deleted === ROWS
    })
    const read = after.scanned - before.scanned + (after.found - before.found)
    expect(read).toBeLessThan(6 * ROWS)
  } finally {
    await reader.query('rollback')
    reader.release()
  }
})

it.each([
  ['deletion of all records', 'DELETE', { all: true }, { deleted: 3000 }],
  [
    'change of records',
    'PATCH',
    { filter: { $exists: 'code' }, set: { size: 2 } },
    { updated: 3000 },
  ],
] as const)(
  'a %s reads each a few times, though statistics say there is none',
  async (_, method, body, answer) => {
    const { pool } = service.database
    const branches = await TestBranches.create(service, `set-${method}`, {
      t: [...TABLES.t, { name: 'size', type: 'int' }],
    })
    const fill = async () => {
      for (const part of [1, 2, 3]) {
        const records = recordsOf(`r${part}`, 1000)
        expect((await branches.call('main', 'POST', '/tables/t/bulk', { records })).status).toBe(
          200,
        )
      }
    }
    await fill()
    const { name } = await tableOf(branches, 'main', 'heap')
    await pool.query(`alter table ${name} set (autovacuum_enabled = false)`)
    await branches.call('main', 'DELETE', '/tables/t/data', { all: true })
    // The table has pages, and no row.
    await pool.query(`analyze ${name}`)
    await fill()
    const before = await readRows(name)
    const changed = await branches.call('main', method, '/tables/t/data', body)
    expect([changed.status, changed.body]).toEqual([200, answer])
    expect((await readRows(name)) - before).toBeLessThan(10 * 3000)
  },
)
