import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { PATTERN_BYTES_MAX } from '../../packages/server/src/dialect/allowed.js'
import { runPipeline } from '../../packages/server/src/postgres/pipeline.js'
import { tableIn } from '../../packages/server/src/postgres/place.js'
import { ident, type Sql, sql as template } from '../../packages/server/src/postgres/sql.js'
import { compileStatement, toQuery } from '../../packages/server/src/postgres/statement.js'
import { TestBranches } from '../support/branches.js'
import { createKey } from '../support/people.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { expectOk, GENERATED_ID, XATA_CLIENT } from '../support/tables.js'
import { takenFields } from '../support/taken.js'

let service: TestService
let branches: TestBranches

const PEOPLE = [
  {
    id: 'ada',
    name: 'Ada',
    age: 36,
    score: 1.5,
    vip: true,
    born: '1815-12-10T09:30:00Z',
    tags: ['a', 'b'],
    data: { a: [1, 2], b: 'x' },
    team: 'core',
    zipCode: '12',
  },
  { id: 'bob', name: 'Bob', age: 20, vip: false, team: 'core', data: { a: [3] } },
  { id: 'cid', name: 'Cid', age: 20, score: -2, tags: [], team: 'edge' },
  { id: 'dee', name: 'Dee O\'Hara "x"', score: 1e-7, zipCode: '', team: 'gone' },
]
const TEAMS = [
  { id: 'core', name: 'Core', size: 2 },
  { id: 'edge', name: 'Edge', size: 1 },
]

beforeAll(async () => {
  service = await createTestService()
  branches = await TestBranches.create(service, 'shop', {
    users: [
      { name: 'name', type: 'string' },
      { name: 'age', type: 'int' },
      { name: 'score', type: 'float' },
      { name: 'vip', type: 'bool' },
      { name: 'born', type: 'datetime' },
      { name: 'tags', type: 'multiple' },
      { name: 'data', type: 'json' },
      { name: 'team', type: 'link', link: { table: 'Teams' } },
      { name: 'zipCode', type: 'string' },
    ],
    Teams: [
      { name: 'name', type: 'string' },
      { name: 'size', type: 'int' },
    ],
    things: [
      { name: 'name', type: 'string', notNull: true, defaultValue: 'thing' },
      { name: 'email', type: 'email', unique: true },
      { name: 'count', type: 'int' },
      { name: 'ratio', type: 'float' },
      { name: 'isNew', type: 'bool' },
      { name: 'at', type: 'datetime' },
      { name: 'labels', type: 'multiple' },
      { name: 'document', type: 'json' },
      { name: 'vector', type: 'vector', vector: { dimension: 2 } },
      { name: 'owner', type: 'link', link: { table: 'users' } },
      { name: 'photo', type: 'file' },
      { name: 'photos', type: 'file[]' },
      {
        name: 'place',
        type: 'object',
        columns: [
          { name: 'city', type: 'string' },
          { name: 'floor', type: 'int' },
        ],
      },
    ],
    empty: [{ name: 'name', type: 'string' }],
  })
  await branches.bulk('main', 'users', PEOPLE)
  await branches.bulk('main', 'Teams', TEAMS)
})
afterAll(() => service.close())

interface Asked {
  readonly branch?: string
  readonly params?: readonly unknown[]
  readonly responseType?: string
  readonly key?: string
  readonly headers?: Record<string, string>
}

function ask(statement: string, { branch = 'main', key, headers, ...body }: Asked = {}) {
  return branches.call(
    branch,
    'POST',
    '/sql',
    { statement, ...body },
    {
      ...(key === undefined ? {} : { key }),
      ...(headers === undefined ? {} : { headers }),
    },
  )
}

async function records(statement: string, asked?: Asked) {
  return expectOk(await ask(statement, asked)).body.records
}

function addTable(table: string, columns: readonly Column[]) {
  const added = columns.map((column) => ({ addColumn: { table, column } }))
  return branches.edit('main', { addTable: { table } }, ...added)
}

async function refused(statement: string, asked?: Asked): Promise<string> {
  const answer = await ask(statement, asked)
  const { code = 'invalid_sql' } = takenFields(answer.body.message) as { code?: string }
  expect(answer).toMatchObject({ status: 400, body: { code } })
  return answer.body.message
}

