import { LIST_PAGE_SIZE } from '@offshoot/contract/paging'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { collectLog } from '../../packages/server/src/domain/log/collect.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { addMember, createKey, createUser } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

interface Entry {
  readonly id: string
  readonly kind: string
  readonly [field: string]: unknown
}

let service: TestService
let branches: TestBranches

beforeAll(async () => {
  service = await createTestService()
  branches = await TestBranches.create(service, 'store', {
    items: [{ name: 'price', type: 'int' }],
  })
})
afterAll(() => service.close())

const readLog = async (branch: string, query = ''): Promise<Entry[]> =>
  expectOk(await branches.call(branch, 'GET', `/log${query}`)).body.entries
const audit = (query = '', key = service.key) =>
  service.call('GET', `/workspaces/${service.workspaceId}/audit${query}`, { key })
const exportAudit = async (): Promise<string> => {
  const response = await service.app.inject({
    url: `/workspaces/${service.workspaceId}/audit?format=ndjson`,
    headers: { authorization: `Bearer ${service.key}` },
  })
  expect(response.statusCode).toBe(200)
  expect(response.headers['content-type']).toContain('application/x-ndjson')
  return response.body
}
const newest = async (kind: string): Promise<Entry> =>
  expectOk(await audit(`?kind=${kind}&size=1`)).body.entries[0]

