import { randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { expect } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { TestBranches } from './branches.js'
import { foldBranches } from './folding.js'
import { Random } from './seeded-random.js'
import type { TestService } from './service.js'
import { expectOk } from './tables.js'

/*
 * A database with something of everything, to compare before a backup and after a restore.
 */

export const PHOTO = randomBytes(300_000)

/**
 * Creates a database with forks of forks, a merge, deleted branches with readers, schema history, files,
 * rules and names.
 */
export async function createFilled(service: TestService, name: string): Promise<TestBranches> {
  const still = await TestBranches.create(service, name, {
    people: [
      { name: 'name', type: 'string' },
      { name: 'email', type: 'email', unique: true },
      { name: 'tags', type: 'multiple' },
      { name: 'extra', type: 'json' },
      { name: 'place', type: 'vector', vector: { dimension: 3 } },
      { name: 'photo', type: 'file' },
      { name: 'address', type: 'object', columns: [{ name: 'street', type: 'string' }] },
    ],
    orders: [{ name: 'buyer', type: 'link', link: { table: 'people' } }],
  })
  const people = Array.from({ length: 40 }, (_, number) => ({
    id: `p${number}`,
    name: `It's "${number}"\t\n\\N \\ é 😀`,
    email: `p${number}@example.com`,
    tags: ['a', `t,"${number}`],
    extra: { number, nothing: null },
    place: [number, 0.1, -1],
    address: { street: `Road ${number}` },
  }))
  await still.bulk('main', 'people', people)
  expectOk(await still.call('main', 'PUT', '/tables/people/searchIndex'))
  await still.put('main', 'orders', 'o1', { buyer: 'p1' })
  await still.patch('main', 'people', 'p1', { photo: fileOf(PHOTO) })
  await still.fork('dev')
  await still.patch('dev', 'people', 'p2', { name: 'dev', photo: fileOf(Buffer.from('of dev')) })
  await still.remove('dev', 'people', 'p3')
  await still.fork('deep', 'dev')
  await still.edit('deep', {
    addColumn: {
      table: 'people',
      column: { name: 'nick', type: 'string', notNull: true, defaultValue: 'none' },
    },
  })
  await still.edit('deep', { removeTable: { table: 'orders' } })
  await still.patch('deep', 'people', 'p4', { nick: 'deep' })
  await still.patch('main', 'people', 'p2', { name: 'main' })
  await still.remove('main', 'people', 'p5')
  await still.fork('done')
  await still.patch('done', 'people', 'p6', { name: 'merged' })
  await still.merge('done')
  await still.patch('done', 'people', 'p7', { name: 'after the merge' })
  await still.fork('middle')
  await still.patch('middle', 'people', 'p8', { name: 'middle' })
  await still.fork('leaf', 'middle')
  await still.delete('middle')
  await still.fork('bare', 'main', { data: false })
  const folding = { databaseName: name, random: new Random(1), probability: 1 }
  expect(await foldBranches(service, folding)).toBeGreaterThan(3)
  const git = { gitBranch: 'feature/dev', serviceBranch: 'dev' }
  const dbs = `${service.workspace}/dbs/${name}`
  expectOk(await service.call('POST', `${dbs}/gitBranches`, { body: git }))
  return still
}

/** A file as a value of a record. */
export function fileOf(content: Buffer) {
  return { name: 'a.bin', base64Content: content.toString('base64') }
}

/** Reads everything that the API shows of a database. */
export async function readEverything(branches: TestBranches) {
  const { service: via, database } = branches
  const dbs = `${via.workspace}/dbs/${database}`
  const list = expectOk(await via.call('GET', dbs)).body
  const everything: Record<string, unknown> = {
    list,
    git: expectOk(await via.call('GET', `${dbs}/gitBranches`)).body,
  }
  for (const { name } of list.branches) {
    const details = expectOk(await branches.call(name, 'GET', '')).body
    everything[name] = details
    everything[`${name} history`] = expectOk(
      await branches.call(name, 'POST', '/schema/history', {}),
    ).body
    const diff = await branches.call(name, 'GET', '/diff')
    everything[`${name} diff`] = diff.status === 200 ? diff.body : diff.body.code
    for (const table of details.schema.tables) {
      const body = { columns: ['*'], sort: { id: 'asc' }, page: { size: 1000 } }
      const page = expectOk(await branches.call(name, 'POST', `/tables/${table.name}/query`, body))
      everything[`${name}/${table.name}`] = page.body.records
    }
  }
  return everything
}

export async function photoOf(branches: TestBranches, branch: string, id: string): Promise<Buffer> {
  const columns = '?columns=photo.base64Content'
  const { body } = expectOk(
    await branches.call(branch, 'GET', `/tables/people/data/${id}${columns}`),
  )
  return Buffer.from(body.photo.base64Content, 'base64')
}

/** Works on a filled database: merges, forks, deletes. The outcome depends on all of its history. */
export async function workOn(branches: TestBranches): Promise<void> {
  await branches.patch('leaf', 'people', 'p9', { name: 'leaf' })
  expect((await branches.merging('dev')).body).toMatchObject({ conflictCount: 1 })
  expect(await branches.merge('done')).toMatchObject({ merged: true })
  expect(await branches.merge('dev', { strategy: 'theirs' })).toMatchObject({ merged: true })
  expect(await branches.merge('deep', { into: 'dev', allowDataLoss: true })).toMatchObject({
    merged: true,
  })
  const taken = await branches.call('leaf', 'POST', '/tables/people/data', {
    email: 'p11@example.com',
  })
  expect(taken.status).toBe(400)
  await branches.fork('newest', 'deep')
  await branches.delete('deep')
  await runBackground(branches.service)
}

/** Returns the rows and differences of everything that was read, for a comparison of two databases. */
export function rowsOf(everything: Record<string, unknown>) {
  return Object.entries(everything)
    .filter(([name]) => name.includes('/') || name.endsWith('diff'))
    .map(([name, value]) => [name, withoutTimes(value)])
}

/** Masks timestamps, cursors and links, which differ between the two sides. */
function withoutTimes(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value), (key, entry) =>
    ['createdAt', 'updatedAt', 'cursor', 'url'].includes(key) ? 'varies' : entry,
  )
}

