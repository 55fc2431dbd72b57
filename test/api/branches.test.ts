import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { createDatabase, createKey } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'
import { runKind } from '../support/work.js'

const XATA_CLIENT = { 'x-xata-agent': 'client=TS_SDK' }
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

let service: TestService

beforeAll(async () => {
  service = await createTestService()
  await createDatabase(service, 'shop')
  await createDatabase(service, 'trunked', { branchName: 'trunk' })
})
afterAll(() => service.close())

const url = (branch: string, database = 'shop') => `${service.workspace}/db/${database}:${branch}`
const read = (branch: string) => service.call('GET', url(branch))
const create = (branch: string, options: { body?: unknown; query?: string } = {}) =>
  service.call('PUT', `${url(branch)}${options.query ?? ''}`, { body: options.body })

describe('GET branch', () => {
  it('gives everything there is to know about the first branch of a database', async () => {
    const { status, body } = await read('main')
    expect(status).toBe(200)
    expect(body).toEqual({
      databaseName: 'shop',
      branchName: 'main',
      createdAt: expect.stringMatching(TIME),
      id: expect.stringMatching(/^bb_[0-9a-v]{26}_[a-z0-9]{6}$/),
      version: 1,
      lastMigrationID: expect.stringMatching(/^mig_[0-9a-v]{20}$/),
      metadata: {},
      schema: { tables: [], tablesOrder: [] },
    })
  })

  it('never says usePgRoll, which would lead old clients to paths that do not exist', async () => {
    expect((await read('main')).body).not.toHaveProperty('usePgRoll')
  })

  it.each([
    ['an unknown branch', 'shop:nowhere', 'branch [nowhere] not found', 'branch_not_found'],
    ['an unknown database', 'nowhere:main', 'database [nowhere] not found', 'database_not_found'],
    ['a name that differs in case', 'shop:Main', 'branch [Main] not found', 'branch_not_found'],
  ])('answers %s with 404', async (_name, branch, message, code) => {
    const answer = await service.call('GET', `${service.workspace}/db/${branch}`)
    expect(answer.status).toBe(404)
    expect(answer.body).toEqual({ id: answer.headers['x-request-id'], message, code })
  })

  it.each([
    'shop',
    'shop:',
    ':main',
    'shop:a:b',
    'shop:a%2Fb',
    'shop:a.b',
    'shop:a%20b',
    `shop:${'x'.repeat(256)}`,
    `${'x'.repeat(256)}:main`,
    'shop:%00',
    'shop:%F0%9F%8D%8E',
  ])('refuses the address %s with 400', async (branch) => {
    const answer = await service.call('GET', `${service.workspace}/db/${branch}`)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain('path: part [databaseBranch]: must have')
  })

  it('reads the colon also when it is percent-encoded', async () => {
    const answer = await service.call('GET', `${service.workspace}/db/shop%3Amain`)
    expect(answer.status).toBe(200)
  })
})

