import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { isMetadataKey } from '@offshoot/contract/names'
import type { ColumnType } from '@offshoot/contract/schema'
import { type Sql, sql } from '../../postgres/sql.js'
import type { StoredColumn } from '../../rows/columns/stored-schema.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { checkText } from '../../rows/columns/text-types.js'
import { wantsIndex } from '../../rows/indexes/heap-indexes.js'
import type { TableLookup } from '../../rows/reading/read-plan.js'
import { invalidQuery } from './invalid-query.js'

/** The type by which values of a field are compared. */
export type FieldType =
  | 'text'
  | 'int'
  | 'float'
  | 'decimal'
  | 'bool'
  | 'datetime'
  | 'date'
  | 'time'
  | 'uuid'
  | 'enum'
  | 'list'
  | 'json'
  | 'other'

/** The PostgreSQL types of field types that have an order. */
export const SQL_TYPES: Readonly<Partial<Record<FieldType, Sql>>> = {
  text: sql`text`,
  int: sql`bigint`,
  float: sql`double precision`,
  bool: sql`boolean`,
  datetime: sql`timestamptz`,
  decimal: sql`numeric`,
  date: sql`date`,
  time: sql`time`,
  uuid: sql`uuid`,
  enum: sql`text`,
}

/** Field types with numbers. */
export const NUMBERS: ReadonlySet<FieldType> = new Set(['int', 'float', 'decimal'])

/** The location of a value in the record that the links lead to. */
type FieldSource =
  | { readonly kind: 'id' }
  | { readonly kind: 'metadata'; readonly column: 'version' | 'created_at' | 'updated_at' }
  | { readonly kind: 'column'; readonly index: number }
  /** A value inside a JSON document. */
  | { readonly kind: 'json'; readonly index: number; readonly keys: readonly string[] }
  /** A metadata field of a file. */
  | { readonly kind: 'file'; readonly index: number; readonly key: string }

/** A path of a query, resolved against the schema of the branch. */
export interface Field {
  readonly path: string
  /** The links on the path. */
  readonly links: readonly LinkStep[]
  readonly source: FieldSource
  readonly type: FieldType
  /** The ids that the field has, if they have another type than text. They are written as texts. */
  readonly ids?: TableCodec['ids'] | undefined
  /** Every record has a value. */
  readonly isNeverNull?: boolean
  /** The values of an enum, in their order. */
  readonly values?: readonly string[] | undefined
  /** The field has an index: of its values only, or of values and ids. */
  readonly index?: 'values' | 'valuesAndIds' | undefined
}

/** Resolves a path to a field. Throws an error with the path if there is none. */
export type FieldResolver = (path: string) => Field

interface LinkStep {
  /** Index of the link column in its table. */
  readonly column: number
  readonly target: TableCodec
}

// A Map, because names come from requests, and `constructor` would be found in a plain object.
const METADATA: ReadonlyMap<
  string,
  { column: 'version' | 'created_at' | 'updated_at'; type: FieldType }
> = new Map([
  ['version', { column: 'version', type: 'int' }],
  ['createdAt', { column: 'created_at', type: 'datetime' }],
  ['updatedAt', { column: 'updated_at', type: 'datetime' }],
])

const TYPES: Readonly<Record<ColumnType, FieldType>> = {
  string: 'text',
  text: 'text',
  email: 'text',
  link: 'text',
  int: 'int',
  float: 'float',
  bool: 'bool',
  datetime: 'datetime',
  decimal: 'decimal',
  date: 'date',
  time: 'time',
  uuid: 'uuid',
  enum: 'enum',
  multiple: 'list',
  json: 'json',
  vector: 'other',
  object: 'other',
  file: 'other',
  'file[]': 'other',
}

/** The fields of a file that can be compared. Links and content cannot. */
const FILE_FIELDS: ReadonlyMap<string, FieldType> = new Map([
  ['name', 'text'],
  ['mediaType', 'text'],
  ['size', 'int'],
  ['version', 'int'],
  ['enablePublicUrl', 'bool'],
  ['signedUrlTimeout', 'int'],
])

