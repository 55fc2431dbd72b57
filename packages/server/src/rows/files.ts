import type { Queryable } from '../postgres/database.js'
import { isUndefinedTable } from '../postgres/failures.js'
import { ident, type Sql, sql } from '../postgres/sql.js'
import { mentionedContents } from './layout/heap-ddl.js'
import { heapName, pastName } from './layout/layout.js'

/*
 * Files in rows: the metadata that a row stores of a file, and the contents that rows mention.
 */

export {
  DEFAULT_FILE_FIELDS,
  type FileAddress,
  type FileForm,
  type LinkPurpose,
  NO_FILES,
  parseFiles,
  publicFile,
  type StoredFile,
} from './columns/file-value.js'

/** Finds those of the contents that a row of any branch mentions, present or past. */
export async function findMentioned(
  transaction: Queryable,
  hashes: readonly string[],
): Promise<Set<string>> {
  const heaps = await transaction.query<{ id: string; columnIds: string[] }>(sql`
    select id, file_column_ids as "columnIds"
    from offshoot.heaps
    where file_column_ids <> '{}'
    order by id`)
  const found = new Set<string>()
  // PostgreSQL has room for a few thousand locks in all. Rolling back to the savepoint releases those of
  // a heap, and keeps the snapshot.
  await transaction.query(sql`savepoint heaps`)
  for (const { id, columnIds } of heaps) {
    try {
      for (const columnId of columnIds) {
        for (const table of [heapName(id), pastName(id)]) {
          for (const sha256 of await listMentioned(transaction, { table, columnId, hashes })) {
            found.add(sha256)
          }
        }
      }
    } catch (error) {
      // The heap may have been dropped a moment ago, because nobody reads it any more.
      if (!isUndefinedTable(error)) throw error
    }
    await transaction.query(sql`rollback to savepoint heaps`)
    if (found.size === hashes.length) break
  }
  await transaction.query(sql`release savepoint heaps`)
  return found
}

async function listMentioned(
  transaction: Queryable,
  options: { table: Sql; columnId: string; hashes: readonly string[] },
): Promise<string[]> {
  const { table, hashes } = options
  const column = sql`t.${ident(`c${options.columnId}`)}`
  const rows = await transaction.query<{ sha256: string }>(sql`
    select distinct m.sha256
    from ${table} t, jsonb_array_elements_text(${mentionedContents(column)}) m (sha256)
    where ${column} is not null
      and ${mentionedContents(column)} ?| ${hashes}::text[]
      and m.sha256 = any(${hashes}::text[])`)
  return rows.map((row) => row.sha256)
}
