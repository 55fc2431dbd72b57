import { Type } from 'typebox'
import { LIMITS } from './limits.js'

/** Names of databases, branches, tables and columns: letters, digits and `_ - ~`. */
export const NAME_PATTERN = '^[a-zA-Z0-9_\\-~]+$'

/** The key of a record's metadata: `xata` for the Xata client, `service` for all other clients. */
const METADATA_KEYS = ['service', 'xata'] as const
export type MetadataKey = (typeof METADATA_KEYS)[number]

export function isMetadataKey(name: string | undefined): name is MetadataKey {
  return METADATA_KEYS.some((key) => key === name)
}

/** Names that columns cannot have, because every record has fields with these names. */
export const RESERVED_COLUMN_NAMES: ReadonlySet<string> = new Set(['id', ...METADATA_KEYS])

/**
 * The specification of record ids (and file ids) is `[a-zA-Z0-9_-~:]+`, in which `_-~` can be read as
 * three characters or as the range from `_` to `~`. This pattern accepts both readings.
 */
export const RECORD_ID_PATTERN = '^[a-zA-Z0-9_\\-~:`{|}]+$'

/** Any text that PostgreSQL can store unchanged: no NUL and no lone surrogate. */
export const TEXT_PATTERN = '^[^\\u0000\\ud800-\\udfff]*$'

/** The pattern that the HTML standard defines for `<input type=email>`. */
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
  description: 'A branch name, in which `*` matches any sequence of characters.',
  minLength: 1,
  maxLength: LIMITS.nameLengthMax,
  pattern: '^[a-zA-Z0-9_\\-~*]+$',
  examples: ['preview-*'],
})

/** `{database}:{branch}`. Both parts match `NAME_PATTERN`. */
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

/** The id of a record in a request. Ids of type `int` can be numbers. */
export const GivenIdSchema = Type.Union([RecordIdSchema, Type.Integer()])

export const FILE_NAME_PATTERN = "^[0-9a-zA-Z!\\-_.*'()]*$"
export const MEDIA_TYPE_PATTERN = '^\\w+/[-+.\\w]+$'

export const FileItemIdSchema = Type.String({
  title: 'FileItemID',
  description:
    'Id of a file in a `file[]` column. An empty id adds a new file with a generated id.',
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
  description: 'A timestamp in the format of RFC 3339.',
  examples: ['2026-01-31T09:30:00.000Z'],
})

export const ExpirySchema = Type.String({
  title: 'Expiry',
  format: 'date-time',
  description: 'A timestamp in the future, in the format of RFC 3339.',
  examples: ['2099-12-31T23:59:59.000Z'],
})

/** A short free text: a name, a colour, a label. */
export const LabelSchema = Type.String({
  minLength: 1,
  maxLength: LIMITS.labelLengthMax,
  pattern: TEXT_PATTERN,
})

export const MigrationStatusSchema = Type.Enum(['completed', 'pending', 'failed'], {
  title: 'MigrationStatus',
  description: 'The progress of an operation.',
})
