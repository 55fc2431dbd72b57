import { PassThrough } from 'node:stream'
import { isDeepStrictEqual } from 'node:util'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { INSERTED_ROWS_MAX } from '../../packages/server/src/data/records/stream-layer.js'
import { insertPin } from '../../packages/server/src/domain/merges/merge-base.js'
import { PIN_MINUTES_MAX } from '../../packages/server/src/domain/merges/pins.js'
import { runTransaction } from '../../packages/server/src/postgres/run-transaction.js'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import { absorbNext } from '../../packages/server/src/rows/heaps/absorb.js'
import { collectHeap } from '../../packages/server/src/rows/heaps/collect.js'
import { collectSpares } from '../../packages/server/src/rows/heaps/spare-heaps.js'
import { Stage } from '../../packages/server/src/rows/merging/stage.js'
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

/** The tables that streams fill. */
async function stages(): Promise<string[]> {
  const { rows } = await service.database.pool.query(
    `select 'heap_' || heap_id as name from offshoot_work.spares where definition = 'layer'`,
  )
  return rows.map(({ name }) => name)
}

/** Empties the stage of a stream when it has rows, as PostgreSQL does with unlogged tables after a crash. */
async function emptyStage(): Promise<void> {
  let name: string | undefined
  const findTable = async () => {
    const { rows } = await service.database.pool.query(
      'select oid::regclass::text as name from pg_class where relname = any($1)',
      [await stages()],
    )
    name = rows[0]?.name
    return name !== undefined
  }
  await until(findTable)
  const hasRows = async () => {
    const found = await service.database.pool.query(`select from ${name} limit 1`)
    return found.rows.length > 0
  }
  await until(hasRows)
  await service.database.pool.query(`truncate ${name}`)
}

async function countRecords(branches: TestBranches, branch = 'main'): Promise<number> {
  const { body } = await branches.call(branch, 'POST', '/tables/t/summarize', {
    summaries: { count: { count: '*' } },
  })
  return body.summaries[0].count
}

