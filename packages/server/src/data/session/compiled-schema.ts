import type { Limits } from '@offshoot/contract/limits'
import { BoundedCache } from '../../common/bounded-cache.js'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { isFileType } from '../../rows/columns/column-types.js'
import {
  listAllColumns,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import { compileTable, type TableCodec } from '../../rows/columns/table-codec.js'

/** A schema whose tables are compiled on first use. */
export interface CompiledSchema {
  readonly limits: Limits
  readonly tableNames: readonly string[]
  /** The number of columns of all tables, including nested columns. */
  readonly columnCount: number
  tableByName(name: string): TableCodec | undefined
  tableById(id: number): TableCodec | undefined
  /** Whether any table keeps versions of records. */
  readonly hasHistory: boolean
  /** Ids that tables and columns have had. */
  readonly formerIds: Pick<StoredSchema, 'sameIds' | 'removedIds'>
  /** Whether any column requires that linked records exist. */
  readonly hasRequiredLinks: boolean
  /** Returns the tables with columns that require that linked records of a table exist. */
  referrersOf(tableId: number): readonly TableCodec[]
  /** Returns the stored definition of a table, without compiling it. */
  storedTable(name: string): StoredTable | undefined
  /** Finds the table that has the given file column. */
  tableByFileColumn(id: number): TableCodec | undefined
}

const SCHEMAS_MAX = 1000
/** The number of columns in all cached schemas; a compiled column takes about 1 KiB. */
const SCHEMA_COLUMNS_MAX = 300_000

/** Schemas are immutable, so compiled ones never expire. The Xata client gets JSON values as strings. */
export class SchemaCache {
  readonly #limits: Limits
  readonly #schemas = new BoundedCache<CompiledSchema>({
    max: SCHEMAS_MAX,
    maxSize: SCHEMA_COLUMNS_MAX,
    sizeOf: ({ columnCount }) => columnCount + 1,
  })

  constructor(limits: Limits) {
    this.#limits = limits
  }

  async get(
    database: Queryable,
    options: { schemaId: string; isXataClient: boolean },
  ): Promise<CompiledSchema | undefined> {
    const key = `${options.schemaId}${options.isXataClient ? ' xata' : ''}`
    const known = this.#schemas.get(key)
    if (known !== undefined) return known
    const [row] = await database.query<{ document: StoredSchema }>(sql`
      select document from offshoot.schemas where id = ${options.schemaId}`)
    if (row === undefined) return undefined
    const compiled = compileSchema(row.document, {
      limits: this.#limits,
      jsonAsText: options.isXataClient,
    })
    this.#schemas.set(key, compiled)
    return compiled
  }
}

function compileSchema(
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
  const referrers = listReferrers(document)
  return {
    limits: options.limits,
    tableNames: document.tables.map((table) => table.name),
    columnCount: document.tables.reduce(
      (count, table) => count + listAllColumns(table.columns).length,
      0,
    ),
    tableByName: (name) => compile(byName.get(name)),
    tableById: (tableId) => compile(byId.get(tableId)),
    formerIds: document,
    hasHistory: document.tables.some(({ history }) => history !== undefined),
    hasRequiredLinks: referrers.size > 0,
    referrersOf: (tableId) =>
      (referrers.get(tableId) ?? []).flatMap((table) => compile(table) ?? []),
    storedTable: (name) => byName.get(name),
    tableByFileColumn: (columnId) =>
      compile(
        document.tables.find(({ columns }) =>
          columns.some(({ id: found, type }) => found === columnId && isFileType(type)),
        ),
      ),
  }
}

/** Returns the tables whose columns require that linked records exist, by the ids of the linked tables. */
function listReferrers({ tables }: StoredSchema): Map<number, StoredTable[]> {
  const referrers = new Map<number, StoredTable[]>()
  for (const table of tables) {
    const required = listAllColumns(table.columns).filter(({ onDelete }) => onDelete !== undefined)
    for (const tableId of new Set(required.flatMap(({ link }) => link?.tableId ?? []))) {
      referrers.set(tableId, [...(referrers.get(tableId) ?? []), table])
    }
  }
  return referrers
}
