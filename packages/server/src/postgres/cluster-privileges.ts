import type { Queryable } from './database.js'
import { empty, join, literal, type Sql, sql } from './sql.js'

/*
 * Citus lets everybody call most of its functions. Some run any statement on another node, connect to servers, take locks,
 * or move tables. Citus checks in many of them what the caller may do, and not in all. The role of the service keeps
 * them, and others lose them: above all the roles that run SQL of users.
 */

/** Functions that everybody keeps: PostgreSQL calls some of them in queries of its catalogue, and the others compute. */
const KEPT = [
  'any_value',
  'any_value_agg',
  'array_cat_agg',
  'citus_is_clock_after',
  'citus_json_concatenate',
  'citus_json_concatenate_final',
  'citus_jsonb_concatenate',
  'citus_jsonb_concatenate_final',
  'citus_table_is_visible',
  'citus_version',
  'cluster_clock_cmp',
  'cluster_clock_eq',
  'cluster_clock_ge',
  'cluster_clock_gt',
  'cluster_clock_in',
  'cluster_clock_le',
  'cluster_clock_logical',
  'cluster_clock_lt',
  'cluster_clock_ne',
  'cluster_clock_out',
  'cluster_clock_recv',
  'cluster_clock_send',
  'json_cat_agg',
  'jsonb_cat_agg',
  'relation_is_a_known_shard',
]

/** Selects functions of Citus that everybody can call and should not. */
const OPEN = (columns: Sql): Sql => sql`
  select ${columns}
  from pg_proc p
  join pg_depend d on d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'
  join pg_extension e on d.refclassid = 'pg_extension'::regclass and e.oid = d.refobjid
  where e.extname in ('citus', 'citus_columnar')
    and not p.proname in (${join(KEPT.map(literal), ', ')})
    and exists (
      select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
      where a.grantee = 0 and a.privilege_type = 'EXECUTE'
    )`

/** Takes these functions from everybody but our role. Only their owner and superusers can. */
const CLOSE = sql`
  do $close$
  declare
    open regprocedure;
  begin
    for open in
      ${OPEN(sql`p.oid::regprocedure`)} and pg_has_role(p.proowner, 'usage')
    loop
      execute format('grant execute on routine %s to %I', open, current_user);
      execute format('revoke execute on routine %s from public', open);
    end loop;
  end
  $close$`

/** Identifies what this module does. */
export const PRIVILEGES_TEXT = CLOSE.text

/** Closes the functions of Citus on all nodes. Citus does not pass these privileges on, so each node is told. */
export async function closeCitusFunctions(transaction: Queryable): Promise<void> {
  await transaction.query(CLOSE)
  const nodes = await transaction.query<{ node: string; success: boolean; result: string }>(sql`
    select nodename || ':' || nodeport as node, success, result
    from run_command_on_workers(${CLOSE.text})`)
  const failed = nodes.find(({ success }) => !success)
  if (failed === undefined) return
  throw new Error(`node [${failed.node}] cannot be prepared: ${failed.result}`)
}

const OPEN_WARNING =
  'everybody in this PostgreSQL database can call functions of Citus, some of which run statements on other nodes: docs/guides/scaling.md says how to revoke them'

/** Returns a warning for operators if functions are still open on the coordinator, because our role may not close them. */
export async function findOpenWarning(database: Queryable): Promise<string | undefined> {
  if (!database.server.isCluster) return undefined
  const open = await database.query(sql`${OPEN(empty)} limit 1`)
  return open.length > 0 ? OPEN_WARNING : undefined
}
