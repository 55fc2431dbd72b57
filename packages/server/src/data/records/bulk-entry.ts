import { entryOf, insertEntrySql } from '../../domain/log/entries.js'
import { type Call, toCall } from '../../postgres/statement.js'
import type { Session } from '../session/session.js'

/** Adds a bulk load to the log of its branch, in the transaction that inserts the records. */
export function bulkEntryCall(
  { access, principal, requestId }: Session,
  { tableName, ...counts }: { tableName: string; inserted: number; updated?: number },
): Call {
  const entry = entryOf({ ...access, principal: { ...principal, requestId } })
  const details = { ...entry.details, table: tableName, counts }
  return toCall(insertEntrySql({ ...entry, kind: 'bulk', details }))
}
