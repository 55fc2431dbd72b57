import { AppError } from '@offshoot/contract/errors'
import { LIMITS } from '@offshoot/contract/limits'
import type { Column } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { finish } from '../../../../../test/support/finish.js'
import { EMPTY_SCHEMA, type StoredSchema } from '../../rows/columns/stored-schema.js'
import { applyOperations as applyOperationsSteps } from './apply-operations.js'
import { toPublicSchema } from './public-schema.js'
import type { EditOptions } from './schema-draft.js'

const applyOperations = (...given: Parameters<typeof applyOperationsSteps>) =>
  finish(applyOperationsSteps(...given))

/**
 * A naive model of schemas: plain lists with linear search. A link is a reference to the table object,
 * or the name of a table that does not exist yet.
 */
interface ModelColumn {
  name: string
  definition: Column
  isNew: boolean
  links: ModelLink[]
}
interface ModelLink {
  path: string[]
  target: ModelTable | string
}
interface ModelTable {
  name: string
  columns: ModelColumn[]
}

const limits = { ...LIMITS, tablesPerBranchMax: 3, columnsPerTableMax: 5 }

class Refused extends Error {}

const same = (one: string, other: string) => one.toLowerCase() === other.toLowerCase()

function copyModel(tables: readonly ModelTable[]): ModelTable[] {
  const copies = new Map(tables.map((table) => [table, { name: table.name, columns: [] }]))
  return tables.map((table): ModelTable => {
    const copy = copies.get(table) as ModelTable
    copy.columns = table.columns.map((column) => ({
      ...column,
      isNew: false,
      links: column.links.map(({ path, target }) => ({
        path,
        target: copies.get(target as ModelTable) as ModelTable,
      })),
    }))
    return copy
  })
}

function linksOf(column: Column, path: string[] = []): { path: string[]; table: string }[] {
  if (column.link) return [{ path, table: column.link.table }]
  return (column.columns ?? []).flatMap((nested) => linksOf(nested, [...path, nested.name]))
}

/** Applies a migration to the model: its operations one by one, then the checks of the result. */
class ModelRun {
  readonly tables: ModelTable[]
  readonly #tablesMax: number
  readonly #widths: Map<ModelTable, number>

  constructor(before: readonly ModelTable[]) {
    this.tables = copyModel(before)
    this.#tablesMax = Math.max(limits.tablesPerBranchMax, this.tables.length)
    this.#widths = new Map(this.tables.map((table) => [table, widthOf(table)]))
  }

