import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { arrayLiteral } from '../../postgres/carriers.js'
import { ident, join, literal, type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { TableLookup } from '../../rows/reading/read-plan.js'
import type { PlanRoot } from '../../rows/reading/table-rows.js'
import type { Field, FieldType } from './field.js'
import { invalidQuery } from './invalid-query.js'
import type { Parameters } from './parameters.js'

const FILE_CASTS: Readonly<Partial<Record<FieldType, Sql>>> = {
  int: sql`::bigint`,
  bool: sql`::boolean`,
}

/**
 * PostgreSQL considers several join orders, so planning a joined table takes longer than an arm of a union.
 */
const JOINED_WEIGHT = 2

/** Converts fields to expressions. Each link on their paths becomes one join. */
export class FieldExpressions {
  readonly #lookup: TableLookup
  readonly #root: PlanRoot
  readonly #joined = new Map<string, Joined>()
  readonly #parameters: Parameters

  constructor(lookup: TableLookup, root: PlanRoot, parameters: Parameters) {
    this.#lookup = lookup
    this.#root = root
    this.#parameters = parameters
  }

  /** The joins that the expressions need. Must be read after all expressions are created. */
  get joins(): Sql {
    const joins = [...this.#joined.values()].map(({ id, record, target, columns }) =>
      this.#lookup.rowsOf(target).join({ id, alias: record.alias, outer: true, columns }),
    )
    return join([sql``, ...joins], ' ')
  }

  expression(field: Field): Sql {
    const record = this.#follow(field)
    const { source } = field
    switch (source.kind) {
      case 'id':
        return idSql(sql`${record.alias}.id`, field)
      case 'metadata':
        return sql`${record.alias}.${ident(source.column)}`
      case 'column':
        return idSql(record.column(source.index), field)
      case 'json': {
        const keys = this.#parameters.share(arrayLiteral(source.keys))
        const document = record.column(source.index)
        // JSON null counts as a missing value.
        return sql`nullif(${document} #> ${keys}::text[], 'null'::jsonb)`
      }
      case 'file': {
        const text = sql`(${record.column(source.index)} ->> ${literal(source.key)})`
        return sql`(${text}${FILE_CASTS[field.type] ?? sql` collate "C"`})`
      }
    }
  }

  #follow(field: Field): PlanRoot {
    let record = this.#root
    let path = ''
    for (const { column, target } of field.links) {
      path += `${column}.`
      const joined = this.#joined.get(path) ?? this.#join(path, record.column(column), target)
      record = joined.record
    }
    return record
  }

  #join(path: string, id: Sql, target: TableCodec): Joined {
    if (this.#joined.size === QUERY_LIMITS.joinsMax) {
      throw invalidQuery(
        `the query follows more than ${QUERY_LIMITS.joinsMax} links to filter, sort or group`,
      )
    }
    const rows = this.#lookup.rowsOf(target)
    this.#parameters.countTables(JOINED_WEIGHT * rows.armCount)
    const alias = ident(`f${this.#joined.size}`)
    const columns = new Set<number>()
    const { column } = rows.record(alias)
    const record: PlanRoot = {
      alias,
      column(index) {
        columns.add(index)
        return column(index)
      },
    }
    const joined = { id, record, target, columns }
    this.#joined.set(path, joined)
    return joined
  }
}

/** Ids are stored as texts. Numbers are compared as such. */
function idSql(value: Sql, { ids }: Field): Sql {
  return ids?.type === 'int' ? sql`(${value})::bigint` : value
}

/** A linked record, and the columns of it that expressions use. */
interface Joined {
  readonly id: Sql
  readonly record: PlanRoot
  readonly target: TableCodec
  readonly columns: ReadonlySet<number>
}
