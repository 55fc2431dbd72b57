import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { schemaName } from '../layout/database-schema.js'
import {
  type BranchRows,
  indexName,
  type Layout,
  layoutOf,
  ownHeap,
  tiersOf,
  uniqueIndexName,
} from '../layout/layout.js'
import type { IndexKind } from './heap-indexes.js'

interface IndexState {
  readonly state: 'building' | 'ready' | 'failed'
  readonly message?: string
}

const NOT_INHERITED =
  'inherited rows are searched without an index until the branch that they come from has it too'

/**
 * Returns the states of indexes by column id. A state also tells if a branch that rows are inherited from
 * lacks the index.
 */
export async function findIndexStates(
  database: Queryable,
  rows: BranchRows,
  { tableId, columnIds, kind }: { tableId: number; columnIds: readonly number[]; kind: IndexKind },
): Promise<Map<number, IndexState>> {
  const layout = layoutOf(rows)
  const heapId = ownHeap(layout, tableId)?.heapId
  const work = await database.query<{ columnId: string; failure: string | null }>(sql`
    select column_id as "columnId", failure
    from offshoot.index_work
    where heap_id = ${heapId ?? null}::bigint`)
  const failures = new Map(work.map(({ columnId, failure }) => [Number(columnId), failure]))
  // The failure may belong to the index of the other kind, so check that this one is missing.
  const failing = columnIds.filter((columnId) => typeof failures.get(columnId) === 'string')
  const failed = await listLacking(
    database,
    layout,
    failing.map((columnId) => ({ columnId, heapId: heapId ?? '' })),
    kind,
  )
  const inherited = columnIds.flatMap((columnId) =>
    inheritedHeaps(layout, { tableId, columnId }).map((heapId) => ({ columnId, heapId })),
  )
  const lacking = await listLacking(database, layout, inherited, kind)
  return new Map(
    columnIds.map((columnId): [number, IndexState] => {
      const failure = failures.get(columnId)
      if (failure === null) return [columnId, { state: 'building' }]
      if (failure !== undefined && failed.has(columnId)) {
        return [columnId, { state: 'failed', message: failure }]
      }
      const message = lacking.has(columnId) ? { message: NOT_INHERITED } : {}
      return [columnId, { state: 'ready', ...message }]
    }),
  )
}

function inheritedHeaps(
  layout: Layout,
  { tableId, columnId }: { tableId: number; columnId: number },
): string[] {
  return tiersOf(layout, tableId).flatMap(({ level, heapId, columnIds }) =>
    level > 0 && columnIds.has(columnId) ? [heapId] : [],
  )
}

/** Returns the columns without a valid index on at least one of the given heaps. */
async function listLacking(
  database: Queryable,
  { databaseId }: Layout,
  columns: readonly { columnId: number; heapId: string }[],
  kind: IndexKind,
): Promise<ReadonlySet<number>> {
  if (columns.length === 0) return new Set()
  const namesOf = ({ columnId, heapId }: { columnId: number; heapId: string }) => [
    indexName('heap', { heapId, columnId, kind }),
    ...(kind === 'values' ? [uniqueIndexName(heapId, columnId)] : []),
  ]
  const rows = await database.query<{ name: string }>(sql`
    select c.relname as name
    from pg_index i
    join pg_class c on c.oid = i.indexrelid
    where c.relnamespace = to_regnamespace(${schemaName(databaseId)})
      and c.relname = any(${columns.flatMap(namesOf)}::name[])
      and i.indisvalid`)
  const found = new Set(rows.map(({ name }) => name))
  const without = columns.filter((column) => !namesOf(column).some((name) => found.has(name)))
  return new Set(without.map(({ columnId }) => columnId))
}