describe('POST /db/{branch}/sql', () => {
  it('answers with records, their columns and how many there are', async () => {
    const answer = await ask('select name, age from users where age > $1 order by name', {
      params: [19],
    })
    expect(answer).toMatchObject({
      status: 200,
      body: {
        records: [
          { name: 'Ada', age: 36 },
          { name: 'Bob', age: 20 },
          { name: 'Cid', age: 20 },
        ],
        columns: [
          { name: 'name', type: 'text' },
          { name: 'age', type: 'int8' },
        ],
        total: 3,
      },
    })
    expect(answer.body).not.toHaveProperty('warning')
  })

  it('answers with rows of values when asked to', async () => {
    const answer = await ask('select name, name, 1 as n from users order by name limit 2', {
      responseType: 'array',
    })
    expect(answer.body).toEqual({
      rows: [
        ['Ada', 'Ada', 1],
        ['Bob', 'Bob', 1],
      ],
      columns: [
        { name: 'name', type: 'text' },
        { name: 'name', type: 'text' },
        { name: 'n', type: 'int4' },
      ],
      total: 2,
    })
  })

  it('has all columns of a table, with links as ids and the metadata under its own name', async () => {
    const { body } = expectOk(await ask("select * from users where id = 'ada'"))
    const { id, ...values } = PEOPLE[0] as Record<string, unknown>
    expect(body.records).toEqual([
      {
        id,
        ...values,
        born: '1815-12-10T09:30:00+00:00',
        'service.version': 0,
        'service.createdAt': expect.stringMatching(/^20.*\+00:00$/),
        'service.updatedAt': expect.stringMatching(/^20.*\+00:00$/),
      },
    ])
    expect(body.columns.map((column: { type: string }) => column.type)).toEqual(
      'text text int8 float8 bool timestamptz _text jsonb text text int4 timestamptz timestamptz'.split(
        ' ',
      ),
    )
  })

  it('names the metadata as Xata clients expect, and takes both names from every client', async () => {
    const { body } = expectOk(await ask('select * from teams', { headers: XATA_CLIENT }))
    expect(body.columns.slice(-3).map((column: { name: string }) => column.name)).toEqual([
      'xata.version',
      'xata.createdAt',
      'xata.updatedAt',
    ])
    for (const headers of [undefined, XATA_CLIENT]) {
      const statement = 'select "service.version", t."xata.version" from teams t limit 1'
      expect(await records(statement, headers && { headers })).toEqual([
        { 'service.version': 0, 'xata.version': 0 },
      ])
    }
  })

  it('finds names as they are written, and else those that differ in case alone', async () => {
    const statements = [
      'select "zipCode" from users where id = \'ada\'',
      "select zipCode from users where id = 'ada'",
      "select u.ZIPCODE from USERS u where U.ID = 'ada'",
    ]
    for (const statement of statements)
      expect(await records(statement)).toEqual([{ zipCode: '12' }])
    expect(await records('select count(*) from Teams')).toEqual([{ count: 2 }])
    expect(await records('select count(*) from "Teams"')).toEqual([{ count: 2 }])
  })

  it('reads a table that nothing was ever written to', async () => {
    const answer = expectOk(await ask('select * from empty'))
    expect(answer.body).toMatchObject({ records: [], total: 0 })
    expect(answer.body.columns).toHaveLength(5)
    expect(await records('select count(*) from things where "place.city" is null')).toEqual([
      { count: 0 },
    ])
  })

  it.each([
    [
      [1, '2', true, null],
      'select $1::int + $2::int as a, $3::bool as b, $4::text as c',
      { a: 3, b: true, c: null },
    ],
    [[['a', 'b"\\']], 'select $1::text[] as a', { a: ['a', 'b"\\'] }],
    [
      [
        [
          [1, 2],
          [3, 4],
        ],
      ],
      'select $1::int[] as a',
      {
        a: [
          [1, 2],
          [3, 4],
        ],
      },
    ],
    [[{ a: [1] }], 'select $1::jsonb as a', { a: { a: [1] } }],
    [["'; drop table users; --"], 'select $1 as a', { a: "'; drop table users; --" }],
    [
      ['year'],
      "select date_trunc($1, timestamp '2026-05-01') as a group by date_trunc($1, timestamp '2026-05-01')",
      { a: '2026-01-01T00:00:00' },
    ],
  ])('takes parameters of every JSON type: %j', async (params, statement, expected) => {
    expect(await records(statement, { params })).toEqual([expected])
  })

  it.each([
    'select $1::jsonb',
    'select $1::json as a',
    'select id from things where document = $1',
    "insert into things (id, document) values ('array', $1)",
    "insert into things (id, document) values ('array', $1::jsonb)",
    "insert into things (id, document) values ('a', null), ('b', $1)",
    "insert into things (id, document) select 'array', $1",
    "insert into things (id, document) select 'array', $1::jsonb",
    "insert into things (id) values ('a') on conflict (id) do update set document = $1",
    "with w as (insert into things (id, document) values ('a', $1) returning id) select id from w",
    'update things set document = $1',
    'with w as (update things set document = $1 returning id) select id from w',
  ])('refuses arrays as documents, also empty ones: %s', async (statement) => {
    for (const array of [[1, 2], []]) {
      const { status, body } = await ask(statement, { params: [array] })
      expect([status, body.message]).toEqual([
        400,
        'invalid SQL: invalid input syntax for type json',
      ])
    }
  })

  it('takes empty arrays as arrays and as texts, and empty objects as documents', async () => {
    const statement = 'select $1::text[] as a, $2::int[] as b, $3::text as c, $4::jsonb as d'
    const params = [[], [], [], {}]
    expect(await records(statement, { params })).toEqual([{ a: [], b: [], c: '{}', d: {} }])
    expect(await records(`${statement}, $5::jsonb as e`, { params: [...params, '[]'] })).toEqual([
      { a: [], b: [], c: '{}', d: {}, e: [] },
    ])
  })

  it.each([
    "select '\ud800'",
    "select '\udc00\ud800' as a",
    'select 1 as "\ud800"',
    'select 1 -- \udfff',
    'create table "\ud800" (id text)',
    "alter table users add column x text default '\ud800'",
  ])('refuses half of a surrogate pair in a statement: %j', async (statement) => {
    const { status, body } = await ask(statement)
    expect([status, body.message]).toEqual([
      400,
      'invalid SQL: the statement contains half of a surrogate pair',
    ])
    expect(await records("select '\ud83d\ude00' as a")).toEqual([{ a: '\u{1f600}' }])
  })

  it('writes every value as JSON has it', async () => {
    const statement = `select 9007199254740993 as big, 1.10::numeric as exact, 'NaN'::float8 as nan,
      '\\x01ff'::bytea as bytes, interval '1 day' as span, array[1, null] as list, row(1, 'a') as row,
      date '2026-01-31' as day, '{"b":1,"a":1}'::json as json, null as nothing`
    const answer = expectOk(await ask(statement))
    expect(answer.body.records).toEqual([
      {
        big: 9007199254740992,
        exact: 1.1,
        nan: 'NaN',
        bytes: '\\x01ff',
        span: '1 day',
        list: [1, null],
        row: { f1: 1, f2: 'a' },
        day: '2026-01-31',
        json: { b: 1, a: 1 },
        nothing: null,
      },
    ])
  })

  it.each([
    ['select 1/0', 'division by zero'],
    ['insert into things (name) values (chr(0))', 'null character not permitted'],
    ['select chr(1114112)', 'requested character too large for encoding: 1114112'],
    ["select 'a'::int", 'invalid input syntax for type integer: "a"'],
    ['select name + 1 from users', 'operator does not exist: text + integer'],
    [
      'select name, count(*) from users',
      'column "users.name" must appear in the GROUP BY clause or be used in an aggregate function',
    ],
    ['select id from users, teams', 'column reference "id" is ambiguous'],
    [
      'select (select id from users)',
      'more than one row returned by a subquery used as an expression',
    ],
    ['select *', 'SELECT * with no tables specified is not valid'],
    ['select lower(1, 2)', 'function pg_catalog.lower(integer, integer) does not exist'],
  ])('says in the words of PostgreSQL what is wrong: %s', async (statement, message) => {
    expect(await refused(statement)).toBe(`invalid SQL: ${message}`)
  })

  it('does not tell how tables are stored', async () => {
    const [heap] = await service.database.query<{ name: string }>(template`
      select tablename as name from pg_tables where schemaname = 'offshoot_db_1' limit 1`)
    const answers = await Promise.all(
      ['select heap_1 from users', 'select users.c1 from users', `select * from ${heap?.name}`].map(
        (statement) => refused(statement),
      ),
    )
    expect(answers.join()).not.toMatch(/offshoot_|perhaps/i)
  })

  it.each([
    [{}, 'statement'],
    [{ statement: '' }, 'statement'],
    [{ statement: 1 }, 'statement'],
    [{ statement: 'select 1', params: {} }, 'params'],
    [{ statement: 'select 1', responseType: 'csv' }, 'responseType'],
    [{ statement: 'select 1', consistency: 'weak' }, 'consistency'],
    [{ statement: 'select 1', more: 1 }, 'more'],
  ])('refuses a body that is malformed: %j', async (body, named) => {
    const answer = await branches.call('main', 'POST', '/sql', body)
    expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
    expect(answer.body.message).toContain(named)
  })

  it('takes and ignores how consistent it should be', async () => {
    const body = { statement: 'select 1 as one', consistency: 'eventual', params: null }
    expect((await branches.call('main', 'POST', '/sql', body)).body.records).toEqual([{ one: 1 }])
  })

  it('answers like the rest for what is not there', async () => {
    expect(await ask('select 1', { branch: 'nowhere' })).toMatchObject({
      status: 404,
      body: { code: 'branch_not_found' },
    })
    expect(await ask('select 1', { key: 'off_nobody' })).toMatchObject({ status: 401 })
  })
})

