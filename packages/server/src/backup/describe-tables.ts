import type { Queryable } from '../postgres/database.js'
import { type Sql, sql } from '../postgres/sql.js'
import { listSpareTables } from '../rows/heaps/spare-heaps.js'
import { type Header, type TableDefinition, tableName } from './archive.js'
import { readIndex } from './table-shape.js'

/*
 * The tables of an instance, as of the snapshot of the transaction that lists them. PostgreSQL's functions that print
 * an index or a constraint show it in its latest state, so only columns of its catalogue are read here, and
 * expressions are printed from the trees that they contain. Each statement reads a kind of object of all tables at
 * once: to look objects up for each table, PostgreSQL would scan some of its catalogues again and again.
 */

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
 * Lists the tables of schemas. Tables that foreign keys refer to come first. The gates of earlier versions and spare
 * heaps are left out, because they hold no rows. Tables of the catalogue have no rules here: a restore creates them
 * with the migrations of their version. Indexes that others have added are left out, too, because a restore would
 * refuse them.
 */
export async function listTables(
  transaction: Queryable,
  isIncluded: SchemaFilter,
): Promise<TableDefinition[]> {
  const tables = await transaction.query<Described>(sql`
    select t.oid::text as oid, n.nspname as schema, t.relname as name,
      coalesce(t.reloptions, '{}') as options
    from pg_class t
    join pg_namespace n on n.oid = t.relnamespace
    where ${isIncluded(sql`n.nspname`)} and t.relkind = 'r'
      and not (n.nspname = 'offshoot' and t.relname ~ '^(gate_[0-9]+|catalogue_migrations)$')
      and not ${isPassing(sql`n.nspname`, sql`t.relname`)}
    order by n.nspname <> 'offshoot', n.nspname, t.oid`)
  const columns = byTable(await listColumns(transaction, isIncluded))
  const indexes = byTable(await listIndexes(transaction, isIncluded))
  const spares = new Set((await listSpareTables(transaction)).map(tableName))
  const listed = tables.filter((table) => !spares.has(tableName(table)))
  return inOrderOf(await listReferences(transaction), listed).map(({ oid, ...table }) =>
    define({ ...table, columns: columns.get(oid) ?? [] }, indexes.get(oid) ?? []),
  )
}

interface Described {
  readonly oid: string
  readonly schema: string
  readonly name: string
  readonly options: string[]
}

interface OfTable {
  readonly tableOid: string
}

type DescribedColumn = TableDefinition['columns'][number]

interface DescribedIndex {
  readonly name: string
  readonly isPrimary: boolean
  readonly isUnique: boolean
  readonly method: string
  /** Null: an expression. */
  readonly keys: readonly (string | null)[]
  readonly expressions: string | null
  readonly condition: string | null
}

function byTable<Row extends OfTable>(rows: readonly Row[]): Map<string, Omit<Row, 'tableOid'>[]> {
  const found = new Map<string, Omit<Row, 'tableOid'>[]>()
  for (const { tableOid, ...row } of rows) {
    const list = found.get(tableOid)
    if (list === undefined) found.set(tableOid, [row])
    else list.push(row)
  }
  return found
}

/** Selects the rows of a catalogue of PostgreSQL that belong to tables of schemas. */
const ofTables = (oid: Sql, isIncluded: SchemaFilter): Sql => sql`
    join pg_class t on t.oid = ${oid} and t.relkind = 'r'
    join pg_namespace n on n.oid = t.relnamespace and ${isIncluded(sql`n.nspname`)}`

function listColumns(
  transaction: Queryable,
  isIncluded: SchemaFilter,
): Promise<(OfTable & DescribedColumn)[]> {
  return transaction.query(sql`
    select a.attrelid::text as "tableOid", a.attname as name,
      format_type(a.atttypid, a.atttypmod) as type,
      case when a.attcollation <> y.typcollation then l.collname end as collation,
      a.attnotnull as "notNull",
      -- A default refers to no column, so PostgreSQL need not look at the table.
      pg_get_expr(d.adbin, 0) as fallback
    from pg_attribute a
    ${ofTables(sql`a.attrelid`, isIncluded)}
    join pg_type y on y.oid = a.atttypid
    left join pg_collation l on l.oid = a.attcollation
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where a.attnum > 0 and not a.attisdropped
    order by a.attrelid, a.attnum`)
}

