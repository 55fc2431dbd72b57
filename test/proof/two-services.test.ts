import path from 'node:path'
import pg from 'pg'
import S3rver from 's3rver'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type EmbeddedPostgres, startEmbedded } from '../../packages/embedded-postgres/src/index.js'
import { until } from '../support/process.js'
import { Proof } from '../support/proof/proof.js'
import {
  createProofDatabase,
  DATABASE,
  makeProofFolder,
  ProofService,
} from '../support/proof/service.js'
import { Round } from '../support/proof/writer.js'
import { AWAY_ROUNDS, ROUNDS_TIMEOUT_MS, SEED } from '../support/random.js'

const ITEMS = `/db/${DATABASE}:main/tables/items`

let folder: Awaited<ReturnType<typeof makeProofFolder>>
let postgres: EmbeddedPostgres
let store: S3rver
let storePort: number
let killed: ProofService
let survivor: ProofService

beforeAll(async () => {
  folder = await makeProofFolder()
  postgres = await startEmbedded({ dataDir: folder.path, log: () => undefined })
  store = new S3rver({
    directory: path.join(folder.path, 's3'),
    port: 0,
    silent: true,
    configureBuckets: [{ name: 'files', configs: [] }],
  })
  storePort = (await store.run()).port
  killed = newService('killed')
  survivor = newService('survivor')
  await killed.start()
  await survivor.start()
  await createProofDatabase(survivor, survivor.workspaceId)
})
afterAll(async () => {
  await killed.kill()
  await survivor.kill()
  await postgres.stop()
  await store.close()
  await folder.remove()
})

/**
 * Makes a service whose connections carry its name (application_name). Both services share one file
 * store.
 */
function newService(name: string): ProofService {
  const { user, password, host, port, database } = postgres.connection
  const url =
    `postgresql://${user}:${encodeURIComponent(password)}@localhost:${port}/${database}` +
    `?host=${encodeURIComponent(host)}&application_name=${name}`
  return new ProofService(path.join(folder.path, name), {
    OFFSHOOT_DATABASE_URL: url,
    OFFSHOOT_FILES: `s3://files?endpoint=http://127.0.0.1:${storePort}`,
    OFFSHOOT_FILES_KEY_ID: 'S3RVER',
    OFFSHOOT_FILES_SECRET: 'S3RVER',
    OFFSHOOT_BACKGROUND_PAUSE_MS: '200',
  })
}

async function count(query: string): Promise<number> {
  const client = new pg.Client({ ...postgres.connection, ssl: false })
  await client.connect()
  try {
    const { rows } = await client.query<{ count: string }>(query)
    return Number(rows[0]?.count)
  } finally {
    await client.end()
  }
}

/** Counts the connections of the killed service. PostgreSQL may still be executing what it sent. */
const connectionsOfKilled = () =>
  count(`select count(*) from pg_stat_activity where application_name = 'killed'`)

const waitingOf = (name: string) =>
  count(`
    select count(*)
    from pg_locks l join pg_stat_activity a using (pid)
    where not l.granted and a.application_name = '${name}'`)

/**
 * Locks a record, so that a service that writes to it waits, and holds the gate of the branch meanwhile. Returns
 * a function that unlocks it.
 */
async function lockRecord(id: string): Promise<() => Promise<void>> {
  const client = new pg.Client({ ...postgres.connection, ssl: false })
  await client.connect()
  const { rows } = await client.query<{ heap: string }>(`
    select format('offshoot_db_%s.heap_%s', h.database_id, h.id) as heap
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id and b.name = 'main' and b.deleted_at is null
    join offshoot.databases d on d.id = h.database_id and d.name = '${DATABASE}'
    join offshoot.schemas s on s.id = b.schema_id,
      jsonb_path_query(s.document, '$.tables[*]') t
    where t ->> 'name' = 'items' and (t ->> 'id')::bigint = h.table_id`)
  await client.query('begin')
  await client.query(`select from ${rows[0]?.heap} where id = $1 for update`, [id])
  return () => client.end()
}

const put = (service: ProofService, id: string, value: number) =>
  service.send('PUT', `${ITEMS}/data/${id}`, { body: { value } })
const patch = (service: ProofService, id: string, value: number) =>
  service.send('PATCH', `${ITEMS}/data/${id}`, { body: { value } })

const holdersOf = (name: string) =>
  count(`
    select count(*)
    from pg_locks l join pg_stat_activity a using (pid) join pg_class c on c.oid = l.relation
    where l.granted and a.application_name = '${name}' and c.relname like 'gate%'`)

describe(`two services on one PostgreSQL, one of which is killed (seed ${SEED})`, () => {
  it('frees at once what the killed one held', async () => {
    expect((await put(survivor, 'held', 1)).status).toBe(201)
    const unlock = await lockRecord('held')
    try {
      const write = patch(killed, 'held', 2)
      await until(async () => (await holdersOf('killed')) > 0)
      await killed.kill()
      // If the gate were not freed, the fork would fail: it has a time limit, and the lock has none.
      const forked = await survivor.send('PUT', `/db/${DATABASE}:freed`, { body: { from: 'main' } })
      expect(forked.status).toBe(201)
      expect((await write).status).toBe(0)
    } finally {
      await unlock()
    }
    expect((await survivor.send('GET', `${ITEMS}/data/held`)).body).toMatchObject({ value: 1 })
    expect((await survivor.send('DELETE', `${ITEMS}/data/held`)).status).toBe(204)
    expect((await survivor.send('DELETE', `/db/${DATABASE}:freed`)).status).toBe(200)
    await killed.start()
  })

  it('lets nobody wait behind what the killed one was waiting for', async () => {
    expect((await put(survivor, 'passing', 1)).status).toBe(201)
    const unlock = await lockRecord('passing')
    try {
      const write = patch(survivor, 'passing', 2)
      await until(async () => (await holdersOf('survivor')) > 0)
      const fork = killed.send('PUT', `/db/${DATABASE}:never`, { body: { from: 'main' } })
      await until(async () => (await waitingOf('killed')) > 0)
      await killed.kill()
      expect((await fork).status).toBe(0)
      expect((await put(survivor, 'behind', 2)).status).toBe(201)
      await unlock()
      expect((await write).status).toBe(200)
    } finally {
      await unlock()
    }
    for (const id of ['passing', 'behind']) {
      expect((await survivor.send('DELETE', `${ITEMS}/data/${id}`)).status).toBe(204)
    }
    expect((await survivor.send('GET', `/db/${DATABASE}:never`)).status).toBe(404)
    await killed.start()
  })

  it('has everything both acknowledged, and the other one never fails', {
    timeout: ROUNDS_TIMEOUT_MS,
  }, async () => {
    const proof = new Proof(SEED)
    for (let number = 0; number < 2 * AWAY_ROUNDS; number++) {
      const rounds = [
        new Round(killed, { mayVanish: true }),
        new Round(survivor, { mayVanish: false }),
      ] as const
      const faults = await proof.play(rounds, {
        check: survivor,
        async happen() {
          await proof.randomMoment(rounds[0])
          await killed.kill()
          const before = rounds[1].acknowledged
          await until(async () => rounds[1].acknowledged >= before + 20)
          await until(async () => (await connectionsOfKilled()) === 0)
        },
      })
      expect(faults, `seed ${SEED}`).toEqual([])
      expect(rounds[1].unknown).toBe(0)
      await killed.start()
    }
    console.log(`one of two killed: ${proof.summary()}`)
  })
})
