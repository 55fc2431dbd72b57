import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type Description,
  exampleRequest,
  findOperation,
  type Route,
  watchRoutes,
} from '../support/routes.js'
import { createTestService, type TestService } from '../support/service.js'
import { createTables, expectOk } from '../support/tables.js'

const XATA_CLIENT = { 'x-xata-agent': 'client=TS_SDK; version=0.30.1' }

let service: TestService
let description: Description
let routes: readonly Route[]

beforeAll(async () => {
  const watched = watchRoutes()
  service = await createTestService()
  watched.stop()
  routes = watched.routes
  description = (await service.call('GET', '/openapi.json', { key: null })).body
  await createTables(service, 'shop', { users: [{ name: 'email', type: 'string' }] })
})
afterAll(() => service.close())

/** Lists the documented routes, each with a path to an existing object. */
function described(): (Route & { readonly path: string; readonly takesBytes: boolean })[] {
  const values = {
    workspaceId: service.workspaceId,
    databaseName: 'shop',
    databaseBranch: 'shop:main',
    tableName: 'users',
    branchName: 'main',
    recordId: 'rec_x',
    columnName: 'email',
  }
  return routes.flatMap((route) => {
    const operation = findOperation(description, route)
    if (operation === undefined) return []
    const types = Object.keys(operation.requestBody?.content ?? {})
    const takesBytes = types.length > 0 && !types.includes('application/json')
    return [{ ...route, takesBytes, path: exampleRequest(description, route, values).path }]
  })
}

const key = (method: string, path: string) => `${method} ${path}`

describe('a JSON body of null, or of a value that could pass for it', () => {
  it('is refused by every route, whether a body is needed, optional or unknown there', async () => {
    const tried: string[] = []
    const wrong: string[] = []
    for (const { method, path, takesBytes } of described()) {
      if (['GET', 'HEAD'].includes(method) || takesBytes) continue
      for (const body of ['null', ' null\n', '0', '-0', 'false', '""']) {
        for (const headers of [{}, XATA_CLIENT]) {
          const answer = await service.call(method, path, { body, headers })
          const isClear = /^body: .*object/.test(answer.body.message ?? '')
          if (answer.status !== 400 || !isClear) {
            wrong.push(`${key(method, path)}: ${answer.status} ${JSON.stringify(answer.body)}`)
          }
        }
      }
      tried.push(key(method, path))
    }
    expect(wrong).toEqual([])
    expect(tried.length).toBeGreaterThan(40)
  })

  it('is no body: what may be left out is left out by sending nothing', async () => {
    const headers = { 'content-type': 'application/json' }
    for (const path of ['/tables/users/data', '/tables/users/query', '/schema/history']) {
      const answer = await service.call('POST', `/db/shop:main${path}`, { headers })
      expect(answer.status).toBeLessThan(300)
    }
  })

  it('is as wrong as any other value that is no object', async () => {
    for (const body of ['1', '"x"', 'true', '[]', '[{}]']) {
      for (const path of ['/merge', '/tables/users/data', '/transaction', '/reset']) {
        const answer = await service.call('POST', `/db/shop:main${path}`, { body })
        expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
      }
    }
  })
})

describe('a body where none is taken', () => {
  it('may be empty, and nothing else', async () => {
    const remove = (body: unknown) => service.call('DELETE', '/db/shop:main/tables/t1', { body })
    expectOk(await service.call('PUT', '/db/shop:main/tables/t1'))
    const answer = await remove({ dryRun: true })
    expect(answer).toMatchObject({
      status: 400,
      body: { message: 'body: field [dryRun]: is not known; this route takes no body' },
    })
    expect((await remove({})).status).toBe(200)
  })

  it('is ignored if a Xata client sends it', async () => {
    const body = { anything: 1 }
    const answer = await service.call('PUT', '/db/shop:main/tables/t2', {
      body,
      headers: XATA_CLIENT,
    })
    expect(answer.status).toBe(201)
  })
})

