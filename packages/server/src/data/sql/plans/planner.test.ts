import { AppError } from '@offshoot/contract/errors'
import { describe, expect, it } from 'vitest'
import {
  COMPARED_BYTES_MAX,
  FUNCTIONS,
  OPERATORS,
  PATTERN_BYTES_MAX,
  SEARCHED_BYTES_MAX,
  TYPES,
} from '../../../dialect/allowed.js'
import { parseSql } from '../../../dialect/parser.js'
import { findName } from '../../../dialect/scope.js'
import {
  COLUMNS_IN_ALL_MAX,
  COLUMNS_MAX,
  DEPTH_MAX,
  NAMED_QUERIES_MAX,
  NODES_MAX,
  OPERATOR_STEPS_MAX,
  RELATIONS_MAX,
  WRITTEN_LENGTH_MAX,
} from '../../../dialect/sql-limits.js'
import { raw, type Sql, sql } from '../../../postgres/sql.js'
import { compileSharing, Slot } from '../../../postgres/statement.js'
import type { StatementTable, TargetColumn, WritableTables } from '../branch-tables.js'
import { parseStatement } from '../parse-statement.js'
import { type StatementPlan, singlePlans } from '../statement-plan.js'
import { withRows } from '../with-steps.js'
import { planStatement } from './planner.js'

/** Creates a table whose rows come from a relation that no statement can name. */
function fakeTable(name: string, columns: readonly string[]): StatementTable {
  const targets = columns.map(
    (column): TargetColumn => ({
      name: column,
      path: [column],
      valueOf: (expression) => sql`to_json(${expression})`,
      defaultValue: undefined,
      isComputed: false,
      type: undefined,
    }),
  )
  return {
    name,
    columns: [...columns, 'service.version'],
    rows: sql`select * from offshoot_rows.heap_1`,
    idType: sql`text`,
    fullName: name,
    targets,
    hidesId: false,
    keys: [
      {
        name: `${name}_pkey`,
        columns: [{ name: 'id', index: undefined, valuesOf: (texts) => sql`${texts}::text[]` }],
      },
    ],
    proposed: (records) => sql`select *, ${records} as p from offshoot_rows.heap_1`,
    target(wanted) {
      const found = findName(targets, wanted, (target) => target.name)
      if (found === undefined) throw new AppError('invalid_sql', 'invalid SQL: no such column')
      return found
    },
  }
}

const TABLES = [
  fakeTable('users', ['id', 'name', 'age', 'team', 'zipCode', 'data']),
  fakeTable('Teams', ['id', 'name', 'size']),
]
const tables: WritableTables = {
  find: (name) => findName(TABLES, name, (table) => table.name),
}

async function plan(statement: string, parameterCount = 0): Promise<StatementPlan> {
  const parsed = await parseStatement(statement, parameterCount)
  return planStatement(parsed, { tables, parameterSizes: new Array(parameterCount).fill(8) })
}

function queriesOf(planned: StatementPlan): Sql[] {
  if (planned.kind === 'select') return [planned.query]
  if (planned.kind === 'truncate') return []
  if (planned.kind === 'setval') return [planned.number ?? [], planned.query].flat()
  if (planned.kind === 'with') {
    const rows = planned.steps.map(() => sql`select 1`)
    return singlePlans(planned).flatMap((each) => queriesOf(withRows(each, rows)))
  }
  const { returning } = planned
  const read =
    planned.kind === 'insert' ? [planned.values.rows, planned.conflict?.rows] : [planned.rows]
  return [...read, returning].filter((query) => query !== undefined)
}

/** Returns the SQL that PostgreSQL would receive. */
function textsOf(planned: StatementPlan): string[] {
  return queriesOf(planned).map((query) => compileSharing(query).text)
}

async function refusal(statement: string, parameterCount = 0): Promise<string> {
  try {
    await plan(statement, parameterCount)
  } catch (error) {
    if (error instanceof AppError && error.code === 'invalid_sql') return error.message
    throw error
  }
  throw new Error(`was not refused: ${statement}`)
}

/** Collects all nodes of a kind from a syntax tree. */
function collect(node: unknown, kind: string, found: Record<string, unknown>[] = []) {
  if (typeof node !== 'object' || node === null) return found
  for (const [key, value] of Object.entries(node)) {
    if (key === kind) found.push(value as Record<string, unknown>)
    collect(value, kind, found)
  }
  return found
}

const namesIn = (list: unknown) =>
  ((list ?? []) as { String?: { sval?: string } }[]).map((item) => item.String?.sval ?? '')

/** Functions that the rewriting adds to statements. */
const OWN_FUNCTIONS = new Set(['to_json', 'json_build_array', 'unnest'])

