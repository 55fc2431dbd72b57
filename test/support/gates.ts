import type pg from 'pg'
import { ident, raw, type Sql, sql } from '../../packages/server/src/postgres/sql.js'

/**
 * Holds the gate of a branch, as a long fork or a long write of another process does. Returns a function
 * that opens the gate.
 */
export async function holdGate(
  pool: pg.Pool,
  {
    database,
    branch = 'main',
    mode = 'exclusive',
  }: { database: string; branch?: string; mode?: 'exclusive' | 'row share' },
): Promise<() => Promise<void>> {
  const client = await pool.connect()
  const query = ({ text, values }: Sql) => client.query({ text, values })
  const { rows } = await query(sql`
    select b.id
    from offshoot.branches b
    join offshoot.databases d on d.id = b.database_id
    where d.name = ${database} and b.name = ${branch} and b.deleted_at is null`)
  await query(sql`begin`)
  await query(sql`lock table offshoot_work.${ident(`gate_${rows[0].id}`)} in ${raw(mode)} mode`)
  return async () => {
    await query(sql`rollback`)
    client.release()
  }
}
