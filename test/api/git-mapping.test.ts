import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDatabase, createKey } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'

const XATA_CLIENT = { 'x-xata-agent': 'client=TS_SDK' }

let service: TestService

beforeAll(async () => {
  service = await createTestService()
  await createDatabase(service, 'shop')
  for (const branch of ['dev', 'other']) await createBranch(branch)
})
afterAll(() => service.close())

const createBranch = (branch: string, database = 'shop') =>
  service.call('PUT', `${service.workspace}/db/${database}:${branch}`)
const deleteBranch = (branch: string, database = 'shop') =>
  service.call('DELETE', `${service.workspace}/db/${database}:${branch}`)

const mappingUrl = (database = 'shop') => `${service.workspace}/dbs/${database}/gitBranches`
const list = async (database = 'shop'): Promise<{ gitBranch: string; serviceBranch: string }[]> =>
  (await service.call('GET', mappingUrl(database))).body.mapping
const find = async (gitBranch: string) =>
  (await list()).find((entry) => entry.gitBranch === gitBranch)
const map = (gitBranch: string, serviceBranch: string, database = 'shop') =>
  service.call('POST', mappingUrl(database), { body: { gitBranch, serviceBranch } })
const unmap = (gitBranch: string, database = 'shop') =>
  service.call('DELETE', `${mappingUrl(database)}?gitBranch=${encodeURIComponent(gitBranch)}`)

