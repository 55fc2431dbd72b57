import { AppError } from '@offshoot/contract/errors'
import { BoundedCache } from '../common/bounded-cache.js'
import type { Database, Queryable } from './database.js'
import { codeOf } from './failures.js'
import { schemaIn, tableIn } from './place.js'
import { runTransaction, type Transaction } from './run-transaction.js'
import { ident, join, type Sql, sql } from './sql.js'

/*
 * Statements that callers write run as a role that can read the tables of one schema and nothing else: no rows of
 * other databases, no keys, no users, no files of the server. So their translation is not the only defence.
 *
 * Each schema has a role of its own. Roles belong to the whole server, so the name begins with the id of the instance,
 * and a role is created when the first statement needs it. If our role may not create roles, the role
 * `offshoot_reader` is used for all schemas, if an administrator has created it and granted it to ours. It protects
 * the catalogue, but not databases from each other. Without it, the translation is the only defence.
 */

/** The role for all schemas, if our role may not create others. */
export const SHARED_READER = 'offshoot_reader'

/** How statements of callers are kept apart. */
type ReaderKind = 'each' | 'shared' | 'none'

/** Logged at the start for operators, if the server does not allow a role for each database. */
export const READER_WARNINGS: Readonly<Record<ReaderKind, string | undefined>> = {
  each: undefined,
  shared: `the role of the service may not create roles: SQL of users runs as [${SHARED_READER}] in all databases`,
  none: `the role of the service may not create roles, and has no role [${SHARED_READER}]: SQL of users runs as the role of the service, and only its translation keeps databases apart`,
}

/** Returns which roles this server allows. */
export async function findReaderKind(database: Queryable): Promise<ReaderKind> {
  const [row] = await database.query<{ kind: ReaderKind }>(sql`
    select case
        when rolsuper or rolcreaterole then 'each'
        when exists (
          select from pg_roles r where r.rolname = ${SHARED_READER} and pg_has_role(r.oid, 'member')
        ) then 'shared'
        else 'none'
      end as kind
    from pg_roles
    where rolname = current_user`)
  return row?.kind ?? 'none'
}

const SCHEMAS_MAX = 10_000

/** The roles that read schemas, as one process has prepared them. */
export class ReaderRoles {
  readonly #database: Database
  /** By schema. */
  readonly #prepared = new BoundedCache<Promise<string | undefined>>({ max: SCHEMAS_MAX })

  constructor(database: Database) {
    this.#database = database
  }

