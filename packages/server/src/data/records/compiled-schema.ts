import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { isFileType } from '../../rows/columns/column-types.js'
import { compileTable, type TableCodec } from '../../rows/columns/table-codec.js'
import type { StoredSchema, StoredTable } from '../../rows/layout/stored-schema.js'
import { LruMap } from './lru-map.js'

/** A schema with what reading and writing its tables takes, compiled when first needed. */
export interface CompiledSchema {
  readonly id: string
  readonly tableNames: readonly string[]
  tableByName(name: string): TableCodec | undefined
  tableById(id: number): TableCodec | undefined
  /** The table that has a file column. */
  tableByFileColumn(id: number): TableCodec | undefined
}

const SCHEMAS_MAX = 1000

/** Schemas are immutable, so what was compiled once holds; the dialect reads JSON differently. */
export class SchemaCache {
  readonly #limits: Limits
  readonly #schemas = new LruMap<string, CompiledSchema>(SCHEMAS_MAX)

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
