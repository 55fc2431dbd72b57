/*
 * Shapes of answers. They are declared here, and not imported from the contract, so that the package has
 * no dependencies. A test compares them with the contract.
 */

export type ColumnType =
  | 'bool'
  | 'int'
  | 'float'
  | 'string'
  | 'text'
  | 'email'
  | 'multiple'
  | 'link'
  | 'object'
  | 'datetime'
  | 'decimal'
  | 'date'
  | 'time'
  | 'uuid'
  | 'enum'
  | 'vector'
  | 'file[]'
  | 'file'
  | 'json'

/** A new UUID of version 7, the id of the user who creates the record, the time of each change, or the next number. */
export type ColumnGenerator = 'uuid' | 'user' | 'updatedAt' | 'sequence'

/** The effect on a link of deleting the linked record. */
export type LinkAction = 'none' | 'restrict' | 'setNull' | 'cascade'

export interface ColumnDefinition {
  readonly name: string
  readonly type: ColumnType
  /** `onDelete` is omitted if linked records need not exist. */
  readonly link?: {
    readonly table: string
    readonly onDelete?: LinkAction
    /** The name of the rule that linked records exist, if it is not `{table}_{column}_fkey`. */
    readonly constraint?: string
  }
  readonly vector?: { readonly dimension: number }
  /** Digits in all, and after the decimal point. */
  readonly decimal?: { readonly precision: number; readonly scale: number }
  /** The size of an `int`. Left out: all whole numbers that JSON represents exactly. */
  readonly bits?: IntBits
  /** The largest number of characters of a `string` or `text`. */
  readonly maxLength?: number
  /** SQL shows a `datetime` as `timestamp`. */
  readonly withoutZone?: boolean
  /** The possible values, in their order. */
  readonly enum?: { readonly values: readonly string[]; readonly type?: string }
  readonly file?: { readonly defaultPublicAccess?: boolean }
  readonly 'file[]'?: { readonly defaultPublicAccess?: boolean }
  readonly notNull?: boolean
  readonly defaultValue?: string
  readonly unique?: boolean
  /** What gives the column its value, if a request does not. */
  readonly generate?: ColumnGenerator
  /** An expression in SQL over the other columns of the record, whose value the column has. It cannot be written. */
  readonly computed?: string
  /** What the column is for. */
  readonly description?: string
  readonly columns?: readonly ColumnDefinition[]
}

/** A rule that all records of a table keep. */
export type ConstraintDefinition = { readonly name: string } & (
  | {
      /** The columns whose values together belong to one record only. */
      readonly unique: readonly string[]
      /** Clients of PostgreSQL see a unique index instead of a constraint. */
      readonly index?: boolean
    }
  | {
      /** A condition in SQL over the columns of one record. */
      readonly check: string
    }
)

/** The type by which ids are compared and sorted. Clients read and write all of them as strings. */
export type IdType = 'string' | 'int' | 'uuid'

/** The sizes that whole numbers can be limited to, in bits with the sign. */
export type IntBits = 16 | 32

/** What can be changed in a column. Fields that are not given stay as they are. */
export interface ColumnChanges {
  readonly name?: string
  /** The new type. All values of the column must convert to it. */
  readonly type?: ColumnType
  /** An expression in SQL over the columns of the record, whose value the column gets. */
  readonly using?: string
  /** A link keeps its table. A column that becomes a link has ids of the table that is named here. */
  readonly link?: {
    readonly table?: string
    readonly onDelete?: LinkAction
    readonly constraint?: string | null
  }
  readonly vector?: { readonly dimension: number }
  readonly decimal?: { readonly precision: number; readonly scale: number }
  /** Null: 64 bits. */
  readonly bits?: IntBits | null
  /** Null: the limit of the type. */
  readonly maxLength?: number | null
  /** Null, or false: SQL shows it with a time zone. */
  readonly withoutZone?: boolean | null
  readonly enum?: { readonly values: string[]; readonly type?: string }
  readonly notNull?: boolean
  readonly unique?: boolean
  /** Null removes the default value. */
  readonly defaultValue?: string | null
  /** Null: nothing gives new records a value any more. */
  readonly generate?: ColumnGenerator | null
  /** The new expression of a computed column. */
  readonly computed?: string
  /** Null removes the description. */
  readonly description?: string | null
  /** Whether records without a value get the default value when the column becomes `notNull`. */
  readonly fillNulls?: boolean
}

