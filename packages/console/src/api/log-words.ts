import type { LogEntry } from '@offshoot/client'

/** Kinds of entries of the log of a branch, with a title for lists. */
export const BRANCH_KINDS: Readonly<Record<string, string>> = {
  fork: 'Forks',
  merge: 'Merges',
  pull: 'Pulls',
  reset: 'Resets',
  revert: 'Reverts',
  migration: 'Schema changes',
  checkpoint: 'Checkpoints made',
  checkpointDeleted: 'Checkpoints deleted',
  bulk: 'Bulk loads',
  proposal: 'Proposals',
  branchChanged: 'Settings of branches',
}

/** Kinds of entries of the audit log, with a title for lists. */
export const AUDIT_KINDS: Readonly<Record<string, string>> = {
  ...BRANCH_KINDS,
  branchDeleted: 'Branches deleted',
  branchExpired: 'Branches expired',
  databaseCreated: 'Databases created',
  databaseDeleted: 'Databases deleted',
  databaseRenamed: 'Databases renamed',
  gitMappingChanged: 'Git branches',
  rulesChanged: 'Rules of branches',
  settingsChanged: 'Settings of databases',
  keyCreated: 'Keys created',
  keyDeleted: 'Keys deleted',
  inviteCreated: 'Invites created',
  inviteChanged: 'Invites changed',
  inviteRenewed: 'Invites renewed',
  inviteCancelled: 'Invites cancelled',
  inviteAccepted: 'Invites accepted',
  memberRemoved: 'Members removed',
  roleChanged: 'Roles changed',
  quotaChanged: 'Storage limits',
  refused: 'Refused requests',
  signIn: 'Sign-ins',
  signOut: 'Sign-outs',
  workspaceCreated: 'Workspaces created',
  workspaceRenamed: 'Workspaces renamed',
}

type Describe = (field: (name: string) => string, entry: LogEntry) => string

const DESCRIPTIONS: Readonly<Record<string, Describe>> = {
  fork: (field) => `Forked from ${field('from')}`,
  merge: (field) => `Merged ${field('from')}`,
  pull: (field) => `Pulled ${field('from')}`,
  reset: (field, { toCheckpoint }) =>
    toCheckpoint === undefined
      ? `Reset to a fresh fork of ${field('to')}`
      : `Reset to a checkpoint of ${field('to')}`,
  revert: (_, { reverts }) =>
    reverts === undefined ? 'Reverted the changes between two checkpoints' : 'Reverted a change',
  migration: () => 'Changed the schema',
  checkpoint: (field) => `Made the checkpoint ${field('name')}`,
  checkpointDeleted: (field) => `Deleted the checkpoint ${field('name')}`,
  bulk: (field) => `Loaded records into ${field('table')}`,
  proposal: (field) => `Proposal #${field('proposal')}: ${field('action')}`,
  branchChanged: (_, { changed }) =>
    `Changed settings of the branch: ${Object.keys(Object(changed)).join(', ')}`,
  branchDeleted: () => 'Deleted the branch',
  branchExpired: () => 'The branch expired',
  databaseCreated: () => 'Created the database',
  databaseDeleted: () => 'Deleted the database',
  databaseRenamed: (field) => `Renamed the database to ${field('newName')}`,
  gitMappingChanged: (field) => `Mapped the git branch ${field('gitBranch')}`,
  rulesChanged: () => 'Changed the rules of branches',
  settingsChanged: () => 'Changed settings of the database',
  keyCreated: (field) => `Created the API key ${field('created')}`,
  keyDeleted: (field) => `Deleted the API key ${field('deleted')}`,
  inviteCreated: (field) => `Invited ${field('invited')} as ${field('role')}`,
  inviteChanged: (field) => `Changed the role of an invite to ${field('role')}`,
  inviteRenewed: () => 'Renewed an invite',
  inviteCancelled: () => 'Cancelled an invite',
  inviteAccepted: () => 'Accepted an invite',
  memberRemoved: (field) => `Removed the member ${field('member')}`,
  roleChanged: (field) => `Gave ${field('member')} the role ${field('role')}`,
  quotaChanged: () => 'Changed the storage limit',
  refused: (field) =>
    `Refused ${field('method')} ${field('route')}: ${field('code')}, ${field('count')} times`,
  signIn: () => 'Signed in to the console',
  signOut: () => 'Signed out of the console',
  workspaceCreated: () => 'Created the workspace',
  workspaceRenamed: (field) => `Renamed the workspace to ${field('name')}`,
}

/** Describes an entry of a log in words. A field that the key may not see is named as such. */
export function describeEntry(entry: LogEntry): string {
  const field = (name: string) => String(entry[name] ?? 'something outside the scope of the key')
  return DESCRIPTIONS[entry.kind]?.(field, entry) ?? entry.kind
}

/** The user of an entry. */
export function actorOf({ email, user, key }: Pick<LogEntry, 'email' | 'user' | 'key'>): string {
  const who = email ?? user ?? 'the service'
  return key === undefined ? who : `${who}, key ${key}`
}

/** Describes the counts of an entry in words, such as “2 inserted, 1 deleted”. */
export function describeCounts({ counts }: LogEntry): string {
  return Object.entries(Object(counts) as Record<string, number>)
    .filter(([, count]) => count > 0)
    .map(([name, count]) => {
      const [one, many] = COUNTED[name] ?? [name, name]
      return `${count.toLocaleString('en')} ${count === 1 ? one : many}`
    })
    .join(', ')
}

const COUNTED: Readonly<Record<string, readonly [one: string, many: string]>> = {
  tables: ['table', 'tables'],
  migrations: ['migration', 'migrations'],
  operations: ['schema operation', 'schema operations'],
}

/**
 * Whether an entry can be reverted, as far as the log tells. The service says the last word, because states that an entry
 * has kept may be deleted.
 */
export function isRevertible({ kind, checkpoint, after, notRevertible }: LogEntry): boolean {
  if (notRevertible !== undefined) return false
  if (checkpoint === undefined) return kind === 'migration' || kind === 'bulk'
  return typeof checkpoint === 'string' && typeof after === 'string'
}

/** Says what to do instead of reverting an entry that the service cannot revert. */
export function whyNotRevertible({ notRevertible }: LogEntry): string | undefined {
  if (notRevertible === undefined) return undefined
  return 'It cannot be reverted alone. Revert what happened between two checkpoints instead.'
}
