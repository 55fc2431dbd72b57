import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../../../../test/support/database.js'
import { amount } from '../../../../test/support/random.js'
import { prepareFirstStart } from '../domain/first-start.js'
import { Database } from './database.js'
import { createCatalogue, MigrateError, migrate } from './migrate.js'
import { moveToSchemas } from './migrations/019-schemas.js'
import { moveDeletedRecords } from './migrations/021-deleted-records.js'
import { dropDeletedRecords } from './migrations/023-first-versions.js'
import { moveAnswers } from './migrations/027-kept-answers.js'
import { runTransaction } from './run-transaction.js'
import { sql } from './sql.js'

const databases: Database[] = []
function connect(url: string): Database {
  const database = new Database({
    poolMax: 3,
    statementTimeoutMs: 200_000,
    onIdleError: () => undefined,
  })
  database.connect({ url })
  databases.push(database)
  return database
}

let own: TestDatabase
beforeAll(async () => {
  own = await createTestDatabase()
})
afterAll(async () => {
  for (const database of databases) await database.close()
  await own.close()
})

const applied = (database: Database) =>
  database.query<{ number: number; name: string }>(sql`
    select number, name from offshoot.catalogue_migrations order by number`)

describe('migrate', () => {
  it('makes the catalogue once when several processes start at the same moment', async () => {
    const several = Array.from({ length: 4 }, () => connect(own.url))
    await Promise.all(several.map((database) => migrate(database)))
    const [database] = several
    if (database === undefined) throw new Error('there must be one')
    const rows = await applied(database)
    expect(rows[0]).toEqual({ number: 1, name: 'catalogue' })
    expect(new Set(rows.map((row) => row.number)).size).toBe(rows.length)
  })

  it('lets one of several processes make the first user', async () => {
    const several = Array.from({ length: 4 }, () => connect(own.url))
    const starts = await Promise.all(
      several.map((database) => prepareFirstStart(database, { apiKey: null })),
    )
    expect(starts.filter((start) => start.newKey !== undefined)).toHaveLength(1)
    expect(new Set(starts.map((start) => start.workspaceId)).size).toBe(1)
    const rows = await own.pool.query('select id from offshoot.users')
    expect(rows.rows).toHaveLength(1)
  })

  it('changes nothing when it is run again', async () => {
    const database = connect(own.url)
    const before = await applied(database)
    await migrate(database)
    expect(await applied(database)).toEqual(before)
    const rows = await own.pool.query('select id from offshoot.users')
    expect(rows.rows).toHaveLength(1)
  })

  it('refuses a catalogue of a newer version by name, and leaves it alone', async () => {
    const database = connect(own.url)
    const [{ number = 0 } = {}] = await database.query<{ number: number }>(sql`
      select max(number) + 1 as number from offshoot.catalogue_migrations`)
    await database.query(sql`
      insert into offshoot.catalogue_migrations values (${number}, 'from-the-future', now())`)
    const attempt = migrate(database)
    await expect(attempt).rejects.toThrow(MigrateError)
    await expect(attempt).rejects.toThrow(
      `the catalogue has migration ${number} [from-the-future], which this version does not know: start a newer offshoot`,
    )
    await database.query(sql`
      delete from offshoot.catalogue_migrations where number = ${number}`)
    await migrate(database)
  })

  it('refuses a catalogue whose migrations are others', async () => {
    const database = connect(own.url)
    await database.query(sql`
      update offshoot.catalogue_migrations set name = 'something-else' where number = 1`)
    await expect(migrate(database)).rejects.toThrow(
      'the catalogue has migration 1 [something-else] where 1 [catalogue] is expected',
    )
    await database.query(sql`
      update offshoot.catalogue_migrations set name = 'catalogue' where number = 1`)
  })

  it('leaves nothing behind when it fails in the middle', async () => {
    const fresh = await createTestDatabase()
    await fresh.pool.query('create schema offshoot')
    await fresh.pool.query('create table offshoot.branches (in_the_way text)')
    const database = connect(fresh.url)
    await expect(migrate(database)).rejects.toThrow()
    const { rows } = await fresh.pool.query(
      `select tablename from pg_tables where schemaname like 'offshoot%'`,
    )
    expect(rows).toEqual([{ tablename: 'branches' }])
    await database.close()
    await fresh.close()
  })
})

