import type { BranchStats } from '@offshoot/contract/branch-changes'
import type { Limits } from '@offshoot/contract/limits'
import type { Database } from '../../postgres/database.js'
import { runTransaction, SNAPSHOT } from '../../postgres/run-transaction.js'
import { RowState } from '../../rows/row-state.js'
import { guardedByKey } from '../../rows/running/staleness.js'
import type { BranchAccess } from '../access/resolve.js'
import { getState } from './branch-state.js'

/** Returns the rows and bytes that a branch stores itself and those that it inherits. */
export async function readBranchStats(
  database: Database,
  access: BranchAccess,
  options: { limits: Limits },
): Promise<BranchStats> {
  return guardedByKey(access.principal, (check) =>
    runTransaction(
      database,
      async (transaction) => {
        const { rows, schema } = await getState(transaction, access)
        const tables: BranchStats['tables'] = []
        for (const table of schema.tables) {
          const size = await new RowState(rows).measureTable(transaction, { table, ...options })
          tables.push({ name: table.name, ...size })
        }
        const total = (kind: 'rows' | 'bytes') => ({
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
      { ...SNAPSHOT, opening: [check] },
    ),
  )
}
