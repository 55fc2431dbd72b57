import { type Static, Type } from 'typebox'
import { ColumnProblemSchema } from './column-problems.js'
import { DataLossListSchema } from './data-loss.js'
import { conflictFields } from './merge-conflicts.js'

/** Every machine-readable error code, its HTTP status, and its meaning. */
export const ERROR_CODES = {
  invalid_request: [400, 'A part of the request is invalid; the message names it.'],
  invalid_json: [400, 'The body is not valid JSON, or is not encoded in UTF-8.'],
  ambiguous_workspace: [
    400,
    'The address names no workspace, and not exactly one workspace of the API key has the database.',
  ],
  unknown_source_branch: [400, 'The branch to fork from does not exist.'],
  unknown_branch: [400, 'The branch that an entry of the git mapping names does not exist.'],
  invalid_schema: [400, 'A schema edit cannot be applied; the message says why.'],
  invalid_resolution: [
    400,
    'A resolution does not fit a conflict of the merge; nothing was merged. `errors` has all of them.',
  ],
  invalid_record: [400, 'A record does not fit its table; nothing was stored.'],
  unique_violation: [
    400,
    'The id or a value that must be unique is taken; `table`, and `column` or `constraint`, say which.',
  ],
  not_null_violation: [
    400,
    'A record has no value in a column that must have one; `table` and `column` say which.',
  ],
  check_violation: [
    400,
    'A record fails a check constraint, or has no value of a computed column; `table`, and `columns` and `constraint` or `column`, say which. So does one for which the expression cannot be evaluated, such as a division by zero.',
  ],
  link_violation: [
    400,
    'A record links to one that does not exist, or one that is linked would be deleted; `table`, `column` and `target` say which.',
  ],
  constraint_violated: [
    400,
    'A constraint cannot be added, because records violate it; `records` lists the first of them.',
  ],
  transaction_failed: [400, 'An operation failed; the whole transaction was rolled back.'],
  invalid_sql: [400, 'A SQL statement cannot be executed; the message says why.'],
  query_too_costly: [400, 'The query exceeds a limit for its time, its memory or its answer.'],
  invalid_api_key: [401, 'The API key is missing, malformed, unknown, expired or revoked.'],
  invalid_metrics_token: [401, 'The token for `/metrics` is missing or wrong.'],
  forbidden: [
    403,
    'The user may not do this: only an owner of the workspace, the administrator or another user can; the message says who.',
  ],
  key_scope: [403, 'The scope of the API key does not allow this operation.'],
  quota_exceeded: [403, 'The workspace has used up its storage quota; nothing was stored.'],
  invalid_link: [
    403,
    'The link was altered or has expired, or its file is private or does not exist.',
  ],
  route_not_found: [404, 'No route has this address.'],
  workspace_not_found: [404, 'The workspace does not exist, or the user is not a member of it.'],
  database_not_found: [404, 'The database does not exist in that workspace and region.'],
  branch_not_found: [404, 'The branch does not exist.'],
  entry_not_found: [404, 'The log of the branch has no such entry.'],
  checkpoint_not_found: [404, 'The branch has no such checkpoint, or none so old.'],
  version_not_found: [404, 'The record has no such version, or it is no longer kept.'],
  proposal_not_found: [404, 'The database has no such proposal.'],
  operation_not_found: [404, 'There is no such operation, or it has ended long ago.'],
  table_not_found: [404, 'The table does not exist on that branch.'],
  column_not_found: [404, 'The column does not exist in that table.'],
  index_not_found: [404, 'The column has no index.'],
  constraint_not_found: [404, 'The table has no constraint of that name.'],
  record_not_found: [404, 'The record does not exist.'],
  file_not_found: [404, 'The record has no such file.'],
  git_branch_not_found: [404, 'The git branch is not in the mapping.'],
  key_not_found: [404, 'The user has no API key with that name.'],
  session_not_found: [404, 'The session of the console does not exist, or has ended.'],
  member_not_found: [404, 'The user is not a member of the workspace.'],
  invite_not_found: [404, 'The invite does not exist or can no longer be used.'],
  repository_not_found: [404, 'No repository is connected to the database.'],
  method_not_allowed: [405, 'The address does not support this method.'],
  request_timeout: [408, 'The request did not arrive within the time limit.'],
  conflict: [409, 'The request conflicts with the current state; the message says how.'],
  default_branch: [409, 'The default branch of a database cannot be deleted.'],
  protected_branch: [409, 'The branch is protected against deletion and direct schema edits.'],
  approvals_required: [
    409,
    'The branch requires approvals (`requiredApprovals`): it changes by approved proposals alone.',
  ],
  only_owner: [409, 'A workspace must keep at least one owner.'],
  data_loss: [
    409,
    'The request would lose values, which are listed. Set `allowDataLoss` to allow it.',
  ],
  not_revertible: [
    409,
    'The entry of the log has kept no states, or something that came later needs what it added.',
  ],
  state_collected: [
    409,
    'A checkpoint that the revert needs was deleted, by a user or because it was too old.',
  ],
  merge_conflict: [
    409,
    'Both branches changed the same data in different ways; the conflicts are listed.',
  ],
  outdated_resolution: [
    409,
    'What a resolution was made for has changed since; nothing was merged. `errors` has all of these resolutions, and `conflicts` lists what is open now.',
  ],
  no_source: [409, 'The branch was not forked from another branch, or that branch was deleted.'],
  unrelated_branches: [409, 'The two branches have no common ancestor.'],
  operation_cancelled: [409, 'The operation was cancelled; it has changed nothing.'],
  operation_interrupted: [
    409,
    'The service was stopped while the operation was running; it has changed nothing. Send the request again.',
  ],
  retry_limit: [409, 'Concurrent requests kept changing the same data; nothing was applied.'],
  idempotency_conflict: [409, 'A request with the same Idempotency-Key is still running.'],
  idempotency_outdated: [
    409,
    'A request with the same Idempotency-Key was executed before. What it created was deleted since, or its answer is no longer kept.',
  ],
  link_in_use: [409, 'The upload link accepts a single upload, and one is in progress.'],
  payload_too_large: [413, 'The request is larger than the limit.'],
  unsupported_media_type: [415, 'The content type is not supported here.'],
  range_not_satisfiable: [416, 'The file has no bytes in the requested range.'],
  unknown_host: [
    421,
    'The host of the address is not one of this service, which listens on loopback.',
  ],
  already_exists: [422, 'The name is already in use.'],
  invite_settled: [422, 'The invite was accepted and can no longer be changed.'],
  version_conflict: [422, 'The record does not have the expected version.'],
  limit_reached: [422, 'A limit of the service has been reached; the message names it.'],
  idempotency_mismatch: [422, 'The Idempotency-Key was used for a different request.'],
  headers_too_large: [431, 'The request headers are larger than the limit.'],
  rate_limited: [429, 'The API key, address or link exceeds a rate limit; nothing was executed.'],
  internal: [500, 'The server failed unexpectedly. Its log has the cause, under the request id.'],
  starting: [503, 'The server is starting.'],
  draining: [503, 'The server is shutting down.'],
  overloaded: [503, 'The service is overloaded; nothing was executed. Try again later.'],
  unavailable: [503, 'PostgreSQL cannot be reached or is overloaded.'],
  storage_full: [503, 'A disk of the server is full; nothing was applied.'],
  commit_unknown: [
    503,
    'PostgreSQL did not confirm the commit. Check whether the changes were applied before you send them again.',
  ],
  timeout: [503, 'The request took longer than its limit; nothing was applied.'],
} as const satisfies Record<string, readonly [number, string]>

