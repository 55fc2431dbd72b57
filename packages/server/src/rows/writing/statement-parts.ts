import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { type Slot, slot } from '../../postgres/statement.js'
import { type PhysicalColumn, physicalName } from '../columns/column-tree.js'
import { listOrigins } from '../columns/stored-schema.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type Heap, heapName, inheritsRows, type Layout, pastName } from '../layout/layout.js'
import { heapColumns } from '../reading/arms.js'
import { MOMENT_VALUES } from '../running/calls.js'

/*
 * Fragments that the write statements of a table share. Every statement runs behind the gate, in a
 * serializable transaction, so rows cannot change between reading and writing them. Besides the statements,
 * only `table-writer.ts` knows the order of the values.
 */

/** The moment of the branch. */
const EPOCH = slot(0)
const LATEST_FORK = slot(1)
/** The first values of every statement follow those of the moment. */
export const IDS = slot(MOMENT_VALUES)
export const IF_VERSIONS = slot(MOMENT_VALUES + 1)
/** Values of columns start here. */
export const FIRST_COLUMN = MOMENT_VALUES + 2

/**
 * Columns returned for each written row. `id` is cheaper: formatting times takes longer than writing the row.
 */
export type Returned = 'id' | 'metadata'

const RETURNED: Readonly<Record<Returned, readonly string[]>> = {
  id: ['id'],
  metadata: ['id', 'version', 'created_at', 'updated_at'],
}

export function returning(returned: Returned, from = empty): Sql {
  return join(
    RETURNED[returned].map((name) => sql`${from}${ident(name)}`),
    ', ',
  )
}

/** Returns a list of columns that starts with a comma, because it follows others. */
export const furtherColumns = (columns: readonly Sql[]): Sql =>
  join([empty, ...columns.map((column) => sql`, ${column}`)], '')

/** Lists the columns of a heap that a branch can read, now or when a column with an earlier type comes back. */
function readableNames({ physical }: TableCodec, heap: Heap): ReadonlySet<string> {
  const origins = physical.flatMap(({ column }) => listOrigins(column))
  return new Set([
    ...physical.map((column) => column.physicalName),
    ...origins.filter(({ id }) => heap.columnIds.has(id)).map(physicalName),
  ])
}

/** SQL fragments for one table on one branch. */
export class StatementParts {
  readonly layout: Layout
  readonly codec: TableCodec
  /** The table that the branch writes to. */
  readonly own: Sql
  /** The epoch of the branch. It is a value, because a fork changes it without changing the stamp. */
  readonly epoch: Sql
  readonly #latestFork: Sql
  /** The branch inherits no rows of the table, so the heap has no tombstones. */
  readonly isPlain: boolean
  /** Names of the physical columns, by index. */
  readonly names: readonly Sql[]
  /** Indexes of all physical columns. */
  readonly all: readonly number[]
  /** The columns of a whole row, in parentheses. */
  readonly rowColumns: Sql
  /** Assignments for `on conflict` that overwrite the existing row. */
  readonly overwrite: Sql
  /** Assignments that remove all values, as a list that starts with a comma. */
  readonly clear: Sql
  readonly #heap: Heap

  /** With `isLocked`, the branch cannot be forked while the statements run, so the moment is that of the layout. */
  constructor(layout: Layout, codec: TableCodec, heap: Heap, options: { isLocked: boolean }) {
    this.layout = layout
    this.codec = codec
    this.#heap = heap
    this.own = heapName(heap)
    // A branch that was never forked is in the epoch of its layout: the first fork changes the stamp.
    const isFixed = options.isLocked || !layout.hasForks
    const valueAt = (fixed: number, given: Slot) =>
      isFixed ? raw(String(fixed)) : sql`${given}::integer`
    this.epoch = valueAt(layout.epoch, EPOCH)
    this.#latestFork = valueAt(layout.latestFork, LATEST_FORK)
    this.isPlain = !inheritsRows(layout, codec.table.id)
    this.names = codec.physical.map((column) => ident(column.physicalName))
    this.all = codec.physical.map((_, index) => index)
    this.rowColumns = sql`(id, version, created_at, updated_at, epoch, deleted${furtherColumns(this.names)})`
    const stored = [...readableNames(codec, heap)].map((name) => sql`${ident(name)} = null`)
    this.clear = furtherColumns(stored)
    this.overwrite = join(
      [
        sql`version = excluded.version`,
        sql`created_at = excluded.created_at, updated_at = excluded.updated_at`,
        sql`epoch = excluded.epoch, deleted = excluded.deleted`,
        ...this.names.map((name) => sql`${name} = excluded.${name}`),
      ],
      ', ',
    )
  }

