import { setTimeout as delay } from 'node:timers/promises'
import { LIMITS } from '@offshoot/contract/limits'
import { createEnvironment, type Environment, headers } from './environment.js'
import { median, type Request, timeMs } from './measure.js'
import { compareRates, createDatabase, rateDetail, rowId } from './people.js'
import { type Figure, figure } from './report.js'

/*
 * Measures what the history of branches costs: checkpoints compared with forks, writes and reads of a branch with live
 * checkpoints, tables that keep versions, and growth with many checkpoints and many merges.
 */

interface Sizes {
  readonly checkpoints: number
  /** Checkpoints that are made one after another, while only the newest `kept` stay. */
  readonly made: number
  readonly kept: number
  readonly merges: number
  readonly rows: number
  readonly rounds: number
  readonly durationMs: number
}

const FULL: Sizes = {
  checkpoints: 300,
  made: 10_000,
  kept: 100,
  merges: 10_000,
  rows: 200_000,
  rounds: 15,
  durationMs: 1000,
}

/** Smaller sizes, which show large regressions within seconds. */
const QUICK: Sizes = {
  checkpoints: 60,
  made: 400,
  kept: 100,
  merges: 150,
  rows: 50_000,
  rounds: 5,
  durationMs: 200,
}

const LIVE_CHECKPOINTS = 100
/** After these merges, as many states are kept as ever will be. */
const EARLY_MERGES = 5 * LIMITS.automaticCheckpointsMax
/** The rows that merges change in turn, fewer than the early merges: each keeps a version for the fork of the branch. */
const MERGED_ROWS = 50
/** The share of a long run that its beginning and its end are measured by. */
const SHARE = 0.1

export async function benchHistory({ quick }: { quick: boolean }): Promise<Figure[]> {
  const sizes = quick ? QUICK : FULL
  const environment = await createEnvironment()
  try {
    return [
      await benchCheckpoints(environment, sizes),
      ...(await benchLiveCheckpoints(environment, sizes)),
      await benchVersions(environment, sizes),
      ...(await benchManyCheckpoints(environment, sizes)),
      ...(await benchManyMerges(environment, sizes)),
    ]
  } finally {
    await environment.close()
  }
}

const ms = (value: number) => `${value.toFixed(1)} ms`

async function benchCheckpoints(environment: Environment, sizes: Sizes): Promise<Figure> {
  const { call } = environment
  await createDatabase(environment, { name: 'pinned', tables: ['people'], rows: sizes.rows })
  const checkpoint = (name: string) => call('POST', '/db/pinned:main/checkpoints', { name })
  const fork = (name: string) => call('PUT', `/db/pinned:${name}`)
  const times = { checkpoint: [] as number[], fork: [] as number[] }
  for (let round = 0; round < sizes.checkpoints; round++) {
    times.fork.push(await timeMs(() => fork(`branch${round}`)))
    times.checkpoint.push(await timeMs(() => checkpoint(`checkpoint${round}`)))
  }
  const [made, forked] = [median(times.checkpoint), median(times.fork)]
  return figure('checkpoint against fork', {
    ratio: made / forked,
    atMost: 1.2,
    detail: `${ms(made)} against ${ms(forked)}, ${sizes.checkpoints} of each`,
  })
}

/** Returns requests that each update another record, so that each keeps a version for the checkpoints. */
function updates(branch: string, { rows, table = 'people' }: { rows: number; table?: string }) {
  const json = headers('')
  let number = 0
  return (): Request => ({
    method: 'PATCH',
    path: `/db/${branch}/tables/${table}/data/${rowId((number++ % rows) + 1)}`,
    headers: json,
    body: JSON.stringify({ age: number % 90 }),
  })
}

const reads = (branch: string, rows: number) => (): Request => ({
  method: 'GET',
  path: `/db/${branch}/tables/people/data/${rowId(1 + Math.floor(Math.random() * rows))}`,
  headers: headers(),
})

async function benchLiveCheckpoints(environment: Environment, sizes: Sizes): Promise<Figure[]> {
  const { rows } = sizes
  for (const name of ['plain', 'kept']) {
    await createDatabase(environment, { name, tables: ['people'], rows })
  }
  for (let number = 0; number < LIVE_CHECKPOINTS; number++) {
    await environment.call('POST', '/db/kept:main/checkpoints', { name: `live${number}` })
  }
  const written = await compareRates(environment, sizes, {
    ours: updates('kept:main', { rows }),
    baseline: updates('plain:main', { rows }),
  })
  const read = await compareRates(environment, sizes, {
    ours: reads('kept:main', rows),
    baseline: reads('plain:main', rows),
  })
  const live = `${LIVE_CHECKPOINTS} live checkpoints`
  return [
    figure(`update, ${live} against none`, {
      ratio: written.ours / written.baseline,
      atLeast: 0.7,
      detail: rateDetail(written, 'with none'),
    }),
    figure(`get by id, ${live} against none`, {
      ratio: read.ours / read.baseline,
      atLeast: 0.9,
      detail: rateDetail(read, 'with none'),
    }),
  ]
}

async function benchVersions(environment: Environment, sizes: Sizes): Promise<Figure> {
  const { rows } = sizes
  const tables = ['people', 'versioned']
  await createDatabase(environment, { name: 'versions', tables, rows: rows * tables.length })
  const alterTable = { table: 'versioned', history: { keep: '30d' } }
  const edits = { operations: [{ alterTable }] }
  await environment.call('POST', '/db/versions:main/schema/apply', { edits })
  const rates = await compareRates(environment, sizes, {
    ours: updates('versions:main', { rows, table: 'versioned' }),
    baseline: updates('versions:main', { rows }),
  })
  return figure('update of a table with a history against one without', {
    ratio: rates.ours / rates.baseline,
    atLeast: 0.4,
    detail: rateDetail(rates, 'without'),
  })
}

