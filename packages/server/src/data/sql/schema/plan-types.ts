import type { Node } from 'libpg-query'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { contentOf, type NodeOf, namesOf } from '../../../dialect/nodes.js'
import { columnsOf } from './enum-types.js'
import { notSupported } from './not-supported.js'
import type { SchemaWork } from './schema-work.js'
import { nameOf } from './sql-types.js'

export function createEnum(work: SchemaWork, { typeName, vals }: NodeOf<'CreateEnumStmt'>): string {
  const values = namesOf(vals).map((value) => value ?? '')
  work.types.add(work.newName(nameOf({ names: typeName ?? [] })), values)
  return 'CREATE TYPE'
}

export function alterEnum(work: SchemaWork, statement: NodeOf<'AlterEnumStmt'>): string {
  const { newVal: value = '', newValNeighbor: neighbour, newValIsAfter: isAfter } = statement
  const name = nameOf({ names: statement.typeName ?? [] })
  const tag = 'ALTER TYPE'
  if (statement.oldVal !== undefined) {
    throw notSupported('ALTER TYPE ... RENAME VALUE', 'add a value and change the records')
  }
  const values = work.types.valuesOf(name)
  if (values.includes(value)) {
    const taken = `value [${value}] of type [${name}] already exists`
    return work.meetExisting(tag, taken, statement.skipIfNewValExists)
  }
  const added = (before: readonly string[]) => {
    const at = neighbour === undefined ? before.length : before.indexOf(neighbour)
    if (at < 0) throw invalidSql(`type [${name}]: value [${neighbour}] not found`)
    return before.toSpliced(neighbour !== undefined && isAfter ? at + 1 : at, 0, value)
  }
  work.types.change(name, added(values))
  for (const { table, column } of columnsOf(work.model, name)) {
    const { values: own = [], ...type } = column.definition.enum ?? {}
    work.model.changeColumn(table, column, { enum: { ...type, values: added(own) } })
  }
  return tag
}

export function renameType(work: SchemaWork, object: Node | undefined, newName: string): string {
  const name = nameOf({ names: contentOf(object, 'List')?.items ?? [] })
  const users = columnsOf(work.model, name)
  work.types.rename(name, newName)
  for (const { table, column } of users) {
    const { values = [] } = column.definition.enum ?? {}
    work.model.changeColumn(table, column, { enum: { values: [...values], type: newName } })
  }
  return 'ALTER TYPE'
}

export function dropType(work: SchemaWork, object: Node, isOptional: boolean): void {
  const name = nameOf(contentOf(object, 'TypeName') ?? {})
  const [user] = columnsOf(work.model, name)
  if (user !== undefined) {
    const { definition } = user.column
    throw invalidSql(
      `type [${name}] cannot be dropped: column [${definition.name}] of table [${user.table.name}] has it`,
    )
  }
  if (work.types.remove(name)) return
  if (isOptional) work.skip('', `type [${name}] does not exist`)
  // It may have gone with its last column.
  else work.note(`type [${name}] was not dropped: no column has it`)
}
