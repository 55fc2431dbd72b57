import { type Static, Type } from 'typebox'
import { LIMITS } from './limits.js'

/** Letters, digits and `_ - ~`: databases, branches, tables and columns. */
export const NAME_PATTERN = '^[a-zA-Z0-9_\\-~]+$'

/** Keys under which a record has its metadata: `xata` for the Xata client, `service` for all others. */
export const METADATA_KEYS = ['service', 'xata'] as const
export type MetadataKey = (typeof METADATA_KEYS)[number]

export function isMetadataKey(name: string | undefined): name is MetadataKey {
  return METADATA_KEYS.some((key) => key === name)
}

/** Names that no column can have, because records have them already. */
export const RESERVED_COLUMN_NAMES: ReadonlySet<string> = new Set(['id', ...METADATA_KEYS])

/**
 * Record ids and their kin are specified as `[a-zA-Z0-9_-~:]+`, which reads as a literal hyphen or as
 * the range from `_` to `~`; what either reading allows is accepted.
 */
export const RECORD_ID_PATTERN = '^[a-zA-Z0-9_\\-~:`{|}]+$'

/** Any text that can be stored and given back as it was: no NUL, no half of a surrogate pair. */
export const TEXT_PATTERN = '^[^\\u0000\\ud800-\\udfff]*$'

/** The address pattern that browsers use for `<input type=email>`. */
export const EMAIL_PATTERN =
  "^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$"

const name = (title: string, description: string, example: string) =>
  Type.String({
    title,
    description,
    minLength: 1,
    maxLength: LIMITS.nameLengthMax,
    pattern: NAME_PATTERN,
    examples: [example],
  })

export const DatabaseNameSchema = name('DBName', 'Name of a database.', 'shop')
export const BranchNameSchema = name('BranchName', 'Name of a branch.', 'main')
export const TableNameSchema = name('TableName', 'Name of a table.', 'users')
export const ColumnNameSchema = name('ColumnName', 'Name of a column.', 'email')

export const BranchPatternSchema = Type.String({
  title: 'BranchPattern',
  description: 'A branch name; `*` stands for any run of characters.',
  minLength: 1,
  maxLength: LIMITS.nameLengthMax,
  pattern: '^[a-zA-Z0-9_\\-~*]+$',
  examples: ['preview-*'],
})

/** `{database}:{branch}`, both of them names. */
export const DATABASE_BRANCH_PATTERN = '^[a-zA-Z0-9_\\-~]{1,255}:[a-zA-Z0-9_\\-~]{1,255}$'

export const DatabaseBranchNameSchema = Type.String({
  title: 'DBBranchName',
  description: 'A database and one of its branches, as `{database}:{branch}`.',
  minLength: 3,
  maxLength: 2 * LIMITS.nameLengthMax + 1,
  pattern: DATABASE_BRANCH_PATTERN,
  examples: ['shop:main'],
})

export const RecordIdSchema = Type.String({
  title: 'RecordID',
  description: 'Id of a record.',
  minLength: 1,
  maxLength: LIMITS.nameLengthMax,
  pattern: RECORD_ID_PATTERN,
  examples: ['rec_d2m4o9k8v3q1t7h5n6c0'],
})

export const FILE_NAME_PATTERN = "^[0-9a-zA-Z!\\-_.*'()]*$"
export const MEDIA_TYPE_PATTERN = '^\\w+/[-+.\\w]+$'

export const FileItemIdSchema = Type.String({
  title: 'FileItemID',
  description: 'Id of a file in a `file[]` column. Empty: a new file, with a generated id.',
  maxLength: LIMITS.nameLengthMax,
  pattern: RECORD_ID_PATTERN.replace('+$', '*$'),
  examples: ['file_d2m4o9k8v3q1t7h5n6c0'],
})

export const WorkspaceIdSchema = Type.String({
  title: 'WorkspaceID',
  description: 'Id of a workspace: a slug and six characters.',
  minLength: 1,
  maxLength: LIMITS.nameLengthMax,
  pattern: '^[a-zA-Z0-9_\\-~]+$',
  examples: ['home-x7k2p9'],
})

export const EmailSchema = Type.String({
  title: 'Email',
  maxLength: LIMITS.emailLengthMax,
  pattern: EMAIL_PATTERN,
  format: 'email',
  examples: ['ada@example.com'],
})

export const DateTimeSchema = Type.String({
  title: 'DateTime',
  format: 'date-time',
  description: 'A moment, as RFC 3339 says.',
  examples: ['2026-01-31T09:30:00.000Z'],
})

/** A moment to come. */
export const ExpirySchema = Type.String({
  title: 'Expiry',
  format: 'date-time',
  description: 'A moment in the future, as RFC 3339 says.',
  examples: ['2099-12-31T23:59:59.000Z'],
})

/** A short text a person typed. */
export const LabelSchema = Type.String({
  minLength: 1,
  maxLength: LIMITS.labelLengthMax,
  pattern: TEXT_PATTERN,
})

export type BranchName = Static<typeof BranchNameSchema>

export const MigrationStatusSchema = Type.Enum(['completed', 'pending', 'failed'], {
  title: 'MigrationStatus',
  description: 'How far an operation has come.',
})
