import type { Limits } from '@offshoot/contract/limits'
import type { Database } from '../../postgres/database.js'
import { runTransaction, SNAPSHOT, type Transaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { compileTable } from '../../rows/columns/table-codec.js'
import type { Layout } from '../../rows/layout/layout.js'
import type { StoredTable } from '../../rows/layout/stored-schema.js'
import { selectVisible } from '../../rows/reading/arms.js'
import type { BranchAccess } from '../access/resolve.js'
import { getState } from './branch-state.js'

interface Amounts {
  readonly owned: number
  readonly inherited: number
}

/** Rows and bytes that a branch holds itself, and those it reads of others. */
export async function readBranchStats(
  database: Database,
  access: BranchAccess,
  options: { limits: Limits },
) {
  return runTransaction(
    database,
    async (transaction) => {
      const { layout, schema } = await getState(transaction, access)
      const tables: { name: string; rows: Amounts; bytes: Amounts }[] = []
      for (const table of schema.tables) {
        tables.push({
          name: table.name,
          rows: await countRows(transaction, { layout, table, limits: options.limits }),
          bytes: await countBytes(transaction, layout, table),
        })
      }
      const total = (kind: 'rows' | 'bytes'): Amounts => ({
        owned: tables.reduce((sum, table) => sum + table[kind].owned, 0),
        inherited: tables.reduce((sum, table) => sum + table[kind].inherited, 0),
      })
      return {
        timestamp: new Date().toISOString(),
        interval: '0s',
        rows: total('rows'),
        bytes: total('bytes'),
        tables,
      }
    },
    SNAPSHOT,
  )
}

async function countRows(
  transaction: Transaction,
  options: { layout: Layout; table: StoredTable; limits: Limits },
): Promise<Amounts> {
  const codec = compileTable(options.table, { limits: options.limits, jsonAsText: false })
  const { layout } = options
  const own = { ...layout, levels: layout.levels.slice(0, 1) }
  const [row] = await transaction.query<Amounts>(sql`
    select
      (select count(*)::integer from (${selectVisible(own, codec)}) o) as owned,
      (select count(*)::integer from (${selectVisible(layout, codec, { from: 1 })}) i) as inherited`)
  return row ?? { owned: 0, inherited: 0 }
}

async function countBytes(
  transaction: Transaction,
  layout: Layout,
  table: StoredTable,
): Promise<Amounts> {
  const heapIds = layout.levels.map((level) => level.heaps.get(table.id)?.heapId)
  const sizeOf = async (ids: readonly (string | undefined)[]): Promise<number> => {
    const names = ids.flatMap((id) => (id === undefined ? [] : [`heap_${id}`, `past_${id}`]))
    const [row] = await transaction.query<{ bytes: string | null }>(sql`
      select sum(pg_total_relation_size(c.oid)) as bytes
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
      where n.nspname = 'offshoot_rows' and c.relname = any(${names}::text[])`)
    return Number(row?.bytes ?? 0)
  }
  return { owned: await sizeOf(heapIds.slice(0, 1)), inherited: await sizeOf(heapIds.slice(1)) }
}
