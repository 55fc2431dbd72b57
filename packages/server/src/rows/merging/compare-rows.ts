import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, type Sql, sql } from '../../postgres/sql.js'
import type { TextRow } from '../../postgres/statement.js'
import { COLUMN_TYPE_ENTRIES } from '../columns/column-types.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { joinVisible, selectNearestRows, selectVisible } from '../reading/arms.js'
import { addedHeap, changedIds } from '../reading/changed-ids.js'
import { differ } from './differ.js'

/** A row in one state, as texts in the order of the physical columns. undefined: the row does not exist. */
export type RowTexts = TextRow | undefined

/**
 * Placeholder for a value on which the states of a virtual base disagree. Stored texts cannot contain
 * NUL, so it differs from the values of both sides. Both sides therefore count as changed, which is a
 * conflict unless they agree.
 */
export const UNDECIDED = '\u0000'

/** Placeholder for a value of a column that a state of a virtual base never had. It is not a value of the base. */
export const NO_COLUMN = '\u0000 no column'

/** A row that may differ, in each of the compared states. */
interface ComparedRow {
  readonly id: string
  readonly before: readonly RowTexts[]
  readonly after: RowTexts
  readonly beside: readonly RowTexts[]
}

export interface ComparedPage {
  readonly rows: readonly ComparedRow[]
  /** The id after which the next page starts. undefined: this is the last page. */
  readonly next: string | undefined
}

/** Maximum size of one page. A single larger row is still returned. */
const PAGE_BYTES_MAX = 8 * 1024 * 1024

/** `json`: the texts that decoding reads. `write`: the texts that a write takes. */
type TextForm = 'json' | 'write'

type Querying = Pick<Transaction, 'query'>

/**
 * Returns queries for the ids of rows that have other values in two states in columns that these read by other definitions, so
 * that also rows that were not written between them can differ.
 */
export function rereadIds(options: {
  readonly codec: TableCodec
  isReread(index: number): boolean
  readonly before: readonly BranchRows[]
  readonly after: BranchRows
}): Sql[] {
  const { codec, isReread, before, after } = options
  const differs = codec.physical.flatMap(({ physicalName, column }, index) => {
    const name = ident(physicalName)
    return isReread(index) ? differ(sql`b.${name}`, sql`v.${name}`, column.type) : []
  })
  if (differs.length === 0) return []
  return before.map((rows) => {
    const earlier = joinVisible(layoutOf(rows), codec, { id: sql`v.id`, alias: sql`b` })
    return sql`
      select v.id from (${selectVisible(layoutOf(after), codec)}) v ${earlier}
      where ${join(differs, ' or ')}`
  })
}

/**
 * Lists the rows of a table that may differ between one of the `before` states and the `after` state, in the
 * order of ids, starting after `afterId`. Also returns the rows of the `beside` states. Some rows may turn out
 * to be equal.
 */
export async function listCompared(
  transaction: Querying,
  options: {
    codec: TableCodec
    before: readonly BranchRows[]
    after: BranchRows
    beside?: readonly BranchRows[]
    form: TextForm
    afterId: string
    limit: number
    ids?: readonly string[]
    /** Queries for the ids of further rows. */
    further?: readonly Sql[]
  },
): Promise<ComparedPage> {
  const { codec, before, after, beside = [], form, afterId, limit, ids, further = [] } = options
  const aliases = [...before, after, ...beside].map((_, index) => ident(`s${index}`))
  const aliasOf = (index: number): Sql => aliases[index] ?? empty
  const joinState = (rows: BranchRows, index: number) =>
    joinVisible(layoutOf(rows), codec, { id: sql`k.id`, alias: aliasOf(index), outer: true })
  const pageOf = (rows: Sql, key: Sql) => sql`
      (
        select * from (${rows}) c
        where ${key} > ${afterId} collate "C"
        order by ${key} collate "C"
        limit ${limit}
      )`
  const [only, ...others] = before
  const isAdded =
    only !== undefined &&
    others.length + further.length === 0 &&
    addedHeap(only, after, codec.table.id) !== undefined
  const candidates =
    ids === undefined
      ? join(
          [...before.map((rows) => changedIds(rows, after, codec.table.id)), ...further],
          ' union ',
        )
      : sql`select unnest(${ids}::text[]) as id`
  const afterIndex = before.length
  const from =
    isAdded && ids === undefined
      ? sql`
      ${pageOf(selectNearestRows(layoutOf(after), codec), sql`key`)} ${aliasOf(afterIndex)}
      cross join lateral (select ${aliasOf(afterIndex)}.key as id) k`
      : sql`${pageOf(candidates, sql`id`)} k ${joinState(after, afterIndex)}`
  const joins = [
    ...before.map(joinState),
    ...beside.map((rows, index) => joinState(rows, afterIndex + 1 + index)),
  ]
  // The first row is always returned, the others only as long as they fit into the page. States are JSON, because parsing
  // arrays of PostgreSQL took a fifth of the CPU time of a difference.
  const rows = await transaction.query<{ id: string; states: RowTexts[] | null }>(sql`
    select t.id,
      case when sum(pg_column_size(t.states)) over w <= ${PAGE_BYTES_MAX}::bigint
        or row_number() over w = 1
        then t.states end as states
    from (
      select k.id, array_to_json(array[${join(
        aliases.map((alias) => stateTexts(codec, alias, form)),
        ', ',
      )}]) as states
      from ${from}
      ${join(joins, ' ')}
      offset 0
    ) t
    window w as (order by t.id collate "C" rows unbounded preceding)
    order by t.id collate "C"`)
  const compared = rows.flatMap(({ id, states: texts }) => {
    if (texts === null) return []
    // The first text is the id, which is null if the row does not exist in the state.
    const found = texts.map((state) => (state?.[0] === null ? undefined : state?.slice(1)))
    return {
      id,
      before: found.slice(0, before.length),
      after: found[before.length],
      beside: found.slice(before.length + 1),
    }
  })
  const isLast = compared.length === rows.length && rows.length < limit
  return { rows: compared, next: isLast ? undefined : compared.at(-1)?.id }
}

/** Returns the array of texts of one state: the id, then the physical columns. */
function stateTexts(codec: TableCodec, alias: Sql, form: TextForm): Sql {
  const texts = codec.physical.map(({ column, physicalName }) => {
    const value = sql`${alias}.${ident(physicalName)}`
    const selected = form === 'json' ? COLUMN_TYPE_ENTRIES[column.type].select(value) : value
    return sql`, (${selected})::text`
  })
  return sql`array[${alias}.id${join([empty, ...texts], '')}]`
}
