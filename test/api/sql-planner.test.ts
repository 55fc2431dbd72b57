import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { toWire } from '../../packages/server/src/data/sql/plan-wire.js'
import {
  KEPT_PARAMETER_BYTES,
  StatementPlanner,
} from '../../packages/server/src/data/sql/statement-planner.js'
import {
  CELLS_AT_ONCE_MAX,
  LENGTH_AT_ONCE_MAX,
} from '../../packages/server/src/dialect/sql-limits.js'
import { TestBranches } from '../support/branches.js'
import { withSession } from '../support/explain.js'
import { createTestService, type TestService } from '../support/service.js'

let service: TestService
let branches: TestBranches
let planner: StatementPlanner

const COLUMNS_MAX = 250
const target = { database: 'planner', branch: 'main' }

beforeAll(async () => {
  service = await createTestService()
  planner = new StatementPlanner(LIMITS)
  branches = await TestBranches.create(service, 'planner', {
    users: [
      { name: 'name', type: 'string' },
      { name: 'email', type: 'email', unique: true },
      { name: 'zipCode', type: 'int' },
      { name: 'address', type: 'object', columns: [{ name: 'city', type: 'string' }] },
    ],
    wide: Array.from({ length: COLUMNS_MAX }, (_, index) => ({
      name: `column${index}`,
      type: 'string',
    })),
  })
})

afterAll(async () => {
  await planner.close()
  await service.close()
})

/** Pads a statement to the length at which planning moves to a worker thread. */
const enlarge = (statement: string) => `${statement} /* ${'x'.repeat(LENGTH_AT_ONCE_MAX)} */`

const plan = (...statements: readonly [string, ...(readonly number[])][]) =>
  withSession(service, target, async (session) => {
    const planned = await planner.plan(
      session,
      statements.map(([text, ...parameterSizes]) => ({ text, parameterSizes })),
    )
    return planned.map(({ plan }) => plan)
  })

describe('the plan of a large statement', () => {
  it.each<[string, ...number[]]>([
    ['select * from users u where u."zipCode" > $1 order by name limit 3', 8],
    ['with recursive r(n) as (select 1 union all select n + 1 from r) select * from r, users'],
    ['insert into users (name, "address.city") values ($1, default), (default, $2)', 8, 9],
    ['insert into users (id, name) values ($1, $2) on conflict do nothing returning *', 1, 2],
    [
      'insert into users (email, name) values ($1, $2) on conflict (email) do update set name = excluded.name',
      1,
      2,
    ],
    ['update users set name = upper(name), email = null where id = $1 returning id, email', 8],
    ['delete from users using wide where wide.column0 = users.name returning users.*'],
  ])('is the plan of a small one: %s', async (statement, ...sizes) => {
    const [small] = await plan([statement, ...sizes])
    const [large] = await plan([enlarge(statement), ...sizes])
    expect(toWire(large)).toEqual(toWire(small))
  })

  it.each([
    'select nme from users',
    'select * from nowhere',
    'select pg_sleep(1)',
    'select * from users whre 1 = 1',
    'update users set version = 1',
    'drop table users',
    'select $1',
  ])('is refused with the words for a small one: %s', async (statement) => {
    const fault = await plan([statement]).catch((error: unknown) => error)
    expect(fault).toMatchObject({ code: 'invalid_sql' })
    const large = await plan([enlarge(statement)]).catch((error: unknown) => error)
    expect(large).toMatchObject({ code: 'invalid_sql', message: (fault as Error).message })
  })

  it('is made while other work goes on', async () => {
    await plan([enlarge('select 1')])
    let turns = 0
    let isDone = false
    const count = () => {
      turns++
      if (!isDone) setImmediate(count)
    }
    const values = Array.from({ length: 7_000 }, (_, index) => `(${index % 10})`).join()
    const planned = plan([`values ${values}`])
    setImmediate(count)
    await planned
    isDone = true
    expect(turns).toBeGreaterThan(2)
  })

  it('tells which statement of a batch is at fault', async () => {
    const batch = plan([enlarge('select 1')], ['select * from users'], ['select nme from users'])
    await expect(batch).rejects.toMatchObject({ code: 'invalid_sql', errors: [{ index: 2 }] })
  })

  it('is made by the thread as well when its tables have many columns', async () => {
    const uses = Math.floor(CELLS_AT_ONCE_MAX / (COLUMNS_MAX + 1))
    const select = (count: number) =>
      `select ${Array.from({ length: count }, (_, index) => `(select max(column1) from wide w${index})`).join()}`
    const [few] = await plan([select(uses)])
    const [many] = await plan([select(uses + 1)])
    expect(JSON.stringify(toWire(many)).length).toBeGreaterThan(JSON.stringify(toWire(few)).length)
  })

  it('is made by a new thread when there is none any more', async () => {
    await planner.close()
    expect(await plan([enlarge('select 1')])).toHaveLength(1)
  })
})

it('runs large statements as small ones', async () => {
  const run = (statement: string, params: readonly unknown[] = []) =>
    branches.call('main', 'POST', '/sql', { statement: enlarge(statement), params })
  const insert = 'insert into users (id, name, "address.city") values ($1, $2, $3) returning *'
  expect((await run(insert, ['a', 'Ada', 'London'])).status).toBe(200)
  expect((await run('update users set name = $1 where id = $2', ['Eva', 'a'])).body.total).toBe(1)
  expect((await run('select id, name, "address.city" from users')).body.records).toEqual([
    { id: 'a', name: 'Eva', 'address.city': 'London' },
  ])
  expect((await run('delete from users returning id')).body.records).toEqual([{ id: 'a' }])
})

it('keeps a plan for parameters up to a size', async () => {
  const text = 'insert into users (name) select $1'
  await withSession(service, target, async (session) => {
    const planFor = async (size: number, options: { parameterBytesMax?: number }) => {
      const [planned] = await planner.plan(session, [{ text, parameterSizes: [size], ...options }])
      return planned
    }
    const kept = await planFor(KEPT_PARAMETER_BYTES, {})
    expect(await planFor(1, {})).toBe(kept)
    expect(await planFor(KEPT_PARAMETER_BYTES + 1, {})).not.toBe(
      await planFor(KEPT_PARAMETER_BYTES + 1, {}),
    )
    const large = await planFor(100_000, { parameterBytesMax: 100_000 })
    expect(large).not.toBe(kept)
    expect(await planFor(5_000, { parameterBytesMax: 100_000 })).toBe(large)
    expect(await planFor(100_001, { parameterBytesMax: 100_000 })).not.toBe(large)
  })
})
