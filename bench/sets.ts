import { createEnvironment, type Environment, headers } from './environment.js'
import { inTurns, timeMs } from './measure.js'
import { createDatabase, personOf, thousands } from './people.js'
import { type Figure, figure } from './report.js'

/* What a write of many rows by a filter costs, against one bare statement of PostgreSQL on the same table. */

const ROWS = 100_000

export async function benchSets({ quick }: { quick: boolean }): Promise<Figure[]> {
  const environment = await createEnvironment()
  try {
    const [heap] = await createDatabase(environment, {
      name: 'sets',
      tables: ['people'],
      rows: ROWS,
    })
    if (heap === undefined) throw new Error('a table must have a heap')
    const { table, columns } = heap
    const rounds = quick ? 5 : 15
    let age = 0
    const post = async (branch: string) => {
      const body = JSON.stringify({ filter: { age: { $ge: 0 } }, set: { age: ++age } })
      const response = await environment.http.request({
        method: 'PATCH',
        path: `/db/sets:${branch}/tables/people/data`,
        headers: headers(body),
        body,
      })
      const text = await response.body.text()
      if (text !== `{"updated":${ROWS}}`) throw new Error(text)
    }
    const bare = () =>
      environment.direct.query(
        `update ${table} set ${columns[2]} = ${++age} where ${columns[2]} >= 0`,
      )
    // Rows of earlier rounds are removed, so that each round finds a table of the same size.
    const vacuum = () => environment.direct.query(`vacuum ${table}`)
    const times = await inTurns(rounds, {
      async ours() {
        const ms = await timeMs(() => post('main'))
        await vacuum()
        return ms
      },
      async baseline() {
        const ms = await timeMs(bare)
        await vacuum()
        return ms
      },
    })
    const upserts = await benchUpsert(environment, rounds)
    const ofFork = await timeFork(environment, post)
    return [
      ...upserts,
      figure(`update of ${thousands(ROWS)} rows by a filter`, {
        ratio: times.ours / times.baseline,
        atMost: 2,
        detail: `${Math.round(times.ours)} ms against ${Math.round(times.baseline)} ms of a bare update`,
      }),
      figure(`update of ${thousands(ROWS)} inherited rows by a filter`, {
        ratio: ofFork / times.baseline,
        atMost: 5,
        detail: `${Math.round(ofFork)} ms, which copies all rows to the fork`,
      }),
    ]
  } finally {
    await environment.close()
  }
}

const UPSERTED = 10_000

/** Compares upserts of new records, and of records of which half or all exist with other values, with a bulk insert of as many. */
async function benchUpsert(environment: Environment, rounds: number): Promise<Figure[]> {
  await createDatabase(environment, { name: 'upserts', tables: ['people'], rows: ROWS })
  let next = 0
  let version = 0
  const post = async (path: string, from: number) => {
    const person = personOf(++version)
    const records = Array.from({ length: UPSERTED }, (_, index) => ({
      id: `u${from + index}`,
      ...person,
    }))
    next = from + UPSERTED
    const body = JSON.stringify({ records })
    return timeMs(async () => {
      const response = await environment.http.request({
        method: 'POST',
        path: `/db/upserts:main/tables/people/${path}`,
        headers: headers(body),
        body,
      })
      const text = await response.body.text()
      if (response.statusCode !== 200 || text.includes('failed')) throw new Error(text)
    })
  }
  await post('bulk', 0)
  const compare = async (name: string, present: number): Promise<Figure> => {
    const times = await inTurns(rounds, {
      baseline: () => post('bulk', next),
      ours: () => post('upsert', next - present),
    })
    return figure(`upsert of ${thousands(UPSERTED)} records, ${name}`, {
      ratio: times.baseline / times.ours,
      atLeast: present === 0 ? 0.5 : 0.25,
      detail: `${Math.round(times.ours)} ms against ${Math.round(times.baseline)} ms of a bulk insert`,
    })
  }
  return [
    await compare('all new', 0),
    await compare('half of which exist', UPSERTED / 2),
    await compare('all of which exist', UPSERTED),
  ]
}

async function timeFork(
  environment: Environment,
  post: (branch: string) => Promise<void>,
): Promise<number> {
  await environment.call('PUT', '/db/sets:fork', { from: 'main' })
  return timeMs(() => post('fork'))
}
