import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { until } from '../support/process.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { type BranchCall, branchCall, createTables, expectOk } from '../support/tables.js'

/*
 * Two writes insert the row of one record at the same time. Both must have found that the row is missing before one of
 * them inserts it, so an index with a function that waits is the first index of the table.
 */

const WAIT = 7_001_001
let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

/** Makes inserts into a heap wait, after they have looked for the id, for as long as somebody has the lock. */
async function delayInserts(client: pg.Client, database: string, branch: string): Promise<void> {
  const [heap] = await service.database.query<{ id: string; schema: string }>(sql`
    select h.id, 'offshoot_db_' || h.database_id as schema
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.databases d on d.id = b.database_id
    where d.name = ${database} and b.name = ${branch} and h.kind = 'heap'`)
  const table = `${heap?.schema}.heap_${heap?.id}`
  const { rows } = await client.query<{ name: string; definition: string; key: string | null }>(`
    select i.indexrelid::regclass::text as name, pg_get_indexdef(i.indexrelid) as definition,
      c.conname as key
    from pg_index i
    left join pg_constraint c on c.conindid = i.indexrelid
    where i.indrelid = '${table}'::regclass`)
  await client.query(`
    create or replace function public.wait_for_test(id text) returns text
    language plpgsql immutable as $$
    begin perform pg_advisory_xact_lock_shared(${WAIT}); return id; end $$`)
  // PostgreSQL inserts into the indexes in the order in which they were created.
  for (const { name, key } of rows) {
    await client.query(
      key === null ? `drop index ${name}` : `alter table ${table} drop constraint ${key}`,
    )
  }
  await client.query(`create index on ${table} (public.wait_for_test(id))`)
  for (const { definition, key } of rows) {
    await client.query(definition)
    if (key !== null) {
      await client.query(
        `alter table ${table} add constraint ${key} primary key using index ${key}`,
      )
    }
  }
}

/** Sends both requests, and lets them insert only when both have found that there is no row. */
async function both(
  { database, branch }: { database: string; branch: string },
  request: (call: BranchCall) => Promise<Answer>,
): Promise<Answer[]> {
  const client = new pg.Client({ connectionString: service.url })
  await client.connect()
  try {
    await delayInserts(client, database, branch)
    await client.query(`select pg_advisory_lock(${WAIT})`)
    const call = branchCall(service, database, { branch })
    const answers = Promise.all([request(call), request(call)])
    await until(async () => {
      const { rows } = await client.query(
        `select from pg_locks where locktype = 'advisory' and not granted and objid = ${WAIT}`,
      )
      return rows.length === 2
    })
    await client.query(`select pg_advisory_unlock(${WAIT})`)
    return await answers
  } finally {
    await client.end()
  }
}

describe('two writes of one record with a unique value at the same time', () => {
  type Case = readonly [string, string, number[], (call: BranchCall) => Promise<Answer>]
  const replace = (call: BranchCall) => call('PUT', '/tables/t/data/x', { body: { u: 1 } })
  const create = (call: BranchCall) =>
    call('PUT', '/tables/t/data/x?createOnly=true', { body: { u: 1 } })
  const upsert = (call: BranchCall) => call('POST', '/tables/t/data/x', { body: { u: 1 } })
  const update = (call: BranchCall) => call('PATCH', '/tables/t/data/inherited', { body: {} })
  const updateVersion = (call: BranchCall) =>
    call('PATCH', '/tables/t/data/inherited?ifVersion=0', { body: {} })
  const updateInTransaction = (call: BranchCall) =>
    call('POST', '/transaction', {
      body: { operations: [{ update: { table: 't', id: 'inherited', fields: {} } }] },
    })
  const cases: readonly Case[] = [
    ['replace it', 'main', [200, 201], replace],
    ['replace it', 'fork', [200, 201], replace],
    ['create it', 'main', [201, 422], create],
    ['create it', 'fork', [201, 422], create],
    ['update or create it', 'main', [200, 201], upsert],
    ['update or create it', 'fork', [200, 201], upsert],
    ['update it', 'fork', [200, 200], update],
    ['update its version', 'fork', [200, 422], updateVersion],
    ['update it in transactions', 'fork', [200, 200], updateInTransaction],
  ]
  it.for(cases)('%s on %s', async ([, branch, statuses, request], context) => {
    if (service.database.server.isCluster) context.skip('nodes do not know the function that waits')
    const database = `same${++number}`
    await createTables(service, database, { t: [{ name: 'u', type: 'int', unique: true }] })
    const main = branchCall(service, database)
    expectOk(await main('PUT', '/tables/t/data/inherited', { body: { u: 0 } }))
    if (branch !== 'main') {
      const fork = branchCall(service, database, { branch })
      expectOk(await fork('PUT', ''))
      expectOk(await fork('PUT', '/tables/t/data/own', { body: { u: 9 } }))
    }
    const answers = await both({ database, branch }, request)
    expect(answers.map(({ status }) => status).sort(), JSON.stringify(answers)).toEqual(statuses)
  })
})
