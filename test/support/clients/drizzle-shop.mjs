// A shop in Drizzle: `drizzle-kit push` creates its tables, and drizzle-orm uses them.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { and, eq, like, sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'

writeFileSync(
  'drizzle.config.json',
  JSON.stringify({
    dialect: 'postgresql',
    schema: './schema.mjs',
    dbCredentials: { url: process.env.DATABASE_URL },
  }),
)

const SCHEMA = `
import { boolean, date, index, integer, jsonb, numeric, pgTable, serial, timestamp, uuid, varchar } from 'drizzle-orm/pg-core'
export const customers = pgTable('customers', {
  id: serial('id').primaryKey(),
  email: varchar('email', { length: 100 }).notNull().unique(),
  balance: numeric('balance', { precision: 10, scale: 2 }).notNull().default('0'),
  joined: timestamp('joined', { withTimezone: true }).defaultNow(),
  seen: timestamp('seen').notNull().defaultNow(),
  born: date('born'),
})
export const orders = pgTable('orders', {
  id: uuid('id').primaryKey().defaultRandom(),
  customerId: integer('customer_id').notNull().references(() => customers.id, { onDelete: 'cascade' }),
  data: jsonb('data'),
  paid: boolean('paid').default(false),
}, (table) => [index('orders_two').on(table.customerId, table.paid)])
`
writeFileSync('schema.mjs', SCHEMA)
const push = () =>
  execFileSync(
    process.execPath,
    [
      ...['node_modules/drizzle-kit/bin.cjs', 'push', '--force', '--verbose'],
      ...['--config', 'drizzle.config.json'],
    ],
    { encoding: 'utf8' },
  )
push()

const { customers, orders } = await import(`${process.cwd()}/schema.mjs`)
const db = drizzle(process.env.DATABASE_URL)
const seen = new Date('2026-03-04T05:06:07.089Z')
const [{ id, ...times }] = await db
  .insert(customers)
  .values({ email: 'a@b.co', born: '2026-01-02', seen })
  .returning({ id: customers.id, seen: customers.seen, joined: customers.joined })
assert.equal(id, 1)
assert.deepEqual(times.seen, seen)
assert.ok(Math.abs(times.joined.getTime() - Date.now()) < 3_600_000)
assert.equal(await db.$count(customers, eq(customers.seen, seen)), 1)
await db.transaction(async (outer) => {
  await outer.insert(orders).values([{ customerId: id, data: { a: 1 } }, { customerId: id }])
  const inner = outer.transaction((inside) => inside.insert(customers).values({ email: 'a@b.co' }))
  await assert.rejects(inner, ({ cause }) => cause.code === '23505')
  await outer.update(customers).set({ balance: sql`${customers.balance} + 2.5` })
})
const found = await db
  .select({ balance: customers.balance, born: customers.born, data: orders.data })
  .from(orders)
  .innerJoin(customers, eq(customers.id, orders.customerId))
  .where(and(like(customers.email, 'a%'), eq(orders.paid, false)))
assert.deepEqual(
  found.map(({ balance, born }) => [balance, born]),
  [
    ['2.50', '2026-01-02'],
    ['2.50', '2026-01-02'],
  ],
)
const [by] = await db.insert(customers).values({ email: 'b@b.co' }).returning()
assert.ok(Math.abs(by.seen.getTime() - by.joined.getTime()) < 1000)
await db
  .insert(customers)
  .values({ email: 'a@b.co' })
  .onConflictDoUpdate({ target: customers.email, set: { balance: '9' } })
// The catalogue has the types of the schema. The numbers of `serial` are an identity there, and the index of two columns is
// missing.
assert.deepEqual(push().match(/^(?:ALTER|CREATE|DROP) .*$/gm), [
  'ALTER TABLE "customers" ALTER COLUMN "id" SET DATA TYPE serial;',
  'ALTER TABLE "customers" ALTER COLUMN "id" DROP IDENTITY;',
  'CREATE INDEX "orders_two" ON "orders" USING btree ("customer_id","paid");',
])
assert.equal(await db.$count(orders), 2)
await db.delete(customers).where(eq(customers.id, id))
assert.equal(await db.$count(orders), 0)
await db.$client.end()
console.log('done')
