import { arrayLiteral } from '../../postgres/carriers.js'
import { join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { Parameters } from '../query/parameters.js'
import type { Patterns } from './patterns.js'
import type { SearchColumn } from './search-plan.js'

/** The weight of a word that matches by prefix or by stem. */
const PREFIX_FACTOR = 0.8
const STEM_FACTOR = 0.9

/**
 * Selects the words of a text that match, with their terms and weights; the weight of an exact match is 1. The
 * matching group of the pattern tells the kind of match. The query reads no table, so that PostgreSQL can run
 * it in parallel workers.
 */
export function foundWordsSql(text: Sql, patterns: Patterns, parameters: Parameters): Sql {
  const { matches, terms, stems, words } = patterns
  const groups = matches.map((_match, index) => raw(String(index + 1)))
  const numbers = groups.map((group) => sql`when r.groups[${group}] is not null then ${group}`)
  const of = (values: readonly (string | number)[], type: Sql) =>
    sql`(${parameters.add(arrayLiteral(values.map(String)))}::${type}[])[w.number]`
  const columns = [
    sql`${of(
      matches.map(({ term }) => term),
      sql`integer`,
    )} as term`,
    sql`${of(
      matches.map(({ kind }) => kind),
      sql`text`,
    )} as kind`,
    sql`${of(
      matches.map(({ edits }) => edits),
      sql`integer`,
    )} as edits`,
    sql`${of(
      matches.map(({ term }) => terms[term]?.letters.length ?? 0),
      sql`integer`,
    )} as letters`,
    sql`${of(
      matches.map(({ term }) => stems[term] ?? ''),
      sql`text`,
    )} as stem`,
    sql`${of(
      matches.map(({ term }) => (terms[term]?.isInside ? 't' : 'f')),
      sql`boolean`,
    )} as is_inside`,
  ]
  return sql`
    select m.*, f.factor
    from regexp_matches(${text}, ${parameters.add(words)}::text, 'g') as r (groups)
    cross join lateral (
      select case ${join(numbers, ' ')} end as number,
        coalesce(${join(
          groups.map((group) => sql`r.groups[${group}]`),
          ', ',
        )}) as word
    ) w
    cross join lateral (select w.word, ${join(columns, ', ')}) m
    cross join lateral (
      select case
        when m.kind = 'exact' then 1
        when m.kind = 'prefix' then ${raw(String(PREFIX_FACTOR))}
        else greatest(
          case when m.kind = 'edits'
            then 1 - m.edits::double precision / least(length(m.word), m.letters) end,
          case when m.stem <> '' and ts_lexize('pg_catalog.english_stem', lower(m.word)) = array[m.stem]
            then ${raw(String(STEM_FACTOR))} end
        )
      end::double precision as factor
    ) f
    where f.factor is not null`
}

/** Returns the text of a column with collation "C", which does not depend on the server. */
export function textSql(
  { text: { kind }, objects, index }: SearchColumn,
  column: (index: number) => Sql,
): Sql {
  const value = column(index)
  const text =
    kind === 'text'
      ? value
      : kind === 'list'
        ? sql`array_to_string(${value}, E'\n')`
        : sql`${value}::text`
  const isThere = objects.map((object) => column(object))
  const visible =
    isThere.length === 0 ? text : sql`case when ${join(isThere, ' and ')} then ${text} end`
  return sql`(${visible} collate "C")`
}
