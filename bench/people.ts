import { CONNECTIONS, type Environment, headers, type Service } from './environment.js'
import { inTurns, type Request, requestRate } from './measure.js'

/* Tables of people, as many as wanted, and how they are read. */

export const COLUMNS = [
  { name: 'name', type: 'string' },
  { name: 'email', type: 'email' },
  { name: 'age', type: 'int' },
  { name: 'score', type: 'float' },
  { name: 'active', type: 'bool' },
  { name: 'seen', type: 'datetime' },
]

const FIRST_SEEN_SECONDS = 1_700_000_000

/** SQL for the values of row `n`, in the order of the columns, and a plain table for baselines. */
export const VALUES = `'Name of person ' || n, 'person' || n || '@example.com', n % 90, n / 7.0,
  n % 2 = 0, to_timestamp(${FIRST_SEEN_SECONDS} + n)`
export const PLAIN_COLUMNS = `id text collate "C" primary key, name text, email text, age bigint,
  score double precision, active boolean, seen timestamptz`

/** The id of row `n`. Ids are ascending, like generated ones. */
export const ROW_ID = `'rec_' || lpad(n::text, 20, '0')`
export const rowId = (number: number): string => `rec_${String(number).padStart(20, '0')}`

/** The record of row `n`. */
export function personOf(n: number) {
  return {
    name: `Name of person ${n}`,
    email: `person${n}@example.com`,
    age: n % 90,
    score: n / 7,
    active: n % 2 === 0,
    seen: new Date((FIRST_SEEN_SECONDS + n) * 1000).toISOString(),
  }
}

/** Returns a random time within those of the rows. */
export function anyTime(rows: number): string {
  return new Date((FIRST_SEEN_SECONDS + Math.floor(Math.random() * rows)) * 1000).toISOString()
}

export interface Heap {
  readonly table: string
  /** Physical names, in the order of the columns. */
  readonly columns: readonly string[]
}

/**
 * Creates a database with this many rows in all tables together. Inserts them by SQL, which is
 * faster than the API.
 */
export async function createDatabase(
  environment: Pick<Service, 'call' | 'workspace' | 'direct'>,
  options: { name: string; tables: readonly string[]; rows: number; indexes?: readonly string[] },
): Promise<Heap[]> {
  const { name, tables, rows, indexes = [] } = options
  await environment.call('PUT', `/workspaces/${environment.workspace}/dbs/${name}`, {
    region: 'local',
  })
  const operations = tables.flatMap((table) => [
    { addTable: { table } },
    ...COLUMNS.map((column) => ({ addColumn: { table, column } })),
  ])
  await environment.call('POST', `/db/${name}:main/schema/apply`, { edits: { operations } })
  for (const table of tables) {
    for (const column of indexes) {
      await environment.call('PUT', `/db/${name}:main/tables/${table}/columns/${column}/index`)
    }
  }
  const heaps = await listHeaps(environment, name)
  for (const { table, columns } of heaps) {
    await environment.direct.query(
      `insert into ${table} (id, epoch, ${columns.join(', ')})
       select ${ROW_ID}, 1, ${VALUES} from generate_series(1, ${rows / tables.length}) n`,
    )
    await environment.direct.query(`vacuum analyze ${table}`)
  }
  return heaps
}

async function listHeaps({ direct }: Pick<Service, 'direct'>, database: string): Promise<Heap[]> {
  const { rows } = await direct.query<{ table: string; columns: string[] }>(
    `select format('offshoot_db_%s.heap_%s', h.database_id, h.id) as table,
        array(select 'c' || c from unnest(h.column_ids) c order by c) as columns
     from offshoot.heaps h
     join offshoot.databases d on d.id = h.database_id
     where d.name = $1
     order by h.id`,
    [database],
  )
  return rows
}

/** Inserts records into a table of the database `bench` as one atomic stream. */
export async function insertStream(
  { http }: Pick<Service, 'http'>,
  table: string,
  body: Buffer,
): Promise<void> {
  const response = await http.request({
    method: 'POST',
    path: `/db/bench:main/tables/${table}/bulk`,
    headers: { ...headers(), 'content-type': 'application/x-ndjson' },
    body,
  })
  const text = await response.body.text()
  if (response.statusCode !== 200) throw new Error(text)
}

/** Measures two kinds of requests alternately, with all connections, after a warm-up of both. */
export async function compareRates(
  environment: Environment,
  { rounds, durationMs }: { rounds: number; durationMs: number },
  requests: { ours(): Request; baseline(): Request },
): Promise<{ ours: number; baseline: number }> {
  const rate = (next: () => Request, forMs = durationMs) =>
    requestRate(environment.http, { connections: CONNECTIONS, durationMs: forMs, next })
  await rate(requests.baseline, durationMs / 2)
  await rate(requests.ours, durationMs / 2)
  return inTurns(rounds, {
    ours: () => rate(requests.ours),
    baseline: () => rate(requests.baseline),
  })
}

/**
 * Reads a page of people seen since some time, in the order of that time. The column has an index.
 */
export function pageOf({ branch, rows }: { branch: string; rows: number }): () => Request {
  const json = headers('')
  return () => ({
    method: 'POST',
    path: `/db/${branch}/tables/people/query`,
    headers: json,
    body: JSON.stringify({ filter: { seen: { $ge: anyTime(rows) } }, sort: { seen: 'asc' } }),
  })
}

export function rateDetail(rates: { ours: number; baseline: number }, than: string): string {
  return `${thousands(rates.ours)} requests/s against ${thousands(rates.baseline)} ${than}`
}

export function thousands(value: number): string {
  if (value >= 1_000_000) return `${(value / 1_000_000).toFixed(0)} M`
  return `${(value / 1000).toFixed(value < 10_000 && value % 1000 !== 0 ? 1 : 0)} k`
}
