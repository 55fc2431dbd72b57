import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground, runNext } from '../../packages/server/src/background.js'
import type { Queryable } from '../../packages/server/src/postgres/database.js'
import { runTransaction } from '../../packages/server/src/postgres/run-transaction.js'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import { takeWork } from '../../packages/server/src/postgres/work.js'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'
import { countWork, makeDue, runKind } from '../support/work.js'

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

const ITEMS: readonly Column[] = [{ name: 'price', type: 'int' }]
const IDS = ['a', 'b', 'c']

async function open() {
  const branches = await TestBranches.create(service, `collect${++number}`, { items: ITEMS })
  await branches.bulk(
    'main',
    'items',
    IDS.map((id) => ({ id, price: 0 })),
  )
  return branches
}
const items = (branches: TestBranches, branch: string) => branches.read(branch, 'items', IDS)

async function collect(): Promise<void> {
  for (let round = 0; round < 3; round++) await runBackground(service)
}

/**
 * Reads what is stored for a database: its branches, and the number of rows in each heap and its
 * past table.
 */
async function storage(branches: TestBranches) {
  const { database } = branches
  const rows = await service.database.query<{ name: string; isHidden: boolean }>(sql`
    select b.name, b.deleted_at is not null as "isHidden"
    from offshoot.branches b
    join offshoot.databases d on d.id = b.database_id
    where d.name = ${database}`)
  const heaps = await service.database.query<{ id: string; databaseId: string }>(sql`
    select h.id, h.database_id as "databaseId"
    from offshoot.heaps h
    join offshoot.databases d on d.id = h.database_id
    where d.name = ${database}
    order by h.id`)
  const count = async (table: string) => {
    const [row] = await service.database.query<{ count: number }>(sql`
      select count(*)::integer as count
      from ${ident(`offshoot_db_${heaps[0]?.databaseId}`)}.${ident(table)}`)
    return row?.count ?? 0
  }
  const versions: [rows: number, past: number][] = []
  for (const { id } of heaps) versions.push([await count(`heap_${id}`), await count(`past_${id}`)])
  return {
    branches: rows.map(({ name, isHidden }) => (isHidden ? `(${name})` : name)).sort(),
    heaps: versions,
  }
}

