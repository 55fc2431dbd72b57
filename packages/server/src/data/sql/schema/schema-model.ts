import { LIMITS } from '@offshoot/contract/limits'
import type {
  Column,
  Constraint,
  IdType,
  IntBits,
  LinkAction,
  Schema,
} from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { cutName, findName } from '../../../dialect/scope.js'
import { COLUMN_TYPE_ENTRIES } from '../../../rows/columns/column-types.js'
import { notSupported } from './not-supported.js'

type Alteration = Extract<SchemaOperation, { alterColumn: unknown }>['alterColumn']
/** What statements change in a column. Null removes a field. */
type ColumnChanges = Omit<Alteration, 'table' | 'column' | 'name'>

/** What gives existing records a value of a new column. */
type Fill = Pick<Column, 'defaultValue' | 'generate'>

export interface ColumnModel {
  definition: Column
  /** Whether an index was asked for. */
  hasIndex?: boolean
  /** The operation that adds the column, if the statements do. */
  readonly added?: { column: Column; readonly fill?: Fill }
  /** The operation that changes it. A column has one, because each would be stored and checked by itself. */
  altered?: { -readonly [Field in keyof Alteration]: Alteration[Field] }
}

interface ConstraintModel {
  readonly name: string
  readonly isUnique: boolean
  readonly definition: Constraint
  /** The operation that adds the constraint, if the statements do. */
  readonly added?: { constraint: Constraint }
  /** The names of its columns. */
  columns: string[]
  /** Whether a column of it has another name than its definition says. */
  hasRenamed?: boolean
}

export interface TableModel {
  name: string
  readonly idType: IdType
  idBits?: IntBits | undefined
  /** The statement that created the table has no column for ids. */
  readonly hidesId: boolean
  /** The operation that adds the table, if the statements do. */
  readonly added?: { idBits?: IntBits }
  readonly columns: ColumnModel[]
  readonly constraints: ConstraintModel[]
}

/** The type of ids, and their size. */
export interface IdForm {
  readonly type: IdType
  readonly bits?: IntBits | undefined
  /** The statement that creates the table has no column for ids. */
  readonly isHidden?: boolean
}

/** An index that a column gets or loses. */
interface IndexWish {
  readonly table: TableModel
  readonly column: ColumnModel
  readonly isWanted: boolean
}

/** Facts about a schema that the form which clients read does not have. */
interface SchemaFacts {
  /** Returns the names of the columns that a constraint of a table uses. */
  usedBy(table: string, constraint: string): readonly string[]
  /** Returns whether an index of a column was asked for. */
  hasIndex(table: string, column: string): boolean
}

/** The tables of a branch while statements change them, and the operations that these changes are. */
export class SchemaModel {
  readonly operations: SchemaOperation[] = []
  readonly indexes: IndexWish[] = []
  readonly tables: TableModel[]

  constructor(schema: Schema, { usedBy, hasIndex }: SchemaFacts) {
    this.tables = schema.tables.map(
      ({ name, idType = 'string', idBits, hiddenId = false, columns, constraints = [] }) => ({
        ...{ name, idType, idBits, hidesId: hiddenId },
        columns: columns.map((definition) => ({
          definition,
          hasIndex: hasIndex(name, definition.name),
        })),
        constraints: constraints.map((each) => ({
          name: each.name,
          isUnique: 'unique' in each,
          definition: each,
          columns: [...usedBy(name, each.name)],
        })),
      }),
    )
  }

  findTable(name: string): TableModel | undefined {
    return findName(this.tables, name, (table) => cutName(table.name))
  }

  addTable(name: string, { type: idType, bits, isHidden }: IdForm): TableModel {
    const added = {
      table: name,
      ...(idType !== 'string' && { idType }),
      ...(bits && { idBits: bits }),
      ...(isHidden && { hiddenId: true as const }),
    }
    this.operations.push({ addTable: added })
    const form = { name, idType, idBits: bits, hidesId: isHidden === true }
    const table = { ...form, added, columns: [], constraints: [] }
    this.tables.push(table)
    return table
  }

