import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.js'
import { openShop, type WireShop } from '../support/wire-clients.js'

/* RETURNING with columns of the relations of FROM and USING, compared with PostgreSQL on plain tables. */

const ITEMS = [
  { id: 'i1', name: 'one', number: 1, owner: 'o1' },
  { id: 'i2', name: 'two', number: 2, owner: 'o2' },
  { id: 'i3', name: 'three', number: 3, owner: 'o1' },
  { id: 'i4', name: 'four', number: 4 },
]
const OWNERS = [
  { id: 'o1', name: 'Ann', number: 7, at: '2026-01-02T03:04:05.678Z', tags: ['a', 'b,"c'] },
  { id: 'o2', name: 'Bob', number: 8, doc: { k: [1, null] } },
]

let shop: WireShop
let plain: TestDatabase
beforeAll(async () => {
  shop = await openShop({
    items: [
      { name: 'name', type: 'string' },
      { name: 'number', type: 'int' },
      { name: 'owner', type: 'string' },
    ],
    owners: [
      { name: 'name', type: 'string' },
      { name: 'number', type: 'int' },
      { name: 'at', type: 'datetime' },
      { name: 'tags', type: 'multiple' },
      { name: 'doc', type: 'json' },
    ],
  })
  const { branches } = shop
  await branches.bulk('main', 'items', ITEMS)
  await branches.bulk('main', 'owners', OWNERS)
  await branches.fork('fork')
  // A row of the fork itself.
  await branches.patch('fork', 'items', 'i1', { name: 'one' })
  plain = await createTestDatabase()
  await plain.pool.query(`
    create table items (id text primary key, name text, number int8, owner text);
    create table owners (id text primary key, name text, number int8, at timestamptz, tags text[], doc jsonb)`)
  for (const [table, rows] of [
    ['items', ITEMS],
    ['owners', OWNERS],
  ] as const) {
    await plain.pool.query(
      `insert into ${table} select * from json_populate_recordset(null::${table}, $1)`,
      [JSON.stringify(rows)],
    )
  }
  await plain.pool.query(`update owners set tags = '{a,"b,\\"c"}' where id = 'o1'`)
})
afterAll(async () => {
  await shop?.close()
  await plain?.close()
})

/** Runs a statement, and takes it back. Returns its result, and the tables as it leaves them. */
async function outcomeOf(client: pg.ClientBase, statement: string, values: unknown[]) {
  await client.query('begin')
  try {
    const { fields, rows, rowCount, command } = await client.query({
      text: statement,
      values,
      rowMode: 'array',
    })
    const texts = (
      await client.query({ text: 'select * from items order by id', rowMode: 'array' })
    ).rows
    return {
      columns: fields.map(({ name, dataTypeID }) => [name, dataTypeID]),
      rows: rows.map((row) => JSON.stringify(row)).sort(),
      rowCount,
      command,
      items: texts,
    }
  } finally {
    await client.query('rollback')
  }
}

