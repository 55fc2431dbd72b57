import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import type { DatabaseAccess } from '../../packages/server/src/domain/access/resolve.js'
import { forkBranch } from '../../packages/server/src/domain/branches/create-branch.js'
import type { Queryable } from '../../packages/server/src/postgres/database.js'
import { raw, sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { explainQuery } from '../support/explain.js'
import { until } from '../support/process.js'
import { SEED } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import { createTestService, type TestService } from '../support/service.js'

/*
 * The rows of a large merge are published as a layer, and moved to the heap afterwards. The tests use
 * the branch before that, and compare the branch with that of another database, where the rows of the same merge were moved.
 */

let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService({ limits: { mergeLockedRowsMax: 200 } })
})
afterAll(() => service.close())

const ITEMS: readonly Column[] = [
  { name: 'code', type: 'string', unique: true },
  { name: 'place', type: 'int', unique: true },
  { name: 'price', type: 'int' },
]
/** Records of `main`, and records that `dev` adds. */
const OLD = 120
const NEW = 300
const oldId = (index: number) => `a${String(index).padStart(3, '0')}`
const newId = (index: number) => `n${String(index).padStart(4, '0')}`
const upTo = (count: number) => Array.from({ length: count }, (_, index) => index)

/** Orders of pages: by columns with and without an index, some without values. */
const SORTS = [
  undefined,
  { id: 'desc' },
  { code: 'asc' },
  { code: 'desc' },
  { place: 'asc' },
  [{ place: 'desc' }, { price: 'asc' }],
  { price: 'asc' },
  [{ price: 'desc' }, { id: 'desc' }],
]

/** Creates `main`, its forks `old` and `work`, and its fork `dev`, which changes, deletes and adds records. */
async function open(): Promise<TestBranches> {
  const branches = await TestBranches.create(service, `layer${++number}`, {
    items: ITEMS,
    notes: [{ name: 'text', type: 'text' }],
  })
  await branches.bulk(
    'main',
    'items',
    upTo(OLD).map((index) => ({ id: oldId(index), code: `c${index}`, price: index })),
  )
  await branches.fork('old')
  await branches.fork('work')
  await branches.fork('dev')
  await branches.patch('work', 'items', oldId(110), { price: -1 })
  await branches.remove('work', 'items', oldId(111))
  await branches.fork('older-work', 'work')
  await branches.call('dev', 'POST', '/transaction', {
    operations: [
      // Each record takes the value of the next one, so no value is free at first.
      ...upTo(30).map((index) => update(index, { code: null })),
      ...upTo(30).map((index) => update(index, { code: `c${(index + 1) % 30}` })),
      ...upTo(30).map((index) => update(30 + index, { price: -index })),
      ...upTo(30).map((index) => ({ delete: { table: 'items', id: oldId(60 + index) } })),
    ],
  })
  await branches.bulk(
    'dev',
    'items',
    upTo(NEW).map((index) => ({
      id: newId(index),
      price: index,
      // Some values belonged to deleted records.
      ...(index < 20 ? { code: `c${60 + index}` } : {}),
      ...(index < 200 ? { place: 10 * index } : {}),
    })),
  )
  return branches
}

const update = (index: number, fields: object) => ({
  update: { table: 'items', id: oldId(index), fields },
})

/** Returns the heap of `items` on a branch. */
async function heapOf(branches: TestBranches, branch: string): Promise<string> {
  const [row] = await service.database.query<{ name: string }>(sql`
    select format('offshoot_db_%s.heap_%s', h.database_id, h.id) as name
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.databases d on d.id = b.database_id
    where d.name = ${branches.database} and b.name = ${branch} and b.deleted_at is null
      and h.kind = 'heap'
    order by h.table_id
    limit 1`)
  return row?.name ?? ''
}

async function countLayers({ database }: TestBranches): Promise<number> {
  const [row] = await service.database.query<{ count: number }>(sql`
    select count(*)::integer as count
    from offshoot.heaps h
    join offshoot.databases d on d.id = h.database_id
    where d.name = ${database} and h.kind = 'layer' and h.until_epoch is null
      and exists (select from offshoot.branches b where b.id = h.branch_id)`)
  return row?.count ?? -1
}

/** Merges `dev`. Its rows stay in a layer until the background moves them. */
async function mergeAsLayer(branches: TestBranches, into: string) {
  const heap = raw(await heapOf(branches, into))
  const count = async () => {
    const [row] = await service.database.query<{ count: number }>(sql`
      select count(*)::integer as count from ${heap}`)
    return row?.count ?? -1
  }
  const before = await count()
  const answer = await branches.merging('dev', { into })
  return { answer, rowsWritten: (await count()) - before }
}