  /** Changes the size of ids, and with it that of links to the table. */
  changeIds(table: TableModel, bits: IntBits | undefined): void {
    if (table.idBits === bits) return
    table.idBits = bits
    if (table.added === undefined) {
      this.operations.push({ alterTable: { table: table.name, idBits: bits ?? null } })
    } else if (bits === undefined) delete table.added.idBits
    else table.added.idBits = bits
  }

  removeTable(table: TableModel): void {
    this.operations.push({ removeTable: { table: table.name } })
    this.tables.splice(this.tables.indexOf(table), 1)
  }

  /** Gives a column an index, or takes it away. */
  setIndex(table: TableModel, column: ColumnModel, isWanted: boolean): void {
    if (isWanted) this.makeIndexable(table, column)
    column.hasIndex = isWanted
    this.indexes.push({ table, column, isWanted })
  }

  renameTable(table: TableModel, newName: string): void {
    const oldName = table.name
    this.operations.push({ renameTable: { oldName, newName } })
    for (const column of this.tables.flatMap(({ columns }) => columns)) {
      const { link } = column.definition
      if (link?.table !== oldName) continue
      column.definition = { ...column.definition, link: { ...link, table: newName } }
    }
    table.name = newName
  }

  /** Adds a column. As in PostgreSQL, existing records get the default that it has now, whatever becomes of it. */
  addColumn(table: TableModel, definition: Column): ColumnModel {
    const fill = table.added === undefined ? fillOf(definition) : undefined
    const added = { table: table.name, column: definition, ...(fill && { fill }) }
    this.operations.push({ addColumn: added })
    const column = { definition, added }
    table.columns.push(column)
    return column
  }

  /** Removes a column and the constraints that use it. */
  removeColumn(table: TableModel, column: ColumnModel): void {
    const { name } = column.definition
    for (const constraint of table.constraints.filter(({ columns }) => columns.includes(name))) {
      this.removeConstraint(table, constraint)
    }
    this.operations.push({ removeColumn: { table: table.name, column: name } })
    table.columns.splice(table.columns.indexOf(column), 1)
  }

  renameColumn(table: TableModel, column: ColumnModel, newName: string): void {
    const oldName = column.definition.name
    this.operations.push({ renameColumn: { table: table.name, oldName, newName } })
    column.definition = { ...column.definition, name: newName }
    for (const constraint of table.constraints) {
      if (!constraint.columns.includes(oldName)) continue
      constraint.columns = constraint.columns.map((name) => (name === oldName ? newName : name))
      constraint.hasRenamed = true
    }
  }

  changeColumn(table: TableModel, column: ColumnModel, changes: ColumnChanges): void {
    const { name } = column.definition
    const { using: _, ...defined } = changes
    column.definition = applied(column.definition, defined)
    if (column.added !== undefined) {
      // It may have been renamed since.
      column.added.column = applied(column.added.column, changes)
      return
    }
    let { altered } = column
    if (altered === undefined) {
      altered = { table: table.name, column: name }
      column.altered = altered
      this.operations.push({ alterColumn: altered })
    }
    // A column that is no link any more has no rule, also if an earlier statement has changed it.
    if (changes.type !== undefined && changes.type !== 'link') delete altered.link
    Object.assign(altered, changes)
  }

  addConstraint(
    table: TableModel,
    constraint: Constraint,
    columns: readonly string[],
  ): ConstraintModel {
    const added = { table: table.name, constraint }
    this.operations.push({ addConstraint: added })
    const model = {
      name: constraint.name,
      isUnique: 'unique' in constraint,
      definition: constraint,
      added,
      columns: [...columns],
    }
    table.constraints.push(model)
    return model
  }

