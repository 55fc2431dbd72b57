import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../../../../test/support/database.js'
import { allDone } from '../common/all-done.js'
import { Database } from './database.js'
import { runTransaction, type Transaction, type TransactionOptions } from './run-transaction.js'
import { sql } from './sql.js'
import { prepared, toCall } from './statement.js'

let own: TestDatabase
let database: Database

beforeAll(async () => {
  own = await createTestDatabase()
  database = new Database({ poolMax: 2, statementTimeoutMs: 5_000, onIdleError: () => undefined })
  database.connect({ url: own.url })
  await database.query(sql`create table notes (id integer primary key, body text)`)
})
afterAll(async () => {
  await database.close()
  await own.close()
})

/** Runs a transaction. Returns the number of statements in each of its round trips, without those of the COMMIT. */
async function countTrips(
  body: (transaction: Transaction) => Promise<unknown>,
  options: TransactionOptions = {},
): Promise<number[]> {
  const trips: number[] = []
  const client = await database.acquire()
  const { query } = client
  const counted = (...args: unknown[]) => {
    trips.push((args[0] as { statements?: readonly string[] }).statements?.length ?? 1)
    return Reflect.apply(query, client, args)
  }
  client.query = counted as typeof query
  client.release()
  await runTransaction(
    database,
    async (transaction) => {
      expect(transaction.client).toBe(client)
      await body(transaction)
    },
    options,
  )
  client.query = query
  return trips.slice(0, -1)
}

const one = (transaction: Transaction, value: number) =>
  transaction.query<{ value: number }>(sql`select ${value}::integer as value`)

describe('queries of a transaction', () => {
  it('are sent together if they are asked for at the same time', async () => {
    const trips = await countTrips(async (transaction) => {
      const results = await allDone([1, 2, 3].map((value) => one(transaction, value)))
      expect(results).toEqual([[{ value: 1 }], [{ value: 2 }], [{ value: 3 }]])
      await one(transaction, 4)
    })
    expect(trips).toEqual([1, 3, 1])
  })

  it('are sent with the BEGIN, if it may be late', async () => {
    const opening = [toCall(sql`set local lock_timeout = 1234`)]
    const trips = await countTrips(
      async (transaction) => {
        const [row] = await transaction.query(prepared(sql`show lock_timeout`))
        expect(row).toEqual({ lock_timeout: '1234ms' })
      },
      { opening, beginsLate: true },
    )
    expect(trips).toEqual([3])
  })

  it('return the same values as queries outside of transactions', async () => {
    const statement = sql`
      select ${7}::integer as "aNumber", ${'9007199254740993'}::bigint as "big", ${true}::boolean as yes,
        ${'a "b" \\ c'}::text as "text", ${null}::text as nothing, ${['x', 'y "z"', null]}::text[] as texts,
        ${[1, 2]}::bigint[] as numbers, ${{ a: [1] }}::jsonb as json, ${new Date(0)}::timestamptz as at,
        ${Buffer.from([0, 255])}::bytea as bytes, ${1.5}::float8 as part
      union all select null, null, null, null, null, null, null, null, null, null, null`
    const expected = await database.query(statement)
    expect(expected).toHaveLength(2)
    const rows = await runTransaction(database, (transaction) => transaction.query(statement))
    expect(rows).toEqual(expected)
  })

  it('may return no rows, no columns, or nothing at all', async () => {
    await runTransaction(database, async (transaction) => {
      const results = await allDone([
        transaction.query(sql`select from notes where id = ${1}`),
        transaction.query(sql`insert into notes values (${1}, ${'a'})`),
        transaction.query(sql`select from notes where id = ${1}`),
        transaction.query(sql`delete from notes where id = ${1} returning body`),
      ])
      expect(results).toEqual([[], [], [{}], [{ body: 'a' }]])
    })
  })

  it('all fail with the error of the first that fails, and nothing is kept', async () => {
    const failures: unknown[] = []
    const note = (error: unknown) => failures.push((error as { code: string }).code)
    const attempt = runTransaction(database, async (transaction) => {
      await allDone([
        transaction.query(sql`insert into notes values (${1}, ${'a'})`).catch(note),
        transaction.query(sql`insert into notes values (${1}, ${'b'})`).catch(note),
        transaction.query(sql`select ${1}::integer`).catch(note),
      ])
      throw new Error('told to')
    })
    await expect(attempt).rejects.toThrow('told to')
    expect(failures).toEqual(['23505', '23505', '23505'])
    expect(await database.query(sql`select from notes`)).toEqual([])
  })

  it('keep their order beside several statements in one text', async () => {
    await runTransaction(database, async (transaction) => {
      await allDone([
        transaction.query(sql`insert into notes values (${2}, ${'a'})`),
        transaction.query(
          sql`update notes set body = body || 'b'; update notes set body = body || 'c'`,
        ),
      ])
      await transaction.query(sql`update notes set body = body || ${'d'}`)
    })
    expect(await database.query(sql`delete from notes returning body`)).toEqual([{ body: 'abcd' }])
  })

  it('are not needed: a transaction without any still takes its locks', async () => {
    const holder = await database.acquire()
    await holder.query('begin')
    await holder.query('lock table notes in access exclusive mode')
    const opening = [
      toCall(sql`set local lock_timeout = 10`),
      toCall(sql`lock table notes in access exclusive mode`),
    ]
    const run = () => runTransaction(database, async () => 'done', { opening, beginsLate: true })
    try {
      await expect(run()).rejects.toMatchObject({ code: 'timeout' })
    } finally {
      await holder.query('rollback')
      holder.release()
    }
    expect(await run()).toBe('done')
  })
})

describe('work that is done side by side', () => {
  it('has ended when the first error is thrown', async () => {
    let isOver = false
    const slow = new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      isOver = true
    })
    await expect(allDone([Promise.reject(new Error('first')), slow])).rejects.toThrow('first')
    expect(isOver).toBe(true)
  })
})
