import { LIMITS } from '@offshoot/contract/limits'
import type { ColumnType, IntBits } from '@offshoot/contract/schema'
import type { CompiledSchema } from '../data/session/compiled-schema.js'
import { idKeyName } from '../data/sql/branch-tables.js'
import { expressionSql, shownParts } from '../dialect/row-expression.js'
import { Aliases, cutName, NAME_BYTES_MAX } from '../dialect/scope.js'
import { ident, join, literal, quoteIdent, raw, type Sql, sql } from '../postgres/sql.js'
import { COLUMN_TYPE_ENTRIES } from '../rows/columns/column-types.js'
import type { StoredTable } from '../rows/columns/stored-schema.js'
import type { TableCodec } from '../rows/columns/table-codec.js'

/*
 * Writes the tables of a schema as statements that define them in PostgreSQL: with the names, types and rules that users
 * know. The tables stay empty.
 */

type Physical = TableCodec['physical'][number]

/** The types of values as statements see them. */
const SQL_TYPES: Readonly<Record<Exclude<ColumnType, 'object'>, string>> = {
  bool: 'boolean',
  int: 'bigint',
  float: 'double precision',
  string: 'text',
  text: 'text',
  email: 'text',
  link: 'text',
  multiple: 'text[]',
  datetime: 'timestamptz',
  decimal: 'numeric',
  date: 'date',
  time: 'time',
  uuid: 'uuid',
  enum: 'text',
  vector: 'real[]',
  json: 'jsonb',
  file: 'jsonb',
  'file[]': 'jsonb',
}

const INT_TYPES = { 16: 'smallint', 32: 'integer' } as const

const intTypeOf = (bits: IntBits | undefined): string =>
  bits === undefined ? 'bigint' : INT_TYPES[bits]

/** The type of ids, or of links to them. */
function idTypeOf({
  idType,
  idBits,
}: {
  readonly idType?: StoredTable['idType']
  readonly idBits?: IntBits
}): Sql {
  return raw(idType === 'int' ? intTypeOf(idBits) : (idType ?? 'text'))
}

/** What ids are without a value of the client. */
const ID_DEFAULTS = {
  text: sql`default 'rec_' || replace(gen_random_uuid()::text, '-', '')`,
  // Its sequence is made in the end.
  int: sql``,
  uuid: sql`default gen_random_uuid()`,
} as const

/** PostgreSQL has columns of these names in every table. */
const SYSTEM_COLUMNS = new Set(['tableoid', 'ctid', 'xmin', 'xmax', 'cmin', 'cmax'])

/** Bytes of a value of an enum type. */
const LABEL_BYTES_MAX = 63

interface ShapeColumn {
  readonly name: string
  readonly physical: Physical
}

interface ShapeTable {
  readonly name: string
  readonly codec: TableCodec
  readonly columns: readonly ShapeColumn[]
}

/** Returns the statements that define the tables of a schema. `hasUnenforced`: PostgreSQL has foreign keys that are not enforced. */
export function defineShape(
  schema: CompiledSchema,
  { hasUnenforced }: { hasUnenforced: boolean },
): Sql[] {
  const tables = listTables(schema)
  // Tables, types, indexes and constraints share names.
  const names = new Aliases()
  for (const { name } of tables) names.take(name)
  const types: EnumTypes = new Map()
  const byId = new Map(tables.map((table) => [table.codec.table.id, table]))
  return [
    ...tables.flatMap((table) => defineTable(table, { names, types })),
    ...tables.flatMap((table) => defineRules(table, names)),
    ...tables.flatMap((table) => defineLinks(table, { byId, names, hasUnenforced })),
    ...tables.flatMap(commentColumns),
    ...tables.flatMap((table) => defineSequences(table, names)),
  ]
}

/** Lists the tables that statements can name. Of names that begin with the same 63 bytes, they know the first. */
function listTables({ tableNames, tableByName }: CompiledSchema): ShapeTable[] {
  const tables = new Map<string, ShapeTable>()
  for (const fullName of tableNames) {
    const name = cutName(fullName)
    const codec = tableByName(fullName)
    if (codec === undefined || tables.has(name)) continue
    tables.set(name, { name, codec, columns: listColumns(codec) })
  }
  return [...tables.values()]
}

function listColumns({ physical, inOrder }: TableCodec): ShapeColumn[] {
  const columns = new Map<string, ShapeColumn>()
  for (const each of inOrder.flatMap((index) => physical[index] ?? [])) {
    const name = cutName(each.path.join('.'))
    if (each.column.type === 'object' || SYSTEM_COLUMNS.has(name) || columns.has(name)) continue
    columns.set(name, { name, physical: each })
  }
  return [...columns.values()]
}

const tableName = ({ name }: ShapeTable): Sql => sql`public.${ident(name)}`

/** The enum types that columns share, by their names. */
type EnumTypes = Map<string, { readonly type: Sql; readonly labels: string }>