describe('PUT branch', () => {
  it('forks the default branch when nothing else is asked for, without any body', async () => {
    const main = (await read('main')).body
    const answer = await create('plain')
    expect(answer.status).toBe(201)
    expect(answer.headers.location).toBe('/db/shop:plain')
    expect(answer.body).toEqual({
      databaseName: 'shop',
      branchName: 'plain',
      status: 'completed',
    })
    const { body } = await read('plain')
    expect(body).toEqual({
      databaseName: 'shop',
      branchName: 'plain',
      createdAt: expect.stringMatching(TIME),
      id: expect.stringMatching(/^bb_/),
      version: 1,
      lastMigrationID: main.lastMigrationID,
      metadata: {},
      startedFrom: {
        branchName: 'main',
        dbBranchID: main.id,
        migrationID: main.lastMigrationID,
      },
      schema: main.schema,
    })
    expect(body.id).not.toBe(main.id)
  })

  it.each([
    ['an empty JSON body', { body: '' }],
    ['an empty object', { body: {} }],
  ])('takes %s for no wishes', async (name, options) => {
    const branch = `empty-${name.replaceAll(' ', '-')}`
    const answer = await service.call('PUT', url(branch), {
      ...options,
      headers: { 'content-type': 'application/json' },
    })
    expect(answer.status).toBe(201)
    expect((await read(branch)).body.startedFrom.branchName).toBe('main')
  })

  it('forks the default branch also when that one is not called main', async () => {
    expect((await service.call('PUT', url('dev', 'trunked'))).status).toBe(201)
    const { body } = await service.call('GET', url('dev', 'trunked'))
    expect(body.startedFrom.branchName).toBe('trunk')
  })

  it('lets the query decide over the body, and the body over the default', async () => {
    await create('from-query')
    await create('from-body')
    await create('both', { query: '?from=from-query', body: { from: 'from-body' } })
    await create('body-only', { body: { from: 'from-body' } })
    await create('query-only', { query: '?from=from-query' })
    const startOf = async (branch: string) => (await read(branch)).body.startedFrom.branchName
    expect(await startOf('both')).toBe('from-query')
    expect(await startOf('body-only')).toBe('from-body')
    expect(await startOf('query-only')).toBe('from-query')
  })

  it('looks at the body even when the query names the source', async () => {
    const answer = await create('half', { query: '?from=main', body: { from: 'a/b' } })
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain('body: field [from]')
  })

  it('keeps the metadata of the request for the new branch alone', async () => {
    const metadata = { repository: 'acme/shop', branch: 'feat-1', stage: 'dev', labels: ['x', 'é'] }
    await create('with-metadata', { body: { metadata } })
    expect((await read('with-metadata')).body.metadata).toEqual(metadata)
    await create('without-metadata', { body: { from: 'with-metadata' } })
    expect((await read('without-metadata')).body.metadata).toEqual({})
  })

  it('forks forks, each started from its own source', async () => {
    await create('generation-1')
    await create('generation-2', { body: { from: 'generation-1' } })
    await create('generation-3', { body: { from: 'generation-2' } })
    const [first, second, third] = await Promise.all(
      ['generation-1', 'generation-2', 'generation-3'].map(async (name) => (await read(name)).body),
    )
    expect(second.startedFrom).toMatchObject({ branchName: 'generation-1', dbBranchID: first.id })
    expect(third.startedFrom).toMatchObject({ branchName: 'generation-2', dbBranchID: second.id })
    expect(third.lastMigrationID).toBe(first.lastMigrationID)
  })

  it.each([true, false])('takes the wish for data: %s', async (data) => {
    expect((await create(`data-${data}`, { body: { data } })).status).toBe(201)
  })

  it('leaves the rows out by default for Xata clients', async () => {
    const inherits = async (branch: string) => {
      const [row] = await service.database.query<{ parent_id: string | null }>(sql`
        select parent_id from offshoot.branches where name = ${branch}`)
      return row?.parent_id != null
    }
    const put = (branch: string, body?: unknown) =>
      service.call('PUT', url(branch), { body, headers: XATA_CLIENT })
    await put('xata-default')
    await put('xata-data', { data: true })
    await create('plain-default')
    await create('plain-no-data', { body: { data: false } })
    expect(await inherits('xata-default')).toBe(false)
    expect(await inherits('xata-data')).toBe(true)
    expect(await inherits('plain-default')).toBe(true)
    expect(await inherits('plain-no-data')).toBe(false)
  })

  it('takes names of every allowed character, up to 255 of them', async () => {
    for (const name of ['b', 'A_b-c~9', '-', '~', 'x'.repeat(255)]) {
      const answer = await create(name)
      expect(answer.status).toBe(201)
      expect(answer.headers.location).toBe(`/db/shop:${name}`)
      expect((await read(name)).body.branchName).toBe(name)
    }
  })

  it('refuses a name that is taken with 422 and leaves that branch alone', async () => {
    await create('taken', { body: { metadata: { stage: 'first' } } })
    const before = (await read('taken')).body
    const answer = await create('taken', { body: { metadata: { stage: 'second' } } })
    expect(answer.status).toBe(422)
    expect(answer.body).toEqual({
      id: answer.headers['x-request-id'],
      message: 'branch [taken] already exists',
      code: 'already_exists',
    })
    expect((await read('taken')).body).toEqual(before)
  })

  it('refuses the name of the default branch with 422', async () => {
    expect((await create('main')).status).toBe(422)
  })

  it('answers an unknown database with 404', async () => {
    const answer = await service.call('PUT', url('dev', 'nowhere'))
    expect(answer.status).toBe(404)
    expect(answer.body.code).toBe('database_not_found')
  })

  it.each([
    ['in the query', { query: '?from=nowhere' }],
    ['in the body', { body: { from: 'nowhere' } }],
    ['in the query, over a known one', { query: '?from=nowhere', body: { from: 'main' } }],
  ])('refuses an unknown source %s with 400', async (_name, options) => {
    const answer = await create('refused', options)
    expect(answer.status).toBe(400)
    expect(answer.body).toMatchObject({
      message: 'branch [nowhere] not found: it cannot be forked',
      code: 'unknown_source_branch',
    })
    expect((await read('refused')).status).toBe(404)
  })

  it('refuses a branch of another database as the source with 400', async () => {
    expect((await create('refused', { body: { from: 'trunk' } })).status).toBe(400)
  })

  it.each([
    ['an empty source', { body: { from: '' } }, 'body: field [from]'],
    ['an empty source in the query', { query: '?from=' }, 'query: parameter [from]'],
    ['two sources in the query', { query: '?from=a&from=b' }, 'query: parameter [from]'],
    ['a source that is no name', { body: { from: 'a/b' } }, 'body: field [from]'],
    ['a source of the wrong type', { body: { from: 1 } }, '[from]: must be of type string'],
    ['an unknown field', { body: { form: 'main' } }, '[form]: is not known'],
    ['data of the wrong type', { body: { data: 'yes' } }, '[data]: must be of type boolean'],
    [
      'metadata of the wrong type',
      { body: { metadata: [] } },
      '[metadata]: must be of type object',
    ],
    ['an unknown metadata field', { body: { metadata: { tags: [] } } }, '[metadata.tags]'],
    ['an empty repository', { body: { metadata: { repository: '' } } }, '[metadata.repository]'],
    ['a branch with a slash', { body: { metadata: { branch: 'a/b' } } }, '[metadata.branch]'],
    ['an empty stage', { body: { metadata: { stage: '' } } }, '[metadata.stage]'],
    ['a label that is no text', { body: { metadata: { labels: [null] } } }, '[metadata.labels.0]'],
    ['a list', { body: [] }, 'body: must be of type object'],
    ['a text', { body: '"main"' }, 'body: must be of type object'],
  ])('refuses %s with 400 and creates nothing', async (_name, options, message) => {
    const answer = await create('refused', options)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
    expect((await read('refused')).status).toBe(404)
  })

  it('lets exactly one of many requests for the same name win', async () => {
    const sources = ['main', 'plain', 'main', 'both', 'main', 'plain', 'main', 'main']
    const answers = await Promise.all(
      sources.map((from, n) =>
        create('race', { body: { from, metadata: { stage: `${n}-${from}` } } }),
      ),
    )
    const statuses = answers.map((answer) => answer.status).sort()
    expect(statuses).toEqual([201, 422, 422, 422, 422, 422, 422, 422])
    const winner = answers.findIndex((answer) => answer.status === 201)
    const { body } = await read('race')
    expect(body.metadata.stage).toBe(`${winner}-${sources[winner]}`)
    expect(body.startedFrom.branchName).toBe(sources[winner])
  })
})