/** Columns of heaps are never dropped or renamed, so the latest state of a table has the right names for a condition. */
function listIndexes(
  transaction: Queryable,
  isIncluded: SchemaFilter,
): Promise<(OfTable & DescribedIndex)[]> {
  return transaction.query(sql`
    select i.indrelid::text as "tableOid", x.relname as name, i.indisprimary as "isPrimary",
      i.indisunique as "isUnique", m.amname as method,
      array(
        select a.attname::text
        from unnest(i.indkey::smallint[]) with ordinality k (number, position)
        left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number and k.number > 0
        order by k.position
      ) as keys,
      pg_get_expr(i.indexprs, i.indrelid) as expressions,
      pg_get_expr(i.indpred, i.indrelid) as condition
    from pg_index i
    ${ofTables(sql`i.indrelid`, isIncluded)}
    join pg_class x on x.oid = i.indexrelid
    join pg_am m on m.oid = x.relam
    where n.nspname <> 'offshoot' and i.indisvalid
      -- Those of an extension are made anew, if the other server has it.
      and not i.indclass::oid[] && array(
        select d.objid from pg_depend d
        where d.classid = 'pg_opclass'::regclass and d.deptype = 'e'
      )
    order by i.indrelid, i.indexrelid`)
}

/** Describes a table in the form in which PostgreSQL prints constraints and indexes. */
function define(
  table: Pick<TableDefinition, 'schema' | 'name' | 'options' | 'columns'>,
  indexes: readonly DescribedIndex[],
): TableDefinition {
  const primary = indexes.filter(({ isPrimary }) => isPrimary)
  const others = indexes.filter(({ isPrimary }) => !isPrimary)
  return {
    schema: table.schema,
    name: table.name,
    columns: table.columns,
    options: table.options,
    constraints: primary.map(({ name, keys }) => ({
      name,
      definition: `PRIMARY KEY (${keys.join(', ')})`,
    })),
    indexes: others
      .map((index) => describeIndex(table, index))
      .filter((text) => readIndex(table, text) !== undefined),
  }
}

function describeIndex(
  table: Pick<TableDefinition, 'schema' | 'name'>,
  { name, isUnique, method, keys, expressions, condition }: DescribedIndex,
): string {
  const list = keys.map((key) => key ?? expressions).join(', ')
  const where = condition === null ? '' : ` WHERE ${condition}`
  return `CREATE ${isUnique ? 'UNIQUE ' : ''}INDEX ${name} ON ${tableName(table)} USING ${method} (${list})${where}`
}

/** Lists the foreign keys of the catalogue. Other tables have none. */
function listReferences(transaction: Queryable): Promise<{ from: string; to: string }[]> {
  return transaction.query(sql`
    select conrelid::text as from, confrelid::text as to
    from pg_constraint
    where contype = 'f' and connamespace = 'offshoot'::regnamespace and confrelid <> conrelid`)
}

function inOrderOf<Table extends { oid: string }>(
  references: readonly { readonly from: string; readonly to: string }[],
  tables: readonly Table[],
): Table[] {
  const byOid = new Map(tables.map((table) => [table.oid, table]))
  const ordered = new Set<Table>()
  const visit = (table: Table): void => {
    for (const { from, to } of references) {
      const other = from === table.oid ? byOid.get(to) : undefined
      if (other !== undefined && !ordered.has(other)) visit(other)
    }
    ordered.add(table)
  }
  const referring = new Set(references.map(({ from }) => from))
  for (const table of tables) {
    if (referring.has(table.oid)) visit(table)
    else ordered.add(table)
  }
  return [...ordered]
}

/** Finds a relation that is not of a known kind; it would be missing in the backup. */
export async function findUnknownRelation(
  transaction: Queryable,
  isIncluded: SchemaFilter,
): Promise<string | undefined> {
  const [row] = await transaction.query<{ name: string }>(sql`
    select format('%I.%I', n.nspname, t.relname) as name
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
