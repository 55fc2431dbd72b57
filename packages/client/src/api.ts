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
  | 'vector'
  | 'file[]'
  | 'file'
  | 'json'

export interface ColumnDefinition {
  readonly name: string
  readonly type: ColumnType
  readonly link?: { readonly table: string }
  readonly vector?: { readonly dimension: number }
  readonly file?: { readonly defaultPublicAccess?: boolean }
  readonly 'file[]'?: { readonly defaultPublicAccess?: boolean }
  readonly notNull?: boolean
  readonly defaultValue?: string
  readonly unique?: boolean
  readonly columns?: readonly ColumnDefinition[]
}

export interface TableDefinition {
  readonly id?: string
  readonly name: string
  readonly columns: readonly ColumnDefinition[]
  readonly revLinks?: readonly { readonly table: string; readonly column: string }[]
}

export interface SchemaDefinition {
  readonly tables: readonly TableDefinition[]
  readonly tablesOrder?: readonly string[]
}

export type SchemaOperation =
  | { readonly addTable: { readonly table: string } }
  | { readonly removeTable: { readonly table: string } }
  | { readonly renameTable: { readonly oldName: string; readonly newName: string } }
  | { readonly addColumn: { readonly table: string; readonly column: ColumnDefinition } }
  | { readonly removeColumn: { readonly table: string; readonly column: string } }
  | {
      readonly renameColumn: {
        readonly table: string
        readonly oldName: string
        readonly newName: string
      }
    }

/** A table or column whose removal would lose values. */
export interface DataLoss {
  readonly table: string
  readonly column?: string
  readonly records: number
  readonly more: boolean
}

/** Expiry and protection of a branch. */
export interface BranchLife {
  /** The branch expires at this time. */
  readonly expiresAt?: string
  /** The branch expires this many seconds after its last use. */
  readonly ttl?: number
  /** A protected branch does not expire, and cannot be deleted. */
  readonly protected?: boolean
}

export interface BranchSummary extends BranchLife {
  readonly name: string
  readonly id: string
  readonly createdAt: string
  readonly default: boolean
  /** The branch that this one was forked from. */
  readonly from?: string
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
  readonly against: { readonly branch?: string; readonly at: 'fork' | 'now' }
  readonly schema: { readonly operations: readonly SchemaOperation[] }
  readonly tables: readonly TableDifference[]
}

export type MergeStrategy = 'fail' | 'ours' | 'theirs'

export interface MergeOptions {
  /** Report the result without applying it. */
  readonly dryRun?: boolean
  /** How to resolve changes that contradict each other. Default: `fail`. */
  readonly strategy?: MergeStrategy
  readonly allowDataLoss?: boolean
  readonly tables?: Readonly<
    Record<
      string,
      { readonly strategy?: MergeStrategy; readonly mode?: 'merge' | 'skip' | 'schema' }
    >
  >
}

export interface MergeResult {
  readonly merged: boolean
  readonly from: string
  readonly into: string
  readonly schema: { readonly operations: readonly SchemaOperation[] }
  readonly tables: readonly {
    readonly name: string
    readonly inserted: number
    readonly updated: number
    readonly deleted: number
  }[]
  readonly conflicts: readonly Readonly<Record<string, unknown>>[]
  readonly conflictCount: number
  readonly dataLoss: readonly DataLoss[]
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

export interface KeyScope {
  readonly workspaces?: readonly string[]
  readonly databases?: readonly string[]
  readonly branches?: readonly string[]
  readonly access?: 'read' | 'write'
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