/** Records that do not allow a change of a column, or a constraint. */
export interface ColumnProblem {
  readonly table: string
  readonly column?: string
  /** Instead of the column: the constraint that would be added. */
  readonly constraint?: string
  readonly kind: 'conversion' | 'expression' | 'limit' | 'notNull' | 'unique' | 'check' | 'link'
  readonly records: number
  /** There are more records than were counted. */
  readonly more?: true
  /** The first of these records. */
  readonly samples: readonly { readonly id: string; readonly value?: string }[]
  /** Of a `limit` of an `enum`: the values that it lacks, and how many records have them. */
  readonly values?: readonly { readonly value: string; readonly records: number }[]
  readonly message: string
}

/** How long versions of the records of a table are kept. */
export interface TableHistory {
  /** A number of hours or days, such as `12h` or `30d`. */
  readonly keep: string
}

export interface TableDefinition {
  readonly id?: string
  readonly name: string
  /** `string`, if it is left out. */
  readonly idType?: IdType
  /** The size of ids of type `int`. Left out: 64 bits. */
  readonly idBits?: IntBits
  /** SQL statements without a list of columns have no id. */
  readonly hiddenId?: true
  readonly columns: readonly ColumnDefinition[]
  readonly constraints?: readonly ConstraintDefinition[]
  /** Left out, if versions of records are not kept. */
  readonly history?: TableHistory
  readonly revLinks?: readonly { readonly table: string; readonly column: string }[]
}

export interface SchemaDefinition {
  readonly tables: readonly TableDefinition[]
  readonly tablesOrder?: readonly string[]
}

export type SchemaOperation =
  | {
      readonly addTable: {
        readonly table: string
        readonly idType?: IdType
        readonly idBits?: IntBits
        readonly hiddenId?: true
        readonly history?: TableHistory
      }
    }
  | { readonly removeTable: { readonly table: string } }
  | { readonly renameTable: { readonly oldName: string; readonly newName: string } }
  | {
      readonly addColumn: {
        readonly table: string
        readonly column: ColumnDefinition
        /** What existing records get. */
        readonly fill?: Pick<ColumnDefinition, 'defaultValue' | 'generate'>
      }
    }
  | { readonly removeColumn: { readonly table: string; readonly column: string } }
  | {
      readonly renameColumn: {
        readonly table: string
        readonly oldName: string
        readonly newName: string
      }
    }
  | {
      readonly addConstraint: { readonly table: string; readonly constraint: ConstraintDefinition }
    }
  | { readonly removeConstraint: { readonly table: string; readonly constraint: string } }
  | { readonly alterColumn: { readonly table: string; readonly column: string } & ColumnChanges }
  | {
      readonly alterTable: {
        readonly table: string
        /** Null: versions are not kept, and those that exist are deleted. */
        readonly history?: TableHistory | null
        /** Null: ids have 64 bits. */
        readonly idBits?: IntBits | null
      }
    }

/** A table or column whose removal would lose values. */
export interface DataLoss {
  readonly table: string
  readonly column?: string
  readonly records: number
  readonly more: boolean
}

/** The schema of a branch before and after edits, the values that they would lose, and what prevents them. */
export interface SchemaPreview {
  readonly original: SchemaDefinition
  readonly updated: SchemaDefinition
  readonly dataLoss?: readonly DataLoss[]
  /** The records that do not allow changes of columns. */
  readonly problems?: readonly ColumnProblem[]
}

export type IndexState = 'building' | 'ready' | 'failed'

/** The index of a column. */
export interface IndexInfo {
  readonly column: string
  /** It was requested, or the column is a link or unique. */
  readonly origin: 'asked' | 'link' | 'unique'
  readonly state: IndexState
  /** Why the index failed, or which rows it does not cover. */
  readonly message?: string
}

/** The index of all words of a table. */
export interface SearchIndexInfo {
  readonly columns: readonly string[]
  readonly state: IndexState
  readonly message?: string
}

/** The indexes of a table. */
export interface TableIndexes {
  readonly indexes: readonly IndexInfo[]
  readonly searchIndex?: SearchIndexInfo
}

