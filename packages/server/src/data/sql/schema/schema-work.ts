import { AppError } from '@offshoot/contract/errors'
import type { Node } from 'libpg-query'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import type { NodeOf } from '../../../dialect/nodes.js'
import { EnumTypes, type SchemaTypes } from './enum-types.js'
import { notSupported } from './not-supported.js'
import type { SchemaModel, TableModel } from './schema-model.js'

/** Names of PostgreSQL have at most this many bytes. */
export const NAME_BYTES_MAX = 63
/** The only schema that exists. */
export const PUBLIC = 'public'

/** What the statements of a request share while they are planned. */
export class SchemaWork {
  readonly model: SchemaModel
  readonly types: EnumTypes
  /** The text of the statement that is planned. */
  source = ''
  readonly #expressions: ReadonlyMap<object, string>
  readonly #notices = new Set<string>()

  constructor(model: SchemaModel, expressions: ReadonlyMap<object, string>, types: SchemaTypes) {
    this.model = model
    this.types = new EnumTypes(model, types)
    this.#expressions = expressions
  }

  /** What was skipped, and in what the outcome differs from that in PostgreSQL. */
  get notices(): readonly string[] {
    return [...this.#notices]
  }

  /** The values of the enums that statements can name. */
  get enums(): SchemaTypes {
    return this.types.known
  }

  readonly note = (notice: string): void => {
    this.#notices.add(notice)
  }

  /** Notes that a statement with IF [NOT] EXISTS has nothing to do. Returns its tag. */
  skip(tag: string, reason: string): string {
    this.note(`${reason}, skipping`)
    return tag
  }

  /** The thing that a statement makes exists: the statement is skipped if it has IF NOT EXISTS, or refused. Returns its tag. */
  meetExisting(tag: string, reason: string, isOptional = false): string {
    if (isOptional) return this.skip(tag, reason)
    throw new AppError('already_exists', reason)
  }

  /** Returns the name of a relation. Only the schema `public` exists. */
  nameOf(relation: NodeOf<'RangeVar'> | undefined): string {
    const { catalogname, schemaname, relname = '', relpersistence = 'p' } = relation ?? {}
    if (catalogname !== undefined) throw notSupported(`database [${catalogname}]`)
    if (schemaname !== undefined && schemaname !== PUBLIC) {
      throw notSupported(`schema [${schemaname}]`)
    }
    if (relpersistence === 't') throw notSupported('a temporary table')
    if (relpersistence !== 'p') throw notSupported('UNLOGGED')
    return relname
  }

  getTable(relation: NodeOf<'RangeVar'> | undefined): TableModel {
    const name = this.nameOf(relation)
    const table = this.model.findTable(name)
    if (table === undefined) throw invalidSql(`table [${name}] not found`)
    return table
  }

  /** Returns a name for something new. PostgreSQL's parser cuts longer ones off without telling. */
  newName(name: string): string {
    if (Buffer.byteLength(name) < NAME_BYTES_MAX) return name
    const folded = this.source.toLowerCase()
    for (let at = 0; ; ) {
      at = folded.indexOf(name.toLowerCase(), at)
      if (at < 0) break
      at += name.length
      if (/[\p{L}\p{N}_$~-]/u.test(folded.charAt(at))) {
        throw invalidSql(`name [${name}…] is longer than ${NAME_BYTES_MAX} bytes`)
      }
    }
    return name
  }

  expressionOf(tree: Node | undefined): string {
    const text = tree && this.#expressions.get(tree)
    if (text === undefined) throw new Error('expressions are read before they are planned')
    return text
  }
}

/** Refuses changes of the id, which is not a column of its own. */
export function requireOther(name: string, what: string): void {
  if (name === 'id') throw notSupported(`${what} of column [id]`)
}

/** The words of SQL for a kind of object. */
export const objectWords = (objtype: string | undefined): string =>
  (objtype ?? '').replace(/^OBJECT_/, '').replaceAll('_', ' ')
