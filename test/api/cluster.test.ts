import { PassThrough } from 'node:stream'
import { afterAll, beforeAll, describe, expect, it as test } from 'vitest'
import {
  REPEATABLE_WORK,
  runTransaction,
} from '../../packages/server/src/postgres/run-transaction.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { listWorkers } from '../support/database.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'

/*
 * Databases on the nodes of a Citus cluster. The tests are skipped unless OFFSHOOT_TEST_DATABASE_URL names the coordinator
 * of one.
 */

const it = test.skipIf((await listWorkers()).length < 2)

let service: TestService

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

interface Place {
  readonly schema: string
  readonly port: number
}

async function placeOf({ database }: TestBranches, at = service): Promise<Place> {
  const [place] = await at.database.query<Place & Record<string, unknown>>(sql`
    select 'offshoot_db_' || d.id as schema, s.nodeport as port
    from offshoot.databases d
    join citus_shards s on s.table_name::text = format('offshoot_db_%s.idempotency_keys', d.id)
    where d.name = ${database}`)
  if (place === undefined) throw new Error('a database must be on a node')
  return place
}

/** Writes records until `work` has ended. Returns their number. */
async function writeDuring(branches: TestBranches, work: () => Promise<unknown>): Promise<number> {
  let isOver = false
  const over = work().finally(() => {
    isOver = true
  })
  let count = 0
  while (!isOver) await branches.put('main', 't', `r${count++}`, { n: count })
  await over
  return count
}

/** Moves a database to another node. */
async function move(branches: TestBranches): Promise<void> {
  const { schema, port } = await placeOf(branches)
  const other = (await listWorkers()).find((worker) => worker.port !== port)
  await service.database.query(sql`
    select citus_schema_move(${schema}::regnamespace, ${other?.host}::text, ${other?.port}::integer)`)
  expect((await placeOf(branches)).port).toBe(other?.port)
}

const LONG = 'x'.repeat(100_000)

describe('databases on a cluster', () => {
  it('are on all nodes', async () => {
    const ports = new Set<number>()
    for (const name of ['first', 'second']) {
      const branches = await TestBranches.create(service, name, { t: [{ name: 'n', type: 'int' }] })
      await branches.put('main', 't', 'a', { n: 1 })
      ports.add((await placeOf(branches)).port)
    }
    expect(ports.size).toBe(2)
  })

  it('are moved to another node while they are written to, and lose nothing', async () => {
    const branches = await TestBranches.create(service, 'moved', {
      t: [{ name: 'n', type: 'int' }],
    })
    await branches.fork('dev')
    const count = await writeDuring(branches, () => move(branches))
    expect(count).toBeGreaterThan(0)
    for (let index = 0; index < count; index++) {
      expect(await branches.record('main', 't', `r${index}`)).toMatchObject({ n: index + 1 })
    }
    await branches.put('dev', 't', 'own', { n: 0 })
    expect(await branches.record('dev', 't', 'own')).toMatchObject({ n: 0 })
  })
})