describe('the migration to a schema for each database', () => {
  /** Each has a heap and a past. */
  const TABLES = amount('TABLES', { short: 250, long: 5000 })

  it('moves thousands of tables in steps, and continues after an interruption', async () => {
    const fresh = await createTestDatabase()
    const database = connect(fresh.url)
    const current = connect(own.url)
    await migrate(current)
    const earlier = (await applied(current)).slice(0, 18)
    await createCatalogue(database, earlier)
    await fresh.pool.query(`
      drop table offshoot.unfinished_restore;
      insert into offshoot.workspaces (id, name, slug) values ('w', 'w', 'w');
      insert into offshoot.databases (workspace_id, name, region)
      select 'w', 'd' || n, 'local' from generate_series(1, 120) n;
      -- Database 1000 was deleted; its heaps wait for the collector.
      insert into offshoot.heaps (database_id, branch_id, table_id, column_ids)
      select case when n = 1 then 1000 else n % 120 + 1 end, 'b' || n, 1, '{}'
      from generate_series(1, ${TABLES}) n`)
    await fresh.pool.query(`
      do $$ begin
        for n in 1..${TABLES} loop
          execute format('create table offshoot_rows.heap_%s (id text primary key)', n);
          execute format('create table offshoot_rows.past_%s ()', n);
          execute format('insert into offshoot_rows.heap_%s values (%s)', n, n);
        end loop;
      end $$`)
    const left = async () => {
      const { rows } = await fresh.pool.query(`
        select count(*)::integer as count from pg_tables where schemaname = 'offshoot_rows'`)
      return rows[0].count
    }
    // A process that is killed leaves the steps that it has committed.
    for (let before = await left(); (await left()) === before; ) {
      expect(await runTransaction(database, moveToSchemas)).toBe(true)
    }
    expect(await left()).toBeGreaterThan(0)
    expect(await applied(database)).toEqual(earlier)
    await Promise.all([migrate(database), migrate(connect(fresh.url))])
    const { rows } = await fresh.pool.query(`
      select count(*)::integer as count,
        count(*) filter (where to_regclass(format('offshoot_db_%s.heap_%s_pkey', database_id, id)) is not null)
          ::integer as indexes,
        count(*) filter (where to_regclass(format('offshoot_db_%s.past_%s', database_id, id)) is not null)
          ::integer as pasts,
        to_regnamespace('offshoot_rows') is null as "isEmpty"
      from offshoot.heaps`)
    expect(rows).toEqual([{ count: TABLES, indexes: TABLES, pasts: TABLES, isEmpty: true }])
    const moved = await fresh.pool.query('select id from offshoot_db_1000.heap_1')
    expect(moved.rows).toEqual([{ id: '1' }])
    await fresh.close()
  })
})

describe('the migration of deleted records', () => {
  it('moves versions and floors to the schemas of databases, in steps', async () => {
    const fresh = await createTestDatabase()
    const database = connect(fresh.url)
    const current = connect(own.url)
    await migrate(current)
    const earlier = (await applied(current)).slice(0, 20)
    await createCatalogue(database, earlier)
    const count = 120
    await fresh.pool.query(`
      drop table offshoot.unfinished_restore;
      insert into offshoot.workspaces (id, name, slug) values ('w', 'w', 'w');
      insert into offshoot.databases (workspace_id, name, region)
      select 'w', 'd' || n, 'local' from generate_series(1, ${count}) n;
      insert into offshoot.heaps (database_id, branch_id, table_id, column_ids, given_floor, generated_floor)
      select n, 'b' || n, 1, '{}', case when n = 1 then 32 else 0 end, case when n <= 2 then 16 else 0 end
      from generate_series(1, ${count}) n;
      -- Heap 1000 was dropped.
      insert into offshoot.deleted_records (heap_id, id, version)
      select n, 'gone', n from generate_series(1, ${count}) n union all select 1000, 'lost', 1`)
    const reader = `offshoot_test_${Date.now()}`
    await fresh.pool.query(`create role ${reader}`)
    for (let n = 1; n <= count; n++) await fresh.pool.query(`create schema offshoot_db_${n}`)
    await fresh.pool.query(
      `alter default privileges in schema offshoot_db_1 grant select on tables to ${reader}`,
    )
    expect(await runTransaction(database, moveDeletedRecords)).toBe(true)
    // Processes of an earlier version cannot add entries any more.
    await expect(fresh.pool.query('table offshoot.deleted_records')).rejects.toThrow(
      'does not exist',
    )
    expect(await applied(database)).toEqual(earlier)
    while (await runTransaction(database, moveDeletedRecords));
    const entries = async (n: number) =>
      (
        await fresh.pool.query(`
          select heap_id::integer as heap, id, version::integer, deleted_at is null as "isFloor"
          from offshoot_db_${n}.deleted_records order by id`)
      ).rows
    const gone = (n: number) => ({ heap: n, id: 'gone', version: n, isFloor: false })
    const generated = (n: number) => ({ heap: n, id: 'all generated', version: 15, isFloor: true })
    const given = { heap: 1, id: 'all given', version: 31, isFloor: true }
    expect(await entries(1)).toEqual([generated(1), given, gone(1)])
    expect(await entries(2)).toEqual([generated(2), gone(2)])
    expect(await entries(count)).toEqual([gone(count)])
    const { rows } = await fresh.pool.query(`
      select has_table_privilege('${reader}', 'offshoot_db_1.deleted_records', 'select') as reads`)
    expect(rows).toEqual([{ reads: false }])
    await fresh.pool.query(`drop owned by ${reader}; drop role ${reader}`)
    // A later migration drops what this one has moved.
    await migrate(database)
    await fresh.close()
  })
})

