import { createHash } from 'node:crypto'
import { AppError } from '@offshoot/contract/errors'
import { inTurns } from '../../common/in-turns.js'
import { type JsonText, joinJson } from '../../common/json-parts.js'
import type { Database } from '../../postgres/database.js'
import { raw, sql } from '../../postgres/sql.js'
import { compileStatement, slot } from '../../postgres/statement.js'
import { arrayLiteral } from '../../rows/columns.js'
import { confirmed, type OpenTransaction, runReads, StaleError } from '../../rows/read.js'
import type { BranchTable } from '../../rows/tables.js'
import { collected } from '../../telemetry/events.js'
import { planColumns, type Session } from '../session/session.js'

/** The time for which the response to a request is kept. */
const IDEMPOTENCY_HOURS = 24

/** A request that the client may repeat: its idempotency key and its content. */
export interface IdempotentRequest {
  /** undefined: the request has no idempotency key. */
  readonly key: string | undefined
  /** The SHA-256 of the address and body of the request, in hex. */
  contentHash(): Promise<string>
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

/** The session that requests belong to. */
export interface IdempotencyContext {
  readonly database: Database
  readonly session: Session
}

const OLDEST = sql`now() - interval '${raw(String(IDEMPOTENCY_HOURS))} hours'`

const FIND = compileStatement(sql`
  select encode(request_hash, 'hex'), body
  from offshoot.idempotency_keys
  where hash = decode(${slot(0)}::text, 'hex') and created_at > ${OLDEST}`)

/** Inserts a key, or replaces an expired one. Returns no row if the key is taken. */
const INSERT = compileStatement(sql`
  insert into offshoot.idempotency_keys as k (hash, request_hash, status, body)
  values (decode(${slot(0)}::text, 'hex'), decode(${slot(1)}::text, 'hex'), 200, ${slot(2)}::text)
  on conflict (hash) do update
  set request_hash = excluded.request_hash, body = excluded.body, created_at = now()
  where k.created_at <= ${OLDEST}
  returning 1`)

function sha256(...parts: readonly (string | Buffer)[]): string {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part).update('\0')
  return hash.digest('hex')
}

/**
 * The hash includes user and branch, so that keys of different users or branches never conflict. It also
 * includes the number of resets: a reset undoes the requests, so they can be executed again.
 */
function keyHash({ principal, access, guard }: Session, key: string): string {
  const { versionBase } = guard.rows
  // Without a reset the hash is that of earlier versions, whose answers stay valid after an upgrade.
  const resets = versionBase === 0 ? [] : [String(versionBase)]
  return sha256(principal.userId, access.branchId, ...resets, key)
}

/** Records of a table that a request has created. */
export interface CreatedRecords {
  readonly table: BranchTable
  readonly ids: readonly string[]
}

/**
 * Executes a request, or returns the stored response if it was executed before. `execute` must store its
 * response in its own transaction, with `keepAnswer`. `createdIn` finds the records in a stored response. If
 * one of them was deleted since, the response is no longer true, and the request is refused.
 */
export async function answerOnce<Answer extends JsonText>(
  context: IdempotencyContext,
  request: IdempotentRequest,
  execute: () => Promise<Answer>,
  createdIn: (answer: string) => readonly CreatedRecords[],
): Promise<Answer | string> {
  if (request.key === undefined) return execute()
  const repeat = async (): Promise<string | undefined> => {
    const answer = await findAnswer(context, request)
    if (answer !== undefined) await requireRecords(context, createdIn(answer))
    return answer
  }
  const known = await repeat()
  if (known !== undefined) return known
  try {
    return await execute()
  } catch (error) {
    if (error instanceof StaleError) throw error
    // The failure may be caused by the same request, sent twice and completed first.
    const answer = await repeat()
    if (answer !== undefined) return answer
    throw error
  }
}

async function requireRecords(
  { database, session }: IdempotencyContext,
  created: readonly CreatedRecords[],
): Promise<void> {
  const calls = created.map(({ table, ids }) => ({
    statement: planColumns(table, []).many,
    values: [arrayLiteral(ids)],
  }))
  const found = await runReads(database, session.guard, calls)
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
export async function findAnswer(
  context: IdempotencyContext,
  request: IdempotentRequest,
): Promise<string | undefined> {
  const kept = await findKept(context, request.key)
  if (kept === undefined) return undefined
  if (kept.requestHash !== (await request.contentHash())) {
    throw new AppError(
      'idempotency_mismatch',
      'header [Idempotency-Key]: was used for a different request before',
    )
  }
  return kept.body
}

/** Returns whether a response is stored under a key, for any request. */
export async function isKeyUsed(
  context: IdempotencyContext,
  key: string | undefined,
): Promise<boolean> {
  return (await findKept(context, key)) !== undefined
}

async function findKept(
  { database, session }: IdempotencyContext,
  key: string | undefined,
): Promise<{ requestHash: string; body: string } | undefined> {
  if (key === undefined) return undefined
  const call = { statement: FIND, values: [keyHash(session, key)] }
  const [rows] = await runReads(database, session.guard, [call])
  const [row] = rows ?? []
  return row && { requestHash: row[0] ?? '', body: row[1] ?? '' }
}

/** Stores a response in the transaction of its request. Throws if a repetition has completed first. */
export async function keepAnswer(
  transaction: OpenTransaction,
  session: Session,
  request: IdempotentRequest & { answer: JsonText },
): Promise<void> {
  if (request.key === undefined) return
  const contentHash = await request.contentHash()
  const values = [keyHash(session, request.key), contentHash, joinJson(request.answer)]
  const [rows = []] = await transaction.run([{ statement: INSERT, values }])
  if (rows.length === 0) {
    throw new AppError(
      'idempotency_conflict',
      'header [Idempotency-Key]: is used by another request at this moment',
    )
  }
}

/** Maximum number of responses deleted by one step. */
const STEP_ANSWERS = 1000

/** Deletes some expired responses. Returns whether there may be more. */
export async function collectAnswers(database: Database): Promise<boolean> {
  const deleted = await database.query(sql`
    delete from offshoot.idempotency_keys
    where hash = any(array(
      select hash
      from offshoot.idempotency_keys
      where created_at < now() - make_interval(hours => ${IDEMPOTENCY_HOURS})
      limit ${STEP_ANSWERS}
      for update skip locked
    ))
    returning 1`)
  collected.add('answer', deleted.length)
  return deleted.length > 0
}
