import { codeOf } from '../../postgres/failures.js'
import { literal, type Sql, sql } from '../../postgres/sql.js'
import {
  type Call,
  compileStatement,
  type Parameter,
  type Statement,
  slot,
  type TextRows,
} from '../../postgres/statement.js'
import { type BranchRows, latestForkOf, layoutOf, type Moment } from '../layout/layout.js'

/**
 * The stamps that a request relies on. PostgreSQL compares them with the current stamps in the transaction of
 * the request.
 */
export interface Guard {
  readonly rows: BranchRows
  /** undefined for a link to a file: its signature authorises the request. */
  readonly keyId: string | undefined
  readonly keyStamp: string | undefined
  /** A table keeps versions of records, so writers note who they are. */
  readonly isNoted?: boolean
}

/** Returns whose share of the connections a request takes: that of its key, or of the linked branch. */
export function ownerOf({ rows, keyId }: Guard): string {
  return keyId ?? rows.branchId
}

/** The branch and the key, if they still have their stamps. */
const CURRENT = sql`
  from offshoot.branches b, offshoot.api_keys k
  where b.id = ${slot(0)}::text and b.stamp = ${slot(1)}::bigint
    and k.id = ${slot(2)}::bigint and k.stamp = ${slot(3)}::bigint`

/** Like `CURRENT`, for a request without a key. */
const CURRENT_BRANCH = sql`
  from offshoot.branches b
  where b.id = ${slot(0)}::text and b.stamp = ${slot(1)}::bigint`

/* SQLSTATEs of our own. No statement of a user can fail with them. */
export const GUARD_FAILED = 'OFF01'
const MOMENT_PASSED = 'OFF02'
const LINK_BROKEN = 'OFF03'

/** Fails with a SQLSTATE, which ends the batch, unless the condition holds. */
const require = (condition: Sql, code: string): Sql =>
  sql`case when ${condition} then 1 else offshoot.fail(${literal(code)}) end`

/** Fails if the guard does not hold. */
const check = (current: Sql): Statement =>
  compileStatement(sql`select ${require(sql`count(*) = 1`, GUARD_FAILED)} ${current}`)

/**
 * Also returns the moment of the branch, and fails if it is not the given one. Without a given moment, any will do.
 */
const checkMoment = (current: Sql): Statement => {
  const [epoch, latestFork] = [slot(4), slot(5)].map((value) => sql`${value}::integer`)
  const isOther = sql`m.epoch <> ${epoch} or m.latest_fork <> ${latestFork}`
  return compileStatement(sql`
    select ${require(sql`count(*) = 1`, GUARD_FAILED)}, max(m.epoch), max(m.latest_fork),
      ${require(sql`coalesce(bool_or(${isOther}), false) = false`, MOMENT_PASSED)}
    from (select b.epoch, ${latestForkOf(sql`b.id`)} as latest_fork ${current}) m`)
}

/** Fails if a condition holds by which a link may be broken. */
export function failIfBroken(condition: Sql): Sql {
  return sql`select ${require(sql`not (${condition})`, LINK_BROKEN)}`
}

export function isLinkBroken(error: unknown): boolean {
  return codeOf(error) === LINK_BROKEN
}

const KEY_CHECK = check(sql`
  from offshoot.api_keys k
  where k.id = ${slot(0)}::bigint and k.stamp = ${slot(1)}::bigint`)

/** Checks the stamp of a key alone. */
export function keyGuardCall({ keyId, keyStamp }: { keyId: string; keyStamp: string }): Call {
  return { statement: KEY_CHECK, values: [keyId, keyStamp] }
}

const BY_KEY = { check: check(CURRENT), checkMoment: checkMoment(CURRENT) }
const BY_LINK = { check: check(CURRENT_BRANCH), checkMoment: checkMoment(CURRENT_BRANCH) }

/** Checks the stamps, in a statement of its own: the statements on rows do not read the catalogue. */
export function guardCall(guard: Guard): Call {
  return { statement: statementsOf(guard).check, values: guardValues(guard) }
}

/**
 * Checks the stamps for a writer, and that its moment is the present one. Without a moment, returns the present one,
 * which stays the same until the transaction ends, because writers are behind the gate.
 */
export function writerGuardCall(guard: Guard, moment: Moment | undefined): Call {
  // The stamp of a branch changes with its first fork.
  if (!layoutOf(guard.rows).hasForks) return guardCall(guard)
  const values = moment === undefined ? [null, null] : momentValues(moment)
  return {
    statement: statementsOf(guard).checkMoment,
    values: [...guardValues(guard), ...values],
  }
}

function statementsOf({ keyId }: Guard): typeof BY_KEY {
  return keyId === undefined ? BY_LINK : BY_KEY
}

function guardValues({ rows, keyId, keyStamp }: Guard): Parameter[] {
  const { branchId, stamp } = layoutOf(rows)
  return [branchId, stamp, keyId ?? null, keyStamp ?? null]
}

const AUTHOR = compileStatement(sql`select set_config('offshoot.key_id', ${slot(0)}::text, true)`)

/** Notes the key of a writer for the versions that its transaction makes. */
export function authorCalls({ keyId, isNoted }: Guard): Call[] {
  return isNoted ? [{ statement: AUTHOR, values: [keyId ?? ''] }] : []
}

export function momentValues({ epoch, latestFork }: Moment): Parameter[] {
  return [String(epoch), String(latestFork)]
}

/** Returns the moment from the answer to the guard of a writer. */
export function momentFrom(rows: TextRows | undefined): Moment {
  const [, epoch, latestFork] = rows?.[0] ?? []
  if (typeof epoch !== 'string') throw new Error('a guard that holds must return the moment')
  return { epoch: Number(epoch), latestFork: Number(latestFork) }
}

/** Returns whether a branch was forked, or a fork of it deleted, since its moment was read. */
export function isMomentPassed(error: unknown): boolean {
  return codeOf(error) === MOMENT_PASSED
}
