import { AppError, type ErrorCode } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Resolution } from '@offshoot/contract/merge-conflicts'
import type { StoredSchema, StoredTable } from '../../rows/columns/stored-schema.js'
import { checkColumnName } from '../schemas/check-column.js'
import type { Take } from '../schemas/merge-definitions.js'
import { orderTables } from '../schemas/order-tables.js'

/** Maximum number of faults that a response lists. */
const FAULTS_LISTED_MAX = 1000

const OUTDATED: ErrorCode = 'outdated_resolution'

const NO_TOKEN =
  'field [token] is required; it repeats the [token] of the conflict, which a merge with [dryRun] lists'
const NO_TABLE_TOKEN =
  'field [token] is required; it repeats the [token] of the table in [conflictTables], which a merge with [dryRun] returns'

/** A decision about a record, or about columns of a record, and its place in the request. */
export interface RecordResolution {
  readonly index: number
  readonly id: string
  /** The side that decides what no column decides, or that has the record if the other one has deleted it. */
  readonly take: Take | undefined
  /** Decisions by the names of columns. */
  readonly columns: ReadonlyMap<string, CellDecision> | undefined
  readonly token: string
}

/** A decision about a record as the request has it: with its table, and its id in any form. */
export type GivenResolution = Omit<RecordResolution, 'id'> & {
  readonly id: string | number
  readonly table: string
}

export type CellDecision = { readonly take: Take } | { readonly value: unknown }

interface Sides {
  readonly ours: StoredSchema
  readonly theirs: StoredSchema
}

/** A decision about a table, or about its schema, and its place in the request. */
export interface TableResolution {
  readonly index: number
  readonly table: string
  readonly take: Take
  readonly token: string
}

/** A new name for a table or column of the merged branch, and its place in the request. It overwrites nothing. */
interface Rename {
  readonly index: number
  readonly table: string
  readonly column: string | undefined
  readonly name: string
}

/** A conflict of the schemas, by the id of the table or column in question. */
interface NamedConflict {
  readonly id: number | undefined
  readonly token: string
}

/**
 * The resolutions of a merge. A resolution must decide a conflict that exists, so each of them is marked when
 * it does. Faults are collected, because all of them are reported.
 */
export class Resolutions {
  readonly #ofTables: TableResolution[] = []
  readonly #ofSchemas: (TableResolution & Pick<Resolution, 'column' | 'constraint'>)[] = []
  readonly #renames: Rename[] = []
  readonly #ofRecords: GivenResolution[] = []
  readonly #used = new Set<number>()
  /** The greatest number that a resolution gives to a column, by its id. */
  readonly #greatest = new Map<number, number>()
  readonly #faults: { index: number; message: string; code: ErrorCode }[] = []

  constructor(resolutions: readonly Resolution[]) {
    const seen = new Map<string, number>()
    for (const [index, resolution] of resolutions.entries()) {
      const key = JSON.stringify([
        resolution.table,
        resolution.kind,
        resolution.column,
        resolution.constraint,
        resolution.id,
      ])
      const earlier = seen.get(key)
      if (earlier !== undefined) {
        this.refuseSame(index, earlier)
        continue
      }
      seen.set(key, index)
      const fault = this.#add(index, resolution)
      if (fault !== undefined) this.refuse(index, fault)
    }
    this.requireNoFaults()
  }

  /** Throws if a resolution is malformed. */
  static check(resolutions: readonly Resolution[]): void {
    new Resolutions(resolutions)
  }

