import type { ColumnType } from '@offshoot/contract/schema'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { Slot } from '../../postgres/statement.js'
import { isFileType, type PhysicalColumn, type TableCodec } from '../../rows/columns.js'
import { countArms, listArms } from '../../rows/read.js'
import type { BranchRows } from '../../rows/tables.js'
import { cutName, findName } from './scope.js'
import type { SqlTable, SqlTables } from './select-sql.js'
import { sqlFault } from './sql-fault.js'

const ROW = sql`h`

/** A table of a branch that statements read, and write by their columns. */
export interface BranchTable extends SqlTable {
  /** As the schema has it. */
  readonly fullName: string
  /** The column that a statement writes to. */
  target(name: string): TargetColumn
  /** All columns that can be written, in their order. */
  readonly targets: readonly TargetColumn[]
  /** The columns in which no two records have the same value, the id first. */
  readonly keys: readonly KeyColumn[]
  /**
   * Records that are about to be inserted, as rows of the table, with their position. They are given
   * as JSON: for each a list of its id and the texts of its physical columns.
   */
  proposed(records: Slot): Sql
}

/** A column in which no two records have the same value. */
export interface WrittenKey {
  readonly name: string
  /** Its place among the physical columns; the id has none. */
  readonly index: number | undefined
}

export interface KeyColumn extends WrittenKey {
  /** An array of its texts, as one of values. */
  valuesOf(texts: Slot): Sql
}

/** Beside the columns of `proposed`; no column of a table has a name with a space. */
export const PROPOSED_POSITION = ident('proposed position')

/** A column that a statement gives values to. */
export interface WrittenColumn {
  readonly name: string
  /** Its name, with those of the objects that it is in before it. */
  readonly path: readonly string[]
}

export interface TargetColumn extends WrittenColumn {
  /** What is to be stored, as JSON that the table takes; from an expression of any type. */
  valueOf(expression: Sql): Sql
}

export interface WritableTables extends SqlTables {
  find(name: string): BranchTable | undefined
}

/** Where the tables of a branch are described. */
export interface TableSource {
  readonly tableNames: readonly string[]
  readonly metadataKey: string
  /** A table, and where its rows are on the branch. */
  describe(name: string): { codec: TableCodec; rows: BranchRows } | undefined
}

/** The tables that can be written out take more work than the caller wants to do. */
export class TooManyCellsError extends Error {}

/** The tables of a branch, by the names that statements have for them. */
export class BranchTables implements WritableTables {
  readonly #source: TableSource
  readonly #names: TableNames
  readonly #found = new Map<string, BranchTable>()
  #cellsLeft: number

  /** A table takes a cell for each of its columns in each place that its rows come from. */
  constructor(source: TableSource, options: { cellsMax?: number } = {}) {
    this.#source = source
    this.#names = new TableNames(source.tableNames)
    this.#cellsLeft = options.cellsMax ?? Number.POSITIVE_INFINITY
  }

