import { createHash } from 'node:crypto'
import { MIGRATION_KEY } from './advisory-keys.js'
import { TEXT_SETTINGS } from './client-config.js'
import { closeCitusFunctions, PRIVILEGES_TEXT } from './cluster-privileges.js'
import type { Database, Queryable } from './database.js'
import { IN_DOUBT } from './failures.js'
import { runTransaction } from './run-transaction.js'
import { ident, literal, raw, sql } from './sql.js'

/*
 * Objects in the schema `offshoot_node` of a Citus cluster. Citus creates them on all nodes, and on nodes that are added
 * later.
 */

/** The age at which a prepared transaction is in doubt. Without a crash, it takes far less time to commit. */
const IN_DOUBT_MS = 1_000
const isInDoubt = sql`
          starts_with(x.gid, 'citus_') and x.prepared < greatest(
            pg_postmaster_start_time(),
            clock_timestamp() - interval ${literal(`${IN_DOUBT_MS} ms`)}
          )`

/** Statements that a connection to a node keeps prepared. */
const KEPT_MAX = 200

const OBJECTS = [
  sql`create schema if not exists offshoot_node`,
  /*
   * Runs a statement on the node that has the tables which it names. The node has each of them twice: one leads through
   * Citus, and the other has the rows and the number of the shard in its name.
   */
  sql`
    create or replace function offshoot_node.run(
      run_parts text[],
      run_values text[],
      run_form text,
      run_role text
    )
    returns setof text
    language plpgsql
    volatile
    as $run$
    declare
      run_name text := 'node_' || md5(run_parts::text);
      run_text text;
      kept text;
      written refcursor;
      found_row record;
    begin
      -- A transaction of the same database that was prepared a while ago, or before this server was started, is in
      -- doubt. One that holds a lock on a table that nobody sees yet may be of the same database.
      if exists (
        select from pg_prepared_xact() x where ${isInDoubt}
      ) and exists (
        select from pg_prepared_xact() x
        join pg_locks l on l.pid is null and l.virtualtransaction = '-1/' || x.transaction
        left join pg_class c on c.oid = l.relation
        where ${isInDoubt}
          and l.locktype = 'relation'
          and l.database = (select d.oid from pg_database d where d.datname = current_database())
          and (
            c.oid is null
            or c.relnamespace = (
              select t.relnamespace from pg_class t where t.oid = to_regclass(run_parts[2])
            )
          )
      ) then
        raise exception 'a transaction is in doubt' using errcode = ${literal(IN_DOUBT)};
      end if;
      if run_form = 'utility' or not exists (
        select from pg_prepared_statements s where s.name = run_name
      ) then
        select string_agg(
            case when p.number % 2 = 1 then p.part
              else coalesce(
                (
                  select format('%I.%I', c.relnamespace::regnamespace, c.relname || '_' || s.shardid)
                  from pg_dist_shard s
                  join pg_class c on c.oid = s.logicalrelid
                  where s.logicalrelid = to_regclass(p.part)
                ),
                p.part
              )
            end,
            '' order by p.number
          )
          into run_text
          from unnest(run_parts) with ordinality p (part, number);
        if run_form = 'utility' then
          execute run_text;
          return;
        end if;
        if ${raw(String(KEPT_MAX))} <= (
          select count(*) from pg_prepared_statements s where starts_with(s.name, 'node_')
        ) then
          for kept in
            select s.name from pg_prepared_statements s where starts_with(s.name, 'node_')
          loop
            execute format('deallocate %I', kept);
          end loop;
        end if;
        execute format('prepare %I as %s', run_name, run_text);
      end if;
      run_text := format('execute %I', run_name) || coalesce((
        select '(' || string_agg(quote_nullable(v.value), ', ' order by v.number) || ')'
        from unnest(run_values) with ordinality v (value, number)
      ), '');
      if run_role is not null then
        perform set_config('role', run_role, true);
      end if;
      if starts_with(run_form, 'explain ') then
        run_text := run_form || ' ' || run_text;
      end if;
      if run_form = 'texts' or starts_with(run_form, 'explain ') then
        for found_row in execute run_text loop
          return next found_row::text;
        end loop;
      elsif run_form = 'json' then
        for found_row in execute run_text loop
          return next row_to_json(found_row)::text;
        end loop;
      elsif starts_with(run_form, 'written ') then
        begin
          open written for execute run_text;
        exception when invalid_cursor_definition then
          -- It returns no rows.
          execute run_text;
          return;
        end;
        loop
          fetch written into found_row;
          exit when not found;
          return next case run_form
            when 'written json' then row_to_json(found_row)::text
            else found_row::text
          end;
        end loop;
        close written;
      else
        execute run_text;
      end if;
      if run_role is not null then
        perform set_config('role', 'none', true);
      end if;
    end
    $run$`,
  sql`revoke all on function offshoot_node.run from public`,
  // A write to it makes Citus commit in two phases.
  sql`create table if not exists offshoot_node.two_phases ()`,
  sql`
    select citus_add_local_table_to_metadata('offshoot_node.two_phases')
    where not exists (
      select from pg_dist_partition where logicalrelid = 'offshoot_node.two_phases'::regclass
    )`,
]

