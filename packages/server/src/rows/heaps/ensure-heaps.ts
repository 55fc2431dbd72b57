import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import type { StoredTable } from '../columns/stored-schema.js'
import type { Gates } from '../gates/gates.js'
import type { Layout } from '../layout/layout.js'
import { type DeepFolds, requestFolds } from './folds.js'
import { createHeaps } from './heap-ddl.js'
import type { SpareHeaps } from './spare-heaps.js'

/** Heaps that one transaction creates. Writers of the branch wait for it, and it locks each new table. */
const HEAPS_AT_ONCE = 32

/** What a process needs to create heaps. */
export interface NewHeaps {
  readonly gates: Gates
  readonly spares: SpareHeaps
  readonly folds: DeepFolds
}

/**
 * Creates the missing heaps of tables on a branch, before the branch writes to them for the first time. Returns the new
 * layout if it is known, and differs from the given one in these heaps only.
 */
export async function ensureHeaps(
  heaps: NewHeaps,
  layout: Layout,
  { tables, owner }: { tables: readonly StoredTable[]; owner: string },
): Promise<Layout | undefined> {
  await heaps.folds.fold(layout, tables)
  let current: Layout | undefined = layout
  for (let start = 0; start < tables.length; start += HEAPS_AT_ONCE) {
    const some = tables.slice(start, start + HEAPS_AT_ONCE)
    const next = await ensureSome(heaps, current ?? layout, { tables: some, owner })
    current = current && next
  }
  return current
}

async function ensureSome(
  { gates, spares }: NewHeaps,
  layout: Layout,
  { tables, owner }: { tables: readonly StoredTable[]; owner: string },
): Promise<Layout | undefined> {
  const { databaseId, branchId, schemaId } = layout
  const create = async (transaction: Queryable): Promise<void> => {
    // If the schema has changed, do nothing: the caller reads the layout again, and calls again if heaps
    // are still missing.
    const [branch] = await transaction.query<{ epoch: number; tableIds: number[] }>(
      prepared(sql`
      select b.epoch, array(
          select h.table_id::double precision
          from offshoot.heaps h
          where h.branch_id = b.id and h.kind = 'heap'
        ) as "tableIds"
      from offshoot.branches b
      where b.id = ${branchId} and b.schema_id = ${schemaId}`),
    )
    if (branch === undefined) return
    // Another request may have created some of the heaps.
    const present = new Set(branch.tableIds)
    const missing = tables.filter(({ id }) => !present.has(id))
    if (missing.length === 0) return
    const { epoch } = branch
    await createHeaps(transaction, { databaseId, branchId, epoch, tables: missing })
    await requestFolds(transaction, layout, missing)
    await transaction.query(
      prepared(sql`
      update offshoot.branches
      set stamp = nextval('offshoot.stamps')
      where id = ${branchId}`),
    )
  }
  const assigned = await spares.assign(layout, { tables, owner })
  if (!assigned.isComplete) {
    await gates.runAlone([branchId], create, { owner })
  }
  spares.refill({ databaseId, tables })
  return assigned.isComplete ? assigned.layout : undefined
}