describe('the migration of first versions', () => {
  /** Databases with versions of deleted records. */
  const count = amount('TABLES', { short: 120, long: 5000 })

  it('forgets the versions of deleted records in steps, and only counts resets', async () => {
    const fresh = await createTestDatabase()
    const database = connect(fresh.url)
    const current = connect(own.url)
    await migrate(current)
    const earlier = (await applied(current)).slice(0, 22)
    await createCatalogue(database, earlier)
    await fresh.pool.query(`
      drop table offshoot.unfinished_restore;
      insert into offshoot.workspaces (id, name, slug) values ('w', 'w', 'w');
      insert into offshoot.databases (workspace_id, name, region) values ('w', 'd', 'local');
      insert into offshoot.schemas (database_id, document) select id, '{}' from offshoot.databases;
      insert into offshoot.branches (id, database_id, name, schema_id, last_migration_id, version_base)
      select 'b' || n, d.id, 'b' || n, s.id, 'm', n * 4294967296
      from generate_series(0, 2) n, offshoot.databases d, offshoot.schemas s`)
    for (let n = 1; n <= count; n++) {
      await fresh.pool.query(`
        create schema offshoot_db_${n};
        create table offshoot_db_${n}.deleted_records (
          heap_id bigint, id text, version bigint, deleted_at timestamptz, primary key (heap_id, id)
        );
        create index on offshoot_db_${n}.deleted_records (deleted_at);
        insert into offshoot_db_${n}.deleted_records values (1, 'gone', 7, now());
        create table offshoot_db_${n}.heap_1 (id text)`)
    }
    // A table of somebody else.
    await fresh.pool.query('create schema others; create table others.deleted_records ()')
    const tables = async () => {
      const { rows } = await fresh.pool.query<{ schema: string }>(`
        select schemaname as schema from pg_tables where tablename = 'deleted_records' order by 1`)
      return rows.map(({ schema }) => schema)
    }
    const branches = async (values: string) =>
      (await fresh.pool.query(`select id, ${values} from offshoot.branches order by id`)).rows
    const stamps = await branches('stamp')
    expect(await runTransaction(database, dropDeletedRecords)).toBe(true)
    expect(await tables()).toHaveLength(count + 1 - 50)
    expect(await applied(database)).toEqual(earlier)
    // Two processes start, after the first one was interrupted.
    await Promise.all([migrate(database), migrate(connect(fresh.url))])
    expect(await tables()).toEqual(['others'])
    const { rows } = await fresh.pool.query(
      `select count(*)::integer as count from pg_tables where tablename = 'heap_1'`,
    )
    expect(rows).toEqual([{ count }])
    expect(await branches('resets')).toEqual([
      { id: 'b0', resets: 0 },
      { id: 'b1', resets: 1 },
      { id: 'b2', resets: 2 },
    ])
    // Sessions of earlier processes would add the old base to versions.
    const isRenewed = (await branches('stamp')).map(({ stamp }, index) => {
      return stamp !== stamps[index]?.stamp
    })
    expect(isRenewed).toEqual([false, true, true])
    await fresh.close()
  })

  it('keeps the background work that waits in the tables of earlier versions', async () => {
    const fresh = await createTestDatabase()
    const database = connect(fresh.url)
    const current = connect(own.url)
    await migrate(current)
    await createCatalogue(
      database,
      (await applied(current)).filter(({ number }) => number < 28),
    )
    await fresh.pool.query(`
      drop table offshoot.unfinished_restore;
      insert into offshoot.workspaces (id, name, slug) values ('w', 'w', 'w');
      insert into offshoot.databases (workspace_id, name, region) values ('w', 'd', 'local');
      insert into offshoot.schemas (database_id, document) select id, '{}' from offshoot.databases;
      insert into offshoot.branches (id, database_id, name, schema_id, last_migration_id)
      select 'b', d.id, 'b', s.id, 'm' from offshoot.databases d, offshoot.schemas s;
      insert into offshoot.sweeps (branch_id, fork_epoch, fork_epochs, heap_id) values
        ('b', null, null, null), ('b', 3, null, null), ('b', null, '{4,5}', 7), ('gone', null, null, null);
      insert into offshoot.compactions (database_id) select id from offshoot.databases, generate_series(1, 2);
      insert into offshoot.fold_work (branch_id, table_id) values ('b', 9), ('gone', 9);
      insert into offshoot.unused_migrations (database_id, migration_id) select id, 'm' from offshoot.databases`)
    await migrate(database)
    const { rows } = await fresh.pool.query(`
      select kind, subject, details from offshoot.work w
      join offshoot.databases d on d.id = w.database_id
      where due_at <= now() and position is null
      order by w.id`)
    expect(rows).toEqual([
      { kind: 'sweep', subject: 'b', details: [null] },
      { kind: 'sweep', subject: 'b', details: [3] },
      { kind: 'sweep', subject: 'b', details: [4, 5] },
      { kind: 'compact', subject: '', details: [] },
      { kind: 'fold', subject: 'b 9', details: [] },
      { kind: 'migrations', subject: 'm', details: [] },
    ])
    const { rows: tables } = await fresh.pool.query(`
      select from pg_tables where tablename in ('sweeps', 'compactions', 'fold_work', 'unused_migrations')`)
    expect(tables).toEqual([])
    await fresh.close()
  })

  it('makes one kind of layer of the folds and overlays of earlier versions', async () => {
    const fresh = await createTestDatabase()
    const database = connect(fresh.url)
    const current = connect(own.url)
    await migrate(current)
    await createCatalogue(
      database,
      (await applied(current)).filter(({ number }) => number < 29),
    )
    await fresh.pool.query(`
      drop table offshoot.unfinished_restore;
      insert into offshoot.heaps (id, database_id, branch_id, table_id, column_ids, epoch, kind, next_branch_id)
      overriding system value values
        (1, 1, 'b', 9, '{}', 1, 'heap', null), (2, 1, 'b', 9, '{}', 4, 'fold', 'a'),
        (3, 1, 'b', 9, '{}', 3, 'fold', null), (4, 1, 'b', 9, '{}', 5, 'overlay', null),
        (5, 1, 'b', 9, '{}', 1, 'staged', null), (6, 1, 'b', 8, '{}', 1, 'gone', null);
      create schema offshoot_db_7;
      create table offshoot_db_7.stream_left ();
      insert into offshoot_work.streams (id, database_id) values ('left', 7), ('lost', 8)`)
    await migrate(database)
    const { rows } = await fresh.pool.query(`
      select kind || id as heap, branch_id as of, epoch, until_epoch as until, next_branch_id as next
      from offshoot.heaps order by id`)
    expect(rows).toEqual([
      { heap: 'heap1', of: 'b', epoch: 1, until: null, next: null },
      { heap: 'layer2', of: 'b', epoch: 4, until: 4, next: 'a' },
      { heap: 'layer3', of: 'b', epoch: 3, until: 3, next: null },
      { heap: 'layer4', of: 'b', epoch: 5, until: null, next: 'b' },
      // It was not yet published. The collector drops it.
      { heap: 'layer5', of: 'dropped 5', epoch: 1, until: null, next: 'dropped 5' },
      { heap: 'gone6', of: 'b', epoch: 1, until: null, next: null },
    ])
    const { rows: stages } = await fresh.pool.query(`
      select from pg_tables where tablename in ('streams', 'stream_left')`)
    expect(stages).toEqual([])
    await fresh.close()
  })
})

