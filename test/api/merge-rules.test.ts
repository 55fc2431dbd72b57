import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * Rules that a merge brings to its target are judged by the outcome of the whole merge. The rows of the target that the
 * merge changes or deletes may break them until then.
 */

let service: TestService
/** A process that compares most merges without locks, and publishes them as layers. */
let large: TestService
let number = 0

beforeAll(async () => {
  const limits = { automaticCheckpointsMax: 20 }
  service = await createTestService({ limits })
  large = await createTestService({
    url: service.url,
    limits: { ...limits, mergeLockedRowsMax: 1 },
  })
})
afterAll(async () => {
  await large.close()
  await service.close()
})

type Values = Readonly<Record<string, unknown>>

/** A database with a table on `main`, and the fork `dev`. */
async function open(
  columns: readonly Column[],
  records: Readonly<Record<string, Values>>,
  via = service,
): Promise<TestBranches> {
  const created = await TestBranches.create(service, `rules${++number}`, { items: columns })
  const branches = created.through(via)
  for (const [id, values] of Object.entries(records)) {
    await branches.put('main', 'items', id, values)
  }
  await branches.fork('dev')
  return branches
}

async function altered(branches: TestBranches, branch: string, column: string, changes: Values) {
  const path = `/tables/items/columns/${column}`
  expectOk(await branches.call(branch, 'PATCH', path, changes))
}

async function definition(branches: TestBranches, name: string, branch = 'main') {
  const { columns } = expectOk(await branches.call(branch, 'GET', '/tables/items/columns')).body
  return columns.find((column: Column) => column.name === name)
}

const TEXT: Column = { name: 's', type: 'string' }
const TWINS = { a: { s: 'x' }, b: { s: 'x' }, c: { s: 'z' } }

