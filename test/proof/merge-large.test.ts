import type { Column } from '@offshoot/contract/schema'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { QueryHold } from '../support/hold-query.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'
import { listWaiting, lockTable } from '../support/table-lock.js'

/*
 * A merge of many rows compares without locks. The tests stop it there, write to both branches, and let it
 * go on.
 */

let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const ITEMS: readonly Column[] = [
  { name: 'code', type: 'string', unique: true },
  { name: 'price', type: 'int' },
]
const COUNT = 2_600
const idOf = (index: number) => `n${String(index).padStart(4, '0')}`

/** Creates `main`, and its fork `dev` with many new records. */
async function open() {
  const branches = await TestBranches.create(service, `large${++number}`, {
    items: ITEMS,
    notes: [{ name: 'text', type: 'text' }],
  })
  await branches.bulk('main', 'items', [
    { id: 'a', code: 'A', price: 1 },
    { id: 'b', code: 'B', price: 2 },
  ])
  await branches.fork('dev')
  const records = Array.from({ length: COUNT }, (_, index) => ({ id: idOf(index), price: index }))
  await branches.bulk('dev', 'items', records)
  await branches.patch('dev', 'items', 'a', { price: 10 })
  await branches.put('dev', 'items', 'd', { code: 'D' })
  await branches.put('dev', 'notes', 'n', { text: 'N' })
  return branches
}

describe('a merge of as many rows as may be locked', () => {
  it.each([
    [5, 0],
    [6, 1],
  ])('locks both branches: of %i rows it closes %i epochs of the target', async (rows, closed) => {
    const small = await createTestService({ limits: { mergeLockedRowsMax: 5 } })
    try {
      const branches = await TestBranches.create(small, 'edge', { items: ITEMS })
      await branches.fork('dev')
      const added = Array.from({ length: rows }, (_, index) => ({ id: idOf(index), price: index }))
      await branches.bulk('dev', 'items', added)
      const epochOf = async () => {
        const [row] = await small.database.query<{ epoch: number }>(sql`
          select epoch from offshoot.branches where name = 'main' and deleted_at is null`)
        return row?.epoch ?? 0
      }
      const before = await epochOf()
      expect(await branches.merge('dev')).toMatchObject({ merged: true })
      expect((await epochOf()) - before).toBe(closed)
      const ids = added.map(({ id }) => id)
      expect(Object.keys(await branches.read('main', 'items', ids))).toEqual(ids)
    } finally {
      await small.close()
    }
  })
})

describe('a large merge that has pinned both branches', () => {
  const COLUMNS: readonly Column[] = [
    { name: 'ours', type: 'int' },
    { name: 'theirs', type: 'int' },
  ]
  const IDS = ['a', 'b', 'c', 'd', 'e', 'f']

  it('compares them with the history of that moment, if they are merged the other way before it compares', async () => {
    const hold = new QueryHold()
    const limits = { mergeLockedRowsMax: 2 }
    const held = await createTestService({ limits, tracing: hold.tracing })
    const other = await createTestService({ limits, url: held.url })
    try {
      const branches = await TestBranches.create(held, 'both-ways', { items: COLUMNS })
      await branches.bulk(
        'main',
        'items',
        IDS.map((id) => ({ id, ours: 0, theirs: 0 })),
      )
      await branches.fork('dev')
      for (const id of IDS.slice(1)) {
        await branches.patch('main', 'items', id, { ours: 1 })
        await branches.patch('dev', 'items', id, { theirs: 1 })
      }
      await branches.remove('main', 'items', 'a')
      await branches.put('main', 'items', 'new', { ours: 1 })
      let merging: ReturnType<typeof branches.merging> | undefined
      await hold.during(
        (text) => /^begin isolation level repeatable read(?! read only)/.test(text),
        () => {
          merging = branches.merging('dev', {})
        },
        async () => {
          const pulled = await branches.through(other).call('dev', 'POST', '/pull', {})
          expect(pulled.body).toMatchObject({ merged: true })
        },
      )
      const tables = [{ name: 'items', inserted: 0, updated: IDS.length - 1, deleted: 0 }]
      expect(await merging).toMatchObject({ status: 200, body: { tables } })
      const expected = Object.fromEntries([
        ...IDS.slice(1).map((id) => [id, { ours: 1, theirs: 1 }]),
        ['new', { ours: 1 }],
      ])
      const all = [...IDS, 'new']
      expect(await branches.read('main', 'items', all)).toEqual(expected)
      expect(await branches.read('dev', 'items', all)).toEqual(expected)
      // Neither direction has anything left to bring.
      expect(await branches.merge('dev')).toMatchObject({ merged: false })
      const again = await branches.call('dev', 'POST', '/pull', {})
      expect(again.body).toMatchObject({ merged: false })
    } finally {
      await other.close()
      await held.close()
    }
  })
})