/** Merges `dev`, and waits until its rows are in the heap. */
async function mergeAndMove(branches: TestBranches, into: string): Promise<void> {
  await branches.merge('dev', { into })
  await runBackground(service)
}

/** Returns all records of a branch, with their versions. */
async function contentOf(branches: TestBranches, branch: string): Promise<Map<string, unknown>> {
  const content = new Map<string, unknown>()
  for (let after: string | undefined; ; ) {
    const page = after === undefined ? { size: 200 } : { size: 200, after }
    const body = {
      columns: ['*'],
      page,
      ...(after === undefined ? { sort: [{ price: 'asc' }, { id: 'asc' }] } : {}),
    }
    const answer = await branches.call(branch, 'POST', '/tables/items/query', body)
    expect(answer.status).toBe(200)
    for (const { id, service: metadata, ...record } of answer.body.records) {
      expect(content.has(id)).toBe(false)
      content.set(id, { ...record, version: metadata.version })
    }
    if (!answer.body.meta.page.more) return content
    after = answer.body.meta.page.cursor
  }
}

describe('the rows of a large merge', () => {
  it('are published without writing to the heap, and moved to it later', async () => {
    const branches = await open()
    const { answer, rowsWritten } = await mergeAsLayer(branches, 'main')
    expect([answer.status, answer.body.tables[0]]).toEqual([
      200,
      { name: 'items', inserted: NEW, updated: 60, deleted: 30 },
    ])
    expect(rowsWritten).toBe(0)
    expect(await countLayers(branches)).toBe(1)
    const ids = [oldId(0), oldId(31), oldId(60), oldId(100), newId(0)]
    const merged = {
      [oldId(0)]: { code: 'c1', price: 0 },
      [oldId(31)]: { code: 'c31', price: -1 },
      [oldId(100)]: { code: 'c100', price: 100 },
      [newId(0)]: { code: 'c60', place: 0, price: 0 },
    }
    expect(await branches.read('main', 'items', ids)).toEqual(merged)
    expect(await branches.read('old', 'items', [oldId(0), oldId(60), newId(0)])).toEqual({
      [oldId(0)]: { code: 'c0', price: 0 },
      [oldId(60)]: { code: 'c60', price: 60 },
    })
    await runBackground(service)
    expect(await countLayers(branches)).toBe(0)
    expect(await branches.read('main', 'items', ids)).toEqual(merged)
  })

  it('start at version 0 if they are deleted before they are moved, and created anew', async () => {
    const branches = await open()
    await mergeAsLayer(branches, 'main')
    expect(await countLayers(branches)).toBe(1)
    const ids = [oldId(0), oldId(31), oldId(60), newId(0), newId(1)]
    const [, , gone, ...others] = ids
    await branches.remove('main', 'items', oldId(0), oldId(31), newId(0), newId(1))
    for (const id of [gone ?? '', ...others, oldId(0), oldId(31)]) {
      await branches.put('main', 'items', id, { price: 7 })
    }
    for (const isMoved of [false, true]) {
      if (isMoved) await runBackground(service)
      expect(await countLayers(branches)).toBe(isMoved ? 0 : 1)
      const content = await contentOf(branches, 'main')
      for (const id of ids) expect(content.get(id), id).toEqual({ price: 7, version: 0 })
    }
    expect(await branches.read('old', 'items', [oldId(0), oldId(60), newId(0)])).toEqual({
      [oldId(0)]: { code: 'c0', price: 0 },
      [oldId(60)]: { code: 'c60', price: 60 },
    })
  })

  it('leave no table behind when they are moved', async () => {
    const branches = await open()
    await mergeAndMove(branches, 'main')
    expect(await countLayers(branches)).toBe(0)
    const [row] = await service.database.query<{ count: number }>(sql`
      select count(*)::integer as count
      from offshoot.heaps h
      where not exists (select from offshoot.branches b where b.id = h.branch_id)`)
    expect(row?.count).toBe(0)
  })
})

/** Sends requests to two databases, which must give the same answers. */
class Twins {
  readonly forks: string[] = []
  #versions = new Map<string, number>()

  constructor(
    readonly layered: TestBranches,
    readonly plain: TestBranches,
    readonly branch: string,
    readonly random: Random,
  ) {}

