import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import pg from 'pg'
import { CpuMeter, parentOf } from './cpu.js'
import { CONNECTIONS, headers, type Service, startServiceOn } from './environment.js'
import { median, type Request, requestRate, timeMs } from './measure.js'
import { COLUMNS, personOf, rowId } from './people.js'
import { type Figure, figure } from './report.js'

/*
 * Compares the service on a Citus cluster with the service on one PostgreSQL. OFFSHOOT_BENCH_CLUSTER_URL names the
 * coordinator, with a database that the service may fill. The one PostgreSQL is another database of the same server without
 * Citus, so both have the same version, settings and disk.
 */

interface Sizes {
  readonly rows: number
  readonly rounds: number
  readonly durationMs: number
}

const FULL: Sizes = { rows: 20_000, rounds: 9, durationMs: 2000 }
const QUICK: Sizes = { rows: 5_000, rounds: 5, durationMs: 700 }

const DATABASE = 'cluster'
const PLAIN = 'offshoot_bench_plain'
const BULK_RECORDS = 1000
const OPERATIONS = 1000

/** The service on one side of the comparison. */
interface Side {
  readonly service: Service
  readonly postgresPids: readonly number[]
  /** Counts names of branches and tables, and ids of records. */
  count: number
}

/** An operation, its name, and how often a round runs it. */
interface Operation {
  readonly name: string
  readonly times: number
  /** The time on a cluster, against that on one server. */
  readonly atMost: number
  /** Runs before each operation and is not measured. */
  prepare?(side: Side): Promise<unknown>
  run(side: Side): Promise<unknown>
}

const call = ({ service }: Side, method: string, url: string, body?: unknown) =>
  service.call(method, `/db/${DATABASE}:${url}`, body)

const TIMED: readonly Operation[] = [
  {
    name: `bulk insert of ${BULK_RECORDS}`,
    times: 5,
    atMost: 3,
    run: (side) =>
      call(side, 'POST', 'main/tables/people/bulk', {
        records: Array.from({ length: BULK_RECORDS }, (_, n) => personOf(n)),
      }),
  },
  {
    name: `transaction of ${OPERATIONS}`,
    times: 5,
    atMost: 3,
    run: (side) =>
      call(side, 'POST', 'main/transaction', {
        operations: Array.from({ length: OPERATIONS }, (_, n) =>
          n % 2 === 0
            ? { insert: { table: 'people', record: personOf(n) } }
            : { update: { table: 'people', id: rowId(n), fields: { age: n } } },
        ),
      }),
  },
  {
    name: 'fork',
    times: 10,
    atMost: 2,
    run: (side) => call(side, 'PUT', `f${++side.count}`, { from: 'main' }),
  },
  {
    name: 'first write of a fork',
    times: 10,
    atMost: 4,
    prepare: (side) => call(side, 'PUT', `w${++side.count}`, { from: 'main' }),
    run: (side) => call(side, 'PUT', `w${side.count}/tables/people/data/new`, personOf(1)),
  },
  {
    name: 'new table',
    times: 5,
    atMost: 6,
    run: (side) => {
      const table = `t${++side.count}`
      const columns = COLUMNS.map((column) => ({ addColumn: { table, column } }))
      const operations = [{ addTable: { table } }, ...columns]
      return call(side, 'POST', 'main/schema/update', { operations })
    },
  },
]

export async function benchCluster({ quick }: { quick: boolean }): Promise<Figure[]> {
  const url = process.env.OFFSHOOT_BENCH_CLUSTER_URL
  if (url === undefined) {
    console.log('skipped: OFFSHOOT_BENCH_CLUSTER_URL names no cluster')
    return []
  }
  const sizes = quick ? QUICK : FULL
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-cluster-bench-'))
  const plainUrl = new URL(url)
  plainUrl.pathname = `/${PLAIN}`
  const sides: Side[] = []
  try {
    await ask(url, `drop database if exists ${PLAIN} with (force)`, `create database ${PLAIN}`)
    const ours = await openSide(url, { folder, rows: sizes.rows, isCluster: true })
    sides.push(ours)
    const baseline = await openSide(plainUrl.href, { folder, rows: sizes.rows, isCluster: false })
    sides.push(baseline)
    const figures = [
      await rateFigure('get by id', sizes, { ours, baseline, next: getOne(sizes.rows) }),
      await rateFigure('put', sizes, { ours, baseline, next: putOne }),
    ]
    for (const operation of TIMED) {
      figures.push(await timeFigure(operation, sizes.rounds, { ours, baseline }))
    }
    return figures
  } finally {
    for (const { service } of sides) {
      await service.call('DELETE', `/workspaces/${service.workspace}/dbs/${DATABASE}`)
      await service.close()
    }
    await ask(url, `drop database if exists ${PLAIN} with (force)`)
    await rm(folder, { recursive: true, force: true })
  }
}

