import { ident, join, literal, type Sql, sql } from '../postgres/sql.js'
import { type TableDefinition, tableName } from './archive.js'
import { DamagedArchiveError } from './tar.js'

/*
 * An archive comes from outside, and a restore runs as the role of the service, which may be a superuser. So nothing of
 * an archive is ever run. A definition is in the form in which PostgreSQL prints it, and is read as one of the shapes
 * that offshoot gives its tables, in any version. Statements are generated from the shape. Anything else is refused.
 */

/** The types of columns, by the names that PostgreSQL prints. */
const TYPES: ReadonlyMap<string, Sql> = new Map([
  ['bigint', sql`bigint`],
  ['boolean', sql`boolean`],
  ['bytea', sql`bytea`],
  ['date', sql`date`],
  ['double precision', sql`double precision`],
  ['integer', sql`integer`],
  ['jsonb', sql`jsonb`],
  ['numeric', sql`numeric`],
  ['real[]', sql`real[]`],
  ['text', sql`text`],
  ['text[]', sql`text[]`],
  ['time without time zone', sql`time`],
  ['timestamp with time zone', sql`timestamptz`],
  ['timestamp(3) with time zone', sql`timestamptz(3)`],
  ['uuid', sql`uuid`],
])

const DEFAULTS: ReadonlyMap<string, Sql> = new Map([
  ['0', sql`0`],
  ['false', sql`false`],
  ['now()', sql`now()`],
])

/** The conditions of partial indexes, with the column that each is on. */
const CONDITIONS: ReadonlyMap<string, { readonly column: string; readonly condition: Sql }> =
  new Map([
    ['(epoch > 1)', { column: 'epoch', condition: sql`epoch > 1` }],
    ['(NOT deleted)', { column: 'deleted', condition: sql`not deleted` }],
    ['(body IS NOT NULL)', { column: 'body', condition: sql`body is not null` }],
  ])

/** Storage parameters that an administrator may have set. */
const OPTION =
  /^(fillfactor|parallel_workers|toast_tuple_target|vacuum_index_cleanup|vacuum_truncate|log_autovacuum_min_duration|autovacuum_[a-z_]{1,50})=([a-z0-9.+-]{1,30})$/

const TIMES = ['timestamp with time zone', 'timestamp(3) with time zone']
const OF_ROWS: Readonly<Record<string, readonly string[]>> = {
  version: ['integer'],
  epoch: ['integer'],
  created_at: TIMES,
  updated_at: TIMES,
  deleted: ['boolean'],
  id: ['text'],
}

/** The tables of a database: the types of the columns that each must have. Rows have columns of users, too. */
const TABLES: readonly {
  readonly name: RegExp
  readonly columns: Readonly<Record<string, readonly string[]>>
  readonly hasUserColumns: boolean
}[] = [
  { name: /^heap_[0-9]{1,18}$/, columns: OF_ROWS, hasUserColumns: true },
  {
    name: /^past_[0-9]{1,18}$/,
    columns: { ...OF_ROWS, until: ['integer'] },
    hasUserColumns: true,
  },
  {
    name: /^versions_[0-9]{1,18}$/,
    columns: {
      id: ['text'],
      at: TIMES,
      epoch: ['integer'],
      user_id: ['text'],
      key_name: ['text'],
      cause: ['text'],
      old_row: ['jsonb'],
      new_row: ['jsonb'],
    },
    hasUserColumns: false,
  },
  {
    name: /^idempotency_keys$/,
    columns: {
      hash: ['bytea'],
      request_hash: ['bytea'],
      body: ['text'],
      size: ['integer'],
      created_at: TIMES,
    },
    hasUserColumns: false,
  },
  {
    name: /^deleted_records$/,
    columns: { heap_id: ['bigint'], id: ['text'], version: ['bigint'], deleted_at: TIMES },
    hasUserColumns: false,
  },
]
const USER_COLUMN = /^c[0-9]{1,18}$/

const PRIMARY_KEY = /^PRIMARY KEY \(([a-z0-9_]+(?:, [a-z0-9_]+)*)\)$/
const INDEX =
  /^CREATE (UNIQUE )?INDEX ([a-z0-9_]+) ON ([a-z0-9_]+)\.([a-z0-9_]+) USING (.*?)(?: WHERE (\(.*\)))?$/