describe('POST git mapping', () => {
  it('adds an entry with 204 and an empty body', async () => {
    const answer = await map('feat/login', 'dev')
    expect(answer).toMatchObject({ status: 204, body: '' })
    expect(await find('feat/login')).toEqual({ gitBranch: 'feat/login', serviceBranch: 'dev' })
  })

  it('overwrites an entry with 201 and a warning that names the git branch', async () => {
    await map('feat/twice', 'dev')
    const answer = await map('feat/twice', 'other')
    expect(answer.status).toBe(201)
    expect(answer.body).toEqual({
      warning: 'Git branch [feat/twice] was already present in the mapping and was overwritten.',
    })
    const entries = (await list()).filter((entry) => entry.gitBranch === 'feat/twice')
    expect(entries).toEqual([{ gitBranch: 'feat/twice', serviceBranch: 'other' }])
  })

  it('warns also when the same entry is posted again', async () => {
    await map('feat/same', 'dev')
    expect((await map('feat/same', 'dev')).status).toBe(201)
  })

  it('maps any number of git branches to one branch', async () => {
    for (const name of ['one', 'two', 'three']) expect((await map(name, 'dev')).status).toBe(204)
    const branches = (await list()).filter((entry) => entry.serviceBranch === 'dev')
    expect(branches.length).toBeGreaterThanOrEqual(3)
  })

  it('refuses a branch that does not exist with 400 and adds nothing', async () => {
    const answer = await map('feat/nowhere', 'nowhere')
    expect(answer.status).toBe(400)
    expect(answer.body).toEqual({
      id: answer.headers['x-request-id'],
      message: 'branch [nowhere] not found',
      code: 'unknown_branch',
    })
    expect(await find('feat/nowhere')).toBeUndefined()
  })

  it('keeps the old entry when the new branch does not exist', async () => {
    await map('feat/kept', 'dev')
    expect((await map('feat/kept', 'nowhere')).status).toBe(400)
    expect((await find('feat/kept'))?.serviceBranch).toBe('dev')
  })

  it('refuses a branch that was deleted, and one of another database', async () => {
    await createBranch('deleted')
    await createBranch('deleted-child')
    await deleteBranch('deleted')
    expect((await map('feat/deleted', 'deleted')).status).toBe(400)
    await createDatabase(service, 'neighbour', { branchName: 'elsewhere' })
    expect((await map('feat/elsewhere', 'elsewhere')).status).toBe(400)
  })

  it('takes xataBranch for serviceBranch, and both when they are equal', async () => {
    const post = (body: object) => service.call('POST', mappingUrl(), { body })
    expect((await post({ gitBranch: 'x1', xataBranch: 'dev' })).status).toBe(204)
    const both = { gitBranch: 'x2', xataBranch: 'dev', serviceBranch: 'dev' }
    expect((await post(both)).status).toBe(204)
    expect((await find('x1'))?.serviceBranch).toBe('dev')
    const unequal = await post({ gitBranch: 'x3', xataBranch: 'dev', serviceBranch: 'main' })
    expect(unequal.status).toBe(400)
    expect(unequal.body.message).toContain('[serviceBranch] and [xataBranch]')
    expect(await find('x3')).toBeUndefined()
  })

  it.each([
    ['a slash', 'feat/deep/er'],
    ['spaces', '  two  words '],
    ['characters that urls and SQL give a meaning', `a'b"c\\d%20e&f=g?h#i;--$1\${x}`],
    ['a line break', 'a\nb'],
    ['letters of other scripts', 'функция/機能-é'],
    ['a combining character', 'cafe\u0301'],
    ['characters beyond the first plane', '🌿/🍎'],
    ['a right-to-left mark', 'a\u202eb'],
    ['nothing but a dot', '.'],
    ['the name of a property of every object', '__proto__'],
    ['brackets', '[x]'],
    ['1024 characters', 'x'.repeat(1024)],
    ['1024 characters beyond the first plane', '🌿'.repeat(1024)],
  ])('takes a git branch with %s and gives it back as it was', async (_name, gitBranch) => {
    expect((await map(gitBranch, 'dev')).status).toBe(204)
    expect(await find(gitBranch)).toEqual({ gitBranch, serviceBranch: 'dev' })
    const warning = (await map(gitBranch, 'other')).body.warning
    expect(warning).toBe(
      `Git branch [${gitBranch}] was already present in the mapping and was overwritten.`,
    )
    const resolve = `${service.workspace}/dbs/shop/resolveBranch`
    const query = `?gitBranch=${encodeURIComponent(gitBranch)}`
    expect((await service.call('GET', resolve + query)).body.branch).toBe('other')
    expect((await unmap(gitBranch)).status).toBe(204)
    expect(await find(gitBranch)).toBeUndefined()
  })

  it('tells names apart that only look alike', async () => {
    for (const name of ['Case', 'case', 'caf\u00e9', 'cafe\u0301']) {
      expect((await map(name, 'dev')).status).toBe(204)
    }
    expect(await find('caf\u00e9')).toBeDefined()
    await unmap('caf\u00e9')
    expect(await find('cafe\u0301')).toBeDefined()
  })

  it.each([
    ['no body', undefined, 'body: must be of type object'],
    ['no git branch', { serviceBranch: 'dev' }, 'body: field [gitBranch]: is required'],
    ['no branch', { gitBranch: 'a' }, 'body: field [serviceBranch]: is required'],
    ['an empty git branch', { gitBranch: '', serviceBranch: 'dev' }, '[gitBranch]'],
    ['a git branch of 1025 characters', { gitBranch: 'x'.repeat(1025) }, '[gitBranch]'],
    ['a git branch of the wrong type', { gitBranch: 5, serviceBranch: 'dev' }, '[gitBranch]'],
    ['a NUL', { gitBranch: 'a\0', serviceBranch: 'dev' }, '[gitBranch]: must not contain a NUL'],
    ['half a surrogate pair', '{"gitBranch":"\\ud83d","serviceBranch":"dev"}', 'surrogate'],
    ['a branch that is no name', { gitBranch: 'a', serviceBranch: 'a/b' }, '[serviceBranch]'],
    ['a branch that is null', { gitBranch: 'a', serviceBranch: null }, '[serviceBranch]'],
    [
      'an unknown field',
      { gitBranch: 'a', serviceBranch: 'dev', force: true },
      '[force]: is not known',
    ],
  ])('refuses %s with 400 and adds nothing', async (_name, body, message) => {
    const before = await list()
    const answer = await service.call('POST', mappingUrl(), { body })
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
    expect(await list()).toEqual(before)
  })

  it('counts one 204 when many requests add the same git branch', async () => {
    const answers = await Promise.all(Array.from({ length: 6 }, () => map('race', 'dev')))
    const statuses = answers.map((answer) => answer.status).sort()
    expect(statuses).toEqual([201, 201, 201, 201, 201, 204])
  })
})

