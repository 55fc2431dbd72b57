import { LIMITS } from '@offshoot/contract/limits'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { BRANCH_CALLS_MAX } from '../../packages/server/src/wire/branch-calls.js'
import { CHANGES_MAX } from '../../packages/server/src/wire/branch-functions.js'
import type { TestBranches } from '../support/branches.js'
import type { TestService } from '../support/service.js'
import { openShop, type WireService, type WireShop } from '../support/wire-clients.js'

/* Functions about branches in SQL: the schema `offshoot`. */

let shop: WireShop
let service: TestService
let branches: TestBranches
let wire: WireService

beforeAll(async () => {
  shop = await openShop({
    items: [
      { name: 'name', type: 'string' },
      { name: 'price', type: 'int' },
    ],
  })
  ;({ service, branches, wire } = shop)
  await branches.bulk('main', 'items', [
    { id: 'a', name: 'apple', price: 1 },
    { id: 'b', name: 'bread', price: 2 },
    { id: 'c', name: 'cake', price: 3 },
  ])
})
afterAll(() => shop?.close())

const rowsOf = async (client: pg.Client, text: string, values?: unknown[]) =>
  (await client.query(text, values)).rows
const failureOf = (work: Promise<unknown>): Promise<pg.DatabaseError> =>
  work.then(
    () => {
      throw new Error('the statement did not fail')
    },
    (error: pg.DatabaseError) => error,
  )
const codeOf = async (work: Promise<unknown>) => (await failureOf(work)).code

