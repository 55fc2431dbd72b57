import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'

/** Two processes of the service on one PostgreSQL. */
let first: TestService
let second: TestService

beforeAll(async () => {
  first = await createTestService()
  second = await createTestService({ url: first.url })
})
afterAll(async () => {
  await second.close()
  await first.close()
})

const TABLES = { t: [{ name: 'n', type: 'int' }] } as const
const range = (length: number) => Array.from({ length }, (_, index) => index)

/** Returns stamp and epoch of a branch. */
async function stateOf(
  database: string,
  branch = 'main',
): Promise<{ stamp: string; epoch: number }> {
  const { rows } = await first.database.pool.query(
    `select b.stamp, b.epoch
    from offshoot.branches b
    join offshoot.databases d on d.id = b.database_id
    where d.name = $1 and b.name = $2 and b.deleted_at is null`,
    [database, branch],
  )
  return rows[0]
}

describe('a fork', () => {
  it('changes what sessions remember of its source only if it is the first', async () => {
    const branches = await TestBranches.create(first, 'stamps', TABLES)
    await branches.put('main', 't', 'a', { n: 1 })
    const before = await stateOf('stamps')
    await branches.fork('one')
    const forked = await stateOf('stamps')
    expect(forked.stamp).not.toBe(before.stamp)
    await branches.delete('one')
    await branches.fork('two')
    await branches.fork('three', 'main', { data: false })
    expect(await stateOf('stamps')).toEqual({ stamp: forked.stamp, epoch: before.epoch + 3 })
  })

  it('does not see what another process writes that has not heard of it', async () => {
    const branches = await TestBranches.create(first, 'moments', TABLES)
    const others = branches.through(second)
    await branches.put('main', 't', 'a', { n: 1 })
    await branches.fork('early')
    await others.patch('main', 't', 'a', { n: 2 })
    await branches.fork('late')
    await others.patch('main', 't', 'a', { n: 3 })
    await branches.delete('late')
    await others.put('main', 't', 'a', { n: 4 })
    await branches.fork('last')
    await insertTogether(others, 40)
    await others.remove('main', 't', 'a')
    expect(await branches.record('early', 't', 'a')).toMatchObject({ n: 1 })
    expect(await branches.record('last', 't', 'a')).toMatchObject({ n: 4 })
    const { body } = await branches.call('last', 'POST', '/tables/t/query')
    expect(body.records).toHaveLength(1)
  })

  it('does not see what a session of before the fork writes after it', async () => {
    const branches = await TestBranches.create(first, 'sessions', TABLES)
    const writes = [
      (id: string) => branches.put('main', 't', id, { n: 2 }),
      (id: string) => branches.patch('main', 't', id, { n: 2 }),
      (id: string) => branches.remove('main', 't', id),
    ]
    const ids = writes.map((_, index) => `r${index}`)
    for (const id of ids) await branches.put('main', 't', id, { n: 1 })
    await branches.fork('early')
    for (const [index, write] of writes.entries()) {
      const fork = `fork${index}`
      await branches.fork(fork)
      await write(`r${index}`)
      await branches.bulk(
        'main',
        't',
        range(3).map((n) => ({ id: `new${index}-${n}`, n })),
      )
      await insertTogether(branches, 2)
      await insertTogether(branches, 40)
      expect(await branches.record(fork, 't', `r${index}`)).toMatchObject({ n: 1 })
      const { body } = await branches.call(fork, 'POST', '/tables/t/summarize', {
        summaries: { count: { count: '*' } },
      })
      expect(body.summaries[0].count).toBe(ids.length + index * (3 + 2 + 40) - (index > 2 ? 1 : 0))
    }
  })
})

/** Inserts records with generated ids in one transaction. */
async function insertTogether(branches: TestBranches, count: number) {
  const operations = range(count).map((n) => ({ insert: { table: 't', record: { n } } }))
  const answer = await branches.call('main', 'POST', '/transaction', { operations })
  expect(answer.status).toBe(200)
}

/** Writes one numbered set of records after the other, in one of the ways to write. */
interface Writer {
  readonly name: string
  started: number
  acknowledged: number
  readonly answers: Answer[]
}

/** Enough new records for a COPY. */
const GROUP = 40
/** All records fit on one page. */
const ROUNDS = 7
const FORKS = 12

