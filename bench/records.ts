import { once } from 'node:events'
import { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { from as copyFrom } from 'pg-copy-streams'
import { Pool } from 'undici'
import type { CpuMeter, CpuMeters } from './cpu.js'
import {
  CONNECTIONS,
  createEnvironment,
  type Environment,
  headers,
  residentMiB,
  startProcess,
  stopProcess,
} from './environment.js'
import { inTurns, requestRate, timeMs } from './measure.js'
import { COLUMNS, insertStream, personOf, thousands } from './people.js'
import { type Figure, figure } from './report.js'

const BULK_RECORDS = 10_000
const WARM_UP_ROUNDS = 20

/** The values of a record as texts, for the baselines. */
function texts(number: number): string[] {
  return Object.values(personOf(number)).map(String)
}

async function createTables(environment: Environment, names: readonly string[]): Promise<void> {
  const { workspace } = environment
  await environment.call('PUT', `/workspaces/${workspace}/dbs/bench`, { region: 'local' })
  const operations = names.flatMap((table) => [
    { addTable: { table } },
    ...COLUMNS.map((column) => ({ addColumn: { table, column } })),
  ])
  await environment.call('POST', `/db/bench:main/schema/apply`, { edits: { operations } })
}

/** The physical tables and columns of the named tables, in their order. */
async function heapsOf(environment: Environment, count: number, order: 'asc' | 'desc' = 'asc') {
  const { rows } = await environment.direct.query<{ table: string; columns: string }>(`
    select format('offshoot_db_%s.heap_%s', database_id, id) as table,
      (select string_agg('c' || c, ', ' order by c) from unnest(column_ids) c) as columns
    from offshoot.heaps order by id ${order} limit ${count}`)
  return rows
}

async function copyLines(
  { direct }: Environment,
  heap: { table: string; columns: string } | undefined,
  lines: Buffer,
): Promise<void> {
  const stream = direct.query(
    copyFrom(`copy ${heap?.table} (id, epoch, ${heap?.columns}) from stdin`),
  )
  stream.end(lines)
  await once(stream, 'finish')
}

export async function benchRecords(options: { quick: boolean }): Promise<Figure[]> {
  const environment = await createEnvironment()
  try {
    await createTables(environment, ['people', 'orders', 'items'])
    return [
      ...(await benchBulk(environment, options)),
      ...(await benchSingle(environment, options)),
      ...(await benchTransaction(environment, options)),
      await benchStream(environment, options),
      ...(await benchMemory(environment, options)),
    ]
  } finally {
    await environment.close()
  }
}

let nextId = 0
const newId = () => `bench_${(nextId++).toString().padStart(10, '0')}`

async function benchBulk(
  environment: Environment,
  { quick }: { quick: boolean },
): Promise<Figure[]> {
  const rounds = quick ? 5 : 15
  const [heap] = await heapsOf(environment, 1)
  const records = Array.from({ length: BULK_RECORDS }, (_, number) => personOf(number))
  const body = Buffer.from(JSON.stringify({ records }))
  const target = '/db/bench:main/tables/people/bulk'
  const post = async () => {
    const response = await environment.http.request({
      method: 'POST',
      path: target,
      headers: headers(body),
      body,
    })
    const text = await response.body.text()
    if (response.statusCode !== 200) throw new Error(text)
  }
  const copy = (lines: Buffer) => copyLines(environment, heap, lines)
  const lines = () =>
    Buffer.from(records.map((_, number) => `${newId()}\t1\t${texts(number).join('\t')}\n`).join(''))
  const rate = (count: number, ms: number) => (count * BULK_RECORDS * 1000) / ms
  await post()
  await copy(lines())
  const cpu = environment.cpuMeters()
  const one = await inTurns(rounds, {
    async baseline() {
      const prepared = lines()
      return rate(1, await timeMs(() => copy(prepared), cpu.baseline))
    },
    ours: async () => rate(1, await timeMs(post, cpu.ours)),
  })
  const two = await inTurns(rounds, {
    async baseline() {
      const prepared = lines()
      return rate(1, await timeMs(() => copy(prepared)))
    },
    ours: async () =>
      rate(4, await timeMs(() => Promise.all([post().then(post), post().then(post)]))),
  })
  const detail = ({ ours, baseline }: { ours: number; baseline: number }) =>
    `${thousands(ours)} rows/s against ${thousands(baseline)} by COPY`
  return [
    figure('bulk insert, one client', {
      ratio: one.ours / one.baseline,
      atLeast: 0.5,
      detail: detail(one),
      cpu,
    }),
    figure('bulk insert, two clients', {
      ratio: two.ours / two.baseline,
      atLeast: 0.8,
      detail: detail(two),
    }),
  ]
}

async function benchSingle(
  environment: Environment,
  { quick }: { quick: boolean },
): Promise<Figure[]> {
  const durationMs = quick ? 1500 : 5000
  const rounds = quick ? 3 : 5
  const [heap] = await heapsOf(environment, 1)
  const { rows } = await environment.direct.query<{ id: string }>(
    `select id from ${heap?.table} limit 10000`,
  )
  await environment.direct.query(`vacuum analyze ${heap?.table}`)
  const ids = rows.map((row) => row.id)
  const insertText = `insert into ${heap?.table} (id, epoch, ${heap?.columns})
    values ($1, 1, $2, $3, $4, $5, $6, $7) returning id, version, created_at, updated_at`
  const bare = await startProcess(
    [
      fileURLToPath(new URL('./bare-server.js', import.meta.url)),
      environment.postgresUrl,
      heap?.table ?? '',
      insertText,
    ],
    {},
  )
  const bareHttp = new Pool(bare.output.trim(), { connections: CONNECTIONS, pipelining: 1 })
  const anyId = () => ids[Math.floor(Math.random() * ids.length)] ?? ''
  const load = { connections: CONNECTIONS, durationMs }
  const json = headers('')
  let number = 0
  const getCpu = environment.cpuMeters(bare.process.pid)
  const insertCpu = environment.cpuMeters(bare.process.pid)
  const readRecord = () => ({
    method: 'GET' as const,
    path: `/db/bench:main/tables/people/data/${anyId()}`,
    headers: headers(),
  })
  const get = await inTurns(rounds, {
    baseline: () =>
      requestRate(bareHttp, {
        ...load,
        cpu: getCpu.baseline,
        next: () => ({ method: 'GET', path: `/${anyId()}`, headers: {} }),
      }),
    ours: () =>
      requestRate(environment.http, {
        ...load,
        cpu: getCpu.ours,
        next: readRecord,
      }),
  })
  const statement = 'select * from people where id = $1'
  const readBySql = () => ({
    method: 'POST' as const,
    path: '/db/bench:main/sql',
    headers: json,
    body: JSON.stringify({ statement, params: [anyId()] }),
  })
  const sqlCpu = environment.cpuMeters(environment.serverPid)
  const bySql = await inTurns(rounds, {
    baseline: () =>
      requestRate(environment.http, { ...load, cpu: sqlCpu.baseline, next: readRecord }),
    ours: () => requestRate(environment.http, { ...load, cpu: sqlCpu.ours, next: readBySql }),
  })
  const insert = await inTurns(rounds, {
    baseline: () =>
      requestRate(bareHttp, {
        ...load,
        cpu: insertCpu.baseline,
        next: () => ({
          method: 'POST',
          path: '/',
          headers: json,
          body: JSON.stringify({ values: [newId(), ...texts(number++)] }),
        }),
      }),
    ours: () =>
      requestRate(environment.http, {
        ...load,
        cpu: insertCpu.ours,
        next: () => ({
          method: 'POST',
          path: '/db/bench:main/tables/people/data',
          headers: json,
          body: JSON.stringify(personOf(number++)),
        }),
      }),
  })
  await bareHttp.close()
  await stopProcess(bare.process)
  const detail = ({ ours, baseline }: { ours: number; baseline: number }) =>
    `${thousands(ours)} requests/s against ${thousands(baseline)} of a bare route`
  return [
    figure('get by id', {
      ratio: get.ours / get.baseline,
      atLeast: 0.7,
      detail: detail(get),
      cpu: getCpu,
    }),
    figure('get by id with SQL', {
      ratio: bySql.ours / bySql.baseline,
      atLeast: 0.5,
      detail: `${thousands(bySql.ours)} requests/s against ${thousands(bySql.baseline)} of records`,
      cpu: sqlCpu,
    }),
    figure('insert one', {
      ratio: insert.ours / insert.baseline,
      atLeast: 0.6,
      detail: detail(insert),
      cpu: insertCpu,
    }),
  ]
}

async function benchTransaction(
  environment: Environment,
  { quick }: { quick: boolean },
): Promise<Figure[]> {
  const rounds = quick ? 5 : 15
  const tables = ['people', 'orders', 'items']
  const heaps = await heapsOf(environment, 3)
  const { direct } = environment

  /** 1000 operations on existing and on new records. */
  async function makeOperations() {
    const existing: string[][] = []
    for (const { table, columns } of heaps) {
      const ids = Array.from({ length: 150 }, newId)
      await direct.query(
        `insert into ${table} (id, epoch, ${columns})
           select id, 1, 'x', 'a@b.co', 1, 1, true, now() from unnest($1::text[]) id`,
        [ids],
      )
      existing.push(ids)
    }
    return Array.from({ length: 1000 }, (_, number) => {
      const table = number % 3
      const share = (number * 37) % 100
      const kind = share < 60 ? 'insert' : share < 85 ? 'update' : share < 95 ? 'get' : 'delete'
      const id = kind === 'insert' ? newId() : (existing[table]?.pop() ?? newId())
      return { kind, table, id, number }
    })
  }
  type Operations = Awaited<ReturnType<typeof makeOperations>>

  const asRequest = (operations: Operations) => ({
    operations: operations.map(({ kind, table, id, number }) => {
      const name = tables[table]
      if (kind === 'insert') return { insert: { table: name, record: personOf(number) } }
      if (kind === 'update') return { update: { table: name, id, fields: { age: 5, name: 'new' } } }
      if (kind === 'get') return { get: { table: name, id, columns: ['name', 'age'] } }
      return { delete: { table: name, id } }
    }),
  })

  async function oneByOne(operations: Operations): Promise<void> {
    await direct.query('begin isolation level serializable')
    for (const { kind, table, id, number } of operations) {
      const heap = heaps[table]
      const [name, , age] = heap?.columns.split(', ') ?? []
      const statements: Record<string, { text: string; values: unknown[] }> = {
        insert: {
          text: `insert into ${heap?.table} (id, epoch, ${heap?.columns}) values ($1, 1, $2, $3, $4, $5, $6, $7) returning id`,
          values: [id, ...texts(number)],
        },
        update: {
          text: `update ${heap?.table} set ${name} = $2, ${age} = $3, version = version + 1, updated_at = now() where id = $1 returning id`,
          values: [id, 'new', 5],
        },
        get: { text: `select ${name}, ${age} from ${heap?.table} where id = $1`, values: [id] },
        delete: { text: `delete from ${heap?.table} where id = $1 returning id`, values: [id] },
      }
      await direct.query({ name: `${kind}${table}`, ...(statements[kind] ?? { text: '' }) })
    }
    await direct.query('commit')
  }

  async function setBased(operations: Operations): Promise<void> {
    await direct.query('begin isolation level serializable')
    for (const [table, heap] of heaps.entries()) {
      const [name, , age] = heap.columns.split(', ')
      const of = (kind: string) =>
        operations.filter((operation) => operation.table === table && operation.kind === kind)
      const inserts = of('insert')
      const values = inserts.map(({ number }) => texts(number))
      const columns = [0, 1, 2, 3, 4, 5].map((column) => values.map((row) => row[column]))
      await direct.query({
        name: `set insert${table}`,
        text: `insert into ${heap.table} (id, epoch, ${heap.columns})
          select id, 1, a, b, c, d, e, f
          from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::float8[], $6::bool[], $7::timestamptz[]) as u(id, a, b, c, d, e, f)
          returning id`,
        values: [inserts.map(({ id }) => id), ...columns],
      })
      await direct.query({
        name: `set update${table}`,
        text: `update ${heap.table} h set ${name} = u.a, ${age} = u.b, version = version + 1, updated_at = now()
          from unnest($1::text[], $2::text[], $3::bigint[]) as u(id, a, b) where h.id = u.id returning h.id`,
        values: [
          of('update').map(({ id }) => id),
          of('update').map(() => 'new'),
          of('update').map(() => 5),
        ],
      })
      await direct.query({
        name: `set get${table}`,
        text: `select id, ${name}, ${age} from ${heap.table} where id = any($1)`,
        values: [of('get').map(({ id }) => id)],
      })
      await direct.query({
        name: `set delete${table}`,
        text: `delete from ${heap.table} where id = any($1) returning id`,
        values: [of('delete').map(({ id }) => id)],
      })
    }
    await direct.query('commit')
  }

  const post = async (operations: Operations, cpu?: CpuMeter) => {
    const body = JSON.stringify(asRequest(operations))
    const send = async () => {
      const response = await environment.http.request({
        method: 'POST',
        path: '/db/bench:main/transaction',
        headers: headers(body),
        body,
      })
      const text = await response.body.text()
      if (response.statusCode !== 200) throw new Error(text.slice(0, 500))
    }
    return timeMs(send, cpu)
  }
  // All three are warmed up, as in a process that has been running for a while.
  for (let round = 0; round < WARM_UP_ROUNDS; round++) {
    for (const run of [(made: Operations) => post(made), oneByOne, setBased]) {
      await run(await makeOperations())
    }
  }
  const against = (run: (operations: Operations) => Promise<void>, cpu: CpuMeters) =>
    inTurns(rounds, {
      async baseline() {
        const operations = await makeOperations()
        return timeMs(() => run(operations), cpu.baseline)
      },
      ours: async () => post(await makeOperations(), cpu.ours),
    })
  const singleCpu = environment.cpuMeters()
  const setsCpu = environment.cpuMeters()
  const single = await against(oneByOne, singleCpu)
  const sets = await against(setBased, setsCpu)
  return [
    figure('transaction against one by one', {
      ratio: single.baseline / single.ours,
      atLeast: 5,
      detail: `${single.ours.toFixed(1)} ms against ${single.baseline.toFixed(1)} ms`,
      cpu: singleCpu,
    }),
    figure('transaction against set-based SQL', {
      ratio: sets.ours / sets.baseline,
      atMost: 2,
      detail: `${sets.ours.toFixed(1)} ms against ${sets.baseline.toFixed(1)} ms`,
      cpu: setsCpu,
    }),
  ]
}

/** Streams records into one empty table after the other, and copies as many rows into others. */
async function benchStream(
  environment: Environment,
  { quick }: { quick: boolean },
): Promise<Figure> {
  const [rounds, count] = quick ? [3, 50_000] : [7, 200_000]
  const numbers = Array.from({ length: count }, (_, number) => number)
  const body = Buffer.from(
    numbers.map((number) => `${JSON.stringify({ id: newId(), ...personOf(number) })}\n`).join(''),
  )
  const lines = Buffer.from(
    numbers.map((number) => `${newId()}\t1\t${texts(number).join('\t')}\n`).join(''),
  )
  let tables = 0
  const nextTable = async () => {
    const table = `streamed${tables++}`
    const operations = [
      { addTable: { table } },
      ...COLUMNS.map((column) => ({ addColumn: { table, column } })),
    ]
    await environment.call('POST', '/db/bench:main/schema/apply', { edits: { operations } })
    return table
  }
  const rate = (ms: number) => (count * 1000) / ms
  const { ours, baseline } = await inTurns(rounds, {
    async baseline() {
      await nextTable()
      const [heap] = await heapsOf(environment, 1, 'desc')
      return rate(await timeMs(() => copyLines(environment, heap, lines)))
    },
    async ours() {
      const table = await nextTable()
      return rate(await timeMs(() => insertStream(environment, table, body)))
    },
  })
  return figure('atomic stream into an empty table', {
    ratio: ours / baseline,
    atLeast: 0.5,
    detail: `${thousands(ours)} rows/s against ${thousands(baseline)} by COPY`,
  })
}

async function benchMemory(
  environment: Environment,
  { quick }: { quick: boolean },
): Promise<Figure[]> {
  const count = quick ? 200_000 : 1_000_000
  let peak = 0
  const timer = setInterval(async () => {
    peak = Math.max(peak, await residentMiB(environment.serverPid).catch(() => 0))
  }, 50)
  function* lines() {
    for (let start = 0; start < count; start += 1000) {
      let chunk = ''
      for (let number = start; number < start + 1000; number++) {
        chunk += `${JSON.stringify(personOf(number))}\n`
      }
      yield chunk
    }
  }
  const startedAt = performance.now()
  const response = await environment.http.request({
    method: 'POST',
    path: '/db/bench:main/tables/items/bulk',
    headers: { ...headers(), 'content-type': 'application/x-ndjson' },
    body: Readable.from(lines()),
    bodyTimeout: 0,
    headersTimeout: 0,
  })
  const answer = (await response.body.json()) as { inserted: number }
  clearInterval(timer)
  if (answer.inserted !== count) throw new Error(JSON.stringify(answer))
  const rate = (count * 1000) / (performance.now() - startedAt)
  return [
    figure(`streaming ${thousands(count)} records`, {
      value: peak,
      atMost: 300,
      unit: ' MB',
      detail: `${peak.toFixed(0)} MB resident, ${thousands(rate)} rows/s`,
    }),
  ]
}
