import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { shareOf } from '../../packages/server/src/common/shares.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { createDatabase, createKey, createUser, createWorkspace } from '../support/people.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'
import { lockTable } from '../support/table-lock.js'
import { expectOk } from '../support/tables.js'

const COLUMNS = [{ name: 'text', type: 'text' }] as const

let service: TestService
let branches: TestBranches
/** Address and key of another workspace. */
let other: { url: string; key: string }
let admin: pg.Client

beforeAll(async () => {
  service = await createTestService()
  branches = await TestBranches.create(service, 'shop', { notes: COLUMNS, others: COLUMNS })
  await branches.put('main', 'notes', 'first', { text: 'a first note' })
  const { key } = await createUser(service, 'bystander')
  const { id: workspaceId } = await createWorkspace(service, 'elsewhere', key)
  await createDatabase(service, 'calm', { workspaceId, key })
  other = { url: `/${workspaceId}.local/db/calm:main`, key }
  const table = { operations: [{ addTable: { table: 'notes' } }] }
  expectOk(await service.call('POST', `${other.url}/schema/update`, { body: table, key }))
  await callOther('PUT', '/tables/notes/data/a')
  admin = new pg.Client({ connectionString: service.url })
  await admin.connect()
})
afterAll(async () => {
  await admin.end()
  await service.close()
})

async function callOther(method: string, path: string, body: unknown = {}): Promise<void> {
  const hasBody = method !== 'GET'
  const { url, key } = other
  const answer = await service.call(method, `${url}${path}`, hasBody ? { body, key } : { key })
  expectOk(answer)
}

/** Locks the table [notes] on the branch `main`, so that everything that reads or writes it waits. */
async function holdNotes(): Promise<() => Promise<unknown>> {
  const [heap] = await service.database.query<{ name: string }>(sql`
    select format('offshoot_db_%s.heap_%s', h.database_id, h.id) as name
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.databases d on d.id = b.database_id
    where d.name = 'shop'
    order by h.id
    limit 1`)
  await admin.query('begin')
  await lockTable(admin, {
    table: heap?.name ?? '',
    isCluster: service.database.server.isCluster,
    mode: 'access exclusive',
  })
  return () => admin.query('rollback')
}

const RECORD = '/tables/notes/data/first'
const GREEDY = [
  ['queries', 'POST', '/tables/notes/query', {}],
  ['summaries', 'POST', '/tables/notes/summarize', { summaries: { all: { count: '*' } } }],
  ['searches', 'POST', '/search', { query: 'note' }],
  ['replacements', 'PUT', RECORD, { text: 'again' }],
  ['updates', 'PATCH', RECORD, { text: 'changed' }],
  ['bulk inserts', 'POST', '/tables/notes/bulk', { records: [{ text: 'one of many' }] }],
  [
    'transactions',
    'POST',
    '/transaction',
    { operations: [{ update: { table: 'notes', id: 'first', fields: { text: 'x' } } }] },
  ],
  [
    'schema edits',
    'POST',
    '/schema/update',
    { operations: [{ addColumn: { table: 'notes', column: { name: 'late', type: 'int' } } }] },
  ],
  ['statistics', 'GET', '/stats', undefined],
] as const

describe('one key whose requests all hang', () => {
  it.each(GREEDY)('leaves connections to others: %s', async (name, method, path, body) => {
    const { database } = service
    const key = await createKey(service, `greedy ${name}`)
    // The sessions of both keys exist, as they do in a service that runs.
    expectOk(await branches.call('main', 'POST', '/tables/others/query', {}, { key }))
    const release = await holdNotes()
    const greedy: Promise<unknown>[] = []
    try {
      for (let count = 0; count < 2 * database.poolMax; count++) {
        greedy.push(branches.call('main', method, path, body, { key }))
      }
      const { lanes } = service.app.admission
      await until(async () => {
        const { inUse, waiting } = database.poolState
        // Writers of one branch take at most half of the pool, and wait for their gate without a connection.
        const isFull = waiting + lanes.control.waiting > 0 || inUse >= database.poolMax / 2
        return isFull && inUse <= shareOf(database.poolMax)
      })
      await callOther('GET', '/tables/notes/data/a')
      await callOther('PUT', '/tables/notes/data/b')
      await callOther('POST', '/tables/notes/query')
      await callOther('POST', '/transaction', {
        operations: [{ get: { table: 'notes', id: 'a' } }],
      })
      await callOther('GET', '')
      await until(async () => database.poolState.inUse > 0)
    } finally {
      await release()
    }
    await Promise.all(greedy)
    // A snapshot is answered before its connection is released.
    await until(async () => database.poolState.inUse === 0)
    expect(database.poolState.waiting).toBe(0)
  })
})
