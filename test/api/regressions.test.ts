import { afterAll, beforeAll, expect, it } from 'vitest'
import { createTestService, type TestService } from '../support/service.js'

let service: TestService

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const createDatabase = (name: string, workspaceId = service.workspaceId) =>
  service.call('PUT', `/workspaces/${workspaceId}/dbs/${name}`, { body: { region: 'local' } })

it('deletes a database whose branches were merged, and everything in it', async () => {
  await createDatabase('merged')
  const branch = (name: string) => `${service.workspace}/db/merged:${name}`
  await service.call('PUT', `${branch('main')}/tables/items`)
  await service.call('PUT', branch('sale'))
  await service.call('PUT', `${branch('sale')}/tables/items/data/a`, { body: {} })
  expect((await service.call('POST', `${branch('sale')}/merge`)).status).toBe(200)
  await service.call('PUT', branch('x1'), { body: { from: 'main' } })
  await service.call('PUT', branch('x2'), { body: { from: 'sale' } })
  const answer = await service.call('DELETE', `/workspaces/${service.workspaceId}/dbs/merged`)
  expect(answer).toMatchObject({ status: 200, body: { status: 'completed' } })
})

it('asks for the workspace as soon as a second one has a database of that name', async () => {
  await createDatabase('twice')
  await service.call('PUT', `${service.workspace}/db/twice:main/tables/items`)
  await service.call('PUT', `${service.workspace}/db/twice:main/tables/items/data/a`, { body: {} })
  const bare = '/db/twice:main/tables/items/data/a'
  expect((await service.call('GET', bare)).status).toBe(200)
  const { body } = await service.call('POST', '/workspaces', { body: { name: 'Other' } })
  await createDatabase('twice', body.id)
  const answer = await service.call('GET', bare)
  expect(answer).toMatchObject({ status: 400, body: { code: 'ambiguous_workspace' } })
})

it('names the line of a stream whose value is taken already', async () => {
  await createDatabase('stream')
  const table = `${service.workspace}/db/stream:main/tables/items`
  await service.call('PUT', table)
  await service.call('POST', `${table}/columns`, {
    body: { name: 'code', type: 'string', unique: true },
  })
  await service.call('POST', `${table}/data`, { body: { code: 'X' } })
  const answer = await service.call('POST', `${table}/bulk`, {
    body: '{"code":"k1"}\n\n\n{"code":"X"}',
    headers: { 'content-type': 'application/x-ndjson' },
  })
  expect(answer.status).toBe(400)
  expect(answer.body.errors).toEqual([
    {
      index: 3,
      line: 4,
      status: 400,
      message: 'invalid record: column [code]: is not unique',
      code: 'unique_violation',
      table: expect.any(String),
      column: 'code',
    },
  ])
})
