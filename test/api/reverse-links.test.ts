import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestService, type TestService } from '../support/service.js'
import {
  type BranchCall,
  branchCall,
  createTables,
  expectOk,
  XATA_CLIENT,
} from '../support/tables.js'

let service: TestService
let main: BranchCall
let fork: BranchCall

const AUTHORS = ['ada', 'bob', 'cyd']

beforeAll(async () => {
  service = await createTestService()
  main = await createTables(service, 'blog', {
    users: [{ name: 'name', type: 'string' }],
    Posts: [
      { name: 'title', type: 'string' },
      { name: 'rank', type: 'int' },
      { name: 'public', type: 'bool' },
      { name: 'made', type: 'datetime' },
      { name: 'words', type: 'multiple' },
      { name: 'extra', type: 'json' },
      { name: 'author', type: 'link', link: { table: 'users' } },
      { name: 'reviewer', type: 'link', link: { table: 'users' } },
      {
        name: 'meta',
        type: 'object',
        columns: [{ name: 'editor', type: 'link', link: { table: 'users' } }],
      },
    ],
    empty: [{ name: 'owner', type: 'link', link: { table: 'users' } }],
  })
  const users = AUTHORS.map((id) => ({ id, name: id.toUpperCase() }))
  expectOk(await main('POST', '/tables/users/bulk', { body: { records: users } }))
  const posts = Array.from({ length: 30 }, (_, index) => ({
    id: `p${String(index).padStart(2, '0')}`,
    title: `"Post" ${index}`,
    rank: index % 4,
    public: index % 2 === 0,
    made: '2026-01-31T09:30:00.120Z',
    words: ['a', '"b"', '\\'],
    extra: { n: index },
    author: index < 25 ? 'ada' : 'bob',
    reviewer: 'bob',
    ...(index === 0 ? { meta: { editor: 'cyd' } } : {}),
  }))
  expectOk(await main('POST', '/tables/Posts/bulk', { body: { records: posts.slice(0, 20) } }))
  const path = `${service.workspace}/db/blog:fork`
  expectOk(await service.call('PUT', path, { body: { from: 'main' } }))
  fork = branchCall(service, 'blog', { branch: 'fork' })
  for (const call of [main, fork]) {
    expectOk(await call('POST', '/tables/Posts/bulk', { body: { records: posts.slice(20) } }))
    expectOk(await call('DELETE', '/tables/Posts/data/p03'))
    expectOk(await call('PATCH', '/tables/Posts/data/p04', { body: { author: 'bob' } }))
  }
})
afterAll(() => service.close())

const query = (call: BranchCall, columns: unknown[], more: object = {}) =>
  call('POST', '/tables/users/query', { body: { columns, ...more } })

interface Found {
  readonly id: string
  readonly [key: string]: unknown
}
const linked = (records: Found[], key: string) =>
  Object.fromEntries(
    records.map((record) => {
      const { records: found } = record[key] as { records: Found[] }
      return [record.id, found.map(({ id }) => id)]
    }),
  )

