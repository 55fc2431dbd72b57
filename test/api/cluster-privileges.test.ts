import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it as test } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { onNode } from '../../packages/server/src/postgres/place.js'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { listWorkers } from '../support/database.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * Roles and their settings on the nodes of a Citus cluster. The tests are skipped unless OFFSHOOT_TEST_DATABASE_URL names the
 * coordinator of one.
 */

const workers = await listWorkers()
const it = test.skipIf(workers.length < 2)

/** A role without any privileges, as of another application. */
const STRANGER = `stranger_${randomBytes(6).toString('hex')}`
const INSUFFICIENT_PRIVILEGE = '42501'

let service: TestService
let branches: TestBranches
/** Connections to the coordinator and all workers, as the role of the service. */
const nodes: pg.Client[] = []

beforeAll(async () => {
  if (workers.length < 2) return
  service = await createTestService()
  branches = await TestBranches.create(service, 'walls', { t: [{ name: 'n', type: 'int' }] })
  await branches.put('main', 't', 'a', { n: 1 })
  const coordinator = new URL(service.url)
  for (const { host, port } of [
    { host: coordinator.hostname, port: coordinator.port },
    ...workers,
  ]) {
    const url = new URL(coordinator)
    url.host = `${host}:${port}`
    const node = new pg.Client({ connectionString: url.href })
    await node.connect()
    nodes.push(node)
  }
  await service.database.query(sql`create role ${ident(STRANGER)} nologin`)
})
afterAll(async () => {
  for (const node of nodes) await node.end()
  if (service === undefined) return
  await service.database.query(sql`drop role ${ident(STRANGER)}`)
  await service.close()
})

/** Returns the role that runs the SQL of users of the database. */
async function findReaderRole(): Promise<string> {
  expectOk(await branches.call('main', 'POST', '/sql', { statement: 'select n from t' }))
  const [row] = await service.database.query<{ role: string }>(sql`
    select r.rolname as role
    from pg_roles r
    join offshoot_work.identity i on starts_with(r.rolname, 'offshoot_' || i.id || '_')`)
  if (row === undefined) throw new Error('there must be a role')
  return row.role
}

/** Runs a statement as another role. Returns the SQLSTATE of its error. */
async function codeAs(node: pg.Client, role: string, statement: string): Promise<string> {
  await node.query('begin')
  try {
    await node.query(`set local role ${pg.escapeIdentifier(role)}`)
    await node.query(statement)
    return 'none'
  } catch (error) {
    return (error as pg.DatabaseError).code ?? ''
  } finally {
    await node.query('rollback')
  }
}

/** Calls that run statements elsewhere, connect to servers, change what Citus knows, or take locks. */
const HARMFUL = [
  `select run_command_on_workers('select 1')`,
  `select run_command_on_all_nodes('select 1')`,
  `select run_command_on_coordinator('select 1')`,
  `select run_command_on_shards('pg_class', 'select 1')`,
  `select run_command_on_placements('pg_class', 'select 1')`,
  `select master_run_on_worker(array['localhost'], array[1], array['select 1'], false)`,
  `select citus_run_local_command('select 1')`,
  `select citus_check_connection_to_node('localhost', 1)`,
  `select fetch_intermediate_results(array['x'], 'localhost', 1)`,
  `select create_intermediate_result('x', 'select 1')`,
  `select master_get_new_shardid()`,
  `select lock_shard_resources(7, array[1])`,
  `select citus_add_node('localhost', 1)`,
  `select citus_schema_move('public', 'localhost', 1)`,
  `select recover_prepared_transactions()`,
  `select worker_apply_sequence_command('create sequence public.s', 'bigint')`,
  `select offshoot_node.run(array['select 1'], '{}', 'texts', null)`,
]

