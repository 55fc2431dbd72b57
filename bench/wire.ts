import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { createEnvironment, type Environment, KEY } from './environment.js'
import { inTurns, median, timeMs } from './measure.js'
import { freePort, PgBouncer } from './peers.js'
import { insertStream, personOf, rateDetail, thousands } from './people.js'
import { type Figure, figure } from './report.js'

/*
 * The cost of the protocol of PostgreSQL: reads by id against PostgreSQL itself and against PgBouncer in front of it, and COPY
 * against a stream of records.
 */

const execute = promisify(execFile)

const CLIENTS = 8
const ROWS = 100_000
/** A COPY is one transaction, which has a limit in bytes. */
const COPIED_ROWS = 50_000
const SERIALIZATION_FAILURE = '40001'

interface Sizes {
  readonly rounds: number
  readonly seconds: number
}

const FULL: Sizes = { rounds: 7, seconds: 5 }
const QUICK: Sizes = { rounds: 3, seconds: 2 }

const TABLE = `create table people (id bigint primary key, name text, email text, age bigint,
  score double precision, active boolean, seen timestamptz)`
const FILL = `insert into people (id, name, email, age, score, active, seen)
  select n, 'Name of person ' || n, 'person' || n || '@example.com', n % 90, n / 7.0, n % 2 = 0, now()
  from generate_series(1, ${ROWS}) n`

const READ = `\\set id random(1, ${ROWS})
select name, email, age, score, active, seen from people where id = :id;
`

export async function benchWire({ quick }: { quick: boolean }): Promise<Figure[]> {
  const sizes = quick ? QUICK : FULL
  const port = await freePort()
  const environment = await createEnvironment({
    OFFSHOOT_PG_PORT: String(port),
    // A quick machine reads more often than a key may by default, and what a read costs is measured here.
    OFFSHOOT_KEY_REQUESTS_PER_SECOND: '1000000',
  })
  const address = `postgresql://${environment.workspace}:${KEY}@127.0.0.1:${port}/bench`
  const client = new pg.Client({ connectionString: address })
  try {
    const place = `/workspaces/${environment.workspace}/dbs/bench`
    await environment.call('PUT', place, { region: 'local' })
    await client.connect()
    for (const each of [client, environment.direct]) {
      await each.query(TABLE)
      await each.query(FILL)
    }
    await environment.direct.query('vacuum analyze')
    return [
      ...(await benchReads(environment, { ...sizes, address })),
      await benchCopy(environment, { ...sizes, client }),
    ]
  } finally {
    await client.end().catch(() => undefined)
    await environment.close()
  }
}

