import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'

/*
 * A merge is judged by its outcome, and the first dry run shows everything that is wrong with it.
 */

let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const USERS: readonly Column[] = [
  { name: 'email', type: 'email', unique: true },
  { name: 'number', type: 'int', unique: true },
  { name: 'name', type: 'text' },
]
const at = (name: string) => `${name}@example.com`

/** Creates a database with three users on `main` and a fork `dev`. */
async function open() {
  const branches = await TestBranches.create(service, `outcome${++number}`, { users: USERS })
  await branches.bulk(
    'main',
    'users',
    ['a', 'b', 'c'].map((id, index) => ({ id, email: at(id), number: index, name: id })),
  )
  await branches.fork('dev')
  return branches
}

describe('a new column that must have a value', () => {
  const required = {
    addColumn: { table: 'users', column: { name: 'by', type: 'string', notNull: true } },
  } as const

  it.each(['main', 'fork'])(
    'goes into %s if the same merge deletes the records without one',
    async (target) => {
      const branches = await open()
      if (target === 'fork') await branches.fork('fork')
      await branches.remove('dev', 'users', 'a', 'b', 'c')
      await branches.edit('dev', required)
      await branches.put('dev', 'users', 'd', { email: at('d'), by: 'me' })
      const options = { into: target }
      expect(await branches.merge('dev', { ...options, dryRun: true })).toMatchObject({
        conflictCount: 0,
        tables: [{ inserted: 1, deleted: 3 }],
      })
      expect(await branches.merge('dev', options)).toMatchObject({ merged: true })
      expect(await branches.read(target, 'users', ['a', 'd'])).toEqual({
        d: { email: at('d'), by: 'me' },
      })
      const refused = await branches.call(target, 'PUT', '/tables/users/data/x', {})
      expect(refused.status).toBe(400)
    },
  )

  it('is in conflict for each record that would stay without one', async () => {
    const branches = await open()
    await branches.remove('dev', 'users', 'a', 'b', 'c')
    await branches.edit('dev', required)
    // `main` has changed one record, so the strategy `ours` keeps it, and has a new one.
    await branches.patch('main', 'users', 'b', { name: 'kept' })
    await branches.put('main', 'users', 'e', { name: 'new' })
    const { conflicts, conflictCount } = await branches.merge('dev', {
      strategy: 'ours',
      dryRun: true,
    })
    expect(conflicts).toEqual([
      {
        table: 'users',
        column: 'by',
        kind: 'notNull',
        ids: ['b', 'e'],
        tokens: { b: expect.any(String), e: expect.any(String) },
        records: 2,
        message: 'column [by]: is required; 2 records would have no value after the merge',
      },
    ])
    expect(conflictCount).toBe(1)
    await branches.remove('main', 'users', 'b', 'e')
    expect(await branches.merge('dev', { strategy: 'ours' })).toMatchObject({ merged: true })
  })
})

describe('values of unique columns that two records would have', () => {
  it.each(['main', 'fork'])(
    'are all in the first dry run into %s, beside other conflicts',
    async (target) => {
      const branches = await open()
      if (target === 'fork') await branches.fork('fork')
      // Two new records of both sides, a value that both took, and a value of an old record.
      await branches.put(target, 'users', 'd', { email: at('x'), number: 100 })
      await branches.put('dev', 'users', 'e', { email: at('x'), number: 100 })
      await branches.patch(target, 'users', 'b', { number: 200 })
      await branches.patch('dev', 'users', 'c', { number: 200 })
      await branches.patch(target, 'users', 'a', { name: 'here' })
      await branches.patch('dev', 'users', 'a', { name: 'there' })
      const unique = (column: string, ids: string[], value: unknown) => ({
        table: 'users',
        column,
        kind: 'notUnique',
        ids,
        tokens: Object.fromEntries(ids.map((id) => [id, expect.any(String)])),
        value,
        message: `column [${column}]: is not unique after the merge`,
      })
      const options = { into: target }
      const dry = await branches.merge('dev', { ...options, dryRun: true })
      expect(dry).toMatchObject({ merged: false, conflictCount: 4 })
      expect(dry.conflicts).toEqual([
        expect.objectContaining({ id: 'a', kind: 'bothUpdated' }),
        unique('email', ['d', 'e'], at('x')),
        unique('number', ['b', 'c'], 200),
        unique('number', ['d', 'e'], 100),
      ])
      const refused = await branches.merging('dev', options)
      expect([refused.status, refused.body.conflicts]).toEqual([409, dry.conflicts])
      // No strategy decides them, but changing the values does.
      const settled = { ...options, strategy: 'theirs' }
      expect((await branches.merging('dev', settled)).body.conflictCount).toBe(3)
      await branches.patch('dev', 'users', 'e', { email: at('e'), number: 101 })
      await branches.patch('dev', 'users', 'c', { number: 201 })
      expect(await branches.merge('dev', settled)).toMatchObject({ merged: true })
    },
  )

  it('are counted all, and listed up to a hundred for each table', async () => {
    const branches = await open()
    const records = (side: string) =>
      Array.from({ length: 130 }, (_, index) => ({ id: `${side}${index}`, email: at(`n${index}`) }))
    await branches.bulk('main', 'users', records('main'))
    await branches.bulk('dev', 'users', records('dev'))
    const { conflicts, conflictCount } = await branches.merge('dev', { dryRun: true })
    expect([conflicts.length, conflictCount]).toEqual([100, 130])
    expect(conflicts[0].ids).toHaveLength(2)
  })

  it('of three records are one conflict with all ids', async () => {
    const branches = await open()
    await branches.fork('other')
    await branches.put('dev', 'users', 'd', { number: 7 })
    await branches.put('other', 'users', 'e', { number: 7 })
    await branches.put('main', 'users', 'f', { number: 8 })
    await branches.merge('dev')
    const { conflicts } = await branches.merge('other', { dryRun: true })
    expect(conflicts).toMatchObject([{ ids: ['d', 'e'], value: 7 }])
  })
})

describe('conflicts of large records', () => {
  it('are counted all, and listed up to a few megabytes', async () => {
    const branches = await open()
    const ids = ['d', 'e', 'f', 'g', 'h']
    const large = (letter: string) =>
      ids.map((id) => ({ id, name: `${letter}${letter.repeat(900_000)}` }))
    await branches.bulk('main', 'users', large('m'))
    await branches.bulk('dev', 'users', large('d'))
    const { conflicts, conflictCount } = await branches.merge('dev', { dryRun: true })
    expect(conflictCount).toBe(5)
    expect(conflicts.map(({ id }: { id: string }) => id)).toEqual(['d', 'e'])
  })
})
