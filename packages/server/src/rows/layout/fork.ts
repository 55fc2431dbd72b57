import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

/** The source of a fork at the moment of forking. */
export interface ForkSource {
  readonly id: string
  readonly name: string
  readonly schemaId: string
  readonly lastMigrationId: string
  readonly epoch: number
}

/**
 * Closes the present epoch of a branch, so that everything written until now is what forks of it
 * see. Must run alone behind the gate. Costs one row, whatever the branch holds.
 */
export async function closeEpoch(
  transaction: Queryable,
  branchId: string,
): Promise<ForkSource | undefined> {
  const [source] = await transaction.query<ForkSource>(sql`
    update offshoot.branches
    set epoch = epoch + 1, stamp = nextval('offshoot.stamps')
    where id = ${branchId} and deleted_at is null
    returning id, name, schema_id as "schemaId", last_migration_id as "lastMigrationId",
      epoch - 1 as epoch`)
  return source
}