describe('prepareFirstStart', () => {
  it('makes the key of the settings the first one, also later and in place of another', async () => {
    const fresh = await createTestDatabase()
    const database = connect(fresh.url)
    await migrate(database)
    const first = await prepareFirstStart(database, { apiKey: 'off_one_one' })
    expect(first.newKey).toBe('off_one_one')
    const hashes = async () =>
      (await fresh.pool.query('select encode(hash, $1) as hash from offshoot.api_keys', ['hex']))
        .rows
    const [before] = await hashes()
    const second = await prepareFirstStart(database, { apiKey: 'off_two_two' })
    expect(second).toEqual({
      newKey: undefined,
      userId: first.userId,
      workspaceId: first.workspaceId,
    })
    const after = await hashes()
    expect(after).toHaveLength(1)
    expect(after[0]).not.toEqual(before)
    await prepareFirstStart(database, { apiKey: null })
    await prepareFirstStart(database, { apiKey: 'off_two_two' })
    expect(await hashes()).toEqual(after)
    await database.close()
    await fresh.close()
  })

  it('leaves the key of the settings where the administrator has it, and takes no one else’s', async () => {
    const fresh = await createTestDatabase()
    const database = connect(fresh.url)
    await migrate(database)
    await prepareFirstStart(database, { apiKey: 'off_one_one' })
    const keys = async () =>
      (await fresh.pool.query('select user_id, name from offshoot.api_keys order by name')).rows
    await fresh.pool.query(`update offshoot.api_keys set name = 'ci'`)
    const before = await keys()
    await prepareFirstStart(database, { apiKey: 'off_one_one' })
    expect(await keys()).toEqual(before)
    await fresh.pool.query(`
      insert into offshoot.users (id, email, fullname, image) values ('usr_x', 'x', 'x', '')`)
    await fresh.pool.query(`update offshoot.api_keys set user_id = 'usr_x'`)
    await expect(prepareFirstStart(database, { apiKey: 'off_one_one' })).rejects.toThrow(
      'OFFSHOOT_API_KEY: is already the key of another user; choose another key',
    )
    await database.close()
    await fresh.close()
  })
})

