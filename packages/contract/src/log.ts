import { type Static, Type } from 'typebox'
import { DateTimeSchema } from './names.js'
import { pageOf } from './paging.js'

/** Entries are kept for this number of days. */
export const LOG_DAYS_MAX = 365
/** The newest entries of a workspace are kept, up to this number. */
export const LOG_ENTRIES_MAX = 100_000

/** What happened to the schema or the rows of a branch. */
const BRANCH_KINDS = [
  'fork',
  'merge',
  'pull',
  'reset',
  'revert',
  'migration',
  'checkpoint',
  'checkpointDeleted',
  'bulk',
  'proposal',
] as const

/** What else happened in a workspace. */
const WORKSPACE_KINDS = [
  'branchChanged',
  'branchDeleted',
  'branchExpired',
  'databaseCreated',
  'databaseDeleted',
  'databaseRenamed',
  'gitMappingChanged',
  'inviteAccepted',
  'inviteCancelled',
  'inviteChanged',
  'inviteCreated',
  'inviteRenewed',
  'keyCreated',
  'keyDeleted',
  'memberRemoved',
  'quotaChanged',
  'refused',
  'roleChanged',
  'rulesChanged',
  'settingsChanged',
  'signIn',
  'signOut',
  'workspaceCreated',
  'workspaceRenamed',
] as const

export type EntryKind = (typeof BRANCH_KINDS)[number] | (typeof WORKSPACE_KINDS)[number]

const EntryKindSchema = Type.Enum([...BRANCH_KINDS, ...WORKSPACE_KINDS], {
  description: 'What happened.',
})

/** The id of an entry, as a field of the answer to the request that made it. */
export const EntryIdSchema = Type.String({
  description: 'The entry of the log that the request has made.',
  examples: ['log_d2m4o9k8v3q1t7h5n6c0'],
})

export const LogEntrySchema = Type.Object(
  {
    id: Type.String(),
    kind: EntryKindSchema,
    at: DateTimeSchema,
    user: Type.Optional(
      Type.String({ description: 'The id of the user. Omitted if the service did it by itself.' }),
    ),
    email: Type.Optional(Type.String({ description: 'Omitted if the user no longer exists.' })),
    key: Type.Optional(Type.String({ description: 'The name of the API key.' })),
    requestId: Type.Optional(Type.String()),
    database: Type.Optional(Type.String({ description: 'The name of the database at that time.' })),
    branch: Type.Optional(Type.String({ description: 'The name of the branch at that time.' })),
  },
  {
    additionalProperties: true,
    title: 'LogEntry',
    description:
      'Entries have further fields, depending on their kind, such as `from` and `counts`. They ' +
      'never contain values of records.',
    examples: [
      {
        id: 'log_d2m4o9k8v3q1t7h5n6c0',
        kind: 'merge',
        at: '2026-01-31T09:30:00.000Z',
        user: 'usr_d2m4o9k8v3q1t7h5n6bg',
        email: 'ada@example.com',
        key: 'ci',
        requestId: 'req_6a466899b0be4b688b29943bc996274a',
        database: 'store',
        branch: 'main',
        from: 'sale',
        counts: { tables: 1, inserted: 2, updated: 1, deleted: 0 },
      },
    ],
  },
)
export type LogEntry = Static<typeof LogEntrySchema> & { readonly [field: string]: unknown }

const page = pageOf('entries')
const pageFields = {
  ...page.query,
  kind: Type.Optional(EntryKindSchema),
}

export const LogQuerySchema = Type.Object(pageFields)
export type LogQuery = Static<typeof LogQuerySchema>

export const AuditQuerySchema = Type.Object({
  ...pageFields,
  format: Type.Optional(
    Type.Enum(['json', 'ndjson'], {
      description:
        '`ndjson` returns all entries, newest first, one per line, instead of a page. It takes no ' +
        '`size` and no `after`.',
    }),
  ),
})
export type AuditQuery = Static<typeof AuditQuerySchema>

export const LogSchema = Type.Object(
  {
    entries: Type.Array(LogEntrySchema),
    meta: page.meta,
  },
  { title: 'Log', description: 'Entries, newest first.' },
)
export type Log = Static<typeof LogSchema>
