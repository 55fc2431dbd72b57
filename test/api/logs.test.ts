import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import { prettyLine, toLoggedError } from '../../packages/server/src/telemetry/log.js'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'

/** Stands for any data that a user sends or stores. */
const CANARY = 'canary-4711'

let service: TestService
let branches: TestBranches
const lines: string[] = []
const entries = () => lines.map((line) => JSON.parse(line) as Record<string, unknown>)
const lineOf = (id: unknown) => entries().filter((entry) => entry.requestId === id)

beforeAll(async () => {
  service = await createTestService({
    app: {
      logLevel: 'info',
      logStream: { write: (line) => lines.push(line) },
      requestIdHeader: 'X-Edge-Id',
    },
  })
  branches = await TestBranches.create(service, 'shop', {
    people: [
      { name: 'name', type: 'string' },
      { name: 'email', type: 'email', unique: true },
      { name: 'photo', type: 'file' },
    ],
  })
})
afterAll(() => service.close())

/** Sends requests of every kind, each with data that must not be logged. */
async function makeRequests(): Promise<void> {
  const people = '/tables/people'
  const record = { name: CANARY, email: `${CANARY}@example.com` }
  const photo = { name: `${CANARY}.txt`, base64Content: Buffer.from(CANARY).toString('base64') }
  const call = branches.call.bind(branches)
  await call('main', 'PUT', `${people}/data/${CANARY}`, { ...record, photo })
  await call('main', 'GET', `${people}/data/${CANARY}?columns=name`)
  await call('main', 'GET', `${people}/data/${CANARY}/column/photo/file`)
  await call('main', 'POST', `${people}/query`, { filter: { name: { $contains: CANARY } } })
  await call('main', 'POST', `${people}/query`, { filter: { [CANARY]: CANARY } })
  await call('main', 'POST', `${people}/data`, record)
  await call('main', 'POST', `${people}/bulk`, { records: [record, { id: CANARY, name: 5 }] })
  await call('main', 'POST', `${people}/bulk`, `{"records": [{"name": "${CANARY}"`)
  await call('main', 'POST', '/transaction', {
    operations: [{ insert: { table: 'people', record } }, { get: { table: CANARY, id: CANARY } }],
  })
  await call('main', 'GET', `${people}/data/none`, undefined, { key: `off_${CANARY}` })
  await service.call('GET', `/${CANARY}?value=${CANARY}`)
  await service.call('GET', `/%zz${CANARY}`)
  await service.call('POST', `/workspaces/${service.workspaceId}/invites/${CANARY}/accept`)
  await service.call('GET', `/file/${CANARY}`)
  await service.call('GET', '/user', { headers: { 'x-note': CANARY, cookie: CANARY } })
}

/** Sends a request that fails in PostgreSQL with an error that quotes the row. */
async function failInside() {
  const [heap] = await service.database.query<{ schema: string; name: string }>(sql`
    select schemaname as schema, tablename as name
    from pg_tables
    where starts_with(schemaname, 'offshoot_db_') and tablename like 'heap%'`)
  const table = sql`${ident(heap?.schema ?? '')}.${ident(heap?.name ?? '')}`
  await service.database.query(
    sql`alter table ${table} add constraint unexpected check (id <> 'x')`,
  )
  return branches.call('main', 'PUT', '/tables/people/data/x', { name: CANARY })
}

