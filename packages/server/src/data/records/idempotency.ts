import { createHash } from 'node:crypto'
import { AppError } from '@offshoot/contract/errors'
import { IDEMPOTENCY_HOURS } from '@offshoot/contract/records'
import { BoundedCache } from '../../common/bounded-cache.js'
import { inTurns } from '../../common/in-turns.js'
import { type JsonText, joinJson } from '../../common/write-json.js'
import { arrayLiteral } from '../../postgres/carriers.js'
import type { Database } from '../../postgres/database.js'
import { isNodeUnreachable, isUndefinedTable } from '../../postgres/failures.js'
import { runTransaction, type Transaction } from '../../postgres/run-transaction.js'
import { raw, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement, slot } from '../../postgres/statement.js'
import type { Work } from '../../postgres/work.js'
import { DatabaseSchema } from '../../rows/layout/database-schema.js'
import type { BranchTable } from '../../rows/open-branch.js'
import { confirmed, StaleError } from '../../rows/running/staleness.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { collected } from '../../telemetry/events.js'
import { planColumns, type Session } from '../session/session.js'
import { ANSWER_ENTRY_BYTES, keptAnswersOf } from './kept-answers.js'

/** A request that the client may repeat: its idempotency key and its content. */
export interface IdempotentRequest {
  readonly key: string
  /** The SHA-256 of the address and body of the request, in hex. */
  contentHash(): Promise<string>
  /** The request is a reset of the branch. It does not undo itself, so its answer is found after it. */
  readonly isReset?: boolean
}

/** The number of bytes hashed between two pauses. */
const HASHED_BYTES = 1024 * 1024

/** Returns a function that hashes parts of a request once, with pauses for other requests. */
export function hashContent(
  parts: () => Iterable<string | Buffer>,
): IdempotentRequest['contentHash'] {
  let hash: Promise<string> | undefined
  return () => {
    hash ??= inTurns(hashSteps(parts()))
    return hash
  }
}

function* hashSteps(parts: Iterable<string | Buffer>): Generator<undefined, string> {
  const hash = createHash('sha256')
  for (const part of parts) {
    if (typeof part === 'string') {
      hash.update(part)
      yield
      continue
    }
    for (let start = 0; start < part.length; start += HASHED_BYTES) {
      hash.update(part.subarray(start, start + HASHED_BYTES))
      yield
    }
  }
  return hash.digest('hex')
}

/** A request and the session that it belongs to. */
export interface IdempotencyContext {
  readonly database: Database
  readonly session: Session
  /** undefined: the request has no idempotency key. */
  readonly idempotent?: IdempotentRequest | undefined
}

/** Responses of this time and earlier ones have expired. */
const EXPIRED_AT = sql`now() - interval '${raw(String(IDEMPOTENCY_HOURS))} hours'`

/** Statements on the answers of one database. */
interface AnswerStatements {
  readonly find: Statement
  /** Inserts a key, or replaces an expired one. Returns no row if the key is taken. */
  readonly insert: Statement
}

const DATABASES_MAX = 1000
const statements = new BoundedCache<AnswerStatements>({ max: DATABASES_MAX })

function statementsOf({ branch: { rows } }: Session): AnswerStatements {
  let known = statements.get(rows.databaseId)
  if (known === undefined) {
    const { answers } = new DatabaseSchema(rows.databaseId)
    known = {
      find: compileStatement(sql`
        select encode(request_hash, 'hex'), body
        from ${answers}
        where hash = decode(${slot(0)}::text, 'hex') and created_at > ${EXPIRED_AT}`),
      insert: compileStatement(sql`
        insert into ${answers} as k (hash, request_hash, body, size)
        values (decode(${slot(0)}::text, 'hex'), decode(${slot(1)}::text, 'hex'), ${slot(2)}::text,
          ${slot(3)}::integer)
        on conflict (hash) do update
        set request_hash = excluded.request_hash, body = excluded.body, size = excluded.size,
          created_at = now()
        where k.created_at <= ${EXPIRED_AT}
        returning 1`),
    }
    statements.set(rows.databaseId, known)
  }
  return known
}