describe('on the coordinator and on all workers', () => {
  it('readers and strangers cannot call functions of Citus that do harm, nor those of the service', async () => {
    for (const role of [await findReaderRole(), STRANGER]) {
      for (const node of nodes) {
        for (const statement of HARMFUL) {
          const code = await codeAs(node, role, statement)
          expect([role, statement, code]).toEqual([role, statement, INSUFFICIENT_PRIVILEGE])
        }
      }
    }
  })

  it('they can call few other functions of Citus, none of which takes a statement or a node', async () => {
    const reader = await findReaderRole()
    for (const node of nodes) {
      const { rows } = await node.query<{ name: string }>(
        `select distinct p.proname as name
        from pg_proc p
        join pg_depend d on d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'
        join pg_extension e on e.oid = d.refobjid
        where e.extname like 'citus%' and has_function_privilege($1, p.oid, 'execute')
          and p.proname !~ '^(cluster_clock_.*|(any_value|(array|jsonb?)_cat)(_agg)?)$'
        order by 1`,
        [reader],
      )
      expect(rows.map(({ name }) => name)).toEqual([
        'citus_is_clock_after',
        'citus_json_concatenate',
        'citus_json_concatenate_final',
        'citus_jsonb_concatenate',
        'citus_jsonb_concatenate_final',
        'citus_table_is_visible',
        'citus_version',
        'relation_is_a_known_shard',
      ])
    }
  })

  it('they can still read the catalogue of PostgreSQL', async () => {
    for (const node of nodes) {
      expect(await codeAs(node, STRANGER, 'select count(*) from pg_class')).toBe('none')
      expect(await codeAs(node, STRANGER, 'select count(*) from information_schema.tables')).toBe(
        'none',
      )
    }
  })

  it('readers cannot read rows of other databases, nor the catalogue', async () => {
    const other = await TestBranches.create(service, 'other', { t: [{ name: 'n', type: 'int' }] })
    await other.put('main', 't', 'b', { n: 2 })
    const reader = await findReaderRole()
    for (const node of nodes) {
      const { rows } = await node.query<{ name: string }>(
        `select format('%I.%I', schemaname, tablename) as name
        from pg_tables
        where schemaname ~ '^offshoot' and not has_schema_privilege($1, schemaname, 'usage')`,
        [reader],
      )
      expect(rows.length).toBeGreaterThan(0)
      for (const { name } of rows) {
        expect([name, await codeAs(node, reader, `select from ${name}`)]).toEqual([
          name,
          INSUFFICIENT_PRIVILEGE,
        ])
      }
    }
  })

  it('a node that is added loses them, too', async () => {
    // As on a node that was just added: everybody can call it, and the list of nodes is another one.
    const [, worker] = nodes
    await worker?.query('grant execute on function run_command_on_workers to public')
    await service.database.query(sql`comment on schema offshoot_node is 'before a node was added'`)
    await runBackground(service)
    const code = worker && (await codeAs(worker, STRANGER, HARMFUL[0] ?? ''))
    expect(code).toBe(INSUFFICIENT_PRIVILEGE)
    const [row] = await service.database.query<{ comment: string }>(sql`
      select obj_description('offshoot_node'::regnamespace, 'pg_namespace') as comment`)
    expect(row?.comment).toMatch(/ on nodes \d+(,\d+){2,}$/)
  })
})

describe('the connections of Citus to a node', () => {
  it('have the settings that values and errors are read with', async () => {
    const [place] = await service.database.query<{ schema: string }>(sql`
      select 'offshoot_db_' || id as schema from offshoot.databases where name = ${branches.database}`)
    const rows = await service.database.query<{ name: string; setting: string }>(sql`
      ${onNode(place?.schema ?? '')}
      select name, setting
      from pg_settings
      where name in ('lc_messages', 'TimeZone', 'DateStyle', 'IntervalStyle', 'extra_float_digits')
        and not exists (select from pg_tables where tablename = 'branches')`)
    expect(Object.fromEntries(rows.map(({ name, setting }) => [name, setting]))).toEqual({
      lc_messages: 'C',
      TimeZone: 'UTC',
      DateStyle: 'ISO, YMD',
      IntervalStyle: 'iso_8601',
      extra_float_digits: '1',
    })
  })
})
