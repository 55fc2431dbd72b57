import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'

/*
 * Merge bases in long-lived histories: the same work reaches several branches, and is undone on
 * some of them.
 */

let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService()
})
afterAll(async () => {
  await service.close()
})

const ITEMS: readonly Column[] = [
  { name: 'name', type: 'string' },
  { name: 'price', type: 'int' },
]

/** Creates `main` with one record, and its fork `staging`. */
async function open(): Promise<TestBranches> {
  const branches = await TestBranches.create(service, `bases${++number}`, { items: ITEMS })
  await branches.put('main', 'items', 'a', { name: 'A', price: 1 })
  await branches.fork('staging')
  return branches
}

const items = (branches: TestBranches, branch: string) => branches.read(branch, 'items', ['a', 'b'])

/** Merges two branches into both `main` and `staging`. */
async function mergeTwoIntoBoth(branches: TestBranches): Promise<void> {
  await branches.fork('one')
  await branches.fork('two')
  await branches.put('one', 'items', 'b', { name: 'B', price: 2 })
  await branches.patch('two', 'items', 'a', { price: 10 })
  for (const into of ['main', 'staging']) {
    await branches.merge('one', { into })
    await branches.merge('two', { into })
  }
}

async function undo(branches: TestBranches): Promise<void> {
  await branches.remove('staging', 'items', 'b')
  await branches.patch('staging', 'items', 'a', { price: 1 })
}

const UNDONE = { a: { name: 'A', price: 1 } }

describe('work that was merged into two branches and undone on one of them', () => {
  it('stays undone when the other is pulled', async () => {
    const branches = await open()
    await mergeTwoIntoBoth(branches)
    await undo(branches)
    await branches.pull('staging')
    expect(await items(branches, 'staging')).toEqual(UNDONE)
  })

  it('is undone on the other when that is merged there', async () => {
    const branches = await open()
    await mergeTwoIntoBoth(branches)
    await undo(branches)
    await branches.merge('staging')
    expect(await items(branches, 'main')).toEqual(UNDONE)
  })

  it('is in no conflict with a change that only one side made since', async () => {
    const branches = await open()
    await mergeTwoIntoBoth(branches)
    await branches.patch('staging', 'items', 'a', { price: 11 })
    expect(await branches.pull('staging')).toMatchObject({ conflictCount: 0 })
    expect(await items(branches, 'staging')).toMatchObject({ a: { price: 11 } })
  })

  it.each(['deleted', 'reset'])('stays undone after the merged branches are %s', async (how) => {
    const branches = await open()
    await mergeTwoIntoBoth(branches)
    for (const branch of ['one', 'two']) {
      if (how === 'deleted') await branches.delete(branch)
      else await branches.call(branch, 'POST', '/reset')
    }
    await runBackground(service)
    await undo(branches)
    await runBackground(service)
    await branches.pull('staging')
    expect(await items(branches, 'staging')).toEqual(UNDONE)
  })
})

describe('a record that two branches inserted, one of them with a column of its own', () => {
  /** The states of `main` and `staging` that `dev` has merged are both bases of `dev` and `staging`. */
  async function insertedTwice(): Promise<TestBranches> {
    const branches = await open()
    await branches.fork('dev')
    await branches.edit('staging', {
      addColumn: { table: 'items', column: { name: 'label', type: 'string' } },
    })
    await branches.put('staging', 'items', 'b', { label: 'new' })
    await branches.put('main', 'items', 'b', {})
    await branches.merge('main', { into: 'dev' })
    await branches.merge('staging', { into: 'dev', strategy: 'ours' })
    await branches.merge('main', { into: 'staging', strategy: 'ours' })
    return branches
  }

  it('is no reason for a conflict when a third branch that has merged both removes the column', async () => {
    const branches = await insertedTwice()
    await branches.edit('dev', { removeColumn: { table: 'items', column: 'label' } })
    const merged = await branches.merge('dev', { into: 'staging', allowDataLoss: true })
    expect(merged).toMatchObject({ conflictCount: 0 })
    expect(Object.keys((await items(branches, 'staging')).b ?? {})).not.toContain('label')
  })

  it('is a conflict when the record was changed in that column meanwhile', async () => {
    const branches = await insertedTwice()
    await branches.patch('staging', 'items', 'b', { label: 'newer' })
    await branches.edit('dev', { removeColumn: { table: 'items', column: 'label' } })
    const answer = await branches.merging('dev', { into: 'staging', allowDataLoss: true })
    expect(answer.status).toBe(409)
    expect(answer.body.conflicts).toMatchObject([{ column: 'label', records: 1 }])
  })
})

