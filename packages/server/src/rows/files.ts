import type { Queryable } from '../postgres/database.js'
import { isUndefinedTable } from '../postgres/failures.js'
import { ident, type Sql, sql } from '../postgres/sql.js'
import { mentionedContents } from './layout/heap-ddl.js'
import { heapName, pastName } from './layout/layout.js'

/*
 * Files in rows: the stored metadata of files, and the contents that rows refer to.
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

/** Returns the contents that a row of any branch refers to, including row versions kept for forks. */
export async function findMentioned(
  transaction: Queryable,
  hashes: readonly string[],
): Promise<Set<string>> {
  return new Set((await findMentions(transaction, hashes, { isOneEnough: true })).keys())
}

/** Ids of databases, by the contents that their rows mention. */
export type Mentions = ReadonlyMap<string, ReadonlySet<string>>

interface HeapRow {
  readonly id: string
  readonly databaseId: string
  readonly columnIds: readonly string[]
  readonly isFold: boolean
}

/** Finds the databases that mention contents. `isOneEnough`: one database for each content. */
export async function findMentions(
  transaction: Queryable,
  hashes: readonly string[],
  { isOneEnough = false } = {},
): Promise<Mentions> {
  const heaps = await transaction.query<HeapRow>(sql`
    select id, database_id as "databaseId", file_column_ids as "columnIds", kind = 'fold' as "isFold"
    from offshoot.heaps
    where file_column_ids <> '{}'
    order by id`)
  const found = new Map<string, Set<string>>()
  // PostgreSQL's lock table has room for a few thousand locks. Rolling back to the savepoint releases the
  // locks on a heap and keeps the snapshot.
  await transaction.query(sql`savepoint heaps`)
  for (const { id, databaseId, columnIds, isFold } of heaps) {
    const tables = isFold ? [heapName(id)] : [heapName(id), pastName(id)]
    try {
      for (const columnId of columnIds) {
        for (const table of tables) {
          for (const sha256 of await listMentioned(transaction, { table, columnId, hashes })) {
            const databaseIds = found.get(sha256) ?? new Set()
            found.set(sha256, databaseIds.add(databaseId))
          }
        }
      }
    } catch (error) {
      // The heap may have just been dropped, because no branch reads it any more.
      if (!isUndefinedTable(error)) throw error
    }
    await transaction.query(sql`rollback to savepoint heaps`)
    if (isOneEnough && found.size === hashes.length) break
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
