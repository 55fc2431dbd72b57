import pg from 'pg'
import { benchDepth } from './depth.js'
import { createEnvironment, type Environment, headers } from './environment.js'
import { median, percentile, type Request, timeMs } from './measure.js'
import {
  compareRates,
  createDatabase,
  PLAIN_COLUMNS,
  pageOf,
  ROW_ID,
  rateDetail,
  rowId,
  thousands,
  VALUES,
} from './people.js'
import { type Figure, figure } from './report.js'

/*
 * Measures the cost of branching: compared with less data, with fewer branches, and with a database
 * that was never forked.
 */

interface Sizes {
  /** Rows, spread over ten tables, of the databases that are forked. */
  readonly forked: readonly [number, number, number]
  readonly forks: number
  readonly templates: number
  readonly branches: number
  /** Rows of the table that is read and updated on a fork and on its source. */
  readonly rows: number
  /** Rows of the tables with a few changed records that are merged. */
  readonly merged: readonly [number, number]
  readonly merges: number
  /** Depths of branches in a chain of forks. */
  readonly depths: readonly number[]
  /** Many short rounds, because other load on the machine varies. */
  readonly rounds: number
  readonly durationMs: number
}

const FULL: Sizes = {
  forked: [1000, 100_000, 1_000_000],
  forks: 300,
  templates: 3,
  branches: 10_000,
  rows: 1_000_000,
  merged: [10_000, 1_000_000],
  merges: 25,
  depths: [10, 100, 1000],
  rounds: 15,
  durationMs: 1000,
}

/** Smaller sizes, which show large regressions within seconds. */
const QUICK: Sizes = {
  forked: [1000, 20_000, 100_000],
  forks: 100,
  templates: 1,
  branches: 500,
  rows: 100_000,
  merged: [10_000, 100_000],
  merges: 9,
  depths: [10, 100],
  rounds: 5,
  durationMs: 200,
}

const FORK_TABLES = Array.from({ length: 10 }, (_, index) => `table${index}`)
const BRANCHES_FEW = 10
const LIVE_FORKS = 20
const CHANGED_RECORDS = 100
/** Concurrent requests while branches are created for a measurement. */
const SETUP_CONNECTIONS = 4

export async function benchBranching({ quick }: { quick: boolean }): Promise<Figure[]> {
  const sizes = quick ? QUICK : FULL
  const environment = await createEnvironment()
  try {
    return [
      ...(await benchForks(environment, sizes)),
      ...(await benchManyBranches(environment, sizes)),
      ...(await benchRecordsOfForks(environment, sizes)),
      ...(await benchChanges(environment, sizes)),
      ...(await benchDepth(environment, sizes)),
    ]
  } finally {
    await environment.close()
  }
}

function createBranches(
  environment: Environment,
  { database, count }: { database: string; count: number },
): Promise<void> {
  return inParallel(count, (number) => environment.call('PUT', `/db/${database}:branch${number}`))
}

/** Makes calls that prepare a measurement, a few at a time. */
async function inParallel(count: number, body: (number: number) => Promise<unknown>) {
  let next = 0
  const worker = async () => {
    while (next < count) await body(next++)
  }
  await Promise.all(Array.from({ length: SETUP_CONNECTIONS }, worker))
}

/** Measures the duration of several calls, which alternate. */
async function latencies(
  count: number,
  bodies: readonly ((round: number) => Promise<unknown>)[],
  afterEach?: (round: number) => Promise<unknown>,
): Promise<number[][]> {
  const times: number[][] = bodies.map(() => [])
  for (let round = 0; round < count; round++) {
    for (const [index, body] of bodies.entries()) {
      times[index]?.push(await timeMs(() => body(round)))
    }
    await afterEach?.(round)
  }
  return times
}