  async call(method: string, path: string, body?: unknown, branch = this.branch): Promise<void> {
    const [left, right] = [
      await this.layered.call(branch, method, path, body),
      await this.plain.call(branch, method, path, body),
    ]
    const what = `${method} ${branch} ${path} ${JSON.stringify(body)}`
    expect([what, left.status, bare(left.body)]).toEqual([what, right.status, bare(right.body)])
    const { id, service: metadata } = right.body ?? {}
    if (typeof metadata?.version === 'number') this.#versions.set(id, metadata.version)
  }

  async step(): Promise<void> {
    const { random } = this
    const id = this.#id()
    const path = `/tables/items/data/${id}`
    const kind = random.below(12)
    if (kind === 0) return this.call('DELETE', path)
    if (kind === 1) return this.call('PUT', `${path}?createOnly=true`, this.#values())
    if (kind === 2) {
      const version = this.#versions.get(id) ?? random.below(3)
      return this.call('PATCH', `${path}?ifVersion=${version}`, this.#values())
    }
    if (kind === 3) return this.call('PATCH', path, { price: { $increment: 1 } })
    if (kind === 4) return this.call('PATCH', path, { place: { $increment: 10 } })
    if (kind === 5) {
      const records = [newId(9000 + random.below(50)), this.#id()].map((given) => {
        return { id: given, ...this.#values() }
      })
      return this.call('POST', '/tables/items/bulk', { records })
    }
    if (kind === 6) {
      const operations = [
        { update: { table: 'items', id, fields: this.#values(), upsert: true } },
        { delete: { table: 'items', id: this.#id() } },
        { insert: { table: 'items', record: { id: this.#id(), ...this.#values() } } },
        { get: { table: 'items', id: this.#id(), columns: ['*'] } },
      ]
      return this.call('POST', '/transaction', { operations: operations.slice(random.below(3)) })
    }
    if (kind === 7 && this.forks.length < 4) {
      const fork = `fork${this.forks.length}`
      this.forks.push(fork)
      return this.call('PUT', '', { from: this.branch }, fork)
    }
    const fork = this.forks[random.below(4)]
    if (kind === 8 && fork !== undefined) return this.call('PUT', path, this.#values(), fork)
    return this.call(random.below(2) === 0 ? 'PUT' : 'PATCH', path, this.#values())
  }

  async compare(): Promise<void> {
    for (const branch of [this.branch, 'old', 'older-work', ...this.forks]) {
      expect([branch, await contentOf(this.layered, branch)]).toEqual([
        branch,
        await contentOf(this.plain, branch),
      ])
    }
    const diff = ({ database: _, ...body }: Record<string, unknown>) => body
    expect(diff(await this.layered.diff(this.branch, '?against=old'))).toEqual(
      diff(await this.plain.diff(this.branch, '?against=old')),
    )
  }

  #id(): string {
    const { random } = this
    const index = random.below(130)
    return random.below(3) === 0 ? newId(index) : oldId(index)
  }

  #values(): object {
    const { random } = this
    return {
      ...(random.below(3) === 0 ? { code: `c${random.below(125)}` } : {}),
      ...(random.below(4) === 0 ? { place: 10 * random.below(210) } : {}),
      price: random.below(1000),
    }
  }
}

/** Returns an answer without times, request ids and the name of the database. */
function bare(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(bare)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).filter(([name, field]) => {
    const isRequestId = name === 'id' && String(field).startsWith('req_')
    return !['createdAt', 'updatedAt', 'databaseName', 'entry'].includes(name) && !isRequestId
  })
  return Object.fromEntries(entries.map(([name, field]) => [name, bare(field)]))
}

describe('a branch whose merged rows are not yet in its heap', () => {
  it.each(['main', 'work'])('is read and written as any other: %s', async (branch) => {
    const layered = await open()
    const plain = await open()
    await mergeAndMove(plain, branch)
    await mergeAsLayer(layered, branch)
    expect([await countLayers(layered), await countLayers(plain)]).toEqual([1, 0])
    const twins = new Twins(layered, plain, branch, new Random(SEED))
    await twins.compare()
    for (let step = 0; step < 60; step++) await twins.step()
    expect(await countLayers(layered)).toBe(1)
    await twins.compare()
    // Forks change too, and the rows are moved below them.
    await runBackground(service)
    expect(await countLayers(layered)).toBe(0)
    await twins.compare()
    for (let step = 0; step < 15; step++) await twins.step()
    await twins.compare()
  })

  it.each(['main', 'work'])('has the same pages in every order: %s', async (branch) => {
    const layered = await open()
    const plain = await open()
    await mergeAndMove(plain, branch)
    await mergeAsLayer(layered, branch)
    for (const branches of [layered, plain]) await branches.fork('leaf', branch)
    const random = new Random(SEED)
    const page = async (branches: TestBranches, on: string, body: object) => {
      const { body: answer } = await branches.call(on, 'POST', '/tables/items/query', body)
      return { records: bare(answer.records), cursor: answer.meta?.page.cursor }
    }
    for (const on of [branch, 'leaf']) {
      for (const sort of SORTS) {
        const size = 1 + random.below(40)
        const query = {
          ...(sort === undefined ? {} : { sort }),
          ...(random.chance(0.3) ? { filter: { price: { $lt: random.below(200) } } } : {}),
          page: { size, offset: random.below(random.pick([2, 380])) },
        }
        const what = JSON.stringify([on, query])
        const [left, right] = [await page(layered, on, query), await page(plain, on, query)]
        expect([what, left.records]).toEqual([what, right.records])
        for (const direction of ['after', 'before', 'end']) {
          const further = async (branches: TestBranches, cursor: string) =>
            (await page(branches, on, { page: { size, [direction]: cursor } })).records
          expect([direction, what, await further(layered, left.cursor)]).toEqual([
            direction,
            what,
            await further(plain, right.cursor),
          ])
        }
      }
    }
    expect(await countLayers(layered)).toBe(1)
  })

  it('does not pass the rows that the layer hides to read a page', async () => {
    const branches = await TestBranches.create(service, `layer${++number}`, {
      items: [
        { name: 'price', type: 'int' },
        { name: 'first', type: 'link', link: { table: 'items' } },
      ],
    })
    await branches.call('main', 'PUT', '/tables/items/columns/price/index')
    await branches.bulk(
      'main',
      'items',
      upTo(3000).map((index) => ({ id: newId(index), price: index, first: newId(0) })),
    )
    await branches.fork('dev')
    await branches.call('dev', 'PATCH', '/tables/items/data', {
      filter: { price: { $lt: 2500 } },
      set: { price: { $increment: 1 } },
    })
    await mergeAsLayer(branches, 'main')
    expect(await countLayers(branches)).toBe(1)
    // The service learns of the layer by a request. EXPLAIN takes what it knows.
    const linked = await branches.call('main', 'POST', '/tables/items/query', {
      columns: ['price', 'first.price'],
      sort: { price: 'asc' },
      page: { size: 2 },
    })
    expect(bare(linked.body.records)).toMatchObject([
      { id: newId(0), price: 1, first: { id: newId(0), price: 1 } },
      { id: newId(1), price: 2, first: { id: newId(0), price: 1 } },
    ])
    await service.database.query(sql`analyze`)
    const target = { database: branches.database, branch: 'main', table: 'items' }
    const queries = [
      {},
      { sort: { price: 'asc' } },
      { filter: { price: { $ge: 1000 } }, sort: { price: 'asc' } },
      { filter: { price: { $le: 2000 } }, sort: { price: 'desc' } },
    ]
    for (const query of queries) {
      const { rowsRead, plan } = await explainQuery(service, target, {
        ...query,
        page: { size: 20 },
      })
      expect(rowsRead, plan).toBeLessThan(300)
    }
  })

  it.each(['main', 'work'])('gets the changes of its fork: %s', async (branch) => {
    const layered = await open()
    const plain = await open()
    await mergeAndMove(plain, branch)
    await mergeAsLayer(layered, branch)
    const twins = new Twins(layered, plain, branch, new Random(SEED))
    await twins.call('PUT', '', { from: branch }, 'fork')
    // The first records of both kinds are in the layer, the last ones only in the heap.
    const operations = [
      update(0, { code: null }),
      update(1, { code: 'c1' }),
      update(0, { code: 'c2', price: 7 }),
      update(100, { price: -100 }),
      { update: { table: 'items', id: newId(3), fields: { price: -3 } } },
      ...[oldId(31), oldId(101), newId(1)].map((id) => ({ delete: { table: 'items', id } })),
      // Takes the values of a deleted record, and replaces one that the large merge has deleted.
      { insert: { table: 'items', record: { id: 'x', code: 'c61', place: 10 } } },
      { insert: { table: 'items', record: { id: oldId(61), price: 61 } } },
    ]
    await twins.call('POST', '/transaction', { operations }, 'fork')
    expect(await countLayers(layered)).toBe(1)
    await twins.call('POST', '/merge', { into: branch }, 'fork')
    // The merge has moved the rows that it has written, and no others.
    expect(await countLayers(layered)).toBe(1)
    await twins.compare()
    expect(await layered.read(branch, 'items', [oldId(0), oldId(31), oldId(61), 'x'])).toEqual({
      [oldId(0)]: { code: 'c2', price: 7 },
      [oldId(61)]: { price: 61 },
      x: { code: 'c61', place: 10 },
    })
    await runBackground(service)
    await twins.compare()
  })

  it('is read again by a fork of a fork that was on its way when the rows were moved', async () => {
    const { database } = service
    const branches = await open()
    await mergeAsLayer(branches, 'main')
    await branches.fork('reader')
    const rows = await database.query<{ id: string; name: string; databaseId: string }>(sql`
      select b.id, b.name, b.database_id as "databaseId"
      from offshoot.branches b
      join offshoot.databases d on d.id = b.database_id
      where d.name = ${branches.database} and b.deleted_at is null and b.name in ('main', 'reader')`)
    const [main, reader] = ['main', 'reader'].map((name) => rows.find((row) => row.name === name))
    if (main === undefined || reader === undefined) throw new Error('the branches must exist')
    const fork = {
      access: {
        databaseId: reader.databaseId,
        databaseName: branches.database,
        workspaceId: service.workspaceId,
        principal: {},
      } as unknown as DatabaseAccess,
      name: 'late',
      source: { ...reader, isSliding: false },
      metadata: {},
      life: {
        expiresAt: null,
        ttlSeconds: null,
        protected: false,
        requiredApprovals: 0,
        checkpoints: null,
      },
      data: true,
    }
    const stampOf = async (queries: Queryable, id: string) => {
      const [row] = await queries.query<{ stamp: string }>(sql`
        select stamp from offshoot.branches where id = ${id}`)
      return row?.stamp
    }
    let moving: Promise<void> | undefined
    const late = await service.storage.runAlone([reader.id], async (transaction) => {
      const id = await forkBranch(transaction, fork)
      if (id === undefined) throw new Error('the name must be free')
      moving = service.storage.absorb(main.id)
      await until(async () => {
        const waiting = await database.query(sql`
          select from pg_stat_activity
          where datname = current_database() and wait_event_type = 'Lock'
            and query like '%offshoot.branches%'`)
        return waiting.length > 0
      })
      return { id, stamp: await stampOf(transaction, id) }
    })
    await moving
    expect(await countLayers(branches)).toBe(0)
    // A layout that was read with the fork names the layer, so it must not hold any longer.
    expect(await stampOf(database, late.id)).not.toBe(late.stamp)
    expect(await branches.read('late', 'items', [newId(1)])).toEqual({
      [newId(1)]: { code: 'c61', place: 10, price: 1 },
    })
  })

  it('is edited, merged and reset', async () => {
    const layered = await open()
    await mergeAsLayer(layered, 'main')
    await layered.fork('fork')
    await layered.put('fork', 'items', oldId(1), { code: 'new', price: 1 })
    await layered.merge('fork')
    expect(await layered.read('main', 'items', [oldId(0), oldId(1)])).toEqual({
      [oldId(0)]: { code: 'c1', price: 0 },
      [oldId(1)]: { code: 'new', price: 1 },
    })
    expect(await countLayers(layered)).toBe(1)
    const edited = await open()
    await mergeAsLayer(edited, 'main')
    await edited.edit('main', {
      addColumn: {
        table: 'items',
        column: { name: 'size', type: 'int', notNull: true, defaultValue: '7' },
      },
    })
    expect(await edited.read('main', 'items', [newId(1)])).toEqual({
      [newId(1)]: { code: 'c61', place: 10, price: 1, size: 7 },
    })
    const reset = await open()
    await mergeAsLayer(reset, 'main')
    await reset.fork('fork')
    await reset.reset('main', 'old')
    expect(await reset.read('main', 'items', [oldId(0), newId(1)])).toEqual({
      [oldId(0)]: { code: 'c0', price: 0 },
    })
    for (const isMoved of [false, true]) {
      if (isMoved) await runBackground(service)
      expect([isMoved, await reset.read('fork', 'items', [oldId(0), newId(1)])]).toEqual([
        isMoved,
        { [oldId(0)]: { code: 'c1', price: 0 }, [newId(1)]: { code: 'c61', place: 10, price: 1 } },
      ])
    }
    expect(await countLayers(reset)).toBe(0)
  })
})