describe('DELETE branch', () => {
  it('deletes a branch, and a second time there is none', async () => {
    await create('gone')
    const answer = await service.call('DELETE', url('gone'))
    expect(answer).toMatchObject({ status: 200, body: { status: 'completed' } })
    expect((await read('gone')).status).toBe(404)
    const again = await service.call('DELETE', url('gone'))
    expect(again).toMatchObject({ status: 404, body: { code: 'branch_not_found' } })
  })

  it('refuses to delete the default branch with 409', async () => {
    const answer = await service.call('DELETE', url('main'))
    expect(answer.status).toBe(409)
    expect(answer.body).toEqual({
      id: answer.headers['x-request-id'],
      message: 'branch [main]: is the default branch of the database and cannot be deleted',
      code: 'default_branch',
    })
    expect((await read('main')).status).toBe(200)
  })

  it('keeps the forks of a deleted branch', async () => {
    await create('parent')
    await create('child', { body: { from: 'parent' } })
    await create('grandchild', { body: { from: 'child' } })
    const before = (await read('grandchild')).body
    expect((await service.call('DELETE', url('parent'))).status).toBe(200)
    expect((await service.call('DELETE', url('child'))).status).toBe(200)
    expect((await read('grandchild')).body).toEqual(before)
    expect((await create('great-grandchild', { body: { from: 'grandchild' } })).status).toBe(201)
  })

  it('cannot be the source of a fork any more, nor be listed', async () => {
    await create('hidden')
    await create('hidden-child', { body: { from: 'hidden' } })
    await service.call('DELETE', url('hidden'))
    expect((await create('late', { body: { from: 'hidden' } })).status).toBe(400)
    const list = await service.call('GET', `${service.workspace}/dbs/shop`)
    const names = list.body.branches.map((branch: { name: string }) => branch.name)
    expect(names).toContain('hidden-child')
    expect(names).not.toContain('hidden')
  })

  it('frees the name for a new branch, which is another one', async () => {
    await create('again', { body: { metadata: { stage: 'old' } } })
    const old = (await read('again')).body
    await create('again-child', { body: { from: 'again' } })
    await service.call('DELETE', url('again'))
    expect((await create('again')).status).toBe(201)
    const { body } = await read('again')
    expect(body.id).not.toBe(old.id)
    expect(body.metadata).toEqual({})
    const child = (await read('again-child')).body
    expect(child.startedFrom.dbBranchID).toBe(old.id)
    await service.call('DELETE', url('again-child'))
    expect((await read('again')).status).toBe(200)
  })

  it('leaves nothing of deleted branches behind once nothing inherits from them', async () => {
    await createDatabase(service, 'swept')
    const inSwept = (branch: string) => url(branch, 'swept')
    await service.call('PUT', inSwept('a'))
    await service.call('PUT', inSwept('b'), { body: { from: 'a' } })
    await service.call('PUT', inSwept('c'), { body: { from: 'b' } })
    for (const branch of ['a', 'b', 'c']) await service.call('DELETE', inSwept(branch))
    while (await runKind(service, 'sweep'));
    const rows = await service.database.query<{ name: string }>(sql`
      select b.name
      from offshoot.branches b
      join offshoot.databases d on d.id = b.database_id
      where d.name = 'swept'`)
    expect(rows.map((row) => row.name)).toEqual(['main'])
  })

  it('answers many deletions of the same branch with one 200', async () => {
    await create('contested')
    await create('contested-child', { body: { from: 'contested' } })
    const answers = await Promise.all(
      Array.from({ length: 6 }, () => service.call('DELETE', url('contested'))),
    )
    expect(answers.map((answer) => answer.status).sort()).toEqual([200, 404, 404, 404, 404, 404])
  })

  it.each([
    ['an unknown branch', 'nowhere', 'shop'],
    ['an unknown database', 'main', 'nowhere'],
  ])('answers %s with 404', async (_name, branch, database) => {
    expect((await service.call('DELETE', url(branch, database))).status).toBe(404)
  })
})

