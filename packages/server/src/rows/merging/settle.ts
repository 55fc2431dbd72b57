import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../columns/table-codec.js'
import { arrayOf, at, CONFLICTS, valueNames } from './stage-sql.js'

/*
 * Decisions about staged rows: those of a strategy, about all rows that are still in conflict, and those about
 * single rows and columns. The staged values of a conflict are the outcome if theirs is taken. So only values
 * of ours, and values that were given, have to be written.
 */

export type RowStrategy = 'fail' | RowTake
type RowTake = 'ours' | 'theirs'

/** A decision about a staged row. */
export interface RowResolution {
  readonly id: string
  /** Decides about a row that one side deleted. */
  readonly take?: RowTake
  /** Decisions about physical columns, by index. A text replaces the value; null clears it. */
  readonly cells: ReadonlyMap<number, RowTake | { readonly text: string | null }>
}

/** The staged rows of a table, and the rows of the target. */
export interface SettledRows {
  readonly name: Sql
  readonly codec: TableCodec
  /** Joins the rows of the target under the alias `o` with the relation `k` of ids. */
  readonly ours: Sql
}

/** Decides all conflicts of staged rows that meet a condition. Returns their number. */
export async function settleRest(
  transaction: Transaction,
  rows: SettledRows,
  take: RowTake,
  condition = sql`true`,
): Promise<number> {
  const none = arrayOf(rows.codec.physical.map(() => sql`false`))
  const decisions = sql`
    select s.id, ${take}::text as take,
      ${take === 'ours' ? sql`s.clashing` : none} as ours,
      ${take === 'theirs' ? sql`s.clashing` : none} as theirs,
      ${none} as given
    from ${rows.name} s
    where s.decision in ${CONFLICTS} and ${condition}`
  return settle(transaction, rows, { decisions, given: new Map() })
}

/** Carries out decisions about single rows. */
export async function settleRows(
  transaction: Transaction,
  rows: SettledRows,
  resolutions: readonly RowResolution[],
): Promise<void> {
  if (resolutions.length === 0) return
  const { physical } = rows.codec
  const flags = (is: (cell: RowTake | { text: string | null } | undefined) => boolean) =>
    resolutions.map(
      ({ cells }) => `{${physical.map((_, index) => (is(cells.get(index)) ? 't' : 'f')).join()}}`,
    )
  const given = new Map<number, Sql>()
  const values: Sql[] = []
  for (const [index, { sqlType }] of physical.entries()) {
    const texts = resolutions.map(({ cells }) => {
      const cell = cells.get(index)
      return typeof cell === 'object' ? cell : undefined
    })
    if (texts.every((cell) => cell === undefined)) continue
    const name = raw(`v${index}`)
    given.set(index, sql`k.${name}::${raw(sqlType)}`)
    values.push(sql`, ${texts.map((cell) => cell?.text ?? null)}::text[]`)
  }
  const names = [...given.keys()].map((index) => raw(`, v${index}`))
  const decisions = sql`
    select g.id, g.take, g.ours::boolean[] as ours, g.theirs::boolean[] as theirs,
      g.given::boolean[] as given${join([empty, ...names], '')}
    from unnest(
      ${resolutions.map(({ id }) => id)}::text[],
      ${resolutions.map(({ take }) => take ?? null)}::text[],
      ${flags((cell) => cell === 'ours')}::text[],
      ${flags((cell) => cell === 'theirs')}::text[],
      ${flags((cell) => typeof cell === 'object')}::text[]${join([empty, ...values], '')}
    ) as g (id, take, ours, theirs, given${join([empty, ...names], '')})`
  await settle(transaction, rows, { decisions, given })
}

/**
 * Updates staged rows. `decisions` has their ids, `take` for rows that one side deleted, and for each column
 * whether ours, theirs or a given value is decided.
 */
async function settle(
  transaction: Transaction,
  { name: stage, codec, ours }: SettledRows,
  { decisions, given }: { decisions: Sql; given: ReadonlyMap<number, Sql> },
): Promise<number> {
  const names = valueNames(codec)
  const taken = names.map((name, index) => {
    const value = given.get(index)
    const isGiven =
      value === undefined
        ? empty
        : sql` or ${at('k.given', index)} and ${value}::text is distinct from o.${name}::text`
    return sql`
      (coalesce(${at('x.taken', index)}, false) and not ${at('k.ours', index)} and not ${at('k.given', index)}
        or ${at('k.theirs', index)}${isGiven})`
  })
  const clashing = names.map(
    (_, index) => sql`
      (coalesce(${at('x.clashing', index)}, false)
        and not (${at('k.ours', index)} or ${at('k.theirs', index)} or ${at('k.given', index)}))`,
  )
  const values = names.map((name, index) => {
    const value = given.get(index)
    const isGiven = value === undefined ? empty : sql`when ${at('k.given', index)} then ${value}`
    return sql`,
      ${name} = case ${isGiven}
        when ${at('k.ours', index)} or s.decision = 'same' then o.${name}
        else s.${name} end`
  })
  const [row] = await transaction.query<{ count: number }>(sql`
    with settled as (
      update ${stage} s
      set decision = case
          when s.decision = 'insert' then s.decision
          when s.decision = 'deletedHere' and k.take is not null
            then case k.take when 'theirs' then 'insert' else 'same' end
          when s.decision = 'deletedThere' and k.take is not null
            then case
              when k.take = 'theirs' then 'delete'
              when true = any(k.given) then 'update'
              else 'same'
            end
          when s.decision in ('deletedHere', 'deletedThere', 'delete') then s.decision
          when true = any(w.clashing) then s.decision
          when true = any(w.taken) then 'update'
          else 'same'
        end,
        taken = w.taken, clashing = w.clashing${join([empty, ...values], '')}
      from ${stage} x
      join (${decisions}) k on k.id = x.id
      ${ours}
      cross join lateral (
        select ${arrayOf(taken)} as taken, ${arrayOf(clashing)} as clashing offset 0
      ) w
      where s.n = x.n
      returning 1
    )
    select count(*)::integer as count from settled`)
  return row?.count ?? 0
}