const OF_COLUMNS = /^btree \(([a-z0-9_]+(?:, [a-z0-9_]+)*)\)$/
/** Hashes of the contents that a file column mentions. */
const OF_CONTENTS = /^gin \(jsonb_path_query_array\((c[0-9]+), '\$\[\*\]\."sha256"'::jsonpath\)\)$/
/** Ids by their type. */
const OF_IDS = /^btree \(\((id|c[0-9]+)\)::(bigint|uuid), id\)$/

interface ColumnShape {
  readonly name: string
  readonly type: Sql
  readonly isCollatedByBytes: boolean
  readonly notNull: boolean
  readonly fallback: Sql | undefined
}

type IndexShape = {
  /** The name without that of its table in front. */
  readonly suffix: string
} & (
  | {
      readonly kind: 'columns'
      readonly isUnique: boolean
      readonly columns: readonly string[]
      readonly condition: Sql | undefined
    }
  | { readonly kind: 'contents'; readonly column: string }
  | { readonly kind: 'typed'; readonly column: string; readonly type: Sql }
)

interface PrimaryKey {
  readonly suffix: string
  readonly columns: readonly string[]
}

/** A table of a database, as offshoot creates it. */
export interface TableShape {
  readonly schema: string
  readonly name: string
  readonly columns: readonly ColumnShape[]
  readonly options: readonly { readonly name: string; readonly value: string }[]
  readonly primaryKey: PrimaryKey | undefined
  readonly indexes: readonly IndexShape[]
}

/** Reads the definition of a table of a database. Refuses all that offshoot would not create. */
export function readTableShape(table: TableDefinition): TableShape {
  const refuse = (what: string): DamagedArchiveError =>
    new DamagedArchiveError(`table [${tableName(table)}]: ${what} is not one that offshoot creates`)
  const kind = TABLES.find(({ name }) => name.test(table.name))
  if (kind === undefined) throw refuse('the name')
  const columns = table.columns.map((column, index) => {
    const shape = readColumn(column)
    const isOfUser = kind.hasUserColumns && USER_COLUMN.test(column.name)
    const isExpected = isOfUser || kind.columns[column.name]?.includes(column.type) === true
    if (shape === undefined || !isExpected) throw refuse(`column ${index + 1}`)
    return shape
  })
  const names = new Set(columns.map(({ name }) => name))
  const isWhole = Object.keys(kind.columns).every((name) => names.has(name))
  if (!isWhole || names.size < columns.length) throw refuse('the list of columns')
  const options = table.options.map((text) => {
    const [, name, value] = OPTION.exec(text) ?? []
    if (name === undefined || value === undefined) throw refuse('a storage parameter')
    return { name, value }
  })
  const [primaryKey, ...others] = table.constraints.map(({ name, definition }) => {
    const [, list] = PRIMARY_KEY.exec(definition) ?? []
    const suffix = suffixOf(table, name)
    const key = list?.split(', ') ?? []
    if (suffix === undefined || !areColumns(key, names)) throw refuse('a constraint')
    return { suffix, columns: key }
  })
  if (others.length > 0) throw refuse('a second constraint')
  const indexes = table.indexes.map((text) => {
    const shape = readIndex(table, text)
    if (shape === undefined) throw refuse('an index')
    return shape
  })
  return { schema: table.schema, name: table.name, columns, options, primaryKey, indexes }
}

function readColumn(column: TableDefinition['columns'][number]): ColumnShape | undefined {
  const { name, collation, notNull } = column
  const type = TYPES.get(column.type)
  const fallback = column.fallback === null ? undefined : DEFAULTS.get(column.fallback)
  const isKnown =
    (collation === null || collation === 'C') &&
    (column.fallback === null || fallback !== undefined)
  if (!isKnown || type === undefined) return undefined
  return { name, type, isCollatedByBytes: collation === 'C', notNull, fallback }
}

function areColumns(list: readonly string[], names: ReadonlySet<string>): boolean {
  return (
    list.length > 0 &&
    new Set(list).size === list.length &&
    list.every((column) => names.has(column))
  )
}