describe('what PostgreSQL makes of a statement', () => {
  const COLUMNS = 'id, name, age, score, vip, born, tags, data, team, "zipCode"'

  beforeAll(async () => {
    await service.database.query(template`create schema plain`)
    await service.database.query(template`
      create table plain.users (id text collate "C" primary key, name text collate "C", age bigint,
        score double precision, vip boolean, born timestamptz, tags text[], data jsonb,
        team text collate "C", "zipCode" text collate "C")`)
    await service.database.query(template`
      create table plain.teams (id text collate "C" primary key, name text collate "C", size bigint)`)
    for (const person of PEOPLE) {
      await service.database.query(template`
        insert into plain.users select * from jsonb_populate_record(null::plain.users, ${JSON.stringify(person)}::jsonb)`)
    }
    for (const team of TEAMS) {
      await service.database.query(template`
        insert into plain.teams values (${team.id}, ${team.name}, ${team.size})`)
    }
  })

  /** Runs a statement unchanged in PostgreSQL, on plain tables with the same rows. */
  async function plainly(statement: string): Promise<unknown[]> {
    const client = await service.database.pool.connect()
    try {
      await client.query('begin')
      await client.query('set local search_path = plain, pg_catalog')
      await client.query('set local intervalstyle = postgres')
      const { rows } = await client.query(
        `select row_to_json(q)::text as row from (${statement}) q`,
      )
      return rows.map(({ row }) => JSON.parse(row))
    } finally {
      await client.query('rollback')
      client.release()
    }
  }

  it.each([
    `select ${COLUMNS} from users order by id`,
    'select u.name, t.name, t.size * 2 from users u left join teams t on t.id = u.team order by u.id',
    'select u.id from users u right join teams t on t.id = u.team and u.age > 20 order by t.id',
    'select u.id, t.id as t from users u full join teams t on t.id = u.team order by 1, 2',
    'select id, size from teams natural join (select id from teams) x order by id',
    'select x.id, name from teams join (select id, 1 as one from teams) x using (id) order by id',
    'select * from (select id from teams) a cross join (values (1, 2)) b(x, y) order by 1',
    'select age, count(*), count(distinct team) c, min(name), array_agg(id order by id desc) from users group by age order by age nulls first',
    'select t.name, t.size, count(u.id) n from teams t left join users u on u.team = t.id group by t.id order by n, t.name',
    'select users.name as who, max(teams.size) from users left join teams on teams.id = team group by users.id having users.age < 30 order by users.born, who',
    'select name, tags, data, count(*) from users group by id order by upper(name)',
    'select team, age, count(*), grouping(team, age) from users group by rollup(team, age) order by 1, 2, 3',
    'select age as years, sum(score) from users group by years having count(*) > 1 order by years',
    'select 1 + 2 * 3 - 4 / 2 ^ 2, - (1 - 2) - -3, 7 % 4, not true or true and false, 2 = 1 + 1',
    "select 'a' || 'b' || 1, 'abc' like 'a_c', 'ABC' ilike 'a%', 'a%c' like 'a!%c' escape '!', 'x' similar to '(x|y)', 'a' not like 'b'",
    'select age between 10 and 30, age not between symmetric 30 and 10, age in (20, 36), age not in (1) from users order by id',
    'select age is null, age is not null, vip is true, vip is not false, vip is unknown, age is distinct from 20 from users order by id',
    "select case when age > 30 then 'old' when age > 10 then 'young' else '?' end, case vip when true then 1 end from users order by id",
    'select coalesce(age, 0), nullif(age, 20), greatest(age, 30), least(age, 30) from users order by id',
    'select id from users where age = any (select 20) and age >= all (select age from users where age is not null and age < 30) order by id',
    "select id from users where team in (select id from teams where size > 1) and id = any ('{ada,bob}') order by id",
    'select id, exists (select from teams t where t.id = u.team) from users u order by id',
    'select t.id, (select count(*) from users u where u.team = t.id), array(select u.id from users u where u.team = t.id order by 1) from teams t order by 1',
    'select t.id, l.id as best from teams t, lateral (select u.id from users u where u.team = t.id order by age desc nulls last limit 1) l order by 1',
    "select id, data->'a'->>0, data->>'b', data #> '{a,0}', data @> '{\"b\":\"x\"}', data ? 'b', data['a'][0] from users order by id",
    "select id, tags[1], tags[1:2], cardinality(tags), tags @> array['a'], tags && '{b}' from users order by id",
    'select u.id, t.tag, t.n from users u, unnest(u.tags) with ordinality as t(tag, n) order by 1, 3',
    'select id, e.key, e.value from users, jsonb_each(data) e order by 1, 2',
    'select x.a, x.b from jsonb_to_recordset(\'[{"a":1,"b":"x"},{"a":2}]\') as x(a int, b text)',
    'select g, g.g from generate_series(1, 3) g',
    'select generate_series, n from generate_series(2, 4) with ordinality as s(generate_series, n)',
    'select i from generate_series(1, 9, 2) as s(i) order by i desc limit 2 offset 1',
    'with young as (select * from users where age < 30), n as (select count(*) c from young) select young.id, n.c from young, n order by 1',
    'with recursive t(n, f) as (values (1, 1::numeric) union all select n + 1, f * (n + 1) from t where n < 6) select * from t order by n',
    'with a as (select 1 as x), b as (select x + 1 as x from a) select x from a union all select x from b order by x',
    "select name from users union select name from teams except select 'Ada' order by name",
    'select age from users intersect select 20',
    '(select id from users order by id limit 1) union all (select id from teams order by id desc limit 1)',
    'select id, row_number() over (order by id), rank() over w, lag(id) over w, sum(score) over (order by id rows between unbounded preceding and current row) from users window w as (partition by team order by age) order by id',
    'select id, count(*) over (partition by team), first_value(id) over (w rows 1 preceding) from users window w as (order by id) order by id',
    "select count(*) filter (where age > 20), percentile_cont(0.5) within group (order by age), string_agg(distinct team, ',' order by team) from users",
    'select (select t.name from teams t where t.id = u.team), count(*) from users u group by (select t.name from teams t where t.id = u.team) order by 1',
    'select u.team in (select id from teams), count(*) from users u group by u.team in (select id from teams) order by u.team in (select id from teams)',
    `select distinct exists (select from teams t, (select 1) q where t.id = u.team and t.name in (select name from teams)) from users u
       order by exists (select from teams t, (select 1) q where t.id = u.team and t.name in (select name from teams))`,
    `select (with w as (select name from teams where id = u.team) select max(a.name) from w a, w b), count(*) from users u
       group by (with w as (select name from teams where id = u.team) select max(a.name) from w a, w b) order by 2, 1`,
    'select count(*), (select 1) as a, (select 1) as b, (select (select 1) + (select 1)) from users having (select 1) = 1 order by (select 1)',
    'select distinct team from users order by team',
    'select distinct on (team) team, id from users order by team, id desc',
    'select id from users order by age desc nulls last, id limit 3',
    'select id from users order by age fetch first 1 rows with ties',
    "select extract(year from born), date_trunc('month', born), born + interval '1 day', born at time zone 'Asia/Tokyo', to_char(born, 'YYYY-MM') from users where born is not null",
    "select substring('abcdef' from 2 for 3), position('c' in 'abc'), trim(leading 'x' from 'xxa'), overlay('abc' placing 'X' from 2), upper('a'), length('é')",
    "select regexp_replace('abc', '[b]', 'X'), 'abc' ~ '^a', regexp_match('foobar', 'o(b)'), split_part('a,b', ',', 2)",
    'select round(1.256, 2), round(2.5), ceil(1.1), trunc(-1.9), mod(7, 3), abs(-2), power(2, 10), width_bucket(5, 0, 10, 5)',
    "select '1'::int, cast('2026-01-31' as date), 1::numeric(10, 3), 'abc'::varchar(2), '{1,2}'::int[], 'true'::bool, 1.9::int",
    "select to_jsonb(t), row_to_json(t), json_build_object('a', t.id), jsonb_agg(t.id) over () from (select id, size from teams) t order by t.id",
    'select t from (select id, size from teams) t order by t.id',
    'select count(t.*), count(t) from teams t',
    'select row(1, 2) = row(1, 2), (1, 2) < (1, 3), array[[1, 2], [3, 4]]',
    'select s.count, s.max from (select count(*), max(age) from users) s',
    'select (select max(age) from users), now() is not null, current_date is not null',
    'select name from users t where t.age > 1 union select t.name from teams t where t.size > 1 order by 1',
    'select u.id from users u where exists (select from teams u where u.size = 1) and u.age > 20',
    "select make_interval(days => 3), age(timestamp '2026-01-02', timestamp '2026-01-01'), interval '1' * 2",
    'select id as "Weird ""name""", 1 as "select" from teams order by "Weird ""name"""',
    // The form in which query builders select records with their related records.
    `select "t"."id", "t_members"."data" as "members" from "teams" "t" left join lateral (
       select coalesce(json_agg(json_build_array("m"."id", "m"."name", "m_team"."data")), '[]'::json) as "data"
       from (select * from "users" "m" where "m"."team" = "t"."id" order by "m"."id" limit 2) "m"
       left join lateral (select json_build_array("o"."name") as "data" from
         (select * from "teams" "o" where "o"."id" = "m"."team" limit 1) "o") "m_team" on true
     ) "t_members" on true order by "t"."id"`,
    `select "t"."id", (select coalesce(json_agg(agg), '[]') from (
       select "u"."id", "u"."age" from "users" as "u" where "u"."team" = "t"."id" order by "u"."id") as agg) as "members",
       (select to_json(obj) from (select "u"."name" from "users" as "u" where "u"."id" = 'ada') as obj) as "first"
     from "teams" as "t" order by "t"."id"`,
    "values (1, 'a'), (2, 'b')",
    'select v.column1, v.column2 from (values (1, 2)) v',
    'select',
    'select from users',
  ])('is what is made of it here: %s', async (statement) => {
    expect(await records(statement)).toEqual(await plainly(statement))
  })
})