/** Returns the medians of the beginning and of the end of a run. */
function ends(times: readonly number[]): { first: number; last: number } {
  const count = Math.max(1, Math.floor(times.length * SHARE))
  return { first: median(times.slice(0, count)), last: median(times.slice(-count)) }
}

async function benchManyCheckpoints(environment: Environment, sizes: Sizes): Promise<Figure[]> {
  const { call } = environment
  const { made, kept } = sizes
  await createDatabase(environment, { name: 'often', tables: ['people'], rows: 1000 })
  const at = '/db/often:main'
  const times: number[] = []
  for (let number = 0; number < made; number++) {
    await call('PATCH', `${at}/tables/people/data/${rowId((number % 100) + 1)}`, { age: number })
    times.push(await timeMs(() => call('POST', `${at}/checkpoints`, { name: `often${number}` })))
    if (number >= kept) await call('DELETE', `${at}/checkpoints/often${number - kept}`)
  }
  const { first, last } = ends(times)
  const { states, versions } = await settled(environment, 'often')
  const count = made.toLocaleString('en')
  return [
    figure(`checkpoint, after ${count} with ${kept} kept, against the first ones`, {
      ratio: last / first,
      atMost: 1.5,
      detail: `${ms(last)} against ${ms(first)}`,
    }),
    figure(`states that are stored after ${count} checkpoints, against those that are kept`, {
      ratio: states / kept,
      atMost: 1.1,
      detail: `${states} for ${kept}`,
    }),
    figure(`old versions of rows after ${count} checkpoints, against changes since the oldest`, {
      ratio: versions / kept,
      atMost: 1.1,
      detail: `${versions} for ${kept}`,
    }),
  ]
}

interface Stored {
  /** States that checkpoints and the history keep. */
  readonly states: number
  /** Merges that the history remembers. */
  readonly merges: number
  /** Old versions of rows. */
  readonly versions: number
  /** Requests to the background. */
  readonly work: number
}

/** How long the background gets to delete what is no longer kept. */
const SETTLED_WITHIN_MS = 60_000
const LOOK_AGAIN_MS = 200

/** Counts what is stored of a database, once the background has done its work. */
async function settled(environment: Environment, name: string): Promise<Stored> {
  const deadline = Date.now() + SETTLED_WITHIN_MS
  for (;;) {
    const stored = await countStored(environment, name)
    if (stored.work === 0 || Date.now() > deadline) return stored
    await delay(LOOK_AGAIN_MS)
  }
}

async function countStored({ direct }: Environment, name: string): Promise<Stored> {
  const { rows } = await direct.query<Omit<Stored, 'versions'> & { id: string }>(
    `select d.id,
       (select count(*) from offshoot.work w where w.database_id = d.id)::integer as work,
       (select count(*) from offshoot.branches b where b.database_id = d.id and b.deleted_at is not null)::integer as states,
       (select count(*) from offshoot.merges m join offshoot.branches b on b.id = m.into_branch_id
        where b.database_id = d.id)::integer as merges
     from offshoot.databases d where d.name = $1`,
    [name],
  )
  const [found] = rows
  if (found === undefined) throw new Error(`there is no database ${name}`)
  const pasts = await direct.query<{ name: string }>(
    `select format('%I.%I', schemaname, tablename) as name from pg_tables
     where schemaname = $1 and tablename like 'past\\_%'`,
    [`offshoot_db_${found.id}`],
  )
  let versions = 0
  for (const past of pasts.rows) {
    const counted = await direct.query<{ count: number }>(
      `select count(*)::integer as count from ${past.name}`,
    )
    versions += counted.rows[0]?.count ?? 0
  }
  return { ...found, versions }
}

async function benchManyMerges(environment: Environment, sizes: Sizes): Promise<Figure[]> {
  const { call } = environment
  await createDatabase(environment, { name: 'pair', tables: ['people'], rows: 1000 })
  await call('PUT', '/db/pair:dev')
  const times: number[] = []
  let early: Stored | undefined
  for (let number = 0; number < sizes.merges; number++) {
    const path = `/db/pair:dev/tables/people/data/${rowId((number % MERGED_ROWS) + 1)}`
    await call('PATCH', path, { age: number })
    times.push(await timeMs(() => call('POST', '/db/pair:dev/merge')))
    if (number === EARLY_MERGES) early = await settled(environment, 'pair')
  }
  if (early === undefined) throw new Error('there must be more merges')
  const { first, last } = ends(times)
  const late = await settled(environment, 'pair')
  const [count, few] = [sizes.merges, EARLY_MERGES].map((number) => number.toLocaleString('en'))
  const growth = (what: string, key: keyof Stored) =>
    figure(`${what} after ${count} merges, against ${few}`, {
      ratio: late[key] / early[key],
      atMost: 1.25,
      detail: `${late[key]} against ${early[key]}`,
    })
  return [
    figure(`merge, after ${count} of one pair, against the first ones`, {
      ratio: last / first,
      atMost: 1.5,
      detail: `${ms(last)} against ${ms(first)}`,
    }),
    growth('states that are stored', 'states'),
    growth('merges in the history', 'merges'),
    growth('old versions of rows', 'versions'),
  ]
}
