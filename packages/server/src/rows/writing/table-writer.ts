import { LruMap } from '../../common/lru-map.js'
import type { Sql } from '../../postgres/sql.js'
import type { Call, Statement } from '../../postgres/statement.js'
import { arrayLiteral, copyLine } from '../columns/carriers.js'
import type { EncodedUpdate } from '../columns/record-encoder.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { Heap, Layout } from '../layout/layout.js'
import { type FirstVersions, firstVersionOf } from '../layout/record-version.js'
import type { CopyCall } from '../running/calls.js'
import { type Guard, guardValues } from '../running/guard.js'
import { clearStatement, updateOneStatement, updateStatement } from './change-statements.js'
import { deleteStatement } from './delete-statement.js'
import {
  copyStatement,
  floorsStatement,
  insertNewStatement,
  insertOneStatement,
  insertStatement,
} from './insert-statements.js'
import { replaceAnyStatement, replaceStatement } from './replace-statements.js'
import {
  copyToStageStatement,
  createStageStatement,
  inheritedStageStatement,
  insertStagePartStatement,
  insertStageStatement,
  takenIdStatement,
  takenValueStatement,
} from './stage-statements.js'
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
  /** The id was generated for this row, so no other row ever had it. */
  readonly isNewId?: boolean
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
 * A call to run after a write, in the same transaction. If it returns a row, the written value of the column
 * is not unique.
 */
export interface UniqueCheck {
  /** Index into the physical columns. */
  readonly column: number
  readonly call: Call
}

/** The statements for one stage. Columns are given by index. */
interface StageStatements {
  readonly create: Sql
  readonly copy: Statement
  readonly insert: Statement
  readonly insertPart: Statement
  readonly findTakenId: Statement
  findTakenValue(column: number): Statement
  findInherited(column: number): Statement
}

/** Fewer new rows are inserted by a statement, because a COPY takes a further round trip. */
const COPIED_ROWS_MIN = 32

/**
 * One cache for the statements of all tables, limited in number and length, because an update needs a
 * statement for each combination of columns.
 */
const statements = new LruMap<string, Statement>(20_000, {
  weightMax: 32 * 1024 * 1024,
  weigh: (key, { text }) => key.length + text.length,
})
let writerCount = 0

/**
 * Creates the calls that write a table on a branch. Each statement is compiled on first use. Only this class
 * and the statements know the order of the values.
 */
export class TableWriter {
  /** Indexes of the unique columns. */
  readonly uniqueColumns: readonly number[]
  readonly #codec: TableCodec
  readonly #parts: StatementParts
  readonly #versionBase: number
  readonly #number = ++writerCount

  constructor(layout: Layout, codec: TableCodec, heap: Heap) {
    this.uniqueColumns = codec.uniqueColumns
    this.#codec = codec
    this.#parts = new StatementParts(layout, codec, heap)
    this.#versionBase = layout.versionBase
  }

  /**
   * Whether new rows can be inserted with COPY. This requires that the indexes of the heap are enough to check
   * ids and unique values. On a branch that inherits rows, they must also be compared with inherited rows.
   */
  get takesCopies(): boolean {
    return this.#parts.isPlain
  }

  /** Whether unique values must be compared with inherited rows after each statement. */
  get comparesAfterWrites(): boolean {
    return !this.#parts.isPlain && this.uniqueColumns.length > 0
  }