function sha256(...parts: readonly (string | Buffer)[]): string {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part).update('\0')
  return hash.digest('hex')
}

/**
 * The hash includes user and branch, so that keys of different users or branches never conflict. It also
 * includes the number of resets: a reset undoes the requests, so they can be executed again.
 */
function keyHash({ principal, access, branch }: Session, key: string, isReset = false): string {
  const { resets } = branch.rows
  // Earlier versions hashed a number that grew by 2^32 with each reset. Their answers stay valid after an upgrade.
  const counted = resets === 0 || isReset ? [] : [String(resets * 2 ** 32)]
  return sha256(principal.userId, access.branchId, ...counted, key)
}

/** Records of a table that a request has created. */
export interface CreatedRecords {
  readonly table: BranchTable
  readonly ids: readonly string[]
}

export interface RepeatOptions {
  /**
   * Finds the records that a stored response says to exist. If one of them was deleted since, the response is no longer
   * true, and the request is refused.
   */
  createdIn?(answer: string): readonly CreatedRecords[]
  /**
   * The request takes one transaction and little time. Repetitions are rare, so it is executed without looking for a
   * response first: if there is one, storing another fails, and the transaction is rolled back.
   */
  readonly isShort?: boolean
}

/**
 * Executes a request, or returns the stored response if it was executed before. `execute` must store its
 * response in its own transaction, with `keepAnswer`. The rights of the key must be checked before.
 */
export async function answerOnce<Answer extends JsonText>(
  context: IdempotencyContext,
  execute: () => Promise<Answer>,
  { createdIn, isShort = false }: RepeatOptions = {},
): Promise<Answer | string> {
  const { database, session } = context
  if (context.idempotent === undefined) return execute()
  const repeat = async (): Promise<string | undefined> => {
    const answer = await findAnswer(context)
    if (answer !== undefined) await requireRecords(context, createdIn?.(answer) ?? [])
    return answer
  }
  if (isShort) {
    await keptAnswersOf(database).load(session.access.databaseId)
  } else {
    const known = await repeat()
    if (known !== undefined) return known
  }
  try {
    return await execute()
  } catch (error) {
    if (error instanceof StaleError) throw error
    // The failure may be caused by the same request, sent before, or sent twice and completed first.
    const answer = await repeat()
    if (answer === undefined) throw error
    session.growth.undo()
    await session.numbers.giveBack(error)
    return answer
  }
}

/** Stores the result of an operation in the transaction that changes something. */
type KeepResult<Result> = (transaction: Transaction, result: Result) => Promise<void>

/**
 * Like `answerOnce`, for an operation with several transactions, whose result is an object. It must call `keep` at the
 * end of the transaction that takes effect. If there was nothing to change, the result is stored in a transaction of
 * its own.
 */
export async function resultOnce<Result extends object>(
  context: IdempotencyContext,
  operation: (keep: KeepResult<Result> | undefined) => Promise<Result>,
): Promise<Result> {
  const { database, session } = context
  if (context.idempotent === undefined) return operation(undefined)
  const answer = await answerOnce(context, async () => {
    let kept: Result | undefined
    const keep: KeepResult<Result> = async ({ client }, result) => {
      kept = result
      const transaction = session.branch.inTransaction(client)
      await keepAnswer(transaction, context, JSON.stringify(result))
    }
    const result = await operation(keep)
    // An attempt that was rolled back may have stored another result.
    if (kept !== result) await runTransaction(database, (own) => keep(own, result))
    return JSON.stringify(result)
  })
  return JSON.parse(answer) as Result
}

async function requireRecords(
  { session }: IdempotencyContext,
  created: readonly CreatedRecords[],
): Promise<void> {
  const calls = created.map(({ table, ids }) => ({
    statement: planColumns(table, []).many,
    values: [arrayLiteral(ids)],
  }))
  const found = await session.branch.runReads(calls)
  for (const [index, { table, ids }] of created.entries()) {
    const present = new Set(found[index]?.map(([id]) => id))
    const gone = ids.find((id) => !present.has(id))
    if (gone === undefined) continue
    throw confirmed(
      new AppError(
        'idempotency_outdated',
        `header [Idempotency-Key]: the request was executed before, and has created record [${gone}] of ` +
          `table [${table.codec.table.name}], which was deleted since; use a new key to execute it again`,
      ),
    )
  }
}