export type ErrorCode = keyof typeof ERROR_CODES

/** The codes of errors about a rule of a table that a record breaks. */
const VIOLATION_CODES = [
  'unique_violation',
  'not_null_violation',
  'check_violation',
  'link_violation',
] as const
export type ViolationCode = (typeof VIOLATION_CODES)[number]
export const ViolationCodeSchema = Type.Enum([...VIOLATION_CODES])

/** One entry of the `errors` list of an error body. */
export interface FaultEntry {
  readonly index: number
  readonly message: string
  readonly status?: number
  /** For a streamed bulk insert: the line number, starting at 1. */
  readonly line?: number
  /** For a record that breaks a rule of its table: the code, and the rule. */
  readonly code?: ViolationCode
  readonly table?: string
  /** The column, if the rule is one of a column. */
  readonly column?: string
  /** The columns of a constraint. */
  readonly columns?: readonly string[]
  readonly constraint?: string
  /** For a link: the record that is linked. */
  readonly target?: { readonly table: string; readonly record: string }
}

/**
 * An error that is reported to the caller. `message` is public; `cause` is only logged. Every other
 * thrown value becomes a 500 response with the code `internal`.
 */
export class AppError extends Error {
  readonly code: ErrorCode
  readonly status: number
  readonly errors: readonly FaultEntry[] | undefined
  /** Additional fields of the error body. */
  readonly details: Readonly<Record<string, unknown>> | undefined