describe.each([
  ['a small merge', () => service],
  ['a large merge', () => large],
])('%s that makes a column unique', (_, via) => {
  it('changes the values that repeat', async () => {
    const branches = await open([TEXT], TWINS, via())
    await branches.patch('dev', 'items', 'b', { s: 'y' })
    await branches.patch('dev', 'items', 'c', { s: 'w' })
    await altered(branches, 'dev', 's', { unique: true })
    await branches.merge('dev')
    expect(await branches.read('main', 'items', ['a', 'b', 'c'])).toEqual({
      a: { s: 'x' },
      b: { s: 'y' },
      c: { s: 'w' },
    })
    expect(await definition(branches, 's')).toEqual({ ...TEXT, unique: true })
    const taken = await branches.call('main', 'POST', '/tables/items/data', { s: 'y' })
    expect(taken).toMatchObject({ status: 400, body: { code: 'unique_violation' } })
  })

  it('deletes the records that repeat a value', async () => {
    const branches = await open([TEXT], TWINS, via())
    await branches.remove('dev', 'items', 'b', 'c')
    await altered(branches, 'dev', 's', { unique: true })
    await branches.merge('dev')
    expect(await branches.read('main', 'items', ['a', 'b', 'c'])).toEqual({ a: { s: 'x' } })
    const taken = await branches.call('main', 'POST', '/tables/items/data', { s: 'x' })
    expect(taken).toMatchObject({ status: 400, body: { code: 'unique_violation' } })
    await branches.put('main', 'items', 'd', { s: 'z' })
  })

  it('changes its type, too', async () => {
    const branches = await open([TEXT], { a: { s: '1' }, b: { s: '1' }, c: { s: '2' } }, via())
    await branches.patch('dev', 'items', 'b', { s: '3' })
    await branches.patch('dev', 'items', 'c', { s: '4' })
    await altered(branches, 'dev', 's', { type: 'int', unique: true })
    await branches.merge('dev')
    expect(await branches.read('main', 'items', ['a', 'b', 'c'])).toEqual({
      a: { s: 1 },
      b: { s: 3 },
      c: { s: 4 },
    })
    const taken = await branches.call('main', 'POST', '/tables/items/data', { s: 3 })
    expect(taken).toMatchObject({ status: 400, body: { code: 'unique_violation' } })
  })

  it('changes its type, by which values become equal', async () => {
    const unique: Column = { ...TEXT, unique: true }
    const branches = await open([unique], { a: { s: '1' }, b: { s: '01' }, c: { s: '2' } }, via())
    await branches.patch('dev', 'items', 'b', { s: '3' })
    await branches.patch('dev', 'items', 'c', { s: '4' })
    await altered(branches, 'dev', 's', { type: 'int' })
    await branches.merge('dev')
    expect(await branches.read('main', 'items', ['a', 'b', 'c'])).toEqual({
      a: { s: 1 },
      b: { s: 3 },
      c: { s: 4 },
    })
    const taken = await branches.call('main', 'POST', '/tables/items/data', { s: 4 })
    expect(taken).toMatchObject({ status: 400, body: { code: 'unique_violation' } })
  })

  it('adds it with a value for all records', async () => {
    const branches = await open([TEXT], { a: { s: '1' }, b: { s: '2' }, c: { s: '3' } }, via())
    const column: Column = { name: 'k', type: 'string', notNull: true, defaultValue: 'same' }
    await branches.edit('dev', { addColumn: { table: 'items', column } })
    await branches.patch('dev', 'items', 'b', { k: 'b' })
    await branches.patch('dev', 'items', 'c', { k: 'c' })
    await altered(branches, 'dev', 'k', { defaultValue: null, unique: true })
    await branches.merge('dev')
    expect(await branches.read('main', 'items', ['a', 'b', 'c'])).toEqual({
      a: { s: '1', k: 'same' },
      b: { s: '2', k: 'b' },
      c: { s: '3', k: 'c' },
    })
    const taken = await branches.call('main', 'POST', '/tables/items/data', { k: 'same' })
    expect(taken).toMatchObject({ status: 400, body: { code: 'unique_violation' } })
  })

  it('into a target that has none of its rows', async () => {
    const branches = await open([TEXT], TWINS, via())
    await branches.fork('empty')
    await branches.patch('dev', 'items', 'b', { s: 'y' })
    await branches.patch('dev', 'items', 'c', { s: 'w' })
    await altered(branches, 'dev', 's', { unique: true })
    expectOk(await branches.pulling('empty', { from: 'dev' }))
    for (const s of ['x', 'y', 'w']) {
      const taken = await branches.call('empty', 'POST', '/tables/items/data', { s })
      expect(taken).toMatchObject({ status: 400, body: { code: 'unique_violation' } })
    }
    await branches.put('empty', 'items', 'd', { s: 'z' })
  })

  it('takes a value that settles what repeats', async () => {
    const branches = await open([TEXT], { a: { s: '1' }, b: { s: '2' } }, via())
    await altered(branches, 'dev', 's', { unique: true })
    await branches.patch('main', 'items', 'b', { s: '1' })
    await branches.bulk('dev', 'items', [{ s: '5' }, { s: '6' }])
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts).toMatchObject([{ kind: 'notUnique', column: 's', ids: ['a', 'b'] }])
    const columns = { s: { value: 'new' } }
    const token = conflicts[0].tokens.b
    await branches.merge('dev', { resolutions: [{ table: 'items', id: 'b', columns, token }] })
    expect(await branches.read('main', 'items', ['a', 'b'])).toEqual({
      a: { s: '1' },
      b: { s: 'new' },
    })
  })

  it('is reverted with values that differ', async () => {
    const branches = await open(
      [{ ...TEXT, unique: true }],
      { a: { s: '1' }, b: { s: '2' } },
      via(),
    )
    await altered(branches, 'main', 's', { unique: false })
    const { entries } = expectOk(await branches.call('main', 'GET', '/log')).body
    const [{ id: entry }] = entries
    await branches.patch('main', 'items', 'b', { s: '1' })
    const revert = (fields: object) =>
      branches.call('main', 'POST', '/revert', { entry, ...fields })
    const { conflicts } = expectOk(await revert({ dryRun: true })).body
    const columns = { s: { value: null } }
    const token = conflicts[0].tokens.b
    expectOk(await revert({ resolutions: [{ table: 'items', id: 'b', columns, token }] }))
    expect(await definition(branches, 's')).toEqual({ ...TEXT, unique: true })
    expect(await branches.read('main', 'items', ['a', 'b'])).toEqual({ a: { s: '1' }, b: {} })
  })
})

const NUMBER: Column = { name: 'n', type: 'int' }

type Rule = { check: string } | Column

async function addRule(branches: TestBranches, branch: string, rule: Rule) {
  if ('check' in rule) {
    expectOk(await branches.call(branch, 'PUT', '/tables/items/constraints/rule', rule))
  } else await branches.edit(branch, { addColumn: { table: 'items', column: rule } })
}

describe.each([
  ['a small merge', () => service],
  ['a large merge', () => large],
])('%s that brings a rule which cannot be evaluated for a record', (_, via) => {
  it.each<[string, Rule, Column, unknown, unknown]>([
    ['a check', { check: '1 / n > 0' }, NUMBER, 0, 1],
    ['a quotient', { name: 'r', type: 'float', computed: '1.0 / n' }, NUMBER, 0, 2],
    [
      'a conversion',
      { name: 'r', type: 'int', computed: 'n::int' },
      { ...NUMBER, type: 'string' },
      'x',
      '1',
    ],
    [
      'a product',
      { name: 'r', type: 'int', computed: 'n * 1000000000000' },
      NUMBER,
      2 ** 53 - 1,
      1,
    ],
  ])('reports the record, and takes another value: %s', async (_name, rule, column, bad, good) => {
    const branches = await open([column], { a: { n: good }, b: { n: good } }, via())
    await addRule(branches, 'dev', rule)
    await branches.bulk('dev', 'items', [{ n: good }, { n: good }])
    await branches.put('main', 'items', 'z', { n: bad })
    const expected = { kind: 'check', table: 'items', ids: ['z'], records: 1 }
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts).toMatchObject([expected])
    expect(await branches.merging('dev')).toMatchObject({
      status: 409,
      body: { code: 'merge_conflict', conflicts: [expected] },
    })
    // The other way, the record comes with the merge.
    expect((await branches.pull('dev', { dryRun: true })).conflicts).toMatchObject([expected])
    expect(await branches.pulling('dev')).toMatchObject({
      status: 409,
      body: { code: 'merge_conflict', conflicts: [expected] },
    })
    const columns = { n: { value: good } }
    const token = conflicts[0].tokens.z
    await branches.merge('dev', { resolutions: [{ table: 'items', id: 'z', columns, token }] })
    expect(await branches.read('main', 'items', ['z'])).toMatchObject({ z: { n: good } })
  })
})

