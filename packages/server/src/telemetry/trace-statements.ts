import type pg from 'pg'
import type { Span, Tracer } from './tracer.js'

/** The interface of objects that `pg` lets talk to the server. */
interface Submittable {
  submit(connection: unknown): void
  handleReadyForQuery(...args: unknown[]): void
  handleError(error: Error, ...args: unknown[]): void
  readonly text?: string
  readonly statements?: readonly string[]
}

type Query = (...args: unknown[]) => unknown

/** Creates a span for every round trip on a connection, as a child of the current request. */
export function traceStatements(client: pg.ClientBase, tracer: Tracer): void {
  const query = client.query.bind(client) as unknown as Query
  const traced: Query = (...args) => {
    const statements = statementsOf(args[0])
    const summary = summarize(statements)
    const span = tracer.startCall(summary)
    if (span === undefined) return query(...args)
    const end = (error?: unknown) => endSpan(span, { summary, count: statements.length, error })
    return run(query, args, end)
  }
  client.query = traced as unknown as pg.ClientBase['query']
}

function run(query: Query, args: unknown[], end: (error?: unknown) => void): unknown {
  const [first] = args
  const last = args.at(-1)
  if (isSubmittable(first)) {
    watch(first, end)
    return query(...args)
  }
  if (typeof last === 'function') {
    const callback = (error: unknown, ...rest: unknown[]) => {
      end(error)
      last(error, ...rest)
    }
    return query(...args.slice(0, -1), callback)
  }
  const result = query(...args) as Promise<unknown>
  result.then(() => end(), end)
  return result
}

function isSubmittable(value: unknown): value is Submittable {
  return typeof (value as Partial<Submittable> | undefined)?.submit === 'function'
}

function watch(query: Submittable, end: (error?: unknown) => void): void {
  const { handleReadyForQuery, handleError } = query
  query.handleReadyForQuery = (...args) => {
    end()
    handleReadyForQuery.apply(query, args)
  }
  query.handleError = (error, ...args) => {
    end(error)
    handleError.call(query, error, ...args)
  }
}

function statementsOf(query: unknown): readonly string[] {
  if (typeof query === 'string') return [query]
  const { text, statements } = query as Partial<Submittable>
  return statements ?? [text ?? '']
}

/**
 * Returns only the verbs, such as `begin lock insert commit`, because statements may contain user
 * data.
 */
function summarize(statements: readonly string[]): string {
  const verbs = statements.map((text) => /^\s*([a-z]+)/i.exec(text)?.[1]?.toLowerCase() ?? 'query')
  return verbs.filter((verb, position) => verb !== verbs[position - 1]).join(' ')
}

function endSpan(span: Span, options: { summary: string; count: number; error: unknown }): void {
  const { summary, count, error } = options
  const hasFailed = error !== undefined && error !== null
  const { code } = (error ?? {}) as { code?: unknown }
  span.end({
    hasFailed,
    attributes: {
      'db.system.name': 'postgresql',
      'db.query.summary': summary,
      'db.operation.batch.size': count,
      ...(hasFailed ? { 'error.type': typeof code === 'string' ? code : 'error' } : {}),
    },
  })
}