/** The target changes the table, so the merge decides about each of its rows, and stages the decisions. */
async function contest(branches: TestBranches): Promise<void> {
  await branches.put('main', 'items', 'own', { price: 0 })
}

/** Returns the past of `notes` on `main`. The comparison reads it after `items`. */
async function pastOfNotes(branches: TestBranches): Promise<string> {
  const [row] = await service.database.query<{ name: string }>(sql`
    select format('offshoot_db_%s.past_%s', h.database_id, h.id) as name
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.databases d on d.id = b.database_id
    where d.name = ${branches.database} and b.name = 'main' and b.deleted_at is null
    order by h.table_id desc
    limit 1`)
  return row?.name ?? ''
}

/** Runs `body` while a merge waits in the middle of its comparison. Returns the answer of the merge. */
async function during(branches: TestBranches, options: object, body: () => Promise<void>) {
  const { isCluster } = service.database.server
  const past = { table: await pastOfNotes(branches), isCluster }
  const client = new pg.Client({ connectionString: service.url })
  await client.connect()
  try {
    await client.query('begin')
    await lockTable(client, { ...past, mode: 'access exclusive' })
    const merging = branches.merging('dev', options)
    await until(async () => (await listWaiting(client, past)).length > 0)
    await body()
    await client.query('rollback')
    return await merging
  } finally {
    await client.end()
  }
}

/** Counts what a merge must not leave behind: staged rows, and hidden forks that no merge needs. */
async function leftovers(): Promise<number> {
  const [row] = await service.database.query<{ count: number }>(sql`
    select (
      (select count(*) from pg_tables
        where starts_with(schemaname, 'offshoot_db_') and starts_with(tablename, 'merge_'))
      + (select count(*) from offshoot.branches b
        where b.deleted_at is not null
          and not exists (select from offshoot.branches f where f.parent_id = b.id)
          and not exists (select from offshoot.merges m where m.base_branch_id = b.id))
    )::integer as count`)
  return row?.count ?? -1
}