  step(operation: SchemaOperation): void {
    if ('addTable' in operation) {
      const name = operation.addTable.table
      refuseIf(this.tables.some((table) => same(table.name, name)))
      const table = { name, columns: [] }
      this.tables.push(table)
      this.#settle(table)
    } else if ('removeTable' in operation) {
      const table = this.#table(operation.removeTable.table)
      this.tables.splice(this.tables.indexOf(table), 1)
      for (const link of this.#newLinks()) if (link.target === table) link.target = table.name
    } else if ('renameTable' in operation) {
      const { oldName, newName } = operation.renameTable
      const table = this.#table(oldName)
      refuseIf(this.tables.some((other) => other !== table && same(other.name, newName)))
      table.name = newName
      this.#settle(table)
    } else if ('addColumn' in operation) {
      const { column, table } = operation.addColumn
      const { columns } = this.#table(table)
      refuseIf(column.name === 'id' || columns.some(({ name }) => same(name, column.name)))
      const links = linksOf(column).map((link) => ({
        path: link.path,
        target: this.tables.find(({ name }) => name === link.table) ?? link.table,
      }))
      columns.push({ name: column.name, definition: column, isNew: true, links })
    } else if ('removeColumn' in operation) {
      const { columns } = this.#table(operation.removeColumn.table)
      const index = columns.findIndex(({ name }) => name === operation.removeColumn.column)
      refuseIf(index === -1)
      columns.splice(index, 1)
    } else if ('renameColumn' in operation) {
      const { table, oldName, newName } = operation.renameColumn
      const { columns } = this.#table(table)
      const column = must(columns.find(({ name }) => name === oldName))
      refuseIf(newName === 'id')
      refuseIf(columns.some((other) => other !== column && same(other.name, newName)))
      column.name = newName
    }
  }

  finish(): ModelTable[] {
    const links = this.tables.flatMap((table) => table.columns).flatMap((column) => column.links)
    refuseIf(links.some(({ target }) => !this.tables.includes(target as ModelTable)))
    refuseIf(this.tables.length > this.#tablesMax)
    for (const table of this.tables) {
      const widthMax = Math.max(limits.columnsPerTableMax, this.#widths.get(table) ?? 0)
      refuseIf(widthOf(table) > widthMax)
    }
    return this.tables
  }

  #table(name: string): ModelTable {
    return must(this.tables.find((table) => table.name === name))
  }

  #newLinks(): ModelLink[] {
    const columns = this.tables.flatMap((table) => table.columns)
    return columns.flatMap(({ isNew, links }) => (isNew ? links : []))
  }

  #settle(table: ModelTable): void {
    for (const link of this.#newLinks()) if (link.target === table.name) link.target = table
  }
}

function refuseIf(condition: boolean): void {
  if (condition) throw new Refused()
}

function must<Value>(value: Value | undefined): Value {
  if (value === undefined) throw new Refused()
  return value
}

function widthOf(table: ModelTable): number {
  const width = (column: Column): number =>
    1 + (column.columns ?? []).map(width).reduce((sum, one) => sum + one, 0)
  return table.columns.reduce((sum, { definition }) => sum + width(definition), 0)
}

function showModel(tables: readonly ModelTable[]) {
  const show = (definition: Column, column: ModelColumn, path: string[]): Column => {
    const link = column.links.find((candidate) => candidate.path.join() === path.join())
    return {
      ...definition,
      ...(path.length === 0 && { name: column.name }),
      ...(link && { link: { table: (link.target as ModelTable).name } }),
      ...(definition.columns && {
        columns: definition.columns.map((nested) => show(nested, column, [...path, nested.name])),
      }),
    }
  }
  return tables.map(({ name, columns }) => ({
    name,
    columns: columns.map((column) => show(column.definition, column, [])),
  }))
}

/** Derives the changes from the ids before and after, as a set of words. */
function differenceOf(before: StoredSchema, after: StoredSchema): Set<string> {
  const words = new Set<string>()
  const visit = (one: StoredSchema, other: StoredSchema, verb: string) => {
    for (const table of one.tables) {
      const match = other.tables.find(({ id }) => id === table.id)
      if (!match) words.add(`table${verb} ${table.id}`)
      for (const { id } of match ? table.columns : []) {
        if (!match?.columns.some((column) => column.id === id)) words.add(`column${verb} ${id}`)
      }
    }
  }
  visit(before, after, 'Removed')
  visit(after, before, 'Added')
  return words
}

const TABLE_NAMES = ['a', 'A', 'b', 'c', 'd'] as const
const COLUMN_NAMES = ['x', 'X', 'y', 'z', 'id'] as const

/**
 * A random operation, generated before the schema is known: its numbers pick a table and a column
 * among those that exist when it is applied. A wild one picks among all names, so that it mostly fails.
 */
interface Intent {
  readonly kind:
    | 'addTable'
    | 'removeTable'
    | 'renameTable'
    | 'addColumn'
    | 'dropColumn'
    | 'moveColumn'
  readonly table: number
  readonly column: number
  readonly name: number
  readonly target: number
  readonly shape: 'int' | 'link' | 'object'
  readonly isWild: boolean
}

const nat = fc.nat({ max: 59 })
const intent: fc.Arbitrary<Intent> = fc.record({
  kind: fc.constantFrom(
    ...(['addTable', 'addTable', 'addTable', 'addColumn', 'addColumn', 'addColumn'] as const),
    ...(['removeTable', 'renameTable', 'dropColumn', 'moveColumn'] as const),
  ),
  table: nat,
  column: nat,
  name: nat,
  target: nat,
  shape: fc.constantFrom('int', 'link', 'object'),
  isWild: fc.nat({ max: 29 }).map((value) => value === 0),
})

const pick = (names: readonly string[], index: number) => names[index % names.length] ?? 'none'

function toOperation(intent: Intent, tables: readonly ModelTable[]): SchemaOperation {
  const { isWild } = intent
  const free = (all: readonly string[], taken: readonly { name: string }[]) =>
    all.filter((name) => isWild || !taken.some((item) => same(item.name, name)))
  const present = (all: readonly string[], items: readonly { name: string }[]) =>
    isWild ? all : items.map(({ name }) => name)
  const table = pick(present(TABLE_NAMES, tables), intent.table)
  const columns = tables.find(({ name }) => name === table)?.columns ?? []
  const column = pick(present(COLUMN_NAMES, columns), intent.column)
  const newTable = pick(free(TABLE_NAMES, tables), intent.name)
  const newColumn = pick(free(COLUMN_NAMES.slice(0, isWild ? 5 : 4), columns), intent.name)
  if (tables.length === 0 && !isWild) return { addTable: { table: newTable } }
  switch (intent.kind) {
    case 'addTable':
      return { addTable: { table: newTable } }
    case 'removeTable':
      return { removeTable: { table } }
    case 'renameTable':
      return { renameTable: { oldName: table, newName: newTable } }
    case 'dropColumn':
      return { removeColumn: { table, column } }
    case 'moveColumn':
      return { renameColumn: { table, oldName: column, newName: newColumn } }
    case 'addColumn': {
      // One link in three may point to a table that does not exist yet.
      const targets = intent.target % 3 === 0 ? TABLE_NAMES : present(TABLE_NAMES, tables)
      const link = { type: 'link', link: { table: pick(targets, intent.target) } } as const
      if (intent.shape === 'int')
        return { addColumn: { table, column: { name: newColumn, type: 'int' } } }
      if (intent.shape === 'link')
        return { addColumn: { table, column: { name: newColumn, ...link } } }
      const object: Column = { name: newColumn, type: 'object', columns: [{ name: 'n', ...link }] }
      return { addColumn: { table, column: object } }
    }
  }
}

/** Returns the operations of the intents, and the resulting model if it accepts them. */
function runModel(before: readonly ModelTable[], intents: readonly Intent[]) {
  const run = new ModelRun(before)
  const operations: SchemaOperation[] = []
  const after = attempt(() => {
    for (const one of intents) {
      const operation = toOperation(one, run.tables)
      operations.push(operation)
      run.step(operation)
    }
    return run.finish()
  })
  return { operations, after }
}

function attempt<Value>(run: () => Value): Value | undefined {
  try {
    return run()
  } catch (error) {
    if (error instanceof Refused || error instanceof AppError) return undefined
    throw error
  }
}

test('any sequence of migrations has the result of the naive model', () => {
  const counts = { accepted: 0, refused: 0, changes: 0 }
  const migration = fc.array(intent, { minLength: 1, maxLength: 5, size: 'max' })
  fc.assert(
    fc.property(fc.array(migration, { maxLength: 30, size: 'max' }), (migrations) => {
      let id = 0
      const options: EditOptions = {
        limits,
        nextId: () => {
          id += 1
          return id
        },
        checkDefault: () => undefined,
        defaultFill: () => undefined,
      }
      let schema = EMPTY_SCHEMA
      let model: readonly ModelTable[] = []
      for (const intents of migrations) {
        const { operations, after } = runModel(model, intents)
        const result = attempt(() => applyOperations(schema, operations, options))
        expect(result !== undefined).toBe(after !== undefined)
        counts[after ? 'accepted' : 'refused'] += 1
        if (!result || !after) continue
        counts.changes += result.changes.length
        const shown = toPublicSchema(result.schema)
        expect(shown.tables.map(({ name, columns }) => ({ name, columns }))).toEqual(
          showModel(after),
        )
        const told = result.changes.map((change) => {
          const subject = 'column' in change ? change.column : change.table
          return `${change.kind} ${subject.id}`
        })
        expect(told).toHaveLength(new Set(told).size)
        expect(new Set(told)).toEqual(differenceOf(schema, result.schema))
        schema = result.schema
        model = after
      }
    }),
    { numRuns: 400 },
  )
  // The test is only meaningful if some migrations are refused and some are accepted.
  expect(counts.accepted).toBeGreaterThan(1000)
  expect(counts.refused).toBeGreaterThan(1000)
  expect(counts.changes).toBeGreaterThan(1000)
})