/** Names of indexes and constraints begin with that of their table. */
function suffixOf(table: TableDefinition, name: string): string | undefined {
  const suffix = name.slice(table.name.length)
  return name.startsWith(table.name) && /^_[a-z0-9_]{1,40}$/.test(suffix) ? suffix : undefined
}

/** Reads an index in the form in which PostgreSQL prints it. undefined: it is not one that offshoot creates. */
export function readIndex(
  table: Pick<TableDefinition, 'schema' | 'name' | 'columns'>,
  text: string,
): IndexShape | undefined {
  const [, unique, name = '', schema, on, keys = '', where] = INDEX.exec(text) ?? []
  const suffix = suffixOf(table as TableDefinition, name)
  if (suffix === undefined || schema !== table.schema || on !== table.name) return undefined
  const names = new Set(table.columns.map((column) => column.name))
  const [, column] = OF_CONTENTS.exec(keys) ?? []
  if (column !== undefined) {
    const isKnown = unique === undefined && where === `(${column} IS NOT NULL)` && names.has(column)
    return isKnown ? { suffix, kind: 'contents', column } : undefined
  }
  const [, ids, idType = ''] = OF_IDS.exec(keys) ?? []
  if (ids !== undefined) {
    const type = TYPES.get(idType)
    const isKnown = unique === undefined && where === undefined && names.has(ids)
    return isKnown && type !== undefined ? { suffix, kind: 'typed', column: ids, type } : undefined
  }
  const columns = OF_COLUMNS.exec(keys)?.[1]?.split(', ') ?? []
  const partial = where === undefined ? undefined : CONDITIONS.get(where)
  const isKnown =
    areColumns(columns, names) &&
    (where === undefined || (partial !== undefined && names.has(partial.column)))
  if (!isKnown) return undefined
  const isUnique = unique !== undefined
  return { suffix, kind: 'columns', isUnique, columns, condition: partial?.condition }
}

const qualified = ({ schema, name }: TableShape): Sql => sql`${ident(schema)}.${ident(name)}`

/** Returns the statement that creates a table without its indexes. */
export function createTableStatement(table: TableShape): Sql {
  const columns = table.columns.map(
    ({ name, type, isCollatedByBytes, notNull, fallback }) =>
      sql`${ident(name)} ${type}${isCollatedByBytes ? sql` collate "C"` : sql``}${
        fallback === undefined ? sql`` : sql` default ${fallback}`
      }${notNull ? sql` not null` : sql``}`,
  )
  const options = table.options.map(({ name, value }) => sql`${ident(name)} = ${literal(value)}`)
  const settings = options.length === 0 ? sql`` : sql` with (${join(options, ', ')})`
  return sql`create table ${qualified(table)} (${join(columns, ', ')})${settings}`
}

/** Returns statements that create the primary key and the indexes of a table. */
export function createRulesStatements(table: TableShape): Sql[] {
  const { primaryKey } = table
  const named = (suffix: string) => ident(`${table.name}${suffix}`)
  const list = (columns: readonly string[]) => join(columns.map(ident), ', ')
  const key =
    primaryKey === undefined
      ? []
      : [
          sql`
      alter table ${qualified(table)}
      add constraint ${named(primaryKey.suffix)} primary key (${list(primaryKey.columns)})`,
        ]
  const indexes = table.indexes.map((index) => {
    if (index.kind === 'contents') {
      const column = ident(index.column)
      return sql`
        create index ${named(index.suffix)} on ${qualified(table)}
        using gin (jsonb_path_query_array(${column}, '$[*].sha256')) where ${column} is not null`
    }
    if (index.kind === 'typed') {
      return sql`
        create index ${named(index.suffix)} on ${qualified(table)}
        ((${ident(index.column)}::${index.type}), id)`
    }
    const { suffix, columns, isUnique, condition } = index
    return sql`
        create ${isUnique ? sql`unique index` : sql`index`} ${named(suffix)}
        on ${qualified(table)} (${list(columns)})${condition === undefined ? sql`` : sql` where ${condition}`}`
  })
  return [...key, ...indexes]
}
