import type { Transaction } from '../run-transaction.js'
import { ident, join, literal, type Sql, sql } from '../sql.js'

/*
 * The last versions of deleted records are in the schema of their database, because the same statements write them and
 * rows. The floors of heaps are entries of the same table.
 */

/** Databases whose entries are moved by one transaction, which locks several relations for each. */
const STEP_DATABASES = 50

/**
 * Moves the entries of some databases. Returns whether there may be more. If a start is interrupted, the next one
 * continues.
 */
export async function moveDeletedRecords(transaction: Transaction): Promise<boolean> {
  // Without this table, processes of an earlier version fail, instead of adding entries that nobody finds.
  const [earlier] = await transaction.query<{ isThere: boolean }>(sql`
    select to_regclass('offshoot.deleted_records') is not null as "isThere"`)
  if (earlier?.isThere) {
    await transaction.query(sql`alter table offshoot.deleted_records rename to moved_records`)
  }
  const databases = await transaction.query<{ id: string; readers: string[] }>(sql`
    select substr(n.nspname, ${'offshoot_db_'.length + 1}) as id, array(
        -- Roles that can read all tables that are created in the schema.
        select distinct pg_get_userbyid(p.grantee)::text
        from pg_default_acl a, aclexplode(a.defaclacl) p
        where a.defaclnamespace = n.oid and p.privilege_type = 'SELECT'
          and p.grantee <> a.defaclrole
      ) as readers
    from pg_namespace n
    where n.nspname ~ '^offshoot_db_[0-9]{1,18}$'
      and to_regclass(format('%I.deleted_records', n.nspname)) is null
    order by n.nspname
    limit ${STEP_DATABASES}`)
  if (databases.length === 0) return false
  const statements = databases.flatMap(({ id, readers }) => moveStatements(id, readers))
  await transaction.query(join(statements, ';\n'))
  return true
}

function moveStatements(databaseId: string, readers: readonly string[]): Sql[] {
  const table = sql`${ident(`offshoot_db_${databaseId}`)}.deleted_records`
  const isOfDatabase = sql`h.database_id = ${literal(databaseId)}::bigint`
  const floor = (column: Sql, id: Sql) => sql`
      insert into ${table} (heap_id, id, version, deleted_at)
      select h.id, ${id}, h.${column} - 1, null
      from offshoot.heaps h
      where ${isOfDatabase} and h.${column} > 0`
  return [
    sql`
      create table ${table} (
        heap_id bigint not null,
        id text collate "C" not null,
        -- Wider than the version of a row, which can be the last one.
        version bigint not null,
        -- Null: the entry stands for all ids of a kind, and is never forgotten.
        deleted_at timestamptz default now(),
        primary key (heap_id, id)
      )`,
    ...readers.map((reader) => sql`revoke select on ${table} from ${ident(reader)}`),
    sql`
      insert into ${table} (heap_id, id, version, deleted_at)
      select d.heap_id, d.id, d.version, d.deleted_at
      from offshoot.moved_records d
      join offshoot.heaps h on h.id = d.heap_id
      where ${isOfDatabase}`,
    floor(sql`given_floor`, sql`'all given'`),
    floor(sql`generated_floor`, sql`'all generated'`),
    sql`create index on ${table} (deleted_at)`,
  ]
}

/** Applied after all entries are moved. */
export const deletedRecords = `
drop table offshoot.moved_records;
alter table offshoot.heaps drop column given_floor, drop column generated_floor;
`
