import type { StartedFrom } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import type { StoredColumn, StoredSchema } from '../../rows/columns/stored-schema.js'
import type { BranchRows, ReadIds } from '../../rows/layout/layout.js'
import { RowState } from '../../rows/row-state.js'
import { isLive } from '../access/is-live.js'
import type { BranchAccess } from '../access/resolve.js'
import { scopeReachesBranch } from '../access/scope.js'
import type { SameIds } from '../schemas/same-ids.js'

/** A row of the catalogue that an access is compared with. */
interface NamedBranch {
  readonly id: string
  readonly name: string
  readonly databaseId: string
}

/** Returns whether a row of the catalogue is the branch that an access was granted to, under its name and in its database. */
export function isBranchOf(access: BranchAccess, row: NamedBranch): boolean {
  return (
    row.id === access.branchId &&
    row.name === access.branchName &&
    row.databaseId === access.databaseId
  )
}

export function branchNotFound({ branchName }: BranchAccess): AppError {
  return new AppError('branch_not_found', `branch [${branchName}] not found`)
}

/** Columns that are read in place of others, by the id of their table, and then by the id of the other column. */
export type ReadColumns = ReadonlyMap<number, ReadonlyMap<number, StoredColumn>>

/** The state of a branch at one point in time: its schema and the location of its rows. */
export interface BranchState {
  readonly rows: BranchRows
  readonly schema: StoredSchema
  /** The schema that a fork started with, if it was read, too. */
  readonly startSchema?: StoredSchema | undefined
  /** How the rows are stored, where the schema has other ids than the rows. */
  readonly storedIds?: ReadIds | undefined
  /** The columns of the state that are read in place of merged ones. */
  readonly readAs?: ReadColumns | undefined
}

interface OriginRow {
  readonly startedFrom: StartedFrom | null
  /** The branch that rows are inherited from. A reset can change it without changing the source. */
  readonly parentName: string | null
  readonly forkSchema: StoredSchema | null
}

/** Returns the state of a branch. Throws if the branch is no longer the one that the access was granted to. */
export async function getState(database: Queryable, access: BranchAccess): Promise<BranchState> {
  const state = await findState(database, access)
  if (state === undefined) throw branchNotFound(access)
  return state
}

async function findState(
  database: Queryable,
  access: BranchAccess,
): Promise<BranchState | undefined> {
  const [row] = await database.query<
    NamedBranch & {
      found: unknown
      schema: StoredSchema
      isSchemaOfStart: boolean | null
      startSchema: StoredSchema | null
    }
  >(
    prepared(sql`
    select at.id, at.name, at.database_id as "databaseId",
      (${RowState.select(sql`at.id`)}) as found, s.document as schema,
      at.fork_schema_id = at.schema_id as "isSchemaOfStart", f.document as "startSchema"
    from offshoot.branches at
    join offshoot.schemas s on s.id = at.schema_id
    left join offshoot.schemas f on f.id = nullif(at.fork_schema_id, at.schema_id)
    where at.id = ${access.branchId}`),
  )
  const rows = RowState.read(row?.found)
  if (row === undefined || rows === undefined || !isBranchOf(access, row)) return undefined
  const { schema, isSchemaOfStart, startSchema } = row
  return { rows, schema, startSchema: isSchemaOfStart ? schema : (startSchema ?? undefined) }
}

/** Returns a state by the ids by which its tables and columns are read. */
export function readState({ rows, schema, storedIds }: BranchState, ids: SameIds): BranchState {
  return {
    rows: new RowState(rows).readBy(ids.readIds(schema), storedIds),
    schema: ids.read(schema),
  }
}

/** Returns the state that a fork started with, and which state of its parent that is, if both are known. */
export function startOf({ rows, startSchema }: BranchState) {
  const { startPoint: at, start } = new RowState(rows)
  if (at === undefined || startSchema === undefined) return undefined
  const state: BranchState = { rows: start, schema: startSchema }
  return { at, state }
}