describe('the collector', () => {
  it('drops the tables of a branch that is deleted', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.put('dev', 'items', 'a', { price: 1 })
    await branches.delete('dev')
    await collect()
    expect(await storage(branches)).toEqual({ branches: ['main'], heaps: [[3, 0]] })
  })

  it('keeps a deleted branch as long as a fork of it, or a fork of that, reads it', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.patch('dev', 'items', 'a', { price: 1 })
    await branches.fork('deep', 'dev')
    await branches.fork('deeper', 'deep')
    await branches.patch('main', 'items', 'b', { price: 2 })
    await branches.patch('dev', 'items', 'a', { price: 3 })
    const before = await items(branches, 'deeper')
    await branches.delete('dev')
    await branches.delete('deep')
    await collect()
    expect(await items(branches, 'deeper')).toEqual(before)
    expect(await items(branches.through(second), 'deeper')).toEqual(before)
    expect((await storage(branches)).branches).toEqual(['(deep)', '(dev)', 'deeper', 'main'])
    await branches.delete('deeper')
    await collect()
    expect(await storage(branches)).toEqual({ branches: ['main'], heaps: [[3, 0]] })
  })

  it('keeps the versions that some fork sees, and no other', async () => {
    const branches = await open()
    await branches.fork('one')
    await branches.patch('main', 'items', 'a', { price: 1 })
    await branches.fork('two')
    await branches.patch('main', 'items', 'a', { price: 2 })
    await branches.patch('main', 'items', 'b', { price: 2 })
    await branches.fork('three')
    await branches.remove('main', 'items', 'a')
    // The past table has versions 0, 1 and 2 of `a`, and version 0 of `b`, which two forks see.
    expect((await storage(branches)).heaps).toEqual([[2, 4]])
    await branches.delete('two')
    await collect()
    expect((await storage(branches)).heaps).toEqual([[2, 3]])
    expect(await items(branches, 'one')).toEqual({
      a: { price: 0 },
      b: { price: 0 },
      c: { price: 0 },
    })
    expect(await items(branches, 'three')).toEqual({
      a: { price: 2 },
      b: { price: 2 },
      c: { price: 0 },
    })
    await branches.delete('one')
    await collect()
    expect((await storage(branches)).heaps).toEqual([[2, 1]])
    expect(await items(branches, 'three')).toEqual({
      a: { price: 2 },
      b: { price: 2 },
      c: { price: 0 },
    })
    await branches.delete('three')
    await collect()
    expect((await storage(branches)).heaps).toEqual([[2, 0]])
  })

  it('keeps what a fork reads of its grandparent, as of the fork of its parent', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.patch('main', 'items', 'a', { price: 1 })
    await branches.fork('deep', 'dev')
    await branches.delete('dev')
    await collect()
    await branches.patch('main', 'items', 'b', { price: 1 })
    await collect()
    expect(await items(branches, 'deep')).toEqual({
      a: { price: 0 },
      b: { price: 0 },
      c: { price: 0 },
    })
  })

  it('keeps a table that was dropped for the forks that have it, and then drops it too', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.fork('deep', 'dev')
    await branches.edit('main', { removeTable: { table: 'items' } })
    await branches.edit('dev', { removeTable: { table: 'items' } })
    await collect()
    expect(await items(branches, 'deep')).toEqual({
      a: { price: 0 },
      b: { price: 0 },
      c: { price: 0 },
    })
    await branches.delete('deep')
    await collect()
    // `dev` cannot see the table, but the collector cannot tell: it keeps the heap until `dev` is
    // deleted.
    await branches.delete('dev')
    await collect()
    expect(await storage(branches)).toEqual({ branches: ['main'], heaps: [] })
  })

  it('takes what a reset has left behind', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.patch('dev', 'items', 'a', { price: 1 })
    await branches.fork('child', 'dev')
    await branches.patch('dev', 'items', 'a', { price: 2 })
    await branches.reset('dev')
    await branches.patch('dev', 'items', 'a', { price: 3 })
    await collect()
    expect((await storage(branches)).branches).toEqual(['(dev)', 'child', 'dev', 'main'])
    expect(await items(branches, 'child')).toMatchObject({ a: { price: 1 } })
    await branches.delete('child')
    await branches.reset('dev')
    await collect()
    expect(await storage(branches)).toEqual({ branches: ['dev', 'main'], heaps: [[3, 0]] })
  })

  it('takes what was merged once it is merged again, or one of the two is gone', async () => {
    const branches = await open()
    await branches.fork('dev')
    for (let price = 1; price <= 5; price++) {
      await branches.patch('dev', 'items', 'a', { price })
      await branches.merge('dev')
    }
    await branches.patch('dev', 'items', 'a', { price: 6 })
    await collect()
    // The version that was merged last is kept as the merge base.
    expect(await storage(branches)).toEqual({
      branches: ['(dev)', 'dev', 'main'],
      heaps: [
        [3, 1],
        [1, 1],
      ],
    })
    await branches.delete('dev')
    await collect()
    expect(await storage(branches)).toEqual({ branches: ['main'], heaps: [[3, 0]] })
  })

  it('keeps a state that two others have in common through a branch that is deleted', async () => {
    const branches = await open()
    await branches.fork('left')
    await branches.patch('main', 'items', 'a', { price: 1 })
    await branches.fork('middle')
    await branches.patch('middle', 'items', 'b', { price: 1 })
    await branches.merge('middle', { into: 'left' })
    await branches.delete('middle')
    await branches.patch('main', 'items', 'a', { price: 2 })
    await collect()
    // The rows written by `middle` are gone; the state of `main` that `middle` was forked from is
    // kept as the merge base.
    expect((await storage(branches)).heaps).toHaveLength(2)
    expect((await branches.merge('left')).conflictCount).toBe(0)
    expect(await items(branches, 'main')).toEqual({
      a: { price: 2 },
      b: { price: 1 },
      c: { price: 0 },
    })
    await branches.delete('left')
    await collect()
    expect(await storage(branches)).toEqual({ branches: ['main'], heaps: [[3, 0]] })
  })

  it('takes everything of a database that is deleted', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.patch('dev', 'items', 'a', { price: 1 })
    await branches.merge('dev')
    const ids = await service.database.query<{ id: string }>(sql`
      select h.id from offshoot.heaps h
      join offshoot.databases d on d.id = h.database_id
      where d.name = ${branches.database}`)
    expect(ids).toHaveLength(2)
    await service.call('DELETE', `/workspaces/${service.workspaceId}/dbs/${branches.database}`)
    await collect()
    const left = await service.database.query(sql`
      select relname from pg_class
      where relname = any(${ids.flatMap(({ id }) => [`heap_${id}`, `past_${id}`])}::text[])`)
    expect(left).toEqual([])
  })

  it('drops the PostgreSQL schema and the role of a database that is deleted', async () => {
    const branches = await open()
    expectOk(await branches.call('main', 'POST', '/sql', { statement: 'select 1' }))
    const [names] = await service.database.query<{ schema: string; role: string }>(sql`
      select 'offshoot_db_' || d.id as schema, format('offshoot_%s_db_%s', i.id, d.id) as role
      from offshoot.databases d, offshoot_work.identity i
      where d.name = ${branches.database}`)
    const present = async () => {
      const [row] = await service.database.query(sql`
        select to_regnamespace(${names?.schema}::text) is not null as schema,
          exists (select from pg_roles where rolname = ${names?.role}) as role`)
      return row
    }
    expect(await present()).toEqual({ schema: true, role: true })
    const path = `/workspaces/${service.workspaceId}/dbs/${branches.database}`
    expectOk(await service.call('DELETE', path))
    await collect()
    expect(await present()).toEqual({ schema: false, role: false })
  })

  it('leaves no schema that no branch has', async () => {
    const branches = await open()
    await branches.fork('dev')
    for (const name of ['one', 'two', 'three']) {
      await branches.edit('dev', { addColumn: { table: 'items', column: { name, type: 'int' } } })
    }
    await branches.merge('dev')
    await branches.delete('dev')
    await collect()
    const [row] = await service.database.query<{ count: number }>(sql`
      select count(*)::integer as count from offshoot.schemas s
      join offshoot.databases d on d.id = s.database_id
      where d.name = ${branches.database}`)
    expect(row?.count).toBe(1)
  })

  it('goes in steps, however much there is', async () => {
    const branches = await open()
    const rows = Array.from({ length: 3500 }, (_, index) => ({ id: `n${index}`, price: 0 }))
    await branches.bulk('main', 'items', rows)
    await branches.fork('dev')
    for (let start = 0; start < rows.length; start += 1000) {
      const operations = rows
        .slice(start, start + 1000)
        .map(({ id }) => ({ update: { table: 'items', id, fields: { price: 1 } } }))
      await branches.call('main', 'POST', '/transaction', { operations })
    }
    expect((await storage(branches)).heaps).toEqual([[3503, 3500]])
    await branches.delete('dev')
    await collect()
    expect((await storage(branches)).heaps).toEqual([[3503, 0]])
  })
})

