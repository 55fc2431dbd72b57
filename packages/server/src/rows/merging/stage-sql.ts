import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { StoredColumn } from '../columns/stored-schema.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { joinVisible } from '../reading/arms.js'
import { type RowTexts, UNDECIDED } from './compare-rows.js'
import { differ } from './differ.js'

/*
 * The rule of a merge: how the states of a row in the base, in theirs and in ours decide what happens to it. Rows
 * are compared and staged by PostgreSQL, so a merge sends no rows to this process and back. Decisions about
 * conflicts come later, in `settle.ts`.
 */

/** Decisions that write a row. */
export const WRITES = sql`('insert', 'update')`
/** Decisions that change a row of the target. */
export const EFFECTS = sql`('insert', 'update', 'delete')`
export const CONFLICT_KINDS = [
  'bothInserted',
  'bothUpdated',
  'deletedHere',
  'deletedThere',
] as const
export type RowConflictKind = (typeof CONFLICT_KINDS)[number]
export const CONFLICTS = sql`('bothInserted', 'bothUpdated', 'deletedHere', 'deletedThere')`

/** The columns of a stage, without those of the rows. */
export const STAGE_COLUMNS = sql`n, id, decision, taken, clashing`

/** The properties of a physical column that decisions depend on. */
export interface MergeColumn {
  /** Whether theirs has the column. If not, theirs cannot have changed it. */
  readonly isTheirs: boolean
  /** Whether ours has the column. If not, ours has set no value there: a default that it would read is none. */
  readonly isOurs: boolean
  /**
   * Set if the base has removed the column, theirs has kept it and ours does not have it. Ours then gets all
   * values of theirs, those that are as old as the base too.
   */
  readonly restored?: RestoredColumn | undefined
  /** Whether rows of theirs that were not written since the base may have another value than there. */
  readonly isReread?: boolean
  /**
   * Whether theirs has the column with another type than the merged one. What the conversion to that type has made of values
   * is no change, so that theirs is compared with the base as it was converted.
   */
  readonly isOfOtherType?: boolean
  /** Indexes of the objects that enclose the column, outermost first. */
  readonly objects: readonly number[]
  /** Its type, which decides when values differ. */
  readonly type?: StoredColumn['type']
}

interface RestoredColumn {
  /** The value in rows that are older than the column. A row that gets this one is not changed. */
  readonly fill: Sql
  /** The column was made of another one, whose values may still be stored in rows of ours, and would be read. */
  readonly isConverted: boolean
}

/** The rows of the base, to be joined under the alias `b` with the relation `k` of ids. */
export interface JoinedBase {
  readonly join: Sql
  /** Joins the rows of the base as theirs has converted them (alias `bt`), and the rows of theirs with its own types (`tt`). */
  readonly joinConverted?: Sql
  /** Returns whether the states of a virtual base disagree about a column. Both sides then count as changed. */
  isUndecided?(index: number): Sql
}

/** The three states of the rows of a table. `b` is the base, `t` theirs and `o` ours. */
interface JoinedSides {
  readonly columns: readonly MergeColumn[]
  readonly names: readonly Sql[]
  readonly base: JoinedBase
  readonly theirs: Sql
  readonly ours: Sql
}

/** Returns the names of the columns that hold the values of a row. */
export function valueNames(codec: TableCodec): Sql[] {
  return codec.physical.map(({ physicalName }) => ident(physicalName))
}

/** Joins the rows of a state with the relation `k` of ids. Rows that do not exist are null. */
export function joinState(rows: BranchRows, codec: TableCodec, alias: Sql): Sql {
  return joinVisible(layoutOf(rows), codec, { id: sql`k.id`, alias, outer: true })
}

/**
 * Joins the records of a bulk load, as far as they are in a state. A record of another time was deleted and created anew,
 * and is none of the load. The values of one that was changed since are not known any more, so that both sides count as
 * changed.
 */
