import type { Bounds } from '../../postgres/bounds.js'
import { codeOf } from '../../postgres/failures.js'
import { ident, join, type Sql, sql } from '../../postgres/sql.js'
import type { Call, TextRows } from '../../postgres/statement.js'
import { decodeDatetime } from '../../rows/columns/datetime-type.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { TableLookup } from '../../rows/reading/read-plan.js'
import { confirmed } from '../../rows/running/staleness.js'
import type { Session } from '../session/session.js'
import { type Field, type FieldType, SQL_TYPES } from './field.js'
import type { Filter } from './filter.js'
import { filterSql } from './filter-sql.js'
import { invalidQuery } from './invalid-query.js'
import type { Parameters } from './parameters.js'
import { selectRows } from './select-rows.js'

const VALUE_TYPES: Readonly<Partial<Record<FieldType, Sql>>> = {
  ...SQL_TYPES,
  list: sql`text[]`,
  json: sql`jsonb`,
  other: sql`text`,
}

/** The relation that is aggregated: rows that meet a filter, with the needed values. */
export class BaseRows {
  readonly #lookup: TableLookup
  readonly #codec: TableCodec
  readonly #filter: Filter
  readonly #fields = new Map<string, { field: Field; name: Sql }>()
  readonly #conditions: Filter[] = []

  constructor(lookup: TableLookup, codec: TableCodec, filter: Filter) {
    this.#lookup = lookup
    this.#codec = codec
    this.#filter = filter
  }

  /** Returns the name of a field in the relation. */
  value(field: Field): Sql {
    const known = this.#fields.get(field.path)
    if (known !== undefined) return known.name
    const name = ident(`value_${this.#fields.size}`)
    this.#fields.set(field.path, { field, name })
    return name
  }

  /** Returns the name of a boolean column that tells whether a row meets a further filter. */
  condition(filter: Filter): Sql {
    this.#conditions.push(filter)
    return ident(`is_met_${this.#conditions.length - 1}`)
  }

  /** Returns the relation. Must be called after all values and conditions are added. */
  relation(parameters: Parameters): Sql {
    const source = { lookup: this.#lookup, codec: this.#codec, filter: this.#filter, parameters }
    const selects = selectRows(source, ({ fields }) => ({
      selected: this.#list(
        (field) => fields.expression(field),
        (filter) => filterSql(filter, fields, parameters),
      ),
    }))
    if (selects.length === 0) return this.#nothing()
    return join(selects, ' union all ')
  }

  /** Returns an empty relation, for a table that was never written to. */
  #nothing(): Sql {
    const values = this.#list(
      (field) => sql`null::${VALUE_TYPES[field.type]}`,
      () => sql`false`,
    )
    return sql`select ${values} where false`
  }

  #list(valueOfField: (field: Field) => Sql, valueOfFilter: (filter: Filter) => Sql): Sql {
    const values = [...this.#fields.values()].map(({ field, name }) => {
      return sql`${valueOfField(field)} as ${name}`
    })
    const conditions = this.#conditions.map((filter, index) => {
      return sql`${valueOfFilter(filter)} as ${ident(`is_met_${index}`)}`
    })
    return join([sql`1 as one`, ...values, ...conditions], ', ')
  }
}

const OUT_OF_RANGE = '22003'

/** Runs a statement whose result may be out of range, such as a sum. */
export async function runCalculation(
  context: { session: Session; bounds?: Bounds },
  call: Call,
): Promise<TextRows> {
  const { session, bounds } = context
  try {
    const [rows = []] = await session.branch.runReads([call], bounds)
    return rows
  } catch (error) {
    if (codeOf(error) === OUT_OF_RANGE) throw confirmed(invalidQuery('the result is out of range'))
    throw error
  }
}

/** Returns SQL for the text that `writeValue` reads. */
export function textOfValue(type: FieldType, value: Sql): Sql {
  return type === 'list' ? sql`to_json(${value})::text` : sql`${value}::text`
}

/** Returns a value as JSON text. */
export function writeValue(
  type: FieldType,
  text: string | null | undefined,
  options: { jsonAsText: boolean },
): string {
  if (text === null || text === undefined) return 'null'
  switch (type) {
    case 'text':
    case 'decimal':
    case 'date':
    case 'time':
    case 'uuid':
    case 'enum':
    case 'other':
      return JSON.stringify(text)
    case 'datetime':
      return `"${decodeDatetime(text)}"`
    case 'json':
      return options.jsonAsText ? JSON.stringify(text) : text
    default:
      return text
  }
}