describe('two collectors at once', () => {
  it('lose nothing that branches need while those come and go, and leave nothing else', async () => {
    const branches = await open()
    const isDone = { now: false }
    const collecting = [service, second].map(async (own) => {
      while (!isDone.now) await runBackground(own)
    })
    const working = Array.from({ length: 3 }, async (_, worker) => {
      const own = branches.through(worker % 2 === 0 ? service : second)
      for (let round = 0; round < 8; round++) {
        const [name, child] = [`w${worker}r${round}`, `w${worker}r${round}c`]
        await own.fork(name)
        const inherited = await items(own, name)
        await own.patch(name, 'items', 'a', { price: round })
        await own.fork(child, name)
        await own.patch('main', 'items', IDS[worker] ?? 'a', { price: 100 + round })
        await own.patch(name, 'items', 'b', { price: round })
        if (round % 3 === 0) await own.reset(name)
        if (round % 3 === 1) await own.merge(name, { strategy: 'theirs' })
        if (round % 3 === 2) await own.pull(name, { strategy: 'ours' })
        expect(await items(own, child)).toEqual({ ...inherited, a: { price: round } })
        await own.delete(name)
        expect(await items(own, child)).toEqual({ ...inherited, a: { price: round } })
        await own.merge(child, { into: 'main', strategy: 'ours' })
        await own.delete(child)
      }
    })
    try {
      await Promise.all(working)
    } finally {
      isDone.now = true
      await Promise.all(collecting)
    }
    await collect()
    expect(await storage(branches)).toEqual({ branches: ['main'], heaps: [[3, 0]] })
    const merges = await service.database.query(sql`select from offshoot.merges`)
    expect(merges).toEqual([])
    expect(await countWork(service.database, 'sweep')).toBe(0)
  })
})

