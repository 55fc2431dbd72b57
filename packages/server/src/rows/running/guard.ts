import { type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileStatement, type Parameter, slot } from '../../postgres/statement.js'
import type { Layout } from '../layout/layout.js'

/** What a request relies on. Checked by PostgreSQL in the transaction of the request itself. */
export interface Guard {
  readonly layout: Layout
  /** None for a link to a file, which has its own proof. */
  readonly keyId: string | undefined
  readonly keyStamp: string | undefined
  /** Set once PostgreSQL has confirmed it for this request. */
  passed: boolean
}

/**
 * One row while branch and key are as they were when the request was resolved, none otherwise. The
 * values of the guard come from the given slot on.
 */
export function guardRelation(first: number): Sql {
  return sql`(
    select 1
    from offshoot.branches b, offshoot.api_keys k
    where b.id = ${slot(first)}::text and b.stamp = ${slot(first + 1)}::bigint
      and k.id = ${slot(first + 2)}::bigint and k.stamp = ${slot(first + 3)}::bigint
  ) guard`
}

export function guardValues({ layout, keyId, keyStamp }: Guard): Parameter[] {
  return [layout.branchId, layout.stamp, keyId ?? null, keyStamp ?? null]
}

/** Fails when the guard does not hold, and so ends the batch it is in. */
const CHECK = compileStatement(sql`select 1 / count(*)::integer from ${guardRelation(0)}`)
const CHECK_BRANCH = compileStatement(sql`
  select 1 / count(*)::integer
  from offshoot.branches b
  where b.id = ${slot(0)}::text and b.stamp = ${slot(1)}::bigint`)
export const GUARD_FAILED = '22012'

export function guardCall(guard: Guard): Call {
  const statement = guard.keyId === undefined ? CHECK_BRANCH : CHECK
  return { statement, values: guardValues(guard) }
}
