import { sql } from '../../packages/server/src/postgres/sql.js'
import type { TestBranches } from './branches.js'

/** Locks the rows that a branch stores itself, for all or for writers, and returns a function that releases them. */
export async function holdBranch(
  { service, database }: TestBranches,
  branch: string,
  against: 'all' | 'writers' = 'all',
): Promise<() => Promise<void>> {
  const [heap] = await service.database.query<{ name: string }>(sql`
    select format('offshoot_db_%s.heap_%s', h.database_id, h.id) as name
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id and b.name = ${branch}
    join offshoot.databases d on d.id = b.database_id and d.name = ${database}`)
  const client = await service.database.pool.connect()
  await client.query('begin')
  const mode = against === 'all' ? 'access exclusive' : 'exclusive'
  await client.query(`lock table ${heap?.name} in ${mode} mode`)
  return async () => {
    await client.query('rollback')
    client.release()
  }
}