  /** Gives a constraint another name. One that is there already is made anew. */
  renameConstraint(table: TableModel, constraint: ConstraintModel, name: string): void {
    const { added, columns, definition } = constraint
    if (added !== undefined) {
      added.constraint = { ...definition, name }
      const renamed = { ...constraint, name, definition: added.constraint }
      table.constraints.splice(table.constraints.indexOf(constraint), 1, renamed)
      return
    }
    if (constraint.hasRenamed && 'check' in definition) {
      throw notSupported('RENAME CONSTRAINT of a check whose column is renamed by the same request')
    }
    this.removeConstraint(table, constraint)
    const unique = 'unique' in definition && { unique: columns }
    const named = { ...definition, ...unique, name }
    this.addConstraint(table, named, columns)
  }

  removeConstraint(table: TableModel, constraint: ConstraintModel): void {
    this.operations.push({
      removeConstraint: { table: table.name, constraint: constraint.name },
    })
    table.constraints.splice(table.constraints.indexOf(constraint), 1)
  }

  /** Makes a column with ids a link. */
  makeLink(
    table: TableModel,
    column: ColumnModel,
    link: { table: string; onDelete: LinkAction; constraint?: string },
  ): void {
    const { notNull = false } = column.definition
    this.changeColumn(table, column, { type: 'link', link, notNull: false })
    if (notNull) this.requireValues(table, column)
  }

  /** Makes a text column one whose values can be indexed and unique, as those of PostgreSQL are up to a length. */
  makeIndexable(table: TableModel, column: ColumnModel): void {
    if (column.definition.type !== 'text') return
    this.changeColumn(table, column, indexableForm(column.definition))
  }

  /** Requires a value. Columns of some types have a check for it, because they have no such rule of their own. */
  requireValues(table: TableModel, column: ColumnModel): void {
    const { name, type } = column.definition
    if (COLUMN_TYPE_ENTRIES[type].allows.notNull) {
      this.changeColumn(table, column, { notNull: true })
    } else if (findValueCheck(table, column) === undefined) {
      const check = `"${name}" is not null`
      this.addConstraint(table, { name: valueCheckName(table, column), check }, [name])
    }
  }

  allowNulls(table: TableModel, column: ColumnModel): void {
    const check = findValueCheck(table, column)
    if (check !== undefined) this.removeConstraint(table, check)
    if (column.definition.notNull) this.changeColumn(table, column, { notNull: false })
  }
}

function fillOf({ defaultValue, generate }: Column): Fill | undefined {
  if (defaultValue !== undefined) return { defaultValue }
  return generate === undefined ? undefined : { generate }
}

/** Returns the form of a text whose values can be indexed. It has a limit of its own. */
export function indexableForm({ maxLength }: Pick<Column, 'maxLength'>): {
  readonly type: 'string'
  readonly maxLength: number | null
} {
  const isKept = maxLength !== undefined && maxLength <= LIMITS.stringLengthMax
  return { type: 'string', maxLength: isKept ? maxLength : null }
}

export function findColumn(table: TableModel, name: string): ColumnModel | undefined {
  return findName(table.columns, name, ({ definition }) => cutName(definition.name))
}

export function getColumn(table: TableModel, name: string): ColumnModel {
  const column = findColumn(table, name)
  if (column !== undefined) return column
  throw invalidSql(`column [${name}] of table [${table.name}] not found`)
}

function valueCheckName(table: TableModel, { definition }: ColumnModel): string {
  return `${table.name}_${definition.name}_not_null`
}

function findValueCheck(table: TableModel, column: ColumnModel): ConstraintModel | undefined {
  return table.constraints.find(({ name }) => name === valueCheckName(table, column))
}

/** Returns a definition after changes. The options of a type end with the type. */
function applied(before: Column, changes: ColumnChanges): Column {
  const { vector: _, decimal: __, enum: ___, link: ____, ...sized } = before
  const { bits: _____, maxLength: ______, withoutZone: _______, ...untyped } = sized
  const isNewType = changes.type !== undefined && changes.type !== before.type
  const entries = Object.entries({ ...(isNewType ? untyped : before), ...changes })
  return Object.fromEntries(
    entries.filter(([, value]) => value !== null && value !== false),
  ) as unknown as Column
}
