import type { CallOptions, Transport } from './http.js'

export interface SqlResult<Row> {
  readonly records: readonly Row[]
  readonly columns: readonly { readonly name: string; readonly type: string }[]
  /** The number of rows returned, or of records written. */
  readonly total: number
  readonly warning?: string
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
  /** Runs a statement with the parameters `$1`, `$2` and so on. */
  run<Row = Record<string, unknown>>(
    statement: string,
    params?: readonly unknown[],
    options?: CallOptions,
  ): Promise<SqlResult<Row>>
  /** Runs several statements in one request. */
  batch(
    statements: readonly { readonly statement: string; readonly params?: readonly unknown[] }[],
    options?: CallOptions,
  ): Promise<readonly SqlResult<Record<string, unknown>>[]>
}

export function createSqlRunner(transport: Transport, branchPath: string): SqlRunner {
  const run = <Row>(
    statement: string,
    params: readonly unknown[] = [],
    { signal }: CallOptions = {},
  ): Promise<SqlResult<Row>> =>
    transport.json({
      method: 'POST',
      path: `${branchPath}/sql`,
      json: { statement, params },
      signal,
    })
  const template = <Row>(strings: TemplateStringsArray, ...values: readonly unknown[]) =>
    run<Row>(statementOf(strings), values)
  return Object.assign(template, {
    run,
    batch: async (statements: readonly object[], { signal }: CallOptions = {}) => {
      const { results } = await transport.json<{
        results: readonly SqlResult<Record<string, unknown>>[]
      }>({ method: 'POST', path: `${branchPath}/sql/batch`, json: { statements }, signal })
      return results
    },
  })
}

function statementOf(strings: readonly string[]): string {
  return strings.reduce((text, part, index) => `${text}$${index}${part}`)
}