describe('while a large merge compares', () => {
  it('both branches are written, and the merge takes its own state and keeps the writes', async () => {
    const branches = await open()
    await contest(branches)
    const { status, body } = await during(branches, {}, async () => {
      await branches.put('main', 'items', 'x', { code: 'X' })
      // Both sides insert the same record, so one insert less is merged.
      await branches.put('main', 'items', idOf(7), { price: 7 })
      // Not part of the merge, which began before.
      await branches.patch('dev', 'items', idOf(8), { price: -8 })
      await branches.put('dev', 'items', 'late', { price: 0 })
    })
    expect([status, body.tables]).toEqual([
      200,
      [
        { name: 'items', inserted: COUNT, updated: 1, deleted: 0 },
        { name: 'notes', inserted: 1, updated: 0, deleted: 0 },
      ],
    ])
    const ids = ['a', 'd', 'x', idOf(7), idOf(8), 'late']
    expect(await branches.read('main', 'items', ids)).toEqual({
      a: { code: 'A', price: 10 },
      d: { code: 'D' },
      x: { code: 'X' },
      [idOf(7)]: { price: 7 },
      [idOf(8)]: { price: 8 },
    })
    // The next merge brings what came later, and only that.
    expect((await branches.merge('dev')).tables).toMatchObject([
      { name: 'items', inserted: 1, updated: 1, deleted: 0 },
      { name: 'notes', inserted: 0 },
    ])
    expect(await leftovers()).toBe(0)
  })

  it.each([
    ['a record that contradicts it', idOf(3), { price: -1 }, { id: idOf(3), kind: 'bothInserted' }],
    [
      'a unique value that it needs',
      'y',
      { code: 'D' },
      { column: 'code', kind: 'notUnique', ids: ['d', 'y'], value: 'D' },
    ],
  ])('the target gets %s, which is a conflict', async (_name, id, record, conflict) => {
    const branches = await open()
    const { status, body } = await during(branches, {}, () =>
      branches.put('main', 'items', id, record),
    )
    expect(status).toBe(409)
    expect(body.conflicts).toMatchObject([conflict])
    expect(Object.keys(await branches.read('main', 'items', ['a', 'd', idOf(1), id]))).toEqual([
      'a',
      id,
    ])
    expect(await leftovers()).toBe(0)
  })

  it('a record of the target is created anew, with the version that was compared', async () => {
    const branches = await open()
    const { status, body } = await during(branches, {}, async () => {
      await branches.remove('main', 'items', 'a', 'b')
      await branches.put('main', 'items', 'a', { code: 'A', price: 3 })
      await branches.put('main', 'items', 'b', { code: 'B', price: 3 })
    })
    expect([status, body.code]).toEqual([409, 'merge_conflict'])
    expect(body.conflicts).toMatchObject([{ id: 'a' }])
    await branches.merge('dev', { strategy: 'theirs' })
    expect(await branches.read('main', 'items', ['a', 'b'])).toEqual({
      a: { code: 'A', price: 10 },
      b: { code: 'B', price: 3 },
    })
  })

  it.each([
    ['a record in conflict', 'a', { price: 12 }],
    ['a record that gets into conflict', idOf(3), { price: -1 }],
  ])('the target gets %s, which nobody has reviewed', async (_name, id, record) => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { price: 11 })
    const { conflictTables } = await branches.merge('dev', { dryRun: true })
    const resolutions = [{ table: 'items', take: 'theirs', token: conflictTables[0].token }]
    const { status, body } = await during(branches, { resolutions }, () =>
      branches.put('main', 'items', id, record),
    )
    expect([status, body.code]).toEqual([409, 'outdated_resolution'])
    expect(body.conflicts.map((conflict: { id: string }) => conflict.id)).toContain(id)
    expect(await branches.read('main', 'items', [id, idOf(1)])).toEqual({ [id]: record })
    expect(await leftovers()).toBe(0)
  })

  it('the target gets other records, which a resolution of the whole table is not about', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { price: 11 })
    const { conflictTables } = await branches.merge('dev', { dryRun: true })
    const resolutions = [{ table: 'items', take: 'theirs', token: conflictTables[0].token }]
    const { status } = await during(branches, { resolutions }, async () => {
      await branches.patch('main', 'items', 'b', { price: 22 })
      // The merge has this record, so all is compared again.
      await branches.put('main', 'items', idOf(7), { price: 7 })
    })
    expect(status).toBe(200)
    expect(await branches.read('main', 'items', ['a', 'b', idOf(1)])).toMatchObject({
      a: { price: 10 },
      b: { price: 22 },
      [idOf(1)]: { price: 1 },
    })
    expect(await leftovers()).toBe(0)
  })

  it('another merge into the target finishes first', async () => {
    const branches = await open()
    await branches.fork('small', 'dev')
    await branches.put('small', 'items', 's', { code: 'S' })
    await branches.fork('other')
    await branches.put('other', 'items', 'o', { code: 'O' })
    const { status, body } = await during(branches, {}, async () => {
      await branches.merge('other')
      await branches.fork('beside')
    })
    expect([status, body.merged]).toEqual([200, true])
    await branches.merge('small', { into: 'main' })
    expect(await branches.read('main', 'items', ['o', 's', 'd'])).toEqual({
      d: { code: 'D' },
      o: { code: 'O' },
      s: { code: 'S' },
    })
    expect(await branches.read('beside', 'items', ['o', 'd'])).toEqual({ o: { code: 'O' } })
  })

  it('the schema of the target changes, which the merge takes into account', async () => {
    const branches = await open()
    const { status } = await during(branches, {}, async () => {
      await branches.edit('main', {
        renameColumn: { table: 'items', oldName: 'price', newName: 'cents' },
      })
    })
    expect(status).toBe(200)
    expect(await branches.read('main', 'items', ['a'])).toEqual({ a: { code: 'A', cents: 10 } })
  })
})

