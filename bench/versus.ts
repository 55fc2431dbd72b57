import { mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { findRunning } from '@offshoot/embedded-postgres'
import pg from 'pg'
import type { CpuMeter } from './cpu.js'
import { CONNECTIONS, proportionalMiB, type Service, startService } from './environment.js'
import { inTurns, median, timeMs } from './measure.js'
import { type Branching, Dolt, PocketBase } from './peers.js'
import { anyTime, createDatabase, type Heap, rowId, thousands } from './people.js'
import { type Figure, figure } from './report.js'

/*
 * Compares the service, as a user runs it, with Dolt and PocketBase where OFFSHOOT_BENCH_DOLT and
 * OFFSHOOT_BENCH_POCKETBASE name their programs. Without Dolt, operations on branches are compared with
 * one update by a bare statement of `pg`, which waits for the disk once as they do.
 */

interface Sizes {
  readonly rows: number
  /** Repeats that are not counted: V8 compiles the code of a service only after some thousand requests. */
  readonly warmUp: number
  readonly repeats: number
  readonly rounds: number
  readonly durationMs: number
}

const FULL: Sizes = { rows: 1_000_000, warmUp: 300, repeats: 40, rounds: 9, durationMs: 2000 }
const QUICK: Sizes = { rows: 20_000, warmUp: 30, repeats: 10, rounds: 3, durationMs: 500 }

const CHANGES = 100
/** Further repeats, which measure the CPU time. To read it delays what follows, so they do not count for times. */
const CPU_REPEATS = 10
/** For this time, pages are read and not counted, for the same reason. */
const WARM_UP_PAGES_MS = 5_000
const STARTS = 5
/** How long a process is left alone before its memory is measured. V8 gives the memory of the start back by then. */
const IDLE_MS = 30_000
/** How long the service may take to make its log smaller after the import. */
const REST_MS_MAX = 120_000
const REST_POLL_MS = 1_000
/** Bytes of the log that count as little. */
const LOG_BYTES_MAX = 200e6
const DATABASE = 'versus'

/** Goals against one bare update, for a machine without Dolt. Against Dolt, every goal is 1. */
const OPERATIONS = {
  fork: 3,
  'first read on a fork': 2.5,
  'first write on a fork': 4,
  'next write on a fork': 3,
  [`difference of ${CHANGES}`]: 5,
  [`merge of ${CHANGES}, target unchanged`]: 5,
  [`merge of ${CHANGES}, target changed`]: 12,
  'delete a branch': 3,
} as const

type Times = Record<string, number[]>

export async function benchVersus({ quick }: { quick: boolean }): Promise<Figure[]> {
  const sizes = quick ? QUICK : FULL
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-versus-'))
  const dataDir = path.join(folder, 'offshoot')
  let service: Service | undefined
  let dolt: Dolt | undefined
  let pocketBase: PocketBase | undefined
  try {
    service = await startService(dataDir)
    const indexes = ['seen', 'age']
    const [heap] = await createDatabase(service, {
      name: DATABASE,
      tables: ['people'],
      rows: sizes.rows,
      indexes,
    })
    if (heap === undefined) throw new Error('a table must have a heap')
    const disk = await diskFigure(dataDir, sizes.rows)
    const rows = await readRows(service, heap)
    dolt = await openDolt(folder, rows)
    pocketBase = await openPocketBase(folder, rows)
    const figures = [
      ...(await branchFigures(service, heap, { sizes, dolt })),
      ...(await pageFigures(service, heap, { sizes, dataDir, dolt, pocketBase })),
      disk,
    ]
    await service.close()
    service = undefined
    await dolt?.close()
    await pocketBase?.close()
    const peers = { dolt: dolt !== undefined, pocketBase: pocketBase !== undefined }
    dolt = undefined
    pocketBase = undefined
    return [...figures, ...(await processFigures(folder, dataDir, peers))]
  } finally {
    await service?.close()
    await dolt?.close()
    await pocketBase?.close()
    // A process that has just ended may have added files meanwhile.
    await rm(folder, { recursive: true, force: true, maxRetries: 20 })
  }
}

const programs = () => ({
  dolt: process.env.OFFSHOOT_BENCH_DOLT,
  pocketBase: process.env.OFFSHOOT_BENCH_POCKETBASE,
})

async function openDolt(
  folder: string,
  rows: readonly (readonly unknown[])[],
): Promise<Dolt | undefined> {
  const { dolt: program } = programs()
  if (program === undefined) return undefined
  const own = path.join(folder, 'dolt')
  await mkdir(own)
  const dolt = await Dolt.start(program, { folder: own, connections: CONNECTIONS })
  await dolt.fill(rows).catch(async (error: unknown) => {
    await dolt.close()
    throw error
  })
  return dolt
}

async function openPocketBase(
  folder: string,
  rows: readonly (readonly unknown[])[],
): Promise<PocketBase | undefined> {
  const { pocketBase: program } = programs()
  if (program === undefined) return undefined
  const own = path.join(folder, 'pocketbase')
  await mkdir(own)
  const pocketBase = await PocketBase.start(program, { folder: own, connections: CONNECTIONS })
  await pocketBase.fill(rows, { program, folder: own }).catch(async (error: unknown) => {
    await pocketBase.close()
    throw error
  })
  return pocketBase
}

/** Reads all rows, for filling the peers. Without peers, there is nothing to fill. */
async function readRows({ direct }: Service, { table, columns }: Heap): Promise<unknown[][]> {
  const { dolt, pocketBase } = programs()
  if (dolt === undefined && pocketBase === undefined) return []
  const { rows } = await direct.query<unknown[]>({
    text: `select id, ${columns.join(', ')} from ${table} order by id`,
    rowMode: 'array',
  })
  return rows
}

/** The service's branches over HTTP. */
function branchesOf(service: Service): Branching {
  const at = (branch: string) => `/db/${DATABASE}:${branch}`
  const row = (branch: string, id: string) => `${at(branch)}/tables/people/data/${id}`
  return {
    fork: ({ name, from }) => service.call('PUT', at(name), { from }),
    read: (branch, id) => service.call('GET', row(branch, id)),
    update: (branch, ids, age) => {
      const [id = ''] = ids
      if (ids.length === 1) return service.call('PATCH', row(branch, id), { age })
      return service.call('POST', `${at(branch)}/transaction`, {
        operations: ids.map((one) => ({ update: { table: 'people', id: one, fields: { age } } })),
      })
    },
    commit: async () => undefined,
    difference: ({ name }) => service.call('GET', `${at(name)}/diff`),
    merge: ({ name, into }) => service.call('POST', `${at(name)}/merge`, { into }),
    remove: (branch) => service.call('DELETE', at(branch)),
  }
}

async function branchFigures(
  service: Service,
  { table, columns }: Heap,
  { sizes, dolt }: { sizes: Sizes; dolt: Dolt | undefined },
): Promise<Figure[]> {
  const names = Object.keys(OPERATIONS)
  const ours = emptyTimes(names)
  const theirs = emptyTimes(names)
  const bare: number[] = []
  const meters = Object.fromEntries(names.map((name) => [name, service.cpuMeters().ours]))
  const branches = branchesOf(service)
  await service.direct.query(`create table bare as select id, ${columns[2]} as age from ${table}`)
  await service.direct.query('alter table bare add primary key (id)')
  const counted = sizes.warmUp + sizes.repeats
  for (let repeat = 0; repeat < counted + CPU_REPEATS; repeat++) {
    const isCounted = repeat >= sizes.warmUp && repeat < counted
    const measured = await runBranches(branches, repeat, repeat < counted ? {} : meters)
    const other = dolt && (await runBranches(dolt, repeat, {}))
    const bareMs = await timeMs(() =>
      service.direct.query({
        name: 'bare-update',
        text: 'update bare set age = $2 where id = $1',
        values: [rowId(repeat + 1), repeat],
      }),
    )
    if (!isCounted) continue
    bare.push(bareMs)
    for (const name of names) {
      ours[name]?.push(measured[name] ?? Number.NaN)
      theirs[name]?.push(other?.[name] ?? Number.NaN)
    }
  }
  await service.direct.query('drop table bare')
  return Object.entries(OPERATIONS).map(([name, goal]) => {
    const mine = median(ours[name] ?? [])
    const than = dolt === undefined ? median(bare) : median(theirs[name] ?? [])
    const other = dolt === undefined ? 'of one bare update' : 'of Dolt'
    return figure(`${name}, ${thousands(sizes.rows)} rows`, {
      ratio: mine / than,
      atMost: dolt === undefined ? goal : 1,
      detail: `${mine.toFixed(1)} ms against ${than.toFixed(1)} ms ${other}; CPU: ${meters[name]}`,
    })
  })
}

const emptyTimes = (names: readonly string[]): Times =>
  Object.fromEntries(names.map((name) => [name, []]))

/** Runs each operation once, on branches of its own. Returns the times in milliseconds. */
async function runBranches(
  branches: Branching,
  repeat: number,
  meters: Readonly<Record<string, CpuMeter>>,
): Promise<Record<string, number>> {
  const times: Record<string, number> = {}
  const measure = async (name: keyof typeof OPERATIONS, body: () => Promise<unknown>) => {
    times[name] = await timeMs(body, meters[name])
  }
  const target = `target${repeat}`
  const first = `first${repeat}`
  const second = `second${repeat}`
  const ids = (start: number) => Array.from({ length: CHANGES }, (_, n) => rowId(start + n))
  const [one = '', two = '', ...others] = ids(1)

  await branches.fork({ name: target, from: 'main' })
  await measure('fork', () => branches.fork({ name: first, from: target }))
  await measure('first read on a fork', () => branches.read(first, one))
  await measure('first write on a fork', () => branches.update(first, [one], 1000 + repeat))
  await measure('next write on a fork', () => branches.update(first, [two], 1000 + repeat))
  await branches.update(first, others, 1000 + repeat)
  await branches.commit(first)
  await measure(`difference of ${CHANGES}`, () =>
    branches.difference({ name: first, from: target }),
  )
  await measure(`merge of ${CHANGES}, target unchanged`, () =>
    branches.merge({ name: first, into: target }),
  )

  await branches.fork({ name: second, from: target })
  await branches.update(second, ids(2 * CHANGES), 2000 + repeat)
  await branches.commit(second)
  await branches.update(target, ids(4 * CHANGES), 3000 + repeat)
  await branches.commit(target)
  await measure(`merge of ${CHANGES}, target changed`, () =>
    branches.merge({ name: second, into: target }),
  )
  await measure('delete a branch', () => branches.remove(first))
  await branches.remove(second)
  await branches.remove(target)
  return times
}

async function pageFigures(
  service: Service,
  { table, columns }: Heap,
  context: {
    sizes: Sizes
    dataDir: string
    dolt: Dolt | undefined
    pocketBase: PocketBase | undefined
  },
): Promise<Figure[]> {
  const { sizes, dataDir, dolt, pocketBase } = context
  const connection = await findRunning(dataDir)
  const pool = new pg.Pool({ ...connection, max: CONNECTIONS })
  // The server may stop before the last connection has closed.
  pool.on('error', () => undefined)
  const text = `select id, ${columns.join(', ')} from ${table} where ${columns[5]} >= $1 order by ${columns[5]} limit 20`
  const others: { name: string; atLeast: number; page(since: string): Promise<unknown> }[] = [
    {
      name: 'a bare statement without HTTP',
      atLeast: 0.4,
      page: (since) => pool.query({ name: 'page', text, values: [since] }),
    },
    ...(dolt ? [{ name: 'Dolt', atLeast: 1, page: dolt.page.bind(dolt) }] : []),
    ...(pocketBase
      ? [{ name: 'PocketBase', atLeast: 1, page: pocketBase.page.bind(pocketBase) }]
      : []),
  ]
  const ourPage = (since: string) =>
    service.call('POST', `/db/${DATABASE}:main/tables/people/query`, {
      filter: { seen: { $ge: since } },
      sort: { seen: 'asc' },
    })
  const figures: Figure[] = []
  try {
    await rateOf(() => ourPage(anyTime(sizes.rows)), WARM_UP_PAGES_MS)
    for (const { name, atLeast, page } of others) {
      const meter = service.cpuMeters().ours
      const rate = (read: (since: string) => Promise<unknown>, cpu?: CpuMeter) =>
        rateOf(() => read(anyTime(sizes.rows)), sizes.durationMs, cpu)
      await rate(ourPage)
      await rate(page)
      const rates = await inTurns(sizes.rounds, {
        ours: () => rate(ourPage, meter),
        baseline: () => rate(page),
      })
      figures.push(
        figure(`page of 20 by an index, against ${name}`, {
          ratio: rates.ours / rates.baseline,
          atLeast,
          detail: `${thousands(rates.ours)} pages/s against ${thousands(rates.baseline)}, ${CONNECTIONS} connections; CPU per page: ${meter}`,
        }),
      )
    }
  } finally {
    await pool.end()
  }
  return figures
}

/** Measures runs per second, with as many at a time as there are connections. */
async function rateOf(
  run: () => Promise<unknown>,
  durationMs: number,
  cpu?: CpuMeter,
): Promise<number> {
  let count = 0
  const end = performance.now() + durationMs
  const worker = async () => {
    do {
      await run()
      count++
    } while (performance.now() < end)
  }
  const elapsedMs = await timeMs(async () => {
    const all = async () => {
      await Promise.all(Array.from({ length: CONNECTIONS }, worker))
      return count
    }
    await (cpu === undefined ? all() : cpu.round(all))
  })
  return (count / elapsedMs) * 1000
}

/** Measures start and idle memory on the existing data of all sides. */
async function processFigures(
  folder: string,
  dataDir: string,
  peers: { dolt: boolean; pocketBase: boolean },
): Promise<Figure[]> {
  const { dolt = '', pocketBase = '' } = programs()
  const one = { connections: 1 }
  const ours = await startsOf(async () => {
    const service = await startService(dataDir)
    return { pid: service.serverPid, close: () => service.close() }
  })
  const others = [
    ...(peers.dolt
      ? [
          {
            name: 'Dolt',
            start: () => Dolt.start(dolt, { folder: path.join(folder, 'dolt'), ...one }),
          },
        ]
      : []),
    ...(peers.pocketBase
      ? [
          {
            name: 'PocketBase',
            start: () =>
              PocketBase.start(pocketBase, { folder: path.join(folder, 'pocketbase'), ...one }),
          },
        ]
      : []),
  ]
  const starts: string[] = []
  const memory: string[] = []
  for (const { name, start } of others) {
    const theirs = await startsOf(start)
    starts.push(`; ${name} ${(theirs.startMs / 1000).toFixed(2)} s`)
    memory.push(`; ${name} ${theirs.idleMiB.toFixed(0)} MiB`)
  }
  return [
    figure('start on existing data', {
      value: ours.startMs / 1000,
      atMost: 0.6,
      unit: ' s',
      detail: `${(ours.startMs / 1000).toFixed(2)} s${starts.join('')}`,
    }),
    figure('idle memory of all processes', {
      value: ours.idleMiB,
      atMost: 120,
      unit: ' MiB',
      detail: `${ours.idleMiB.toFixed(0)} MiB, shared pages counted once${memory.join('')}`,
    }),
  ]
}

async function startsOf(
  start: () => Promise<{ pid: number; close(): Promise<void> }>,
): Promise<{ startMs: number; idleMiB: number }> {
  const times: number[] = []
  let idleMiB = 0
  for (let count = 1; count <= STARTS; count++) {
    const startedAt = performance.now()
    const running = await start()
    times.push(performance.now() - startedAt)
    if (count === STARTS) {
      await delay(IDLE_MS)
      idleMiB = await proportionalMiB(running.pid)
    }
    await running.close()
  }
  return { startMs: median(times), idleMiB }
}

async function diskFigure(dataDir: string, rows: number): Promise<Figure> {
  const sizeOfLog = () => sizeOf(path.join(dataDir, 'postgres', 'pg_wal'))
  const importedBytes = await sizeOfLog()
  const startedAt = performance.now()
  const restedMs = () => performance.now() - startedAt
  let logBytes = importedBytes
  while (logBytes > LOG_BYTES_MAX && restedMs() < REST_MS_MAX) {
    await delay(REST_POLL_MS)
    logBytes = await sizeOfLog()
  }
  const restedSeconds = (restedMs() / 1000).toFixed(0)
  const bytes = (await sizeOf(path.join(dataDir, 'postgres'))) - logBytes
  const megabytes = (count: number) => `${(count / 1e6).toFixed(0)} MB`
  return figure('log of the embedded PostgreSQL at rest', {
    value: logBytes / 1e6,
    atMost: LOG_BYTES_MAX / 1e6,
    unit: ' MB',
    detail: `${megabytes(logBytes)} of log ${restedSeconds} s after the import, ${megabytes(importedBytes)} at its end, ${megabytes(bytes)} of data with ${thousands(rows)} rows and two indexes`,
  })
}

async function sizeOf(folder: string): Promise<number> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const sizes = await Promise.all(
    entries
      .filter((entry) => entry.isFile())
      .map(async (entry) => {
        const found = await stat(path.join(entry.parentPath, entry.name)).catch(() => undefined)
        return found?.size ?? 0
      }),
  )
  return sizes.reduce((sum, size) => sum + size, 0)
}
