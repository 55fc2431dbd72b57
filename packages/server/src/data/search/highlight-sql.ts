import { join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import type { Parameters } from '../query/parameters.js'
import { FRAGMENTS_MAX, MARK_END, MARK_START } from './highlight.js'
import type { Patterns } from './patterns.js'
import type { SearchColumn, TablePlan } from './search-plan.js'
import { BREAK, WORD_ENDS } from './word-pattern.js'
import { foundWordsSql, textSql } from './words-sql.js'

/** A text up to this length is shown whole; of a longer one, what is around the words. */
const WHOLE_LENGTH_MAX = 250
const BEFORE = 80
const AFTER = 160

interface HighlightContext {
  readonly patterns: Patterns
  readonly parameters: Parameters
  column(index: number): Sql
}

/**
 * A JSON list with one entry a column: null, or parts of its text in which words are marked. A part is
 * a list too: the text, and whether more comes before it and after it. All columns go through the same
 * query, because PostgreSQL takes longer to plan one for each than to run it.
 */
export function highlightSql(
  { columns }: Pick<TablePlan, 'columns'>,
  context: HighlightContext,
): Sql {
  const rows = columns.map((column, index) => columnSql(column, { index, context }))
  return sql`(
    select json_agg((${partsSql(context)}) order by c.index)::text
    from (values ${join(rows, ', ')}) as c (index, text, elements, is_number)
  )`
}

/** The elements of a list are marked one by one. */
function columnSql(
  column: SearchColumn,
  { index, context }: { index: number; context: HighlightContext },
): Sql {
  const text = textSql(column, context.column)
  const elements = column.kind === 'list' ? context.column(column.index) : sql`array[${text}]`
  const isNumber = column.kind === 'number' ? sql`true` : sql`false`
  return sql`(${raw(String(index))}, ${text}, ${elements}, ${isNumber})`
}

/** The parts of a column `c`. */
function partsSql({ patterns, parameters }: HighlightContext): Sql {
  const marked = sql`regexp_replace(translate(e.text, ${literal(MARK_START + MARK_END)}, ''), found.pattern,
    ${literal(`\\1${MARK_START}\\2\\3${MARK_END}`)}, 'g')`
  return sql`
    select json_agg(parts.part)
    from (
      select p.part
      from (
        select ${patternSql()} as pattern
        from (${foundWordsSql(sql`c.text`, patterns, parameters)}) f
        where f.kind = 'exact' or not c.is_number
        having count(*) > 0
      ) found
      cross join (select (u.e collate "C") as text from unnest(c.elements) as u (e)) e
      cross join lateral (select (${marked} collate "C") as text) m
      cross join lateral (
        select json_build_array(m.text, false, false) as part
        where length(m.text) <= ${raw(String(WHOLE_LENGTH_MAX))}
        union all
        select json_build_array(r.groups[2], r.groups[1] is null, r.groups[3] is null)
        from regexp_matches(m.text, ${literal(WINDOW)}, 'g') as r (groups)
        where length(m.text) > ${raw(String(WHOLE_LENGTH_MAX))}
      ) p
      where position(${literal(MARK_START)} in m.text) > 0
      limit ${raw(String(FRAGMENTS_MAX))}
    ) parts`
}

const WINDOW = `(^)?(.{0,${BEFORE}}${MARK_START}.{0,${AFTER}})($)?`

/** The words of this very text that were found, so that those are marked and no others. */
function patternSql(): Sql {
  const escaped = sql`regexp_replace(f.word, ${literal(`(${BREAK})`)}, ${literal('\\\\\\1')}, 'g')`
  // Marks are not in the text, so a pattern of one is never found.
  const words = (condition: Sql) =>
    sql`coalesce(string_agg(distinct ${escaped}, '|') filter (where ${condition}), ${literal(MARK_START)})`
  return sql`
    ${literal(`(^|${BREAK})(`)} || ${words(sql`not f.is_inside`)} || ${literal(`)${WORD_ENDS}|(`)}
      || ${words(sql`f.is_inside`)} || ')'`
}