/** Finds the response to an earlier request with the same key. Throws if that request was a different one. */
export async function findAnswer(context: IdempotencyContext): Promise<string | undefined> {
  const kept = await findKept(context, context.idempotent)
  if (kept === undefined) return undefined
  if (kept.requestHash !== (await context.idempotent?.contentHash())) {
    throw new AppError(
      'idempotency_mismatch',
      'header [Idempotency-Key]: was used for a different request before',
    )
  }
  if (kept.body !== null) return kept.body
  throw new AppError(
    'idempotency_outdated',
    'header [Idempotency-Key]: the request was executed before, and its answer is no longer kept, because the ' +
      'database keeps many answers; read the records to see what it has done',
  )
}

/** Returns whether a response is stored under a key, for any request. */
export async function isKeyUsed(
  context: IdempotencyContext,
  key: string | undefined,
): Promise<boolean> {
  return key !== undefined && (await findKept(context, { key })) !== undefined
}

async function findKept(
  { database, session }: IdempotencyContext,
  request: Pick<IdempotentRequest, 'key' | 'isReset'> | undefined,
): Promise<{ requestHash: string; body: string | null } | undefined> {
  if (request === undefined) return undefined
  // Known before the transaction of the request begins, which must not wait for another connection.
  await keptAnswersOf(database).load(session.access.databaseId)
  const values = [keyHash(session, request.key, request.isReset)]
  const call = { statement: statementsOf(session).find, values }
  const [row] = (await session.branch.runReads([call])).flat()
  return row && { requestHash: row[0] ?? '', body: row[1] ?? null }
}

/**
 * Stores a response in the transaction of its request. Throws if a repetition has completed first, or if the
 * database keeps too many responses.
 */
export async function keepAnswer(
  transaction: OpenTransaction,
  { database, session, idempotent }: IdempotencyContext,
  answer: JsonText,
): Promise<void> {
  if (idempotent === undefined) return
  const contentHash = await idempotent.contentHash()
  const body = joinJson(answer)
  const size = Buffer.byteLength(body) + ANSWER_ENTRY_BYTES
  keptAnswersOf(database).add(session.access.databaseId, size)
  const hash = keyHash(session, idempotent.key, idempotent.isReset)
  const values = [hash, contentHash, body, String(size)]
  const [rows = []] = await transaction.run([{ statement: statementsOf(session).insert, values }])
  if (rows.length === 0) {
    throw new AppError(
      'idempotency_conflict',
      'header [Idempotency-Key]: is used by another request at this moment',
    )
  }
}

/** Maximum number of responses deleted by one step. */
const STEP_ANSWERS = 1000

/** Bounds the responses of the databases that this process has added some to. Returns whether there may be more to do. */
export function shrinkAnswers(database: Database): Promise<boolean> {
  return keptAnswersOf(database).shrink()
}

/** Deletes some expired responses of the next database that has responses. Returns whether there may be more. */
export async function collectAnswers(
  database: Database,
  after: Pick<Work, 'position'>,
): Promise<boolean> {
  const databaseId = await DatabaseSchema.findAnswering(database, after.position ?? '0')
  if (databaseId === undefined) {
    after.position = null
    return false
  }
  const count = await deleteExpired(database, new DatabaseSchema(databaseId).answers).catch(
    (error: unknown) => {
      // The database was deleted, or the next round tries it again. Those on other nodes must not wait for it.
      if (isUndefinedTable(error) || isNodeUnreachable(error)) return 0
      throw error
    },
  )
  if (count < STEP_ANSWERS) after.position = databaseId
  return true
}

async function deleteExpired(database: Database, answers: Sql): Promise<number> {
  const deleted = await database.query(sql`
    delete from ${answers}
    where hash = any(array(
      select hash
      from ${answers}
      where created_at <= ${EXPIRED_AT}
      limit ${STEP_ANSWERS}
      for update skip locked
    ))
    returning 1`)
  collected.add('answer', deleted.length)
  return deleted.length
}
