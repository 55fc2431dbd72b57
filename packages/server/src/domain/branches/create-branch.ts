import type { BranchMetadata, BranchRule, CreateBranch } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import { newBranchId, newMigrationId } from '../../common/ids.js'
import type { Queryable } from '../../postgres/database.js'
import { EMPTY_SCHEMA } from '../../rows/columns/stored-schema.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import type { Storage } from '../../rows/storage.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import { forks } from '../../telemetry/events.js'
import { findLiveBranch, type LiveBranch } from '../access/find-live-branch.js'
import type { DatabaseAccess, FoundBranch } from '../access/resolve.js'
import { requireAccess, scopeReachesBranch } from '../access/scope.js'
import { getCheckpointAt } from '../checkpoints/find-at.js'
import { checksumOf } from '../schemas/checksum.js'
import { insertMigration, insertSchema } from '../schemas/queries.js'
import { planLife, requireProtectionRights } from './branch-life.js'
import { findRuleAndSource, showRule } from './branch-rules.js'
import { endExpiredBranch } from './delete-branch.js'
import {
  type BranchLife,
  type ForkedCheckpoint,
  findExpiredBranch,
  insertBranch,
  insertForkSql,
  updateBranchExpiries,
} from './queries.js'

interface NewBranch {
  readonly name: string
  /** The fields of the request. The rule for the name supplies missing ones. */
  readonly wishes: CreateBranch
  /** Whether the branch inherits rows if neither the request nor the rule says. */
  readonly dataDefault: boolean
}

/** A branch that was just created and does not expire, and where its rows are. */
export interface OpenedBranch {
  readonly branch: FoundBranch
  readonly rows: BranchRows
}

/** The answer to a request for a branch, and the branch, if it was opened. */
interface CreatedBranch {
  readonly answer: {
    readonly databaseName: string
    readonly branchName: string
    readonly status: 'completed'
  }
  readonly opened: OpenedBranch | undefined
}

/** Inserts the first branch of a database, with an empty schema and an empty first migration. */
export async function insertFirstBranch(
  transaction: Queryable,
  options: { databaseId: string; branchId: string; name: string; metadata: BranchMetadata },
): Promise<void> {
  const { databaseId, branchId, name, metadata } = options
  const migrationId = newMigrationId()
  await insertMigration(transaction, {
    id: migrationId,
    databaseId,
    parentId: null,
    checksum: checksumOf([]),
    operations: [],
  })
  const schemaId = await insertSchema(transaction, { databaseId, document: EMPTY_SCHEMA })
  await insertBranch(transaction, {
    id: branchId,
    databaseId,
    name,
    schemaId,
    lastMigrationId: migrationId,
    metadata,
  })
  await new StoredBranch(transaction, branchId).createGate()
}

/**
 * Forks a branch. The fork gets the current schema and rows of its source, or the schema alone. With `opens`, the fork is
 * opened, unless it expires or inherits from many branches.
 */
export async function createBranch(
  storage: Storage,
  access: DatabaseAccess,
  { opens, ...options }: NewBranch & { opens: boolean },
): Promise<CreatedBranch> {
  const { name } = options
  const fork = await planFork(storage.database, access, options)
  const made = await forkAtOnce(storage, fork, { opens })
  if (made === undefined) {
    await storage.runAlone([fork.source.id], async (transaction) => {
      const branchId = await forkBranch(transaction, fork)
      if (branchId === undefined) {
        throw new AppError('already_exists', `branch [${name}] already exists`)
      }
    })
  }
  forks.add()
  const { databaseName } = access
  return {
    answer: { databaseName, branchName: name, status: 'completed' },
    opened: made?.rows && {
      branch: {
        ...access,
        branchId: made.branchId,
        branchName: name,
        requiredApprovals: fork.life.requiredApprovals,
        expiry: undefined,
      },
      rows: made.rows,
    },
  }
}

/** A fork that is planned completely, but not executed. Nothing is locked yet. */
export interface PlannedFork {
  readonly access: DatabaseAccess
  readonly name: string
  readonly source: LiveBranch
  readonly checkpoint?: ForkedCheckpoint | undefined
  readonly metadata: BranchMetadata
  readonly data: boolean
  readonly life: BranchLife
}

/** Validates a request for a branch, and completes it with the rule for its name. */
export async function planFork(
  database: Queryable,
  access: DatabaseAccess,
  { name, wishes, dataDefault }: NewBranch,
): Promise<PlannedFork> {
  const { scope } = access.principal
  requireAccess(scope, 'write')
  if (!scopeReachesBranch(scope, name)) {
    throw cannotCreate(name)
  }
  requireProtectionRights(access, wishes)
  const { from } = wishes
  const { rule, source } = await findRuleAndSource(database, access, { name, from })
  const forked =
    from === undefined
      ? await findDefaultSource(database, access, { rule, source })
      : requireSource(source, { from, scope })
  const branch = { branchId: forked.id, branchName: forked.name }
  return {
    access,
    name,
    metadata: wishes.metadata ?? {},
    life: planLife(withRule(wishes, rule)),
    data: wishes.data ?? rule?.data ?? dataDefault,
    source: forked,
    checkpoint:
      wishes.at === undefined ? undefined : await getCheckpointAt(database, branch, wishes.at),
  }
}

