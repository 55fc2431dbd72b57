import { arrayLiteral } from '../../postgres/carriers.js'
import { ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileStatement, type Statement, slot } from '../../postgres/statement.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import type { TableCodec } from '../columns/table-codec.js'
import {
  absorbSql,
  findLayered,
  type KeyValues,
  type LayeredHeap,
  type WrittenRows,
} from '../heaps/absorb-sql.js'
import { heapName, type Layout } from '../layout/layout.js'

/** The values that a writer is going to write to a column of a unique key, given by its index. */
type ValuesOf = (column: number) => readonly (string | null)[]

/**
 * Calls that a writer runs before its own, if the table has a layer. They move the rows that it is going to
 * write, and those with the same unique values, from the layer to the heap. So the statements of writers need to
 * know nothing of layers.
 */
export class AbsorbCalls {
  readonly #target: LayeredHeap
  readonly #codec: TableCodec
  #statements: readonly Statement[] | undefined

  /** Returns undefined if the table has no layer. */
  static find(layout: Layout, codec: TableCodec): AbsorbCalls | undefined {
    const target = findLayered(layout, codec.table)
    return target && new AbsorbCalls(target, codec)
  }

  private constructor(target: LayeredHeap, codec: TableCodec) {
    this.#target = target
    this.#codec = codec
  }

  forRows(ids: readonly string[], valuesOf: ValuesOf = () => []): Call[] {
    this.#statements ??= this.#compile({
      ids: sql`select unnest(${slot(0)}::text[])`,
      values: this.#valuesBy((columns, position) => {
        const arrays = columns.map((_, index) => sql`${slot(1 + position + index)}::text[]`)
        const names = columns.map(({ physicalName }) => ident(physicalName))
        const values = columns.map(
          ({ sqlType }, index) => sql`g.${names[index]}::${raw(sqlType)} as ${names[index]}`,
        )
        return sql`
          select ${join(values, ', ')}
          from unnest(${join(arrays, ', ')}) g (${join(names, ', ')})
          where g.${names[0]} is not null`
      }),
    })
    const values = [
      arrayLiteral(ids),
      ...this.#codec.uniqueKeys.flatMap(({ columns }) =>
        columns.map((column) => arrayLiteral(valuesOf(column))),
      ),
    ]
    return this.#statements.map((statement) => ({ statement, values }))
  }

  /** For values that are not known before they are written. */
  forAll(): Call[] {
    const ids = sql`select id from ${heapName(this.#target.layer)}`
    return this.#compile({ ids }).map((statement) => ({ statement, values: [] }))
  }

  /** For rows whose unique values stay the same, given by a query for their ids. It runs once. */
  forIds(ids: Sql, values: Call['values']): Call[] {
    return this.#compile({ ids }).map((statement) => ({ statement, values, isUnnamed: true }))
  }

  /** For the rows of a relation `s` that has the columns of the table, with its conditions. */
  forSource(source: Sql, values: Call['values']): Call[] {
    const rows = {
      ids: sql`select s.id from ${source}`,
      values: this.#valuesBy((columns) => {
        const names = columns.map(({ physicalName }) => sql`s.${ident(physicalName)}`)
        return sql`select ${join(names, ', ')} from ${source}`
      }),
    }
    return this.#compile(rows).map((statement) => ({ statement, values }))
  }

  /** Returns queries for the values of each key. `position` counts the columns of the keys before. */
  #valuesBy(query: (columns: readonly PhysicalColumn[], position: number) => Sql): KeyValues[] {
    let position = 0
    return this.#codec.uniqueKeys.map((key) => {
      const columns = key.columns.flatMap((index) => this.#codec.physical[index] ?? [])
      const values = { key: columns.map(({ id }) => id), query: query(columns, position) }
      position += columns.length
      return values
    })
  }

  #compile(rows: WrittenRows): Statement[] {
    return absorbSql(this.#target, rows).map(compileStatement)
  }
}