describe('branch metadata', () => {
  const metadataUrl = (branch: string) => `${url(branch)}/metadata`

  it('is read and replaced as a whole', async () => {
    await create('meta')
    expect(await service.call('GET', metadataUrl('meta'))).toMatchObject({ status: 200, body: {} })
    const full = { repository: 'acme/shop', branch: 'feat', stage: 'prod', labels: ['a', '', '🍎'] }
    const answer = await service.call('PUT', metadataUrl('meta'), { body: full })
    expect(answer).toMatchObject({ status: 204, body: '' })
    expect((await service.call('GET', metadataUrl('meta'))).body).toEqual(full)
    await service.call('PUT', metadataUrl('meta'), { body: { stage: 'dev' } })
    expect((await service.call('GET', metadataUrl('meta'))).body).toEqual({ stage: 'dev' })
    expect((await read('meta')).body.metadata).toEqual({ stage: 'dev' })
  })

  it('takes texts and lists up to their limits', async () => {
    await create('meta-limits')
    const put = (body: unknown) => service.call('PUT', metadataUrl('meta-limits'), { body })
    expect((await put({ stage: 'x'.repeat(2048) })).status).toBe(204)
    expect((await put({ stage: 'x'.repeat(2049) })).status).toBe(400)
    expect((await put({ labels: Array(100).fill('x'.repeat(2048)) })).status).toBe(204)
    expect((await put({ labels: Array(101).fill('x') })).status).toBe(400)
    expect((await put({ labels: ['x'.repeat(2049)] })).status).toBe(400)
    expect((await service.call('GET', metadataUrl('meta-limits'))).body.labels).toHaveLength(100)
  })

  it.each([
    ['no body', undefined],
    ['null', 'null'],
    ['an unknown field', { colour: 'red' }],
    ['an empty stage', { stage: '' }],
    ['half of a surrogate pair', '{"stage":"\\ud800"}'],
    ['half of a surrogate pair in a label', '{"labels":["\\udc00\\ud800"]}'],
    ['a NUL', '{"labels":["\\u0000"]}'],
  ])('refuses %s with 400 and keeps what was there', async (name, body) => {
    const branch = `meta-${name.replaceAll(' ', '-')}`
    await create(branch, { body: { metadata: { stage: 'kept' } } })
    expect((await service.call('PUT', metadataUrl(branch), { body })).status).toBe(400)
    expect((await service.call('GET', metadataUrl(branch))).body).toEqual({ stage: 'kept' })
  })

  it('answers an unknown branch with 404', async () => {
    expect((await service.call('GET', metadataUrl('nowhere'))).status).toBe(404)
    expect((await service.call('PUT', metadataUrl('nowhere'), { body: {} })).status).toBe(404)
  })
})

