import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTracing, type Tracing } from '../../packages/server/src/start-tracing.js'
import { TestBranches } from '../support/branches.js'
import { type CollectedSpan, type Collector, startCollector } from '../support/otlp-collector.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'
import { openWire } from '../support/wire-clients.js'

const CANARY = 'canary-4711'
const PARENT = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331' }
const traceparent = (flags: string) => `00-${PARENT.traceId}-${PARENT.spanId}-${flags}`
const SETTINGS = { telemetryHeaders: { 'x-tenant': 'me' }, serviceName: 'my-offshoot' }

let collector: Collector
let tracing: Tracing
let service: TestService
let branches: TestBranches
const failures: unknown[] = []

beforeAll(async () => {
  collector = await startCollector()
  tracing = startTracing(
    { ...SETTINGS, traceSampleRatio: 1 },
    {
      url: `${collector.url}/v1/traces`,
      pauseMs: 20,
      onError: (error) => failures.push(error),
    },
  )
  service = await createTestService({ tracing, app: { tracer: tracing.tracer } })
  branches = await TestBranches.create(service, 'shop', {
    people: [
      { name: 'name', type: 'string' },
      { name: 'email', type: 'email', unique: true },
    ],
  })
})
afterAll(async () => {
  await service.close()
  await tracing.stop()
  await collector.close()
})

const attribute = (span: CollectedSpan | undefined, name: string) => {
  const { stringValue, intValue } = span?.attributes.find(({ key }) => key === name)?.value ?? {}
  return stringValue ?? (intValue === undefined ? undefined : Number(intValue))
}

/** Returns the span of a request and its child spans, one for each PostgreSQL statement. */
async function traceOf(id: unknown): Promise<[CollectedSpan, CollectedSpan[]]> {
  const isIt = (span: CollectedSpan) => attribute(span, 'offshoot.request_id') === id
  await until(async () => collector.spans.some(isIt))
  const request = collector.spans.find(isIt) as CollectedSpan
  const below = collector.spans.filter(
    (span) => span.traceId === request.traceId && span.parentSpanId === request.spanId,
  )
  return [request, below]
}

