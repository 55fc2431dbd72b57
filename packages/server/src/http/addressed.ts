import { DATABASE_BRANCH_PATTERN } from '@offshoot/contract/names'
import type { FastifyRequest } from 'fastify'
import { type Place, toPlace } from '../domain/access/principal.js'
import {
  type BranchAccess,
  type DatabaseAccess,
  resolveAddressedDatabase,
  resolveBranch,
} from '../domain/access/resolve.js'
import type { Need } from '../domain/access/scope.js'
import { renewExpiry } from '../domain/branches/renew-expiry.js'
import type { Database } from '../postgres/database.js'

/**
 * Finds the branch or database that the address of a data-plane request names, and checks access.
 */
export function addressed(database: Database) {
  return {
    async branchOf(
      request: FastifyRequest<{ Params: { databaseBranch: string } }>,
      need: Need,
      databaseBranch = request.params.databaseBranch,
    ): Promise<BranchAccess> {
      const branch = await resolveBranch(database, request.principal, {
        address: request.workspaceAddress,
        ...splitDatabaseBranch(databaseBranch),
        need,
      })
      await renewExpiry(database, branch)
      return branch
    },
    databaseOf(request: FastifyRequest, databaseName: string, need: Need): Promise<DatabaseAccess> {
      return resolveAddressedDatabase(database, request.principal, {
        address: request.workspaceAddress,
        databaseName,
        need,
      })
    },
  }
}

const DATABASE_BRANCH = new RegExp(DATABASE_BRANCH_PATTERN)

/** Returns the database and the branch in the path of a request, if they can be names. */
export function namesOf(
  request: FastifyRequest,
): { databaseName: string; branchName: string } | undefined {
  const { databaseBranch } = request.params as { databaseBranch?: string }
  return databaseBranch !== undefined && DATABASE_BRANCH.test(databaseBranch)
    ? splitDatabaseBranch(databaseBranch)
    : undefined
}

/** Returns the workspace, the database and the branch of a request, if its address names the last two. */
export function placeOf(request: FastifyRequest): Place | undefined {
  const names = namesOf(request)
  return names && toPlace(request.workspaceAddress?.workspaceId, names)
}

/** Splits `{database}:{branch}`. The schema of the path has checked that there is one colon. */
export function splitDatabaseBranch(text: string): { databaseName: string; branchName: string } {
  const colon = text.indexOf(':')
  return { databaseName: text.slice(0, colon), branchName: text.slice(colon + 1) }
}