describe('GET git mapping', () => {
  it('is empty for a new database and ordered by git branch afterwards', async () => {
    await createDatabase(service, 'ordered')
    const answer = await service.call('GET', mappingUrl('ordered'))
    expect(answer).toMatchObject({ status: 200, body: { mapping: [] } })
    for (const name of ['b', 'a/2', 'a/10', 'Z']) await map(name, 'main', 'ordered')
    const names = (await list('ordered')).map((entry) => entry.gitBranch)
    expect(names).toEqual(['Z', 'a/10', 'a/2', 'b'])
  })

  it('calls the branch xataBranch for Xata clients', async () => {
    const { body } = await service.call('GET', mappingUrl('ordered'), { headers: XATA_CLIENT })
    expect(body.mapping[0]).toEqual({ gitBranch: 'Z', xataBranch: 'main' })
  })

  it('keeps the mappings of databases apart', async () => {
    await createDatabase(service, 'apart')
    await map('feat/apart', 'main', 'apart')
    expect(await find('feat/apart')).toBeUndefined()
    expect((await unmap('feat/apart')).status).toBe(404)
    expect(await list('apart')).toHaveLength(1)
  })
})

describe('DELETE git mapping', () => {
  it('removes an entry with 204, and a second time answers 404', async () => {
    await map('feat/remove', 'dev')
    expect(await unmap('feat/remove')).toMatchObject({ status: 204, body: '' })
    expect(await find('feat/remove')).toBeUndefined()
    const answer = await unmap('feat/remove')
    expect(answer.status).toBe(404)
    expect(answer.body).toEqual({
      id: answer.headers['x-request-id'],
      message: 'git branch [feat/remove] is not in the mapping',
      code: 'git_branch_not_found',
    })
  })

  it('does not delete the branch itself', async () => {
    await map('feat/branch-stays', 'dev')
    await unmap('feat/branch-stays')
    expect((await service.call('GET', `${service.workspace}/db/shop:dev`)).status).toBe(200)
  })

  it('reads a plus as a space and its escape as a plus, as forms do', async () => {
    await map('a b', 'dev')
    await map('a+b', 'other')
    expect((await service.call('DELETE', `${mappingUrl()}?gitBranch=a+b`)).status).toBe(204)
    expect(await find('a b')).toBeUndefined()
    expect(await find('a+b')).toBeDefined()
    expect((await service.call('DELETE', `${mappingUrl()}?gitBranch=a%2Bb`)).status).toBe(204)
  })

  it.each([
    ['no git branch', '', 'query: parameter [gitBranch]: is required'],
    ['an empty git branch', '?gitBranch=', 'query: parameter [gitBranch]'],
    ['two git branches', '?gitBranch=a&gitBranch=b', 'query: parameter [gitBranch]'],
    ['a NUL', '?gitBranch=%00', 'query: parameter [gitBranch]'],
  ])('refuses %s with 400', async (_name, query, message) => {
    const answer = await service.call('DELETE', mappingUrl() + query)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
  })
})

describe('every operation of the mapping', () => {
  const CALLS = [
    ['GET', '', undefined],
    ['POST', '', { gitBranch: 'a', serviceBranch: 'main' }],
    ['DELETE', '?gitBranch=a', undefined],
  ] as const

  it.each(CALLS)('answers an unknown database with 404: %s', async (method, query, body) => {
    const answer = await service.call(method, mappingUrl('nowhere') + query, { body })
    expect(answer).toMatchObject({ status: 404, body: { message: 'database [nowhere] not found' } })
  })

  it.each(CALLS)('answers an invalid key with 401: %s', async (method, query, body) => {
    const answer = await service.call(method, mappingUrl() + query, { body, key: 'off_wrong' })
    expect(answer).toMatchObject({ status: 401, body: { message: 'Invalid API key' } })
  })
})

describe('deleting a branch', () => {
  it('drops the entries that point to it and no other', async () => {
    await createBranch('mapped')
    await map('feat/mapped-1', 'mapped')
    await map('feat/mapped-2', 'mapped')
    await map('feat/unrelated', 'dev')
    await deleteBranch('mapped')
    expect(await find('feat/mapped-1')).toBeUndefined()
    expect(await find('feat/mapped-2')).toBeUndefined()
    expect(await find('feat/unrelated')).toBeDefined()
    await createBranch('mapped')
    expect(await find('feat/mapped-1')).toBeUndefined()
    expect((await map('feat/mapped-1', 'mapped')).status).toBe(204)
  })
})

