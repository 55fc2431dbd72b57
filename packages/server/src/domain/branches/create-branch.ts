import type { BranchMetadata, BranchRule, CreateBranch } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import { newBranchId, newMigrationId } from '../../common/ids.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { closeEpoch, enterGate } from '../../rows/branches.js'
import { EMPTY_SCHEMA } from '../../rows/columns.js'
import { forks } from '../../telemetry/events.js'
import { type BranchGate, findGate } from '../access/find-gate.js'
import type { DatabaseAccess } from '../access/resolve.js'
import { requireAccess, scopeReachesBranch } from '../access/scope.js'
import { checksumOf } from '../schemas/checksum.js'
import { insertMigration, insertSchema } from '../schemas/queries.js'
import { planLife } from './branch-life.js'
import { findBranchRule, showRule } from './branch-rules.js'
import { deleteBranchUnchecked } from './delete-branch.js'
import {
  type BranchLife,
  findExpiredBranch,
  insertBranch,
  updateBranchExpiries,
} from './queries.js'

export interface NewBranch {
  readonly name: string
  /** What is asked for; the rule for the name supplies what is left out. */
  readonly wishes: CreateBranch
  /** Whether the branch inherits rows when neither says. */
  readonly dataDefault: boolean
}

/** The branch a database starts with: an empty schema, from a first migration that does nothing. */
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
    startedFrom: null,
    inherits: null,
  })
}

/** Forks a branch: schema and rows as they are now, or the schema alone. */
export async function createBranch(
  database: Database,
  access: DatabaseAccess,
  options: NewBranch,
): Promise<{ databaseName: string; branchName: string; status: 'completed' }> {
  const { name } = options
  const fork = await planFork(database, access, options)
  await runTransaction(
    database,
    async (transaction) => {
      const branchId = await forkBranch(transaction, fork)
      if (branchId === undefined) {
        throw new AppError('already_exists', `branch [${name}] already exists`)
      }
    },
    FORK_ISOLATION,
  )
  forks.add()
  return { databaseName: access.databaseName, branchName: name, status: 'completed' }
}

/** A fork about to be made: everything is decided, nothing is locked. */
export interface PlannedFork {
  readonly databaseId: string
  readonly name: string
  readonly source: BranchGate
  readonly metadata: BranchMetadata
  readonly data: boolean
  readonly life: BranchLife
}

/** The gate orders forks against writers; each statement must see what the gate let through. */
export const FORK_ISOLATION = { isolation: 'read committed' } as const

/** Checks what is asked for and completes it by the rule for the name. */
export async function planFork(
  database: Queryable,
  access: DatabaseAccess,
  { name, wishes, dataDefault }: NewBranch,
): Promise<PlannedFork> {
  const { databaseId } = access
  const { scope } = access.principal
  requireAccess(scope, 'write')
  if (!scopeReachesBranch(scope, name)) {
    throw cannotCreate(name)
  }
  const rule = await findBranchRule(database, { databaseId, name })
  return {
    databaseId,
    name,
    metadata: wishes.metadata ?? {},
    life: planLife(withRule(wishes, rule)),
    data: wishes.data ?? rule?.data ?? dataDefault,
    source: await findSource(database, access, { from: wishes.from, rule }),
  }
}

export function cannotCreate(name: string): AppError {
  return new AppError('key_scope', `this API key cannot create branch [${name}]`)
}

/** A request that says when the branch ends has said all about it. */
function withRule(wishes: CreateBranch, rule: BranchRule | undefined): CreateBranch {
  const ttl = wishes.expiresAt === undefined ? (wishes.ttl ?? rule?.ttl) : wishes.ttl
  const isProtected = wishes.protected ?? rule?.protected
  return {
    ...wishes,
    ...(ttl === undefined ? {} : { ttl }),
    ...(isProtected === undefined ? {} : { protected: isProtected }),
  }
}

/** Makes the fork, and says its id; undefined: the name is taken. */
export async function forkBranch(
  transaction: Queryable,
  fork: PlannedFork,
): Promise<string | undefined> {
  const { databaseId, name, source, metadata, data, life } = fork
  await enterGate(transaction, { gate: source.gate, alone: true })
  const forked = await closeEpoch(transaction, source.id)
  if (forked === undefined) throw unknownSource(source.name)
  if (source.isSliding) await updateBranchExpiries(transaction, [source.id])
  const branch = {
    id: newBranchId(),
    databaseId,
    name,
    schemaId: forked.schemaId,
    lastMigrationId: forked.lastMigrationId,
    metadata,
    startedFrom: {
      branchName: forked.name,
      dbBranchID: forked.id,
      migrationID: forked.lastMigrationId,
    },
    inherits: data ? forked : null,
    life,
  }
  if (await insertBranch(transaction, branch)) return branch.id
  // An expired branch is gone for everyone; it must not hold on to its name until it is collected.
  const expired = await findExpiredBranch(transaction, { databaseId, name })
  if (expired !== undefined) await deleteBranchUnchecked(transaction, expired)
  return (await insertBranch(transaction, branch)) ? branch.id : undefined
}

/** The branch to fork: the one that is asked for, that of the rule, or the default one. */
async function findSource(
  database: Queryable,
  access: DatabaseAccess,
  options: { from: string | undefined; rule: BranchRule | undefined },
): Promise<BranchGate> {
  const { databaseId, databaseName, defaultBranchId, principal } = access
  const from = options.from ?? options.rule?.from
  const source = await findGate(database, {
    databaseId,
    ...(from === undefined ? { id: defaultBranchId } : { name: from }),
  })
  if (source !== undefined && scopeReachesBranch(principal.scope, source.name)) return source
  if (options.from !== undefined) throw unknownSource(options.from)
  // Neither the source of a rule nor the default branch was named by the caller.
  const shown = options.rule && showRule(principal.scope, options.rule)
  if (shown?.from !== undefined) {
    throw unknownSource(shown.from, `branch rule [${shown.pattern}]: `)
  }
  throw source === undefined && options.rule?.from === undefined
    ? new AppError('database_not_found', `database [${databaseName}] not found`)
    : new AppError(
        'key_scope',
        'this API key does not reach the branch that new ones are forked from; name another one in [from]',
      )
}

function unknownSource(name: string, prefix = ''): AppError {
  return new AppError(
    'unknown_source_branch',
    `${prefix}branch [${name}] not found: it cannot be forked`,
  )
}
