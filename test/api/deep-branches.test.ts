import { afterAll, beforeAll, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * Chains of forks, in which every branch was forked from the one before.
 */

let service: TestService

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

/** Creates a chain of forks. Each of them changes the record `shared` and inserts one of its own. */
async function createChain(database: string, depth: number): Promise<TestBranches> {
  const branches = await TestBranches.create(service, database, {
    people: [
      { name: 'age', type: 'int' },
      { name: 'email', type: 'email', unique: true },
    ],
  })
  await branches.bulk('main', 'people', [
    { id: 'shared', age: 0 },
    ...Array.from({ length: 30 }, (_, index) => ({ id: `row${index}`, age: index })),
  ])
  let tip = 'main'
  for (let level = 1; level <= depth; level++) {
    await branches.fork(`fork${level}`, tip)
    tip = `fork${level}`
    await branches.patch(tip, 'people', 'shared', { age: level })
    await branches.put(tip, 'people', `own${level}`, { age: level, email: `own${level}@x.test` })
  }
  return branches
}

const rowCount = async (branches: TestBranches, branch: string, statement: string) => {
  const answer = expectOk(await branches.call(branch, 'POST', '/sql', { statement }))
  return answer.body.records[0].count
}

it('One statement can refer to a table of a deep branch a hundred times', async () => {
  const branches = await createChain('references', 11)
  const parts = Array.from({ length: 99 }, () => 'select count(*) as n from people')
  const statement = `select sum(n)::int as count from (${parts.join(' union all ')}) parts`
  expect(await rowCount(branches, 'fork11', statement)).toBe(99 * (31 + 11))
  expect(await rowCount(branches, 'main', statement)).toBe(99 * 31)
})

it('The first transaction of a fork can write to more tables than an operation is tried', async () => {
  const names = Array.from({ length: 50 }, (_, index) => `table${index}`)
  const branches = await TestBranches.create(
    service,
    'wide',
    Object.fromEntries(names.map((name) => [name, [{ name: 'n', type: 'int' }]])),
  )
  await branches.fork('fork')
  const operations = names.map((table) => ({ insert: { table, record: { id: 'a', n: 1 } } }))
  expectOk(await branches.call('fork', 'POST', '/transaction', { operations }))
  for (const name of ['table0', 'table49']) {
    expect(await branches.record('fork', name, 'a')).toMatchObject({ n: 1 })
    expect(await branches.record('main', name, 'a')).toBeUndefined()
  }
  await branches.fork('sql')
  const statements = names.map((name) => ({
    statement: `insert into ${name} (id, n) values ('b', 2)`,
  }))
  expectOk(await branches.call('sql', 'POST', '/sql/batch', { statements }))
  expect(await branches.record('sql', 'table49', 'b')).toMatchObject({ n: 2 })
})
