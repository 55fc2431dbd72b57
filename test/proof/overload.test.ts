import { readFile, rm } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { XataApiClient } from '@xata.io/client'
import { Pool } from 'undici'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { makeDataFolder } from '../support/data-folder.js'
import {
  type Banner,
  endAll,
  type OffshootProcess,
  postgresProcesses,
  request,
  startOffshoot,
  until,
} from '../support/process.js'
import { amount } from '../support/random.js'

/** Duration of the overload. */
const SECONDS = amount('OVERLOAD_SECONDS', { short: 4, long: 60 })
const TIMES = 10
const AT_ONCE = 4
const WAITING = 12
const BUFFERED_MIB = 16
const ROWS = 60_000

let folder: string
let service: OffshootProcess
let banner: Banner
let key: string
let http: Pool

beforeAll(async () => {
  folder = await makeDataFolder('overload')
  service = startOffshoot(folder, {
    env: {
      OFFSHOOT_POOL_MAX: '2',
      OFFSHOOT_LIMIT_REQUESTS_AT_ONCE_MAX: String(AT_ONCE),
      OFFSHOOT_LIMIT_REQUESTS_WAITING_MAX: String(WAITING),
      OFFSHOOT_LIMIT_BUFFERED_BYTES_MAX: String(BUFFERED_MIB * 1024 * 1024),
    },
  })
  banner = await service.ready()
  key = banner.key ?? ''
  http = new Pool(banner.address, { connections: 200, pipelining: 1 })
  await call('PUT', `/workspaces/${banner.workspaceId}/dbs/shop`, { region: 'local' })
  const operations = [
    { addTable: { table: 'items' } },
    { addColumn: { table: 'items', column: { name: 'name', type: 'text' } } },
    { addColumn: { table: 'items', column: { name: 'kind', type: 'int' } } },
  ]
  await call('POST', '/db/shop:main/schema/update', { operations })
  for (let from = 0; from < ROWS; from += 10_000) {
    const records = Array.from({ length: 10_000 }, (_, number) => ({
      name: `item ${from + number}`,
      kind: number % 100,
    }))
    await call('POST', '/db/shop:main/tables/items/bulk', { records })
  }
})
afterAll(async () => {
  await http.destroy()
  await endAll([folder])
  await rm(folder, { recursive: true, force: true })
})

async function call(method: string, url: string, body?: unknown, by = key) {
  const answer = await request(banner.address, method, url, { key: by, body })
  expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
  return answer.body
}

interface Outcome {
  readonly status: number
  /** Number of requests that had been served when this one was sent, and when it was answered. */
  readonly servedBefore: number
  readonly servedAfter: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body: string
}

let servedCount = 0

async function send(method: 'GET' | 'POST', url: string, body?: string): Promise<Outcome> {
  const servedBefore = servedCount
  const response = await http.request({
    method,
    path: url,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { body }),
  })
  const text = await response.body.text()
  const { statusCode: status, headers } = response
  if (status === 200) servedCount++
  return { status, servedBefore, servedAfter: servedCount, headers, body: text }
}

/** Sends a request that keeps PostgreSQL busy for some milliseconds. */
const work = () =>
  send(
    'POST',
    '/db/shop:main/tables/items/summarize',
    JSON.stringify({
      columns: ['kind'],
      summaries: { names: { count: 'name' }, most: { max: 'name' } },
    }),
  )

/** Sends requests at a constant rate, whether or not the earlier ones have been answered. */
async function atRate(perSecond: number, seconds: number): Promise<Outcome[]> {
  const sent: Promise<Outcome>[] = []
  const startedAt = performance.now()
  for (;;) {
    const elapsedMs = performance.now() - startedAt
    if (elapsedMs > seconds * 1000) return Promise.all(sent)
    while (sent.length < (elapsedMs * perSecond) / 1000) sent.push(work())
    await delay(2)
  }
}

interface Capacity {
  readonly perSecond: number
  /**
   * Requests per second of CPU time of the service and its PostgreSQL, which other processes do not
   * affect.
   */
  readonly perCpuSecond: number
  readonly outcomes: Outcome[]
}

