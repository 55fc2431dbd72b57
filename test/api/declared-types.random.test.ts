import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.js'
import { amount, SEED } from '../support/random.js'
import {
  change,
  fill,
  type RandomStatement,
  randomStatement,
  SCHEMA,
} from '../support/random-statements.js'
import { Random } from '../support/seeded-random.js'
import { openShop, type WireShop } from '../support/wire-clients.js'

/* Random statements have the outcome on a branch that they have in PostgreSQL. */

const STATEMENTS = amount('STATEMENTS', { short: 300, long: 10_000 })

/** A branch, and a database of PostgreSQL with the same rows. */
interface Pair {
  readonly branch: string
  readonly ours: pg.Client
  readonly theirs: pg.PoolClient
}

let shop: WireShop
const pairs: Pair[] = []
const databases: TestDatabase[] = []

beforeAll(async () => {
  shop = await openShop({})
  const random = new Random(7)
  const rows = fill(random, { from: 0, to: 6 })
  const changes = change(random, { from: 6, to: 8 })
  await shop.client.query(SCHEMA)
  await shop.branches.fork('zoned')
  for (const row of rows) await shop.client.query(row)
  await shop.branches.fork('changed')
  const pair = async (
    branch: string,
    zone: string,
    given: { before: readonly string[]; after: readonly string[] },
  ) => {
    const database = await createTestDatabase()
    databases.push(database)
    const theirs = await database.pool.connect()
    const ours = await shop.wire.connect(`shop:${branch}`)
    pairs.push({ branch, ours, theirs })
    for (const each of [ours, theirs]) await each.query(`set timezone = '${zone}'`)
    await theirs.query(SCHEMA)
    for (const each of given.before) await theirs.query(each)
    for (const each of given.after) {
      await theirs.query(each)
      await ours.query(each)
    }
  }
  await pair('main', 'UTC', { before: rows, after: [] })
  await pair('changed', 'UTC', { before: rows, after: changes })
  // Without summer time.
  await pair('zoned', 'Asia/Kolkata', { before: [], after: rows })
})
afterAll(async () => {
  for (const { theirs } of pairs) theirs.release()
  await shop?.close()
  for (const each of databases) await each.close()
})

interface Outcome {
  readonly names?: readonly string[]
  readonly types?: readonly number[]
  readonly rows?: readonly string[]
  readonly error?: string
  readonly message?: string
}

/** Values as PostgreSQL sends them. */
const TEXTS = { getTypeParser: () => (value: string) => value }
const TYPES_OF_USERS = 16_384
const [TEXT, FLOAT4, FLOAT8, NUMERIC] = [25, 700, 701, 1700]

/** An enum is a text, and all floating-point numbers are large. */
function typeOf({ dataTypeID }: pg.FieldDef): number {
  if (dataTypeID >= TYPES_OF_USERS) return TEXT
  return dataTypeID === FLOAT4 ? FLOAT8 : dataTypeID
}

/** Numbers that only differ in zeros at their end are equal, so DISTINCT may keep either. */
function plainValue(value: unknown, field: pg.FieldDef | undefined): unknown {
  if (field?.dataTypeID !== NUMERIC || typeof value !== 'string') return value
  return value.includes('.') ? value.replace(/\.?0+$/, '') : value
}

/** Runs a statement. What it writes is rolled back. */
async function outcomeOf(
  client: pg.ClientBase,
  { sql, values, isSorted, writes }: RandomStatement,
): Promise<Outcome> {
  const query = (text: string, given: readonly unknown[] = []) =>
    client.query<unknown[]>({ text, values: [...given], rowMode: 'array', types: TEXTS } as never)
  try {
    if (writes.length > 0) await client.query('begin')
    const { fields, rows } = await query(sql, values)
    const lines = rows.map((row) =>
      JSON.stringify(row.map((value, index) => plainValue(value, fields[index]))),
    )
    if (!isSorted) lines.sort()
    for (const table of writes) {
      const { rows: after } = await query(`select * from ${table} order by id`)
      lines.push(table, ...after.map((row) => JSON.stringify(row)))
    }
    return { names: fields.map(({ name }) => name), types: fields.map(typeOf), rows: lines }
  } catch (error) {
    const { code, message } = error as pg.DatabaseError
    return { error: code ?? 'unknown', message }
  } finally {
    if (writes.length > 0) await client.query('rollback')
  }
}

const classOf = ({ error }: Outcome): string | undefined => error?.slice(0, 2)

describe('random statements', () => {
  it('have the outcome that they have in PostgreSQL', async () => {
    let valid = 0
    for (let count = 0; count < STATEMENTS; count++) {
      const random = new Random(SEED + 1_000_003 * count)
      const { branch, ours, theirs } = random.pick(pairs)
      const statement = randomStatement(random)
      const expected = await outcomeOf(theirs, statement)
      const found = await outcomeOf(ours, statement)
      const shown = { seed: SEED, count, branch, sql: statement.sql, values: statement.values }
      if (expected.error === undefined) {
        expect({ ...shown, ...found }).toEqual({ ...shown, ...expected })
        valid++
      } else if (found.error !== undefined) {
        expect({ ...shown, class: classOf(found) }).toEqual({ ...shown, class: classOf(expected) })
      }
    }
    expect(valid).toBeGreaterThan(STATEMENTS * 0.9)
  })
})
