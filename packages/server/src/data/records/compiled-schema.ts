import type { Limits } from '@offshoot/contract/limits'
import { LruMap } from '../../common/lru-map.js'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { isFileType } from '../../rows/columns/column-types.js'
import { compileTable, type TableCodec } from '../../rows/columns/table-codec.js'
import type { StoredSchema, StoredTable } from '../../rows/layout/stored-schema.js'

/** A schema with what reading and writing its tables takes, compiled when first needed. */
export interface CompiledSchema {
  readonly id: string
  readonly tableNames: readonly string[]
  /** Of all tables, those inside of objects included. */
  readonly columnCount: number
  tableByName(name: string): TableCodec | undefined
  tableById(id: number): TableCodec | undefined
  /** The table that has a file column. */
  tableByFileColumn(id: number): TableCodec | undefined
}

const SCHEMAS_MAX = 1000
/** Columns of all of them together; what is compiled of one takes about a KiB. */
const SCHEMA_COLUMNS_MAX = 300_000

/** Schemas are immutable, so what was compiled once holds; the dialect reads JSON differently. */
export class SchemaCache {
  readonly #limits: Limits
  readonly #schemas = new LruMap<string, CompiledSchema>(SCHEMAS_MAX, {
    weightMax: SCHEMA_COLUMNS_MAX,
    weigh: (_key, { columnCount }) => columnCount,
  })

  constructor(limits: Limits) {
    this.#limits = limits
  }

  async get(
    database: Queryable,
    options: { schemaId: string; isDialect: boolean },
  ): Promise<CompiledSchema | undefined> {
    const key = `${options.schemaId}${options.isDialect ? ' dialect' : ''}`
    const known = this.#schemas.get(key)
    if (known !== undefined) return known
    const [row] = await database.query<{ document: StoredSchema }>(sql`
      select document from offshoot.schemas where id = ${options.schemaId}`)
    if (row === undefined) return undefined
    const compiled = compileSchema(options.schemaId, row.document, {
      limits: this.#limits,
      jsonAsText: options.isDialect,
    })
    this.#schemas.set(key, compiled)
    return compiled
  }
}

function compileSchema(
  id: string,
  document: StoredSchema,
  options: { limits: Limits; jsonAsText: boolean },
): CompiledSchema {
  const codecs = new Map<number, TableCodec>()
  const byName = new Map(document.tables.map((table) => [table.name, table]))
  const byId = new Map(document.tables.map((table) => [table.id, table]))
  const compile = (table: StoredTable | undefined): TableCodec | undefined => {
    if (table === undefined) return undefined
    let codec = codecs.get(table.id)
    if (codec === undefined) {
      codec = compileTable(table, options)
      codecs.set(table.id, codec)
    }
    return codec
  }
  return {
    id,
    tableNames: document.tables.map((table) => table.name),
    columnCount: document.tables.reduce((count, table) => count + countColumns(table.columns), 0),
    tableByName: (name) => compile(byName.get(name)),
    tableById: (tableId) => compile(byId.get(tableId)),
    tableByFileColumn: (columnId) =>
      compile(
        document.tables.find(({ columns }) =>
          columns.some(({ id: found, type }) => found === columnId && isFileType(type)),
        ),
      ),
  }
}

function countColumns(columns: StoredTable['columns']): number {
  return columns.reduce((count, column) => count + 1 + countColumns(column.columns ?? []), 0)
}
