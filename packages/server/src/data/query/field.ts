import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { isMetadataKey } from '@offshoot/contract/names'
import type { ColumnType } from '@offshoot/contract/schema'
import { type Sql, sql } from '../../postgres/sql.js'
import { checkText, type StoredColumn, type TableCodec } from '../../rows/columns.js'
import { wantsIndex } from '../../rows/indexes.js'
import type { TableLookup } from '../../rows/read.js'
import { queryFault } from './query-fault.js'

/** How values of a field compare. */
export type FieldType = 'text' | 'int' | 'float' | 'bool' | 'datetime' | 'list' | 'json' | 'other'

/** Of the types whose values have an order. */
export const SQL_TYPES: Readonly<Partial<Record<FieldType, Sql>>> = {
  text: sql`text`,
  int: sql`bigint`,
  float: sql`double precision`,
  bool: sql`boolean`,
  datetime: sql`timestamptz`,
}

/** Where the value of a field is, in the record that its links lead to. */
export type FieldSource =
  | { readonly kind: 'id' }
  | { readonly kind: 'metadata'; readonly column: 'version' | 'created_at' | 'updated_at' }
  | { readonly kind: 'column'; readonly index: number }
  /** A value inside a JSON document. */
  | { readonly kind: 'json'; readonly index: number; readonly keys: readonly string[] }
  /** What a file says about itself. */
  | { readonly kind: 'file'; readonly index: number; readonly key: string }

/** A path of a query, resolved against the schema of the branch. */
export interface Field {
  readonly path: string
  /** The links on the way: in each table, the index of the link column. */
  readonly links: readonly LinkStep[]
  readonly source: FieldSource
  readonly type: FieldType
  /** Every record has a value. */
  readonly isNeverNull?: boolean
  /** An index has the records in the order of the field: of its values alone, or of them and the id. */
  readonly index?: 'values' | 'valuesAndIds' | undefined
}

/** Finds the field of a path, or refuses it by name. */
export type FieldResolver = (path: string) => Field

export interface LinkStep {
  /** Index of the link column in its table. */
  readonly column: number
  readonly target: TableCodec
}

// Maps, because names come from requests and every object has a `constructor`.
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
  multiple: 'list',
  json: 'json',
  vector: 'other',
  object: 'other',
  file: 'other',
  'file[]': 'other',
}

/** What of a file can be compared; addresses and content cannot. */
const FILE_FIELDS: ReadonlyMap<string, FieldType> = new Map([
  ['name', 'text'],
  ['mediaType', 'text'],
  ['size', 'int'],
  ['version', 'int'],
  ['enablePublicUrl', 'bool'],
  ['signedUrlTimeout', 'int'],
])

const LINK_DEPTH_MAX = 10

/** Finds a field by its path: own columns, through links, into objects, JSON, files and metadata. */
export function resolveField(lookup: TableLookup, codec: TableCodec, path: string): Field {
  if (path.length > QUERY_LIMITS.pathLengthMax) {
    throw queryFault(
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
      return { path, links, source, type: 'text', isNeverNull: links.length === 0 }
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
    if (rest.length === 0) return ownField({ path, links, index, keys, column })
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
  throw queryFault(`table [${codec.table.name}]: column [${path}]: column not found`)
}

function indexOf(column: StoredColumn): Field['index'] {
  if (column.unique) return 'values'
  return wantsIndex(column) ? 'valuesAndIds' : undefined
}

function ownField(options: {
  path: string
  links: readonly LinkStep[]
  index: number
  keys: readonly string[]
  column: StoredColumn
}): Field {
  const { path, links, index, keys, column } = options
  if (keys.length === 0) {
    const isOwn = links.length === 0
    return {
      path,
      links,
      source: { kind: 'column', index },
      type: TYPES[column.type],
      isNeverNull: isOwn && column.notNull === true,
      index: isOwn ? indexOf(column) : undefined,
    }
  }
  if (column.type !== 'json')
    throw queryFault(`column [${path}]: only a json column has paths inside`)
  if (keys.some((key) => key === '' || checkText(key) !== undefined)) {
    throw queryFault(`column [${path}]: the path inside has a key that no document has`)
  }
  return { path, links, source: { kind: 'json', index, keys }, type: 'json' }
}
