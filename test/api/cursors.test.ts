import { deflateRawSync } from 'node:zlib'
import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

let service: TestService
let branches: TestBranches

beforeAll(async () => {
  service = await createTestService()
  branches = await TestBranches.create(service, 'shop', {
    items: [
      { name: 'name', type: 'string' },
      { name: 'rank', type: 'int' },
      { name: 'text', type: 'text' },
    ],
    others: [{ name: 'name', type: 'string' }],
  })
  for (const table of ['items', 'others']) {
    const records = ['a', 'b', 'c'].map((name) => ({ id: name, name }))
    await branches.bulk('main', table, records)
  }
  await branches.fork('fork')
})
afterAll(() => service.close())

const query = (
  body: unknown,
  options: { branch?: string; table?: string; at?: TestBranches } = {},
) =>
  (options.at ?? branches).call(
    options.branch ?? 'main',
    'POST',
    `/tables/${options.table ?? 'items'}/query`,
    body,
  )

const firstCursor = async (body: object = {}): Promise<string> =>
  expectOk(await query({ ...body, page: { size: 1 } })).body.meta.page.cursor

const INVALID = { status: 400, body: { message: 'page: invalid cursor' } }

describe('a cursor', () => {
  it('is good for other processes on the same PostgreSQL, and after a restart', async () => {
    const other = await createTestService({ url: service.url })
    const after = await firstCursor({ filter: { name: { $ge: 'a' } } })
    const answer = await query({ page: { after } }, { at: branches.through(other) })
    expect(expectOk(answer).body.records.map(({ id }: { id: string }) => id)).toEqual(['b'])
    await other.close()
  })

  it.each(['after', 'before', 'start', 'end'])(
    'is refused when it was made by hand: %s',
    async (name) => {
      const cursor = await firstCursor()
      const content = JSON.stringify({ size: 1, seed: 1, filter: {}, last: { keys: [], id: 'a' } })
      const bomb = deflateRawSync(`"${'a'.repeat(60_000_000)}"`).toString('base64url')
      for (const wrong of [
        cursor.slice(0, -1),
        `${cursor}A`,
        cursor.slice(0, 25),
        `p${Buffer.from(content).toString('base64url')}`,
        `p${'A'.repeat(24)}${Buffer.from(content).toString('base64url')}`,
        `c${bomb}`,
        `c${'A'.repeat(24)}${bomb}`,
      ]) {
        expect(await query({ page: { [name]: wrong } })).toMatchObject(INVALID)
      }
    },
  )

  it('is of one branch and one table', async () => {
    const after = await firstCursor()
    expect((await query({ page: { after } })).status).toBe(200)
    expect(await query({ page: { after } }, { branch: 'fork' })).toMatchObject(INVALID)
    expect(await query({ page: { after } }, { table: 'others' })).toMatchObject(INVALID)
  })

  it('is refused when the column it is sorted by has become another', async () => {
    await branches.fork('changed')
    await branches.patch('changed', 'items', 'a', { name: 'x' })
    const body = { sort: 'name', page: { size: 3 } }
    const first = expectOk(await query(body, { branch: 'changed' }))
    const after = first.body.meta.page.cursor
    await branches.edit(
      'changed',
      { removeColumn: { table: 'items', column: 'name' } },
      { addColumn: { table: 'items', column: { name: 'name', type: 'int' } } },
    )
    expect(await query({ page: { after } }, { branch: 'changed' })).toMatchObject(INVALID)
  })

  it('is refused by its length before anything is looked at', async () => {
    const longest = 'p'.repeat(QUERY_LIMITS.cursorLengthMax)
    expect(await query({ page: { after: longest } })).toMatchObject(INVALID)
    expect(await query({ page: { after: `${longest}p` } })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('a cursor must not have more than') },
    })
  })

  it('carries the longest query that there may be', async () => {
    const around = JSON.stringify({ name: { $isNot: '' } }).length
    const filter = (length: number) => ({ name: { $isNot: 'x'.repeat(length - around) } })
    const after = await firstCursor({ filter: filter(QUERY_LIMITS.queryLengthMax) })
    const next = expectOk(await query({ page: { after } }))
    expect(next.body.records.map(({ id }: { id: string }) => id)).toEqual(['b'])
    expect(await query({ filter: filter(QUERY_LIMITS.queryLengthMax + 1) })).toMatchObject({
      status: 400,
      body: {
        message: `the query is too long: it can have at most ${QUERY_LIMITS.queryLengthMax} characters`,
      },
    })
  })

  it('goes on from records with long texts', async () => {
    for (const id of ['d', 'e']) {
      await branches.put('main', 'items', id, { rank: 1, text: `${id}${'ä'.repeat(250_000)}` })
    }
    const body = { filter: { rank: 1 }, sort: 'text', page: { size: 1 } }
    const after = expectOk(await query(body)).body.meta.page.cursor
    const next = expectOk(await query({ columns: ['rank'], page: { after } }))
    expect(next.body.records.map(({ id }: { id: string }) => id)).toEqual(['e'])
  })
})
