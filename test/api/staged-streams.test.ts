import { PassThrough } from 'node:stream'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { collectStage } from '../../packages/server/src/rows/write.js'
import { TestBranches } from '../support/branches.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'

let service: TestService
let opened: PassThrough[] = []

beforeAll(async () => {
  service = await createTestService()
})
afterEach(() => {
  // A stream that a failed test has left open would keep the service from closing.
  for (const body of opened) body.destroy()
  opened = []
})
afterAll(async () => {
  await service.close()
})

const TABLES = {
  t: [
    { name: 'text', type: 'text' },
    { name: 'code', type: 'string', unique: true },
  ],
  other: [{ name: 'n', type: 'int' }],
} as const

/** More bytes than a stream may have that is held in memory, in a few lines. */
const LONG = range(12).map((n) => ({ id: `long-${n}`, text: 'x'.repeat(100_000) }))

function range(length: number): number[] {
  return Array.from({ length }, (_, index) => index)
}

const linesOf = (records: readonly object[]) =>
  records.map((record) => `${JSON.stringify(record)}\n`).join('')

/** Opens a stream whose beginning is staged before the promise resolves. */
async function openStream(branches: TestBranches, branch = 'main', headers = {}) {
  const body = new PassThrough()
  body.on('error', () => undefined)
  opened.push(body)
  const answer = service.app.inject({
    method: 'POST',
    url: `${service.workspace}/db/${branches.database}:${branch}/tables/t/bulk`,
    headers: {
      authorization: `Bearer ${service.key}`,
      'content-type': 'application/x-ndjson',
      ...headers,
    },
    payload: body,
  })
  answer.catch(() => undefined)
  body.write(linesOf(LONG))
  await until(async () => (await stages()).length > 0)
  return {
    body,
    async finish(records: readonly object[] = []) {
      body.end(linesOf(records))
      const { statusCode, json } = await answer
      return { status: statusCode, body: json() }
    },
  }
}

/** The stages of streams: tables and their entries. */
async function stages(): Promise<string[]> {
  const { rows } = await service.database.pool.query(
    `select relname as name from pg_class
    where relnamespace = 'offshoot_work'::regnamespace and relkind = 'r' and relname like 'stream\\_%'
    union all
    select id from offshoot_work.streams`,
  )
  return rows.map(({ name }) => name)
}

async function countRecords(branches: TestBranches, branch = 'main'): Promise<number> {
  const { body } = await branches.call(branch, 'POST', '/tables/t/summarize', {
    summaries: { count: { count: '*' } },
  })
  return body.summaries[0].count
}

