import { Agent } from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { exchange, type Reply } from '../support/cost/exchange.js'
import { MeasuredService } from '../support/cost/measured-service.js'
import { measureShortest, measureTurns, type Turns } from '../support/cost/turns.js'
import { LONG } from '../support/random.js'

/*
 * Sends the largest requests that are accepted, and requests that are refused late. No turn of the
 * event loop may be long, so that other requests are served meanwhile. Turns are measured in CPU
 * time of the main thread, which depends little on the load of the machine, and a long turn is
 * compared with a fixed piece of work at the same time.
 */

/**
 * CPU time by which one turn of the event loop may exceed the turns of trivial requests. On a quiet
 * machine all turns take less than 60 ms. The limit is higher, because the same work takes more CPU
 * time when other programs use the caches and the cores.
 */
const TURN_CPU_MS_MAX = 100
/**
 * CPU time of one turn together with garbage collection, which cannot be divided: V8 copies the live objects of a large
 * request at once.
 */
const TURN_WITH_GC_CPU_MS_MAX = 200
/** Only ends requests that hang: the machine may be slow. */
const PATIENCE_MS = 200_000
const WIDE = 200
/**
 * The short form sends a part of the records, lines or values of some requests. To process them in one turn would still
 * take several times as long as a turn may take.
 */
const many = (count: number) => Math.round(LONG ? count : count * 0.3)
const DOCUMENTS = 20

let service: MeasuredService
let baselineMs: number
const agent = new Agent({ keepAlive: true, maxSockets: 1 })
const BRANCH = () => `/${service.banner.workspaceId}.local/db/large:main`

interface Sending {
  readonly type?: string
  readonly headers?: Readonly<Record<string, string>>
}

function send(method: string, url: string, body?: unknown, sending: Sending = {}): Promise<Reply> {
  const { type = 'application/json', headers } = sending
  const bytes = Buffer.isBuffer(body)
    ? body
    : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body ?? null))
  return exchange(service.banner.address, agent, {
    method,
    url,
    headers: {
      authorization: `Bearer ${service.banner.key}`,
      ...(body === undefined ? {} : { 'content-type': type }),
      ...headers,
    },
    body: body === undefined ? undefined : bytes,
    sending: 'whole',
  })
}

const times = <Item>(count: number, item: (index: number) => Item): Item[] =>
  Array.from({ length: count }, (_, index) => item(index))

const wideRecord = (length: number) =>
  Object.fromEntries(times(WIDE, (column) => [`c${column}`, 'x'.repeat(length)]))

const isLong = ({ ownMs, turnMs }: Turns) =>
  ownMs >= baselineMs + TURN_CPU_MS_MAX || turnMs >= baselineMs + TURN_WITH_GC_CPU_MS_MAX

beforeAll(async () => {
  service = await MeasuredService.start({
    OFFSHOOT_LIMIT_REQUEST_TIMEOUT_MS: String(PATIENCE_MS),
    OFFSHOOT_LIMIT_QUERY_TIMEOUT_MS: String(PATIENCE_MS),
  })
  const home = `/workspaces/${service.banner.workspaceId}/dbs/large`
  expect((await send('PUT', home, { region: 'local' })).status).toBe(201)
  const tables = {
    texts: [
      { name: 'text', type: 'text' },
      { name: 'document', type: 'json' },
      { name: 'photo', type: 'file' },
      { name: 'photos', type: 'file[]' },
    ],
    unique: [{ name: 'value', type: 'string', unique: true }],
    lists: [{ name: 'list', type: 'multiple' }],
    documents: times(DOCUMENTS, (column) => ({ name: `d${column}`, type: 'json' })),
    wide: times(WIDE, (column) => ({ name: `c${column}`, type: 'text' })),
  }
  for (const [name, columns] of Object.entries(tables)) {
    expect((await send('PUT', `${BRANCH()}/tables/${name}`)).status).toBe(201)
    const reply = await send('PUT', `${BRANCH()}/tables/${name}/schema`, { columns })
    expect(reply.status, reply.body.toString()).toBe(200)
  }
  const { turns } = await measureTurns(service, async () => {
    for (let count = 0; count < 200; count++) await send('GET', '/user')
    return send('GET', '/user')
  })
  baselineMs = turns.turnMs
})
afterAll(async () => {
  agent.destroy()
  await service.end()
})

interface Case {
  readonly name: string
  readonly send: () => Promise<Reply>
  readonly status: number
}

const file = (sizeBytes: number) => ({
  name: 'x',
  mediaType: 'text/plain',
  base64Content: Buffer.alloc(sizeBytes, 'x').toString('base64'),
})
const insert = (table: string, record: unknown) => ({ insert: { table, record } })
const transaction = (operations: readonly unknown[], sending?: Sending) =>
  send('POST', `${BRANCH()}/transaction`, { operations }, sending)