describe('a query parameter that is not known', () => {
  it('is refused by every route that is described', async () => {
    const wrong: string[] = []
    for (const { method, path } of described()) {
      const target = `${path}${path.includes('?') ? '&' : '?'}nonsense=1`
      const answer = await service.call(method, target)
      const message = 'query: parameter [nonsense]: is not known'
      // An answer to HEAD has no body.
      const isClear = method === 'HEAD' || answer.body.message === message
      if (answer.status !== 400 || !isClear) {
        wrong.push(`${key(method, path)}: ${answer.status} ${JSON.stringify(answer.body)}`)
      }
    }
    expect(wrong).toEqual([])
  })

  it('is told from the one that was meant', async () => {
    const answer = await service.call('GET', '/db/shop:main/tables/users/data/x?colums=email')
    expect(answer).toMatchObject({
      status: 400,
      body: { message: 'query: parameter [colums]: is not known; did you mean [columns]?' },
    })
    const body = { fitler: {} }
    const query = await service.call('POST', '/db/shop:main/tables/users/query', { body })
    expect(query.body.message).toBe('body: field [fitler]: is not known; did you mean [filter]?')
  })

  it.each(['__proto__', 'constructor', 'toString', ''])(
    'is refused by any name: %j',
    async (name) => {
      const answer = await service.call('GET', `/user?${name}=1`)
      expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
    },
  )

  it('does not hide that there is nothing at an address, or that a key is missing', async () => {
    expect((await service.call('GET', '/nowhere?x=1')).status).toBe(404)
    expect((await service.call('GET', '/user?x=1', { key: null })).status).toBe(401)
  })
})

describe('the methods of an address', () => {
  const path = '/db/shop:main/tables/users'

  it.each([
    ['without a body', {}],
    ['with a body', { body: {} }],
    ['with a body of another type', { body: 'x', headers: { 'content-type': 'text/plain' } }],
  ])('do not have QUERY, %s', async (_name, options) => {
    const answer = await service.call('QUERY', `${path}/query`, options)
    expect(answer).toMatchObject({ status: 405, body: { code: 'method_not_allowed' } })
    expect(answer.headers.allow).toBe('POST')
    expect((await service.call('QUERY', '/nowhere', options)).status).toBe(404)
  })

  it('point from a list of records to the query', async () => {
    const answer = await service.call('GET', `${path}/data`)
    expect(answer.status).toBe(405)
    expect(answer.body.message).toContain('POST .../query finds records')
  })
})

describe('an operator that is not known', () => {
  it.each([
    ['$gte', '$ge'],
    ['$lte', '$le'],
    ['$eq', '$is'],
    ['$ne', '$isNot'],
    ['$in', '$any'],
    ['$startWith', '$startsWith'],
    ['$icontains', '$iContains'],
  ])('%s is answered with the one that was meant: %s', async (operator, meant) => {
    const body = { filter: { email: { [operator]: 'x' } } }
    const answer = await service.call('POST', '/db/shop:main/tables/users/query', { body })
    expect(answer).toMatchObject({
      status: 400,
      body: {
        message: `filter: column [email]: operator [${operator}] is not known; did you mean [${meant}]?`,
      },
    })
  })

  it('is only named where nothing is near', async () => {
    const body = { filter: { $everything: {} } }
    const answer = await service.call('POST', '/db/shop:main/tables/users/query', { body })
    expect(answer.body.message).toBe('filter: operator [$everything] is not known')
  })
})

describe('an encoding of a body that is not supported', () => {
  const path = () => `${service.workspace}/db/shop:main/tables/users/data`

  it.each([
    ['content-encoding', { 'content-encoding': 'gzip' }, '[gzip] is not supported'],
    ['content-encoding', { 'content-encoding': 'identity, br' }, '[identity, br]'],
    ['content-type', { 'content-type': 'application/json; charset=utf-16' }, '[utf-16]'],
    ['content-type', { 'content-type': 'application/json;charset="latin1"' }, '[latin1]'],
  ])('in the header %s is refused: %j', async (name, headers, fault) => {
    const answer = await service.call('POST', path(), { body: '{"email":"a"}', headers })
    expect(answer.status).toBe(415)
    expect(answer.body.message).toContain(`header [${name}]: `)
    expect(answer.body.message).toContain(fault)
  })

  it.each([
    { 'content-encoding': 'identity' },
    { 'content-type': 'application/json; charset=UTF-8' },
    { 'content-type': 'application/json;charset="utf8"' },
  ])('is not the usual one: %j', async (headers) => {
    const answer = await service.call('POST', path(), { body: '{"email":"a"}', headers })
    expect(answer.status).toBe(201)
  })
})