/** Parses the rewritten SQL, and checks that all its parts are allowed. */
async function expectContained(text: string): Promise<void> {
  const { nodes } = await parseSql(text)
  expect(nodes).toHaveLength(1)
  const named = new Set(collect(nodes, 'CommonTableExpr').map(({ ctename }) => ctename))
  for (const { schemaname, relname } of collect(nodes, 'RangeVar')) {
    if (schemaname === 'offshoot_rows') expect(relname).toBe('heap_1')
    else expect({ schemaname, isNamed: named.has(relname) }).toEqual({ isNamed: true })
  }
  for (const { funcname } of collect(nodes, 'FuncCall')) {
    const names = namesIn(funcname)
    const name = names.at(-1) ?? ''
    if (names.length === 1 && OWN_FUNCTIONS.has(name)) continue
    if (names[0] === 'offshoot_sql') {
      expect(['within', 'collected']).toContain(name)
      continue
    }
    expect(names[0]).toBe('pg_catalog')
    expect([...FUNCTIONS.keys()]).toContain(name)
  }
  for (const { names } of collect(nodes, 'TypeName').concat(collect(nodes, 'typeName'))) {
    const name = namesIn(names).at(-1) ?? ''
    expect([...TYPES, 'text', 'json']).toContain(name)
  }
  for (const { name } of collect(nodes, 'A_Expr')) {
    expect([
      ...OPERATORS.keys(),
      'BETWEEN',
      'NOT BETWEEN',
      'BETWEEN SYMMETRIC',
      'NOT BETWEEN SYMMETRIC',
    ]).toContain(namesIn(name).at(-1))
  }
  for (const kind of ['InsertStmt', 'UpdateStmt', 'DeleteStmt', 'IntoClause', 'LockingClause']) {
    expect(collect(nodes, kind)).toEqual([])
  }
}

const ACCEPTED = [
  'select * from users',
  'SELECT u.*, t.name FROM users AS u JOIN "Teams" t ON t.id = u.team',
  'select * from users natural join teams',
  'select id, name from users join teams using (id, name)',
  'select count(*) filter (where age > 1), max(age) over (partition by team order by age) from users',
  'select sum(age) over w from users window w as (order by id groups between 1 preceding and 2 following exclude ties)',
  'with a as (select 1 as x), b(y) as materialized (select x from a) select a.x, b.y from a, b',
  'with recursive t(n) as (select 1 union all select n + 1 from t where n < 9) select n from t',
  'select x from (select name as x from users union all (select name from teams order by 1 limit 2)) s',
  'select case age when 1 then 2 else 3 end, coalesce(age, 0), greatest(1, age), nullif(age, 1) from users',
  "select age between 1 and 2, age not in (1, 2), name like 'a%' escape '!', name similar to 'a' from users",
  'select exists (select from teams where teams.id = u.team), array(select 1), (select 2) from users u',
  'select age = any (select size from teams), age > all (array[1, 2]) from users',
  "select data->'a', data->>'b', data #>> '{a,b}', data @> '{}', data ? 'a', data['a'] from users",
  "select extract(epoch from now()), now() at time zone 'UTC', interval '1 day', date '2026-01-31'",
  "select cast(age as numeric(10, 2)), age::text[], '{1,2}'::int[] from users",
  'select distinct on (team) team, age from users order by team, age desc nulls last',
  'select team, grouping(team), count(*) from users group by grouping sets ((team), ()), rollup(age), cube(id)',
  "select percentile_cont(0.5) within group (order by age), string_agg(distinct name, ',' order by name) from users",
  'select g.i, g.n from generate_series(1, 3) with ordinality as g(i, n)',
  'select e.key, e.value from users, jsonb_each(data) e',
  "select x.a from jsonb_to_recordset('[]') as x(a int, b text[])",
  'select to_jsonb(u), row(1, 2), u from users u',
  "select -1, 1.5e3, .5, true, null, 'it''s \\ \"q\"', e'\\n', $$dollar$$",
  "values (1, 'a'), (2, 'b')",
  'select t.name from users t union select t.name from teams t',
  'select zipcode, "zipCode" from users where ZIPCODE is not null order by zipcode fetch first 2 rows with ties',
  'select "xata.version", "service.version" from users',
  "insert into users (name, age) values ('a', default), ('b', 1 + 1) returning *, age + 1 as next",
  'insert into users select id, name from teams',
  'with t as (select * from teams) insert into users (name) select name from t',
  "insert into users (id) values ('a') on conflict do nothing",
  "insert into users (id) values ('a') on conflict (id) do nothing returning *",
  "insert into users as u (id, age) values ('a', 1) on conflict (ID) do update set age = u.age + excluded.age where u.age < (select max(size) from teams)",
  "with t as (select 1 as n) insert into users (id) values ('a') on conflict (id) do update set age = (select n from t)",
  'update users u set age = u.age + t.size from teams t where t.id = u.team returning u.id',
  'delete from users using teams t where users.team = t.id and t.size = 0 returning users.*',
  "with x as (insert into users (name) values ('a') returning *) select * from x",
  'with x(a, b) as (update users set age = 1 returning id, age) select a from x where b = 1',
  'with x as (delete from users returning *), y as (select id from x) select * from x, y, teams',
  'with x as (delete from users returning *) insert into teams (id, name) select id, name from x on conflict (id) do update set size = (select count(*) from x) returning (select count(*) from x)',
  'with recursive t(n) as (select 1 union all select n + 1 from t), x as (delete from users where age in (select n from t)) select 1',
  'update users set (age, name) = (1, name || name), team = null',
  "select setval('users_id_seq', max(age), true) from users",
  "select nextval('public.users_id_seq'::regclass) as id",
  "insert into users (id, age) values (nextval('users_id_seq'), 1), (default, 2)",
  'update users u set (age, name) = (select size, t.name from teams t where t.id = u.team)',
]

