import { LIMITS } from '@offshoot/contract/limits'
import { eq, relations, sql } from 'drizzle-orm'
import { bigint, boolean, jsonb, pgTable, real, text, timestamp } from 'drizzle-orm/pg-core'
import { Kysely, sql as kyselySql } from 'kysely'
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from 'vitest'
import { drizzle } from '../../packages/client/src/drizzle.js'
import {
  type Client,
  type Computed,
  createClient,
  type DateTime,
  type Decimal,
  type Json,
  type Link,
  type WithDefault,
} from '../../packages/client/src/index.js'
import { type KyselyDatabase, OffshootDialect, runBatch } from '../../packages/client/src/kysely.js'
import { createTestService, type TestService } from '../support/service.js'

/* Kysely and Drizzle over the SQL of a real service. */

interface Shop {
  teams: { name: string }
  users: {
    email: string
    name: string | null
    age: WithDefault<number>
    score: number | null
    active: boolean | null
    tags: string[] | null
    place: number[] | null
    joined: DateTime | null
    team: Link<'teams'> | null
    settings: Json<unknown> | null
    address: { city: string | null } | null
  }
}

const COLUMNS = [
  { name: 'email', type: 'email', unique: true, notNull: true },
  { name: 'name', type: 'string' },
  { name: 'age', type: 'int', notNull: true, defaultValue: '18' },
  { name: 'score', type: 'float' },
  { name: 'active', type: 'bool' },
  { name: 'tags', type: 'multiple' },
  { name: 'place', type: 'vector', vector: { dimension: 2 } },
  { name: 'joined', type: 'datetime' },
  { name: 'team', type: 'link', link: { table: 'teams' } },
  { name: 'settings', type: 'json' },
  { name: 'address', type: 'object', columns: [{ name: 'city', type: 'string' }] },
] as const

const JOINED = new Date('2026-02-03T04:05:06.789Z')

/** A value of every type, and of every JSON type. */
const FULL = {
  id: 'ada',
  email: 'ada@example.com',
  name: `O'Hara "x" \\ $1 ?`,
  age: Number.MAX_SAFE_INTEGER,
  score: -1.5e-7,
  active: false,
  tags: ['a', 'b,c', '"d"', '{e}', ''],
  place: [0.5, -1],
  joined: JOINED,
  team: 'core',
  settings: { theme: 'dark', list: [1, null, 'x'] },
}

let service: TestService
let url: string
let databases = 0

beforeAll(async () => {
  service = await createTestService()
  url = await service.app.listen({ port: 0, host: '127.0.0.1' })
})
afterAll(() => service.close())

async function createShop(): Promise<Client<Shop>> {
  const database = `shop${databases++}`
  const workspace = service.workspaceId
  const client = createClient<Shop>({
    ...{ url, apiKey: service.key, workspace, database, branch: 'main' },
  })
  await client.account.createDatabase(workspace, database)
  await client
    .branch()
    .applySchema([
      { addTable: { table: 'teams' } },
      { addColumn: { table: 'teams', column: { name: 'name', type: 'string', notNull: true } } },
      { addTable: { table: 'users' } },
      ...COLUMNS.map((column) => ({ addColumn: { table: 'users', column } })),
    ])
  await client.table('teams').create({ id: 'core', name: 'Core' })
  return client
}

