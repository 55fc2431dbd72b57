import type { CallOptions, Transport } from './http.js'

export interface SqlResult<Row> {
  readonly records: readonly Row[]
  readonly columns: readonly { readonly name: string; readonly type: string }[]
  /** The number of rows returned, or of records written. */
  readonly total: number
  readonly warning?: string
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
    options?: CallOptions,
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
    options?: CallOptions,
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
  arrays(statements: readonly SqlStatement[], options?: CallOptions): Promise<readonly SqlArrays[]>
}

export function createSqlRunner(transport: Transport, branchPath: string): SqlRunner {
  const post = <Answer>(path: string, json: object, { signal }: CallOptions) =>
    transport.json<Answer>({ method: 'POST', path: `${branchPath}${path}`, json, signal })
  const postAll = async <Result>(body: object, options: CallOptions) =>
    (await post<{ results: readonly Result[] }>('/sql/batch', body, options)).results
  const run = <Row>(
    statement: string,
    params: readonly unknown[] = [],
    options: CallOptions = {},
  ): Promise<SqlResult<Row>> => post('/sql', { statement, params }, options)
  const template = <Row>(strings: TemplateStringsArray, ...values: readonly unknown[]) =>
    run<Row>(statementOf(strings), values)
  return Object.assign(template, {
    run,
    batch: (statements: readonly SqlStatement[], options: CallOptions = {}) =>
      postAll<SqlResult<Record<string, unknown>>>({ statements }, options),
    arrays: async (statements: readonly SqlStatement[], options: CallOptions = {}) => {
      const responseType = 'array'
      const [first, ...others] = statements
      // Errors of a batch name the position of the statement, which is of no use for a single one.
      return first !== undefined && others.length === 0
        ? [await post<SqlArrays>('/sql', { ...first, responseType }, options)]
        : postAll<SqlArrays>({ statements, responseType }, options)
    },
  })
}

function statementOf(strings: readonly string[]): string {
  return strings.reduce((text, part, index) => `${text}$${index}${part}`)
}