export function cannotCreate(name: string): AppError {
  return new AppError('key_scope', `this API key cannot create branch [${name}]`)
}

/** Completes a request with a rule. The `ttl` of the rule is ignored if the request has an expiry. */
function withRule(wishes: CreateBranch, rule: BranchRule | undefined): CreateBranch {
  const ttl = wishes.expiresAt === undefined ? (wishes.ttl ?? rule?.ttl) : wishes.ttl
  const isProtected = wishes.protected ?? rule?.protected
  // A request that refuses the protection refuses its approvals, too.
  const ofRule = isProtected === true ? rule?.requiredApprovals : undefined
  const requiredApprovals = wishes.requiredApprovals ?? ofRule
  const checkpoints = wishes.checkpoints ?? rule?.checkpoints
  return {
    ...wishes,
    ...(checkpoints === undefined ? {} : { checkpoints }),
    ...(ttl === undefined ? {} : { ttl }),
    ...(isProtected === undefined ? {} : { protected: isProtected }),
    ...(requiredApprovals === undefined ? {} : { requiredApprovals }),
  }
}

/**
 * Executes a planned fork in a single round trip. Returns undefined if it takes more than one statement, or fails. Returns
 * the rows of the fork if it is to be opened.
 */
async function forkAtOnce(
  storage: Storage,
  { source, ...branch }: PlannedFork,
  options: { opens: boolean },
): Promise<{ branchId: string; rows: BranchRows | undefined } | undefined> {
  if (source.isSliding) return undefined
  const branchId = newBranchId()
  const { ttlSeconds, expiresAt } = branch.life
  const opens = options.opens && ttlSeconds === null && expiresAt === null
  const statement = insertForkSql(source.id, { ...branch, id: branchId })
  const { outcome, rows } = await storage.fork(statement, { sourceId: source.id, branchId, opens })
  return outcome === 'forked' ? { branchId, rows } : undefined
}

/** Executes a planned fork. Requires the exclusive gate of the source. Returns the id of the new branch, or undefined if its name is in use. */
export async function forkBranch(
  transaction: Queryable,
  fork: PlannedFork,
): Promise<string | undefined> {
  const { source, ...branch } = fork
  const insert = async () => {
    const id = newBranchId()
    const statement = insertForkSql(source.id, { ...branch, id })
    const outcome = await new StoredBranch(transaction, source.id).fork(statement)
    if (outcome === 'no source') throw unknownSource(source.name)
    return outcome === 'forked' ? id : undefined
  }
  if (source.isSliding) await updateBranchExpiries(transaction, [source.id])
  const branchId = await insert()
  if (branchId !== undefined) return branchId
  // An expired branch that has not been deleted yet must not keep its name in use.
  const { databaseId } = fork.access
  const expired = await findExpiredBranch(transaction, { databaseId, name: fork.name })
  if (expired === undefined) return undefined
  await endExpiredBranch(transaction, expired)
  return insert()
}

function requireSource(
  source: LiveBranch | undefined,
  { from, scope }: { from: string; scope: DatabaseAccess['principal']['scope'] },
): LiveBranch {
  if (source === undefined || !scopeReachesBranch(scope, source.name)) throw unknownSource(from)
  return source
}

/** Returns the source of a fork whose request does not name one: that of the rule, or the default branch. */
async function findDefaultSource(
  database: Queryable,
  { databaseId, databaseName, principal }: DatabaseAccess,
  { rule, source: usual }: { rule: BranchRule | undefined; source: LiveBranch | undefined },
): Promise<LiveBranch> {
  const source =
    rule?.from === undefined
      ? usual
      : await findLiveBranch(database, { databaseId, name: rule.from })
  if (source !== undefined && scopeReachesBranch(principal.scope, source.name)) return source
  // The caller did not name the source, so its name is shown only if the key may see it.
  const shown = rule && showRule(principal.scope, rule)
  if (shown?.from !== undefined) {
    throw unknownSource(shown.from, `branch rule [${shown.pattern}]: `)
  }
  throw source === undefined && rule?.from === undefined
    ? new AppError('database_not_found', `database [${databaseName}] not found`)
    : new AppError(
        'key_scope',
        'the scope of this API key does not include the branch that new branches are forked from; name another branch in [from]',
      )
}

function unknownSource(name: string, prefix = ''): AppError {
  return new AppError(
    'unknown_source_branch',
    `${prefix}branch [${name}] not found: it cannot be forked`,
  )
}
