import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/* Statements that write more records than fit into memory at once. */

const MANY = 150_000

let service: TestService
let branches: TestBranches

beforeAll(async () => {
  service = await createTestService({
    limits: { queryTimeoutMs: 300_000, sqlResultBytesMax: 200_000, sqlRowsMax: 50 },
  })
  branches = await TestBranches.create(service, 'many', {
    numbers: [
      { name: 'n', type: 'int' },
      { name: 'rank', type: 'int', unique: true },
      { name: 'text', type: 'text' },
    ],
    large: [{ name: 'n', type: 'int' }],
  })
})
afterAll(() => service?.close())

async function run(statement: string, branch = 'main') {
  return expectOk(await branches.call(branch, 'POST', '/sql', { statement })).body
}
const one = async (statement: string, branch?: string) =>
  Object.values((await run(statement, branch)).records[0])

describe('a statement that writes many records', () => {
  it('inserts, changes and deletes all of them, and sees what was there before', async () => {
    await run(`insert into large (n) select i from generate_series(1, ${MANY}) i`)
    expect(await one('select count(*), min(n), max(n) from large')).toEqual([MANY, 1, MANY])
    expect(await run('update large set n = n + 1')).toMatchObject({ total: MANY })
    expect(await one('select count(*), count(distinct n) as d, min(n), max(n) from large')).toEqual(
      [MANY, MANY, 2, MANY + 1],
    )
    expect(await run('delete from large')).toMatchObject({ total: MANY })
    expect(await one('select count(*) from large')).toEqual([0])
  }, 300_000)

  it('does so on a fork, and leaves its source as it is', async () => {
    await run('insert into numbers (n) select i from generate_series(1, 2500) i')
    await branches.fork('fork')
    // The statement reads the table that it writes to.
    expect(
      await run('insert into numbers (n) select n + 10000 from numbers', 'fork'),
    ).toMatchObject({
      total: 2500,
    })
    expect(await run('update numbers set n = -n where n > 2000', 'fork')).toMatchObject({
      total: 3000,
    })
    expect(await one('select count(*), sum(n) from numbers', 'fork')).toEqual([
      5000,
      (2000 * 2001) / 2 - (2001 + 2500) * 250 - (10001 + 12500) * 1250,
    ])
    expect(await one('select count(*), min(n) from numbers')).toEqual([2500, 1])
    await run('delete from numbers')
  })

  it('changes a record once that is joined with several', async () => {
    await run('insert into numbers (n) select i from generate_series(1, 2500) i')
    const joined = 'from generate_series(1, 3) g where g > 0'
    expect(await run(`update numbers set n = n * 2 ${joined}`)).toMatchObject({ total: 2500 })
    expect(await one('select sum(n) from numbers')).toEqual([2500 * 2501])
    expect(
      await run('delete from numbers using generate_series(1, 3) g where n > 100'),
    ).toMatchObject({ total: 2450 })
    await run('delete from numbers')
  })

  it('leaves out what is in conflict with records of the same statement', async () => {
    const statement =
      'insert into numbers (rank, n) select i % 1700, i from generate_series(1, 3400) i on conflict do nothing'
    expect(await run(statement)).toMatchObject({ total: 1700 })
    expect(await run(statement)).toMatchObject({ total: 0 })
    expect(await one('select count(*), max(n) from numbers')).toEqual([1700, 1700])
    // The order in which unique values change does not matter.
    expect(await run('update numbers set rank = rank + 1')).toMatchObject({ total: 1700 })
    expect(await one('select min(rank), max(rank) from numbers')).toEqual([1, 1700])
    await run('delete from numbers')
  })

  it('cannot keep more in memory than a statement at once, however its parts are read', async () => {
    const wide = new Array(20).fill("repeat('x', 1000)").join(' || ')
    const answer = await branches.call('main', 'POST', '/sql', {
      statement: `with recursive r(n, t) as (select 1, '' union select n + 1, ${wide} from r)
        insert into numbers (rank) select n from r on conflict do nothing`,
    })
    expect(answer).toMatchObject({ status: 400, body: { code: 'query_too_costly' } })
    expect(await one('select count(*) from numbers')).toEqual([0])
  }, 60_000)

  it('writes nothing if one of them is refused', async () => {
    const answer = await branches.call('main', 'POST', '/sql', {
      statement:
        'insert into numbers (rank, n) select case when i = 3400 then 1 else i end, i from generate_series(1, 3400) i',
    })
    expect(answer).toMatchObject({ status: 400, body: { code: 'unique_violation' } })
    expect(await one('select count(*) from numbers')).toEqual([0])
  })

  it('reads large records in smaller parts, and refuses those that are larger than a part', async () => {
    const insert = (first: number, second: number) =>
      branches.call('main', 'POST', '/sql', {
        statement: `insert into numbers (n, text)
          select i, case when i <= 1000 then repeat('x', 100) when i <= 2000 then repeat('x', ${first}) else repeat('x', ${second}) end
          from generate_series(1, 3000) i`,
      })
    expect(expectOk(await insert(150, 250)).body).toMatchObject({ total: 3000 })
    expect(await one('select sum(length(text)) from numbers')).toEqual([
      100_000 + 150_000 + 250_000,
    ])
    expect(await insert(150, 1000)).toMatchObject({
      status: 400,
      body: {
        code: 'query_too_costly',
        message: expect.stringContaining('more than 200000 bytes'),
      },
    })
    expect(await one('select count(*) from numbers')).toEqual([3000])
    await run('delete from numbers')
  })
})
