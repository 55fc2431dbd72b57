import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it, type TestContext } from 'vitest'
import type { Extension } from '../../packages/server/src/postgres/extension.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { SEED } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import { createTestService, type TestService } from '../support/service.js'
import { type BranchCall, branchCall, createTables, expectOk } from '../support/tables.js'

/*
 * Vector indexes need the extension pgvector, which the embedded PostgreSQL lacks. The skipped
 * tests run if `OFFSHOOT_TEST_DATABASE_URL` names a server that has it.
 */

let service: TestService
let extension: Extension | undefined
let main: BranchCall

const DIMENSION = 16
const COUNT = 2000
const random = new Random(SEED)
const vector = () => Array.from({ length: DIMENSION }, () => Math.fround(random.next() - 0.5))
const COLUMNS: readonly Column[] = [
  { name: 'group', type: 'int' },
  { name: 'embedding', type: 'vector', vector: { dimension: DIMENSION } },
  { name: 'large', type: 'vector', vector: { dimension: 2001 } },
]
const INDEX = '/tables/items/columns/embedding/index'

beforeAll(async () => {
  service = await createTestService()
  extension = await service.storage.extensions.find('vector')
  main = await createTables(service, 'neighbours', { items: COLUMNS })
})
afterAll(() => service.close())

describe('without pgvector', () => {
  it('an index of a vector is refused, and nothing changes', async (context) => {
    if (extension !== undefined) context.skip('this PostgreSQL has pgvector')
    const answer = await main('PUT', INDEX)
    expect(answer).toMatchObject({
      status: 400,
      body: {
        code: 'invalid_schema',
        message:
          'table [items]: column [embedding]: cannot be indexed: PostgreSQL has no extension [vector]',
      },
    })
    expect((await main('GET', '/tables/items/indexes')).body).toEqual({ indexes: [] })
  })
})

describe('with pgvector', () => {
  const needsExtension = (context: TestContext) => {
    if (extension === undefined) context.skip('this PostgreSQL has no pgvector')
  }
  const search = async (body: object, call = main) =>
    expectOk(
      await call('POST', '/tables/items/vectorSearch', { body: { column: 'embedding', ...body } }),
    ).body

  /** Counts the index scans on heaps. */
  async function countScans(): Promise<number> {
    // PostgreSQL reports the statistics of a connection when it closes or has been idle for a
    // while.
    await service.database.query(sql`select pg_stat_force_next_flush()`)
    const [row] = await service.database.query<{ scans: string }>(sql`
      select coalesce(sum(idx_scan), 0) as scans
      from pg_stat_all_indexes
      where starts_with(schemaname, 'offshoot_db_') and indexrelname like '%\_index'`)
    return Number(row?.scans)
  }

  it('an index is made in the background, and dropped again', async (context) => {
    needsExtension(context)
    const records = Array.from({ length: COUNT }, (_, index) => ({
      id: `i${index}`,
      group: index % 2,
      ...(index % 100 === 0 ? {} : { embedding: vector() }),
    }))
    expectOk(await main('POST', '/tables/items/bulk', { body: { records } }))
    expectOk(await main('PUT', INDEX))
    await service.indexes.run()
    expect((await main('GET', INDEX)).body).toEqual({
      column: 'embedding',
      origin: 'asked',
      state: 'ready',
    })
  })

  it('a search by it finds nearly the same as one without, and counts the same', async (context) => {
    needsExtension(context)
    let hits = 0
    for (let round = 0; round < 10; round++) {
      const queryVector = vector()
      const near = await search({ queryVector })
      // A search with a filter does not use the index, so its result is exact.
      const exact = await search({ queryVector, filter: { group: { $ge: 0 } } })
      expect(near.totalCount).toBe(exact.totalCount)
      expect(near.records).toHaveLength(10)
      const ids = new Set(exact.records.map(({ id }: { id: string }) => id))
      hits += near.records.filter(({ id }: { id: string }) => ids.has(id)).length
      expect(near.records[0].service.score).toBeCloseTo(exact.records[0].service.score, 5)
    }
    expect(hits, `of 100, seed ${SEED}`).toBeGreaterThan(90)
  })

  it('the index is what such a search looks into', async (context) => {
    needsExtension(context)
    const before = await countScans()
    await search({ queryVector: vector() })
    await expect.poll(countScans).toBeGreaterThan(before)
  })

  it('as many are found as there are, also when the index leads to fewer', async (context) => {
    needsExtension(context)
    const { records, totalCount } = await search({ queryVector: vector(), size: 1000 })
    expect(totalCount).toBe(1980)
    expect(records).toHaveLength(1000)
  })

  it('a fork finds what it inherits and what it changed', async (context) => {
    needsExtension(context)
    expectOk(
      await service.call('PUT', `${service.workspace}/db/neighbours:fork`, {
        body: { from: 'main' },
      }),
    )
    const fork = branchCall(service, 'neighbours', { branch: 'fork' })
    const queryVector = vector()
    const [first, second] = (await search({ queryVector }, fork)).records
    expectOk(await fork('DELETE', `/tables/items/data/${first.id}`))
    expectOk(await fork('PUT', '/tables/items/data/mine', { body: { embedding: queryVector } }))
    const found = (await search({ queryVector, size: 2 }, fork)).records
    expect(found.map(({ id }: { id: string }) => id)).toEqual(['mine', second.id])
    expect((await search({ queryVector, size: 1 })).records[0].id).toBe(first.id)
  })

  it('vectors that are too long have none', async (context) => {
    needsExtension(context)
    const answer = await main('PUT', '/tables/items/columns/large/index')
    expect(answer.status).toBe(400)
    expect(answer.body.message).toBe(
      'table [items]: column [large]: cannot be indexed: it has more than 2000 dimensions',
    )
  })

  it('a new table has it from the start, and it can be removed', async (context) => {
    needsExtension(context)
    const call = await createTables(service, 'later', { items: COLUMNS })
    expectOk(await call('PUT', INDEX))
    expectOk(await call('PUT', '/tables/items/data/a', { body: { embedding: vector() } }))
    expect((await call('GET', INDEX)).body.state).toBe('ready')
    const queryVector = vector()
    expect((await search({ queryVector }, call)).totalCount).toBe(1)
    expectOk(await call('DELETE', INDEX))
    await service.indexes.run()
    expect((await call('GET', INDEX)).status).toBe(404)
    expect((await search({ queryVector }, call)).totalCount).toBe(1)
  })
})