  /** Inserts rows. Returns no row for an id that is taken. */
  insert(rows: readonly RowInput[], returned: Returned): Call {
    const statement = this.#statement(`insert ${returned}`, () =>
      insertStatement(this.#parts, returned),
    )
    return { statement, values: this.#arrays(rows, this.#codec.physical.length) }
  }

  /** Inserts rows with generated ids. The returned rows have no meaning. */
  insertNew(rows: readonly RowInput[]): Call | CopyCall {
    if (rows.length < COPIED_ROWS_MIN) {
      const statement = this.#statement('insert new', () => insertNewStatement(this.#parts))
      return { statement, values: this.#arrays(rows, this.#codec.physical.length) }
    }
    return {
      statement: this.copyStatement,
      values: [],
      linesIn: (epoch) => this.copyLines(rows, epoch, NO_FLOORS),
    }
  }

  get copyStatement(): Statement {
    return this.#statement('copy', () => copyStatement(this.#parts))
  }

  /** Reads the floors of versions, and whether some deleted rows have entries of their own. */
  get readFloors(): Call {
    const statement = this.#statement('floors', () => floorsStatement(this.#parts))
    return { statement, values: [] }
  }

  /** Returns rows as lines for the COPY statement. */
  copyLines(rows: readonly RowInput[], epoch: string, floors: FirstVersions): string {
    let lines = ''
    for (const { id, isNewId, values } of rows) {
      const version = isNewId ? 0 : firstVersionOf(id, floors)
      const prefix = `${id}\t${version}\t${epoch}`
      lines += values.length === 0 ? `${prefix}\n` : copyLine(values, `${prefix}\t`)
    }
    return lines
  }

  /** Returns the statements for a stage, see `StagedRows`. */
  stage(name: Sql): StageStatements {
    const parts = this.#parts
    return {
      create: createStageStatement(parts, name),
      copy: copyToStageStatement(parts, name),
      insert: insertStageStatement(parts, name),
      insertPart: insertStagePartStatement(parts, name),
      findTakenId: takenIdStatement(parts, name),
      findTakenValue: (column) => takenValueStatement(parts, name, column),
      findInherited: (column) => inheritedStageStatement(parts, name, column),
    }
  }

  /** Returns the id of a column by its index. */
  columnId(column: number): number {
    return this.#parts.column(column).id
  }

  /** Inserts one row if the guard holds. Requires a generated id, or a table that takes copies. */
  insertOne(row: RowInput, guard: Guard): Call {
    return {
      statement: this.#statement(row.isNewId ? 'insert new one' : 'insert one', () =>
        insertOneStatement(this.#parts, { isNewId: row.isNewId === true }),
      ),
      values: [row.id, null, ...row.values, ...guardValues(guard)],
    }
  }

  /** Inserts or replaces whole rows. Returns no row for one that does not have the expected version. */
  replace(rows: readonly RowInput[], returned: Returned): Call {
    const isConditional = rows.some((row) => row.ifVersion !== undefined)
    const statement = isConditional
      ? this.#statement(`replace ${returned}`, () => replaceStatement(this.#parts, returned))
      : this.#statement(`replace any ${returned}`, () => replaceAnyStatement(this.#parts, returned))
    return { statement, values: this.#arrays(rows, this.#codec.physical.length) }
  }

  /** Deletes rows. Returns the ids of deleted rows. */
  delete(ids: readonly string[]): Call {
    return {
      statement: this.#statement('delete', () => deleteStatement(this.#parts)),
      values: [arrayLiteral(ids)],
    }
  }

  /** Changes the same columns of all rows, without arithmetic. Returns the ids. */
  update(rows: readonly RowInput[], columns: readonly number[]): Call {
    const statement = this.#statement(`update ${columns.join()}`, () =>
      updateStatement(this.#parts, columns),
    )
    return { statement, values: this.#arrays(rows, columns.length) }
  }

  /** Changes one row, also by arithmetic, if the guard holds. Returns the metadata. */
  updateOne({ id, ifVersion, update }: UpdateInput, guard: Guard): Call {
    const { columns, values, arithmetic } = update
    const key = arithmetic.map(({ column, operator }) => `${column}${operator}`)
    return {
      statement: this.#statement(`update one ${columns.join()} ${key.join()}`, () =>
        updateOneStatement(this.#parts, columns, arithmetic),
      ),
      values: [
        id,
        this.#versionText(ifVersion),
        ...values,
        ...arithmetic.map((term) => term.operand),
        ...guardValues(guard),
      ],
    }
  }

  /** Sets columns of rows to null, without a new version. */
  clear(ids: readonly string[], columns: readonly number[]): Call {
    const statement = this.#statement(`clear ${columns.join()}`, () =>
      clearStatement(this.#parts, columns),
    )
    return {
      statement,
      values: [arrayLiteral(ids), arrayLiteral(ids.map(() => null))],
    }
  }

  /** Returns the unique checks for inserted or replaced rows. */
  checkRows(rows: readonly Pick<RowInput, 'values'>[]): UniqueCheck[] {
    return this.#checkValues((column) => rows.map((row) => row.values[column] ?? null))
  }

  /** Returns the unique checks for updated rows. Results of arithmetic are read from the written row. */
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

  /** Finds the given values of a column that already exist on the branch. */
  findValues(column: number, values: readonly (string | null)[]): Call {
    return {
      statement: visibleValuesStatement(this.#parts, column),
      values: [arrayLiteral(values.filter((value) => value !== null))],
    }
  }

  /** Finds the positions of values that equal an earlier one, as PostgreSQL compares them. */
  findRepeated(column: number, values: readonly (string | null)[]): Call {
    return {
      statement: repeatedValuesStatement(this.#parts, column),
      values: [arrayLiteral(values)],
    }
  }

  /** Returns ids, expected versions, and one array for each column. */
  #arrays(rows: readonly RowInput[], columns: number): string[] {
    const values = [
      arrayLiteral(rows.map((row) => row.id)),
      arrayLiteral(rows.map((row) => this.#versionText(row.ifVersion))),
    ]
    for (let column = 0; column < columns; column++) {
      values.push(arrayLiteral(rows.map((row) => row.values[column] ?? null)))
    }
    return values
  }

  /** Returns the version that the row must have. Negative, which no row has, if it is from before a reset. */
  #versionText(ifVersion: number | undefined): string | null {
    return ifVersion === undefined ? null : String(ifVersion - this.#versionBase)
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
const NO_FLOORS: FirstVersions = { generatedFloor: 0, givenFloor: 0 }
