import type { Random } from '../seeded-random.js'

/** Names kept per kind, in addition to the initial ones. */
const KEPT_MAX = 24

/**
 * Names and ids that exist in the service, by kind: initial ones, and those from answers. Requests
 * with other names fail at the first check.
 */
export class Stock {
  readonly #first: ReadonlyMap<string, readonly string[]>
  readonly #harvested = new Map<string, string[]>()

  constructor(first: Readonly<Record<string, readonly string[]>>) {
    this.#first = new Map(Object.entries(first))
  }

  add(kind: string, value: unknown): void {
    if (typeof value !== 'string' || value === '' || value.length > 4096) return
    if (this.#first.get(kind)?.includes(value)) return
    const values = this.#harvested.get(kind) ?? []
    if (values.includes(value)) return
    values.push(value)
    if (values.length > KEPT_MAX) values.shift()
    this.#harvested.set(kind, values)
  }

  /** Removes a deleted name. Initial ones are created again. */
  drop(kind: string, value: string | undefined): void {
    const values = this.#harvested.get(kind) ?? []
    this.#harvested.set(
      kind,
      values.filter((kept) => kept !== value),
    )
  }

  /** Returns undefined if there is nothing of that kind. */
  pick(random: Random, kind: string): string | undefined {
    const first = this.#first.get(kind) ?? []
    const harvested = this.#harvested.get(kind) ?? []
    const isFirst = harvested.length === 0 || (first.length > 0 && random.chance(0.6))
    const values = isFirst ? first : harvested
    return values.length === 0 ? undefined : random.pick(values)
  }
}

/** Returns the kind of a text, by the title of its schema or by its name. */
export function kindOf(name: string, title: string | undefined): string | undefined {
  const kind = KIND_BY_NAME.get(name) ?? KIND_BY_TITLE.get(title ?? '')
  return kind ?? (name === 'id' ? 'recordId' : undefined)
}

const KIND_BY_TITLE: ReadonlyMap<string, string> = new Map([
  ['DBName', 'databaseName'],
  ['BranchName', 'branchName'],
  ['BranchPattern', 'branchName'],
  ['TableName', 'tableName'],
  ['ColumnName', 'columnName'],
  ['ColumnPath', 'columnName'],
  ['DBBranchName', 'databaseBranch'],
  ['RecordID', 'recordId'],
  ['FileItemID', 'fileId'],
  ['WorkspaceID', 'workspaceId'],
  ['MigrationID', 'migrationId'],
  ['Email', 'email'],
])

const KIND_BY_NAME: ReadonlyMap<string, string> = new Map([
  ['workspaceId', 'workspaceId'],
  ['databaseName', 'databaseName'],
  ['databaseBranch', 'databaseBranch'],
  ['branchName', 'branchName'],
  ['serviceBranch', 'branchName'],
  ['against', 'branchName'],
  ['tableName', 'tableName'],
  ['table', 'tableName'],
  ['columnName', 'columnName'],
  ['column', 'columnName'],
  ['recordId', 'recordId'],
  ['userId', 'userId'],
  ['invite', 'invite'],
  ['keyName', 'keyName'],
  ['checkpoint', 'checkpoint'],
  ['entry', 'entry'],
  ['constraintName', 'constraintName'],
  ['constraint', 'constraintName'],
  ['check', 'check'],
  ['fileId', 'fileId'],
  ['accessId', 'accessId'],
  ['verify', 'verify'],
  ['gitBranch', 'gitBranch'],
  ['region', 'region'],
  ['after', 'cursor'],
  ['before', 'cursor'],
  ['start', 'cursor'],
  ['end', 'cursor'],
  ['since', 'migrationId'],
  ['parentID', 'migrationId'],
])
