import { createHash } from 'node:crypto'
import { AppError } from '@offshoot/contract/errors'
import type { Database } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { type Call, compileStatement, slot } from '../../postgres/statement.js'
import type { Session } from './session.js'

/** How long the answer to a request is kept for a repetition of it. */
export const IDEMPOTENCY_HOURS = 24

/** A request that may be repeated: which one it is, and what exactly it asked for. */
export interface IdempotentRequest {
  /** undefined: the client did not ask for it. */
  readonly key: string | undefined
  /** The address and body of the request. */
  readonly content: readonly (string | Buffer)[]
}

const INSERT = compileStatement(sql`
  insert into offshoot.idempotency_keys (hash, request_hash, status, body)
  values (decode(${slot(0)}::text, 'hex'), decode(${slot(1)}::text, 'hex'), 200, ${slot(2)}::text)`)

function sha256(...parts: readonly (string | Buffer)[]): Buffer {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part).update('\0')
  return hash.digest()
}

/** Keys of one user and branch do not meet those of another. */
function keyHash(session: Session, key: string): Buffer {
  return sha256(session.principal.userId, session.access.branchId, key)
}

/** The answer to an earlier request with the same key, if it was the same request. */
export async function findAnswer(
  database: Database,
  session: Session,
  request: IdempotentRequest,
): Promise<string | undefined> {
  if (request.key === undefined) return undefined
  const [row] = await database.query<{ requestHash: Buffer; body: string }>(sql`
    select request_hash as "requestHash", body
    from offshoot.idempotency_keys
    where hash = ${keyHash(session, request.key)}
      and created_at > now() - make_interval(hours => ${IDEMPOTENCY_HOURS})`)
  if (row === undefined) return undefined
  if (!row.requestHash.equals(sha256(...request.content))) {
    throw new AppError(
      'idempotency_mismatch',
      'header [Idempotency-Key]: was used for a different request before',
    )
  }
  return row.body
}

/** Keeps an answer in the transaction it belongs to. Fails when a repetition was faster. */
export function keepAnswer(session: Session, request: IdempotentRequest, answer: string): Call[] {
  if (request.key === undefined) return []
  const hash = keyHash(session, request.key).toString('hex')
  return [{ statement: INSERT, values: [hash, sha256(...request.content).toString('hex'), answer] }]
}

export const IDEMPOTENCY_CONSTRAINT = 'idempotency_keys_pkey'
