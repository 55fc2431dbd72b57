import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { listenForMetrics } from '../../packages/server/src/http/metrics-server.js'
import { poolMetrics } from '../../packages/server/src/postgres/pool-metrics.js'
import { runTransaction } from '../../packages/server/src/postgres/run-transaction.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { EVENTS } from '../../packages/server/src/telemetry/events.js'
import { Durations, Metrics } from '../../packages/server/src/telemetry/metrics.js'
import { processMetrics } from '../../packages/server/src/telemetry/process-metrics.js'
import { TestBranches } from '../support/branches.js'
import { freePort } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'

let service: TestService
let branches: TestBranches
const metrics = new Metrics({ renderShareMax: 1 })
const ofProcess = processMetrics('1.2.3')

beforeAll(async () => {
  service = await createTestService({ app: { metrics } })
  metrics.add(...ofProcess.families, ...poolMetrics(service.database), ...EVENTS)
  branches = await TestBranches.create(service, 'shop', {
    people: [{ name: 'name', type: 'string' }],
  })
})
afterAll(async () => {
  ofProcess.stop()
  await service.close()
})

/** Reads `/metrics` into a map from name and labels to value. */
async function read(): Promise<Map<string, number>> {
  const answer = await service.call('GET', '/metrics', { key: null })
  expect(answer.status).toBe(200)
  expect(answer.headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8')
  return parse(answer.body)
}

const SAMPLE = /^([a-z0-9_]+(?:\{(?:[a-z]+="(?:[^"\\\n]|\\.)*",?)+\})?) (\S+)$/

/** Parses the Prometheus text format, and fails on a malformed line. */
function parse(text: string): Map<string, number> {
  const values = new Map<string, number>()
  const announced = new Set<string>()
  for (const line of text.trimEnd().split('\n')) {
    const [, type] = /^# TYPE ([a-z0-9_]+) (?:counter|gauge|histogram)$/.exec(line) ?? []
    if (type !== undefined) announced.add(type)
    if (line.startsWith('# ')) continue
    const [, name = '', value = ''] = SAMPLE.exec(line) ?? []
    const family = name.replace(/\{.*$/, '').replace(/_(bucket|sum|count)$/, '')
    expect(announced.has(family) || announced.has(name.replace(/\{.*$/, '')), line).toBe(true)
    expect(values.has(name), line).toBe(false)
    expect(Number.isFinite(Number(value)), line).toBe(true)
    values.set(name, Number(value))
  }
  return values
}

/** Returns by how much each metric grows during an action. */
async function growth(action: () => Promise<unknown>): Promise<(name: string) => number> {
  const before = await read()
  await action()
  const after = await read()
  return (name) => (after.get(name) ?? 0) - (before.get(name) ?? 0)
}

const RECORD = 'route="/db/:databaseBranch/tables/:tableName/data/:recordId"'

describe('/metrics', () => {
  it('counts and times requests by the pattern of their route', async () => {
    const grown = await growth(async () => {
      await branches.put('main', 'people', 'one', { name: 'x' })
      for (let count = 0; count < 3; count++) await branches.record('main', 'people', 'one')
      await branches.record('main', 'people', 'nobody')
      await service.call('GET', '/nothing/here')
      await service.call('GET', '/nothing/there')
    })
    const requests = 'offshoot_http_requests_total'
    expect(grown(`${requests}{method="PUT",${RECORD},status="201"}`)).toBe(1)
    expect(grown(`${requests}{method="GET",${RECORD},status="200"}`)).toBe(3)
    expect(grown(`${requests}{method="GET",${RECORD},status="404"}`)).toBe(1)
    expect(grown(`${requests}{method="GET",route="none",status="404"}`)).toBe(2)
    const durations = 'offshoot_http_request_duration_seconds'
    expect(grown(`${durations}_count{method="GET",${RECORD}}`)).toBe(4)
    expect(grown(`${durations}_bucket{method="GET",${RECORD},le="+Inf"}`)).toBe(4)
    expect(grown(`${durations}_sum{method="GET",${RECORD}}`)).toBeGreaterThan(0)
  })

  it('knows how many requests there are now, also when some cannot even be read', async () => {
    await Promise.all([
      service.call('GET', '/%zz'),
      service.call('GET', `/user/keys/${'x'.repeat(5000)}`),
      service.call('POST', '/workspaces', { body: '{' }),
      service.call('BREW' as 'GET', '/user').catch(() => undefined),
    ])
    // The request to `/metrics` itself.
    expect((await read()).get('offshoot_http_requests_in_flight')).toBe(1)
  })

  it('counts forks, merges and transactions that were run again', async () => {
    const grown = await growth(async () => {
      await branches.fork('dev')
      await branches.put('dev', 'people', 'two', { name: 'y' })
      await branches.merge('dev', { dryRun: true })
      await branches.merge('dev')
      await branches.reset('dev')
      let attempts = 0
      await runTransaction(service.database, async () => {
        attempts++
        if (attempts < 3) throw Object.assign(new Error('again'), { code: '40001' })
      })
    })
    expect(grown('offshoot_forks_total')).toBe(2)
    expect(grown('offshoot_merges_total')).toBe(1)
    expect(grown('offshoot_transaction_retries_total')).toBe(2)
  })

  it('shows background work by kind: how much there is, how old it is, and what failed', async () => {
    await runBackground(service)
    await service.database.query(sql`
      insert into offshoot.work (kind, database_id, subject, details, created_at, due_at)
      select 'sweep', id, 'gone' || n, '[null]', now() - interval '1 hour', now() + interval '1 hour'
      from offshoot.databases, generate_series(1, 2) n`)
    await service.database.query(sql`
      insert into offshoot.work (kind, database_id, subject, position)
      select 'sweep', id, 'gone', 'no heap' from offshoot.databases`)
    const grown = await growth(async () => {
      await runBackground(service)
    })
    const values = await read()
    expect(values.get('offshoot_work_pending{kind="sweep"}')).toBe(3)
    expect(values.get('offshoot_work_oldest_seconds{kind="sweep"}')).toBeGreaterThanOrEqual(3600)
    expect(values.get('offshoot_work_pending{kind="compact"}')).toBe(0)
    expect(values.get('offshoot_work_oldest_seconds{kind="compact"}')).toBe(0)
    expect(grown('offshoot_work_failures_total{kind="sweep"}')).toBe(1)
    await service.database.query(sql`delete from offshoot.work`)
  })

  it('shows connections, the event loop, memory and the version', async () => {
    const client = await service.database.pool.connect()
    const values = await read()
    client.release()
    expect(values.get('offshoot_pool_connections_max')).toBe(10)
    expect(values.get('offshoot_pool_connections_in_use')).toBe(1)
    expect(values.get('offshoot_pool_connections')).toBeGreaterThan(0)
    expect(values.get('offshoot_pool_waiting')).toBe(0)
    expect(values.get('process_resident_memory_bytes')).toBeGreaterThan(10_000_000)
    expect(values.get('process_cpu_seconds_total')).toBeGreaterThan(0)
    expect(values.has('nodejs_eventloop_lag_p99_seconds')).toBe(true)
    expect(values.has('offshoot_collected_total{kind="blob"}')).toBe(true)
    expect(values.get('offshoot_admission_waiting{lane="work"}')).toBe(0)
    expect(values.get('offshoot_admission_refused_total{lane="imports"}')).toBe(0)
    expect(values.get('offshoot_rate_limited_total')).toBe(0)
    expect(values.has('offshoot_buffered_bytes')).toBe(true)
    const build = `offshoot_build_info{version="1.2.3",node="${process.version}"}`
    expect(values.get(build)).toBe(1)
  })

  it('names no workspace, database, branch, table or record', async () => {
    const { body } = await service.call('GET', '/metrics', { key: null })
    for (const name of [service.workspaceId, 'shop', 'people', '/nothing']) {
      expect(body.includes(name), name).toBe(false)
    }
  })

  it('is served while the process starts and stops, as /health is', async () => {
    for (const state of ['starting', 'draining'] as const) {
      service.lifecycle.enter(state)
      expect((await service.call('GET', '/metrics', { key: null })).status).toBe(200)
      expect((await service.call('GET', '/user')).status).toBe(503)
    }
    service.lifecycle.enter('ready')
  })
})

describe('access to /metrics', () => {
  const TOKEN = 'a-token-for-prometheus'

  it('asks for the token when there is one; no API key will do', async () => {
    const guarded = await createTestService({
      url: service.url,
      app: { metricsAccess: { token: TOKEN } },
    })
    const ask = (key: string | null) => guarded.call('GET', '/metrics', { key })
    expect((await ask(TOKEN)).status).toBe(200)
    for (const wrong of [null, service.key, `${TOKEN}x`]) {
      const answer = await ask(wrong)
      expect(answer.status).toBe(401)
      expect(answer.body).toMatchObject({ code: 'invalid_metrics_token' })
    }
    await guarded.close()
  })

  it('can be on a port of its own, or nowhere', async () => {
    const options = [{ metricsAccess: null }, { metrics: null }]
    for (const app of options) {
      const without = await createTestService({ url: service.url, app })
      expect((await without.call('GET', '/metrics')).status).toBe(404)
      await without.close()
    }
    const port = await freePort()
    const server = await listenForMetrics(metrics, { host: '127.0.0.1', port, token: TOKEN })
    const ask = (path: string, authorization = '') =>
      fetch(`http://127.0.0.1:${port}${path}`, { headers: { authorization } })
    expect((await ask('/metrics', `Bearer ${TOKEN}`)).status).toBe(200)
    expect(parse(await (await ask('/metrics', `Bearer ${TOKEN}`)).text()).size).toBeGreaterThan(20)
    expect((await ask('/metrics')).status).toBe(401)
    expect((await ask('/user', `Bearer ${TOKEN}`)).status).toBe(404)
    await server.close()
  })
})

describe('durations', () => {
  it('are counted in the class whose upper end they do not exceed', () => {
    const durations = new Durations()
    for (const seconds of [0, 0.001, 0.0011, 30, 31]) durations.add(seconds)
    const buckets = [...durations.samples({})]
      .filter(({ suffix }) => suffix === '_bucket')
      .map(({ labels, value }) => [labels?.le, value])
    expect(buckets).toEqual(
      expect.arrayContaining([
        ['0.001', 2],
        ['0.0025', 3],
        ['30', 4],
        ['+Inf', 5],
      ]),
    )
  })
})
