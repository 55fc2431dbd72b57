import { afterAll, beforeAll, describe, expect, it as test } from 'vitest'
import { createBackup } from '../../packages/server/src/backup/create-backup.js'
import { listTables, selectBackedUp } from '../../packages/server/src/backup/describe-tables.js'
import type { Database } from '../../packages/server/src/postgres/database.js'
import {
  runTransaction,
  type Transaction,
} from '../../packages/server/src/postgres/run-transaction.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { openForBackup } from '../support/archive.js'
import { TestBranches } from '../support/branches.js'
import { listWorkers } from '../support/database.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'

/*
 * A backup lists the tables of all databases. This must neither take long if there are many, nor keep others waiting.
 */

// A backup of a cluster needs the lock for a moment.
const it = test.skipIf((await listWorkers()).length > 0)

let service: TestService
let database: Database

beforeAll(async () => {
  service = await createTestService()
  database = openForBackup(service.url)
})
afterAll(async () => {
  await database.close()
  await service.close()
})

/** Creates schemas with four tables each. The API would take longer. */
async function createSchemas(first: number, last: number): Promise<void> {
  for (let id = first; id <= last; id++) {
    const tables = [1, 2, 3, 4].map((number) => {
      const name = `heap_${id}${number}`
      return `
        create table offshoot_db_${id}.${name} (
          version integer not null default 0, epoch integer not null,
          created_at timestamptz(3) not null default now(),
          updated_at timestamptz(3) not null default now(), deleted boolean not null default false,
          id text collate "C" primary key, c1 text collate "C");
        create index on offshoot_db_${id}.${name} (epoch) where epoch > 1;
        create unique index ${name}_c1_unique on offshoot_db_${id}.${name} (c1) where not deleted;`
    })
    const client = await database.pool.connect()
    await client.query(`create schema offshoot_db_${id}; ${tables.join('')}`)
    client.release()
  }
}

/** Counts the rows of its catalogue that this session of PostgreSQL has read and not reported yet. */
async function countUnreported(transaction: Transaction): Promise<number> {
  const [read] = await transaction.query<{ rows: number }>(sql`
    select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::integer as rows
    from pg_stat_xact_sys_tables
    where schemaname = 'pg_catalog'`)
  return read?.rows ?? 0
}

/** Counts the rows of its catalogue that PostgreSQL reads to list all tables. */
function countRead(): Promise<{ tables: number; rows: number }> {
  return runTransaction(
    database,
    async (transaction) => {
      // PostgreSQL reports about once a second, so transactions that ran just before this one are counted too.
      const before = await countUnreported(transaction)
      const tables = await listTables(transaction, selectBackedUp)
      return { tables: tables.length, rows: (await countUnreported(transaction)) - before }
    },
    { isolation: 'repeatable read', readOnly: true },
  )
}

describe('the listing of tables', () => {
  it('reads as many rows for each table if there are four times as many tables', async () => {
    await createSchemas(900_001, 900_040)
    await database.query(sql`analyze`)
    const few = await countRead()
    await createSchemas(900_041, 900_160)
    await database.query(sql`analyze`)
    const many = await countRead()
    expect(many.tables - few.tables).toBe(120 * 4)
    expect(many.rows / many.tables).toBeLessThan(1.5 * (few.rows / few.tables))
    const client = await database.pool.connect()
    for (let id = 900_001; id <= 900_160; id++) {
      await client.query(`drop schema offshoot_db_${id} cascade`)
    }
    client.release()
  })
})

/** Lists the locks that keep out transactions that run alone. */
function listLocks(): Promise<unknown[]> {
  return service.database.query(sql`
    select l.pid, l.granted
    from pg_locks l
    join pg_database d on d.oid = l.database and d.datname = current_database()
    where l.relation = 'offshoot_work.instance'::regclass and l.mode = 'ShareLock'`)
}

describe('a backup', () => {
  it('does not wait for a transaction that runs alone', async () => {
    const other = await database.pool.connect()
    try {
      await other.query('begin')
      await other.query('lock table offshoot_work.instance in row exclusive mode')
      let isDone = false
      const backup = createBackup({
        database,
        blobs: service.files.blobs,
        sink: async () => undefined,
        onProgress: () => undefined,
      }).finally(() => {
        isDone = true
      })
      await until(async () => isDone || (await listLocks()).length > 0)
      expect(await listLocks()).toEqual([])
      await backup
    } finally {
      await other.query('rollback')
      other.release()
    }
  })

  it('has no lock of the instance while it describes tables', async () => {
    const branches = await TestBranches.create(service, 'described', {
      items: [{ name: 'value', type: 'int', unique: true }],
    })
    await branches.put('main', 'items', 'a', { value: 1 })
    const other = await database.pool.connect()
    try {
      await other.query('begin')
      const [heap] = await service.database.query<{ name: string }>(sql`
        select format('offshoot_db_%s.heap_%s', h.database_id, h.id) as name
        from offshoot.heaps h
        join offshoot.databases d on d.id = h.database_id
        where d.name = 'described'`)
      // PostgreSQL looks at the table to print the conditions of its indexes, so the description stops here.
      await other.query(`lock table ${heap?.name} in access exclusive mode`)
      const backup = createBackup({
        database,
        blobs: service.files.blobs,
        sink: async () => undefined,
        onProgress: () => undefined,
      })
      await until(async () => {
        const rows = await service.database.query(sql`
          select from pg_locks where relation = ${heap?.name}::regclass and not granted`)
        return rows.length > 0
      })
      expect(await listLocks()).toEqual([])
      // Forks of all branches go on meanwhile.
      const another = await TestBranches.create(service, 'another', {
        items: [{ name: 'value', type: 'int' }],
      })
      await another.fork('dev')
      await another.put('dev', 'items', 'a', { value: 1 })
      await other.query('rollback')
      await backup
    } finally {
      await other.query('rollback')
      other.release()
    }
  })
})
