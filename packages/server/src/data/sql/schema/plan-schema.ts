import { AppError } from '@offshoot/contract/errors'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import type { Node } from 'libpg-query'
import { contentOf, kindOf, type NodeOf, namesOf } from '../../../dialect/nodes.js'
import type { SchemaTypes } from './enum-types.js'
import { notSupported } from './not-supported.js'
import type { ParsedSchema } from './parse-schema.js'
import { requireNumbering } from './plan-columns.js'
import { renameConstraint } from './plan-constraints.js'
import { createExtension, dropExtension } from './plan-extensions.js'
import { createIndex, dropIndex } from './plan-indexes.js'
import { alterTable, createTable, dropTables } from './plan-tables.js'
import { alterEnum, createEnum, dropType, renameType } from './plan-types.js'
import { getColumn, type SchemaModel } from './schema-model.js'
import { objectWords, PUBLIC, requireOther, SchemaWork } from './schema-work.js'

export interface SchemaPlan {
  readonly operations: readonly SchemaOperation[]
  readonly indexes: readonly {
    readonly table: string
    readonly column: string
    readonly isWanted: boolean
  }[]
  /** What was skipped, and in what the outcome differs from that in PostgreSQL. */
  readonly notices: readonly string[]
  /** The enums that statements can name afterwards. */
  readonly types: SchemaTypes
  /** The command tags of the statements, as PostgreSQL reports them. */
  readonly tags: readonly string[]
}

/** Plans the operations that statements stand for. `types` were made by earlier statements. */
export function planSchema(
  { texts, expressions }: ParsedSchema,
  model: SchemaModel,
  types: SchemaTypes = new Map(),
): SchemaPlan {
  const statements = texts.flat()
  const work = new SchemaWork(model, expressions, types)
  const tags: string[] = []
  for (const [index, { node, source, skipsExisting }] of statements.entries()) {
    const isEdge = { isFirst: index === 0, isLast: index === statements.length - 1 }
    if (isBlockEdge(node, isEdge)) continue
    work.source = source
    tags.push(skipsExisting ? planUnlessExists(work, node) : planStatement(work, node))
  }
  const known = new Set(model.tables)
  return {
    operations: model.operations,
    indexes: model.indexes
      .filter(({ table, column }) => known.has(table) && table.columns.includes(column))
      .map(({ table, column, isWanted }) => ({
        table: table.name,
        column: column.definition.name,
        isWanted,
      })),
    notices: work.notices,
    types: work.types.toRemember(model),
    tags,
  }
}

/** Returns whether a statement opens or ends the block around the others. They are applied all or not at all in any case. */
function isBlockEdge(
  node: Node,
  { isFirst, isLast }: { isFirst: boolean; isLast: boolean },
): boolean {
  const { kind } = contentOf(node, 'TransactionStmt') ?? {}
  if (kind === 'TRANS_STMT_BEGIN' || kind === 'TRANS_STMT_START') return isFirst
  return kind === 'TRANS_STMT_COMMIT' && isLast
}

/** Plans the statement of a DO, which does nothing if what it makes exists. */
function planUnlessExists(work: SchemaWork, node: Node): string {
  const tag = 'DO'
  try {
    planStatement(work, node)
    return tag
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== 'already_exists') throw error
    return work.skip(tag, error.message)
  }
}

/** Plans a statement. Returns its command tag. */
function planStatement(work: SchemaWork, node: Node): string {
  const create = contentOf(node, 'CreateStmt')
  if (create !== undefined) return createTable(work, create)
  const change = contentOf(node, 'AlterTableStmt')
  if (change !== undefined) return alterTable(work, change)
  const rename = contentOf(node, 'RenameStmt')
  if (rename !== undefined) return renameObject(work, rename)
  const drop = contentOf(node, 'DropStmt')
  if (drop !== undefined) return dropObjects(work, drop)
  const index = contentOf(node, 'IndexStmt')
  if (index !== undefined) return createIndex(work, index)
  const comment = contentOf(node, 'CommentStmt')
  if (comment !== undefined) return commentOn(work, comment)
  const type = contentOf(node, 'CreateEnumStmt')
  if (type !== undefined) return createEnum(work, type)
  const values = contentOf(node, 'AlterEnumStmt')
  if (values !== undefined) return alterEnum(work, values)
  const sequence = contentOf(node, 'CreateSeqStmt')
  if (sequence !== undefined) return createSequence(work, sequence)
  const altered = contentOf(node, 'AlterSeqStmt')
  if (altered !== undefined) return alterSequence(work, altered)
  const extension = contentOf(node, 'CreateExtensionStmt')
  if (extension !== undefined) return createExtension(work, extension)
  const schema = contentOf(node, 'CreateSchemaStmt')
  if (schema !== undefined) return createSchema(schema)
  if (kindOf(node) === 'DoStmt') {
    throw notSupported(
      'DO',
      'but for one statement that changes the schema with EXCEPTION WHEN duplicate_object THEN null',
    )
  }
  const words = kindOf(node)
    .replace(/Stmt$/, '')
    .replace(/([a-z])([A-Z])/g, '$1 $2')
  throw notSupported(`${words.toUpperCase()} among statements that change the schema`)
}

