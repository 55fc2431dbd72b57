import { AppError, type ErrorCode } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { ConflictVersions, Resolution } from '@offshoot/contract/merge-conflicts'
import type { StoredSchema, StoredTable } from '../../rows/columns.js'
import { checkColumnName } from '../schemas/check-column.js'
import type { MergedSchema, Take } from '../schemas/merge-schemas.js'
import { orderTables } from '../schemas/order-tables.js'

/** Maximum number of faults that a response lists. */
const FAULTS_LISTED_MAX = 1000

/** A decision about a record, or about columns of a record, and its place in the request. */
export interface RecordResolution {
  readonly index: number
  readonly id: string
  /** A decision about the whole record, or decisions by the names of columns. */
  readonly decision: Take | ReadonlyMap<string, CellDecision>
  readonly versions: ConflictVersions | undefined
}

export type CellDecision = { readonly take: Take } | { readonly value: unknown }

interface Sides {
  readonly ours: StoredSchema
  readonly theirs: StoredSchema
}

interface Placed {
  readonly index: number
  readonly table: string
}

/** The name of a table or column in the request, and its place there. */
interface PlacedName extends Placed {
  readonly column: string | undefined
}

/**
 * The resolutions of a merge. A resolution must decide a conflict that exists, so each of them is marked when
 * it does. Faults are collected, because all of them are reported.
 */
export class Resolutions {
  readonly #ofTables: (Placed & { readonly take: Take })[] = []
  readonly #ofSchemas: (PlacedName & { readonly take: Take })[] = []
  readonly #renames: (PlacedName & { readonly name: string })[] = []
  readonly #ofRecords: (RecordResolution & { readonly table: string })[] = []
  readonly #used = new Set<number>()
  readonly #faults: { index: number; message: string; code: ErrorCode }[] = []

  constructor(resolutions: readonly Resolution[]) {
    const seen = new Map<string, number>()
    for (const [index, resolution] of resolutions.entries()) {
      const key = JSON.stringify([
        resolution.table,
        resolution.kind,
        resolution.column,
        resolution.id,
      ])
      const earlier = seen.get(key)
      if (earlier !== undefined) {
        this.refuse(index, `decides the same as field [resolutions.${earlier}]`)
        continue
      }
      seen.set(key, index)
      const fault = this.#add(index, resolution)
      if (fault !== undefined) this.refuse(index, fault)
    }
    // Malformed resolutions are refused before anything is compared.
    this.requireNoFaults()
  }

