import { sql } from '../../packages/server/src/postgres/sql.js'
import { foldTable, LayeredError } from '../../packages/server/src/rows/heaps/build-fold.js'
import type { Random } from './seeded-random.js'
import type { TestService } from './service.js'

/** Set by `OFFSHOOT_TEST_FOLD=1`: random tests fold after every step, and not only now and then. */
export const FOLDS_ALWAYS = process.env.OFFSHOOT_TEST_FOLD === '1'

/**
 * Folds inherited rows of the branches of a database, however short their chains are. Each table is folded
 * with the given probability. Returns the number of folds.
 */
export async function foldBranches(
  { database }: Pick<TestService, 'database'>,
  options: { databaseName: string; random: Random; probability: number },
): Promise<number> {
  const { databaseName, random, probability } = options
  const tables = await database.query<{ branchId: string; tableId: string }>(sql`
    select b.id as "branchId", h.table_id as "tableId"
    from offshoot.branches b
    join offshoot.databases d on d.id = b.database_id
    cross join lateral (
      select distinct table_id from offshoot.heaps where database_id = d.id
    ) h
    where d.name = ${databaseName} and b.deleted_at is null and b.parent_id is not null
    order by b.id, h.table_id`)
  let count = 0
  for (const { branchId, tableId } of tables) {
    if (!random.chance(probability)) continue
    const policy = { sourcesMax: 1, leftMax: random.below(3) }
    const fold = foldTable(database, { branchId, tableId: Number(tableId), policy })
    // Rows of a merge that are not yet moved cannot be folded. The background would try again.
    const isFolded = await fold.catch((error: unknown) => {
      if (!(error instanceof LayeredError)) throw error
      return false
    })
    if (isFolded) count++
  }
  return count
}
