import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sweepBranch } from '../../packages/server/src/domain/branches/sweep-branch.js'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import {
  collectDeletedRecords,
  collectHeap,
  databaseSchema,
} from '../../packages/server/src/rows/branches.js'
import { TestBranches } from '../support/branches.js'
import { SEED, STEPS, STEPS_TIMEOUT_MS } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

let service: TestService
let second: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService()
  second = await createTestService({ url: service.url })
})
afterAll(async () => {
  await second.close()
  await service.close()
})

const TABLES = { items: [{ name: 'n', type: 'int' }] } as const
const GENERATED = 'rec_00000000000000000001'
const path = (id: string, query = '') => `/tables/items/data/${id}${query}`

function open(): Promise<TestBranches> {
  return TestBranches.create(service, `versions${++number}`, TABLES)
}

async function versionOf(branches: TestBranches, branch: string, id: string): Promise<number> {
  return (await branches.record(branch, 'items', id)).service.version
}

/** Forgets the versions of deleted records, as a day after their deletion. */
async function forget(): Promise<void> {
  while (await collectDeletedRecords(service.database, { ageSeconds: 0 }));
}

describe('the version of a record', () => {
  it('starts at 0 and grows by one, whatever was deleted before', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'other', { n: 0 })
    await branches.remove('main', 'items', 'other')
    const { body } = expectOk(await branches.call('main', 'POST', '/tables/items/data', { n: 1 }))
    expect(body.service.version).toBe(0)
    await branches.remove('main', 'items', body.id)
    const again = await branches.call('main', 'POST', '/tables/items/data', { n: 1 })
    expect(again.body.service.version).toBe(0)
    await branches.put('main', 'items', 'new', { n: 2 })
    expect(await versionOf(branches, 'main', 'new')).toBe(0)
    await branches.patch('main', 'items', 'new', { n: 3 })
    expect(await versionOf(branches, 'main', 'new')).toBe(1)
  })

  const creations: Record<string, (branches: TestBranches, id: string) => Promise<unknown>> = {
    'a replacement': (branches, id) => branches.put('main', 'items', id, { n: 9 }),
    'a creation': (branches, id) => branches.call('main', 'PUT', path(id, '?createOnly=true'), {}),
    'a creation with an id in the body': (branches, id) =>
      branches.call('main', 'POST', '/tables/items/data', { id }),
    'an upsert': (branches, id) => branches.call('main', 'POST', path(id), { n: 9 }),
    'a bulk insert': (branches, id) => branches.bulk('main', 'items', [{ n: 0 }, { id, n: 9 }]),
    'a transaction': (branches, id) =>
      branches.call('main', 'POST', '/transaction', {
        operations: [{ insert: { table: 'items', record: { id, n: 9 } } }],
      }),
    'a transaction that only creates': (branches, id) =>
      branches.call('main', 'POST', '/transaction', {
        operations: [{ insert: { table: 'items', record: { id, n: 9 }, createOnly: true } }],
      }),
    SQL: (branches, id) =>
      branches.call('main', 'POST', '/sql', {
        statement: 'insert into items (id, n) values ($1, 9)',
        params: [id],
      }),
    'a merge': async (branches, id) => {
      expectOk(
        await branches.call('dev', 'POST', '/merge', {
          strategy: 'theirs',
        }),
      )
      expect(await branches.record('main', 'items', id)).toBeDefined()
    },
  }
  for (const [kind, create] of Object.entries(creations)) {
    it.each(['x', GENERATED])(`is not used again by ${kind} of %s after a delete`, async (id) => {
      const branches = await open()
      await branches.put('main', 'items', id, { n: 1 })
      await branches.patch('main', 'items', id, { n: 2 })
      await branches.fork('dev')
      await branches.patch('dev', 'items', id, { n: 9 })
      await branches.remove('main', 'items', id)
      if (number % 2 === 0) await forget()
      await create(branches, id)
      const version = await versionOf(branches, 'main', id)
      expect(version).toBeGreaterThan(1)
      for (const old of [0, 1]) {
        const stale = await branches.call('main', 'PATCH', path(id, `?ifVersion=${old}`), { n: 5 })
        expect([stale.status, stale.body.code]).toEqual([422, 'version_conflict'])
      }
      await branches.patch('main', 'items', id, { n: 6 })
      expect(await versionOf(branches, 'main', id)).toBe(version + 1)
    })
  }

  it('continues from a deleted record for a day, and then starts above all deleted ones', async () => {
    const branches = await open()
    for (let version = 0; version < 20; version++) {
      await branches.put('main', 'items', 'often', { n: version })
    }
    await branches.put('main', 'items', 'once', { n: 0 })
    await branches.remove('main', 'items', 'often', 'once')
    expect(await collectDeletedRecords(service.database)).toBe(false)
    await branches.put('main', 'items', 'once', { n: 1 })
    expect(await versionOf(branches, 'main', 'once')).toBe(1)
    await forget()
    await branches.put('main', 'items', 'often', { n: 1 })
    expect(await versionOf(branches, 'main', 'often')).toBe(32)
    // One entry is left for all of them.
    const [database] = await service.database.query<{ id: string }>(
      sql`select id from offshoot.databases where name = ${branches.database}`,
    )
    const schema = ident(databaseSchema(database?.id ?? ''))
    const left = await service.database.query(
      sql`select version::integer, deleted_at from ${schema}.deleted_records`,
    )
    expect(left).toEqual([{ version: 31, deleted_at: null }])
  })

  it('is not used again after a reset, by any process, and is the same for new forks', async () => {
    const branches = await open()
    const others = branches.through(second)
    await branches.put('main', 'items', 'x', { n: 1 })
    await branches.fork('dev')
    await branches.patch('dev', 'items', 'x', { n: 2 })
    await branches.patch('main', 'items', 'x', { n: 3 })
    expect(await versionOf(others, 'dev', 'x')).toBe(1)
    expectOk(await branches.call('dev', 'POST', '/reset'))
    for (const through of [branches, others]) {
      const found = await through.record('dev', 'items', 'x')
      expect(found).toMatchObject({ n: 3, service: { version: 2 ** 32 + 1 } })
      const stale = await through.call('dev', 'PATCH', path('x', '?ifVersion=1'), { n: 4 })
      expect(stale.status).toBe(422)
    }
    await branches.fork('copy', 'dev')
    expect(await versionOf(branches, 'copy', 'x')).toBe(2 ** 32 + 1)
    const current = await branches.call('dev', 'PATCH', path('x', `?ifVersion=${2 ** 32 + 1}`), {})
    expect(current.body.service.version).toBe(2 ** 32 + 2)
    const filter = { 'service.version': { $ge: 2 ** 32 + 2 } }
    const query = await branches.call('dev', 'POST', '/tables/items/query', { filter })
    expect(query.body.records).toMatchObject([{ id: 'x', service: { version: 2 ** 32 + 2 } }])
    const statement = 'select "service.version" from items where "service.version" > 4294967296'
    const selected = await branches.call('dev', 'POST', '/sql', { statement })
    expect(selected.body.records).toEqual([{ 'service.version': 2 ** 32 + 2 }])
    const operations = [
      { update: { table: 'items', id: 'x', fields: { n: 1 }, ifVersion: 2 } },
      { update: { table: 'items', id: 'x', fields: { n: 1 }, ifVersion: 2 ** 32 + 2 } },
    ]
    for (const [index, operation] of operations.entries()) {
      const answer = await branches.call('dev', 'POST', '/transaction', { operations: [operation] })
      expect(answer.status).toBe(index === 0 ? 400 : 200)
    }
  })
})