describe('a long stream', () => {
  it('keeps nobody waiting and holds no connection until it is complete', async () => {
    const branches = await TestBranches.create(service, 'open', TABLES)
    await branches.put('main', 't', 'before', { text: 'a' })
    await branches.fork('early')
    const stream = await openStream(branches)
    await branches.fork('meanwhile')
    await branches.put('main', 't', 'while', { text: 'b' })
    await branches.edit('main', {
      addColumn: { table: 'other', column: { name: 'm', type: 'int' } },
    })
    await until(async () => service.database.poolState.inUse === 0)
    expect(await countRecords(branches)).toBe(2)
    const answer = await stream.finish([{ id: 'last' }])
    expect(answer.body).toEqual({ inserted: LONG.length + 1, failed: 0, errors: [] })
    expect(await countRecords(branches)).toBe(2 + LONG.length + 1)
    expect(await countRecords(branches, 'meanwhile')).toBe(1)
    expect(await stages()).toEqual([])
  })

  it('is inserted, though the branch is forked for the first time meanwhile', async () => {
    const branches = await TestBranches.create(service, 'first', TABLES)
    await branches.put('main', 't', 'before', { text: 'a' })
    const stream = await openStream(branches)
    await branches.fork('dev')
    expect((await stream.finish()).status).toBe(200)
    expect(await countRecords(branches)).toBe(1 + LONG.length)
    expect(await countRecords(branches, 'dev')).toBe(1)
  })

  it('is refused as a whole if its table was changed meanwhile', async () => {
    const branches = await TestBranches.create(service, 'edited', TABLES)
    await branches.put('main', 't', 'before', { text: 'a' })
    const stream = await openStream(branches)
    await branches.edit('main', { removeColumn: { table: 't', column: 'text' } })
    const answer = await stream.finish()
    expect(answer).toMatchObject({ status: 409, body: { code: 'retry_limit' } })
    expect(await countRecords(branches)).toBe(1)
    expect(await stages()).toEqual([])
  })

  it('that breaks off or has an invalid line leaves nothing behind', async () => {
    const branches = await TestBranches.create(service, 'broken', TABLES)
    const invalid = await openStream(branches)
    const answer = await invalid.finish([{ id: 'a' }, { text: 5 }])
    expect(answer.body.errors).toMatchObject([{ line: LONG.length + 2 }])
    const broken = await openStream(branches)
    broken.body.destroy(new Error('gone'))
    await until(async () => (await stages()).length === 0)
    expect(await countRecords(branches)).toBe(0)
  })

  it('under an Idempotency-Key is inserted once', async () => {
    const branches = await TestBranches.create(service, 'once', TABLES)
    const headers = { 'idempotency-key': 'one' }
    const first = await openStream(branches, 'main', headers)
    const answer = await first.finish()
    expect(answer.status).toBe(200)
    const body = linesOf(LONG)
    const again = await branches.call('main', 'POST', '/tables/t/bulk', body, {
      headers: { ...headers, 'content-type': 'application/x-ndjson' },
    })
    expect(again.body).toEqual(answer.body)
    expect(await countRecords(branches)).toBe(LONG.length)
  })

  describe.each(['main', 'dev'])('on branch %s', (branch) => {
    const line = LONG.length + 1
    const cases: readonly (readonly [string, readonly object[], number, string])[] = [
      ['an id that a record has', [{ id: 'taken' }], line, 'column [id]: is not unique'],
      ['an id of an earlier line', [{ id: 'long-3' }], line, 'column [id]: is not unique'],
      ['a value that a record has', [{ code: 'c' }], line, 'column [code]: is not unique'],
      ['a value of an earlier line', [{ code: 'd' }, { code: 'd' }], line + 1, 'column [code]'],
      ['the first of several', [{ code: 'c' }, { id: 'taken' }], line, 'column [code]'],
    ]
    let branches: TestBranches

    beforeAll(async () => {
      branches = await TestBranches.create(service, `refused-${branch}`, TABLES)
      await branches.put('main', 't', 'taken', { code: 'c' })
      await branches.fork('dev')
      await branches.put('dev', 't', 'own', { text: 'a' })
    })

    it.each(cases)('is refused with the line of %s', async (_name, records, number, message) => {
      const before = await countRecords(branches, branch)
      const stream = await openStream(branches, branch)
      const answer = await stream.finish(records)
      expect(answer.status).toBe(400)
      expect(answer.body.errors).toMatchObject([
        { line: number, message: expect.stringContaining(message) },
      ])
      expect(await countRecords(branches, branch)).toBe(before)
      expect(await stages()).toEqual([])
    })

    it('replaces deleted records, and forks keep what they had', async () => {
      await branches.put(branch, 't', 'deleted', { code: 'e' })
      await branches.fork(`of-${branch}`, branch)
      await branches.remove(branch, 't', 'deleted', 'taken')
      const stream = await openStream(branches, branch)
      const answer = await stream.finish([
        { id: 'deleted', code: 'c' },
        { id: 'taken', code: 'e' },
      ])
      expect(answer.body).toMatchObject({ inserted: LONG.length + 2 })
      expect(await branches.record(branch, 't', 'taken')).toMatchObject({ code: 'e' })
      expect(await branches.record(`of-${branch}`, 't', 'taken')).toMatchObject({ code: 'c' })
      expect(await branches.record(`of-${branch}`, 't', 'long-0')).toBeUndefined()
    })
  })
})

describe('the collector', () => {
  it('removes what a stream of a killed process has left behind, and nothing else', async () => {
    const branches = await TestBranches.create(service, 'collected', TABLES)
    const stream = await openStream(branches)
    const { pool } = service.database
    await pool.query(
      `insert into offshoot_work.streams values ('left', now() - interval '2 hours')`,
    )
    await pool.query('create unlogged table offshoot_work.stream_left ()')
    while (await collectStage(service.database));
    expect(await stages()).toHaveLength(2)
    expect((await stream.finish()).status).toBe(200)
    expect(await stages()).toEqual([])
  })
})
