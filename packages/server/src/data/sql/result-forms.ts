import type { SqlRequest } from '@offshoot/contract/sql'
import { tooCostly } from '../../dialect/invalid-sql.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { compileSharing, type Parameter } from '../../postgres/statement.js'
import { describe, requireResultTypes } from './describe-sql.js'
import type { Evaluated } from './evaluate.js'
import type { Run } from './evaluators.js'
import { beginAgain, type RowSink, receiverOf, type SchemaChanged } from './row-sink.js'
import type { SqlContext } from './sql-context.js'

interface Finished {
  readonly found: Evaluated
  /** The number of records that the statement has written, or that it returns. */
  readonly total: number
  /** In what it differs from PostgreSQL. */
  readonly notices?: readonly string[]
}

/** How the rows of a statement are read and returned. */
export interface ResultForm {
  /** Called before the statements run, which they can do more than once. */
  begin?(options: Parameters<RowSink['begin']>[0]): void
  read(run: Run, query: Sql, values: readonly Parameter[]): Promise<Evaluated>
  /** Called with the ids of records that a statement has written. */
  onWritten?: ((ids: readonly string[]) => void) | undefined
  /** Returns the result of a statement. */
  finish(run: Run, result: Finished): Promise<string>
  /** Returns the result of a text that has changed the schema. */
  change(result: SchemaChanged): string
}

export const NOTHING: Evaluated = { columns: [], rows: [], hasMore: false }

/** Converts rows to JSON objects. Of several columns with the same name, JSON parsers keep the last. */
const recordText = (query: Sql): Sql =>
  sql`select row_to_json(q.*)::text as row from (${query}) as q`

/** Converts rows to JSON arrays of values. */
const rowText = (query: Sql): Sql => sql`
  select (
    select coalesce(json_agg(v.value), '[]'::json) from json_each(row_to_json(q.*)) v
  )::text as row
  from (${query}) as q`

/** Xata Lite returns at most this many rows, with a warning if there are more. Its clients expect that. */
const XATA_ROWS_MAX = 1000

/** Returns how many rows of a result are enough, or undefined if it must be whole. */
function rowsMaxOf({ session, limits }: SqlContext, asked: number | undefined): number | undefined {
  const enough = asked ?? (session.metadata.key === 'xata' ? XATA_ROWS_MAX : undefined)
  return enough && Math.min(enough, limits.sqlRowsMax)
}

/** Reads rows as JSON texts. */
export function jsonForm({
  responseType = 'json',
  rowsMax: asked,
}: {
  responseType: SqlRequest['responseType'] | undefined
  rowsMax: number | undefined
}): ResultForm {
  const textOf = responseType === 'json' ? recordText : rowText
  return {
    read({ context, evaluator, statement }, query, values) {
      return evaluator.read(statement.planned.sent(query, { valueCount: values.length, textOf }), {
        parameters: values,
        rowsMax: rowsMaxOf(context, asked) ?? context.limits.sqlRowsMax,
      })
    },
    async finish({ context }, { found, total, notices = [] }) {
      const rowsMax = rowsMaxOf(context, asked)
      const { columns, rows, hasMore } = found
      if (hasMore && rowsMax === undefined) {
        const { sqlRowsMax } = context.limits
        throw tooCostly(
          `the result has more than ${sqlRowsMax} rows; use LIMIT, or set [rowsMax] to get the first rows`,
        )
      }
      const names = await requireResultTypes(context, columns)
      const described = columns.map(
        ({ name, typeId }) =>
          `{"name":${JSON.stringify(name)},"type":${JSON.stringify(names.get(typeId) ?? '')}}`,
      )
      const key = responseType === 'json' ? 'records' : 'rows'
      const warning = hasMore
        ? `,"warning":"only the first ${rowsMax} rows are returned; use LIMIT and OFFSET for more"`
        : ''
      return `{"${key}":[${rows.join(',')}],"columns":[${described.join(',')}],"total":${total}${warning}${noticesJson(notices)}}`
    },
    change({ notices }) {
      const key = responseType === 'json' ? 'records' : 'rows'
      return `{"${key}":[],"columns":[],"total":0${noticesJson(notices)}}`
    },
  }
}

const noticesJson = (notices: readonly string[]): string =>
  notices.length === 0 ? '' : `,"notices":${JSON.stringify(notices)}`

/** Hands on rows as PostgreSQL sends them. */
export function rowsForm(sink: RowSink): ResultForm {
  return {
    begin: (options) => sink.begin(options),
    onWritten: sink.onWritten,
    async read(run, query, parameters) {
      const description = await describe(run)
      sink.describe(description)
      await run.evaluator.stream(run.statement.planned.plain(query), {
        parameters,
        receiver: receiverOf(sink),
        begin: beginAgain(sink, description),
      })
      return NOTHING
    },
    async finish({ statement: { plan } }, { total, notices = [] }) {
      if (plan.kind === 'with') throw new Error('the last part of a statement has its result')
      sink.end({ kind: plan.kind === 'setval' ? 'select' : plan.kind, written: total, notices })
      return ''
    },
    change(result) {
      sink.end({ kind: 'schema', ...result })
      return ''
    },
  }
}

/** Makes a query that of a cursor. `words` are what precedes the query. */
export function cursorForm(words: Sql, sink: Pick<RowSink, 'describe'>): ResultForm {
  return {
    async read(run, query, values) {
      sink.describe(await describe(run))
      const statement = compileSharing(sql`${words} ${query}`)
      await run.evaluator.run([{ statement, values, isUnnamed: true }])
      return NOTHING
    },
    finish: async () => '',
    change: () => '',
  }
}
