import { AppError } from '@offshoot/contract/errors'
import type { Database } from './database.js'
import { runTransaction, type Transaction } from './run-transaction.js'
import { ident, join, type Sql, sql } from './sql.js'

/*
 * A role that can read rows and nothing else: no keys, no users, no files of the server. Statements
 * that callers write run as this role, as a second line of defence behind their translation. Some
 * servers do not let us create it; then the translation is the only defence.
 */

const READER = 'offshoot_reader'

export const BECOME_READER: Sql = sql`set local role ${ident(READER)}`
export const BECOME_SELF: Sql = sql`set local role none`

const known = new WeakMap<Database, Promise<boolean>>()

/** Returns whether the reader role exists and can be used. Creates it if our role may. */
export function hasReader(database: Database): Promise<boolean> {
  let found = known.get(database)
  if (found === undefined) {
    found = prepare(database)
    known.set(database, found)
    // Do not cache a failure: PostgreSQL may have been unreachable.
    found.catch(() => known.delete(database))
  }
  return found
}

/**
 * Grants the privileges again after the reader was denied a table. A heap whose creation was not
 * yet committed when the privileges were first granted has none: the default privileges came too
 * late for it, and the grant could not see it.
 */
export function renewReader(database: Database): Promise<boolean> {
  known.delete(database)
  return hasReader(database)
}

/**
 * The role was created at the same time, in another database of the server or by another process.
 */
const RETRIED = new Set(['23505', '42710', 'XX000'])

async function prepare(database: Database): Promise<boolean> {
  try {
    await runTransaction(database, grant, { isolation: 'read committed', retried: RETRIED })
    await runTransaction(database, (transaction) => transaction.query(BECOME_READER), {
      readOnly: true,
    })
    return true
  } catch (error) {
    if (error instanceof AppError) throw error
    return false
  }
}

/**
 * Up to this number of tables, privileges are granted by name, which locks each table briefly. For
 * more, they are granted for all tables of the schema, which takes no locks, but transactions that
 * change one of the tables at that moment must retry.
 */
const NAMED_MAX = 100

async function grant(transaction: Transaction): Promise<void> {
  const reader = ident(READER)
  // One process at a time: PostgreSQL rejects concurrent grants of the same privileges.
  await transaction.query(sql`select pg_advisory_xact_lock(hashtext(${READER}))`)
  const [role] = await transaction.query<{ isMember: boolean }>(sql`
    select pg_has_role(oid, 'member') as "isMember" from pg_roles where rolname = ${READER}`)
  if (role === undefined) await transaction.query(sql`create role ${reader} nologin`)
  if (!role?.isMember) await transaction.query(sql`grant ${reader} to current_user`)
  const [rights] = await transaction.query<{ future: boolean; lacking: string[] }>(sql`
    select
      exists (
        select from pg_default_acl a
        join pg_namespace n on n.oid = a.defaclnamespace
        where n.nspname = 'offshoot_rows' and a.defaclrole = current_user::regrole
          and array_to_string(a.defaclacl, ',') like ${`%${READER}=r/%`}
      ) as future,
      array(
        select tablename::text from pg_tables
        where schemaname = 'offshoot_rows'
          and not has_table_privilege(${READER}, format('%I.%I', schemaname, tablename), 'select')
      ) as lacking`)
  if (!rights?.future) {
    await transaction.query(sql`grant usage on schema offshoot_rows to ${reader}`)
    await transaction.query(sql`
      alter default privileges in schema offshoot_rows grant select on tables to ${reader}`)
  }
  const tables = rights?.lacking.map((name) => sql`offshoot_rows.${ident(name)}`) ?? []
  if (tables.length === 0) return
  const objects =
    tables.length > NAMED_MAX ? sql`all tables in schema offshoot_rows` : join(tables, ', ')
  await transaction.query(sql`grant select on ${objects} to ${reader}`)
}