describe.each(['short', 'long'] as const)('a %s stream of records that may exist', (length) => {
  const more = length === 'long' ? LONG : []
  const send = async (
    branches: TestBranches,
    records: readonly object[],
    { existing, branch = 'main' }: { existing: string; branch?: string },
  ) => {
    const path = `/tables/t/bulk?existing=${existing}`
    return branches.call(branch, 'POST', path, linesOf(records), {
      headers: { 'content-type': 'application/x-ndjson' },
    })
  }
  const create = async (name: string) => {
    const branches = await TestBranches.create(service, `${name}-${length}`, TABLES)
    await branches.bulk('main', 't', [
      { id: 'a', text: 'old', code: 'A' },
      { id: 'b', text: 'old', code: 'B' },
    ])
    await branches.fork('dev')
    return branches
  }

  it.each(['main', 'dev'])('skips those that exist on %s', async (branch) => {
    const branches = await create(`skip-${branch}`)
    const records = [{ id: 'a', text: 'new', code: 'A' }, { id: 'c', code: 'C' }, ...more]
    const answer = await send(branches, records, { existing: 'skip', branch })
    expect(answer.body).toEqual({
      ...{ inserted: 1 + more.length, skipped: 1, failed: 0, errors: [] },
    })
    expect(await branches.read(branch, 't', ['a', 'b', 'c'])).toMatchObject({
      a: { text: 'old', code: 'A' },
      b: { text: 'old' },
      c: { code: 'C' },
    })
    const again = await send(branches, records, { existing: 'skip', branch })
    expect(again.body).toMatchObject({ inserted: 0, skipped: 2 + more.length })
    const other = branch === 'main' ? 'dev' : 'main'
    expect(await countRecords(branches, other)).toBe(2)
    expect(await stages()).toEqual([])
  })

  it.each(['main', 'dev'])('replaces those that exist on %s, as a PUT does', async (branch) => {
    const branches = await create(`replace-${branch}`)
    const before = await branches.record(branch, 't', 'a')
    // The second takes the value that the first gives up.
    const records = [
      { id: 'a', code: 'Z' },
      { id: 'c', code: 'A' },
      { id: 'b', code: 'B' },
      ...more,
    ]
    const answer = await send(branches, records, { existing: 'replace', branch })
    expect(answer.body).toEqual({
      ...{ inserted: 1 + more.length, updated: 2, failed: 0, errors: [] },
    })
    expect(await branches.record(branch, 't', 'a')).toEqual({
      ...{ id: 'a', code: 'Z' },
      service: {
        ...{ version: 1, createdAt: before.service.createdAt, updatedAt: expect.any(String) },
      },
    })
    expect(await branches.record(branch, 't', 'c')).toMatchObject({ service: { version: 0 } })
    const other = branch === 'main' ? 'dev' : 'main'
    expect(await branches.read(other, 't', ['a', 'c'])).toEqual({ a: { text: 'old', code: 'A' } })
  })

  it.each(['main', 'dev'])('is refused as a whole on %s, with the line', async (branch) => {
    const branches = await create(`refused-${branch}`)
    const options = { branch }
    const lineOf = async (existing: string, records: readonly object[]) => {
      const { status, body } = await send(branches, [...more, ...records], { ...options, existing })
      expect(status).toBe(400)
      expect(body.message).toBe('1 line is invalid; nothing was inserted')
      return body.errors.map(({ line, message }: { line: number; message: string }) => [
        line - more.length,
        message,
      ])
    }
    const twice = [{ id: 'x' }, { id: 'a', text: 'new', code: 'A' }, { id: 'x' }]
    const id = 'invalid record: column [id]: is not unique'
    expect(await lineOf('skip', twice)).toEqual([[3, id]])
    expect(await lineOf('replace', twice)).toEqual([[3, id]])
    // Line 1 keeps its value, or is skipped; line 3 takes that of another record.
    const taken = [
      { id: 'a', code: 'A' },
      { id: 'y', code: 'Y' },
      { id: 'z', code: 'B' },
    ]
    const code = 'invalid record: column [code]: is not unique'
    expect(await lineOf('skip', taken)).toEqual([[3, code]])
    expect(await lineOf('replace', taken)).toEqual([[3, code]])
    expect(await countRecords(branches, branch)).toBe(2)
    expect(await stages()).toEqual([])
  })
})

