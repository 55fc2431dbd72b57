import type { ColumnType } from '@offshoot/contract/schema'
import type { DeclaredType, EnumType } from '../../dialect/declared-types.js'
import { invalidSql } from '../../dialect/invalid-sql.js'
import { cutName, enumNameOf, findName } from '../../dialect/scope.js'
import { ident, integer, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { Slot } from '../../postgres/statement.js'
import { isFileType } from '../../rows/columns/column-types.js'
import type { StoredColumn, StoredTable } from '../../rows/columns/stored-schema.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { TableRows } from '../../rows/reading/table-rows.js'
import type { SqlTable, SqlTables } from './select-sql.js'

const ROW = sql`h`

/** A table of a branch that statements can read and write. */
export interface StatementTable extends SqlTable {
  /** The name in the schema, not cut off. */
  readonly fullName: string
  /** Returns a column that a statement can name as its target. Throws if there is none. */
  target(name: string): TargetColumn
  /** The columns that an INSERT without a list of columns has, in order. */
  readonly targets: readonly TargetColumn[]
  /** The id is not among them. */
  readonly hidesId: boolean
  /** The unique keys, the id first. */
  readonly keys: readonly TableKey[]
  /**
   * Returns the records to be inserted as rows of the table, with their positions. `records` is JSON: for each
   * record, a list of its id and the texts of its physical columns.
   */
  proposed(records: Slot): Sql
}

/** The id, a unique column, or the columns of a unique constraint. */
export interface WrittenKey {
  readonly columns: readonly {
    readonly name: string
    /** Index into the physical columns; undefined for the id. */
    readonly index: number | undefined
  }[]
}

export interface TableKey extends WrittenKey {
  /** The name of its constraint, as the catalogue shows it. */
  readonly name: string
  readonly columns: readonly KeyColumn[]
}

type KeyColumn = WrittenKey['columns'][number] & {
  /** Converts an array of texts to an array of values. */
  valuesOf(texts: Slot): Sql
}

/** The position column of `proposed`. Names of columns cannot contain a space, so there is no conflict. */
export const PROPOSED_POSITION = ident('proposed position')

/** A column that a statement writes. */
export interface WrittenColumn {
  readonly name: string
  /** The names of the enclosing objects and of the column. */
  readonly path: readonly string[]
  /** The number of characters of its texts, if SQL declares it. */
  readonly lengthMax?: number | undefined
}

export interface TargetColumn extends WrittenColumn {
  /** Converts an expression of any type to JSON input for the column. A decimal that is calculated is rounded to its digits. */
  valueOf(expression: Sql, options?: { isCalculated?: boolean }): Sql
  /** The default of the column. undefined: the service generates it, which SQL cannot. */
  readonly defaultValue: Sql | undefined
  /** Only DEFAULT can stand for its value. */
  readonly isComputed: boolean
  /** undefined: it is the id, as a text. */
  readonly type: ColumnType | undefined
}

export interface WritableTables extends SqlTables {
  find(name: string): StatementTable | undefined
}

/** The source of table descriptions of a branch. */
interface TableSource {
  readonly tableNames: readonly string[]
  /** undefined: tables have no columns of metadata. */
  readonly metadataKey: string | undefined
  /** The values of the types of columns that are enums, by their names. */
  enums(): ReadonlyMap<string, readonly string[]>
  /** Returns the definition of a table and the location of its rows. */
  describe(name: string): { codec: TableCodec; rows: TableRows } | undefined
}

/** The SQL of the tables would exceed the limit of the caller. */
export class TooManyCellsError extends Error {}

/** The tables of a branch, by their names in statements. */
export class BranchTables implements WritableTables {
  readonly #source: TableSource
  readonly #names: TableNames
  readonly #found = new Map<string, StatementTable>()
  #enums: ReadonlyMap<string, readonly string[]> | undefined
  #cellsLeft: number

  /** A table counts a cell for each of its columns in each physical table that its rows come from. */
  constructor(source: TableSource, options: { cellsMax?: number } = {}) {
    this.#source = source
    this.#names = new TableNames(source.tableNames)
    this.#cellsLeft = options.cellsMax ?? Number.POSITIVE_INFINITY
  }

  findEnum(name: string): EnumType | undefined {
    this.#enums ??= this.#source.enums()
    const values = this.#enums.get(name)
    return values && { kind: 'enum', name, values }
  }

  find(name: string): StatementTable | undefined {
    const found = this.#names.find(name)
    const described = found === undefined ? undefined : this.#source.describe(found)
    if (found === undefined || described === undefined) return undefined
    const { codec, rows } = described
    this.#cellsLeft -= (codec.physical.length + 1) * rows.armCount
    if (this.#cellsLeft < 0) throw new TooManyCellsError()
    const known = this.#found.get(found)
    if (known !== undefined) return known
    const made = createTable(codec, { metadataKey: this.#source.metadataKey, rows })
    this.#found.set(found, made)
    return made
  }
}

/** Finds the full name of a table: an exact match, or else the only name that differs in case. */
export class TableNames {
  readonly #exact = new Map<string, string>()
  readonly #folded = new Map<string, string | undefined>()

  constructor(names: readonly string[]) {
    for (const name of names) {
      const cut = cutName(name)
      if (!this.#exact.has(cut)) this.#exact.set(cut, name)
      const folded = cut.toLowerCase()
      this.#folded.set(folded, this.#folded.has(folded) ? undefined : name)
    }
  }

  find(name: string): string | undefined {
    return this.#exact.get(name) ?? this.#folded.get(name.toLowerCase())
  }
}

interface OwnColumn {
  readonly name: string
  /** undefined: the column is no column of the schema. Ids and links have the type of the ids. */
  readonly type: ColumnType | undefined
  readonly column: TableCodec['physical'][number] | undefined
  /** Returns the value of the column. `physical` returns an expression for each physical column. */
  read(physical: (index: number) => Sql): Sql
}

function createTable(
  codec: TableCodec,
  { metadataKey, rows }: { metadataKey: string | undefined; rows: TableRows },
): StatementTable {
  const columns = listColumns(codec, metadataKey)
  const targets = columns.flatMap((column) => targetOf(column) ?? [])
  const hidesId = codec.table.hiddenId === true
  const names = columns.map(({ name }) => name)
  const repeated = names.find((name, index) => names.indexOf(name) !== index)
  if (repeated !== undefined) {
    throw invalidSql(
      `table [${codec.table.name}]: several columns begin with [${repeated}], which is all that SQL can tell of a name`,
    )
  }
  return {
    name: cutName(codec.table.name),
    columns: names,
    types: columns.map((column) => declaredTypeOf(column, codec.table)),
    rows: writeRows(rows, columns),
    fullName: codec.table.name,
    idType: ID_TYPES[codec.table.idType ?? 'text'],
    targets: hidesId ? targets.filter(({ name }) => name !== 'id') : targets,
    hidesId,
    keys: listKeys(codec, columns),
    proposed: (records) => writeProposed(rows, columns, records),
    target(name) {
      const target = findName(targets, name, (each) => each.name)
      if (target !== undefined) return target
      const known = findName(columns, name, (each) => each.name)
      const reason = known === undefined ? 'column not found' : 'cannot be written by SQL'
      throw invalidSql(`table [${codec.table.name}]: column [${name}]: ${reason}`)
    },
  }
}

/** Returns the type that a column is declared with, if it is stored as another one. */
function declaredTypeOf(
  { name, column }: OwnColumn,
  { name: table, idBits }: StoredTable,
): DeclaredType | undefined {
  const { bits, link, withoutZone, enum: list }: Partial<StoredColumn> = column?.column ?? {}
  if (withoutZone) return { kind: 'timestamp' }
  if (list !== undefined) {
    return { kind: 'enum', name: enumNameOf(table, { name, enum: list }), values: list.values }
  }
  const size = bits ?? link?.idBits ?? (column === undefined && name === 'id' ? idBits : undefined)
  return size && { kind: 'integer', bits: size, isKnown: false }
}

/** Lists the id, the columns of the schema, and the metadata. Nested columns have dotted names. */
function listColumns(codec: TableCodec, metadataKey: string | undefined): OwnColumn[] {
  const metadata = (name: string, expression: Sql): OwnColumn => ({
    name: name === 'id' ? name : `${metadataKey}.${name}`,
    type: undefined,
    column: undefined,
    read: () => expression,
  })
  const own = codec.inOrder.flatMap((index): OwnColumn[] => {
    const column = codec.physical[index]
    if (column === undefined) return []
    const { type, link } = column.column
    if (type === 'object') return []
    const name = cutName(column.path.join('.'))
    const read = (physical: (index: number) => Sql) => publicValue(type, physical(index))
    if (link?.idType === undefined) return [{ name, type, column, read }]
    const cast = (physical: (index: number) => Sql) => idValue(read(physical), link.idType)
    return [{ name, type: link.idType, column, read: cast }]
  })
  const { idType } = codec.table
  const shown = [{ ...metadata('id', idValue(sql`${ROW}.id`, idType)), type: idType }, ...own]
  if (metadataKey === undefined) return shown
  return [
    ...shown,
    metadata('version', sql`${ROW}.version`),
    metadata('createdAt', sql`${ROW}.created_at`),
    metadata('updatedAt', sql`${ROW}.updated_at`),
  ]
}

/** Ids are stored as texts. Statements see their type. */
function idValue(value: Sql, idType: StoredTable['idType']): Sql {
  return idType === undefined ? value : sql`(${value})::${ID_TYPES[idType]}`
}

const ID_TYPES = { text: sql`text`, int: sql`bigint`, uuid: sql`uuid` } as const

/** Leave out link secrets (they grant access) and content hashes (internal storage keys). */
const SECRET_FIELDS = sql`array['key', 'sha256']`

function publicValue(type: ColumnType, value: Sql): Sql {
  if (!isFileType(type)) return value
  if (type === 'file') return sql`(${value} - ${SECRET_FIELDS})`
  return sql`(
    select jsonb_agg(f.file - ${SECRET_FIELDS} order by f.n)
    from jsonb_array_elements(${value}) with ordinality f(file, n)
  )`
}

/** Returns the name of the key of the ids of a table. A constraint can have the usual one. */
export function idKeyName({
  name,
  constraints = [],
}: {
  readonly name: string
  readonly constraints?: readonly { readonly name: string }[]
}): string {
  const usual = cutName(`${name}_pkey`)
  return constraints.some((each) => each.name === usual) ? cutName(`${name}_id_pkey`) : usual
}

function listKeys(codec: TableCodec, columns: readonly OwnColumn[]): TableKey[] {
  const { table, physical, uniqueKeys } = codec
  const id = columns.filter(({ name, column }) => column === undefined && name === 'id')
  return [
    { name: idKeyName(table), columns: id.map((column) => keyColumn(codec, column)) },
    ...uniqueKeys.map(({ name, columns: indexes }) => {
      const own = indexes.flatMap(
        (index) => columns.find((each) => each.column === physical[index]) ?? [],
      )
      const usual = `${table.name}_${own.map((each) => each.name).join('_')}_key`
      return { name: name ?? usual, columns: own.map((column) => keyColumn(codec, column)) }
    }),
  ]
}

function keyColumn({ physical }: TableCodec, { name, type: own, column }: OwnColumn): KeyColumn {
  const index = column === undefined ? undefined : physical.indexOf(column)
  const isId = column === undefined || column.column.type === 'link'
  const idType = isId && (own === 'int' || own === 'uuid') ? ID_TYPES[own] : undefined
  const type = idType ?? raw(column?.sqlType.split(' collate ')[0] ?? 'text')
  return { name, index, valuesOf: (texts) => sql`${texts}::${type}[]` }
}

function selectColumns(columns: readonly OwnColumn[], physical: (index: number) => Sql): Sql {
  return join(
    columns.map((column) => sql`${column.read(physical)} as ${ident(column.name)}`),
    ', ',
  )
}

function writeProposed(rows: TableRows, columns: readonly OwnColumn[], records: Slot): Sql {
  return sql`
    select ${selectColumns(columns, rows.record(ROW).column)},
      ${ROW}.position as ${PROPOSED_POSITION}
    from (${rows.selectJson(records)}) ${ROW}`
}

function writeRows(rows: TableRows, columns: readonly OwnColumn[]): Sql {
  const arms = rows.arms(ROW)
  if (arms.length > 0) {
    const selects = arms.map(
      (arm) =>
        sql`select ${selectColumns(columns, (index) => arm.column(index))} from ${arm.table} ${ROW} where ${arm.condition}`,
    )
    return join(selects, ' union all ')
  }
  // Nothing was ever written to the table on this branch.
  return sql`
    select ${selectColumns(columns, rows.record(ROW).column)} from (${rows.selectNone()}) ${ROW}`
}

/** Types that values are cast to before they are validated like input of a record. */
const INPUT_TYPES: Readonly<Record<ColumnType, Sql | undefined>> = {
  bool: sql`boolean`,
  // Not an integer type, so that fractions are rejected instead of rounded.
  int: sql`numeric`,
  float: sql`double precision`,
  string: sql`text`,
  text: sql`text`,
  email: sql`text`,
  link: sql`text`,
  multiple: sql`text[]`,
  datetime: sql`timestamptz`,
  decimal: sql`numeric`,
  date: sql`date`,
  time: sql`time`,
  uuid: sql`uuid`,
  enum: sql`text`,
  vector: sql`real[]`,
  json: sql`jsonb`,
  object: undefined,
  file: undefined,
  'file[]': undefined,
}

/** Creates an object without inherited members, so that a column can have any name. */
export function newRecord(): Record<string, unknown> {
  return new (Bare as unknown as new () => Record<string, unknown>)()
}

/** Without inherited members. `Object.create(null)` would make a dictionary, which takes longer and twice the memory. */
function Bare() {}
Bare.prototype = Object.freeze(Object.create(null))

function targetOf({ name, type, column }: OwnColumn): TargetColumn[] | undefined {
  if (column === undefined && name !== 'id') return undefined
  const inputType = type === undefined ? sql`text` : INPUT_TYPES[type]
  if (inputType === undefined) return undefined
  const path = column?.path ?? ['id']
  return [
    {
      name,
      path,
      lengthMax: column?.column.maxLength,
      defaultValue: column?.defaultSql,
      isComputed: column?.column.computed !== undefined,
      type,
      valueOf(expression, { isCalculated = false } = {}) {
        const isLocal = column?.column.withoutZone === true
        const given = isLocal ? sql`cast(${expression} as timestamp)` : expression
        const exact = sql`cast(${given} as ${inputType})`
        const { scale } = column?.column.decimal ?? {}
        const value =
          isCalculated && scale !== undefined
            ? sql`pg_catalog.round(${exact}, ${integer(scale)})`
            : exact
        // As text, so that numbers keep all digits.
        return type === 'json' || type === 'decimal'
          ? sql`to_json(cast(${value} as text))`
          : sql`to_json(${value})`
      },
    },
  ]
}

/** Puts the value of a column into a record. */
export function putValue(
  record: Record<string, unknown>,
  { path, lengthMax }: WrittenColumn,
  value: unknown,
): void {
  // An object without any values is not created.
  if (path.length > 1 && value === null) return
  let level = record
  for (const key of path.slice(0, -1)) {
    level[key] ??= newRecord()
    level = level[key] as Record<string, unknown>
  }
  level[path.at(-1) ?? ''] =
    typeof value === 'string' && lengthMax !== undefined ? withoutExcess(value, lengthMax) : value
}

/** Leaves out the spaces beyond the length of a text, as PostgreSQL does. A text with other characters there stays. */
function withoutExcess(text: string, lengthMax: number): string {
  if (text.length <= lengthMax || !text.endsWith(' ')) return text
  let end = text.length
  while (text.charAt(end - 1) === ' ') end--
  if (end > 2 * lengthMax) return text
  const missing = lengthMax - [...text.slice(0, end)].length
  return missing < 0 ? text : text.slice(0, end + missing)
}