/** Expiry and protection of a branch. */
export interface BranchLife {
  /** The branch expires at this time. */
  readonly expiresAt?: string
  /** The branch expires this many seconds after its last use. */
  readonly ttl?: number
  /** A protected branch does not expire, and cannot be deleted. */
  readonly protected?: boolean
  /** A protected branch with this number changes by proposals alone, which need that many approvals by others. */
  readonly requiredApprovals?: number
  /** A checkpoint is made every so many seconds, and the newest ones are kept. */
  readonly checkpoints?: CheckpointSchedule
}

export interface CheckpointSchedule {
  /** Seconds between two checkpoints. */
  readonly every: number
  /** How many are kept. */
  readonly keep: number
}

/** A state of a branch that is kept. */
export interface Checkpoint {
  readonly id: string
  readonly name: string
  readonly note?: string
  /** `automatic`: made by the service before a change. `scheduled`: made by the schedule of the branch. */
  readonly kind: 'manual' | 'automatic' | 'scheduled'
  /** The kind of the change that an automatic one was made before. */
  readonly before?: string
  readonly createdAt: string
  /** The entry of the log that a request has made. */
  readonly entry?: string
}

export interface BranchSummary extends BranchLife {
  readonly name: string
  readonly id: string
  readonly createdAt: string
  readonly default: boolean
  /** The branch that this one was forked from. */
  readonly from?: string
  /** The last merge or pull from each of the other branches into this one, as far as it is known. */
  readonly merges?: readonly { readonly from: string; readonly at: string }[]
}

export interface BranchDetails extends BranchLife {
  readonly databaseName: string
  readonly branchName: string
  readonly createdAt: string
  readonly id: string
  readonly version: number
  readonly lastMigrationID: string
  readonly metadata: Readonly<Record<string, unknown>>
  readonly startedFrom?: {
    readonly branchName: string
    readonly dbBranchID: string
    readonly migrationID: string
  }
  readonly schema: SchemaDefinition
}

export interface RecordChange {
  readonly change: 'inserted' | 'updated' | 'deleted'
  readonly id: string
  /** The columns of an inserted record, or the last columns of a deleted one. */
  readonly record?: Readonly<Record<string, unknown>>
  /** The changed columns of an updated record. */
  readonly columns?: Readonly<Record<string, { readonly from?: unknown; readonly to?: unknown }>>
}

export interface TableDifference {
  readonly name: string
  readonly inserted: number
  readonly updated: number
  readonly deleted: number
  readonly changes: readonly RecordChange[]
  readonly cursor?: string
  readonly more: boolean
}

export interface Difference {
  readonly branch: string
  /** The checkpoint that `at` stands for. */
  readonly checkpoint?: string
  readonly against: {
    readonly branch?: string
    readonly checkpoint?: string
    readonly at: 'base' | 'fork' | 'now' | 'checkpoint'
  }
  readonly schema: { readonly operations: readonly SchemaOperation[] }
  readonly tables: readonly TableDifference[]
}

/** The author of a proposal, a comment or a review. */
export interface Person {
  readonly id: string
  /** Omitted if the user no longer exists. */
  readonly email?: string
  /** The name of the API key. */
  readonly key?: string
}

/** A proposal, as lists show it. */
export interface ProposalSummary {
  readonly number: number
  readonly state: 'open' | 'merged' | 'closed'
  readonly title: string
  readonly from: string
  /** Omitted if the scope of the API key excludes that branch. */
  readonly into?: string
  readonly author: Person
  /** The number of comments. */
  readonly comments: number
  readonly createdAt: string
  /** When it was merged or closed. */
  readonly endedAt?: string
  readonly endedBy?: string
  /** The entry of the log that its merge has made. */
  readonly entry?: string
}

/** The verdict of a user about a proposal, and the words with it. */
export interface Review {
  readonly by: Person
  readonly verdict: 'approve' | 'requestChanges'
  readonly body?: string
  readonly revision: number
  /** Whether one of the branches has changed since. */
  readonly stale: boolean
  readonly createdAt: string
}