function defineTable(
  table: ShapeTable,
  { names, types }: { names: Aliases; types: EnumTypes },
): Sql[] {
  const defined: Sql[] = []
  const required = requiredColumns(table.codec)
  const columns = table.columns.map(({ name, physical }) => {
    const { column } = physical
    const labels = column.type === 'enum' ? labelsOf(column.enum?.values ?? []) : undefined
    let type = typeOf(physical)
    if (labels !== undefined) {
      const given = column.enum?.type
      const key = JSON.stringify(labels)
      const known = given === undefined ? undefined : types.get(given)
      // Columns of a type have the same values, unless one was changed alone.
      const isOwn = known === undefined || known.labels !== key
      const shared = known === undefined ? given : undefined
      type = isOwn
        ? sql`public.${ident(names.take(shared ?? `${table.name}_${name}`))}`
        : known.type
      if (isOwn) defined.push(sql`create type ${type} as enum (${join(labels.map(literal), ', ')})`)
      if (shared !== undefined) types.set(shared, { type, labels: key })
    }
    const isRequired = required.has(physical.id)
    const notNull = isRequired && physical.path.length === 1 ? sql` not null` : sql``
    const value =
      physical.computed === undefined
        ? defaultOf(physical)
        : computedOf(physical.computed, table.columns)
    return sql`${ident(name)} ${type}${notNull}${value}`
  })
  const { table: stored } = table.codec
  const id = sql`id ${idTypeOf(stored)} ${ID_DEFAULTS[stored.idType ?? 'text']}`
  const key = sql`constraint ${ident(names.take(idKeyName(stored)))} primary key (id)`
  return [...defined, sql`create table ${tableName(table)} (${join([id, ...columns, key], ', ')})`]
}

/** Returns the values of an enum type, or undefined if PostgreSQL could not have such a type. */
function labelsOf(values: readonly string[]): readonly string[] | undefined {
  const isPossible = values.every((value) => Buffer.byteLength(value) <= LABEL_BYTES_MAX)
  return isPossible && values.length > 0 ? values : undefined
}

function typeOf({ column }: Physical): Sql {
  const { type, link, decimal, bits, maxLength, withoutZone } = column
  if (type === 'object') throw new Error('an object has no value of its own')
  if (link !== undefined) return idTypeOf(link)
  if (bits !== undefined) return raw(intTypeOf(bits))
  if (withoutZone) return sql`timestamp`
  if (maxLength !== undefined) return raw(`character varying(${Number(maxLength)})`)
  if (decimal === undefined) return raw(SQL_TYPES[type])
  return raw(`numeric(${Number(decimal.precision)}, ${Number(decimal.scale)})`)
}

/** A computed column is shown as a stored one: that is what catalogues of PostgreSQL know everywhere. */
function computedOf(
  { uses, shownSql }: NonNullable<Physical['computed']>,
  columns: readonly ShapeColumn[],
): Sql {
  const nameOf = new Map(columns.map(({ name, physical }) => [physical.id, name]))
  // Of a column that has no name in statements, nothing can be shown.
  if (![...uses.keys()].every((id) => nameOf.has(id))) return sql``
  const value = shownSql((id) => ident(nameOf.get(id) ?? ''))
  return sql` generated always as (${value}) stored`
}

function defaultOf({ column }: Physical): Sql {
  switch (column.generate) {
    case 'sequence':
      // Its sequence is made in the end.
      return sql``
    case 'uuid':
      return sql` default gen_random_uuid()${column.type === 'uuid' ? sql`` : sql`::text`}`
    case 'user':
      return sql` default current_user`
    case 'updatedAt':
      return sql` default now()`
    default:
  }
  if (column.defaultValue === undefined) return sql``
  const { parseDefault } = COLUMN_TYPE_ENTRIES[column.type]
  const text = parseDefault(column.defaultValue, column, { limits: LIMITS, jsonAsText: false })
  // PostgreSQL shows it with the type of the column, without precision, as if a client had written it.
  // The digits of a decimal are those that were written, and not those that its values have.
  const shown = column.type === 'decimal' ? column.defaultValue : text
  if (typeof text === 'string') return sql` default ${literal(String(shown))}`
  return typeof text === 'symbol' ? sql` default now()` : sql``
}

/** How the names of sequences end. */
const SEQUENCE_END = '_seq'

/** Their names are chosen last, because tables, constraints and indexes can have the usual ones. */
function defineSequences(table: ShapeTable, names: Aliases): Sql[] {
  const { codec, columns } = table
  const required = requiredColumns(codec)
  const alter = (column: string, change: Sql): Sql =>
    sql`alter table ${tableName(table)} alter column ${ident(column)} ${change}`
  const take = (column: string): string =>
    names.take(
      `${cutName(`${table.name}_${column}`, NAME_BYTES_MAX - SEQUENCE_END.length)}${SEQUENCE_END}`,
    )
  const identity = (column: string): Sql => {
    const name = sql`public.${ident(take(column))}`
    return alter(column, sql`add generated by default as identity (sequence name ${name})`)
  }
  const numbered = columns.filter(({ physical }) => physical.column.generate === 'sequence')
  return [
    ...(codec.table.idType === 'int' ? [identity('id')] : []),
    ...numbered.flatMap(({ name, physical }) => {
      if (required.has(physical.id)) return [identity(name)]
      // PostgreSQL has no identities without NOT NULL.
      const sequence = `public.${quoteIdent(take(name))}`
      const owner = sql`${tableName(table)}.${ident(name)}`
      return [
        sql`create sequence ${raw(sequence)} as ${typeOf(physical)} owned by ${owner}`,
        alter(name, sql`set default nextval(${literal(sequence)})`),
      ]
    }),
  ]
}