/** Statements that must be refused before anything is sent to PostgreSQL. */
const REFUSED = [
  // Other relations.
  'select * from pg_class',
  'select * from pg_catalog.pg_authid',
  'select * from "pg_catalog"."pg_shadow"',
  'select * from information_schema.tables',
  'select * from offshoot.api_keys',
  'select * from offshoot_rows.heap_1',
  'select * from heap_1',
  'select * from private.users',
  'select * from other.offshoot.users',
  'select * from pg_temp.users',
  'table pg_settings',
  'select (select rolpassword from pg_authid limit 1)',
  'select 1 where exists (select from pg_stat_activity)',
  'select 1 union select usename from pg_user',
  'with users as (select * from pg_class) select * from users',
  'with x as (select 1) select * from (select * from y) z',
  'with x as (select * from x) select * from x',
  'select * from lateral (select * from pg_roles) r',
  'select * from users join pg_class on true',
  'select * from users tablesample system (10)',
  'select (table pg_class)',
  'values ((select max(oid) from pg_class))',
  'insert into users (name) select rolname from pg_roles',
  'insert into pg_class default values',
  'insert into offshoot.api_keys (id) values (1)',
  "update pg_class set relname = 'x'",
  'update users set name = (select rolname from pg_roles limit 1)',
  'update users set name = r.rolname from pg_roles r',
  'delete from offshoot.branches',
  'delete from users using pg_class',
  'delete from users returning (select max(oid) from pg_class)',
  // Functions that do more than calculate a value from their arguments.
  'select pg_sleep(10)',
  'select pg_catalog.pg_sleep(10)',
  'select "pg_sleep"(10)',
  'select u&"pg\\005fsleep"(10)',
  "select public.lower('A')",
  "select offshoot.lower('A')",
  "select set_config('role', 'postgres', true)",
  "select current_setting('data_directory')",
  "select pg_read_file('/etc/passwd')",
  "select pg_read_binary_file('/etc/passwd')",
  "select pg_ls_dir('/')",
  "select pg_stat_file('/etc/passwd')",
  "select lo_import('/etc/passwd')",
  "select lo_export(1, '/tmp/x')",
  'select lo_create(0), loread(1, 2), lo_get(1)',
  "select query_to_xml('select 1', true, true, '')",
  "select database_to_xml(true, true, '')",
  "select table_to_xml('pg_class', true, true, '')",
  "select cursor_to_xml('c', 1, true, true, '')",
  "select ts_stat('select 1')",
  "select * from dblink('', '') as t(a int)",
  "select nextval('offshoot.stamps')",
  "select nextval('users_id_seq') from users",
  "select nextval('users_id_seq'), 1",
  "select 1 + nextval('users_id_seq')",
  "insert into users (age) values (nextval('users_id_seq'))",
  "insert into users (id) values (nextval('teams_id_seq'))",
  "insert into users (id) select nextval('users_id_seq')",
  "update users set age = nextval('users_id_seq')",
  'select nextval($1)',
  "select currval('s'), lastval(), setval('s', 1)",
  'select pg_advisory_lock(1)',
  'select pg_try_advisory_xact_lock(1)',
  "select pg_notify('a', 'b')",
  'select pg_terminate_backend(1)',
  'select pg_cancel_backend(1)',
  'select pg_reload_conf(), pg_switch_wal()',
  'select txid_current()',
  'select pg_current_xact_id()',
  'select pg_export_snapshot()',
  'select version(), current_database(), inet_server_addr()',
  "select has_table_privilege('pg_authid', 'select')",
  'select pg_get_viewdef(1), pg_get_functiondef(1)',
  "select to_regclass('pg_class')",
  'select obj_description(1)',
  "select pg_relation_size('pg_class')",
  'select pg_relation_filepath(1)',
  'select pg_backend_pid()',
  'select pg_stat_get_activity(null)',
  'select setseed(0.5)',
  "select xpath('/a', '<a/>'), xmlparse(document '<a/>')",
  'select xmlelement(name a)',
  "select * from xmltable('/a' passing '<a/>' columns b text)",
  "select * from json_table('{}', '$' columns (a int path '$.a'))",
  "select json_populate_record(null::pg_authid, '{}')",
  "select pg_input_error_info('x', 'int')",
  "select lower(name) from users, pg_ls_dir('/') f",
  "select * from pg_ls_dir('/')",
  "select * from rows from (generate_series(1, 2), pg_ls_dir('/'))",
  'select count(*) filter (where pg_sleep(1) is null) from users',
  'select sum(age) over (order by pg_sleep(1)) from users',
  "select string_agg(name, ',' order by pg_sleep(1)) from users",
  'select * from users order by pg_sleep(1)',
  'select * from users limit (select pg_sleep(1)::int)',
  'select * from users group by pg_sleep(1)',
  'select distinct on (pg_sleep(1)) id from users',
  'select array[pg_sleep(1)], row(pg_sleep(1))',
  'select case when pg_sleep(1) is null then 1 end',
  'select make_interval(days => pg_backend_pid())',
  'select (array[1])[pg_backend_pid()]',
  'select 1 from users group by rollup(pg_sleep(1))',
  "insert into users (name) values (pg_read_file('x'))",
  'update users set name = version()',
  'delete from users where pg_sleep(1) is null',
  'delete from users returning pg_sleep(1)',
  // Fields of rows that are not columns: PostgreSQL calls the function of that name.
  'select g.pg_sleep from generate_series(1, 3) g',
  'select g.pg_sleep from generate_series(1, 3) g, (select 1 as pg_sleep) x',
  'select x.pg_sleep from (select 1 as a) x',
  'select u.pg_typeof from users u',
  'select (10).pg_sleep',
  "select ('pg_authid'::text).regclass",
  'select (name).regclass from users',
  'select (users.name).regclass from users',
  'select (array[1]).pg_sleep',
  'select (u).name from users u',
  'select (row(1, 2)).f1',
  'select (select 1).pg_sleep',
  'select a.b.c.d from users',
  'select users.name.regclass from users',
  'select pg_sleep(u.*) from users u',
  'with n(i) as (select 1) select n.pg_sleep from n',
  'with recursive n as (select 1 as i union all select n.pg_sleep from n) select * from n',
  'select v.pg_sleep from (values (1)) v',
  'select j.pg_sleep from users natural join teams j',
  'update users set name = users.pg_backend_pid',
  'delete from users u where u.pg_sleep',
  // Types whose values are looked up in the catalogue, and other types that are not supported.
  "select 'pg_class'::regclass",
  "select regclass 'pg_class'",
  "select cast('pg_sleep' as regproc)",
  "select 'x'::pg_catalog.regnamespace",
  "select array['pg_class']::regclass[]",
  'select 1::oid',
  "select 'x'::users",
  'select null::pg_authid',
  "select '<a/>'::xml",
  "select 'x'::offshoot.thing",
  'select 1::users.name%type',
  "select * from json_to_record('{}') as x(a regclass)",
  "select * from jsonb_to_record('{}') as x(a pg_authid)",
  "select b'101', x'ff'",
  // Values that reveal details of the server.
  'select current_user',
  'select session_user, user, current_role',
  'select current_catalog, current_schema',
  'select ctid from users',
  'select tableoid, xmin from users',
  'select users.ctid from users',
  'select name collate "pg_catalog"."unknown" from users',
  'select name collate public."C" from users',
  'select 1 operator(public.+) 2',
  'select name <-> name from users',
  // Other kinds of statements, alone and nested in an allowed one.
  'drop table users',
  'alter table users add column x int',
  'create table x (a int)',
  'create table x as select * from users',
  'create view v as select * from users',
  "create function f() returns int language sql as 'select 1'",
  'create extension dblink',
  "copy users to '/tmp/x'",
  "copy users from program 'id'",
  "copy (select 1) to program 'id'",
  'do $$ begin perform 1; end $$',
  'call p()',
  'execute s',
  'prepare s as select 1',
  'deallocate all',
  'declare c cursor for select 1',
  'fetch all from c',
  'set role postgres',
  'set local search_path = public',
  'reset all',
  'show data_directory',
  'begin',
  'commit',
  'rollback',
  'savepoint s',
  'lock table users',
  'listen a',
  'notify a',
  'vacuum',
  'analyze users',
  'explain analyze select 1',
  'grant all on users to public',
  'create role x superuser',
  "load 'x'",
  'checkpoint',
  'discard all',
  "comment on table users is 'x'",
  'merge into users using teams on true when matched then delete',
  'select 1; drop table users',
  'select 1; select 2',
  'select 1;; delete from users',
  'select 1 into x',
  'select * into temp x from users',
  'with x as (insert into pg_class values (1)) select 1',
  'with x as (insert into private.users (id) values (1)) select 1',
  'with x as (update other set a = 1 returning *) select * from x',
  'with x as (delete from users returning ctid) select * from x',
  'with x as (delete from users returning epoch) select * from x',
  'with x as (update users set version = 1) select 1',
  'with x as (delete from users) select * from x',
  'with x as (delete from users returning *), x as (select 1) select 1',
  'with x as (select * from y), y as (delete from users returning *) select * from x',
  'with recursive x as (select * from y), y as (delete from users returning *) select * from x',
  'with recursive x as (delete from users where id in (select id from x) returning *) select 1',
  'with x as (delete from users returning id), y as (update users set age = 1 returning (select count(*) from users)) select 1',
  'with x as (with y as (delete from users returning *) select * from y) select * from x',
  'with x as (with y as (delete from users returning *) delete from users) select 1',
  'select * from (with x as (delete from users returning *) select * from x) q',
  'select (with x as (delete from users returning *) select count(*) from x)',
  'insert into users (id) with x as (delete from users returning *) select id from x',
  'with x as (truncate users) select 1',
  "select setval('users_id_seq', oid) from pg_class",
  "select setval('users_id_seq', 1), setval('users_id_seq', 2)",
  "select 1 + setval('users_id_seq', 1)",
  "select * from setval('users_id_seq', 1)",
  "select (select setval('users_id_seq', 1))",
  "with x as (select setval('users_id_seq', 1)) select * from x",
  "insert into users (age) select setval('users_id_seq', 1)",
  'with x as (merge into users using teams on true when matched then delete) select 1',
  "insert into users (id) values ('a') on conflict do update set age = 1",
  "insert into users (id) values ('a') on conflict (name) do nothing",
  "insert into users (id) values ('a') on conflict (id, name) do nothing",
  "insert into users (id) values ('a') on conflict (lower(id)) do nothing",
  `insert into users (id) values ('a') on conflict (id collate "C") do nothing`,
  "insert into users (id) values ('a') on conflict (id) where age > 1 do nothing",
  "insert into users (id) values ('a') on conflict on constraint other_pkey do nothing",
  "insert into users (id) values ('a') on conflict (id) do update set id = default",
  "insert into users (id) values ('a') on conflict (id) do update set age = default",
  "insert into users (id) values ('a') on conflict (id) do update set age = excluded.nothing",
  "insert into users (id) values ('a') on conflict (id) do update set age = 1 where teams.size > 1",
  "insert into users (id) values ('a') on conflict (id) do update set age = pg_backend_pid()",
  "insert into users as excluded (id) values ('a') on conflict (id) do update set age = 1",
  "insert into users (id) overriding user value values ('a')",
  'update users set id = default',
  'update users set "service.version" = 1',
  'update users set name = default',
  'insert into users ("service.version") values (1)',
  "insert into users (name, name) values ('a', 'b')",
  "insert into users (name) values ('a', 'b')",
  "insert into users (name, age) values ('a')",
  'delete from users where current of c',
  'delete from users returning old.name',
  'update users set age = 1 returning with (old as o) o.age',
  'update users set (age, name) = (1, 2, 3)',
  'update users set (age, name) = (select 1)',
  'update users set ("service.version", name) = (select 1, 2)',
  'update users set (age, name) = (select 1, oid from pg_class)',
  // Values that are too large.
  "select repeat('x', 1000000000)",
  "select repeat('x', 1001)",
  "select repeat('x', age::int) from users",
  "select lpad('x', 1000000000), rpad('x', 10001)",
  "select format('%1000000000s', 1)",
  'select array_fill(0, array[100000, 100000])',
  "select set_byte('', 1, 1), pg_column_size(1)",
  // Names that do not exist or are ambiguous.
  'select * from nothing',
  'select nothing from users',
  'select users.nothing from users',
  'select other.name from users',
  'select users.name from users u',
  'select * from users, users',
  'select * from (users u join teams t on true) as j',
  'select * from users u(a, b, c, d, e, f, g, h)',
  'select (*) from users',
  '',
  ';',
  '-- nothing',
  'selec 1',
  "select 'open",
  'select 1 /* open',
  'select "open',
  'select $1',
  'select \u0000',
]