describe('a branch that two clients fork as fast as they can', () => {
  it('refuses no write and no read, and each fork has all that was written before it and nothing later', async () => {
    const branches = await TestBranches.create(first, 'forked', TABLES)
    await branches.put('main', 't', 'shared', { n: 0 })
    const through = [branches, branches.through(second)]
    const ways: Readonly<Record<string, (number: number, via: TestBranches) => Promise<Answer>>> = {
      put: (n, via) => via.call('main', 'PUT', `/tables/t/data/put-${n}`, { n }),
      bulk: (n, via) => {
        const records = range(GROUP).map((index) => ({ id: `bulk-${n}-${index}`, n }))
        return via.call('main', 'POST', '/tables/t/bulk', { records })
      },
      few: (n, via) =>
        transact(
          via,
          range(2).map((index) => ({ id: `few-${n}-${index}`, n })),
        ),
      // The ids are generated, so these rows are recognised by their value.
      many: (n, via) =>
        transact(
          via,
          range(GROUP).map(() => ({ n: 1_000_000 + n })),
        ),
      stream: (n, via) => {
        const lines = range(GROUP).map((index) => JSON.stringify({ id: `stream-${n}-${index}`, n }))
        const headers = { 'content-type': 'application/x-ndjson' }
        return via.call('main', 'POST', '/tables/t/bulk', lines.join('\n'), { headers })
      },
    }
    const writers: Writer[] = Object.keys(ways).map((name) => {
      return { name, started: 0, acknowledged: 0, answers: [] }
    })
    const write = async (writer: Writer) => {
      for (const number of range(ROUNDS)) {
        writer.started++
        const via = through[number % 2] as TestBranches
        writer.answers.push((await ways[writer.name]?.(number, via)) as Answer)
        writer.acknowledged++
      }
    }
    const reads: Answer[] = []
    const read = async () => {
      for (const number of range(ROUNDS)) {
        const via = through[number % 2] as TestBranches
        reads.push(await via.call('main', 'GET', '/tables/t/data/shared'))
        reads.push(await via.call('main', 'POST', '/tables/t/query', { page: { size: 1 } }))
      }
    }
    const forks: { name: string; least: number[]; most: number[] }[] = []
    const fork = async (client: number) => {
      for (const number of range(FORKS)) {
        const name = `fork-${client}-${number}`
        const least = writers.map(({ acknowledged }) => acknowledged)
        await (through[client] as TestBranches).fork(name)
        forks.push({ name, least, most: writers.map(({ started }) => started) })
      }
    }
    await Promise.all([...writers.map(write), read(), fork(0), fork(1)])
    const answers = [...reads, ...writers.flatMap((writer) => writer.answers)]
    expect(answers.filter(({ status }) => status >= 300)).toEqual([])
    for (const { name, least, most } of forks) {
      const seen = await countSets(branches, name)
      for (const [index, writer] of writers.entries()) {
        const count = seen.get(writer.name) ?? 0
        expect(count, `${writer.name} on ${name}`).toBeGreaterThanOrEqual(least[index] ?? 0)
        expect(count, `${writer.name} on ${name}`).toBeLessThanOrEqual(most[index] ?? 0)
      }
    }
  })
})

function transact(via: TestBranches, records: readonly object[]): Promise<Answer> {
  const operations = records.map((record) => ({ insert: { table: 't', record } }))
  return via.call('main', 'POST', '/transaction', { operations })
}

/** Counts the sets of records of each writer on a branch. Sets must be whole and without gaps. */
async function countSets(branches: TestBranches, branch: string): Promise<Map<string, number>> {
  const { body } = await branches.call(branch, 'POST', '/tables/t/query', {
    columns: ['id', 'n'],
    page: { size: 1000 },
  })
  const sizes = new Map<string, number>()
  for (const { id, n } of body.records as { id: string; n: number }[]) {
    const [writer = '', number] = n >= 1_000_000 ? ['many', n - 1_000_000] : id.split('-')
    const set = `${writer} ${number}`
    sizes.set(set, (sizes.get(set) ?? 0) + 1)
  }
  const whole: Readonly<Record<string, number>> = { put: 1, few: 2 }
  const counts = new Map<string, number>()
  for (const [set, size] of sizes) {
    const [writer = '', number] = set.split(' ')
    if (writer === 'shared') continue
    expect(size, `${set} on ${branch}`).toBe(whole[writer] ?? GROUP)
    counts.set(writer, Math.max(counts.get(writer) ?? 0, Number(number) + 1))
  }
  for (const [writer, count] of counts) {
    for (const number of range(count)) expect(sizes.has(`${writer} ${number}`)).toBe(true)
  }
  return counts
}
