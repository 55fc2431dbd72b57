import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { addMember, createDatabase, createKey, createUser } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'
import { watchQueries } from '../support/watch-queries.js'

/*
 * Operations on branches take their access from sessions that a process caches, and check it in their transactions.
 * `other` is a second process that changes what the first one has cached.
 */

const TABLES = { t: [{ name: 'n', type: 'int' }] } as const

let service: TestService
let other: TestService
/** The texts of the queries of the first process. One is one round trip. */
const sent: string[] = []
let number = 0

beforeAll(async () => {
  const tracing = watchQueries((statements) => {
    sent.push(statements.join(';'))
  })
  service = await createTestService({ tracing })
  other = await createTestService({ url: service.url })
})
afterAll(async () => {
  await other.close()
  await service.close()
})

/** A database with a record on `main` and a fork `dev` that has changed it. */
async function open() {
  const branches = await TestBranches.create(service, `sessions${++number}`, TABLES)
  await branches.put('main', 't', 'a', { n: 1 })
  await branches.fork('dev')
  await branches.put('dev', 't', 'a', { n: 2 })
  return { branches, aside: branches.through(other) }
}

/** Reads both branches with a key, so that the process caches their sessions. */
async function useBoth(branches: TestBranches, key: string): Promise<void> {
  for (const branch of ['main', 'dev']) {
    const answer = await branches.call(branch, 'GET', '/tables/t/data/a', undefined, { key })
    expect(answer.status).toBe(200)
  }
}

async function expectUnchanged(branches: TestBranches): Promise<void> {
  expect(await branches.record('main', 't', 'a')).toMatchObject({ n: 1 })
  expect(await branches.record('dev', 't', 'a')).toMatchObject({ n: 2 })
}

/** All operations, with those last that remove the branch. */
const OPERATIONS = [
  ['GET', '/diff'],
  ['GET', '/diff?against=main'],
  ['GET', '/stats'],
  ['POST', '/merge', { into: 'main', dryRun: true }],
  ['POST', '/merge', { into: 'main' }],
  ['POST', '/merge'],
  ['POST', '/pull', { from: 'main' }],
  ['POST', '/reset', { to: 'main', dryRun: true }],
  ['POST', '/reset', { to: 'main' }],
  ['DELETE', ''],
] as const

const labelled = OPERATIONS.map(
  ([method, path, body]) =>
    [`${method} ${path} ${JSON.stringify(body ?? {})}`, method, path, body] as const,
)

