import { AppError } from '@offshoot/contract/errors'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { enumNameOf } from '../../../dialect/scope.js'
import type { ColumnModel, SchemaModel, TableModel } from './schema-model.js'

/** The values of enums, by the names of types that columns can have. */
export type SchemaTypes = ReadonlyMap<string, readonly string[]>

/** Types that are remembered at the same time. */
const TYPES_MAX = 200

/** The enums that statements can name: those of columns, and those that a client has made and not yet used. */
export class EnumTypes {
  readonly #known: Map<string, readonly string[]>
  /** The names of the types that columns have had before. */
  readonly #had: ReadonlySet<string>
  /** The names of types that this client has made. */
  readonly #made: Set<string>

  constructor(model: SchemaModel, made: SchemaTypes) {
    // The types that columns have are newer: others may have changed them since this connection made its own.
    const had = typesOf(model)
    this.#had = new Set(had.keys())
    this.#known = new Map([...made, ...had])
    this.#made = new Set(made.keys())
  }

  get known(): SchemaTypes {
    return this.#known
  }

  /** Returns the types to remember for the client. A type goes with its last column. */
  toRemember(model: SchemaModel): SchemaTypes {
    const left = typesOf(model)
    const isGone = (name: string) => this.#had.has(name) && !left.has(name)
    return new Map([...this.#known].filter(([name]) => this.#made.has(name) && !isGone(name)))
  }

  valuesOf(name: string): readonly string[] {
    const values = this.#known.get(name)
    if (values !== undefined) return values
    throw invalidSql(`type [${name}] not found: a type is there as long as a column has it`)
  }

  add(name: string, values: readonly string[]): void {
    this.#requireFree(name)
    if (this.#made.size >= TYPES_MAX) {
      throw invalidSql(`at most ${TYPES_MAX} types can be created by one client`)
    }
    this.#made.add(name)
    this.#known.set(name, values)
  }

  change(name: string, values: readonly string[]): void {
    this.#known.set(name, values)
  }

  rename(name: string, newName: string): void {
    const values = this.valuesOf(name)
    this.#requireFree(newName)
    this.#known.delete(name)
    this.#known.set(newName, values)
    if (this.#made.delete(name)) this.#made.add(newName)
  }

  /** Returns whether there was such a type. */
  remove(name: string): boolean {
    this.#made.delete(name)
    return this.#known.delete(name)
  }

  #requireFree(name: string): void {
    if (!this.#known.has(name)) return
    throw new AppError('already_exists', `type [${name}] already exists`)
  }
}

/** Lists the columns of a type. */
export const columnsOf = ({ tables }: SchemaModel, type: string) =>
  tables.flatMap((table) =>
    table.columns
      .filter((column) => typeNameOf(table, column) === type)
      .map((column) => ({ table, column })),
  )

/** The name of the type of a column, as the catalogue shows it. */
const typeNameOf = (table: TableModel, { definition }: ColumnModel): string | undefined =>
  definition.type === 'enum' ? enumNameOf(table.name, definition) : undefined

/** Returns the types of columns. */
function typesOf({ tables }: SchemaModel): Map<string, readonly string[]> {
  const types = new Map<string, readonly string[]>()
  for (const table of tables) {
    for (const column of table.columns) {
      const name = typeNameOf(table, column)
      if (name !== undefined && !types.has(name)) {
        types.set(name, column.definition.enum?.values ?? [])
      }
    }
  }
  return types
}
