import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { CONNECTIONS, privateMiB, type Service, startService } from './environment.js'
import { median } from './measure.js'
import { anyTime, createDatabase, personOf, rowId, thousands } from './people.js'
import { type Figure, figure } from './report.js'

/*
 * Shows that nothing grows with time: the same work costs the same after a million creates, and after half an hour of
 * mixed work. It compares the last third of a run with its first one. CPU time per request is the steadier figure,
 * because other load on the machine changes it less than throughput, which is compared with bare updates.
 */

interface Sizes {
  readonly creates: number
  readonly slices: number
  readonly mixedMs: number
  readonly sliceMs: number
}

const FULL: Sizes = { creates: 1_000_000, slices: 12, mixedMs: 30 * 60_000, sliceMs: 60_000 }
const QUICK: Sizes = { creates: 60_000, slices: 6, mixedMs: 60_000, sliceMs: 10_000 }

const ROWS = 10_000
const CLIENTS = 8
const TRANSACTION_SIZE = 10
const BARE_MS = 1000
/** The pause after a request that the service has refused. */
const REFUSED_MS = 1000
/** The first slices compile code and fill caches. */
const WARM_UP_SLICES = 1
const DATABASE = 'soak'
const TABLE = `/db/${DATABASE}:main/tables/people`

/** One part of a run. */
interface Slice {
  readonly perSecond: number
  /** Bare updates per second right before. */
  readonly barePerSecond: number
  /** CPU time of the service and of PostgreSQL per request. */
  readonly cpuUs: number
  /** Memory of the service and of PostgreSQL, without the cache of PostgreSQL. */
  readonly memoryMiB: number
  /** Tables and indexes in PostgreSQL. */
  readonly relations: number
}

export async function benchSoak({ quick }: { quick: boolean }): Promise<Figure[]> {
  const sizes = quick ? QUICK : FULL
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-soak-'))
  const service = await startService(path.join(folder, 'offshoot'))
  try {
    await createDatabase(service, {
      name: DATABASE,
      tables: ['people'],
      rows: ROWS,
      indexes: ['seen'],
    })
    await service.direct.query(
      'create table bare as select n as id, 0 as age from generate_series(1, 1000) n',
    )
    await service.direct.query('alter table bare add primary key (id)')
    const creates = await soakCreates(service, sizes)
    const mixed = await soakMixed(service, sizes)
    return [
      ...figuresOf(`${thousands(sizes.creates)} creates`, creates),
      ...figuresOf(`${Math.round(sizes.mixedMs / 60_000)} minutes of mixed work`, mixed),
    ]
  } finally {
    await service.close()
    await rm(folder, { recursive: true, force: true, maxRetries: 20 })
  }
}

async function soakCreates(service: Service, { creates, slices }: Sizes): Promise<Slice[]> {
  let count = 0
  const measured: Slice[] = []
  for (let slice = 0; slice < slices; slice++) {
    const end = Math.round((creates * (slice + 1)) / slices)
    measured.push(
      await measureSlice(service, async () => {
        const start = count
        const worker = async () => {
          while (count < end) await call(service, 'POST', `${TABLE}/data`, personOf(count++))
        }
        await Promise.all(Array.from({ length: CONNECTIONS }, worker))
        return count - start
      }),
    )
    tell('creates', `${thousands(count)} records`, measured)
  }
  return measured
}

async function soakMixed(service: Service, { mixedMs, sliceMs }: Sizes): Promise<Slice[]> {
  const measured: Slice[] = []
  const endsAt = performance.now() + mixedMs
  while (performance.now() < endsAt) {
    measured.push(
      await measureSlice(service, async () => {
        let count = 0
        const sliceEndsAt = performance.now() + sliceMs
        const worker = async () => {
          while (performance.now() < sliceEndsAt) {
            const requests = await pick()(service)
            count += requests
          }
        }
        await Promise.all(Array.from({ length: CLIENTS }, worker))
        return count
      }),
    )
    tell('mixed', `${Math.round((endsAt - performance.now()) / 1000)} s left`, measured)
  }
  return measured
}

/** Kinds of work with their shares. Each returns how many requests it sent. */
const WORK: readonly { share: number; run(service: Service): Promise<number> }[] = [
  {
    share: 30,
    run: (service) => one(call(service, 'POST', `${TABLE}/data`, personOf(anyNumber()))),
  },
  { share: 30, run: (service) => one(call(service, 'GET', `${TABLE}/data/${anyId()}`)) },
  {
    share: 15,
    run: (service) => one(call(service, 'PATCH', `${TABLE}/data/${anyId()}`, { age: anyAge() })),
  },
  {
    share: 10,
    run: (service) =>
      one(
        call(service, 'POST', `${TABLE}/query`, {
          filter: { seen: { $ge: anyTime(ROWS) } },
          sort: { seen: 'asc' },
        }),
      ),
  },
  { share: 10, run: (service) => one(runTransaction(service)) },
  { share: 5, run: runBranch },
]

