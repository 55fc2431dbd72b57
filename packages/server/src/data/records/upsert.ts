import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { answerOnce, keepAnswer } from './idempotency.js'
import { newIds } from './new-ids.js'
import { originOfRecords } from './new-numbers.js'
import type { RecordContext } from './records.js'
import { type StreamRequest, type Tally, valuesOf } from './stream-lines.js'
import { type BatchWriter, type PartialContext, streamPartially } from './stream-partial.js'
import { findKey, Upsert, type UpsertResult } from './upsert-rows.js'

/** Inserts records, or updates those that exist, in one transaction. Returns the result of each. */
export async function upsertRecords(
  context: Omit<RecordContext, 'columns' | 'files'> & { readonly limits: Limits },
  { records, by }: { records: readonly unknown[]; by: string },
): Promise<string> {
  const { session, limits } = context
  const table = session.table(context.tableName)
  findKey(table.codec, by)
  if (records.length > limits.bulkRecordsMax) {
    throw new AppError(
      'invalid_request',
      `body: field [records]: must have at most ${limits.bulkRecordsMax} items; send more as application/x-ndjson`,
    )
  }
  return answerOnce(
    context,
    async () => {
      await session.growth.admitBody()
      const writable = await session.branch.writable(table)
      return session.branch.runSteps(async (transaction) => {
        const newId = await newIds(session, writable, records)
        const origin = await originOfRecords(session, { table: writable, records })
        const upsert = new Upsert(writable, { by, newId, origin })
        await upsert.encode(records.map((value) => ({ value })))
        const results = await upsert.write(transaction)
        const answer = JSON.stringify({ results })
        await keepAnswer(transaction, context, answer)
        return answer
      })
    },
    { createdIn: (answer) => [{ table, ids: createdIds(answer) }] },
  )
}

function createdIds(answer: string): string[] {
  const { results } = JSON.parse(answer) as { results: UpsertResult[] }
  return results.flatMap((result) => (result.outcome === 'failed' ? [] : [result.id]))
}

/** Upserts a stream of records, one JSON object per line, in batches. */
export async function streamUpserts(
  context: PartialContext,
  request: StreamRequest & { readonly by: string },
): Promise<string> {
  const { sessions, tableName } = context
  await sessions.run(context.session, async (session) => {
    findKey(session.table(tableName).codec, request.by)
  })
  const write: BatchWriter = (partial, batch, tally) =>
    sessions.run(partial.session, async (session) => {
      const table = await session.branch.writable(session.table(tableName))
      await session.growth.admit(batch.bytes)
      const results = await session.branch.runSteps(async (transaction) => {
        const values = [...valuesOf(batch.lines)]
        const newId = await newIds(session, table, values)
        const origin = await originOfRecords(session, { table, records: values })
        const upsert = new Upsert(table, { by: request.by, newId, origin })
        await upsert.encode(batch.lines)
        return upsert.write(transaction)
      })
      for (const [index, result] of results.entries()) {
        count(tally, result, batch.lines[index]?.line ?? 0)
      }
    })
  return streamPartially(context, request, write)
}

function count(tally: Tally, result: UpsertResult, line: number): void {
  const { outcome } = result
  const kept = { updated: 0, unchanged: 0, ...tally.kept }
  if (outcome === 'failed') {
    const { error } = result
    tally.refuse(line, error)
  } else if (outcome === 'inserted') tally.inserted++
  else kept[outcome]++
  tally.kept = kept
}
