import { type NodeOf, namesOf } from '../../../dialect/nodes.js'
import { cutName } from '../../../dialect/scope.js'
import { findUnique, indexName } from './constraint-names.js'
import { readIndex } from './index-statement.js'
import { notSupported } from './not-supported.js'
import { listColumnRefs } from './parse-schema.js'
import { dropConstraint, makeUnique } from './plan-constraints.js'
import { getColumn } from './schema-model.js'
import type { SchemaWork } from './schema-work.js'

export function createIndex(work: SchemaWork, statement: NodeOf<'IndexStmt'>): string {
  const { unique: isUnique = false, idxname } = statement
  const { keys, patternClasses, obstacle } = readIndex(statement)
  const table = work.getTable(statement.relation)
  const named = listColumnRefs({ IndexStmt: statement }).map(({ fields }) => namesOf(fields).at(-1))
  const names = [...keys, ...named].flatMap((key) => {
    if (key === undefined || key === 'id') return key ?? []
    return getColumn(table, key).definition.name
  })
  const tag = 'CREATE INDEX'
  if (isUnique) {
    if (obstacle !== undefined) throw notSupported(`CREATE UNIQUE INDEX: ${obstacle}`)
    const isKnown = table.constraints.some(({ name }) => name === idxname)
    if (isKnown) {
      return work.meetExisting(tag, `index [${idxname}] already exists`, statement.if_not_exists)
    }
    const given = idxname ?? cutName(`${table.name}_${names.join('_')}_idx`)
    makeUnique(work, table, { keys: names, given, isIndex: true })
    return tag
  }
  const [name = ''] = names
  const shown = idxname ?? cutName(`${table.name}_${names.join('_')}_idx`)
  // It changes no answer, so that a migration need not stop for it.
  if (obstacle !== undefined) {
    work.note(`index [${shown}] was not made: CREATE INDEX: ${obstacle} is not supported`)
    return tag
  }
  if (name === 'id') {
    work.note(`index [${shown}] was not made: column [id] has an index`)
    return tag
  }
  for (const each of patternClasses) {
    work.note(`index [${shown}] has the usual order, and not that of ${each}`)
  }
  const usual = indexName(table, name)
  const column = getColumn(table, name)
  if (idxname === usual && column.hasIndex) {
    return work.meetExisting(tag, `index [${usual}] already exists`, statement.if_not_exists)
  }
  if (idxname !== undefined && idxname !== usual) {
    work.note(`index [${idxname}] is called [${usual}]`)
  }
  work.model.setIndex(table, column, true)
  return tag
}

export function dropIndex(work: SchemaWork, name: string, isOptional: boolean): void {
  const { tables } = work.model
  const found = tables.find(
    (table) =>
      table.constraints.some((each) => each.isUnique && each.name === name) ||
      findUnique(table, name) !== undefined,
  )
  if (found !== undefined) {
    dropConstraint(work, found, name)
    return
  }
  for (const table of tables) {
    const column = table.columns.find(
      ({ definition }) => indexName(table, definition.name) === name,
    )
    if (column === undefined) continue
    work.model.setIndex(table, column, false)
    return
  }
  if (isOptional) {
    work.skip('', `index [${name}] does not exist`)
    return
  }
  // An index that was not made, or has another name here, cannot be told from one that never was.
  work.note(`index [${name}] was not dropped: there is none, or it is called {table}_{column}_idx`)
}
