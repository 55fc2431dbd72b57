import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'
import { watchQueries } from '../support/watch-queries.js'

/*
 * Lookups by SQL, as object-relational mappers send them: the same text again and again, many at once.
 */

let service: TestService
let branches: TestBranches
const sent: string[] = []

beforeAll(async () => {
  service = await createTestService({
    tracing: watchQueries((statements) => {
      sent.push(statements.join(';'))
    }),
  })
  branches = await TestBranches.create(service, 'lookups', {
    people: [
      { name: 'name', type: 'string' },
      { name: 'age', type: 'int' },
    ],
  })
  await branches.bulk(
    'main',
    'people',
    Array.from({ length: 200 }, (_, index) => ({ id: `p${index}`, name: `n${index}`, age: index })),
  )
})
afterAll(() => service.close())

const BY_ID = 'select name, age from people where id = $1'

const ask = (statement: string, params: readonly unknown[] = [], branch = 'main') =>
  branches.call(branch, 'POST', '/sql', { statement, params })

async function recordsOf(statement: string, params: readonly unknown[] = [], branch = 'main') {
  const { status, body } = await ask(statement, params, branch)
  expect([status, body.message]).toEqual([200, undefined])
  return body.records
}

/** A node of a cluster changes the role itself. */
const isCluster = () => service.database.server.isCluster

/** Returns what a statement sends to PostgreSQL, one text for each round trip. */
async function sentBy(statement: string, params: readonly unknown[], branch = 'main') {
  const before = sent.length
  await recordsOf(statement, params, branch)
  return sent.slice(before)
}

describe('a statement that was run before', () => {
  it('takes a single round trip, with other values, and is not described again', async () => {
    await recordsOf(BY_ID, ['p1'])
    const trips = await sentBy(BY_ID, ['p2'])
    expect(trips).toHaveLength(1)
    const statements = trips[0]?.split(';') ?? []
    // On a cluster, they are in a transaction with limits on the node, which changes the role itself.
    expect(statements).toEqual(
      (isCluster()
        ? ['begin', 'api_keys', 'work_mem', 'heap_', 'commit']
        : ['api_keys', 'role', 'heap_']
      ).map((part) => expect.stringContaining(part)),
    )
    expect(await recordsOf(BY_ID, ['p3'])).toEqual([{ name: 'n3', age: 3 }])
    expect(await recordsOf(BY_ID, ['none'])).toEqual([])
  })

  it('is planned again for values that are large', async () => {
    const statement = 'select length($1::text) as length'
    expect(await recordsOf(statement, ['abc'])).toEqual([{ length: 3 }])
    expect(await recordsOf(statement, ['x'.repeat(5000)])).toEqual([{ length: 5000 }])
    expect(await recordsOf(statement, ['x'.repeat(1024)])).toEqual([{ length: 1024 }])
    expect(await recordsOf(statement, ['x'.repeat(1025)])).toEqual([{ length: 1025 }])
  })

  it('reports the same error each time', async () => {
    for (let count = 0; count < 3; count++) {
      const before = sent.length
      const { status, body } = await ask('select age / $1::int as share from people', [0])
      expect([status, body.code]).toEqual([400, 'invalid_sql'])
      expect(body.message).toContain('division by zero')
      expect(sent.length - before).toBeLessThan(5)
    }
  })

  it('sees new columns, renamed columns and a new table of the same name', async () => {
    await branches.fork('edited')
    const all = 'select * from people where id = $1'
    expect(await recordsOf(all, ['p4'], 'edited')).toMatchObject([{ name: 'n4', age: 4 }])
    await branches.edit(
      'edited',
      { addColumn: { table: 'people', column: { name: 'city', type: 'string' } } },
      { renameColumn: { table: 'people', oldName: 'age', newName: 'years' } },
    )
    await branches.patch('edited', 'people', 'p4', { city: 'Rome' })
    const [edited] = await recordsOf(all, ['p4'], 'edited')
    expect(edited).toMatchObject({ name: 'n4', years: 4, city: 'Rome' })
    expect(edited).not.toHaveProperty('age')
    await branches.edit('edited', { removeTable: { table: 'people' } })
    expect((await ask(all, ['p4'], 'edited')).body.code).toBe('invalid_sql')
    await branches.edit(
      'edited',
      { addTable: { table: 'people' } },
      { addColumn: { table: 'people', column: { name: 'rank', type: 'int' } } },
    )
    await branches.put('edited', 'people', 'p4', { rank: 1 })
    expect(await recordsOf(all, ['p4'], 'edited')).toMatchObject([{ rank: 1 }])
    expect(await recordsOf(all, ['p4'])).toMatchObject([{ name: 'n4', age: 4 }])
  })

  it('sees the rows of its own branch, whichever other branch has the same text', async () => {
    await branches.fork('own')
    await recordsOf(BY_ID, ['p5'], 'own')
    await branches.patch('own', 'people', 'p5', { age: -5 })
    expect(await recordsOf(BY_ID, ['p5'], 'own')).toEqual([{ name: 'n5', age: -5 }])
    expect(await recordsOf(BY_ID, ['p5'])).toEqual([{ name: 'n5', age: 5 }])
    await branches.reset('own', 'main')
    expect(await recordsOf(BY_ID, ['p5'], 'own')).toEqual([{ name: 'n5', age: 5 }])
  })

  it('returns rows in either form', async () => {
    for (const responseType of ['array', 'json', 'array'] as const) {
      const { body } = await branches.call('main', 'POST', '/sql', {
        statement: BY_ID,
        params: ['p6'],
        responseType,
      })
      expect(responseType === 'json' ? body.records : body.rows).toEqual([
        responseType === 'json' ? { name: 'n6', age: 6 } : ['n6', 6],
      ])
    }
  })
})

