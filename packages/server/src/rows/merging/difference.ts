import { createHash } from 'node:crypto'
import type { Queryable } from '../../postgres/database.js'
import { empty, ident, join, type Sql, sql } from '../../postgres/sql.js'
import type { TextRow } from '../../postgres/statement.js'
import { haveSameForm } from '../columns/conversions.js'
import type { StoredTable } from '../columns/stored-schema.js'
import { compileTable, type TableCodec, type TableCodecOptions } from '../columns/table-codec.js'
import { type BranchRows, layoutOf, withoutRows } from '../layout/layout.js'
import { joinVisible, selectNearestRows } from '../reading/arms.js'
import { addedHeap, changedIds, mayDiffer, repeatedIds } from '../reading/changed-ids.js'
import { type ComparedPage, listCompared, type RowTexts, rereadIds } from './compare-rows.js'
import { differ, doTextsDiffer } from './differ.js'
import {
  type RowBase,
  rowsOfBase,
  singleState,
  type TableBase,
  type TableState,
} from './table-states.js'

interface ChangeCounts {
  readonly inserted: number
  readonly updated: number
  readonly deleted: number
}

/** A row that may differ. undefined: it does not exist in that state. */
interface ChangedRow {
  readonly id: string
  readonly before: RowTexts
  readonly after: RowTexts
}

interface DifferenceOptions {
  readonly table: StoredTable
  readonly form: TableCodecOptions
  readonly base: TableBase | TableState
  readonly after: TableBase | TableState
  /** Ids of columns that are not compared. */
  readonly leftOut?: readonly number[] | undefined
  /** `withValues`: inserted rows count only if they have a value in one of the columns. */
  readonly inserted?: 'all' | 'withValues'
  /** Whether columns that a state does not have count as empty in it, whatever is stored there. */
  readonly isRestricted?: boolean
}

/** The number of rows compared at a time, if the base is virtual. */
const PAGE_ROWS = 1000

/** Tables whose rows are counted by one statement. */
const COUNTED_TABLES = 50

const NO_CHANGES: ChangeCounts = { inserted: 0, updated: 0, deleted: 0 }

/** Returns a state in the form of a base. */
function asBase(state: TableBase | TableState): TableBase {
  return 'states' in state ? state : { states: [state], rowOf: ([row]) => row }
}

/** The differences of a table between a base and a later state, each of which may be virtual. */
export class Difference {
  readonly #options: DifferenceOptions
  /** Pairs of an earlier and a later state between which rows can differ. */
  readonly pairs: readonly StatePair[]
  #compiled: CompiledDifference | undefined

  constructor(options: DifferenceOptions) {
    this.#options = options
    const [{ states }, later] = [allRowsOf(options.base), allRowsOf(options.after)]
    const { id: tableId } = options.table
    const isOnly = states.length + later.states.length === 2
    this.pairs = states
      .flatMap((before) => later.states.map((after) => ({ before, after, tableId, isOnly })))
      .filter(({ before, after }) => mayDiffer(before, after, tableId))
  }

  /**
   * Returns whether more rows than `limit` may differ. Reads few more rows than that. `ownRowsMax` is a bound of the number
   * of rows that the later branch has written itself.
   */
  static async areMany(
    transaction: Queryable,
    differences: readonly Difference[],
    { limit, ownRowsMax }: { limit: number; ownRowsMax: number },
  ): Promise<boolean> {
    const pairs = differences.flatMap((difference) => difference.pairs)
    const areOwn = pairs.every(({ before, after, tableId, isOnly }) => {
      const added = addedHeap(before, after, tableId)
      return isOnly && added !== undefined && added.asOf === undefined
    })
    // A fork that has written little needs no count.
    if (areOwn && ownRowsMax <= limit) return false
    // A row that was changed is in the heap and in the past, so its id is found twice.
    const read = 2 * limit + 1
    const counts = pairs.map(
      ({ before, after, tableId }) => sql`
        select count(*)::integer as found, count(distinct id)::integer as count
        from (${repeatedIds(before, after, tableId)} limit ${read}) c`,
    )
    let total = 0
    for (let start = 0; start < counts.length && total <= limit; start += COUNTED_TABLES) {
      const rows = await transaction.query<{ found: number; count: number }>(
        join(counts.slice(start, start + COUNTED_TABLES), ' union all '),
      )
      for (const { found, count } of rows) total += found === read ? limit + 1 : count
    }
    return total > limit
  }

  /** Whether a row can differ. If not, nothing has to be read. */
  get canDiffer(): boolean {
    return this.pairs.length > 0 || rereadColumns(this.#options).size > 0
  }

  /** A branch can have many tables, and most of them do not differ, so they are compiled on first use. */
  get #parts(): CompiledDifference {
    this.#compiled ??= compileDifference(this.#options)
    return this.#compiled
  }

  get codec(): TableCodec {
    return this.#parts.codec
  }

