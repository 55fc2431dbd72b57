import { mapInTurns } from '../../common/in-turns.js'
import { tooCostly } from '../../dialect/invalid-sql.js'
import { WRITTEN_LENGTH_MAX } from '../../dialect/sql-limits.js'
import { type Reader, serverOf } from '../../postgres/server.js'
import { type Sql, sql } from '../../postgres/sql.js'
import {
  type Call,
  compileSharing,
  type Parameter,
  type Statement,
  slot,
  type TextRows,
  toCall,
} from '../../postgres/statement.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { writtenTooLong } from './select-sql.js'
import { toSqlError } from './sql-errors.js'

/** Begins to count again what a statement collects, if there was another one before in the transaction. */
const COUNT_AGAIN = toCall(sql`select set_config('offshoot.collected', '0', true)`)

/** A column of a query: its name and the oid of its type. */
export interface ResultColumn {
  readonly name: string
  readonly typeId: string
}

/**
 * A query as it is sent, each of whose rows is one text. If it is run again, its columns are known, and PostgreSQL keeps
 * its plan.
 */
export class SentQuery {
  readonly #query: Statement
  readonly #rows: Statement
  /** Undefined until it was run. */
  columns: readonly ResultColumn[] | undefined

  /** `valueCount` is the number of values that each run has. */
  constructor(query: Sql, options: { valueCount: number; textOf(query: Sql): Sql }) {
    const { valueCount, textOf } = options
    // One additional row tells whether there are more. Rows beyond the size limit are returned as null.
    const [bytesMax, limit] = [slot(valueCount), slot(valueCount + 1)]
    this.#query = compileSharing(query)
    this.#rows = compileSharing(sql`
      select case when sum(octet_length(t.row)) over (rows unbounded preceding) <= ${bytesMax}::bigint
        then t.row end
      from (${textOf(query)} limit ${limit}::bigint) t`)
    if (this.#rows.text.length > WRITTEN_LENGTH_MAX) throw writtenTooLong()
  }

  get textLength(): number {
    return this.#query.text.length + this.#rows.text.length
  }

  /** Returns the calls of a run. The last one returns the rows; one before it describes the columns, if need be. */
  calls(values: readonly Parameter[], limits: { bytesMax: number; rowsMax: number }): Call[] {
    const given = [...values, String(limits.bytesMax), String(limits.rowsMax + 1)]
    const isKnown = this.columns !== undefined
    const rows = { statement: this.#rows, values: given, isUnnamed: !isKnown }
    if (isKnown) return [rows]
    return [{ statement: this.#query, values, isUnnamed: true, describes: true }, rows]
  }
}

/** The types of the parameters of a statement, and the columns of its result. */
export interface Description {
  /** By parameter. undefined: the statement does not tell. */
  readonly parameterTypeIds: readonly (string | undefined)[]
  readonly columns: readonly ResultColumn[]
}

/** Receives the rows of a query while it runs. */
export type RowReceiver = Required<Pick<Call, 'receiveRow'>> & Pick<Call, 'forward'>

/** A query whose rows are sent on as they are. If it is run again, PostgreSQL keeps its plan. */
export class PlainQuery {
  readonly #statement: Statement
  #wasRun = false

  constructor(query: Sql) {
    this.#statement = compileSharing(query)
    if (this.#statement.text.length > WRITTEN_LENGTH_MAX) throw writtenTooLong()
  }

  /** Returns a call that describes the query. The types of parameters are put into `typeIds`. */
  describeCall(typeIds: (string | undefined)[]): Call {
    const { slots } = this.#statement
    return {
      statement: this.#statement,
      values: [],
      isUnnamed: true,
      describes: true,
      describeParameters(found) {
        for (const [index, slot] of slots.entries()) {
          if (typeof slot === 'number') typeIds[slot] ??= String(found[index])
        }
      },
    }
  }

  call(values: readonly Parameter[], { receiveRow, forward }: RowReceiver): Call {
    const isUnnamed = !this.#wasRun
    this.#wasRun = true
    return { statement: this.#statement, values, isUnnamed, receiveRow, forward }
  }
}

/** The result of a query. */
export interface Evaluated {
  readonly columns: readonly ResultColumn[]
  /** One text for each row, up to the limit. */
  readonly rows: readonly string[]
  readonly hasMore: boolean
}

export interface RunOptions {
  /** The memory that the calls collect is added to that of others, because a cursor keeps it. */
  readonly countsOn?: boolean
  /**
   * Called before the calls are sent, which can happen more than once: what they have returned before is void. In a transaction,
   * they run again only with all of it.
   */
  readonly begin?: (() => void) | undefined
}

/** Runs calls as the role that reads the database, in one round trip. Returns the rows of each. */
export type RunCalls = (calls: readonly Call[], options?: RunOptions) => Promise<TextRows[]>

/** Returns how calls are run in a transaction that also runs others. */
export function runInside(
  transaction: OpenTransaction,
  reader: Reader,
  { countsOn = false } = {},
): RunCalls {
  return async (calls, options) => {
    const { before, calls: read, after } = serverOf(transaction.client).readAs(reader, calls)
    const first = countsOn || options?.countsOn ? before : [COUNT_AGAIN, ...before]
    try {
      const rows = await transaction.run([...first, ...read, ...after])
      return rows.slice(first.length, first.length + calls.length)
    } catch (error) {
      throw toSqlError(error)
    }
  }
}

/** Runs the queries of statements, within limits that they share. */
export class Evaluator {
  readonly run: RunCalls
  readonly #bytesMax: number
  #bytesLeft: number

  constructor(run: RunCalls, { resultBytesMax }: { resultBytesMax: number }) {
    this.run = run
    this.#bytesMax = resultBytesMax
    this.#bytesLeft = resultBytesMax
  }

  /** Runs a query. */
  async read(
    query: SentQuery,
    {
      parameters,
      rowsMax,
      countsOn = false,
    }: { parameters: readonly Parameter[]; rowsMax: number; countsOn?: boolean },
  ): Promise<Evaluated> {
    const calls = query.calls(parameters, { bytesMax: this.#bytesLeft, rowsMax })
    const answers = await this.run(calls, { countsOn })
    const rows = answers.at(-1) ?? []
    if (query.columns === undefined) {
      query.columns = (answers[0] ?? []).map(([name, typeId]) => ({
        name: name ?? '',
        typeId: typeId ?? '',
      }))
    }
    return {
      columns: query.columns,
      rows: await mapInTurns(rows.slice(0, rowsMax), ([text]) => this.#count(text ?? null)),
      hasMore: rows.length > rowsMax,
    }
  }

  /** Describes queries: the types of the parameters of the first ones, and the columns of the last. */
  async describe(
    { parameters, result }: { parameters: readonly PlainQuery[]; result: PlainQuery | undefined },
    parameterCount: number,
  ): Promise<Description> {
    const parameterTypeIds = new Array<string | undefined>(parameterCount).fill(undefined)
    const queries = [...new Set([...parameters, ...(result === undefined ? [] : [result])])]
    if (queries.length === 0) return { parameterTypeIds, columns: [] }
    const answers = await this.run(queries.map((query) => query.describeCall(parameterTypeIds)))
    const columns = result === undefined ? [] : (answers.at(-1) ?? [])
    return {
      // A query of ours has more values than the statement has parameters.
      parameterTypeIds: parameterTypeIds.slice(0, parameterCount),
      columns: columns.map(([name, typeId]) => ({ name: name ?? '', typeId: typeId ?? '' })),
    }
  }

  /** Runs a query and hands on its rows as they arrive. */
  async stream(
    query: PlainQuery,
    options: { parameters: readonly Parameter[]; receiver: RowReceiver; begin(): void },
  ): Promise<void> {
    await this.run([query.call(options.parameters, options.receiver)], options)
  }

  #count(text: string | null): string {
    if (text === null) {
      throw tooCostly(
        `the result has more than ${this.#bytesMax} bytes; ask for fewer rows or columns`,
      )
    }
    this.#bytesLeft -= Buffer.byteLength(text)
    return text
  }
}
