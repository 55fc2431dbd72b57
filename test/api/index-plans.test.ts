import { afterAll, beforeAll, describe, expect, it as test } from 'vitest'
import type { QueryRequest } from '../../packages/server/src/data/query/page.js'
import { ident, raw, sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { listWorkers } from '../support/database.js'
import { type Explained, explainInsert, explainQuery } from '../support/explain.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * The cost of a page must not depend on the number of rows. These tests check the executed plan
 * (EXPLAIN): no sequential scan of a table, and about as many rows read as the page has.
 */

const ROWS = 20_000
const PAGE = 20
/**
 * Upper limit of rows read for a page. A page reads one row more than its size. Every arm of the
 * query may return all of them, twice (rows with and without a value), and each row is looked up in
 * the nearer arms, which could hide it. The 100 changed rows come on top.
 */
const READ_MAX = 25 * PAGE

// Nodes of a cluster have the same plans, but EXPLAIN on the coordinator does not show them.
const it = test.skipIf((await listWorkers()).length > 0)

const DATABASE = 'plans'
let service: TestService
let branches: TestBranches

const rowId = (number: number) => `r${String(number).padStart(6, '0')}`

/** Fills the only heap of a table with SQL, because the API would take longer. */
async function fill(table: string, columns: readonly string[]): Promise<void> {
  const [heap] = await service.database.query<{
    id: string
    databaseId: string
    columnIds: string[]
  }>(sql`
    select h.id, h.database_id as "databaseId", h.column_ids as "columnIds"
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.schemas s on s.id = b.schema_id,
      jsonb_to_recordset(s.document -> 'tables') as t (id bigint, name text)
    where t.id = h.table_id and t.name = ${table}`)
  if (heap === undefined) throw new Error('a table has a heap')
  const name = sql`${ident(`offshoot_db_${heap.databaseId}`)}.${ident(`heap_${heap.id}`)}`
  const names = raw(heap.columnIds.map((id) => `c${id}`).join(', '))
  await service.database.query(sql`
    insert into ${name} (id, epoch, ${names})
    select 'r' || lpad(n::text, 6, '0'), 1, ${raw(columns.join(', '))}
    from generate_series(1, ${ROWS}) n`)
  await service.database.query(sql`analyze ${name}`)
}

beforeAll(async () => {
  service = await createTestService()
  branches = await TestBranches.create(service, DATABASE, {
    teams: [{ name: 'name', type: 'string' }],
    people: [
      { name: 'email', type: 'email', unique: true },
      { name: 'age', type: 'int' },
      { name: 'seen', type: 'datetime' },
      { name: 'city', type: 'string' },
      { name: 'team', type: 'link', link: { table: 'teams' } },
      { name: 'score', type: 'float', notNull: true, defaultValue: '0' },
    ],
  })
  for (const column of ['age', 'seen', 'city', 'score']) {
    expectOk(await branches.call('main', 'PUT', `/tables/people/columns/${column}/index`))
  }
  await fill('teams', ["'Team ' || n"])
  // Every tenth row has no value.
  const some = (value: string) => `case when n % 10 > 0 then ${value} end`
  await fill('people', [
    some("'p' || n || '@example.com'"),
    some('n * 7919 % 5000'),
    some('to_timestamp(1700000000 + n * 7919 % 20000)'),
    some("'City ' || n % 4000"),
    "'r' || lpad((n % 4000 + 1)::text, 6, '0')",
    'n * 31 % 20000',
  ])
  await branches.fork('fork')
  await branches.fork('changed')
  for (const [branch, offset] of [
    ['main', 0],
    ['changed', 50],
  ] as const) {
    const operations = Array.from({ length: 100 }, (_, position) => ({
      update: {
        table: 'people',
        id: rowId((position + offset) * 125 + 1),
        fields: { age: position, city: 'Elsewhere', seen: '2030-01-01T00:00:00Z', score: position },
      },
    }))
    expectOk(await branches.call(branch, 'POST', '/transaction', { operations }))
  }
})
afterAll(() => service.close())

async function cursorOf(branch: string, query: QueryRequest): Promise<string> {
  const { body } = expectOk(await branches.call(branch, 'POST', '/tables/people/query', query))
  return body.meta.page.cursor
}

function expectFew(explained: Explained): void {
  const { sequential, rowsRead, plan } = explained
  expect(
    sequential.filter((name) => name === 'heap_1' || name === 'heap_2'),
    plan,
  ).toEqual([])
  expect(rowsRead, plan).toBeLessThanOrEqual(READ_MAX)
}

const QUERIES: readonly (readonly [string, QueryRequest])[] = [
  ['a value', { filter: { age: 4242 } }],
  ['one of several values', { filter: { city: { $any: ['City 1', 'City 7', 'City 9'] } } }],
  ['a value, in its order', { filter: { city: 'City 17' }, sort: { city: 'asc' } }],
  ['a range, ascending', { filter: { age: { $ge: 2500 } }, sort: { age: 'asc' } }],
  ['a range, descending', { filter: { age: { $lt: 2500 } }, sort: { age: 'desc' } }],
  ['times, newest first', { sort: { seen: 'desc' } }],
  ['texts from somewhere on', { filter: { city: { $gt: 'City 3' } }, sort: { city: 'asc' } }],
  ['a column that always has a value, descending', { sort: { score: 'desc' } }],
  ['everything, by id', {}],
  ['everything, by id, backward', { sort: { id: 'desc' } }],
  ['a unique value', { filter: { email: 'p777@example.com' } }],
  ['unique values, ascending', { sort: { email: 'asc' } }],
  ['unique values, descending', { sort: { email: 'desc' } }],
  ['what links to a record', { filter: { team: 'r000077' } }],
  ['with the records that it links to', { sort: { age: 'asc' }, columns: ['*', 'team.*'] }],
]

describe.each(['main', 'fork', 'changed'])('on branch [%s] a page of', (branch) => {
  const target = { database: DATABASE, branch, table: 'people' }

  it.each(QUERIES)('%s looks at few rows', async (_name, query) => {
    expectFew(await explainQuery(service, target, query))
  })

  it.each([
    ['age', 'asc'],
    ['age', 'desc'],
    ['email', 'asc'],
    ['email', 'desc'],
    ['score', 'desc'],
    ['id', 'asc'],
  ])('%s in %s order is as cheap in the middle, and going back', async (column, direction) => {
    const query = { sort: { [column]: direction }, page: { offset: 9000, size: PAGE } }
    const cursor = await cursorOf(branch, query)
    expectFew(await explainQuery(service, target, { page: { after: cursor } }))
    expectFew(await explainQuery(service, target, { page: { before: cursor } }))
    expectFew(await explainQuery(service, target, { page: { end: cursor } }))
  })

  it('those without a value is as cheap', async () => {
    // Nine of ten rows have a value, so the page is among the rows without one.
    const query = { sort: { age: 'desc' }, page: { offset: 18_500, size: PAGE } }
    const cursor = await cursorOf(branch, query)
    expectFew(await explainQuery(service, target, { page: { after: cursor } }))
    expectFew(await explainQuery(service, target, { page: { before: cursor } }))
  })

  it('records with those that link to them finds these by their index', async () => {
    const query = { columns: ['name', { name: '<-people.team', limit: 3 }] }
    const explained = await explainQuery(service, { ...target, table: 'teams' }, query)
    expect(explained.sequential, explained.plan).not.toContain('heap_2')
    expect(explained.rowsRead, explained.plan).toBeLessThanOrEqual(4 * READ_MAX)
  })

  it('what an INSERT returns, and what is in its way, is found by indexes', async () => {
    const insert = 'insert into people (id) values (default) on conflict'
    const records = JSON.stringify([[rowId(1), 'p1@example.com', null, null, null, null, '0']])
    const [ids, emails] = [`{${rowId(1)}}`, '{p1@example.com}']
    for (const { statement, keys } of [
      { statement: `${insert} (id) do update set age = 1 returning *`, keys: [ids] },
      { statement: `${insert} (email) do update set age = 1`, keys: [emails] },
      { statement: `${insert} do nothing`, keys: [ids, emails] },
    ]) {
      const given = { records, ids, keys }
      for (const explained of await explainInsert(service, target, statement, given)) {
        expectFew(explained)
      }
    }
  })
})