  column(index: number): PhysicalColumn {
    const column = this.codec.physical[index]
    if (column === undefined) throw new Error('a column must belong to the table')
    return column
  }

  name(index: number): Sql {
    return this.names[index] ?? empty
  }

  sqlType(index: number): string {
    return this.codec.physical[index]?.sqlType ?? ''
  }

  /** `u`: the given rows, one for each id, with the given columns. */
  given(columns: readonly number[]): Sql {
    const arrays = columns.map(
      (index, position) => sql`, ${slot(FIRST_COLUMN + position)}::${this.#elementType(index)}[]`,
    )
    const labels = furtherColumns(columns.map((index) => this.name(index)))
    return sql`
      u as (
        select * from unnest(${IDS}::text[], ${IF_VERSIONS}::bigint[]${join([empty, ...arrays], '')})
          with ordinality as u (id, if_version${labels}, ordinal)
      )`
  }

  /**
   * `u`: one given row with all columns. Its values are no arrays: for arrays of unknown length, PostgreSQL would
   * prefer custom plans, and plan every call again.
   */
  givenOne(): Sql {
    const columns = this.all.map(
      (index) =>
        sql`${slot(FIRST_COLUMN + index)}::${raw(this.sqlType(index))} as ${this.name(index)}`,
    )
    return sql`
      u as (
        select ${IDS}::text as id, ${IF_VERSIONS}::bigint as if_version${furtherColumns(columns)},
          1 as ordinal
      )`
  }

  /** The value of a column in a row of `u`. */
  givenValue(index: number): Sql {
    const value = sql`u.${this.name(index)}`
    return this.#isArray(index) ? sql`${value}::${raw(this.sqlType(index))}` : value
  }

  /** PostgreSQL's nested arrays must have equal lengths, so values of array columns are sent as texts. */
  #isArray(index: number): boolean {
    return this.sqlType(index).endsWith('[]')
  }

  #elementType(index: number): Sql {
    return raw(this.#isArray(index) ? 'text' : (this.sqlType(index).split(' collate ')[0] ?? ''))
  }

  /**
   * Returns a common table expression that copies the current version of rows to the past before they change,
   * if a fork can see it. `rows` selects the ids.
   */
  keep(rows: Sql): Sql {
    return this.keepFrom(sql`${this.own} o where o.id in (${rows})`)
  }

  /** Like `keep`, for the rows `o` of a from-clause with its conditions. */
  keepFrom(source: Sql): Sql {
    if (!this.layout.hasForks) return empty
    return sql`, kept as (${this.#keepInsert(sql`${source} and ${this.#isSeen(sql`o`)}`, sql`o`)})`
  }

  /** Copies deleted rows, which `gone` returns, to the past, if a fork can see them. */
  keepGone(): Sql {
    return this.#keepInsert(sql`gone g where ${this.#isSeen(sql`g`)}`)
  }

  #keepInsert(source: Sql, alias?: Sql): Sql {
    return sql`
      insert into ${pastName(this.#heap)} (${heapColumns(this.#heap)}, until)
      select ${heapColumns(this.#heap, alias)}, ${this.epoch}
      from ${source}`
  }

  /** Returns the condition that a fork can see the version of a row that is about to change. */
  #isSeen(alias: Sql): Sql {
    return sql`${alias}.epoch < ${this.epoch} and ${alias}.epoch <= ${this.#latestFork}`
  }
}