describe('resolveBranch', () => {
  beforeAll(async () => {
    await createDatabase(service, 'resolved', { branchName: 'trunk' })
    for (const branch of ['same', 'mapped', 'fallback']) await createBranch(branch, 'resolved')
    await map('feat/x', 'mapped', 'resolved')
    await map('fallback', 'mapped', 'resolved')
    await map('same-but-mapped', 'mapped', 'resolved')
    await createBranch('same-but-mapped', 'resolved')
  })

  const resolve = (query: Record<string, string>, options: { key?: string } = {}) =>
    service.call(
      'GET',
      `${service.workspace}/dbs/resolved/resolveBranch?${new URLSearchParams(query)}`,
      options,
    )
  const MAPPED = (gitBranch: string) => `Git branch [${gitBranch}] found in the mapping`
  const EXISTS = (branch: string) => `Branch [${branch}] has the name of the git branch`
  const FALLBACK = 'Fallback branch of the request'
  const DEFAULT = 'Default branch for this database'

  it.each([
    ['an entry', { gitBranch: 'feat/x' }, 'mapped', 'FOUND_IN_MAPPING', MAPPED('feat/x')],
    [
      'an entry over a branch of the same name',
      { gitBranch: 'same-but-mapped' },
      'mapped',
      'FOUND_IN_MAPPING',
      MAPPED('same-but-mapped'),
    ],
    [
      'an entry over the fallback',
      { gitBranch: 'feat/x', fallbackBranch: 'fallback' },
      'mapped',
      'FOUND_IN_MAPPING',
      MAPPED('feat/x'),
    ],
    [
      'a branch of the same name over the fallback',
      { gitBranch: 'same', fallbackBranch: 'fallback' },
      'same',
      'BRANCH_EXISTS',
      EXISTS('same'),
    ],
    [
      'the fallback over the default',
      { gitBranch: 'unknown', fallbackBranch: 'fallback' },
      'fallback',
      'FALLBACK_BRANCH',
      FALLBACK,
    ],
    ['the fallback alone', { fallbackBranch: 'fallback' }, 'fallback', 'FALLBACK_BRANCH', FALLBACK],
    [
      'the default when the fallback does not exist',
      { gitBranch: 'unknown', fallbackBranch: 'nowhere' },
      'trunk',
      'DEFAULT_BRANCH',
      DEFAULT,
    ],
    ['the default at last', { gitBranch: 'unknown' }, 'trunk', 'DEFAULT_BRANCH', DEFAULT],
    ['the default when asked nothing', {}, 'trunk', 'DEFAULT_BRANCH', DEFAULT],
    [
      'the default for a name no branch can have',
      { gitBranch: 'feat/unmapped 🌿' },
      'trunk',
      'DEFAULT_BRANCH',
      DEFAULT,
    ],
  ])('finds %s', async (_name, query, branch, code, message) => {
    const answer = await resolve(query as Record<string, string>)
    expect(answer.status).toBe(200)
    expect(answer.body).toEqual({ branch, reason: { code, message } })
  })

  it('goes on to the next choice when a branch is deleted', async () => {
    await createBranch('brief', 'resolved')
    await map('feat/brief', 'brief', 'resolved')
    expect((await resolve({ gitBranch: 'feat/brief' })).body.branch).toBe('brief')
    await deleteBranch('brief', 'resolved')
    const query = { gitBranch: 'feat/brief', fallbackBranch: 'brief' }
    expect((await resolve(query)).body.reason.code).toBe('DEFAULT_BRANCH')
  })

  it('passes over branches that the scope of the key does not reach', async () => {
    const fields = { scope: { branches: ['fallback'], access: 'read' } }
    const key = await createKey(service, 'resolver', { fields })
    const code = async (query: Record<string, string>) =>
      (await resolve(query, { key })).body.reason.code
    expect(await code({ gitBranch: 'feat/x', fallbackBranch: 'fallback' })).toBe('FALLBACK_BRANCH')
    const missed: Record<string, string>[] = [{ gitBranch: 'same' }, { fallbackBranch: 'same' }, {}]
    for (const query of missed) {
      const answer = await resolve(query, { key })
      expect(answer).toMatchObject({ status: 404, body: { code: 'branch_not_found' } })
      expect(JSON.stringify(answer.body)).not.toContain('trunk')
    }
  })

  it('answers an unknown database with 404', async () => {
    const answer = await service.call('GET', `${service.workspace}/dbs/nowhere/resolveBranch`)
    expect(answer).toMatchObject({ status: 404, body: { code: 'database_not_found' } })
  })

  it.each([
    ['an empty git branch', { gitBranch: '' }],
    ['an empty fallback', { fallbackBranch: '' }],
    ['a fallback that is no name', { fallbackBranch: 'a/b' }],
    ['a git branch of 1025 characters', { gitBranch: 'x'.repeat(1025) }],
  ])('refuses %s with 400', async (_name, query) => {
    expect((await resolve(query as Record<string, string>)).status).toBe(400)
  })
})
