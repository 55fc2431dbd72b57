import { Kysely, Migrator, PostgresDialect } from 'kysely'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { createKey } from '../support/people.js'
import { createTestService } from '../support/service.js'
import { openShop, openWire, type WireShop } from '../support/wire-clients.js'

/*
 * Advisory locks, by which tools for migrations keep others from running at once, and what tools send that the service does
 * not do.
 */

let shop: WireShop
let other: pg.Client

beforeAll(async () => {
  shop = await openShop({ pets: [{ name: 'name', type: 'string' }] })
  other = await shop.wire.connect('shop:main')
})
afterAll(() => shop?.close())

const answerOf = async (client: pg.Client, text: string, values?: unknown[]) =>
  Object.values((await client.query(text, values)).rows[0] ?? {})[0]

describe('an advisory lock', () => {
  it('excludes other connections until it is given back', async () => {
    const { client } = shop
    expect((await client.query('select pg_advisory_lock(1)')).rows).toEqual([
      { pg_advisory_lock: '' },
    ])
    expect(await answerOf(client, 'select pg_try_advisory_lock(1) as again')).toBe(true)
    expect(await answerOf(other, 'select pg_try_advisory_lock(1)')).toBe(false)
    expect(await answerOf(other, 'select pg_try_advisory_lock($1)', ['1'])).toBe(false)
    expect(await answerOf(other, 'select pg_try_advisory_lock_shared(1)')).toBe(false)
    expect(await answerOf(other, 'select pg_try_advisory_lock(0, 1)')).toBe(true)
    let isGranted = false
    const waiting = other.query('select pg_advisory_lock(1)').then(() => {
      isGranted = true
    })
    expect(await answerOf(client, 'select pg_advisory_unlock(1)')).toBe(true)
    await client.query('select 1')
    expect(isGranted).toBe(false)
    expect(await answerOf(client, 'select pg_advisory_unlock(1)')).toBe(true)
    await waiting
    expect(await answerOf(client, 'select pg_advisory_unlock(1)')).toBe(false)
    expect(await answerOf(client, 'select pg_try_advisory_lock(1)')).toBe(false)
    await other.query('select pg_advisory_unlock_all()')
    expect(await answerOf(client, 'select pg_try_advisory_lock(1)')).toBe(true)
    await client.query('select pg_advisory_unlock_all()')
  })

  it('can be shared', async () => {
    const { client } = shop
    await client.query(`select pg_advisory_lock_shared(hashtext('a'))`)
    expect(await answerOf(other, 'select pg_try_advisory_lock_shared(hashtext($1))', ['a'])).toBe(
      true,
    )
    expect(await answerOf(client, `select pg_try_advisory_lock(hashtext('a'))`)).toBe(false)
    await other.query(`select pg_advisory_unlock_shared(hashtext('a'))`)
    expect(await answerOf(client, `select pg_try_advisory_lock(hashtext('a'))`)).toBe(true)
    await client.query('select pg_advisory_unlock_all()')
  })

  it('of a transaction ends with it', async () => {
    const { client } = shop
    await client.query('begin')
    await client.query('select pg_advisory_xact_lock(3853314791062309107)')
    await client.query(`insert into pets (name) values ('a')`)
    const attempt = 'select pg_try_advisory_xact_lock(3853314791062309107)'
    expect(await answerOf(other, attempt)).toBe(false)
    await client.query('rollback')
    expect(await answerOf(other, attempt)).toBe(true)
    expect(await answerOf(client, attempt)).toBe(true)
  })

  it('is one for all branches of a database, and of no other', async () => {
    await shop.branches.fork('dev')
    const dev = await shop.wire.connect('shop:dev')
    await shop.client.query('select pg_advisory_lock(7)')
    expect(await answerOf(dev, 'select pg_try_advisory_lock(7)')).toBe(false)
    await shop.client.query('discard all')
    expect(await answerOf(dev, 'select pg_try_advisory_lock(7)')).toBe(true)
    await dev.end()
    await expect.poll(() => answerOf(other, 'select pg_try_advisory_lock(7)')).toBe(true)
    await other.query('select pg_advisory_unlock_all()')
  })

  it('is given back when its connection ends, also in another process', async () => {
    const second = await createTestService({ url: shop.service.url })
    const secondWire = await openWire(second)
    const url = shop.wire.url('shop:main').replace(/:\d+\//, `:${secondWire.port}/`)
    const far = new pg.Client({ connectionString: url })
    far.on('error', () => undefined)
    await far.connect()
    await far.query('select pg_advisory_lock(9)')
    expect(await answerOf(other, 'select pg_try_advisory_lock(9)')).toBe(false)
    const waiting = other.query('select pg_advisory_lock(9)')
    await far.end()
    await waiting
    await other.query('select pg_advisory_unlock_all()')
    await secondWire.close()
    await second.close()
  })

  it('is waited for as long as the client allows, and can be cancelled', async () => {
    await shop.client.query('select pg_advisory_lock(5)')
    await other.query('set lock_timeout = 50')
    await expect(other.query('select pg_advisory_lock(5)')).rejects.toMatchObject({ code: '55P03' })
    await other.query('set lock_timeout = 0')
    await other.query('set statement_timeout = 50')
    await expect(other.query('select pg_advisory_lock(5)')).rejects.toMatchObject({ code: '57014' })
    await other.query('set statement_timeout = 0')
    await shop.client.query('select pg_advisory_unlock_all()')
    expect(await answerOf(other, 'select pg_try_advisory_lock(5)')).toBe(true)
    await other.query('select pg_advisory_unlock_all()')
  })

  it('waits as long as WITH says, which is how Kysely takes the lock of its migrations', async () => {
    const { client } = shop
    await client.query('select pg_advisory_lock(8)')
    const waiting = `with t as (select set_config('lock_timeout', '50', true) as config_val)
      select pg_advisory_lock(8) from t`
    await expect(other.query(waiting)).rejects.toMatchObject({ code: '55P03' })
    expect(await answerOf(other, 'show lock_timeout')).toBe('0')
    await client.query('select pg_advisory_unlock_all()')
    expect((await other.query(waiting.replace(`'50'`, `'60s'`))).rows).toEqual([
      { pg_advisory_lock: '' },
    ])
    await other.query('select pg_advisory_unlock_all()')
    await expect(
      other.query('with t as (select name from pets) select pg_advisory_lock(8) from t'),
    ).rejects.toMatchObject({ code: '0A000' })
    const pool = new pg.Pool({ connectionString: shop.wire.url('shop:main'), max: 2 })
    const kysely = new Kysely<Record<string, never>>({ dialect: new PostgresDialect({ pool }) })
    const provider = {
      getMigrations: async () => ({
        first: {
          up: (db: Kysely<unknown>) =>
            db.schema.createTable('moved').addColumn('note', 'text').execute(),
          down: (db: Kysely<unknown>) => db.schema.dropTable('moved').execute(),
        },
      }),
    }
    const migrator = new Migrator({ db: kysely, provider })
    const run = await Promise.all([migrator.migrateToLatest(), migrator.migrateToLatest()])
    expect(run.map(({ error }) => error)).toEqual([undefined, undefined])
    expect(run.flatMap(({ results = [] }) => results.map(({ status }) => status))).toEqual([
      'Success',
    ])
    expect((await migrator.migrateDown()).error).toBeUndefined()
    await kysely.destroy()
  })

  it('ends the connection that holds it if PostgreSQL has lost it', async () => {
    const client = await shop.wire.connect('shop:main')
    const ended = new Promise((resolve) => client.once('end', resolve))
    await client.query('select pg_advisory_lock(6)')
    await shop.service.database.query(sql`
      select pg_terminate_backend(pid) from pg_locks
      where locktype = 'advisory' and objsubid = 1 and database = (
        select oid from pg_database where datname = current_database())`)
    await ended
    expect(await answerOf(other, 'select pg_try_advisory_lock(6)')).toBe(true)
    await other.query('select pg_advisory_unlock_all()')
  })

  it.each([
    ['select pg_advisory_lock(1) from pets', '0A000'],
    ['select pg_advisory_lock(1), name from pets', '0A000'],
    ['select pg_advisory_lock(1 + 1)', '0A000'],
    [`select pg_advisory_lock('a')`, '0A000'],
    ['select pg_advisory_lock(99999999999999999999)', '0A000'],
    ['select pg_advisory_lock(9999999999999999999)', '22003'],
    ['select pg_advisory_lock(1, 2147483648)', '22003'],
    ['select pg_advisory_lock()', '42883'],
    ['update pets set name = pg_advisory_lock(1)::text', '0A000'],
    ['select * from pg_advisory_lock(1)', '0A000'],
  ])('is refused: %s', async (text, code) => {
    await expect(other.query(text)).rejects.toMatchObject({ code })
  })

  it('has a limit for each connection', async () => {
    for (let number = 0; number < 50; number++) {
      await other.query('select pg_advisory_lock($1::bigint)', [String(number)])
    }
    await expect(other.query('select pg_advisory_lock(50)')).rejects.toMatchObject({
      code: '53200',
    })
    await other.query('select pg_advisory_unlock_all()')
  })

  it('needs a key that writes', async () => {
    const key = await createKey(shop.service, 'reader', { fields: { scope: { access: 'read' } } })
    const client = await shop.wire.connect('shop:main', { key })
    await expect(client.query('select pg_advisory_lock(1)')).rejects.toMatchObject({
      code: '42501',
    })
  })
})

describe('maintenance', () => {
  it.each(['vacuum', 'vacuum (analyze) pets', 'vacuum full pets', 'analyze', 'analyze pets'])(
    'has no effect, and a notice: %s',
    async (text) => {
      const told = new Promise((resolve) => other.once('notice', resolve))
      await other.query(text)
      expect(await told).toMatchObject({ message: expect.stringContaining('has no effect') })
    },
  )

  it.each([
    ['create trigger t before insert on pets execute function f()', 'CREATE TRIGGER'],
    ['create view v as select 1', 'CREATE VIEW'],
    [`create function f() returns int language sql as 'select 1'`, 'CREATE FUNCTION'],
    ['create extension postgis', 'CREATE EXTENSION [postgis]'],
    ['create extension plpgsql', 'CREATE EXTENSION [plpgsql]'],
    ['drop extension pgcrypto', 'DROP EXTENSION [pgcrypto]'],
    ['create type t as (a int)', 'CREATE TYPE'],
    ['create domain d as text', 'CREATE DOMAIN'],
    ['create schema s', 'CREATE SCHEMA'],
    ['create database d', 'CREATE DATABASE'],
    ['grant select on pets to public', 'GRANT'],
    ['revoke select on pets from public', 'REVOKE'],
    ['listen a', 'LISTEN'],
    ['notify a', 'NOTIFY'],
    ['cluster pets', 'CLUSTER'],
    ['reindex table pets', 'REINDEX'],
    [`prepare transaction 'a'`, 'transactions in two phases'],
    ['select lo_create(0)', 'lo_create'],
    ['checkpoint', 'CHECKPOINT'],
  ])('is refused by name: %s', async (text, name) => {
    await expect(other.query(text)).rejects.toMatchObject({
      code: '0A000',
      message: expect.stringContaining(name),
    })
  })
})
