import { AppError } from '@offshoot/contract/errors'
import type { KeyScope } from '@offshoot/contract/users'

/** The access that an operation requires of the scope of an API key. */
export type Need = 'read' | 'write'

export function scopeReachesWorkspace(scope: KeyScope, workspaceId: string): boolean {
  return scope.workspaces?.includes(workspaceId) ?? true
}

export function scopeReachesDatabase(scope: KeyScope, databaseName: string): boolean {
  return scope.databases?.includes(databaseName) ?? true
}

export function scopeReachesBranch(scope: KeyScope, branchName: string): boolean {
  return scope.branches?.some((pattern) => matchesPattern(branchName, pattern)) ?? true
}

export function requireAccess(scope: KeyScope, need: Need): void {
  if (need === 'write' && scope.access === 'read') {
    throw new AppError('key_scope', 'this API key can only read')
  }
}

/** Returns whether the scope restricts the key to less than its user can do. */
export function isLimited(scope: KeyScope): boolean {
  const isPart = scope.access === 'read' || scope.workspaces || scope.databases || scope.branches
  return Boolean(isPart || scope.requestsPerSecond || scope.requestsAtOnce)
}

/**
 * Refuses restricted keys. Operations on the user and its keys call it, because a restricted key could
 * otherwise create an unrestricted one.
 */
export function requireUnlimited(scope: KeyScope): void {
  if (isLimited(scope)) {
    throw new AppError('key_scope', 'this API key is limited by its scope and cannot do this')
  }
}

/** Returns whether the scope includes all databases and branches of its workspaces. */
export function reachesWholeWorkspace(scope: KeyScope): boolean {
  return !scope.databases && !scope.branches
}

/** Refuses keys that are restricted to a part of the workspace. */
export function requireWholeWorkspace(scope: KeyScope, need: Need = 'write'): void {
  requireAccess(scope, need)
  if (!reachesWholeWorkspace(scope)) {
    throw new AppError('key_scope', 'this API key is limited to a part of the workspace')
  }
}

/** Refuses keys that are restricted to some branches of the database. */
export function requireWholeDatabase(scope: KeyScope, need: Need = 'write'): void {
  requireAccess(scope, need)
  if (scope.branches) {
    throw new AppError('key_scope', 'this API key is limited to some branches of the database')
  }
}

/**
 * Returns whether the text matches the pattern, in which `*` matches any sequence of characters. Only
 * the last `*` is retried, so the time is bounded by the product of both lengths.
 */
export function matchesPattern(text: string, pattern: string): boolean {
  let at = 0
  let star = -1
  let resume = 0
  let position = 0
  while (at < text.length) {
    if (pattern[position] === '*') {
      star = position++
      resume = at
    } else if (pattern[position] === text[at]) {
      position++
      at++
    } else if (star >= 0) {
      position = star + 1
      at = ++resume
    } else {
      return false
    }
  }
  while (pattern[position] === '*') position++
  return position === pattern.length
}
