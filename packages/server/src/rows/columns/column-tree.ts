import { columnIdsIn } from '../../dialect/row-expression.js'
import { literal, type Sql, sql } from '../../postgres/sql.js'
import { type CodecOptions, NOW, type ValueCodec } from './column-type.js'
import { COLUMN_TYPE_ENTRIES, isFileType } from './column-types.js'
import { computedSql, isComputed, shownComputedSql } from './computed-columns.js'
import { Fault } from './fault.js'
import { listAllColumns, type StoredColumn, type StoredTable } from './stored-schema.js'

export interface PhysicalColumn {
  readonly id: number
  /** The names from the table down to the column. */
  readonly path: readonly string[]
  readonly column: StoredColumn
  readonly physicalName: string
  readonly sqlType: string
  readonly codec: ValueCodec
  /** The default of the column. undefined: the service generates it, which SQL cannot. */
  readonly defaultSql: Sql | undefined
  /** How the value is calculated. undefined: it is stored. */
  readonly computed: ComputedValue | undefined
}

interface ComputedValue {
  /** The columns that it uses, by id. */
  readonly uses: ReadonlyMap<number, StoredColumn>
  /** Returns SQL for the value. `columnSql` returns an expression for a column, by its id. */
  valueSql(columnSql: (id: number) => Sql): Sql
  /** Does the same for columns with the types that are shown. */
  shownSql(columnSql: (id: number) => Sql): Sql
}

/** A column and its nested columns. Its physical columns are those from `index` up to, excluding, `end`. */
export interface ColumnNode {
  readonly column: StoredColumn
  /** The dotted path of the column. */
  readonly path: string
  /** Position among the columns of the same level. */
  readonly ordinal: number
  readonly index: number
  readonly end: number
  readonly codec: ValueCodec
  readonly isFile: boolean
  readonly notNull: boolean
  readonly defaultText: string | typeof NOW | null
  /** Set for object columns only. */
  readonly nested: ColumnLevel | undefined
}

/** The columns of a table or of an object. */
export interface ColumnLevel {
  readonly nodes: readonly ColumnNode[]
  readonly byName: ReadonlyMap<string, ColumnNode>
}

export interface ColumnTree extends ColumnLevel {
  /**
   * Leaf columns and the presence columns of objects, in schema order. An object precedes its nested columns.
   * Computed columns are the last ones.
   */
  readonly physical: readonly PhysicalColumn[]
  /** The number of columns that are stored. */
  readonly storedCount: number
}

/** Returns the name of a column in the heaps. */
export function physicalName({ id }: { readonly id: number }): string {
  return `c${id}`
}

export function compileColumns(table: StoredTable, options: CodecOptions): ColumnTree {
  const physical: PhysicalColumn[] = []
  const all = listAllColumns(table.columns)

  function compileLevel(columns: readonly StoredColumn[], parents: readonly string[]): ColumnLevel {
    const ordinals = new Map(columns.map((column, ordinal) => [column, ordinal]))
    const compiled = [
      ...columns.filter((column) => !isComputed(column)),
      ...columns.filter(isComputed),
    ].map((column) => {
      const ordinal = ordinals.get(column) ?? 0
      return compileColumn(column, { path: [...parents, column.name], ordinal })
    })
    const nodes = compiled.sort((one, other) => one.ordinal - other.ordinal)
    return { nodes, byName: new Map(nodes.map((node) => [node.column.name, node])) }
  }

  function compileColumn(
    column: StoredColumn,
    { path, ordinal }: { path: readonly string[]; ordinal: number },
  ): ColumnNode {
    const entry = COLUMN_TYPE_ENTRIES[column.type]
    const codec = entry.compile(column, options)
    const index = physical.length
    const defaultText = compileDefault(column, options)
    physical.push({
      id: column.id,
      path,
      column,
      physicalName: physicalName(column),
      sqlType: entry.sqlType,
      codec,
      defaultSql: defaultSql(column, defaultText),
      computed: computedOf(column, all),
    })
    const nested = column.type === 'object' ? compileLevel(column.columns ?? [], path) : undefined
    return {
      column,
      path: path.join('.'),
      ordinal,
      index,
      end: physical.length,
      codec,
      isFile: isFileType(column.type),
      notNull: column.notNull === true,
      defaultText,
      nested,
    }
  }

  const level = compileLevel(table.columns, [])
  const storedCount = physical.filter(({ column }) => !isComputed(column)).length
  return { ...level, physical, storedCount }
}

function computedOf(
  column: StoredColumn,
  all: readonly StoredColumn[],
): PhysicalColumn['computed'] {
  if (!isComputed(column)) return undefined
  const ids = new Set(columnIdsIn(column.computed.sql))
  return {
    uses: new Map(all.filter(({ id }) => ids.has(id)).map((each) => [each.id, each])),
    valueSql: (columnSql) => computedSql(column, { columns: all }, columnSql),
    shownSql: (columnSql) => shownComputedSql(column, columnSql),
  }
}

function defaultSql(
  { type, generate }: StoredColumn,
  text: ReturnType<typeof compileDefault>,
): Sql | undefined {
  if (text === NOW || generate === 'updatedAt') {
    return type === 'datetime' ? sql`now()` : sql`(now() at time zone 'UTC')`
  }
  if (generate !== undefined) return undefined
  return text === null ? sql`null` : literal(text)
}

function compileDefault(column: StoredColumn, options: CodecOptions): string | typeof NOW | null {
  if (column.defaultValue === undefined) return null
  const entry = COLUMN_TYPE_ENTRIES[column.type]
  const text = entry.parseDefault(column.defaultValue, column, options)
  // Schema edits reject invalid defaults, so an invalid stored default is a bug.
  if (text instanceof Fault) throw new Error(`default of column ${column.id}: ${text.message}`)
  return text
}
