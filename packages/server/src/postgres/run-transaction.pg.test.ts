import { AppError } from '@offshoot/contract/errors'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../../../../test/support/database.js'
import { Database } from './database.js'
import { runTransaction } from './run-transaction.js'
import { sql } from './sql.js'
import { prepared } from './statement.js'

let own: TestDatabase
let database: Database

beforeAll(async () => {
  own = await createTestDatabase()
  database = new Database({ poolMax: 8, statementTimeoutMs: 5_000, onIdleError: () => undefined })
  database.connect({ url: own.url })
  await database.query(sql`create table counters (id integer primary key, value integer not null)`)
})
afterAll(async () => {
  await database.close()
  await own.close()
})
beforeEach(async () => {
  await database.query(sql`truncate counters`)
  await database.query(sql`insert into counters values (1, 0), (2, 0)`)
})

const read = async (id = 1) => {
  const [row] = await database.query<{ value: number }>(sql`
    select value from counters where id = ${id}`)
  return row?.value
}
const failWith = (code: string) => Object.assign(new Error('told to'), { code })

describe('runTransaction', () => {
  it('commits what the body did and returns what it returned', async () => {
    const result = await runTransaction(database, async (transaction) => {
      await transaction.query(sql`update counters set value = 5 where id = 1`)
      return 'done'
    })
    expect(result).toBe('done')
    expect(await read()).toBe(5)
  })

  it('rolls back and passes on what the body throws', async () => {
    const thrown = new AppError('conflict', 'no')
    const attempt = runTransaction(database, async (transaction) => {
      await transaction.query(sql`update counters set value = 5 where id = 1`)
      throw thrown
    })
    await expect(attempt).rejects.toBe(thrown)
    expect(await read()).toBe(0)
  })

  it('rolls back when a statement fails, and the connection can be used again', async () => {
    for (let round = 0; round < 20; round++) {
      const attempt = runTransaction(database, async (transaction) => {
        await transaction.query(sql`update counters set value = 5 where id = 1`)
        await transaction.query(sql`insert into counters values (1, 1)`)
      })
      await expect(attempt).rejects.toMatchObject({ code: '23505' })
    }
    expect(await read()).toBe(0)
    expect(database.pool.totalCount).toBeLessThanOrEqual(8)
    expect(database.pool.idleCount).toBe(database.pool.totalCount)
  })

  it('sends the last statements with the COMMIT, and commits nothing if one of them fails', async () => {
    await runTransaction(database, async (transaction) => {
      await transaction.query(sql`update counters set value = 5 where id = 1`)
      transaction.lastStatements.push(
        sql`update counters set value = value + 1 where id = ${1}`,
        sql`update counters set value = 7 where id = ${2}`,
      )
    })
    expect([await read(1), await read(2)]).toEqual([6, 7])
    const attempt = runTransaction(database, async (transaction) => {
      await transaction.query(sql`update counters set value = 0 where id = 1`)
      transaction.lastStatements.push(
        sql`select 1 / count(*) from counters where id = ${3}`,
        sql`update counters set value = 0 where id = ${2}`,
      )
    })
    await expect(attempt).rejects.toMatchObject({ code: '22012' })
    expect([await read(1), await read(2)]).toEqual([6, 7])
    expect(database.pool.idleCount).toBe(database.pool.totalCount)
  })

  it('does not claim that nothing was applied if a COMMIT fails by an internal error', async () => {
    await database.query(sql`
      create function fail() returns trigger language plpgsql as
      $$ begin raise exception 'postmaster was shut down, exiting' using errcode = 'XX000'; end $$`)
    await database.query(sql`
      create constraint trigger fails after update on counters
      deferrable initially deferred for each row execute function fail()`)
    try {
      const attempt = (isEarly: boolean) =>
        runTransaction(database, async (transaction) => {
          transaction.lastStatements.push(sql`update counters set value = 5 where id = 1`)
          // The trigger then runs before the COMMIT.
          if (isEarly) transaction.lastStatements.push(sql`set constraints all immediate`)
        })
      await expect(attempt(false)).rejects.toMatchObject({ code: 'commit_unknown' })
      await expect(attempt(true)).rejects.toMatchObject({ code: 'unavailable' })
    } finally {
      await database.query(sql`drop trigger fails on counters`)
      await database.query(sql`drop function fail()`)
    }
    expect(await read()).toBe(0)
  })

  it('runs the last statements of the attempt that is committed, and of no other', async () => {
    let attempts = 0
    await runTransaction(database, async (transaction) => {
      transaction.lastStatements.push(sql`update counters set value = value + 1 where id = ${1}`)
      if (++attempts < 3) throw failWith('40001')
    })
    expect([attempts, await read(1)]).toEqual([3, 1])
  })

  it('is serializable, so that two which read before they write do not both win', async () => {
    await Promise.all(
      Array.from({ length: 12 }, () =>
        runTransaction(database, async (transaction) => {
          const [row] = await transaction.query<{ value: number }>(sql`
            select value from counters where id = 1`)
          await transaction.query(sql`
            update counters set value = ${(row?.value ?? 0) + 1} where id = 1`)
        }),
      ),
    )
    expect(await read()).toBe(12)
  })

  it('does not let two write what each has read of the other', async () => {
    const move = (from: number, to: number) =>
      runTransaction(database, async (transaction) => {
        const [row] = await transaction.query<{ total: number }>(sql`
          select sum(value)::integer as total from counters`)
        if ((row?.total ?? 0) === 0) {
          await transaction.query(sql`update counters set value = ${to} where id = ${from}`)
        }
      })
    await Promise.all([move(1, 1), move(2, 1)])
    expect(((await read(1)) ?? 0) + ((await read(2)) ?? 0)).toBe(1)
  })

  it.each(['40001', '40P01'])('runs the body again after %s, from the start', async (code) => {
    let attempts = 0
    const result = await runTransaction(database, async (transaction) => {
      attempts++
      await transaction.query(sql`update counters set value = value + 1 where id = 1`)
      if (attempts < 4) throw failWith(code)
      return attempts
    })
    expect(result).toBe(4)
    expect(await read()).toBe(1)
  })

  it('gives up after a while with 409 and nothing applied', async () => {
    let attempts = 0
    const attempt = runTransaction(database, async (transaction) => {
      attempts++
      await transaction.query(sql`update counters set value = 5 where id = 1`)
      throw failWith('40001')
    })
    await expect(attempt).rejects.toMatchObject({
      code: 'retry_limit',
      status: 409,
      message: expect.stringContaining('nothing was applied'),
    })
    expect(attempts).toBe(20)
    expect(await read()).toBe(0)
  })

  it('does not run the body again for any other reason', async () => {
    let attempts = 0
    const attempt = runTransaction(database, async () => {
      attempts++
      throw failWith('23505')
    })
    await expect(attempt).rejects.toMatchObject({ code: '23505' })
    expect(attempts).toBe(1)
  })

  it('keeps to the isolation it is asked for', async () => {
    for (const isolation of ['serializable', 'repeatable read', 'read committed'] as const) {
      const [row] = await runTransaction(
        database,
        (transaction) =>
          transaction.query<{ level: string }>(sql`
          select current_setting('transaction_isolation') as level`),
        { isolation },
      )
      expect(row?.level).toBe(isolation)
    }
  })

  it('refuses to write when it is asked to read only', async () => {
    const attempt = runTransaction(
      database,
      (transaction) => transaction.query(sql`update counters set value = 5`),
      { readOnly: true },
    )
    await expect(attempt).rejects.toThrow()
    expect(await read()).toBe(0)
  })

  it('answers 503 when the connection breaks in the middle, and works again afterwards', async () => {
    const attempt = runTransaction(database, async (transaction) => {
      await transaction.query(sql`update counters set value = 5 where id = 1`)
      const [row] = await transaction.query<{ pid: number }>(sql`select pg_backend_pid() as pid`)
      await own.pool.query('select pg_terminate_backend($1::integer)', [row?.pid])
      await transaction.query(sql`select 1`)
    })
    await expect(attempt).rejects.toMatchObject({ code: 'unavailable', status: 503 })
    expect(await read()).toBe(0)
  })

  it('answers 503 when a statement takes longer than the limit', async () => {
    const hasty = new Database({ poolMax: 2, statementTimeoutMs: 50, onIdleError: () => undefined })
    hasty.connect({ url: own.url })
    const attempt = runTransaction(hasty, (transaction) =>
      transaction.query(sql`select pg_sleep(5)`),
    )
    await expect(attempt).rejects.toMatchObject({ code: 'timeout', status: 503 })
    await hasty.close()
  })
})

describe('a prepared statement', () => {
  const isPrepared = (text: string) => sql`
    select exists (select from pg_prepared_statements where statement like ${`%${text}%`}) as found`

  it('is parsed once, works in transactions that fail and after them, and others are not kept', async () => {
    const kept = (id: number) => prepared(sql`select value as kept from counters where id = ${id}`)
    await runTransaction(database, async (transaction) => {
      expect(await transaction.query(kept(1))).toEqual([{ kept: 0 }])
      await transaction.query(sql`select value as once from counters where id = ${1}`)
      expect(await transaction.query(isPrepared('as kept from'))).toEqual([{ found: true }])
      expect(await transaction.query(isPrepared('as once from'))).toEqual([{ found: false }])
    })
    const failing = runTransaction(database, async (transaction) => {
      await transaction.query(sql`insert into counters values (1, 1)`).catch(() => undefined)
      await transaction.query(kept(1))
    })
    await expect(failing).rejects.toMatchObject({ code: '25P02' })
    for (const id of [1, 2]) expect(await database.query(kept(id))).toEqual([{ kept: 0 }])
  })
})