describe('OFFSHOOT_DISTRIBUTE_DATABASES=false', () => {
  const TABLES = { t: [{ name: 'n', type: 'int' }] } as const

  it('places further databases on the coordinator, and leaves the others where they are', async () => {
    const placed = await TestBranches.create(service, 'placed', TABLES)
    const node = await placeOf(placed)
    const off = await createTestService({ url: service.url, distributes: false })
    const created = await off.call('PUT', `/workspaces/${service.workspaceId}/dbs/kept`, {
      key: service.key,
      body: { region: 'local' },
    })
    expect(created.status).toBe(201)
    const kept = new TestBranches(service, 'kept', off)
    await kept.edit(
      'main',
      { addTable: { table: 't' } },
      { addColumn: { table: 't', column: { name: 'n', type: 'int' } } },
    )
    await kept.put('main', 't', 'a', { n: 1 })
    await kept.fork('dev')
    await kept.put('dev', 't', 'a', { n: 2 })
    await kept.merge('dev')
    expect(await kept.record('main', 't', 'a')).toMatchObject({ n: 2 })
    await expect(placeOf(kept)).rejects.toThrow('on a node')
    expect(await placeOf(placed)).toEqual(node)
    await off.close()
  })

  it('leaves a new instance on the coordinator as on any other server', async () => {
    const off = await createTestService({ distributes: false })
    expect(off.database.server.isCluster).toBe(false)
    await off.close()
  })

  it('can be left out later: databases stay on the coordinator, and further ones are placed on nodes', async () => {
    const off = await createTestService({ distributes: false })
    const early = await TestBranches.create(off, 'early', TABLES)
    await early.put('main', 't', 'a', { n: 1 })
    await early.fork('dev')
    await early.put('dev', 't', 'b', { n: 2 })
    const on = await createTestService({ url: off.url })
    expect(on.database.server.isCluster).toBe(true)
    const same = new TestBranches(off, 'early', on)
    await same.put('dev', 't', 'a', { n: 3 })
    await same.merge('dev')
    expect(await same.record('main', 't', 'a')).toMatchObject({ n: 3 })
    expect(await same.record('main', 't', 'b')).toMatchObject({ n: 2 })
    await expect(placeOf(same, on)).rejects.toThrow('on a node')
    const created = await on.call('PUT', `/workspaces/${off.workspaceId}/dbs/late`, {
      key: off.key,
      body: { region: 'local' },
    })
    expect(created.status).toBe(201)
    expect((await placeOf(new TestBranches(off, 'late', on), on)).schema).toMatch(/^offshoot_db_/)
    await on.close()
    await off.close()
  })
})

describe('a stream into a database that is moved to another node', () => {
  it('goes on there', async () => {
    const branches = await TestBranches.create(service, 'streamed', {
      t: [{ name: 'text', type: 'text' }],
    })
    await branches.put('main', 't', 'first', { text: '' })
    const body = new PassThrough()
    const answer = service.app.inject({
      method: 'POST',
      url: `${service.workspace}/db/streamed:main/tables/t/bulk`,
      headers: {
        authorization: `Bearer ${service.key}`,
        'content-type': 'application/x-ndjson',
      },
      payload: body,
    })
    // More than a stream that is held in memory may have.
    const lines = Array.from({ length: 24 }, (_, number) => `{"id":"${number}","text":"${LONG}"}\n`)
    for (const line of lines.slice(0, 12)) body.write(line)
    await until(async () => {
      const stages = await service.database.query(sql`
        select
        from citus_shards c
        join offshoot_work.spares s on c.table_name::text like '%.heap_' || s.heap_id
        where s.definition = 'layer' and c.shard_size > 0`)
      return stages.length > 0
    })
    await move(branches)
    body.end(lines.slice(12).join(''))
    expect((await answer).statusCode).toBe(200)
    expect(await branches.record('main', 't', '23')).toMatchObject({ text: LONG })
  })
})

describe('work that is done again after a crash', () => {
  it('waits for the disk on a cluster, because rows that depend on it are on another node', async () => {
    const [row] = await runTransaction(
      service.database,
      ({ query }) =>
        query<{ setting: string }>(sql`
        select current_setting('synchronous_commit') as setting`),
      REPEATABLE_WORK,
    )
    expect(row?.setting).toBe('on')
  })
})

describe('queries of a transaction that are asked for together', () => {
  it('are sent to a cluster one after the other', async () => {
    await runTransaction(service.database, async ({ client, query }) => {
      const send = client.query.bind(client) as (...parts: unknown[]) => Promise<unknown>
      let [running, runningMax] = [0, 0]
      Object.assign(client, {
        async query(...parts: unknown[]) {
          runningMax = Math.max(runningMax, ++running)
          return send(...parts).finally(() => running--)
        },
      })
      const numbers = await Promise.all([1, 2, 3].map((n) => query(sql`select ${n}::integer as n`)))
      Object.assign(client, { query: send })
      expect(numbers).toEqual([[{ n: 1 }], [{ n: 2 }], [{ n: 3 }]])
      expect(runningMax).toBe(1)
    })
  })
})