describe('lookups that arrive together', () => {
  /** Returns the texts of the round trips that read rows, while statements are sent at once. */
  async function tripsOf(asked: readonly (readonly [statement: string, params: unknown[]])[]) {
    for (const [statement, params] of asked) await recordsOf(statement, params)
    const before = sent.length
    await Promise.all(asked.map(([statement, params]) => recordsOf(statement, params)))
    return sent.slice(before).filter((trip) => trip.includes('heap_'))
  }

  it('share round trips and the guard', async () => {
    const asked = Array.from({ length: 8 }, (_, index) => [BY_ID, [`p${index}`]] as const)
    const trips = await tripsOf(asked.map(([statement, params]) => [statement, [...params]]))
    expect(trips.length).toBeLessThan(asked.length)
    const statements = trips.flatMap((trip) => trip.split(';'))
    expect(statements.filter((text) => text.includes('heap_'))).toHaveLength(asked.length)
    expect(statements.filter((text) => text.includes('offshoot.api_keys'))).toHaveLength(
      trips.length,
    )
    expect(statements.filter((text) => text.includes("set_config('role'"))).toHaveLength(
      isCluster() ? 0 : trips.length,
    )
  })

  it('do not wait for statements that can take long', async () => {
    const asked = [
      'select name from people where age = $1',
      'select upper(name) from people where id = $1',
      'select count(*) from people where name <> $1',
    ]
    const trips = await tripsOf(asked.map((statement) => [statement, ['7']]))
    expect(trips).toHaveLength(asked.length)
  })

  it('each get their own rows or error', async () => {
    const statement = 'select name from people where id = $1 and age = $2::int'
    await recordsOf(statement, ['p1', 1])
    const answers = await Promise.all(
      Array.from({ length: 16 }, (_, index) =>
        ask(statement, [`p${index}`, index % 5 === 3 ? 'many' : index]),
      ),
    )
    for (const [index, { status, body }] of answers.entries()) {
      if (index % 5 === 3) expect([status, body.code]).toEqual([400, 'invalid_sql'])
      else expect([status, body.records]).toEqual([200, [{ name: `n${index}` }]])
    }
  })

  it('see a change of the schema that comes between them', async () => {
    await branches.fork('changing')
    const all = 'select * from people where id = $1'
    await recordsOf(all, ['p1'], 'changing')
    const lookups = () =>
      Promise.all(Array.from({ length: 8 }, (_, index) => ask(all, [`p${index}`], 'changing')))
    for (let number = 0; number < 3; number++) {
      const column = {
        name: `added${number}`,
        type: 'string',
        notNull: true,
        defaultValue: 'x',
      } as const
      const [before] = await Promise.all([
        lookups(),
        branches.edit('changing', { addColumn: { table: 'people', column } }),
      ])
      expect(before.map(({ status }) => status)).toEqual(before.map(() => 200))
      for (const { body } of await lookups()) {
        expect(body.records).toMatchObject([{ [`added${number}`]: 'x' }])
      }
    }
  })
})

describe('150 lookups at once', () => {
  it('are all answered, also while long statements have all the connections for such', async () => {
    const client = new pg.Client({ connectionString: service.url })
    await client.connect()
    try {
      const LONG = 'select count(*) from generate_series(1, 1000000000) a'
      // A cluster passes the statement on as a value.
      const LONG_TEXT = isCluster() ? '%offshoot_node.run%' : '%generate_series%'
      const long = Array.from({ length: 5 }, () => ask(LONG))
      await until(async () => {
        const { rows } = await client.query(
          `select pid from pg_stat_activity
          where state = 'active' and query like $1 and pid <> pg_backend_pid()
            and now() - query_start > interval '1 second'`,
          [LONG_TEXT],
        )
        return rows.length >= 4
      })
      const answers = await Promise.all(
        Array.from({ length: 150 }, (_, index) => ask(BY_ID, [`p${index}`])),
      )
      expect(answers.map(({ status, body }) => [status, body.records])).toEqual(
        answers.map((_, index) => [200, [{ name: `n${index}`, age: index }]]),
      )
      let isAnswered = false
      const ended = Promise.all(long).finally(() => {
        isAnswered = true
      })
      await until(async () => {
        await client.query(
          `select pg_cancel_backend(pid) from pg_stat_activity
          where query like $1 and pid <> pg_backend_pid()`,
          [LONG_TEXT],
        )
        return isAnswered
      })
      await ended
    } finally {
      await client.end()
    }
  })
})