/** Returns the ids of the columns that are shown as NOT NULL. */
function requiredColumns(codec: TableCodec): ReadonlySet<number> {
  return new Set([
    ...codec.checks.flatMap((check) => requiredBy(codec, check) ?? []),
    ...codec.physical.flatMap(({ id, column }) => (column.notNull === true ? [id] : [])),
  ])
}

function defineRules(table: ShapeTable, names: Aliases): Sql[] {
  const { codec, columns } = table
  const nameOf = new Map(columns.map(({ name, physical }) => [physical.id, name]))
  const add = (name: string, rule: Sql): Sql =>
    sql`alter table ${tableName(table)} add constraint ${ident(names.take(name))} ${rule}`
  const keys = codec.uniqueKeys.flatMap((key) => {
    const keyNames = key.columns.map((index) => nameOf.get(codec.physical[index]?.id ?? 0))
    const known = keyNames.filter((name) => name !== undefined)
    if (known.length < keyNames.length) return []
    const name = key.name ?? `${table.name}_${known.join('_')}_key`
    const list = join(known.map(ident), ', ')
    return key.isIndex
      ? [sql`create unique index ${ident(names.take(name))} on ${tableName(table)} (${list})`]
      : [add(name, sql`unique (${list})`)]
  })
  const checks = codec.checks.flatMap((check) => {
    if (check.computed !== undefined || requiredBy(codec, check) !== undefined) return []
    const isShown = check.columns.every((index) => nameOf.has(codec.physical[index]?.id ?? 0))
    if (!isShown) return []
    const condition = expressionSql(writtenOf(codec, check), (id) => ident(nameOf.get(id) ?? ''))
    return [add(check.name, sql`check (${condition})`)]
  })
  const indexes = columns.flatMap(({ name, physical }) => {
    if (physical.column.index !== true || physical.column.unique === true) return []
    const indexName = ident(names.take(`${table.name}_${name}_idx`))
    return [sql`create index ${indexName} on ${tableName(table)} (${ident(name)})`]
  })
  return [...keys, ...checks, ...indexes]
}

/** Returns the expression of a check without casts: here, links have the type of the ids, and enums are types. */
function writtenOf(
  { table: { constraints = [] } }: TableCodec,
  { id, expression }: TableCodec['checks'][number],
): TableCodec['checks'][number]['expression'] {
  const found = constraints.find((each) => each.id === id)
  if (found === undefined || !('check' in found)) return expression
  return shownParts(found.check.sql)
}

/** Columns of some types have a check instead of NOT NULL. Returns the id of such a column. */
function requiredBy(codec: TableCodec, check: TableCodec['checks'][number]): number | undefined {
  const [index = 0, ...others] = check.columns
  const words = writtenOf(codec, check)
    .filter((part) => typeof part === 'string')
    .join('')
  const isRequired = /^[\s(]*is not null[\s)]*$/i.test(words)
  return isRequired && others.length === 0 ? codec.physical[index]?.id : undefined
}

const ON_DELETE = {
  // Links are checked at the end of a transaction, as NO ACTION is: RESTRICT cannot wait.
  restrict: sql``,
  setNull: sql` on delete set null`,
  cascade: sql` on delete cascade`,
} as const

function defineLinks(
  table: ShapeTable,
  {
    byId,
    names,
    hasUnenforced,
  }: { byId: ReadonlyMap<number, ShapeTable>; names: Aliases; hasUnenforced: boolean },
): Sql[] {
  // A valid foreign key would promise that linked records exist. One that is kept is not valid, so that it restores like any other.
  const unkept = hasUnenforced ? sql`not enforced` : sql`not valid`
  return table.columns.flatMap(({ name, physical }) => {
    const { link, onDelete, rule } = physical.column
    const target = byId.get(link?.tableId ?? 0)
    if (target === undefined) return []
    const action = onDelete === undefined ? sql`` : ON_DELETE[onDelete]
    const constraint = ident(names.take(rule ?? `${table.name}_${name}_fkey`))
    return [
      sql`alter table ${tableName(table)} add constraint ${constraint}
        foreign key (${ident(name)}) references ${tableName(target)} (id)${action} ${onDelete === undefined ? unkept : sql`not valid`}`,
    ]
  })
}

function commentColumns(table: ShapeTable): Sql[] {
  return table.columns.flatMap(({ name, physical: { column } }) => {
    if (column.description === undefined) return []
    const text = literal(column.description)
    return [sql`comment on column ${tableName(table)}.${ident(name)} is ${text}`]
  })
}
