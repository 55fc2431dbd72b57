import { AppError } from '@offshoot/contract/errors'
import type { KeyScope } from '@offshoot/contract/users'

/** What an operation does to what it touches, as far as key scopes care. */
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

/** Whether a key can do less than its user. */
export function isLimited(scope: KeyScope): boolean {
  const isPart = scope.access === 'read' || scope.workspaces || scope.databases || scope.branches
  return Boolean(isPart || scope.requestsPerSecond || scope.requestsAtOnce)
}

/** For what concerns the user itself: a key for a part must not reach beyond it by making new keys. */
export function requireUnlimited(scope: KeyScope): void {
  if (isLimited(scope)) {
    throw new AppError('key_scope', 'this API key is limited by its scope and cannot do this')
  }
}

/** Whether a key reaches all databases and branches of its workspaces. */
export function reachesWholeWorkspace(scope: KeyScope): boolean {
  return !scope.databases && !scope.branches
}

/** For what concerns a whole workspace: changes, and who its members are. */
export function requireWholeWorkspace(scope: KeyScope, need: Need = 'write'): void {
  requireAccess(scope, need)
  if (!reachesWholeWorkspace(scope)) {
    throw new AppError('key_scope', 'this API key is limited to a part of the workspace')
  }
}

/** For what concerns all branches of a database. */
export function requireWholeDatabase(scope: KeyScope, need: Need = 'write'): void {
  requireAccess(scope, need)
  if (scope.branches) {
    throw new AppError('key_scope', 'this API key is limited to some branches of the database')
  }
}

/** `*` stands for any run of characters. Walks both texts once, so no pattern can take long. */
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