export function joinLoaded(rows: BranchRows, codec: TableCodec, loaded: Sql): JoinedBase {
  return {
    join: sql`
      left join ${loaded} l on l.id = k.id
      ${joinState(rows, codec, sql`r`)}
      left join lateral (
        select r.* where l.id is null or r.created_at between l.created_at and l.updated_at
      ) b on true`,
    isUndecided: () => sql`(l.id is not null and b.version > 0)`,
  }
}

/** Joins rows of a virtual base, which are computed in this process. */
export function joinGiven(
  rows: readonly { readonly id: string; readonly texts: NonNullable<RowTexts> }[],
  names: readonly Sql[],
): JoinedBase {
  const textsOf = (index: number) =>
    rows.map(({ texts }) => (texts[index] === UNDECIDED ? null : (texts[index] ?? null)))
  const flags = rows.map(
    ({ texts }) => `{${texts.map((text) => (text === UNDECIDED ? 't' : 'f')).join()}}`,
  )
  const values = names.map((_, index) => sql`, ${textsOf(index)}::text[]`)
  const columns = names.map((name) => sql`, ${name}`)
  return {
    join: sql`
      left join (
        select g.*, g.flags::boolean[] as undecided
        from unnest(${rows.map(({ id }) => id)}::text[], ${flags}::text[]${join([empty, ...values], '')})
          as g (id, flags${join([empty, ...columns], '')})
      ) b on b.id = k.id`,
    isUndecided: (index) => at('b.undecided', index),
  }
}

/**
 * Returns a query for the decisions about the ids in the relation `candidates`, which has the columns `n` and
 * `id`. Rows that theirs has not changed since the base are left out. `decision` is `insert`, `update`,
 * `delete`, `same` if nothing is to be done, or the kind of a conflict. `taken` and `clashing` have a boolean
 * for each physical column: those that only theirs changed, and those in conflict. The values are the outcome; for
 * a conflict, the outcome if theirs is taken.
 */
export function selectDecisions(sides: JoinedSides, candidates: Sql): Sql {
  const { names, columns } = sides
  const values = names.map(
    (name, index) => sql`,
      case
        when d.decision in ('insert', 'deletedHere') then t.${name}
        when d.decision in ('update', 'bothInserted', 'bothUpdated') then
          case when ${at('w.taken', index)} or ${at('w.clashing', index)} then t.${name} else o.${name} end
      end`,
  )
  // `offset 0` keeps PostgreSQL from copying the expressions of a subquery to each place that uses them.
  return sql`
    select k.n, k.id, d.decision, w.taken, w.clashing${join([empty, ...values], '')}
    from ${candidates} k
    ${sides.base.join}
    ${sides.base.joinConverted ?? empty}
    ${sides.theirs}
    ${sides.ours}
    cross join lateral (${changedFlags(sides)} offset 0) f
    cross join lateral (${unitFlags(columns)} offset 0) u
    cross join lateral (${columnFlags(columns, names)} offset 0) w
    cross join lateral (select ${decision()} as decision offset 0) d
    where d.decision is not null`
}

/** `mine`, `theirs`: the columns that each side has changed since the base. */
function changedFlags({ columns, names, base }: JoinedSides): Sql {
  const isUndecided = (index: number) =>
    base.isUndecided === undefined ? empty : sql`${base.isUndecided(index)} or `
  const between = (one: Sql, other: Sql, index: number) => {
    const name = names[index] ?? empty
    return differ(sql`${one}.${name}`, sql`${other}.${name}`, columns[index]?.type)
  }
  const [b, t, o] = [sql`b`, sql`t`, sql`o`]
  const isConverted = (index: number) => base.joinConverted && columns[index]?.isOfOtherType
  // A value that theirs has removed would else be like one that does not convert.
  const differs = (index: number) =>
    isConverted(index) ? between(sql`bt`, sql`tt`, index) : between(b, t, index)
  const theirs = names.map((_, index) =>
    columns[index]?.isTheirs
      ? sql`
        case when b.id is null then ${between(o, t, index)}
          else ${isUndecided(index)}${differs(index)} end`
      : sql`false`,
  )
  // Without a row in the base, every differing value was set by both sides, if both have the column.
  const mine = names.map((_, index) =>
    columns[index]?.isOurs
      ? sql`
        case when b.id is null then ${theirs[index] ?? sql`false`}
          else ${isUndecided(index)}${between(b, o, index)} end`
      : sql`false`,
  )
  return sql`select ${arrayOf(mine)} as mine, ${arrayOf(theirs)} as theirs`
}