async function ask(url: string, ...statements: string[]): Promise<pg.QueryResultRow[]> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    let rows: pg.QueryResultRow[] = []
    for (const statement of statements) rows = (await client.query(statement)).rows
    return rows
  } finally {
    await client.end()
  }
}

async function openSide(
  url: string,
  { folder, rows, isCluster }: { folder: string; rows: number; isCluster: boolean },
): Promise<Side> {
  const service = await startServiceOn(url, {
    dataDir: path.join(folder, isCluster ? 'ours' : 'baseline'),
  })
  const nodes = isCluster ? await listNodes(url) : [url]
  const side = { service, postgresPids: await Promise.all(nodes.map(postmasterOf)), count: 0 }
  await service.call('PUT', `/workspaces/${service.workspace}/dbs/${DATABASE}`, { region: 'local' })
  const operations = [
    { addTable: { table: 'people' } },
    ...COLUMNS.map((column) => ({ addColumn: { table: 'people', column } })),
  ]
  await call(side, 'POST', 'main/schema/update', { operations })
  for (let first = 0; first < rows; first += BULK_RECORDS) {
    const records = Array.from({ length: BULK_RECORDS }, (_, index) => ({
      id: rowId(first + index),
      ...personOf(first + index),
    }))
    await call(side, 'POST', 'main/tables/people/bulk', { records })
  }
  return side
}

/** Lists the URLs of all nodes, which have the user and the password of the coordinator. */
async function listNodes(url: string): Promise<string[]> {
  const rows = await ask(url, 'select nodename as host, nodeport as port from pg_dist_node')
  return rows.map(({ host, port }) => {
    const node = new URL(url)
    node.host = `${host}:${port}`
    return node.href
  })
}

/** Returns the postmaster of a server on this machine. */
async function postmasterOf(url: string): Promise<number> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
    return await parentOf(rows[0]?.pid ?? 0)
  } finally {
    await client.end()
  }
}

const getOne = (rows: number) => () => ({
  method: 'GET' as const,
  path: `/db/${DATABASE}:main/tables/people/data/${rowId(Math.floor(Math.random() * rows))}`,
  headers: headers(),
})

const putOne = ({ count }: Side) => ({
  method: 'PUT' as const,
  path: `/db/${DATABASE}:main/tables/people/data/put-${count}`,
  headers: headers(''),
  body: JSON.stringify(personOf(count)),
})

const meterOf = ({ service: { serverPid }, postgresPids }: Side) =>
  new CpuMeter({ serverPid, postgresPids })

interface Sides {
  readonly ours: Side
  readonly baseline: Side
}

async function rateFigure(
  name: string,
  { rounds, durationMs }: Sizes,
  { ours, baseline, next }: Sides & { next(side: Side): Request },
): Promise<Figure> {
  const cpu = { ours: meterOf(ours), baseline: meterOf(baseline) }
  const rate = (side: Side, meter?: CpuMeter) =>
    requestRate(side.service.http, {
      connections: CONNECTIONS,
      durationMs,
      cpu: meter,
      next: () => {
        side.count++
        return next(side)
      },
    })
  const rates = { ours: [] as number[], baseline: [] as number[] }
  await rate(baseline)
  await rate(ours)
  for (let round = 0; round < rounds; round++) {
    rates.baseline.push(await rate(baseline, cpu.baseline))
    rates.ours.push(await rate(ours, cpu.ours))
  }
  const [mine, theirs] = [median(rates.ours), median(rates.baseline)]
  return figure(name, {
    ratio: theirs / mine,
    atMost: 3,
    detail: `${mine.toFixed(0)}/s, one server ${theirs.toFixed(0)}/s, CPU time ${cpuRatio(cpu)}`,
    cpu,
  })
}

async function timeFigure(
  operation: Operation,
  rounds: number,
  { ours, baseline }: Sides,
): Promise<Figure> {
  const cpu = { ours: meterOf(ours), baseline: meterOf(baseline) }
  const times = { ours: [] as number[], baseline: [] as number[] }
  const measure = async (side: Side, meter?: CpuMeter) => {
    const found: number[] = []
    for (let count = 0; count < operation.times; count++) {
      await operation.prepare?.(side)
      found.push(await timeMs(() => operation.run(side), meter))
    }
    return found
  }
  await measure(baseline)
  await measure(ours)
  for (let round = 0; round < rounds; round++) {
    times.baseline.push(...(await measure(baseline, cpu.baseline)))
    times.ours.push(...(await measure(ours, cpu.ours)))
  }
  const [mine, theirs] = [median(times.ours), median(times.baseline)]
  return figure(operation.name, {
    ratio: mine / theirs,
    atMost: operation.atMost,
    detail: `${mine.toFixed(1)} ms, one server ${theirs.toFixed(1)} ms, CPU time ${cpuRatio(cpu)}`,
    cpu,
  })
}

/** The CPU time of all processes on a cluster, against that on one server. */
const cpuRatio = ({ ours, baseline }: { ours: CpuMeter; baseline: CpuMeter }): string =>
  (ours.leastUs() / baseline.leastUs()).toFixed(2)
