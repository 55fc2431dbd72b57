import { type Sql, sql } from '../../postgres/sql.js'
import {
  type Call,
  compileStatement,
  type Parameter,
  slot,
  type TextRows,
} from '../../postgres/statement.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'

/**
 * The stamps that a request relies on. PostgreSQL compares them with the current stamps in the transaction of
 * the request.
 */
export interface Guard {
  readonly rows: BranchRows
  /** undefined for a link to a file: its signature authorises the request. */
  readonly keyId: string | undefined
  readonly keyStamp: string | undefined
}

/** Returns whose share of the connections a request takes: that of its key, or of the linked branch. */
export function ownerOf({ rows, keyId }: Guard): string {
  return keyId ?? rows.branchId
}

/**
 * A relation with one row if branch and key still have their stamps, and no row otherwise. The row has the
 * epoch for newly written rows. The values of the guard start at the given slot.
 */
export function guardRelation(first: number): Sql {
  return sql`(
    select b.epoch
    from offshoot.branches b, offshoot.api_keys k
    where b.id = ${slot(first)}::text and b.stamp = ${slot(first + 1)}::bigint
      and k.id = ${slot(first + 2)}::bigint and k.stamp = ${slot(first + 3)}::bigint
  ) guard`
}

export function guardValues({ rows, keyId, keyStamp }: Guard): Parameter[] {
  const layout = layoutOf(rows)
  return [layout.branchId, layout.stamp, keyId ?? null, keyStamp ?? null]
}

/** Fails with a division by zero if the guard does not hold, which ends the batch. Also returns the epoch. */
const CHECK = compileStatement(sql`
  select 1 / count(*)::integer, max(epoch) from ${guardRelation(0)}`)
const CHECK_BRANCH = compileStatement(sql`
  select 1 / count(*)::integer, max(b.epoch)
  from offshoot.branches b
  where b.id = ${slot(0)}::text and b.stamp = ${slot(1)}::bigint`)
export const GUARD_FAILED = '22012'

export function guardCall(guard: Guard): Call {
  const statement = guard.keyId === undefined ? CHECK_BRANCH : CHECK
  return { statement, values: guardValues(guard) }
}

/** Returns the epoch for newly written rows from the answer to the guard. */
export function epochOf(rows: TextRows | undefined): string {
  const epoch = rows?.[0]?.[1]
  if (typeof epoch !== 'string') throw new Error('a guard that holds must return the epoch')
  return epoch
}