describe('a trace', () => {
  it('has each statement of a client of PostgreSQL, with its SQLSTATE and without its text', async () => {
    const wire = await openWire(service, { tracer: tracing.tracer })
    const client = await wire.connect('shop:main')
    await client.query('select name from people where name = $1', [CANARY])
    await expect(
      client.query(`select missing from people where name = '${CANARY}'`),
    ).rejects.toThrow()
    const statements = () => collector.spans.filter(({ name }) => name === 'statement query')
    await until(async () => statements().length === 2)
    expect(statements().map((span) => attribute(span, 'db.response.status_code'))).toEqual([
      '00000',
      '42703',
    ])
    const [first] = statements()
    const below = () => collector.spans.filter(({ parentSpanId }) => parentSpanId === first?.spanId)
    await until(async () => below().length > 0)
    expect(JSON.stringify(collector.spans)).not.toContain(CANARY)
    await wire.close()
  })

  it('has the request and every exchange with PostgreSQL that it took', async () => {
    const answer = await branches.call('main', 'PUT', '/tables/people/data/one', { name: CANARY })
    const [request, statements] = await traceOf(answer.headers['x-request-id'])
    expect(request).toMatchObject({
      name: 'PUT /db/:databaseBranch/tables/:tableName/data/:recordId',
      kind: 2,
      status: {},
    })
    expect(request.traceId).toMatch(/^[0-9a-f]{32}$/)
    expect(request).not.toHaveProperty('parentSpanId')
    expect(attribute(request, 'http.request.method')).toBe('PUT')
    expect(attribute(request, 'http.response.status_code')).toBe(201)
    expect(statements.length).toBeGreaterThan(0)
    const write = statements.find(({ name }) => name.startsWith('begin lock'))
    expect(write?.name).toMatch(/^begin lock .*commit$/)
    expect(write?.kind).toBe(3)
    expect(attribute(write, 'db.system.name')).toBe('postgresql')
    expect(attribute(write, 'db.operation.batch.size')).toBeGreaterThan(3)
    for (const { startTimeUnixNano, endTimeUnixNano } of statements) {
      expect(BigInt(startTimeUnixNano)).toBeGreaterThanOrEqual(BigInt(request.startTimeUnixNano))
      expect(BigInt(endTimeUnixNano)).toBeGreaterThanOrEqual(BigInt(startTimeUnixNano))
    }
  })

  it('follows a read, a query, a bulk insert by COPY and requests of the control plane', async () => {
    const answers = [
      await branches.call('main', 'GET', '/tables/people/data/one'),
      await branches.call('main', 'POST', '/tables/people/query', {}),
      await branches.call('main', 'POST', '/tables/people/bulk', { records: [{ name: CANARY }] }),
      await service.call('GET', '/user'),
      await service.call('GET', '/workspaces'),
    ]
    const names: string[][] = []
    for (const answer of answers) {
      expect(answer.status).toBe(200)
      const [, statements] = await traceOf(answer.headers['x-request-id'])
      names.push(statements.map(({ name }) => name))
    }
    expect(names[0]).toContain('shared read')
    expect(names[1]?.join()).toContain('select')
    // On a cluster, a bulk insert takes no COPY.
    expect(names[2]?.join()).toContain(service.database.server.isCluster ? 'with' : 'copy')
    for (const statements of names) expect(statements.length).toBeGreaterThan(0)
  })

  it('gives each of several requests at once what is its own', async () => {
    const count = 20
    const answers = await Promise.all(
      Array.from({ length: count }, (_, index) =>
        branches.call('main', 'GET', `/tables/people/data/${index % 2 === 0 ? 'one' : 'none'}`),
      ),
    )
    const traces = await Promise.all(
      answers.map((answer) => traceOf(answer.headers['x-request-id'])),
    )
    expect(new Set(traces.map(([request]) => request.traceId)).size).toBe(count)
    for (const [, statements] of traces) {
      expect(statements.map(({ name }) => name)).toContain('shared read')
    }
  })

  it('is not confused by requests that wait for each other', async () => {
    const narrow = await createTestService({
      url: service.url,
      limits: { requestsAtOnceMax: 2 },
      tracing,
      app: { tracer: tracing.tracer },
    })
    const ask = () => narrow.call('GET', '/workspaces', { key: service.key })
    await ask()
    const [, alone] = await traceOf((await ask()).headers['x-request-id'])
    const answers = await Promise.all(Array.from({ length: 30 }, ask))
    await narrow.close()
    for (const answer of answers) {
      expect(answer.status).toBe(200)
      const [, statements] = await traceOf(answer.headers['x-request-id'])
      expect(statements).toHaveLength(alone.length)
    }
  })

  it('goes on where the caller has begun, if the caller wants it to', async () => {
    const ask = (header: string) =>
      service.call('GET', '/user', { headers: { traceparent: header } })
    const wanted = await ask(traceparent('01'))
    const [request] = await traceOf(wanted.headers['x-request-id'])
    expect(request).toMatchObject({ traceId: PARENT.traceId, parentSpanId: PARENT.spanId })
    const unwanted = await ask(traceparent('00'))
    const malformed = [
      'nonsense',
      `ff${traceparent('01').slice(2)}`,
      `00-${'0'.repeat(32)}-${PARENT.spanId}-01`,
      `00-${PARENT.traceId}-${'0'.repeat(16)}-01`,
      traceparent('01').toUpperCase(),
    ]
    for (const header of malformed) {
      const [fresh] = await traceOf((await ask(header)).headers['x-request-id'])
      expect(fresh.traceId).not.toBe(PARENT.traceId)
      expect(fresh).not.toHaveProperty('parentSpanId')
    }
    // Spans are exported in order, so the unwanted one would have arrived by now.
    const id = unwanted.headers['x-request-id']
    expect(collector.spans.some((span) => attribute(span, 'offshoot.request_id') === id)).toBe(
      false,
    )
  })

  it('marks what failed, without saying what was in it', async () => {
    await branches.put('main', 'people', 'two', { email: `${CANARY}@example.com` })
    const taken = await branches.call('main', 'PUT', '/tables/people/data/three', {
      email: `${CANARY}@example.com`,
    })
    expect(taken.status).toBe(400)
    const [request, statements] = await traceOf(taken.headers['x-request-id'])
    expect(request.status).toEqual({})
    expect(attribute(request, 'error.type')).toBe(taken.body.code)
    const failed = statements.filter(({ status }) => status.code === 2)
    expect(failed.map((span) => attribute(span, 'error.type'))).toContain('23505')
    const text = collector.bodies.join('')
    for (const secret of [CANARY, service.key, service.workspaceId]) {
      expect(text).not.toContain(secret)
    }
  })

  it('says who sends it, with the headers of the settings', () => {
    expect(collector.headers[0]).toMatchObject({
      url: '/v1/traces',
      'content-type': 'application/json',
      'x-tenant': 'me',
    })
    const [{ resource } = { resource: {} }] = JSON.parse(collector.bodies[0] ?? '').resourceSpans
    expect(resource.attributes).toContainEqual({
      key: 'service.name',
      value: { stringValue: 'my-offshoot' },
    })
  })
})

describe('a collector that is away', () => {
  it('costs no request, is reported once, and its spans are counted as dropped', async () => {
    collector.answerWith(503)
    const before = tracing.dropped
    for (let count = 0; count < 3; count++) {
      expect((await service.call('GET', '/user')).status).toBe(200)
      await until(async () => tracing.dropped > before + count)
    }
    expect(failures).toHaveLength(1)
    collector.answerWith(200)
    const answer = await service.call('GET', '/user')
    expect((await traceOf(answer.headers['x-request-id']))[0].name).toBe('GET /user')
  })

  it('gets only the part of requests that the settings ask for', async () => {
    const url = `${collector.url}/v1/traces`
    const onError = () => undefined
    const none = startTracing({ ...SETTINGS, traceSampleRatio: 0 }, { url, onError })
    expect(none.tracer.startRequest(undefined)).toBeUndefined()
    expect(none.tracer.startRequest(traceparent('01'))).toBeDefined()
    await none.stop()
  })
})