describe('two branches that merged each other at the same time', () => {
  /**
   * Criss-cross merge: each branch has merged an earlier state of the other, so there are two merge
   * bases.
   */
  async function crossed(): Promise<TestBranches> {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { name: 'main' })
    await branches.patch('staging', 'items', 'a', { price: 5 })
    await branches.fork('main-then', 'main')
    await branches.fork('staging-then', 'staging')
    await branches.merge('staging-then', { into: 'main' })
    await branches.merge('main-then', { into: 'staging' })
    return branches
  }

  it('have both as their base', async () => {
    const branches = await crossed()
    await branches.patch('main', 'items', 'a', { name: 'A' })
    await branches.patch('staging', 'items', 'a', { price: 1 })
    expect(await branches.pull('staging')).toMatchObject({ conflictCount: 0 })
    expect(await items(branches, 'staging')).toEqual({ a: { name: 'A', price: 1 } })
  })

  it('are in conflict where they settled the same contradiction differently', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { price: 2 })
    await branches.patch('staging', 'items', 'a', { price: 3 })
    await branches.fork('main-then', 'main')
    await branches.fork('staging-then', 'staging')
    await branches.merge('staging-then', { into: 'main', strategy: 'ours' })
    await branches.merge('main-then', { into: 'staging', strategy: 'ours' })
    const { status, body } = await branches.pulling('staging')
    expect([status, body.conflictCount]).toEqual([409, 1])
    expect(body.conflicts).toEqual([
      {
        table: 'items',
        id: 'a',
        kind: 'bothUpdated',
        columns: { price: { base: null, ours: 3, theirs: 2 } },
        token: expect.any(String),
      },
    ])
  })

  it('are in conflict where they kept a deleted record differently', async () => {
    const branches = await open()
    await branches.fork('deleting')
    await branches.fork('changing')
    await branches.remove('deleting', 'items', 'a')
    await branches.patch('changing', 'items', 'a', { price: 2 })
    for (const [into, strategy] of [
      ['main', 'ours'],
      ['staging', 'theirs'],
    ]) {
      await branches.merge('deleting', { into })
      await branches.merge('changing', { into, strategy })
    }
    await branches.put('main', 'items', 'a', { name: 'A', price: 3 })
    await branches.fork('main-then', 'main')
    await branches.fork('staging-then', 'staging')
    // Each takes the record of the other.
    await branches.merge('main-then', { into: 'staging', strategy: 'theirs' })
    await branches.merge('staging-then', { into: 'main', strategy: 'theirs' })
    await branches.patch('main', 'items', 'a', { price: 4 })
    const { status, body } = await branches.pulling('staging')
    expect([status, body.conflictCount]).toEqual([409, 1])
    expect(body.conflicts).toMatchObject([
      { id: 'a', kind: 'bothUpdated', columns: { price: { ours: 3, theirs: 4 } } },
    ])
  })
})

describe('conflicts over several bases', () => {
  it('are decided one by one, as those over a single base', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'd', { name: 'D', price: 1 })
    await branches.pull('staging')
    for (const [branch, price] of [
      ['main', 2],
      ['staging', 3],
    ] as const) {
      await branches.patch(branch, 'items', 'a', { price })
      await branches.patch(branch, 'items', 'd', { price })
    }
    await branches.fork('main-then', 'main')
    await branches.fork('staging-then', 'staging')
    await branches.merge('staging-then', { into: 'main', strategy: 'ours' })
    await branches.merge('main-then', { into: 'staging', strategy: 'ours' })
    const dry = await branches.pull('staging', { dryRun: true })
    expect(dry.conflicts).toMatchObject([{ id: 'a' }, { id: 'd' }])
    const [a, d] = dry.conflicts
    const resolutions = [
      { table: 'items', id: 'a', columns: { price: { value: 7 } }, token: a.token },
      { table: 'items', id: 'd', take: 'theirs', token: d.token },
    ]
    expect(await branches.pull('staging', { resolutions })).toMatchObject({
      merged: true,
      tables: [{ name: 'items', updated: 2 }],
    })
    expect(await branches.read('staging', 'items', ['a', 'd'])).toMatchObject({
      a: { price: 7 },
      d: { price: 2 },
    })
  })
})

