import { arrayLiteral } from '../../postgres/carriers.js'
import { ident, raw, type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileStatement, type Statement, slot } from '../../postgres/statement.js'
import type { TableCodec } from '../columns/table-codec.js'
import { absorbSql, findLayered, type LayeredHeap, type WrittenRows } from '../heaps/absorb-sql.js'
import { heapName, type Layout } from '../layout/layout.js'

/** The values that a writer is going to write to a unique column, given by its index. */
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
      values: this.#valuesBy(
        (_name, type, position) => sql`
          select g.value::${raw(type)} as value
          from unnest(${slot(1 + position)}::text[]) g (value)
          where g.value is not null`,
      ),
    })
    const values = [
      arrayLiteral(ids),
      ...this.#codec.uniqueColumns.map((column) => arrayLiteral(valuesOf(column))),
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
      values: this.#valuesBy((name) => sql`select s.${name} as value from ${source}`),
    }
    return this.#compile(rows).map((statement) => ({ statement, values }))
  }

  #valuesBy(query: (name: Sql, type: string, position: number) => Sql): Map<number, Sql> {
    return new Map(
      this.#codec.uniqueColumns.flatMap((index, position) => {
        const column = this.#codec.physical[index]
        if (column === undefined) return []
        return [[column.id, query(ident(column.physicalName), column.sqlType, position)] as const]
      }),
    )
  }

  #compile(rows: WrittenRows): Statement[] {
    return absorbSql(this.#target, rows).map(compileStatement)
  }
}