const bulk = (table: string, body: unknown, sending?: Sending) =>
  send('POST', `${BRANCH()}/tables/${table}/bulk`, body, sending)
const stream = (table: string, body: string, mode = 'atomic') =>
  send('POST', `${BRANCH()}/tables/${table}/bulk?mode=${mode}`, body, {
    type: 'application/x-ndjson',
  })

const CASES: readonly Case[] = [
  {
    name: 'a transaction of 1000 records of 16 KB',
    status: 200,
    send: () => transaction(times(1000, () => insert('texts', { text: 'x'.repeat(16_000) }))),
  },
  {
    name: 'a transaction of 200 records of 75 KB',
    status: 200,
    send: () => transaction(times(200, () => insert('texts', { text: 'x'.repeat(75_000) }))),
  },
  {
    name: 'the same with an idempotency key',
    status: 200,
    send: () =>
      transaction(
        times(200, () => insert('texts', { text: 'x'.repeat(75_000) })),
        { headers: { 'idempotency-key': 'large' } },
      ),
  },
  {
    name: 'a transaction of 15 records of 1 MB with characters to escape',
    status: 200,
    send: () => transaction(times(15, () => insert('texts', { text: '\\\t'.repeat(250_000) }))),
  },
  {
    name: `a transaction of ${many(1000)} wide records`,
    status: 200,
    send: () => transaction(times(many(1000), () => insert('wide', wideRecord(70)))),
  },
  {
    name: `a transaction of ${many(1000)} wide records that are replaced`,
    status: 200,
    send: () =>
      transaction(times(many(1000), (i) => insert('wide', { id: `r${i}`, ...wideRecord(70) }))),
  },
  {
    name: `a transaction of ${many(1000)} updates of wide records, whose columns are answered`,
    status: 200,
    send: () =>
      transaction(
        times(many(1000), (i) => ({
          update: { table: 'wide', id: `r${i}`, fields: wideRecord(70), columns: ['*'] },
        })),
      ),
  },
  {
    name: `a transaction of ${many(1000)} gets of wide records`,
    status: 200,
    send: () =>
      transaction(
        times(many(1000), (i) => ({ get: { table: 'wide', id: `r${i}`, columns: ['*'] } })),
      ),
  },
  {
    name: `a transaction of ${many(1000)} operations with many unknown columns each`,
    status: 400,
    send: () =>
      transaction(
        times(many(1000), () =>
          insert('texts', Object.fromEntries(times(1000, (column) => [`unknown${column}`, 1]))),
        ),
      ),
  },
  {
    name: `a transaction of ${many(1000)} operations with many unknown fields each`,
    status: 400,
    send: () =>
      transaction(
        times(many(1000), () => ({
          get: Object.fromEntries(times(1000, (column) => [`unknown${column}`, 1])),
        })),
      ),
  },
  {
    name: 'a transaction of too many operations',
    status: 400,
    send: () => transaction(times(1_000_000, () => 1)),
  },
  {
    name: 'a record with 200,000 unknown columns',
    status: 400,
    send: () =>
      send(
        'POST',
        `${BRANCH()}/tables/texts/data`,
        Object.fromEntries(times(200_000, (column) => [`unknown${column}`, 1])),
      ),
  },
  {
    name: 'a record with a document of 300,000 values',
    status: 201,
    send: () =>
      send('POST', `${BRANCH()}/tables/texts/data`, { document: times(300_000, () => []) }),
  },
  {
    name: 'a record with a document of 1,500,000 values, which is too large',
    status: 400,
    send: () =>
      send('POST', `${BRANCH()}/tables/texts/data`, { document: times(1_500_000, () => []) }),
  },
  {
    name: 'a record with a document of 1,000,000 texts, which is too large',
    status: 400,
    send: () =>
      send('POST', `${BRANCH()}/tables/texts/data`, { document: times(1_000_000, () => 'text') }),
  },
  {
    name: 'a record with large documents, each with a fault at its end',
    status: 400,
    send: () =>
      send(
        'POST',
        `${BRANCH()}/tables/documents/data`,
        Object.fromEntries(
          times(DOCUMENTS, (column) => [`d${column}`, [...times(50_000, () => 1), '\0']]),
        ),
      ),
  },
  {
    name: 'a record with a list of 340,000 texts',
    status: 201,
    send: () => send('POST', `${BRANCH()}/tables/lists/data`, { list: times(340_000, () => '') }),
  },
  {
    name: 'a record with a file of 15 MB',
    status: 201,
    send: () => send('POST', `${BRANCH()}/tables/texts/data`, { photo: file(15_000_000) }),
  },
  {
    name: 'a record with three large files, one of them invalid',
    status: 400,
    send: () => {
      const invalid = {
        ...file(many(15_000_000)),
        base64Content: `${'A'.repeat(many(20_000_000) - 1)}!`,
      }
      const photos = [file(many(15_000_000)), invalid, file(many(15_000_000))]
      return send('POST', `${BRANCH()}/tables/texts/data`, { photos })
    },
  },
  {
    name: 'a bulk insert of a record with a file of 15 MB',
    status: 200,
    send: () => bulk('texts', { records: [{ photo: file(15_000_000) }] }),
  },
  {
    name: 'an upsert of a record with a file of 15 MB',
    status: 201,
    send: () => send('POST', `${BRANCH()}/tables/texts/data/photo`, { photo: file(15_000_000) }),
  },
  {
    name: 'a stream with a line with a file of 15 MB',
    status: 200,
    send: () => stream('texts', `${JSON.stringify({ photo: file(15_000_000) })}\n`),
  },
  {
    name: 'a query for the contents of files of 30 MB',
    status: 200,
    send: () =>
      send('POST', `${BRANCH()}/tables/texts/query`, {
        columns: ['photo.base64Content'],
        filter: { $exists: 'photo.name' },
        page: { size: 2 },
      }),
  },
  {
    name: 'a record with a text of 20 MB, which is too large',
    status: 400,
    send: () => send('POST', `${BRANCH()}/tables/texts/data`, { text: '"\\'.repeat(5_000_000) }),
  },
  {
    name: 'a record with a document of long texts, which is too large',
    status: 400,
    send: () =>
      send('POST', `${BRANCH()}/tables/texts/data`, {
        document: times(3, () => '"'.repeat(10_000_000)),
      }),
  },
  {
    name: `a bulk insert of ${many(10_000)} records of 6 KB`,
    status: 200,
    send: () => bulk('texts', { records: times(many(10_000), () => ({ text: 'x'.repeat(6000) })) }),
  },
  {
    name: `a bulk insert of ${many(1000)} wide records, with an idempotency key`,
    status: 200,
    send: () =>
      bulk(
        'wide',
        { records: times(many(1000), () => wideRecord(250)) },
        { headers: { 'idempotency-key': 'wide' } },
      ),
  },
  {
    name: `a bulk insert of ${many(1000)} wide records, whose columns are answered`,
    status: 200,
    send: () =>
      send('POST', `${BRANCH()}/tables/wide/bulk?columns=*`, {
        records: times(many(1000), () => wideRecord(250)),
      }),
  },
  {
    name: 'a bulk insert of a text of escaped quotes, which is too large',
    status: 400,
    send: () => bulk('texts', { records: [{ text: '"'.repeat(10_000_000) }] }),
  },
  {
    name: 'a bulk insert of records with many unknown columns',
    status: 400,
    send: () =>
      bulk('texts', {
        records: times(4, () =>
          Object.fromEntries(times(100_000, (column) => [`unknown${column}`, 1])),
        ),
      }),
  },
  {
    name: 'a stream of lines of 60 KB',
    status: 200,
    send: () =>
      stream('texts', `${JSON.stringify({ text: 'x'.repeat(60_000) })}\n`.repeat(many(1000))),
  },
  {
    name: 'a stream of lines of 1 MB with characters to escape',
    status: 200,
    send: () => stream('texts', `${JSON.stringify({ text: '"\\'.repeat(250_000) })}\n`.repeat(20)),
  },
  {
    name: 'a stream with a line of 1,000,000 small values',
    status: 400,
    send: () => stream('texts', `{"document":[${'[],'.repeat(1_000_000)}[]]}\n`),
  },
  {
    name: 'a stream with a line of 400,000 unknown columns',
    status: 400,
    send: () =>
      stream('texts', `{${times(400_000, (column) => `"unknown${column}":1`).join(',')}}\n`),
  },
  {
    name: `a stream of ${many(1_000_000)} blank lines and as many that are no record`,
    status: 200,
    send: () =>
      stream(
        'texts',
        `${'\n'.repeat(many(1_000_000))}${'[]\n'.repeat(many(1_000_000))}`,
        'partial',
      ),
  },
  {
    name: `a stream of ${many(300_000)} records without values, which is short enough to be held`,
    status: 200,
    send: () => stream('texts', '{}\n'.repeat(many(300_000))),
  },
  {
    name: `a partial stream of ${many(300_000)} records without values`,
    status: 200,
    send: () => stream('texts', '{}\n'.repeat(many(300_000)), 'partial'),
  },
  {
    name: 'a stream of 10,000 wide records without values',
    status: 200,
    send: () => stream('wide', '{}\n'.repeat(10_000)),
  },
  {
    name: `a partial stream of ${many(300_000)} lines that are not JSON, and blank lines between them`,
    status: 200,
    send: () => stream('texts', '[\n\n'.repeat(many(300_000)), 'partial'),
  },
  {
    name: 'a bulk insert of 10,000 wide records without values',
    status: 200,
    send: () => bulk('wide', { records: times(10_000, () => ({})) }),
  },
  {
    name: `a query for ${many(1000)} records of 60 KB`,
    status: 200,
    send: () =>
      send('POST', `${BRANCH()}/tables/texts/query`, {
        columns: ['text'],
        filter: { text: { $startsWith: 'x' } },
        page: { size: many(1000) },
      }),
  },
  {
    name: `a query for ${many(1000)} wide records`,
    status: 200,
    send: () =>
      send('POST', `${BRANCH()}/tables/wide/query`, { columns: ['*'], page: { size: many(1000) } }),
  },
  {
    name: 'a comparison with a schema of 1000 tables',
    status: 200,
    send: () =>
      send('POST', `${BRANCH()}/schema/compare`, {
        schema: {
          tables: times(1000, (table) => ({
            name: `t${table}`,
            columns: times(18, (column) => ({ name: `c${column}`, type: 'string' })),
          })),
        },
      }),
  },
  {
    name: 'a schema edit of 10,000 operations',
    status: 200,
    send: () =>
      send('POST', `${BRANCH()}/schema/preview`, {
        edits: {
          operations: times(900, (table) => ({ addTable: { table: `t${table}` } })).concat(
            times(9000, (column) => ({
              addColumn: {
                table: `t${column % 900}`,
                column: { name: `c${column}`, type: 'string' },
              },
            })) as never,
          ),
        },
      }),
  },
  {
    name: `SQL with ${many(5000)} large parameters`,
    status: 200,
    send: () =>
      send('POST', `${BRANCH()}/sql`, {
        statement: `select count(*) from texts where text in (${times(many(5000), (i) => `$${i + 1}`).join(',')})`,
        params: times(many(5000), () => 'x'.repeat(3000)),
      }),
  },
  {
    name: 'SQL with 1,100,000 parameters, which are too many',
    status: 400,
    send: () =>
      send('POST', `${BRANCH()}/sql`, { statement: 'select 1', params: times(1_100_000, String) }),
  },
  {
    name: 'SQL with an array of 500,000 texts',
    status: 200,
    send: () =>
      send('POST', `${BRANCH()}/sql`, {
        statement: 'select cardinality($1::text[])',
        params: [times(500_000, (i) => `text ${i}`)],
      }),
  },
  {
    name: 'SQL with a document of 10 MB',
    status: 200,
    send: () =>
      send('POST', `${BRANCH()}/sql`, {
        statement: 'select length($1::text)',
        params: [{ list: times(500_000, (i) => ({ i })) }],
      }),
  },
  {
    name: 'SQL that answers with 10 MB',
    status: 200,
    send: () =>
      send('POST', `${BRANCH()}/sql`, {
        statement: "select text from texts where text like 'x%' limit 150",
      }),
  },
]