/** Pause between two steps of a loop, so that other requests are served and the machine does not only make load. */
const PAUSE_MS = 20

/** Runs writes of every kind on a separate database until told to stop. */
export async function startLoad(service: TestService) {
  const busy = await TestBranches.create(service, 'busy', {
    lefts: [
      { name: 'number', type: 'int' },
      { name: 'blob', type: 'file' },
    ],
    rights: [{ name: 'number', type: 'int' }],
  })
  let isOver = false
  let pairs = 0
  let forks = 0
  const forever = async (step: (count: number) => Promise<unknown>) => {
    for (let count = 1; !isOver; count++) {
      await step(count)
      await delay(PAUSE_MS)
    }
  }
  /**
   * Constant forks and schema edits may exhaust the retries of a write; the write then had no
   * effect.
   */
  const write = async (path: string, body: unknown, method = 'POST') => {
    const answer = await busy.call('main', method, path, body)
    if (answer.body.code === 'retry_limit') return false
    expectOk(answer)
    return true
  }
  const pair = (number: number) =>
    ['lefts', 'rights'].map((table) => ({ insert: { table, record: { id: 'pair', number } } }))
  expectOk(await busy.call('main', 'POST', '/transaction', { operations: pair(0) }))
  const loops = [
    forever(async (number) => {
      if (await write('/transaction', { operations: pair(number) })) pairs = number
    }),
    forever(async (count) => {
      await busy.fork(`fork-${count}`)
      await busy.put(`fork-${count}`, 'rights', 'own', { number: count })
      if (count > 4) await busy.delete(`fork-${count - 4}`)
      forks = count
    }),
    forever(async (number) => {
      const blob = { name: 'f.txt', mediaType: 'text/plain' }
      const base64Content = Buffer.from(`content ${number}`).toString('base64')
      const record = { number, blob: { ...blob, base64Content } }
      await write('/tables/lefts/data/file', record, 'PUT')
    }),
    forever(async (count) => {
      await busy.edit('main', { addTable: { table: `t${count}` } })
      await busy.edit('main', { removeTable: { table: `t${count}` } })
    }),
    forever(async () => runBackground(service)),
  ]
  return {
    pairs: () => pairs,
    forks: () => forks,
    async stop() {
      isOver = true
      await Promise.all(loops)
    },
  }
}

/** Checks a copy of the database of a load, and returns the last pair that its main branch has. */
export async function readLoad(busy: TestBranches): Promise<number> {
  const { branches } = expectOk(
    await busy.service.call('GET', `${busy.service.workspace}/dbs/${busy.database}`),
  ).body
  expect(branches.length).toBeGreaterThan(2)
  let newest = 0
  for (const { name } of branches) {
    // Both records are written in one transaction: a branch with different values is torn.
    const { left, right } = {
      left: (await busy.record(name, 'lefts', 'pair'))?.number,
      right: (await busy.record(name, 'rights', 'pair'))?.number,
    }
    expect(left, name).toBe(right)
    if (name === 'main') newest = left
    const file = await busy.record(name, 'lefts', 'file')
    if (file === undefined) continue
    const content = await busy.call(name, 'GET', '/tables/lefts/data/file/column/blob/file')
    expect(content.body, name).toBe(`content ${file.number}`)
  }
  return newest
}
