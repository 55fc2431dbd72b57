import type { Transaction } from '../run-transaction.js'
import { ident, join, literal, type Sql, sql } from '../sql.js'

/*
 * Versions before schemas of databases kept the answers to idempotency keys in the catalogue. The answers of the last day
 * are moved to their databases, so that a request that was executed before the upgrade is not executed again.
 */

/** Databases whose answers are moved by one transaction, which locks several relations for each. */
const STEP_DATABASES = 50
/** Bytes that an answer takes beside its text. */
const ENTRY_BYTES = 256

/**
 * Moves the answers of some databases. Returns whether there may be more. If a start is interrupted, the next one
 * continues.
 */
export async function moveAnswers(transaction: Transaction): Promise<boolean> {
  await transaction.query(sql`
    delete from offshoot.idempotency_keys where created_at <= now() - interval '24 hours'`)
  // The first versions did not note the database. The hash includes the branch, so an answer that is in every database is
  // still found in one only.
  await transaction.query(sql`
    alter table offshoot.idempotency_keys drop constraint if exists idempotency_keys_pkey`)
  await transaction.query(sql`
    insert into offshoot.idempotency_keys
      (hash, request_hash, status, body, size, created_at, database_id)
    select k.hash, k.request_hash, k.status, k.body, k.size, k.created_at, d.id
    from offshoot.idempotency_keys k, offshoot.databases d
    where k.database_id is null`)
  await transaction.query(sql`
    delete from offshoot.idempotency_keys k
    where k.database_id is null
      or not exists (select from offshoot.databases d where d.id = k.database_id)`)
  const databases = await transaction.query<{ id: string }>(sql`
    select distinct database_id as id
    from offshoot.idempotency_keys
    order by database_id
    limit ${STEP_DATABASES}`)
  if (databases.length === 0) return false
  await transaction.query(
    join(
      databases.flatMap(({ id }) => moveStatements(id)),
      ';\n',
    ),
  )
  return true
}

function moveStatements(databaseId: string): Sql[] {
  const isOfDatabase = sql`database_id = ${literal(databaseId)}::bigint`
  return [
    sql`
      insert into ${ident(`offshoot_db_${databaseId}`)}.idempotency_keys
        (hash, request_hash, body, size, created_at)
      select hash, request_hash, body,
        greatest(size, coalesce(octet_length(body), 0) + ${literal(String(ENTRY_BYTES))}::integer),
        created_at
      from offshoot.idempotency_keys
      where ${isOfDatabase}
      on conflict (hash) do nothing`,
    sql`delete from offshoot.idempotency_keys where ${isOfDatabase}`,
  ]
}

/** Applied after all answers are moved. */
export const keptAnswers = `
drop table offshoot.idempotency_keys;
`