export interface ProposalDetails extends ProposalSummary {
  readonly body: string
  /** Counts the states that were kept for reviews. */
  readonly revision: number
  /** The branches that have changed since the revision. */
  readonly changed: readonly ('from' | 'into')[]
  /** The branches that no longer exist. */
  readonly deleted: readonly ('from' | 'into')[]
  readonly requiredApprovals: number
  /** The approvals that count now. */
  readonly approvals: number
  readonly reviews: readonly Review[]
}

/** The part of a proposal that a comment is about: all of it, a table, a record or a cell. */
export interface CommentPlace {
  readonly table?: string
  readonly record?: string
  readonly column?: string
}

export interface Comment extends CommentPlace {
  readonly id: string
  readonly by: Person
  readonly body: string
  readonly revision: number
  readonly createdAt: string
}

export interface ProposalDifference {
  /** Whether the branches were compared as they are now, and not as they were at the last revision. */
  readonly live: boolean
  readonly revision: number
  readonly difference: Difference
  /** What a merge would do now. */
  readonly merge?: MergeResult
}

export type MergeStrategy = 'fail' | 'ours' | 'theirs'

/** Work that takes longer than a request may and goes on after its answer, and the build of an index. */
export interface OperationInfo {
  readonly id: string
  readonly kind:
    | 'merge'
    | 'pull'
    | 'revert'
    | 'update'
    | 'delete'
    | 'migration'
    | 'import'
    | 'index'
  /** Unless it is `done`, the operation has changed nothing. */
  readonly state: 'running' | 'done' | 'failed' | 'cancelled'
  readonly database: string
  /** The branch of the request. */
  readonly branch: string
  readonly startedAt: string
  readonly endedAt?: string
  /** How far it has come. Parts differ in size. */
  readonly progress: { readonly step: string; readonly done: number; readonly total: number }
  /** The answer that the request would have got. Only if the state is `done`. */
  readonly result?: unknown
  readonly error?: Readonly<Record<string, unknown>>
}

/** `ours` keeps the state of the target, `theirs` takes that of the merged branch. */
export type Take = 'ours' | 'theirs'

/** The value of a column in the base and on both sides. */
export interface ConflictValues {
  readonly base: unknown
  readonly ours: unknown
  readonly theirs: unknown
}

type ConflictRecord = Readonly<Record<string, unknown>> | null

/** Both sides gave columns of a record different values. */
export interface CellConflict {
  readonly kind: 'bothUpdated' | 'bothInserted'
  readonly table: string
  readonly id: string
  /** Identifies the record on both sides, as it was listed. */
  readonly token: string
  readonly columns: Readonly<Record<string, ConflictValues>>
}

/** One side deleted a record that the other changed. */
export interface DeletedConflict {
  readonly kind: 'deletedHere' | 'deletedThere'
  readonly table: string
  readonly id: string
  /** Identifies the record on both sides, as it was listed. */
  readonly token: string
  readonly base: ConflictRecord
  readonly ours: ConflictRecord
  readonly theirs: ConflictRecord
}

/** Records that would break the rule of a unique or a not-null column, of a link, or a constraint, after the merge. */
export interface RuleConflict {
  readonly kind: 'notUnique' | 'notNull' | 'limit' | 'check' | 'link'
  readonly table: string
  /** The column, or the first one of the constraint. */
  readonly column: string
  /** The name of the constraint, if the rule is one. */
  readonly constraint?: string
  /** Up to 10 of the records. */
  readonly ids: readonly string[]
  /** The tokens of these records, by id. */
  readonly tokens: Readonly<Record<string, string>>
  /** The value that is not unique. Of several columns: an object. */
  readonly value?: unknown
  /** The number of all records without a value, that fail the check, or that have the link. */
  readonly records?: number
  /** For a link: the record that would not exist, its token, and the side that has it. */
  readonly target?: {
    readonly table: string
    readonly id: string
    readonly token?: string
    readonly takes: readonly Take[]
  }
  readonly message: string
}

