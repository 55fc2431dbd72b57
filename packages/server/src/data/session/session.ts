import { AppError } from '@offshoot/contract/errors'
import type { Principal } from '../../domain/access/principal.js'
import type { BranchAccess } from '../../domain/access/resolve.js'
import type { Growth } from '../../domain/quotas/quotas.js'
import { tableNotFound } from '../../domain/schemas/operations.js'
import { isFaults, type TableCodec } from '../../rows/columns/table-codec.js'
import type { BranchTable, OpenBranch } from '../../rows/open-branch.js'
import type { MetadataForm } from '../../rows/reading/record-json.js'
import type { TableRead } from '../../rows/reading/table-read.js'
import type { CompiledSchema } from './compiled-schema.js'
import { TakenNumbers } from './taken-numbers.js'

/** A branch with its compiled tables. */
export interface BranchSession {
  readonly branch: OpenBranch
  readonly schema: CompiledSchema
  /** How responses write records. */
  readonly metadata: MetadataForm
  /** Counts the storage that the request adds to the workspace. */
  readonly growth: Growth
  /** What the request takes of sequences. */
  readonly numbers: TakenNumbers
  /** Approvals that changes of the branch need; 0: it can be changed directly. */
  readonly requiredApprovals: number
  /** The number of columns in the storage of the branch: the weight of the session in the cache. */
  readonly columnCount: number
  table(name: string): BranchTable
  findTable(name: string): BranchTable | undefined
}

/**
 * A branch together with the API key of a request. Processes cache sessions and use them without checking them
 * first. The transaction of each request compares the stamps of key and branch, so an outdated session is
 * detected before it has any effect.
 */
export interface Session extends BranchSession {
  readonly principal: Principal
  readonly access: BranchAccess
  /** The id of the request that uses the session; undefined in the cache. */
  readonly requestId?: string | undefined
  /** The id of the checkpoint that the session reads; undefined: the present state. */
  readonly checkpoint?: string | undefined
  /** Authenticates the cursors of queries. */
  readonly cursorSecret: Buffer
}

export function createSession(options: {
  branch: OpenBranch
  schema: CompiledSchema
  metadata: MetadataForm
  growth: Growth
  requiredApprovals: number
}): BranchSession {
  const { branch, schema, metadata, growth, requiredApprovals } = options
  return {
    branch,
    schema,
    metadata,
    growth,
    numbers: new TakenNumbers(branch),
    requiredApprovals,
    columnCount: branch.columnCount,
    findTable: (name) => branch.findTable(name),
    table(name) {
      const table = branch.findTable(name)
      if (table === undefined) throw tableNotFound(name)
      return table
    },
  }
}

/** Returns a session whose requests read and write another state of the branch. */
export function withBranch(session: Session, branch: OpenBranch): Session {
  const { numbers } = session
  return { ...session, ...createSession({ ...session, branch }), numbers }
}

/** What values that columns generate depend on: the time of a request, and who sends it. */
export type Origin = Parameters<TableCodec['encodeRecord']>[1]

/** Returns what generated values of a request depend on. */
export function originOf({ principal }: Pick<Session, 'principal'>): Origin {
  return { now: new Date().toISOString(), userId: principal.userId }
}

/** Compiles statements that read columns of a table. Throws if a column does not exist. */
export function planColumns(table: BranchTable, columns: readonly string[]): TableRead {
  const read = table.read(columns)
  if (!isFaults(read)) return read
  throw new AppError(
    'invalid_request',
    read.map(({ message }) => `table [${table.codec.table.name}]: ${message}`).join('; '),
  )
}