describe('a sweep that fails', () => {
  it('does not block the others, and is repeated later', async () => {
    const [broken, healthy] = [await open(), await open()]
    for (const branches of [broken, healthy]) {
      await branches.fork('dev')
      for (const id of IDS) await branches.patch('main', 'items', id, { price: 1 })
    }
    const [heap] = await service.database.query<{ id: string; databaseId: string }>(sql`
      select h.id, h.database_id as "databaseId"
      from offshoot.heaps h
      join offshoot.databases d on d.id = h.database_id
      where d.name = ${broken.database}`)
    const schema = ident(`offshoot_db_${heap?.databaseId}`)
    const [past, away] = [ident(`past_${heap?.id}`), ident(`away_${heap?.id}`)]
    const pasts = async (table: ReturnType<typeof ident>) => {
      const [row] = await service.database.query<{ count: number }>(
        sql`select count(*)::integer as count from ${schema}.${table}`,
      )
      return row?.count
    }
    await service.database.query(sql`alter table ${schema}.${past} rename to ${away}`)
    try {
      await broken.delete('dev')
      await healthy.delete('dev')
      await collect()
      expect(await pasts(away)).toBe(3)
      expect((await storage(healthy)).heaps).toEqual([[3, 0]])
      const waiting = await service.database.query(sql`
        select failures > 0 as "hasFailed", due_at > now() as "isLater", error is not null as "hasError"
        from offshoot.work
        where kind = 'sweep'`)
      expect(waiting.length).toBeGreaterThan(0)
      for (const sweep of waiting) {
        expect(sweep).toEqual({ hasFailed: true, isLater: true, hasError: true })
      }
    } finally {
      await service.database.query(sql`alter table ${schema}.${away} rename to ${past}`)
    }
    await makeDue(service.database)
    await collect()
    expect(await pasts(past)).toBe(0)
    expect(await countWork(service.database, 'sweep')).toBe(0)
  })
})

describe('a sweep after the deletion of a fork', () => {
  it('deletes exactly the versions that no remaining fork can see', async () => {
    const branches = await open()
    for (const name of ['one', 'two', 'three']) {
      await branches.fork(name)
      await branches.patch('main', 'items', 'a', { price: 1 })
      if (name === 'two') await branches.patch('main', 'items', 'b', { price: 2 })
    }
    const before = { one: await items(branches, 'one'), three: await items(branches, 'three') }
    expect((await storage(branches)).heaps).toEqual([[3, 4]])
    await branches.delete('two')
    await collect()
    // The second version of `a` was visible to `two` alone; the first one of `b` also to `one`.
    expect((await storage(branches)).heaps).toEqual([[3, 3]])
    expect(await items(branches, 'one')).toEqual(before.one)
    expect(await items(branches, 'three')).toEqual(before.three)
    await branches.delete('one')
    await collect()
    expect((await storage(branches)).heaps).toEqual([[3, 1]])
    expect(await items(branches, 'three')).toEqual(before.three)
  })
})