  /** Indexes of the physical columns that are compared. */
  get columns(): ReadonlySet<number> {
    return this.#parts.columns
  }

  /** Counts the rows that differ. */
  async count(transaction: Queryable): Promise<ChangeCounts> {
    if (!this.canDiffer) return NO_CHANGES
    const { joined } = this.#parts
    if (joined === undefined) {
      const counts = { ...NO_CHANGES }
      for await (const { change } of this.#changes(transaction)) counts[change]++
      return counts
    }
    const { joins, isInserted, isUpdated, isDeleted } = joined
    const [counts] = await transaction.query<ChangeCounts>(sql`
      select
        (count(*) filter (where ${isInserted}))::integer as inserted,
        (count(*) filter (where ${isUpdated}))::integer as updated,
        (count(*) filter (where ${isDeleted}))::integer as deleted
      ${joins}`)
    return counts ?? NO_CHANGES
  }

  /** Returns a digest of the rows that were inserted or updated: of their values in the columns. */
  async digestWritten(transaction: Queryable): Promise<string> {
    const { codec, columns, joined } = this.#parts
    if (joined === undefined) {
      const hash = createHash('sha256')
      for await (const { id, after } of this.#changes(transaction)) {
        const values = after?.filter((_, index) => columns.has(index))
        if (values !== undefined) hash.update(JSON.stringify([id, ...values]))
      }
      return hash.digest('hex')
    }
    const { joins, isInserted, isUpdated } = joined
    const values = codec.physical.flatMap(({ physicalName }, index) =>
      columns.has(index) ? sql`, a.${ident(physicalName)}::text` : [],
    )
    const [row] = await transaction.query<{ digest: string }>(sql`
      with rows as (
        select sha256(convert_to(array[a.id${join([empty, ...values], '')}]::text, 'UTF8')) as digest
        ${joins}
        where ${isInserted} or ${isUpdated}
      )
      select encode(sha256(coalesce(string_agg(digest, ''::bytea order by digest), '')), 'hex') as digest
      from rows`)
    return row?.digest ?? ''
  }

  /** Returns whether any row differs, or was inserted or updated. Stops at the first one. */
  async isAny(transaction: Queryable, kind: 'changed' | 'written' = 'changed'): Promise<boolean> {
    if (!this.canDiffer) return false
    const { joined } = this.#parts
    if (joined === undefined) {
      for await (const { change } of this.#changes(transaction)) {
        if (kind === 'changed' || change !== 'deleted') return true
      }
      return false
    }
    const { joins, isInserted, isUpdated, isDeleted } = joined
    const isFound = sql`${isInserted} or ${isUpdated}`
    const [row] = await transaction.query<{ isAny: boolean }>(sql`
      select exists (
        select ${joins} where ${kind === 'written' ? isFound : sql`${isFound} or ${isDeleted}`}
      ) as "isAny"`)
    return row?.isAny ?? false
  }

  /** Lists rows that may differ in the order of ids, starting after an id. Some may turn out to be equal. */
  async list(
    transaction: Queryable,
    page: { afterId: string; limit: number; form: 'json' | 'write' },
  ): Promise<{ readonly rows: ChangedRow[]; readonly next: ComparedPage['next'] }> {
    // A row that is the same in all other states as in the last one is the same in both bases.
    const { codec, base, after: later } = this.#parts
    const states = [...base.states, ...later.states]
    const last = states.pop()
    if (last === undefined) return { rows: [], next: undefined }
    const { further } = this.#parts
    const compared = { codec, before: states, after: last, further, ...page }
    const { rows, next } = await listCompared(transaction, compared)
    const count = base.states.length
    return {
      next,
      rows: rows.map(({ id, before, after }) => {
        const texts = [...before, after]
        return {
          id,
          before: base.rowOf(texts.slice(0, count)),
          after: later.rowOf(texts.slice(count)),
        }
      }),
    }
  }

  /** Returns the indexes of the compared columns whose texts differ. */
  changedColumns(before: TextRow, after: TextRow): number[] {
    const { physical } = this.codec
    return before.flatMap((text, index) => {
      const isCompared = this.columns.has(index)
      const type = physical[index]?.column.type
      return isCompared && doTextsDiffer(text, after[index], type) ? [index] : []
    })
  }

  /** Returns how a row has changed. undefined: it has not, in the columns. */
  kindOf({ before, after }: Omit<ChangedRow, 'id'>): keyof ChangeCounts | undefined {
    if (before === undefined)
      return after !== undefined && this.#counts(after) ? 'inserted' : undefined
    if (after === undefined) return 'deleted'
    return this.changedColumns(before, after).length > 0 ? 'updated' : undefined
  }

  #counts(inserted: NonNullable<RowTexts>): boolean {
    if (this.#options.inserted !== 'withValues') return true
    return inserted.some((text, index) => text !== null && this.columns.has(index))
  }

  /** The row of a virtual base can only be computed here, from the rows of its states. */
  async *#changes(
    transaction: Queryable,
  ): AsyncGenerator<ChangedRow & { readonly change: keyof ChangeCounts }> {
    for (let afterId: string | undefined = ''; afterId !== undefined; ) {
      const { rows, next }: Awaited<ReturnType<Difference['list']>> = await this.list(transaction, {
        afterId,
        limit: PAGE_ROWS,
        form: 'write',
      })
      for (const row of rows) {
        const change = this.kindOf(row)
        if (change !== undefined) yield { ...row, change }
      }
      afterId = next
    }
  }
}

