import type { BranchMetadata } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { closeEpoch } from '../../rows/fork.js'
import { enterGate } from '../../rows/gate.js'
import { EMPTY_SCHEMA } from '../../rows/stored-schema.js'
import type { DatabaseAccess } from '../access/resolve.js'
import { requireAccess, scopeReachesBranch } from '../access/scope.js'
import { newBranchId, newMigrationId } from '../ids.js'
import { checksumOf } from '../schemas/checksum.js'
import { findGate, insertBranch, insertMigration, insertSchema } from './queries.js'

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
  options: { name: string; from: string | undefined; metadata: BranchMetadata; data: boolean },
): Promise<{ databaseName: string; branchName: string; status: 'completed' }> {
  const { name, from, metadata, data } = options
  const { scope } = access.principal
  requireAccess(scope, 'write')
  if (!scopeReachesBranch(scope, name)) {
    throw new AppError('key_scope', `this API key cannot create branch [${name}]`)
  }
  const source = await findSource(database, access, from)
  await runTransaction(
    database,
    async (transaction) => {
      await enterGate(transaction, { gate: source.gate, alone: true })
      const forked = await closeEpoch(transaction, source.id)
      if (forked === undefined) throw unknownSource(source.name)
      const inserted = await insertBranch(transaction, {
        id: newBranchId(),
        databaseId: access.databaseId,
        name,
        schemaId: forked.schemaId,
        lastMigrationId: forked.lastMigrationId,
        metadata,
        startedFrom: {
          branchName: forked.name,
          dbBranchID: forked.id,
          migrationID: forked.lastMigrationId,
        },
        inherits: data ? { parentId: forked.id, forkEpoch: forked.epoch } : null,
      })
      if (!inserted) throw new AppError('already_exists', `branch [${name}] already exists`)
    },
    // The gate orders this against writers; each statement must see what the gate let through.
    { isolation: 'read committed' },
  )
  return { databaseName: access.databaseName, branchName: name, status: 'completed' }
}

/** The branch to fork: the named one, or the default one. */
async function findSource(
  database: Database,
  access: DatabaseAccess,
  from: string | undefined,
): Promise<{ id: string; name: string; gate: number }> {
  const { databaseId, databaseName, defaultBranchId, principal } = access
  const source = await findGate(database, {
    databaseId,
    ...(from === undefined ? { id: defaultBranchId } : { name: from }),
  })
  if (source !== undefined && scopeReachesBranch(principal.scope, source.name)) return source
  if (from !== undefined) throw unknownSource(from)
  throw source === undefined
    ? new AppError('database_not_found', `database [${databaseName}] not found`)
    : new AppError(
        'key_scope',
        `this API key cannot fork the default branch [${source.name}]; name another one in [from]`,
      )
}

function unknownSource(name: string): AppError {
  return new AppError('unknown_source_branch', `branch [${name}] not found: it cannot be forked`)
}