describe('the log of a branch', () => {
  it('is that of the branch that its address names now, also in a process that knows another one', async () => {
    const other = await createTestService({ url: service.url })
    try {
      const tables = { items: [{ name: 'price', type: 'int' }] } as const
      const named = ['left', 'right'].map((name) => TestBranches.create(service, name, tables))
      const [left, right] = (await Promise.all(named)) as [TestBranches, TestBranches]
      await left.bulk('main', 'items', [{ id: 'a' }])
      const count = async () =>
        expectOk(await left.through(other).call('main', 'GET', '/log?kind=bulk')).body.entries
          .length
      expect(await count()).toBe(1)
      const rename = async (oldName: string, newName: string) => {
        const path = `/workspaces/${service.workspaceId}/dbs/${oldName}/rename`
        expectOk(await service.call('POST', path, { body: { newName } }))
      }
      await rename(left.database, 'middle')
      await rename(right.database, left.database)
      expect(await count()).toBe(0)
    } finally {
      await other.close()
    }
  })

  it('tells of every kind of change when it happened, who did it, and by which request', async () => {
    const store = await TestBranches.create(service, 'told', {
      items: [{ name: 'price', type: 'int' }],
    })
    const checkpoint = async (name: string) =>
      expectOk(await store.call('work', 'POST', '/checkpoints', { name }))
    await store.fork('work')
    await store.edit('work', { addTable: { table: 'tags' } })
    await checkpoint('one')
    await store.bulk('work', 'items', [{ id: 'a', price: 1 }])
    await checkpoint('two')
    expectOk(await store.call('work', 'POST', '/revert', { from: 'one', to: 'two' }))
    expectOk(await store.call('work', 'DELETE', '/checkpoints/two'))
    await store.fork('other', 'work')
    await store.put('other', 'items', 'b', { price: 2 })
    await store.merge('other')
    await store.put('main', 'items', 'c', { price: 3 })
    expectOk(await store.call('work', 'POST', '/pull', { from: 'main' }))
    expectOk(await store.call('work', 'POST', '/reset', { at: 'one' }))
    await store.fork('proposed', 'work')
    const proposal = { from: 'proposed', into: 'work', title: 'Prices' }
    const path = `${service.workspace}/dbs/told/proposals`
    expectOk(await service.call('POST', path, { body: proposal }))
    const entries: Entry[] = expectOk(await store.call('work', 'GET', '/log')).body.entries
    const WITH_COUNTS = ['bulk', 'merge', 'migration', 'pull', 'revert']
    const WITHOUT = ['checkpoint', 'checkpointDeleted', 'fork', 'proposal', 'reset']
    expect([...new Set(entries.map(({ kind }) => kind))].sort()).toEqual(
      [...WITH_COUNTS, ...WITHOUT].sort(),
    )
    for (const entry of entries) {
      expect(entry).toMatchObject({
        at: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
        user: expect.stringMatching(/^usr_/),
        email: expect.stringContaining('@'),
        key: expect.any(String),
        requestId: expect.stringMatching(/^req_/),
        database: 'told',
        branch: 'work',
      })
      if (WITH_COUNTS.includes(entry.kind)) expect(entry.counts).toBeTypeOf('object')
    }
  })

  it('has forks, migrations, bulk loads, merges, pulls and resets, newest first', async () => {
    await branches.fork('work')
    await branches.edit('work', {
      addColumn: { table: 'items', column: { name: 'label', type: 'string' } },
    })
    await branches.bulk('work', 'items', [
      { id: 'a', price: 1 },
      { id: 'b', price: 2 },
    ])
    const merged = expectOk(await branches.call('work', 'POST', '/merge', { into: 'main' })).body
    await branches.patch('main', 'items', 'a', { price: 3 })
    const pulled = expectOk(await branches.call('work', 'POST', '/pull')).body
    const reset = expectOk(await branches.call('work', 'POST', '/reset')).body

    const ofWork = await readLog('work')
    expect(ofWork.map(({ kind }) => kind)).toEqual(['reset', 'pull', 'bulk', 'migration', 'fork'])
    const [ofReset, ofPull, ofBulk, ofMigration, ofFork] = ofWork
    expect(ofReset).toMatchObject({ id: reset.entry, to: 'main' })
    expect(ofPull).toMatchObject({
      id: pulled.entry,
      from: 'main',
      counts: { tables: 1, updated: 1 },
    })
    expect(ofBulk).toMatchObject({ table: 'items', counts: { inserted: 2 } })
    expect(ofMigration).toMatchObject({ counts: { migrations: 1, operations: 1 } })
    expect(ofFork).toMatchObject({ from: 'main', data: true })

    const [ofMerge] = await readLog('main')
    expect(ofMerge).toMatchObject({
      id: merged.entry,
      kind: 'merge',
      database: 'store',
      branch: 'main',
      from: 'work',
      counts: { tables: 1, inserted: 2, updated: 0, deleted: 0, operations: 1 },
    })
  })

  it('says who did it, with which key and by which request', async () => {
    const answer = await branches.call('who', 'PUT', '', { from: 'main' })
    const { body: user } = await service.call('GET', '/user')
    const [entry] = await readLog('who')
    expect(entry).toMatchObject({
      user: user.id,
      email: user.email,
      key: 'first',
      requestId: answer.headers['x-request-id'],
    })
    expect(Math.abs(Date.parse(String(entry?.at)) - Date.now())).toBeLessThan(600_000)
  })

  it('gives schema edits the entry that they have made', async () => {
    const made = expectOk(await branches.call('main', 'PUT', '/tables/extra')).body
    const removed = expectOk(await branches.call('main', 'DELETE', '/tables/extra')).body
    const [last, before] = await readLog('main')
    expect([last?.id, before?.id]).toEqual([removed.entry, made.entry])
  })

  it('has no entry for a merge that brings nothing, for a dry run, or for a refused merge', async () => {
    await branches.fork('nothing')
    const before = await readLog('main')
    const merged = expectOk(await branches.call('nothing', 'POST', '/merge')).body
    expect(merged).toMatchObject({ merged: false })
    expect(merged.entry).toBeUndefined()
    await branches.put('nothing', 'items', 'x', { price: 1 })
    await branches.put('main', 'items', 'x', { price: 2 })
    const dry = expectOk(await branches.call('nothing', 'POST', '/merge', { dryRun: true })).body
    expect(dry.entry).toBeUndefined()
    expect((await branches.call('nothing', 'POST', '/merge')).status).toBe(409)
    expect(await readLog('main')).toEqual(before)
  })

  it('repeats the same entry for a repeated request with an idempotency key', async () => {
    await branches.fork('again')
    await branches.put('again', 'items', 'again', { price: 1 })
    const headers = { 'idempotency-key': 'log-once' }
    const first = expectOk(await branches.call('again', 'POST', '/merge', {}, { headers })).body
    const second = expectOk(await branches.call('again', 'POST', '/merge', {}, { headers })).body
    expect(second).toEqual(first)
    expect(
      (await readLog('main', '?kind=merge')).filter(({ id }) => id === first.entry),
    ).toHaveLength(1)
  })

  it('is read in pages', async () => {
    const all = await readLog('main')
    const first = expectOk(await branches.call('main', 'GET', '/log?size=2')).body
    expect(first.entries).toEqual(all.slice(0, 2))
    expect(first.meta).toEqual({ cursor: all[1]?.id, more: true })
    const rest = await readLog('main', `?after=${first.meta.cursor}`)
    expect(rest).toEqual(all.slice(2))
    expect(all.length).toBeLessThan(LIST_PAGE_SIZE)
    const unknown = await branches.call('main', 'GET', '/log?after=log_none')
    expect(unknown).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
    for (const size of [0, 1001]) {
      expect((await branches.call('main', 'GET', `/log?size=${size}`)).status).toBe(400)
    }
  })

  it('hides names of branches that are outside the scope of the key', async () => {
    await branches.fork('secret-1')
    await branches.fork('open-1', 'secret-1')
    const key = await createKey(service, 'open', { fields: { scope: { branches: ['open-*'] } } })
    const answer = expectOk(await branches.call('open-1', 'GET', '/log', undefined, { key })).body
    expect(answer.entries).toMatchObject([{ kind: 'fork', branch: 'open-1' }])
    expect(answer.entries[0].from).toBeUndefined()
  })

  it('begins with the creation of the database on its first branch', async () => {
    expect((await readLog('main')).at(-1)).toMatchObject({
      kind: 'databaseCreated',
      branch: 'main',
    })
  })
})

