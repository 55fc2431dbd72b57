import type { ColumnDefinition, SchemaOperation } from '@offshoot/client'
import { account, clientOf } from '../api/clients.js'

const TABLES: Readonly<Record<string, readonly ColumnDefinition[]>> = {
  customers: [
    { name: 'name', type: 'string', notNull: true, defaultValue: '' },
    { name: 'email', type: 'email', unique: true },
    { name: 'city', type: 'string' },
    { name: 'since', type: 'datetime' },
    { name: 'tags', type: 'multiple' },
  ],
  products: [
    { name: 'name', type: 'string', notNull: true, defaultValue: '' },
    { name: 'price', type: 'float' },
    { name: 'stock', type: 'int' },
    { name: 'description', type: 'text' },
    { name: 'active', type: 'bool' },
  ],
  orders: [
    { name: 'customer', type: 'link', link: { table: 'customers' } },
    { name: 'product', type: 'link', link: { table: 'products' } },
    { name: 'quantity', type: 'int' },
    { name: 'status', type: 'string' },
    { name: 'placed', type: 'datetime' },
  ],
}

const NAMES = ['Ada Lovelace', 'Grace Hopper', 'Alan Turing', 'Edsger Dijkstra', 'Barbara Liskov']
const CITIES = ['London', 'New York', 'Manchester', 'Rotterdam', 'Los Angeles']
const GOODS = [
  ['Notebook', 4.5],
  ['Fountain pen', 38],
  ['Ink, blue', 9.9],
  ['Desk lamp', 64],
  ['Paper clips', 2.2],
  ['Ruler', 5.4],
  ['Stapler', 18.5],
  ['Envelopes', 6.75],
] as const
const ORDERS = 240
const FIRST_ORDER = Date.UTC(2026, 0, 5)

/** The steps of making the sample, for a progress bar. */
export const SAMPLE_STEPS = 5

/**
 * Creates a small shop with branches that have something to show: a difference, a schema change, conflicts,
 * an expiry and a protected branch. Returns the name of the database.
 */
export async function createSample(
  workspace: string,
  options: { taken: readonly string[]; region: string; onStep: (step: number) => void },
): Promise<string> {
  const { taken, region, onStep } = options
  let database = 'sample'
  for (let i = 2; taken.includes(database); i++) database = `sample-${i}`
  await account.createDatabase(workspace, database, { region })
  onStep(1)
  const client = clientOf({ workspace, region, database, branch: 'main' })
  const main = client.branch('main')
  await main.applySchema(schemaOperations())
  onStep(2)
  await main.table('customers').insertMany(customers())
  await main.table('products').insertMany(products())
  await main.table('orders').insertMany(orders())
  onStep(3)

  const dev = await main.fork('dev')
  const prices = await main.fork('feature-prices')
  await main.fork('preview-42', { ttl: 7 * 86_400 })
  const loyalty = await dev.fork('feature-loyalty')
  onStep(4)
  await loyalty.applySchema([
    { addTable: { table: 'coupons' } },
    { addColumn: { table: 'coupons', column: { name: 'code', type: 'string', unique: true } } },
    { addColumn: { table: 'customers', column: { name: 'points', type: 'int' } } },
  ])
  await loyalty.table('coupons').insertMany([
    { id: 'welcome', code: 'WELCOME10' },
    { id: 'spring', code: 'SPRING' },
  ])
  await loyalty.table('customers').update('c1', { points: 120 })
  await dev.table('products').update('p1', { price: 4.9, stock: 80 })
  await dev.table('products').update('p4', { price: 59, active: false })
  await dev
    .table('products')
    .create({ id: 'p9', name: 'Calendar', price: 12, stock: 30, active: true })
  await dev.table('customers').update('c2', { city: 'Arlington', tags: ['wholesale'] })
  await dev.table('orders').delete('o3')
  await prices.table('products').update('p2', { price: 41 })
  // Main changes rows that dev has changed, so that merging dev has conflicts to settle.
  await main.table('products').update('p1', { price: 5.2 })
  await main.table('products').update('p4', { price: 69 })
  await main.table('customers').update('c2', { city: 'Washington' })
  await main.table('orders').update('o3', { status: 'returned' })
  await prices.merge({ into: 'main' })
  await main.update({ protected: true })
  onStep(5)
  return database
}

function schemaOperations(): SchemaOperation[] {
  const tables = Object.keys(TABLES)
  return [
    ...tables.map((table) => ({ addTable: { table } })),
    ...tables.flatMap((table) =>
      (TABLES[table] ?? []).map((column) => ({ addColumn: { table, column } })),
    ),
  ]
}

function customers() {
  return NAMES.map((name, i) => ({
    id: `c${i + 1}`,
    name,
    email: `${name.split(' ')[0]?.toLowerCase()}@example.com`,
    city: CITIES[i],
    since: new Date(Date.UTC(2023, i * 3, 4)).toISOString(),
    tags: i % 2 === 0 ? ['newsletter'] : [],
  }))
}

function products() {
  return GOODS.map(([name, price], i) => ({
    id: `p${i + 1}`,
    name,
    price,
    stock: 20 + i * 15,
    description: `${name} from the first collection.`,
    active: true,
  }))
}

function orders() {
  return Array.from({ length: ORDERS }, (_, i) => ({
    id: `o${i + 1}`,
    customer: `c${(i % NAMES.length) + 1}`,
    product: `p${((i * 3) % GOODS.length) + 1}`,
    quantity: (i % 4) + 1,
    status: ['paid', 'sent', 'delivered'][i % 3],
    placed: new Date(FIRST_ORDER + i * 3_600_000 * 7).toISOString(),
  }))
}
