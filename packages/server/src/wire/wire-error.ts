import { AppError, type ErrorCode } from '@offshoot/contract/errors'
import { POSTGRES_TYPE } from '../dialect/postgres-types.js'
import { codeOf, isSqlState } from '../postgres/failures.js'
import { MessageWriter } from '../postgres/message-writer.js'

/** An error as PostgreSQL reports it. */
export class WireError extends Error {
  constructor(
    /** The SQLSTATE. */
    readonly code: string,
    message: string,
    readonly fields: {
      readonly hint?: string | undefined
      readonly detail?: string | undefined
      readonly position?: number | undefined
      readonly table?: string | undefined
      readonly column?: string | undefined
      readonly constraint?: string | undefined
      /** What was being done when it occurred. */
      readonly context?: string | undefined
      /** Where PostgreSQL would report it. */
      readonly routine?: string | undefined
    } = {},
  ) {
    super(message)
  }
}

export const unsupported = (message: string) => new WireError('0A000', message)

export const invalidBinary = () =>
  new WireError('22P03', 'a binary value does not have the form of its type')

const STATES: Readonly<Partial<Record<ErrorCode, string>>> = {
  invalid_api_key: '28P01',
  workspace_not_found: '28000',
  database_not_found: '3D000',
  branch_not_found: '3D000',
  unknown_source_branch: '3D000',
  ambiguous_workspace: '28000',
  key_scope: '42501',
  forbidden: '42501',
  unique_violation: '23505',
  constraint_violated: '23514',
  not_null_violation: '23502',
  link_violation: '23503',
  check_violation: '23514',
  approvals_required: '42501',
  invalid_record: '22023',
  invalid_request: '22023',
  invalid_sql: '42601',
  table_not_found: '42P01',
  column_not_found: '42703',
  index_not_found: '42704',
  constraint_not_found: '42704',
  already_exists: '42P07',
  invalid_schema: '42P16',
  limit_reached: '54000',
  data_loss: '2BP01',
  protected_branch: '42501',
  query_too_costly: '54000',
  quota_exceeded: '53100',
  rate_limited: '53400',
  overloaded: '53300',
  timeout: '57014',
  retry_limit: '40001',
  conflict: '40001',
  merge_conflict: '23000',
  unrelated_branches: '55000',
  no_source: '55000',
  commit_unknown: '08007',
  unavailable: '57P03',
}

/** Matches a message about a value that a column cannot have. */
const ofValue = ({ source }: RegExp): RegExp =>
  new RegExp(`^table \\[[^\\]]*\\]: column \\[[^\\]]*\\]: .*(?:${source})`, 's')

/** Kinds of invalid statements, by their messages. */
const INVALID: readonly (readonly [RegExp, string])[] = [
  [/^syntax error|at end of input/, '42601'],
  [/cannot change a record a second time$/, '21000'],
  [/^ON CONFLICT ON CONSTRAINT: /, '42704'],
  [/^ON CONFLICT: .* is not the id/, '42P10'],
  [/specified more than once/, '42712'],
  [/^column \[.*\] is named more than once$/, '42701'],
  [/columns available but \d+ columns specified/, '42P10'],
  [/^window functions are not allowed/, '42P20'],
  [/^set-returning functions are not allowed/, '0A000'],
  [/^unused parameters/, '42P18'],
  [/contains a NUL character/, '22021'],
  [/^sequence \[.*\] not found/, '42P01'],
  [/^constraint \[.*\] of table \[.*\] not found/, '42704'],
  [/^column \[.*\] of table \[.*\] not found/, '42703'],
  [/^type \[.*\] cannot be dropped/, '2BP01'],
  [/^table \[.*\] cannot be truncated: /, '0A000'],
  [
    new RegExp(
      `^type \\[(?:(?:pg_catalog|public)\\.)?(?!${POSTGRES_TYPE}[([\\]])[^.\\]]*\\] is not supported`,
    ),
    '42704',
  ],
  [/^table \[[^\]]*\]: column \[[^\]]*\]: expected [^:]*, got null$/, '23502'],
  [/^invalid input value for enum /, '22P02'],
  [/is of type boolean but expression is of type /, '42804'],
  [/the numbers up to \d+ are used up/, '2200H'],
  [ofValue(/column not found/), '42703'],
  [ofValue(/must not be null|cannot be null|is required/), '23502'],
  [ofValue(/is computed/), '428C9'],
  [ofValue(/cannot be changed/), '0A000'],
  [ofValue(/is not a record id/), '22P02'],
  [ofValue(/does not exist|in the years/), '22008'],
  [ofValue(/is not (?:a whole number )?between|out of(?: the)? range|digits/), '22003'],
  [ofValue(/is (?:longer|larger) than|is too large/), '22001'],
  [ofValue(/(?:)/), '22P02'],
  [/table \[[^\]]*\] not found/, '42P01'],
  [/missing FROM-clause entry/, '42P01'],
  [/column .*(?:does not exist|not found)/, '42703'],
  [/is ambiguous/, '42702'],
  [/not supported|is not allowed/, '0A000'],
  [/must not be null|cannot be null|is required/, '23502'],
]

