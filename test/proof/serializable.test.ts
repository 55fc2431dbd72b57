import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ident, type Sql, sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { createTestDatabase, listWorkers, type TestDatabase } from '../support/database.js'
import { foldBranches } from '../support/folding.js'
import { holdGate } from '../support/gates.js'
import { until } from '../support/process.js'
import { SEED, STEPS, STEPS_TIMEOUT_MS } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import { type Anomaly, checkHistory } from '../support/serial/check-history.js'
import { startWeakeningProxy, type WeakeningProxy } from '../support/serial/weakening-proxy.js'
import { get, SERIAL_TABLES, update, Workload } from '../support/serial/workload.js'
import { createTestService, type TestService } from '../support/service.js'
import { branchCall, createTables } from '../support/tables.js'

const CLIENTS = 10
/** Rounds to run until the weakened service shows an anomaly. */
const ROUNDS_MAX = 10

/** Merges of more rows are published as layers. */
const LOCKED_ROWS = 10
const MERGED_ROWS = 30
/** Merges whose rows are compared at the end. */
const MERGES_MAX = 30

/** Starts two processes of the service on one PostgreSQL. */
async function startTwo(url: string): Promise<[TestService, TestService]> {
  const options = { url, limits: { mergeLockedRowsMax: LOCKED_ROWS } }
  const first = await createTestService(options)
  return [first, await createTestService(options)]
}

async function open(services: readonly [TestService, TestService], name: string, seed: number) {
  const [first] = services
  await createTables(first, name, SERIAL_TABLES)
  const at = services.map((via) => (branch: string) => branchCall(first, name, { branch, via }))
  const workload = new Workload({ random: new Random(seed), at })
  await workload.prepare()
  return workload
}

/**
 * Folds tables, and merges rows into `main` that are published as layers and moved later, until the signal. Returns the ids of
 * the merged records, all in table `left`, and the number of folds.
 */
async function disturb(
  [service, other]: readonly [TestService, TestService],
  database: string,
  signal: AbortSignal,
): Promise<{ ids: string[]; folds: number }> {
  const branches = new TestBranches(service, database, other)
  const random = new Random(SEED)
  const ids: string[] = []
  let folds = 0
  for (let number = 0; number < 1 || !signal.aborted; number++) {
    const policy = { databaseName: database, random, probability: 0.5 }
    folds += await foldBranches(service, policy)
    if (ids.length >= MERGES_MAX * MERGED_ROWS) continue
    const name = `large${number}`
    await branches.fork(name)
    const added = Array.from({ length: MERGED_ROWS }, (_, index) => `${name}-${index}`)
    await branches.bulk(
      name,
      'left',
      added.map((id) => ({ id, value: id })),
    )
    folds += await foldBranches(service, policy)
    await branches.merge(name)
    ids.push(...added)
    if (random.chance(0.5)) await service.storage.background.absorb()
    await branches.delete(name)
  }
  return { ids, folds }
}

describe(`one-shot transactions from many clients through two processes, from seed ${SEED}`, () => {
  let database: TestDatabase
  let services: [TestService, TestService]

  beforeAll(async () => {
    database = await createTestDatabase({ copiesCatalogue: true })
    services = await startTwo(database.url)
  })
  afterAll(async () => {
    for (const service of services) await service.close()
    await database.close()
  })

  it(
    'have the outcome of running one after the other, and forks are a state in between',
    async () => {
      const workload = await open(services, 'serial', SEED)
      const over = new AbortController()
      const [{ ids, folds }] = await Promise.all([
        disturb(services, 'serial', over.signal),
        workload.run(CLIENTS, STEPS).finally(() => over.abort()),
      ])
      await workload.finish()
      const merged = await new TestBranches(services[0], 'serial').read('main', 'left', ids)
      expect(merged).toEqual(Object.fromEntries(ids.map((id) => [id, { value: id }])))
      expect(folds).toBeGreaterThan(0)
      const { history } = workload
      const committed = history.filter(({ outcome }) => outcome === 'committed')
      console.info(
        `${committed.length} of ${history.length} committed beside ${folds} folds and ` +
          `${ids.length / MERGED_ROWS} merges, seed ${SEED}`,
      )
      expect(workload.violations).toEqual([])
      expect(checkHistory(history)).toEqual([])
      expect(committed.length).toBeGreaterThan(history.length / 2)
    },
    STEPS_TIMEOUT_MS,
  )

  it('that only read see no order which the others contradict', async () => {
    const workload = await open(services, 'reading', SEED)
    const release = await holdRows(database, 'right')
    // `late` reads the old `b` and is blocked before it commits, so it comes before `early` in the
    // serial order.
    const late = workload.transact('late', [
      get('left/b'),
      update('left/a', 'l'),
      update('right/c', 'l2'),
    ])
    await waiting(database)
    await workload.transact('early', [update('left/b', 'e')])
    // A reader of the new `b` must also see the writes of `late`; otherwise `late` must be retried.
    await workload.transact('reader', [get('left/a'), get('left/b')])
    await release()
    expect((await late).status).toBe(200)
    expect(checkHistory(workload.history)).toEqual([])
  })

  it('that only read do not wait for a fork or merge, and those that write do', async () => {
    const workload = await open(services, 'waiting', SEED)
    const release = await holdGate(database.pool, { database: 'waiting' })
    const write = workload.transact('writer', [update('left/a', 'w')])
    await waiting(database)
    const read = await workload.transact('reader', [get('left/a'), get('right/c')])
    expect(read.body.results[0].columns.value).toBe('start left/a')
    await release()
    expect((await write).status).toBe(200)
  })
})

