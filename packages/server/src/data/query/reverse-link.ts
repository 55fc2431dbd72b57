import type { AppError } from '@offshoot/contract/errors'
import { RESERVED_COLUMN_NAMES } from '@offshoot/contract/names'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { TableLookup } from '../../rows/reading/read-plan.js'
import type { TableRead } from '../../rows/reading/table-read.js'
import { resolveField } from './field.js'
import { invalidQuery } from './invalid-query.js'
import { OFFSET_MAX, PAGE_SIZE } from './page.js'
import type { Parameters } from './parameters.js'
import { selectRows } from './select-rows.js'
import { parseRecordSort, type Sort } from './sort.js'
import { KEY_ID, keyName, orderSql, ROOT, sortKeys } from './sort-sql.js'

/** A request for records of another table that link to the found records. */
export interface ReverseLink {
  /** The key of the records in the response. */
  readonly key: string
  readonly codec: TableCodec
  /** Index of the link column. */
  readonly column: number
  readonly read: TableRead
  readonly sort: Sort
  readonly limit: number
  readonly offset: number
}

/** The schema that reverse links are resolved in. */
interface ReverseLinkContext {
  readonly lookup: TableLookup
  /** The queried table. */
  readonly codec: TableCodec
  readonly pageSizeMax: number
  tableByName(name: string): TableCodec | undefined
  planColumns(codec: TableCodec, columns: readonly string[]): TableRead
}

const KNOWN: ReadonlySet<string> = new Set([
  'name',
  'as',
  'columns',
  'sort',
  'order',
  'limit',
  'offset',
])
const ARROW = '<-'

export const isReverseLink = (name: string): boolean => name.startsWith(ARROW)

/** Parses `{name: "<-table.linkColumn", as?, columns?, sort?, limit?, offset?}`. */
export function parseReverseLink(context: ReverseLinkContext, given: unknown): ReverseLink {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw invalidQuery('columns: expected names, or objects that ask for reverse links')
  }
  const { name, as, columns, sort, order, limit, offset } = given as Readonly<
    Record<string, unknown>
  >
  const unknown = Object.keys(given).find((key) => !KNOWN.has(key))
  if (unknown !== undefined) throw invalidQuery(`columns: reverse link: [${unknown}] is not known`)
  if (typeof name !== 'string' || !isReverseLink(name) || !name.includes('.')) {
    throw invalidQuery('columns: reverse link: [name] must be of the form <-table.linkColumn')
  }
  const invalid = (message: string): AppError => invalidQuery(`columns: [${name}]: ${message}`)
  const dot = name.indexOf('.')
  const tableName = name.slice(ARROW.length, dot)
  const path = name.slice(dot + 1)
  const codec = context.tableByName(tableName)
  if (codec === undefined) throw invalid(`table [${tableName}] not found`)
  const column = codec.indexes.get(path) ?? -1
  const target = codec.physical[column]?.column.link?.tableId
  if (target === undefined) throw invalid(`column [${path}]: is not a link`)
  if (target !== context.codec.table.id) {
    throw invalid(`column [${path}]: does not link to table [${context.codec.table.name}]`)
  }
  return {
    key: keyOf(as ?? `${tableName}${path}`, context.codec, invalid),
    codec,
    column,
    read: context.planColumns(codec, columnNames(columns, invalid)),
    sort: parseRecordSort(
      (name) => resolveField(context.lookup, codec, name),
      sort ?? orderAsSort(order, codec, invalid),
    ),
    limit: whole(limit ?? PAGE_SIZE, { name: 'limit', min: 1, max: context.pageSizeMax }, invalid),
    offset: whole(offset ?? 0, { name: 'offset', min: 0, max: OFFSET_MAX }, invalid),
  }
}

type Invalid = (message: string) => AppError

function keyOf(as: unknown, codec: TableCodec, invalid: Invalid): string {
  if (typeof as !== 'string' || as === '') throw invalid('[as] must be a name')
  if (RESERVED_COLUMN_NAMES.has(as) || codec.indexes.has(as))
    throw invalid(`[as]: the name [${as}] is taken`)
  return as
}

function columnNames(columns: unknown, invalid: Invalid): string[] {
  if (columns === undefined) return ['*']
  if (!Array.isArray(columns)) throw invalid('[columns] must be a list')
  return columns.map((column) => {
    if (typeof column !== 'string') throw invalid('reverse links go one level deep')
    return column
  })
}

const METADATA_NAMES: ReadonlySet<string> = new Set(['version', 'createdAt', 'updatedAt'])

/** Converts an older form of sort, `[{column, order}]`, in which metadata columns have no prefix. */
function orderAsSort(order: unknown, codec: TableCodec, invalid: Invalid): unknown {
  if (order === undefined) return undefined
  if (!Array.isArray(order)) throw invalid('[order] must be a list')
  return order.map((item) => {
    const { column, order: direction = 'asc' } = (item ?? {}) as Readonly<Record<string, unknown>>
    if (typeof column !== 'string') throw invalid('[order] must name columns')
    const isMetadata = METADATA_NAMES.has(column) && !codec.indexes.has(column)
    return { [isMetadata ? `xata.${column}` : column]: direction }
  })
}

function whole(
  value: unknown,
  range: { name: string; min: number; max: number },
  invalid: Invalid,
): number {
  const { name, min, max } = range
  if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) {
    return value
  }
  throw invalid(`[${name}] must be a whole number from ${min} to ${max}`)
}

/** Names for the values of a linking record, before they are combined to one text. */
const valueName = (index: number): Sql => ident(`value_${index}`)

/**
 * Selects the linking records of each record of `page`: `target`, and `records` as a JSON array of arrays of
 * texts. Reads the table once for all records of the page; `row_number` by target replaces a limit.
 */
export function reverseLinkSql(
  lookup: TableLookup,
  link: ReverseLink,
  { seed, parameters }: { seed: number; parameters: Parameters },
): Sql {
  const { codec, column, read, sort, limit, offset } = link
  const source = { lookup, codec, filter: undefined, parameters }
  const selects = selectRows(source, ({ record, fields }) => {
    const keys = sortKeys({ sort, seed }, { fields, parameters })
    const values = read
      .selectOwn(record)
      .map((value, position) => sql`, ${value} as ${valueName(position)}`)
    const keyColumns = keys.map(({ expression }, index) => {
      return sql`, ${expression} as ${keyName(index)}`
    })
    const target = record.column(column)
    return {
      selected: sql`${target} as target${join([empty, ...values, ...keyColumns], '')},
        ${ROOT}.id as ${KEY_ID}`,
      conditions: [sql`${target} in (select ${KEY_ID} from page)`],
    }
  })
  if (selects.length === 0)
    return sql`select null::text as target, null::text as records where false`
  const ofRank = (position: number): Sql => sql`ranked.${valueName(position)}`
  const own = Array.from({ length: read.ownCount }, (_, position) => ofRank(position))
  const linked = read.selectLinked(ofRank)
  const texts = [...own, ...linked.selected].map((value) => sql`${value}::text`)
  return sql`
    select target, json_agg(array[${join(texts, ', ')}] order by rank)::text as records
    from (
      select *
      from (
        select *, row_number() over (partition by target order by ${orderSql(sort, false)}) as rank
        from (${join(selects, ' union all ')}) arms
      ) numbered
      where rank > ${raw(String(offset))} and rank <= ${raw(String(offset + limit))}
      offset 0
    ) ranked${linked.joins}
    group by target`
}
