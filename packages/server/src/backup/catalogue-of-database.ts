import { afterName, beforeOfAfterName } from '../domain/checkpoints/queries.js'
import { join, type Sql, sql } from '../postgres/sql.js'

/*
 * The rows of the catalogue that belong to one database, and how they are carried over to another database, in the
 * same instance or in another one. Ids of databases, branches, schemas, heaps, checkpoints and entries of the log are unique in
 * an instance, so a restored database gets new ones. Ids of tables and columns are only compared within a database, and stay: schemas
 * and the columns of heaps are copied as they are. Migrations have ids that only their database knows, and keep them.
 */

/** The kinds of ids that are replaced. */
export const REPLACED_IDS = ['branches', 'heaps', 'schemas', 'checkpoints', 'log'] as const
export type ReplacedId = (typeof REPLACED_IDS)[number]

/** The fields of an entry of the log that name a checkpoint, and those that name another entry. */
const NAMED_BY_ENTRIES = {
  checkpoints: ['checkpoint', 'after', 'fromCheckpoint', 'toCheckpoint'],
  log: ['reverts', 'removedLoad', 'restoredLoad'],
} as const

/** Selects the fields of entries of the log. */
const fieldsOf = (details: Sql): Sql => sql`
      jsonb_each(case jsonb_typeof(${details}) when 'object' then ${details} else '{}' end) d`
const isNameOf = (kind: keyof typeof NAMED_BY_ENTRIES): Sql =>
  sql`d.key = any(${NAMED_BY_ENTRIES[kind]}::text[]) and jsonb_typeof(d.value) = 'string'`

/**
 * Selects the ids of a kind that rows have or mention. A branch, a checkpoint or an entry that the archive only mentions gets
 * a new id, too: in another instance, the old one may be that of somebody else.
 */
export const TEXT_IDS: Readonly<
  Record<'branches' | 'checkpoints' | 'log', (stage: (table: string) => Sql) => Sql>
> = {
  branches: (stage) => sql`
    select id from ${stage('branches')}
    union
    select ${sourceOf(sql`started_from`)} from ${stage('branches')}
    where ${sourceOf(sql`started_from`)} is not null`,
  checkpoints: (stage) => sql`
    select id from ${stage('checkpoints')}
    union
    select d.value #>> '{}' from ${stage('log')}, ${fieldsOf(sql`details`)} where ${isNameOf('checkpoints')}`,
  log: (stage) => sql`
    select id from ${stage('log')}
    union
    select entry_id from ${stage('loads')}
    union
    select entry_id from ${stage('proposals')} where entry_id is not null
    union
    select d.value #>> '{}' from ${stage('log')}, ${fieldsOf(sql`details`)} where ${isNameOf('log')}`,
}

/** Values that replace those of the archive in each restored row. */
export interface Restored {
  readonly databaseId: Sql
  readonly workspaceId: Sql
  readonly name: Sql
  readonly region: Sql
  /** Returns the new id for an old one. */
  replaced(kind: ReplacedId, id: Sql): Sql
}

/** Returns the value of a column in the restored row `s`. */
type Rule = (column: Sql, restored: Restored) => Sql

const copied: Rule = (column) => column
/** The default of the column applies, such as a number from a sequence. */
const renewed = undefined
const ofDatabase: Rule = (_column, { databaseId }) => databaseId
const ofBranch: Rule = (column, { replaced }) => replaced('branches', column)
const ofHeap: Rule = (column, { replaced }) => replaced('heaps', column)
const ofSchema: Rule = (column, { replaced }) => replaced('schemas', column)
const ofCheckpoint: Rule = (column, { replaced }) => replaced('checkpoints', column)
const ofEntry: Rule = (column, { replaced }) => replaced('log', column)

/** By default, the name of a checkpoint is its id. The name of one after a change has the id of the one before it. */
const checkpointName: Rule = (column, { replaced }) => sql`
      coalesce(
        ${replaced('checkpoints', column)},
        ${afterName(replaced('checkpoints', beforeOfAfterName(column)))},
        ${column}
      )`

const details: Rule = (column, { replaced }) => {
  const text = sql`d.value #>> '{}'`
  const cases = (['checkpoints', 'log'] as const).map(
    (kind) => sql`when ${isNameOf(kind)} then to_jsonb(${replaced(kind, text)})`,
  )
  return sql`
      case jsonb_typeof(${column}) when 'object' then (
        select coalesce(jsonb_object_agg(d.key, case ${join(cases, ' ')}
          when d.key = 'name' then coalesce(to_jsonb(${replaced('checkpoints', text)}), d.value)
          else d.value end), '{}')
        from ${fieldsOf(column)}
      ) else ${column} end`
}

