import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.js'
import { expectOk } from '../support/tables.js'
import {
  describeStatement,
  message,
  openShop,
  parse,
  query,
  sync,
  type WireShop,
} from '../support/wire-clients.js'

/* Types that are stored as others behave like those of PostgreSQL: each statement is run on both. */

const SCHEMA = `
  create type mood as enum ('sad', 'ok', 'happy', 'a "quote''s');
  create table people (id text primary key, name text, mood mood, next mood);
  create table notes (id text primary key, person text, mood mood);
  create table items (id serial primary key, small smallint, medium integer, large bigint, exact numeric(10, 2));
  create table parts (id bigserial primary key, item integer references items (id) not deferrable, medium integer);
  create table codes (id serial primary key, code varchar(3), note varchar(4));
  create table visits (id serial primary key, at timestamp not null, until timestamp(3), zoned timestamptz)`
const ROWS = `
  insert into people (id, name, mood, next) values
    ('p1', 'Ann', 'happy', 'ok'), ('p2', 'Bob', 'sad', 'happy'), ('p3', 'Cy', 'ok', null), ('p4', 'Di', null, 'sad'),
    ('p5', 'Eve', 'a "quote''s', 'sad'), ('p6', 'Flo', 'ok', 'ok');
  insert into notes (id, person, mood) values ('n1', 'p1', 'sad'), ('n2', 'p1', 'happy'), ('n3', 'p2', 'ok');
  insert into items (small, medium, large, exact) values
    (1, 10, 100, 1.5), (2, null, 200, 2.5), (-32768, -2147483648, -9007199254740991, 0), (32767, 2147483647, 7, null);
  insert into visits (at, until, zoned) values
    ('2026-03-04 05:06:07.123', '2026-03-05 00:00:00', '2026-03-04 05:06:07.123+02'), ('2026-07-08 22:30:00', null, null);
  insert into parts (item, medium) values (1, 5), (1, 6), (2, null)`

let shop: WireShop
let client: pg.Client
let plain: TestDatabase
beforeAll(async () => {
  shop = await openShop({})
  client = shop.client
  plain = await createTestDatabase()
  for (const each of [client, plain.pool]) {
    await each.query(SCHEMA)
    await each.query(ROWS)
  }
})
afterAll(async () => {
  await shop?.close()
  await plain?.close()
})

/** Runs a statement on the branch and on PostgreSQL, and expects the same rows in the same order. */
async function expectSame(statement: string, values: unknown[] = []) {
  const expected = await plain.pool.query({ text: statement, values, rowMode: 'array' })
  const found = await client.query({ text: statement, values, rowMode: 'array' })
  expect(found.rows).toEqual(expected.rows)
  expect(found.fields.map(({ name }) => name)).toEqual(expected.fields.map(({ name }) => name))
  return { found: found.fields, expected: expected.fields }
}