describe('a merge', () => {
  it('reports a record for which a changed expression cannot be evaluated', async () => {
    const branches = await open([NUMBER], { a: { n: 5 } })
    await branches.edit('main', {
      addColumn: { table: 'items', column: { name: 'r', type: 'float', computed: '1.0 / n' } },
    })
    await branches.pull('dev')
    await altered(branches, 'dev', 'r', { computed: '1.0 / (n - 1)' })
    await branches.put('main', 'items', 'z', { n: 1 })
    expect((await branches.merging('dev')).body.conflicts).toMatchObject([
      { kind: 'check', table: 'items', column: 'r', ids: ['z'], records: 1 },
    ])
    await branches.put('main', 'items', 'z', { n: 2 })
    await branches.merge('dev')
    expect(await branches.read('main', 'items', ['z'])).toEqual({ z: { n: 2, r: 1 } })
  })

  it('reports records that fail a check and those for which it cannot be evaluated', async () => {
    const branches = await open([NUMBER], { a: { n: 1 } })
    await addRule(branches, 'dev', { check: '10 / n > 1' })
    const values = [0, 20, 2, 0, 30]
    for (const [index, n] of values.entries()) {
      await branches.put('main', 'items', `m${index}`, { n })
    }
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    const ids = ['m0', 'm1', 'm3', 'm4']
    expect(conflicts).toMatchObject([{ kind: 'check', constraint: 'rule', ids, records: 4 }])
    // A deleted record needs no value, and neither does one that the merge does not write.
    await branches.remove('main', 'items', 'm0', 'm1', 'm3', 'm4')
    await branches.merge('dev')
  })

  it('reports at least as many records as it lists', async () => {
    const branches = await open([NUMBER], { a: { n: 1 } })
    await addRule(branches, 'dev', { check: '10 / n > 1' })
    const records = Array.from({ length: 1100 }, (_, index) => ({ id: `r${1000 + index}`, n: 2 }))
    await branches.bulk('main', 'items', records)
    const failing = records.slice(-30).map(({ id }) => id)
    for (const id of failing) await branches.patch('main', 'items', id, { n: 0 })
    const [conflict] = (await branches.merge('dev', { dryRun: true })).conflicts
    expect(conflict).toMatchObject({ kind: 'check', ids: failing.slice(0, 10), records: 10 })
    expect(conflict.message).toContain('at least 10 records')
  })

  it('does not evaluate a check for records that it deletes or replaces', async () => {
    const branches = await open([NUMBER], { a: { n: 0 }, b: { n: 0 }, c: { n: 1 } })
    await branches.remove('dev', 'items', 'a')
    await branches.patch('dev', 'items', 'b', { n: 2 })
    await addRule(branches, 'dev', { check: '10 / n > 1' })
    await branches.merge('dev')
    expect(await branches.read('main', 'items', ['a', 'b', 'c'])).toEqual({
      b: { n: 2 },
      c: { n: 1 },
    })
  })
})

describe('a revert', () => {
  it('brings back no check that cannot be evaluated for a record', async () => {
    const branches = await open([NUMBER], { a: { n: 1 }, b: { n: 1 } })
    const path = '/tables/items/constraints/d'
    expectOk(await branches.call('main', 'PUT', path, { check: '10 / n > 0' }))
    expectOk(await branches.call('main', 'DELETE', path))
    const [{ id: entry }] = expectOk(await branches.call('main', 'GET', '/log')).body.entries
    await branches.patch('main', 'items', 'b', { n: 0 })
    const revert = (fields: object) =>
      branches.call('main', 'POST', '/revert', { entry, ...fields })
    const { conflicts } = expectOk(await revert({ dryRun: true })).body
    expect(conflicts).toMatchObject([{ kind: 'check', constraint: 'd', ids: ['b'], records: 1 }])
    expect(await revert({})).toMatchObject({ status: 409, body: { code: 'merge_conflict' } })
    const token = conflicts[0].tokens.b
    const columns = { n: { value: 5 } }
    expectOk(await revert({ resolutions: [{ table: 'items', id: 'b', columns, token }] }))
    expect(await branches.read('main', 'items', ['b'])).toEqual({ b: { n: 5 } })
  })
})
