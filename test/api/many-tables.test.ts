import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { watchQueries } from '../support/watch-queries.js'

/*
 * Statements are counted for two numbers of tables. The difference is what one table costs, whatever else a request
 * does.
 */

let service: TestService
let statements = 0

beforeAll(async () => {
  const tracing = watchQueries((sent) => {
    statements += sent.length
  })
  service = await createTestService({ tracing })
})
afterAll(() => service.close())

const COUNTS = [10, 30] as const
const TABLES = Array.from({ length: COUNTS[1] }, (_, index) => `t${index}`)

/** Returns the number of statements that a request takes for each changed table. */
async function perTable(
  name: string,
  measured: (branches: TestBranches, branch: string, count: number) => Promise<unknown>,
): Promise<number> {
  const columns = [
    { name: 'code', type: 'string', unique: true },
    { name: 'price', type: 'int' },
  ] as const
  const branches = await TestBranches.create(
    service,
    name,
    Object.fromEntries(TABLES.map((table) => [table, columns])),
  )
  const counted: number[] = []
  for (const count of COUNTS) {
    const branch = `dev${count}`
    await branches.fork(branch)
    await insertInto(branches, branch, count)
    const before = statements
    await measured(branches, branch, count)
    counted.push(statements - before)
  }
  const [few = 0, many = 0] = counted
  return (many - few) / (COUNTS[1] - COUNTS[0])
}

/** Inserts a record into each of the first tables, in one transaction. */
async function insertInto(branches: TestBranches, branch: string, count: number): Promise<void> {
  const operations = TABLES.slice(0, count).map((table) => ({
    insert: { table, record: { id: branch, code: branch, price: 1 } },
  }))
  expect((await branches.call(branch, 'POST', '/transaction', { operations })).status).toBe(200)
}

async function countRelations(): Promise<number> {
  const { rows } = await service.database.pool.query('select count(*)::integer from pg_class')
  return rows[0].count
}

describe('a table that a fork writes to for the first time', () => {
  it('takes three statements, and twelve relations if it has a unique column', async () => {
    const relations: number[] = []
    const cost = await perTable('firsts', async (branches, branch, count) => {
      await branches.fork(`of-${branch}`, branch)
      const before = await countRelations()
      await insertInto(branches, `of-${branch}`, count)
      relations.push((await countRelations()) - before)
    })
    // A cluster takes definitions one at a time: two tables, and four indexes.
    expect(cost).toBeLessThanOrEqual(service.database.server.isCluster ? 3 + 6 : 3)
    const [few = 0, many = 0] = relations
    // Heap and past: each with a primary key, an index by epoch, one of the column, and TOAST with its index.
    expect((many - few) / (COUNTS[1] - COUNTS[0])).toBeLessThanOrEqual(12)
  })
})

describe('a table that has changed', () => {
  it('takes one statement of a difference', async () => {
    const cost = await perTable('differences', (branches, branch) => branches.diff(branch))
    expect(cost).toBeLessThanOrEqual(1)
  })

  it('takes five statements of a merge', async () => {
    const cost = await perTable('merges', (branches, branch) => branches.merge(branch))
    expect(cost).toBeLessThanOrEqual(5)
  })

  it('takes no statement of a fork, and none of a difference if it has changed on neither side', async () => {
    const cost = await perTable('forks', async (branches, branch) => {
      await branches.fork(`of-${branch}`, branch)
      await branches.diff(`of-${branch}`)
    })
    expect(cost).toBe(0)
  })
})