describe('records that may exist', () => {
  it('are skipped or replaced by atomic streams only', async () => {
    const branches = await TestBranches.create(service, 'modes', TABLES)
    const ndjson = { headers: { 'content-type': 'application/x-ndjson' } }
    const partial = '/tables/t/bulk?existing=skip&mode=partial'
    expect(await branches.call('main', 'POST', partial, '{}\n', ndjson)).toMatchObject({
      ...{ status: 400, body: { message: expect.stringContaining('needs mode=atomic') } },
    })
    const json = { records: [{ id: 'a' }] }
    expect(
      await branches.call('main', 'POST', '/tables/t/bulk?existing=replace', json),
    ).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
    const unknown = '/tables/t/bulk?existing=merge'
    expect((await branches.call('main', 'POST', unknown, '{}\n', ndjson)).status).toBe(400)
    const empty = await branches.call('main', 'POST', '/tables/t/bulk?existing=skip', '', ndjson)
    expect(empty.body).toEqual({ inserted: 0, skipped: 0, failed: 0, errors: [] })
    expect(await countRecords(branches)).toBe(0)
  })
})

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

  it.each([
    ['main', 'before the rest of it arrives'],
    ['dev', 'before the rest of it arrives, on a branch that inherits rows'],
  ])('on %s is refused as a whole if PostgreSQL crashes %s', async (branch) => {
    const branches = await TestBranches.create(service, `crash-${branch}`, TABLES)
    await branches.put('main', 't', 'before', { text: 'a' })
    await branches.fork('dev')
    const stream = await openStream(branches, branch)
    await emptyStage()
    const answer = await stream.finish([{ id: 'last' }])
    expect(answer).toMatchObject({ status: 503, body: { code: 'unavailable' } })
    expect(await countRecords(branches, branch)).toBe(1)
    expect(await stages()).toEqual([])
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

describe('a stream of many rows into a branch with forks', () => {
  const MANY = range(INSERTED_ROWS_MAX + 1).map((n) => ({ id: `many-${n}`, code: `code-${n}` }))
  const TOTAL = LONG.length + MANY.length

  async function open(name: string, headers = {}) {
    const branches = await TestBranches.create(service, name, { t: TABLES.t })
    await branches.put('main', 't', 'before', { text: 'a' })
    await branches.fork('early')
    return { branches, stream: await openStream(branches, 'main', headers) }
  }

  /** Runs `body` after the state of the branch was pinned and before the rows are compared with it. */
  async function whileCompared<Result>(
    finish: () => Promise<Result>,
    body: () => Promise<void>,
  ): Promise<Result> {
    let stage: string | undefined
    await until(async () => {
      stage = (await stages())[0]
      return stage !== undefined
    })
    const holder = await service.database.pool.connect()
    try {
      await holder.query('begin')
      const { rows } = await holder.query(
        'select oid::regclass::text as name from pg_class where relname = $1',
        [stage],
      )
      const name = rows[0].name
      // Rows are copied to the stage, but its statistics are not collected.
      await holder.query(`lock table ${name} in share update exclusive mode`)
      const result = finish()
      result.catch(() => undefined)
      await until(async () => {
        const { rows } = await service.database.pool.query(
          `select from pg_locks
          where relation = '${name}'::regclass and not granted`,
        )
        return rows.length > 0
      })
      await body()
      await holder.query('commit')
      return await result
    } finally {
      await holder.query('rollback')
      holder.release()
    }
  }

  /** Returns what streams leave in the catalogue, and the number of rows in the heap of `main`. */
  async function storage(branches: TestBranches) {
    const { rows } = await service.database.pool.query(
      `select h.id, h.database_id, h.kind, b.name, b.deleted_at is not null as "isHidden"
      from offshoot.heaps h
      join offshoot.databases d on d.id = h.database_id
      left join offshoot.branches b on b.id = h.branch_id
      where d.name = $1`,
      [branches.database],
    )
    const heap = rows.find(({ kind, name }) => kind === 'heap' && name === 'main')
    const counted = await service.database.pool.query(
      `select count(*)::integer as count from offshoot_db_${heap.database_id}.heap_${heap.id}`,
    )
    const hidden = await service.database.pool.query(
      `select from offshoot.branches b
      join offshoot.databases d on d.id = b.database_id
      where d.name = $1 and b.deleted_at is not null`,
      [branches.database],
    )
    return {
      kinds: rows.map(({ kind }) => kind).sort(),
      rows: counted.rows[0].count,
      hidden: hidden.rows.length,
    }
  }

  it('is published without inserting its rows while the branch is locked', async () => {
    const headers = { 'idempotency-key': 'many' }
    const { branches, stream } = await open('many', headers)
    const answer = await whileCompared(
      () => stream.finish(MANY),
      async () => {
        await branches.put('main', 't', 'while', { code: 'w' })
        await branches.fork('meanwhile')
      },
    )
    expect(answer.body).toEqual({ inserted: TOTAL, failed: 0, errors: [] })
    expect(await storage(branches)).toEqual({ kinds: ['heap', 'layer'], rows: 2, hidden: 0 })
    await branches.fork('late')
    const check = async () => {
      expect(await countRecords(branches)).toBe(TOTAL + 2)
      expect(await countRecords(branches, 'early')).toBe(1)
      expect(await countRecords(branches, 'meanwhile')).toBe(2)
      expect(await countRecords(branches, 'late')).toBe(TOTAL + 2)
      expect(await branches.record('late', 't', 'many-7')).toMatchObject({ code: 'code-7' })
    }
    await check()
    const taken = await branches.call('main', 'POST', '/tables/t/data', { code: 'code-9' })
    expect(taken.status).toBe(400)
    const repeated = await service.app.inject({
      method: 'POST',
      url: `${service.workspace}/db/${branches.database}:main/tables/t/bulk`,
      headers: {
        authorization: `Bearer ${service.key}`,
        'content-type': 'application/x-ndjson',
        ...headers,
      },
      payload: linesOf([...LONG, ...MANY]),
    })
    expect(repeated.json()).toEqual(answer.body)
    await branches.patch('main', 't', 'many-7', { code: 'changed' })
    while (await absorbNext(service.storage));
    expect(await storage(branches)).toMatchObject({ rows: TOTAL + 2, hidden: 0 })
    await check()
    expect(await branches.record('main', 't', 'many-7')).toMatchObject({ code: 'changed' })
  })

  it.each([
    { what: 'id', record: { id: 'many-3' }, line: LONG.length + 4 },
    { what: 'unique value', record: { id: 'x', code: 'code-5' }, line: LONG.length + 6 },
  ])('is refused if another request writes the same $what meanwhile', async (given) => {
    const { what, record, line } = given
    const { branches, stream } = await open(`taken-${what.replace(' ', '-')}`)
    const answer = await whileCompared(
      () => stream.finish(MANY),
      () => branches.bulk('main', 't', [record]),
    )
    expect(answer.status).toBe(400)
    expect(answer.body.errors).toEqual([expect.objectContaining({ line })])
    expect(await countRecords(branches)).toBe(2)
    expect(await storage(branches)).toEqual({ kinds: ['heap'], rows: 2, hidden: 0 })
  })

  it('is published without inserting its rows, though its table was empty when it began', async () => {
    const branches = await TestBranches.create(service, 'no-longer-empty', { t: TABLES.t })
    const stream = await openStream(branches)
    await branches.put('main', 't', 'while', { code: 'w' })
    await branches.fork('meanwhile')
    expect((await stream.finish(MANY)).body).toEqual({ inserted: TOTAL, failed: 0, errors: [] })
    // The heap that the branch had to be given is a layer of the one that it has.
    expect(await storage(branches)).toEqual({ kinds: ['heap', 'layer'], rows: 1, hidden: 0 })
    const check = async () => {
      expect(await countRecords(branches)).toBe(TOTAL + 1)
      expect(await countRecords(branches, 'meanwhile')).toBe(1)
      const taken = await branches.call('main', 'POST', '/tables/t/data', { code: 'code-9' })
      expect(taken.status).toBe(400)
    }
    await check()
    while (await absorbNext(service.storage));
    expect(await storage(branches)).toMatchObject({ rows: TOTAL + 1, hidden: 0 })
    await check()
  })

  it('is refused if PostgreSQL crashes before it is compared', async () => {
    const { branches, stream } = await open('crash-many')
    await emptyStage()
    const answer = await stream.finish(MANY)
    expect(answer).toMatchObject({ status: 503, body: { code: 'unavailable' } })
    expect(await countRecords(branches)).toBe(1)
    expect(await storage(branches)).toEqual({ kinds: ['heap'], rows: 1, hidden: 0 })
  })

  it.each([
    ['a value', { id: 'again', code: 'code-0' }, 'code'],
    ['an id', { id: 'many-0', code: 'again' }, 'id'],
  ])('is refused if it has %s twice', async (what, record, column) => {
    const { branches, stream } = await open(`twice-${what.replace(' ', '-')}`)
    const answer = await stream.finish([...MANY, record])
    expect(answer.status).toBe(400)
    expect(answer.body.errors).toEqual([
      expect.objectContaining({
        line: TOTAL + 1,
        message: `invalid record: column [${column}]: is not unique`,
      }),
    ])
    expect(await storage(branches)).toEqual({ kinds: ['heap'], rows: 1, hidden: 0 })
  })

  it('is refused with the first line whose id a record has, and not if the record was deleted', async () => {
    const { branches, stream } = await open('existing-id')
    await branches.bulk('main', 't', [{ id: 'many-5' }, { id: 'many-7' }, { id: 'many-9' }])
    await branches.remove('main', 't', 'many-5')
    await branches.fork('with-records')
    await branches.remove('main', 't', 'many-7')
    const answer = await stream.finish(MANY)
    expect(answer.status).toBe(400)
    expect(answer.body.errors).toEqual([
      expect.objectContaining({
        line: LONG.length + 10,
        message: 'invalid record: column [id]: is not unique',
      }),
    ])
    expect((await storage(branches)).kinds).toEqual(['heap'])
  })

  it('starts at version 0 where records were deleted meanwhile', async () => {
    const { branches, stream } = await open('versions')
    await branches.put('main', 't', 'many-1', { text: 'a' })
    await branches.patch('main', 't', 'many-1', { text: 'b' })
    await branches.remove('main', 't', 'many-1')
    expect((await stream.finish(MANY)).status).toBe(200)
    expect((await storage(branches)).kinds).toEqual(['heap', 'layer'])
    expect((await branches.record('main', 't', 'many-1')).service.version).toBe(0)
  })
})

describe('a stream into an empty table', () => {
  /** The heap of the table `t` on `main`, with its number of rows and the names of its columns. */
  async function heapOf(branches: TestBranches) {
    const { pool } = service.database
    const { rows } = await pool.query(
      `select h.id, format('offshoot_db_%s.heap_%s', h.database_id, h.id) as name
      from offshoot.heaps h
      join offshoot.databases d on d.default_branch_id = h.branch_id
      join offshoot.branches b on b.id = h.branch_id
      join offshoot.schemas s on s.id = b.schema_id
      where d.name = $1 and h.kind = 'heap'
        and h.table_id = (jsonb_path_query_first(s.document, '$.tables[*] ? (@.name == "t").id'))::bigint`,
      [branches.database],
    )
    expect(rows.length).toBe(1)
    const { id, name } = rows[0]
    const counted = await pool.query(`select count(*)::integer as count from ${name}`)
    const described = await pool.query(
      `select c.reloptions as options, array(
          select a.attname::text from pg_attribute a
          where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        ) as columns
      from pg_class c where c.oid = $1::regclass`,
      [name],
    )
    return { id, rows: counted.rows[0].count, ...described.rows[0] }
  }

  it('is written once: the heap that it fills becomes that of the branch', async () => {
    const branches = await TestBranches.create(service, 'empty', TABLES)
    const before = await heapOf(branches)
    const stream = await openStream(branches)
    // The beginning of the stream is in the heap, and nobody sees it.
    const [name] = await stages()
    expect(name).toMatch(/^heap_\d+$/)
    expect(await countRecords(branches)).toBe(0)
    await until(async () => service.database.poolState.inUse === 0)
    expect((await stream.finish([{ id: 'last', code: 'x' }])).status).toBe(200)
    const after = await heapOf(branches)
    expect(after).toEqual({ ...before, id: name?.slice('heap_'.length), rows: LONG.length + 1 })
    expect(await stages()).toEqual([])
    expect(await branches.record('main', 't', 'last')).toMatchObject({
      ...{ code: 'x', service: { version: 0 } },
    })
    // The heap works like any other: rules, updates, and forks that keep what they had.
    const taken = await branches.call('main', 'POST', '/tables/t/data', { code: 'x' })
    expect(taken.status).toBe(400)
    await branches.fork('dev')
    await branches.patch('main', 't', 'last', { code: 'y' })
    await branches.put('main', 't', 'more', { code: 'x' })
    expect(await branches.record('dev', 't', 'last')).toMatchObject({ code: 'x' })
    expect(await branches.record('main', 't', 'more')).toMatchObject({ code: 'x' })
    expect(await countRecords(branches, 'dev')).toBe(LONG.length + 1)
    while (await collectHeap(service.database));
    expect(await countRecords(branches)).toBe(LONG.length + 2)
  })

  it('that is newer than all forks is written once, too', async () => {
    const branches = await TestBranches.create(service, 'newer', { other: TABLES.other })
    await branches.fork('dev')
    await branches.edit('main', { addTable: { table: 't' } })
    for (const column of TABLES.t)
      await branches.edit('main', { addColumn: { table: 't', column } })
    const before = await heapOf(branches)
    const stream = await openStream(branches)
    expect((await stream.finish()).status).toBe(200)
    expect((await heapOf(branches)).id).not.toBe(before.id)
    await branches.fork('late')
    await branches.remove('main', 't', 'long-0')
    expect(await countRecords(branches)).toBe(LONG.length - 1)
    expect(await countRecords(branches, 'late')).toBe(LONG.length)
    expect((await branches.call('dev', 'POST', '/tables/t/query', {})).status).toBe(404)
  })

  it.each([
    ['written', (branches: TestBranches) => branches.put('main', 't', 'while', { code: 'w' }), 1],
    ['forked', (branches: TestBranches) => branches.fork('meanwhile'), 0],
    [
      'forked and written',
      async (branches: TestBranches) => {
        await branches.put('main', 't', 'while', { code: 'w' })
        await branches.fork('meanwhile')
      },
      1,
    ],
  ])('keeps nobody waiting if the branch is %s meanwhile', async (what, change, others) => {
    const branches = await TestBranches.create(
      service,
      `while-${what.replaceAll(' ', '-')}`,
      TABLES,
    )
    const before = await heapOf(branches)
    const stream = await openStream(branches)
    await change(branches)
    await branches.edit('main', {
      addColumn: { table: 'other', column: { name: 'm', type: 'int' } },
    })
    expect((await stream.finish()).status).toBe(200)
    expect(await countRecords(branches)).toBe(LONG.length + others)
    expect((await heapOf(branches)).id).toBe(before.id)
    if (what.includes('forked')) expect(await countRecords(branches, 'meanwhile')).toBe(others)
    expect(await stages()).toEqual([])
  })

  it('is refused with the line of a value that another request has written meanwhile', async () => {
    const branches = await TestBranches.create(service, 'while-taken', TABLES)
    const stream = await openStream(branches)
    await branches.put('main', 't', 'while', { code: 'w' })
    const answer = await stream.finish([{ id: 'a' }, { id: 'b', code: 'w' }])
    expect(answer.status).toBe(400)
    expect(answer.body.errors).toMatchObject([{ line: LONG.length + 2 }])
    expect(await countRecords(branches)).toBe(1)
  })

  it.each([
    ['id', [{ id: 'a' }, { id: 'b' }, { id: 'a' }], 3],
    ['unique value', [{ code: 'a' }, { code: 'a' }], 2],
  ])(
    'is refused with the line that repeats a %s, after lines that are invalid',
    async (...given) => {
      const [what, records, line] = given
      const name = `repeats-${what.replace(' ', '-')}`
      const branches = await TestBranches.create(service, name, TABLES)
      const answer = await (await openStream(branches)).finish([...records, ...LONG.slice(0, 3)])
      expect(answer.status).toBe(400)
      expect(answer.body.errors).toMatchObject([
        { line: LONG.length + line, message: expect.stringContaining('is not unique') },
      ])
      const invalid = await (await openStream(branches)).finish([...records, { text: 5 }])
      expect(invalid.body.errors).toMatchObject([{ line: LONG.length + records.length + 1 }])
      expect(await countRecords(branches)).toBe(0)
      expect(await stages()).toEqual([])
    },
  )

  it('is refused if PostgreSQL has lost a part of it', async () => {
    const branches = await TestBranches.create(service, 'lost', TABLES)
    const stream = await openStream(branches)
    await emptyStage()
    const answer = await stream.finish([{ id: 'last' }])
    expect(answer).toMatchObject({ status: 503, body: { code: 'unavailable' } })
    expect(await countRecords(branches)).toBe(0)
    expect(await stages()).toEqual([])
  })
})

describe('the collector', () => {
  it.each([
    ['has no rows', []],
    ['has rows', [{ id: 'before' }]],
  ])(
    'removes the stage of a killed process, and no other, if the table %s',
    async (what, before) => {
      const branches = await TestBranches.create(
        service,
        `killed-${what.replaceAll(' ', '-')}`,
        TABLES,
      )
      await branches.bulk('main', 't', before)
      const killed = await openStream(branches)
      const age = (name: string | undefined) =>
        service.database.pool.query(
          `update offshoot_work.spares set kept_until = now() - interval '1 hour'
        where 'heap_' || heap_id = $1`,
          [name],
        )
      const [left] = await stages()
      const other = await openStream(branches)
      await until(async () => (await stages()).length === 2)
      await age(left)
      while (await collectSpares(service.database));
      const rest = await stages()
      expect(rest).toHaveLength(1)
      expect(rest).not.toContain(left)
      expect((await other.finish()).status).toBe(200)
      expect(await countRecords(branches)).toBe(before.length + LONG.length)
      killed.body.destroy(new Error('gone'))
      await until(async () => (await stages()).length === 0)
    },
  )

  it('removes the pin that a killed process has left behind, with all that belongs to it', async () => {
    const branches = await TestBranches.create(service, 'pinned', TABLES)
    await branches.put('main', 't', 'a', { text: 'before' })
    // Pins are taken of branches that have been forked before.
    await branches.fork('dev')
    await branches.delete('dev')
    await runBackground(service)
    const pinned = await pinMain(branches.database)
    await branches.patch('main', 't', 'a', { text: 'after' })
    const lost = await pinMain(branches.database)
    await branches.patch('main', 't', 'a', { text: 'again' })
    expect(await leftBehind(branches.database)).toEqual({
      pins: [pinned, lost].sort(),
      stages: 2,
      versions: 2,
    })
    await age(pinned, PIN_MINUTES_MAX - 1)
    await age(lost, PIN_MINUTES_MAX + 1)
    const untilDone = (left: object) =>
      until(async () => {
        await runBackground(service)
        return isDeepStrictEqual(await leftBehind(branches.database), left)
      })
    await untilDone({ pins: [pinned], stages: 1, versions: 1 })
    await age(pinned, PIN_MINUTES_MAX + 1)
    await untilDone({ pins: [], stages: 0, versions: 0 })
    expect(await branches.read('main', 't', ['a'])).toEqual({ a: { text: 'again' } })
  })
})

/** Does what a large merge does first: pins `main`, and creates a stage that belongs to the pin. */
async function pinMain(databaseName: string): Promise<string> {
  const { database } = service
  const [main] = await database.query<{ branchId: string; databaseId: string }>(sql`
    select default_branch_id as "branchId", id as "databaseId"
    from offshoot.databases
    where name = ${databaseName}`)
  if (main === undefined) throw new Error('the database must exist')
  const { databaseId } = main
  return runTransaction(
    database,
    async (transaction) => {
      const branchId = await insertPin(transaction, { ...main, branchName: 'main' })
      await new Stage(transaction, { databaseId, pinId: branchId }).open(transaction)
      return branchId
    },
    { isolation: 'read committed' },
  )
}

/** Makes a pin as old as that. */
async function age(pinId: string, minutes: number): Promise<void> {
  await service.database.query(sql`
    update offshoot.branches
    set deleted_at = now() - make_interval(mins => ${minutes})
    where id = ${pinId}`)
}

/** The pins of a database, the tables of their stages, and the old versions that are kept. */
async function leftBehind(databaseName: string) {
  const { database } = service
  const pins = await database.query<{ id: string }>(sql`
    select b.id
    from offshoot.branches b join offshoot.databases d on d.id = b.database_id
    where d.name = ${databaseName} and b.deleted_at is not null
    order by b.id collate "C"`)
  const tables = await database.query<{ name: string; place: string }>(sql`
    select c.relname as name, n.nspname as place
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    join offshoot.databases d on n.nspname = 'offshoot_db_' || d.id
    where d.name = ${databaseName} and c.relkind = 'r' and c.relname ~ '^(merge|past)_'`)
  let versions = 0
  for (const { name, place } of tables.filter((table) => table.name.startsWith('past_'))) {
    const rows = await database.query(sql`select from ${ident(place)}.${ident(name)}`)
    versions += rows.length
  }
  const stages = tables.filter(({ name }) => name.startsWith('merge_')).length
  return { pins: pins.map(({ id }) => id), stages, versions }
}