describe('the audit log', () => {
  it('has keys, branches, protection, rules and settings', async () => {
    await createKey(service, 'audited', { fields: { scope: { access: 'read' } } })
    expect(await newest('keyCreated')).toMatchObject({
      created: 'audited',
      scope: { access: 'read' },
    })
    expectOk(await service.call('DELETE', '/user/keys/audited'))
    expect(await newest('keyDeleted')).toMatchObject({ deleted: 'audited' })
    await branches.fork('short')
    expectOk(await branches.call('short', 'PATCH', '', { protected: true }))
    expect(await newest('branchChanged')).toMatchObject({
      branch: 'short',
      changed: { protected: true },
    })
    expectOk(await branches.call('short', 'PATCH', '', { protected: false }))
    await branches.delete('short')
    expect(await newest('branchDeleted')).toMatchObject({ database: 'store', branch: 'short' })
    const dbs = `${service.workspace}/dbs/store`
    expectOk(await service.call('PUT', `${dbs}/branchRules`, { body: { rules: [] } }))
    expect(await newest('rulesChanged')).toMatchObject({ database: 'store', rules: [] })
    expectOk(await service.call('PATCH', `${dbs}/settings`, { body: { searchEnabled: true } }))
    expect(await newest('settingsChanged')).toMatchObject({ searchEnabled: true })
  })

  it('notes refused requests once, with their number', async () => {
    const key = await createKey(service, 'reader', { fields: { scope: { access: 'read' } } })
    for (let count = 0; count < 3; count++) {
      const refused = await branches.call(
        'main',
        'PUT',
        '/tables/items/data/z',
        { price: 1 },
        { key },
      )
      expect(refused.status).toBe(403)
    }
    await runBackground(service)
    expect(await newest('refused')).toMatchObject({
      key: 'reader',
      code: 'key_scope',
      database: 'store',
      branch: 'main',
      count: 3,
    })
  })

  it('is for owners, and for limited keys whose scope includes it', async () => {
    const limited = await createKey(service, 'limited', { fields: { scope: { access: 'read' } } })
    expect(await audit('', limited)).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    const auditor = await createKey(service, 'auditor', {
      fields: { scope: { access: 'read', audit: true } },
    })
    expect((await audit('', auditor)).status).toBe(200)
    const member = await createUser(service, 'member')
    await addMember(service, member)
    expect(await audit('', member.key)).toMatchObject({ status: 403, body: { code: 'forbidden' } })
  })

  it('is exported as lines of JSON', async () => {
    const lines = (await exportAudit()).trim().split('\n')
    const { body } = expectOk(await audit('?size=1000'))
    expect(lines.map((line: string) => JSON.parse(line))).toEqual(body.entries)
    expect((await audit('?format=ndjson&size=1')).status).toBe(400)
  })

  it('contains no values of records', async () => {
    await branches.put('main', 'items', 'hidden', { price: 987_654 })
    await branches.bulk('main', 'items', [{ id: 'hidden-too', price: 987_654 }])
    expect(await exportAudit()).not.toContain('987654')
  })

  it('keeps the newest entries, and none that are too old', async () => {
    const before = expectOk(await audit('?size=1000')).body.entries
    const work = { position: null }
    while (await collectLog(service.database, work, { days: 1, entries: 5 })) {}
    const kept = expectOk(await audit('?size=1000')).body.entries
    expect(kept).toEqual(before.slice(0, 5))
    await service.database.query(sql`
      update offshoot.log set at = now() - interval '2 days' where id = ${kept[4].id}`)
    while (await collectLog(service.database, work, { days: 1, entries: 5 })) {}
    expect(expectOk(await audit('?size=1000')).body.entries).toEqual(before.slice(0, 4))
  })
})