it('groups all columns of a table by its id', async () => {
  const found = await records(
    'select users.*, count(*) as n from users group by users.id order by users.id',
  )
  expect(found).toMatchObject(PEOPLE.map(({ id, name }) => ({ id, name, n: 1 })))
})

describe('branches', () => {
  it('are all that a statement sees, with what they inherit and have changed', async () => {
    await branches.fork('fork')
    await branches.patch('fork', 'users', 'ada', { age: 37 })
    await branches.remove('fork', 'users', 'bob')
    await branches.put('fork', 'users', 'zoe', { name: 'Zoe' })
    await branches.fork('twig', 'fork')
    await branches.patch('twig', 'users', 'zoe', { name: 'Zoë' })
    await branches.patch('fork', 'users', 'zoe', { name: 'other' })
    const statement = 'select id, name, age from users order by id'
    expect((await records(statement, { branch: 'twig' })).map(Object.values)).toEqual([
      ['ada', 'Ada', 37],
      ['cid', 'Cid', 20],
      ['dee', 'Dee O\'Hara "x"', null],
      ['zoe', 'Zoë', null],
    ])
    expect((await records(statement)).map(({ id }: { id: string }) => id)).toEqual([
      'ada',
      'bob',
      'cid',
      'dee',
    ])
  })

  it('have columns by their present names, with what they were filled with', async () => {
    await branches.fork('renamed')
    await branches.edit(
      'renamed',
      { renameColumn: { table: 'users', oldName: 'age', newName: 'years' } },
      { renameTable: { oldName: 'users', newName: 'people' } },
      {
        addColumn: {
          table: 'people',
          column: { name: 'level', type: 'int', notNull: true, defaultValue: '7' },
        },
      },
    )
    const statement = "select years, level from people where id = 'ada'"
    expect(await records(statement, { branch: 'renamed' })).toEqual([{ years: 36, level: 7 }])
    expect(await refused('select age from people', { branch: 'renamed' })).toContain('"age"')
    expect(await refused('select 1 from users', { branch: 'renamed' })).toContain('[users]')
    await records("update people set level = level + 1, years = 1 where id = 'ada'", {
      branch: 'renamed',
    })
    expect(await records(statement, { branch: 'renamed' })).toEqual([{ years: 1, level: 8 }])
    expect(await records("select age from users where id = 'ada'")).toEqual([{ age: 36 }])
  })

  it('have columns of any name that statements can name', async () => {
    const names = ['q', 'r', 's', 't', 'h', 'k', 'v', 'row', 'source', 'value']
    await addTable(
      'letters',
      names.map((name) => ({ name, type: 'int' })),
    )
    for (const name of names) {
      const inserted = `insert into letters (id, "${name}") values ('${name}', 1) returning "${name}"`
      expect(await records(inserted)).toEqual([{ [name]: 1 }])
      expect(await records(`select "${name}" from letters where id = '${name}'`)).toEqual([
        { [name]: 1 },
      ])
      const changed = `update letters set "${name}" = "${name}" + 1 where "${name}" = 1 returning "${name}"`
      expect(await records(changed)).toEqual([{ [name]: 2 }])
    }
    const { body } = await ask("select q, r from letters where id = 'q'", { responseType: 'array' })
    expect(body.rows).toEqual([[2, null]])
  })

  it('do not see those of others, whatever these are called', async () => {
    const other = await TestBranches.create(service, 'secret', {
      treasure: [{ name: 'gold', type: 'int' }],
    })
    await other.put('main', 'treasure', 'a', { gold: 1 })
    for (const name of ['treasure', 'secret.treasure', '"secret:main".treasure']) {
      expect(await refused(`select * from ${name}`)).toMatch(/not found/)
    }
  })
})