  /** Returns the role that reads a schema. Creates it if our role may. undefined: the server has none. */
  find(schema: string): Promise<string | undefined> {
    let found = this.#prepared.get(schema)
    if (found === undefined) {
      found = prepare(this.#database, schema)
      this.#prepared.set(schema, found)
      // Do not cache a failure: PostgreSQL may have been unreachable.
      found.catch(() => this.#prepared.delete(schema))
    }
    return found
  }

  /** Returns whether the role that reads a schema still exists, if the server has such roles. */
  async exists(schema: string): Promise<boolean> {
    const role = await this.find(schema)
    if (role === undefined) return true
    const found = await this.#database.query(sql`select from pg_roles where rolname = ${role}`)
    return found.length > 0
  }

  /**
   * Grants the privileges again after the reader was denied a table. A heap whose creation was not
   * yet committed when the privileges were first granted has none: the default privileges came too
   * late for it, and the grant could not see it. The role may also have been dropped.
   */
  renew(schema: string): Promise<string | undefined> {
    this.#prepared.delete(schema)
    return this.find(schema)
  }
}

/** The role was created at the same time, by another process. */
const RETRIED = new Set(['23505', '42710', 'XX000'])

async function prepare(database: Database, schema: string): Promise<string | undefined> {
  try {
    return await runTransaction(
      database,
      async (transaction) => {
        const kind = await findReaderKind(transaction)
        if (kind === 'none') return undefined
        const role = kind === 'shared' ? SHARED_READER : await createRole(transaction, schema)
        await grant(transaction, { role, schema })
        await transaction.query(sql`set local role ${ident(role)}`)
        return role
      },
      { isolation: 'read committed', retried: RETRIED },
    )
  } catch (error) {
    if (error instanceof AppError) throw error
    return undefined
  }
}

/** Returns the id of the instance, which is part of the names that it uses for the whole server. */
export async function findInstanceId(queryable: Queryable): Promise<string> {
  const [row] = await queryable.query<{ id: string }>(sql`select id from offshoot_work.identity`)
  if (row === undefined) throw new Error('an instance must have an id')
  return row.id
}

/** Returns the name of the role for a schema: `offshoot_<instance>_<schema>`, without the prefix of the schema. */
async function roleName(transaction: Queryable, schema: string): Promise<string> {
  return `offshoot_${await findInstanceId(transaction)}_${schema.replace(/^offshoot_/, '')}`
}

/** No schema has this name, so its role has no privileges in the database of the service. */
const NO_SCHEMA = 'shapes'

/** Returns a role for statements that need no rows. Creates it if our role may. undefined: the server has none. */
export function prepareBareRole(database: Database): Promise<string | undefined> {
  return runTransaction(
    database,
    async (transaction) => {
      const kind = await findReaderKind(transaction)
      if (kind === 'none') return undefined
      return kind === 'shared' ? SHARED_READER : createRole(transaction, NO_SCHEMA)
    },
    { isolation: 'read committed', retried: RETRIED },
  )
}

async function createRole(transaction: Transaction, schema: string): Promise<string> {
  const role = await roleName(transaction, schema)
  // One process at a time: PostgreSQL rejects concurrent grants of the same privileges.
  await transaction.query(sql`select pg_advisory_xact_lock(hashtext(${role}))`)
  const [found] = await transaction.query<{ isMember: boolean }>(sql`
    select pg_has_role(oid, 'member') as "isMember" from pg_roles where rolname = ${role}`)
  if (found === undefined) await transaction.query(sql`create role ${ident(role)} nologin`)
  if (!found?.isMember) await transaction.query(sql`grant ${ident(role)} to current_user`)
  return role
}

/**
 * Up to this number of tables, privileges are granted by name, which locks each table briefly. For
 * more, they are granted for all tables of the schema, which takes no locks, but transactions that
 * change one of the tables at that moment must retry.
 */
const NAMED_MAX = 100

/** Matches the tables of a schema that are not for the reader: they have no rows of tables. */
const isHidden = (name: Sql): Sql => sql`${name} = 'idempotency_keys'`

async function grant(
  transaction: Transaction,
  options: { role: string; schema: string },
): Promise<void> {
  const [role, schema] = [ident(options.role), schemaIn(options.schema)]
  const [rights] = await transaction.query<{
    future: boolean
    lacking: string[]
    hidden: string[]
  }>(sql`
    select
      exists (
        select from pg_default_acl a, aclexplode(a.defaclacl) p
        where a.defaclnamespace = to_regnamespace(${options.schema})
          and a.defaclrole = current_user::regrole
          and p.grantee = to_regrole(${options.role}) and p.privilege_type = 'SELECT'
      ) as future,
      array(
        select tablename::text from pg_tables
        where schemaname = ${options.schema} and not ${isHidden(sql`tablename`)}
          and not has_table_privilege(${options.role}, format('%I.%I', schemaname, tablename), 'select')
      ) as lacking,
      array(
        select tablename::text from pg_tables
        where schemaname = ${options.schema} and ${isHidden(sql`tablename`)}
      ) as hidden`)
  if (!rights?.future) {
    await transaction.query(sql`grant usage on schema ${schema} to ${role}`)
    await transaction.query(sql`
      alter default privileges in schema ${schema} grant select on tables to ${role}`)
  }
  const named = (names: readonly string[] = []) =>
    names.map((name) => tableIn(options.schema, name))
  const tables = named(rights?.lacking)
  if (tables.length === 0) return
  if (tables.length <= NAMED_MAX) {
    await transaction.query(sql`grant select on ${join(tables, ', ')} to ${role}`)
    return
  }
  await transaction.query(sql`grant select on all tables in schema ${schema} to ${role}`)
  const hidden = named(rights?.hidden)
  if (hidden.length === 0) return
  await transaction.query(sql`revoke select on ${join(hidden, ', ')} from ${role}`)
}

/** The role may not be dropped, or a copy of the instance on the same server uses it. */
const KEPT = new Set(['42501', '2BP01'])

/** Drops the role of a schema that was dropped, if there is one. */
export async function dropReader(transaction: Transaction, schema: string): Promise<void> {
  const role = await roleName(transaction, schema)
  await transaction.query(sql`savepoint with_role`)
  try {
    await transaction.query(sql`drop role if exists ${ident(role)}`)
  } catch (error) {
    if (!KEPT.has(codeOf(error) ?? '')) throw error
    await transaction.query(sql`rollback to savepoint with_role`)
  }
}
