import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.js'
import { openShop, type WireShop } from '../support/wire-clients.js'

/* Letters beyond ASCII in SQL, compared with PostgreSQL on plain tables. */

const TABLES = `
  create table words (id integer primary key, v text, w varchar(20), n integer);
  create table patterns (id integer primary key, v text);
  insert into words values (1, 'Äa', 'äA', 1), (2, 'b', 'B', 2), (3, 'ÉCOLE', 'straße', 3), (4, null, 'Ö', 4);
  insert into patterns values (1, 'Ä%'), (2, 'éc%')`

const STATEMENTS: readonly [text: string, values?: string[]][] = [
  [
    'select upper(v), lower(v), initcap(v), upper(w), lower(w), lower(upper(w)) from words order by id',
  ],
  [`select id from words where lower(v) = 'äa' or lower(w) = lower($1)`, ['ö']],
  ['select id from words where v = upper($1)', ['école']],
  [
    `select v ilike 'ä%', v not ilike w, 'äa' ilike v, v ilike w, lower(v) ilike upper(w) from words order by id`,
  ],
  [
    `select v ~* '^ä', v !~* 'é', v ~ '^\\w+$', v ~ '^[[:upper:]]', v !~ '\\W', v ~ '^Ä', v similar to '[[:alpha:]]+' from words order by id`,
  ],
  [`select id from words where v ilike any (array['ä%', lower(w) || '%']) order by id`],
  ['select id from words where v ilike any ($1) order by id', ['{ä%,éc%}']],
  ['select id from words where v ilike any (select v from patterns) order by id'],
  [
    `select regexp_replace(v, '[[:upper:]]', lower(w), 'g'), regexp_match(v, '\\w+'), regexp_count(v, 'ä', 1, 'i') from words order by id`,
  ],
  [
    `select substring(v from '\\w+'), substring(v, n), substring(v from 1 for 1), regexp_substr(v, 'É.', 1, 1, 'i') from words order by id`,
  ],
  [
    `select regexp_matches(v, '\\w', 'g') as m, regexp_split_to_table(v, 'É') as s from words order by 1, 2`,
  ],
  [`select x from words, regexp_matches(words.v, '\\w', 'g') x order by 1`],
  [
    `select (regexp_match(v, '.'))[1] = upper(left(w, 1)), lower(v) < upper(w), lower(v) || upper(w), concat(lower(v), w), coalesce(lower(v), upper(w)), greatest(lower(v), upper(w)), lower(v) like lower(w), array[lower(v), upper(w)], row(lower(v), 1) < row(upper(w), 2) from words order by id`,
  ],
  ['select lower(v) from words union select upper(w) from words order by 1'],
  ['select distinct lower(v), count(*) over (partition by lower(v)) from words order by lower(v)'],
  [
    'select lower(v), max(upper(w)), string_agg(lower(w), $1 order by lower(w)) from words group by 1 order by 1',
    [','],
  ],
  [
    'with q as (select v, upper(w) as u from words) select upper(q.v), lower(q.u) from q order by q.u',
  ],
  [
    `select upper(int4range(1, n + 1)), lower('[2026-01-01,2026-02-01)'::daterange), upper(r.x) from (select n, int4range(n, n + 3) as x from words) r order by 3`,
  ],
  ['select lower(v collate "C"), upper(v) collate "C" < w from words order by id'],
]

const WRITES = [
  `update words set v = initcap(w), w = upper(v) where lower(w) = 'äa' returning v, w, lower(v), v ilike 'ä%'`,
  `insert into words (id, v) values (5, lower('ÄX')) returning upper(v), v ilike 'Ä_'`,
  `delete from words where upper(v) = 'ÄX' returning upper(v)`,
]

const REFUSED = ['select n ilike $1 from words', 'select upper(n) from words']

let shop: WireShop
let plain: TestDatabase
let client: pg.Client
let postgres: pg.PoolClient

beforeAll(async () => {
  shop = await openShop({})
  client = await shop.wire.connect('shop:main')
  plain = await createTestDatabase()
  postgres = await plain.pool.connect()
  for (const each of [client, postgres]) await each.query(TABLES)
})
afterAll(async () => {
  postgres?.release()
  await shop?.close()
  await plain?.close()
})

const rowsOf = async (by: pg.ClientBase, text: string, values: readonly string[] = []) =>
  (await by.query({ text, values: [...values], rowMode: 'array' })).rows

describe('letters beyond ASCII', () => {
  it.each(STATEMENTS)('are those of PostgreSQL: %s', async (text, values) => {
    const expected = await rowsOf(postgres, text, values)
    expect(expected.length).toBeGreaterThan(0)
    expect(await rowsOf(client, text, values)).toEqual(expected)
  })

  it.each(WRITES)('are those of PostgreSQL: %s', async (text) => {
    const expected = await rowsOf(postgres, text)
    expect(expected).toHaveLength(1)
    expect(await rowsOf(client, text)).toEqual(expected)
  })

  it.each(REFUSED)('belong to texts only: %s', async (text) => {
    const values = text.includes('$1') ? ['x'] : []
    const codes = await Promise.all(
      [client, postgres].map((by) => by.query(text, values).catch((error) => error.code)),
    )
    expect(codes).toEqual(['42883', '42883'])
  })

  it('are known to checks and computed columns', async () => {
    await client.query(
      `create table names (id integer primary key, v text check (lower(v) <> 'öö'), c text generated always as (lower(v)) stored)`,
    )
    await expect(client.query(`insert into names values (1, 'ÖÖ')`)).rejects.toMatchObject({
      code: '23514',
    })
    await client.query(`insert into names values (1, 'ÖA')`)
    expect(await rowsOf(client, `select c from names where c = 'öa'`)).toEqual([['öa']])
  })
})