function pick(): (service: Service) => Promise<number> {
  let rest = Math.random() * WORK.reduce((sum, { share }) => sum + share, 0)
  for (const { share, run } of WORK) {
    rest -= share
    if (rest < 0) return run
  }
  return runBranch
}

async function one(request: Promise<unknown>): Promise<number> {
  await request
  return 1
}

function runTransaction(service: Service): Promise<unknown> {
  return call(service, 'POST', `/db/${DATABASE}:main/transaction`, {
    operations: Array.from({ length: TRANSACTION_SIZE }, () => ({
      insert: { table: 'people', record: personOf(anyNumber()) },
    })),
  })
}

let branchCount = 0

/** A branch from its fork to its end. Records that only it has changed are merged. */
async function runBranch(service: Service): Promise<number> {
  const branch = `/db/${DATABASE}:work${branchCount++}`
  await call(service, 'PUT', branch, { from: 'main' })
  await call(service, 'GET', `${branch}/tables/people/data/${anyId()}`)
  await call(service, 'POST', `${branch}/tables/people/data`, personOf(anyNumber()))
  await call(service, 'GET', `${branch}/diff`)
  await call(service, 'POST', `${branch}/merge`, {})
  await call(service, 'DELETE', branch)
  return 6
}

let refused = 0

/** Sends a request, again if the service refuses it because the machine is too busy, as clients do. */
async function call(
  service: Service,
  method: string,
  target: string,
  body?: unknown,
): Promise<void> {
  for (;;) {
    try {
      await service.call(method, target, body)
      return
    } catch (error) {
      if (!/"code":"(unavailable|overloaded)"/.test(String(error))) throw error
      refused++
      await delay(REFUSED_MS)
    }
  }
}

const anyNumber = () => Math.floor(Math.random() * ROWS)
const anyId = () => rowId(1 + anyNumber())
const anyAge = () => Math.floor(Math.random() * 90)

/** Runs a slice, which returns its number of requests. */
async function measureSlice(service: Service, run: () => Promise<number>): Promise<Slice> {
  const barePerSecond = await measureBare(service)
  const { ours: meter } = service.cpuMeters()
  const startedAt = performance.now()
  const count = await meter.round(run)
  const seconds = (performance.now() - startedAt) / 1000
  const { serverUs, postgresUs } = meter.latest()
  const { rows } = await service.direct.query<{ count: number }>(
    'select count(*)::integer as count from pg_class',
  )
  return {
    perSecond: count / seconds,
    barePerSecond,
    cpuUs: serverUs + postgresUs,
    memoryMiB: await privateMiB(service.serverPid),
    relations: rows[0]?.count ?? 0,
  }
}

async function measureBare({ direct }: Service): Promise<number> {
  let count = 0
  const endsAt = performance.now() + BARE_MS
  while (performance.now() < endsAt) {
    await direct.query({
      name: 'bare-update',
      text: 'update bare set age = age + 1 where id = $1',
      values: [1 + (count++ % 1000)],
    })
  }
  return (count / BARE_MS) * 1000
}

function tell(name: string, progress: string, measured: readonly Slice[]): void {
  const slice = measured.at(-1)
  if (slice === undefined) return
  const { perSecond, barePerSecond, cpuUs, memoryMiB, relations } = slice
  console.log(
    `      ${name}: ${progress}; ${thousands(perSecond)} requests/s, ${(perSecond / barePerSecond).toFixed(2)} of bare updates, ${cpuUs.toFixed(0)} µs of CPU each; ${memoryMiB.toFixed(0)} MiB, ${relations} relations, ${refused} refused so far`,
  )
}

function figuresOf(name: string, measured: readonly Slice[]): Figure[] {
  const counted = measured.slice(WARM_UP_SLICES)
  const third = Math.max(1, Math.floor(counted.length / 3))
  const compare = (read: (slice: Slice) => number) => {
    const [first, last] = [counted.slice(0, third), counted.slice(-third)].map((slices) =>
      median(slices.map(read)),
    )
    return { first: first ?? Number.NaN, last: last ?? Number.NaN }
  }
  const growth = (
    what: string,
    options: { read(slice: Slice): number; digits?: number; unit: string; goal: object },
  ) => {
    const { first, last } = compare(options.read)
    const show = (value: number) => `${value.toFixed(options.digits ?? 0)}${options.unit}`
    return figure(`${what}, ${name}`, {
      ratio: last / first,
      ...options.goal,
      detail: `${show(last)} in the last third against ${show(first)} in the first`,
    })
  }
  return [
    growth('throughput against bare updates', {
      read: ({ perSecond, barePerSecond }) => perSecond / barePerSecond,
      digits: 2,
      unit: '',
      goal: { atLeast: 0.85 },
    }),
    growth('CPU time per request', {
      read: ({ cpuUs }) => cpuUs,
      unit: ' µs',
      goal: { atMost: 1.15 },
    }),
    growth('memory', {
      read: ({ memoryMiB }) => memoryMiB,
      unit: ' MiB',
      goal: { atMost: 1.15 },
    }),
    growth('relations', {
      read: ({ relations }) => relations,
      unit: '',
      goal: { atMost: 1.1 },
    }),
  ]
}
