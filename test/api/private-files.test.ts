import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createKey } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'
import { branchCall, createTables, expectOk } from '../support/tables.js'

const TABLES = {
  people: [
    { name: 'name', type: 'string' as const },
    { name: 'photo', type: 'file' as const },
    { name: 'papers', type: 'file[]' as const },
  ],
}

let service: TestService
let other: TestService
beforeAll(async () => {
  service = await createTestService()
  other = await createTestService({ url: service.url, blobs: service.files.blobs })
})
afterAll(async () => {
  await other.close()
  await service.close()
})

const base64 = (text: string) => Buffer.from(text).toString('base64')
const on = (database: string, branch = 'main') => branchCall(service, database, { branch })
const open = async (url: string, via = service) => {
  const { pathname, search } = new URL(url)
  return (await via.app.inject({ url: `${pathname}${search}` })).statusCode
}

async function prepare(database: string, content: string): Promise<void> {
  await createTables(service, database, TABLES)
  const photo = { name: 'a.txt', enablePublicUrl: true, base64Content: base64(content) }
  const body = { photo, papers: [{ id: 'p', ...photo }] }
  expectOk(await on(database)('PUT', '/tables/people/data/ada', { body }))
}
const fork = async (database: string, name: string, from = 'main') =>
  expectOk(await on(database, name)('PUT', '', { body: { from } }))
const read = async (database: string, branch = 'main', columns = '*') =>
  expectOk(await on(database, branch)('GET', `/tables/people/data/ada?columns=${columns}`)).body
const linkOn = async (database: string, branch = 'main'): Promise<string> =>
  (await read(database, branch)).photo.url
const patch = async (database: string, branch: string, body: object) =>
  expectOk(await on(database, branch)('PATCH', '/tables/people/data/ada', { body }))
const makePrivate = (database: string, options: { key?: string; column?: string } = {}) => {
  const { column = 'photo', ...rest } = options
  const path = `/tables/people/data/ada/column/${column}/makePrivate`
  return on(database)('POST', path, rest)
}

describe('a public file', () => {
  it('that is made private on one branch stays public on its forks', async () => {
    await prepare('documented', 'documented')
    await fork('documented', 'dev')
    const [main, dev] = [await linkOn('documented'), await linkOn('documented', 'dev')]
    await patch('documented', 'main', { photo: { enablePublicUrl: false } })
    expect([await open(main), await open(dev)]).toEqual([403, 200])
  })

  it('that is made private everywhere is so on every branch, through forks, merges and resets', async () => {
    await prepare('everywhere', 'everywhere')
    await fork('everywhere', 'dev')
    await fork('everywhere', 'deep', 'dev')
    // A file with another link and the same content.
    await patch('everywhere', 'deep', { photo: { name: 'renamed.txt' } })
    const branches = ['main', 'dev', 'deep']
    const links = await Promise.all(branches.map((branch) => linkOn('everywhere', branch)))
    for (const link of links) expect(await open(link)).toBe(200)
    const answer = expectOk(await makePrivate('everywhere'))
    expect(answer.body).toEqual({
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
      createdAt: expect.any(String),
    })
    for (const link of links) {
      expect(await open(link)).toBe(403)
      expect(await open(link, other)).toBe(403)
    }
    // No later change of rows makes the content public again.
    await fork('everywhere', 'later', 'dev')
    await patch('everywhere', 'dev', { name: 'Ada', photo: { name: 'other.txt' } })
    expectOk(await on('everywhere', 'dev')('POST', '/merge', { body: { into: 'main' } }))
    expectOk(await on('everywhere', 'deep')('POST', '/reset'))
    await patch('everywhere', 'later', { papers: [{ id: 'q', enablePublicUrl: true }] })
    await patch('everywhere', 'later', {
      papers: [{ id: 'q', enablePublicUrl: true, base64Content: base64('everywhere') }],
    })
    for (const branch of [...branches, 'later']) {
      expect(await open(await linkOn('everywhere', branch))).toBe(403)
    }
    expect(await open((await read('everywhere', 'later')).papers[0].url)).toBe(403)
    // An API key or a signed link still permits reading.
    const signed = (await read('everywhere', 'main', 'photo.signedUrl')).photo.signedUrl
    expect(await open(signed)).toBe(200)
    // Other content in the same column is not affected.
    await patch('everywhere', 'dev', { photo: { base64Content: base64('new') } })
    expect(await open(await linkOn('everywhere', 'dev'))).toBe(200)
  })

  it('can be made public again, by what its files say', async () => {
    await prepare('again', 'again')
    const { sha256 } = expectOk(await makePrivate('again')).body
    // Making content private is idempotent.
    expect(expectOk(await makePrivate('again')).body.sha256).toBe(sha256)
    const files = `${service.workspace}/dbs/again/privateFiles`
    expect((await service.call('GET', files)).body.files).toMatchObject([{ sha256 }])
    expect((await service.call('DELETE', `${files}/${sha256}`)).status).toBe(204)
    expect(await open(await linkOn('again'))).toBe(200)
    expect((await service.call('DELETE', `${files}/${sha256}`)).status).toBe(404)
    expect((await service.call('DELETE', `${files}/nonsense`)).status).toBe(400)
    expect((await service.call('GET', files)).body).toEqual({ files: [] })
  })

  it('of another database with the same content is not concerned', async () => {
    await prepare('left', 'shared')
    await prepare('right', 'shared')
    expectOk(await makePrivate('left'))
    expect(await open(await linkOn('left'))).toBe(403)
    expect(await open(await linkOn('right'))).toBe(200)
  })

  it('is made private only with a key that may write to all branches', async () => {
    await prepare('guarded', 'guarded')
    const scopes = { reading: { access: 'read' }, narrow: { branches: ['main'] } }
    for (const [name, scope] of Object.entries(scopes)) {
      const key = await createKey(service, `private-${name}`, { fields: { scope } })
      expect(await makePrivate('guarded', { key })).toMatchObject({
        status: 403,
        body: { code: 'key_scope' },
      })
    }
    expect(await open(await linkOn('guarded'))).toBe(200)
  })

  it('that is not there is refused', async () => {
    await prepare('missing', 'missing')
    expect((await makePrivate('missing', { column: 'name' })).status).toBe(400)
    expect((await makePrivate('missing', { column: 'nothing' })).status).toBe(404)
    expect((await makePrivate('missing', { column: 'papers' })).status).toBe(400)
    await patch('missing', 'main', { photo: null })
    expect((await makePrivate('missing')).status).toBe(404)
    await patch('missing', 'main', { photo: { name: 'waits.txt' } })
    expect((await makePrivate('missing')).body.code).toBe('file_not_found')
  })
})
