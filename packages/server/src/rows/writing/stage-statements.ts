import type { Server } from '../../postgres/server.js'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement, slot } from '../../postgres/statement.js'
import { type PhysicalColumn, physicalName } from '../columns/column-tree.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type CheckRule, failsCheck, type UniqueKey } from '../columns/table-rules.js'
import { rowColumns } from '../heaps/heap-ddl.js'
import { joinVisible, listArms, selectVisible } from '../reading/arms.js'
import { MOMENT_VALUES } from '../running/calls.js'
import { selectStep } from './failing-calls.js'
import { insertStatement, selectNewRows } from './insert-statements.js'
import { replaceAnyStatement } from './replace-statements.js'
import { furtherColumns, type StatementParts } from './statement-parts.js'

/*
 * Statements for a stage: a table with the rows of a stream that is not complete, and the line of each. Its
 * columns have the names and types of those of the heap.
 */

/**
 * Creates a stage. It need not be logged, because a stream that a crash interrupts is refused, see `StagedRows`. With
 * `isLasting` it is logged, and has all columns of a layer.
 */
export function createStageStatement(
  { physical }: TableCodec,
  stage: Sql,
  { passing, isLasting }: Pick<Server, 'passing'> & { isLasting: boolean },
): Sql {
  const columns = physical.map(
    ({ physicalName, sqlType }) => sql`${ident(physicalName)} ${raw(sqlType)}`,
  )
  return sql`
    create ${isLasting ? empty : passing.kind} table ${stage} (
      ${isLasting ? sql`${rowColumns(sql`default 0`)},` : empty}
      line bigint ${passing.key},
      id text collate "C" not null${furtherColumns(columns)}
    ) with (autovacuum_enabled = false)`
}

export function countStageStatement(stage: Sql): Statement {
  return compileStatement(sql`select count(*) from ${stage}`)
}

export function copyToStageStatement({ names }: StatementParts, stage: Sql): Statement {
  return compileStatement(sql`copy ${stage} (line, id${furtherColumns(names)}) from stdin`)
}

/** Inserts all rows of a stage. A taken id or value makes the statement fail. */
export function insertStageStatement(parts: StatementParts, stage: Sql): Statement {
  return compileStatement(sql`
    with ${stagedRows(parts, sql`${stage} s`)}
    insert into ${parts.own} ${parts.rowColumns} ${selectNewRows(parts)}`)
}

/**
 * Inserts the rows of some lines of a stage into a branch that inherits rows. Returns the ids,
 * without those that are taken.
 */
export function insertStagePartStatement(parts: StatementParts, stage: Sql): Statement {
  return insertStatement(parts, 'id', stagedRows(parts, stagedPart(stage)))
}

/** Inserts or replaces the rows of some lines of a stage. Returns the metadata, and whether the row existed. */
export function replaceStagePartStatement(parts: StatementParts, stage: Sql): Statement {
  return replaceAnyStatement(parts, 'metadata', stagedRows(parts, stagedPart(stage)))
}

/** Removes the rows of a stage whose ids exist on the branch. Returns their number. */
export function dropExistingStatement({ layout, codec }: StatementParts, stage: Sql): Statement {
  return compileStatement(sql`
    with dropped as (
      delete from ${stage}
      where line in (
        select s.line
        from ${stage} s ${joinVisible(layout, codec, { id: sql`s.id`, alias: sql`r` })}
      )
      returning line
    )
    select count(*) from dropped`)
}

/** Finds the first line whose id an earlier line has. */
export function repeatedIdStatement(stage: Sql): Statement {
  return compileStatement(sql`select ${firstRepeated(stage, [sql`id`])}`)
}

/**
 * Finds the first line whose value of a unique key is taken, if rows whose ids exist are skipped or replaced: by
 * another row of the branch that no earlier line replaces, or by an earlier line.
 */
export function takenBesideStatement(
  parts: StatementParts,
  stage: Sql,
  { key, existing }: { key: UniqueKey; existing: 'skip' | 'replace' },
): Statement {
  const { layout, codec } = parts
  const joined = joinVisible(layout, codec, { id: sql`s.id`, alias: sql`r`, outer: true })
  const written = sql`(
      select s.*
      from ${stage} s ${joined}
      where ${existing === 'skip' ? sql`r.id is null` : sql`true`}
    )`
  const isLeft =
    existing === 'skip'
      ? sql`true`
      : sql`h.id <> s.id
          and not exists (select from ${stage} o where o.id = h.id and o.line < s.line)`
  return compileStatement(sql`
    select least(
      (select min(s.line) from ${written} s where ${valueIsVisible(parts, key, { isLeft })}),
      ${firstRepeated(sql`${written} written`, namesOf(parts, key))}
    )`)
}

