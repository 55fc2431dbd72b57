import { setTimeout as delay } from 'node:timers/promises'
import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { endExpiredBranches } from '../../packages/server/src/background.js'
import { deleteExpiredBranches } from '../../packages/server/src/domain/branches/expire-branches.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { withinLifetime } from '../support/lifetime.js'
import { createDatabase, createKey } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'
import { createTables, expectOk, TIME, XATA_CLIENT } from '../support/tables.js'
import { runKind } from '../support/work.js'

const DAY = 86_400

let service: TestService
/** A second process on the same PostgreSQL. */
let other: TestService

beforeAll(async () => {
  service = await createTestService()
  other = await createTestService({ url: service.url })
  const call = await createTables(service, 'shop', { items: [{ name: 'title', type: 'string' }] })
  expectOk(await call('PUT', '/tables/items/data/one', { body: { title: 'first' } }))
})
afterAll(async () => {
  await other.close()
  await service.close()
})

const url = (branch: string, database = 'shop') => `${service.workspace}/db/${database}:${branch}`
const read = (branch: string) => service.call('GET', url(branch))
const patch = (branch: string, body: unknown) => service.call('PATCH', url(branch), { body })
const remove = (branch: string) => service.call('DELETE', url(branch))
const put = (branch: string, body?: unknown) => service.call('PUT', url(branch), { body })
const create = async (branch: string, body?: unknown) => expectOk(await put(branch, body))

const readRecord = (branch: string, via = service) =>
  via.call('GET', `${url(branch)}/tables/items/data/one`, { key: service.key })
const writeRecord = (branch: string, title: string) =>
  service.call('PATCH', `${url(branch)}/tables/items/data/one`, { body: { title } })

const inMs = (ms: number) => new Date(Date.now() + ms).toISOString()
const secondsLeft = (body: { expiresAt: string }) =>
  (Date.parse(body.expiresAt) - Date.now()) / 1000

/** Sets the expiry in the database directly, without notifying any process. */
const setExpiry = (branch: string, seconds: number) =>
  service.database.query(sql`
    update offshoot.branches
    set expires_at = now() + make_interval(secs => ${seconds}::double precision)
    where name = ${branch} and deleted_at is null`)
const expire = (branch: string) => setExpiry(branch, -1)

const readStored = async (branch: string) => {
  const rows = await service.database.query<{ left: number }>(sql`
    select extract(epoch from expires_at - now())::float8 as left
    from offshoot.branches
    where name = ${branch} and deleted_at is null`)
  return rows[0]
}

describe('PUT branch', () => {
  it('takes the moment at which the branch expires, and shows it', async () => {
    const expiresAt = inMs(DAY * 1000)
    await create('until', { expiresAt })
    expect((await read('until')).body).toMatchObject({ branchName: 'until', expiresAt })
    expect((await read('until')).body).not.toHaveProperty('ttl')
    expect((await read('until')).body).not.toHaveProperty('protected')
  })

  it('takes a ttl, which starts with the creation', async () => {
    await create('brief', { ttl: 3600 })
    const { body } = await read('brief')
    expect(body).toMatchObject({ ttl: 3600, expiresAt: expect.stringMatching(TIME) })
    expect(secondsLeft(body)).toBeGreaterThan(3300)
    expect(secondsLeft(body)).toBeLessThan(3605)
  })

  it('takes protection, and leaves it out where there is none', async () => {
    await create('guarded', { protected: true })
    await create('unguarded', { protected: false })
    expect((await read('guarded')).body.protected).toBe(true)
    expect((await read('unguarded')).body).not.toHaveProperty('protected')
  })

  it('shows all of it in the list of branches, where it is set', async () => {
    const { body } = await service.call('GET', `${service.workspace}/dbs/shop`)
    const find = (name: string) =>
      body.branches.find((branch: { name: string }) => branch.name === name)
    expect(find('until').expiresAt).toMatch(TIME)
    expect(find('brief')).toMatchObject({ ttl: 3600, expiresAt: expect.stringMatching(TIME) })
    expect(find('guarded').protected).toBe(true)
    for (const field of ['expiresAt', 'ttl', 'protected']) {
      expect(find('main')).not.toHaveProperty(field)
    }
  })

  it('gives none of it to forks of the branch', async () => {
    await create('short-and-guarded', { ttl: 60, protected: true })
    await create('fork-of-it', { from: 'short-and-guarded' })
    const { body } = await read('fork-of-it')
    for (const field of ['expiresAt', 'ttl', 'protected']) expect(body).not.toHaveProperty(field)
  })

  it('reads a moment with an offset as the moment it is', async () => {
    await create('offset', { expiresAt: '2999-01-01T01:30:00+01:30' })
    expect((await read('offset')).body.expiresAt).toBe('2999-01-01T00:00:00.000Z')
  })

  it.each([1, LIMITS.ttlSecondsMax])('takes a ttl at its edge: %i', async (ttl) => {
    expect((await put(`ttl-${ttl}`, { ttl })).status).toBe(201)
  })

  it.each([
    ['a ttl of 0', { ttl: 0 }, '[ttl]'],
    ['a negative ttl', { ttl: -1 }, '[ttl]'],
    ['a ttl over ten years', { ttl: LIMITS.ttlSecondsMax + 1 }, '[ttl]'],
    ['a ttl that is not whole', { ttl: 1.5 }, '[ttl]: must be of type integer'],
    ['a ttl that is text', { ttl: '60' }, '[ttl]: must be of type integer'],
    ['a ttl that is null', { ttl: null }, '[ttl]'],
    ['a moment that has passed', { expiresAt: inMs(-1000) }, '[expiresAt]: must be in the future'],
    ['a moment that is no time', { expiresAt: 'tomorrow' }, '[expiresAt]'],
    ['a day without a time', { expiresAt: '2999-01-01' }, '[expiresAt]'],
    ['a leap second', { expiresAt: '2999-12-31T23:59:60Z' }, '[expiresAt]'],
    ['a moment after the last year', { expiresAt: '9999-12-31T23:59:59-01:00' }, '[expiresAt]'],
    ['a number as a moment', { expiresAt: 5 }, '[expiresAt]: must be of type string'],
    [
      'both a moment and a ttl',
      { ttl: 60, expiresAt: inMs(60_000) },
      'body: fields [expiresAt] and [ttl]',
    ],
    ['protection that is text', { protected: 'yes' }, '[protected]: must be of type boolean'],
  ])('refuses %s with 400 and creates nothing', async (_name, body, message) => {
    const answer = await put('refused', body)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
    expect((await read('refused')).status).toBe(404)
  })
})