describe('while a large request is answered, others are served', () => {
  for (const one of CASES) {
    it(one.name, async () => {
      const { reply, turns } = await measureShortest(service, one.send, isLong)
      expect(reply.status, reply.body.toString('utf8', 0, 1000)).toBe(one.status)
      expect(turns.ownMs).toBeLessThan(baselineMs + TURN_CPU_MS_MAX)
      expect(turns.turnMs).toBeLessThan(baselineMs + TURN_WITH_GC_CPU_MS_MAX)
    })
  }
})

describe('a partial stream whose lines have the same unique value', () => {
  /** How many times the CPU time of lines with different values it may take. */
  const FACTOR = 20
  const LINES = 4000

  it('takes about as much CPU time as one whose lines are inserted', async () => {
    const cpuMsOf = async (body: string) => {
      const before = (await service.usage()).cpuMs
      const reply = await stream('unique', body, 'partial')
      expect(reply.status, reply.body.toString('utf8', 0, 1000)).toBe(200)
      return (await service.usage()).cpuMs - before
    }
    const lines = (choose: (index: number) => number) =>
      times(LINES, (index) => `{"value":"${choose(index)}"}\n`).join('')
    // The first of both also creates the storage of the table.
    await cpuMsOf(lines((index) => -1 - index))
    const inserted = await cpuMsOf(lines((index) => index))
    const refused = await cpuMsOf(lines(() => LINES))
    expect(refused).toBeLessThan(FACTOR * Math.max(inserted, 50))
  })
})