async function findOrigin(database: Queryable, branchId: string): Promise<OriginRow | undefined> {
  const [row] = await database.query<OriginRow>(
    prepared(sql`
    select b.started_from as "startedFrom", p.name as "parentName", s.document as "forkSchema"
    from offshoot.branches b
    left join offshoot.branches p on p.id = b.parent_id
    left join offshoot.schemas s on s.id = b.fork_schema_id
    where b.id = ${branchId}`),
  )
  return row
}

/** Returns the state that a fork started with. The fork may be hidden. */
export async function getStartOf(database: Queryable, branchId: string): Promise<BranchState> {
  const state = await findStart(database, sql`${branchId}`)
  if (state === undefined) throw new Error('a fork must exist')
  return state
}

/** Finds the state of a branch at the end of an epoch, if there is a fork of it. */
export function findStateAt(
  database: Queryable,
  state: { readonly branchId: string; readonly epoch: number },
): Promise<BranchState | undefined> {
  return findStart(database, sql`(${forkAtSql(state)})`)
}

/** Selects the id of a fork that reads a branch as it was at the end of an epoch. */
export function forkAtSql(state: { readonly branchId: string; readonly epoch: number }): Sql {
  return sql`
    select id
    from offshoot.branches
    where parent_id = ${state.branchId} and fork_epoch = ${state.epoch}
    order by id
    limit 1`
}

async function findStart(database: Queryable, forkId: Sql): Promise<BranchState | undefined> {
  const [row] = await database.query<{ found: unknown; schema: StoredSchema | null }>(
    prepared(sql`
    select (${RowState.select(sql`at.id`, { hidden: true })}) as found, s.document as schema
    from offshoot.branches at
    left join offshoot.schemas s on s.id = at.fork_schema_id
    where at.id = ${forkId}`),
  )
  const rows = RowState.read(row?.found)
  if (row === undefined || rows === undefined) return undefined
  // The first version of the catalogue did not store the schema at the fork.
  if (row.schema === null) {
    throw new AppError('no_source', 'the schema that the branch had when it was forked is unknown')
  }
  return { rows: new RowState(rows).start, schema: row.schema }
}

/**
 * Returns the state that a branch started from, at its fork or at its last reset. The name of the other
 * branch is undefined if it is outside the scope of the key.
 */
export async function getForkState(
  database: Queryable,
  access: BranchAccess,
  { rows }: BranchState,
): Promise<BranchState & { name: string | undefined }> {
  const origin = await findOrigin(database, access.branchId)
  const branchName = origin?.parentName ?? origin?.startedFrom?.branchName
  if (branchName === undefined || origin?.forkSchema == null) throw noSource(access)
  return {
    name: scopeReachesBranch(access.principal.scope, branchName) ? branchName : undefined,
    rows: new RowState(rows).start,
    schema: origin.forkSchema,
  }
}

/** Finds the source of a branch, if it still exists in the same database. Does not check the scope of the key. */
export async function findSource(
  database: Queryable,
  access: BranchAccess,
): Promise<BranchAccess | undefined> {
  const [source] = await database.query<NamedBranch>(
    prepared(sql`
    select id, name, database_id as "databaseId"
    from offshoot.branches
    where id = (
        select of.started_from ->> 'dbBranchID'
        from offshoot.branches of
        where of.id = ${access.branchId}
      )
      and ${isLive}`),
  )
  if (source === undefined || source.databaseId !== access.databaseId) return undefined
  return { ...access, branchId: source.id, branchName: source.name }
}

/** Returns the source of a branch. Throws if it no longer exists or the scope of the key excludes it. */
export async function getSource(database: Queryable, access: BranchAccess): Promise<BranchAccess> {
  const source = await findSource(database, access)
  if (source === undefined || !scopeReachesBranch(access.principal.scope, source.branchName)) {
    throw noSource(access)
  }
  return source
}

function noSource({ branchName }: BranchAccess): AppError {
  return new AppError(
    'no_source',
    `branch [${branchName}]: was not forked from another branch, or that branch no longer exists`,
  )
}
