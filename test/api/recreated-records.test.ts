import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { foldBranches } from '../support/folding.js'
import { Random } from '../support/seeded-random.js'
import { createTestService, type TestService } from '../support/service.js'

/*
 * A record that is deleted and created anew has the version 0 of its predecessor. Nothing may take it for the same
 * record: comparisons go by places, epochs and values.
 */

let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

/** Changes of tables with unique columns are staged in more merges than those of others. */
describe.each(['items', 'users'])('a record of %s that is created anew', (table) => {
  /** Creates `main` with two records, and its fork `dev`. */
  async function open(): Promise<TestBranches> {
    const branches = await TestBranches.create(service, `anew${++number}`, {
      items: [{ name: 'price', type: 'int' }],
      users: [
        { name: 'price', type: 'int' },
        { name: 'code', type: 'string', unique: true },
      ],
    })
    await branches.bulk('main', table, [
      { id: 'a', price: 1 },
      { id: 'b', price: 1 },
    ])
    await branches.fork('dev')
    return branches
  }

  /** Deletes a record of version 0 and creates it anew, with version 0. */
  async function recreate(branches: TestBranches, branch: string, price: number): Promise<void> {
    const isFirst = { service: { version: 0 } }
    expect(await branches.record(branch, table, 'a')).toMatchObject(isFirst)
    await branches.remove(branch, table, 'a')
    await branches.put(branch, table, 'a', { price })
    expect(await branches.record(branch, table, 'a')).toMatchObject(isFirst)
  }

  const prices = async (branches: TestBranches, branch: string) =>
    branches.read(branch, table, ['a', 'b'])

  const counts = async (branches: TestBranches) => {
    const { tables } = await branches.diff('dev')
    const { inserted, updated, deleted } = tables.find(
      ({ name }: { name: string }) => name === table,
    ) ?? { inserted: 0, updated: 0, deleted: 0 }
    return [inserted, updated, deleted]
  }

  it('is in the difference of its branch, unless it has the same value', async () => {
    const branches = await open()
    await recreate(branches, 'dev', 1)
    expect(await counts(branches)).toEqual([0, 0, 0])
    await recreate(branches, 'dev', 2)
    expect(await counts(branches)).toEqual([0, 1, 0])
    await recreate(branches, 'main', 3)
    expect(await counts(branches)).toEqual([0, 1, 0])
  })

  it.each(['merge', 'pull'])('is brought by a %s, again and again', async (way) => {
    const branches = await open()
    const [from, into] = way === 'merge' ? ['dev', 'main'] : ['main', 'dev']
    for (const price of [2, 3, 1]) {
      await recreate(branches, from, price)
      if (way === 'merge') await branches.merge('dev')
      else await branches.pull('dev')
      expect(await prices(branches, into)).toEqual({ a: { price }, b: { price: 1 } })
    }
  })

  it('on the target is in conflict with a change', async () => {
    const branches = await open()
    await recreate(branches, 'main', 2)
    await branches.patch('dev', table, 'a', { price: 3 })
    await branches.patch('dev', table, 'b', { price: 3 })
    const { status, body } = await branches.merging('dev')
    expect(status).toBe(409)
    expect(body.conflicts).toMatchObject([{ id: 'a' }])
    expect(await prices(branches, 'main')).toEqual({ a: { price: 2 }, b: { price: 1 } })
  })

  it('on both branches is in conflict with itself', async () => {
    const branches = await open()
    await recreate(branches, 'main', 2)
    await recreate(branches, 'dev', 3)
    const { status, body } = await branches.merging('dev')
    expect(status).toBe(409)
    expect(body.conflicts).toMatchObject([{ id: 'a' }])
  })

  it.each(['dev', 'main'])('on %s is in conflict with a deletion', async (branch) => {
    const branches = await open()
    await recreate(branches, branch, 2)
    await branches.remove(branch === 'dev' ? 'main' : 'dev', table, 'a')
    const { status, body } = await branches.merging('dev')
    expect([status, body.conflicts.length]).toEqual([409, 1])
  })

  it('stays on the target if the source has not changed it', async () => {
    const branches = await open()
    await branches.patch('dev', table, 'b', { price: 5 })
    await branches.merge('dev')
    await recreate(branches, 'main', 2)
    await branches.patch('dev', table, 'b', { price: 6 })
    await branches.merge('dev')
    expect(await prices(branches, 'main')).toEqual({ a: { price: 2 }, b: { price: 6 } })
  })

  it('is read from a fold, and merged from there', async () => {
    const branches = await open()
    await recreate(branches, 'dev', 2)
    await branches.fork('one', 'dev')
    await recreate(branches, 'one', 3)
    await branches.fork('two', 'one')
    await recreate(branches, 'dev', 4)
    const options = { databaseName: branches.database, random: new Random(1), probability: 1 }
    expect(await foldBranches(service, options)).toBeGreaterThan(0)
    expect(await prices(branches, 'two')).toEqual({ a: { price: 3 }, b: { price: 1 } })
    await recreate(branches, 'two', 5)
    await branches.merge('two', { into: 'one' })
    expect(await prices(branches, 'one')).toEqual({ a: { price: 5 }, b: { price: 1 } })
  })
})
