import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileSharing, compileStatement } from '../../postgres/statement.js'
import type { TableLookup } from '../../rows/reading/read-plan.js'
import type { FieldExpressions } from '../query/field-sql.js'
import { Parameters } from '../query/parameters.js'
import { type RowSelect, selectRows } from '../query/select-rows.js'
import { ROOT } from '../query/sort-sql.js'
import { boosterSql } from './booster.js'
import { highlightSql } from './highlight-sql.js'
import type { Patterns } from './patterns.js'
import type { SearchPage, TablePlan } from './search-plan.js'
import { foundWordsSql, textSql } from './words-sql.js'

/** A search with resolved names. */
export interface SearchPlan {
  readonly lookup: TableLookup
  readonly tables: readonly TablePlan[]
  /** undefined: no query; all records are found. */
  readonly patterns: Patterns | undefined
  /** The words of the query that are numbers. */
  readonly numbers: readonly string[]
  readonly isHighlighted: boolean
  readonly page: SearchPage
}

/** BM25 parameters k1 (saturation of term frequency) and b (normalisation by text length). */
const SATURATION = 1.2
const LENGTH_PART = 0.75

const tableName = (name: string, number: number): Sql => ident(`${name}_${number}`)
const textName = (index: number): Sql => ident(`text_${index}`)

/**
 * Compiles a search to one statement, so that everything comes from one snapshot. The first row has the number
 * of records found. Each further row is a record of the page: its place, the number of its table, its score,
 * and its texts and highlights as JSON. Tables without rows or text columns are left out; the others are
 * numbered.
 */
export function searchSql(plan: SearchPlan): { call: Call; tables: readonly TablePlan[] } {
  const parameters = new Parameters()
  const { lookup, patterns } = plan
  const tables = plan.tables.filter(({ codec, columns }) => {
    const isPossible = patterns === undefined || columns.length > 0
    return isPossible && lookup.rowsOf(codec).armCount > 0
  })
  if (tables.length === 0) {
    const nothing = compileStatement(sql`select 0, null, '0', null, null`)
    return { call: { statement: nothing, values: [] }, tables }
  }
  const parts = tables.map((table, number) => tableSql(plan, { table, number, parameters }))
  const found = tables.map((_table, number) => sql`select * from ${tableName('found', number)}`)
  const page = sql`
    select row_number() over (order by score desc, table_number, id) as place, *
    from found
    order by score desc, table_number, id
    limit ${raw(String(plan.page.size))} offset ${raw(String(plan.page.offset))}`
  const text = sql`
    with ${join(
      parts.flatMap(({ relations }) => relations),
      ', ',
    )},
    found as materialized (${join(found, ' union all ')}),
    page as materialized (${page})
    select 0::bigint as place, null::integer, count(*)::text, null::text, null::text from found
    union all ${join(
      parts.map(({ records }) => records),
      ' union all ',
    )}
    order by place`
  // Unnamed, so that PostgreSQL plans each search for its words: they decide whether an index helps.
  const call = { statement: compileSharing(text), values: parameters.values, isUnnamed: true }
  return { call, tables }
}

interface TableContext {
  readonly table: TablePlan
  readonly number: number
  readonly parameters: Parameters
}

function tableSql(plan: SearchPlan, context: TableContext): { relations: Sql[]; records: Sql } {
  const { patterns } = plan
  const relations =
    patterns === undefined
      ? [everythingSql(plan, context)]
      : [
          statisticsSql(plan, context),
          wordsSql(plan, context, patterns),
          termsSql(context),
          foundSql(context, patterns),
        ]
  return { relations, records: recordsSql(plan, context) }
}

/** Selects from the rows of the table that meet its filter. */
function rowsSql(
  { lookup }: SearchPlan,
  { table, parameters }: TableContext,
  describe: (row: RowExpressions) => RowSelect,
): Sql {
  const { codec, filter, columns } = table
  const selects = selectRows({ lookup, codec, filter, parameters }, ({ record, fields }) => {
    const texts = columns.map((column) => textSql(column, record.column))
    return describe({ texts, column: record.column, fields })
  })
  return join(selects, ' union all ')
}

interface RowExpressions {
  readonly texts: readonly Sql[]
  readonly fields: FieldExpressions
  column(index: number): Sql
}