describe('Kysely', () => {
  async function createDatabase() {
    const client = await createShop()
    const branch = client.branch()
    const db = new Kysely<KyselyDatabase<Shop>>({ dialect: new OffshootDialect({ branch }) })
    return { client, branch, db }
  }

  it('writes and reads decimals, and times without a zone', async () => {
    interface Sales {
      sales: {
        price: Decimal | null
        rebate: WithDefault<Decimal>
        double: Computed<Decimal> | null
        due: DateTime | null
      }
    }
    const { branch } = await createDatabase()
    const decimal = { type: 'decimal', decimal: { precision: 30, scale: 2 } } as const
    const columns = [
      { name: 'price', ...decimal },
      { name: 'rebate', ...decimal, notNull: true, defaultValue: '0.50' },
      { name: 'double', ...decimal, computed: 'price * 2' },
      { name: 'due', type: 'datetime', withoutZone: true },
    ] as const
    await branch.applySchema([
      { addTable: { table: 'sales', idType: 'int' } },
      ...columns.map((column) => ({ addColumn: { table: 'sales', column } })),
    ])
    const db = new Kysely<KyselyDatabase<Sales>>({ dialect: new OffshootDialect({ branch }) })
    const sales = [
      { id: '1', price: '12345678901234567890.25', due: JOINED },
      { id: '2', price: 1.5, rebate: '1.25', due: null },
    ]
    await db.insertInto('sales').values(sales).execute()
    const rows = await db
      .selectFrom('sales')
      .select(['price', 'rebate', 'double', 'due'])
      .orderBy('id')
      .execute()
    expect(rows).toEqual([
      {
        price: '12345678901234567890.25',
        rebate: 0.5,
        double: '24691357802469135780.50',
        due: JOINED,
      },
      { price: 1.5, rebate: 1.25, double: 3, due: null },
    ])
    expectTypeOf(rows).toEqualTypeOf<
      {
        price: number | string | null
        rebate: number | string
        double: number | string | null
        due: Date | null
      }[]
    >()
    const found = await db.selectFrom('sales').select('price').where('due', '=', JOINED).execute()
    expect(found).toHaveLength(1)
    const tables = await db.introspection.getTables()
    const types = tables.find(({ name }) => name === 'sales')?.columns
    expect(types?.find(({ name }) => name === 'id')).toMatchObject({ dataType: 'int8' })
    expect(types?.find(({ name }) => name === 'due')).toMatchObject({ dataType: 'timestamp' })
  })

  it('has ids of numbers, and links to them, as numbers', async () => {
    interface Sales {
      sales: { note: string | null }
      returns: { sale: Link<'sales'> | null; again: Link<'returns'> | null }
    }
    const { branch } = await createDatabase()
    const link = (name: string, table: string) => ({
      addColumn: { table: 'returns', column: { name, type: 'link', link: { table } } as const },
    })
    await branch.applySchema([
      { addTable: { table: 'sales', idType: 'int' } },
      { addTable: { table: 'returns', idType: 'uuid' } },
      { addColumn: { table: 'sales', column: { name: 'note', type: 'string' } } },
      link('sale', 'sales'),
      link('again', 'returns'),
    ])
    const db = new Kysely<KyselyDatabase<Sales, { sales: number }>>({
      dialect: new OffshootDialect({ branch }),
    })
    await db.insertInto('sales').values({ id: 7, note: 'a' }).execute()
    await db.insertInto('returns').values({ sale: 7 }).execute()
    const rows = await db
      .selectFrom('returns')
      .innerJoin('sales', 'sales.id', 'returns.sale')
      .select(['sales.id', 'sale', 'again'])
      .where('sale', '=', 7)
      .execute()
    expect(rows).toEqual([{ id: 7, sale: 7, again: null }])
    expectTypeOf(rows).toEqualTypeOf<{ id: number; sale: number | null; again: string | null }[]>()
    const tables = await db.introspection.getTables()
    const described = tables.find(({ name }) => name === 'returns')?.columns
    const typeOf = (column: string) => described?.find(({ name }) => name === column)?.dataType
    expect([typeOf('id'), typeOf('sale'), typeOf('again')]).toEqual(['uuid', 'int8', 'uuid'])
  })

  it('writes and reads a value of every type', async () => {
    const { db } = await createDatabase()
    const written = await db
      .insertInto('users')
      .values(FULL)
      .returning(['id', 'joined'])
      .executeTakeFirstOrThrow()
    expect(written).toEqual({ id: 'ada', joined: JOINED })
    expectTypeOf(written).toEqualTypeOf<{ id: string; joined: Date | null }>()
    const user = await db.selectFrom('users').selectAll().executeTakeFirstOrThrow()
    expect(user).toMatchObject(FULL)
    expectTypeOf(user.age).toEqualTypeOf<number>()
    expectTypeOf(user.team).toEqualTypeOf<string | null>()
  })

  it('writes and reads empty columns as null, and fills in defaults', async () => {
    const { db } = await createDatabase()
    await db
      .insertInto('users')
      .values([
        { email: 'a@example.com', name: null, tags: null, joined: null, settings: null },
        { email: 'b@example.com', age: 30 },
      ])
      .execute()
    const users = await db.selectFrom('users').selectAll().orderBy('email').execute()
    expect(users).toMatchObject([
      { name: null, age: 18, score: null, tags: null, joined: null, settings: null },
      { name: null, age: 30 },
    ])
    expect(users[0]?.id).toMatch(/^rec_/)
  })

  it('counts the records that it writes', async () => {
    const { db } = await createDatabase()
    const values = Array.from({ length: 5 }, (_, n) => ({ id: `u${n}`, email: `${n}@example.com` }))
    const inserted = await db.insertInto('users').values(values).executeTakeFirst()
    expect(inserted.numInsertedOrUpdatedRows).toBe(5n)
    const updated = await db
      .updateTable('users')
      .set((eb) => ({ age: eb('age', '+', 1) }))
      .where('id', 'in', ['u1', 'u2', 'missing'])
      .executeTakeFirst()
    expect(updated.numUpdatedRows).toBe(2n)
    const deleted = await db.deleteFrom('users').where('age', '=', 19).executeTakeFirst()
    expect(deleted.numDeletedRows).toBe(2n)
  })

  it('joins, groups, and takes raw SQL with parameters', async () => {
    const { db } = await createDatabase()
    await db.insertInto('users').values(FULL).execute()
    const joined = await db
      .selectFrom('users as u')
      .innerJoin('teams as t', 't.id', 'u.team')
      .select(['u.email', 't.name as team', (eb) => eb.fn.countAll<number>().as('n')])
      .groupBy(['u.email', 't.name'])
      .execute()
    expect(joined).toEqual([{ email: 'ada@example.com', team: 'Core', n: 1 }])
    const { rows } = await kyselySql<{ id: string }>`
      select id from users where tags @> ${['a']}::text[] and joined = ${JOINED}
      and age > ${1n} and ${undefined}::text is null`.execute(db)
    expect(rows).toEqual([{ id: 'ada' }])
  })

  it('streams the rows of a result', async () => {
    const { db } = await createDatabase()
    await db.insertInto('users').values(FULL).execute()
    const ids: string[] = []
    for await (const { id } of db.selectFrom('users').select('id').stream()) ids.push(id)
    expect(ids).toEqual(['ada'])
  })

  it('runs queries as one transaction, all or none', async () => {
    const { db, branch } = await createDatabase()
    const [, users] = await runBatch(branch, [
      db.insertInto('users').values({ id: 'a', email: 'a@example.com' }),
      db.selectFrom('users').select(['id', 'email']),
    ])
    expectTypeOf(users).toEqualTypeOf<readonly { id: string; email: string }[]>()
    expect(users).toEqual([{ id: 'a', email: 'a@example.com' }])
    const failed = runBatch(branch, [
      db.insertInto('users').values({ id: 'b', email: 'b@example.com' }),
      db.insertInto('users').values({ id: 'c', email: 'a@example.com' }),
    ])
    await expect(failed).rejects.toThrow('is not unique')
    expect(await db.selectFrom('users').select('id').execute()).toEqual([{ id: 'a' }])
  })

  it('refuses transactions that stay open, and says what to use', async () => {
    const { db } = await createDatabase()
    const run = db.transaction().execute((trx) => trx.deleteFrom('users').execute())
    await expect(run).rejects.toThrow('Use runBatch of @offshoot/client/kysely')
  })

  it('returns whole results, with exact numbers, or an error', async () => {
    const { db } = await createDatabase()
    const series = (count: number) =>
      kyselySql<{ i: number }>`select i from generate_series(1, ${count}::int) i`.execute(db)
    expect((await series(20_161)).rows).toHaveLength(20_161)
    await expect(series(LIMITS.sqlRowsMax + 1)).rejects.toMatchObject({ code: 'query_too_costly' })
    const { rows } = await kyselySql`select ${2n ** 60n}::int8 as n`.execute(db)
    expect(rows).toEqual([{ n: '1152921504606846976' }])
  })

  it('refuses binary values, and DDL', async () => {
    const { db } = await createDatabase()
    const binary = kyselySql`select ${new Uint8Array([1])}`.execute(db)
    await expect(binary).rejects.toThrow('binary')
    const table = db.schema.createTable('more').addColumn('id', 'text').execute()
    await expect(table).rejects.toMatchObject({ code: 'invalid_sql' })
  })

  it('describes the tables as SQL knows them', async () => {
    const { db } = await createDatabase()
    const tables = await db.introspection.getTables()
    const users = tables.find(({ name }) => name === 'users')
    const { rows } = await kyselySql`select * from users`.execute(db)
    expect(rows).toEqual([])
    const { columns } = await service
      .call('POST', `${service.workspace}/db/shop${databases - 1}:main/sql`, {
        body: { statement: 'select * from users' },
      })
      .then(({ body }) => body)
    const real = columns.map(({ name, type }: { name: string; type: string }) => [name, type])
    const version = ['service.version', 'int4']
    const described = users?.columns.map(({ name, dataType }) =>
      name === version[0] ? version : [name, dataType],
    )
    expect(described).toEqual(real)
    expect(users?.columns.find(({ name }) => name === 'age')).toMatchObject({
      isNullable: false,
      hasDefaultValue: true,
    })
  })
})

