import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checksumOf } from '../../packages/server/src/domain/schemas/checksum.js'
import { withinLifetime } from '../support/lifetime.js'
import { addMember, createDatabase, createKey, createUser } from '../support/people.js'
import { until } from '../support/process.js'
import { LONG } from '../support/random.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import {
  addTables,
  type BranchCall,
  branchCall,
  createTables,
  expectOk,
} from '../support/tables.js'

/** Two processes of the service on one PostgreSQL. */
let first: TestService
let second: TestService
let number = 0

beforeAll(async () => {
  first = await createTestService()
  second = await createTestService({ url: first.url })
})
afterAll(async () => {
  await second.close()
  await first.close()
})

/** Creates a database for the test, reachable through both processes. */
async function open(tables: Parameters<typeof addTables>[0]) {
  const name = `db${++number}`
  await createTables(first, name, tables)
  return {
    name,
    at: (branch = 'main') => ({
      here: branchCall(first, name, { branch }),
      there: branchCall(first, name, { branch, via: second }),
    }),
  }
}

const range = (length: number) => Array.from({ length }, (_, index) => index)
const statusesOf = (answers: readonly Answer[]) =>
  [...new Set(answers.map(({ status }) => status))].sort()
/**
 * Returns the answers with other statuses than these, with their bodies for the failure message.
 */
const unexpected = (answers: readonly Answer[], ...statuses: number[]) =>
  answers
    .filter(({ status }) => !statuses.includes(status))
    .map(({ status, body }) => ({ status, body }))

const T = {
  t: [
    { name: 'n', type: 'int' },
    { name: 's', type: 'string' },
  ],
} as const

