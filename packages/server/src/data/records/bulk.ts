import { setImmediate as yieldToOthers } from 'node:timers/promises'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { inTurns, mapInTurns } from '../../common/in-turns.js'
import { type JsonText, listJson } from '../../common/write-json.js'
import { arrayLiteral } from '../../postgres/carriers.js'
import type { BranchTable, WritableTable } from '../../rows/open-branch.js'
import { confirmed } from '../../rows/running/staleness.js'
import type { WriteTransaction } from '../../rows/running/transactions.js'
import { Refusal } from '../../rows/writing/refusals.js'
import { findViolationFields } from '../session/record-errors.js'
import { planColumns } from '../session/session.js'
import { findConflicts } from './bulk-conflicts.js'
import { type Batch, bulkFailed, encodeSlice } from './encode-input.js'
import { answerOnce, keepAnswer } from './idempotency.js'
import { LoadEntry } from './load-entry.js'
import { loadContents, storeFiles } from './record-files.js'
import { recordInput } from './record-input.js'
import { sliceRecords } from './record-slices.js'
import type { RecordContext } from './records.js'

/**
 * Inserts all records or none. Records are sent to PostgreSQL while the rest of the body is being validated.
 * After the first fault nothing more is sent, and the rest is only validated.
 */
export async function bulkInsert(
  context: RecordContext & { readonly limits: Limits; onEntry(id: string): void },
  body: Buffer,
): Promise<JsonText> {
  const { session, limits } = context
  const table = session.table(context.tableName)
  if (context.columns !== undefined) planColumns(table, context.columns)
  return answerOnce(
    context,
    async () => {
      await session.growth.admitBody()
      const writable = await session.branch.writable(table)
      const entry = new LoadEntry(session, table.codec.table)
      try {
        const answer = await session.branch.runSteps(async (transaction) => {
          const batch = await insertBody(context, writable, { transaction, body, limits })
          const answer = await writeAnswer(context, table, { transaction, ids: batch.ids })
          const inserted = batch.ids.length
          const kept = await entry.keeping(transaction, batch.ids)
          await transaction.run([...kept, entry.adding(session, { inserted })])
          await keepAnswer(transaction, context, answer)
          return answer
        })
        context.onEntry(entry.id)
        return answer
      } catch (error) {
        const refusal = Refusal.of(error, [table.codec])
        if (refusal === undefined) throw error
        throw confirmed(
          bulkFailed(
            await findConflicts(context, writable, {
              body,
              limits,
              refusal,
              fields: findViolationFields(error, new Set([table.codec])),
            }),
          ),
        )
      }
    },
    { createdIn: (answer) => [{ table, ids: createdIds(answer) }] },
  )
}

/** Returns the ids in the response of a bulk insert. */
function createdIds(answer: string): string[] {
  const { recordIDs, records = [] } = JSON.parse(answer) as {
    recordIDs?: string[]
    records?: { id: string }[]
  }
  return recordIDs ?? records.map(({ id }) => id)
}

async function insertBody(
  context: RecordContext,
  table: WritableTable,
  options: { transaction: WriteTransaction; body: Buffer; limits: Limits },
): Promise<Batch> {
  const { transaction, limits } = options
  const batch: Batch = { ids: [], faults: [], faultCount: 0 }
  const sink = context.session.branch.openSink(table, transaction)
  let isOpen = true
  try {
    for (const records of sliceRecords(options.body, options.limits)) {
      if (batch.ids.length + records.length > limits.bulkRecordsMax) {
        throw new AppError(
          'invalid_request',
          `body: field [records]: must have at most ${limits.bulkRecordsMax} items; send more as application/x-ndjson`,
        )
      }
      const input = await recordInput(context, table, records)
      const rows = await inTurns(encodeSlice(table.codec, records, batch, input))
      if (batch.faultCount === 0) {
        await storeFiles(context, input.files)
        await sink.add(rows)
      }
      // Lets other requests run between slices.
      await yieldToOthers()
    }
    if (batch.faultCount > 0) throw bulkFailed(batch)
    isOpen = false
    await sink.end()
    return batch
  } finally {
    if (isOpen) await sink.abort()
  }
}

async function writeAnswer(
  context: RecordContext,
  table: BranchTable,
  options: { transaction: WriteTransaction; ids: readonly string[] },
): Promise<JsonText> {
  const { ids } = options
  if (context.columns === undefined) {
    // Characters of a record id never need escaping.
    return ids.length === 0 ? '{"recordIDs":[]}' : `{"recordIDs":["${ids.join('","')}"]}`
  }
  const read = planColumns(table, context.columns)
  const [rows = []] = await options.transaction.run([
    { statement: read.many, values: [arrayLiteral(ids)] },
  ])
  const byId = new Map(rows.map((row) => [row[0], row]))
  await loadContents(context, read, rows)
  const found = ids.map((id) => byId.get(id)).filter((row) => row !== undefined)
  const records = await mapInTurns(found, (row) => read.writeRecord(row, context.session.metadata))
  return listJson('{"records":[', records, ']}')
}
