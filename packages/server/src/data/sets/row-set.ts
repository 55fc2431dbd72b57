import { ident, join, type Sql, sql } from '../../postgres/sql.js'
import type { Parameter } from '../../postgres/statement.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { resolveField } from '../query/field.js'
import { type Filter, parseFilter } from '../query/filter.js'
import { invalidQuery } from '../query/invalid-query.js'
import { Parameters } from '../query/parameters.js'
import { lookupOf } from '../query/query-records.js'
import { requireQuerySize } from '../query/query-size.js'
import { selectRows } from '../query/select-rows.js'
import { ROOT } from '../query/sort-sql.js'
import type { Session } from '../session/session.js'

/** How a request names a set of records: those that meet a filter, or all of a table. */
export interface SetRequest {
  readonly filter?: unknown
  readonly all?: boolean
}

/** Parses the filter of a set. Returns undefined for all records, which must be said. */
export function parseSet(
  session: Session,
  codec: TableCodec,
  { filter, all = false }: SetRequest,
): Filter | undefined {
  if (filter === undefined) {
    if (all) return undefined
    throw invalidQuery('expected a filter, or [all] = true for all records')
  }
  if (all) throw invalidQuery('expected either a filter or [all] = true, got both')
  requireQuerySize(filter)
  const lookup = lookupOf(session)
  const parsed = parseFilter((path) => resolveField(lookup, codec, path), filter)
  if (hasCondition(parsed)) return parsed
  throw invalidQuery('filter: has no condition; use [all] = true for all records')
}

function hasCondition(filter: Filter): boolean {
  switch (filter.kind) {
    case 'field':
    case 'exists':
      return true
    case 'not':
      return hasCondition(filter.item)
    default:
      return filter.items.some(hasCondition)
  }
}

/** Returns the rows of a set, for the statements of a writer. Their parameters start at `firstSlot`. */
export function rowSet(
  session: Session,
  { codec, filter }: { codec: TableCodec; filter: Filter | undefined },
  firstSlot = 0,
): {
  select(columns: readonly number[], options?: { readonly hasPlaces: boolean }): Sql
  values: readonly Parameter[]
} {
  const parameters = new Parameters(firstSlot)
  const source = { lookup: lookupOf(session), codec, filter, parameters }
  return {
    values: parameters.values,
    select(columns, { hasPlaces } = { hasPlaces: false }) {
      const selects = selectRows(source, ({ record }) => {
        const values = columns.map((index) => {
          const name = ident(codec.physical[index]?.physicalName ?? '')
          return sql`${record.column(index)} as ${name}`
        })
        const metadata = ['id', 'version', 'created_at'].map((name) => sql`${ROOT}.${ident(name)}`)
        const places = hasPlaces ? [sql`${ROOT}.ctid as place`] : []
        return { selected: join([...metadata, ...values, ...places], ', ') }
      })
      return selects.length === 0 ? NOTHING : join(selects, ' union all ')
    },
  }
}

/** Nothing was ever written to the table. */
const NOTHING = sql`select null::text as id, null::tid as place where false`
