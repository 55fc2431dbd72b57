import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

/**
 * Returns whether a content is private on all branches of the database, regardless of the settings of its
 * files.
 */
export async function isPrivateEverywhere(
  database: Queryable,
  content: { databaseId: string; sha256: string },
): Promise<boolean> {
  const rows = await database.query(sql`
    select 1
    from offshoot.private_contents
    where database_id = ${content.databaseId} and sha256 = decode(${content.sha256}, 'hex')`)
  return rows.length > 0
}
