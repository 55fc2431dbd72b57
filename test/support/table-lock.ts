import type pg from 'pg'

/*
 * Locks on tables with rows, with which tests stop requests in the middle. On a cluster, the rows are in a table of a
 * node, which requests write to without naming the table of the coordinator.
 */

interface LockedTable {
  /** Qualified by the schema of the database. */
  readonly table: string
  readonly isCluster: boolean
}

/** Locks a table until the transaction of the connection ends. */
export async function lockTable(
  client: pg.ClientBase,
  { table, isCluster, mode }: LockedTable & { readonly mode: string },
): Promise<void> {
  if (!isCluster) {
    await client.query(`lock table ${table} in ${mode} mode`)
    return
  }
  const [schema] = table.split('.')
  await client.query(
    `select offshoot_node.run(array['lock table ', $1, ' in ${mode} mode'], '{}', 'utility', null)
    from (select count(*) from (select from ${schema}.idempotency_keys limit 0) nothing) once`,
    [table],
  )
}

/** Lists the processes that wait for a locked table. On a cluster, there must be no other locks. */
export async function listWaiting(
  client: pg.ClientBase,
  { table, isCluster }: LockedTable,
): Promise<readonly string[]> {
  const { rows } = await client.query<{ pid: string }>(
    isCluster
      ? 'select waiting_gpid::text as pid from citus_lock_waits'
      : `select pid::text from pg_locks where not granted and relation = '${table}'::regclass`,
  )
  return rows.map(({ pid }) => pid)
}
