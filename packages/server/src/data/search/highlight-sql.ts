import { join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import type { Parameters } from '../query/parameters.js'
import { FRAGMENTS_MAX, MARK_END, MARK_START } from './highlight.js'
import type { Patterns } from './patterns.js'
import type { SearchColumn, TablePlan } from './search-plan.js'
import { BREAK, WORD_ENDS } from './word-pattern.js'
import { foundWordsSql, textSql } from './words-sql.js'

/**
 * Texts up to this length are returned whole. For longer ones, only the parts around matches are returned.
 */
const WHOLE_LENGTH_MAX = 250
const BEFORE = 80
const AFTER = 160

interface HighlightContext {
  readonly patterns: Patterns
  readonly parameters: Parameters
  column(index: number): Sql
}

/**
 * Returns a JSON list with one entry per column: null, or a list of parts of the text with marked matches. A
 * part is a list of the text, whether it is cut off before, and whether it is cut off after. All columns share
 * one query, because planning a query for each would take longer than running it.
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

/** Returns a column as a row of the query. Elements of a list are marked one by one. */
function columnSql(
  column: SearchColumn,
  { index, context }: { index: number; context: HighlightContext },
): Sql {
  const text = textSql(column, context.column)
  const elements = column.text.kind === 'list' ? context.column(column.index) : sql`array[${text}]`
  const isNumber = column.text.kind === 'number' ? sql`true` : sql`false`
  return sql`(${raw(String(index))}, ${text}, ${elements}, ${isNumber})`
}

/** Returns the parts of a column `c`. */
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

/** Returns a pattern of the words that were found in this text, so that exactly these are marked. */
function patternSql(): Sql {
  const escaped = sql`regexp_replace(f.word, ${literal(`(${BREAK})`)}, ${literal('\\\\\\1')}, 'g')`
  // Mark characters were removed from the text, so a pattern of one never matches.
  const words = (condition: Sql) =>
    sql`coalesce(string_agg(distinct ${escaped}, '|') filter (where ${condition}), ${literal(MARK_START)})`
  return sql`
    ${literal(`(^|${BREAK})(`)} || ${words(sql`not f.is_inside`)} || ${literal(`)${WORD_ENDS}|(`)}
      || ${words(sql`f.is_inside`)} || ')'`
}