describe('writing', () => {
  it('inserts, and returns what was asked for', async () => {
    const answer = expectOk(
      await ask(
        `insert into things (id, name, email, count, ratio, isnew, at, labels, document, vector, owner, "place.city")
         values ($1, upper($2), $3, $4, 0.5, true, '2026-01-31', '{a,b}', '{"n": 12345678901234567890}',
           '{1,2}', 'ada', 'Oslo')
         returning id, name, count + 1 as next, "service.version"`,
        { params: ['one', 'first', 'one@example.com', 41] },
      ),
    )
    expect(answer.body).toEqual({
      records: [{ id: 'one', name: 'FIRST', next: 42, 'service.version': 0 }],
      columns: [
        { name: 'id', type: 'text' },
        { name: 'name', type: 'text' },
        { name: 'next', type: 'int8' },
        { name: 'service.version', type: 'int4' },
      ],
      total: 1,
    })
    expect(await branches.record('main', 'things', 'one')).toMatchObject({
      name: 'FIRST',
      email: 'one@example.com',
      count: 41,
      ratio: 0.5,
      isNew: true,
      at: '2026-01-31T00:00:00.000Z',
      labels: ['a', 'b'],
      vector: [1, 2],
      owner: { id: 'ada' },
      place: { city: 'Oslo' },
    })
    const [{ document }] = await records("select document::text from things where id = 'one'")
    expect(document).toBe('{"n": 12345678901234567890}')
  })

  it('inserts rows of a query, of several values and of defaults', async () => {
    await records("insert into things (id, name) select 't-' || id, name from teams")
    const several = await ask(
      "insert into things (id, name, count) values ('d1', default, 1), ('d2', 'given', default)",
    )
    expect(several.body).toEqual({ records: [], columns: [], total: 2 })
    const [made] = await records('insert into things default values returning id, name')
    expect(made).toEqual({ id: expect.stringMatching(GENERATED_ID), name: 'thing' })
    expect(
      await records("select id, name, count from things where id ~ '^(t-|d)' order by id"),
    ).toEqual([
      { id: 'd1', name: 'thing', count: 1 },
      { id: 'd2', name: 'given', count: null },
      { id: 't-core', name: 'Core', count: null },
      { id: 't-edge', name: 'Edge', count: null },
    ])
  })

  it('sets columns to their defaults', async () => {
    await addTable('settled', [
      { name: 'state', type: 'string', notNull: true, defaultValue: "it's new" },
      { name: 'price', type: 'decimal', decimal: { precision: 5, scale: 2 }, defaultValue: '1.50' },
      { name: 'at', type: 'datetime', defaultValue: 'now' },
      { name: 'day', type: 'date', defaultValue: 'now' },
      { name: 'note', type: 'string' },
      { name: 'number', type: 'int', generate: 'sequence' },
    ])
    await records("insert into settled (id, state, price, note) values ('a', 'old', 9, 'x')")
    const [row] = await records(
      `update settled set state = default, (price, note) = (default, default), at = default, day = default
       where id = 'a' returning state, price::text, note, at > '2020-01-01' as is_now, day > '2020-01-01' as is_today`,
    )
    expect(row).toEqual({
      state: "it's new",
      price: '1.50',
      note: null,
      is_now: true,
      is_today: true,
    })
    expect(await refused('update settled set number = default')).toContain('generates it')
    await records("update settled set note = 'y' where id = 'a'")
    const upsert = `insert into settled (id, note) values ('a', 'z')
      on conflict (id) do update set note = default returning note`
    expect(await records(upsert)).toEqual([{ note: null }])
  })

  it('rounds decimals that it calculates to the digits of their columns, and none that is given', async () => {
    const decimal = { precision: 5, scale: 2 }
    await addTable('rounded', [
      { name: 'price', type: 'decimal', decimal },
      { name: 'cost', type: 'decimal', decimal },
      { name: 'count', type: 'int' },
    ])
    const one = async (statement: string) =>
      (await records(`${statement} returning price::text, cost::text`))[0]
    await records(`insert into rounded (id, price) values ('a', 10.05)`)
    expect(
      await one('update rounded set price = price * 1.1, cost = coalesce(cost, price / 3)'),
    ).toEqual({ price: '11.06', cost: '3.35' })
    expect(await one('update rounded set (price, cost) = (price / 3, sqrt(2))')).toEqual({
      price: '3.69',
      cost: '1.41',
    })
    const query = 'select avg(price) / 7, -0.125 * max(cost) from rounded'
    expect(await one(`update rounded set (price, cost) = (${query})`)).toEqual({
      price: '0.53',
      cost: '-0.18',
    })
    expect(
      await one(`insert into rounded (id, price) select 'b', sum(price) * 1.025 from rounded`),
    ).toEqual({ price: '0.54', cost: null })
    expect(
      await one(`insert into rounded (id, price) values ('b', -(0.1 + 0.006))
        on conflict (id) do update set price = excluded.price * 2, cost = excluded.price + 0.005`),
    ).toEqual({ price: '-0.22', cost: '-0.11' })
    for (const statement of [
      'update rounded set price = 1.005',
      `update rounded set price = '1.005'::numeric`,
      'insert into rounded (price) values (1.005)',
      'insert into rounded (price) values (1 + 1), (1.005)',
      'insert into rounded (price) select v.cost from (values (1.005)) as v(cost)',
    ]) {
      expect(await refused(statement)).toContain('has more than 2 digits after the decimal point')
    }
    for (const value of ['coalesce($1, price * 2)', 'case when true then $1 else price / 2 end']) {
      const statement = `update rounded set price = ${value}`
      expect(await ask(statement, { params: ['1.005'] })).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining('has more than 2 digits after') },
      })
    }
    expect(await refused('update rounded set count = 3 * 0.5')).toContain('got a fraction')
    expect(await refused('update rounded set price = price * 100000')).toContain(
      'column [price]: has more than 3 digits before the decimal point',
    )
  })

  it('leaves out what is there already, ON CONFLICT DO NOTHING', async () => {
    await records("insert into things (id, email) values ('n1', 'n1@example.com')")
    const inserted = await records(
      `insert into things (id, email) values ('n1', null), ('n2', 'n2@example.com'), ('n2', null),
         ('n3', 'n1@example.com'), ('n4', 'n2@example.com'), ('n5', null), (default, null)
       on conflict do nothing returning id`,
    )
    expect(inserted).toEqual([
      { id: 'n2' },
      { id: 'n5' },
      { id: expect.stringMatching(GENERATED_ID) },
    ])
    const byEmail =
      "insert into things (id, email) values ('n6', 'n1@example.com') on conflict (email) do nothing"
    expect((await ask(byEmail)).body).toEqual({ records: [], columns: [], total: 0 })
    expect(await refused(byEmail.replace('(email) do', '(id) do'))).toContain('is not unique')
  })

  it('changes what is there already, ON CONFLICT DO UPDATE', async () => {
    await records(
      `insert into things (id, name, count, email) values ('o1', 'old', 1, 'o1@example.com'), ('o2', 'old', 50, null)`,
    )
    const upsert = (where = '') =>
      `insert into things as t (id, count, at, labels, document) values ('o1', $1, '2026-01-31', '{a,b}', '{"n": 1}'),
         ('o2', $1, null, null, null), ('o3', $1, null, null, null)
       on conflict (id) do update set name = excluded.name, count = t.count + excluded.count * $2,
         at = excluded.at, labels = excluded.labels, document = excluded.document ${where}
       returning id, name, count, at, labels, document, "service.version"`
    const nothing = { at: null, labels: null, document: null }
    const written = await records(upsert('where t.count < 50'), { params: [2, 10] })
    expect(written).toEqual([
      {
        id: 'o1',
        name: 'thing',
        count: 21,
        at: expect.stringMatching(/^2026-01-31T00:00:00/),
        labels: ['a', 'b'],
        document: { n: 1 },
        'service.version': 1,
      },
      { id: 'o3', name: 'thing', count: 2, ...nothing, 'service.version': 0 },
    ])
    expect(
      await records(
        `insert into things (email, count) values ('o1@example.com', 5), ('o4@example.com', 6)
         on conflict (email) do update set count = excluded.count returning id, email, count, "service.version"`,
      ),
    ).toEqual([
      { id: 'o1', email: 'o1@example.com', count: 5, 'service.version': 2 },
      {
        id: expect.stringMatching(GENERATED_ID),
        email: 'o4@example.com',
        count: 6,
        'service.version': 0,
      },
    ])
  })

  it('keeps the id that ON CONFLICT has found, if all columns are assigned', async () => {
    await records("insert into things (id, name, email) values ('k1', 'old', 'k1@example.com')")
    const upsert = (name: string, key: string, assigned = ', name = excluded.name') =>
      `insert into things (id, name, email) values ('k1', '${name}', 'k1@example.com')
       on conflict (${key}) do update set id = excluded.id${assigned} returning id, name`
    expect(await records(upsert('new', 'id'))).toEqual([{ id: 'k1', name: 'new' }])
    expect(await records(upsert('other', 'id', ''))).toEqual([{ id: 'k1', name: 'new' }])
    expect(await records(upsert('newer', 'email'))).toEqual([{ id: 'k1', name: 'newer' }])
    expect(await refused(upsert('no', 'email').replace("'k1'", "'k2'"))).toContain(
      'column [id]: cannot be changed, from [k1] to [k2]',
    )
  })

  it('takes an id that stays as it is, if all columns are assigned', async () => {
    await records("insert into things (id, name, count) values ('s1', 'a', 1), ('s2', 'b', 2)")
    const set = (assigned: string, asked?: Asked) =>
      records(`update things set ${assigned} where name in ('a', 'b') returning id, count`, asked)
    expect(await set('id = id, count = count + 10')).toEqual([
      { id: 's1', count: 11 },
      { id: 's2', count: 12 },
    ])
    expect(await set('(id, count) = (select id, 5 from things t where t.id = things.id)')).toEqual([
      { id: 's1', count: 5 },
      { id: 's2', count: 5 },
    ])
    const one = "update things set id = $1, count = 7 where id = 's1' returning count"
    expect(await records(one, { params: ['s1'] })).toEqual([{ count: 7 }])
    for (const assigned of ["id = 's1', count = 9", "id = id || 'x', count = 9"]) {
      expect(await refused(`update things set ${assigned} where name in ('a', 'b')`)).toContain(
        'table [things]: column [id]: cannot be changed, from [s',
      )
    }
    const counts = "select id, count from things where name in ('a', 'b') order by id"
    expect(await records(counts)).toEqual([
      { id: 's1', count: 7 },
      { id: 's2', count: 5 },
    ])
  })

  it('finds what a fork inherits in the way of what is inserted', async () => {
    await records("insert into things (id, email, count) values ('in', 'in@example.com', 1)")
    await branches.fork('inherits')
    const on = { branch: 'inherits' }
    const upsert = `insert into things (id, count) values ('in', 2)
      on conflict (id) do update set count = things.count + excluded.count returning count`
    expect(await records(upsert, on)).toEqual([{ count: 3 }])
    expect(await records(upsert, on)).toEqual([{ count: 5 }])
    const other = "insert into things (id, email) values ('other', 'in@example.com') on conflict "
    expect((await ask(`${other} do nothing`, on)).body).toMatchObject({ total: 0 })
    expect(await records("select count from things where id = 'in'")).toEqual([{ count: 1 }])
    await records("delete from things where id = 'in'", on)
    expect((await ask(`${other} (email) do nothing`, on)).body).toMatchObject({ total: 1 })
  })

  it('updates each record once, from what is beside it, and counts its versions', async () => {
    await records("insert into things (id, count, owner) values ('u1', 1, 'ada'), ('u2', 2, 'bob')")
    const updated = await records(
      `with young as (select id from users where age < 30)
       update things t set count = t.count * 10, name = u.name
       from users u, generate_series(1, 3)
       where u.id = t.owner and u.id in (select id from young)
       returning t.id, count, t.name, t."service.version"`,
    )
    expect(updated).toEqual([{ id: 'u2', count: 20, name: 'Bob', 'service.version': 1 }])
    const none = expectOk(await ask("update things set count = 1 where id = 'nobody'"))
    expect(none.body).toEqual({ records: [], columns: [], total: 0 })
  })

  it('deletes, and returns what was there', async () => {
    await records("insert into things (id, count) values ('x1', 1), ('x2', 2), ('x3', 3)")
    const gone = await records(
      "delete from things using teams t where things.id like 'x%' and count > t.size returning things.*",
    )
    expect(gone.map(({ id }: { id: string }) => id).sort()).toEqual(['x2', 'x3'])
    expect(await records("select id from things where id like 'x%'")).toEqual([{ id: 'x1' }])
  })

  it('leaves what a fork inherits as it is', async () => {
    await records("insert into things (id, count) values ('f1', 1), ('f2', 2), ('f3', 3)")
    await branches.fork('sql-fork')
    const on = { branch: 'sql-fork' }
    await records("update things set count = 100 where id = 'f1'", on)
    await records("delete from things where id = 'f2'", on)
    await records("insert into things (id, count) values ('f4', 4)", on)
    await records("update things set count = 300 where id = 'f3'")
    const statement = "select id, count from things where id ~ '^f' order by id"
    expect((await records(statement, on)).map(Object.values)).toEqual([
      ['f1', 100],
      ['f3', 3],
      ['f4', 4],
    ])
    expect((await records(statement)).map(Object.values)).toEqual([
      ['f1', 1],
      ['f2', 2],
      ['f3', 300],
    ])
  })

  it.each([
    ["insert into things (email) values ('nobody')", 'column [email]: is not an email address'],
    [
      'insert into things (count) values (1.5)',
      'column [count]: expected a whole number, got a fraction',
    ],
    ['insert into things (count) values (9007199254740993)', 'column [count]: is not between'],
    ["insert into things (ratio) values ('NaN')", 'column [ratio]: expected a number'],
    ["insert into things (at) values ('infinity')", 'column [at]: is not a date and time'],
    ["insert into things (vector) values ('{1}')", 'column [vector]: expected 2 numbers, got 1'],
    ['insert into things (name) values (null)', 'column [name]: cannot be null'],
    ["insert into things (id) values ('not an id')", 'column [id]: is not a record id'],
    ['insert into things (id) values (null)', 'column [id]: expected a record id'],
    ["insert into things (id) values ('same'), ('same')", 'record [same] already exists'],
    ["insert into things (owner) values ('not an id')", 'column [owner]: is not a record id'],
    ["insert into things (count) values ('x')", 'invalid input syntax for type numeric: "x"'],
    [
      'insert into things (isnew) values (now())',
      'cannot cast type timestamp with time zone to boolean',
    ],
    ["insert into things (photo) values ('{}')", 'column [photo]: cannot be written by SQL'],
    ['insert into things (nothing) values (1)', 'column [nothing]: column not found'],
    ['insert into things ("service.version") values (1)', 'cannot be written by SQL'],
    ["update things set id = 'x'", 'column [id]: cannot be changed'],
    ['update things set "place.city" = \'x\'', 'is part of an object and cannot be set alone'],
    ['update things set name = null', 'column [name]: cannot be null'],
    ['update things set count = 1 returning old.count', 'RETURNING: old and new are not supported'],
    [
      "insert into things (id) values ('a') on conflict (name) do nothing",
      'ON CONFLICT: [name] is not the id, nor a unique column',
    ],
    [
      "insert into things (id) values ('a') on conflict do update set name = 'b'",
      'ON CONFLICT DO UPDATE needs the column in which records are in conflict',
    ],
    [
      "insert into things (id) values ('two'), ('two') on conflict (id) do update set name = 'b'",
      'ON CONFLICT DO UPDATE cannot change a record a second time',
    ],
    [
      "insert into things (id, email) values ('a', 'a@example.com'), ('b', 'a@example.com') on conflict (id) do nothing",
      'column [email]: is not unique',
    ],
    [
      "insert into things (id, name) values ('a', null) on conflict do nothing",
      'column [name]: cannot be null',
    ],
    [
      "insert into things (email) values ('a@example.com'), ('a@example.com')",
      'column [email]: is not unique',
    ],
  ])(
    'keeps the rules of the table, and stores nothing when they are broken: %s',
    async (statement, message) => {
      await records("insert into things (name) select 'kept' where not exists (select from things)")
      const before = await records('select * from things order by id')
      expect(await refused(statement)).toContain(message)
      expect(await records('select * from things order by id')).toEqual(before)
    },
  )

  it('writes any number of records, up to the limit of rows', async () => {
    const on = { branch: 'many' }
    await branches.fork('many')
    const insert = (count: number, end = '') =>
      ask(`insert into teams (name) select 't' || i from generate_series(1, ${count}) i ${end}`, on)
    const before = (await records('select count(*) from teams', on))[0]?.count as number
    expect((await insert(2500)).body).toMatchObject({ total: 2500 })
    const changed = await ask("update teams set size = 71 where name like 't%' returning name", on)
    expect(changed.body.total).toBe(2500)
    expect(changed.body.records).toHaveLength(2500)
    expect(await records('select count(*) from teams where size = 71', on)).toEqual([
      { count: 2500 },
    ])
    expect((await ask('delete from teams where size = 71', on)).body).toMatchObject({ total: 2500 })
    expect(await records('select count(*) from teams', on)).toEqual([{ count: before }])
  })

  it('finds the conflicts of many records before it writes', async () => {
    const on = { branch: 'conflicts' }
    await branches.fork('conflicts')
    const insert = (from: number, end: string) =>
      ask(
        `insert into teams (id, name) select 't' || i, 'new' from generate_series(${from}, ${from + 1499}) i ${end}`,
        on,
      )
    expect((await insert(1, 'on conflict do nothing')).body).toMatchObject({ total: 1500 })
    expect((await insert(1001, 'on conflict (id) do nothing')).body).toMatchObject({ total: 1000 })
    const update =
      "on conflict (id) do update set name = excluded.name || '!' where teams.id <> 't2'"
    expect((await insert(2, update)).body).toMatchObject({ total: 1499 })
    expect(
      await records(
        `select name, count(*) from teams where id ~ '^t[0-9]+$' group by 1 order by 1`,
        on,
      ),
    ).toEqual([
      { name: 'new', count: 1001 },
      { name: 'new!', count: 1499 },
    ])
  })

  it('truncates tables, on the branch only', async () => {
    const on = { branch: 'emptied' }
    await branches.fork('emptied')
    const before = await records('select count(*) from teams')
    expect((await ask('truncate teams, things', on)).body).toEqual({
      records: [],
      columns: [],
      total: 0,
    })
    expect(await records('select count(*) from teams', on)).toEqual([{ count: 0 }])
    expect(await records('select count(*) from things', on)).toEqual([{ count: 0 }])
    expect(await records('select count(*) from teams')).toEqual(before)
    expect((await ask('truncate teams restart identity cascade', on)).body).toMatchObject({
      total: 0,
      notices: [expect.stringContaining('RESTART IDENTITY has no effect')],
    })
    expect((await ask('truncate nope', on)).body.message).toContain('table [nope] not found')
  })

  it('loses no change that is made at the same time', async () => {
    await records("insert into things (id, count) values ('race', 0)")
    const update = "update things set count = count + 1 where id = 'race'"
    await Promise.all(Array.from({ length: 12 }, () => records(update)))
    expect(await records("select count from things where id = 'race'")).toEqual([{ count: 12 }])
    const upsert = `insert into things (id, count) values ('upserts', 1)
      on conflict (id) do update set count = things.count + 1`
    await Promise.all(Array.from({ length: 12 }, () => records(upsert)))
    expect(await records("select count from things where id = 'upserts'")).toEqual([{ count: 12 }])
    const once =
      "insert into things (id, name) values ('once', $1) on conflict do nothing returning id"
    const params = Array.from({ length: 12 }, (_, number) => [`n${number}`])
    const made = await Promise.all(params.map((each) => records(once, { params: each })))
    expect(made.flat()).toEqual([{ id: 'once' }])
  })

  it('is not for keys that only read', async () => {
    const key = await createKey(service, 'sql-reader', { fields: { scope: { access: 'read' } } })
    expect((await ask('select 1', { key })).status).toBe(200)
    for (const statement of [
      'insert into things default values',
      "update things set name = 'x'",
      'delete from things',
    ]) {
      expect(await ask(statement, { key })).toMatchObject({
        status: 403,
        body: { code: 'key_scope' },
      })
    }
  })

  it('says nothing of files that opens them', async () => {
    await branches.put('main', 'things', 'pic', {
      photo: { name: 'a.txt', mediaType: 'text/plain', base64Content: 'aGk=' },
      photos: [{ id: 'p1', name: 'b.txt', mediaType: 'text/plain', base64Content: 'aGk=' }],
    })
    const [{ photo, photos }] = await records("select photo, photos from things where id = 'pic'")
    expect(photo).toMatchObject({ name: 'a.txt', size: 2 })
    expect(photos).toMatchObject([{ id: 'p1', name: 'b.txt' }])
    for (const file of [photo, photos[0]]) {
      expect(Object.keys(file)).not.toContain('key')
      expect(Object.keys(file)).not.toContain('sha256')
    }
  })
})