describe('what one process does, the next request in another process knows', () => {
  type Ask = (call: BranchCall, key?: string) => Promise<Answer>
  const ask =
    (method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Ask =>
    (call, key) =>
      call(method, path, { body, headers, ...(key === undefined ? {} : { key }) })
  const ROUTES: readonly (readonly [string, Ask])[] = [
    ['GET record', ask('GET', '/tables/t/data/x')],
    ['GET missing record', ask('GET', '/tables/t/data/missing')],
    ['GET unknown column', ask('GET', '/tables/t/data/x?columns=nope')],
    ['POST record', ask('POST', '/tables/t/data', { n: 1 })],
    ['POST bad record', ask('POST', '/tables/t/data', { n: 'x' })],
    ['POST broken JSON', ask('POST', '/tables/t/data', '{"n":')],
    ['POST a list', ask('POST', '/tables/t/data', [])],
    ['POST to an unknown table', ask('POST', '/tables/nope/data', {})],
    ['POST of another type', ask('POST', '/tables/t/data', 'a', { 'content-type': 'text/plain' })],
    ['PUT record', ask('PUT', '/tables/t/data/x', { n: 1 })],
    ['PUT with a bad query', ask('PUT', '/tables/t/data/x?ifVersion=x', {})],
    ['PATCH record', ask('PATCH', '/tables/t/data/x', { n: 1 })],
    ['PATCH an empty id', ask('PATCH', '/tables/t/data/', {})],
    ['DELETE record', ask('DELETE', '/tables/t/data/x')],
    [
      'transaction',
      ask('POST', '/transaction', { operations: [{ insert: { table: 't', record: {} } }] }),
    ],
    [
      'transaction of gets',
      ask('POST', '/transaction', { operations: [{ get: { table: 't', id: 'x' } }] }),
    ],
    ['transaction of nothing', ask('POST', '/transaction', { operations: [] })],
    ['transaction of nonsense', ask('POST', '/transaction', { operations: [5] })],
    ['transaction without operations', ask('POST', '/transaction', {})],
    [
      'transaction under a bad key',
      ask('POST', '/transaction', { operations: [] }, { 'idempotency-key': '' }),
    ],
    [
      'transaction known by its key',
      ask(
        'POST',
        '/transaction',
        { operations: [{ insert: { table: 't', record: {} } }] },
        { 'idempotency-key': 'known' },
      ),
    ],
    ['bulk', ask('POST', '/tables/t/bulk', { records: [{}] })],
    ['bulk of nothing', ask('POST', '/tables/t/bulk', { records: [] })],
    ['bulk of broken JSON', ask('POST', '/tables/t/bulk', '{"records":[')],
    [
      'bulk under a bad key',
      ask('POST', '/tables/t/bulk', { records: [] }, { 'idempotency-key': '' }),
    ],
    ['bulk with a bad query', ask('POST', '/tables/t/bulk?mode=x', { records: [] })],
    ['stream', ask('POST', '/tables/t/bulk', '{}', { 'content-type': 'application/x-ndjson' })],
    [
      'partial stream',
      ask('POST', '/tables/t/bulk?mode=partial', '{}', { 'content-type': 'application/x-ndjson' }),
    ],
    [
      'stream under a bad key',
      ask('POST', '/tables/t/bulk', '{}', {
        'content-type': 'application/x-ndjson',
        'idempotency-key': '',
      }),
    ],
  ]

  interface Scene {
    readonly database: string
    readonly branch: string
    readonly key: string
    readonly userId: string
    readonly keyName: string
  }
  /** `alone` names the object that the change destroys, so each route gets its own. */
  interface Change {
    readonly alone: 'key' | 'user' | 'branch' | 'database'
    readonly answer: string
    make(scene: Scene): Promise<Answer>
  }
  const workspace = () => `/workspaces/${first.workspaceId}`
  const CHANGES: readonly (readonly [string, Change])[] = [
    [
      'a key is revoked',
      {
        alone: 'key',
        answer: '401 invalid_api_key',
        make: ({ keyName }) => first.call('DELETE', `/user/keys/${keyName}`),
      },
    ],
    [
      'a member is removed',
      {
        alone: 'user',
        answer: '404 workspace_not_found',
        make: ({ userId }) => first.call('DELETE', `${workspace()}/members/${userId}`),
      },
    ],
    [
      'a user is deleted',
      {
        alone: 'user',
        answer: '401 invalid_api_key',
        make: ({ key }) => first.call('DELETE', '/user', { key }),
      },
    ],
    [
      'a branch is deleted',
      {
        alone: 'branch',
        answer: '404 branch_not_found',
        make: ({ database, branch }) =>
          first.call('DELETE', `${first.workspace}/db/${database}:${branch}`),
      },
    ],
    [
      'a database is renamed',
      {
        alone: 'database',
        answer: '404 database_not_found',
        make: ({ database }) =>
          first.call('POST', `${workspace()}/dbs/${database}/rename`, {
            body: { newName: `${database}-new` },
          }),
      },
    ],
    [
      'a database is deleted',
      {
        alone: 'database',
        answer: '404 database_not_found',
        make: ({ database }) => first.call('DELETE', `${workspace()}/dbs/${database}`),
      },
    ],
  ]

  let changes = 0

  it.each(CHANGES)('when %s', async (_name, { alone, answer, make }) => {
    const shared = await open(T)
    const prepare = async (): Promise<Scene> => {
      const id = ++number
      const database = alone === 'database' ? (await open(T)).name : shared.name
      const branch = `dev${id}`
      expectOk(await first.call('PUT', `${first.workspace}/db/${database}:${branch}`))
      const scene = { database, branch, userId: '', keyName: `key${id}` }
      if (alone === 'user') {
        const user = await createUser(first, `user${id}`)
        await addMember(first, user)
        return { ...scene, userId: user.id, key: user.key }
      }
      if (alone !== 'key') return { ...scene, key: first.key }
      return { ...scene, key: await createKey(first, scene.keyName) }
    }
    const answers = []
    // The short form has every other route, and those between them with the next change.
    const offset = changes++ % 2
    const routes = ROUTES.filter((_, index) => LONG || index % 2 === offset)
    // In batches of 10, because the number of keys per user is limited.
    for (let at = 0; at < routes.length; at += 10) {
      const some = routes.slice(at, at + 10).map(async ([route, request]) => {
        const scene = await prepare()
        const { database, branch, key } = scene
        const call = branchCall(first, database, { branch, via: second })
        expectOk(await call('PUT', '/tables/t/data/x', { key, body: { n: 1 } }))
        // Fills the caches of the second process: the session, and the answer to the keyed
        // transaction.
        await ROUTES.find(([name]) => name === 'transaction known by its key')?.[1](call, key)
        const before = (await request(call, key)).status
        expectOk(await make(scene))
        const { status, body } = await request(call, key)
        return { route, before, after: `${status} ${body.code}` }
      })
      answers.push(...(await Promise.all(some)))
    }
    for (const { route, before, after } of answers) {
      expect({ route, after }).toEqual({ route, after: answer })
      expect([200, 201, 204, 400, 404, 415], route).toContain(before)
    }
  })

  it('that a key can only read is said only while there is such a key', async () => {
    const { at } = await open(T)
    const key = await createKey(first, 'read-only', { fields: { scope: { access: 'read' } } })
    const write = () => at().there('POST', '/tables/t/data', { key, body: {} })
    expect((await write()).status).toBe(403)
    expectOk(await first.call('DELETE', '/user/keys/read-only'))
    expect((await write()).status).toBe(401)
  })

  it('that a key has expired', async () => {
    const { at } = await open(T)
    const request = (key: string) => at().there('POST', '/tables/t/data', { key, body: {} })
    const key = await withinLifetime(async (seconds) => {
      const expiresAt = new Date(Date.now() + seconds * 1000).toISOString()
      const key = await createKey(first, `short-${seconds}`, { fields: { expiresAt } })
      expect((await request(key)).status).toBe(201)
      return key
    })
    expect((await request(key)).status).toBe(401)
  })

  it('that a branch was made anew under its old name', async () => {
    const { at } = await open(T)
    const { here, there } = at('dev')
    expectOk(await here('PUT', ''))
    expectOk(await there('PUT', '/tables/t/data/x', { body: { n: 1 } }))
    expectOk(await here('DELETE', ''))
    expectOk(await here('PUT', ''))
    expect((await there('GET', '/tables/t/data/x')).status).toBe(404)
    expect((await there('POST', '/tables/t/data', { body: { id: 'x' } })).status).toBe(201)
    expect((await here('GET', '/tables/t/data/x')).status).toBe(200)
  })

  it('that a name means another database', async () => {
    const rename = (from: string, to: string) =>
      first.call('POST', `/workspaces/${first.workspaceId}/dbs/${from}/rename`, {
        body: { newName: to },
      })
    const make = async (who: number) => {
      await createDatabase(first, 'contested')
      const call = branchCall(first, 'contested')
      expectOk(await call('POST', '/schema/update', { body: { operations: addTables(T) } }))
      expectOk(await call('PUT', '/tables/t/data/x', { body: { n: who } }))
    }
    const there = branchCall(first, 'contested', { via: second })
    await make(0)
    for (const round of range(6)) {
      let isDone = false
      const reading = Promise.all(
        range(4).map(async () => {
          while (!isDone) await there('GET', '/tables/t/data/x')
        }),
      )
      expectOk(await rename('contested', `contested-${round}`))
      await make(round + 1)
      isDone = true
      await reading
      expect((await there('GET', '/tables/t/data/x')).body.n).toBe(round + 1)
    }
  })

  it('that the schema has changed', async () => {
    const { at } = await open(T)
    const { here, there } = at()
    const edit = async (...operations: object[]) =>
      expectOk(await here('POST', '/schema/update', { body: { operations, allowDataLoss: true } }))
    const put = (body: object, table = 't') => there('PUT', `/tables/${table}/data/x`, { body })
    const run = (body: object) =>
      there('POST', '/transaction', {
        body: { operations: [{ insert: { table: 't', record: body } }] },
      })
    const bulk = (body: object) => there('POST', '/tables/t/bulk', { body: { records: [body] } })
    const stream = (body: object, mode: string) =>
      there('POST', `/tables/t/bulk?mode=${mode}`, {
        body: JSON.stringify(body),
        headers: { 'content-type': 'application/x-ndjson' },
      })
    const writes: ((body: object) => Promise<Answer>)[] = [
      put,
      run,
      bulk,
      (body) => stream(body, 'atomic'),
      (body) => there('POST', '/tables/t/data', { body }),
    ]
    expectOk(await put({ n: 1 }))
    for (const [index, write] of writes.entries()) {
      const name = `c${index}`
      expect((await write({ [name]: 1 })).status).toBe(400)
      await edit({ addColumn: { table: 't', column: { name, type: 'int' } } })
      expect((await write({ [name]: 1 })).status).toBeLessThan(300)
      await edit({ renameColumn: { table: 't', oldName: name, newName: `${name}-new` } })
      expect((await write({ [name]: 1 })).status).toBe(400)
      await edit({ renameColumn: { table: 't', oldName: `${name}-new`, newName: name } })
      expect((await write({ [name]: 1 })).status).toBeLessThan(300)
      await edit({ removeColumn: { table: 't', column: name } })
      expect((await write({ [name]: 1 })).status).toBe(400)
    }
    expect((await stream({ partial: 1 }, 'partial')).body).toMatchObject({ inserted: 0, failed: 1 })
    await edit({ addColumn: { table: 't', column: { name: 'partial', type: 'int' } } })
    expect((await stream({ partial: 1 }, 'partial')).body).toMatchObject({ inserted: 1, failed: 0 })
    expect((await there('GET', '/tables/t/data/x?columns=late')).status).toBe(400)
    await edit({ addColumn: { table: 't', column: { name: 'late', type: 'int' } } })
    expect((await there('GET', '/tables/t/data/x?columns=late')).status).toBe(200)
    expect((await put({}, 'u')).status).toBe(404)
    await edit({ addTable: { table: 'u' } })
    expect((await put({}, 'u')).status).toBe(201)
    await edit({ renameTable: { oldName: 'u', newName: 'v' } })
    expect((await put({}, 'u')).status).toBe(404)
    expect((await put({}, 'v')).status).toBe(200)
    await edit({ removeTable: { table: 'v' } }, { addTable: { table: 'v' } })
    expect((await there('GET', '/tables/v/data/x')).status).toBe(404)
    expect((await put({}, 'v')).status).toBe(201)
  })
})

describe('schema edits among writes', () => {
  /** Edits of each kind. */
  const ROUNDS = LONG ? 6 : 2

  interface Write {
    readonly id: string
    readonly startedAt: number
    readonly endedAt: number
    readonly answer: Answer
  }

  /** Writes from both processes, in several ways, until told to stop. */
  function startWriting(calls: { here: BranchCall; there: BranchCall }, values: object) {
    const writes: Write[] = []
    let isDone = false
    let count = 0
    const kinds = [
      (call: BranchCall, id: string) => call('PUT', `/tables/t/data/${id}`, { body: values }),
      (call: BranchCall, id: string) => call('POST', '/tables/t/data', { body: { id, ...values } }),
      (call: BranchCall, id: string) =>
        call('POST', '/tables/t/bulk', { body: { records: [{ id, ...values }] } }),
      (call: BranchCall, id: string) =>
        call('POST', '/transaction', {
          body: { operations: [{ insert: { table: 't', record: { id, ...values } } }] },
        }),
      (call: BranchCall, id: string) =>
        call('POST', '/tables/t/bulk', {
          body: JSON.stringify({ id, ...values }),
          headers: { 'content-type': 'application/x-ndjson' },
        }),
    ]
    const running = Promise.all(
      kinds.flatMap((kind) =>
        [calls.here, calls.there].map(async (call) => {
          while (!isDone) {
            const id = `w${++count}`
            const startedAt = performance.now()
            const answer = await kind(call, id)
            writes.push({ id, startedAt, endedAt: performance.now(), answer })
          }
        }),
      ),
    )
    return {
      /** Waits until this many more writes were answered. */
      async more(count: number) {
        const enough = writes.length + count
        await until(async () => writes.length >= enough)
      },
      async stop() {
        isDone = true
        await running
        return writes
      },
    }
  }

  async function readAll(call: BranchCall, ids: readonly string[]): Promise<Map<string, object>> {
    const found = new Map<string, object>()
    for (let at = 0; at < ids.length; at += 1000) {
      const operations = ids
        .slice(at, at + 1000)
        .map((id) => ({ get: { table: 't', id, columns: ['*'] } }))
      const { body } = expectOk(await call('POST', '/transaction', { body: { operations } }))
      for (const { columns } of body.results)
        if (columns.id !== undefined) found.set(columns.id, columns)
    }
    return found
  }

  it('of a column that comes and goes leave each write whole or refused', async () => {
    const { at } = await open(T)
    const { here, there } = at()
    const writing = startWriting({ here, there }, { s: 'kept', n: 5 })
    const edits: { droppedFrom: number; addedUntil: number }[] = []
    for (const _ of range(ROUNDS)) {
      await writing.more(5)
      const droppedFrom = performance.now()
      expectOk(await here('DELETE', '/tables/t/columns/n'))
      await writing.more(5)
      expectOk(await there('POST', '/tables/t/columns', { body: { name: 'n', type: 'int' } }))
      edits.push({ droppedFrom, addedUntil: performance.now() })
    }
    await writing.more(5)
    const writes = await writing.stop()
    expect(
      unexpected(
        writes.map(({ answer }) => answer),
        200,
        201,
        400,
      ),
    ).toEqual([])
    const found = await readAll(
      here,
      writes.map(({ id }) => id),
    )
    const last = edits.at(-1) ?? { droppedFrom: 0, addedUntil: 0 }
    for (const { id, startedAt, endedAt, answer } of writes) {
      const record = found.get(id) as { s?: string; n?: number } | undefined
      if (answer.status >= 400) {
        expect(record).toBeUndefined()
        expect(JSON.stringify(answer.body)).toContain('column [n]: column not found')
        continue
      }
      expect(record).toMatchObject({ s: 'kept' })
      if (endedAt < last.droppedFrom) expect(record).not.toHaveProperty('n')
      if (startedAt > last.addedUntil) expect(record).toMatchObject({ n: 5 })
    }
    expect(writes.filter(({ answer }) => answer.status < 400).length).toBeGreaterThan(10)
  })

  it('of a column that changes its name lose no value', async () => {
    const { at } = await open(T)
    const { here, there } = at()
    const writing = startWriting({ here, there }, { n: 5 })
    // An even number, so that the column has its first name in the end.
    for (const round of range(2 * ROUNDS)) {
      await writing.more(5)
      const [from, to] = round % 2 === 0 ? ['n', 'm'] : ['m', 'n']
      expectOk(await here('PATCH', `/tables/t/columns/${from}`, { body: { name: to } }))
    }
    const writes = await writing.stop()
    expect(
      unexpected(
        writes.map(({ answer }) => answer),
        200,
        201,
        400,
      ),
    ).toEqual([])
    const found = await readAll(
      there,
      writes.map(({ id }) => id),
    )
    for (const { id, answer } of writes) {
      if (answer.status < 400) expect(found.get(id)).toMatchObject({ n: 5 })
      else expect(found.has(id)).toBe(false)
    }
  })

  it('of a column that must have a value leave no record without one', async () => {
    const { at } = await open(T)
    const { here, there } = at()
    const writing = startWriting({ here, there }, { n: 5 })
    for (const round of range(ROUNDS)) {
      await writing.more(5)
      const column = { name: `must${round}`, type: 'int', notNull: true, defaultValue: '7' }
      expectOk(await there('POST', '/tables/t/columns', { body: column }))
    }
    const writes = await writing.stop()
    expect(
      unexpected(
        writes.map(({ answer }) => answer),
        200,
        201,
      ),
    ).toEqual([])
    const found = await readAll(
      here,
      writes.map(({ id }) => id),
    )
    const expected = Object.fromEntries(range(ROUNDS).map((round) => [`must${round}`, 7]))
    for (const { id } of writes) expect(found.get(id)).toMatchObject({ n: 5, ...expected })
  })

  it('of a table that is dropped and made again leave nothing of the old one', async () => {
    const { at } = await open(T)
    const { here, there } = at()
    const writing = startWriting({ here, there }, { n: 5 })
    let lastDrop = 0
    let lastAdd = 0
    for (const _ of range(ROUNDS)) {
      await writing.more(5)
      lastDrop = performance.now()
      expectOk(await here('DELETE', '/tables/t'))
      await writing.more(5)
      expectOk(await there('POST', '/schema/update', { body: { operations: addTables(T) } }))
      lastAdd = performance.now()
    }
    await writing.more(5)
    const writes = await writing.stop()
    expect(
      unexpected(
        writes.map(({ answer }) => answer),
        200,
        201,
        400,
        404,
      ),
    ).toEqual([])
    const found = await readAll(
      here,
      writes.map(({ id }) => id),
    )
    for (const { id, startedAt, endedAt, answer } of writes) {
      if (answer.status >= 400 || endedAt < lastDrop) expect(found.has(id)).toBe(false)
      else if (startedAt > lastAdd) expect(found.get(id)).toMatchObject({ n: 5 })
    }
  })
})

describe('requests at the same time', () => {
  it('count every increment once', async () => {
    const { at } = await open(T)
    const { here, there } = at()
    await here('PUT', '/tables/t/data/sum', { body: { n: 0 } })
    const answers = await Promise.all(
      range(60).map((index) => {
        const call = index % 2 === 0 ? here : there
        const fields = { n: { $increment: 1 } }
        return index % 3 === 0
          ? call('POST', '/transaction', {
              body: { operations: [{ update: { table: 't', id: 'sum', fields } }] },
            })
          : call('PATCH', '/tables/t/data/sum', { body: fields })
      }),
    )
    // Writers that exhaust their retries get 409, and have changed nothing.
    expect(unexpected(answers, 200, 409)).toEqual([])
    const counted = answers.filter(({ status }) => status === 200).length
    expect(counted).toBeGreaterThan(50)
    expect((await here('GET', '/tables/t/data/sum')).body).toMatchObject({
      n: counted,
      service: { version: counted },
    })
  })

  it('let one of them have an id, a value, or a version', async () => {
    const { at } = await open({ t: [{ name: 'u', type: 'int', unique: true }] })
    expectOk(await at().here('PUT', '/tables/t/data/inherited', { body: { u: 0 } }))
    const fork = at('fork')
    expectOk(await fork.here('PUT', ''))
    for (const { here, there } of [at(), fork]) {
      const storm = (request: (call: BranchCall, index: number) => Promise<Answer>) =>
        Promise.all(range(12).map((index) => request(index % 2 === 0 ? here : there, index)))
      const winners = (answers: readonly Answer[], refusal: number) => {
        expect(unexpected(answers, 200, 201, refusal)).toEqual([])
        return answers.filter(({ status }) => status !== refusal).length
      }
      const create = await storm((call) =>
        call('PUT', '/tables/t/data/x?createOnly=true', { body: {} }),
      )
      expect(winners(create, 422)).toBe(1)
      const unique = await storm((call, index) =>
        call('PUT', `/tables/t/data/u${index}`, { body: { u: 1 } }),
      )
      expect(winners(unique, 400)).toBe(1)
      const version = await storm((call) =>
        call('PATCH', '/tables/t/data/inherited?ifVersion=0', { body: {} }),
      )
      expect(winners(version, 422)).toBe(1)
      const bulk = await storm((call) =>
        call('POST', '/tables/t/bulk', { body: { records: [{ u: 2 }, {}] } }),
      )
      expect(winners(bulk, 400)).toBe(1)
      const gone = await storm((call) => call('DELETE', '/tables/t/data/inherited'))
      expect(gone.filter(({ status }) => status === 204)).toHaveLength(1)
    }
  })

  it('may all be the first to write to a fork', async () => {
    const { at } = await open({ ...T, u: [{ name: 'n', type: 'int', unique: true }] })
    await at().here('PUT', '/tables/t/data/old', { body: { n: 1 } })
    const { here, there } = at('fresh')
    expectOk(await here('PUT', ''))
    const answers = await Promise.all(
      range(16).flatMap((index) => {
        const call = index % 2 === 0 ? here : there
        return [
          call('PUT', `/tables/t/data/x${index}`, { body: { n: index } }),
          call('POST', '/tables/u/bulk', { body: { records: [{ n: index }] } }),
        ]
      }),
    )
    expect(unexpected(answers, 200, 201)).toEqual([])
    for (const index of range(16)) {
      expect((await there('GET', `/tables/t/data/x${index}`)).body.n).toBe(index)
    }
  })

  it('under one Idempotency-Key execute once, in whichever process', async () => {
    const { at } = await open(T)
    const { here, there } = at()
    await here('PUT', '/tables/t/data/sum', { body: { n: 0 } })
    const body = {
      operations: [{ update: { table: 't', id: 'sum', fields: { n: { $increment: 1 } } } }],
    }
    const headers = { 'idempotency-key': 'once' }
    const answers = await Promise.all(
      range(10).map((index) =>
        (index % 2 === 0 ? here : there)('POST', '/transaction', { body, headers }),
      ),
    )
    expect(unexpected(answers, 200)).toEqual([])
    expect((await here('GET', '/tables/t/data/sum')).body.n).toBe(1)
  })

  it('may bring the same migration to two branches', async () => {
    const { at } = await open(T)
    const [main, dev] = [at(), at('dev')]
    expectOk(await dev.here('PUT', ''))
    for (const round of range(5)) {
      const operations = [{ addTable: { table: `added${round}` } }]
      const migration = { id: `mig_same${round}`, checksum: checksumOf(operations), operations }
      const body = { migrations: [migration] }
      const answers = await Promise.all([
        main.here('POST', '/schema/push', { body }),
        dev.there('POST', '/schema/push', { body }),
      ])
      expect(statusesOf(answers)).toEqual([200])
    }
  })

  it('edit the schema one after the other', async () => {
    const { at } = await open(T)
    const { here, there } = at()
    const answers = await Promise.all(
      range(10).map((index) => {
        const column = { name: `c${index}`, type: 'int' }
        return (index % 2 === 0 ? here : there)('POST', '/tables/t/columns', { body: column })
      }),
    )
    expect(statusesOf(answers)).toEqual([200])
    const { body } = await here('GET', '')
    expect(body.schema.tables[0].columns).toHaveLength(12)
    expect(body.version).toBe(12)
  })
})

describe('transfers', () => {
  const ACCOUNTS = range(6).map((index) => `a${index}`)
  const TOTAL = ACCOUNTS.length * 100

  async function openBank() {
    const bank = await open({
      accounts: [{ name: 'n', type: 'int' }],
      vault: [{ name: 'n', type: 'int' }],
    })
    const operations = ACCOUNTS.map((id) => ({
      insert: { table: 'accounts', record: { id, n: 100 } },
    }))
    expectOk(await bank.at().here('POST', '/transaction', { body: { operations } }))
    return bank
  }

  /** Returns the sum of all accounts in both tables. */
  async function total(call: BranchCall): Promise<number> {
    const operations = ACCOUNTS.flatMap((id) =>
      ['accounts', 'vault'].map((table) => ({ get: { table, id, columns: ['n'] } })),
    )
    const { body } = expectOk(await call('POST', '/transaction', { body: { operations } }))
    return body.results.reduce(
      (sum: number, { columns }: { columns: { n?: number } }) => sum + (columns.n ?? 0),
      0,
    )
  }

  /** Moves amounts between records, and records between tables, until told to stop. */
  function startTransfers(
    { here, there }: { here: BranchCall; there: BranchCall },
    workers: number,
  ) {
    const answers: Answer[] = []
    let isDone = false
    const pick = (): string => ACCOUNTS[Math.floor(Math.random() * ACCOUNTS.length)] ?? ''
    const move = (from: string, to: string) => [
      { update: { table: 'accounts', id: from, fields: { n: { $decrement: 1 } } } },
      { update: { table: 'accounts', id: to, fields: { n: { $increment: 1 } } } },
    ]
    /**
     * Moves an account into the vault and back, in two transactions. Transfers in between are
     * refused.
     */
    const store = async (call: BranchCall, id: string): Promise<Answer[]> => {
      const account = await call('GET', `/tables/accounts/data/${id}`)
      if (account.status !== 200) return []
      const { n, service } = account.body
      const into = await call('POST', '/transaction', {
        body: {
          operations: [
            { update: { table: 'accounts', id, fields: {}, ifVersion: service.version } },
            { delete: { table: 'accounts', id, failIfMissing: true } },
            { insert: { table: 'vault', record: { id, n }, createOnly: true } },
          ],
        },
      })
      if (into.status !== 200) return [into]
      const back = await call('POST', '/transaction', {
        body: {
          operations: [
            { delete: { table: 'vault', id, failIfMissing: true } },
            { insert: { table: 'accounts', record: { id, n }, createOnly: true } },
          ],
        },
      })
      return [into, back]
    }
    const running = Promise.all(
      range(workers).map(async (index) => {
        const call = index % 2 === 0 ? here : there
        while (!isDone) {
          // Each worker stores its own account: a re-created record starts again at version 0, so
          // `ifVersion` could match a record that another worker has re-created.
          if (Math.random() < 0.2) answers.push(...(await store(call, ACCOUNTS[index] ?? '')))
          else
            answers.push(
              await call('POST', '/transaction', { body: { operations: move(pick(), pick()) } }),
            )
        }
      }),
    )
    return async () => {
      isDone = true
      await running
      return answers
    }
  }

  it('keep the sum in every reading', async () => {
    const bank = await openBank()
    const stop = startTransfers(bank.at(), 6)
    const { here, there } = bank.at()
    for (const index of range(25)) expect(await total(index % 2 === 0 ? here : there)).toBe(TOTAL)
    const answers = await stop()
    expect(unexpected(answers, 200, 400, 409)).toEqual([])
    expect(await total(here)).toBe(TOTAL)
  })

  it('keep the sum in every fork that is taken meanwhile, for ever', async () => {
    const bank = await openBank()
    const stop = startTransfers(bank.at(), 6)
    const forks: { call: BranchCall; balances: unknown }[] = []
    const balances = async (call: BranchCall) => {
      const operations = ACCOUNTS.flatMap((id) =>
        ['accounts', 'vault'].map((table) => ({ get: { table, id, columns: ['*'] } })),
      )
      return expectOk(await call('POST', '/transaction', { body: { operations } })).body
    }
    for (const index of range(10)) {
      await delay(10)
      const { here, there } = bank.at(`fork${index}`)
      const from = index > 5 ? `fork${index - 4}` : 'main'
      expectOk(await (index % 2 === 0 ? here : there)('PUT', '', { body: { from } }))
      expect(await total(there)).toBe(TOTAL)
      forks.push({ call: here, balances: await balances(here) })
    }
    const answers = await stop()
    expect(unexpected(answers, 200, 400, 409)).toEqual([])
    expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThan(20)
    for (const { call, balances: before } of forks) expect(await balances(call)).toEqual(before)
    expect(await total(bank.at().here)).toBe(TOTAL)
  })

  it('go on in forks that are forked again, each with its own sum', async () => {
    const bank = await openBank()
    const branches = [bank.at()]
    for (const index of range(3)) {
      const branch = bank.at(`own${index}`)
      expectOk(await branch.here('PUT', '', { body: { from: index === 2 ? 'own1' : 'main' } }))
      branches.push(branch)
    }
    const stops = branches.map((branch) => startTransfers(branch, 2))
    for (const index of range(4)) {
      await delay(20)
      const branch = bank.at(`late${index}`)
      const from = ['main', 'own0', 'own1', 'own2'][index]
      expectOk(await branch.here('PUT', '', { body: { from } }))
      branches.push(branch)
    }
    const answers = (await Promise.all(stops.map((stop) => stop()))).flat()
    expect(unexpected(answers, 200, 400, 409)).toEqual([])
    for (const { there } of branches) expect(await total(there)).toBe(TOTAL)
  })
})
