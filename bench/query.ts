import { fileURLToPath } from 'node:url'
import { Pool } from 'undici'
import {
  CONNECTIONS,
  createEnvironment,
  type Environment,
  headers,
  startProcess,
  stopProcess,
} from './environment.js'
import { inTurns, type Request, requestRate } from './measure.js'
import {
  anyTime,
  COLUMNS,
  createDatabase,
  type Heap,
  pageOf,
  rateDetail,
  thousands,
} from './people.js'
import { type Figure, figure } from './report.js'

/* What a page costs, against a bare route with the statement that one would write by hand. */

const PAGE = 20
const AGES = 90
/**
 * Warm-up until both have compiled their hot code and prepared their statements on all connections.
 */
const WARM_UP_MS = 3000

interface Sizes {
  readonly rows: number
  readonly rounds: number
  readonly durationMs: number
}

const FULL: Sizes = { rows: 1_000_000, rounds: 9, durationMs: 2000 }
const QUICK: Sizes = { rows: 1_000_000, rounds: 5, durationMs: 500 }

/** One kind of query, as a request and as a hand-written statement. */
interface Case {
  readonly name: string
  /** The hand-written statement, after `from`. */
  readonly statement: string
  ours(): Request
  /** The values of the hand-written statement. */
  values(): unknown[]
}

export async function benchQuery({ quick }: { quick: boolean }): Promise<Figure[]> {
  const sizes = quick ? QUICK : FULL
  const environment = await createEnvironment()
  try {
    const [heap] = await createDatabase(environment, {
      name: 'query',
      tables: ['people'],
      rows: sizes.rows,
      indexes: ['seen', 'age'],
    })
    if (heap === undefined) throw new Error('a table must have a heap')
    const figures: Figure[] = []
    for (const one of listCases(heap, sizes)) {
      figures.push(await benchCase(environment, heap, { ...sizes, one }))
    }
    return figures
  } finally {
    await environment.close()
  }
}

function listCases({ table, columns }: Heap, { rows }: Sizes): Case[] {
  const [, , age, , , seen] = columns
  const body = (query: unknown): Request => ({
    method: 'POST',
    path: '/db/query:main/tables/people/query',
    headers: headers(''),
    body: JSON.stringify(query),
  })
  const anyAge = () => Math.floor(Math.random() * AGES)
  return [
    {
      name: 'page of 20, filtered and sorted by one index',
      statement: `${table} where ${seen} >= $1 order by ${seen}, id limit ${PAGE}`,
      ours: pageOf({ branch: 'query:main', rows }),
      values: () => [anyTime(rows)],
    },
    {
      name: 'page of 20 of a value',
      statement: `${table} where ${age} = $1 order by id limit ${PAGE}`,
      ours: () => body({ filter: { age: anyAge() } }),
      values: () => [anyAge()],
    },
    {
      name: 'page of 20 of a value, newest first',
      statement: `${table} where ${age} = $1 order by ${seen} desc, id limit ${PAGE}`,
      ours: () => body({ filter: { age: anyAge() }, sort: { seen: 'desc' } }),
      values: () => [anyAge()],
    },
  ]
}

async function benchCase(
  environment: Environment,
  { columns }: Heap,
  { one, rows, rounds, durationMs }: Sizes & { one: Case },
): Promise<Figure> {
  const names = columns.map((column, index) => `${column} as "${COLUMNS[index]?.name}"`)
  const text = `select id, version, created_at as "createdAt", updated_at as "updatedAt",
    ${names.join(', ')} from ${one.statement}`
  const server = fileURLToPath(new URL('./bare-query-server.js', import.meta.url))
  const bare = await startProcess([server, environment.postgresUrl, text], {})
  const bareHttp = new Pool(bare.output.trim(), { connections: CONNECTIONS, pipelining: 1 })
  const json = { 'content-type': 'application/json' }
  const cpu = environment.cpuMeters(bare.process.pid)
  const ours = (forMs = durationMs) =>
    requestRate(environment.http, {
      connections: CONNECTIONS,
      durationMs: forMs,
      cpu: cpu.ours,
      next: () => one.ours(),
    })
  const baseline = (forMs = durationMs) =>
    requestRate(bareHttp, {
      connections: CONNECTIONS,
      durationMs: forMs,
      cpu: cpu.baseline,
      next: () => ({
        method: 'POST',
        path: '/',
        headers: json,
        body: JSON.stringify({ values: one.values() }),
      }),
    })
  await baseline(WARM_UP_MS)
  await ours(WARM_UP_MS)
  const rates = await inTurns(rounds, { ours: () => ours(), baseline: () => baseline() })
  await bareHttp.close()
  await stopProcess(bare.process)
  return figure(one.name, {
    ratio: rates.ours / rates.baseline,
    atLeast: 0.7,
    detail: `${rateDetail(rates, 'of a bare route')}, ${thousands(rows)} rows`,
    cpu,
  })
}