describe('POST /db/{branch}/sql/batch', () => {
  const batch = (statements: readonly object[], more: object = {}) =>
    branches.call('main', 'POST', '/sql/batch', { statements, ...more })

  it('runs statements one after the other, each on what the others wrote', async () => {
    const answer = await batch([
      { statement: "insert into things (id, count) values ('b1', $1)", params: [1] },
      { statement: "update things set count = count + 1 where id = 'b1' returning count" },
      { statement: "select count from things where id = 'b1'" },
      { statement: "delete from things where id = 'b1'" },
      { statement: "select count from things where id = 'b1'" },
    ])
    expect(answer.status).toBe(200)
    expect(answer.body.results).toMatchObject([
      { records: [], total: 1 },
      { records: [{ count: 2 }] },
      { records: [{ count: 2 }], columns: [{ name: 'count', type: 'int8' }], total: 1 },
      { total: 1 },
      { records: [], total: 0 },
    ])
  })

  it('reads as of one moment, in the form that is asked for', async () => {
    const statements = [{ statement: 'select 1' }, { statement: 'select 2, 3' }]
    const answer = await batch(statements, { responseType: 'array', consistency: 'strong' })
    expect(answer.body.results.map(({ rows }: { rows: unknown }) => rows)).toEqual([
      [[1]],
      [[2, 3]],
    ])
    expect((await batch([])).body).toEqual({ results: [] })
  })

  it('does all or nothing, and says which statement is at fault', async () => {
    const first = { statement: "insert into things (id) values ('b2')" }
    const late = await batch([first, { statement: 'select 1/0' }])
    expect(late).toMatchObject({
      status: 400,
      body: {
        code: 'invalid_sql',
        message: 'invalid SQL: division by zero',
        errors: [{ index: 1 }],
      },
    })
    expect(await batch([first, { statement: 'selec' }])).toMatchObject({
      status: 400,
      body: { errors: [{ index: 1, message: expect.stringContaining('selec') }] },
    })
    expect(await records("select id from things where id = 'b2'")).toEqual([])
  })
})