describe('PATCH branch', () => {
  const FIXED = '2999-01-01T00:00:00.000Z'
  const LATER = '2999-06-01T00:00:00.000Z'

  it.each([
    ['a moment to none', {}, { expiresAt: FIXED }, { expiresAt: FIXED }],
    ['a later moment', { expiresAt: FIXED }, { expiresAt: LATER }, { expiresAt: LATER }],
    ['a moment to a ttl', { ttl: 60 }, { expiresAt: FIXED }, { expiresAt: FIXED }],
    ['a moment for a ttl', { ttl: 60 }, { expiresAt: FIXED, ttl: null }, { expiresAt: FIXED }],
    ['no moment', { expiresAt: FIXED }, { expiresAt: null }, {}],
    ['no moment to a ttl', { ttl: 60 }, { expiresAt: null }, {}],
    ['no ttl', { ttl: 60 }, { ttl: null }, {}],
    ['no ttl to a moment', { expiresAt: FIXED }, { ttl: null }, { expiresAt: FIXED }],
    ['nothing at all', { expiresAt: FIXED }, { expiresAt: null, ttl: null }, {}],
    [
      'protection alone',
      { expiresAt: FIXED },
      { protected: true },
      { expiresAt: FIXED, protected: true },
    ],
    ['protection to none', {}, { protected: true }, { protected: true }],
    ['no protection', { protected: true }, { protected: false }, {}],
  ])('gives %s', async (name, before, change, after) => {
    const branch = `patch-${name.replaceAll(' ', '-')}`
    await create(branch, before)
    const answer = await patch(branch, change)
    expect(answer.status).toBe(200)
    const { expiresAt, ttl, protected: isProtected } = answer.body
    expect({ expiresAt, ttl, protected: isProtected }).toEqual(after)
    expect(answer.body.branchName).toBe(branch)
    expect((await read(branch)).body).toEqual(answer.body)
  })

  it.each([
    ['to none', {}, { ttl: 600 }],
    ['to a moment', { expiresAt: FIXED }, { ttl: 600 }],
    ['for a moment', { expiresAt: FIXED }, { ttl: 600, expiresAt: null }],
    ['to another ttl', { ttl: DAY }, { ttl: 600 }],
  ])('gives a ttl that starts now %s', async (name, before, change) => {
    const branch = `patch-ttl-${name.replaceAll(' ', '-')}`
    await create(branch, before)
    const { body } = await patch(branch, change)
    expect(body.ttl).toBe(600)
    expect(secondsLeft(body)).toBeGreaterThan(300)
    expect(secondsLeft(body)).toBeLessThan(605)
  })

  it('answers with the whole branch', async () => {
    await create('patched')
    const before = (await read('patched')).body
    expect((await patch('patched', { protected: true })).body).toEqual({
      ...before,
      protected: true,
    })
  })

  it('protects the default branch, but never lets it expire', async () => {
    expect((await patch('main', { protected: true })).body.protected).toBe(true)
    for (const body of [{ ttl: 60 }, { expiresAt: FIXED }, { protected: false, ttl: 60 }]) {
      const answer = await patch('main', body)
      expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
      expect(answer.body.message).toContain('the default branch of a database cannot expire')
    }
    const { body } = await patch('main', { protected: false, ttl: null, expiresAt: null })
    for (const field of ['expiresAt', 'ttl', 'protected']) expect(body).not.toHaveProperty(field)
  })

  it.each([
    ['nothing', {}, 'must name at least one field'],
    ['no body', undefined, 'body'],
    ['both', { ttl: 60, expiresAt: FIXED }, 'fields [expiresAt] and [ttl]'],
    ['a moment that has passed', { expiresAt: inMs(-1) }, '[expiresAt]: must be in the future'],
    ['a ttl of 0', { ttl: 0 }, '[ttl]'],
    ['a ttl over ten years', { ttl: LIMITS.ttlSecondsMax + 1 }, '[ttl]'],
    ['protection that is null', { protected: null }, '[protected]: must be of type boolean'],
    ['an unknown field', { name: 'x' }, '[name]: is not known'],
  ])('refuses %s with 400 and changes nothing', async (name, body, message) => {
    const branch = `keeps-${name.replaceAll(' ', '-')}`
    await create(branch, { expiresAt: FIXED, protected: true })
    const answer = await patch(branch, body)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
    expect((await read(branch)).body).toMatchObject({ expiresAt: FIXED, protected: true })
  })

  it('answers an unknown branch with 404, and a key that can only read with 403', async () => {
    expect(await patch('nowhere', { ttl: 60 })).toMatchObject({
      status: 404,
      body: { code: 'branch_not_found' },
    })
    await create('read-only')
    const key = await createKey(service, 'patch-reader', { fields: { scope: { access: 'read' } } })
    const answer = await service.call('PATCH', url('read-only'), { body: { ttl: 60 }, key })
    expect(answer).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    expect((await read('read-only')).body).not.toHaveProperty('ttl')
  })
})

