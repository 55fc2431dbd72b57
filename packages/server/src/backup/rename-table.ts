import { type TableDefinition, tableName } from './archive.js'
import { DamagedArchiveError } from './tar.js'

/** The form in which PostgreSQL prints an index. Names of tables and indexes of databases need no quotes. */
const INDEX = /^CREATE (UNIQUE )?INDEX ([a-z0-9_]+) ON ([a-z0-9_]+)\.([a-z0-9_]+) (USING .*)$/s

/** Gives a table another schema and name. Names of constraints and indexes begin with that of their table. */
export function renameTable(
  table: TableDefinition,
  to: { schema: string; name: string },
): TableDefinition {
  const rename = (name: string): string =>
    name.startsWith(`${table.name}_`) ? `${to.name}${name.slice(table.name.length)}` : name
  return {
    ...table,
    ...to,
    constraints: table.constraints.map(({ name, definition }) => ({
      name: rename(name),
      definition,
    })),
    indexes: table.indexes.map((definition) => {
      const [, unique = '', name = '', schema, on, rest] = INDEX.exec(definition) ?? []
      if (schema !== table.schema || on !== table.name) {
        throw new DamagedArchiveError(`table [${tableName(table)}]: an index is of another table`)
      }
      return `CREATE ${unique}INDEX ${rename(name)} ON ${to.schema}.${to.name} ${rest}`
    }),
  }
}