describe('a large merge into a table that the target has not changed', () => {
  it('goes on if the target writes other records, and takes the state that it began with', async () => {
    const branches = await open()
    const { status, body } = await during(branches, {}, async () => {
      await branches.put('main', 'items', 'x', { code: 'X' })
      await branches.patch('main', 'items', 'b', { price: 20 })
      await branches.put('dev', 'items', 'late', { price: 0 })
    })
    expect([status, body.tables]).toEqual([
      200,
      [
        { name: 'items', inserted: COUNT + 1, updated: 1, deleted: 0 },
        { name: 'notes', inserted: 1, updated: 0, deleted: 0 },
      ],
    ])
    expect(await branches.read('main', 'items', ['a', 'b', 'd', 'x', idOf(7), 'late'])).toEqual({
      a: { code: 'A', price: 10 },
      b: { code: 'B', price: 20 },
      d: { code: 'D' },
      x: { code: 'X' },
      [idOf(7)]: { price: 7 },
    })
    expect(await leftovers()).toBe(0)
  })

  it('compares again if the target writes a record of the merge, and keeps what it has written', async () => {
    const branches = await open()
    const { status, body } = await during(branches, {}, () =>
      branches.patch('main', 'items', 'a', { code: 'AA' }),
    )
    expect([status, body.tables[0]]).toEqual([
      200,
      { name: 'items', inserted: COUNT + 1, updated: 1, deleted: 0 },
    ])
    expect(await branches.read('main', 'items', ['a'])).toEqual({ a: { code: 'AA', price: 10 } })
  })

  it('gives records the versions and times that a small merge gives them', async () => {
    const limits = { mergeLockedRowsMax: 10_000 }
    const locking = await createTestService({ limits, url: service.url })
    try {
      const mergedBy = async (via: TestService) => {
        const branches = (await open()).through(via)
        await branches.patch('dev', 'items', 'a', { price: 11 })
        await branches.remove('dev', 'items', 'b')
        await branches.put('dev', 'items', 'b', { price: 12 })
        const before = await branches.record('main', 'items', 'a')
        await branches.merge('dev')
        const after = await Promise.all(
          ['a', 'b', 'd', idOf(0)].map((id) => branches.record('main', 'items', id)),
        )
        expect(after[0].service.createdAt).toBe(before.service.createdAt)
        for (const { service: metadata } of after.slice(2)) {
          expect(metadata.createdAt).toBe(metadata.updatedAt)
        }
        return after.map(({ id, price, service: { version } }) => ({ id, price, version }))
      }
      const large = await mergedBy(service)
      expect(large).toEqual([
        { id: 'a', price: 11, version: 1 },
        { id: 'b', price: 12, version: 1 },
        { id: 'd', price: undefined, version: 0 },
        { id: idOf(0), price: 0, version: 0 },
      ])
      expect(await mergedBy(locking)).toEqual(large)
    } finally {
      await locking.close()
    }
  })

  it('adds a table with many records', async () => {
    const branches = await open()
    await branches.edit('dev', { addTable: { table: 'parts' } })
    await branches.edit('dev', {
      addColumn: { table: 'parts', column: { name: 'code', type: 'string', unique: true } },
    })
    const ids = Array.from({ length: COUNT }, (_, index) => idOf(index))
    await branches.bulk(
      'dev',
      'parts',
      ids.map((id) => ({ id, code: `c${id}` })),
    )
    expect((await branches.merge('dev')).tables).toContainEqual({
      name: 'parts',
      inserted: COUNT,
      updated: 0,
      deleted: 0,
    })
    expect(await branches.read('main', 'parts', [idOf(9)])).toEqual({
      [idOf(9)]: { code: `c${idOf(9)}` },
    })
    const taken = await branches.call('main', 'PUT', '/tables/parts/data/z', {
      code: `c${idOf(9)}`,
    })
    expect([taken.status, taken.body.code]).toEqual([400, 'unique_violation'])
    expect(await leftovers()).toBe(0)
  })
})

