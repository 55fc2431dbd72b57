/** Codes of errors that the service reports. The reference of errors explains each of them. */
export const SERVICE_ERROR_CODES = [
  'invalid_request',
  'invalid_json',
  'ambiguous_workspace',
  'unknown_source_branch',
  'unknown_branch',
  'invalid_schema',
  'invalid_record',
  'unique_violation',
  'not_null_violation',
  'check_violation',
  'link_violation',
  'constraint_violated',
  'invalid_resolution',
  'transaction_failed',
  'invalid_sql',
  'query_too_costly',
  'invalid_api_key',
  'invalid_metrics_token',
  'forbidden',
  'key_scope',
  'quota_exceeded',
  'invalid_link',
  'route_not_found',
  'workspace_not_found',
  'database_not_found',
  'branch_not_found',
  'entry_not_found',
  'checkpoint_not_found',
  'proposal_not_found',
  'operation_not_found',
  'table_not_found',
  'column_not_found',
  'index_not_found',
  'constraint_not_found',
  'record_not_found',
  'file_not_found',
  'git_branch_not_found',
  'key_not_found',
  'session_not_found',
  'member_not_found',
  'invite_not_found',
  'repository_not_found',
  'method_not_allowed',
  'request_timeout',
  'conflict',
  'default_branch',
  'protected_branch',
  'approvals_required',
  'only_owner',
  'data_loss',
  'not_revertible',
  'state_collected',
  'merge_conflict',
  'outdated_resolution',
  'no_source',
  'unrelated_branches',
  'operation_cancelled',
  'operation_interrupted',
  'retry_limit',
  'idempotency_conflict',
  'link_in_use',
  'payload_too_large',
  'unsupported_media_type',
  'range_not_satisfiable',
  'unknown_host',
  'already_exists',
  'invite_settled',
  'version_conflict',
  'version_not_found',
  'limit_reached',
  'idempotency_mismatch',
  'idempotency_outdated',
  'headers_too_large',
  'rate_limited',
  'internal',
  'starting',
  'draining',
  'overloaded',
  'unavailable',
  'storage_full',
  'commit_unknown',
  'timeout',
] as const

/**
 * The code of an error. The client itself refuses a name that cannot be a part of a path with `invalid_request`
 * and the status 0. Four codes come from the client only: `unreachable` (there was no answer),
 * `unexpected_answer` (the answer did not come from Offshoot), `incomplete_result` (a SQL statement has more
 * rows than the service returned), and `cancelled` (the caller has ended `insertMany`).
 */
export type ErrorCode =
  | (typeof SERVICE_ERROR_CODES)[number]
  | 'unreachable'
  | 'unexpected_answer'
  | 'incomplete_result'
  | 'cancelled'

/** One of several faults: of a record in a bulk insert, or of an operation in a transaction. */
export interface Fault {
  readonly index: number
  readonly message: string
  readonly status?: number
  readonly line?: number
  /** For a record that breaks a rule of its table: the code, the table, and the column or the constraint. */
  readonly code?: 'unique_violation' | 'not_null_violation' | 'check_violation' | 'link_violation'
  readonly table?: string
  readonly column?: string
  readonly columns?: readonly string[]
  readonly constraint?: string
  /** For a link: the record that is linked. */
  readonly target?: { readonly table: string; readonly record: string }
}

/**
 * The error of every failed request.
 *
 * @example
 * ```ts
 * try {
 *   await client.table('users').update('ada', { name: 'Ada' }, { ifVersion: 3 })
 * } catch (error) {
 *   if (!(error instanceof OffshootError) || error.code !== 'version_conflict') throw error
 *   // Someone else has changed the record since it was read.
 * }
 * ```
 */
export class OffshootError extends Error {
  override readonly name = 'OffshootError'
  readonly code: ErrorCode
  /** The HTTP status, or 0 if there was no answer. */
  readonly status: number
  /** The id under which the log of the service has the request. */
  readonly requestId: string | undefined
  readonly errors: readonly Fault[] | undefined
  /** The whole body of the answer, with fields such as `conflicts` and `dataLoss`. */
  readonly body: Readonly<Record<string, unknown>>

  constructor(
    message: string,
    details: {
      code: ErrorCode
      status: number
      requestId?: string | undefined
      errors?: readonly Fault[] | undefined
      body?: Readonly<Record<string, unknown>>
      cause?: unknown
    },
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause })
    this.code = details.code
    this.status = details.status
    this.requestId = details.requestId
    this.errors = details.errors
    this.body = details.body ?? {}
  }
}

/** Creates the error for an answer with a status of 400 or more. */
export async function errorOf(response: Response): Promise<OffshootError> {
  const text = await response.text().catch(() => '')
  const body = parseObject(text)
  const requestId = response.headers.get('x-request-id') ?? undefined
  const { status } = response
  const error = body && errorOfBody(body, { status, requestId })
  if (error !== undefined) return error
  return new OffshootError(`the server answered ${status}, but not as Offshoot does`, {
    code: 'unexpected_answer',
    status,
    requestId,
    body: { text: text.slice(0, 1000) },
  })
}

/** Returns the error that a body of the service describes, or undefined if it is none. */
export function errorOfBody(
  body: Readonly<Record<string, unknown>>,
  { status, requestId }: { status: number; requestId?: string | undefined },
): OffshootError | undefined {
  if (typeof body.message !== 'string' || typeof body.code !== 'string') return undefined
  return new OffshootError(body.message, {
    code: body.code as ErrorCode,
    status,
    requestId,
    errors: Array.isArray(body.errors) ? (body.errors as Fault[]) : undefined,
    body,
  })
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null
      ? (value as Record<string, unknown>)
      : undefined
  } catch {
    return undefined
  }
}
