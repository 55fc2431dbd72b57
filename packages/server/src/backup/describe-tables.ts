import type { Queryable } from '../postgres/database.js'
import { type Sql, sql } from '../postgres/sql.js'
import { listSpareTables } from '../rows/branches.js'
import { type Header, type TableDefinition, tableName } from './archive.js'

/**
 * Matches the schemas of an instance that a backup contains: the catalogue, and the rows of databases. Earlier versions
 * had all rows in `offshoot_rows`.
 */
const SCHEMAS = '^offshoot(_rows|_db_[0-9]{1,18})?$'

export const isBackedUp = (schema: string): boolean => new RegExp(SCHEMAS).test(schema)
/** Returns a condition on the name of a schema. */
export type SchemaFilter = (schema: Sql) => Sql
export const selectBackedUp: SchemaFilter = (schema) => sql`${schema} ~ ${SCHEMAS}`

/** Matches tables that only exist during a request. */
const isPassing = (schema: Sql, table: Sql): Sql =>
  sql`(${schema} <> 'offshoot' and ${table} ~ '^(stream|merge)_')`

/**
 * Lists the tables of schemas as PostgreSQL describes them, so that this code need not know the structure of
 * heaps in any version. Tables that foreign keys refer to come first. The gates of earlier
 * versions and spare heaps are left out, because they hold no rows.
 */
export async function listTables(
  transaction: Queryable,
  isIncluded: SchemaFilter,
): Promise<TableDefinition[]> {
  const tables = await transaction.query<
    TableDefinition & { oid: string; references: string[] }
  >(sql`
    select t.oid::text as oid, n.nspname as schema, t.relname as name,
      coalesce(t.reloptions, '{}') as options,
      (
        select json_agg(json_build_object(
          'name', a.attname,
          'type', format_type(a.atttypid, a.atttypmod),
          'collation', case when a.attcollation <> y.typcollation then l.collname end,
          'notNull', a.attnotnull,
          'fallback', pg_get_expr(d.adbin, d.adrelid)
        ) order by a.attnum)
        from pg_attribute a
        join pg_type y on y.oid = a.atttypid
        left join pg_collation l on l.oid = a.attcollation
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
      ) as columns,
      coalesce((
        select json_agg(json_build_object(
          'name', c.conname, 'definition', pg_get_constraintdef(c.oid)) order by c.conname)
        from pg_constraint c
        where c.conrelid = t.oid and c.contype in ('p', 'u', 'c', 'x')
      ), '[]') as constraints,
      coalesce((
        select json_agg(pg_get_indexdef(i.indexrelid) order by i.indexrelid)
        from pg_index i
        where i.indrelid = t.oid and i.indisvalid
          and not exists (select from pg_constraint c where c.conindid = i.indexrelid)
          -- Those of an extension are made anew, if the other server has it.
          and not exists (
            select from unnest(i.indclass::oid[]) as class (oid)
            join pg_depend d on d.classid = 'pg_opclass'::regclass and d.objid = class.oid
            where d.deptype = 'e'
          )
      ), '[]') as indexes,
      array(
        select c.confrelid::text
        from pg_constraint c
        where c.conrelid = t.oid and c.contype = 'f' and c.confrelid <> t.oid
      ) as references
    from pg_class t
    join pg_namespace n on n.oid = t.relnamespace
    where ${isIncluded(sql`n.nspname`)} and t.relkind = 'r'
      and not (n.nspname = 'offshoot' and t.relname ~ '^(gate_[0-9]+|catalogue_migrations)$')
      and not ${isPassing(sql`n.nspname`, sql`t.relname`)}
    order by n.nspname <> 'offshoot', n.nspname, t.oid`)
  const spares = new Set((await listSpareTables(transaction)).map(tableName))
  return inOrderOfReferences(tables.filter((table) => !spares.has(tableName(table)))).map(
    ({ oid: _oid, references: _references, ...definition }) => definition,
  )
}

function inOrderOfReferences<Table extends { oid: string; references: readonly string[] }>(
  tables: readonly Table[],
): Table[] {
  const byOid = new Map(tables.map((table) => [table.oid, table]))
  const ordered = new Set<Table>()
  const visit = (table: Table): void => {
    for (const oid of table.references) {
      const other = byOid.get(oid)
      if (other !== undefined && !ordered.has(other)) visit(other)
    }
    ordered.add(table)
  }
  for (const table of tables) visit(table)
  return [...ordered]
}

/** Finds a relation that is not of a known kind; it would be missing in the backup. */
export async function findUnknownRelation(
  transaction: Queryable,
  isIncluded: SchemaFilter,
): Promise<string | undefined> {
  const [row] = await transaction.query<{ name: string }>(sql`
    select t.oid::regclass::text as name
    from pg_class t
    join pg_namespace n on n.oid = t.relnamespace
    where ${isIncluded(sql`n.nspname`)}
      and (t.relkind not in ('r', 'i', 'S', 't')
        or (t.relkind = 'S' and n.nspname <> 'offshoot'))
    limit 1`)
  return row?.name
}

/** Sequences are not part of a snapshot. Numbers taken after it are skipped, as after a crash. */
export async function listSequences(transaction: Queryable): Promise<Header['sequences']> {
  return transaction.query<Header['sequences'][number]>(sql`
    select schemaname as schema, sequencename as name,
      coalesce(last_value, start_value)::text as value, last_value is not null as "isCalled"
    from pg_sequences
    where schemaname = 'offshoot'
    order by sequencename`)
}
