import type { EntryKind } from '@offshoot/contract/log'
import { newEntryId } from '../../common/ids.js'
import type { Queryable } from '../../postgres/database.js'
import { empty, Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import type { Principal } from '../access/principal.js'
import type { BranchAccess, WorkspaceAccess } from '../access/resolve.js'

/*
 * An entry of the log is written by the transaction of what it describes. It names what was done and how much, and never
 * contains values of records.
 */

/** Who did something. */
export type Actor = Pick<Principal, 'userId' | 'keyId' | 'requestId'>

/** Values are given, or read from the relations of the statement. */
export interface NewEntry {
  readonly id?: string | Sql
  readonly kind: EntryKind
  /** Undefined: the service did it by itself. */
  readonly by: Actor | undefined
  readonly workspaceId: string | Sql
  readonly databaseId?: string | Sql | undefined
  readonly branchId?: string | Sql | undefined
  readonly details?: Readonly<Record<string, unknown>> | Sql
}

/** Returns where the entry of an operation on a workspace, a database or a branch belongs. */
export function entryOf(
  access: WorkspaceAccess &
    Partial<Pick<BranchAccess, 'databaseId' | 'databaseName' | 'branchId' | 'branchName'>>,
): Omit<NewEntry, 'id' | 'kind' | 'details'> & { readonly details: Record<string, unknown> } {
  const { principal: by, workspaceId, databaseId, databaseName, branchId, branchName } = access
  const details = {
    ...(databaseName === undefined ? {} : { database: databaseName }),
    ...(branchName === undefined ? {} : { branch: branchName }),
  }
  return { by, workspaceId, databaseId, branchId, details }
}

/** Adds an entry. */
export async function insertEntry(transaction: Queryable, entry: NewEntry): Promise<void> {
  await transaction.query(prepared(insertEntrySql(entry)))
}

/** Adds an entry for an operation on a workspace, a database or a branch. */
export async function logAccess(
  transaction: Queryable,
  access: Parameters<typeof entryOf>[0],
  { kind, details }: { kind: EntryKind; details?: Readonly<Record<string, unknown>> },
): Promise<void> {
  const entry = entryOf(access)
  await insertEntry(transaction, { ...entry, kind, details: { ...entry.details, ...details } })
}

/**
 * Returns a statement that adds an entry. With `from`, it adds one for each row of these relations, which values of the
 * entry can read.
 */
export function insertEntrySql(entry: NewEntry, from: Sql = empty): Sql {
  const { id = newEntryId(), kind, by, workspaceId, databaseId, branchId, details = {} } = entry
  const fields = details instanceof Sql ? details : sql`${JSON.stringify(details)}::jsonb`
  return sql`
    insert into offshoot.log
      (id, workspace_id, database_id, branch_id, kind, user_id, key_name, request_id, details)
    select ${id}::text, ${workspaceId}::text, ${databaseId ?? null}::bigint, ${branchId ?? null}::text,
      ${kind}::text, ${by?.userId ?? null}::text, ${keyName(by)}, ${by?.requestId ?? null}::text,
      ${fields}
    ${from}`
}

/**
 * Returns a statement that adds to the numbers of records of an entry, and adds further details: each part of a load is a
 * transaction of its own.
 */
export const growEntrySql = (
  id: string,
  counts: object,
  further: Readonly<Record<string, unknown>>,
): Sql => sql`
    update offshoot.log
    set details = details || ${JSON.stringify(further)}::jsonb || jsonb_build_object('counts', (
      select jsonb_object_agg(c.name, (details #>> array['counts', c.name])::bigint + c.added::bigint)
      from jsonb_each_text(${JSON.stringify(counts)}::jsonb) as c (name, added)
    ))
    where id = ${id}`

/** The name of the key, or of the key that a session of the console belongs to. */
export const keyName = (by: Actor | undefined): Sql => sql`(
        select coalesce(p.name, k.name)
        from offshoot.api_keys k
        left join offshoot.api_keys p on p.id = k.parent_id
        where k.id = ${by?.keyId ?? null}::bigint
      )`

/**
 * Adds an entry to each workspace that a key of the user can reach, such as for a new key. `workspaces` are those of the
 * scope of the key; undefined for all workspaces of the user.
 */
export async function insertUserEntry(
  transaction: Queryable,
  by: Actor,
  {
    workspaces,
    ...entry
  }: Pick<NewEntry, 'kind' | 'details'> & {
    readonly workspaces: readonly string[] | undefined
  },
): Promise<void> {
  const isReached =
    workspaces === undefined ? empty : sql`and m.workspace_id = any(${workspaces}::text[])`
  const id = sql`${newEntryId()}::text || '_' || m.workspace_id`
  await transaction.query(
    insertEntrySql(
      { ...entry, by, id, workspaceId: sql`m.workspace_id` },
      sql`from offshoot.members m where m.user_id = ${by.userId} ${isReached}`,
    ),
  )
}
