import { LIMITS } from '@offshoot/contract/limits'
import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { restoreDatabase } from '../../packages/server/src/backup/restore-database.js'
import { inChunks, makeArchive, openForBackup } from '../support/archive.js'
import { TestBranches } from '../support/branches.js'
import { createTestService, REGIONS, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * Columns with ids that become links, and constraints of columns whose values are stored anew: on a branch, on a fork that
 * inherits the values, and in merges.
 */

let service: TestService
let number = 0
beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const LINK = { type: 'link', link: { table: 'teams', onDelete: 'cascade' } }

/** People of which two name a team that exists. */
async function people(extra: readonly Column[] = []): Promise<TestBranches> {
  const branches = await TestBranches.create(service, `made${++number}`, {
    teams: [{ name: 'name', type: 'string' }],
    people: [{ name: 'team', type: 'string' }, { name: 'age', type: 'int' }, ...extra],
  })
  await branches.put('main', 'teams', 't', { name: 'one' })
  await branches.put('main', 'teams', 'u', { name: 'two' })
  await branches.put('main', 'people', 'a', { team: 't', age: 1 })
  await branches.put('main', 'people', 'b', { team: 'u', age: 2 })
  await branches.put('main', 'people', 'c', {})
  return branches
}

function alter(branches: TestBranches, changes: object, branch = 'main', column = 'team') {
  return branches.call(branch, 'PATCH', `/tables/people/columns/${column}`, changes)
}

async function columnOf(branches: TestBranches, column: string, branch = 'main') {
  return expectOk(await branches.call(branch, 'GET', `/tables/people/columns/${column}`)).body
}

describe.each(['main', 'fork'])('a column with ids that becomes a link, on %s', (branch) => {
  async function open(extra: readonly Column[] = []) {
    const branches = await people(extra)
    if (branch === 'fork') await branches.fork('fork')
    return branches
  }

  it('keeps its values, and the rule', async () => {
    const branches = await open()
    expectOk(await alter(branches, LINK, branch))
    expect(await columnOf(branches, 'team', branch)).toEqual({ name: 'team', ...LINK })
    expect(await branches.read(branch, 'people', ['a', 'c'])).toMatchObject({
      a: { team: { id: 't' } },
      c: {},
    })
    const missing = await branches.call(branch, 'POST', '/tables/people/data', { team: 'x' })
    expect(missing.body).toMatchObject({ code: 'link_violation', table: 'people', column: 'team' })
    await branches.remove(branch, 'teams', 't')
    expect(Object.keys(await branches.read(branch, 'people', ['a', 'b', 'c']))).toEqual(['b', 'c'])
    const query = { filter: { 'team.name': 'two' }, columns: ['id'] }
    const found = await branches.call(branch, 'POST', '/tables/people/query', query)
    expect(expectOk(found).body.records).toMatchObject([{ id: 'b' }])
  })

  it('is refused with the records whose value is no record, and changes nothing', async () => {
    const branches = await open()
    await branches.put(branch, 'people', 'd', { team: 'nowhere' })
    await branches.put(branch, 'people', 'e', { team: 'no id' })
    const problems = [
      { kind: 'conversion', records: 1, samples: [{ id: 'e', value: 'no id' }] },
      { kind: 'link', records: 1, samples: [{ id: 'd', value: 'nowhere' }] },
    ]
    const dryRun = await alter(branches, { ...LINK, dryRun: true }, branch)
    expect(expectOk(dryRun).body).toMatchObject({ problems })
    expect(await alter(branches, LINK, branch)).toMatchObject({
      status: 400,
      body: { code: 'invalid_schema', problems },
    })
    expect(await columnOf(branches, 'team', branch)).toEqual({ name: 'team', type: 'string' })
    await branches.remove(branch, 'people', 'e')
    // Without a rule, a link may lead to nothing.
    expectOk(await alter(branches, { type: 'link', link: { table: 'teams' } }, branch))
    expect(await branches.read(branch, 'people', ['d'])).toMatchObject({
      d: { team: { id: 'nowhere' } },
    })
  })

  it('takes its constraints along', async () => {
    const branches = await open([{ name: 'day', type: 'string', unique: true }])
    const constraint = (name: string, rule: object) =>
      branches.call(branch, 'PUT', `/tables/people/constraints/${name}`, rule)
    expectOk(await constraint('once', { unique: ['team', 'age'] }))
    expectOk(await constraint('known', { check: 'team is not null or age is null' }))
    expectOk(await alter(branches, LINK, branch))
    expectOk(await alter(branches, { type: 'string' }, branch, 'age'))
    const { body } = await branches.call(branch, 'GET', '')
    expect(body.schema.tables[1].constraints).toEqual([
      { name: 'once', unique: ['team', 'age'] },
      { name: 'known', check: 'team is not null or age is null' },
    ])
    const put = (values: object) => branches.call(branch, 'PUT', '/tables/people/data/d', values)
    expect(await put({ team: 't', age: '1' })).toMatchObject({
      status: 400,
      body: { code: 'unique_violation', constraint: 'once' },
    })
    expect(await put({ age: '1' })).toMatchObject({
      status: 400,
      body: { code: 'check_violation', constraint: 'known' },
    })
    expectOk(await put({ team: 't', age: '2' }))
  })

  it.each([
    [{ type: 'link', link: { onDelete: 'cascade' } }, 'field [link.table] is required'],
    [{ type: 'link' }, 'field [link] is required for type [link]'],
    [{ ...LINK, link: { table: 'nothing' } }, 'table [nothing] not found'],
    [{ link: { table: 'teams' } }, 'type [string] is not valid for field [link]'],
    [{ ...LINK, defaultValue: 't' }, 'is not valid for field [defaultValue]'],
    [{ ...LINK, link: {} }, 'link'],
  ])('is refused if it cannot be one: %o', async (changes, message) => {
    const answer = await alter(await open(), changes, branch)
    expect(answer.status).toBeGreaterThanOrEqual(400)
    expect(answer.status).toBeLessThan(500)
    expect(answer.body.message).toContain(message)
  })
})

describe('ids of another type', () => {
  it('become links, and values again', async () => {
    const branches = await people()
    await branches.edit(
      'main',
      { addTable: { table: 'numbers', idType: 'int' } },
      { addTable: { table: 'uuids', idType: 'uuid' } },
      { addColumn: { table: 'people', column: { name: 'uuid', type: 'uuid' } } },
    )
    const uuid = '0190a5c1-7d3e-7cc2-9f0b-2a6f1c3d4e5f'
    for (const [table, id] of [
      ['numbers', '1'],
      ['numbers', '2'],
      ['uuids', uuid],
    ] as const) {
      await branches.put('main', table, id, {})
    }
    await branches.patch('main', 'people', 'a', { uuid })
    const other = await alter(branches, { ...LINK }, 'main', 'age')
    expect(other.body.message).toContain(
      'values of type [int] cannot link to table [teams], whose ids have type [string]',
    )
    const link = (table: string) => ({ type: 'link', link: { table, onDelete: 'restrict' } })
    expectOk(await alter(branches, link('numbers'), 'main', 'age'))
    expectOk(await alter(branches, link('uuids'), 'main', 'uuid'))
    expect(await branches.read('main', 'people', ['a'])).toMatchObject({
      a: { age: { id: '1' }, uuid: { id: uuid } },
    })
    expectOk(await alter(branches, { type: 'int' }, 'main', 'age'))
    expectOk(await alter(branches, { type: 'uuid' }, 'main', 'uuid'))
    expect(await branches.read('main', 'people', ['a', 'b'])).toMatchObject({
      a: { age: 1, uuid },
      b: { age: 2 },
    })
    await branches.remove('main', 'numbers', '1')
  })
})

describe('differences, merges and backups', () => {
  it('show the change as one, which another branch can be given', async () => {
    const branches = await people()
    await branches.fork('fork')
    expectOk(await alter(branches, LINK, 'fork'))
    const { operations } = (await branches.diff('fork', '?against=main')).schema
    expect(operations).toEqual([{ alterColumn: { table: 'people', column: 'team', ...LINK } }])
    await branches.edit('main', ...operations)
    expect(await columnOf(branches, 'team')).toEqual({ name: 'team', ...LINK })
  })

  it.each([
    ['the merged branch', 'fork', 'main'],
    ['the target', 'main', 'fork'],
  ])('merge the values of both sides, with a link on %s', async (_name, changed, other) => {
    const branches = await people()
    await branches.fork('fork')
    expectOk(await alter(branches, LINK, changed))
    await branches.put(changed, 'people', 'a', { team: 'u', age: 1 })
    await branches.put(other, 'people', 'b', { team: 't', age: 2 })
    await branches.put(other, 'people', 'd', { team: 'nowhere' })
    const refused = await branches.merging('fork')
    expect(refused.status).toBe(409)
    expect(JSON.stringify(refused.body)).toContain('nowhere')
    await branches.remove(other, 'people', 'd')
    expect(await branches.merge('fork')).toMatchObject({ merged: true })
    expect(await branches.read('main', 'people', ['a', 'b', 'c'])).toMatchObject({
      a: { team: { id: 'u' } },
      b: { team: { id: 't' } },
      c: {},
    })
    await branches.remove('main', 'teams', 'u')
    expect(Object.keys(await branches.read('main', 'people', ['a', 'b', 'c']))).toEqual(['b', 'c'])
  })

  it('merge a type and a constraint of the column, whichever side is taken', async () => {
    for (const strategy of ['ours', 'theirs']) {
      const branches = await people()
      const rule = { unique: ['team', 'age'] }
      expectOk(await branches.call('main', 'PUT', '/tables/people/constraints/once', rule))
      await branches.fork('fork')
      expectOk(await alter(branches, { type: 'string' }, 'fork', 'age'))
      // A size belongs to the type that it was given to.
      expectOk(await alter(branches, { bits: 16 }, 'main', 'age'))
      const { conflicts } = await branches.merge('fork', { dryRun: true })
      expect(conflicts).toMatchObject([{ kind: 'schema', table: 'people', column: 'age' }])
      expect(await branches.merge('fork', { strategy })).toMatchObject({ merged: true })
      const age = strategy === 'ours' ? 1 : '1'
      const taken = { team: 't', age }
      const answer = await branches.call('main', 'PUT', '/tables/people/data/d', taken)
      expect(answer.body).toMatchObject({ code: 'unique_violation', constraint: 'once' })
    }
  })

  it('merge a changed type into a branch that has the constraint', async () => {
    for (const changed of ['fork', 'main']) {
      const branches = await people()
      const rule = { unique: ['team', 'age'] }
      expectOk(await branches.call('main', 'PUT', '/tables/people/constraints/once', rule))
      await branches.fork('fork')
      expectOk(await alter(branches, { type: 'string' }, changed, 'age'))
      await branches.put('main', 'people', 'd', { team: 't' })
      await branches.put('fork', 'people', 'e', { team: 't' })
      expect(await branches.merge('fork')).toMatchObject({ merged: true })
      const taken = { team: 't', age: '1' }
      const answer = await branches.call('main', 'PUT', '/tables/people/data/d', taken)
      expect(answer.body).toMatchObject({ code: 'unique_violation', constraint: 'once' })
    }
  })

  it('restore the link and its constraints from an archive', async () => {
    const branches = await people()
    const rule = { unique: ['team', 'age'] }
    expectOk(await branches.call('main', 'PUT', '/tables/people/constraints/once', rule))
    await branches.fork('fork')
    expectOk(await alter(branches, LINK, 'fork'))
    const database = openForBackup(service.url)
    try {
      const { blobs } = service.files
      const only = { name: branches.database }
      const archive = await makeArchive({ database, blobs, only })
      const as = `${branches.database}-copy`
      await restoreDatabase({
        ...{ database, blobs, source: inChunks(archive), name: branches.database, as },
        ...{ regions: REGIONS, limits: LIMITS, onProgress: () => undefined, holdTimeoutMs: 60_000 },
      })
      const copy = new TestBranches(service, as)
      expect(await copy.read('fork', 'people', ['a'])).toMatchObject({ a: { team: { id: 't' } } })
      const taken = await copy.call('fork', 'PUT', '/tables/people/data/d', { team: 't', age: 1 })
      expect(taken.body).toMatchObject({ code: 'unique_violation' })
      await copy.remove('fork', 'teams', 't')
      expect(await copy.read('fork', 'people', ['a'])).toEqual({})
    } finally {
      await database.close()
    }
  })
})