describe('the last version', () => {
  /** Sets the version of a row to the largest one. */
  async function useUp(branches: TestBranches, id: string): Promise<void> {
    const [heap] = await service.database.query<{ id: string; databaseId: string }>(sql`
      select h.id, h.database_id as "databaseId"
      from offshoot.heaps h
      join offshoot.databases d on d.id = h.database_id
      where d.name = ${branches.database}`)
    await service.database.query(sql`
      update ${ident(`offshoot_db_${heap?.databaseId}`)}.${ident(`heap_${heap?.id}`)} set version = 2147483647 where id = ${id}`)
  }

  it.each(['x', GENERATED])('of %s can be read and deleted, and is not exceeded', async (id) => {
    const branches = await open()
    await branches.put('main', 'items', id, { n: 1 })
    await useUp(branches, id)
    expect(await versionOf(branches, 'main', id)).toBe(2 ** 31 - 1)
    const message =
      'invalid record: the versions of the record are used up; the last one is 2147483647; use another id'
    for (const method of ['PATCH', 'PUT', 'POST']) {
      const answer = await branches.call('main', method, path(id), { n: 2 })
      expect([answer.status, answer.body.message]).toEqual([400, message])
    }
    const operation = { update: { table: 'items', id, fields: { n: 2 } } }
    const failed = await branches.call('main', 'POST', '/transaction', { operations: [operation] })
    expect(failed.status).toBe(400)
    const stale = await branches.call('main', 'PATCH', path(id, '?ifVersion=2147483647'), { n: 2 })
    expect(stale.status).toBe(400)
    expect(await branches.record('main', 'items', id)).toMatchObject({ n: 1 })
    await branches.remove('main', 'items', id)
    for (const forgets of [false, true]) {
      if (forgets) await forget()
      const answer = await branches.call('main', 'PUT', path(id), { n: 2 })
      expect([answer.status, answer.body.message]).toEqual([400, message])
      const bulk = await branches.call('main', 'POST', '/tables/items/bulk', { records: [{ id }] })
      expect(bulk.status).toBe(400)
    }
    const { body } = expectOk(await branches.call('main', 'POST', '/tables/items/data', { n: 1 }))
    expect(body.service.version).toBe(0)
  })

  it('of a branch refuses another reset', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'x', { n: 1 })
    await branches.fork('dev')
    await service.database.query(sql`
      update offshoot.branches
      set version_base = ${2 ** 53 - 2 ** 33}::bigint, stamp = nextval('offshoot.stamps')
      where name = 'dev' and deleted_at is null
        and database_id = (select id from offshoot.databases where name = ${branches.database})`)
    expectOk(await branches.call('dev', 'POST', '/reset'))
    expect(await versionOf(branches, 'dev', 'x')).toBe(2 ** 53 - 2 ** 32)
    const refused = await branches.call('dev', 'POST', '/reset')
    expect([refused.status, refused.body.code]).toEqual([422, 'limit_reached'])
    await branches.patch('dev', 'items', 'x', { n: 2 })
    expect(await versionOf(branches, 'dev', 'x')).toBe(2 ** 53 - 2 ** 32 + 1)
  })
})

