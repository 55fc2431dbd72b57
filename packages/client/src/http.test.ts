import { describe, expect, it } from 'vitest'
import { createAccount, createClient, OffshootError } from './index.js'

const ORIGIN = 'http://service.test'

/** Names that leave their place in a path, or end it, if they are not encoded. */
const HOSTILE = [
  'a/b',
  '../x',
  '/',
  'a?b',
  'a#b',
  '%2e%2e',
  '%2E',
  '..;',
  'a%2fb',
  'a\\b',
  ' ',
  'ä:b',
  '\n',
]
/** Names that no encoding keeps in their place. */
const IMPOSSIBLE = ['', '.', '..', '\ud800']

/** A client whose requests are recorded as the parts of their path, after a URL was made of them. */
function record() {
  const requests: { parts: string[]; search: string; redirect: string | undefined }[] = []
  const options = {
    url: `${ORIGIN}/`,
    apiKey: 'off_x',
    retries: 0,
    fetch: (async (input: string, init?: RequestInit) => {
      const url = new URL(input)
      expect(url.origin).toBe(ORIGIN)
      expect(url.hash).toBe('')
      requests.push({
        parts: url.pathname.split('/').slice(1).map(decodeURIComponent),
        search: url.search,
        redirect: init?.redirect,
      })
      return Response.json({ records: [], meta: { page: { more: false, cursor: '' } } })
    }) as typeof fetch,
  }
  return { options, requests }
}

type Options = ReturnType<typeof record>['options']

/** Each place where a name becomes a part of a path, and the path that it must give. */
const PLACES: readonly (readonly [
  place: string,
  call: (options: Options, name: string) => unknown,
  parts: (name: string) => string[],
])[] = [
  [
    'a database',
    (options, name) =>
      createClient({ ...options, database: name, branch: 'm' }).database.branches(),
    (name) => ['dbs', name],
  ],
  [
    'a workspace',
    (options, name) =>
      createClient({ ...options, workspace: name, database: 'd', branch: 'm' }).database.branches(),
    (name) => [`${name}.local`, 'dbs', 'd'],
  ],
  [
    'a branch',
    (options, name) => shop(options).branch(name).stats(),
    (name) => ['db', `d:${name}`, 'stats'],
  ],
  [
    'a table',
    (options, name) => shop(options).table(name).query().page(),
    (name) => ['db', 'd:m', 'tables', name, 'query'],
  ],
  [
    'a record',
    (options, name) => shop(options).table('t').read(name),
    (name) => ['db', 'd:m', 'tables', 't', 'data', name],
  ],
  [
    'a deleted record',
    (options, name) => shop(options).table('t').delete(name),
    (name) => ['db', 'd:m', 'tables', 't', 'data', name],
  ],
  [
    'a column',
    (options, name) => shop(options).table('t').file('r', name).delete(),
    (name) => ['db', 'd:m', 'tables', 't', 'data', 'r', 'column', name, 'file'],
  ],
  [
    'a key',
    (options, name) => createAccount(options).deleteKey(name),
    (name) => ['user', 'keys', name],
  ],
  [
    'a database of an account',
    (options, name) => createAccount(options).deleteDatabase('w', name),
    (name) => ['workspaces', 'w', 'dbs', name],
  ],
]

const shop = (options: Options) => createClient({ ...options, database: 'd', branch: 'm' })