  constructor(
    code: ErrorCode,
    message: string,
    options: {
      cause?: unknown
      errors?: readonly FaultEntry[]
      details?: Readonly<Record<string, unknown>>
    } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.name = 'AppError'
    this.code = code
    this.status = ERROR_CODES[code][0]
    this.errors = options.errors
    this.details = options.details
  }
}

/** The rule that a record breaks. */
export const brokenRule = {
  table: Type.Optional(
    Type.String({ description: 'For a violated rule or an invalid value: the table.' }),
  ),
  column: Type.Optional(
    Type.String({
      description: 'For a violated rule of one column or an invalid value: the column.',
    }),
  ),
  columns: Type.Optional(
    Type.Array(Type.String(), { description: 'For a violated constraint: its columns.' }),
  ),
  constraint: Type.Optional(
    Type.String({
      description: 'For a violated constraint: its name. Omitted for a rule of a column.',
    }),
  ),
  target: Type.Optional(
    Type.Object(
      { table: Type.String(), record: Type.String() },
      { description: 'For `link_violation`: the record that is linked.' },
    ),
  ),
}

export const ErrorBodySchema = Type.Object(
  {
    id: Type.String({ description: 'The request id. The header `x-request-id` has it too.' }),
    message: Type.String(),
    code: Type.Optional(
      Type.String({
        description: 'The machine-readable error code. Codes are stable.',
        examples: ['conflict'],
      }),
    ),
    errors: Type.Optional(
      Type.Array(
        Type.Object({
          index: Type.Integer(),
          message: Type.String(),
          status: Type.Optional(Type.Integer()),
          line: Type.Optional(Type.Integer()),
          code: Type.Optional(ViolationCodeSchema),
          ...brokenRule,
        }),
      ),
    ),
    ...brokenRule,
    record: Type.Optional(
      Type.String({
        description:
          'For a violated rule or an invalid value: the id of the record, if it is known.',
      }),
    ),
    values: Type.Optional(
      Type.Array(Type.String(), {
        description:
          'For `unique_violation`, if a set or SQL causes it: the values that are taken, by column. Long ones are cut.',
      }),
    ),
    records: Type.Optional(
      Type.Array(Type.String(), {
        description:
          'For `constraint_violated`: the ids of the first records that violate it. For `link_violation`: those ' +
          'of the first records with the link.',
      }),
    ),
    status: Type.Optional(Type.Integer()),
    conflicts: Type.Optional(conflictFields.conflicts),
    conflictCount: Type.Optional(conflictFields.conflictCount),
    conflictTables: Type.Optional(conflictFields.conflictTables),
    cursor: conflictFields.cursor,
    dataLoss: Type.Optional(DataLossListSchema),
    problems: Type.Optional(
      Type.Array(ColumnProblemSchema, {
        description: 'For a change of a column, or a constraint: the records that do not allow it.',
      }),
    ),
  },
  {
    $id: 'Error',
    title: 'Error',
    examples: [{ id: 'req_8f14e45f', message: 'branch [dev] not found', code: 'branch_not_found' }],
  },
)
export type ErrorBody = Static<typeof ErrorBodySchema>
