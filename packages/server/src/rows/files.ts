import type { Queryable } from '../postgres/database.js'
import { isUndefinedTable } from '../postgres/failures.js'
import { empty, ident, type Sql, sql } from '../postgres/sql.js'
import { mentionedContents } from './heaps/heap-ddl.js'
import { type HeapAddress, heapName, pastName } from './layout/layout.js'

/*
 * Files in rows: the stored metadata of files, and the contents that rows refer to.
 */

/** Rows of a database refer to a content. */
interface Mention {
  readonly sha256: string
  readonly databaseId: string
}

interface FoundMentions {
  readonly mentions: readonly Mention[]
  /** The last heap that was searched. undefined: there are no further ones. */
  readonly lastId: string | undefined
  /** The error of the last heap, if it could not be searched. */
  readonly failure?: unknown
}

/** Heaps that are searched at a time. */
const STEP_HEAPS = 200

const HEAP_COLUMNS = sql`
  id as "heapId", database_id as "databaseId", file_column_ids as "columnIds", kind = 'heap' as "hasPast"`

interface HeapRow extends HeapAddress {
  readonly columnIds: readonly string[]
  readonly hasPast: boolean
}

/**
 * The contents of files that rows refer to, as a transaction sees them. Row versions that are kept for forks count, too.
 */
export class MentionedContents {
  readonly #transaction: Queryable

  constructor(transaction: Queryable) {
    this.#transaction = transaction
  }

  /** Returns those of the given contents that a row of any branch refers to. Throws if a heap cannot be searched. */
  async find(hashes: readonly string[]): Promise<Set<string>> {
    const found = new Set<string>()
    for (let afterId = '0'; found.size < hashes.length; ) {
      const missing = hashes.filter((sha256) => !found.has(sha256))
      const { mentions, lastId, failure } = await this.findNext(missing, { afterId })
      if (failure !== undefined) throw failure
      for (const { sha256 } of mentions) found.add(sha256)
      if (lastId === undefined) break
      afterId = lastId
    }
    return found
  }

  /** Returns all contents that the rows of a database refer to. `isSearched` is a condition on rows of `offshoot.heaps`. */
  async list(isSearched: Sql): Promise<Set<string>> {
    const heaps = await this.#transaction.query<HeapRow>(sql`
      select ${HEAP_COLUMNS}
      from offshoot.heaps
      where file_column_ids <> '{}' and kind <> 'gone' and ${isSearched}`)
    const found = new Set<string>()
    for (const heap of heaps) {
      // Releases the locks on the heap, as below.
      await this.#transaction.query(sql`savepoint heap`)
      for (const { sha256 } of await searchHeap(this.#transaction, heap, null)) found.add(sha256)
      await this.#transaction.query(sql`rollback to savepoint heap`)
    }
    return found
  }

  /** Searches some heaps for contents, in the order of their ids. Ends after a heap that cannot be searched. */
  async findNext(
    hashes: readonly string[],
    { afterId, heapsMax = STEP_HEAPS }: { afterId: string; heapsMax?: number },
  ): Promise<FoundMentions> {
    const transaction = this.#transaction
    const heaps = await transaction.query<HeapRow>(sql`
      select ${HEAP_COLUMNS}
      from offshoot.heaps
      where file_column_ids <> '{}' and id > ${afterId}
      order by id
      limit ${heapsMax}`)
    const mentions: Mention[] = []
    // PostgreSQL's lock table has room for a few thousand locks. Rolling back to the savepoint releases the
    // locks on a heap and keeps the snapshot.
    await transaction.query(sql`savepoint heaps`)
    let failure: unknown
    let lastId: string | undefined
    for (const heap of heaps) {
      lastId = heap.heapId
      try {
        mentions.push(...(await searchHeap(transaction, heap, hashes)))
      } catch (error) {
        // The heap may have just been dropped, because no branch reads it any more.
        if (!isUndefinedTable(error)) failure = error
      }
      await transaction.query(sql`rollback to savepoint heaps`)
      if (failure !== undefined) break
    }
    await transaction.query(sql`release savepoint heaps`)
    if (failure !== undefined) return { mentions, lastId, failure }
    return { mentions, lastId: heaps.length < heapsMax ? undefined : lastId }
  }
}

/** Finds contents that a heap mentions: those with the given hashes, or all. */
async function searchHeap(
  transaction: Queryable,
  heap: HeapRow,
  hashes: readonly string[] | null,
): Promise<Mention[]> {
  const { databaseId, columnIds, hasPast } = heap
  const found = new Set<string>()
  for (const columnId of columnIds) {
    for (const table of hasPast ? [heapName(heap), pastName(heap)] : [heapName(heap)]) {
      for (const sha256 of await listMentioned(transaction, { table, columnId, hashes })) {
        found.add(sha256)
      }
    }
  }
  return [...found].map((sha256) => ({ sha256, databaseId }))
}

async function listMentioned(
  transaction: Queryable,
  options: { table: Sql; columnId: string; hashes: readonly string[] | null },
): Promise<string[]> {
  const { table, hashes } = options
  const column = sql`t.${ident(`c${options.columnId}`)}`
  const searched =
    hashes === null
      ? empty
      : sql`
      and ${mentionedContents(column)} ?| ${hashes}::text[]
      and m.sha256 = any(${hashes}::text[])`
  const rows = await transaction.query<{ sha256: string }>(sql`
    select distinct m.sha256
    from ${table} t, jsonb_array_elements_text(${mentionedContents(column)}) m (sha256)
    where ${column} is not null${searched}`)
  return rows.map((row) => row.sha256)
}