describe('GET branches of a database', () => {
  it('lists each branch with its id, its time, its source and whether it is the default', async () => {
    await createDatabase(service, 'listed')
    await service.call('PUT', url('b', 'listed'))
    await service.call('PUT', url('A', 'listed'), { body: { from: 'b' } })
    const { status, body } = await service.call('GET', `${service.workspace}/dbs/listed`)
    expect(status).toBe(200)
    const common = { id: expect.stringMatching(/^bb_/), createdAt: expect.stringMatching(TIME) }
    expect(body).toEqual({
      databaseName: 'listed',
      branches: [
        { name: 'A', ...common, default: false, from: 'b' },
        { name: 'b', ...common, default: false, from: 'main' },
        { name: 'main', ...common, default: true },
      ],
    })
  })

  it('answers an unknown database with 404', async () => {
    const answer = await service.call('GET', `${service.workspace}/dbs/nowhere`)
    expect(answer).toMatchObject({ status: 404, body: { code: 'database_not_found' } })
  })
})

describe('keys with a scope of branches', () => {
  let key: string
  const call = (method: string, branch: string, body?: unknown) =>
    service.call(method, url(branch), { body, key })

  beforeAll(async () => {
    const fields = { scope: { databases: ['shop'], branches: ['preview-*'] } }
    key = await createKey(service, 'previews', { fields })
    await create('preview-base')
  })

  it('reach the branches of their patterns and no other', async () => {
    expect((await call('GET', 'preview-base')).status).toBe(200)
    expect(await call('GET', 'main')).toMatchObject({
      status: 404,
      body: { message: 'branch [main] not found' },
    })
    expect((await call('DELETE', 'plain')).status).toBe(404)
    expect((await read('plain')).status).toBe(200)
    const list = await service.call('GET', `${service.workspace}/dbs/shop`, { key })
    for (const { name } of list.body.branches) expect(name).toMatch(/^preview-/)
  })

  it('create and delete branches within their patterns only', async () => {
    expect((await call('PUT', 'preview-1', { from: 'preview-base' })).status).toBe(201)
    expect((await call('DELETE', 'preview-1')).status).toBe(200)
    const outside = await call('PUT', 'other', { from: 'preview-base' })
    expect(outside).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    expect((await read('other')).status).toBe(404)
  })

  it('cannot copy the rows of a branch they do not reach', async () => {
    expect(await call('PUT', 'preview-2', { from: 'main' })).toMatchObject({
      status: 400,
      body: { message: 'branch [main] not found: it cannot be forked' },
    })
    expect(await call('PUT', 'preview-2')).toMatchObject({
      status: 403,
      body: {
        message: expect.stringContaining(
          'does not include the branch that new branches are forked from',
        ),
      },
    })
    expect((await read('preview-2')).status).toBe(404)
  })
})
