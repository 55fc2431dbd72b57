import type { Column } from '@offshoot/contract/schema'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { StoredBranch } from '../../packages/server/src/rows/stored-branch.js'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'
import { watchQueries } from '../support/watch-queries.js'

/*
 * A merge writes rows that the target has not changed without staging them. The statements of the service show whether
 * it did. The outcome must be the same in both ways.
 */

let service: TestService
let number = 0
let stages = 0
let counts = 0

/** Creates a stage of a merge. On a cluster, it is a table of a node. */
const CREATES_STAGE = /^\s*create (temporary table pg_temp\."|unlogged table .*_)merge_ids"/

beforeAll(async () => {
  const tracing = watchQueries((statements) => {
    stages += statements.filter((statement) => CREATES_STAGE.test(statement)).length
    counts += statements.filter((statement) => statement.includes('count(distinct id)')).length
  })
  service = await createTestService({ tracing })
})
afterAll(() => service.close())

const ITEMS: readonly Column[] = [
  { name: 'name', type: 'string' },
  { name: 'price', type: 'int' },
]
const USERS: readonly Column[] = [
  { name: 'code', type: 'string', unique: true },
  { name: 'place', type: 'int', unique: true },
]

/** The target of a merge: a branch without a parent, one that inherits its rows, and one that has written them. */
const TARGETS = ['main', 'heir', 'writer'] as const
type Target = (typeof TARGETS)[number]

/** Creates a target with records `a` to `e` in both tables, and its forks `old` and `dev`. */
async function open(target: Target): Promise<TestBranches> {
  const tables = { items: ITEMS, users: USERS, empty: [] }
  const branches = await TestBranches.create(service, `forward${++number}`, tables)
  if (target === 'writer') {
    for (const table of Object.keys(tables)) await branches.put('main', table, 'z', {})
    await branches.fork('writer')
  }
  const first = target === 'writer' ? 'writer' : 'main'
  for (const [index, id] of [...'abcde'].entries()) {
    await branches.put(first, 'items', id, { name: id, price: index })
    await branches.put(first, 'users', id, { code: id, place: index })
    await branches.put(first, 'empty', id, {})
  }
  if (target === 'heir') await branches.fork('heir')
  await branches.fork('old', target)
  await branches.fork('dev', target)
  return branches
}

/** Replaces `dev` by a new fork of the target. */
async function renew(branches: TestBranches, target: Target): Promise<void> {
  await branches.delete('dev')
  await branches.fork('dev', target)
}

/** Merges `dev`, and returns what that did and whether rows were staged. */
async function merge(branches: TestBranches, into: Target) {
  const before = stages
  const { tables } = await branches.merge('dev', { into })
  return { tables, isStaged: stages > before }
}

const IDS = [...'abcdefgh']
const read = (branches: TestBranches, branch: string, table = 'items') =>
  branches.read(branch, table, IDS)

/** Returns version and creation time of a record. */
async function metadata(branches: TestBranches, branch: string, id: string) {
  const { version, createdAt } = (await branches.record(branch, 'items', id)).service
  return { version, createdAt }
}

/** Returns the version of a record. */
async function versionOf(branches: TestBranches, branch: string, id: string): Promise<number> {
  return (await metadata(branches, branch, id)).version
}

describe.each(TARGETS)('a merge into %s', (into) => {
  it('writes changes without staging them', async () => {
    const branches = await open(into)
    const before = await read(branches, 'old')
    const { createdAt } = await metadata(branches, into, 'a')
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.patch('dev', 'items', 'a', { price: 11 })
    await branches.remove('dev', 'items', 'b')
    await branches.put('dev', 'items', 'f', { name: 'new' })
    expect(await merge(branches, into)).toEqual({
      isStaged: false,
      tables: [{ name: 'items', inserted: 1, updated: 1, deleted: 1 }],
    })
    const { b: _, ...kept } = before
    const after = { ...kept, a: { name: 'a', price: 11 }, f: { name: 'new' } }
    expect(await read(branches, into)).toEqual(after)
    // One merge is one change, whatever the branch has done before.
    expect(await metadata(branches, into, 'a')).toEqual({ version: 1, createdAt })
    expect([await versionOf(branches, into, 'c'), await versionOf(branches, into, 'f')]).toEqual([
      0, 0,
    ])
    // The records from before are kept for the fork, and a later one has the merged records.
    expect(await read(branches, 'old')).toEqual(before)
    await branches.fork('later', into)
    expect(await read(branches, 'later')).toEqual(after)
    await branches.patch(into, 'items', 'a', { price: 12 })
    expect(await read(branches, 'later')).toEqual(after)
  })

  it('writes records of a table without columns', async () => {
    const branches = await open(into)
    await branches.put('dev', 'empty', 'f', {})
    await branches.remove('dev', 'empty', 'a', 'b')
    expect(await merge(branches, into)).toEqual({
      isStaged: false,
      tables: [{ name: 'empty', inserted: 1, updated: 0, deleted: 2 }],
    })
    expect(Object.keys(await read(branches, into, 'empty'))).toEqual([...'cdef'])
    expect(Object.keys(await read(branches, 'old', 'empty'))).toEqual([...'abcde'])
  })

  it('counts only records that are different in the end', async () => {
    const branches = await open(into)
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.patch('dev', 'items', 'a', { price: 0 })
    await branches.remove('dev', 'items', 'b')
    await branches.put('dev', 'items', 'b', { name: 'b', price: 1 })
    await branches.put('dev', 'items', 'f', { name: 'gone' })
    await branches.remove('dev', 'items', 'f')
    await branches.patch('dev', 'items', 'c', { price: null })
    expect(await merge(branches, into)).toMatchObject({
      isStaged: false,
      tables: [{ name: 'items', inserted: 0, updated: 1, deleted: 0 }],
    })
    expect(await read(branches, into)).toMatchObject({ a: { price: 0 }, c: { name: 'c' } })
    expect([await versionOf(branches, into, 'a'), await versionOf(branches, into, 'b')]).toEqual([
      0, 0,
    ])
  })

  it('writes records beside those that the target has changed', async () => {
    const branches = await open(into)
    await branches.patch(into, 'items', 'a', { price: 20 })
    await branches.remove(into, 'items', 'b')
    await branches.put(into, 'items', 'f', { name: 'target' })
    await branches.patch('dev', 'items', 'c', { price: 30 })
    await branches.remove('dev', 'items', 'd')
    await branches.put('dev', 'items', 'g', { name: 'dev' })
    expect(await merge(branches, into)).toEqual({
      isStaged: false,
      tables: [{ name: 'items', inserted: 1, updated: 1, deleted: 1 }],
    })
    expect(await read(branches, into)).toEqual({
      a: { name: 'a', price: 20 },
      c: { name: 'c', price: 30 },
      e: { name: 'e', price: 4 },
      f: { name: 'target' },
      g: { name: 'dev' },
    })
  })

  it.each([
    ['updated', (branches: TestBranches) => branches.patch(into, 'items', 'a', { price: 20 })],
    ['deleted', (branches: TestBranches) => branches.remove(into, 'items', 'a')],
  ])('stages the changes if the target has %s one of the records', async (what, change) => {
    const branches = await open(into)
    await change(branches)
    await branches.patch('dev', 'items', 'a', { name: 'dev' })
    await branches.patch('dev', 'items', 'b', { name: 'dev' })
    if (what === 'deleted') {
      const { status, body } = await branches.merging('dev', { into })
      expect([status, body.conflicts[0]?.id]).toEqual([409, 'a'])
      expect(await read(branches, into)).toMatchObject({ b: { name: 'b' } })
      return
    }
    expect(await merge(branches, into)).toMatchObject({ isStaged: true })
    expect(await read(branches, into)).toMatchObject({
      a: { name: 'dev', price: 20 },
      b: { name: 'dev', price: 1 },
    })
  })

  it('stages the changes if both sides have added a record of one id', async () => {
    const branches = await open(into)
    await branches.put(into, 'items', 'f', { name: 'target' })
    await branches.put('dev', 'items', 'f', { name: 'dev' })
    const { status, body } = await branches.merging('dev', { into })
    expect([status, body.conflicts[0]?.id]).toEqual([409, 'f'])
  })

  it('stages the changes of a table to which the target has added a column', async () => {
    const branches = await open(into)
    const column = { name: 'size', type: 'int', notNull: true, defaultValue: '5' } as const
    await branches.edit(into, { addColumn: { table: 'items', column } })
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.put('dev', 'items', 'f', { name: 'dev' })
    expect(await merge(branches, into)).toMatchObject({ isStaged: true })
    expect(await read(branches, into)).toMatchObject({
      a: { name: 'a', price: 10, size: 5 },
      f: { name: 'dev', size: 5 },
    })
  })

  it('stages all tables if one of them has to be', async () => {
    const branches = await open(into)
    await branches.patch(into, 'items', 'a', { price: 20 })
    await branches.patch('dev', 'items', 'a', { name: 'dev' })
    await branches.put('dev', 'empty', 'f', {})
    expect(await merge(branches, into)).toEqual({
      isStaged: true,
      tables: [
        { name: 'items', inserted: 0, updated: 1, deleted: 0 },
        { name: 'empty', inserted: 1, updated: 0, deleted: 0 },
      ],
    })
    expect(Object.keys(await read(branches, into, 'empty'))).toEqual([...'abcdef'])
  })

  it('moves unique values between records', async () => {
    const branches = await open(into)
    const update = (id: string, fields: object) => ({ update: { table: 'users', id, fields } })
    // `a`, `b` and `c` pass their codes on, `f` takes that of the deleted `d`. `e` takes the place of `d`.
    const { status } = await branches.call('dev', 'POST', '/transaction', {
      operations: [
        ...[...'abc'].map((id) => update(id, { code: null })),
        update('a', { code: 'b' }),
        update('b', { code: 'c' }),
        update('c', { code: 'a' }),
        { delete: { table: 'users', id: 'd' } },
        { insert: { table: 'users', record: { id: 'f', code: 'd' } } },
        update('e', { place: 3 }),
      ],
    })
    expect(status).toBe(200)
    const before = await read(branches, into, 'users')
    expect(await merge(branches, into)).toEqual({
      isStaged: false,
      tables: [{ name: 'users', inserted: 1, updated: 4, deleted: 1 }],
    })
    expect(await read(branches, into, 'users')).toEqual({
      a: { code: 'b', place: 0 },
      b: { code: 'c', place: 1 },
      c: { code: 'a', place: 2 },
      e: { code: 'e', place: 3 },
      f: { code: 'd' },
    })
    expect(await read(branches, 'old', 'users')).toEqual(before)
    const versions = await Promise.all([...'abcef'].map((id) => branches.record(into, 'users', id)))
    expect(versions.map((record) => record.service.version)).toEqual([1, 1, 1, 1, 0])
    const taken = await branches.call(into, 'PUT', '/tables/users/data/g', { code: 'd' })
    expect(taken.status).toBe(400)
    await branches.put(into, 'users', 'g', { place: 4 })
  })

  it('stages the changes of a table with unique columns if the target has changed it', async () => {
    const branches = await open(into)
    await branches.put(into, 'users', 'f', { code: 'x' })
    await branches.put('dev', 'users', 'g', { code: 'x' })
    const { status, body } = await branches.merging('dev', { into })
    expect([status, body.conflicts]).toMatchObject([409, [{ kind: 'notUnique', value: 'x' }]])
    await branches.put('dev', 'users', 'g', { code: 'y' })
    expect(await merge(branches, into)).toMatchObject({ isStaged: true })
    expect(await read(branches, into, 'users')).toMatchObject({
      f: { code: 'x' },
      g: { code: 'y' },
    })
  })

  it('starts created records at version 0, whatever was deleted before', async () => {
    const branches = await open(into)
    // `a` was changed and deleted before `dev` was forked, `b` is made anew by `dev`.
    for (const price of [10, 11, 12]) await branches.patch(into, 'items', 'a', { price })
    await branches.remove(into, 'items', 'a')
    await renew(branches, into)
    await branches.put('dev', 'items', 'a', { name: 'again' })
    await branches.remove('dev', 'items', 'b')
    await branches.put('dev', 'items', 'b', { name: 'again' })
    const { createdAt } = await metadata(branches, into, 'b')
    expect(await merge(branches, into)).toEqual({
      isStaged: false,
      tables: [{ name: 'items', inserted: 1, updated: 1, deleted: 0 }],
    })
    expect(await versionOf(branches, into, 'a')).toBe(0)
    expect(await metadata(branches, into, 'b')).toEqual({ version: 1, createdAt })
    // Deleted by a merge, and created again by the next one.
    await renew(branches, into)
    await branches.remove('dev', 'items', 'a')
    expect(await merge(branches, into)).toMatchObject({ isStaged: false })
    expect(await branches.record(into, 'items', 'a')).toBeUndefined()
    await renew(branches, into)
    await branches.put('dev', 'items', 'a', { name: 'third' })
    expect(await merge(branches, into)).toMatchObject({ isStaged: false })
    expect(await versionOf(branches, into, 'a')).toBe(0)
    expect(await read(branches, into)).toMatchObject({ a: { name: 'third' } })
  })
})

/** The nodes of a plan that was executed, from the log of PostgreSQL. */
interface PlanNode {
  readonly [key: string]: unknown
  readonly Plans?: readonly PlanNode[]
}

/** Returns the rows that a plan has looked at, including pairs of rows that a join has rejected. */
function rowsVisited(node: PlanNode): number {
  const numberOf = (key: string) => Number(node[key] ?? 0)
  const rows =
    numberOf('Actual Rows') +
    numberOf('Rows Removed by Filter') +
    numberOf('Rows Removed by Join Filter')
  const inner = (node.Plans ?? []).map(rowsVisited)
  return inner.reduce((sum, each) => sum + each, rows * numberOf('Actual Loops'))
}

describe('a merge of as many rows as are not staged', () => {
  let explaining: TestService
  let isAllowed = true
  const plans: { text: string; rows: number }[] = []

  /** Makes PostgreSQL send the plan of each statement that it has executed. */
  function explain(client: pg.PoolClient): void {
    client.on('notice', ({ message }) => {
      const start = message?.indexOf('{') ?? -1
      if (message === undefined || start < 0) return
      const { 'Query Text': text, Plan: root } = JSON.parse(message.slice(start))
      plans.push({ text, rows: rowsVisited(root) })
    })
    client
      .query(`
        load 'auto_explain';
        set auto_explain.log_analyze = on;
        set auto_explain.log_timing = off;
        set auto_explain.log_format = json;
        set auto_explain.log_min_duration = 0;
        set client_min_messages = log`)
      .catch(() => {
        isAllowed = false
      })
  }

  beforeAll(async () => {
    explaining = await createTestService({
      tracing: { watch: explain, startCall: () => undefined },
    })
  })
  afterAll(() => explaining.close())

  it('takes time in proportion to their number', async (context) => {
    if (!isAllowed) context.skip('the role of the tests cannot load [auto_explain]')
    if (explaining.database.server.isCluster) context.skip('plans of nodes are not explained here')
    const count = 1800
    const part = count / 3
    const idOf = (index: number) => `r${String(index).padStart(4, '0')}`
    const upTo = (length: number) => Array.from({ length }, (_, index) => index)
    const branches = await TestBranches.create(explaining, 'many', { users: USERS })
    const records = upTo(count).map((index) => ({ id: idOf(index), code: `c${index}` }))
    await branches.bulk('main', 'users', records)
    await branches.fork('heir')
    for (const into of ['main', 'heir']) {
      const dev = `dev-${into}`
      await branches.fork(dev, into)
      // Each of the first records takes the code of the next one.
      for (const codeOf of [() => null, (index: number) => `c${(index + 1) % part}`]) {
        const operations = upTo(part).map((index) => ({
          update: { table: 'users', id: idOf(index), fields: { code: codeOf(index) } },
        }))
        expectOk(await branches.call(dev, 'POST', '/transaction', { operations }))
      }
      await branches.call(dev, 'POST', '/transaction', {
        operations: upTo(part).map((index) => ({
          delete: { table: 'users', id: idOf(part + index) },
        })),
      })
      await branches.bulk(
        dev,
        'users',
        upTo(part).map((index) => ({ id: `${dev}${index}`, code: `${dev}${index}` })),
      )
      plans.length = 0
      const { tables } = await branches.merge(dev, { into })
      expect(tables).toEqual([{ name: 'users', inserted: part, updated: part, deleted: part }])
      expect(plans.some(({ text }) => text.includes('merge_ids'))).toBe(false)
      // A nested loop over all pairs of rows would visit more than a million.
      const costly = plans.filter(({ rows }) => rows > 50 * count)
      expect(costly.map(({ text, rows }) => ({ text, rows }))).toEqual([])
      expect(plans.some(({ rows }) => rows > count)).toBe(true)
    }
  })
})

describe('a merge that turns out to bring nothing new', () => {
  it('leaves no trace in a target that has written nothing', async () => {
    const branches = await open('heir')
    await branches.patch('dev', 'items', 'b', { price: 9 })
    await branches.patch('dev', 'items', 'b', { price: 1 })
    const stateOf = async () => {
      const [row] = await service.database.query(sql`
        select b.stamp, b.epoch,
          (select count(*)::integer from offshoot.heaps h where h.branch_id = b.id) as heaps,
          (select count(*)::integer from offshoot.merges m where m.into_branch_id = b.id) as merges
        from offshoot.branches b join offshoot.databases d on d.id = b.database_id
        where b.name = 'heir' and d.name = ${branches.database}`)
      return row
    }
    const before = await stateOf()
    expect(before).toMatchObject({ heaps: 0, merges: 0 })
    const result = await branches.merge('dev', { into: 'heir' })
    expect(result).toMatchObject({ merged: false })
    expect(await stateOf()).toEqual(before)
    await branches.patch('dev', 'items', 'b', { price: 8 })
    expect(await branches.merge('dev', { into: 'heir' })).toMatchObject({ merged: true })
    expect(await stateOf()).toMatchObject({ heaps: 1, merges: 1 })
    expect(await branches.record('heir', 'items', 'b')).toMatchObject({ price: 8 })
  })

  it('for some of its tables opens only the others in the target', async () => {
    const branches = await open('heir')
    await branches.patch('dev', 'items', 'b', { price: 9 })
    await branches.patch('dev', 'users', 'b', { place: 9 })
    await branches.patch('dev', 'users', 'b', { place: 1 })
    await branches.merge('dev', { into: 'heir' })
    const heaps = await service.database.query(sql`
      select h.id
      from offshoot.heaps h
      join offshoot.branches b on b.id = h.branch_id
      join offshoot.databases d on d.id = b.database_id
      where b.name = 'heir' and d.name = ${branches.database}`)
    expect(heaps).toHaveLength(1)
    expect(await branches.record('heir', 'items', 'b')).toMatchObject({ price: 9 })
    expect(await branches.record('heir', 'users', 'b')).toMatchObject({ place: 1 })
  })
})

describe('the number of rows to merge', () => {
  const ids = (length: number) => Array.from({ length }, (_, index) => String(index))

  it('is not counted if the fork has written little', async () => {
    const branches = await open('main')
    await branches.patch('dev', 'items', 'a', { price: 9 })
    const before = counts
    await branches.merge('dev', { into: 'main' })
    // The sizes of tables on nodes are not read.
    expect(counts - before).toBe(service.database.server.isCluster ? 1 : 0)
    expect(await branches.record('main', 'items', 'a')).toMatchObject({ price: 9 })
  })

  it('is counted if the fork has written more, or inherits some of the rows', async () => {
    const branches = await open('main')
    const records = ids(3000).map((id) => ({ id, name: 'x'.repeat(100) }))
    for (let start = 0; start < records.length; start += 1000) {
      await branches.bulk('dev', 'items', records.slice(start, start + 1000))
    }
    let before = counts
    await branches.merge('dev', { into: 'main' })
    expect(counts).toBeGreaterThan(before)
    await branches.patch('old', 'items', 'b', { price: 8 })
    await branches.fork('younger', 'old')
    await branches.patch('younger', 'items', 'c', { price: 7 })
    before = counts
    await branches.merge('younger', { into: 'main' })
    expect(counts).toBeGreaterThan(before)
    expect(await branches.read('main', 'items', ['b', 'c'])).toMatchObject({
      b: { price: 8 },
      c: { price: 7 },
    })
  })

  it('is never more than its bound, also for the smallest rows', async () => {
    const branches = await open('main')
    const [dev] = await service.database.query<{ id: string }>(sql`
      select b.id from offshoot.branches b join offshoot.databases d on d.id = b.database_id
      where b.name = 'dev' and d.name = ${branches.database}`)
    let written = 0
    for (const count of [1, 135, 1, 1, 200, 1]) {
      const records = ids(written + count)
        .slice(written)
        .map((id) => ({ id }))
      await branches.bulk('dev', 'empty', records)
      written += count
      expect(
        await new StoredBranch(service.database, dev?.id ?? '').boundRows(),
      ).toBeGreaterThanOrEqual(written)
    }
  })
})

describe('a column that all three states have removed', () => {
  it('keeps its values in forks from before the removal', async () => {
    const branches = await open('main')
    const before = await branches.read('old', 'items', ['a'])
    await branches.edit('main', { removeColumn: { table: 'items', column: 'price' } })
    await branches.pull('dev', { from: 'main', allowDataLoss: true })
    await branches.patch('dev', 'items', 'a', { name: 'changed' })
    const staged = stages
    const { tables } = await branches.merge('dev', { into: 'main' })
    expect(tables).toContainEqual({ name: 'items', inserted: 0, updated: 1, deleted: 0 })
    expect(stages).toBe(staged)
    expect(await branches.read('old', 'items', ['a'])).toEqual(before)
  })
})