/** Reads records by their ids with pgbench, as prepared statements. */
async function benchReads(
  environment: Environment,
  { rounds, seconds, address }: Sizes & { address: string },
): Promise<Figure[]> {
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-wire-'))
  const script = path.join(folder, 'read.sql')
  await writeFile(script, READ)
  const { ours: cpu } = environment.cpuMeters()
  const bouncer = await PgBouncer.start(environment.postgresUrl, CLIENTS)
  if (bouncer === undefined) console.log('PgBouncer is left out: install pgbouncer')
  const run = async (url: string, mode = 'prepared') => {
    const args = ['-n', '-M', mode, '-c', `${CLIENTS}`, '-T', `${seconds}`, '-f', script]
    const { stdout } = await execute('pgbench', [...args, url])
    return {
      rate: Number(/^tps = ([\d.]+)/m.exec(stdout)?.[1]),
      count: Number(/actually processed: (\d+)/.exec(stdout)?.[1]),
    }
  }
  const bounced: number[] = []
  try {
    // The compiler of Node.js knows what is hot after some seconds of load.
    await run(address)
    const rates = await inTurns(rounds, {
      ours: async () => {
        let rate = 0
        await cpu.round(async () => {
          const ran = await run(address)
          rate = ran.rate
          return ran.count
        })
        return rate
      },
      baseline: async () => {
        if (bouncer !== undefined) bounced.push((await run(bouncer.url, bouncer.mode)).rate)
        return (await run(environment.postgresUrl)).rate
      },
    })
    await run(address, 'simple')
    const simple = await inTurns(rounds, {
      ours: async () => (await run(address, 'simple')).rate,
      baseline: async () => (await run(environment.postgresUrl, 'simple')).rate,
    })
    const throughBouncer = { ours: rates.ours, baseline: median(bounced) }
    return [
      figure(`select by id, prepared, ${CLIENTS} clients`, {
        ratio: rates.ours / rates.baseline,
        atLeast: 0.25,
        // The backends of the baseline end with pgbench, so that their CPU time cannot be read.
        detail: `${rateDetail(rates, 'of PostgreSQL')}; CPU per read: ${cpu}`,
      }),
      figure(`select by id, with the id in the text, ${CLIENTS} clients`, {
        ratio: simple.ours / simple.baseline,
        atLeast: 0.25,
        detail: rateDetail(simple, 'of PostgreSQL'),
      }),
      ...(bouncer === undefined
        ? []
        : [
            figure(`select by id, ${CLIENTS} clients, against PgBouncer`, {
              ratio: throughBouncer.ours / throughBouncer.baseline,
              atLeast: 0.8,
              detail: rateDetail(throughBouncer, `of PgBouncer (${bouncer.mode})`),
            }),
          ]),
    ]
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
    console.log('select by id is skipped: install pgbench')
    return []
  } finally {
    await bouncer?.close()
    await rm(folder, { recursive: true, force: true })
  }
}

/** Inserts the same records by COPY and as a stream of JSON. */
async function benchCopy(
  environment: Environment,
  { rounds, client }: Sizes & { client: pg.Client },
): Promise<Figure> {
  const people = Array.from({ length: COPIED_ROWS }, (_, n) => personOf(n))
  const lines = people.map((person) => Object.values(person).join('\t'))
  const rows = Buffer.from(`${lines.join('\n')}\n`)
  const records = Buffer.from(people.map((person) => JSON.stringify(person)).join('\n'))
  const columns = Object.keys(people[0] ?? {}).join(', ')
  const empty = () => client.query('truncate copied')
  await client.query(TABLE.replace('people', 'copied'))
  const rate = async (work: () => Promise<unknown>): Promise<number> => {
    const elapsedMs = await timeMs(work).catch((error: { code?: unknown }) => {
      // A COPY that lets other work on the branch wait is ended, and its client repeats it.
      if (error.code === SERIALIZATION_FAILURE) return undefined
      throw error
    })
    if (elapsedMs === undefined) return rate(work)
    await empty()
    return (COPIED_ROWS / elapsedMs) * 1000
  }
  const { ours, baseline } = await inTurns(rounds, {
    ours: () => rate(() => copyRows(client, `copy copied (${columns}) from stdin`, rows)),
    baseline: () => rate(() => insertStream(environment, 'copied', records)),
  })
  return figure('COPY against a stream of records', {
    ratio: ours / baseline,
    atLeast: 0.5,
    detail: `${thousands(ours)} rows/s against ${thousands(baseline)} records/s`,
  })
}

/** The part of a connection of node-postgres that sends the rows of a COPY. */
interface CopyConnection {
  query(text: string): void
  sendCopyFromChunk(chunk: Buffer): void
  endCopyFrom(): void
}

/** Bytes of a message. */
const CHUNK_BYTES = 64 * 1024

function copyRows(client: pg.Client, text: string, rows: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    const copy = {
      submit: (connection: CopyConnection) => connection.query(text),
      handleCopyInResponse(connection: CopyConnection) {
        for (let at = 0; at < rows.length; at += CHUNK_BYTES) {
          connection.sendCopyFromChunk(rows.subarray(at, at + CHUNK_BYTES))
        }
        connection.endCopyFrom()
      },
      handleCommandComplete: () => undefined,
      handleReadyForQuery: () => resolve(),
      handleError: (error: Error) => reject(error),
    }
    client.query(copy as unknown as pg.Submittable)
  })
}
