import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { retries } from '../../packages/server/src/telemetry/events.js'
import { createTestService, type TestService } from '../support/service.js'

let service: TestService
let url: (name: string) => string

beforeAll(async () => {
  service = await createTestService()
  url = (name) => `/workspaces/${service.workspaceId}/dbs/${name}`
})
afterAll(() => service.close())

const create = (name: string, body: unknown = { region: 'local' }) =>
  service.call('PUT', url(name), { body })

describe('PUT database', () => {
  it('creates a database with the default branch main and says where it is', async () => {
    const answer = await create('shop')
    expect(answer.status).toBe(201)
    expect(answer.headers.location).toBe(url('shop'))
    expect(answer.body).toEqual({ databaseName: 'shop', branchName: 'main', status: 'completed' })
    const branch = await service.call('GET', `${service.workspace}/db/shop:main`)
    expect(branch.status).toBe(200)
  })

  it('gives the named first branch the metadata of the request', async () => {
    const metadata = { repository: 'acme/shop', branch: 'trunk', stage: 'prod', labels: ['a', ''] }
    const answer = await create('first-branch', { region: 'eu', branchName: 'trunk', metadata })
    expect(answer.body.branchName).toBe('trunk')
    const branch = await service.call(
      'GET',
      `/${service.workspaceId}.eu/db/first-branch:trunk/metadata`,
    )
    expect(branch.body).toEqual(metadata)
  })

  it('takes names of every allowed character, up to 255 of them', async () => {
    for (const name of ['a', 'A_b-c~9', 'x'.repeat(255)]) {
      expect((await create(name)).status).toBe(201)
      expect((await service.call('GET', url(name))).body.name).toBe(name)
    }
  })

  it('is never in conflict with others in the same workspace, up to their limit', async () => {
    const count = () => [...retries.samples()].reduce((sum, { value }) => sum + value, 0)
    const before = count()
    const clients = Array.from({ length: 6 }, async (_, client) => {
      const statuses: number[] = []
      for (let number = 0; number < 4; number++) {
        statuses.push((await create(`made-${client}-${number}`)).status)
      }
      return statuses
    })
    expect((await Promise.all(clients)).flat()).toEqual(Array.from({ length: 24 }, () => 201))
    expect(count()).toBe(before)
  })

  it('ignores the two fields of hosted clusters', async () => {
    const body = { region: 'local', postgresEnabled: true, defaultClusterID: 'shared' }
    expect((await create('hosted-fields', body)).status).toBe(201)
  })

  it('refuses a name that is taken with 422', async () => {
    await create('taken')
    const answer = await create('taken')
    expect(answer.status).toBe(422)
    expect(answer.body).toEqual({
      id: answer.headers['x-request-id'],
      message: 'database [taken] already exists',
      code: 'already_exists',
    })
  })

  it.each([
    ['no body', undefined, 'body: '],
    ['no region', {}, '[region]: is required'],
    ['an empty region', { region: '' }, '[region]'],
    ['an unknown region', { region: 'mars' }, '[mars] is not one of [local, eu]'],
    ['a region of the wrong type', { region: 5 }, '[region]: must be of type string'],
    ['an empty branch name', { region: 'local', branchName: '' }, '[branchName]'],
    ['a branch name with a slash', { region: 'local', branchName: 'a/b' }, '[branchName]'],
    ['an unknown field', { region: 'local', colour: 'red' }, '[colour]: is not known'],
    [
      'an unknown field in ui',
      { region: 'local', ui: { colour: '' } },
      '[ui.colour]: is not known',
    ],
    ['an empty stage', { region: 'local', metadata: { stage: '' } }, '[metadata.stage]'],
    ['labels of the wrong type', { region: 'local', metadata: { labels: [1] } }, 'labels.0'],
    ['a NUL in a label', { region: 'local', metadata: { stage: 'a\0b' } }, 'NUL'],
    ['a list', [], 'body: must be of type object'],
  ])('refuses %s with 400 and stores nothing', async (_name, body, message) => {
    const answer = await service.call('PUT', url('refused'), { body })
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
    expect((await service.call('GET', url('refused'))).status).toBe(404)
  })

  it.each([['a.b'], ['a%20b'], ['a%3Ab'], ['x'.repeat(256)], ['%00'], ['%F0%9F%8D%8E']])(
    'refuses the name %s with 400',
    async (name) => {
      expect((await create(name)).status).toBe(400)
    },
  )
})