/** The schemas contradict each other. */
export interface SchemaConflict {
  readonly kind: 'schema'
  readonly table: string
  /** Identifies what both sides have done, as it was listed. */
  readonly token: string
  readonly column?: string
  readonly constraint?: string
  readonly message: string
  /** The decisions that are possible. Empty: change one of the branches first. */
  readonly takes: readonly Take[]
  /** For a removed table or column: the number of records that the other side has changed there. */
  readonly records?: number
  /** For a column or constraint that both sides changed: its definition on the target. Null: it is not there. */
  readonly ours?: ColumnDefinition | ConstraintDefinition | null
  /** For a column or constraint that both sides changed: its definition on the merged branch. */
  readonly theirs?: ColumnDefinition | ConstraintDefinition | null
}

export type MergeConflict = CellConflict | DeletedConflict | RuleConflict | SchemaConflict

/**
 * A decision about conflicts: about a record, about single columns of a record, about the schema of a table
 * or column, or about all conflicts of records of a table that no other resolution names. `token` repeats that of the
 * conflict, or for a whole table that of the table in `conflictTables`. If what it stands for has changed since, the
 * merge is refused with `outdated_resolution`.
 */
export type Resolution =
  | ({ readonly table: string; readonly token: string } & (
      | { readonly take: Take }
      | {
          readonly kind: 'schema'
          readonly column?: string
          readonly constraint?: string
          readonly take: Take
        }
      | { readonly id: string | number; readonly take: Take }
      | {
          readonly id: string | number
          /** Decides what `columns` do not. Of a record that one side has deleted: the side that has it. */
          readonly take?: Take
          readonly columns: Readonly<Record<string, CellResolution>>
        }
    ))
  | {
      readonly table: string
      readonly kind: 'schema'
      readonly column?: string
      /** The name that the table or column of the merged branch gets on the target. It overwrites nothing. */
      readonly rename: string
    }

/** A decision about one column of a record. The value is checked as in an update. */
export type CellResolution = { readonly take: Take } | { readonly value: unknown }

/** A part of a difference. What is left out is still there in the next difference. */
export type Only =
  | { readonly tables: readonly string[] }
  | { readonly records: readonly { readonly table: string; readonly id: string | number }[] }

/** What is merged, and how conflicts are decided. */
export interface ConflictOptions {
  /** The part of the difference to take: some tables with their schema, or single records. Default: all of it. */
  readonly only?: Only
  /** How to resolve changes that contradict each other. Default: `fail`. */
  readonly strategy?: MergeStrategy
  /** Decisions about single conflicts. They take precedence over `strategy`. */
  readonly resolutions?: readonly Resolution[]
  readonly tables?: Readonly<
    Record<
      string,
      { readonly strategy?: MergeStrategy; readonly mode?: 'merge' | 'skip' | 'schema' }
    >
  >
}

export interface MergeOptions extends ConflictOptions {
  /** Report the result without applying it. */
  readonly dryRun?: boolean
  readonly allowDataLoss?: boolean
  /** The page of conflicts to list. `after` is the `cursor` of the previous one, for a dry run. */
  readonly page?: { readonly size?: number; readonly after?: string }
}

/** The change that a revert takes back: an entry of the log, or everything from one checkpoint to another. */
export type RevertStep = { readonly entry: string } | { readonly from: string; readonly to: string }

/** A table with conflicts, and how many it has. */
export interface ConflictTable {
  readonly name: string
  readonly conflicts: number
  /** Identifies all conflicts of records of the table, for a resolution of the whole table. */
  readonly token?: string
}

export interface MergeResult {
  readonly merged: boolean
  /** The entry of the log that the merge has made. */
  readonly entry?: string
  readonly from: string
  readonly into: string
  readonly schema: { readonly operations: readonly SchemaOperation[] }
  readonly tables: readonly {
    readonly name: string
    readonly inserted: number
    readonly updated: number
    readonly deleted: number
  }[]
  /** The first conflicts, or the requested page of them. */
  readonly conflicts: readonly MergeConflict[]
  readonly conflictCount: number
  readonly conflictTables: readonly ConflictTable[]
  /** Reads the next page of conflicts, if there are more. */
  readonly cursor?: string
  readonly dataLoss: readonly DataLoss[]
}

/** An entry of a log. It has further fields, depending on its kind. */
export interface LogEntry {
  readonly id: string
  readonly kind: string
  readonly at: string
  /** The id of the user. Omitted if the service did it by itself. */
  readonly user?: string
  readonly email?: string
  /** The name of the API key. */
  readonly key?: string
  readonly requestId?: string
  readonly database?: string
  readonly branch?: string
  readonly [field: string]: unknown
}