describe('values of an enum have the order of its list', () => {
  it.each([
    'select mood from people order by mood, id',
    'select id from people order by mood desc nulls last, id',
    'select id, mood as m from people order by m, id',
    'select id, mood from people order by 2 desc, 1',
    'select * from people order by mood, id',
    'select * from people order by 3, 1',
    'select p.* from people p order by p.mood, p.id',
    'select p.id from public.people p order by p.mood desc, p.id',
    'select id from people order by coalesce(mood, next), id',
    "select id from people order by coalesce(mood, 'sad'), id",
    "select id from people order by case when name < 'C' then mood else next end, id",
    'select id from people order by greatest(mood, next), least(mood, next), id',
    'select greatest(mood, next) as g, least(mood, next) as l from people order by id',
    'select name as mood from people order by mood',
    'select upper(name) as mood from people order by mood desc',
    'select mood from people order by name desc',
    'select id from (select * from people) q order by mood, id',
    "select mood from people union select 'ok' order by 1",
    "select 'ok' as mood union all select mood from people order by mood",
    "select id, mood from people union all select 'p9', null order by 2, 1",
    "select max(mood) from (select mood from people union all select 'sad') q",
    "select mood from people except select 'happy' order by 1",
    'select id from (select id, mood as m from people) q(id, x) order by x, id',
    'with q as (select id, mood from people) select id from q order by mood, id',
    'with q(a, b) as (select id, mood from people) select a from q order by b, a',
    'select p.id, n.id from people p left join notes n on n.person = p.id order by n.mood, p.mood, p.id',
    'select * from people p left join notes n on n.person = p.id order by n.mood, p.mood, p.id',
    'select * from people join notes using (mood) order by mood, people.id, notes.id',
    'select mood from people natural join (select mood from notes) q order by mood',
    'select * from people p join notes n on n.person = p.id order by 3 desc, 7, 1, 5',
    "select id, 'ok'::mood as m from people order by m, id",
    'select id from people order by (mood, id)',
    'select id from people order by row(next, (mood, id)) desc',
    'select id, row_number() over (order by (mood, id)) as n from people order by id',
    'select array_agg(id order by (mood, id)) as ids from people',
    "select id from people order by case when name < 'C' then 'happy'::mood else 'ok' end, id",
    "select m from (values ('ok'::mood), ('sad'), ('happy')) q(m) order by m",
    'select id from people order by (select max(n.mood) from notes n where n.person = people.id), id',
    'with w as (update notes set person = person returning mood, id) select id from w order by mood',
  ])('when they are sorted: %s', async (statement) => {
    await expectSame(statement)
  })

  it.each([
    'select distinct mood from people order by mood',
    'select distinct mood, name from people order by name, mood desc',
    'select distinct p.mood from people p order by p.mood',
    'select distinct mood as m from people order by m limit 2 offset 1',
    'select distinct upper(name) as n, mood from people order by upper(name), mood',
    'select distinct on (mood) mood, id from people order by mood, id desc',
    'select distinct on (name) name, mood from people order by name, mood',
    'select distinct on (1) mood, id from people order by 1, 2 desc',
    'select distinct on (m) mood as m, id from people order by m desc, id',
    'select distinct on (n) upper(name) as n, id from people order by n, id',
    'select distinct on (mood) mood as m, p.mood from notes n left join people p using (mood) order by mood desc, 1',
    'select mood from people union select mood from notes order by mood',
    'select mood, id from people union all select mood, id from notes order by 1 desc, 2',
    'select mood from people except select mood from notes order by 1',
    'select mood from people intersect select next from people order by mood desc limit 1',
    '(select mood from people order by mood limit 1) union all (select mood from people order by mood desc nulls last limit 1) order by mood',
    "with recursive r(id, mood) as (select id, mood from people where id = 'p1' union all select p.id, p.mood from people p join r on p.id > r.id and p.id < 'p4') select distinct mood, id from r order by mood, id",
  ])('without repetitions and in sets: %s', async (statement) => {
    await expectSame(statement)
  })

  it.each([
    'select min(mood), max(mood), min(next) filter (where next > mood) from people',
    'select name < $1 as early, max(mood) from people group by 1 order by max(mood)',
    'select mood, count(*) from people group by mood order by mood',
    "select mood, count(*)::int as n from people group by 1 having mood > 'sad' order by mood desc",
    'select id, rank() over (order by mood) from people order by id',
    'select id, max(mood) over (order by id) from people order by id',
    'select id, lag(mood) over w, first_value(mood) over w from people window w as (order by mood, id) order by id',
    "select string_agg(id, ',' order by mood, id) from people",
    'select array_agg(mood order by mood)::text[] from people',
    "select string_agg(mood::text, ',' order by mood) from people",
    'select (array_agg(id order by mood desc nulls last, id))[1] from people',
    'select (array_agg(mood order by mood desc nulls last))[1] as m from people group by name order by m',
    'select mode() within group (order by mood), percentile_disc(0.5) within group (order by mood desc) from people',
    'select mood, next, count(*) from people group by grouping sets ((mood, 2), (mood), ()) order by 1, 2, 3',
    'select mood as m, name, count(*) from people group by rollup ((m, name)) order by 1, 2, 3',
    "select 'ok'::mood as m, count(*) from people group by rollup ('ok'::mood) order by 1",
    "select coalesce('ok'::mood, mood), next, count(*) from people group by cube (coalesce('ok'::mood, mood), next) order by 1 desc, 2, 3",
    "select case when id < 'p3' then 'ok'::mood else mood end as m, count(*) from people group by grouping sets ((case when id < 'p3' then 'ok'::mood else mood end), ()) order by m",
    'select mood, count(*) as n from people group by rollup (mood) having count(*) > 1 order by count(*), mood limit 2',
    'select mood from people group by rollup (mood) order by grouping(mood) desc, mood',
  ])('in groups and windows: %s', async (statement) => {
    await expectSame(statement, statement.includes('$1') ? ['C'] : [])
  })

  it.each([
    "select id from people where mood > 'sad' order by id",
    "select id from people where 'ok' >= mood order by id",
    "select id from people where mood between 'ok' and 'happy' order by id",
    "select id from people where mood not between symmetric 'happy' and 'ok' order by id",
    'select id from people where mood < next order by id',
    "select id from people where mood < 'happy'::mood order by id",
    "select id from people where mood = 'ok' or mood in ('sad', 'happy') order by id",
    'select p.id from people p where exists (select 1 from notes n where n.mood > p.mood) order by 1',
    "update people set name = name where mood <= 'ok' returning id, mood",
    "select 'happy'::mood > 'ok' as a, $$sad$$::mood < $$ok$$::text::mood as b",
    "select id from people where (mood, id) > ('ok', 'p3') order by id",
    'select id from people where mood >= all (select n.mood from notes n) order by id',
    'select id from people where next < any (select n.mood from notes n where n.person = people.id) order by id',
    "select id from people where mood > all (array['sad', 'ok']::mood[]) order by id",
    "select id from people where mood <= any ('{}'::mood[]) or mood < any (null::mood[]) order by id",
  ])('when they are compared: %s', async (statement) => {
    await expectSame(statement)
  })

  it('when they are compared with parameters', async () => {
    await expectSame('select id from people where mood > $1 and next < $2 order by mood, id', [
      'sad',
      'happy',
    ])
  })

  it.each<[string, unknown[]?]>([
    ["select id from people where mood = 'glad'"],
    ["select id from people where 'glad' <> mood"],
    ["select id from people where mood < 'glad'"],
    ["select id from people where mood in ('sad', 'glad')"],
    ["select id from people where mood not in ('glad')"],
    ["select id from people where mood between 'sad' and 'glad'"],
    ["select id from people where mood is distinct from 'glad'"],
    ["select id from people where mood = any(array['sad', 'glad']::mood[])"],
    ["select id from people where (mood, next) = ('sad', 'glad')"],
    ["select id from people where (mood, next) < ('glad', 'sad')"],
    ["select nullif(mood, 'glad') from people"],
    ["select coalesce(mood, 'glad') from people"],
    ["select greatest(mood, 'glad') from people"],
    ["select case mood when 'glad' then 1 end from people"],
    ["select case when id = 'p1' then mood else 'glad' end from people"],
    ["select id from (select id, mood as m from people) q where m = 'glad'"],
    ["select 'glad'::mood"],
    ["update people set name = 'x' where mood = 'glad'"],
    ["delete from people where mood > 'glad'"],
    ['select id from people where mood = $1', ['glad']],
    ['select id from people where mood >= $1', ['glad']],
    ['select id from people where mood in ($1, $2)', ['sad', 'glad']],
    ['select $1::mood', ['glad']],
    ['delete from people where mood = $1', ['glad']],
  ])('so that a text which is none of its values is refused: %s', async (text, values = []) => {
    const [found, expected] = await Promise.all(
      [client, plain.pool].map((each) =>
        each.query(text, values).then(
          () => 'nothing',
          (error: { code: string; message: string }) => [
            error.code,
            error.message.replace(/; it has .*/, ''),
          ],
        ),
      ),
    )
    expect(found).toEqual(expected)
    expect(found).toEqual(['22P02', 'invalid input value for enum mood: "glad"'])
  })

  it('also if the statement has run with another text before', async () => {
    const refusal = 'invalid input value for enum mood: "glad"; it has sad, ok, happy, a "quote\'s'
    const named = (value: string | null) =>
      client.query({
        name: 'by-mood',
        text: 'select id from people where mood = $1',
        values: [value],
      })
    const written = (value: string) =>
      client.query(`select id from people where mood = '${value}' limit 100`)
    for (const value of ['sad', 'sad', null]) await named(value)
    await expect(named('glad')).rejects.toThrow(refusal)
    expect((await named('sad')).rowCount).toBe(1)
    for (const value of ['sad', 'ok', 'happy']) await written(value)
    await expect(written('glad')).rejects.toThrow(refusal)
  })

  it('over HTTP, too', async () => {
    const refusal = {
      code: 'invalid_sql',
      message: expect.stringContaining(
        'invalid input value for enum mood: "glad"; it has sad, ok, happy',
      ),
    }
    const wanted = "select id from people where mood = 'glad'"
    const bad = [
      { statement: wanted },
      { statement: wanted.replace("'glad'", '$1'), params: ['glad'] },
      {
        statements: [
          { statement: 'select 1' },
          { statement: wanted.replace("'glad'", '$1'), params: ['glad'] },
        ],
      },
    ]
    for (const body of bad) {
      const path = 'statements' in body ? '/sql/batch' : '/sql'
      const answer = await shop.branches.call('main', 'POST', path, body)
      expect([answer.status, answer.body]).toEqual([400, expect.objectContaining(refusal)])
    }
  })

  it('as soon as a value is added between others', async () => {
    for (const each of [client, plain.pool]) {
      await each.query(`alter type mood add value 'so-so' before 'ok'`)
      await each.query(`update people set mood = 'so-so' where id = 'p6'`)
    }
    await expectSame('select id, mood from people order by mood, id')
    await expectSame("select id from people where mood < 'ok' order by id")
  })

  it('also in statements that are too long to be planned at once', async () => {
    const many = Array.from({ length: 5000 }, () => "'ok'").join(', ')
    await expectSame(
      `select id from people where mood >= 'ok'::mood and mood in (${many}, 'happy') order by mood, id`,
    )
    await expect(
      client.query(`select id from people where mood = 'glad'::mood or mood in (${many})`),
    ).rejects.toThrow('invalid input value for enum mood: "glad"')
  })

  it('up to a length of the statement as it is written out', async () => {
    const values = Array.from({ length: 1000 }, (_, n) => `'value ${n}'`)
    await client.query(`create type wide as enum (${values.join(', ')})`)
    await client.query('create table wides (id text primary key, a wide, b wide)')
    const where = (count: number) => Array.from({ length: count }, () => 'a < b').join(' or ')
    await client.query(`select id from wides where ${where(50)}`)
    await expect(client.query(`select id from wides where ${where(1000)}`)).rejects.toThrow(
      'the statement is longer than 4194304 characters when its tables and enums are written out',
    )
  })

  it.each([
    [
      'by ORDER BY',
      (query: string) => `select (${query}) as mood from people order by mood limit 1`,
    ],
    [
      'by DISTINCT ON',
      (query: string) => `select distinct on (mood) (${query}) as mood from people limit 1`,
    ],
  ])('without a text that doubles with each subquery (%s)', async (_, around) => {
    let query = 'select mood from people order by mood limit 1'
    for (let depth = 0; depth < 40; depth++) query = around(query)
    await expect(client.query(query)).rejects.toThrow('longer than 4194304 characters when its')
  })

  it('also if thousands of expressions are looked for among those of the result', async () => {
    await client.query('create table z (id text primary key, m mood)')
    const targets = Array.from({ length: 1400 }, (_, number) => `m||${number}`)
    const sorts = Array.from({ length: 11_000 }, () => 'm')
    const query = `select distinct ${targets.join(',')} from z order by ${sorts.join(',')}`
    // It is planned, which has a limit of time, and then refused by PostgreSQL.
    await expect(client.query(query)).rejects.toMatchObject({ code: '42P10' })
  })

  it('on a fork and over HTTP', async () => {
    await shop.branches.fork('moods')
    const fork = await shop.wire.connect('shop:moods')
    const sorted = 'select id from people order by mood desc nulls last, id'
    const { rows } = await plain.pool.query(sorted)
    expect((await fork.query(sorted)).rows).toEqual(rows)
    await fork.end()
    const { body } = await shop.service.call('POST', '/db/shop:moods/sql', {
      body: { statement: sorted },
    })
    expect(body.records).toEqual(rows)
  })
})