const IDS = ['a', 'b', 'c', GENERATED]
const BRANCHES = ['main', 'dev', 'test']

/**
 * Remembers the content of every version that was ever seen on a branch. Every write stores a number that
 * was not used before, so different contents are told apart.
 */
class Memory {
  readonly #contents = new Map<string, number>()
  readonly #current = new Map<string, number>()
  #next = 0

  content(): number {
    return ++this.#next
  }

  /** Compares all records of a branch with what was seen before. */
  async look(branches: TestBranches, branch: string): Promise<void> {
    const operations = IDS.map((id) => ({ get: { table: 'items', id, columns: ['*'] } }))
    const answer = expectOk(await branches.call(branch, 'POST', '/transaction', { operations }))
    for (const [index, id] of IDS.entries()) {
      const { n, service: metadata } = answer.body.results[index].columns
      if (metadata === undefined) {
        this.#current.delete(`${branch} ${id}`)
        continue
      }
      const key = `${branch} ${id} ${metadata.version}`
      expect(this.#contents.get(key) ?? n, `content of ${key}`).toBe(n)
      this.#contents.set(key, n)
      this.#current.set(`${branch} ${id}`, metadata.version)
    }
  }

  /** Returns versions of a record that were seen and are not current. */
  staleVersions(branch: string, id: string): number[] {
    const prefix = `${branch} ${id} `
    return [...this.#contents.keys()]
      .filter((key) => key.startsWith(prefix))
      .map((key) => Number(key.slice(prefix.length)))
      .filter((version) => version !== this.#current.get(`${branch} ${id}`))
  }
}

describe('random histories', () => {
  it(
    'never show a version with two contents, and never accept an old version',
    async () => {
      const random = new Random(SEED)
      const branches = await open()
      const memory = new Memory()
      await branches.fork('dev')
      await branches.fork('test', 'dev')
      const log: string[] = []
      const write = async (through: TestBranches, branch: string): Promise<void> => {
        const id = random.pick(IDS)
        const n = memory.content()
        const operation = random.pick([
          { insert: { table: 'items', record: { id, n } } },
          { update: { table: 'items', id, fields: { n }, upsert: true } },
          { delete: { table: 'items', id } },
        ])
        const requests: readonly (readonly [string, string, unknown?])[] = [
          ['PUT', path(id), { n }],
          ['POST', path(id), { n }],
          ['PATCH', path(id), { n }],
          ['DELETE', path(id)],
          ['DELETE', path(id)],
          ['POST', '/tables/items/bulk', { records: [{ id, n }] }],
          ['POST', '/transaction', { operations: [{ delete: { table: 'items', id } }, operation] }],
          ['POST', '/sql', { statement: `insert into items (id, n) values ('${id}', ${n})` }],
          ['POST', '/sql', { statement: `update items set n = ${n} where id = '${id}'` }],
          ['POST', '/sql', { statement: `delete from items where id = '${id}'` }],
        ]
        const [method, url, body] = random.pick(requests)
        const answer = await through.call(branch, method, url, body)
        log.push(`${branch}: ${method} ${url} ${JSON.stringify(body)}: ${answer.status}`)
        expect([200, 201, 204, 400, 404], JSON.stringify(answer.body)).toContain(answer.status)
      }
      const change = async (through: TestBranches): Promise<void> => {
        const branch = random.pick(['dev', 'test'])
        const [url, body] = random.pick<readonly [string, unknown?]>([
          ['/reset'],
          ['/merge', { strategy: 'theirs' }],
          ['/merge', { strategy: 'ours' }],
          ['/pull', { strategy: 'theirs' }],
        ])
        const answer = await through.call(branch, 'POST', url, body)
        log.push(`${branch}: POST ${url} ${JSON.stringify(body)}: ${answer.status}`)
        expect([200, 404], JSON.stringify(answer.body)).toContain(answer.status)
      }
      const refuse = async (through: TestBranches, branch: string): Promise<void> => {
        const id = random.pick(IDS)
        const [version] = random.some(memory.staleVersions(branch, id), 0.1)
        if (version === undefined) return
        const query = `?ifVersion=${version}`
        const answer = await through.call(branch, 'PATCH', path(id, query), { n: 0 })
        expect([404, 422], `${branch} ${id} ${version}`).toContain(answer.status)
      }
      const collect = async (): Promise<void> => {
        log.push('collect')
        while ((await sweepBranch(service.database)) || (await collectHeap(service.database)));
        await forget()
      }
      try {
        for (let step = 0; step < STEPS; step++) {
          const through = random.chance(0.5) ? branches : branches.through(second)
          const branch = random.pick(BRANCHES)
          if (random.chance(0.08)) await change(through)
          else if (random.chance(0.05)) await collect()
          else await write(through, branch)
          for (const name of BRANCHES) await memory.look(through, name)
          await refuse(through, branch)
        }
      } catch (error) {
        throw new Error(`seed ${SEED}, after:\n${log.slice(-40).join('\n')}`, { cause: error })
      }
    },
    STEPS_TIMEOUT_MS,
  )
})