describe('a name in a path', () => {
  it.each(PLACES)('stays in its place: %s', async (_place, call, parts) => {
    const { options, requests } = record()
    for (const name of HOSTILE) {
      await call(options, name)
      const request = requests.pop()
      expect(request).toEqual({ parts: parts(name), search: '', redirect: 'manual' })
    }
  })

  it.each(PLACES)('is refused if it cannot stay there: %s', async (place, call) => {
    const { options, requests } = record()
    for (const name of IMPOSSIBLE) {
      // `createClient` checks by itself that there is a name of a database.
      const error = await (async () => call(options, name))().catch((cause: unknown) => cause)
      if (place === 'a database' && name === '') expect(error).toBeInstanceOf(TypeError)
      else {
        expect(error).toBeInstanceOf(OffshootError)
        expect(error).toMatchObject({ code: 'invalid_request', status: 0 })
      }
    }
    expect(requests).toEqual([])
  })

  it('may be empty for a file that gets its id from the service', async () => {
    const { options, requests } = record()
    await shop(options).table('t').file('r', 'c', '').upload('x')
    expect(requests[0]?.parts.slice(-2)).toEqual(['file', ''])
    await shop(options).table('t').file('r', 'c', '../x').upload('x')
    expect(requests[1]?.parts.at(-1)).toBe('../x')
    expect(() => shop(options).table('t').file('r', 'c', '..')).toThrow(OffshootError)
  })
})

describe('the address of a service', () => {
  it.each(['file:///etc', 'service', 'http://a@b', 'http://b?x', 'http://b/#', ''])(
    'is refused if requests would go elsewhere: %s',
    (url) => {
      expect(() => createAccount({ url, apiKey: 'x' })).toThrow(TypeError)
    },
  )
})

describe('a key of a request', () => {
  /** A client whose keys are recorded, and whose answers are given. */
  function answering(...answers: readonly (readonly [status: number, body: object])[]) {
    const keys: (string | null)[] = []
    const client = createClient({
      url: ORIGIN,
      apiKey: 'off_x',
      database: 'shop',
      branch: 'main',
      fetch: (async (_input: string, init?: RequestInit) => {
        const [status, body] = answers[keys.length] ?? [200, { id: 'a' }]
        keys.push(new Headers(init?.headers).get('idempotency-key'))
        return Response.json(body, { status })
      }) as typeof fetch,
    })
    return { users: client.table('users'), keys }
  }

  it('is the same for all attempts, and another one for the next request', async () => {
    const { users, keys } = answering([503, { code: 'unavailable', message: 'away' }])
    await users.update('a', {})
    await users.update('a', {})
    expect(keys[0]).toMatch(/^[0-9a-f-]{36}$/)
    expect(keys[1]).toBe(keys[0])
    expect(keys[2]).not.toBe(keys[0])
  })

  it('is left out while the database has no room for further answers', async () => {
    const { users, keys } = answering([422, { code: 'limit_reached', message: 'full' }])
    await users.update('a', {})
    await users.update('a', {})
    expect(keys).toEqual([expect.any(String), null, null])
  })

  it('is never left out if an attempt before may have taken effect', async () => {
    const { users, keys } = answering(
      [503, { code: 'unavailable', message: 'away' }],
      [422, { code: 'limit_reached', message: 'full' }],
    )
    await expect(users.update('a', {})).rejects.toMatchObject({ code: 'limit_reached' })
    expect(keys).toEqual([keys[0], keys[0]])
  })
})

describe('a value that JSON does not have', () => {
  const { options, requests } = record()
  const branch = createClient({ ...options, retries: 5, database: 'd', branch: 'm' }).branch()
  const table = branch.table('t')
  it.each([
    ['NaN', { a: [Number.NaN] }, '[0]: the number NaN cannot be sent'],
    ['an infinite number', { a: -Infinity }, '[a]: the number -Infinity cannot be sent'],
    ['an invalid date', { a: new Date('soon') }, '[a]: an invalid date cannot be sent'],
    ['a bigint', { a: 1n }, 'BigInt'],
  ])('is refused, and not sent as null: %s', async (_, fields, message) => {
    const calls = [
      () => table.update('x', fields as never),
      () => table.insertMany([fields as never]),
      () => branch.sql`select ${fields}::jsonb`,
    ]
    for (const call of calls) await expect(call()).rejects.toThrow(message)
    expect(requests).toEqual([])
  })

  it('is told from null', async () => {
    await table.update('x', { a: null, b: 'null', c: undefined, d: new Date(0) } as never)
    expect(requests).toHaveLength(1)
  })
})