/** Expects the same rows, and the same types of columns. */
async function expectSameTypes(statement: string, values: unknown[] = []): Promise<void> {
  const { found, expected } = await expectSame(statement, values)
  const typesOf = (fields: typeof found) => fields.map(({ dataTypeID }) => dataTypeID)
  expect(typesOf(found)).toEqual(typesOf(expected))
}

describe('whole numbers have the type that they are declared with', () => {
  it.each([
    'select * from items order by id',
    'select i.* from items i order by i.small',
    'select id, small, medium, large from items order by medium desc nulls last limit 2',
    'select small as a, medium as "B c", large as a from items where id = 1',
    'select id from items where id = 1',
    'select count(*), max(id), min(small), sum(medium), avg(medium)::float8 from items',
    'select sum(small) / 2 as half, sum(large) as total from items where id < 3',
    'select medium + 1 as more, small * 2 as twice, -small as minus, medium / 3 as third, medium % 3 as rest, small + small as s from items where id < 3 order by id',
    'select medium + large as big, medium + exact as exact, medium::bigint as cast, large::int as back from items where id = 1',
    'select coalesce(medium, 0) as a, coalesce(small, medium) as b, coalesce(medium, large) as c, nullif(small, 1) as d from items order by id',
    'select case when small > 1 then medium else small end as c, greatest(small, medium) as g, abs(medium) as a from items where id < 3 order by id',
    'select lag(medium) over (order by id) as l, row_number() over (order by id) as n, max(small) over () as m from items order by id',
    'select distinct medium from items order by medium',
    'select medium from items group by medium order by medium',
    'select medium from items union select medium from parts order by 1',
    'select small from items union all select medium from parts order by 1',
    'select large from items union all select medium from parts order by 1',
    'select m from (select medium as m, id from items) q order by id',
    'with q as (select id, medium from items) select q.medium, p.item from q join parts p on p.item = q.id order by p.id',
    'with recursive n(i) as (select 1 union all select i + 1 from n where i < 3) select n.i, items.small from n join items on items.id = n.i order by 1',
    'select * from items join parts using (id) order by id',
    'select * from items i left join parts p on p.item = i.id order by i.id, p.id',
    'select p.id, p.item, i.id as "itemId" from parts p join items i on i.id = p.item order by p.id',
    'select 1 as one, 10000000000 as large, null as nothing, true as yes',
    'select (select max(medium) from parts) is null as n, exists (select 1 from parts) as e',
    'values (1, 2), (3, 4)',
    'select medium & small as a, small | 1::smallint as b, medium # 3 as c, ~small as d from items where id < 3 order by id',
    'select bit_or(medium) as a, bit_and(small) as b, any_value(small) filter (where id = 1) as c, mode() within group (order by small) as d, percentile_disc(0.5) within group (order by medium) as e from items',
    'select medium + length($$abc$$) as a, coalesce(medium, length($$abc$$)) as b, greatest(small, extract(day from now())::int) > 0 as c from items where id < 3 order by id',
    'select (array_agg(medium order by id))[1] as a, array_agg(small order by id) as b, array[small, small] as c from items where id = 1 group by small',
    'select (select i.medium from items i where i.id = 1) as a, lag(small, 1, 0) over (order by id) as b from items order by id',
    'select medium from items union all select length($$abc$$) order by 1',
    'select m from (values (1::smallint), (2::smallint)) q(m) union select small from items order by 1',
    'with recursive r(a, b) as (select 1, medium from items where id = 1 union all select medium, 1 from items join r on r.a = 1 and items.id = 1) select * from r order by 1, 2',
    "select substr('abcdef', small), left('abc', small), '[1, 2, 3]'::jsonb -> small as j, (array['a', 'b', 'c'])[small] as e from items where id < 3 order by id",
    "select '2026-01-01'::date + small as d, make_date(2026, small, small) as m, '2026-01-01'::timestamp + make_interval(days => small) as i from items where id < 3 order by id",
    'select n, n + small as s from items, generate_series(1, small) n where id < 3 order by id, n',
    'select * from (select * from items i join parts p on p.item = i.id) x',
    'with x as (select * from items i left join parts p on p.item = i.id) select x.*, 1 as one from x order by large, item',
    'select x.* from (select q.* from (select i.small, p.* , i.id from items i, parts p) q) x where item = 1 and small = 2 order by medium',
    'select * from (select small as a, medium as a, large as a from items) x order by 1, 2',
    'select * from (select small, small from items) x(a, b) order by a',
    'select array(select medium from items order by id) as a, array(select small from items order by id) as b, (array(select small from items order by id))[2] as c, array(select large from items order by id) as d',
    'select unnest(array(select small from items order by id)) as u',
    'select a, a + small as s from items, unnest(array(select p.medium from parts p where p.item = items.id order by p.id)) a order by 1',
    'select id, medium = any(array(select i.medium from items i)) as y, array(select i.small from items i order by i.id) || small as c from items order by id',
    'select array(select at from visits order by id) as a, (array(select until from visits order by id))[1] as u, array(select zoned from visits order by id) as z',
    'select array(select small from items union select 7 order by 1) as a, array(select p.item from parts p where p.item = items.id) && array[1] as o from items order by id',
    'select nullif(small, exact) as a, nullif(small, large) as b, nullif(medium, small) as c, nullif(small, medium) as d, nullif(large, small) as e, nullif(small, 1.5) as f, nullif(medium, 1e0::float8) as g from items order by id',
    'select nullif(nullif(small, 2), exact) + 1 as a, nullif(medium + 1, null) as b, nullif(small, 30000000000) as c from items where id < 3 order by id',
    'select nullif(at, zoned) as a, nullif(zoned, at) as b, nullif(at, now()) as c, nullif(until, null) as d from visits order by id',
    'select min(small) as a, sum(distinct medium) as b, round(avg(small), 2) as c, to_json(array_agg(medium))::text as d from items where id = 1',
  ])('in results: %s', async (statement) => {
    await expectSameTypes(statement)
  })

  it.each([
    ['insert into items (small, medium, large) values ($1, $2, $3) returning *', [3, 30, 300]],
    ['insert into items (medium) values ($1) returning id, medium + 1 as next, large', ['31']],
    ['update items set medium = medium + 1 where id = $1 returning id, medium, small', [1]],
    [
      'update items i set small = p.medium from parts p where p.item = i.id and i.id = $1 returning i.id, p.medium, p.id',
      [2],
    ],
    ['delete from items where id = $1 returning items.*', [5]],
    [
      'with w as (insert into parts (item, medium) values ($1, 9) returning id, item, medium) select * from w',
      [4],
    ],
    ['select id, medium from items where medium = $1 and small < $2', [11, 100]],
    ['select id from items where id = any($1) order by id', [[1, 2]]],
    [
      'select coalesce(medium, $1) as m, small + $2 as s from items where id < 3 order by id',
      [5, 6],
    ],
  ])('with parameters: %s', async (statement, values) => {
    await expectSameTypes(statement, values)
  })

  it.each([
    ['numeric', '1.19', 'select medium * $1 as v from items where id = 1'],
    ['double precision', '4', 'select medium / $1 as v from items where id = 1'],
    ['numeric', '1.19', 'select sum(medium * $1) as v from items where id < 3'],
    ['numeric', '10.6', 'select medium % $1 as v from items where id = 1'],
    ['numeric', '10.6', 'select greatest(small, $1) as v from items where id < 3 order by id'],
    [
      'numeric',
      '10.6',
      'select case when id = 1 then medium else $1 end as v from items order by id',
    ],
    ['numeric', '0.5', 'select coalesce(medium, $1) as v from items where id < 3 order by id'],
    ['numeric', '1.19', 'select floor(medium * $1) as v from items where id = 1'],
    ['numeric', '1.5', 'select max(medium) * $1 as v from (select * from items) q where id < 3'],
    ['bigint', '5000000000', 'select medium + $1 as v from items where id = 1'],
    ['integer', '70000', 'select small * $1 as v from items where id = 1'],
    ['smallint', '7', 'select small + $1 as v from items where id = 1'],
    [
      'timestamptz',
      `'2026-03-04 05:06:07+00'`,
      'select coalesce(until, $1) as v from visits order by id',
    ],
    [
      'timestamp',
      `'2026-03-04 05:06:07'`,
      'select coalesce(until, $1) as v from visits order by id',
    ],
    ['text', `'x'`, `select concat($1, 'y', id) as v from items order by id`],
    ['varchar', `'x'`, `select jsonb_build_object($1, id)::text as v from items order by id`],
    ['text', `'x'`, `select to_jsonb($1)::text as v`],
    ['text', `'x'`, `select format('%s-%s', $1, id) as v from items order by id`],
    ['text', `'2'`, `select json_agg($1)::text as v from items`],
  ])('beside parameters that are declared as %s (%s): %s', async (type, value, statement) => {
    const [found, expected] = await Promise.all(
      [client, await plain.pool.connect()].map(async (each) => {
        await each.query(`prepare declared (${type}) as ${statement}`)
        const { rows, fields } = await each.query(`execute declared (${value})`)
        await each.query('deallocate declared')
        if (each !== client) (each as pg.PoolClient).release()
        return { rows, types: fields.map(({ dataTypeID }) => dataTypeID) }
      }),
    )
    expect(found).toEqual(expected)
  })

  it.each([
    'insert into items (small) values (32768)',
    'insert into items (medium) values (2147483648)',
    'insert into items (id) values (2147483648)',
    'update items set medium = 2147483647 + id where id = 1',
    'select medium + 1 from items where id = 4',
    'select large * 1000000000000000000 from items where id = 3',
  ])('whose range no value leaves: %s', async (statement) => {
    const errors = await Promise.all(
      [client, plain.pool].map((each) =>
        each.query(statement).then(
          () => 'no error',
          (error: pg.DatabaseError) => error.code,
        ),
      ),
    )
    expect(errors).toEqual(['22003', '22003'])
  })

  it.each([
    'select from items where id = $1 and $2 < small and medium <> $3 and large >= $4',
    'select from items where small in ($1, $2) or medium between $3 and $4 or id = any($5) or small <> all($6)',
    'select coalesce(medium, $1), nullif(small, $2), greatest(small, medium, $3) from items',
    'select case medium when $1 then small else $2 end, medium + $3, $4 * small, medium + large + $5 from items',
    'select from items where large = $1 or id = $1 or small = $2 or id = $2',
    'select medium + $1, count(*) from items where id is not distinct from $2 group by medium + $1',
    'select from items i join parts p on p.item = i.id and p.medium = $1 where i.id = (select max(id) from parts where item = $2)',
    'update items set medium = medium + $1, small = coalesce($2, small), id = $3 where id = $3',
    'delete from items where id = $1 and exists (select from parts where item = items.id and medium > $2)',
    'insert into items (medium) select medium + $1 from items where small = $2 returning small + $3',
    'select from items where id = $1::bigint and id + 1 = $2 and $3 = 1 and medium / $4 > 0.5',
  ])('in the description of parameters: %s', async (statement) => {
    const prepared = await plain.pool.connect()
    await prepared.query(`prepare described as ${statement}`)
    const { rows } = await prepared.query(
      `select parameter_types::oid[]::int[] as types from pg_prepared_statements where name = 'described'`,
    )
    await prepared.query('deallocate described')
    prepared.release()
    const raw = await shop.wire.openRaw()
    raw.send(parse(statement, 'a'), describeStatement('a'), sync())
    const { body = Buffer.alloc(0) } = (await raw.until('Z')).find(({ type }) => type === 't') ?? {}
    raw.close()
    const found = Array.from({ length: body.readInt16BE(0) }, (_, index) =>
      body.readInt32BE(2 + 4 * index),
    )
    expect(found).toEqual(rows[0].types)
  })

  it('in the range of parameters, but for callers that are not told the types', async () => {
    const statements: readonly (readonly [string, unknown[]])[] = [
      ['select id from items where id = $1', ['3000000000']],
      ['select id from items where small > $1', ['40000']],
      ['select id from items where medium = any($1)', [['3000000000']]],
    ]
    for (const [statement, params] of statements) {
      for (const each of [client, plain.pool]) {
        await expect(each.query(statement, params)).rejects.toMatchObject({ code: '22003' })
      }
      const answer = await shop.branches.call('main', 'POST', '/sql', { statement, params })
      expect(expectOk(answer).body.records).toEqual([])
    }
    const large = 'select id from items where large = $1 or id = $1'
    expect((await client.query(large, ['3000000000'])).rows).toEqual([])
  })

  it('in the binary form and in COPY', async () => {
    const { fields, rows } = await client.query({
      text: 'select id, small, medium from items where id = 1',
      rowMode: 'array',
      binary: true,
    } as pg.QueryArrayConfig)
    expect(fields.map(({ dataTypeID }) => dataTypeID)).toEqual([23, 21, 23])
    expect(rows).toEqual([[1, 1, 11]])
  })
})