describe('a protected branch', () => {
  beforeAll(() => create('safe', { protected: true }))

  it('is not deleted until the protection is taken off', async () => {
    await create('kept', { protected: true })
    const answer = await remove('kept')
    expect(answer.status).toBe(409)
    expect(answer.body).toEqual({
      id: answer.headers['x-request-id'],
      message: 'branch [kept]: is protected and cannot be deleted; remove the protection first',
      code: 'protected_branch',
    })
    expect((await read('kept')).status).toBe(200)
    await patch('kept', { protected: false })
    expect((await remove('kept')).status).toBe(200)
  })

  it('keeps its protection from keys that are limited to some branches', async () => {
    const fields = { scope: { databases: ['shop'], branches: ['narrow-*'], access: 'write' } }
    const key = await createKey(service, 'narrow', { fields })
    await create('narrow-safe', { protected: true })
    await create('narrow-free')
    const change = (method: string, branch: string, body: unknown) =>
      service.call(method, url(branch), { key, body })
    for (const answer of [
      await change('PATCH', 'narrow-safe', { protected: false }),
      await change('PATCH', 'narrow-free', { protected: true }),
      await change('PUT', 'narrow-new', { from: 'narrow-free', protected: false }),
    ]) {
      expect([answer.status, answer.body.code]).toEqual([403, 'key_scope'])
    }
    expect((await read('narrow-safe')).body.protected).toBe(true)
    expect((await read('narrow-new')).status).toBe(404)
    expect((await change('PATCH', 'narrow-free', { ttl: 86_400 })).status).toBe(200)
    const whole = { scope: { databases: ['shop'] } }
    const wide = await createKey(service, 'wide', { fields: whole })
    const lift = { key: wide, body: { protected: false } }
    expect((await service.call('PATCH', url('narrow-safe'), lift)).status).toBe(200)
  })

  it('keeps its database from being deleted, until the protection is taken off', async () => {
    await createDatabase(service, 'precious')
    const branch = (name: string) => url(name, 'precious')
    const names = ['a', 'b', 'c', 'd', 'e', 'f']
    for (const name of names) {
      const body = { from: 'main', protected: true }
      expectOk(await service.call('PUT', branch(name), { body }))
    }
    const drop = () => service.call('DELETE', `/workspaces/${service.workspaceId}/dbs/precious`)
    const answer = await drop()
    expect([answer.status, answer.body.code]).toEqual([409, 'protected_branch'])
    expect(answer.body.message).toBe(
      'database [precious]: has protected branches and cannot be deleted: [a], [b], [c], [d], [e] and others; remove the protection first',
    )
    expect((await service.call('GET', branch('a'))).status).toBe(200)
    for (const name of names) {
      expectOk(await service.call('PATCH', branch(name), { body: { protected: false } }))
    }
    expect((await drop()).status).toBe(200)
  })

  const column = { name: 'extra', type: 'int' }
  const operations = [{ addTable: { table: 'more' } }]
  const pushed = {
    id: 'mig_pushed',
    parentID: 'mig_parent',
    checksum: `1:${'0'.repeat(64)}`,
    operations,
  }

  it.each([
    ['PUT', '/tables/more', undefined],
    ['PATCH', '/tables/items', { name: 'things' }],
    ['DELETE', '/tables/items', undefined],
    ['PUT', '/tables/items/schema', { columns: [] }],
    ['POST', '/tables/items/columns', column],
    ['PATCH', '/tables/items/columns/title', { name: 'label' }],
    ['DELETE', '/tables/items/columns/title', undefined],
    ['POST', '/schema/apply', { edits: { operations } }],
    ['POST', '/schema/update', { operations }],
    ['POST', '/schema/push', { migrations: [pushed] }],
  ])('refuses the schema edit %s %s', async (method, path, body) => {
    const before = (await read('safe')).body
    const answer = await service.call(method, `${url('safe')}${path}`, { body })
    expect(answer).toMatchObject({
      status: 409,
      body: {
        code: 'protected_branch',
        message:
          'branch [safe]: is protected and its schema cannot be edited directly; merge a branch ' +
          'into it, or remove the protection first',
      },
    })
    expect((await read('safe')).body).toEqual(before)
  })

  it('takes writes of records, is compared, previewed and forked', async () => {
    expect((await writeRecord('safe', 'new')).status).toBe(200)
    const schema = `${url('safe')}/schema`
    const preview = { edits: { operations } }
    expect((await service.call('POST', `${schema}/preview`, { body: preview })).status).toBe(200)
    expect((await service.call('POST', `${schema}/compare/main`)).status).toBe(200)
    expect((await put('from-safe', { from: 'safe' })).status).toBe(201)
  })

  it('takes the schema of a branch that is merged into it', async () => {
    await create('merge-target', { protected: true })
    await create('merge-source', { from: 'merge-target' })
    const edit = `${url('merge-source')}/tables/items/columns`
    expectOk(await service.call('POST', edit, { body: column }))
    const merged = await service.call('POST', `${url('merge-source')}/merge`, {
      body: { into: 'merge-target' },
    })
    expect(merged.status).toBe(200)
    const [table] = (await read('merge-target')).body.schema.tables
    expect(table.columns.map(({ name }: { name: string }) => name)).toContain('extra')
  })

  it('allows schema edits again once the protection is off, in every process', async () => {
    await create('relieved', { protected: true })
    await patch('relieved', { protected: false })
    const answer = await other.call('PUT', `${url('relieved')}/tables/more`, { key: service.key })
    expect(answer.status).toBe(201)
  })
})

