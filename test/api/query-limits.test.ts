import { once } from 'node:events'
import { connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'
import { lockTable } from '../support/table-lock.js'

const TIMEOUT_MS = 500
const POOL_MAX = 10

/** Small to send and slow to run: each word is searched in each text. */
const COSTLY = {
  $any: Array.from({ length: 200 }, (_, index) => ({ text: { $iContains: `word ${index}x` } })),
}
const REQUESTS = [
  ['query', { filter: COSTLY }],
  ['summarize', { filter: COSTLY, summaries: { all: { count: '*' } } }],
  ['aggregate', { filter: COSTLY, aggs: { all: { count: '*' } } }],
] as const

let service: TestService
let branches: TestBranches
let patient: TestService

beforeAll(async () => {
  service = await createTestService({ limits: { queryTimeoutMs: TIMEOUT_MS } })
  branches = await TestBranches.create(service, 'shop', { notes: [{ name: 'text', type: 'text' }] })
  const text = 'some words that are never the ones which are asked for, '.repeat(200)
  await branches.bulk(
    'main',
    'notes',
    Array.from({ length: 1000 }, () => ({ text })),
  )
  patient = await createTestService({ url: service.url })
})
afterAll(async () => {
  await patient.close()
  await service.close()
})

/** Counts the statements that are running or waiting for a lock in PostgreSQL. */
async function countRunning(): Promise<number> {
  const [row] = await service.database.query<{ count: number }>(sql`
    select count(*)::integer as count
    from pg_stat_activity
    where datname = current_database() and state = 'active' and pid <> pg_backend_pid()`)
  return row?.count ?? 0
}

async function untilIdle(): Promise<void> {
  await until(async () => (await countRunning()) === 0)
}

/** Locks the table against reads until the returned function is called. */
async function lockNotes(): Promise<() => Promise<void>> {
  const [heap] = await service.database.query<{ name: string }>(sql`
    select format('offshoot_db_%s.heap_%s', database_id, id) as name
    from offshoot.heaps
    order by id desc
    limit 1`)
  const client = await patient.database.pool.connect()
  await client.query('begin')
  await lockTable(client, {
    table: heap?.name ?? '',
    isCluster: service.database.server.isCluster,
    mode: 'access exclusive',
  })
  return async () => {
    await client.query('rollback')
    client.release()
  }
}

describe('a query over its time limit', () => {
  it.each(REQUESTS)('is stopped in PostgreSQL and is too costly: %s', async (name, body) => {
    const answer = await branches.call('main', 'POST', `/tables/notes/${name}`, body)
    expect(answer).toMatchObject({
      status: 400,
      body: {
        code: 'query_too_costly',
        message: `the query is too costly: it was stopped after ${TIMEOUT_MS} ms`,
      },
    })
    await untilIdle()
  })

  it('is not at fault when it waited for others', async () => {
    const unlock = await lockNotes()
    try {
      const answer = await branches.call('main', 'POST', '/tables/notes/query', {})
      if (service.database.server.isCluster) {
        // The coordinator does not know that the node waits for a lock.
        expect(answer).toMatchObject({ status: 400, body: { code: 'query_too_costly' } })
        return
      }
      expect(answer).toMatchObject({ status: 503, body: { code: 'timeout' } })
      expect(answer.headers['retry-after']).toBe('1')
    } finally {
      await unlock()
    }
    // On a busy machine, the first attempt may exceed the time limit.
    await until(
      async () => (await branches.call('main', 'POST', '/tables/notes/query', {})).status === 200,
    )
  })

  it('is not at fault when all connections are in use', async () => {
    const [, body] = REQUESTS[0]
    const answers = await Promise.all(
      Array.from({ length: 3 * POOL_MAX }, () =>
        branches.call('main', 'POST', '/tables/notes/query', body),
      ),
    )
    const busy = answers.filter(({ status }) => status === 503)
    expect(busy.length).toBeGreaterThanOrEqual(POOL_MAX)
    await untilIdle()
  })

  it('leaves its connection to others as it was', async () => {
    await until(async () => {
      const answers = await Promise.all(
        Array.from({ length: 3 * POOL_MAX }, () =>
          branches.call('main', 'POST', '/tables/notes/query', { page: { size: 1 } }),
        ),
      )
      return answers.every(({ status }) => status === 200)
    })
  })
})

describe('a caller that hangs up', () => {
  beforeAll(() => patient.app.listen({ port: 0, host: '127.0.0.1' }))

  it.each([
    ...REQUESTS.map(([name, body]) => [`/tables/notes/${name}`, body] as const),
    ['/sql', { statement: 'select count(*) from generate_series(1, 99999999999)' }] as const,
    [
      '/sql',
      { statement: 'update notes set text = (select count(*) from generate_series(1, 1e12))' },
    ] as const,
  ])('is not worked for any longer: %s', async (path, body) => {
    const address = patient.app.server.address()
    const port = typeof address === 'object' ? address?.port : undefined
    const socket = connect({ port: port ?? 0, host: '127.0.0.1' })
    const content = JSON.stringify(body)
    socket.write(
      `POST ${service.workspace}/db/shop:main${path} HTTP/1.1\r\nhost: localhost\r\n` +
        `authorization: Bearer ${service.key}\r\ncontent-type: application/json\r\n` +
        `content-length: ${Buffer.byteLength(content)}\r\n\r\n${content}`,
    )
    await once(socket, 'connect')
    await until(async () => (await countRunning()) > 0)
    socket.destroy()
    await untilIdle()
  })
})
