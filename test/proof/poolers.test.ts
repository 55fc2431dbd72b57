import { randomUUID } from 'node:crypto'
import { afterEach, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.js'
import {
  hasPgBouncer,
  type PgBouncer,
  type PoolMode,
  startPgBouncer,
} from '../support/pgbouncer.js'
import { createTestService, type TestService } from '../support/service.js'
import { branchCall, createTables } from '../support/tables.js'

/*
 * A pooler that gives a client another connection for each transaction separates a session from its prepared
 * statements, settings and locks. It must be found out, and must never lose or misplace a write.
 */

const ends: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

const REFUSAL = {
  code: 'unavailable',
  message: expect.stringMatching(/pooler.*direct address.*session/s),
}

describe.skipIf(!hasPgBouncer)('PgBouncer', () => {
  it.each<[PoolMode, Record<string, string | number>]>([
    ['transaction', {}],
    ['transaction', { server_round_robin: 1, min_pool_size: 5 }],
    ['transaction', { default_pool_size: 1 }],
    ['statement', {}],
  ])('in %s mode with %o is refused at the start', async (mode, settings) => {
    const { pooler } = await start(mode, settings)
    await expect(createService(pooler.url)).rejects.toMatchObject(REFUSAL)
  })

  it('in session mode serves requests, and applies the settings of sessions', async () => {
    const { pooler } = await start('session')
    const service = await createService(pooler.url)
    expect((await service.call('GET', '/health')).status).toBe(200)
    await createDatabases(service)
    const written = await writeAtOnce(service)
    expect(written.refused).toEqual([])
    expect(await findLost(service, written.stored)).toEqual([])
    const { rows } = await service.database.pool.query(
      `select current_setting('TimeZone') as zone, current_setting('IntervalStyle') as style`,
    )
    expect(rows).toEqual([{ zone: 'UTC', style: 'iso_8601' }])
  })

  it('in session mode lets a statement be cancelled', async () => {
    const { direct, pooler } = await start('session')
    const service = await createService(pooler.url, { queryTimeoutMs: 500 })
    const call = await createTables(service, 'shop', { notes: [{ name: 'text', type: 'text' }] })
    const slow = `select count(*) from generate_series(1, 100000) a, generate_series(1, 100000) b`
    const answer = await call('POST', '/sql', { body: { statement: slow } })
    expect(answer).toMatchObject({ status: 400, body: { code: 'query_too_costly' } })
    // Otherwise the service gives up the connection, and the statement goes on.
    const { rows } = await direct.pool.query(`
      select pid from pg_stat_activity
      where state = 'active' and query like '%generate_series%' and pid <> pg_backend_pid()`)
    expect(rows).toEqual([])
  })

  it('that is switched to transaction mode while the service runs neither loses nor misplaces a write', async () => {
    const { direct, pooler } = await start('session')
    const service = await createService(pooler.url)
    await createDatabases(service)
    const first = await writeAtOnce(service)
    await pooler.setMode('transaction')
    const second = await writeAtOnce(service)
    const checker = await createService(direct.url)
    expect(await findLost(service, [...first.stored, ...second.stored], checker)).toEqual([])
    expect(await countRows(service, checker)).toBe(first.stored.length + second.stored.length)
    expect(second.refused).not.toEqual([])
    expect(await service.call('GET', '/health')).toMatchObject({
      status: 503,
      body: { status: 'unavailable', message: REFUSAL.message },
    })
    for (const refused of second.refused) expect(refused).toMatchObject(REFUSAL)
  })
})

async function start(
  mode: PoolMode,
  settings: Record<string, string | number> = {},
): Promise<{ direct: TestDatabase; pooler: PgBouncer }> {
  const direct = await createTestDatabase()
  ends.push(() => direct.close())
  const pooler = await startPgBouncer(direct.url, { mode, settings })
  ends.push(() => pooler.stop())
  return { direct, pooler }
}

async function createService(
  url: string,
  limits: { queryTimeoutMs?: number } = {},
): Promise<TestService> {
  const service = await createTestService({ url, limits })
  ends.push(() => service.close())
  return service
}

const DATABASES = ['one', 'two', 'three']
const ROUNDS = 40

interface Stored {
  readonly database: string
  readonly table: string
  readonly id: string
}

async function createDatabases(service: TestService): Promise<void> {
  const columns = [{ name: 'text', type: 'text' as const }]
  for (const database of DATABASES) {
    await createTables(service, database, { a: columns, b: columns })
  }
}

/** Writes to several databases at the same time. Returns what was acknowledged, and the bodies of refusals. */
async function writeAtOnce(
  service: TestService,
): Promise<{ stored: Stored[]; refused: unknown[] }> {
  const stored: Stored[] = []
  const refused: unknown[] = []
  const writes = DATABASES.flatMap((database) =>
    ['a', 'b'].map(async (table) => {
      for (let round = 0; round < ROUNDS; round++) {
        const id = `${database}-${table}-${randomUUID()}`
        const answer = await branchCall(service, database)('PUT', `/tables/${table}/data/${id}`, {
          body: { text: id },
        })
        if (answer.status === 201) stored.push({ database, table, id })
        else refused.push(answer.body)
      }
    }),
  )
  await Promise.all(writes)
  return { stored, refused }
}

/** Returns the acknowledged writes that are not where they belong. */
async function findLost(
  service: TestService,
  stored: readonly Stored[],
  via = service,
): Promise<Stored[]> {
  const lost: Stored[] = []
  for (const write of stored) {
    const call = branchCall(service, write.database, { via })
    const answer = await call('GET', `/tables/${write.table}/data/${write.id}`)
    if (answer.body?.text !== write.id) lost.push(write)
  }
  return lost
}

async function countRows(service: TestService, via: TestService): Promise<number> {
  let rows = 0
  for (const database of DATABASES) {
    for (const table of ['a', 'b']) {
      const call = branchCall(service, database, { via })
      const body = { summaries: { all: { count: '*' } } }
      const answer = await call('POST', `/tables/${table}/summarize`, { body })
      rows += answer.body.summaries[0].all
    }
  }
  return rows
}
