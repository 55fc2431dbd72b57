import { LIMITS } from '@offshoot/contract/limits'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it as test } from 'vitest'
import { createBackup } from '../../packages/server/src/backup/create-backup.js'
import { restoreBackup } from '../../packages/server/src/backup/restore-backup.js'
import { restoreDatabase } from '../../packages/server/src/backup/restore-database.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { inChunks, makeArchive, openForBackup } from '../support/archive.js'
import { TestBranches } from '../support/branches.js'
import { createTestDatabase, listWorkers } from '../support/database.js'
import { createFilled, readEverything, rowsOf, workOn } from '../support/filled-database.js'
import { until } from '../support/process.js'
import { createTestService, REGIONS, type TestService } from '../support/service.js'

/*
 * Backups of a Citus cluster, and restores between a cluster and one server. The tests are skipped unless
 * OFFSHOOT_TEST_DATABASE_URL names the coordinator of one. The other tests of backups run on it, too.
 */

const workers = await listWorkers()
const it = test.skipIf(workers.length < 2)

const cleanUps: (() => Promise<unknown>)[] = []
/** Databases are on nodes. */
let service: TestService
/** All databases are on the coordinator, as on a server without Citus. */
let single: TestService

beforeAll(async () => {
  service = await createTestService()
  cleanUps.push(() => service.close())
  single = await createTestService({ distributes: false })
  cleanUps.push(() => single.close())
})
afterAll(async () => {
  for (const cleanUp of cleanUps.reverse()) await cleanUp()
})

const onProgress = () => undefined

function connect(url: string, options?: { distributes: boolean }) {
  const database = openForBackup(url, options)
  cleanUps.push(() => database.close())
  return database
}

/** Returns the schema of a database, and the port of its node. */
async function placeOf({ service: { database }, database: name }: TestBranches) {
  const [place] = await database.query<{ schema: string; port: number | null }>(sql`
    select 'offshoot_db_' || d.id as schema, s.nodeport as port
    from offshoot.databases d
    left join citus_shards s on s.table_name::text = format('offshoot_db_%s.idempotency_keys', d.id)
    where d.name = ${name}`)
  if (place === undefined) throw new Error('there must be a database')
  return place
}

/** Restores an archive into an empty instance, and starts a service with the key of the original. */
async function restoreInstance(
  archive: Buffer,
  { from, distributes }: { from: TestService; distributes: boolean },
): Promise<TestService> {
  const place = await createTestDatabase()
  cleanUps.push(() => place.close())
  const { blobs } = from.files
  const source = inChunks(archive)
  await restoreBackup({
    database: connect(place.url, { distributes }),
    blobs,
    source,
    onProgress,
  })
  const restored = await createTestService({ url: place.url, blobs, distributes })
  cleanUps.push(() => restored.close())
  const { key, workspaceId, workspace } = from
  return {
    ...restored,
    key,
    workspaceId,
    workspace,
    call: (method, url, options) => restored.call(method, url, { key, ...options }),
  }
}

/** Prepares a transaction on the node of a place, and leaves it. Returns the connection. */
async function prepareOn({ port }: { port: unknown }, name: string): Promise<pg.Client> {
  const url = new URL(service.url)
  url.port = String(port)
  const node = new pg.Client({ connectionString: url.href })
  await node.connect()
  cleanUps.push(() => node.end())
  await node.query('begin')
  await node.query(`create table prepared_${name} ()`)
  await node.query(`prepare transaction '${name}'`)
  return node
}