describe('a statement', () => {
  it.each(ACCEPTED)('is written anew from what is allowed: %s', async (statement) => {
    const texts = textsOf(await plan(statement))
    expect(texts.length).toBeGreaterThan(0)
    for (const text of texts) await expectContained(text)
  })

  it.each(REFUSED)('is refused: %s', async (statement) => {
    expect(await refusal(statement)).toMatch(/^invalid SQL: /)
  })

  it('cannot draw on more tables than its limit', async () => {
    const from = (count: number) =>
      `select 1 from ${Array.from({ length: count }, (_, index) => `users u${index}`).join(', ')}`
    await plan(from(RELATIONS_MAX))
    expect(await refusal(from(RELATIONS_MAX + 1))).toContain(`at most ${RELATIONS_MAX}`)
  })

  it('cannot have more columns than PostgreSQL takes', async () => {
    const select = (count: number) => `select ${new Array(count).fill('1').join(', ')}`
    await plan(select(COLUMNS_MAX))
    expect(await refusal(select(COLUMNS_MAX + 1))).toContain(`at most ${COLUMNS_MAX} columns`)
    expect(await refusal(`select * from (${select(COLUMNS_MAX)}) a, users`)).toContain('columns')
  })

  it('is refused when its columns double with each query', async () => {
    const doubling = (levels: number) => {
      const queries = Array.from({ length: levels }, (_, index) => {
        const source = `q${index}`
        return `q${index + 1} as (select a.*, b.* from ${source} a, ${source} b)`
      })
      return `with q0 as (select 1 as x), ${queries.join(', ')} select 1 from q${levels}`
    }
    await plan(doubling(10))
    expect(await refusal(doubling(11))).toContain(`at most ${COLUMNS_MAX} columns`)
    expect(await refusal(doubling(30))).toContain(`at most ${COLUMNS_MAX} columns`)
  })

  it('cannot have more columns in all than its limit', async () => {
    const wide = `select ${new Array(1000).fill('1').join(', ')}`
    const from = (count: number) =>
      `with w as (${wide}) select 1 from ${Array.from({ length: count }, (_, index) => `w w${index}`).join(', ')}`
    await plan(from(COLUMNS_IN_ALL_MAX / 1000 - 2))
    expect(await refusal(from(COLUMNS_IN_ALL_MAX / 1000))).toContain('columns in all')
  })

  it('has as many nodes as its limit, and not one more', async () => {
    // Each value is a node; the list, the query and the statement add a fixed number.
    const values = (count: number) => `values (${new Array(count).fill('1').join(',')})`
    const { nodeCount } = await parseSql(values(1))
    const most = NODES_MAX - nodeCount + 1
    expect((await parseSql(values(most))).nodeCount).toBe(NODES_MAX)
    await expect(parseSql(values(most + 1))).rejects.toThrow(`at most ${NODES_MAX} parts`)
  })

  it('is as long as its limit with its tables written out, and not longer', async () => {
    const uses = 8
    const long = (length: number): WritableTables => {
      const table = { ...fakeTable('long', ['id']), rows: raw('x'.repeat(length)) }
      return { find: () => table }
    }
    const from = Array.from({ length: uses }, (_, index) => `long l${index}`).join(', ')
    const parsed = await parseStatement(`select 1 from ${from}`, 0)
    const planWith = (length: number) =>
      planStatement(parsed, { tables: long(length), parameterSizes: [] })
    expect(planWith(WRITTEN_LENGTH_MAX / uses).kind).toBe('select')
    expect(() => planWith(WRITTEN_LENGTH_MAX / uses + 1)).toThrow(String(WRITTEN_LENGTH_MAX))
  })

  it.each([
    ['a text that is searched', SEARCHED_BYTES_MAX, `strpos($1, 'x')`],
    ['a pattern', PATTERN_BYTES_MAX, `strpos('x', $1)`],
    ['an array that is compared', COMPARED_BYTES_MAX, `$1::text[] && array['x']`],
    ['a text that is matched', SEARCHED_BYTES_MAX, `$1 like 'x%'`],
  ])('takes %s as large as its limit, and not larger', async (_name, bytesMax, expression) => {
    const parsed = await parseStatement(`select ${expression}`, 1)
    const planWith = (size: number) => planStatement(parsed, { tables, parameterSizes: [size] })
    expect(planWith(bytesMax).kind).toBe('select')
    expect(() => planWith(bytesMax + 1)).toThrow(`more than ${bytesMax} bytes`)
  })

  it('cannot name more queries than its limit', async () => {
    const named = (count: number) =>
      `with ${Array.from({ length: count }, (_, index) => `q${index} as (select 1)`).join(', ')} select 1`
    await plan(named(NAMED_QUERIES_MAX))
    expect(await refusal(named(NAMED_QUERIES_MAX + 1))).toContain(`at most ${NAMED_QUERIES_MAX}`)
  })

  it.each([
    ['operators', (depth: number) => `select ${'1+'.repeat(depth)}1`],
    ['casts', (depth: number) => `select 1${'::int4'.repeat(depth)}`],
    [
      'cases',
      (depth: number) => `select ${'case when true then '.repeat(depth)}1${' end'.repeat(depth)}`,
    ],
    ['subqueries', (depth: number) => `select ${'(select '.repeat(depth)}1${')'.repeat(depth)}`],
    ['unions', (depth: number) => `select 1${' union select 1'.repeat(depth)}`],
    ['negations', (depth: number) => `select ${'not '.repeat(depth)}true`],
    ['subscripts', (depth: number) => `select ${'array['.repeat(depth)}1${']'.repeat(depth)}`],
  ])('can be nested so deep and no deeper: %s', async (_name, nested) => {
    // A level is one to three nodes, and some of the depth belongs to the statement itself.
    await plan(nested(Math.floor(DEPTH_MAX / 4)))
    expect(await refusal(nested(DEPTH_MAX + 1))).toContain('nested too deeply')
  })

  it('is refused for rows of operator characters that take long to read', async () => {
    const length = Math.sqrt(OPERATOR_STEPS_MAX)
    expect(await refusal(`select 1 ${'/*'.repeat(length / 2)}`)).toContain('unterminated')
    expect(await refusal(`select 1 ${'/*'.repeat(length / 2)}*`)).toContain('operator characters')
    expect(await refusal(`select 1 ${'+-'.repeat(20_000)}1`)).toContain('operator characters')
  })

  it('calculates a column that is used many times at many levels once at each', async () => {
    let statement = 'select age as x from users'
    for (let level = 0; level < 30; level++) {
      statement = `select ${new Array(12).fill('x').join(' + ')} as x from (${statement}) q`
    }
    const [text = ''] = textsOf(await plan(statement))
    expect(text.match(/ offset 0/g)?.length).toBeGreaterThan(10)
  })

  it('is refused when it is nested too deeply, again and again', async () => {
    for (const depth of [20_000, 100_000]) {
      expect(await refusal(`select ${'('.repeat(depth)}1${')'.repeat(depth)}`)).toContain('SQL')
      expect(await refusal(`select ${'1+'.repeat(depth)}1`)).toContain('nested too deeply')
      expect(await refusal(`select ${'array['.repeat(depth)}1${']'.repeat(depth)}`)).toContain(
        'SQL',
      )
    }
    expect(textsOf(await plan('select 1'))).toEqual(['select 1 as "?column?"'])
  })

  it('keeps texts as texts, whatever is in them', async () => {
    const nasty = `'; drop table users; -- " \\ $1 /* ${'é'.repeat(3)}`
    const [text = ''] = textsOf(await plan(`select '${nasty.replaceAll("'", "''")}' as a`))
    await expectContained(text)
    const [constant] = collect((await parseSql(text)).nodes, 'A_Const')
    expect(constant).toMatchObject({ sval: { sval: nasty } })
  })

  it('keeps names as names, whatever is in them', async () => {
    const name = 'a"; drop table users; -- $1'
    const quoted = `"${name.replaceAll('"', '""')}"`
    const statement = `with ${quoted} as (select 1 as ${quoted}) select ${quoted}.${quoted} from ${quoted}`
    const [text = ''] = textsOf(await plan(statement))
    await expectContained(text)
    expect(collect((await parseSql(text)).nodes, 'ResTarget').at(-1)).toMatchObject({ name })
  })

  it('gives every relation an alias of its own, so that no name can mean another', async () => {
    const [text] = textsOf(
      await plan('select u.name from users u where exists (select from teams u where u.size > 1)'),
    )
    expect(text).toContain('"u"."name"')
    expect(text).toContain('"u_2"."size"')
  })
})

