import type { Database } from './database.js'
import { catalogue } from './migrations/001-catalogue.js'
import { branching } from './migrations/002-branching.js'
import { files } from './migrations/003-files.js'
import { indexes } from './migrations/004-indexes.js'
import { runTransaction } from './run-transaction.js'
import { sql } from './sql.js'

interface Migration {
  readonly number: number
  readonly name: string
  readonly statements: string
}

/** In order, forward only, never edited after a release. */
const MIGRATIONS: readonly Migration[] = [
  { number: 1, name: 'catalogue', statements: catalogue },
  { number: 2, name: 'branching', statements: branching },
  { number: 3, name: 'files', statements: files },
  { number: 4, name: 'indexes', statements: indexes },
]

/** Any number will do, as long as every version of Offshoot uses the same one. */
const LOCK_KEY = 6_001_001
const POSTGRES_VERSION_MIN = 150_000

export class MigrateError extends Error {}

/** Brings the catalogue to this version. Safe when several processes start at once. */
export async function migrate(database: Database): Promise<void> {
  await requireVersion(database)
  await runTransaction(
    database,
    async (transaction) => {
      await transaction.query(sql`select pg_advisory_xact_lock(${LOCK_KEY})`)
      await transaction.query(sql`create schema if not exists offshoot`)
      await transaction.query(sql`
        create table if not exists offshoot.catalogue_migrations (
          number integer primary key,
          name text not null,
          applied_at timestamptz not null default now()
        )`)
      const applied = await transaction.query<{ number: number; name: string }>(sql`
        select number, name
        from offshoot.catalogue_migrations
        order by number`)
      for (const migration of pending(applied)) {
        await transaction.client.query(migration.statements)
        await transaction.query(sql`
          insert into offshoot.catalogue_migrations (number, name)
          values (${migration.number}, ${migration.name})`)
      }
    },
    // The lock must be waited for before the snapshot is taken, or the second starter would not see
    // what the first one did.
    { isolation: 'read committed' },
  )
}

function pending(applied: readonly { number: number; name: string }[]): readonly Migration[] {
  for (const [position, row] of applied.entries()) {
    const known = MIGRATIONS[position]
    if (known === undefined) {
      throw new MigrateError(
        `the catalogue has migration ${row.number} [${row.name}], which this version does not know: start a newer offshoot`,
      )
    }
    if (known.number !== row.number || known.name !== row.name) {
      throw new MigrateError(
        `the catalogue has migration ${row.number} [${row.name}] where ${known.number} [${known.name}] is expected`,
      )
    }
  }
  return MIGRATIONS.slice(applied.length)
}

async function requireVersion(database: Database): Promise<void> {
  const [row] = await database.query<{ number: number; text: string }>(sql`
    select current_setting('server_version_num')::integer as number,
      current_setting('server_version') as text`)
  if (row === undefined || row.number < POSTGRES_VERSION_MIN) {
    throw new MigrateError(`PostgreSQL 15 or later is needed; this one is ${row?.text}`)
  }
}
