import { ident, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement, slot } from '../../postgres/statement.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { LinkRule } from '../columns/table-rules.js'
import type { Layout } from '../layout/layout.js'
import { selectVisible } from '../reading/arms.js'
import { hasRow } from '../reading/has-row.js'
import { failIfBroken } from '../running/guard.js'

/*
 * Statements that look for links to records that do not exist. They run after writes, in the same serializable
 * transaction, so that nobody can delete a linked record in between.
 */

/** A table on a branch, and one of its columns whose linked records must exist. */
export interface LinkColumn {
  readonly layout: Layout
  readonly codec: TableCodec
  readonly link: LinkRule
}

/** Selects the rows with a link to a missing record, with the id of that record: all of them. */
export function brokenStatement(column: LinkColumn): Statement {
  const { layout, link } = column
  const where = (linkOf: LinkOf) => sql`${linkOf(column)} is not null`
  return listed(sql`
    select r.id, r.${nameOf(column)} as target
    from (${select(column, where)}) r
    where not ${hasRow(layout, link.tableId, sql`r.${nameOf(column)}`)}`)
}

/** Like `brokenStatement`, for links to the given records (slot 0, an array), each once. */
export function brokenAmongStatement(column: LinkColumn): Statement {
  return listed(brokenIn(column, sql`unnest(${slot(0)}::text[]) g (target)`))
}

/** Like `brokenStatement`, for the records that a stage links to. */
export function brokenInStageStatement(column: LinkColumn, stage: Sql): Statement {
  const name = nameOf(column)
  return listed(brokenIn(column, sql`(select distinct s.${name} from ${stage} s) g (target)`))
}

function brokenIn(column: LinkColumn, targets: Sql): Sql {
  const { layout, link } = column
  const where = (linkOf: LinkOf) => sql`${linkOf(column)} = g.target`
  return sql`
    select r.id, g.target
    from (
      select g.target from ${targets}
      where g.target is not null and not ${hasRow(layout, link.tableId, sql`g.target`)}
    ) g
    cross join lateral (${select(column, where)}) r`
}

/** Counts the rows of a query up to a number (slot 1), and lists the first ones (slot 2). */
function listed(rows: Sql): Statement {
  return compileStatement(sql`
    select b.id, b.target, count(*) over ()
    from (${rows} limit ${slot(1)}::integer) b
    order by b.id
    limit ${slot(2)}::integer`)
}

/** Finds the positions of the given records (slot 0, an array) that do not exist. */
export function missingTargetsStatement(layout: Layout, { tableId }: LinkRule): Statement {
  return compileStatement(sql`
    select g.ordinal - 1
    from unnest(${slot(0)}::text[]) with ordinality g (target, ordinal)
    where g.target is not null and not ${hasRow(layout, tableId, sql`g.target`)}`)
}

/** Fails if a given record (slot 0) does not exist. */
export function failIfMissingStatement({ layout, link }: LinkColumn): Statement {
  const target = sql`${slot(0)}::text`
  return compileStatement(
    failIfBroken(sql`${target} is not null and not ${hasRow(layout, link.tableId, target)}`),
  )
}

/** Fails if a row links to a given record (slot 0). */
export function failIfLinkedStatement(column: LinkColumn): Statement {
  const where = (linkOf: LinkOf) => sql`${linkOf(column)} = ${slot(0)}::text`
  return compileStatement(failIfBroken(sql`exists (${select(column, where)})`))
}

type LinkOf = (column: LinkColumn) => Sql

function select(column: LinkColumn, where: (linkOf: LinkOf) => Sql): Sql {
  const { layout, codec } = column
  return selectVisible(layout, codec, {
    where: (expressionOf) => where((of) => expressionOf(physicalOf(of))),
  })
}

function physicalOf({ codec, link }: LinkColumn): PhysicalColumn {
  const column = codec.physical[link.column]
  if (column === undefined) throw new Error('a link must be a column of its table')
  return column
}

function nameOf(column: LinkColumn): Sql {
  return ident(physicalOf(column).physicalName)
}