describe('an operation on a branch whose session is cached', () => {
  it.each(labelled)(
    '%s is refused with 401 once the key is deleted',
    async (_name, method, path, body) => {
      const { branches } = await open()
      const name = `key${++number}`
      const key = await createKey(service, name)
      await useBoth(branches, key)
      expect((await other.call('DELETE', `/user/keys/${name}`, { key: service.key })).status).toBe(
        204,
      )
      const answer = await branches.call('dev', method, path, body, { key })
      expect(answer.status).toBe(401)
      await expectUnchanged(branches)
    },
  )

  it.each(labelled)(
    '%s is refused with 404 once the user is no member',
    async (_name, method, path, body) => {
      const { branches } = await open()
      const user = await createUser(service, `member${++number}`)
      await addMember(service, user)
      const { key } = user
      await useBoth(branches, key)
      const removed = await other.call(
        'DELETE',
        `/workspaces/${service.workspaceId}/members/${user.id}`,
        { key: service.key },
      )
      expect(removed.status).toBe(204)
      const answer = await branches.call('dev', method, path, body, { key })
      expect(answer.status).toBe(404)
      await expectUnchanged(branches)
    },
  )

  it.each(labelled)(
    '%s is refused with 404 once the branch is deleted',
    async (_name, method, path, body) => {
      const { branches, aside } = await open()
      await branches.record('dev', 't', 'a')
      await aside.delete('dev')
      const answer = await branches.call('dev', method, path, body)
      expect(answer).toMatchObject({ status: 404, body: { code: 'branch_not_found' } })
      expect(await branches.record('main', 't', 'a')).toMatchObject({ n: 1 })
    },
  )

  it('sees the changes of another process', async () => {
    const { branches, aside } = await open()
    await aside.edit('dev', { addColumn: { table: 't', column: { name: 'm', type: 'int' } } })
    await aside.put('dev', 't', 'b', { n: 3, m: 4 })
    const { body } = await branches.call('dev', 'GET', '/diff')
    expect(body.tables[0]).toMatchObject({ inserted: 1, updated: 1 })
    expect((await branches.call('dev', 'POST', '/merge', { into: 'main' })).status).toBe(200)
    expect(await branches.record('main', 't', 'b')).toMatchObject({ n: 3, m: 4 })
  })

  it.each([
    ['merged into', 'dev', '/merge', (name: string) => ({ into: name })],
    ['pulled from', 'dev', '/pull', (name: string) => ({ from: name })],
    ['reset to', 'dev', '/reset', (name: string) => ({ to: name })],
  ])(
    'finds the branch that has the name now if it is %s one',
    async (_name, branch, path, bodyOf) => {
      const { branches, aside } = await open()
      await branches.fork('target')
      await branches.put('target', 't', 'old', { n: 5 })
      await aside.delete('target')
      await aside.fork('target')
      await aside.put('target', 't', 'new', { n: 6 })
      expect((await branches.call(branch, 'POST', path, bodyOf('target'))).status).toBe(200)
      const changed = path === '/merge' ? 'target' : 'dev'
      expect(await branches.record(changed, 't', 'new')).toMatchObject({ n: 6 })
      expect(await branches.record(changed, 't', 'old')).toBeUndefined()
      await aside.delete('target')
      const gone = await branches.call(branch, 'POST', path, bodyOf('target'))
      expect(gone).toMatchObject({ status: 404, body: { code: 'branch_not_found' } })
    },
  )

  describe.each(['one process', 'another process'])('after a rename by %s', (by) => {
    /** Renames the database, and creates a new one of its name, with a fork `dev` and a record `new`. */
    async function replace(branches: TestBranches): Promise<TestBranches> {
      const via = by === 'one process' ? service : other
      const path = `/workspaces/${service.workspaceId}/dbs/${branches.database}`
      const renamed = `${branches.database}-old`
      const answer = await via.call('POST', `${path}/rename`, {
        key: service.key,
        body: { newName: renamed },
      })
      expect(answer.status).toBe(200)
      await createDatabase(service, branches.database)
      // The first process must not look at the new branches yet.
      const fresh = branches.through(other)
      await fresh.edit(
        'main',
        { addTable: { table: 't' } },
        { addColumn: { table: 't', column: TABLES.t[0] } },
      )
      await fresh.put('main', 't', 'new', { n: 7 })
      await fresh.fork('dev')
      return new TestBranches(service, renamed)
    }

    it.each([
      ['GET', '/diff?against=main', undefined],
      ['POST', '/merge', { into: 'main', dryRun: true }],
      ['POST', '/merge', { into: 'main' }],
      ['POST', '/pull', { from: 'main', dryRun: true }],
      ['POST', '/pull', { from: 'main' }],
      ['POST', '/reset', { to: 'main', dryRun: true }],
      ['POST', '/reset', { to: 'main' }],
    ] as const)(
      '%s %s %o uses the branches of the new database of that name',
      async (method, path, body) => {
        const { branches } = await open()
        await branches.call('dev', 'GET', '/diff?against=main')
        await useBoth(branches, service.key)
        const old = await replace(branches)
        const answer = await branches.call('dev', method, path, body)
        expect(answer).toMatchObject({ status: 200 })
        expect(await branches.record('dev', 't', 'new')).toMatchObject({ n: 7 })
        expect(await branches.record('dev', 't', 'a')).toBeUndefined()
        expect(await branches.record('main', 't', 'a')).toBeUndefined()
        await expectUnchanged(old)
        // Nothing of the old database belongs to the new one.
        const place = `/workspaces/${service.workspaceId}/dbs/${old.database}`
        expect((await service.call('DELETE', place, { key: service.key })).status).toBe(200)
      },
    )
  })

  it.each([
    ['POST', '/merge', { into: 'main', dryRun: true }],
    ['POST', '/pull', { from: 'main', dryRun: true }],
    ['GET', '/diff?against=main', undefined],
  ] as const)(
    '%s %s %o is answered after another database of the workspace was created',
    async (method, path, body) => {
      const { branches } = await open()
      await useBoth(branches, service.key)
      await TestBranches.create(service, `further${++number}`, TABLES)
      expect(await branches.call('dev', method, path, body)).toMatchObject({ status: 200 })
    },
  )

  it('deletes the branch that has the name now', async () => {
    const { branches, aside } = await open()
    await branches.record('dev', 't', 'a')
    await aside.delete('dev')
    await aside.fork('dev')
    await branches.delete('dev')
    expect((await aside.call('dev', 'GET', '')).status).toBe(404)
  })

  it('takes four round trips to reset it: the other branch, locks and checks, the move of its rows, and the end', async () => {
    const { branches } = await open()
    // A reset that finds rows, forks and merges takes no more than one of a fresh branch.
    await branches.fork('leaf', 'dev')
    await branches.merge('dev')
    for (const to of [undefined, 'leaf']) {
      await useBoth(branches, service.key)
      await branches.record('leaf', 't', 'a')
      const before = sent.length
      await branches.reset('dev', to)
      // On a cluster, queries are not sent together.
      if (service.database.server.batchesQueries) expect(sent.length - before).toBe(4)
    }
  })

  it('takes a single round trip to delete it', async () => {
    const { branches } = await open()
    await branches.record('dev', 't', 'a')
    const before = sent.length
    await branches.delete('dev')
    expect(sent.length - before).toBe(1)
  })
})