/**
 * Names the source by its new id. A source that is not in the archive has one, too, which no branch has. A value of
 * another shape stays, and is refused later.
 */
const startedFrom: Rule = (column, { replaced }) => sql`
      case when jsonb_typeof(${column} -> 'dbBranchID') = 'string'
        then jsonb_set(${column}, '{dbBranchID}', to_jsonb(${replaced('branches', sourceOf(column))}))
        else ${column} end`

/** Returns the id of the branch that a branch was forked from. It may be deleted. */
const sourceOf = (startedFrom: Sql): Sql => sql`${startedFrom} ->> 'dbBranchID'`

export interface CatalogueTable {
  readonly name: string
  /** Selects the rows of a database. */
  readonly where: (databaseId: Sql) => Sql
  /** All columns of the table. */
  readonly columns: Readonly<Record<string, Rule | undefined>>
  /** The order in which new numbers are given to rows. */
  readonly order?: Sql
}

const isOfDatabase = (databaseId: Sql): Sql => sql`database_id = ${databaseId}`
const isOfBranches = (column: Sql) => (databaseId: Sql) =>
  sql`${column} in (select b.id from offshoot.branches b where b.database_id = ${databaseId})`
/** Heaps without a branch wait for the collector, and nothing reads them. */
export const isHeapOfDatabase = (databaseId: Sql): Sql =>
  sql`${isOfDatabase(databaseId)} and ${isOfBranches(sql`branch_id`)(databaseId)}`
const isOfHeaps = (databaseId: Sql): Sql =>
  sql`heap_id in (select id from offshoot.heaps where ${isHeapOfDatabase(databaseId)})`

/** The branch of a sweep or a fold. For a fold, the table follows. */
const workBranch = (subject: Sql): Sql => sql`split_part(${subject}, ' ', 1)`
/** A restored database is compacted anyway. */
const isWorkOfDatabase = (databaseId: Sql): Sql =>
  sql`${isOfDatabase(databaseId)} and kind <> 'compact'
      and (kind = 'migrations' or ${isOfBranches(workBranch(sql`subject`))(databaseId)})`
const workSubject: Rule = (column, { replaced }) => sql`
      case s.kind when 'migrations' then ${column} else
        ${replaced('branches', workBranch(column))} || substr(${column}, length(${workBranch(column)}) + 1) end`

