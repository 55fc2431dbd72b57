import { once } from 'node:events'
import { finished } from 'node:stream/promises'
import type pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import type { BlobStore, PutOptions } from '../blobs/blob-store.js'
import type { Database } from '../postgres/database.js'
import { tableIn } from '../postgres/place.js'
import { runTransaction, type Transaction } from '../postgres/run-transaction.js'
import { type Sql, sql } from '../postgres/sql.js'
import { type CopiedTable, copyStatement } from './create-backup.js'
import { createRulesStatements, createTableStatement, type TableShape } from './table-shape.js'
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
  table: TableShape,
  rows: AsyncIterable<Buffer>,
): Promise<number> {
  await transaction.query(createTableStatement(table))
  const count = await copyRows(transaction.client, table, rows)
  // Building indexes after the rows are loaded is faster.
  for (const statement of createRulesStatements(table)) await transaction.query(statement)
  return count
}

export function qualified({ schema, name }: { schema: string; name: string }): Sql {
  return tableIn(schema, name)
}

/** Copies rows into a table that exists, and returns their number. */
export async function copyRows(
  client: pg.PoolClient,
  table: CopiedTable,
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