interface StatePair {
  readonly before: BranchRows
  readonly after: BranchRows
  readonly tableId: number
  /** Whether neither side has other states. */
  readonly isOnly: boolean
}

interface CompiledDifference {
  readonly codec: TableCodec
  readonly columns: ReadonlySet<number>
  readonly base: RowBase
  readonly after: RowBase
  /** The rows that may differ, if PostgreSQL can compare them: neither state is virtual. */
  readonly joined: ReturnType<typeof joinChanges> | undefined
  /** Queries for the ids of rows that were not written between the states, and that may differ. */
  readonly further: readonly Sql[]
}

function compileDifference(options: DifferenceOptions): CompiledDifference {
  const { table, form, leftOut = [], inserted = 'all', isRestricted = true } = options
  const codec = compileTable(table, form).stored
  const columns = new Set(
    codec.physical.flatMap(({ id }, index) => (leftOut.includes(id) ? [] : [index])),
  )
  const rowsOf = (state: TableBase | TableState) =>
    isRestricted ? rowsOfBase(asBase(state), codec) : allRowsOf(state)
  const [base, after] = [rowsOf(options.base), rowsOf(options.after)]
  const [earlier, later] = [singleState(base), singleState(after)]
  const reread = rereadColumns(options)
  const isReread = (index: number) => reread.has(codec.physical[index]?.id ?? 0)
  const further = after.states.flatMap((state) =>
    rereadIds({ codec, isReread, before: base.states, after: state }),
  )
  const joined =
    earlier &&
    later &&
    joinChanges({ codec, columns, inserted, before: earlier, after: later, further })
  return { codec, columns, base, after, joined, further }
}

/** Returns the columns whose type was changed and changed back: the base reads them by another definition. */
function rereadColumns({ table, base }: DifferenceOptions): ReadonlySet<number> {
  const { states } = asBase(base)
  const reread = table.columns.filter(({ id, ...column }) =>
    states.some(({ readAs }) => {
      const before = readAs?.get(id)
      return before !== undefined && haveSameForm(before, column)
    }),
  )
  return new Set(reread.map(({ id }) => id))
}

/** Returns the rows of a base as they are stored. A state that does not have the table has no rows of it. */
function allRowsOf(state: TableBase | TableState): RowBase {
  const { states, rowOf } = asBase(state)
  const rowsOf = ({ rows, table }: TableState) =>
    table === undefined ? withoutRows(layoutOf(rows)) : rows
  return { states: states.map(rowsOf), rowOf }
}

/** Returns the rows `b` before and `a` after that may differ, and conditions for how they do. */
export function joinChanges(options: {
  readonly codec: TableCodec
  readonly columns: ReadonlySet<number>
  readonly before: BranchRows
  readonly after: BranchRows
  readonly inserted?: 'all' | 'withValues'
  readonly further?: readonly Sql[]
}): Record<'joins' | 'isInserted' | 'isUpdated' | 'isDeleted', Sql> {
  const { codec, columns, before, after, inserted = 'all', further = [] } = options
  const compared = codec.physical
    .filter((_, index) => columns.has(index))
    .map(({ physicalName, column }) => ({ name: ident(physicalName), type: column.type }))
  const anyOf = (conditions: readonly Sql[]) =>
    conditions.length === 0 ? sql`false` : join(conditions, ' or ')
  const counts =
    inserted === 'all' ? sql`true` : anyOf(compared.map(({ name }) => sql`a.${name} is not null`))
  const differs = anyOf(
    compared.map(({ name, type }) => differ(sql`b.${name}`, sql`a.${name}`, type)),
  )
  const joinState = (rows: BranchRows, alias: Sql) =>
    joinVisible(layoutOf(rows), codec, { id: sql`k.id`, alias, outer: true })
  const changed = changedIds(before, after, codec.table.id)
  const from =
    further.length > 0 || addedHeap(before, after, codec.table.id) === undefined
      ? sql`
      (${join([changed, ...further], ' union ')}) k
      ${joinState(after, sql`a`)}`
      : sql`(${selectNearestRows(layoutOf(after), codec)}) a cross join lateral (select a.key as id) k`
  return {
    joins: sql`
      from ${from}
      ${joinState(before, sql`b`)}`,
    isInserted: sql`(b.id is null and a.id is not null and (${counts}))`,
    isUpdated: sql`(b.id is not null and a.id is not null and (${differs}))`,
    isDeleted: sql`(b.id is not null and a.id is null)`,
  }
}