  find(name: string): BranchTable | undefined {
    const found = this.#names.find(name)
    const described = found === undefined ? undefined : this.#source.describe(found)
    if (found === undefined || described === undefined) return undefined
    const { codec, rows } = described
    this.#cellsLeft -= (codec.physical.length + 1) * countArms(rows, codec.table.id)
    if (this.#cellsLeft < 0) throw new TooManyCellsError()
    const known = this.#found.get(found)
    if (known !== undefined) return known
    const made = createTable(codec, { metadataKey: this.#source.metadataKey, rows })
    this.#found.set(found, made)
    return made
  }
}

/** Finds the full name of a table: as it is written, or else the one that differs in case alone. */
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
  readonly type: ColumnType | undefined
  readonly column: PhysicalColumn | undefined
  /** By an expression for each physical column. */
  read(physical: (index: number) => Sql): Sql
}

function createTable(
  codec: TableCodec,
  { metadataKey, rows }: { metadataKey: string; rows: BranchRows },
): BranchTable {
  const columns = listColumns(codec, metadataKey)
  const targets = columns.flatMap((column) => targetOf(column) ?? [])
  const names = columns.map(({ name }) => name)
  const repeated = names.find((name, index) => names.indexOf(name) !== index)
  if (repeated !== undefined) {
    throw sqlFault(
      `table [${codec.table.name}]: several columns begin with [${repeated}], which is all that SQL can tell of a name`,
    )
  }
  return {
    name: cutName(codec.table.name),
    columns: names,
    rows: writeRows(rows, codec, columns),
    fullName: codec.table.name,
    targets,
    keys: columns.flatMap((column) => keyOf(codec, column)),
    proposed: (records) => writeProposed(codec, columns, records),
    target(name) {
      const target = findName(targets, name, (each) => each.name)
      if (target !== undefined) return target
      const isKnown = findName(names, name, (each) => each) !== undefined
      const reason = isKnown ? 'cannot be written by SQL' : 'column not found'
      throw sqlFault(`table [${codec.table.name}]: column [${name}]: ${reason}`)
    },
  }
}

/** The id, the columns of the schema, and the metadata. Columns of objects have dotted names. */
function listColumns(codec: TableCodec, metadataKey: string): OwnColumn[] {
  const metadata = (name: string, expression: Sql): OwnColumn => ({
    name: name === 'id' ? name : `${metadataKey}.${name}`,
    type: undefined,
    column: undefined,
    read: () => expression,
  })
  const own = codec.physical.flatMap((column, index): OwnColumn[] => {
    const { type } = column.column
    if (type === 'object') return []
    const name = cutName(column.path.join('.'))
    return [{ name, type, column, read: (physical) => publicValue(type, physical(index)) }]
  })
  return [
    metadata('id', sql`${ROW}.id`),
    ...own,
    metadata('version', sql`${ROW}.version`),
    metadata('createdAt', sql`${ROW}.created_at`),
    metadata('updatedAt', sql`${ROW}.updated_at`),
  ]
}

/** The keys of files open them to anybody, and where their content is concerns nobody. */
const SECRET_FIELDS = sql`array['key', 'sha256']`

function publicValue(type: ColumnType, value: Sql): Sql {
  if (!isFileType(type)) return value
  if (type === 'file') return sql`(${value} - ${SECRET_FIELDS})`
  return sql`(
    select jsonb_agg(f.file - ${SECRET_FIELDS} order by f.n)
    from jsonb_array_elements(${value}) with ordinality f(file, n)
  )`
}

function keyOf({ physical }: TableCodec, { name, column }: OwnColumn): KeyColumn[] {
  const isKey = column === undefined ? name === 'id' : column.column.unique
  if (!isKey) return []
  const index = column === undefined ? undefined : physical.indexOf(column)
  const type = raw(column?.sqlType.split(' collate ')[0] ?? 'text')
  return [{ name, index, valuesOf: (texts) => sql`${texts}::${type}[]` }]
}

function selectColumns(columns: readonly OwnColumn[], physical: (index: number) => Sql): Sql {
  return join(
    columns.map((column) => sql`${column.read(physical)} as ${ident(column.name)}`),
    ', ',
  )
}

/** By the names that physical columns have in a heap. */
function ownPhysical({ physical }: TableCodec): (index: number) => Sql {
  return (index) => sql`${ROW}.${ident(physical[index]?.physicalName ?? '')}`
}

function writeProposed(codec: TableCodec, columns: readonly OwnColumn[], records: Slot): Sql {
  const values = codec.physical.map(
    ({ sqlType, physicalName }, index) =>
      sql`, (p.record ->> ${index + 1}::integer)::${raw(sqlType)} as ${ident(physicalName)}`,
  )
  return sql`
    select ${selectColumns(columns, ownPhysical(codec))}, ${ROW}.position as ${PROPOSED_POSITION}
    from (
      select p.record ->> 0 as id, 0 as version, now() as created_at, now() as updated_at,
        p.position${join([empty, ...values], '')}
      from jsonb_array_elements(${records}::jsonb) with ordinality p(record, position)
    ) ${ROW}`
}

function writeRows(rows: BranchRows, codec: TableCodec, columns: readonly OwnColumn[]): Sql {
  const arms = listArms({ rows }, codec, ROW)
  if (arms.length > 0) {
    const selects = arms.map(
      (arm) =>
        sql`select ${selectColumns(columns, (index) => arm.column(index))} from ${arm.table} ${ROW} where ${arm.condition}`,
    )
    return join(selects, ' union all ')
  }
  // A branch on which nothing was ever written to the table.
  const nothing = codec.physical.map(
    ({ sqlType, physicalName }) => sql`, null::${raw(sqlType)} as ${ident(physicalName)}`,
  )
  return sql`
    select ${selectColumns(columns, ownPhysical(codec))}
    from (
      select null::text as id, null::integer as version, null::timestamptz as created_at,
        null::timestamptz as updated_at${join([empty, ...nothing], '')}
    ) ${ROW}
    where false`
}

/** Types that values are turned into before they are checked like those of any record. */
const INPUT_TYPES: Readonly<Record<ColumnType, Sql | undefined>> = {
  bool: sql`boolean`,
  // A fraction must be seen, to be refused.
  int: sql`numeric`,
  float: sql`double precision`,
  string: sql`text`,
  text: sql`text`,
  email: sql`text`,
  link: sql`text`,
  multiple: sql`text[]`,
  datetime: sql`timestamptz`,
  vector: sql`real[]`,
  json: sql`jsonb`,
  object: undefined,
  file: undefined,
  'file[]': undefined,
}

/** Without a prototype, so that no name of a column means anything else. */
export function newRecord(): Record<string, unknown> {
  return Object.create(null) as Record<string, unknown>
}

function targetOf({ name, type, column }: OwnColumn): TargetColumn[] | undefined {
  if (column === undefined && name !== 'id') return undefined
  const inputType = type === undefined ? sql`text` : INPUT_TYPES[type]
  if (inputType === undefined) return undefined
  const path = column?.path ?? ['id']
  return [
    {
      name,
      path,
      valueOf(expression) {
        const value = sql`cast(${expression} as ${inputType})`
        // As a text, a document keeps all digits of its numbers on the way.
        return type === 'json' ? sql`to_json(cast(${value} as text))` : sql`to_json(${value})`
      },
    },
  ]
}

/** Puts the value of a column into a record. */
export function putValue(
  record: Record<string, unknown>,
  { path }: WrittenColumn,
  value: unknown,
): void {
  // An object in which nothing is set is not made.
  if (path.length > 1 && value === null) return
  let level = record
  for (const key of path.slice(0, -1)) {
    level[key] ??= newRecord()
    level = level[key] as Record<string, unknown>
  }
  level[path.at(-1) ?? ''] = value
}
