import { LOG_DAYS_MAX, LOG_ENTRIES_MAX } from '@offshoot/contract/log'
import type { Database } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import type { Work } from '../../postgres/work.js'
import { collected } from '../../telemetry/events.js'

/** Entries that one statement deletes. */
const STEP_ENTRIES = 1000

/** Which entries are kept. */
interface Retention {
  readonly days: number
  readonly entries: number
}

/**
 * Deletes some entries that are too old, and then those of the next workspace that has too many. Returns whether there may
 * be more.
 */
export async function collectLog(
  database: Database,
  work: Pick<Work, 'position'>,
  { days, entries }: Retention = { days: LOG_DAYS_MAX, entries: LOG_ENTRIES_MAX },
): Promise<boolean> {
  const old = await database.query(sql`
    delete from offshoot.log
    where position = any(array(
      select position
      from offshoot.log
      where at < now() - make_interval(days => ${days})
      order by at
      limit ${STEP_ENTRIES}
    ))
    returning 1`)
  collected.add('log entry', old.length)
  if (old.length === STEP_ENTRIES) return true
  // Also finds workspaces that were deleted.
  const [next] = await database.query<{ id: string }>(sql`
    select l.workspace_id as id
    from offshoot.log l
    where l.workspace_id > ${work.position ?? ''}
    order by l.workspace_id
    limit 1`)
  if (next === undefined) {
    work.position = null
    return false
  }
  const many = await database.query(sql`
    delete from offshoot.log
    where position = any(array(
      select l.position
      from offshoot.log l
      where l.workspace_id = ${next.id}
        and l.position <= (
          select b.position
          from offshoot.log b
          where b.workspace_id = ${next.id}
          order by b.position desc
          limit 1
          offset case
            when exists (select from offshoot.workspaces w where w.id = ${next.id}) then ${entries}::integer
            else 0 end
        )
      order by l.position
      limit ${STEP_ENTRIES}
    ))
    returning 1`)
  collected.add('log entry', many.length)
  if (many.length < STEP_ENTRIES) work.position = next.id
  return true
}