function boostSql({ table, parameters }: TableContext, fields: FieldExpressions): Sql {
  if (table.boosters.length === 0) return sql`0::double precision`
  const boosts = table.boosters.map((booster) => boosterSql(booster, fields, parameters))
  return sql`(${join(boosts, ' + ')})::double precision`
}

/** Selects all rows. Without words, only boosters contribute to the score. */
function everythingSql(plan: SearchPlan, context: TableContext): Sql {
  const { number } = context
  const rows = rowsSql(plan, context, ({ fields }) => ({
    selected: sql`${raw(String(number))} as table_number, ${ROOT}.id, 1 + ${boostSql(context, fields)} as score`,
  }))
  return sql`${tableName('found', number)} as (${rows})`
}

/** Returns the condition that a row may match one of the words. Numbers must be equal. */
function isHit(
  { numbers }: SearchPlan,
  { table, parameters }: TableContext,
  { patterns, row }: { patterns: Patterns; row: RowExpressions },
): Sql {
  const texts = row.texts.filter((_text, index) => table.columns[index]?.text.kind !== 'number')
  const conditions = table.columns
    .filter(({ text }) => text.kind === 'number' && numbers.length > 0)
    .map(({ index }) => {
      const list = parameters.add(`{${numbers.join(',')}}`)
      return sql`${row.column(index)} = any(${list}::double precision[])`
    })
  if (texts.length > 0) {
    const indexed = table.codec.table.searchIndex
      ? [inIndex({ table, parameters }, { patterns, row })]
      : []
    // With an index and a single column, `concat_ws` keeps PostgreSQL from evaluating these patterns in the
    // index too, which costs more than it saves.
    const isOne = texts.length === 1 && indexed.length === 0
    const text = isOne ? join(texts) : linesSql(texts)
    const { rough, fine } = patterns
    const looks = [rough, ...(fine === undefined ? [] : [fine])].map((pattern) => {
      return sql`${text} ~ ${parameters.add(pattern)}::text`
    })
    conditions.unshift(sql`(${join([...indexed, ...looks], ' and ')})`)
  }
  return conditions.length === 0 ? sql`false` : sql`(${join(conditions, ' or ')})`
}

/** PostgreSQL passes at most 100 arguments to a function. */
const ARGUMENTS_MAX = 90

function linesSql(texts: readonly Sql[]): Sql {
  const groups: Sql[] = []
  for (let start = 0; start < texts.length; start += ARGUMENTS_MAX) {
    const some = texts.slice(start, start + ARGUMENTS_MAX)
    groups.push(sql`concat_ws(E'\n', ${join(some, ', ')})`)
  }
  return groups.length === 1 ? join(groups) : linesSql(groups)
}

/** Returns the condition that the search index can evaluate: a row may have one of the words. */
function inIndex(
  { table, parameters }: Pick<TableContext, 'table' | 'parameters'>,
  { patterns, row }: { patterns: Patterns; row: RowExpressions },
): Sql {
  const looks = table.columns.flatMap(({ text, index }) => {
    if (text.indexed === undefined) return []
    return sql`${text.indexed(row.column(index))} ~ ${parameters.add(patterns.indexed)}::text`
  })
  return sql`(${join(looks, ' or ')})`
}

/** Returns the sum of the weights of columns that contain the whole query as a phrase. */
function phraseSql(
  { table, parameters }: TableContext,
  { phrase }: Patterns,
  texts: readonly Sql[],
): Sql {
  if (phrase === undefined) return sql`0::double precision`
  const weights = texts.map((text, index) => {
    const weight = raw(String(table.columns[index]?.weight ?? 1))
    return sql`case when ${text} ~ ${parameters.add(phrase)}::text then ${weight} else 0 end`
  })
  return sql`(${join(weights, ' + ')})::double precision`
}

/**
 * Selects the number of rows and the average length of their texts. BM25 needs both: a word in a short text
 * counts more than one in a long text.
 */
function statisticsSql(plan: SearchPlan, context: TableContext): Sql {
  const { table, parameters } = context
  // Exact counts need a scan of all texts, which the index is meant to avoid.
  const numbers = table.codec.table.searchIndex
    ? plan.lookup.rowsOf(table.codec).estimateTexts({
        columns: table.columns.map(({ index }) => index),
        add: (text) => parameters.add(text),
      })
    : countsSql(plan, context)
  return sql`${tableName('statistics', context.number)} as materialized (${numbers})`
}

