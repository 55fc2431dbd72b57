// A shop in TypeORM: `synchronize` creates its tables, and repositories use them.
import assert from 'node:assert/strict'
import 'reflect-metadata'
import typeorm from 'typeorm'

const { DataSource, EntitySchema } = typeorm

const Customer = new EntitySchema({
  name: 'Customer',
  tableName: 'customer',
  columns: {
    id: { type: 'int', primary: true, generated: true },
    email: { type: 'varchar', length: 100, unique: true },
    balance: { type: 'numeric', precision: 10, scale: 2, default: 0 },
    joined: { type: 'timestamptz', createDate: true },
  },
  relations: { orders: { type: 'one-to-many', target: 'Order', inverseSide: 'customer' } },
})
const Order = new EntitySchema({
  name: 'Order',
  tableName: 'order',
  columns: {
    id: { type: 'uuid', primary: true, generated: 'uuid' },
    data: { type: 'jsonb', nullable: true },
    paid: { type: 'boolean', default: false },
  },
  relations: {
    customer: {
      type: 'many-to-one',
      target: 'Customer',
      inverseSide: 'orders',
      onDelete: 'CASCADE',
      joinColumn: true,
      nullable: false,
    },
  },
})

const source = new DataSource({
  type: 'postgres',
  url: process.env.DATABASE_URL,
  entities: [Customer, Order],
  synchronize: true,
  installExtensions: false,
  uuidExtension: 'pgcrypto',
  logging: ['error'],
})
await source.initialize()
const customers = source.getRepository('Customer')
const orders = source.getRepository('Order')
const { id } = await customers.save({ email: 'a@b.co' })
await orders.save([{ customer: { id }, data: { a: 1 } }, { customer: { id } }])
const found = await customers.findOne({ where: { email: 'a@b.co' }, relations: { orders: true } })
assert.equal(found.orders.length, 2)
await assert.rejects(customers.save({ email: 'a@b.co' }), { code: '23505' })
await source.transaction((manager) => manager.update('Customer', id, { balance: '7.5' }))
assert.equal((await customers.findOneByOrFail({ id })).balance, '7.50')
await customers.delete(id)
assert.equal(await orders.count(), 0)
// The catalogue has the types of the entities, so there is nothing left to change.
const { upQueries } = await source.driver.createSchemaBuilder().log()
assert.deepEqual(
  upQueries.map(({ query }) => query),
  [],
)
await source.synchronize()
await source.destroy()
console.log('done')
