import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { joinVisible } from '../reading/arms.js'
import type { MergeColumn, RowStrategy } from './decide.js'

/*
 * The decisions of `decide.ts` as SQL, for a base that is a single state. Rows are compared and staged by
 * PostgreSQL, so a merge sends no rows to this process and back.
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
export const CONFLICTS = sql`('bothInserted', 'bothUpdated', 'deletedHere', 'deletedThere')`

/** The columns of a stage, without those of the rows. */
export const STAGE_COLUMNS = sql`n, id, decision, taken, clashing`

export interface StagedSides {
  readonly codec: TableCodec
  readonly columns: readonly MergeColumn[]
  readonly strategy: RowStrategy
  readonly base: BranchRows
  readonly theirs: BranchRows
  readonly ours: BranchRows
}

/**
 * Returns a query for the decisions about the ids in the relation `candidates`, which has the columns `n` and
 * `id`. Rows that theirs has not changed since the base are left out. `decision` is `insert`, `update`,
 * `delete`, `same` if nothing is to be done, or the kind of a conflict. `taken` and `clashing` have a boolean
 * for each physical column. Below, `b` is the base, `t` theirs and `o` ours.
 */
export function selectDecisions(sides: StagedSides, candidates: Sql): Sql {
  const { codec, strategy } = sides
  const states = [
    [sql`b`, sides.base],
    [sql`t`, sides.theirs],
    [sql`o`, sides.ours],
  ] as const
  const joins = states.map(([alias, rows]) =>
    joinVisible(layoutOf(rows), codec, { id: sql`k.id`, alias, outer: true }),
  )
  const names = codec.physical.map(({ physicalName }) => ident(physicalName))
  const taken = (index: number) =>
    strategy === 'theirs'
      ? sql`(${at('w.taken', index)} or ${at('w.clashing', index)})`
      : at('w.taken', index)
  const values = names.map(
    (name, index) => sql`,
      case
        when d.decision = 'insert' then t.${name}
        when d.decision = 'update' then case when ${taken(index)} then t.${name} else o.${name} end
      end`,
  )
  const takenList =
    strategy === 'theirs' ? arrayOf(names.map((_, index) => taken(index))) : sql`w.taken`
  // `offset 0` keeps PostgreSQL from copying the expressions of a subquery to each place that uses them.
  return sql`
    select k.n, k.id, d.decision, ${takenList}, w.clashing${join([empty, ...values], '')}
    from ${candidates} k
    ${join(joins, ' ')}
    cross join lateral (${changedFlags(sides, names)} offset 0) f
    cross join lateral (${unitFlags(sides.columns)} offset 0) u
    cross join lateral (${columnFlags(sides.columns, names)} offset 0) w
    cross join lateral (select ${decision(strategy)} as decision offset 0) d
    where d.decision is not null`
}

/** `mine`, `theirs`: the columns that each side has changed since the base. */
function changedFlags({ columns }: StagedSides, names: readonly Sql[]): Sql {
  const theirs = names.map((name, index) =>
    // Compared as texts, because values that are equal in PostgreSQL may have different texts: 1.0 and 1.00.
    columns[index]?.isTheirs
      ? sql`case when b.id is null then o.${name}::text else b.${name}::text end
          is distinct from t.${name}::text`
      : sql`false`,
  )
  // Without a row in the base, every differing value was set by both sides.
  const mine = names.map(
    (name, index) => sql`
      case when b.id is null then ${theirs[index] ?? sql`false`}
        else b.${name}::text is distinct from o.${name}::text end`,
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

/**
 * `taken`: columns that only theirs changed. `clashing`: columns that both sides changed differently. If one
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
  const taken = columns.map((_, index) => sql`${at('f.theirs', index)} and not ${both(index)}`)
  const clashing = names.map(
    (name, index) => sql`
      ${both(index)} and ${isTouched(index)} and o.${name}::text is distinct from t.${name}::text`,
  )
  return sql`select ${arrayOf(taken)} as taken, ${arrayOf(clashing)} as clashing`
}

function decision(strategy: RowStrategy): Sql {
  const settled = (kind: Sql, taken: Sql) =>
    ({ fail: kind, ours: sql`'same'`, theirs: taken })[strategy]
  const isClashing = sql`o.id is not null and true = any(w.clashing)`
  const clash =
    strategy === 'fail'
      ? sql`when ${isClashing} then case when b.id is null then 'bothInserted' else 'bothUpdated' end`
      : empty
  const isTaken =
    strategy === 'theirs'
      ? sql`true = any(w.taken) or true = any(w.clashing)`
      : sql`true = any(w.taken)`
  return sql`
    case
      when t.id is null and b.id is null then null
      when t.id is null and o.id is null then 'same'
      when t.id is null and not true = any(f.mine) then 'delete'
      when t.id is null then ${settled(sql`'deletedThere'`, sql`'delete'`)}
      when b.id is not null and not true = any(f.theirs) then null
      when o.id is null and b.id is null then 'insert'
      when o.id is null then ${settled(sql`'deletedHere'`, sql`'insert'`)}
      ${clash}
      when ${isTaken} then 'update'
      else 'same'
    end`
}

/** An element of an array. The arrays of PostgreSQL start at 1. */
function at(array: string, index: number): Sql {
  return raw(`${array}[${index + 1}]`)
}

function arrayOf(elements: readonly Sql[]): Sql {
  return elements.length === 0
    ? sql`array[]::boolean[]`
    : sql`array[${join(elements, ', ')}]::boolean[]`
}