describe('limits', () => {
  let small: TestService
  /** A service with a time limit so short that a busy machine may exceed it with any statement. */
  let hasty: TestService
  const limits = {
    sqlLengthMax: 100,
    sqlStatementsMax: 2,
    sqlParametersMax: 2,
    sqlRowsMax: 3,
    sqlResultBytesMax: 1000,
  }
  beforeAll(async () => {
    small = await createTestService({ url: service.url, limits })
    hasty = await createTestService({ url: service.url, limits: { queryTimeoutMs: 400 } })
  })
  afterAll(async () => {
    await hasty.close()
    await small.close()
  })

  const askSmall = (statement: string, more: object = {}): Promise<Answer> =>
    small.call('POST', `${service.workspace}/db/shop:main/sql`, {
      key: service.key,
      body: { statement, ...more },
    })
  const askInHaste = (statement: string): Promise<Answer> =>
    hasty.call('POST', `${service.workspace}/db/shop:main/sql`, {
      key: service.key,
      body: { statement },
    })
  const batchSmall = (statements: readonly object[]): Promise<Answer> =>
    small.call('POST', `${service.workspace}/db/shop:main/sql/batch`, {
      key: service.key,
      body: { statements },
    })

  const series = (count: number) => `select i from generate_series(1, ${count}) i`

  it.each([
    `select 'abc' like $1`,
    `select 'abc' ilike $1`,
    `select 'abc' ~ $1`,
    `select strpos('abc', $1)`,
    `select replace('abc', 'b', $1)`,
  ])('of patterns, the same for parameters as for constants: %s', async (statement) => {
    const answerTo = (length: number) => ask(statement, { params: ['x'.repeat(length)] })
    expect(await answerTo(1)).toMatchObject({ status: 200 })
    expect(await answerTo(PATTERN_BYTES_MAX)).toMatchObject({ status: 200 })
    expect(await answerTo(PATTERN_BYTES_MAX + 1)).toMatchObject({
      status: 400,
      body: { code: 'query_too_costly' },
    })
  })

  it('of written records, if all are needed at once', async () => {
    const written = (count: number, { first = '', rest = '' } = {}) =>
      askSmall(
        `${first}insert into teams(name)select 'limit' from generate_series(1,${count})${rest}`,
      )
    for (const parts of [
      { rest: 'returning id' },
      { rest: 'on conflict(id)do update set size=1' },
      { first: 'with d as(delete from empty)' },
    ]) {
      expect((await written(3, parts)).body).toMatchObject({ total: 3 })
      expect((await written(4, parts)).body.message).toBe(
        'invalid SQL: a statement with RETURNING, ON CONFLICT DO UPDATE or a WITH that writes can write at most 3 records',
      )
    }
    expect((await written(4)).body).toMatchObject({ total: 4 })
    expect((await askSmall("delete from teams where name = 'limit'")).body).toMatchObject({
      total: 13,
    })
  })

  it('of rows: a result with more of them is refused, not cut', async () => {
    expect((await askSmall(series(3))).body).toMatchObject({ total: 3 })
    expect((await askSmall(series(3))).body).not.toHaveProperty('warning')
    expect(await askSmall(series(4))).toMatchObject({
      status: 400,
      body: { code: 'query_too_costly', message: expect.stringContaining('more than 3 rows') },
    })
    const batch = await batchSmall([{ statement: series(3) }, { statement: series(4) }])
    expect(batch).toMatchObject({ status: 400, body: { code: 'query_too_costly' } })
  })

  it('of rows: a caller that asks for the first ones learns that there are more', async () => {
    const first = { records: [{ i: 1 }, { i: 2 }], total: 2 }
    const { body } = await askSmall(series(3), { rowsMax: 2 })
    expect(body).toMatchObject({
      ...first,
      warning: 'only the first 2 rows are returned; use LIMIT and OFFSET for more',
    })
    const whole = await askSmall(series(2), { rowsMax: 2 })
    expect(whole.body).toMatchObject(first)
    expect(whole.body).not.toHaveProperty('warning')
    // Nobody gets more than the limit of the service.
    expect((await askSmall(series(4), { rowsMax: 9 })).body).toMatchObject({ total: 3 })
    expect((await askSmall(series(1), { rowsMax: 0 })).status).toBe(400)
  })

  it('of rows: a client of Xata gets 1000 of them, with a warning', async () => {
    const answer = await service.call('POST', `${service.workspace}/db/shop:main/sql`, {
      key: service.key,
      headers: { 'x-xata-client-id': 'c' },
      body: { statement: series(1001) },
    })
    expect(answer).toMatchObject({
      status: 200,
      body: { total: 1000, warning: expect.stringContaining('first 1000 rows') },
    })
    expect((await ask(series(1001))).body.records).toHaveLength(1001)
  })

  it('of the answer, in bytes of all its statements', async () => {
    const select = (length: number) => `select repeat('x', ${length}) as a`
    const around = '{"a":""}'.length
    expect((await askSmall(select(1000 - around))).status).toBe(200)
    expect(await askSmall(select(1001 - around))).toMatchObject({
      status: 400,
      body: { code: 'query_too_costly' },
    })
    const half = { statement: select(500) }
    expect((await batchSmall([half])).status).toBe(200)
    expect((await batchSmall([half, half])).status).toBe(400)
  })

  it('of statements, their length and their parameters', async () => {
    const long = `select ${' '.repeat(92)}1`
    expect((await askSmall(long)).status).toBe(200)
    expect((await askSmall(`${long} `)).body.message).toContain('100 characters')
    const one = { statement: 'select 1' }
    expect((await batchSmall([one, one])).status).toBe(200)
    expect((await batchSmall([one, one, one])).body.message).toContain('2 statements')
    // The number is checked before each statement is validated.
    expect((await batchSmall([{}, {}, {}])).body.message).toContain('2 statements')
    expect((await askSmall('select $1, $2', { params: [1, 2] })).status).toBe(200)
    expect((await askSmall('select $1, $2, $3', { params: [1, 2, 3] })).body.message).toContain(
      '2 parameters',
    )
  })

  it.each([
    'select count(*) from generate_series(1, 100000000000) i',
    'with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n',
    'select count(*) from users a, users b, generate_series(1, 99999999) i',
    'update users set age = (select count(*) from generate_series(1, 1e11))',
  ])('of time: the statement is stopped in PostgreSQL: %s', async (statement) => {
    const answer = await askInHaste(statement)
    expect(answer).toMatchObject({ status: 400, body: { code: 'query_too_costly' } })
  })

  it.each([
    "with recursive t(s) as (select 'x' union all select s || s from t) select length(max(s)) from t",
    'select jsonb_agg(i) from generate_series(1, 99999999) i',
  ])('of memory and time together: %s', async (statement) => {
    expect(await askInHaste(statement)).toMatchObject({
      status: 400,
      body: { code: 'query_too_costly' },
    })
  })

  it('leaves the connections as they were', async () => {
    const settings = await Promise.all(
      Array.from({ length: 10 }, () =>
        hasty.database.query(template`
          select current_setting('search_path') as path, current_user = session_user as self,
            current_setting('jit') as jit, current_setting('work_mem') as memory`),
      ),
    )
    expect(new Set(settings.map((row) => JSON.stringify(row))).size).toBe(1)
    expect(settings[0]).toMatchObject([{ self: true }])
    expect(JSON.stringify(settings[0])).not.toContain('"pg_catalog"')
  })
})