/**
 * `mine`, `theirs`: for each object, whether the side has changed it or a column in it. Other columns have
 * their own flags.
 */
function unitFlags(columns: readonly MergeColumn[]): Sql {
  const of = (side: 'mine' | 'theirs') =>
    arrayOf(
      columns.map((_, index) => {
        const members = columns.flatMap(({ objects }, other) =>
          other === index || objects.includes(index) ? at(`f.${side}`, other) : [],
        )
        return sql`(${join(members, ' or ')})`
      }),
    )
  return sql`select ${of('mine')} as mine, ${of('theirs')} as theirs`
}

/** Whether a row of theirs has a value in a restored column that a row of ours would not read by itself. */
function isBroughtBack(
  name: Sql,
  { fill, isConverted }: RestoredColumn,
  type: StoredColumn['type'] | undefined,
): Sql {
  const isNew = differ(sql`t.${name}`, fill, type)
  return isConverted ? sql`(${isNew} or ${differ(sql`t.${name}`, sql`o.${name}`, type)})` : isNew
}

/**
 * `taken`: columns that only theirs changed or that ours gets back. `clashing`: columns that both sides changed differently. If one
 * side has set or removed a whole object, its columns are one unit.
 */
function columnFlags(columns: readonly MergeColumn[], names: readonly Sql[]): Sql {
  const isTouched = (index: number) => sql`(${at('f.mine', index)} or ${at('f.theirs', index)})`
  const isBoth = columns.map(({ objects }, index) => {
    const units = [...objects, index].map(
      (unit) => sql`when ${isTouched(unit)} then ${at('u.mine', unit)} and ${at('u.theirs', unit)}`,
    )
    return sql`(case ${join(units, ' ')} else false end)`
  })
  const both = (index: number) => isBoth[index] ?? sql`false`
  const taken = columns.map(({ restored, type }, index) => {
    const isOnlyTheirs = sql`${at('f.theirs', index)} and not ${both(index)}`
    if (restored === undefined) return isOnlyTheirs
    const isTaken = isBroughtBack(names[index] ?? empty, restored, type)
    return sql`case when b.id is null then ${isOnlyTheirs} else ${isTaken} end`
  })
  const clashing = names.map(
    (name, index) => sql`
      ${both(index)} and ${isTouched(index)}
      and ${differ(sql`o.${name}`, sql`t.${name}`, columns[index]?.type)}`,
  )
  return sql`select ${arrayOf(taken)} as taken, ${arrayOf(clashing)} as clashing`
}

function decision(): Sql {
  return sql`
    case
      when t.id is null and b.id is null then null
      when t.id is null and o.id is null then 'same'
      when t.id is null and not true = any(f.mine) then 'delete'
      when t.id is null then 'deletedThere'
      when b.id is not null and not true = any(f.theirs)
        and (o.id is null or not true = any(w.taken)) then null
      when o.id is null and b.id is null then 'insert'
      when o.id is null then 'deletedHere'
      when true = any(w.clashing) then case when b.id is null then 'bothInserted' else 'bothUpdated' end
      when true = any(w.taken) then 'update'
      else 'same'
    end`
}

/** An element of an array. The arrays of PostgreSQL start at 1. */
export function at(array: string, index: number): Sql {
  return raw(`${array}[${index + 1}]`)
}

export function arrayOf(elements: readonly Sql[]): Sql {
  return elements.length === 0
    ? sql`array[]::boolean[]`
    : sql`array[${join(elements, ', ')}]::boolean[]`
}
