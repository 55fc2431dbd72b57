import { isDataException } from '../../postgres/failures.js'
import { ident, type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileStatement, type TextRows } from '../../postgres/statement.js'
import type { OpenTransaction } from '../running/transactions.js'

/*
 * PostgreSQL does not say which check it fails to evaluate, nor for which row, such as by a division by zero. Both are found
 * by calls that evaluate one check for fewer and fewer rows.
 */

/** Runs a call. Returns undefined if PostgreSQL fails to evaluate an expression of it. */
export type TryCall = (call: Call) => Promise<TextRows | undefined>

/** Runs each call in a transaction of its own. */
export function tryingApart(read: (calls: readonly Call[]) => Promise<TextRows[]>): TryCall {
  return async (call) => {
    try {
      const [rows = []] = await read([call])
      return rows
    } catch (error) {
      if (!isDataException(error)) throw error
      return undefined
    }
  }
}

/** Runs calls in a transaction that goes on if one of them fails. */
export function tryingInside(transaction: OpenTransaction): TryCall {
  return async (call) => {
    try {
      const [, rows = []] = await transaction.run([SAVEPOINT, call, RELEASE])
      return rows
    } catch (error) {
      if (!isDataException(error)) throw error
      await transaction.run([ROLL_BACK])
      return undefined
    }
  }
}

const withoutValues = (template: Parameters<typeof compileStatement>[0]): Call => ({
  statement: compileStatement(template),
  values: [],
})
const SAVEPOINT = withoutValues(sql`savepoint trying`)
const RELEASE = withoutValues(sql`release savepoint trying`)
const ROLL_BACK = withoutValues(sql`rollback to savepoint trying`)

/** Rows that fail a check, or for which it cannot be evaluated, by their positions. */
interface FailingRows {
  readonly failed: readonly number[]
  readonly unevaluated: readonly number[]
}

/**
 * Finds the rows that fail a check. `callOf` returns a call that finds them, by their positions, among those from `start` to
 * before `end`. If it cannot be evaluated, the rows are divided until those are found for which it cannot. These are the
 * first ones, up to `max`, because each of them takes several calls.
 */
export async function findFailing(
  tryCall: TryCall,
  count: number,
  { callOf, max }: { callOf: (start: number, end: number) => Call; max: number },
): Promise<FailingRows> {
  const failed: number[] = []
  const unevaluated: number[] = []
  const search = async (start: number, end: number): Promise<void> => {
    if (start === end || unevaluated.length >= max) return
    const rows = await tryCall(callOf(start, end))
    if (rows !== undefined) {
      for (const [position] of rows) failed.push(start + Number(position))
    } else if (end - start === 1) {
      unevaluated.push(start)
    } else {
      const middle = Math.ceil((start + end) / 2)
      await search(start, middle)
      await search(middle, end)
    }
  }
  await search(0, count)
  return { failed, unevaluated }
}

/** Rows that are evaluated together at first. */
const FIRST_STEP_ROWS = 1024

/** The first row that fails a check, by its id or its line. */
interface FirstFailing {
  readonly key: string
  readonly isEvaluated: boolean
}

/** Rows that are looked at together, in the order of their keys. */
export interface Step {
  /** The key of the row before the first one. */
  readonly after: string
  readonly size: number
  /** Whether the check is evaluated for the rows. */
  readonly evaluates: boolean
}

/**
 * Finds the first row that fails a check, or for which it cannot be evaluated. The call for a step returns the key of its
 * last row, and that of its first row that fails the check.
 */
export async function findFirstFailing(
  tryCall: TryCall,
  { before, callOf }: { before: string; callOf: (step: Step) => Call },
): Promise<FirstFailing | undefined> {
  let after = before
  for (let size = FIRST_STEP_ROWS; ; ) {
    const found = await tryCall(callOf({ after, size, evaluates: true }))
    if (found !== undefined) {
      const [last, failed] = found[0] ?? []
      if (typeof failed === 'string') return { key: failed, isEvaluated: true }
      if (typeof last !== 'string') return undefined
      after = last
      size *= 2
    } else if (size > 1) {
      size = Math.ceil(size / 2)
    } else {
      const only = await tryCall(callOf({ after, size, evaluates: false }))
      const key = only?.[0]?.[0]
      return typeof key === 'string' ? { key, isEvaluated: false } : undefined
    }
  }
}

/** Selects what the call for a step returns. The condition is about the row `r`. */
export function selectStep(
  rows: Sql,
  { key, failed, slots }: { key: string; failed: Sql; slots: { after: Sql; size: Sql } },
): Sql {
  const name = ident(key)
  // With an offset, the check is evaluated for no other rows.
  return sql`
    select max(r.${name}), min(r.${name}) filter (where ${failed})
    from (
      select * from (${rows}) v
      where v.${name} > ${slots.after}
      order by v.${name}
      limit ${slots.size}
      offset 0
    ) r`
}
