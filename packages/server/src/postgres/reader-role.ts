import { AppError } from '@offshoot/contract/errors'
import type { Database } from './database.js'
import { runTransaction, type Transaction } from './run-transaction.js'
import { ident, join, type Sql, sql } from './sql.js'

/*
 * A role that can read rows and nothing else: no keys, no users, no files of the server. Statements
 * that callers write run as it, so that even one that should not have been let through finds nothing.
 * Not every server lets us have it; then what keeps statements in is their translation alone.
 */

const READER = 'offshoot_reader'

export const BECOME_READER: Sql = sql`set local role ${ident(READER)}`
export const BECOME_SELF: Sql = sql`set local role none`

const known = new WeakMap<Database, Promise<boolean>>()

/** Whether there is such a role that we can become. Makes it when it can. */
export function hasReader(database: Database): Promise<boolean> {
  let found = known.get(database)
  if (found === undefined) {
    found = prepare(database)
    known.set(database, found)
    // That PostgreSQL could not be asked says nothing about the next time.
    found.catch(() => known.delete(database))
  }
  return found
}

/**
 * For the reader that was refused a table. A heap that was being made while the rights were granted
 * for the first time has none: it began before what is true for new ones, and could not be seen yet.
 */
export function renewReader(database: Database): Promise<boolean> {
  known.delete(database)
  return hasReader(database)
}

/** Made at the same moment in another database of the server, or by another process. */
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
 * Tables that are named are locked for a moment, and there is not room for any number of locks. All
 * at once they are not, and whoever changes one of them at that moment has to start over.
 */
const NAMED_MAX = 100

async function grant(transaction: Transaction): Promise<void> {
  const reader = ident(READER)
  // One process at a time: the same rights granted twice at once are refused.
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