/** The first and the last line of a part follow the moment. */
const [FIRST_LINE, LAST_LINE] = [slot(MOMENT_VALUES), slot(MOMENT_VALUES + 1)]

/** The rows of some lines of a stage, as `s`. */
export function stagedPart(stage: Sql): Sql {
  return sql`${stage} s where s.line between ${FIRST_LINE}::bigint and ${LAST_LINE}::bigint`
}

function stagedRows({ names }: StatementParts, source: Sql): Sql {
  const columns = furtherColumns(names.map((name) => sql`s.${name}`))
  return sql`
      u as (
        select s.id, null::bigint as if_version${columns}, s.line as ordinal
        from ${source}
      )`
}

/** Finds one row of a stage whose value of a key an inherited row has. */
export function inheritedStageStatement(
  parts: StatementParts,
  stage: Sql,
  key: UniqueKey,
): Statement {
  return compileStatement(sql`
    select s.line
    from ${stage} s
    where ${valueIsVisible(parts, key, { isInherited: true })}
    limit 1`)
}

/** Finds the first line whose id is taken: by a row of the branch, or by an earlier line. */
export function takenIdStatement(parts: StatementParts, stage: Sql): Statement {
  return compileStatement(sql`
    select least(${firstExisting(parts, stage)}, ${firstRepeated(stage, [sql`id`])})`)
}

/** Finds the first line whose id is taken by a row of the branch. */
export function existingIdStatement(parts: StatementParts, stage: Sql): Statement {
  return compileStatement(sql`select ${firstExisting(parts, stage)}`)
}

function firstExisting({ layout, codec }: StatementParts, stage: Sql): Sql {
  const arms = listArms(layout, codec.table.id).map(({ table }) => sql`select a.id from ${table} a`)
  const joined = joinVisible(layout, codec, { id: sql`s.id`, alias: sql`r`, columns: new Set() })
  // Most ids are in no table of the branch, which a join finds out faster than a lookup of each.
  return sql`(
        select min(s.line)
        from ${stage} s ${joined}
        where s.id in (${join(arms, ' union all ')})
      )`
}

/** Finds the first line whose value of a unique key is taken: by a row of the branch, or by an earlier line. */
export function takenValueStatement(parts: StatementParts, stage: Sql, key: UniqueKey): Statement {
  return compileStatement(sql`
    select least(
      (select min(s.line) from ${stage} s where ${valueIsVisible(parts, key)}),
      ${firstRepeated(stage, namesOf(parts, key))}
    )`)
}

/** Finds the first line of a step that fails a check: the last line, and that one. The slots are the line before and the size. */
export function failedStepStatement(
  stage: Sql,
  check: CheckRule,
  { evaluates }: { evaluates: boolean },
): Statement {
  const isFailed = failsCheck(check, (id) => sql`r.${ident(physicalName({ id }))}`)
  const failed = evaluates ? isFailed : sql`false`
  const slots = { after: sql`${slot(0)}::bigint`, size: sql`${slot(1)}::bigint` }
  return compileStatement(selectStep(sql`select * from ${stage}`, { key: 'line', failed, slots }))
}

/** Finds the first line that fails a check. Fails if it cannot be evaluated for a line. */
export function failedCheckStatement(stage: Sql, check: CheckRule): Statement {
  const isFailed = failsCheck(check, (id) => sql`s.${ident(physicalName({ id }))}`)
  return compileStatement(sql`select min(s.line) from ${stage} s where ${isFailed}`)
}

function namesOf(parts: StatementParts, { columns }: UniqueKey): Sql[] {
  return columns.map((index) => parts.name(index))
}

function valueIsVisible(
  parts: StatementParts,
  key: UniqueKey,
  { isLeft = sql`true`, ...options }: { isInherited?: boolean; isLeft?: Sql } = {},
): Sql {
  const { layout, codec } = parts
  // The row of the branch is `h`.
  const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
    join(
      [
        ...key.columns.map(
          (index) => sql`${expressionOf(parts.column(index))} = s.${parts.name(index)}`,
        ),
        isLeft,
      ],
      ' and ',
    )
  const present = namesOf(parts, key).map((name) => sql`s.${name} is not null`)
  return sql`${join(present, ' and ')}
      and exists (${selectVisible(layout, codec, { ...options, where })})`
}

function firstRepeated(stage: Sql, columns: readonly Sql[]): Sql {
  const present = columns.map((column) => sql`${column} is not null`)
  return sql`(
        select min(line)
        from (
          select line, row_number() over (partition by ${join(columns, ', ')} order by line) as number
          from ${stage}
          where ${join(present, ' and ')}
        ) numbered
        where number > 1
      )`
}