export interface LogOptions {
  /** Lists entries of this kind only. */
  readonly kind?: string
}

export interface Amounts {
  readonly owned: number
  readonly inherited: number
}

export interface BranchStats {
  readonly timestamp: string
  readonly interval: string
  readonly rows: Amounts
  readonly bytes: Amounts
  readonly tables: readonly {
    readonly name: string
    readonly rows: Amounts
    readonly bytes: Amounts
  }[]
}

export interface BranchRule {
  readonly pattern: string
  readonly from?: string
  readonly ttl?: number
  readonly data?: boolean
  readonly protected?: boolean
}

export interface ResolvedBranch {
  readonly branch: string
  readonly reason: {
    readonly code:
      | 'FOUND_IN_MAPPING'
      | 'BRANCH_EXISTS'
      | 'BRANCH_CREATED'
      | 'FALLBACK_BRANCH'
      | 'DEFAULT_BRANCH'
    readonly message: string
  }
}

export interface DatabaseInfo {
  readonly name: string
  readonly region: string
  readonly createdAt: string
  readonly ui?: { readonly color?: string }
}

export interface WorkspaceInfo {
  readonly id: string
  readonly name: string
  readonly slug: string
  readonly role: 'owner' | 'maintainer'
}

export type Role = 'owner' | 'maintainer'

export interface MemberInfo {
  readonly userId: string
  readonly fullname: string
  readonly email: string
  readonly role: Role
}

export interface InviteInfo {
  readonly inviteId: string
  readonly email: string
  readonly expires: string
  readonly role: Role
}

/** The storage that a workspace uses. */
export interface Usage {
  /** Null means unlimited. */
  readonly bytesMax: number | null
  readonly bytesUsed: number
  readonly rowBytes: number
  readonly fileBytes: number
  readonly measuredAt: string | null
}

export interface KeyScope {
  readonly workspaces?: readonly string[]
  readonly databases?: readonly string[]
  readonly branches?: readonly string[]
  readonly access?: 'read' | 'write'
  /** Whether a key that is limited by its scope can read the audit log. */
  readonly audit?: boolean
  readonly requestsPerSecond?: number
  readonly requestsAtOnce?: number
}

export interface KeyInfo {
  readonly name: string
  readonly createdAt: string
  readonly expiresAt?: string
  readonly scope?: KeyScope
}

/** An applied migration of a branch. */
export interface Migration {
  readonly id: string
  readonly parentID?: string
  readonly mergeParentID?: string
  readonly checksum: string
  readonly operations: readonly SchemaOperation[]
  readonly title?: string
  readonly message?: string
  readonly createdAt: string
}

export interface RecordHistoryOptions {
  /** Versions per page. Default: 20. */
  readonly size?: number
  /** The cursor of the previous page. */
  readonly cursor?: string
}

/** A version of a record. */
export interface RecordVersion<Row> {
  readonly version: string
  readonly at: string
  readonly operation: 'insert' | 'update' | 'delete'
  /** The operation on the branch that has changed the record. Omitted for a write of the record. */
  readonly cause?: 'merge' | 'pull' | 'revert'
  readonly user?: string
  readonly email?: string
  /** The name of the API key. */
  readonly key?: string
  /** Null: the record was deleted. */
  readonly record: Row | null
  /** By column, the texts of values that do not convert to the type that the column has now. */
  readonly unconverted?: Readonly<Record<string, string>>
  /** The columns that an update has changed. */
  readonly changes?: Readonly<Record<string, { readonly from: unknown; readonly to: unknown }>>
}

/** A record at a checkpoint, or on another branch. */
export interface RecordState<Row> {
  readonly checkpoint?: { readonly id: string; readonly name: string; readonly createdAt: string }
  readonly branch?: string
  /** Null: the record did not exist. */
  readonly record: Row | null
}

/** The versions of a record, newest first. */
export interface RecordHistory<Row> {
  readonly versions: readonly RecordVersion<Row>[]
  /** Only for a table that keeps no versions. */
  readonly states?: readonly RecordState<Row>[]
  readonly meta: { readonly cursor?: string; readonly more: boolean }
}
