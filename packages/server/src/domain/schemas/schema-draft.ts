import { AppError } from '@offshoot/contract/errors'
import {
  type Column,
  type Constraint,
  HISTORY_DAYS_MAX,
  type IdType,
  INT_BITS,
  type IntBits,
  type TableHistory,
} from '@offshoot/contract/schema'
import {
  expressionText,
  type ParsedExpressions,
  type RowExpression,
} from '../../dialect/row-expression.js'
import { COLUMN_TYPE_ENTRIES } from '../../rows/columns/column-types.js'
import {
  listAllColumns,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import type { SchemaChange } from '../../rows/heaps/schema-changes.js'
import { AddedLinks, ID_TYPE_OF, type LinkTarget } from './added-links.js'
import {
  type Alteration,
  alterDefinition,
  alterStored,
  detailsOf,
  onDeleteOf,
} from './alter-column.js'
import {
  type ColumnChecks,
  checkColumn,
  checkColumnName,
  totalWidth,
  widthOf,
} from './check-column.js'
import { checkName } from './check-name.js'
import { withLinkedBits } from './id-bits.js'
import { listLinks } from './list-links.js'
import { NamedList } from './named-list.js'
import { orderTables } from './order-tables.js'
import { toPublicColumn } from './public-schema.js'
import {
  bindComputed,
  bindExpression,
  carryConstraint,
  columnIdsOf,
  columnIdsUsedBy,
  constraintNotFound,
  enumFault,
  enumOf,
  pathsOf,
  requireColumns,
  type StoredConstraint,
  storeConstraint,
  withUsedIds,
} from './store-constraint.js'

export interface EditOptions extends ColumnChecks {
  /** Returns an id that no table or column has ever had. */
  nextId(): number
  /** Returns the default of a `notNull` column in PostgreSQL's text form, for existing rows. */
  defaultFill(column: StoredColumn): string | undefined
  /** The expressions of the operations. */
  readonly expressions?: ParsedExpressions | undefined
}

interface Rename {
  readonly oldName: string
  readonly newName: string
}

/** An expression that the values of a column come from. */
type Rewriting = NonNullable<Extract<SchemaChange, { kind: 'columnAltered' }>['using']>

/** The generated values that existing rows get of a new column. */
type Generating = NonNullable<Extract<SchemaChange, { kind: 'columnAdded' }>['generating']>

/** What existing rows get of a new column. */
type Fill = Pick<Column, 'defaultValue' | 'generate'>

/** A step of the migration. It changes the storage, unless a later step undoes it. */
type Step =
  | {
      readonly kind: 'tableAdded' | 'tableRemoved' | 'historyChanged' | 'idsChanged'
      readonly tableId: number
    }
  | {
      readonly kind: 'columnAdded'
      readonly tableId: number
      readonly columnId: number
      readonly generating?: Generating
    }
  | { readonly kind: 'columnRemoved'; readonly tableId: number; readonly column: StoredColumn }
  | {
      readonly kind: 'constraintAdded' | 'constraintRemoved'
      readonly tableId: number
      readonly constraint: StoredConstraint
    }
  | {
      readonly kind: 'columnAltered'
      readonly tableId: number
      readonly before: StoredColumn
      readonly column: StoredColumn
      readonly using?: Rewriting
    }

/**
 * A schema that a migration is editing. Each edit is validated immediately. Conditions that only the
 * final schema must meet, such as the targets of links and the limits, are checked by `finish`.
 */
export class SchemaDraft {
  readonly #options: EditOptions
  readonly #original: NamedList<StoredTable>
  /** The tables. The columns of an edited table are in `#columns`. */
  readonly #tables: NamedList<StoredTable>
  readonly #columns = new Map<number, NamedList<StoredColumn>>()
  readonly #constraints = new Map<number, NamedList<StoredConstraint>>()
  readonly #addedColumns = new Set<number>()
  readonly #addedConstraints = new Set<number>()
  readonly #addedLinks = new AddedLinks()
  /** Computed columns that were added before a column that they use. */
  readonly #unbound = new Map<number, { table: StoredTable; id: number; column: Column }>()
  readonly #steps: Step[] = []
  readonly #order: number[] | undefined

  constructor(schema: StoredSchema, options: EditOptions) {
    this.#options = options
    this.#original = new NamedList(schema.tables)
    this.#tables = new NamedList(schema.tables)
    this.#order = schema.tablesOrder && orderTables(schema).map((table) => table.id)
  }

  addTable(added: {
    table: string
    idType?: IdType
    idBits?: IntBits
    hiddenId?: true
    history?: TableHistory
  }): void {
    const { table: name, idType = 'string', idBits, hiddenId, history } = added
    this.#checkTableName(name)
    if (idBits !== undefined) checkIdBits(name, idType, idBits)
    if (history !== undefined) checkHistory(name, history)
    const id = this.#options.nextId()
    const table = {
      ...{ id, name, columns: [] },
      ...(idType !== 'string' && { idType }),
      ...(idBits && { idBits }),
      ...(hiddenId && { hiddenId }),
      ...(history !== undefined && { history: { keep: history.keep } }),
    }
    this.#tables.set(table)
    this.#order?.push(table.id)
    this.#addedLinks.tableNamed(table)
    this.#steps.push({ kind: 'tableAdded', tableId: table.id })
  }

  removeTable(name: string): void {
    const table = this.#getTable(name)
    this.#tables.delete(table.id)
    this.#columns.delete(table.id)
    this.#constraints.delete(table.id)
    this.#addedLinks.tableRemoved(table)
    this.#steps.push({ kind: 'tableRemoved', tableId: table.id })
  }

  renameTable({ oldName, newName }: Rename): void {
    const table = this.#getTable(oldName)
    this.#checkTableName(newName, table)
    const renamed = { ...table, name: newName }
    this.#tables.set(renamed)
    this.#addedLinks.tableNamed(renamed)
  }

  alterTable(changes: {
    table: string
    history?: TableHistory | null
    idBits?: IntBits | null
  }): void {
    const { table: name, history, idBits } = changes
    if (history !== undefined) this.#changeHistory(name, history)
    if (idBits !== undefined) this.#changeIds(name, idBits ?? undefined)
  }

  #changeHistory(name: string, history: TableHistory | null): void {
    const { history: before, ...table } = this.#getTable(name)
    if (history !== null) checkHistory(name, history)
    if (before?.keep === history?.keep) return
    this.#tables.set(history === null ? table : { ...table, history: { keep: history.keep } })
    this.#steps.push({ kind: 'historyChanged', tableId: table.id })
  }

  #changeIds(name: string, idBits: IntBits | undefined): void {
    const { idBits: before, ...table } = this.#getTable(name)
    if (idBits !== undefined) checkIdBits(name, table.idType ?? 'string', idBits)
    if (before === idBits) return
    this.#tables.set(idBits === undefined ? table : { ...table, idBits })
    this.#steps.push({ kind: 'idsChanged', tableId: table.id })
  }

  addColumn(added: { table: string; column: Column; fill?: Fill }): void {
    const { table: tableName, column, fill } = added
    const table = this.#getTable(tableName)
    const columns = this.#columnsOf(table)
    const fault = checkColumn(column, this.#options)
    if (fault !== undefined) throw invalid(`table [${tableName}]: ${fault}`)
    if (fill !== undefined) this.#checkFill(tableName, column, fill)
    checkColumnFree(columns, { table: tableName, name: column.name })
    const stored = this.#fill(table, this.#store(column), fill)
    const generating = this.#generate(table, column, fill)
    columns.set(stored)
    this.#addedColumns.add(stored.id)
    if (column.computed !== undefined) this.#bindAdded(table, { id: stored.id, column })
    this.#steps.push({
      ...{ kind: 'columnAdded', tableId: table.id, columnId: stored.id },
      ...(generating && { generating }),
    })
  }

  removeColumn(tableName: string, name: string): void {
    const table = this.#getTable(tableName)
    const columns = this.#columnsOf(table)
    const column = getColumn(columns, { table: tableName, name })
    columns.delete(column.id)
    this.#unbound.delete(column.id)
    if (this.#addedColumns.delete(column.id)) return
    this.#steps.push({ kind: 'columnRemoved', tableId: table.id, column })
  }

  renameColumn(tableName: string, { oldName, newName }: Rename): void {
    const columns = this.#columnsOf(this.#getTable(tableName))
    const column = getColumn(columns, { table: tableName, name: oldName })
    const fault = checkColumnName(newName, this.#options.limits)
    if (fault !== undefined) throw invalid(`table [${tableName}]: column [${newName}]: ${fault}`)
    checkColumnFree(columns, { table: tableName, name: newName, self: column })
    columns.set({ ...column, name: newName })
  }

  addConstraint(tableName: string, constraint: Constraint): void {
    const table = this.#getTable(tableName)
    const constraints = this.#constraintsOf(table)
    const { limits, expressions } = this.#options
    const taken = constraints.findIgnoringCase(constraint.name)
    if (taken) {
      throw new AppError(
        'already_exists',
        `table [${tableName}]: constraint [${taken.name}] already exists`,
      )
    }
    const columns = this.#columnsOf(table).items()
    const id = this.#options.nextId()
    const stored = storeConstraint(constraint, {
      id,
      table: tableName,
      columns,
      limits,
      expressions,
    })
    constraints.set(stored)
    if (constraints.items().length > limits.constraintsPerTableMax) {
      throw new AppError(
        'limit_reached',
        `table [${tableName}]: cannot have more than ${limits.constraintsPerTableMax} constraints`,
      )
    }
    this.#addedConstraints.add(id)
    this.#steps.push({ kind: 'constraintAdded', tableId: table.id, constraint: stored })
  }

  removeConstraint(tableName: string, name: string): void {
    const table = this.#getTable(tableName)
    const constraints = this.#constraintsOf(table)
    const constraint = constraints.find(name)
    if (!constraint) throw constraintNotFound(tableName, name)
    constraints.delete(constraint.id)
    if (this.#addedConstraints.delete(constraint.id)) return
    this.#steps.push({ kind: 'constraintRemoved', tableId: table.id, constraint })
  }

  alterColumn(alteration: Alteration): void {
    const { table: tableName, column: name } = alteration
    const table = this.#getTable(tableName)
    const columns = this.#columnsOf(table)
    const before = getColumn(columns, { table: tableName, name })
    const refuse = (fault: string) => invalid(`table [${tableName}]: column [${name}]: ${fault}`)
    if (this.#addedColumns.has(before.id)) {
      throw refuse('is added by the same migration; add it with its final definition')
    }
    // A link to a table that the same migration removes can become a column of another type.
    const tables = [...this.#original.items(), ...this.#tables.items()]
    const names = new Map(tables.map((each) => [each.id, each.name]))
    const definition = alterDefinition(toPublicColumn(before, names, columns.items()), alteration)
    const target = before.link && names.get(before.link.tableId)
    const isOther = alteration.link?.table !== undefined && alteration.link.table !== target
    if (target !== undefined && isOther) {
      throw refuse(
        `links to table [${target}], which cannot be changed; add another column instead`,
      )
    }
    const fault = checkColumn(definition, this.#options)
    if (fault !== undefined) throw invalid(`table [${tableName}]: ${fault}`)
    checkColumnFree(columns, { table: tableName, name: definition.name, self: before })
    if (alteration.computed !== undefined && before.computed === undefined) {
      throw refuse('is not computed; add a computed column instead')
    }
    const others = columns.items().filter(({ id }) => id !== before.id)
    const computed =
      alteration.computed === undefined
        ? before.computed
        : this.#bindComputed(tableName, definition, others)
    const using = this.#bindUsing(alteration, { definition, columns: columns.items() })
    if (using && 'fault' in using) throw refuse(`field [using]: ${using.fault}`)
    const column = alterStored(before, definition, {
      ...this.#options,
      isRewritten: using !== undefined,
      computed,
      fillNulls: alteration.fillNulls ?? false,
    })
    if ('fault' in column) throw refuse(column.fault)
    const link = definition.link && before.type !== 'link' && this.#linkOf(before, definition)
    if (link && 'fault' in link) throw refuse(link.fault)
    const altered = link ? { ...column, link } : column
    columns.replace(before.id, altered)
    const carried =
      altered.id === before.id ? [] : this.#carryConstraints(table, before, altered, refuse)
    const step = { before, column: altered, ...(using && { using }) }
    this.#steps.push({ kind: 'columnAltered', tableId: table.id, ...step })
    for (const constraint of carried) {
      this.#steps.push({ kind: 'constraintAdded', tableId: table.id, constraint })
    }
    if (altered.id !== before.id) this.#carryComputed(table, before, altered, refuse)
  }

  /** Returns the expression that the values of a column come from. undefined: they are converted. */
  #bindUsing(
    { using, fillNulls = false }: Alteration,
    { definition, columns }: { definition: Column; columns: readonly StoredColumn[] },
  ): Rewriting | { fault: string } | undefined {
    if (using === undefined) return undefined
    if (fillNulls) return { fault: 'excludes [fillNulls]; the expression can have a value' }
    if (definition.computed !== undefined) return { fault: 'a computed column has no values' }
    const { type } = definition
    if (type !== 'enum' && !COLUMN_TYPE_ENTRIES[type].allows.computed) {
      return { fault: `is not possible for type [${type}]` }
    }
    const { expressions } = this.#options
    try {
      const enums = enumOf(definition) ?? []
      const options = { isOnce: true, enums: [enums].flat() }
      return { expression: bindExpression(using, { columns, expressions }, options), columns }
    } catch (error) {
      if (!(error instanceof AppError)) throw error
      return { fault: error.message }
    }
  }

  /** Returns the table that a column links to, which had ids of it as values. */
  #linkOf(
    before: StoredColumn,
    { link }: Column,
  ): NonNullable<StoredColumn['link']> | { fault: string } {
    if (!link?.table) return { fault: 'field [link.table] is required for type [link]' }
    const { id: tableId, name, idType } = this.#getTable(link.table)
    if (ID_TYPE_OF[before.type] === (idType ?? 'string')) {
      return { tableId, ...(idType && { idType }) }
    }
    return {
      fault: `values of type [${before.type}] cannot link to table [${name}], whose ids have type [${idType ?? 'string'}]`,
    }
  }

  /**
   * Replaces the constraints that use a column whose values are stored anew. They get other ids, because they are rules of
   * other stored values. Returns them.
   */
  #carryConstraints(
    table: StoredTable,
    before: StoredColumn,
    column: StoredColumn,
    refuse: (fault: string) => AppError,
  ): StoredConstraint[] {
    const constraints = this.#constraintsOf(table)
    const used = constraints.items().filter((each) => columnIdsOf(each).includes(before.id))
    return used.map((old) => {
      const carried = carryConstraint(old, { id: this.#options.nextId(), before, column })
      if ('fault' in carried) throw refuse(carried.fault)
      const user = `constraint [${old.name}]`
      const constraint =
        'check' in carried && isOfEnum(before, column)
          ? { ...carried, check: this.#bindAgain(table, carried.check, { user, refuse }) }
          : carried
      constraints.replace(old.id, constraint)
      if (!this.#addedConstraints.delete(old.id)) {
        this.#steps.push({ kind: 'constraintRemoved', tableId: table.id, constraint: old })
      }
      this.#addedConstraints.add(constraint.id)
      return constraint
    })
  }

  /** Lets computed columns use a column whose values are stored anew as they used it before. */
  #carryComputed(
    table: StoredTable,
    before: StoredColumn,
    column: StoredColumn,
    refuse: (fault: string) => AppError,
  ): void {
    const columns = this.#columnsOf(table)
    for (const old of columns.items()) {
      if (!columnIdsUsedBy(old).includes(before.id)) continue
      const made = withUsedIds(old, (id) => (id === before.id ? column.id : id))
      const user = `computed column [${old.name}]`
      const carried =
        made.computed !== undefined && isOfEnum(before, column)
          ? { ...made, computed: this.#bindAgain(table, made.computed, { user, refuse }) }
          : made
      columns.set(carried)
      if (this.#addedColumns.has(old.id)) continue
      const step = { before: old, column: carried }
      this.#steps.push({ kind: 'columnAltered', tableId: table.id, ...step })
    }
  }

  /** Binds an expression over a column that is or was an enum, whose values it compares otherwise than texts. */
  #bindAgain(
    table: StoredTable,
    { text: parts }: RowExpression,
    { user, refuse }: { user: string; refuse: (fault: string) => AppError },
  ): RowExpression {
    const { expressions } = this.#options
    const columns = this.#columnsOf(table).items()
    const text = expressionText(parts, pathsOf(columns))
    if (!expressions?.has(text)) {
      throw refuse(`is used by ${user}; change its type before or after other changes of these`)
    }
    try {
      return bindExpression(text, { columns, expressions })
    } catch (error) {
      throw error instanceof AppError ? refuse(`is used by ${user}: ${error.message}`) : error
    }
  }

  finish(): { schema: StoredSchema; changes: SchemaChange[] } {
    for (const { table, ...added } of [...this.#unbound.values()]) {
      if (this.#tables.get(table.id) !== undefined) this.#bindAdded(table, added, { isLast: true })
    }
    const targets = this.#addedLinks.targets((id) => this.#tables.get(id)?.idType)
    const tables = new NamedList(
      withLinkedBits(this.#tables.items().map((table) => this.#finishTable(table, targets))),
    )
    this.#checkLinks(tables)
    this.#checkLimits(tables)
    const schema = { tables: tables.items() }
    const tablesOrder = this.#order?.flatMap((id) => tables.get(id)?.name ?? [])
    return {
      schema: tablesOrder ? { ...schema, tablesOrder } : schema,
      changes: this.#steps.flatMap((step) => this.#finishStep(step, tables)),
    }
  }

  #getTable(name: string): StoredTable {
    const table = this.#tables.find(name)
    if (!table) throw new AppError('table_not_found', `table [${name}] not found`)
    return table
  }

  #columnsOf(table: StoredTable): NamedList<StoredColumn> {
    const columns = this.#columns.get(table.id) ?? new NamedList(table.columns)
    this.#columns.set(table.id, columns)
    return columns
  }

  #constraintsOf(table: StoredTable): NamedList<StoredConstraint> {
    const constraints = this.#constraints.get(table.id) ?? new NamedList(table.constraints ?? [])
    this.#constraints.set(table.id, constraints)
    return constraints
  }

  #checkTableName(name: string, self?: StoredTable): void {
    const fault = checkName(name, this.#options.limits)
    if (fault !== undefined) throw invalid(`table [${name}]: ${fault}`)
    const taken = this.#tables.findIgnoringCase(name)
    if (!taken || taken.id === self?.id) return
    throw new AppError('already_exists', `table [${taken.name}] already exists`)
  }

  /** Returns what a computed column is calculated of. `columns` are the others of its table. */
  #bindComputed(
    table: string,
    { name, computed }: Column,
    columns: readonly StoredColumn[],
  ): RowExpression | undefined {
    if (computed === undefined) return undefined
    try {
      return bindComputed(computed, { columns, expressions: this.#options.expressions })
    } catch (error) {
      if (!(error instanceof AppError)) throw error
      throw invalid(`table [${table}]: column [${name}]: field [computed]: ${error.message}`)
    }
  }

  /** Binds an added column. A column that it uses may be added after it, so it can be tried again with the last ones. */
  #bindAdded(
    table: StoredTable,
    { id, column }: { id: number; column: Column },
    { isLast = false } = {},
  ): void {
    const columns = this.#columnsOf(table)
    const stored = columns.get(id)
    if (stored === undefined) return
    const others = columns.items().filter((each) => each.id !== id)
    try {
      const computed = this.#bindComputed(table.name, column, others)
      columns.set({ ...stored, ...(computed && { computed }) })
    } catch (error) {
      if (!(error instanceof AppError) || isLast) throw error
      this.#unbound.set(id, { table, id, column })
    }
  }

  #store(column: Column): StoredColumn {
    const id = this.#options.nextId()
    const isPublic = (column.file ?? column['file[]'])?.defaultPublicAccess
    if (column.link) {
      this.#addedLinks.add(id, column.link.table, this.#tables.find(column.link.table))
    }
    return {
      id,
      name: column.name,
      type: column.type,
      ...onDeleteOf(column),
      ...(column.vector && { vector: { dimension: column.vector.dimension } }),
      ...(column.decimal && { decimal: column.decimal }),
      ...detailsOf(column),
      ...(column.enum && { enum: column.enum }),
      ...(isPublic && { defaultPublicAccess: true }),
      ...(column.notNull && { notNull: true }),
      ...(column.defaultValue !== undefined && { defaultValue: column.defaultValue }),
      ...(column.unique && { unique: true }),
      ...(column.generate && { generate: column.generate }),
      ...(column.description !== undefined && { description: column.description }),
      ...(column.columns && { columns: column.columns.map((nested) => this.#store(nested)) }),
    }
  }

  /** Checks what existing rows get as if it were what new ones get. */
  #checkFill(table: string, { defaultValue: _, generate: __, ...column }: Column, fill: Fill) {
    const fault =
      fill.generate === 'user'
        ? `column [${column.name}]: [user] is not possible for existing records`
        : checkColumn({ ...column, ...fill }, this.#options)
    if (fault !== undefined) throw invalid(`table [${table}]: field [fill]: ${fault}`)
  }

  #hasOldRows(table: StoredTable): boolean {
    return this.#original.get(table.id) !== undefined
  }

  #fill(table: StoredTable, column: StoredColumn, given = implicitFill(column)): StoredColumn {
    const { defaultValue } = given
    if (!this.#hasOldRows(table) || defaultValue === undefined) return column
    const fill = this.#options.defaultFill({ ...column, defaultValue })
    return fill === undefined ? column : { ...column, fill }
  }

  /** Returns how existing rows get generated values of a new column. undefined: they get none. */
  #generate(
    table: StoredTable,
    column: Column,
    { generate: by } = implicitFill(column),
  ): Generating | undefined {
    if (!this.#hasOldRows(table) || by === undefined || by === 'user') return undefined
    return { by, columns: this.#columnsOf(table).items() }
  }

  #finishTable(table: StoredTable, targets: ReadonlyMap<number, LinkTarget>): StoredTable {
    const columns = this.#columns.get(table.id)
    if (!columns) return this.#finishConstraints(table)
    const finish = (column: StoredColumn) =>
      this.#addedColumns.has(column.id)
        ? finishColumn(column, { targets, path: `table [${table.name}]` })
        : column
    return this.#finishConstraints({ ...table, columns: columns.items().map(finish) })
  }

  /** Puts in the constraints, which must not use a column that is gone. */
  #finishConstraints(table: StoredTable): StoredTable {
    const { constraints: known, ...rest } = table
    const constraints = this.#constraints.get(table.id)?.items() ?? known
    const fault = enumFault({ ...table, constraints: constraints ?? [] })
    if (fault !== undefined) throw invalid(`table [${table.name}]: ${fault}`)
    requireColumns(table, constraints ?? [], this.#original.get(table.id)?.columns ?? [])
    if (constraints === undefined) return table
    return constraints.length === 0 ? rest : { ...rest, constraints }
  }

  #checkLinks(tables: NamedList<StoredTable>): void {
    if (!this.#steps.some((step) => step.kind === 'tableRemoved')) return
    for (const table of tables.items()) {
      for (const link of listLinks(table.columns)) {
        if (tables.get(link.tableId)) continue
        const removed = this.#original.get(link.tableId)
        throw invalid(
          `table [${removed?.name}]: is linked from [${table.name}.${link.path}]; ` +
            'remove that column first or in the same edit',
        )
      }
    }
  }

  /** Checks the limits. A schema that is over a limit, because the limit was lowered, may shrink. */
  #checkLimits(tables: NamedList<StoredTable>): void {
    const { tablesPerBranchMax, columnsPerTableMax, columnsPerBranchMax } = this.#options.limits
    const count = tables.items().length
    if (count > tablesPerBranchMax && count > this.#original.items().length) {
      throw invalid(`a branch cannot have more than ${tablesPerBranchMax} tables`)
    }
    const total = totalWidth(tables.items())
    if (total > columnsPerBranchMax && total > totalWidth(this.#original.items())) {
      throw invalid(`the tables of a branch cannot have more than ${columnsPerBranchMax} columns`)
    }
    for (const id of this.#columns.keys()) {
      const table = tables.get(id)
      const width = widthOf(table)
      if (width > columnsPerTableMax && width > widthOf(this.#original.get(id))) {
        throw invalid(
          `table [${table?.name}]: a table cannot have more than ${columnsPerTableMax} columns`,
        )
      }
    }
  }

  #finishStep(step: Step, tables: NamedList<StoredTable>): SchemaChange[] {
    const before = this.#original.get(step.tableId)
    const after = tables.get(step.tableId)
    switch (step.kind) {
      case 'tableAdded':
        return after ? [{ kind: 'tableAdded', table: after }] : []
      case 'tableRemoved':
        return before ? [{ kind: 'tableRemoved', table: before }] : []
      case 'historyChanged':
        return before && after ? [{ kind: 'historyChanged', table: after }] : []
      case 'idsChanged':
        return before && after ? this.#changedIds(before, after, tables) : []
      case 'columnAdded': {
        const column = after?.columns.find(({ id }) => id === step.columnId)
        if (!before || !after || !column) return []
        const { kind, generating } = step
        return [{ kind, table: after, column, ...(generating && { generating }) }]
      }
      case 'columnRemoved':
        return after ? [{ kind: 'columnRemoved', table: after, column: step.column }] : []
      case 'constraintAdded':
      case 'constraintRemoved': {
        const { kind, constraint } = step
        const isUndone = kind === 'constraintAdded' && !this.#addedConstraints.has(constraint.id)
        return before && after && !isUndone ? [{ kind, table: after, constraint }] : []
      }
      case 'columnAltered': {
        const { kind, before: old, column, using } = step
        const altered = { before: old, column, ...(using && { using }) }
        // A later step may have renamed the column.
        return after ? [{ kind, table: after, ...altered }] : []
      }
    }
  }

  /** Returns the changes for ids of another size: those of the table, and of the links to it that there were before. */
  #changedIds(
    before: StoredTable,
    after: StoredTable,
    tables: NamedList<StoredTable>,
  ): SchemaChange[] {
    const links = tables.items().flatMap((table): SchemaChange[] => {
      const columns = listAllColumns(table.columns).filter(({ link }) => link?.tableId === after.id)
      const known = new Map(
        listAllColumns(this.#original.get(table.id)?.columns ?? []).map((each) => [each.id, each]),
      )
      return columns.flatMap((column): SchemaChange[] => {
        const old = known.get(column.id)
        return old === undefined ? [] : [{ kind: 'columnAltered', table, before: old, column }]
      })
    })
    return [{ kind: 'idsChanged', table: after, before }, ...links]
  }
}

const isOfEnum = (...columns: readonly StoredColumn[]): boolean =>
  columns.some(({ type }) => type === 'enum')

/** Existing rows must have a value of a `notNull` column, so they get the one that new rows get. */
function implicitFill({ notNull, defaultValue, generate }: Column | StoredColumn): Fill {
  if (!notNull) return {}
  return {
    ...(defaultValue !== undefined && { defaultValue }),
    ...(generate !== undefined && { generate }),
  }
}

function getColumn(
  columns: NamedList<StoredColumn>,
  { table, name }: { readonly table: string; readonly name: string },
): StoredColumn {
  const column = columns.find(name)
  if (column) return column
  throw new AppError('column_not_found', `table [${table}]: column [${name}]: column not found`)
}

function checkColumnFree(
  columns: NamedList<StoredColumn>,
  { table, name, self }: { readonly table: string; readonly name: string; self?: StoredColumn },
): void {
  const taken = columns.findIgnoringCase(name)
  if (!taken || taken.id === self?.id) return
  throw new AppError('already_exists', `table [${table}]: column [${taken.name}] already exists`)
}

function finishColumn(
  column: StoredColumn,
  context: { readonly targets: ReadonlyMap<number, LinkTarget>; readonly path: string },
): StoredColumn {
  const path = `${context.path}: column [${column.name}]`
  if (column.type === 'link') return { ...column, link: findTarget(column, { ...context, path }) }
  if (!column.columns) return column
  const { targets } = context
  return {
    ...column,
    columns: column.columns.map((nested) => finishColumn(nested, { targets, path })),
  }
}

function findTarget(
  column: StoredColumn,
  { targets, path }: { readonly targets: ReadonlyMap<number, LinkTarget>; readonly path: string },
): Required<StoredColumn>['link'] {
  const target = targets.get(column.id)
  if (target && 'tableId' in target) return target
  throw invalid(`${path}: linked table [${target?.missing}] not found`)
}

const HOURS_PER_DAY = 24

function checkHistory(table: string, { keep }: TableHistory): void {
  const count = Number.parseInt(keep, 10)
  const days = keep.endsWith('h') ? count / HOURS_PER_DAY : count
  if (days <= HISTORY_DAYS_MAX) return
  throw invalid(
    `table [${table}]: field [history.keep]: versions can be kept for at most ${HISTORY_DAYS_MAX} days`,
  )
}

function checkIdBits(table: string, idType: IdType, idBits: number): void {
  const fault =
    idType === 'int'
      ? INT_BITS.some((bits) => bits === idBits)
        ? undefined
        : `must be ${INT_BITS.join(' or ')}`
      : `is not possible for ids of type [${idType}]`
  if (fault !== undefined) throw invalid(`table [${table}]: field [idBits]: ${fault}`)
}

function invalid(message: string): AppError {
  return new AppError('invalid_schema', message)
}