describe('an archive', () => {
  it('of one server is restored onto the nodes of a cluster, and back', async () => {
    const original = await createFilled(single, 'moved')
    const { blobs } = single.files
    const everything = await readEverything(original)
    expect((await placeOf(original)).port).toBeNull()

    const first = await makeArchive({ database: connect(single.url), blobs })
    const onNodes = await restoreInstance(first, { from: single, distributes: true })
    await onNodes.indexes.run()
    const distributed = new TestBranches(onNodes, 'moved')
    expect(workers.map(({ port }) => port)).toContain((await placeOf(distributed)).port)
    expect(await readEverything(distributed)).toEqual(everything)

    const second = await makeArchive({ database: connect(onNodes.url), blobs })
    const back = await restoreInstance(second, { from: single, distributes: false })
    await back.indexes.run()
    const undistributed = new TestBranches(back, 'moved')
    expect((await placeOf(undistributed)).port).toBeNull()
    expect(await readEverything(undistributed)).toEqual(everything)

    for (const branches of [original, distributed, undistributed]) await workOn(branches)
    const rows = rowsOf(await readEverything(original))
    for (const branches of [distributed, undistributed]) {
      expect(rowsOf(await readEverything(branches))).toEqual(rows)
    }
  })

  it('of one database of a server is restored onto a node, and back', async () => {
    const original = await createFilled(single, 'carried')
    const carry = async (from: TestService, to: TestService, as: string) => {
      const only = { name: from === single ? 'carried' : 'arrived' }
      const archive = await makeArchive({
        database: connect(from.url),
        blobs: from.files.blobs,
        only,
      })
      await restoreDatabase({
        ...only,
        database: connect(to.url, { distributes: to === service }),
        blobs: to.files.blobs,
        source: inChunks(archive),
        as,
        workspaceId: to.workspaceId,
        regions: REGIONS,
        limits: LIMITS,
        onProgress,
      })
      await to.indexes.run()
      return new TestBranches(to, as)
    }
    const rows = rowsOf(await readEverything(original))
    const arrived = await carry(single, service, 'arrived')
    expect((await placeOf(arrived)).port).not.toBeNull()
    expect(rowsOf(await readEverything(arrived))).toEqual(rows)
    const returned = await carry(service, single, 'returned')
    expect((await placeOf(returned)).port).toBeNull()
    expect(rowsOf(await readEverything(returned))).toEqual(rows)
  })
})

describe('a backup of a cluster', () => {
  it('fails if a database is moved to another node meanwhile', async () => {
    const branches = await TestBranches.create(service, 'restless', {
      t: [{ name: 'n', type: 'int' }],
    })
    await branches.put('main', 't', 'a', { n: 1 })
    const { schema, port } = await placeOf(branches)
    const other = workers.find((worker) => worker.port !== port)
    let isMoved = false
    const running = createBackup({
      database: connect(service.url),
      blobs: service.files.blobs,
      async sink() {
        if (isMoved) return
        isMoved = true
        await service.database.query(sql`
          select citus_schema_move(${schema}::regnamespace, ${other?.host}::text, ${other?.port}::integer)`)
      },
      onProgress,
    })
    await expect(running).rejects.toThrow(
      `the database with the schema [${schema}] was moved to another node during the backup`,
    )
    expect((await placeOf(branches)).port).toBe(other?.port)
  })

  it('waits for a transaction that the coordinator has committed and a node has not', async () => {
    const branches = await TestBranches.create(service, 'late', { t: [{ name: 'n', type: 'int' }] })
    await branches.put('main', 't', 'a', { n: 1 })
    const node = await prepareOn(await placeOf(branches), 'committed')
    const running = makeArchive({ database: connect(service.url), blobs: service.files.blobs })
    running.catch(() => undefined)
    await until(async () => {
      const [lock] = await service.database.query(sql`
        select from pg_locks
        where relation = 'offshoot_work.instance'::regclass and mode = 'ShareLock' and granted`)
      return lock !== undefined
    })
    await node.query(`commit prepared 'committed'`)
    expect((await running).length).toBeGreaterThan(0)
  })

  it('fails if such a transaction does not end', async () => {
    const branches = await TestBranches.create(service, 'stuck', {
      t: [{ name: 'n', type: 'int' }],
    })
    const node = await prepareOn(await placeOf(branches), 'stuck')
    try {
      const { blobs } = service.files
      await expect(makeArchive({ database: connect(service.url), blobs })).rejects.toThrow(
        'transaction [stuck] is prepared on a node and not finished',
      )
    } finally {
      await node.query(`rollback prepared 'stuck'`)
    }
  })
})