describe('GET, PATCH and DELETE database', () => {
  it('reads name, region, creation time and colour', async () => {
    await create('read', { region: 'eu', ui: { color: 'teal' } })
    const { status, body } = await service.call('GET', url('read'))
    expect(status).toBe(200)
    expect(body).toEqual({
      name: 'read',
      region: 'eu',
      createdAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      ui: { color: 'teal' },
    })
  })

  it('changes the colour and nothing else', async () => {
    await create('paint')
    const before = (await service.call('GET', url('paint'))).body
    const answer = await service.call('PATCH', url('paint'), { body: { ui: { color: 'red' } } })
    expect(answer.status).toBe(200)
    expect(answer.body).toEqual({ ...before, ui: { color: 'red' } })
  })

  it.each([[{}], [{ ui: { color: '' } }], [{ name: 'x' }], [{ ui: 'red' }]])(
    'refuses the change %j with 400',
    async (body) => {
      await create('paint-refused')
      expect((await service.call('PATCH', url('paint-refused'), { body })).status).toBe(400)
    },
  )

  it('deletes the database with its branches', async () => {
    await create('gone')
    await service.call('PUT', `${service.workspace}/db/gone:dev`)
    const answer = await service.call('DELETE', url('gone'))
    expect(answer).toMatchObject({ status: 200, body: { status: 'completed' } })
    expect((await service.call('GET', url('gone'))).status).toBe(404)
    expect((await service.call('GET', `${service.workspace}/db/gone:dev`)).status).toBe(404)
    expect((await create('gone')).status).toBe(201)
  })

  it.each(['GET', 'DELETE'])('answers %s of an unknown database with 404', async (method) => {
    const answer = await service.call(method, url('nowhere'))
    expect(answer.status).toBe(404)
    expect(answer.body.message).toBe('database [nowhere] not found')
    expect(answer.body.code).toBe('database_not_found')
  })

  it('answers PATCH of an unknown database with 404', async () => {
    const answer = await service.call('PATCH', url('nowhere'), { body: { ui: { color: 'a' } } })
    expect(answer.status).toBe(404)
  })

  it('lists the databases of the workspace by name', async () => {
    const { body } = await service.call('GET', `/workspaces/${service.workspaceId}/dbs`)
    const names = body.databases.map((database: { name: string }) => database.name)
    expect(names).toContain('shop')
    expect(names).toEqual([...names].sort())
  })
})

describe('rename, settings and repository', () => {
  it('renames a database, and the old name is free at once', async () => {
    await create('old')
    const answer = await service.call('POST', `${url('old')}/rename`, { body: { newName: 'new' } })
    expect(answer).toMatchObject({ status: 200, body: { name: 'new' } })
    expect((await service.call('GET', `${service.workspace}/db/old:main`)).status).toBe(404)
    expect((await service.call('GET', `${service.workspace}/db/new:main`)).status).toBe(200)
    expect((await create('old')).status).toBe(201)
    const taken = await service.call('POST', `${url('old')}/rename`, { body: { newName: 'new' } })
    expect(taken.status).toBe(422)
  })

  it('keeps and forgets the connected repository', async () => {
    await create('repo')
    const github = `${url('repo')}/github`
    expect((await service.call('GET', github)).status).toBe(404)
    const body = { owner: 'acme', repo: 'shop' }
    expect(await service.call('PUT', github, { body })).toMatchObject({ status: 200, body })
    expect((await service.call('GET', github)).body).toEqual(body)
    expect((await service.call('DELETE', github)).status).toBe(204)
    expect((await service.call('DELETE', github)).status).toBe(404)
  })

  it('keeps the search setting', async () => {
    await create('settings')
    const settings = `${service.workspace}/dbs/settings/settings`
    expect((await service.call('GET', settings)).body).toEqual({ searchEnabled: true })
    const answer = await service.call('PATCH', settings, { body: { searchEnabled: false } })
    expect(answer).toMatchObject({ status: 200, body: { searchEnabled: false } })
    expect((await service.call('GET', settings)).body).toEqual({ searchEnabled: false })
  })
})

describe('limits', () => {
  it('allows as many databases as the limit says and refuses one more', async () => {
    const limited = await createTestService({ limits: { databasesPerWorkspaceMax: 2 } })
    const put = (name: string) =>
      limited.call('PUT', `/workspaces/${limited.workspaceId}/dbs/${name}`, {
        body: { region: 'local' },
      })
    expect((await put('one')).status).toBe(201)
    expect((await put('two')).status).toBe(201)
    const answer = await put('three')
    expect(answer.status).toBe(422)
    expect(answer.body.message).toContain('at most 2 databases')
    await limited.close()
  })
})
