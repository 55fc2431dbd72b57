import { LruMap } from '../../common/lru-map.js'
import type { Call, Statement } from '../../postgres/statement.js'
import { arrayLiteral, copyLine } from '../columns/carriers.js'
import type { EncodedUpdate } from '../columns/record-encoder.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { Heap, Layout } from '../layout/layout.js'
import { type Guard, guardValues } from '../running/guard.js'
import { clearStatement, updateOneStatement, updateStatement } from './change-statements.js'
import { deleteStatement } from './delete-statement.js'
import { copyStatement, insertOneStatement, insertStatement } from './insert-statements.js'
import { replaceAnyStatement, replaceStatement } from './replace-statements.js'
import { type Returned, StatementParts } from './statement-parts.js'
import {
  inheritedTwinStatement,
  inheritedValuesStatement,
  repeatedValuesStatement,
  visibleValuesStatement,
} from './unique-statements.js'

/** One row to write: its id, the version it must have, and a text for each column. */
export interface RowInput {
  readonly id: string
  readonly ifVersion?: number | undefined
  readonly values: readonly (string | null)[]
}

/** Changes of one row. */
export interface UpdateInput {
  readonly id: string
  readonly ifVersion?: number | undefined
  readonly update: EncodedUpdate
}

/**
 * A call to be run after a write, in the same transaction. A row in its result means that the write has
 * given the column a value that another row has.
 */
export interface UniqueCheck {
  /** Index into the physical columns. */
  readonly column: number
  readonly call: Call
}

/**
 * Statements of all tables together, bounded in number and characters: an update has one for each set of
 * columns that it changes.
 */
const statements = new LruMap<string, Statement>(20_000, {
  weightMax: 32 * 1024 * 1024,
  weigh: (key, { text }) => key.length + text.length,
})
let writerCount = 0

/**
 * Makes the calls that write a table on a branch. Each statement is compiled when it is first needed.
 * The order of the values of a call is known here and in the statements, and nowhere else.
 */
export class TableWriter {
  /** Indexes of the columns whose values must be unique. */
  readonly uniqueColumns: readonly number[]
  readonly #codec: TableCodec
  readonly #parts: StatementParts
  readonly #epoch: string
  readonly #number = ++writerCount

  constructor(layout: Layout, codec: TableCodec, heap: Heap) {
    this.uniqueColumns = codec.uniqueColumns
    this.#codec = codec
    this.#parts = new StatementParts(layout, codec, heap)
    this.#epoch = String(layout.epoch)
  }

  /**
   * COPY can take new rows: nothing but the table's own indexes can refuse them. Otherwise their ids and
   * unique values must be compared with rows that are stored elsewhere.
   */
  get takesCopies(): boolean {
    return this.#parts.isPlain
  }

  /** Unique values are compared after each statement, for all of its rows, and not only by an index. */
  get comparesAfterWrites(): boolean {
    return !this.#parts.isPlain && this.uniqueColumns.length > 0
  }