describe('Drizzle', () => {
  const teams = pgTable('teams', { id: text().primaryKey(), name: text().notNull() })
  const users = pgTable('users', {
    id: text().primaryKey(),
    email: text().notNull(),
    name: text(),
    age: bigint({ mode: 'number' }).notNull().default(18),
    score: real(),
    active: boolean(),
    tags: text().array(),
    place: real().array(),
    joined: timestamp({ withTimezone: true }),
    team: text().references(() => teams.id),
    settings: jsonb(),
    city: text('address.city'),
  })
  const teamRelations = relations(teams, ({ many }) => ({ users: many(users) }))
  const userRelations = relations(users, ({ one }) => ({
    group: one(teams, { fields: [users.team], references: [teams.id] }),
  }))
  const schema = { teams, users, teamRelations, userRelations }

  async function createDatabase() {
    const client = await createShop()
    return { client, db: drizzle(client.branch(), { schema }) }
  }

  it('writes and reads a value of every type', async () => {
    const { db } = await createDatabase()
    const [written] = await db
      .insert(users)
      .values({ ...FULL, city: 'Bern' })
      .returning()
    expect(written).toEqual({ ...FULL, city: 'Bern' })
    const [user] = await db.select().from(users).where(eq(users.joined, JOINED))
    expect(user).toEqual({ ...FULL, city: 'Bern' })
    expectTypeOf(user?.joined).toEqualTypeOf<Date | null | undefined>()
  })

  it('keeps every kind of JSON value', async () => {
    const { db } = await createDatabase()
    const values = ['text', '"quoted"', 'true', '{"a": 1}', 1, true, [1, 'x'], {}]
    await db
      .insert(users)
      .values(values.map((settings, n) => ({ id: `u${n}`, email: `${n}@example.com`, settings })))
    const rows = await db.select({ settings: users.settings }).from(users).orderBy(users.id)
    expect(rows.map(({ settings }) => settings)).toEqual(values)
  })

  it('writes and reads empty columns as null, and fills in defaults', async () => {
    const { db } = await createDatabase()
    await db.insert(users).values([
      { id: 'a', email: 'a@example.com', tags: null },
      { id: 'b', email: 'b@example.com', age: 30 },
    ])
    const rows = await db.select().from(users).orderBy(users.id)
    expect(rows).toMatchObject([
      { name: null, age: 18, score: null, tags: null, joined: null, settings: null, city: null },
      { age: 30 },
    ])
  })

  it('keeps columns with the same name in a join apart', async () => {
    const { db } = await createDatabase()
    await db.insert(users).values(FULL)
    const rows = await db.select().from(users).leftJoin(teams, eq(teams.id, users.team))
    expect(rows).toMatchObject([{ users: { id: 'ada' }, teams: { id: 'core', name: 'Core' } }])
  })

  it('reads relations, counts, and takes raw SQL', async () => {
    const { db } = await createDatabase()
    await db.insert(users).values(FULL)
    const found = await db.query.users.findFirst({ with: { group: true }, columns: { id: true } })
    expect(found).toEqual({ id: 'ada', group: { id: 'core', name: 'Core' } })
    const team = await db.query.teams.findFirst({ with: { users: { columns: { joined: true } } } })
    expect(team?.users).toEqual([{ joined: JOINED }])
    expect(await db.$count(users, eq(users.active, false))).toBe(1)
    const rows = await db.execute(
      sql`select id, ${sql.param(FULL.tags)}::text[] as tags from users`,
    )
    expect(rows).toEqual([{ id: 'ada', tags: FULL.tags }])
  })

  it('updates, upserts and deletes', async () => {
    const { db } = await createDatabase()
    await db
      .insert(teams)
      .values({ id: 'core', name: 'Second' })
      .onConflictDoUpdate({
        target: teams.id,
        set: { name: sql`excluded.name` },
      })
    const updated = await db
      .update(teams)
      .set({ name: sql`upper(${teams.name})` })
      .where(eq(teams.id, 'core'))
      .returning({ name: teams.name })
    expect(updated).toEqual([{ name: 'SECOND' }])
    await db.delete(teams)
    expect(await db.select().from(teams)).toEqual([])
  })

  it('runs prepared statements with placeholders', async () => {
    const { db } = await createDatabase()
    const find = db
      .select({ name: teams.name })
      .from(teams)
      .where(eq(teams.id, sql.placeholder('id')))
      .prepare('find')
    expect(await find.execute({ id: 'core' })).toEqual([{ name: 'Core' }])
    expect(await find.execute({ id: 'missing' })).toEqual([])
  })

  it('runs queries as one transaction, all or none', async () => {
    const { db } = await createDatabase()
    const [, raw, all, first] = await db.batch([
      db.insert(users).values({ id: 'a', email: 'a@example.com', settings: 'true' }),
      db.execute(sql`select count(*)::int as n from users`),
      db.select({ id: users.id, settings: users.settings }).from(users),
      db.query.users.findFirst({ columns: { email: true } }),
    ])
    expectTypeOf(all).toEqualTypeOf<{ id: string; settings: unknown }[]>()
    expect([raw, all, first]).toEqual([
      [{ n: 1 }],
      [{ id: 'a', settings: 'true' }],
      { email: 'a@example.com' },
    ])
    const failed = db.batch([
      db.insert(users).values({ id: 'b', email: 'b@example.com' }),
      db.insert(users).values({ id: 'c', email: 'a@example.com' }),
    ])
    await expect(failed).rejects.toThrow('is not unique')
    expect(await db.$count(users)).toBe(1)
  })

  it('refuses a batch with a placeholder that has no value', async () => {
    const { db } = await createDatabase()
    const query = db
      .select()
      .from(teams)
      .where(eq(teams.id, sql.placeholder('id')))
    await expect(db.batch([query])).rejects.toThrow('No value for placeholder')
  })

  it('refuses transactions that stay open, and says what to use', async () => {
    const { db } = await createDatabase()
    const run = db.transaction((tx) => tx.delete(users))
    await expect(run).rejects.toThrow('Use db.batch([...])')
  })

  it('returns whole results, with exact numbers, or an error', async () => {
    const { db } = await createDatabase()
    const series = (count: number) =>
      db.execute(sql`select i from generate_series(1, ${count}::int) i`)
    expect(await series(20_161)).toHaveLength(20_161)
    await expect(series(LIMITS.sqlRowsMax + 1)).rejects.toMatchObject({
      cause: { code: 'query_too_costly' },
    })
    const exact = sql<bigint>`${2n ** 60n}::int8`.mapWith(BigInt)
    expect(await db.select({ exact }).from(teams)).toEqual([{ exact: 2n ** 60n }])
  })
})
