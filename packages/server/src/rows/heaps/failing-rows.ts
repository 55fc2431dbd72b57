import type { Queryable } from '../../postgres/database.js'
import { isDataException } from '../../postgres/failures.js'
import { type Sql, sql } from '../../postgres/sql.js'

/** Rows that are evaluated together at first. */
const FIRST_STEP_ROWS = 1024

/** A condition over the rows `r` of a selection, which PostgreSQL may fail to evaluate. */
interface Evaluated {
  readonly rows: Sql
  readonly condition: Sql
}

/**
 * Runs a query that evaluates an expression of the user for rows. If PostgreSQL fails to evaluate it for one of them, goes
 * on without the query: the transaction stays usable, and the outcome has the error.
 */
export async function tryEvaluating<Result>(
  transaction: Queryable,
  query: () => Promise<Result>,
): Promise<{ readonly result: Result } | { readonly failure: unknown }> {
  await transaction.query(sql`savepoint evaluating`)
  try {
    const result = await query()
    await transaction.query(sql`release savepoint evaluating`)
    return { result }
  } catch (failure) {
    if (!isDataException(failure)) throw failure
    await transaction.query(sql`rollback to savepoint evaluating`)
    return { failure }
  }
}

/**
 * Lists the first rows for which PostgreSQL fails to evaluate a condition, by their ids; with `includesMet`, also those
 * that meet it. An error does not say which row it is about, so the rows are evaluated in steps, and a step that fails is
 * divided until it has a single row.
 */
export async function listFailing(
  transaction: Queryable,
  { rows, condition }: Evaluated,
  { limit, includesMet = false }: { limit: number; includesMet?: boolean },
): Promise<string[]> {
  const failing: string[] = []
  const isMet = sql`filter (where ${condition})`
  const met = includesMet ? sql`(array_agg(r.id order by r.id) ${isMet})[1:${limit}]` : sql`null`
  let after = ''
  for (let size = FIRST_STEP_ROWS; failing.length < limit; ) {
    const step = sql`select * from (${rows}) v where v.id > ${after} order by v.id limit ${size}`
    const tried = await tryEvaluating(transaction, () =>
      transaction.query<EvaluatedStep>(sql`
        select max(r.id) as last, count(*) ${isMet} as failed, ${met} as met from (${step}) r`),
    )
    if ('failure' in tried && size > 1) {
      size = Math.ceil(size / 2)
      continue
    }
    const [end] =
      'result' in tried
        ? tried.result
        : await transaction.query<EvaluatedStep>(
            sql`select max(r.id) as last, null as met from (${step}) r`,
          )
    if (end?.last == null) break
    if ('failure' in tried) failing.push(end.last)
    else if (includesMet) failing.push(...(end.met ?? []))
    after = end.last
    size *= 2
  }
  return failing.slice(0, limit)
}

interface EvaluatedStep {
  /** The id of the last row. Null: there are none. */
  readonly last: string | null
  /** The ids of the rows that meet the condition. */
  readonly met: readonly string[] | null
}