describe('a branch that has expired', () => {
  it('answers 404 everywhere before it is collected', async () => {
    await create('over', { ttl: 60 })
    await expire('over')
    const calls: [string, string, unknown?][] = [
      ['GET', ''],
      ['PATCH', '', { ttl: 60 }],
      ['DELETE', ''],
      ['GET', '/metadata'],
      ['PUT', '/metadata', {}],
      ['GET', '/tables/items/schema'],
      ['PUT', '/tables/more'],
      ['POST', '/schema/history'],
      ['GET', '/tables/items/data/one'],
      ['POST', '/tables/items/data', { title: 'late' }],
      ['POST', '/tables/items/bulk', { records: [] }],
      ['POST', '/transaction', { operations: [] }],
    ]
    for (const [method, path, body] of calls) {
      const answer = await service.call(method, `${url('over')}${path}`, { body })
      expect([path, answer.status, answer.body.code]).toEqual([path, 404, 'branch_not_found'])
    }
    const compare = await service.call('POST', `${url('main')}/schema/compare/over`)
    expect(compare.status).toBe(404)
  })

  it('is not listed, mapped, resolved or forked any more', async () => {
    await create('over-too')
    const mapping = `${service.workspace}/dbs/shop/gitBranches`
    const entry = { gitBranch: 'feat/over', serviceBranch: 'over-too' }
    expectOk(await service.call('POST', mapping, { body: entry }))
    await expire('over-too')
    const list = await service.call('GET', `${service.workspace}/dbs/shop`)
    const names = list.body.branches.map((branch: { name: string }) => branch.name)
    expect(names).not.toContain('over-too')
    expect((await service.call('GET', mapping)).body.mapping).toEqual([])
    for (const gitBranch of ['feat%2Fover', 'over-too']) {
      const resolve = `${service.workspace}/dbs/shop/resolveBranch?gitBranch=${gitBranch}`
      expect((await service.call('GET', resolve)).body.reason.code).toBe('DEFAULT_BRANCH')
    }
    expect(await put('from-over', { from: 'over-too' })).toMatchObject({
      status: 400,
      body: { code: 'unknown_source_branch' },
    })
    expect((await service.call('POST', mapping, { body: entry })).status).toBe(400)
  })

  it('does not hold on to its name', async () => {
    await create('reused', { metadata: { stage: 'old' } })
    const { id } = (await read('reused')).body
    await create('reader-of-reused', { from: 'reused' })
    await expire('reused')
    expect((await put('reused')).status).toBe(201)
    const { body } = await read('reused')
    expect(body.id).not.toBe(id)
    expect(body.metadata).toEqual({})
    expect((await readRecord('reader-of-reused')).status).toBe(200)
    expect((await put('reused')).status).toBe(422)
  })

  it('is deleted with its git mapping, and its forks keep what they inherit', async () => {
    await create('collected')
    await writeRecord('collected', 'inherited')
    await create('heir', { from: 'collected' })
    const mapping = `${service.workspace}/dbs/shop/gitBranches`
    const entry = { gitBranch: 'feat/collected', serviceBranch: 'collected' }
    expectOk(await service.call('POST', mapping, { body: entry }))
    await expire('collected')
    expect(await deleteExpiredBranches(service.database)).toBeGreaterThan(0)
    expect(await readStored('collected')).toBeUndefined()
    expect((await service.call('DELETE', `${mapping}?gitBranch=feat%2Fcollected`)).status).toBe(404)
    expect((await readRecord('heir')).body.title).toBe('inherited')
    expect(await deleteExpiredBranches(service.database)).toBe(0)
  })

  it('leaves nothing behind when nothing inherits from it', async () => {
    await create('traceless')
    await expire('traceless')
    await deleteExpiredBranches(service.database)
    while (await runKind(service, 'sweep'));
    const rows = await service.database.query(sql`
      select id from offshoot.branches where name = 'traceless'`)
    expect(rows).toEqual([])
  })

  it('is left alone while it is protected, and works', async () => {
    await create('suspended', { expiresAt: inMs(DAY * 1000), protected: true })
    await expire('suspended')
    await deleteExpiredBranches(service.database)
    expect((await read('suspended')).status).toBe(200)
    expect((await readRecord('suspended')).status).toBe(200)
    const answer = await patch('suspended', { protected: false })
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain('[protected]: the branch would expire immediately')
    const given = await patch('suspended', { protected: false, expiresAt: null })
    expect(given.status).toBe(200)
  })

  it('with a ttl starts anew when its protection is taken off', async () => {
    await create('suspended-ttl', { ttl: 60, protected: true })
    await expire('suspended-ttl')
    const { body } = await patch('suspended-ttl', { protected: false })
    expect(secondsLeft(body)).toBeGreaterThan(50)
  })

  it('is never the default branch', async () => {
    await createDatabase(service, 'lasting', { branchName: 'lasting-main' })
    await expire('lasting-main')
    await deleteExpiredBranches(service.database)
    expect(await readStored('lasting-main')).toBeDefined()
    await setExpiry('lasting-main', DAY)
  })

  it('is deleted once, however many processes collect, and however many have expired', async () => {
    await createDatabase(service, 'many')
    // Postpone the expiry of other tests' branches, so that none expires during this test.
    await service.database.query(sql`
      update offshoot.branches set expires_at = now() + interval '1 day'
      where expires_at is not null`)
    const names = Array.from({ length: 35 }, (_, n) => `many-${n}`)
    for (const name of names) expectOk(await service.call('PUT', url(name, 'many')))
    await service.database.query(sql`
      update offshoot.branches set expires_at = now() - interval '1 second'
      where name like 'many-%'`)
    const counts = await Promise.all(
      [service, other, service, other].map(({ database }) => deleteExpiredBranches(database)),
    )
    const again = await deleteExpiredBranches(service.database)
    expect(counts.reduce((sum, count) => sum + count, again)).toBe(35)
    const list = await service.call('GET', `${service.workspace}/dbs/many`)
    expect(list.body.branches).toHaveLength(1)
  })

  it('is refused by processes that remember it', async () => {
    const name = await withinLifetime(async (seconds) => {
      const name = `remembered-${seconds}`
      await create(name, { expiresAt: inMs(DAY * 1000) })
      for (const via of [service, other]) expect((await readRecord(name, via)).status).toBe(200)
      expectOk(await patch(name, { expiresAt: inMs(seconds * 1000) }))
      for (const via of [service, other]) expect((await readRecord(name, via)).status).toBe(200)
      return name
    })
    for (const via of [service, other]) expect((await readRecord(name, via)).status).toBe(404)
    expect((await writeRecord(name, 'late')).status).toBe(404)
  })

  it('is refused after it was collected elsewhere', async () => {
    await create('collected-elsewhere')
    expect((await readRecord('collected-elsewhere', other)).status).toBe(200)
    await expire('collected-elsewhere')
    await deleteExpiredBranches(service.database)
    expect((await readRecord('collected-elsewhere', other)).status).toBe(404)
  })
})