const STATEMENTS: [string, unknown[]?][] = [
  ['update items a set name = b.name from owners b where a.owner = b.id returning a.id, b.name'],
  ['update items a set name = b.name from owners b where a.owner = b.id returning *'],
  ['update items a set name = b.name from owners b where a.owner = b.id returning b.*, a.*'],
  [
    'update items set name = b.name from owners b where owner = b.id returning owner, tags, at, doc',
  ],
  [
    'update items a set number = a.number + b.number from owners b where a.owner = b.id returning a.number, b.number as "Of", a.number - b.number',
  ],
  [
    'update items a set name = o.name from items o where o.number = a.number + 1 returning a.id, a.name, o.id, o.name',
  ],
  [
    "update items a set number = x.n from (values ('i1', 10), ('i2', 20)) x(id, n) where a.id = x.id returning *",
  ],
  [
    'update items a set number = n from generate_series(1, 9) n where a.number = n returning a.id, n',
  ],
  [
    'update items a set number = n.n from unnest($1::int[]) with ordinality n(n, place) where a.number = n.n returning a.id, n, place',
    [[2, 3]],
  ],
  [
    'update items a set name = b.name || c.name from owners b join owners c on c.id <> b.id where a.owner = b.id returning *',
  ],
  [
    'update items a set name = c.name from owners b left join (select 1) as none(one) on false, owners c where c.id = b.id and a.owner = b.id returning none.one, c.name, b.name',
  ],
  [
    'update items a set name = x.name from items x join owners o using (number) where a.id = x.id returning *',
  ],
  [
    'update items a set name = $1 from items x left join owners o using (id) where a.id = x.id returning *',
    ['new'],
  ],
  [
    "update items a set name = o.name from items x right join owners o on x.owner = o.id where a.number = 4 and x.id = 'i2' returning a.id, x.id, o.id",
  ],
  [
    'update items a set name = o.name from items x natural join (select id, tags from owners) o(owner, name2), owners p where a.id = x.id and p.id = x.owner returning x.id, o.name2, p.id'.replace(
      'o.name from',
      'p.name from',
    ),
  ],
  [
    "with o as (select * from owners where id = 'o1') update items a set name = o.name from o where a.owner = o.id returning a.id, o.name, o.at",
  ],
  [
    'with u as (update items a set name = b.name from owners b where a.owner = b.id returning a.id, b.id as owner, b.at) select * from u order by id',
  ],
  [
    'with u as (update items a set name = b.name from owners b where a.owner = b.id returning a.id, b.name), d as (delete from items a using owners b where a.number = 4 and b.id = $1 returning a.id, b.name) select * from u union all select * from d order by 1',
    ['o2'],
  ],
  [
    "with n as (insert into owners (id, name) values ('o9', 'New') returning *) update items a set name = n.name, owner = n.id from n where a.number > 2 returning a.*, n.name, n.at",
  ],
  [
    'update items a set (name, number) = (select o.name, o.number from owners o where o.id = b.id) from owners b where a.owner = b.id returning a.name, b.id, a.number',
  ],
  [
    "update items a set name = b.name from owners b where a.owner = b.id and b.name = 'none' returning *",
  ],
  [
    'update items a set name = b.name from owners b where a.owner = b.id returning (select max(o.number) from owners o where o.id = b.id), upper(b.name)',
  ],
  ['delete from items a using owners b where a.owner = b.id returning a.id, b.name'],
  ['delete from items using owners b where items.owner = b.id and b.id = $1 returning *', ['o1']],
  [
    'delete from items a using items b, owners o where b.number = a.number + 1 and o.id = b.owner returning a.name, b.name, o.doc, o.tags',
  ],
  ["delete from items a using owners b where a.id = 'i4' returning a.id"],
  [
    'update items set number = (select max(g) from generate_series(1, 3) g), name = (select string_agg(x, $1) from unnest(array[name, id]) x) returning id, array(select generate_series(1, number)), (select max(r) from (select rank() over (order by k) as r from unnest(array[3, 4]) k) q)',
    ['-'],
  ],
]

const REFUSED = [
  'update items a set name = b.name from owners b where a.owner = b.id returning id',
  'update items a set name = b.name from owners b where a.owner = b.id returning c.id',
  'update items a set name = b.name from owners b where a.owner = b.id returning b.nothing',
  'delete from items a using owners b where a.owner = b.id returning name',
  'update items set number = generate_series(1, 2)',
  'update items a set name = unnest(b.tags) from owners b where a.owner = b.id',
  'update items set number = row_number() over ()',
  'update items set (name, number) = (name, count(*) over ())',
  "update items set number = 1 where id = 'i1' returning generate_series(1, 2)",
  'update items set number = 1 returning rank() over (order by id)',
  "insert into items (id) values ('i9') returning unnest(array[1, 2])",
  "insert into items (id) values ('i9') returning row_number() over ()",
  "insert into items (id) values ('i1') on conflict (id) do update set number = generate_series(1, 2)",
  "insert into items (id) values ('i1') on conflict (id) do update set number = row_number() over ()",
  "delete from items where id = 'i1' returning generate_series(1, 2)",
]