describe('a request whose session names a table of PostgreSQL that is gone', () => {
  /** Gives the heap of a branch another number, which no stamp tells. */
  async function renumberHeap({ database: name }: TestBranches, branch: string): Promise<void> {
    const [heap] = await service.database.query<{ id: string; databaseId: string }>(sql`
      select h.id, h.database_id as "databaseId"
      from offshoot.heaps h
      join offshoot.branches b on b.id = h.branch_id
      join offshoot.databases d on d.id = b.database_id
      where d.name = ${name} and b.name = ${branch}`)
    if (heap === undefined) throw new Error('the branch must have a heap')
    const [next] = await service.database.query<{ id: string }>(sql`
      select nextval(pg_get_serial_sequence('offshoot.heaps', 'id')) as id`)
    const id = next?.id ?? ''
    for (const table of ['heap', 'past']) {
      const schema = ident(`offshoot_db_${heap.databaseId}`)
      await service.database.query(sql`
        alter table ${schema}.${ident(`${table}_${heap.id}`)} rename to ${ident(`${table}_${id}`)}`)
    }
    // The id is an identity, so the row is made anew.
    await service.database.query(sql`
      with old as (delete from offshoot.heaps where id = ${heap.id} returning *)
      insert into offshoot.heaps
        (id, database_id, branch_id, table_id, column_ids, file_column_ids, epoch, kind)
      overriding system value
      select ${id}::bigint, database_id, branch_id, table_id, column_ids, file_column_ids, epoch, kind
      from old`)
  }

  it.each([
    ['GET', '/tables/t/data/a', undefined],
    ['POST', '/tables/t/query', {}],
    ['POST', '/sql', { statement: 'select n from t' }],
    ['POST', '/tables/t/summarize', { summaries: { all: { count: '*' } } }],
    ['PATCH', '/tables/t/data/a', { n: 3 }],
    ['POST', '/tables/t/bulk', { records: [{ n: 3 }] }],
    ['POST', '/transaction', { operations: [{ get: { table: 't', id: 'a', columns: ['n'] } }] }],
  ] as const)('%s %s starts over with a new session', async (method, path, body) => {
    const { branches } = await open()
    await branches.record('dev', 't', 'a')
    await renumberHeap(branches, 'dev')
    const answer = await branches.call('dev', method, path, body)
    expect(answer).toMatchObject({ status: 200 })
  })
})

describe('a fork', () => {
  it('has a session before its first request, also if its source is a fork that nobody has used', async () => {
    const { branches } = await open()
    for (const [name, source] of [
      ['one', 'main'],
      ['two', 'one'],
      ['three', 'two'],
    ] as const) {
      const before = sent.length
      await branches.fork(name, source)
      // The key, the rules and the source, the fork.
      expect(sent.length - before).toBe(3)
    }
    const before = sent.length
    expect(await branches.record('three', 't', 'a')).toMatchObject({ n: 1 })
    expect(sent.length - before).toBe(1)
    await branches.put('three', 't', 'a', { n: 3 })
    expect(await branches.record('two', 't', 'a')).toMatchObject({ n: 1 })
    expect(await branches.record('three', 't', 'a')).toMatchObject({ n: 3 })
  })

  it('without rows has one, too', async () => {
    const { branches } = await open()
    await branches.fork('empty', 'dev', { data: false })
    const before = sent.length
    expect(await branches.record('empty', 't', 'a')).toBeUndefined()
    expect(sent.length - before).toBe(1)
    await branches.put('empty', 't', 'b', { n: 1 })
    expect(await branches.record('empty', 't', 'b')).toMatchObject({ n: 1 })
  })

  it('that expires has none, because its first use postpones the expiry', async () => {
    const { branches } = await open()
    await branches.fork('brief', 'main', { ttl: 3600 })
    const before = sent.length
    await branches.record('brief', 't', 'a')
    const renewals = sent.slice(before).filter((text) => text.includes('set expires_at'))
    expect(renewals).toHaveLength(1)
  })

  it('of a branch that inherits from many others has none, so that it takes no longer', async () => {
    const { branches } = await open()
    let source = 'main'
    const costs: number[] = []
    // The branch has as many levels as its depth, and its own. Up to 16 are found with its creation.
    for (let depth = 1; depth <= 20; depth++) {
      await branches.fork(`deep${depth}`, source)
      source = `deep${depth}`
      const before = sent.length
      await branches.record(source, 't', 'a')
      costs.push(sent.length - before)
    }
    expect(costs).toEqual([...Array(15).fill(1), ...Array(5).fill(2)])
    await branches.fork('deeper', source)
    const before = sent.length
    expect(await branches.record('deeper', 't', 'a')).toMatchObject({ n: 1 })
    expect(sent.length - before).toBe(2)
  })
})