describe('the history of a database', () => {
  async function count(branches: TestBranches): Promise<{ merges: number; branches: number }> {
    const [row] = await service.database.query<{ merges: number; branches: number }>(sql`
      select count(distinct m.id)::integer as merges, count(distinct b.id)::integer as branches
      from offshoot.databases d
      join offshoot.branches b on b.database_id = d.id
      left join offshoot.merges m on m.into_branch_id = b.id
      where d.name = ${branches.database}`)
    return row ?? { merges: 0, branches: 0 }
  }

  it('grows with the branches, and not with how often they are merged', async () => {
    const branches = await open()
    const names = Array.from({ length: 6 }, (_, index) => `b${index}`)
    for (const name of names) await branches.fork(name)
    for (let round = 1; round <= 4; round++) {
      for (const name of names) {
        await branches.patch(name, 'items', 'a', { price: round })
        await branches.merge(name, { strategy: 'theirs' })
        await branches.pull(name)
      }
      await runBackground(service)
    }
    const { merges } = await count(branches)
    expect(merges).toBeLessThanOrEqual(4 * names.length)
    for (const name of names) await branches.delete(name)
    await runBackground(service)
    // Only `main` and `staging` are left. Their merge base is a state of `main`, which needs no
    // record of a merge.
    expect(await count(branches)).toMatchObject({ merges: 0, branches: 2 })
  })

  it('has no trace of pulls that had nothing to bring', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { price: 2 })
    expect(await branches.pull('staging')).toMatchObject({ merged: true })
    const before = await count(branches)
    for (let round = 0; round < 3; round++) {
      expect(await branches.pull('staging')).toMatchObject({ merged: false })
    }
    expect(await count(branches)).toEqual(before)
  })

  it('has no trace of a pull from a branch that has forks but has written nothing', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { price: 2 })
    for (const [name, from] of [
      ['idle', 'main'],
      ['idler', 'idle'],
      ['idlest', 'idler'],
    ] as const) {
      await branches.fork(name, from)
    }
    await branches.patch('main', 'items', 'a', { price: 3 })
    const before = await count(branches)
    for (const from of ['idle', 'idler', 'idlest']) {
      expect(await branches.pull('main', { from })).toMatchObject({ merged: false })
    }
    expect(await count(branches)).toEqual(before)
  })

  it('has a change that was undone, if a fork was taken in between', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.patch('dev', 'items', 'a', { price: 9 })
    await branches.fork('between', 'dev')
    await branches.patch('dev', 'items', 'a', { price: 1 })
    await branches.merge('dev')
    // `main` contains the change and its reversal, so the fork brings nothing.
    await branches.merge('between')
    expect(await branches.read('main', 'items', ['a'])).toMatchObject({ a: { price: 1 } })
  })

  it('has the deletion of a record that came by a merge, even if it was made again', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.put('dev', 'items', 'b', { name: 'B' })
    await branches.merge('dev')
    await branches.remove('main', 'items', 'b')
    await branches.fork('again')
    await branches.put('again', 'items', 'b', { name: 'B' })
    // `dev` contains the deletion from now on, and what was made after it.
    expect(await branches.merge('again', { into: 'dev' })).toMatchObject({ merged: true })
    await branches.pull('dev')
    expect(await branches.read('dev', 'items', ['b'])).toEqual({ b: { name: 'B' } })
  })

  it('knows a deletion from no change', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.fork('reader', 'dev')
    await branches.remove('dev', 'items', 'a')
    await branches.fork('between', 'dev')
    await branches.put('dev', 'items', 'a', { price: 1 })
    expect(await branches.merge('dev')).toMatchObject({ merged: true })
    expect(await branches.merge('between')).toMatchObject({ merged: false })
  })
})
