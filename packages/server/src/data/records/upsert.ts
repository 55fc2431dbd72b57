import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { BranchTable, WritableTable } from '../../rows/open-branch.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { findBrokenAtEnd } from '../session/record-errors.js'
import type { Session } from '../session/session.js'
import { answerOnce, keepAnswer } from './idempotency.js'
import { LoadEntry } from './load-entry.js'
import { giveBackRefused } from './new-numbers.js'
import type { RecordContext } from './records.js'
import { type StreamRequest, Tally } from './stream-lines.js'
import { type BatchWriter, type PartialContext, streamPartially } from './stream-partial.js'
import { findKey, UpsertRecords } from './upsert-records.js'
import {
  ATTEMPTS_MAX,
  DanglingLinksError,
  type RefusedRecords,
  Upsert,
  type UpsertResult,
} from './upsert-rows.js'

/** Inserts records, or updates those that exist, in one transaction. Returns the result of each. */
export async function upsertRecords(
  context: Omit<RecordContext, 'columns' | 'files'> & {
    readonly limits: Limits
    onEntry(id: string): void
  },
  { records, by }: { records: readonly unknown[]; by: string },
): Promise<string> {
  const { session, limits } = context
  const table = session.table(context.tableName)
  findKey(table.codec, by)
  const rows = records.map((value) => ({ value }))
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
      const entry = new LoadEntry(session, table.codec.table)
      const { answer, isLogged } = await write(
        session,
        table,
        { by, rows },
        async (transaction, results) => {
          const answer = JSON.stringify({ results })
          const isLogged = await log(session, { transaction, entry, results })
          await keepAnswer(transaction, context, answer)
          return { answer, isLogged }
        },
      )
      if (isLogged) context.onEntry(entry.id)
      return answer
    },
    { createdIn: (answer) => [{ table, ids: createdIds(answer) }] },
  )
}

/** Adds what was written to the entry of the log. Returns false, and makes no entry, if nothing was written. */
async function log(
  session: Session,
  {
    transaction,
    entry,
    results,
  }: { transaction: OpenTransaction; entry: LoadEntry; results: readonly UpsertResult[] },
): Promise<boolean> {
  const inserted: string[] = []
  let updated = 0
  for (const result of results) {
    if (result.outcome === 'inserted') inserted.push(result.id)
    else if (result.outcome === 'updated') updated++
  }
  if (inserted.length + updated === 0) return false
  // An upsert that has changed records cannot be reverted, so its ids are not needed.
  const kept = updated > 0 ? [] : await entry.keeping(transaction, inserted)
  await transaction.run([...kept, entry.growing(session, { inserted: inserted.length, updated })])
  return true
}

/** How often all records are written together, without those that turned out to break a rule then. */
const DRAFTS_MAX = 4

/** Another order of the writes may keep the rules. Nothing was written. */
class ContestedError extends Error {
  /** `written` has the results. */
  constructor(readonly written: Upsert) {
    super('a value is contested')
  }
}

/**
 * Writes records in one transaction. If one is refused because of a unique value that another one may give up, all are written
 * again, without those that were refused for another reason, and rules are looked at when that has ended. Records that break
 * one then are left out, too. Should that not lead to an end, each record is judged by itself after all.
 */
async function write<Result>(
  session: Session,
  table: BranchTable,
  { by, rows }: { by: string; rows: readonly { value?: unknown; fault?: string }[] },
  finish: (transaction: OpenTransaction, results: readonly UpsertResult[]) => Promise<Result>,
): Promise<Result> {
  const { branch } = session
  const writable = await branch.writable(table)
  const records = await UpsertRecords.read(session, writable, { by, given: rows })
  let written: Upsert | undefined
  let refused: RefusedRecords = new Map()
  let attempts = 0
  const writeTo = async (
    to: WritableTable,
    transaction: OpenTransaction,
    { isFinal }: { isFinal: boolean },
  ) => {
    const mayLinkAhead = attempts < ATTEMPTS_MAX
    const upsert = new Upsert(session, to, { records, refused, mayLinkAhead, isFinal })
    const results = await upsert.write(transaction)
    if (upsert.isContested && !isFinal) throw new ContestedError(upsert)
    written = upsert
    return finish(transaction, results)
  }
  const writeEach = async (isFinal: boolean) => {
    for (;;) {
      try {
        return await branch.runSteps((transaction) => writeTo(writable, transaction, { isFinal }))
      } catch (error) {
        if (!(error instanceof DanglingLinksError)) throw error
        refused = error.refused
        attempts++
      }
    }
  }
  const writeDrafted = () =>
    branch.runDrafted([table], async (draft, transaction) => {
      const drafted = await draft.writable(draft.findTable(table.codec.table.name) ?? table)
      return writeTo(drafted, transaction, { isFinal: true })
    })
  const writeTogether = async (alone: Upsert) => {
    const before = refused
    refused = alone.withLost(new Map([...refused, ...alone.refusedAlone]))
    for (let count = 0; count < DRAFTS_MAX; count++) {
      try {
        return await writeDrafted()
      } catch (error) {
        const broken = refusedNow(error, { alone, refused })
        if (broken === undefined) throw error
        if (broken.size === 0) break
        refused = alone.withLost(new Map([...refused, ...broken]))
      }
    }
    refused = before
    return writeEach(true)
  }
  const result = await writeEach(!branch.takesDrafts).catch((error: unknown) => {
    if (!(error instanceof ContestedError)) throw error
    return writeTogether(error.written)
  })
  if (written?.hasFailed) {
    const broken = written.broken()
    await giveBackRefused(session, table, { stored: written.stored(), broken })
  }
  return result
}

/**
 * Returns the records that a failed write has to be repeated without. Of those that break a rule together, the first one may
 * keep it without the others. undefined: it has failed for another reason.
 */
function refusedNow(
  error: unknown,
  { alone, refused }: { alone: Upsert; refused: RefusedRecords },
): RefusedRecords | undefined {
  if (error instanceof DanglingLinksError) return error.refused
  const violation = findBrokenAtEnd(error)
  if (violation === undefined) return undefined
  const broken = [...alone.refusedBy(violation, { without: refused })]
  return new Map(broken.length > 1 ? broken.slice(1) : broken)
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
  const { sessions, tableName, limits } = context
  await sessions.run(context.session, async (session) => {
    findKey(session.table(tableName).codec, request.by)
  })
  let results: UpsertResult[] | undefined = []
  const writeBatch: BatchWriter = (partial, batch, { tally, entryOf, onStored }) =>
    sessions.run(partial.session, async (session) => {
      await session.growth.admit(batch.bytes)
      const asked = { by: request.by, rows: batch.lines }
      const table = session.table(tableName)
      const entry = entryOf(session, table)
      const written = await write(session, table, asked, async (transaction, results) => ({
        results,
        isLogged: await log(session, { transaction, entry, results }),
      }))
      if (written.isLogged) onStored(entry)
      for (const [index, result] of written.results.entries()) {
        count(tally, result, batch.lines[index]?.line ?? 0)
      }
      // A long stream is answered with counts alone, so that its answer has a limited size.
      const all = results?.concat(written.results)
      results = all === undefined || all.length > limits.bulkRecordsMax ? undefined : all
      tally.results = results
    })
  const tally = new Tally()
  tally.results = results
  tally.kept = { updated: 0, unchanged: 0 }
  return streamPartially(context, request, { write: writeBatch, tally })
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
