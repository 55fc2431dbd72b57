import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TRANSACTION_FAULTS_MAX } from '../../packages/server/src/data/records/transaction-plan.js'
import { RECORD_FAULTS_MAX } from '../../packages/server/src/rows/columns/record-encoder.js'
import { createTestService, type TestService } from '../support/service.js'
import { addTables, type BranchCall, createTables, expectOk } from '../support/tables.js'

/** Low limits, so that requests of moderate size reach them. */
const LIMITS = {
  controlBytesMax: 3000,
  queryBytesMax: 4000,
  transactionBytesMax: 60_000,
  columnsPerBranchMax: 8,
}

let service: TestService
let call: BranchCall

beforeAll(async () => {
  service = await createTestService({ limits: LIMITS })
  call = await createTables(service, 'bounded', {
    notes: [
      { name: 'text', type: 'text' },
      { name: 'number', type: 'int' },
    ],
  })
})
afterAll(() => service.close())

const times = <Item>(count: number, item: (index: number) => Item): Item[] =>
  Array.from({ length: count }, (_, index) => item(index))

describe('a body has at most as many bytes as its address takes', () => {
  it.each([
    ['a schema', 'POST', '/schema/preview', LIMITS.controlBytesMax, '{}'],
    ['settings', 'PATCH', '', LIMITS.controlBytesMax, '{}'],
    ['a query', 'POST', '/tables/notes/query', LIMITS.queryBytesMax, '{}'],
    ['a summary', 'POST', '/tables/notes/summarize', LIMITS.queryBytesMax, '{}'],
    ['a calculation', 'POST', '/tables/notes/aggregate', LIMITS.queryBytesMax, '{"aggs":{}}'],
    ['a search', 'POST', '/tables/notes/search', LIMITS.queryBytesMax, '{"query":"x"}'],
    ['a transaction', 'POST', '/transaction', LIMITS.transactionBytesMax, '{"operations":[]}'],
    ['SQL', 'POST', '/sql', LIMITS.transactionBytesMax, '{"statement":"select 1 as x"}'],
  ] as const)('%s', async (_name, method, path, bytesMax, body) => {
    const padded = (bytes: number) => body.padEnd(bytes)
    const accepted = await call(method, path, { body: padded(bytesMax) })
    expect(accepted.status).not.toBe(413)
    expect(await call(method, path, { body: padded(bytesMax + 1) })).toMatchObject({
      status: 413,
      body: {
        code: 'payload_too_large',
        message: `the request body is larger than the limit of ${bytesMax} bytes`,
      },
    })
  })

  it('and records may be longer than that', async () => {
    const body = { text: 'x'.repeat(2 * LIMITS.transactionBytesMax) }
    expect((await call('POST', '/tables/notes/data', { body })).status).toBe(201)
  })
})

describe('the tables of a branch', () => {
  it('have at most as many columns together as the limit says', async () => {
    const column = (table: string, name: string) => ({
      addColumn: { table, column: { name, type: 'int' } },
    })
    const update = (operations: readonly unknown[]) =>
      call('POST', '/schema/update', { body: { operations } })
    const left = LIMITS.columnsPerBranchMax - 2
    expectOk(
      await update([...addTables({ more: [] }), ...times(left, (i) => column('more', `c${i}`))]),
    )
    expect(await update([column('notes', 'other')])).toMatchObject({
      status: 400,
      body: {
        code: 'invalid_schema',
        message: `the tables of a branch cannot have more than ${LIMITS.columnsPerBranchMax} columns`,
      },
    })
    expectOk(await update([{ removeTable: { table: 'more' } }]))
  })
})

describe('of what is wrong with a request, a part is listed', () => {
  const unknown = (count: number) => Object.fromEntries(times(count, (i) => [`unknown${i}`, 1]))

  it('of a record', async () => {
    const refused = async (count: number) => {
      const answer = await call('POST', '/tables/notes/data', { body: unknown(count) })
      expect(answer.status).toBe(400)
      return answer.body.message.replace('invalid record: ', '').split('; ')
    }
    expect(await refused(RECORD_FAULTS_MAX)).toHaveLength(RECORD_FAULTS_MAX)
    const more = await refused(RECORD_FAULTS_MAX + 1)
    expect(more).toHaveLength(RECORD_FAULTS_MAX + 1)
    expect(more.at(-1)).toBe('there are more faults')
    expect(await refused(1000)).toEqual(more)
  })

  it('of a transaction, which says how many operations have failed', async () => {
    const failing = Math.ceil(TRANSACTION_FAULTS_MAX / RECORD_FAULTS_MAX) + 10
    const insert = { insert: { table: 'notes', record: unknown(RECORD_FAULTS_MAX) } }
    const body = { operations: times(failing, () => insert) }
    const answer = await call('POST', '/transaction', { body })
    expect(answer.body.message).toBe(`${failing} operations failed; nothing was applied`)
    expect(answer.body.errors).toHaveLength(TRANSACTION_FAULTS_MAX)
  })
})

describe('a long answer', () => {
  it('is sent in pieces that cut no character', async () => {
    const text = 'a𝔘é'.repeat(50_000)
    for (const id of ['x', 'ax']) {
      const answer = await call('PUT', `/tables/notes/data/${id}`, { body: { text } })
      expect(answer.status).toBe(201)
      const read = await call('GET', `/tables/notes/data/${id}`)
      expect(read.body.text).toBe(text)
      expect(Number(read.headers['content-length'])).toBeGreaterThan(text.length)
    }
  })
})