/** Locks all rows of a table, as a concurrent transaction does. */
async function holdRows({ pool }: TestDatabase, tableName: string): Promise<() => Promise<void>> {
  const client = await pool.connect()
  const query = ({ text, values }: Sql) => client.query({ text, values })
  const { rows } = await query(sql`
    select 'offshoot_db_' || h.database_id as schema, 'heap_' || h.id as heap
    from offshoot.heaps h
    join offshoot.databases d on d.id = h.database_id
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.schemas s on s.id = b.schema_id,
      jsonb_path_query(s.document, '$.tables[*]') t
    where d.name = 'reading' and t ->> 'name' = ${tableName}
      and (t ->> 'id')::bigint = h.table_id`)
  await query(sql`begin`)
  await query(sql`select 1 from ${ident(rows[0].schema)}.${ident(rows[0].heap)} for update`)
  return async () => {
    await query(sql`rollback`)
    client.release()
  }
}

/** Waits until one connection is blocked by another. On a cluster, locks of rows are on a node, and those of gates are not. */
async function waiting({ pool }: TestDatabase): Promise<void> {
  const isCluster = (await listWorkers()).length > 0
  await until(async () => {
    const { rows } = await pool.query(
      `select from pg_stat_activity
      where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0`,
    )
    if (rows.length > 0 || !isCluster) return rows.length > 0
    return (await pool.query('select from citus_lock_waits')).rows.length > 0
  })
}

/** Weaker isolation levels of PostgreSQL, with the anomalies that they permit. */
describe.each([
  ['read committed', /^(G-single|G2)$/],
  ['repeatable read', /^G2$/],
] as const)('with %s instead, the same transactions', (level, expected) => {
  let database: TestDatabase
  let proxy: WeakeningProxy
  let services: [TestService, TestService]

  beforeAll(async () => {
    database = await createTestDatabase({ copiesCatalogue: true })
    const name = new URL(database.url).pathname.slice(1)
    const { text } = sql`
      alter database ${ident(name)} set default_transaction_isolation to ${ident(level)}`
    await database.pool.query(text)
    proxy = await startWeakeningProxy(database.url)
    services = await startTwo(proxy.url)
  })
  afterAll(async () => {
    for (const service of services) await service.close()
    await proxy.close()
    await database.close()
  })

  it(
    'are seen to go wrong',
    async () => {
      let anomalies: Anomaly[] = []
      for (let round = 0; round < ROUNDS_MAX && anomalies.length === 0; round++) {
        const workload = await open(services, `weak-${round}`, SEED + round)
        await workload.run(CLIENTS, 50)
        anomalies = checkHistory(workload.history)
      }
      expect(proxy.rewrites).toBeGreaterThan(0)
      expect(anomalies.map(({ kind }) => kind).filter((kind) => expected.test(kind))).not.toEqual(
        [],
      )
      console.info(`${level}: ${anomalies[0]?.kind}: ${anomalies[0]?.explanation}`)
    },
    STEPS_TIMEOUT_MS,
  )
})
