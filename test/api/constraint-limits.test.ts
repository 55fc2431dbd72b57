import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'

const LIMITS = { constraintsPerTableMax: 2, constraintColumnsMax: 2, violationsListedMax: 2 }

let service: TestService
let number = 0
beforeAll(async () => {
  service = await createTestService({ limits: LIMITS })
})
afterAll(() => service.close())

async function open() {
  const branches = await TestBranches.create(service, `limits${++number}`, {
    items: [
      { name: 'a', type: 'int' },
      { name: 'b', type: 'int' },
      { name: 'c', type: 'int' },
    ],
  })
  const put = (name: string, body: object, branch = 'main') =>
    branches.call(branch, 'PUT', `/tables/items/constraints/${name}`, body)
  return { branches, put }
}

describe('the limits of constraints', () => {
  it('are those of a table', async () => {
    const { put } = await open()
    expect((await put('one', { check: 'a > 0' })).status).toBe(200)
    expect((await put('two', { unique: ['a', 'b'] })).status).toBe(200)
    expect(await put('three', { check: 'b > 0' })).toMatchObject({
      status: 422,
      body: {
        code: 'limit_reached',
        message: 'table [items]: cannot have more than 2 constraints',
      },
    })
    // One takes the place of another of its name.
    expect((await put('two', { check: 'b > 0' })).status).toBe(200)
  })

  it('are kept by merges', async () => {
    const { branches, put } = await open()
    await branches.fork('dev')
    await put('one', { check: 'a > 0' })
    expect((await put('two', { check: 'b > 0' }, 'dev')).status).toBe(200)
    expect((await branches.merge('dev', { dryRun: true })).conflictCount).toBe(0)
    expect((await put('three', { check: 'c > 0' })).status).toBe(200)
    expect((await branches.merge('dev', { dryRun: true })).conflicts).toMatchObject([
      { kind: 'schema', message: 'a table cannot have more than 2 constraints', takes: [] },
    ])
  })

  it('are those of a unique constraint', async () => {
    const { put } = await open()
    expect((await put('one', { unique: ['a', 'b'] })).status).toBe(200)
    expect(await put('two', { unique: ['a', 'b', 'c'] })).toMatchObject({
      status: 400,
      body: { code: 'invalid_schema' },
    })
  })

  it('are those of the records that are listed', async () => {
    const { branches, put } = await open()
    const positive = { check: 'a > 0' }
    for (const id of ['x', 'y']) await branches.put('main', 'items', id, { a: -1 })
    const two = await put('positive', positive)
    expect(two.body).toMatchObject({ code: 'constraint_violated', records: ['x', 'y'] })
    expect(two.body.message).toMatch(/: x, y$/)
    await branches.put('main', 'items', 'z', { a: -1 })
    const three = await put('positive', positive)
    expect(three.body.records).toEqual(['x', 'y'])
    expect(three.body.message).toMatch(/: x, y and more$/)
  })
})
