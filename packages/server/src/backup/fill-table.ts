import { once } from 'node:events'
import { finished } from 'node:stream/promises'
import type pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import type { BlobStore, PutOptions } from '../blobs/blob-store.js'
import type { Database } from '../postgres/database.js'
import { runTransaction, type Transaction } from '../postgres/run-transaction.js'
import { ident, join, raw, type Sql, sql } from '../postgres/sql.js'
import { type TableDefinition, tableName } from './archive.js'
import { copyStatement } from './create-backup.js'
import { DamagedArchiveError, type TarEntry } from './tar.js'

/*
 * Puts tables and files of an archive into an instance.
 */

/** Runs one step of a restore. Its commit is flushed by the last one of the restore, which is synchronous. */
export function runStep<Result>(
  database: Database,
  body: (transaction: Transaction) => Promise<Result>,
): Promise<Result> {
  return runTransaction(
    database,
    async (transaction) => {
      await transaction.query(sql`set local synchronous_commit = off`)
      return body(transaction)
    },
    { isolation: 'read committed' },
  )
}

/** Creates a table with its rows. */
export async function createFilledTable(
  transaction: Transaction,
  table: TableDefinition,
  rows: AsyncIterable<Buffer>,
): Promise<number> {
  await createTable(transaction, table)
  const count = await copyRows(transaction.client, table, rows)
  // Building indexes after the rows are loaded is faster.
  await createRules(transaction, table)
  return count
}

export function qualified({ schema, name }: { schema: string; name: string }): Sql {
  return sql`${ident(schema)}.${ident(name)}`
}

/** Types, defaults, constraints and indexes are in the archive as PostgreSQL printed them. */
async function createTable(transaction: Transaction, table: TableDefinition): Promise<void> {
  const columns = table.columns.map(({ name, type, collation, notNull, fallback }) =>
    join(
      [
        sql`${ident(name)} ${raw(type)}`,
        ...(collation === null ? [] : [sql`collate ${ident(collation)}`]),
        ...(fallback === null ? [] : [sql`default (${raw(fallback)})`]),
        ...(notNull ? [sql`not null`] : []),
      ],
      ' ',
    ),
  )
  const options =
    table.options.length === 0 ? sql`` : sql` with (${join(table.options.map(raw), ', ')})`
  await runOne(
    transaction,
    sql`
    create table ${qualified(table)} (${columns.length === 0 ? sql`` : join(columns, ', ')})${options}`,
  )
}

async function createRules(transaction: Transaction, table: TableDefinition): Promise<void> {
  for (const { name, definition } of table.constraints) {
    await runOne(
      transaction,
      sql`
      alter table ${qualified(table)} add constraint ${ident(name)} ${raw(definition)}`,
    )
  }
  for (const definition of table.indexes) {
    if (!/^CREATE (UNIQUE )?INDEX /.test(definition)) {
      throw new DamagedArchiveError(
        `table [${tableName(table)}]: an index definition is not a create index statement`,
      )
    }
    await runOne(transaction, raw(definition))
  }
}

/** Runs exactly one statement: the extended protocol refuses several. */
async function runOne({ client }: Transaction, { text }: Sql): Promise<void> {
  await client.query({ text, queryMode: 'extended' } as pg.QueryConfig)
}

/** Copies rows into a table that exists, and returns their number. */
export async function copyRows(
  client: pg.PoolClient,
  table: TableDefinition,
  rows: AsyncIterable<Buffer>,
): Promise<number> {
  const stream = client.query(copyFrom(copyStatement(table, sql`from stdin`).text))
  const done = finished(stream)
  let failure: unknown
  done.catch((error: unknown) => {
    failure = error
  })
  try {
    for await (const chunk of rows) {
      if (failure !== undefined) throw failure
      if (!stream.write(chunk)) await Promise.race([once(stream, 'drain'), done])
    }
  } catch (error) {
    stream.destroy(new Error('the restore was given up'))
    await done.catch(() => undefined)
    throw error
  }
  stream.end()
  await done
  return stream.rowCount
}

/** Stores the content of a file. `claim` is called before it becomes visible. */
export async function putFile(
  blobs: BlobStore,
  { sha256, entry }: { sha256: string; entry: TarEntry },
  claim: PutOptions['claim'] = undefined,
): Promise<void> {
  await blobs.put(entry.content, {
    bytesMax: entry.size,
    // Reject it before it is stored: the same content may already belong to others, so it could not
    // be deleted afterwards.
    async claim(content) {
      if (content.sha256 !== sha256) {
        throw new DamagedArchiveError(`file [${sha256}] does not match its hash`)
      }
      await claim?.(content)
    },
  })
}
