import type { CpuMeter } from './cpu.js'
import { CONNECTIONS, createEnvironment, type Environment, headers } from './environment.js'
import { inTurns, type Request, requestRate, timeMs } from './measure.js'
import { rateDetail } from './people.js'
import { type Figure, figure } from './report.js'

/* Compares writes of a link whose record must exist with writes of one whose record need not. */

const TARGETS = 10_000
const BULK = 10_000

export async function benchLinks({ quick }: { quick: boolean }): Promise<Figure[]> {
  const environment = await createEnvironment()
  try {
    await createTables(environment)
    let number = 0
    const insertInto = (table: string) => (): Request => ({
      method: 'POST',
      path: `/db/links:main/tables/${table}/data`,
      headers: headers(''),
      body: JSON.stringify({ name: `task ${++number}`, owner: `m${number % TARGETS}` }),
    })
    const rounds = quick ? 5 : 11
    const durationMs = quick ? 1500 : 5000
    const rate = (table: string, cpu: CpuMeter) =>
      requestRate(environment.http, {
        connections: CONNECTIONS,
        durationMs,
        next: insertInto(table),
        cpu,
      })
    const single = environment.cpuMeters(environment.serverPid)
    const rates = await inTurns(rounds, {
      ours: () => rate('required', single.ours),
      baseline: () => rate('free', single.baseline),
    })
    const many = environment.cpuMeters(environment.serverPid)
    const times = await inTurns(rounds, {
      ours: () => bulk(environment, 'required', many.ours),
      baseline: () => bulk(environment, 'free', many.baseline),
    })
    // CPU time, because the rounds of single requests are short.
    return [
      figure('insert of a record with a link that must exist', {
        ratio: single.ours.leastUs() / single.baseline.leastUs(),
        atMost: 1.3,
        detail: rateDetail(rates, 'with one that need not'),
        cpu: single,
      }),
      figure('bulk insert of 10,000 records with such a link', {
        ratio: many.ours.leastUs() / many.baseline.leastUs(),
        atMost: 1.3,
        detail: `${Math.round(times.ours)} ms against ${Math.round(times.baseline)} ms`,
        cpu: many,
      }),
    ]
  } finally {
    await environment.close()
  }
}

async function createTables({ call, workspace }: Environment): Promise<void> {
  await call('PUT', `/workspaces/${workspace}/dbs/links`, { region: 'local' })
  const column = { name: 'name', type: 'string' }
  const link = (onDelete: string) => ({
    name: 'owner',
    type: 'link',
    link: { table: 'members', onDelete },
  })
  const tables = {
    members: [column],
    free: [column, link('none')],
    required: [column, link('restrict')],
  }
  const operations = Object.entries(tables).flatMap(([table, columns]) => [
    { addTable: { table } },
    ...columns.map((each) => ({ addColumn: { table, column: each } })),
  ])
  await call('POST', '/db/links:main/schema/apply', { edits: { operations } })
  const records = Array.from({ length: TARGETS }, (_, index) => ({ id: `m${index}`, name: 'x' }))
  await call('POST', '/db/links:main/tables/members/bulk', { records })
}

function bulk({ call }: Environment, table: string, cpu: CpuMeter): Promise<number> {
  const records = Array.from({ length: BULK }, (_, index) => ({
    name: `task ${index}`,
    owner: `m${index % TARGETS}`,
  }))
  return timeMs(() => call('POST', `/db/links:main/tables/${table}/bulk`, { records }), cpu)
}