describe('the migration of kept answers', () => {
  it('moves the answers of the last day to their databases, in steps', async () => {
    const fresh = await createTestDatabase()
    const database = connect(fresh.url)
    const current = connect(own.url)
    await migrate(current)
    const earlier = (await applied(current)).filter(({ number }) => number < 27)
    await createCatalogue(database, earlier)
    const count = 60
    await fresh.pool.query(`
      drop table offshoot.unfinished_restore;
      insert into offshoot.workspaces (id, name, slug) values ('w', 'w', 'w');
      insert into offshoot.databases (workspace_id, name, region)
      select 'w', 'd' || n, 'local' from generate_series(1, ${count}) n;
      -- Database 1000 was deleted.
      insert into offshoot.idempotency_keys (hash, request_hash, status, body, size, created_at, database_id)
      values ('old', 'r', 200, '{}', 300, now() - interval '25 hours', 1),
        ('noted', 'r', 200, '{}', 300, now() - interval '23 hours', 1),
        ('forgotten', 'r', 200, null, 256, now(), 1),
        ('lost', 'r', 200, '{}', 300, now(), 1000),
        ('first', 'r', 200, '{"a":1}', 0, now(), null)`)
    for (let n = 1; n <= count; n++) {
      await fresh.pool.query(`
        create schema offshoot_db_${n};
        create table offshoot_db_${n}.idempotency_keys (
          hash bytea primary key, request_hash bytea not null, body text, size integer not null,
          created_at timestamptz not null default now()
        )`)
    }
    const answers = async (n: number) =>
      (
        await fresh.pool.query(`
          select convert_from(hash, 'UTF8') as hash, body, size
          from offshoot_db_${n}.idempotency_keys order by 1`)
      ).rows
    const first = { hash: 'first', body: '{"a":1}', size: 263 }
    expect(await runTransaction(database, moveAnswers)).toBe(true)
    expect(await answers(1)).toEqual([
      first,
      { hash: 'forgotten', body: null, size: 256 },
      { hash: 'noted', body: '{}', size: 300 },
    ])
    expect(await answers(count)).toEqual([])
    await migrate(database)
    expect(await answers(2)).toEqual([first])
    expect(await answers(count)).toEqual([first])
    const left = await fresh.pool.query(`select to_regclass('offshoot.idempotency_keys') as name`)
    expect(left.rows).toEqual([{ name: null }])
    await fresh.close()
  })
})