/** Measures the throughput of as many sequential clients as requests may run at once. */
async function capacity(seconds: number): Promise<Capacity> {
  const outcomes: Outcome[] = []
  const startedAt = performance.now()
  const cpuBefore = await cpuSeconds()
  const client = async () => {
    do outcomes.push(await work())
    while (performance.now() - startedAt < seconds * 1000)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, client))
  const perSecond = (outcomes.length * 1000) / (performance.now() - startedAt)
  return { perSecond, perCpuSecond: outcomes.length / ((await cpuSeconds()) - cpuBefore), outcomes }
}

/** Returns the CPU time of the service and of all processes of its PostgreSQL so far. */
async function cpuSeconds(): Promise<number> {
  const pids = [service.child.pid ?? 0, ...(await postgresProcesses(folder))]
  const ticks = pids.map(async (pid) => {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return Number(fields[11] ?? 0) + Number(fields[12] ?? 0)
  })
  return (await Promise.all(ticks)).reduce((sum, count) => sum + count, 0) / 100
}

async function residentMiB(): Promise<number> {
  const status = await readFile(`/proc/${service.child.pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024
}

/** Calls `look` repeatedly until `meanwhile` has settled. */
async function watching<Seen, Result>(
  look: () => Promise<Seen>,
  meanwhile: Promise<Result>,
): Promise<{ seen: Seen[]; result: Result }> {
  const seen: Seen[] = []
  let isOver = false
  const watch = (async () => {
    while (!isOver) {
      seen.push(await look())
      await delay(50)
    }
  })()
  const result = await meanwhile
  isOver = true
  await watch
  return { seen, result }
}

const quantile = (values: readonly number[], part: number) =>
  values.toSorted((left, right) => left - right)[Math.floor((values.length - 1) * part)] ?? 0

const expectRefusals = (outcomes: readonly Outcome[]) => {
  for (const { headers, body } of outcomes) {
    expect(headers['retry-after']).toBe('1')
    expect(headers['x-ratelimit-reset']).toBe('1')
    expect(JSON.parse(body).code).toBe('overloaded')
  }
}

describe(`at ${TIMES} times the load that can be served`, () => {
  it('what is let in is quick, the rest is refused, health answers, and it recovers', async () => {
    await capacity(0.5)
    const { perSecond, perCpuSecond, outcomes } = await capacity(1.5)
    expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set([200]))
    const before = await residentMiB()

    const look = async () => {
      const servedBefore = servedCount
      const { status } = await request(banner.address, 'GET', '/health')
      return { status, servedMeanwhile: servedCount - servedBefore, mib: await residentMiB() }
    }
    const cpuBefore = await cpuSeconds()
    const { seen, result } = await watching(look, atRate(TIMES * perSecond, SECONDS))
    const cpu = (await cpuSeconds()) - cpuBefore
    const served = result.filter(({ status }) => status === 200)
    const refused = result.filter(({ status }) => status === 503)
    expect(served.length + refused.length).toBe(result.length)
    expect(refused.length).toBeGreaterThan(result.length / 2)
    expectRefusals(refused)
    // Throughput does not collapse under overload.
    expect(served.length / cpu).toBeGreaterThan(perCpuSecond * 0.4)
    // A request waits only for those admitted before it, not for all that arrived. The median
    // leaves out requests that were delayed in this process, which a busy machine may stop at any
    // time.
    const waited = quantile(
      served.map(({ servedBefore, servedAfter }) => servedAfter - servedBefore),
      0.5,
    )
    expect(waited).toBeLessThanOrEqual(2 * (AT_ONCE + WAITING))
    expect(seen.map(({ status }) => status).filter((status) => status !== 200)).toEqual([])
    // Health checks do not wait in the queue.
    const healthWaited = quantile(
      seen.map(({ servedMeanwhile }) => servedMeanwhile),
      0.5,
    )
    expect(healthWaited).toBeLessThan(AT_ONCE + WAITING)
    const most = Math.max(...seen.map(({ mib }) => mib))
    expect(most - before).toBeLessThan(150)

    const after = await capacity(1)
    expect(new Set(after.outcomes.map(({ status }) => status))).toEqual(new Set([200]))
    expect(after.perCpuSecond).toBeGreaterThan(perCpuSecond * 0.4)
    console.log(
      `capacity ${perSecond.toFixed(0)}/s, asked for ${(result.length / SECONDS).toFixed(0)}/s: ` +
        `served ${(served.length / cpu).toFixed(0)} for a second of CPU time, alone ` +
        `${perCpuSecond.toFixed(0)}, afterwards ${after.perCpuSecond.toFixed(0)}; ` +
        `${waited} others were served before (median), ${healthWaited} before health (median); ` +
        `memory +${(most - before).toFixed(0)} MiB`,
    )
    // Refusals are logged occasionally, not one line each.
    const lines = service.stderr.split('\n').filter((line) => line.includes('overloaded'))
    expect(lines.length).toBeGreaterThan(0)
    expect(lines.length).toBeLessThan(refused.length / 10)
  })

  it('bodies take no more memory than there is for them', async () => {
    const records = Array.from({ length: 4000 }, () => ({ name: 'x'.repeat(1000) }))
    const body = JSON.stringify({ records })
    const before = await residentMiB()
    const bodies = Promise.all(
      Array.from({ length: 60 }, () => send('POST', '/db/shop:main/tables/items/bulk', body)),
    )
    const { seen, result } = await watching(residentMiB, bodies)
    const served = result.filter(({ status }) => status === 200)
    const refused = result.filter(({ status }) => status === 503)
    expect(served.length).toBeGreaterThan(0)
    expect(refused.length).toBeGreaterThan(0)
    expect(served.length + refused.length).toBe(60)
    expectRefusals(refused)
    // The raw bodies alone would take 240 MiB.
    expect(Math.max(...seen) - before).toBeLessThan(180)
    expect((await send('POST', '/db/shop:main/tables/items/bulk', body)).status).toBe(200)
  })

  it('clients that hang up at once leave nothing behind', async () => {
    for (let round = 0; round < 10; round++) {
      const abort = new AbortController()
      const sent = Array.from({ length: 40 }, () =>
        fetch(`${banner.address}/db/shop:main/tables/items/summarize`, {
          method: 'POST',
          headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
          body: JSON.stringify({ summaries: { most: { max: 'name' } } }),
          signal: abort.signal,
        }).catch(() => undefined),
      )
      await delay(10)
      abort.abort()
      await Promise.all(sent)
    }
    // PostgreSQL may still be running statements of these clients.
    await until(async () => {
      const { outcomes } = await capacity(0.2)
      return outcomes.every(({ status }) => status === 200)
    })
  })
})

describe('a key with a limit', () => {
  it('serves the published client, which tries again after the time it is told', async () => {
    const limited = await call('POST', '/user/keys/limited', { scope: { requestsPerSecond: 5 } })
    const { port } = new URL(banner.address)
    const base = `http://127.0.0.1:${port}`
    const client = new XataApiClient({
      apiKey: limited.key,
      host: { main: base, workspaces: `${base}/{workspaceId}.{region}.xata.sh` },
    })
    await call('PUT', '/db/shop:main/tables/items/data/one', { name: 'one' })
    const startedAt = performance.now()
    const answers = await Promise.all(
      Array.from({ length: 12 }, () =>
        client.records.getRecord({
          pathParams: {
            workspace: banner.workspaceId,
            region: 'local',
            dbBranchName: 'shop:main',
            tableName: 'items',
            recordId: 'one',
          },
        }),
      ),
    )
    expect(answers.map(({ name }) => name)).toEqual(Array.from({ length: 12 }, () => 'one'))
    expect(performance.now() - startedAt).toBeGreaterThan(1000)
    const strict = await call('POST', '/user/keys/strict', { scope: { requestsPerSecond: 1 } })
    await until(async () => {
      const url = '/db/shop:main/tables/items/data/one'
      const ask = () => request(banner.address, 'GET', url, { key: strict.key })
      const answers = await Promise.all(Array.from({ length: 12 }, ask))
      return answers.some(({ status }) => status === 429)
    })
  })
})
