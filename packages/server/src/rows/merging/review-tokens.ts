import { createHash } from 'node:crypto'
import type { Queryable } from '../../postgres/database.js'
import { ident, join, type Sql, sql } from '../../postgres/sql.js'
import { compileTable, type TableCodecOptions } from '../columns/table-codec.js'
import { layoutOf } from '../layout/layout.js'
import { joinVisible } from '../reading/arms.js'
import type { StagedRows } from './stage.js'
import { CONFLICTS } from './stage-sql.js'
import { rowsOfTable, type TableState } from './table-states.js'

/*
 * Whoever resolves a conflict repeats a token of what they have reviewed: a digest of the values. The version of a
 * record would not do, because a record that is deleted and created anew can have the same version as before. A
 * token depends on both branches alone, not on the other decisions of a request.
 */

/** A table on both sides of a merge, with the schema of each side. */
interface ReviewedSides {
  readonly ours: TableState
  readonly theirs: TableState
  readonly form: TableCodecOptions
}

/** The token of a record, and whether one of the sides has the record. */
export interface RecordToken {
  readonly token: string
  readonly isFound: boolean
}

/** Reads the tokens of records by id. */
export async function readTokens(
  transaction: Queryable,
  sides: ReviewedSides,
  ids: readonly string[],
): Promise<Map<string, RecordToken>> {
  if (ids.length === 0) return new Map()
  const { joins, digest, isFound } = joinReviewed(sides)
  const rows = await transaction.query<RecordToken & { id: string }>(sql`
    select k.id, ${toToken(digest)} as token, ${isFound} as "isFound"
    from unnest(${ids}::text[]) k (id)
    ${joins}`)
  return new Map(rows.map(({ id, ...token }) => [id, token]))
}

/** Reads the token of all staged rows that are in conflict. */
export async function readConflictsToken(
  transaction: Queryable,
  sides: ReviewedSides,
  staged: StagedRows,
): Promise<string> {
  const { joins, digest } = joinReviewed(sides)
  // A digest for each first byte, so that no value gets too large for PostgreSQL.
  const [row] = await transaction.query<{ token: string }>(sql`
    with records as materialized (
      select ${digest} as digest
      from (select s.id from ${staged.name} s where s.decision in ${CONFLICTS}) k
      ${joins}
    ),
    parts as (
      select get_byte(digest, 0) as first, sha256(string_agg(digest, ''::bytea order by digest)) as digest
      from records
      group by 1
    )
    select ${toToken(sql`sha256(coalesce(string_agg(digest, ''::bytea order by first), ''))`)} as token
    from parts`)
  return row?.token ?? ''
}

/** Joins both sides with the relation `k` of ids. `digest` is that of one record. */
function joinReviewed({
  ours,
  theirs,
  form,
}: ReviewedSides): Record<'joins' | 'digest' | 'isFound', Sql> {
  const sides = [
    { side: ours, alias: sql`o` },
    { side: theirs, alias: sql`t` },
  ].flatMap(({ side, alias }) =>
    side.table === undefined
      ? []
      : { codec: compileTable(side.table, form).stored, rows: rowsOfTable(side), alias },
  )
  // Resolutions name columns, so a column that has another name by now counts as changed. Ids do not count: a column that
  // a revert brings back has another one in each request.
  const columns = sides.map(({ codec }) =>
    codec.physical.map(({ path, column }) => [path, column.type]),
  )
  const columnsDigest = createHash('sha256').update(JSON.stringify(columns)).digest('hex')
  const values = sides.flatMap(({ codec, alias }) => [
    sql`${alias}.id`,
    ...codec.physical.map(({ physicalName }) => sql`${alias}.${ident(physicalName)}::text`),
  ])
  // Values and their lengths, because PostgreSQL takes twice as long to quote the values. NULL has no length.
  const lengths = values.map((value) => sql`length(${value})`)
  return {
    joins: join(
      sides.map(({ codec, rows, alias }) =>
        joinVisible(layoutOf(rows), codec, { id: sql`k.id`, alias, outer: true }),
      ),
      ' ',
    ),
    digest: sql`
      sha256(convert_to(
        ${columnsDigest} || k.id || array[length(k.id), ${join(lengths, ', ')}]::text
          || array_to_string(array[${join(values, ', ')}], ''),
        'UTF8'
      ))`,
    isFound: join(
      sides.map(({ alias }) => sql`${alias}.id is not null`),
      ' or ',
    ),
  }
}

function toToken(digest: Sql): Sql {
  return sql`encode(${digest}, 'hex')`
}