describe.each(['main', 'fork'])('RETURNING of a statement on %s', (branch) => {
  let client: pg.Client
  let postgres: pg.PoolClient
  beforeAll(async () => {
    client = await shop.wire.connect(`shop:${branch}`)
    postgres = await plain.pool.connect()
  })
  afterAll(() => postgres?.release())

  it.each(STATEMENTS)('is that of PostgreSQL: %s', async (statement, values = []) => {
    const [own, other] = [
      await outcomeOf(client, statement, values),
      await outcomeOf(postgres, statement, values),
    ]
    expect(own).toEqual(other)
    expect(other.command).toMatch(/UPDATE|DELETE|SELECT/)
  })

  it.each(REFUSED)('is refused as PostgreSQL does: %s', async (statement) => {
    const [own, other] = await Promise.all(
      [client, postgres].map((by) =>
        by.query(statement).then(
          () => undefined,
          ({ code, message }: pg.DatabaseError) => ({ code, message }),
        ),
      ),
    )
    expect(other?.code).toMatch(/^42|^0A/)
    expect(own?.code).toBe(other?.code)
  })

  it('shows queries what was there before, or refuses them', async () => {
    for (const statement of [
      "insert into items (id, number) values ('i9', 9) returning (select count(*) from items)",
      "update items set number = 9 where id = 'i4' returning id, (select max(number) from items)",
      "insert into items (id) values ('i4') on conflict (id) do update set number = 9 returning exists (select from items where number = 9)",
    ]) {
      await expect(client.query(statement)).rejects.toMatchObject({
        code: '0A000',
        message:
          'RETURNING: a query on table [items] is not supported, because the statement writes to it',
      })
    }
    const removal =
      "delete from items where id = 'i4' returning (select count(*) from items) as before"
    const own = await outcomeOf(client, removal, [])
    expect(own).toEqual(await outcomeOf(postgres, removal, []))
    expect(own.rows).toHaveLength(1)
  })

  it('is the same over HTTP, with EXPLAIN of its rows, and for rows of several matches', async () => {
    const statement =
      'update items a set number = b.number from owners b where a.id = $1 returning a.id, a.number as set, b.number as returned, b.doc'
    const answer = await shop.branches.call(branch, 'POST', '/sql', { statement, params: ['i4'] })
    expect(answer).toMatchObject({ status: 200, body: { total: 1 } })
    const [record] = answer.body.records
    expect(record.set).toBe(record.returned)
    expect(answer.body.columns.map(({ type }: { type: string }) => type)).toEqual([
      'text',
      'int8',
      'int8',
      'jsonb',
    ])
    await shop.branches.patch(branch, 'items', 'i4', { number: 4 })
    const explained = await client.query(
      "explain update items a set number = b.number from owners b where a.id = 'i4' returning b.id",
    )
    expect(explained.rows[0]).toMatchObject({ 'QUERY PLAN': 'Update on items' })
  })

  it.each([
    'update items set number = 1 returning old.number',
    'update items a set number = 1 from owners b returning new.number, b.id',
    'delete from items returning old.*',
    "insert into items (id) values ('n') returning new.id",
    'update items set number = 1 returning with (old as o) o.number',
  ])('has no old and new records, which is said: %s', async (statement) => {
    await expect(client.query(statement)).rejects.toMatchObject({
      code: '0A000',
      message: expect.stringMatching(/^RETURNING: .*(?:old|options).* not supported$/),
    })
  })

  it('can name a relation that is called old', async () => {
    const { rows } = await client.query(
      'update items a set name = a.name from owners old where a.owner = old.id returning a.id, old.name',
    )
    expect(rows).toHaveLength(3)
  })

  it('writes everything or nothing', async () => {
    const failing =
      "update items a set number = case when a.id = 'i3' then 1 / (b.number - 7) else 0 end from owners b where a.owner = b.id returning a.id, b.id"
    await expect(client.query(failing)).rejects.toMatchObject({ code: '22012' })
    const { rows } = await client.query('select number from items order by id')
    expect(rows.map(({ number }) => number)).toEqual(['1', '2', '3', '4'])
  })
})