describe('the schema offshoot', () => {
  it('takes the same names and notes as requests do', async () => {
    const client = await wire.connect('shop:main')
    const long = 'x'.repeat(LIMITS.nameLengthMax)
    for (const name of ['a b', 'a:b', '../a', `${long}x`]) {
      const error = await failureOf(client.query('select offshoot.fork($1)', [name]))
      expect([name, error.code]).toEqual([name, '22023'])
      expect(error.message).toContain('name of a branch')
      expect(await codeOf(client.query('select offshoot.checkpoint($1)', [name]))).toBe('22023')
    }
    expect(await rowsOf(client, 'select offshoot.fork($1)', [long])).toEqual([{ fork: long }])
    const note = 'x'.repeat(LIMITS.labelLengthMax + 1)
    const noted = client.query('select offshoot.checkpoint($1, $2)', ['noted', note])
    expect(await codeOf(noted)).toBe('22023')
    await branches.delete(long)
    await client.end()
  })

  it('limits the calls of one statement', async () => {
    const client = await wire.connect('shop:main')
    const calls = (count: number) =>
      `select ${Array.from({ length: count }, (_, n) => `offshoot.current_branch() as c${n}`).join()}`
    expect(await rowsOf(client, calls(BRANCH_CALLS_MAX))).toHaveLength(1)
    expect(await codeOf(client.query(calls(BRANCH_CALLS_MAX + 1)))).toBe('54000')
    await client.end()
  })

  it('has no function that its definitions only inherit', async () => {
    const client = await wire.connect('shop:main')
    for (const name of ['constructor', 'toString', 'hasOwnProperty']) {
      expect(await codeOf(client.query(`select offshoot."${name}"()`))).toBe('42883')
    }
    await client.end()
  })

  it('forks a branch, changes to it, and shows where the session is', async () => {
    const client = await wire.connect('shop:main')
    expect(await rowsOf(client, `select offshoot.fork('pr-1')`)).toEqual([{ fork: 'pr-1' }])
    expect(await rowsOf(client, 'select offshoot.current_branch() as here')).toEqual([
      { here: 'main' },
    ])
    expect(await rowsOf(client, 'select offshoot.checkout($1)', ['pr-1'])).toEqual([
      { checkout: 'pr-1' },
    ])
    await client.query(`update items set price = 10 where id = 'a'`)
    expect(
      await rowsOf(client, 'select current_database(), offshoot.current_branch()').catch(
        () => 'mixed',
      ),
    ).toBe('mixed')
    expect(await rowsOf(client, 'select current_database()')).toEqual([
      { current_database: 'shop:pr-1' },
    ])
    await client.query(`select offshoot.fork('pr-1-copy')`)
    await client.query(`select offshoot.fork('from-main', 'main')`)
    await client.query(`select offshoot.checkout('pr-1-copy')`)
    expect(await rowsOf(client, `select price from items where id = 'a'`)).toEqual([
      { price: '10' },
    ])
    await client.query(`select offshoot.checkout('from-main')`)
    expect(await rowsOf(client, `select price from items where id = 'a'`)).toEqual([{ price: '1' }])
    expect(
      await rowsOf(
        client,
        `select b.name, b.source, b.is_default, b.is_current from offshoot.branches b
        where b.name <> 'pr-1-copy' order by b.created_at`,
      ),
    ).toEqual([
      { name: 'main', source: null, is_default: true, is_current: false },
      { name: 'pr-1', source: 'main', is_default: false, is_current: false },
      { name: 'from-main', source: 'main', is_default: false, is_current: true },
    ])
  })

  it('shows a difference as a relation, and merges', async () => {
    const client = await wire.connect('shop:main')
    await client.query(`select offshoot.fork('feature')`)
    await client.query(`select offshoot.checkout('feature')`)
    await client.query(`insert into items (id, name, price) values ('d', 'date', 4)`)
    await client.query(`update items set price = 20 where id = 'b'`)
    await client.query(`delete from items where id = 'c'`)
    const changes = await rowsOf(client, `select * from offshoot.diff('main') order by id`)
    expect(changes).toEqual([
      { table: 'items', id: 'b', kind: 'updated', before: { price: 2 }, after: { price: 20 } },
      {
        table: 'items',
        id: 'c',
        kind: 'deleted',
        before: expect.objectContaining({ name: 'cake', price: 3 }),
        after: null,
      },
      {
        table: 'items',
        id: 'd',
        kind: 'inserted',
        before: null,
        after: expect.objectContaining({ name: 'date', price: 4 }),
      },
    ])
    expect(
      await rowsOf(
        client,
        `select kind, count(*) as n from offshoot.diff() group by kind order by 1`,
      ),
    ).toEqual([
      { kind: 'deleted', n: '1' },
      { kind: 'inserted', n: '1' },
      { kind: 'updated', n: '1' },
    ])
    expect(
      await rowsOf(
        client,
        `select i.name, d.after ->> 'price' as price from offshoot.diff($1, 'items') d
        join items i on i.id = d.id where d.kind = $2`,
        ['main', 'updated'],
      ),
    ).toEqual([{ name: 'bread', price: '20' }])
    await client.query(`select offshoot.checkout('main')`)
    expect(await rowsOf(client, `select * from offshoot.merge('feature')`)).toEqual([
      { table: 'items', inserted: '1', updated: '1', deleted: '1' },
    ])
    expect(await rowsOf(client, 'select id, price from items order by id')).toEqual([
      { id: 'a', price: '1' },
      { id: 'b', price: '20' },
      { id: 'd', price: '4' },
    ])
    const logged = () =>
      rowsOf(client, `select kind, entry ->> 'from' as source from offshoot.log limit 1`)
    expect(await logged()).toEqual([{ kind: 'merge', source: 'feature' }])
    await client.query(`update items set name = 'pear' where id = 'a'`)
    await client.query(`select offshoot.checkout('feature')`)
    await client.query(`select * from offshoot.merge('main')`)
    expect(await logged()).toEqual([{ kind: 'pull', source: 'main' }])
    await client.query(`select offshoot.checkout('main')`)
    await client.query(`update items set name = 'apple' where id = 'a'`)
  })

  it('refuses a merge with conflicts, lists them, and merges with a strategy', async () => {
    const client = await wire.connect('shop:main')
    await client.query(`select offshoot.fork('clash')`)
    await client.query(`update items set price = 100 where id = 'a'`)
    await client.query(`select offshoot.checkout('clash')`)
    await client.query(`update items set price = 200 where id = 'a'`)
    await client.query(`select offshoot.checkout('main')`)
    const failure = await failureOf(client.query(`select * from offshoot.merge('clash')`))
    expect([
      failure.code,
      failure.detail?.includes('"a"'),
      failure.hint?.includes('theirs'),
    ]).toEqual(['23000', true, true])
    expect(await codeOf(client.query(`select * from offshoot.merge('clash', 'mine')`))).toBe(
      '22023',
    )
    await client.query(`select * from offshoot.merge('clash', 'theirs')`)
    expect(await rowsOf(client, `select price from items where id = 'a'`)).toEqual([
      { price: '200' },
    ])
  })

  it('makes checkpoints', async () => {
    const client = await wire.connect('shop:main')
    const [made] = await rowsOf(client, `select offshoot.checkpoint('before-import', 'a note')`)
    const listed = await service.call('GET', '/db/shop:main/checkpoints')
    expect(listed.body.checkpoints[0]).toMatchObject({
      id: made?.checkpoint,
      name: 'before-import',
      note: 'a note',
    })
    expect(await codeOf(client.query(`select offshoot.checkpoint('before-import')`))).toBe('42P07')
  })

  it('changes branches by statements of their own, outside of transactions', async () => {
    const client = await wire.connect('shop:main')
    await client.query('begin')
    expect(await codeOf(client.query(`select offshoot.fork('inside')`))).toBe('25001')
    await client.query('rollback')
    await client.query('begin')
    expect(await rowsOf(client, 'select offshoot.current_branch()')).toEqual([
      { current_branch: 'main' },
    ])
    expect((await rowsOf(client, 'select * from offshoot.branches')).length).toBeGreaterThan(1)
    await client.query('rollback')
    const two = `select offshoot.fork('x1'), offshoot.fork('x2')`
    expect(await codeOf(client.query(two))).toBe('0A000')
    expect(await codeOf(client.query('select offshoot.fork(name) from items'))).toBe('0A000')
    expect(await codeOf(client.query(`select offshoot.diff('main')`))).toBe('0A000')
    expect(await codeOf(client.query(`select offshoot.unknown()`))).toBe('42883')
    expect(await codeOf(client.query(`select offshoot.fork()`))).toBe('42883')
    expect(await codeOf(client.query(`select offshoot.fork(null)`))).toBe('22004')
    expect(await codeOf(client.query(`insert into offshoot.branches (name) values ('x')`))).toBe(
      '42P01',
    )
    expect(await codeOf(client.query(`select offshoot.fork('main')`))).toBe('42P07')
    for (const call of [`checkout('nowhere')`, `fork('new', 'nowhere')`, `merge('nowhere')`]) {
      expect(await codeOf(client.query(`select * from offshoot.${call}`))).toBe('3D000')
    }
    expect(await codeOf(client.query(`select * from offshoot.diff('nowhere')`))).toBe('3D000')
    expect(await codeOf(client.query('select * from offshoot.diff()'))).toBe('55000')
    expect(await rowsOf(client, 'select offshoot.current_branch()')).toEqual([
      { current_branch: 'main' },
    ])
  })

  it('keeps to the scope of the key', async () => {
    await branches.fork('open')
    const reading = await service.call('POST', '/user/keys/reader', {
      body: { scope: { access: 'read', branches: ['main'] } },
    })
    const client = await wire.connect('shop:main', { key: reading.body.key })
    expect(await rowsOf(client, 'select name from offshoot.branches')).toEqual([{ name: 'main' }])
    expect(await codeOf(client.query(`select offshoot.fork('mine')`))).toBe('42501')
    expect(await codeOf(client.query(`select * from offshoot.merge('open')`))).toBe('42501')
    expect(['42501', '3D000']).toContain(
      await codeOf(client.query(`select offshoot.checkout('open')`)),
    )
    expect(['42501', '3D000']).toContain(
      await codeOf(client.query(`select * from offshoot.diff('open')`)),
    )
  })

  it('lists differences up to a limit', async () => {
    const client = await wire.connect('shop:main')
    await client.query(`select offshoot.fork('large')`)
    await client.query(`select offshoot.checkout('large')`)
    const insert = `insert into items (id, name) select 'x' || n, 'many' from generate_series($1::int, $2::int) n`
    await client.query(insert, [1, CHANGES_MAX])
    const count = `select count(*)::int as n from offshoot.diff('main')`
    expect(await rowsOf(client, count)).toEqual([{ n: CHANGES_MAX }])
    await client.query(insert, [CHANGES_MAX + 1, CHANGES_MAX + 1])
    expect(await codeOf(client.query(count))).toBe('54000')
  })

  it('is described without being executed', async () => {
    const client = await wire.connect('shop:main')
    const named = { name: 'forking', text: 'select offshoot.fork($1)', values: ['described'] }
    expect((await client.query(named)).rows).toEqual([{ fork: 'described' }])
    expect(await codeOf(client.query(named))).toBe('42P07')
  })
})
