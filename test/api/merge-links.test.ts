import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'

let service: TestService
let number = 0
beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const TABLES = {
  teams: [{ name: 'name', type: 'string' }],
  members: [
    { name: 'name', type: 'string' },
    { name: 'team', type: 'link', link: { table: 'teams', onDelete: 'restrict' } },
  ],
} as const satisfies Record<string, readonly Column[]>

/** Two branches, of which both have the teams `a` and `b`. */
async function open() {
  const branches = await TestBranches.create(service, `mergelinks${++number}`, TABLES)
  await branches.put('main', 'teams', 'a', { name: 'A' })
  await branches.put('main', 'teams', 'b', { name: 'B' })
  await branches.put('main', 'members', 'old', { name: 'Old', team: 'b' })
  await branches.fork('dev')
  return branches
}

const linkConflict = (id: string, target: string, take: string[]) => ({
  table: 'members',
  column: 'team',
  kind: 'link',
  ids: [id],
  records: 1,
  target: { table: 'teams', id: target, takes: take },
})

describe('a merge of links that must exist', () => {
  it('merges links and their records together', async () => {
    const branches = await open()
    await branches.put('dev', 'teams', 'c', { name: 'C' })
    await branches.put('dev', 'members', 'new', { team: 'c' })
    await branches.patch('dev', 'members', 'old', { team: 'a' })
    await branches.remove('dev', 'teams', 'b')
    expect(await branches.merge('dev')).toMatchObject({ merged: true, conflictCount: 0 })
    expect(await branches.read('main', 'members', ['new', 'old'])).toMatchObject({
      new: { team: { id: 'c' } },
      old: { team: { id: 'a' } },
    })
    expect(await branches.read('main', 'teams', ['b'])).toEqual({})
  })

  it.each([
    ['the merged branch', 'dev', 'main', 'ours'],
    ['the target', 'main', 'dev', 'theirs'],
  ])('is refused if %s has deleted what the other links to', async (_, deleting, linking, take) => {
    const branches = await open()
    await branches.remove(deleting, 'teams', 'a')
    await branches.put(linking, 'members', 'x', { name: 'X', team: 'a' })
    const { conflicts, conflictCount } = await branches.merge('dev', { dryRun: true })
    expect({ conflicts, conflictCount }).toMatchObject({
      conflicts: [linkConflict('x', 'a', [take])],
      conflictCount: 1,
    })
    expect(await branches.merging('dev')).toMatchObject({
      status: 409,
      body: { code: 'merge_conflict', conflictCount: 1 },
    })
    for (const strategy of ['ours', 'theirs']) {
      expect(await branches.merging('dev', { strategy })).toMatchObject({ status: 409 })
    }
    const [{ target, tokens }] = conflicts
    const wrong = {
      table: 'teams',
      id: 'a',
      token: target.token,
      take: take === 'ours' ? 'theirs' : 'ours',
    }
    expect(await branches.merging('dev', { resolutions: [wrong] })).toMatchObject({ status: 400 })
    const needless = { table: 'teams', id: 'b', token: 'x', take }
    expect((await branches.merging('dev', { resolutions: [needless] })).status).toBe(409)
    await branches.fork('copy', 'main')
    // The record is kept, or returns.
    const kept = { table: 'teams', id: 'a', token: target.token, take }
    expect(await branches.merge('dev', { resolutions: [kept] })).toMatchObject({ merged: true })
    expect(await branches.read('main', 'teams', ['a'])).toEqual({ a: { name: 'A' } })
    expect(await branches.read('main', 'members', ['x'])).toMatchObject({
      x: { team: { id: 'a' } },
    })
    // The link is changed.
    const moved = { table: 'members', id: 'x', token: tokens.x, columns: { team: { value: 'b' } } }
    const into = { into: 'copy', resolutions: [moved] }
    expect(await branches.merge('dev', into)).toMatchObject({ merged: true })
    expect(await branches.read('copy', 'members', ['x'])).toMatchObject({
      x: { team: { id: 'b' } },
    })
    expect(await branches.read('copy', 'teams', ['a'])).toEqual({})
  })

  it('finds links of tables and records that are left out', async () => {
    const branches = await open()
    await branches.remove('dev', 'teams', 'a')
    await branches.put('dev', 'teams', 'c', { name: 'C' })
    await branches.put('dev', 'members', 'new', { team: 'c' })
    await branches.put('main', 'members', 'x', { team: 'a' })
    const skipped = await branches.merge('dev', {
      dryRun: true,
      tables: { members: { mode: 'skip' } },
    })
    expect(skipped.conflicts).toMatchObject([linkConflict('x', 'a', ['ours'])])
    const rest = await branches.merge('dev', { dryRun: true, tables: { teams: { mode: 'skip' } } })
    expect(rest.conflicts).toMatchObject([linkConflict('new', 'c', [])])
    const records = [{ table: 'members', id: 'new' }]
    const some = await branches.merge('dev', { dryRun: true, only: { records } })
    expect(some.conflicts).toMatchObject([linkConflict('new', 'c', [])])
    const both = { only: { records: [...records, { table: 'teams', id: 'c' }] } }
    expect(await branches.merge('dev', both)).toMatchObject({ conflictCount: 0 })
    expect(await branches.read('main', 'members', ['new'])).toMatchObject({
      new: { team: { id: 'c' } },
    })
  })

  it('pages through such conflicts', async () => {
    const branches = await open()
    for (const id of ['c', 'd', 'e']) await branches.put('main', 'teams', id, {})
    await branches.pull('dev')
    for (const id of ['c', 'd', 'e']) {
      await branches.remove('dev', 'teams', id)
      await branches.put('main', 'members', `of-${id}`, { team: id })
    }
    const first = await branches.merge('dev', { dryRun: true, page: { size: 2 } })
    expect(first).toMatchObject({
      conflictCount: 3,
      conflictTables: [{ name: 'members', conflicts: 3 }],
    })
    expect(first.conflicts.map((each: { ids: string[] }) => each.ids)).toEqual([['of-c'], ['of-d']])
    const second = await branches.merge('dev', {
      dryRun: true,
      page: { size: 2, after: first.cursor },
    })
    expect(second.conflicts.map((each: { ids: string[] }) => each.ids)).toEqual([['of-e']])
  })

  it('carries the rule, and is refused if records of the target break it', async () => {
    const branches = await open()
    const change = (branch: string, onDelete: string) =>
      branches.call(branch, 'PATCH', '/tables/members/columns/team', { link: { onDelete } })
    expect(await change('main', 'none')).toMatchObject({ status: 200 })
    await branches.pull('dev')
    expect(await change('dev', 'cascade')).toMatchObject({ status: 200 })
    await branches.put('main', 'members', 'x', { team: 'nobody' })
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts).toMatchObject([linkConflict('x', 'nobody', [])])
    await branches.patch('main', 'members', 'x', { team: null })
    expect(await branches.merge('dev')).toMatchObject({
      merged: true,
      schema: {
        operations: [
          { alterColumn: { table: 'members', column: 'team', link: { onDelete: 'cascade' } } },
        ],
      },
    })
    await branches.remove('main', 'teams', 'b')
    expect(await branches.read('main', 'members', ['old'])).toEqual({})
  })

  it('reports a rule that both sides have changed', async () => {
    const branches = await open()
    const change = (branch: string, onDelete: string) =>
      branches.call(branch, 'PATCH', '/tables/members/columns/team', { link: { onDelete } })
    await change('main', 'setNull')
    await change('dev', 'cascade')
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts).toMatchObject([{ kind: 'schema', table: 'members', column: 'team' }])
  })
})