describe('texts of a length lose the spaces beyond it', () => {
  it.each([
    `insert into codes (code, note) values ('abc  ', 'é  '), ('a    ', '    '), ('äöü  ', '😀😀 😀 ') returning *`,
    `insert into codes (code) select 'x' || repeat(' ', 9) returning code || '|' as c`,
    `update codes set code = code || '  ', note = '\u3000 ' where id < 3 returning code || '|' as c, note || '|' as n`,
  ])('%s', async (statement) => {
    await expectSame(statement)
  })

  it('and others are refused', async () => {
    for (const text of ['abcd', 'abcd ', 'abc \n', '   \t']) {
      for (const each of [client, plain.pool]) {
        await expect(
          each.query('insert into codes (code) values ($1)', [text]),
        ).rejects.toMatchObject({ code: '22001' })
      }
    }
    await expectSame('insert into codes (code) values ($1) returning code', ['   '.repeat(9)])
    await client.query('delete from codes')
    await plain.pool.query('delete from codes')
  })
})

describe('times without a zone are those of the session', () => {
  it.each([
    'select * from visits order by at',
    'select at, zoned from visits order by at desc limit 1',
    "select id from visits where at > '2026-03-04 05:06:07' and at < '2026-07-08 23:00' order by id",
    "select at + interval '1 day' as a, at - interval '1 hour' as b, until - at as c from visits order by id",
    "select date_trunc('day', at) as day, count(*) from visits group by 1 order by 1",
    'select * from (select v.*, w.at from visits v join visits w on w.id = v.id) x order by zoned',
    'select current_timestamp(3), localtimestamp(0), current_time(1), localtime(2) where false',
    "select extract(microseconds from localtimestamp(0))::bigint % 1000000 as a, current_timestamp(2) - now() < '1 s' as b, at < localtimestamp(6) as c from visits order by id",
    "select id from visits where (at, at + interval '1 hour') overlaps ('2026-03-04 05:30:00', '2026-03-04 05:40:00') order by id",
    "select (at, until) overlaps (zoned, interval '3 hours') as a, (at::date, at::date + 1) overlaps ('2026-07-08'::date, '2026-07-09'::date) as b, (at::time, interval '1 hour') overlaps (time '05:00', time '05:30') from visits order by id",
    "select (date '2001-02-16', date '2001-12-21') overlaps (date '2001-10-30', date '2002-10-30')",
    'select max(at), min(until), coalesce(until, at) as c from visits group by until, at order by 1',
    'select at::date as day, at::time as time, extract(hour from at)::int as hour, to_char(at, $$HH24:MI$$) as t from visits order by id',
    'select at from visits union select until from visits where until is not null order by 1',
    'select at::text as t, at || $$!$$ as c, concat(at, until) as d, to_json(at) as j, json_build_object($$at$$, at) as o from visits order by id',
    'select json_agg(at order by at) as j, string_agg(at::text, $$,$$ order by at) as s from visits',
    "select id from visits where at in ('2026-03-04 05:06:07.123') or at between '2026-07-01' and '2026-08-01' order by id",
    "select at + '1 day' as a, at at time zone 'Europe/Berlin' as z from visits order by id",
    "insert into visits (at) values ('2026-10-25 02:30:00') returning at, until",
    "update visits set until = at + interval '1 month' where id = 3 returning until",
    "select coalesce(until, at::date) as a, coalesce(until, now()::timestamp) > at as b, least(at, '2026-04-01'::timestamp) as c from visits order by id",
    "select case when id = 1 then at else '2026-01-01'::timestamp end as c, case at when '2026-03-04 05:06:07.123' then 1 else 2 end as d from visits order by id",
    "select at from visits union all select '2026-01-01'::timestamp order by 1",
    "select until from visits intersect select '2026-03-05'::timestamp",
    'select (select max(at) from visits) as a, mode() within group (order by at) as b, (array_agg(at order by at))[1] as c, array_agg(at order by at) as d from visits',
    "select array_agg(distinct at order by at desc) as a, at + at::time as b, '1 day' + at as c from visits group by at order by at",
    'select to_jsonb(v) as a, to_json(q)::text as b, row_to_json(v)::text as c from visits v left join (select id, at from visits where id = 1) q on q.id = v.id order by v.id',
    'select json_agg(v order by v.id)::text as a, count(q), count(v) from visits v left join (select id, at from visits where id = 1) q on q.id = v.id',
    'select row(v.*)::text as a, row(v.*, 1)::text as b, to_json(v.*) as c, row_to_json(row(q.*)) as d from visits v left join (select id, at from visits where id = 1) q on q.id = v.id order by v.id',
    'select row(v.*) = row(w.*) as a, row(v.*) < row(w.*) as b, v.* is distinct from w.* as c from visits v, visits w order by v.id, w.id',
    'select count(v.*), json_agg(row(v.*) order by v.id) as d from visits v',
    "select id from visits where (at, id) >= ('2026-03-04 05:06:07.123', 1) and at = any ('{2026-03-04 05:06:07.123}'::timestamp[]) order by id",
  ])('in results: %s', async (statement) => {
    await expectSameTypes(statement)
  })

  it('in COPY, in the zone of the session', async () => {
    const raw = await shop.wire.openRaw()
    const send = (text: string) => {
      raw.send(query(text))
      return raw.until('Z')
    }
    await send('begin')
    await send(`set local timezone = 'Asia/Kolkata'`)
    raw.send(query('copy visits (id, at, until) from stdin'))
    await raw.until('G')
    const rows = '71\t2026-01-02 03:04:05.678\t\\N\n72\t2026-01-02 03:04:05Z\t2026-12-31 23:59:59\n'
    raw.send(message('d', Buffer.from(rows)), message('c'))
    await raw.until('Z')
    const linesOf = async (text: string) =>
      (await send(text)).filter(({ type }) => type === 'd').map(({ body }) => body.toString())
    expect(
      await linesOf('copy (select id, at, until from visits where id > 70 order by id) to stdout'),
    ).toEqual([
      '71\t2026-01-02 03:04:05.678\t\\N\n',
      '72\t2026-01-02 03:04:05\t2026-12-31 23:59:59\n',
    ])
    await send(`set local timezone = 'UTC'`)
    expect(await linesOf('copy (select at from visits where id = 71) to stdout')).toEqual([
      '2026-01-01 21:34:05.678\n',
    ])
    await send('rollback')
    raw.close()
  })

  it('also with parameters, and in a session with another zone', async () => {
    for (const each of [client, plain.pool]) await each.query(`delete from visits where id = 3`)
    const there = await plain.pool.connect()
    try {
      for (const each of [client, there]) await each.query(`set timezone = 'Asia/Kolkata'`)
      const texts = { text: 'insert into visits (at) values ($1) returning at::text as text, at' }
      const values = ['2026-05-06T07:08:09.010Z']
      const [ours, theirs] = await Promise.all(
        [client, there].map((each) => each.query({ ...texts, values })),
      )
      expect(ours?.rows).toEqual(theirs?.rows)
      expect(ours?.fields.map(({ dataTypeID }) => dataTypeID)).toEqual([25, 1114])
      const found = 'select id from visits where at = $1 or at between $2 and $1 order by id'
      const [here, same] = await Promise.all(
        [client, there].map((each) => each.query(found, [values[0], '2026-05-06T07:08:09Z'])),
      )
      expect(here?.rows.length).toBe(1)
      expect(same?.rows.length).toBe(1)
    } finally {
      for (const each of [client, there]) await each.query('reset timezone')
      there.release()
    }
  })
})