describe('the log', () => {
  it('has one line in JSON for each request, with its id and what it was about', async () => {
    lines.length = 0
    const answer = await branches.call('main', 'GET', '/tables/people/data/nobody')
    expect(lines).toHaveLength(1)
    expect(entries()[0]).toMatchObject({
      level: 30,
      requestId: answer.headers['x-request-id'],
      method: 'GET',
      route: '/db/:databaseBranch/tables/:tableName/data/:recordId',
      status: 404,
      durationMs: expect.any(Number),
      workspace: service.workspaceId,
      database: 'shop',
      branch: 'main',
      code: 'record_not_found',
      msg: 'request',
    })
    expect(answer.body.id).toBe(answer.headers['x-request-id'])
  })

  it('holds nothing that was sent or stored, whatever becomes of a request', async () => {
    lines.length = 0
    await makeRequests()
    const failed = await failInside()
    expect(failed.status).toBe(500)
    expect(lines.length).toBeGreaterThan(14)
    for (const entry of entries()) expect(entry.requestId).toMatch(/^req_[0-9a-f]{32}$/)
    const text = lines.join('')
    for (const secret of [CANARY, Buffer.from(CANARY).toString('base64'), service.key]) {
      expect(text).not.toContain(secret)
    }
    const [error, request] = lineOf(failed.body.id)
    expect(error).toMatchObject({
      level: 50,
      msg: 'request failed',
      route: '/db/:databaseBranch/tables/:tableName/data/:recordId',
      err: {
        code: '23514',
        // Citus passes errors of nodes on without the name of the constraint.
        ...(service.database.server.isCluster ? {} : { constraint: 'unexpected' }),
        message: 'not shown',
        stack: expect.stringMatching(/^at .*\n/),
      },
    })
    expect(Object.keys(error?.err as object)).not.toContain('detail')
    expect(request).toMatchObject({ level: 30, status: 500, code: 'internal' })
  })

  it('takes over the id of a trusted header when it is a sane one', async () => {
    const ask = (id: string) => service.call('GET', '/user', { headers: { 'x-edge-id': id } })
    const given = await ask('edge-0123456789')
    expect(given.headers['x-request-id']).toBe('edge-0123456789')
    expect(lineOf('edge-0123456789')).toHaveLength(1)
    for (const bad of ['short', 'a b c d e f', '"},{"level":60', 'x'.repeat(129)]) {
      expect((await ask(bad)).headers['x-request-id']).toMatch(/^req_/)
    }
    const other = { headers: { 'x-request-id': 'not-the-trusted-one' } }
    expect((await service.call('GET', '/user', other)).headers['x-request-id']).toMatch(/^req_/)
  })
})

describe('an error in the log', () => {
  it('says where it happened, without the message of the engine or PostgreSQL', () => {
    const of = (error: unknown) => JSON.stringify(toLoggedError(error))
    let syntax: unknown
    try {
      JSON.parse(`${CANARY} is not JSON`)
    } catch (error) {
      syntax = error
    }
    const detailed = Object.assign(new Error(`invalid input syntax: "${CANARY}"`), {
      severity: 'ERROR',
      code: '22P02',
      detail: CANARY,
      where: CANARY,
      internalQuery: CANARY,
      routine: 'pg_strtoint32_safe',
    })
    const lookalike = new TypeError(`first line\n    at ${CANARY} (file.ts:1:1)`)
    for (const error of [syntax, detailed, lookalike, new RangeError(CANARY), CANARY, null]) {
      expect(of(error)).not.toContain(CANARY)
    }
    expect(of(new Error('the file is missing', { cause: detailed }))).toContain('22P02')
    expect(toLoggedError(detailed)).toMatchObject({ routine: 'pg_strtoint32_safe' })
    const away = Object.assign(new Error('too many clients'), { severity: 'FATAL', code: '53300' })
    expect(toLoggedError(away).message).toBe('too many clients')
    const missing = new TypeError("Cannot read properties of undefined (reading 'secret')")
    expect(toLoggedError(missing).message).toBe('Cannot read properties of undefined')
  })

  it('is for people to read at a terminal', () => {
    const line = JSON.stringify({
      level: 40,
      time: Date.UTC(2026, 0, 2, 3, 4, 5, 6),
      pid: 1,
      hostname: 'h',
      requestId: 'req_1',
      err: { type: 'Error', message: 'away', stack: 'at a\nat b' },
      msg: 'the database cannot be reached',
    })
    expect(prettyLine(`${line}\n`)).toBe(
      '03:04:05.006 WARN  the database cannot be reached requestId=req_1 ' +
        'error={"type":"Error","message":"away"}\n    at a\n    at b\n',
    )
    expect(prettyLine('not JSON\n')).toBe('not JSON\n')
  })
})
