import type { Column, RevLink, Schema } from '@offshoot/contract/schema'
import { expressionText } from '../../dialect/row-expression.js'
import type { StoredColumn, StoredSchema } from '../../rows/columns/stored-schema.js'
import { detailsOf } from './alter-column.js'
import { listLinks } from './list-links.js'
import { orderTables } from './order-tables.js'
import { pathsOf, toPublicConstraint } from './store-constraint.js'

/** Converts a stored schema into the form that clients read. */
export function toPublicSchema(schema: StoredSchema): Schema {
  const names = new Map(schema.tables.map((table) => [table.id, table.name]))
  const revLinks = listRevLinks(schema)
  return {
    tables: schema.tables.map((table) => {
      const tableRevLinks = revLinks.get(table.id)
      return {
        id: `tbl_${table.id}`,
        name: table.name,
        ...(table.idType && { idType: table.idType }),
        ...(table.idBits && { idBits: table.idBits }),
        ...(table.hiddenId && { hiddenId: table.hiddenId }),
        columns: table.columns.map((column) => toPublicColumn(column, names, table.columns)),
        ...(table.constraints && {
          constraints: table.constraints.map((each) => toPublicConstraint(each, table.columns)),
        }),
        ...(table.history && { history: table.history }),
        ...(tableRevLinks && { revLinks: tableRevLinks }),
      }
    }),
    tablesOrder: orderTables(schema).map((table) => table.name),
  }
}

/** Lists the columns of a table. Columns inside `object` columns get dotted names. */
export function flattenColumns(table: { readonly columns: readonly Column[] }): Column[] {
  return flatten(table.columns, '')
}

/** Finds a column by its name, or by its dotted path if it is inside an `object` column. */
export function findColumn(
  table: { readonly columns: readonly Column[] },
  path: string,
): Column | undefined {
  const [name, ...rest] = path.split('.')
  const column = table.columns.find((candidate) => candidate.name === name)
  if (!column || rest.length === 0) return column
  return column.columns && findColumn({ columns: column.columns }, rest.join('.'))
}

function flatten(columns: readonly Column[], prefix: string): Column[] {
  return columns.flatMap((column) => {
    const name = `${prefix}${column.name}`
    return column.columns ? flatten(column.columns, `${name}.`) : [{ ...column, name }]
  })
}

function listRevLinks(schema: StoredSchema): Map<number, RevLink[]> {
  const revLinks = new Map<number, RevLink[]>()
  for (const table of schema.tables) {
    for (const { path, tableId } of listLinks(table.columns)) {
      const links = revLinks.get(tableId) ?? []
      links.push({ table: table.name, column: path })
      revLinks.set(tableId, links)
    }
  }
  return revLinks
}

/** Converts a column. `tableNames` has the names of linked tables, by id, and `columns` are those of its table. */
export function toPublicColumn(
  column: StoredColumn,
  tableNames: ReadonlyMap<number, string>,
  columns: readonly StoredColumn[],
): Column {
  const isPublic = column.defaultPublicAccess === true
  return {
    name: column.name,
    type: column.type,
    ...(column.link && {
      link: {
        table: linkedTable(column.link.tableId, tableNames),
        ...(column.onDelete && { onDelete: column.onDelete }),
        ...(column.rule && { constraint: column.rule }),
      },
    }),
    ...(column.vector && { vector: column.vector }),
    ...(column.decimal && { decimal: column.decimal }),
    ...detailsOf(column),
    ...(column.enum && { enum: column.enum }),
    ...(isPublic && column.type === 'file' && { file: { defaultPublicAccess: true } }),
    ...(isPublic && column.type === 'file[]' && { 'file[]': { defaultPublicAccess: true } }),
    ...(column.notNull && { notNull: true }),
    ...(column.defaultValue !== undefined && { defaultValue: column.defaultValue }),
    ...(column.unique && { unique: true }),
    ...(column.generate && { generate: column.generate }),
    ...(column.computed && {
      computed: expressionText(column.computed.text, pathsOf(columns)),
    }),
    ...(column.description !== undefined && { description: column.description }),
    ...(column.columns && {
      columns: column.columns.map((nested) => toPublicColumn(nested, tableNames, columns)),
    }),
  }
}

function linkedTable(id: number, tableNames: ReadonlyMap<number, string>): string {
  const name = tableNames.get(id)
  if (name === undefined)
    throw new Error(`a link refers to table ${id}, which is not in the schema`)
  return name
}