function countsSql(plan: SearchPlan, context: TableContext): Sql {
  const rows = rowsSql(plan, context, ({ texts }) => ({
    selected: join(
      texts.map((text, index) => sql`octet_length(${text}) as ${textName(index)}`),
      ', ',
    ),
  }))
  const columns = context.table.columns.map((_column, index) => textName(index))
  const lengths = columns.map((name) => sql`coalesce(sum(${name}), 0)`)
  const counts = columns.map((name) => sql`count(${name})`)
  return sql`
    select count(*)::double precision as records,
      greatest(1, ((${join(lengths, ' + ')})::double precision
        / nullif(${join(counts, ' + ')}, 0))) as length
    from (${rows}) r`
}

/** Selects the frequency of each term, by row and column. */
function wordsSql(plan: SearchPlan, context: TableContext, patterns: Patterns): Sql {
  const { table, number, parameters } = context
  const rows = rowsSql(plan, context, (row) => {
    const columns = table.columns.map(({ text }, index) => {
      const isNumber = text.kind === 'number' ? sql`true` : sql`false`
      return sql`(${raw(String(index))}, ${row.texts[index]}, ${isNumber})`
    })
    const phrase = phraseSql(context, patterns, row.texts)
    return {
      selected: sql`${ROOT}.id, c.index, max(octet_length(c.text)) as length, f.term,
        max(f.factor) as factor, count(*)::double precision as frequency,
        max(${boostSql(context, row.fields)}) as boost, max(${phrase}) as phrase`,
      from: sql`
        cross join lateral (values ${join(columns, ', ')}) as c (index, text, is_number)
        cross join lateral (${foundWordsSql(sql`c.text`, patterns, parameters)}) f`,
      conditions: [
        isHit(plan, context, { patterns, row }),
        sql`(f.kind = 'exact' or not c.is_number)`,
      ],
      end: sql`
        group by ${ROOT}.id, c.index, f.term`,
    }
  })
  return sql`${tableName('words', number)} as materialized (${rows})`
}

/** Selects the inverse document frequency of each term. */
function termsSql({ number }: TableContext): Sql {
  return sql`
    ${tableName('terms', number)} as materialized (
      select t.term, ln(1 + (greatest(s.records, t.rows) - t.rows + 0.5) / (t.rows + 0.5))
        as rarity
      from (
        select term, count(distinct id)::double precision as rows
        from ${tableName('words', number)}
        group by term
      ) t
      cross join ${tableName('statistics', number)} s
    )`
}

/** Selects the BM25 score of each row, summed over terms and columns, plus the boosters. */
function foundSql({ table, number }: TableContext, patterns: Patterns): Sql {
  const weights = table.columns.map(({ weight }) => raw(String(weight)))
  const [k, b] = [raw(String(SATURATION)), raw(String(LENGTH_PART))]
  const relative = sql`w.length / s.length`
  const score = sql`
    t.rarity * w.factor * (array[${join(weights, ', ')}]::double precision[])[w.index + 1]
      * w.frequency * (1 + ${k}) / (w.frequency + ${k} * (1 - ${b} + ${b} * ${relative}))`
  const phrase =
    patterns.phrase === undefined
      ? empty
      : sql` + max(w.phrase) * (select sum(rarity) from ${tableName('terms', number)})`
  return sql`
    ${tableName('found', number)} as (
      select ${raw(String(number))} as table_number, w.id,
        sum(${score}) + max(w.boost)${phrase} as score
      from ${tableName('words', number)} w
      join ${tableName('terms', number)} t on t.term = w.term
      cross join ${tableName('statistics', number)} s
      group by w.id
    )`
}

/** Selects the records of the page that belong to the table. */
function recordsSql(plan: SearchPlan, { table, number, parameters }: TableContext): Sql {
  const { lookup, patterns } = plan
  const { codec, read } = table
  const record = lookup.rowsOf(codec).record(ident('record'))
  const joined = lookup.rowsOf(codec).join({ id: sql`page.id`, alias: record.alias })
  const { selected, joins } = read.select(record)
  const texts = selected.map((value) => sql`${value}::text`)
  const highlight =
    patterns === undefined || !plan.isHighlighted
      ? sql`null::text`
      : highlightSql(table, { patterns, parameters, column: record.column })
  return sql`
    select page.place, page.table_number, page.score::text,
      array_to_json(array[${join(texts, ', ')}])::text, ${highlight}
    from page
    ${joined}${joins}
    where page.table_number = ${raw(String(number))}`
}
