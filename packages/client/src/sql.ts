import { OffshootError } from './errors.js'
import { parseExactly } from './exact-json.js'
import type { CallOptions, Transport } from './http.js'

/**
 * The whole result of a statement. A number that JavaScript would round, such as a bigint beyond 2^53, is a text with
 * all of its digits.
 */
export interface SqlResult<Row> {
  readonly records: readonly Row[]
  readonly columns: readonly { readonly name: string; readonly type: string }[]
  /** The number of rows returned, or of records written. */
  readonly total: number
  /** Says that there are more rows than `rowsMax`. */
  readonly warning?: string
  /** In what the statement differs from the same one in PostgreSQL. */
  readonly notices?: readonly string[]
}

/** A result with its rows as arrays, so that columns with the same name stay apart. */
export interface SqlArrays {
  readonly rows: readonly (readonly unknown[])[]
  readonly columns: SqlResult<unknown>['columns']
  readonly total: number
  readonly warning?: string
}

/** A statement with the values of its parameters `$1`, `$2` and so on. */
export interface SqlStatement {
  readonly statement: string
  readonly params?: readonly unknown[]
}

export interface SqlOptions extends CallOptions {
  /**
   * Returns at most this many rows of each statement, and a `warning` if there are more. Without it, a result is whole:
   * one that is too large is an error.
   */
  readonly rowsMax?: number
  /** Whether statements may remove tables and columns that hold values. */
  readonly allowDataLoss?: boolean
}

/**
 * Runs SQL. As a template, every `${value}` becomes a parameter, never a part of the text.
 *
 * @example
 * ```ts
 * const { records } = await client.sql<{ name: string }>`select name from users where age > ${18}`
 * ```
 */
export interface SqlRunner {
  <Row = Record<string, unknown>>(
    strings: TemplateStringsArray,
    ...values: readonly unknown[]
  ): Promise<SqlResult<Row>>
  /**
   * Runs a statement with the parameters `$1`, `$2` and so on.
   *
   * @example
   * ```ts
   * const { records } = await client.sql.run<{ name: string }>(
   *   'select name from users where age > $1',
   *   [18],
   * )
   * ```
   */
  run<Row = Record<string, unknown>>(
    statement: string,
    params?: readonly unknown[],
    options?: SqlOptions,
  ): Promise<SqlResult<Row>>
  /**
   * Runs statements in order, as one transaction: all of them or none.
   *
   * @example
   * ```ts
   * const [, counted] = await client.sql.batch([
   *   { statement: 'update users set visits = 0 where id = $1', params: ['ada'] },
   *   { statement: 'select count(*) as n from users where visits = 0' },
   * ])
   * console.log(counted?.records)
   * ```
   */
  batch(
    statements: readonly SqlStatement[],
    options?: SqlOptions,
  ): Promise<readonly SqlResult<Record<string, unknown>>[]>
  /**
   * Like `batch`, with rows as arrays.
   *
   * @example
   * ```ts
   * const [result] = await client.sql.arrays([
   *   { statement: 'select u.id, t.id from users u left join teams t on t.id = u.team' },
   * ])
   * console.log(result?.rows)
   * ```
   */
  arrays(statements: readonly SqlStatement[], options?: SqlOptions): Promise<readonly SqlArrays[]>
}

export function createSqlRunner(transport: Transport, branchPath: string): SqlRunner {
  const post = <Answer>(path: string, json: object, signal: AbortSignal | undefined) =>
    transport.json<Answer>(
      { method: 'POST', path: `${branchPath}${path}`, json, isOnce: true, signal },
      parseExactly,
    )
  const runOne = async <Result extends Warned>(
    { statement, params = [] }: SqlStatement,
    { signal, ...options }: SqlOptions & { responseType?: 'array' },
  ): Promise<Result> => {
    const json = { statement, params: params.map(encode), ...options }
    return requireWhole(await post<Result>('/sql', json, signal), options)
  }
  const runAll = async <Result extends Warned>(
    statements: readonly SqlStatement[],
    { signal, ...options }: SqlOptions & { responseType?: 'array' },
  ): Promise<readonly Result[]> => {
    const encoded = statements.map(({ statement, params = [] }) => ({
      statement,
      params: params.map(encode),
    }))
    const json = { statements: encoded, ...options }
    const { results } = await post<{ results: readonly Result[] }>('/sql/batch', json, signal)
    return results.map((result) => requireWhole(result, options))
  }
  const run = <Row>(statement: string, params: readonly unknown[] = [], options: SqlOptions = {}) =>
    runOne<SqlResult<Row>>({ statement, params }, options)
  const template = <Row>(strings: TemplateStringsArray, ...values: readonly unknown[]) =>
    run<Row>(statementOf(strings), values)
  return Object.assign(template, {
    run,
    batch: (statements: readonly SqlStatement[], options: SqlOptions = {}) =>
      runAll<SqlResult<Record<string, unknown>>>(statements, options),
    arrays: async (statements: readonly SqlStatement[], options: SqlOptions = {}) => {
      const asked = { ...options, responseType: 'array' } as const
      const [first, ...others] = statements
      // Errors of a batch name the position of the statement, which is of no use for a single one.
      return first !== undefined && others.length === 0
        ? [await runOne<SqlArrays>(first, asked)]
        : runAll<SqlArrays>(statements, asked)
    },
  })
}

interface Warned {
  readonly warning?: string
}

/** Refuses a part of a result that was to be whole: an older service returns the first rows, with a warning. */
function requireWhole<Result extends Warned>(result: Result, { rowsMax }: SqlOptions): Result {
  if (result.warning === undefined || rowsMax !== undefined) return result
  throw new OffshootError(result.warning, { code: 'incomplete_result', status: 200 })
}

/** Returns the value of a parameter in a form that JSON can express. Dates become texts by themselves. */
function encode(value: unknown): unknown {
  if (typeof value === 'bigint') return String(value)
  if (Array.isArray(value)) return value.map(encode)
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) {
    throw new TypeError('SQL cannot write binary values: store them as a file of a record')
  }
  return value ?? null
}

function statementOf(strings: readonly string[]): string {
  return strings.reduce((text, part, index) => `${text}$${index}${part}`)
}