  /** Adds a resolution to those of its kind, or returns why it is malformed. */
  #add(index: number, resolution: Resolution): string | undefined {
    const { table, id, kind, column, take, rename, columns, versions } = resolution
    if (column !== undefined && kind === undefined) return 'field [column] needs [kind]'
    if (rename !== undefined && kind === undefined) return 'field [rename] needs [kind]'
    if (rename !== undefined && take !== undefined) {
      return 'fields [rename] and [take] exclude each other'
    }
    if (id === undefined) {
      if (columns !== undefined) return 'field [columns] needs [id]'
      if (versions !== undefined) return 'field [versions] needs [id]'
      if (rename !== undefined) {
        this.#renames.push({ index, table, column, name: rename })
        return undefined
      }
      if (take === undefined) return 'field [take] is required'
      if (kind === undefined) this.#ofTables.push({ index, table, take })
      else this.#ofSchemas.push({ index, table, column, take })
      return undefined
    }
    if (kind !== undefined) return 'fields [kind] and [id] exclude each other'
    if ((take === undefined) === (columns === undefined)) {
      return 'either [take] or [columns] is required'
    }
    if (take !== undefined) {
      this.#ofRecords.push({ index, table, id, decision: take, versions })
      return undefined
    }
    const decision = new Map<string, CellDecision>()
    for (const [name, cell] of Object.entries(columns ?? {})) {
      const hasValue = Object.hasOwn(cell, 'value')
      if (hasValue === (cell.take !== undefined)) {
        return `column [${name}]: either [take] or [value] is required`
      }
      decision.set(name, cell.take === undefined ? { value: cell.value } : { take: cell.take })
    }
    this.#ofRecords.push({ index, table, id, decision, versions })
    return undefined
  }

  refuse(index: number, message: string, code: ErrorCode = 'invalid_resolution'): void {
    this.#faults.push({ index, message: `body: field [resolutions.${index}]: ${message}`, code })
  }

  /** The decisions about all conflicts of a table, by table name. */
  get ofTables(): ReadonlyMap<string, Take> {
    return new Map(this.#ofTables.map(({ table, take }) => [table, take]))
  }

  /** Returns the schema of the merged branch with the names that its tables and columns get on the target. */
  rename(theirs: StoredSchema): StoredSchema {
    const newName = (table: string, column?: string) =>
      this.#renames.find((each) => each.table === table && each.column === column)?.name
    if (this.#renames.length === 0) return theirs
    const tables = theirs.tables.map((table) => ({
      ...table,
      name: newName(table.name) ?? table.name,
      columns: table.columns.map((column) => ({
        ...column,
        name: newName(table.name, column.name) ?? column.name,
      })),
    }))
    return {
      ...theirs,
      tables,
      ...(theirs.tablesOrder && { tablesOrder: orderOf(theirs, tables) }),
    }
  }

  /** Refuses new names that are invalid, or for tables and columns whose name is not in conflict. */
  markRenames({ ours, theirs }: Sides, limits: Limits): void {
    for (const { index, table, column, name } of this.#renames) {
      const what = column === undefined ? `table [${table}]` : `column [${table}.${column}]`
      const tableName = this.#renames.find(
        (each) => each.table === table && each.column === undefined,
      )?.name
      const [there] = tablesNamed(theirs, tableName ?? table)
      const item = column === undefined ? there : there?.columns.find((each) => each.name === name)
      const fault = column === undefined ? undefined : checkColumnName(name, limits)
      if (item === undefined) this.refuse(index, `${what} not found on the merged branch`)
      else if (fault !== undefined) this.refuse(index, `field [rename]: ${fault}`)
      else {
        const here = ours.tables.filter((each) => each.id === there?.id || isNamed(each, table))
        const items = column === undefined ? here : here.flatMap(({ columns }) => columns)
        const isTaken = items.some((each) => each.id !== item.id && isNamed(each, column ?? table))
        if (!isTaken) this.refuse(index, `the name of ${what} is not in conflict`)
      }
    }
  }

  /** Returns the decisions about schemas, by the id of the table or column. */
  ofSchemas({ ours, theirs }: Sides): ReadonlyMap<number, Take> {
    const takes = new Map<number, Take>()
    for (const resolution of this.#ofSchemas) {
      for (const id of idsNamed([ours, theirs], resolution)) takes.set(id, resolution.take)
    }
    return takes
  }

  /** Marks the decisions that the merged schema needed. Refuses those about schemas that it did not need. */
  markSchemas({ ours, theirs }: Sides, { decided, decidedByRule }: MergedSchema): void {
    for (const { index, table } of this.#ofTables) {
      const ids = idsNamed([ours, theirs], { table, column: undefined })
      if (ids.length === 0) this.refuse(index, `table [${table}] not found`)
      if (ids.some((id) => decidedByRule.has(id))) this.#used.add(index)
    }
    for (const { index, table, column } of this.#ofSchemas) {
      const ids = idsNamed([ours, theirs], { table, column })
      const name = column === undefined ? `table [${table}]` : `column [${table}.${column}]`
      if (ids.length === 0) this.refuse(index, `${name} not found`)
      else if (!ids.some((id) => decided.has(id))) {
        this.refuse(index, `the schema of ${name} is not in conflict`)
      }
    }
  }

  /** Marks the decision about all conflicts of a table as needed. */
  markTable({ ours, theirs }: Sides, tableId: number): void {
    for (const { index, table } of this.#ofTables) {
      const ids = idsNamed([ours, theirs], { table, column: undefined })
      if (ids.includes(tableId)) this.#used.add(index)
    }
  }

  /** Refuses decisions about tables that have no conflict left. */
  refuseUnused(): void {
    const refused = new Set(this.#faults.map(({ index }) => index))
    for (const { index, table } of this.#ofTables) {
      if (this.#used.has(index) || refused.has(index)) continue
      this.refuse(index, `table [${table}] has no conflict that no other resolution decides`)
    }
  }

  /**
   * Returns the decisions about records by the id of their table. A table has the name that it gets, or that
   * it has on one of the branches.
   */
  ofRecords(merged: StoredSchema, { ours, theirs }: Sides): Map<number, RecordResolution[]> {
    const merging = new Set(merged.tables.map(({ id }) => id))
    const ofTables = new Map<number, RecordResolution[]>()
    for (const { table, ...resolution } of this.#ofRecords) {
      const [id] = [merged, ours, theirs].flatMap((schema) => tablesNamed(schema, table))
      if (id === undefined) this.refuse(resolution.index, `table [${table}] not found`)
      else if (!merging.has(id.id)) {
        this.refuse(resolution.index, `table [${table}] is removed by the merge`)
      } else ofTables.set(id.id, [...(ofTables.get(id.id) ?? []), resolution])
    }
    return ofTables
  }

  requireNoFaults(): void {
    const [first] = this.#faults
    if (first === undefined) return
    const faults = [...this.#faults].sort((left, right) => left.index - right.index)
    const outdated = faults.find(({ code }) => code === 'outdated_resolution')
    const { code, message } = outdated ?? first
    const others = faults.length === 1 ? '' : ` (and ${faults.length - 1} more)`
    throw new AppError(code, `${message}${others}; nothing was merged`, {
      errors: faults.slice(0, FAULTS_LISTED_MAX).map((fault) => ({
        index: fault.index,
        message: fault.message,
        status: fault.code === 'outdated_resolution' ? 409 : 400,
      })),
    })
  }
}

/** Returns the order of tables by their new names. */
function orderOf(schema: StoredSchema, renamed: readonly StoredTable[]): string[] {
  const names = new Map(renamed.map(({ id, name }) => [id, name]))
  return orderTables(schema).flatMap(({ id }) => names.get(id) ?? [])
}

/** Names that differ in case only are taken to be the same. */
function isNamed(item: { readonly name: string }, name: string): boolean {
  return item.name.toLowerCase() === name.toLowerCase()
}

function tablesNamed({ tables }: StoredSchema, name: string): StoredTable[] {
  return tables.filter((table) => table.name === name)
}

/** Returns the ids of the tables, or of the columns, that have a name in one of the schemas. */
function idsNamed(
  schemas: readonly StoredSchema[],
  { table, column }: { table: string; column: string | undefined },
): number[] {
  const tables = schemas.flatMap((schema) => tablesNamed(schema, table))
  if (column === undefined) return tables.map(({ id }) => id)
  return tables.flatMap(({ columns }) =>
    columns.flatMap(({ id, name }) => (name === column ? id : [])),
  )
}
