import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { joinVisible } from '../reading/arms.js'

/** The versions of a record on both sides of a merge. Null: the record does not exist there. */
export interface RowVersions {
  readonly ours: number | null
  readonly theirs: number | null
}

/** A table on both sides of a merge. */
export interface VersionSides {
  readonly codec: TableCodec
  readonly ours: BranchRows
  readonly theirs: BranchRows
}

/** Reads the versions of records on both sides of a merge, by id. */
export async function readVersions(
  transaction: Queryable,
  { codec, ours, theirs }: VersionSides,
  ids: readonly string[],
): Promise<Map<string, RowVersions>> {
  if (ids.length === 0) return new Map()
  const joinOf = (rows: BranchRows, alias: ReturnType<typeof sql>) =>
    joinVisible(layoutOf(rows), codec, { id: sql`k.id`, alias, outer: true, columns: new Set() })
  const rows = await transaction.query<RowVersions & { id: string }>(sql`
    select k.id, o.version as ours, t.version as theirs
    from unnest(${ids}::text[]) k (id)
    ${joinOf(ours, sql`o`)}
    ${joinOf(theirs, sql`t`)}`)
  return new Map(rows.map(({ id, ...versions }) => [id, versions]))
}