describe('rights', () => {
  /** Finds the schema of a database and the role that reads it. */
  async function findRole(database: string): Promise<{ schema: string; role: string }> {
    const [row] = await service.database.query<{ schema: string; role: string }>(template`
      select 'offshoot_db_' || d.id as schema, format('offshoot_%s_db_%s', i.id, d.id) as role
      from offshoot.databases d, offshoot_work.identity i
      where d.name = ${database}`)
    if (row === undefined) throw new Error('there must be such a database')
    return row
  }

  const findHeap = async (schema: string) => {
    const [heap] = await service.database.query<{ name: string }>(template`
      select tablename as name from pg_tables
      where schemaname = ${schema} and tablename like 'heap_%' order by 1 desc limit 1`)
    return tableIn(schema, heap?.name ?? '')
  }

  it('are those of a role that reads the rows of the database and nothing else', async () => {
    await records('select 1')
    const { schema, role } = await findRole(branches.database)
    const neighbour = await TestBranches.create(service, 'neighbour', { t: [] })
    await neighbour.put('main', 't', 'a', {})
    const others = await findRole(neighbour.database)
    const { isCluster } = service.database.server
    const asReader = async (statement: Sql) => {
      const client = await service.database.pool.connect()
      try {
        await client.query('begin')
        // On a cluster, the node of the database changes the role, and has no catalogue.
        if (!isCluster) await client.query(`set local role ${role}`)
        const call = { statement: compileStatement(statement), values: [], node: { schema, role } }
        return (await runPipeline(client, [call]))[0]?.length
      } catch (error) {
        return (error as { code: string }).code
      } finally {
        await client.query('rollback')
        client.release()
      }
    }
    const heap = await findHeap(schema)
    expect(await asReader(template`select 1 from ${heap} limit 1`)).toBeTypeOf('number')
    const [FORBIDDEN, UNDEFINED_TABLE, SYNTAX_ERROR] = ['42501', '42P01', '42601']
    const refusals: [statement: Sql, ...onNode: string[]][] = [
      [template`select * from offshoot.api_keys`, UNDEFINED_TABLE],
      [template`select * from offshoot.users`, UNDEFINED_TABLE],
      [template`delete from ${heap} returning id`],
      // A statement with the physical name of a table, as if it had not been translated.
      // It can be on another node.
      [
        template`select 1 from ${await findHeap(others.schema)} limit 1`,
        FORBIDDEN,
        UNDEFINED_TABLE,
      ],
      [template`select 1 from ${tableIn(schema, 'idempotency_keys')}`],
      [template`select pg_read_file('/etc/passwd')`],
      [template`select * from pg_authid`],
      // A node prepares the statement.
      [template`create table ${tableIn(schema, 'x')} (a int)`, SYNTAX_ERROR],
    ]
    for (const [statement, ...onNode] of refusals) {
      const codes = isCluster && onNode.length > 0 ? onNode : [FORBIDDEN]
      expect(codes, toQuery(statement).text).toContain(await asReader(statement))
    }
  })

  it('cover tables that are made later', async () => {
    await branches.edit('main', { addTable: { table: 'later' } })
    await records("insert into later (id) values ('a')")
    expect(await records('select id from later')).toEqual([{ id: 'a' }])
  })

  it('are granted to a new role if an administrator has dropped the role', async () => {
    const { role } = await findRole(branches.database)
    for (const statement of [
      'select 1 as one',
      "insert into later (id) values ('b') returning id",
    ]) {
      await records(statement)
      await records('delete from later')
      await service.database.query(template`drop owned by ${ident(role)}`)
      await service.database.query(template`drop role ${ident(role)}`)
      expect(await records(statement)).toHaveLength(1)
      const found = await service.database.query(template`
        select from pg_roles where rolname = ${role}`)
      expect(found).toHaveLength(1)
    }
  })

  it('are renewed for a table that was being made while they were granted', async () => {
    await branches.edit('main', { addTable: { table: 'meanwhile' } })
    await records("insert into meanwhile (id) values ('a')")
    const { schema, role } = await findRole(branches.database)
    const [heap] = await service.database.query<{ name: string }>(template`
      select 'heap_' || h.id as name
      from offshoot.heaps h
      where 'offshoot_db_' || h.database_id = ${schema}
      order by h.id desc
      limit 1`)
    await service.database.query(template`
      revoke select on ${ident(schema)}.${ident(heap?.name ?? '')} from ${ident(role)}`)
    expect(await records('select id from meanwhile')).toEqual([{ id: 'a' }])
    expect(await records("delete from meanwhile where id = 'a' returning id")).toHaveLength(1)
  })
})
