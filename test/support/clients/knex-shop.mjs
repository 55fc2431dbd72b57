// A shop in Knex: its migrations, a round through the query builder, and the way back.
import assert from 'node:assert/strict'
import knex from 'knex'

const db = knex({ client: 'pg', connection: process.env.DATABASE_URL })

const MIGRATIONS = {
  first: {
    async up(trx) {
      await trx.schema.createTable('customers', (table) => {
        table.increments('id')
        table.string('email', 100).notNullable().unique()
        table.decimal('balance', 10, 2).notNullable().defaultTo(0)
        table.timestamp('joined', { useTz: true }).defaultTo(trx.fn.now())
      })
      await trx.schema.createTable('orders', (table) => {
        table.uuid('id').primary().defaultTo(trx.fn.uuid())
        table.integer('customer_id').notNullable().references('customers.id').onDelete('CASCADE')
        table.jsonb('data')
        table.boolean('paid').defaultTo(false)
        table.index('customer_id')
      })
    },
    async down(trx) {
      await trx.schema.dropTable('orders')
      await trx.schema.dropTable('customers')
    },
  },
  second: {
    async up(trx) {
      await trx('customers').insert({ email: 'seed@b.co' })
      await trx.schema.alterTable('customers', (table) => {
        table.string('name')
        table.date('born')
      })
      await trx('customers').update({ name: 'Seed' })
    },
    async down(trx) {
      await trx.schema.alterTable('customers', (table) => table.dropColumn('born'))
    },
  },
}
const migrationSource = {
  getMigrations: async () => Object.keys(MIGRATIONS),
  getMigrationName: (name) => name,
  getMigration: async (name) => MIGRATIONS[name],
}

await db.migrate.latest({ migrationSource })
const [{ id }] = await db('customers').insert({ email: 'a@b.co' }).returning('id')
await db.transaction(async (outer) => {
  await outer('orders').insert({ customer_id: id, data: { a: 1 } })
  await outer.transaction((inner) => inner('customers').where({ id }).update({ name: 'Ann' }))
})
await assert.rejects(db('customers').insert({ email: 'a@b.co' }), { code: '23505' })
const joined = await db('orders')
  .join('customers', 'customers.id', 'orders.customer_id')
  .select('customers.name', 'orders.data', 'orders.paid')
assert.deepEqual(joined, [{ name: 'Ann', data: { a: 1 }, paid: false }])
assert.ok(await db.schema.hasColumn('orders', 'paid'))
assert.deepEqual(Object.keys(await db('customers').columnInfo()).sort(), [
  ...['balance', 'born', 'email', 'id', 'joined', 'name'],
])
await db('customers').where({ id }).del()
assert.deepEqual(await db('orders').select('id'), [])
await db('customers').del()
await db.migrate.rollback({ migrationSource }, true)
assert.equal(await db.schema.hasTable('orders'), false)
await db.destroy()
console.log('done')