describe('a ttl', () => {
  const USES = 7

  /**
   * Uses a branch repeatedly for longer than its ttl, each time before the ttl ends. If the machine
   * was too slow for that, repeats it with a longer ttl.
   */
  async function keepInUse(
    prefix: string,
    use: (name: string, number: number) => Promise<{ status: number }>,
  ): Promise<{ name: string; ttl: number }> {
    for (let ttl = 2; ; ttl *= 4) {
      const name = `${prefix}-${ttl}`
      let usedFrom = performance.now()
      let longestMs = 0
      await create(name, { ttl })
      const statuses: number[] = []
      for (let number = 0; number < USES; number++) {
        if (number > 0 && number < USES - 1) await delay(ttl * 250)
        const from = performance.now()
        statuses.push((await use(name, number)).status)
        longestMs = Math.max(longestMs, performance.now() - usedFrom)
        usedFrom = from
      }
      if (longestMs >= ttl * 1000) continue
      expect(statuses).toEqual(Array.from({ length: USES }, () => 200))
      return { name, ttl }
    }
  }

  it.concurrent('keeps a branch alive as long as it is used, and no longer', async () => {
    const { name, ttl } = await keepInUse('used', (name) => readRecord(name))
    await delay(ttl * 1000 + 100)
    expect((await readRecord(name)).status).toBe(404)
    await deleteExpiredBranches(service.database)
    expect(await readStored(name)).toBeUndefined()
  })

  it.concurrent('is moved by the uses of another process, too', async () => {
    await keepInUse('shared', async (name, use) =>
      readRecord(name, use === 0 || use === USES - 1 ? service : other),
    )
  })

  it.each([
    ['reading it', () => read('ttl-read')],
    ['reading its metadata', () => service.call('GET', `${url('ttl-read')}/metadata`)],
    ['reading its schema', () => service.call('GET', `${url('ttl-read')}/tables/items/schema`)],
    ['comparing with it', () => service.call('POST', `${url('main')}/schema/compare/ttl-read`)],
    ['forking it', () => put(`fork-${Math.random().toString(36).slice(2)}`, { from: 'ttl-read' })],
  ])('starts again by %s', async (_name, use) => {
    if ((await read('ttl-read')).status === 404) await create('ttl-read', { ttl: 3600 })
    await setExpiry('ttl-read', 100)
    expectOk(await use())
    expect((await readStored('ttl-read'))?.left).toBeGreaterThan(3500)
  })

  it('does not start again by a list of branches, nor by a refused request', async () => {
    await create('ttl-idle', { ttl: 3600 })
    await setExpiry('ttl-idle', 100)
    await service.call('GET', `${service.workspace}/dbs/shop`)
    await service.call('GET', url('ttl-idle'), { key: 'off_wrong' })
    await endExpiredBranches(service)
    expect((await readStored('ttl-idle'))?.left).toBeLessThan(101)
  })

  it('starts again by uses of records, which are written down now and then', async () => {
    await create('ttl-records', { ttl: 3600 })
    expect((await readRecord('ttl-records')).status).toBe(200)
    await endExpiredBranches(service)
    await setExpiry('ttl-records', 100)
    await endExpiredBranches(service)
    expect((await readStored('ttl-records'))?.left).toBeLessThan(101)
    expect((await readRecord('ttl-records')).status).toBe(200)
    expect((await readStored('ttl-records'))?.left).toBeLessThan(101)
    await endExpiredBranches(service)
    expect((await readStored('ttl-records'))?.left).toBeGreaterThan(3500)
  })

  it('is written down before anything is deleted', async () => {
    await create('ttl-late', { ttl: 3600 })
    expect((await readRecord('ttl-late')).status).toBe(200)
    await expire('ttl-late')
    await endExpiredBranches(service)
    expect((await readStored('ttl-late'))?.left).toBeGreaterThan(3500)
  })

  it('that was taken away is not brought back by earlier uses', async () => {
    await create('ttl-gone', { ttl: 3600 })
    expect((await readRecord('ttl-gone')).status).toBe(200)
    await patch('ttl-gone', { ttl: null })
    await endExpiredBranches(service)
    expect((await read('ttl-gone')).body).not.toHaveProperty('expiresAt')
  })

  it('does not keep requests waiting for someone who changes the branch', async () => {
    await create('ttl-locked', { ttl: 5 })
    const client = await service.database.pool.connect()
    try {
      await client.query('begin')
      await client.query(
        `select from offshoot.branches where name = 'ttl-locked' for no key update`,
      )
      expect((await read('ttl-locked')).status).toBe(200)
      expect((await readRecord('ttl-locked')).status).toBe(200)
      await endExpiredBranches(service)
    } finally {
      await client.query('rollback')
      client.release()
    }
  })

  it('leaves a fixed expiry where it is', async () => {
    const expiresAt = inMs(DAY * 1000)
    await create('fixed', { expiresAt })
    expect((await readRecord('fixed')).status).toBe(200)
    await endExpiredBranches(service)
    expect((await read('fixed')).body.expiresAt).toBe(expiresAt)
  })
})

