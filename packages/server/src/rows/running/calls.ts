import type pg from 'pg'
import { serverOf } from '../../postgres/server.js'
import { type Sql, sql } from '../../postgres/sql.js'
import {
  type Call,
  compileStatement,
  type Statement,
  type TextRows,
} from '../../postgres/statement.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { LinkRule } from '../columns/table-rules.js'
import type { Moment } from '../layout/layout.js'
import { momentValues } from './guard.js'

const withoutValues = (statement: Statement): Call => ({ statement, values: [] })

export const BEGIN = withoutValues(
  compileStatement(sql`begin isolation level serializable read write`),
)
/** For a transaction that has the branch alone: each statement sees what was committed before it got the gate. */
export const BEGIN_ALONE = withoutValues(
  compileStatement(sql`begin isolation level read committed read write`),
)
export const BEGIN_READS = withoutValues(
  compileStatement(sql`begin isolation level serializable read only`),
)
export const BEGIN_SNAPSHOT = withoutValues(
  compileStatement(sql`begin isolation level repeatable read read only`),
)
export const ROLL_BACK = withoutValues(compileStatement(sql`rollback`))
export const NO_TIMEOUT = withoutValues(compileStatement(sql`set local statement_timeout = 0`))

/** A COPY of rows, which have the epoch of the branch. */
export interface CopyCall extends Call {
  linesIn(epoch: number): string
  /** Inserts the rows without a COPY, for servers that do not tell why one has failed. */
  withoutCopy(): Call
}

/** A call whose first values are those of the moment. They are null until the transaction knows it. */
export interface MomentCall extends Call {
  readonly takesMoment: true
}

/** A call after which links are looked at: it writes some that must exist, or deletes rows that others may link to. */
export interface LinkingCall extends Call {
  readonly linking: Linking
}

/** What a call has done to links. */
export interface Linking {
  /** The table that it writes to. */
  readonly codec: TableCodec
  /** The values that it writes to columns whose linked records must exist. */
  readonly written?: readonly WrittenLink[]
  readonly deleted?: {
    /** The ids of rows that it may delete. undefined: they are known afterwards. */
    readonly given: readonly string[] | undefined
    /** Returns the ids of deleted rows from the result. undefined: there are too many to name. */
    idsIn(rows: TextRows): readonly string[] | undefined
  }
}

interface WrittenLink {
  readonly link: LinkRule
  /** Values, or a table that has them in the column of the link. */
  readonly values: readonly (string | null)[] | Sql
}

export function isLinkingCall(call: Call): call is LinkingCall {
  return 'linking' in call
}

/** The number of values of a moment. */
export const MOMENT_VALUES = 2

/** Completes calls with the moment of the branch, for a connection. */
export function atMoment(
  client: pg.ClientBase,
  given: readonly Call[],
  moment: Moment,
): readonly Call[] {
  if (!given.some((call) => isMomentCall(call) || isCopyCall(call))) return given
  const calls = serverOf(client).explainsCopies
    ? given
    : given.map((call) => (isCopyCall(call) ? call.withoutCopy() : call))
  return calls.map((call) => {
    if (isCopyCall(call)) return { ...call, input: call.linesIn(moment.epoch) }
    if (!isMomentCall(call)) return call
    return { ...call, values: [...momentValues(moment), ...call.values.slice(MOMENT_VALUES)] }
  })
}

function isCopyCall(call: Call): call is CopyCall {
  return 'linesIn' in call
}

function isMomentCall(call: Call): call is MomentCall {
  return 'takesMoment' in call
}
