import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.js'
import { openShop, type WireShop } from '../support/wire-clients.js'

/* Types that are stored as others behave like those of PostgreSQL: each statement is run on both. */

const SCHEMA = `
  create type mood as enum ('sad', 'ok', 'happy', 'a "quote''s');
  create table people (id text primary key, name text, mood mood, next mood);
  create table notes (id text primary key, person text, mood mood)`
const ROWS = `
  insert into people (id, name, mood, next) values
    ('p1', 'Ann', 'happy', 'ok'), ('p2', 'Bob', 'sad', 'happy'), ('p3', 'Cy', 'ok', null), ('p4', 'Di', null, 'sad'),
    ('p5', 'Eve', 'a "quote''s', 'sad'), ('p6', 'Flo', 'ok', 'ok');
  insert into notes (id, person, mood) values ('n1', 'p1', 'sad'), ('n2', 'p1', 'happy'), ('n3', 'p2', 'ok')`

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
async function expectSame(statement: string, values: unknown[] = []): Promise<void> {
  const expected = await plain.pool.query({ text: statement, values, rowMode: 'array' })
  const found = await client.query({ text: statement, values, rowMode: 'array' })
  expect(found.rows).toEqual(expected.rows)
  expect(found.fields.map(({ name }) => name)).toEqual(expected.fields.map(({ name }) => name))
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
    'select id from (select id, mood as m from people) q(id, x) order by x, id',
    'with q as (select id, mood from people) select id from q order by mood, id',
    'with q(a, b) as (select id, mood from people) select a from q order by b, a',
    'select p.id, n.id from people p left join notes n on n.person = p.id order by n.mood, p.mood, p.id',
    'select * from people p left join notes n on n.person = p.id order by n.mood, p.mood, p.id',
    'select * from people join notes using (mood) order by mood, people.id, notes.id',
    'select mood from people natural join (select mood from notes) q order by mood',
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
  ])('when they are compared: %s', async (statement) => {
    await expectSame(statement)
  })

  it('when they are compared with parameters', async () => {
    await expectSame('select id from people where mood > $1 and next < $2 order by mood, id', [
      'sad',
      'happy',
    ])
  })

  it('as soon as a value is added between others', async () => {
    for (const each of [client, plain.pool]) {
      await each.query(`alter type mood add value 'so-so' before 'ok'`)
      await each.query(`update people set mood = 'so-so' where id = 'p6'`)
    }
    await expectSame('select id, mood from people order by mood, id')
    await expectSame("select id from people where mood < 'ok' order by id")
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