describe('branch rules', () => {
  const rulesUrl = (database = 'ruled') => `${service.workspace}/dbs/${database}/branchRules`
  const readRules = () => service.call('GET', rulesUrl())
  const writeRules = (rules: unknown, key = service.key) =>
    service.call('PUT', rulesUrl(), { body: { rules }, key })
  const inRuled = (method: string, branch: string, body?: unknown) =>
    service.call(method, url(branch, 'ruled'), { body })

  beforeAll(async () => {
    await createDatabase(service, 'ruled')
    expectOk(await inRuled('PUT', 'staging'))
  })

  const inherits = async (branch: string) => {
    const [row] = await service.database.query<{ inherits: boolean }>(sql`
      select parent_id is not null as inherits from offshoot.branches
      where name = ${branch} and deleted_at is null`)
    return row?.inherits
  }

  it('are none at first, and are replaced as a whole, in order', async () => {
    expect(await readRules()).toMatchObject({ status: 200, body: { rules: [] } })
    const rules = [
      { pattern: 'z-*', from: 'staging', ttl: 60, data: false, protected: true },
      { pattern: '*' },
      { pattern: 'a-*', ttl: 1 },
    ]
    const answer = await writeRules(rules)
    expect(answer).toMatchObject({ status: 200, body: { rules } })
    expect((await readRules()).body).toEqual({ rules })
    expect((await writeRules([rules[2]])).body).toEqual({ rules: [rules[2]] })
    expect((await writeRules([])).body).toEqual({ rules: [] })
    expect((await readRules()).body).toEqual({ rules: [] })
  })

  it('supply what a request leaves out', async () => {
    await writeRules([
      { pattern: 'preview-*', from: 'staging', ttl: 600, data: false, protected: true },
    ])
    expectOk(await inRuled('PUT', 'preview-1'))
    const { body } = await inRuled('GET', 'preview-1')
    expect(body).toMatchObject({
      startedFrom: { branchName: 'staging' },
      ttl: 600,
      expiresAt: expect.stringMatching(TIME),
      protected: true,
    })
    expect(await inherits('preview-1')).toBe(false)
  })

  it('do not touch what a request says', async () => {
    const expiresAt = '2999-01-01T00:00:00.000Z'
    const body = { from: 'main', expiresAt, data: true, protected: false }
    expectOk(await inRuled('PUT', 'preview-2', body))
    const branch = (await inRuled('GET', 'preview-2')).body
    expect(branch).toMatchObject({ startedFrom: { branchName: 'main' }, expiresAt })
    expect(branch).not.toHaveProperty('ttl')
    expect(branch).not.toHaveProperty('protected')
    expect(await inherits('preview-2')).toBe(true)
    expectOk(await inRuled('PUT', 'preview-3?from=main', { ttl: 5 }))
    expect((await inRuled('GET', 'preview-3')).body).toMatchObject({
      startedFrom: { branchName: 'main' },
      ttl: 5,
    })
  })

  it('do not concern other names, other databases and branches that are there', async () => {
    expectOk(await inRuled('PUT', 'other'))
    const branch = (await inRuled('GET', 'other')).body
    expect(branch.startedFrom.branchName).toBe('main')
    expect(branch).not.toHaveProperty('ttl')
    await create('preview-elsewhere')
    expect((await read('preview-elsewhere')).body).not.toHaveProperty('ttl')
    await writeRules([{ pattern: '*', ttl: 5 }])
    expect((await inRuled('GET', 'other')).body).not.toHaveProperty('ttl')
  })

  it('are tried in order, and the first that matches is the only one', async () => {
    await writeRules([
      { pattern: 'order-exact', ttl: 11 },
      { pattern: 'order-*', protected: true },
      { pattern: '*', ttl: 33 },
    ])
    for (const name of ['order-exact', 'order-2', 'third']) expectOk(await inRuled('PUT', name))
    expect((await inRuled('GET', 'order-exact')).body).toMatchObject({ ttl: 11 })
    expect((await inRuled('GET', 'order-2')).body).toMatchObject({ protected: true })
    expect((await inRuled('GET', 'order-2')).body).not.toHaveProperty('ttl')
    expect((await inRuled('GET', 'third')).body).toMatchObject({ ttl: 33 })
  })

  it('decide over what Xata clients get by default', async () => {
    await writeRules([{ pattern: 'with-*', data: true }])
    for (const name of ['with-rows', 'without-rows']) {
      expectOk(await service.call('PUT', url(name, 'ruled'), { headers: XATA_CLIENT }))
    }
    expect(await inherits('with-rows')).toBe(true)
    expect(await inherits('without-rows')).toBe(false)
  })

  it('whose source does not exist are named when they are used, not when they are written', async () => {
    expect((await writeRules([{ pattern: 'lost-*', from: 'nowhere' }])).status).toBe(200)
    const answer = await inRuled('PUT', 'lost-1')
    expect(answer).toMatchObject({
      status: 400,
      body: {
        code: 'unknown_source_branch',
        message: 'branch rule [lost-*]: branch [nowhere] not found: it cannot be forked',
      },
    })
    expect((await inRuled('PUT', 'lost-1', { from: 'main' })).status).toBe(201)
  })

  it('take 100 rules and refuse one more', async () => {
    const rules = Array.from({ length: 100 }, (_, n) => ({ pattern: `p${n}-*` }))
    expect((await writeRules(rules)).status).toBe(200)
    expect((await writeRules([...rules, { pattern: 'x' }])).status).toBe(400)
    expect((await readRules()).body.rules).toHaveLength(100)
    await writeRules([])
  })

  it.each([
    ['no rules', undefined, '[rules]: is required'],
    ['rules that are no list', {}, '[rules]: must be of type array'],
    ['a rule without a pattern', [{ ttl: 5 }], '[rules.0.pattern]: is required'],
    ['an empty pattern', [{ pattern: '' }], '[rules.0.pattern]'],
    ['a pattern with a slash', [{ pattern: 'feat/*' }], '[rules.0.pattern]'],
    ['a pattern of 256 characters', [{ pattern: '*'.repeat(256) }], '[rules.0.pattern]'],
    [
      'a source that is no name',
      [{ pattern: 'a' }, { pattern: 'b', from: 'a/b' }],
      '[rules.1.from]',
    ],
    ['a source that is a pattern', [{ pattern: 'a', from: '*' }], '[rules.0.from]'],
    ['a ttl of 0', [{ pattern: 'a', ttl: 0 }], '[rules.0.ttl]'],
    ['a ttl that is null', [{ pattern: 'a', ttl: null }], '[rules.0.ttl]'],
    ['data that is text', [{ pattern: 'a', data: 'no' }], '[rules.0.data]'],
    [
      'an unknown field',
      [{ pattern: 'a', expiresAt: inMs(5) }],
      '[rules.0.expiresAt]: is not known',
    ],
  ])('refuse %s with 400 and stay as they are', async (_name, rules, message) => {
    await writeRules([{ pattern: 'stays' }])
    const answer = await writeRules(rules)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
    expect((await readRules()).body).toEqual({ rules: [{ pattern: 'stays' }] })
  })

  it('are one whole set, whoever writes at the same time', async () => {
    const sets = Array.from({ length: 6 }, (_, n) =>
      Array.from({ length: n + 1 }, (__, position) => ({ pattern: `set-${n}-${position}` })),
    )
    const answers = await Promise.all(sets.map((rules) => writeRules(rules)))
    for (const [n, { status, body }] of answers.entries()) {
      expect([status, body.rules]).toEqual([200, sets[n]])
    }
    expect(sets).toContainEqual((await readRules()).body.rules)
  })

  it('are read by every key of the database, and written by keys for all of it', async () => {
    const reader = await createKey(service, 'rules-reader', {
      fields: { scope: { access: 'read' } },
    })
    const part = await createKey(service, 'rules-part', {
      fields: { scope: { branches: ['x-*'] } },
    })
    for (const key of [reader, part]) {
      expect((await service.call('GET', rulesUrl(), { key })).status).toBe(200)
      expect(await writeRules([], key)).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    }
    expect((await service.call('GET', rulesUrl('nowhere'))).status).toBe(404)
    const body = { rules: [] }
    expect((await service.call('PUT', rulesUrl('nowhere'), { body })).status).toBe(404)
  })

  it('do not lend a key a source that it does not reach', async () => {
    await writeRules([{ pattern: 'x-*', from: 'staging' }])
    const key = await createKey(service, 'rules-narrow', {
      fields: { scope: { branches: ['x-*'] } },
    })
    const answer = await service.call('PUT', url('x-1', 'ruled'), { key })
    expect(answer).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    expect((await inRuled('GET', 'x-1')).status).toBe(404)
  })
})

