import { afterAll, beforeAll, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { runTransaction } from '../../packages/server/src/postgres/run-transaction.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { enterInstance } from '../../packages/server/src/rows/gates/gate.js'
import { layoutOf } from '../../packages/server/src/rows/layout/layout.js'
import { listArms } from '../../packages/server/src/rows/reading/arms.js'
import { StoredBranch } from '../../packages/server/src/rows/stored-branch.js'
import { TestBranches } from '../support/branches.js'
import { foldBranches } from '../support/folding.js'
import { until } from '../support/process.js'
import { amount, SEED } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'
import { countWork } from '../support/work.js'

/*
 * Chains of forks, in which every branch was forked from the one before.
 */

const DEPTH = amount('DEPTH', { short: 24, long: 60 })
/** A table that is read from four sources: its own heap, and three heaps with their pasts. */
const FOLDED_ARMS_MAX = 7

let service: TestService

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

/** Creates a chain of forks. Each of them changes the record `shared` and inserts one of its own. */
async function createChain(database: string, depth: number): Promise<TestBranches> {
  const branches = await TestBranches.create(service, database, {
    people: [
      { name: 'age', type: 'int' },
      { name: 'email', type: 'email', unique: true },
    ],
  })
  await branches.bulk('main', 'people', [
    { id: 'shared', age: 0 },
    ...Array.from({ length: 30 }, (_, index) => ({ id: `row${index}`, age: index })),
  ])
  let tip = 'main'
  for (let level = 1; level <= depth; level++) {
    await branches.fork(`fork${level}`, tip)
    tip = `fork${level}`
    await branches.patch(tip, 'people', 'shared', { age: level })
    await branches.put(tip, 'people', `own${level}`, { age: level, email: `own${level}@x.test` })
  }
  return branches
}

/** Runs the background until all chains are folded and all unused storage is dropped. */
async function runAllBackground(): Promise<void> {
  do await runBackground(service)
  while ((await countWork(service.database, 'fold')) > 0)
  await runBackground(service)
}

/** Returns the number of tables of PostgreSQL that the records of a branch come from. */
async function armsOf({ database }: TestBranches, branch: string): Promise<number> {
  const [row] = await service.database.query<{ id: string; tableId: string }>(sql`
    select b.id, (s.document -> 'tables' -> 0 ->> 'id') as "tableId"
    from offshoot.branches b
    join offshoot.schemas s on s.id = b.schema_id
    join offshoot.databases d on d.id = b.database_id
    where d.name = ${database} and b.name = ${branch} and b.deleted_at is null`)
  const rows = row && (await new StoredBranch(service.database, row.id).findRows())
  return rows === undefined ? 0 : listArms(layoutOf(rows), Number(row?.tableId)).length
}

/** Returns the number of physical tables with rows of a database. */
async function tableCount({ database }: TestBranches): Promise<number> {
  const [row] = await service.database.query<{ count: number }>(sql`
    select count(to_regclass(format('offshoot_db_%s.heap_%s', h.database_id, h.id)))::integer as count
    from offshoot.heaps h
    join offshoot.databases d on d.id = h.database_id
    where d.name = ${database}`)
  return row?.count ?? 0
}

/** Returns the records of a branch, as ids with ages. */
async function agesOf(branches: TestBranches, branch: string): Promise<Record<string, number>> {
  const body = { columns: ['age'], page: { size: 1000 } }
  const answer = expectOk(await branches.call(branch, 'POST', '/tables/people/query', body))
  const records: { id: string; age: number }[] = answer.body.records
  return Object.fromEntries(records.map(({ id, age }) => [id, age]))
}

/** The records of a branch of the chain, by definition. */
function chainAges(level: number): Record<string, number> {
  return Object.fromEntries([
    ...Array.from({ length: 30 }, (_, index) => [`row${index}`, index]),
    ...Array.from({ length: level }, (_, index) => [`own${index + 1}`, index + 1]),
    ['shared', level],
  ])
}

const rowCount = async (branches: TestBranches, branch: string, statement: string) => {
  const answer = expectOk(await branches.call(branch, 'POST', '/sql', { statement }))
  return answer.body.records[0].count
}

it('One statement can refer to a table of a deep branch a hundred times', async () => {
  const branches = await createChain('references', 11)
  const parts = Array.from({ length: 99 }, () => 'select count(*) as n from people')
  const statement = `select sum(n)::int as count from (${parts.join(' union all ')}) parts`
  expect(await rowCount(branches, 'fork11', statement)).toBe(99 * (31 + 11))
  expect(await rowCount(branches, 'main', statement)).toBe(99 * 31)
})

it('The first transaction of a fork can write to more tables than an operation is tried', async () => {
  const names = Array.from({ length: 50 }, (_, index) => `table${index}`)
  const branches = await TestBranches.create(
    service,
    'wide',
    Object.fromEntries(names.map((name) => [name, [{ name: 'n', type: 'int' }]])),
  )
  await branches.fork('fork')
  const operations = names.map((table) => ({ insert: { table, record: { id: 'a', n: 1 } } }))
  expectOk(await branches.call('fork', 'POST', '/transaction', { operations }))
  for (const name of ['table0', 'table49']) {
    expect(await branches.record('fork', name, 'a')).toMatchObject({ n: 1 })
    expect(await branches.record('main', name, 'a')).toBeUndefined()
  }
  await branches.fork('sql')
  const statements = names.map((name) => ({
    statement: `insert into ${name} (id, n) values ('b', 2)`,
  }))
  expectOk(await branches.call('sql', 'POST', '/sql/batch', { statements }))
  expect(await branches.record('sql', 'table49', 'b')).toMatchObject({ n: 2 })
})

it('A deep branch is read as quickly as a shallow one after its chain is folded', async () => {
  const branches = await createChain('folded', DEPTH)
  const tip = `fork${DEPTH}`
  // Writers fold a chain themselves when the background is too slow.
  expect(await armsOf(branches, tip)).toBeLessThan(30)
  expect(await agesOf(branches, tip)).toEqual(chainAges(DEPTH))
  await runAllBackground()
  for (const level of [1, 5, 12, DEPTH - 1, DEPTH]) {
    expect(await armsOf(branches, `fork${level}`)).toBeLessThanOrEqual(FOLDED_ARMS_MAX)
    expect(await agesOf(branches, `fork${level}`)).toEqual(chainAges(level))
  }
  expect(await branches.record(tip, 'people', 'own1')).toMatchObject({ age: 1 })
  const taken = await branches.call(tip, 'PATCH', '/tables/people/data/row1', {
    email: 'own2@x.test',
  })
  expect(taken).toMatchObject({ status: 400 })
  const count = 'select count(*)::int as count from people'
  expect(await rowCount(branches, tip, count)).toBe(31 + DEPTH)
  const stats = expectOk(await branches.call(tip, 'GET', '/stats')).body
  expect(stats.rows).toEqual({ owned: 2, inherited: 29 + DEPTH })

  // Nobody reads the deleted branches of the chain any more.
  for (let level = 2; level < DEPTH; level++) await branches.delete(`fork${level}`)
  await runAllBackground()
  await runAllBackground()
  // The heaps of main, of the first and the last branch, and folds of the last one.
  expect(await tableCount(branches)).toBeLessThanOrEqual(6)
  expect(await agesOf(branches, tip)).toEqual(chainAges(DEPTH))
  expect(await agesOf(branches, 'fork1')).toEqual(chainAges(1))

  const { inserted, updated } = (await branches.merge(tip, { into: 'main' })).tables[0]
  expect({ inserted, updated }).toEqual({ inserted: DEPTH, updated: 1 })
  expect(await agesOf(branches, 'main')).toEqual(chainAges(DEPTH))
  await branches.pull('fork1', { from: tip })
  expect(await agesOf(branches, 'fork1')).toEqual(chainAges(DEPTH))
})

it('A folded branch keeps what it inherits while everything around it changes', async () => {
  const branches = await createChain('around', 8)
  await branches.edit('fork4', {
    addColumn: {
      table: 'people',
      column: { name: 'rank', type: 'int', notNull: true, defaultValue: '7' },
    },
  })
  await branches.fork('late', 'fork4')
  await branches.put('late', 'people', 'new', { age: 1, rank: 1 })
  await branches.remove('late', 'people', 'row0', 'own1')
  for (let level = 0; level < 4; level++) {
    await branches.fork(`late${level}`, level === 0 ? 'late' : `late${level - 1}`)
    await branches.put(`late${level}`, 'people', `late${level}`, { age: level, rank: 0 })
  }
  await runAllBackground()
  const before = await agesOf(branches, 'late3')
  expect(Object.keys(before)).not.toContain('row0')
  expect(await branches.record('late3', 'people', 'row1')).toMatchObject({ age: 1, rank: 7 })
  // Sources of the fold change, are reset and deleted.
  for (const branch of ['main', 'fork1', 'fork4', 'late', 'late2']) {
    await branches.patch(branch, 'people', 'row1', { age: -1 })
    await branches.remove(branch, 'people', 'row2')
  }
  await branches.reset('fork4')
  await branches.reset('late')
  await branches.put('fork4', 'people', 'row3', { age: -3 })
  await branches.delete('late1')
  await runAllBackground()
  expect(await agesOf(branches, 'late3')).toEqual(before)
  await branches.fork('last', 'late3')
  await branches.remove('last', 'people', 'late0')
  await branches.put('last', 'people', 'row0', { age: 100, rank: 2 })
  expect(await agesOf(branches, 'last')).toEqual({
    ...Object.fromEntries(Object.entries(before).filter(([id]) => id !== 'late0')),
    row0: 100,
  })
  expect(await agesOf(branches, 'late3')).toEqual(before)
  const { tables } = await branches.diff('last')
  expect(tables).toMatchObject([{ inserted: 1, updated: 0, deleted: 1 }])
})

it('Folding beside writers, forks, resets and deletions changes nothing that a branch shows', async () => {
  const branches = await TestBranches.create(service, 'beside', {
    people: [
      { name: 'age', type: 'int' },
      { name: 'email', type: 'email', unique: true },
    ],
  })
  await branches.bulk(
    'main',
    'people',
    idsOf(20).map((id) => ({ id, age: 0 })),
  )
  let isDone = false
  const folding = async () => {
    const random = new Random(SEED)
    const options = { databaseName: 'beside', random, probability: 0.5 }
    while (!isDone) {
      // Two folds of the same state can meet, and one of them is refused.
      await Promise.allSettled([foldBranches(service, options), foldBranches(service, options)])
      await runBackground(service)
    }
  }
  const writing = async () => {
    for (let age = 1; !isDone; age++)
      await branches.patch('main', 'people', `r${age % 20}`, { age })
  }
  const lines = [1, 2, 3].map((line) => growLine(branches, line))
  const others = [folding(), writing()]
  try {
    for (const ages of await Promise.all(lines)) expect(ages.shown).toEqual(ages.expected)
  } finally {
    isDone = true
    await Promise.all(others)
  }
})

const idsOf = (count: number): string[] => Array.from({ length: count }, (_, index) => `r${index}`)

/** Forks a line of branches, each with some changes, and compares each of them with a copy. */
async function growLine(branches: TestBranches, line: number) {
  const random = new Random(SEED + line)
  const nameOf = (level: number) => `line${line}-${level}`
  await branches.fork(nameOf(0))
  const expected = await agesOf(branches, nameOf(0))
  for (let level = 1; level <= 10; level++) {
    const tip = nameOf(level)
    await branches.fork(tip, nameOf(level - 1))
    for (const id of random.some(idsOf(24), 0.2)) {
      if (id in expected && random.chance(0.4)) {
        await branches.remove(tip, 'people', id)
        delete expected[id]
      } else {
        await branches.put(tip, 'people', id, { age: 100 * level })
        expected[id] = 100 * level
      }
    }
    // The branch before goes on, is reset or is deleted, and the fork keeps what it had.
    const before = nameOf(level - 1)
    if (random.chance(0.3)) await branches.put(before, 'people', 'r1', { age: -level })
    else if (level > 1 && random.chance(0.5)) {
      expectOk(await branches.call(before, 'POST', '/reset', { to: 'main' }))
    } else if (level > 1 && random.chance(0.7)) await branches.delete(before)
    const shown = await agesOf(branches, tip)
    if (JSON.stringify(sorted(shown)) !== JSON.stringify(sorted(expected)))
      return { shown, expected }
  }
  return { shown: await agesOf(branches, nameOf(10)), expected }
}

const sorted = (ages: Record<string, number>) =>
  Object.entries(ages).sort(([left], [right]) => (left < right ? -1 : 1))

it('A fold is not published while a backup takes its snapshots', async () => {
  const branches = await createChain('held', 2)
  const fold = () =>
    foldBranches(service, { databaseName: 'held', random: new Random(SEED), probability: 1 })
  const waits = async () => {
    const waiting = await service.database.query(sql`
      select from pg_locks where relation = 'offshoot_work.instance'::regclass and not granted`)
    return waiting.length > 0
  }
  const before = await tableCount(branches)
  // A backup has this lock meanwhile.
  const folding = await runTransaction(service.database, async (transaction) => {
    await enterInstance(transaction)
    // It does not wait for long, and then it fails.
    const folding = fold().catch(() => 0)
    await until(waits)
    expect(await tableCount(branches)).toBe(before)
    return { done: folding }
  })
  expect((await folding.done) + (await fold())).toBeGreaterThan(0)
  expect(await tableCount(branches)).toBeGreaterThan(before)
  expect(await agesOf(branches, 'fork2')).toEqual(chainAges(2))
})
