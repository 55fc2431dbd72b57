import { runNext } from '../../packages/server/src/background.js'
import type { Queryable } from '../../packages/server/src/postgres/database.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import type { TestService } from './service.js'

/** Does one step of background work of a kind. Returns whether there was any that is due. */
export async function runKind(service: TestService, kind: string): Promise<boolean> {
  return (await runNext(service, { isWanted: sql`kind = ${kind}` })) !== undefined
}

/** Counts the background work of a kind, due or not. */
export async function countWork(database: Queryable, kind: string): Promise<number> {
  const [row] = await database.query<{ count: number }>(sql`
    select count(*)::integer as count from offshoot.work where kind = ${kind}`)
  return row?.count ?? 0
}

/** Makes all background work due that has been postponed. */
export async function makeDue(database: Queryable): Promise<void> {
  await database.query(sql`update offshoot.work set due_at = now()`)
}
