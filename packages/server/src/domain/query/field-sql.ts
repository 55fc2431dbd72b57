import { ident, join, literal, type Sql, sql } from '../../postgres/sql.js'
import { joinVisible } from '../../rows/arms.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { PlanRoot, TableLookup } from '../../rows/read-plan.js'
import type { Field, FieldType } from './field.js'

/** A record that the statement has under an alias. */
interface Place {
  readonly codec: TableCodec
  readonly record: PlanRoot
}

const FILE_CASTS: Readonly<Partial<Record<FieldType, Sql>>> = {
  int: sql`::bigint`,
  bool: sql`::boolean`,
}

/** Turns fields into expressions; the links on the way become joins, each of them once. */
export class FieldExpressions {
  readonly #lookup: TableLookup
  readonly #root: Place
  readonly #joined = new Map<string, Place>()
  readonly #joins: Sql[] = []

  constructor(lookup: TableLookup, root: Place) {
    this.#lookup = lookup
    this.#root = root
  }

  /** The joins that the expressions so far need. */
  get joins(): Sql {
    return join([sql``, ...this.#joins], ' ')
  }

  expression(field: Field): Sql {
    const { codec, record } = this.#follow(field)
    const { source } = field
    switch (source.kind) {
      case 'id':
        return sql`${record.alias}.id`
      case 'metadata':
        return sql`${record.alias}.${ident(source.column)}`
      case 'column':
        return columnValue(codec, record, source.index)
      case 'json': {
        const keys = source.keys.map((key) => literal(key))
        const document = columnValue(codec, record, source.index)
        // In a document there is a null of its own, which is as good as nothing.
        return sql`nullif(${document} #> array[${join(keys, ', ')}]::text[], 'null'::jsonb)`
      }
      case 'file': {
        const text = sql`(${columnValue(codec, record, source.index)} ->> ${literal(source.key)})`
        return sql`(${text}${FILE_CASTS[field.type] ?? sql` collate "C"`})`
      }
    }
  }

  #follow(field: Field): Place {
    let place = this.#root
    let path = ''
    for (const { column, target } of field.links) {
      path += `${column}.`
      place = this.#joined.get(path) ?? this.#join(path, place.record.column(column), target)
    }
    return place
  }

  #join(path: string, id: Sql, target: TableCodec): Place {
    const alias = ident(`f${this.#joins.length}`)
    this.#joins.push(joinVisible(this.#lookup.layout, target, { id, alias, outer: true }))
    const record: PlanRoot = {
      alias,
      column: (index) => sql`${alias}.${ident(target.physical[index]?.physicalName ?? '')}`,
    }
    const place = { codec: target, record }
    this.#joined.set(path, place)
    return place
  }
}

/**
 * A column that was added to an object later is filled in all rows, also in those without the object;
 * there it has no value.
 */
function columnValue(codec: TableCodec, record: PlanRoot, index: number): Sql {
  const value = record.column(index)
  const { path = [], column } = codec.physical[index] ?? {}
  if (path.length < 2 || column?.fill === undefined) return value
  const objects = path.slice(1).map((_name, depth) => {
    return record.column(codec.indexes.get(path.slice(0, depth + 1).join('.')) ?? -1)
  })
  return sql`(case when ${join(objects, ' and ')} then ${value} end)`
}