/**
 * Settings of the connections that Citus opens to nodes. Errors of nodes arrive without some of their fields, which are
 * read from the message, so it must be in English.
 */
const NODE_SETTINGS = { ...TEXT_SETTINGS, lc_messages: 'C' }

/** Identifies these objects, settings and privileges. */
const VERSION = createHash('sha256')
  .update(JSON.stringify([OBJECTS.map(({ text }) => text), NODE_SETTINGS, PRIVILEGES_TEXT]))
  .digest('hex')

/** The version that is on the nodes, and what it should be: it has the ids of all nodes, because some may be new. */
async function readVersions(
  database: Queryable,
): Promise<{ readonly found: string | null; readonly wanted: string }> {
  const [row] = await database.query<{ found: string | null; nodes: string }>(sql`
    select obj_description(to_regnamespace('offshoot_node'), 'pg_namespace') as found,
      (select string_agg(nodeid::text, ',' order by nodeid) from pg_dist_node) as nodes`)
  return { found: row?.found ?? null, wanted: `${VERSION} on nodes ${row?.nodes}` }
}

/**
 * Creates or replaces what the service needs on the nodes of a cluster. If that is there already, nodes that are down do
 * not matter. Requires the lock of migrations.
 */
export async function prepareCluster(transaction: Queryable): Promise<void> {
  const { found, wanted } = await readVersions(transaction)
  if (found === wanted) return
  await transaction.query(sql`set local citus.enable_schema_based_sharding = off`)
  for (const statement of OBJECTS) await transaction.query(statement)
  await closeCitusFunctions(transaction)
  // Citus opens connections to nodes with the settings of the role, not with those of our connection.
  // Only a superuser may change the language of messages, unless it is granted to others.
  const settings = await transaction.query<{ database: string; name: string }>(sql`
    select current_database() as database, s.name
    from unnest(${Object.keys(NODE_SETTINGS)}::text[]) s (name)
    where s.name <> 'lc_messages' or has_parameter_privilege(s.name, 'set')`)
  for (const { database, name } of settings) {
    await transaction.query(sql`
      alter role current_user in database ${ident(database)}
      set ${ident(name)} to ${literal(NODE_SETTINGS[name as keyof typeof NODE_SETTINGS])}`)
  }
  await transaction.query(sql`comment on schema offshoot_node is ${literal(wanted)}`)
}

/** Prepares nodes that were added to a cluster. */
export async function prepareNewNodes(database: Database): Promise<void> {
  if (!database.server.isCluster) return
  const { found, wanted } = await readVersions(database)
  if (found === wanted) return
  await runTransaction(
    database,
    async (transaction) => {
      await transaction.query(sql`select pg_advisory_xact_lock(${MIGRATION_KEY})`)
      await prepareCluster(transaction)
    },
    { isolation: 'read committed' },
  )
}