  /** Adds a resolution to those of its kind, or returns why it is malformed. */
  #add(index: number, resolution: Resolution): string | undefined {
    const { table, id, kind, column, constraint, take, rename, columns, token } = resolution
    if (column !== undefined && kind === undefined) return 'field [column] needs [kind]'
    if (constraint !== undefined && kind === undefined) return 'field [constraint] needs [kind]'
    if (constraint !== undefined && (column ?? rename) !== undefined) {
      return 'field [constraint] excludes [column] and [rename]'
    }
    if (rename !== undefined && kind === undefined) return 'field [rename] needs [kind]'
    if (rename !== undefined && take !== undefined) {
      return 'fields [rename] and [take] exclude each other'
    }
    if (id === undefined) {
      if (columns !== undefined) return 'field [columns] needs [id]'
      if (rename !== undefined) {
        this.#renames.push({ index, table, column, name: rename })
        return undefined
      }
      if (take === undefined) return 'field [take] is required'
      if (token === undefined) return kind === undefined ? NO_TABLE_TOKEN : NO_TOKEN
      if (kind === undefined) this.#ofTables.push({ index, table, take, token })
      else {
        const named = { ...(column && { column }), ...(constraint && { constraint }) }
        this.#ofSchemas.push({ index, table, ...named, take, token })
      }
      return undefined
    }
    if (kind !== undefined) return 'fields [kind] and [id] exclude each other'
    if (take === undefined && columns === undefined) return '[take] or [columns] is required'
    if (token === undefined) return NO_TOKEN
    if (columns === undefined) {
      this.#ofRecords.push({ index, table, id, take, columns, token })
      return undefined
    }
    const decided = new Map<string, CellDecision>()
    for (const [name, cell] of Object.entries(columns)) {
      const hasValue = Object.hasOwn(cell, 'value')
      if (hasValue === (cell.take !== undefined)) {
        return `column [${name}]: either [take] or [value] is required`
      }
      decided.set(name, cell.take === undefined ? { value: cell.value } : { take: cell.take })
    }
    this.#ofRecords.push({ index, table, id, take, columns: decided, token })
    return undefined
  }

  refuse(index: number, message: string, code: ErrorCode = 'invalid_resolution'): void {
    this.#faults.push({ index, message: `body: field [resolutions.${index}]: ${message}`, code })
  }

  /** Refuses a resolution that decides the same as an earlier one. */
  refuseSame(index: number, earlier: number): void {
    this.refuse(index, `decides the same as field [resolutions.${earlier}]`)
  }

  /** Notes a number that a resolution gives to a column. */
  noteNumber(columnId: number, number: number): void {
    this.#greatest.set(columnId, Math.max(this.greatestOf(columnId), number))
  }

  greatestOf(columnId: number): number {
    return this.#greatest.get(columnId) ?? 0
  }

  get hasSchemas(): boolean {
    return this.#ofSchemas.length > 0
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

  /**
   * Returns the decisions about schemas, by the id of the table or column. `conflicts` are those that there would be
   * without any decision.
   */
  ofSchemas(sides: Sides, conflicts: readonly NamedConflict[]): ReadonlyMap<number, Take> {
    const takes = new Map<number, Take>()
    for (const { index, table, column, constraint, take, token } of this.#ofSchemas) {
      const place = { table, column, constraint }
      const [ids, name] = [idsNamed(sides, place), placeOf(place)]
      const found = conflicts.filter(({ id }) => id !== undefined && ids.includes(id))
      const reviewed = found.find((conflict) => conflict.token === token)
      if (ids.length === 0) this.refuse(index, `${name} not found`)
      else if (found.length === 0) this.refuse(index, `the schema of ${name} is not in conflict`)
      else if (reviewed?.id === undefined) {
        this.refuse(index, `the conflict of the schema of ${name} has changed since`, OUTDATED)
      } else takes.set(reviewed.id, take)
    }
    return takes
  }

  /** Returns the decisions about all conflicts of records of a table, by the id of the table. */
  ofTables(merged: StoredSchema, sides: Sides): ReadonlyMap<number, TableResolution> {
    const byId = new Map<number, TableResolution>()
    for (const resolution of this.#ofTables) {
      const id = this.#mergedTable(resolution, merged, sides)
      const earlier = id === undefined ? undefined : byId.get(id)
      if (earlier !== undefined) {
        // A table that one side has renamed was named by both names.
        this.refuseSame(resolution.index, earlier.index)
      } else if (id !== undefined) byId.set(id, resolution)
    }
    return byId
  }

  /** Marks a decision as needed. */
  markUsed({ index }: TableResolution): void {
    this.#used.add(index)
  }

  /** Refuses decisions about tables that have no conflict left. */
  refuseUnused(): void {
    const refused = new Set(this.#faults.map(({ index }) => index))
    for (const { index, table } of this.#ofTables) {
      if (this.#used.has(index) || refused.has(index)) continue
      this.refuse(
        index,
        `table [${table}] has no conflict of records that no other resolution decides`,
      )
    }
  }

  /** Returns the decisions about records by the id of their table. */
  ofRecords(merged: StoredSchema, sides: Sides): ReadonlyMap<number, readonly GivenResolution[]> {
    const ofTables = new Map<number, GivenResolution[]>()
    for (const resolution of this.#ofRecords) {
      const id = this.#mergedTable(resolution, merged, sides)
      if (id !== undefined) ofTables.set(id, [...(ofTables.get(id) ?? []), resolution])
    }
    return ofTables
  }

  /**
   * Returns the id of a table, which has the name that it gets, or that it has on one of the branches. Refuses the
   * resolution if there is none after the merge.
   */
  #mergedTable(
    { index, table }: { index: number; table: string },
    merged: StoredSchema,
    { ours, theirs }: Sides,
  ): number | undefined {
    const [found] = [merged, ours, theirs].flatMap((schema) => tablesNamed(schema, table))
    if (found === undefined) this.refuse(index, `table [${table}] not found`)
    else if (merged.tables.some(({ id }) => id === found.id)) return found.id
    else this.refuse(index, `table [${table}] is removed by the merge`)
    return undefined
  }

  /** Throws if a resolution was refused. `details` are for the answer if one is outdated. */
  requireNoFaults(details: Readonly<Record<string, unknown>> = {}): void {
    const [first] = this.#faults
    if (first === undefined) return
    const faults = [...this.#faults].sort((left, right) => left.index - right.index)
    const outdated = faults.find(({ code }) => code === OUTDATED)
    const { code, message } = outdated ?? first
    const others = faults.length === 1 ? '' : ` (and ${faults.length - 1} more)`
    throw new AppError(code, `${message}${others}; nothing was merged`, {
      ...(outdated === undefined ? {} : { details }),
      errors: faults.slice(0, FAULTS_LISTED_MAX).map((fault) => ({
        index: fault.index,
        message: fault.message,
        status: fault.code === OUTDATED ? 409 : 400,
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

/** Returns the ids of the tables, or of the columns, that have a name on one of the sides. */
function idsNamed({ ours, theirs }: Sides, { table, column, constraint }: SchemaPlace): number[] {
  const tables = [ours, theirs].flatMap((schema) => tablesNamed(schema, table))
  const named = (items: readonly { id: number; name: string }[], wanted: string) =>
    items.flatMap(({ id, name }) => (name === wanted ? id : []))
  const ids = tables.flatMap(({ id, columns, constraints = [] }) => {
    if (constraint !== undefined) return named(constraints, constraint)
    return column === undefined ? [id] : named(columns, column)
  })
  return [...new Set(ids)]
}

/** A table, or one of its columns or constraints, by name. */
interface SchemaPlace {
  readonly table: string
  readonly column: string | undefined
  readonly constraint: string | undefined
}

function placeOf({ table, column, constraint }: SchemaPlace): string {
  if (constraint !== undefined) return `constraint [${constraint}] of table [${table}]`
  return column === undefined ? `table [${table}]` : `column [${table}.${column}]`
}