/** Measures forks of small and big databases, and PostgreSQL's own way to copy a database. */
async function benchForks(environment: Environment, sizes: Sizes): Promise<Figure[]> {
  const names = sizes.forked.map((rows) => `fork${rows}`)
  for (const [index, rows] of sizes.forked.entries()) {
    await createDatabase(environment, { name: names[index] ?? '', tables: FORK_TABLES, rows })
  }
  const fork = (name: string, prefix: string) => (round: number) =>
    environment.call('PUT', `/db/${name}:${prefix}${round}`)
  await latencies(
    20,
    names.map((name) => fork(name, 'warm')),
  )
  const times = await latencies(
    sizes.forks,
    names.map((name) => fork(name, 'branch')),
  )
  // The time of the smallest durable write on this machine. It shows a busy disk.
  await environment.direct.query('create table bench_commits (number integer)')
  const [commits = []] = await latencies(sizes.forks, [
    (round) => environment.direct.query('insert into bench_commits values ($1)', [round]),
  ])
  await environment.direct.query('drop table bench_commits')
  const copies: number[] = []
  for (const rows of sizes.forked) copies.push(await copyTemplate(environment, { ...sizes, rows }))

  const labels = sizes.forked.map(thousands).join(', ')
  const atShare = (share: number) => times.map((values) => percentile(values, share))
  const ratioOf = ([smallest = Number.NaN, , largest = Number.NaN]: readonly number[]) =>
    largest / smallest
  const list = (values: readonly number[]) => values.map((value) => value.toFixed(1)).join(', ')
  const [p50, p99] = [atShare(0.5), atShare(0.99)]
  return [
    figure('fork, big against small, p50', {
      ratio: ratioOf(p50),
      atMost: 1.5,
      detail: `${list(p50)} ms with ${labels} rows; copied from a template ${list(copies)} ms`,
    }),
    figure('fork, big against small, p99', {
      ratio: ratioOf(p99),
      atMost: 1.5,
      detail: `${list(p99)} ms with ${labels} rows, ${sizes.forks} forks each`,
    }),
    figure('fork, p99', {
      value: Math.max(...p99),
      atMost: 15,
      unit: ' ms',
      detail: `${Math.max(...p99).toFixed(1)} ms, the slowest of the three; one row inserted by itself ${percentile(commits, 0.99).toFixed(1)} ms`,
    }),
  ]
}

/** Measures `create database ... template` with the same rows in as many tables. */
async function copyTemplate(
  environment: Environment,
  options: { rows: number; templates: number },
): Promise<number> {
  const { direct } = environment
  await direct.query('create database bench_template')
  const url = new URL(environment.postgresUrl)
  url.pathname = '/bench_template'
  const client = new pg.Client({ connectionString: url.href })
  await client.connect()
  for (const table of FORK_TABLES) {
    await client.query(`create table ${table} (${PLAIN_COLUMNS})`)
    await client.query(
      `insert into ${table} select ${ROW_ID}, ${VALUES}
       from generate_series(1, ${options.rows / FORK_TABLES.length}) n`,
    )
  }
  await client.end()
  await direct.query('checkpoint')
  const times: number[] = []
  for (let round = 0; round < options.templates; round++) {
    times.push(
      await timeMs(() => direct.query('create database bench_copy template bench_template')),
    )
    await direct.query('drop database bench_copy')
  }
  await direct.query('drop database bench_template')
  return median(times)
}

