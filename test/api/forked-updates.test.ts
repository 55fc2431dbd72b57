import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestService, type TestService } from '../support/service.js'
import { type BranchCall, branchCall, createTables, expectOk } from '../support/tables.js'

let service: TestService
let main: BranchCall
let forks = 0

beforeAll(async () => {
  service = await createTestService()
  main = await createTables(service, 'shop', {
    users: [
      { name: 'name', type: 'string' },
      { name: 'email', type: 'email', unique: true },
      { name: 'age', type: 'int' },
      { name: 'score', type: 'float' },
      { name: 'tags', type: 'multiple' },
    ],
  })
})
afterAll(() => service.close())

async function fork(from = 'main'): Promise<{ name: string; call: BranchCall }> {
  const name = `fork${++forks}`
  const call = branchCall(service, 'shop', { branch: name })
  expectOk(await call('PUT', '', { body: { from } }))
  return { name, call }
}

const path = (id: string) => `/tables/users/data/${id}`
const put = async (call: BranchCall, id: string, body: unknown) =>
  expectOk(await call('PUT', path(id), { body }))
const patch = (call: BranchCall, id: string, body: unknown, query = '') =>
  call('PATCH', `${path(id)}${query}`, { body })
const read = async (call: BranchCall, id: string) =>
  expectOk(await call('GET', path(id))).body as Record<string, unknown>

/*
 * In a fork, an update is an `insert ... on conflict`: the inserted row is made from the inherited
 * row, and the conflict branch updates the fork's own row. These tests make the two rows differ in
 * every way.
 */
describe('an update in a fork', () => {
  it('expects the version of the own row, not of the one it inherits', async () => {
    await put(main, 'versions', { name: 'A', age: 1, tags: ['x', 'y'] })
    const { call } = await fork()
    expect((await patch(call, 'versions', { name: 'B' }, '?ifVersion=1')).status).toBe(422)
    expectOk(await patch(call, 'versions', { name: 'B' }, '?ifVersion=0'))
    expect((await patch(call, 'versions', { name: 'C' }, '?ifVersion=0')).status).toBe(422)
    expectOk(await patch(call, 'versions', { tags: ['z'] }, '?ifVersion=1'))
    expect(await read(call, 'versions')).toMatchObject({
      name: 'B',
      age: 1,
      tags: ['z'],
      service: { version: 2 },
    })
    expect(await read(main, 'versions')).toMatchObject({ name: 'A', tags: ['x', 'y'] })
  })

  it('finds no record that the fork or a fork between has deleted, until it is made again', async () => {
    await put(main, 'deleted', { name: 'A', age: 1 })
    const between = await fork()
    expectOk(await between.call('DELETE', path('deleted')))
    expect((await patch(between.call, 'deleted', { name: 'B' })).status).toBe(404)
    const { call } = await fork(between.name)
    expect((await patch(call, 'deleted', { name: 'B' })).status).toBe(404)
    for (const again of [between.call, call]) {
      await put(again, 'deleted', { name: 'again' })
      expectOk(await patch(again, 'deleted', { score: 2 }))
      const { service: metadata, ...record } = await read(again, 'deleted')
      expect(record).toEqual({ id: 'deleted', name: 'again', score: 2 })
      expect(metadata).toMatchObject({ version: 1 })
    }
  })

  it('changes records of the fork alone', async () => {
    const { call } = await fork()
    await put(call, 'own', { name: 'A' })
    expectOk(await patch(call, 'own', { age: 5 }))
    expect(await read(call, 'own')).toMatchObject({ name: 'A', age: 5, service: { version: 1 } })
    expect((await patch(main, 'own', { age: 5 })).status).toBe(404)
  })

  it('leaves a value alone that another record has meanwhile', async () => {
    await put(main, 'passed', { name: 'A', email: 'passed@update.test' })
    const { call } = await fork()
    expectOk(await patch(call, 'passed', { email: 'other@update.test' }))
    await put(call, 'taker', { email: 'passed@update.test' })
    expectOk(await patch(call, 'passed', { name: 'B' }))
    expect(await read(call, 'passed')).toMatchObject({ name: 'B', email: 'other@update.test' })
    expect((await patch(call, 'passed', { email: 'passed@update.test' })).status).toBe(400)
  })

  it('reckons with the own row when the inherited one would have no result', async () => {
    await put(main, 'reckoned', { age: Number.MAX_SAFE_INTEGER, score: 1e308 })
    const { call } = await fork()
    expectOk(await patch(call, 'reckoned', { age: 1, score: 1 }))
    expectOk(await patch(call, 'reckoned', { age: { $increment: 1 }, score: { $multiply: 10 } }))
    expect(await read(call, 'reckoned')).toMatchObject({ age: 2, score: 10 })
  })

  it('keeps what forks of the fork see', async () => {
    await put(main, 'kept', { name: 'A', age: 1 })
    const { name, call } = await fork()
    expectOk(await patch(call, 'kept', { name: 'B' }))
    const further = await fork(name)
    expectOk(await patch(call, 'kept', { name: 'C' }))
    expectOk(await patch(further.call, 'kept', { age: 2 }))
    expect(await read(further.call, 'kept')).toMatchObject({ name: 'B', age: 2 })
    expect(await read(call, 'kept')).toMatchObject({ name: 'C', age: 1 })
  })

  it('is not lost among others of the same record, nor of records next to it', async () => {
    const ids = Array.from({ length: 20 }, (_, index) => `many${index}`)
    for (const id of ids) await put(main, id, { name: 'A', age: 0 })
    const { call } = await fork()
    const fields = [{ name: 'B' }, { age: 1 }, { score: 2 }]
    const answers = await Promise.all(
      ids.flatMap((id) => fields.map((changed) => patch(call, id, changed))),
    )
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
    for (const id of ids) {
      expect(await read(call, id)).toMatchObject({
        name: 'B',
        age: 1,
        score: 2,
        service: { version: 3 },
      })
    }
  })
})