/** The schema `public` exists, and there are no others. */
function createSchema(statement: NodeOf<'CreateSchemaStmt'>): string {
  const { schemaname: name, if_not_exists: isOptional, schemaElts: parts } = statement
  if (name === PUBLIC && isOptional && !parts) return 'CREATE SCHEMA'
  throw notSupported(`CREATE SCHEMA [${name}]`, `a branch has the schema [${PUBLIC}] only`)
}

function renameObject(work: SchemaWork, statement: NodeOf<'RenameStmt'>): string {
  const { renameType: kind = '', relation, object, subname = '', newname = '' } = statement
  const tag = 'ALTER TABLE'
  if (kind === 'OBJECT_TYPE') return renameType(work, object, work.newName(newname))
  if (!['OBJECT_TABLE', 'OBJECT_COLUMN', 'OBJECT_TABCONSTRAINT'].includes(kind)) {
    throw notSupported(`ALTER ${objectWords(kind)} ... RENAME`)
  }
  if (statement.missing_ok && work.model.findTable(work.nameOf(relation)) === undefined) {
    return work.skip(tag, `table [${relation?.relname}] does not exist`)
  }
  const table = work.getTable(relation)
  const newName = work.newName(newname)
  if (kind === 'OBJECT_TABLE') work.model.renameTable(table, newName)
  else if (kind === 'OBJECT_COLUMN') {
    requireOther(subname, 'RENAME COLUMN')
    work.model.renameColumn(table, getColumn(table, subname), newName)
  } else renameConstraint(work, table, { name: subname, newName })
  return tag
}

function dropObjects(
  work: SchemaWork,
  { removeType: kind, objects, missing_ok: isOptional = false, behavior }: NodeOf<'DropStmt'>,
): string {
  const tables: string[] = []
  for (const each of objects ?? []) {
    if (kind === 'OBJECT_TYPE') dropType(work, each, isOptional)
    else if (kind === 'OBJECT_EXTENSION') dropExtension(work, each, isOptional)
    else {
      const parts = namesOf(contentOf(each, 'List')?.items)
      const name = parts.at(-1) ?? ''
      if (parts.length > 1 && parts.at(-2) !== PUBLIC) {
        throw notSupported(`schema [${parts.slice(0, -1).join('.')}]`)
      }
      if (kind === 'OBJECT_TABLE') tables.push(name)
      else if (kind === 'OBJECT_INDEX') dropIndex(work, name, isOptional)
      else if (kind === 'OBJECT_SEQUENCE') {
        work.note(`sequence [${name}] was not dropped: it goes with its column`)
      } else throw notSupported(`DROP ${objectWords(kind)}`)
    }
  }
  dropTables(work, tables, { isOptional, cascades: behavior === 'DROP_CASCADE' })
  return `DROP ${objectWords(kind)}`
}

function commentOn(work: SchemaWork, { objtype, object, comment }: NodeOf<'CommentStmt'>): string {
  const words = `COMMENT ON ${objectWords(objtype)}`
  const parts = namesOf(contentOf(object, 'List')?.items)
  const [name = '', tableName = '', schemaname] = [...parts].reverse()
  // It changes nothing that a statement can see, so that a dump need not stop for it.
  if (objtype === 'OBJECT_TABLE') {
    work.getTable({ relname: name, ...(tableName && { schemaname: tableName }) })
  } else if (objtype !== 'OBJECT_COLUMN' && !COMMENTED.has(objtype ?? '')) {
    throw notSupported(words, 'only columns have a description')
  }
  if (objtype !== 'OBJECT_COLUMN' || name === 'id') {
    work.note(`${words}: was not kept, because only columns have a description`)
    return 'COMMENT'
  }
  const table = work.getTable({ relname: tableName, ...(schemaname && { schemaname }) })
  work.model.changeColumn(table, getColumn(table, name), { description: comment ?? null })
  return 'COMMENT'
}

/** A column that takes its values from a sequence has one of its own, so there is nothing to make. */
function createSequence(work: SchemaWork, { sequence, options }: NodeOf<'CreateSeqStmt'>): string {
  const name = work.nameOf(sequence)
  requireNumbering(options, 'SEQUENCE')
  work.note(
    `sequence [${name}] is that of the column that takes its values from it: nothing else can use it`,
  )
  return 'CREATE SEQUENCE'
}

function alterSequence(work: SchemaWork, { sequence, options }: NodeOf<'AlterSeqStmt'>): string {
  work.nameOf(sequence)
  requireNumbering(options, 'SEQUENCE')
  return 'ALTER SEQUENCE'
}

/** Objects of dumps whose comments are not kept. */
const COMMENTED = new Set([
  'OBJECT_EXTENSION',
  'OBJECT_INDEX',
  'OBJECT_SCHEMA',
  'OBJECT_SEQUENCE',
  'OBJECT_TABCONSTRAINT',
  'OBJECT_TYPE',
])
