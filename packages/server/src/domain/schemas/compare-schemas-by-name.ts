import { AppError } from '@offshoot/contract/errors'
import type { IdType, IntBits, Schema, Table, TableHistory } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import type { StoredSchema } from '../../rows/columns/stored-schema.js'
import {
  type CanBecome,
  canAlter,
  columnEdits,
  compareColumns,
  compareConstraints,
} from './compare-columns.js'

/**
 * Compares two schemas by the names of tables and columns. Returns the edits that turn one into the
 * other. Removals come first, so that names are free before they are used again. Tables are added
 * before columns, because columns can link to them.
 */
export function compareSchemasByName(
  source: Schema,
  target: Schema,
  canBecome: CanBecome = canAlter(idTypesOf(source, target)),
): SchemaOperation[] {
  const sourceTables = new Map(source.tables.map((table) => [table.name, table]))
  const removeColumns: SchemaOperation[] = []
  const addTables: SchemaOperation[] = []
  const changeColumns: SchemaOperation[] = []
  const changeExpressions: SchemaOperation[] = []
  const removeConstraints: SchemaOperation[] = []
  const addConstraints: SchemaOperation[] = []
  for (const wanted of target.tables) {
    const { name: table, idType, idBits, history, columns, constraints = [] } = wanted
    const old = sourceTables.get(table)
    // A table that the target lists twice is added the second time, which applying the edits refuses.
    if (!sourceTables.delete(table)) addTables.push(addTable(wanted))
    else if (old !== undefined) {
      requireSameIds(old, { name: table, idType })
      // A schema that does not name it leaves it as it is: a file of columns must not delete versions.
      const changes = {
        ...(history !== undefined && history.keep !== old.history?.keep && { history }),
        // Nor need it name the type of the ids, of which the size is a part.
        ...(idType !== undefined && idBits !== old.idBits && { idBits: idBits ?? null }),
      }
      if (Object.keys(changes).length > 0) changeColumns.push({ alterTable: { table, ...changes } })
    }
    const edits = columnEdits(table, compareColumns(old?.columns ?? [], columns, canBecome))
    removeColumns.push(...edits.removals)
    changeColumns.push(...edits.changes)
    changeExpressions.push(...edits.expressions)
    const ofConstraints = compareConstraints(old?.constraints ?? [], constraints)
    for (const constraint of ofConstraints.removed) {
      removeConstraints.push({ removeConstraint: { table, constraint } })
    }
    for (const constraint of ofConstraints.added) {
      addConstraints.push({ addConstraint: { table, constraint } })
    }
  }
  const removeTables = [...sourceTables.keys()].map((table) => ({ removeTable: { table } }))
  return [
    ...removeConstraints,
    ...removeColumns,
    ...removeTables,
    ...addTables,
    ...changeColumns,
    ...changeExpressions,
    ...addConstraints,
  ]
}

/** Returns what returns the type of the ids of a table. A schema need not name it. */
export function idTypesOf(source: Schema, target: Schema): (table: string) => IdType {
  const known = new Map(
    [...source.tables, ...target.tables].flatMap(({ name, idType }) =>
      idType === undefined ? [] : [[name, idType] as const],
    ),
  )
  return (table) => known.get(table) ?? 'string'
}

interface NewTable {
  readonly name: string
  readonly idType?: IdType | undefined
  readonly idBits?: IntBits | undefined
  readonly hiddenId?: true | undefined
  readonly history?: TableHistory | undefined
}

/** Returns the edit that adds a table. */
export function addTable({ name, idType, idBits, hiddenId, history }: NewTable): SchemaOperation {
  return {
    addTable: {
      table: name,
      ...(idType !== undefined && { idType }),
      ...(idBits !== undefined && { idBits }),
      ...(hiddenId !== undefined && { hiddenId }),
      ...(history !== undefined && { history }),
    },
  }
}

/** The type of ids never changes. A schema need not name it. */
function requireSameIds(source: Table, { name, idType }: NewTable): void {
  const { idType: before = 'string' } = source
  if (idType === undefined || idType === before) return
  throw new AppError(
    'invalid_schema',
    `table [${name}]: ids have the type [${before}], which cannot become [${idType}]; create another table instead`,
  )
}

/** Returns the source of a comparison without its constraints, and the tables and columns that the edits remove. */
export function withoutRemoved(
  source: StoredSchema,
  edits: readonly SchemaOperation[],
): StoredSchema {
  const tables = new Set<string>()
  const columns = new Set<string>()
  for (const edit of edits) {
    if ('removeTable' in edit) tables.add(edit.removeTable.table)
    // Names cannot contain dots, so the key is unambiguous.
    if ('removeColumn' in edit)
      columns.add(`${edit.removeColumn.table}.${edit.removeColumn.column}`)
  }
  return {
    tables: source.tables
      .filter(({ name }) => !tables.has(name))
      .map((table) => ({
        ...table,
        columns: table.columns.filter(({ name }) => !columns.has(`${table.name}.${name}`)),
      }))
      .map(({ constraints: _, ...table }) => table),
  }
}