/** What other errors are about, by their messages. */
const KINDS: Readonly<Partial<Record<ErrorCode, readonly (readonly [RegExp, string])[]>>> = {
  constraint_violated: [[/have values that other records have/, '23505']],
  already_exists: [
    [/constraint \[[^\]]*\](?: of table \[[^\]]*\])? already exists$|^type \[|^value \[/, '42710'],
    [/column \[[^\]]*\](?: of table \[[^\]]*\])? already exists$/, '42701'],
  ],
  invalid_schema: [
    [/is linked from|is used by computed column/, '2BP01'],
    [
      /cannot be added as not null without a default|: \d+ records? ha(?:s|ve) no value, such as/,
      '23502',
    ],
    [/: default value: is not a (?:date|time)/, '22007'],
    [
      /: default value: is a (?:date|time) .*that does not exist|: default value: .*in the years/,
      '22008',
    ],
    [/: default value: (?:expected|is not) /, '22P02'],
    [/: invalid SQL: column .* does not exist$/, '42703'],
  ],
}

const RETRY_HINT = 'Every transaction is serializable: repeat it from its beginning.'

const LOSS_HINT = 'SET offshoot.allow_data_loss = on allows it.'

/** Converts what was thrown. Errors that callers must not see become a plain one, and are returned as `hidden`. */
export function toWireError(error: unknown): { shown: WireError; hidden?: unknown } {
  if (error instanceof WireError) return { shown: error }
  if (!(error instanceof AppError)) {
    return { shown: new WireError('XX000', 'internal error'), hidden: error }
  }
  const { message, position } = splitPosition(error.message.replace(/^invalid SQL: /, ''))
  const required = requiredColumn(error, message)
  const code = required === undefined ? stateOf(error, message) : '23502'
  const missing = code === '23502' ? missingPlace(error, message) : undefined
  const {
    table = missing?.table,
    column = required ?? missing?.column,
    constraint = usualName(code, table, column),
  } = (error.details ?? {}) as {
    table?: string
    column?: string
    constraint?: string
  }
  const { hint, detail } = adviceOf(error, code)
  // Inside an expression of a schema, the position is not that in the statement.
  const isInside = error.code === 'invalid_schema'
  const place = { position: isInside ? undefined : position, table, column, constraint }
  return { shown: new WireError(code, message, { ...place, hint, detail }) }
}

function adviceOf({ code, details, message }: AppError, state: string) {
  if (state === '40001') return { hint: RETRY_HINT }
  if (code === 'link_violation') return { detail: linkDetail(details, message) }
  if (state === '23505' || state === '23514') return { detail: brokenDetail(details) }
  if (code === 'data_loss') return { hint: LOSS_HINT }
  if (code !== 'merge_conflict') return {}
  const hint = `The second argument resolves conflicts: 'ours' keeps this branch, 'theirs' takes the other one.`
  const { conflicts } = (details ?? {}) as { conflicts?: readonly unknown[] }
  return { hint, detail: conflicts?.map((conflict) => JSON.stringify(conflict)).join('\n') }
}