describe('resolveBranch with create', () => {
  type Query = Readonly<Record<string, string>>
  const resolve = (query: Query, options: { key?: string; via?: TestService } = {}) => {
    const { key = service.key, via = service } = options
    const path = `${service.workspace}/dbs/git/resolveBranch?${new URLSearchParams(query)}`
    return via.call('GET', path, { key })
  }
  const make = (gitBranch: string, more: Query = {}) =>
    resolve({ gitBranch, create: 'true', ...more })
  const branch = async (name: string) => (await service.call('GET', url(name, 'git'))).body
  const putBranch = async (name: string, body?: unknown) =>
    expectOk(await service.call('PUT', url(name, 'git'), { body }))
  const names = async (): Promise<string[]> => {
    const { body } = await service.call('GET', `${service.workspace}/dbs/git`)
    return body.branches.map(({ name }: { name: string }) => name)
  }

  beforeAll(async () => {
    await createDatabase(service, 'git', { branchName: 'trunk' })
    await putBranch('staging')
  })

  it('creates the branch, maps it, and finds it the next time', async () => {
    const answer = await make('feat/login')
    expect(answer.status).toBe(200)
    expect(answer.body).toEqual({
      branch: 'feat-login',
      reason: {
        code: 'BRANCH_CREATED',
        message: 'Branch [feat-login] was created for git branch [feat/login]',
      },
    })
    expect((await branch('feat-login')).startedFrom.branchName).toBe('trunk')
    for (const query of [
      { gitBranch: 'feat/login' },
      { gitBranch: 'feat/login', create: 'true' },
    ]) {
      expect((await resolve(query)).body).toMatchObject({
        branch: 'feat-login',
        reason: { code: 'FOUND_IN_MAPPING' },
      })
    }
    const mapping = await service.call('GET', `${service.workspace}/dbs/git/gitBranches`)
    expect(mapping.body.mapping).toContainEqual({
      gitBranch: 'feat/login',
      serviceBranch: 'feat-login',
    })
  })

  it('creates nothing when a branch has the name, or when it is not asked to', async () => {
    const before = await names()
    expect((await make('staging')).body.reason.code).toBe('BRANCH_EXISTS')
    const plain = await resolve({ gitBranch: 'feat/none' })
    expect(plain.body.reason.code).toBe('DEFAULT_BRANCH')
    const no = await resolve({ gitBranch: 'feat/none', create: 'false', fallbackBranch: 'staging' })
    expect(no.body.reason.code).toBe('FALLBACK_BRANCH')
    expect(await names()).toEqual(before)
  })

  it('forks the fallback when it exists, and the default branch otherwise', async () => {
    await make('feat/on-staging', { fallbackBranch: 'staging' })
    await make('feat/on-nothing', { fallbackBranch: 'nowhere' })
    expect((await branch('feat-on-staging')).startedFrom.branchName).toBe('staging')
    expect((await branch('feat-on-nothing')).startedFrom.branchName).toBe('trunk')
  })

  it('follows the rules for the new name, whose source comes after the fallback', async () => {
    await putBranch('seed')
    const rules = [{ pattern: 'pr-*', from: 'seed', ttl: 600 }]
    expectOk(
      await service.call('PUT', `${service.workspace}/dbs/git/branchRules`, { body: { rules } }),
    )
    await make('pr/1')
    await make('pr/2', { fallbackBranch: 'staging' })
    expect(await branch('pr-1')).toMatchObject({ startedFrom: { branchName: 'seed' }, ttl: 600 })
    expect(await branch('pr-2')).toMatchObject({ startedFrom: { branchName: 'staging' }, ttl: 600 })
    expectOk(await service.call('DELETE', url('seed', 'git')))
    const lost = await make('pr/3')
    expect(lost.status).toBe(400)
    expect(lost.body.message).toContain('branch rule [pr-*]')
    expect((await resolve({ gitBranch: 'pr/3' })).body.reason.code).toBe('DEFAULT_BRANCH')
  })

  it('tells git branches apart whose names would be the same', async () => {
    const answers = [await make('same/name'), await make('same name'), await make('same.name')]
    const [first, second, third] = answers.map((answer) => answer.body.branch)
    expect(first).toBe('same-name')
    expect(second).toMatch(/^same-name-[0-9a-f]{6}$/)
    expect(third).toMatch(/^same-name-[0-9a-f]{6}$/)
    expect(second).not.toBe(third)
    expect((await resolve({ gitBranch: 'same name' })).body.branch).toBe(second)
  })

  it('gives a new branch, of the same name, to a git branch whose own has expired', async () => {
    await make('feat/again')
    const { id } = await branch('feat-again')
    await expire('feat-again')
    expect((await make('feat/again')).body).toMatchObject({
      branch: 'feat-again',
      reason: { code: 'BRANCH_CREATED' },
    })
    expect((await branch('feat-again')).id).not.toBe(id)
    await deleteExpiredBranches(service.database)
    expect((await make('feat/again')).body.reason.code).toBe('FOUND_IN_MAPPING')
  })

  it('makes one branch for any number of requests at once, in any process', async () => {
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, n) =>
        resolve({ gitBranch: 'feat/race', create: 'true' }, { via: n % 2 === 0 ? service : other }),
      ),
    )
    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([200]))
    expect(new Set(answers.map((answer) => answer.body.branch))).toEqual(new Set(['feat-race']))
    const codes = answers.map((answer) => answer.body.reason.code).sort()
    expect(codes.filter((code) => code === 'BRANCH_CREATED')).toHaveLength(1)
    expect((await names()).filter((name) => name.startsWith('feat-race'))).toEqual(['feat-race'])
  })

  it('makes a branch each for git branches of like names at once', async () => {
    const gitBranches = ['like/x', 'like x', 'like.x', 'like#x', 'like:x', 'like/x/']
    const answers = await Promise.all(gitBranches.map((gitBranch) => make(gitBranch)))
    expect(answers.map((answer) => answer.status)).toEqual(gitBranches.map(() => 200))
    const made = answers.map((answer) => answer.body.branch)
    expect(new Set(made).size).toBe(gitBranches.length)
    expect(made).toContain('like-x')
    for (const [n, gitBranch] of gitBranches.entries()) {
      expect((await resolve({ gitBranch })).body.branch).toBe(made[n])
    }
  })

  it.each([
    ['spaces', '  two  words ', /^two-words$/],
    ['what urls and SQL give a meaning', `a'b"c\\d%20e&f=g?h#i;--$1\${x}`, /^a-b-c-d-20e-/],
    ['dots that lead upwards', '../../etc/passwd', /^etc-passwd$/],
    ['a line break', 'a\nb', /^a-b$/],
    ['letters of other scripts', 'функция/機能', /^git-[0-9a-f]{6}$/],
    ['characters beyond the first plane', '🌿/🍎', /^git-[0-9a-f]{6}$/],
    ['a right-to-left mark', 'a\u202eb-mark', /^a-b-mark$/],
    ['nothing but dashes', '---', /^git-[0-9a-f]{6}$/],
    ['the name of a property of every object', '__proto__', /^__proto__$/],
    ['a colon and an at sign', 'user:pass@host', /^user-pass-host$/],
    ['1024 characters', 'y'.repeat(1024), /^y{200}$/],
    ['1024 other characters that begin alike', `${'y'.repeat(1023)}z`, /^y{200}-[0-9a-f]{6}$/],
    ['1024 characters beyond the first plane', '🌿'.repeat(1024), /^git-[0-9a-f]{6}$/],
  ])('makes a branch for a git branch with %s', async (_name, gitBranch, expected) => {
    const { status, body } = await make(gitBranch)
    expect(status).toBe(200)
    expect(body.branch).toMatch(expected)
    expect(body.reason.code).toBe('BRANCH_CREATED')
    expect((await branch(body.branch)).branchName).toBe(body.branch)
    expect((await resolve({ gitBranch })).body).toMatchObject({
      branch: body.branch,
      reason: { code: 'FOUND_IN_MAPPING' },
    })
  })

  it.each([
    ['no git branch', { create: 'true' }, '[create]: needs the parameter [gitBranch]'],
    ['an empty git branch', { create: 'true', gitBranch: '' }, '[gitBranch]'],
    [
      'a git branch of 1025 characters',
      { create: 'true', gitBranch: 'x'.repeat(1025) },
      '[gitBranch]',
    ],
    ['a wish that is no truth value', { create: 'maybe', gitBranch: 'a' }, '[create]'],
    [
      'a fallback that is no name',
      { create: 'true', gitBranch: 'a', fallbackBranch: 'a/b' },
      '[fallbackBranch]',
    ],
  ])('refuses %s with 400 and creates nothing', async (_name, query, message) => {
    const before = await names()
    const answer = await resolve(query as Query)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
    expect(await names()).toEqual(before)
  })

  it('answers an unknown database with 404', async () => {
    const path = `${service.workspace}/dbs/nowhere/resolveBranch?gitBranch=a&create=true`
    expect((await service.call('GET', path)).status).toBe(404)
  })

  it('needs a key that can write, even to find what is there', async () => {
    const key = await createKey(service, 'git-reader', { fields: { scope: { access: 'read' } } })
    for (const gitBranch of ['feat/read-only', 'feat/login']) {
      const answer = await resolve({ gitBranch, create: 'true' }, { key })
      expect(answer).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    }
    expect(await names()).not.toContain('feat-read-only')
  })

  it('keeps a key within the patterns of its scope', async () => {
    const scope = { branches: ['bot-*', 'staging'] }
    const key = await createKey(service, 'git-bot', { fields: { scope } })
    const ask = (gitBranch: string, more: Query = {}) =>
      resolve({ gitBranch, create: 'true', ...more }, { key })
    const fallback = { fallbackBranch: 'staging' }
    expect((await ask('bot/1', fallback)).body).toMatchObject({
      branch: 'bot-1',
      reason: { code: 'BRANCH_CREATED' },
    })
    expect(await ask('feat/bot', fallback)).toMatchObject({
      status: 403,
      body: { message: 'this API key cannot create branch [feat-bot]' },
    })
    expect(await ask('trunk', fallback)).toMatchObject({ status: 403 })
    expect(await ask('bot/2')).toMatchObject({
      status: 403,
      body: {
        message: expect.stringContaining(
          'does not include the branch that new branches are forked from',
        ),
      },
    })
    // The answer is the one for an unmapped git branch, so that it does not reveal the mapping.
    expect(await ask('feat/login', fallback)).toMatchObject({
      status: 403,
      body: { message: 'this API key cannot create branch [feat-login]' },
    })
    expect((await resolve({ gitBranch: 'feat/login' })).body.branch).toBe('feat-login')
    expect(await names()).not.toContain('feat-bot')
  })

  it('starts the branch with rows, and without them for Xata clients', async () => {
    const inherits = async (name: string) => {
      const [row] = await service.database.query<{ inherits: boolean }>(sql`
        select parent_id is not null as inherits from offshoot.branches where name = ${name}`)
      return row?.inherits
    }
    await make('data/plain')
    const path = `${service.workspace}/dbs/git/resolveBranch?gitBranch=data/xata&create=true`
    expectOk(await service.call('GET', path, { headers: XATA_CLIENT }))
    expect(await inherits('data-plain')).toBe(true)
    expect(await inherits('data-xata')).toBe(false)
  })
})