describe('parameters', () => {
  it('are one parameter wherever the same number is written', async () => {
    const [query] = queriesOf(await plan('select $2, $1, $2', 2))
    const { text, slots } = compileSharing(query ?? sql``)
    expect(text).toBe('select $1 as "?column?", $2 as "?column?", $1 as "?column?"')
    expect(slots).toEqual([1, 0])
    expect(query?.values.every((value) => value instanceof Slot)).toBe(true)
  })

  it.each([
    ['select 1', 1, 'unused parameters: used 0 of 1 parameters'],
    ['select $1', 3, 'unused parameters: used 1 of 3 parameters'],
    ['select $2', 2, 'unused parameters: used 1 of 2 parameters'],
    ['select * from users order by name $1', 1, 'unused parameters: used 0 of 1 parameters'],
    [
      'select * from users where age = $1 order by name $2',
      2,
      'unused parameters: used 1 of 2 parameters',
    ],
    ['select * from users limit 1 $1', 1, 'unused parameters: used 0 of 1 parameters'],
    ['select $1, date $1', 1, 'syntax error at or near "$1" at position 17'],
    ['select $1', 0, 'missing parameters: $1 is used, but there are 0 parameters'],
    ['select $1, $4', 2, 'missing parameters: $4 is used, but there are 2 parameters'],
  ])('must all be used, and be there: %s with %i', async (statement, count, message) => {
    expect(await refusal(statement, count)).toBe(`invalid SQL: ${message}`)
  })
})