/** Measures the same work with ten branches and with very many. */
async function benchManyBranches(environment: Environment, sizes: Sizes): Promise<Figure[]> {
  const rows = 10_000
  const databases = [
    { database: 'few', count: BRANCHES_FEW },
    { database: 'many', count: sizes.branches },
  ]
  const times: BranchTimes[] = []
  for (const { database, count } of databases) {
    await createDatabase(environment, { name: database, tables: ['people'], rows })
    await createBranches(environment, { database, count })
    // Measured before the next database has its branches, because all databases share a catalogue. The first time is a
    // warm-up.
    await measureBranches(environment, database, sizes.forks)
    times.push(await measureBranches(environment, database, sizes.forks))
  }
  const [few, many] = times as [BranchTimes, BranchTimes]

  const onOne = await compareRates(environment, sizes, {
    ours: readOf({ branch: () => 'many:branch7', rows }),
    baseline: readOf({ branch: () => 'few:branch7', rows }),
  })
  // The first read of a branch also resolves its session, which is not measured.
  for (const { database, count } of databases) {
    await inParallel(count, (number) =>
      environment.call('GET', `/db/${database}:branch${number}/tables/people/data/${rowId(1)}`),
    )
  }
  const [anyFew, anyMany] = databases.map(
    ({ database, count }) =>
      () =>
        `${database}:branch${Math.floor(Math.random() * count)}`,
  ) as [() => string, () => string]
  const onAll = await compareRates(environment, sizes, {
    ours: readOf({ branch: anyMany, rows }),
    baseline: readOf({ branch: anyFew, rows }),
  })
  const count = sizes.branches.toLocaleString('en')
  return [
    ...(['fork', 'difference', 'merge'] as const).map((operation) =>
      figure(`${operation}, ${count} branches against ten`, {
        ratio: many[operation] / few[operation],
        atMost: 1.5,
        detail: `${many[operation].toFixed(1)} ms against ${few[operation].toFixed(1)} ms`,
      }),
    ),
    figure(`get by id, ${count} branches against ten`, {
      ratio: onOne.baseline / onOne.ours,
      atMost: 1.5,
      detail: rateDetail(onOne, 'with ten'),
    }),
    figure(`get by id, any of ${count} branches against any of ten`, {
      ratio: onAll.baseline / onAll.ours,
      atMost: 1.5,
      detail: rateDetail(onAll, 'with ten'),
    }),
  ]
}

/** Milliseconds. */
interface BranchTimes {
  readonly fork: number
  readonly difference: number
  readonly merge: number
}

/** Measures operations on a branch with one changed record. It is deleted again, so that the number of branches stays the same. */
async function measureBranches(
  { call }: Environment,
  database: string,
  count: number,
): Promise<BranchTimes> {
  const branch = `/db/${database}:measured`
  const times = { fork: [] as number[], difference: [] as number[], merge: [] as number[] }
  for (let round = 0; round < count; round++) {
    times.fork.push(await timeMs(() => call('PUT', branch)))
    await call('PATCH', `${branch}/tables/people/data/${rowId(1)}`, { age: round })
    times.difference.push(await timeMs(() => call('GET', `${branch}/diff`)))
    times.merge.push(await timeMs(() => call('POST', `${branch}/merge`)))
    await call('DELETE', branch)
  }
  return {
    fork: median(times.fork),
    difference: median(times.difference),
    merge: median(times.merge),
  }
}

/**
 * Compares records on a fork, and on a source with forks, with a database that was never forked.
 */
async function benchRecordsOfForks(environment: Environment, sizes: Sizes): Promise<Figure[]> {
  const { rows } = sizes
  for (const name of ['plain', 'source']) {
    await createDatabase(environment, { name, tables: ['people'], rows, indexes: ['seen'] })
  }
  await createBranches(environment, { database: 'source', count: LIVE_FORKS })
  const [plain, source, fork] = ['plain:main', 'source:main', 'source:branch0']
  const read = (branch: string) => readOf({ branch: () => branch, rows })
  // A fork that has written has a heap of its own, which is read first.
  await environment.call('PATCH', `/db/${fork}/tables/people/data/${rowId(1)}`, { age: 1 })
  // No record is updated twice: each update on the fork copies a row, and each one on the source
  // keeps the version that its forks see.
  const updatePlain = updateOf({ branch: plain, rows })
  const forkReads = await compareRates(environment, sizes, {
    ours: read(fork),
    baseline: read(plain),
  })
  const page = (branch: string) => pageOf({ branch, rows })
  const forkPages = await compareRates(environment, sizes, {
    ours: page(fork),
    baseline: page(plain),
  })
  const sourceReads = await compareRates(environment, sizes, {
    ours: read(source),
    baseline: read(plain),
  })
  const forkUpdates = await compareRates(environment, sizes, {
    ours: updateOf({ branch: fork, rows }),
    baseline: updatePlain,
  })
  // The updates have given the fork many rows of its own.
  const changedPages = await compareRates(environment, sizes, {
    ours: page(fork),
    baseline: page(plain),
  })
  const sourceUpdates = await compareRates(environment, sizes, {
    ours: updateOf({ branch: source, rows }),
    baseline: updatePlain,
  })
  const figures = [
    { name: 'get by id on a fork', rates: forkReads, atLeast: 0.85 },
    { name: 'page of 20 on a fork', rates: forkPages, atLeast: 0.6 },
    { name: 'page of 20 on a fork with changes', rates: changedPages, atLeast: 0.6 },
    { name: 'update on a fork', rates: forkUpdates, atLeast: 0.6 },
    { name: `get by id with ${LIVE_FORKS} forks`, rates: sourceReads, atLeast: 0.95 },
    { name: `update with ${LIVE_FORKS} forks`, rates: sourceUpdates, atLeast: 0.75 },
  ]
  return figures.map(({ name, rates, atLeast }) =>
    figure(name, {
      ratio: rates.ours / rates.baseline,
      atLeast,
      detail: `${rateDetail(rates, 'never forked')}, ${thousands(rows)} rows`,
    }),
  )
}

