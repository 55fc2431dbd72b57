import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { insertMigration } from '../../packages/server/src/domain/schemas/queries.js'
import { runTransaction } from '../../packages/server/src/postgres/run-transaction.js'
import { ident, literal, raw, type Sql, sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { countWork, makeDue, runKind } from '../support/work.js'

let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const COLUMNS: readonly Column[] = [{ name: 'price', type: 'int' }]

async function open(...tables: readonly string[]): Promise<TestBranches> {
  const named = Object.fromEntries(tables.map((name) => [name, COLUMNS]))
  const branches = await TestBranches.create(service, `failing${++number}`, named)
  for (const table of tables) await branches.put('main', table, 'a', { price: 0 })
  return branches
}

const databaseIdOf = async ({ database }: TestBranches): Promise<string> => {
  const [row] = await service.database.query<{ id: string }>(sql`
    select id from offshoot.databases where name = ${database}`)
  return row?.id ?? ''
}

async function heapIds(branches: TestBranches): Promise<string[]> {
  const rows = await service.database.query<{ id: string }>(sql`
    select id from offshoot.heaps where database_id = ${await databaseIdOf(branches)} order by id`)
  return rows.map(({ id }) => id)
}

const schemaOf = async (branches: TestBranches): Promise<Sql> =>
  ident(`offshoot_db_${await databaseIdOf(branches)}`)

async function countRows(branches: TestBranches, table: string): Promise<number> {
  const [row] = await service.database.query<{ count: number }>(sql`
    select count(*)::integer as count from ${await schemaOf(branches)}.${ident(table)}`)
  return row?.count ?? 0
}

/** Runs `body` while deleting from a table of the catalogue, or updating it, fails for one database. */
async function whileDeletesFail(
  options: { table: string; condition: Sql; event?: 'delete' | 'update' },
  body: () => Promise<void>,
): Promise<void> {
  const table = sql`offshoot.${ident(options.table)}`
  await service.database.query(sql`
    create function offshoot.test_failure() returns trigger language plpgsql
    as $$ begin raise exception 'broken on purpose'; end $$`)
  await service.database.query(sql`
    create trigger test_failure before ${raw(options.event ?? 'delete')} on ${table}
    for each row when (${options.condition}) execute function offshoot.test_failure()`)
  try {
    await body()
  } finally {
    await service.database.query(sql`drop trigger test_failure on ${table}`)
    await service.database.query(sql`drop function offshoot.test_failure()`)
  }
}

/** Returns for each work of a kind whether it has failed and is tried again later. On a slow machine that time may have come. */
async function isPostponed(kind: string): Promise<boolean[]> {
  const rows = await service.database.query<{ isLater: boolean }>(sql`
    select due_at > created_at and failures > 0 and error is not null as "isLater"
    from offshoot.work
    where kind = ${kind}`)
  return rows.map(({ isLater }) => isLater)
}

describe('a heap that cannot be swept', () => {
  it('does not keep the collector from the other heaps of its branch', async () => {
    const branches = await open('one', 'two', 'three')
    await branches.fork('dev')
    for (const table of ['one', 'two', 'three']) {
      await branches.patch('main', table, 'a', { price: 1 })
    }
    const [first, second, third] = await heapIds(branches)
    const [past, away] = [ident(`past_${second}`), ident(`away_${second}`)]
    const schema = await schemaOf(branches)
    await service.database.query(sql`alter table ${schema}.${past} rename to ${away}`)
    try {
      await branches.delete('dev')
      await runBackground(service)
      expect(await countRows(branches, `past_${first}`)).toBe(0)
      expect(await countRows(branches, `past_${third}`)).toBe(0)
      expect(await countRows(branches, `away_${second}`)).toBe(1)
      expect(await isPostponed('sweep')).toEqual([true])
    } finally {
      await service.database.query(sql`alter table ${schema}.${away} rename to ${past}`)
    }
    await makeDue(service.database)
    await runBackground(service)
    expect(await countRows(branches, `past_${second}`)).toBe(0)
    expect(await isPostponed('sweep')).toEqual([])
  })

  it('does not keep the collector from heaps of other deleted databases', async () => {
    const [used, unused] = [await open('one'), await open('one')]
    const [usedHeap] = await heapIds(used)
    const [unusedHeap] = await heapIds(unused)
    const isThere = async (id: string | undefined) => {
      const found = await service.database.query(sql`
        select from pg_class where relname = ${`heap_${id}`}`)
      return found.length > 0
    }
    const schema = await schemaOf(used)
    await runTransaction(
      service.database,
      async (reader) => {
        await reader.query(sql`select from ${schema}.${ident(`heap_${usedHeap}`)}`)
        for (const { database } of [used, unused]) {
          const path = `/workspaces/${service.workspaceId}/dbs/${database}`
          expect((await service.call('DELETE', path)).status).toBe(200)
        }
        await runBackground(service).catch(() => undefined)
        expect(await isThere(unusedHeap)).toBe(false)
        expect(await isThere(usedHeap)).toBe(true)
      },
      { isolation: 'read committed' },
    )
    await runBackground(service)
    expect(await isThere(usedHeap)).toBe(false)
  })
})

describe('a history that cannot be compacted', () => {
  it('does not keep the collector from those of other databases', async () => {
    const [broken, healthy] = [await open('one'), await open('one')]
    const merges = async (branches: TestBranches) => {
      const [row] = await service.database.query<{ count: number }>(sql`
        select count(*)::integer as count
        from offshoot.merges m
        join offshoot.branches b on b.id = m.into_branch_id
        where b.database_id = ${await databaseIdOf(branches)}`)
      return row?.count
    }
    for (const branches of [broken, healthy]) {
      await branches.fork('dev')
      for (let round = 1; round <= 3; round++) {
        await branches.patch('dev', 'one', 'a', { price: round })
        await branches.merge('dev')
      }
    }
    const [main] = await service.database.query<{ id: string }>(sql`
      select id
      from offshoot.branches
      where database_id = ${await databaseIdOf(broken)} and name = 'main'`)
    const condition = sql`old.into_branch_id = ${literal(main?.id ?? '')}`
    await whileDeletesFail({ table: 'merges', condition }, async () => {
      await runBackground(service)
      expect(await merges(broken)).toBe(3)
      expect(await merges(healthy)).toBe(1)
      expect(new Set(await isPostponed('compact'))).toEqual(new Set([true]))
    })
    await makeDue(service.database)
    await runBackground(service)
    expect(await merges(broken)).toBe(1)
  })
})

describe('a branch that cannot be deleted when it expires', () => {
  it('does not keep the collector from other branches, nor from other work', async () => {
    const branches = await open('one')
    for (const name of ['stuck', 'free', 'dev']) await branches.fork(name)
    await branches.patch('main', 'one', 'a', { price: 1 })
    await branches.delete('dev')
    await service.database.query(sql`
      update offshoot.branches
      set expires_at = now() - interval '1 hour'
      where database_id = ${await databaseIdOf(branches)} and name in ('stuck', 'free')`)
    const left = async () => {
      const rows = await service.database.query<{ name: string }>(sql`
        select name
        from offshoot.branches
        where database_id = ${await databaseIdOf(branches)} and deleted_at is null
        order by name`)
      return rows.map(({ name }) => name)
    }
    const condition = sql`old.name = 'stuck' and new.deleted_at is not null`
    await whileDeletesFail({ table: 'branches', condition, event: 'update' }, async () => {
      await expect(runBackground(service)).rejects.toThrow('broken on purpose')
      expect(await left()).toEqual(['main', 'stuck'])
      expect(await countWork(service.database, 'sweep')).toBe(0)
    })
    await runBackground(service)
    expect(await left()).toEqual(['main'])
  })
})

describe('the migrations of deleted branches', () => {
  const migrationsOf = async (branches: TestBranches) => {
    const rows = await service.database.query<{ added: string }>(sql`
      select t.added
      from offshoot.migrations m, jsonb_extract_path_text(m.operations, '0', 'addTable', 'table') t (added)
      where m.database_id = ${await databaseIdOf(branches)} and t.added <> 'one'
      order by t.added`)
    return rows.map(({ added }) => added)
  }
  const addTable = (branches: TestBranches, branch: string, table: string) =>
    branches.edit(branch, { addTable: { table } })

  it('are removed up to the first one that another branch has', async () => {
    const branches = await open('one')
    await addTable(branches, 'main', 'a')
    await branches.fork('dev')
    await addTable(branches, 'dev', 'b')
    await addTable(branches, 'dev', 'c')
    await branches.fork('deep', 'dev')
    await addTable(branches, 'deep', 'd')
    await branches.delete('deep')
    await runBackground(service)
    expect(await migrationsOf(branches)).toEqual(['a', 'b', 'c'])
    await branches.fork('deep', 'dev', { data: false })
    await branches.delete('dev')
    await runBackground(service)
    expect(await migrationsOf(branches)).toEqual(['a', 'b', 'c'])
    await branches.delete('deep')
    await runBackground(service)
    expect(await migrationsOf(branches)).toEqual(['a'])
    await addTable(branches, 'main', 'e')
  })

  it('are removed after a reset', async () => {
    const branches = await open('one')
    await branches.fork('dev')
    await addTable(branches, 'dev', 'b')
    await branches.reset('dev')
    await runBackground(service)
    expect(await migrationsOf(branches)).toEqual([])
  })

  it('are removed in slices', async () => {
    const branches = await open('one')
    await branches.fork('dev')
    const databaseId = await databaseIdOf(branches)
    await service.database.query(sql`
      insert into offshoot.migrations (id, database_id, parent_id, checksum, operations)
      select 'many' || n, ${databaseId}, case when n > 1 then 'many' || (n - 1) else last_migration_id end,
        '', '[{"addTable": {"table": "many"}}]'
      from generate_series(1, 2500) n, offshoot.branches
      where database_id = ${databaseId} and name = 'dev'`)
    await service.database.query(sql`
      update offshoot.branches
      set last_migration_id = 'many2500'
      where database_id = ${databaseId} and name = 'dev'`)
    await branches.delete('dev')
    while (await runKind(service, 'sweep'));
    for (const left of [1500, 500, 0]) {
      expect(await runKind(service, 'migrations')).toBe(true)
      expect(await migrationsOf(branches)).toHaveLength(left)
    }
    expect(await runKind(service, 'migrations')).toBe(false)
    await addTable(branches, 'main', 'a')
  })

  it('stay if a branch that is just pushed the same ones gets them', async () => {
    const branches = await open('one')
    await branches.fork('dev')
    await branches.fork('other')
    await addTable(branches, 'dev', 'b')
    const [migration] = await service.database.query<{
      id: string
      databaseId: string
      parentId: string
      checksum: string
    }>(sql`
      select id, database_id as "databaseId", parent_id as "parentId", checksum
      from offshoot.migrations
      where database_id = ${await databaseIdOf(branches)}
        and operations @> '[{"addTable": {"table": "b"}}]'`)
    if (migration === undefined) throw new Error('a schema edit must add a migration')
    await branches.delete('dev')
    while (await runKind(service, 'sweep'));
    let collecting: Promise<boolean> | undefined
    await runTransaction(
      service.database,
      async (transaction) => {
        await insertMigration(transaction, { ...migration, operations: [] })
        collecting = runKind(service, 'migrations')
        await expect
          .poll(async () => {
            const waiting = await service.database.query(sql`
              select from pg_stat_activity
              where datname = current_database() and wait_event_type = 'Lock'`)
            return waiting.length
          })
          .toBeGreaterThan(0)
        await transaction.query(sql`
          update offshoot.branches
          set last_migration_id = ${migration.id}
          where database_id = ${migration.databaseId} and name = 'other'`)
      },
      { isolation: 'read committed' },
    )
    await collecting
    expect(await migrationsOf(branches)).toEqual(['b'])
  })
})