const LINK_DEPTH_MAX = 10

/** Resolves a path, which may lead through links, and into objects, JSON documents, files and metadata. */
export function resolveField(lookup: TableLookup, codec: TableCodec, path: string): Field {
  if (path.length > QUERY_LIMITS.pathLengthMax) {
    throw invalidQuery(
      `column [${path.slice(0, 100)}…]: a path must not have more than ${QUERY_LIMITS.pathLengthMax} characters`,
    )
  }
  const [dotted = '', ...keys] = path.split('->')
  const links: LinkStep[] = []
  let at = codec
  let prefix = ''
  const parts = dotted.split('.')
  for (const [position, part] of parts.entries()) {
    const rest = parts.slice(position + 1)
    const isFirst = prefix === ''
    if (isFirst && part === 'id' && rest.length === 0 && keys.length === 0) {
      const source = { kind: 'id' as const }
      const ids = typedIds(at)
      return {
        path,
        links,
        source,
        type: typeOfIds(ids),
        ids,
        isNeverNull: links.length === 0,
        index: ids?.type === 'int' && links.length === 0 ? 'valuesAndIds' : undefined,
      }
    }
    const metadata = isFirst && isMetadataKey(part) ? METADATA.get(rest[0] ?? '') : undefined
    if (metadata !== undefined && rest.length === 1 && keys.length === 0) {
      return {
        path,
        links,
        source: { kind: 'metadata', column: metadata.column },
        type: metadata.type,
        isNeverNull: links.length === 0,
      }
    }
    prefix = isFirst ? part : `${prefix}.${part}`
    const index = at.indexes.get(prefix)
    const column = index === undefined ? undefined : at.physical[index]?.column
    if (index === undefined || column === undefined) break
    if (rest.length === 0) {
      const target = column.link && lookup.tableById(column.link.tableId)
      return ownField({ path, links, index, keys, column, ids: typedIds(target) })
    }
    if (column.type === 'link') {
      const target = lookup.tableById(column.link?.tableId ?? -1)
      if (target === undefined || links.length === LINK_DEPTH_MAX) break
      links.push({ column: index, target })
      at = target
      prefix = ''
    } else if (column.type === 'file') {
      const key = rest.join('.')
      const type = keys.length === 0 ? FILE_FIELDS.get(key) : undefined
      if (type === undefined) break
      return { path, links, source: { kind: 'file', index, key }, type }
    } else if (column.type !== 'object') break
  }
  throw invalidQuery(`table [${codec.table.name}]: column [${path}]: column not found`)
}

/** Texts of UUIDs have the order of UUIDs. */
function typeOfIds(ids: Field['ids']): FieldType {
  return ids?.type === 'int' ? 'int' : 'text'
}

function typedIds(codec: TableCodec | undefined): Field['ids'] {
  return codec?.ids.type === 'string' ? undefined : codec?.ids
}

function indexOf(column: StoredColumn): Field['index'] {
  // Enums are stored as texts, and ordered by their positions in the schema.
  if (column.type === 'enum') return undefined
  if (column.unique) return 'values'
  return wantsIndex(column) ? 'valuesAndIds' : undefined
}

function ownField(options: {
  path: string
  links: readonly LinkStep[]
  index: number
  keys: readonly string[]
  column: StoredColumn
  ids: Field['ids']
}): Field {
  const { path, links, index, keys, column, ids } = options
  if (keys.length === 0) {
    const isOwn = links.length === 0
    return {
      path,
      links,
      source: { kind: 'column', index },
      type: ids === undefined ? TYPES[column.type] : typeOfIds(ids),
      ids,
      isNeverNull: isOwn && column.notNull === true,
      values: column.enum?.values,
      index: isOwn ? indexOf(column) : undefined,
    }
  }
  if (column.type !== 'json')
    throw invalidQuery(`column [${path}]: only a json column has paths inside`)
  if (keys.some((key) => key === '' || checkText(key) !== undefined)) {
    throw invalidQuery(`column [${path}]: the path has a key that a document cannot contain`)
  }
  return { path, links, source: { kind: 'json', index, keys }, type: 'json' }
}