/** Measures difference and merge of the same number of changes in a small and a big table. */
async function benchChanges(environment: Environment, sizes: Sizes): Promise<Figure[]> {
  const databases = sizes.merged.map((rows) => ({ name: `merge${rows}`, rows }))
  for (const { name, rows } of databases) {
    await createDatabase(environment, { name, tables: ['people'], rows })
  }
  const differences: number[][] = databases.map(() => [])
  const merges: number[][] = databases.map(() => [])
  // The first round is a warm-up.
  for (let round = 0; round <= sizes.merges; round++) {
    for (const [index, { name, rows }] of databases.entries()) {
      const branch = `${name}:branch${round}`
      await environment.call('PUT', `/db/${branch}`)
      await changeRecords(environment, { branch, rows, round })
      const difference = await timeMs(async () => {
        const answer = await environment.call('GET', `/db/${branch}/diff`)
        requireChanges(answer)
      })
      const merge = await timeMs(async () => {
        const answer = await environment.call('POST', `/db/${branch}/merge`, {})
        requireChanges(answer)
      })
      if (round === 0) continue
      differences[index]?.push(difference)
      merges[index]?.push(merge)
    }
  }
  const [small = '', big = ''] = sizes.merged.map(thousands)
  const compared = (name: string, times: readonly number[][]) => {
    const [baseline = Number.NaN, ours = Number.NaN] = times.map(median)
    return figure(`${name}, big against small`, {
      ratio: ours / baseline,
      atMost: 1.5,
      detail: `${CHANGED_RECORDS} changes: ${ours.toFixed(1)} ms in ${big} rows against ${baseline.toFixed(1)} ms in ${small}`,
    })
  }
  return [compared('difference', differences), compared('merge', merges)]
}

async function changeRecords(
  environment: Environment,
  options: { branch: string; rows: number; round: number },
): Promise<void> {
  const { branch, rows, round } = options
  const operations = Array.from({ length: CHANGED_RECORDS }, (_, position) => {
    const id = scatteredId(round * CHANGED_RECORDS + position, rows)
    return { update: { table: 'people', id, fields: { name: `changed in round ${round}` } } }
  })
  await environment.call('POST', `/db/${branch}/transaction`, { operations })
}

function requireChanges(answer: unknown): void {
  const { tables } = answer as { tables: readonly { updated: number }[] }
  if (tables[0]?.updated !== CHANGED_RECORDS) throw new Error(JSON.stringify(answer).slice(0, 500))
}

/** Reads random records. */
function readOf({ branch, rows }: { branch(): string; rows: number }): () => Request {
  return () => ({
    method: 'GET',
    path: `/db/${branch()}/tables/people/data/${rowId(1 + Math.floor(Math.random() * rows))}`,
    headers: headers(),
  })
}

/** Updates different records, far from each other. */
function updateOf({ branch, rows }: { branch: string; rows: number }): () => Request {
  const json = headers('')
  let count = 0
  return () => ({
    method: 'PATCH',
    path: `/db/${branch}/tables/people/data/${scatteredId(count++, rows)}`,
    headers: json,
    body: JSON.stringify({ age: count % 90, name: `Name of person ${count}` }),
  })
}

/** Maps the numbers below `rows`, which is a power of ten, to different records. */
function scatteredId(number: number, rows: number): string {
  return rowId(1 + ((number * 61_803) % rows))
}
