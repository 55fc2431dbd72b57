import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestService, type TestService } from '../support/service.js'
import { type BranchCall, branchCall, createTables, expectOk } from '../support/tables.js'

let service: TestService
let main: BranchCall
let fork: BranchCall

beforeAll(async () => {
  service = await createTestService()
  main = await createTables(service, 'filled', {
    rows: [{ name: 'name', type: 'string' }],
  })
  const records = [{ id: 'first' }, { id: 'second' }]
  expectOk(await main('POST', '/tables/rows/bulk', { body: { records } }))
  const path = `${service.workspace}/db/filled:fork`
  expectOk(await service.call('PUT', path, { body: { from: 'main' } }))
  fork = branchCall(service, 'filled', { branch: 'fork' })
  for (const call of [main, fork]) {
    const column = { name: 'level', type: 'int', notNull: true, defaultValue: '3' }
    expectOk(await call('POST', '/tables/rows/columns', { body: column }))
  }
})
afterAll(() => service.close())

describe('a column that was added later', () => {
  it('is found and sorted by what it was filled with, on every branch', async () => {
    expectOk(await fork('PATCH', '/tables/rows/data/second', { body: { level: 4 } }))
    const find = async (call: BranchCall, body: object) => {
      const answer = expectOk(await call('POST', '/tables/rows/query', { body }))
      return answer.body.records.map(({ id }: { id: string }) => id)
    }
    expect(await find(main, { filter: { level: 3 } })).toEqual(['first', 'second'])
    expect(await find(fork, { filter: { level: 3 } })).toEqual(['first'])
    expect(await find(fork, { filter: { level: { $not: 3 } } })).toEqual(['second'])
    expect(await find(fork, { sort: { level: 'desc' } })).toEqual(['second', 'first'])
    const body = { aggs: { sum: { sum: { column: 'level' } } } }
    const sum = await fork('POST', '/tables/rows/aggregate', { body })
    expect(sum.body).toEqual({ aggs: { sum: 7 } })
  })
})