/** Names the record that breaks a rule, after what PostgreSQL would say of taken values. */
function brokenDetail(details: AppError['details']): string | undefined {
  const { column, columns, record, values } = (details ?? {}) as {
    column?: string
    columns?: readonly string[]
    record?: string
    values?: readonly string[]
  }
  if (record === undefined) return undefined
  const named = columns ?? (column === undefined ? [] : [column])
  if (values === undefined) return `The record is [${record}].`
  return `Key (${named.join(', ')})=(${values.join(', ')}) already exists. The record that was to get it is [${record}].`
}

/** Says of a broken link what PostgreSQL would say. Clients read the table and the column there. */
function linkDetail(details: AppError['details'], message: string): string | undefined {
  const { table, column, target } = (details ?? {}) as {
    table?: string
    column?: string
    target?: { readonly table: string; readonly record: string }
  }
  if (target === undefined) return undefined
  return / cannot be deleted: /.test(message)
    ? `Key (id)=(${target.record}) is still referenced from table "${table}".`
    : `Key (${column})=(${target.record}) is not present in table "${target.table}".`
}

/** The name that PostgreSQL would give the constraint of a column. */
function usualName(code: string, table: string | undefined, column = 'id'): string | undefined {
  if (table === undefined) return undefined
  if (code === '23503') return `${table}_${column}_fkey`
  if (code !== '23505') return undefined
  return column === 'id' ? `${table}_pkey` : `${table}_${column}_key`
}

function stateOf(error: AppError, message: string): string {
  for (let cause = error.cause; cause instanceof Error; cause = cause.cause) {
    const code = codeOf(cause)
    if (error.code === 'invalid_sql' && code !== undefined && isSqlState(code)) return code
    if (error.code === 'query_too_costly' && code === '57014') return code
  }
  const kinds = error.code === 'invalid_sql' ? INVALID : (KINDS[error.code] ?? [])
  const kind = kinds.find(([pattern]) => pattern.test(message))
  return kind?.[1] ?? STATES[error.code] ?? 'XX000'
}

/** Returns the column of a check that stands for NOT NULL, which is that of a link. */
function requiredColumn({ code }: AppError, message: string): string | undefined {
  if (code !== 'check_violation' && code !== 'invalid_sql') return undefined
  const [, table, constraint, column] =
    /table \[([^\]]*)\]: constraint \[([^\]]*)\]: column \[([^\]]*)\]: the check fails/.exec(
      message,
    ) ?? []
  return constraint === `${table}_${column}_not_null` ? column : undefined
}

/** Returns the column of a table whose records have no value, although it is to be NOT NULL. */
function missingPlace({ code }: AppError, message: string) {
  if (code !== 'invalid_schema') return undefined
  const [, table, column] = /^table \[([^\]]*)\]: column \[([^\]]*)\]: /.exec(message) ?? []
  return { table, column }
}

function splitPosition(text: string): { message: string; position: number | undefined } {
  const found = /^(.*) at position (\d+)$/s.exec(text)
  if (found === null) return { message: text, position: undefined }
  return { message: found[1] ?? text, position: Number(found[2]) }
}

/** Writes an error, or a notice, which has the same form. */
export function errorMessage(
  { code, message, fields }: WireError,
  severity: 'ERROR' | 'FATAL' | 'NOTICE' | 'WARNING',
): Buffer {
  const writer = new MessageWriter(severity === 'ERROR' || severity === 'FATAL' ? 'E' : 'N')
  const parts: readonly (readonly [string, string | number | undefined])[] = [
    ['S', severity],
    ['V', severity],
    ['C', code],
    ['M', message],
    ['D', fields.detail],
    ['H', fields.hint],
    ['P', fields.position],
    ['W', fields.context],
    ['s', fields.table === undefined ? undefined : 'public'],
    ['t', fields.table],
    ['c', fields.column],
    ['n', fields.constraint],
    ['R', fields.routine],
  ]
  for (const [letter, value] of parts) {
    if (value !== undefined) writer.bytes(Buffer.from(letter)).text(String(value))
  }
  return writer.bytes(Buffer.from([0])).toBuffer()
}