describe.each([
  ['a plain branch', () => main],
  ['a fork with changes', () => fork],
])('reverse links on %s', (_name, branch) => {
  it('hold the first twenty records of each, by id', async () => {
    const answer = expectOk(await query(branch(), ['name', { name: '<-Posts.author' }]))
    const ids = linked(answer.body.records, 'Postsauthor')
    expect(ids.ada).toHaveLength(20)
    expect(ids.ada?.slice(0, 4)).toEqual(['p00', 'p01', 'p02', 'p05'])
    expect(ids.bob).toEqual(['p04', 'p25', 'p26', 'p27', 'p28', 'p29'])
    expect(ids.cyd).toEqual([])
    expect(Object.keys(answer.body.records[0])).toEqual(['id', 'name', 'service', 'Postsauthor'])
  })

  it('have columns, order, limit, offset and a name of their own', async () => {
    const reverse = {
      name: '<-Posts.author',
      as: 'posts',
      columns: ['title', 'reviewer.name'],
      sort: [{ rank: 'desc' }, { title: 'asc' }],
      limit: 2,
      offset: 1,
    }
    const older = { name: '<-Posts.author', as: 'older', order: [{ column: 'id', order: 'desc' }] }
    const answer = expectOk(await query(branch(), [reverse, older], { sort: { id: 'desc' } }))
    expect(answer.body.records.map(({ id }: Found) => id)).toEqual(['cyd', 'bob', 'ada'])
    const [cyd, bob, ada] = answer.body.records
    expect(cyd.posts).toEqual({ records: [] })
    const metadata = expect.objectContaining({ version: 0 })
    expect(ada).toEqual({
      id: 'ada',
      posts: {
        records: ['15', '19'].map((number) => ({
          id: `p${number}`,
          title: `"Post" ${number}`,
          reviewer: { id: 'bob', name: 'BOB', service: metadata },
          service: metadata,
        })),
      },
      older: { records: expect.any(Array) },
      service: metadata,
    })
    expect(linked([bob], 'older').bob).toEqual(['p29', 'p28', 'p27', 'p26', 'p25', 'p04'])
  })

  it('are ordered by metadata without its prefix in the older form', async () => {
    const order = [{ column: 'createdAt', order: 'desc' }]
    const newest = { name: '<-Posts.author', as: 'newest', order }
    const same = { name: '<-Posts.author', as: 'same', sort: { 'service.createdAt': 'desc' } }
    const { records } = expectOk(await query(branch(), [newest, same])).body
    expect(linked(records, 'newest')).toEqual(linked(records, 'same'))
    const unknown = { ...newest, order: [{ column: 'nope', order: 'desc' }] }
    expect(await query(branch(), [unknown])).toMatchObject({
      status: 400,
      body: { message: 'table [Posts]: column [nope]: column not found' },
    })
  })

  it('give values of every type as they are read elsewhere', async () => {
    const headers = XATA_CLIENT
    const body = {
      filter: { id: 'cyd' },
      columns: ['*', { name: '<-Posts.meta.editor', as: 'edited' }],
    }
    const found = await branch()('POST', '/tables/users/query', { body, headers })
    const read = await branch()('GET', '/tables/Posts/data/p00', { headers })
    expect(expectOk(found).body.records[0].edited.records).toEqual([expectOk(read).body])
    expect(read.body.words).toEqual(['a', '"b"', '\\'])
  })

  it('go along with cursors, several of them and tables without rows', async () => {
    const columns = [{ name: '<-empty.owner' }, { name: '<-Posts.reviewer', limit: 1 }]
    const first = expectOk(await query(branch(), columns, { page: { size: 1 } }))
    const { cursor } = first.body.meta.page
    const next = await branch()('POST', '/tables/users/query', {
      body: { page: { after: cursor } },
    })
    expect(linked(expectOk(next).body.records, 'Postsreviewer')).toEqual({ bob: ['p00'] })
    expect(linked(next.body.records, 'emptyowner')).toEqual({ bob: [] })
    const random = { name: '<-Posts.author', as: 'some', sort: { '*': 'random' }, limit: 5 }
    const chance = expectOk(await query(branch(), ['name', random]))
    expect(linked(chance.body.records, 'some').ada).toHaveLength(5)
  })
})

describe('a reverse link that is refused', () => {
  it.each([
    [{ name: '<-Posts' }, 'columns: reverse link: [name] must be of the form <-table.linkColumn'],
    [{ name: 'Posts.author' }, 'table [users]: column [Posts.author]: column not found'],
    [
      { name: 'name', as: 'other' },
      'columns: reverse link: [name] must be of the form <-table.linkColumn',
    ],
    [{ as: 'x' }, 'columns: reverse link: [name] must be of the form <-table.linkColumn'],
    [5, 'columns: expected names, or objects that ask for reverse links'],
    [{ name: '<-nope.author' }, 'columns: [<-nope.author]: table [nope] not found'],
    [{ name: '<-Posts.nope' }, 'columns: [<-Posts.nope]: column [nope]: is not a link'],
    [{ name: '<-Posts.title' }, 'columns: [<-Posts.title]: column [title]: is not a link'],
    [
      { name: '<-Posts.author', as: 'name' },
      'columns: [<-Posts.author]: [as]: the name [name] is taken',
    ],
    [
      { name: '<-Posts.author', as: 'xata' },
      'columns: [<-Posts.author]: [as]: the name [xata] is taken',
    ],
    [{ name: '<-Posts.author', as: '' }, 'columns: [<-Posts.author]: [as] must be a name'],
    [
      { name: '<-Posts.author', limit: 1001 },
      'columns: [<-Posts.author]: [limit] must be a whole number from 1 to 1000',
    ],
    [
      { name: '<-Posts.author', offset: -1 },
      'columns: [<-Posts.author]: [offset] must be a whole number from 0 to 49000',
    ],
    [
      { name: '<-Posts.author', columns: [{ name: '<-empty.owner' }] },
      'columns: [<-Posts.author]: reverse links go one level deep',
    ],
    [
      { name: '<-Posts.author', columns: ['nope'] },
      'table [Posts]: column [nope]: column not found',
    ],
    [{ name: '<-Posts.author', sort: 'nope' }, 'table [Posts]: column [nope]: column not found'],
    [{ name: '<-Posts.author', filter: {} }, 'columns: reverse link: [filter] is not known'],
  ])('is named: %j', async (reverse, message) => {
    const answer = await query(main, [reverse])
    expect(answer).toMatchObject({ status: 400, body: { message } })
  })

  it('has the name of another, or links to another table', async () => {
    const twice = [{ name: '<-Posts.author' }, { name: '<-Posts.reviewer', as: 'Postsauthor' }]
    expect((await query(main, twice)).body.message).toBe(
      'columns: the name [Postsauthor] is taken twice',
    )
    const body = { columns: [{ name: '<-Posts.author' }] }
    const other = await main('POST', '/tables/empty/query', { body })
    expect(other.body.message).toBe(
      'columns: [<-Posts.author]: column [author]: does not link to table [empty]',
    )
  })
})