describe('a long queue', () => {
  const databaseIdOf = async ({ database }: TestBranches) => {
    const [row] = await service.database.query<{ id: string }>(sql`
      select id from offshoot.databases where name = ${database}`)
    return row?.id ?? ''
  }
  /** Queues sweeps of branches that do not exist, each of which takes one step. */
  const insertSweeps = (databaseId: string, count: number) =>
    service.database.query(sql`
      insert into offshoot.work (kind, database_id, subject, details)
      select 'sweep', ${databaseId}::bigint, 'gone' || n, '[null]' from generate_series(1, ${count}::integer) n`)

  it('makes the next round follow at once', async () => {
    const branches = await open()
    await collect()
    await insertSweeps(await databaseIdOf(branches), 150)
    // A round takes a hundred steps.
    expect(await runBackground(service)).toBe(true)
    expect(await countWork(service.database, 'sweep')).toBe(50)
    expect(await runBackground(service)).toBe(false)
    expect(await countWork(service.database, 'sweep')).toBe(0)
  })

  it('of one database does not keep others waiting', async () => {
    const [busy, quiet] = [await open(), await open()]
    await collect()
    const [busyId, quietId] = [await databaseIdOf(busy), await databaseIdOf(quiet)]
    await insertSweeps(busyId, 20)
    await insertSweeps(quietId, 2)
    const turn = { databaseId: '0' }
    const left = async () => {
      const rows = await service.database.query<{ databaseId: string }>(sql`
        select database_id as "databaseId" from offshoot.work where kind = 'sweep'`)
      return [busyId, quietId].map(
        (id) => rows.filter(({ databaseId }) => databaseId === id).length,
      )
    }
    for (let step = 0; step < 4; step++) {
      await runNext(service, { isWanted: sql`kind = 'sweep'`, turn })
    }
    expect(await left()).toEqual([18, 0])
  })

  it('has no sweep of a branch after its row is deleted', async () => {
    const branches = await open()
    await collect()
    await branches.fork('dev')
    await branches.fork('deep', 'dev')
    await branches.delete('dev')
    await branches.delete('deep')
    expect(await countWork(service.database, 'sweep')).toBe(2)
    await service.database.query(sql`
      update offshoot.work
      set due_at = now() + interval '1 hour'
      where subject in (select id from offshoot.branches where name = 'dev')`)
    // With the last fork of `dev`, the branch itself is deleted. What is left is the sweep of `main`.
    expect(await runKind(service, 'sweep')).toBe(true)
    const subjects = await service.database.query<{ name: string }>(sql`
      select b.name
      from offshoot.work w left join offshoot.branches b on b.id = w.subject
      where w.kind = 'sweep'`)
    expect(subjects).toEqual([{ name: 'main' }])
    await collect()
  })
})

describe('requests for the same work', () => {
  it('are served together, and those that come during the work by another turn', async () => {
    const branches = await open()
    await collect()
    const [row] = await service.database.query<{ id: string; databaseId: string }>(sql`
      select b.id, b.database_id as "databaseId"
      from offshoot.branches b join offshoot.databases d on d.id = b.database_id
      where d.name = ${branches.database}`)
    const insert = () =>
      service.database.query(sql`
        insert into offshoot.work (kind, database_id, subject, details)
        values ('sweep', ${row?.databaseId}, ${row?.id}, '[1]')`)
    const take = (transaction: Queryable) =>
      takeWork(transaction, { isWanted: sql`kind = 'sweep'`, afterDatabaseId: '0' })
    await insert()
    await insert()
    await runTransaction(
      service.database,
      async (transaction) => {
        expect(await take(transaction)).toMatchObject({ subject: row?.id, details: [1, 1] })
        await insert()
        // Another worker does not wait for this one, and gets the later request.
        await runTransaction(
          service.database,
          async (other) => {
            expect(await take(other)).toMatchObject({ subject: row?.id, details: [1] })
          },
          { isolation: 'read committed' },
        )
      },
      { isolation: 'read committed' },
    )
    await collect()
    expect(await countWork(service.database, 'sweep')).toBe(0)
  })
})

describe('a scan', () => {
  it('is due again after a pause, for all processes together', async () => {
    await runBackground(service, { pauseMs: 60_000 })
    const dueAt = () =>
      service.database.query(sql`
        select kind, due_at as "dueAt", due_at > now() + interval '50 seconds' as "isLater"
        from offshoot.work where database_id = 0 order by kind`)
    const before = await dueAt()
    expect(before.map(({ kind }) => kind)).toEqual(expect.arrayContaining(['expiry', 'usage']))
    expect(before.every(({ isLater }) => isLater)).toBe(true)
    await runBackground(service)
    expect(await dueAt()).toEqual(before)
    await makeDue(service.database)
  })
})