/** In the order in which rows refer to each other. */
export const CATALOGUE_OF_DATABASE: readonly CatalogueTable[] = [
  {
    name: 'databases',
    where: (databaseId) => sql`id = ${databaseId}`,
    columns: {
      id: ofDatabase,
      workspace_id: (_column, { workspaceId }) => workspaceId,
      name: (_column, { name }) => name,
      region: (_column, { region }) => region,
      color: copied,
      repository: copied,
      search_enabled: copied,
      default_branch_id: ofBranch,
      created_at: copied,
      last_proposal: copied,
    },
  },
  {
    name: 'schemas',
    where: isOfDatabase,
    columns: { id: ofSchema, database_id: ofDatabase, document: copied },
  },
  {
    name: 'migrations',
    where: isOfDatabase,
    columns: {
      id: copied,
      database_id: ofDatabase,
      parent_id: copied,
      checksum: copied,
      operations: copied,
      title: copied,
      message: copied,
      created_at: copied,
    },
  },
  {
    name: 'branches',
    where: isOfDatabase,
    columns: {
      id: ofBranch,
      database_id: ofDatabase,
      name: copied,
      parent_id: ofBranch,
      fork_epoch: copied,
      epoch: copied,
      schema_id: ofSchema,
      version: copied,
      last_migration_id: copied,
      started_from: startedFrom,
      metadata: copied,
      stamp: renewed,
      created_at: copied,
      deleted_at: copied,
      fork_schema_id: ofSchema,
      fork_stamp: renewed,
      protected: copied,
      expires_at: copied,
      ttl_seconds: copied,
      resets: renewed,
      checkpoint_every: copied,
      checkpoint_keep: copied,
      checkpoint_due: copied,
      required_approvals: copied,
    },
    order: sql`fork_stamp`,
  },
  {
    name: 'heaps',
    where: isHeapOfDatabase,
    columns: {
      id: ofHeap,
      database_id: ofDatabase,
      branch_id: ofBranch,
      table_id: copied,
      column_ids: copied,
      column_epochs: copied,
      epoch: copied,
      file_column_ids: copied,
      kind: copied,
      until_epoch: copied,
      next_branch_id: ofBranch,
    },
  },
  {
    name: 'git_branches',
    where: isOfDatabase,
    columns: {
      database_id: ofDatabase,
      git_branch: copied,
      branch_id: ofBranch,
      created_at: copied,
    },
  },
  {
    name: 'branch_rules',
    where: isOfDatabase,
    columns: { database_id: ofDatabase, position: copied, pattern: copied, settings: copied },
  },
  {
    name: 'merges',
    where: isOfBranches(sql`into_branch_id`),
    columns: {
      id: renewed,
      into_branch_id: ofBranch,
      into_epoch: copied,
      from_branch_id: ofBranch,
      from_epoch: copied,
      base_branch_id: ofBranch,
      left_out: copied,
      merged_at: copied,
    },
    order: sql`id`,
  },
  {
    name: 'checkpoints',
    where: isOfDatabase,
    columns: {
      id: ofCheckpoint,
      database_id: ofDatabase,
      branch_id: ofBranch,
      pin_id: ofBranch,
      name: checkpointName,
      note: copied,
      kind: copied,
      before: copied,
      created_at: copied,
    },
  },
  {
    name: 'proposals',
    where: isOfDatabase,
    columns: {
      database_id: ofDatabase,
      number: copied,
      from_branch_id: ofBranch,
      from_name: copied,
      into_branch_id: ofBranch,
      into_name: copied,
      title: copied,
      body: copied,
      user_id: copied,
      key_name: copied,
      state: copied,
      revision: copied,
      from_pin_id: ofBranch,
      into_pin_id: ofBranch,
      created_at: copied,
      ended_at: copied,
      ended_by: copied,
      entry_id: ofEntry,
    },
  },
  {
    name: 'proposal_comments',
    where: isOfDatabase,
    columns: {
      position: renewed,
      id: renewed,
      database_id: ofDatabase,
      number: copied,
      user_id: copied,
      key_name: copied,
      body: copied,
      table_name: copied,
      record_id: copied,
      column_name: copied,
      revision: copied,
      created_at: copied,
    },
    order: sql`position`,
  },
  {
    name: 'proposal_reviews',
    where: isOfDatabase,
    columns: {
      database_id: ofDatabase,
      number: copied,
      user_id: copied,
      key_name: copied,
      verdict: copied,
      body: copied,
      revision: copied,
      created_at: copied,
    },
  },
  {
    name: 'sequences',
    where: isOfDatabase,
    columns: { database_id: ofDatabase, item_id: copied, last: copied, continues: copied },
  },
  {
    name: 'log',
    where: isOfBranches(sql`branch_id`),
    columns: {
      position: renewed,
      id: ofEntry,
      workspace_id: (_column, { workspaceId }) => workspaceId,
      database_id: ofDatabase,
      branch_id: ofBranch,
      kind: copied,
      at: copied,
      user_id: copied,
      key_name: copied,
      request_id: copied,
      details,
    },
    order: sql`position`,
  },
  {
    name: 'loads',
    // Ids of a load that has not ended have no entry.
    where: (databaseId) => sql`${isOfDatabase(databaseId)} and entry_id in (
      select l.id from offshoot.log l where ${isOfBranches(sql`l.branch_id`)(databaseId)})`,
    columns: {
      part: renewed,
      entry_id: ofEntry,
      database_id: ofDatabase,
      table_id: copied,
      at: copied,
      until: copied,
      ids: copied,
    },
    order: sql`part`,
  },
  {
    name: 'private_contents',
    where: isOfDatabase,
    columns: { database_id: ofDatabase, sha256: copied, created_at: copied },
  },
  {
    name: 'index_work',
    where: isOfHeaps,
    columns: { heap_id: ofHeap, column_id: copied, stamp: renewed, failure: copied },
  },
  {
    name: 'work',
    where: isWorkOfDatabase,
    // It starts over, and a sweep looks at all versions: the heaps that it is done with have other ids.
    columns: {
      id: renewed,
      kind: copied,
      database_id: ofDatabase,
      subject: workSubject,
      details: () => sql`'[null]'::jsonb`,
      position: renewed,
      created_at: renewed,
      due_at: renewed,
      failures: renewed,
      error: renewed,
    },
    order: sql`id`,
  },
]

const byName = new Map(CATALOGUE_OF_DATABASE.map((table) => [table.name, table]))

/** Returns how a table of the catalogue is carried over. undefined: not at all. */
export const tableOfDatabase = (name: string): CatalogueTable | undefined => byName.get(name)

/**
 * Tables of the catalogue that have nothing of a database, or nothing that another one needs: contents are entered when
 * files are restored.
 */
export const NOT_OF_DATABASE: readonly string[] = [
  'api_keys',
  'blob_check_mentions',
  'blob_checks',
  'blobs',
  'catalogue_migrations',
  'invites',
  'link_keys',
  'members',
  'secrets',
  'sign_in_tokens',
  'upload_claims',
  'users',
  'workspace_blobs',
  'workspace_usage',
  'workspaces',
]