describe('while a large merge waits for writers of the target', () => {
  it('PostgreSQL crashes and empties the staged rows, and the merge compares again', async () => {
    const branches = await open()
    await contest(branches)
    const writer = new pg.Client({ connectionString: service.url })
    await writer.connect()
    try {
      const [main] = await service.database.query<{ gate: string }>(sql`
        select format('offshoot_work.%I', 'gate_' || b.id) as gate
        from offshoot.branches b
        join offshoot.databases d on d.id = b.database_id
        where d.name = ${branches.database} and b.name = 'main' and b.deleted_at is null`)
      const gate = main?.gate ?? ''
      let emptied: Promise<void> | undefined
      const { status, body } = await during(branches, {}, async () => {
        // Without the staged rows, nobody would know that the merge has to keep this.
        await branches.patch('main', 'items', 'a', { code: 'AA' })
        await writer.query('begin')
        await writer.query(`lock table ${gate} in row share mode`)
        emptied = (async () => {
          for (let waits = false; !waits; ) {
            const { rows } = await writer.query(
              `select from pg_locks where not granted and relation = '${gate}'::regclass`,
            )
            waits = rows.length > 0
          }
          const { rows } = await writer.query(`
            select oid::regclass::text as name from pg_class
            where starts_with(relname, 'merge_') and relkind = 'r' and relpersistence = 'u'`)
          expect(rows.length).toBeGreaterThan(0)
          // As PostgreSQL does with unlogged tables after a crash.
          for (const { name } of rows) await writer.query(`truncate ${name}`)
          await writer.query('commit')
        })()
      })
      await emptied
      expect([status, body.merged]).toEqual([200, true])
      const ids = ['d', idOf(1), idOf(COUNT - 1)]
      expect(Object.keys(await branches.read('main', 'items', ids))).toEqual(ids)
      expect(await branches.read('main', 'items', ['a'])).toEqual({ a: { code: 'AA', price: 10 } })
      expect(await leftovers()).toBe(0)
    } finally {
      await writer.end()
    }
  })
})

describe('a large merge', () => {
  it('that brings nothing new leaves no trace', async () => {
    const branches = await open()
    await branches.merge('dev')
    await runBackground(service)
    const before = await leftovers()
    expect(await branches.pull('dev')).toMatchObject({ merged: false })
    expect(await branches.merge('dev')).toMatchObject({ merged: false })
    expect(await leftovers()).toBe(before)
  })

  it('with a conflict changes nothing', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { price: 11 })
    const { status, body } = await branches.merging('dev')
    expect([status, body.conflictCount]).toEqual([409, 1])
    expect(await leftovers()).toBe(0)
    expect(await branches.merge('dev', { strategy: 'theirs' })).toMatchObject({ merged: true })
    expect(await branches.read('main', 'items', ['a'])).toEqual({ a: { code: 'A', price: 10 } })
  })
})