describe('messages', () => {
  it.each([
    ['selec 1', 'syntax error at or near "selec" at position 1'],
    ['select "é", x from users', 'column "é" does not exist at position 8'],
    ["select 'é', foo from users", 'column "foo" does not exist at position 13'],
    ['select u.foo from users u', 'column u.foo does not exist at position 8'],
    ['select o.name from users u', 'missing FROM-clause entry for table "o" at position 8'],
    ['select * from shop', 'table [shop] not found at position 15'],
    ['select pg_sleep(1)', 'function [pg_sleep] is not supported at position 8'],
    ["select 'a'::regclass", 'type [regclass] is not supported at position 13'],
    [
      'drop table users',
      'DROP is not supported: only SELECT, INSERT, UPDATE, DELETE, TRUNCATE and statements that change the schema are',
    ],
    [
      'insert into users (id) values (1) on conflict on constraint c do nothing',
      'ON CONFLICT ON CONSTRAINT: [c] is not a unique constraint of table [users]',
    ],
    ['select 1; select 2', 'only one statement can be run at a time'],
    ['', 'the statement is empty'],
  ])('say what is wrong and where: %s', async (statement, message) => {
    expect(await refusal(statement)).toBe(`invalid SQL: ${message}`)
  })
})

describe('random statements', () => {
  const WORDS = [
    ...[
      'select',
      'from',
      'where',
      'users',
      'u',
      'teams',
      'name',
      'age',
      'id',
      '*',
      ',',
      '(',
      ')',
      '.',
    ],
    ...[
      'pg_class',
      'pg_catalog',
      'pg_sleep',
      'regclass',
      '::',
      'text',
      'lower',
      'count',
      'as',
      'with',
    ],
    ...[
      'union',
      'all',
      'join',
      'on',
      'true',
      'lateral',
      'generate_series',
      '1',
      "'a'",
      '=',
      'order',
      'by',
    ],
    ...[
      'group',
      'in',
      'exists',
      'limit',
      'offshoot',
      '"users"',
      '[',
      ']',
      'values',
      'row',
      'array',
      'g',
    ],
    ...[
      'insert',
      'into',
      'update',
      'set',
      'delete',
      'returning',
      'using',
      'default',
      'over',
      'null',
    ],
    ...['conflict', 'do', 'nothing', 'excluded'],
  ]

  it('are refused, or stay among what is allowed', async () => {
    const seed = Number(process.env.OFFSHOOT_TEST_SEED ?? Date.now() % 1_000_000)
    let state = seed
    const next = (below: number) => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
      return (state >>> 8) % below
    }
    let accepted = 0
    // Most statements are refused, so continue until enough were accepted.
    for (let round = 0; round < 3000 || (accepted <= 100 && round < 30_000); round++) {
      // A changed valid statement gets past more checks than a list of random words.
      const words = (ACCEPTED[next(ACCEPTED.length)] ?? '').split(/(?<=\W)|(?=\W)/)
      for (let change = next(3); change >= 0; change--) {
        words.splice(next(words.length), next(2), ` ${WORDS[next(WORDS.length)]} `)
      }
      const statement = words.join('')
      try {
        for (const text of textsOf(await plan(statement))) await expectContained(text)
        accepted++
      } catch (error) {
        if (error instanceof AppError && error.code === 'invalid_sql') continue
        throw new Error(`seed ${seed}: ${statement}`, { cause: error })
      }
    }
    expect(accepted).toBeGreaterThan(100)
  })
})