  /** Inserts rows. An id that is taken gives no row. */
  insert(rows: readonly RowInput[], returned: Returned): Call {
    const statement = this.#statement(`insert ${returned}`, () =>
      insertStatement(this.#parts, returned),
    )
    return { statement, values: this.#arrays(rows, this.#codec.physical.length) }
  }

  /** Inserts rows with ids that were generated for them. Returns nothing. */
  insertNew(rows: readonly RowInput[]): Call {
    return { statement: this.copyStatement, values: [], input: this.copyLines(rows) }
  }

  get copyStatement(): Statement {
    return this.#statement('copy', () => copyStatement(this.#parts))
  }

  /** Rows in the form that the copy statement reads. */
  copyLines(rows: readonly RowInput[]): string {
    let lines = ''
    for (const { id, values } of rows) {
      const prefix = `${id}\t${this.#epoch}`
      lines += values.length === 0 ? `${prefix}\n` : copyLine(values, `${prefix}\t`)
    }
    return lines
  }

  /** Inserts one row while the guard holds; its id is a generated one, or the table takes copies. */
  insertOne(row: RowInput, guard: Guard): Call {
    return {
      statement: this.#statement('insert one', () => insertOneStatement(this.#parts)),
      values: [this.#epoch, row.id, null, ...row.values, ...guardValues(guard)],
    }
  }

  /** Writes whole rows, new or replaced. A row that is not at its expected version gives none. */
  replace(rows: readonly RowInput[], returned: Returned): Call {
    const isConditional = rows.some((row) => row.ifVersion !== undefined)
    const statement = isConditional
      ? this.#statement(`replace ${returned}`, () => replaceStatement(this.#parts, returned))
      : this.#statement(`replace any ${returned}`, () => replaceAnyStatement(this.#parts, returned))
    return { statement, values: this.#arrays(rows, this.#codec.physical.length) }
  }

  /** Deletes rows. Returns the ids that were there. */
  delete(ids: readonly string[]): Call {
    return {
      statement: this.#statement('delete', () => deleteStatement(this.#parts)),
      values: [this.#epoch, arrayLiteral(ids)],
    }
  }

  /** Changes the same columns of all rows, without arithmetic. Returns the ids. */
  update(rows: readonly RowInput[], columns: readonly number[]): Call {
    const statement = this.#statement(`update ${columns.join()}`, () =>
      updateStatement(this.#parts, columns),
    )
    return { statement, values: this.#arrays(rows, columns.length) }
  }

  /** Changes one row in any way, while the guard holds. Returns the metadata. */
  updateOne({ id, ifVersion, update }: UpdateInput, guard: Guard): Call {
    const { columns, values, arithmetic } = update
    const key = arithmetic.map(({ column, operator }) => `${column}${operator}`)
    return {
      statement: this.#statement(`update one ${columns.join()} ${key.join()}`, () =>
        updateOneStatement(this.#parts, columns, arithmetic),
      ),
      values: [
        this.#epoch,
        id,
        versionText(ifVersion),
        ...values,
        ...arithmetic.map((term) => term.operand),
        ...guardValues(guard),
      ],
    }
  }

  /** Sets columns of rows to null, without counting as a new version. */
  clear(ids: readonly string[], columns: readonly number[]): Call {
    const statement = this.#statement(`clear ${columns.join()}`, () =>
      clearStatement(this.#parts, columns),
    )
    return {
      statement,
      values: [this.#epoch, arrayLiteral(ids), arrayLiteral(ids.map(() => null))],
    }
  }

  /** Checks for inserted or replaced rows. */
  checkRows(rows: readonly Pick<RowInput, 'values'>[]): UniqueCheck[] {
    return this.#checkValues((column) => rows.map((row) => row.values[column] ?? null))
  }

  /** Checks for updated rows. The result of arithmetic is only known to the row that was written. */
  checkUpdates(updates: readonly UpdateInput[]): UniqueCheck[] {
    if (!this.comparesAfterWrites) return NO_CHECKS
    const given = this.#checkValues((column) =>
      updates.map(({ update }) => update.values[update.columns.indexOf(column)] ?? null),
    )
    const calculated = updates.flatMap(({ id, update }) =>
      update.arithmetic
        .filter(({ column }) => this.uniqueColumns.includes(column))
        .map(({ column }) => ({
          column,
          call: { statement: inheritedTwinStatement(this.#parts, column), values: [id] },
        })),
    )
    return [...given, ...calculated]
  }

  #checkValues(valuesOf: (column: number) => readonly (string | null)[]): UniqueCheck[] {
    if (!this.comparesAfterWrites) return NO_CHECKS
    return this.uniqueColumns.flatMap((column) => {
      const given = valuesOf(column).filter((value) => value !== null)
      if (given.length === 0) return []
      const statement = inheritedValuesStatement(this.#parts, column)
      return [{ column, call: { statement, values: [arrayLiteral(given)] } }]
    })
  }

  /** Finds those of the given values of a column that rows of the branch have. */
  findValues(column: number, values: readonly (string | null)[]): Call {
    return {
      statement: visibleValuesStatement(this.#parts, column),
      values: [arrayLiteral(values.filter((value) => value !== null))],
    }
  }

  /** Finds the positions of values that are equal to an earlier one. PostgreSQL decides what is equal. */
  findRepeated(column: number, values: readonly (string | null)[]): Call {
    return {
      statement: repeatedValuesStatement(this.#parts, column),
      values: [arrayLiteral(values)],
    }
  }

  /** Epoch, ids, expected versions, and one array for each column. */
  #arrays(rows: readonly RowInput[], columns: number): string[] {
    const values = [
      this.#epoch,
      arrayLiteral(rows.map((row) => row.id)),
      arrayLiteral(rows.map((row) => versionText(row.ifVersion))),
    ]
    for (let column = 0; column < columns; column++) {
      values.push(arrayLiteral(rows.map((row) => row.values[column] ?? null)))
    }
    return values
  }

  #statement(key: string, compile: () => Statement): Statement {
    const own = `${this.#number} ${key}`
    let statement = statements.get(own)
    if (statement === undefined) {
      statement = compile()
      statements.set(own, statement)
    }
    return statement
  }
}

const NO_CHECKS: UniqueCheck[] = []

const versionText = (version: number | undefined): string | null =>
  version === undefined ? null : String(version)
