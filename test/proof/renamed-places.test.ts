import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { LocalStore } from '../../packages/server/src/blobs/local-store.js'
import {
  addMember,
  createKey,
  createUser,
  createWorkspace,
  type TestUser,
} from '../support/people.js'
import { LONG } from '../support/random.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { addTables, expectOk } from '../support/tables.js'

/*
 * A process remembers what it knows about a name: of a database, a branch, a table or a column. Then the name means
 * something else. Every request must be answered as by a process that has just been started.
 *
 * Three workspaces have the same databases and get the same requests, before and after the change. In the first, they
 * go through the process that makes the change. In the second, they go through another process. In the third, those
 * after the change go through a new process.
 */

let folder: string
let blobs: LocalStore
let first: TestService
let second: TestService
let number = 0

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'offshoot-places-'))
  blobs = new LocalStore(folder)
  await blobs.prepare()
  first = await createTestService({ blobs })
  second = await createTestService({ blobs, url: first.url })
})
afterAll(async () => {
  await second.close()
  await first.close()
  await rm(folder, { recursive: true })
})

const COLUMNS: readonly Column[] = [
  { name: 'text', type: 'string' },
  { name: 'other', type: 'string' },
  { name: 'n', type: 'int' },
  { name: 'photo', type: 'file' },
]
const TABLES = { items: COLUMNS, spares: COLUMNS }
const BRANCHES = ['main', 'dev', 'side', 'again']

/** A workspace and a member whose key sends the requests. */
class World {
  /** What answers and later requests depend on, such as cursors and links of an earlier round. */
  readonly known = new Map<string, string>()

  private constructor(
    readonly workspaceId: string,
    readonly user: TestUser,
    readonly key: string,
    /** The process that is tested. */
    public via: TestService,
  ) {}

  static async create(via: TestService): Promise<World> {
    const { id } = await createWorkspace(first, 'places')
    const user = await createUser(first, `member${++number}`)
    await addMember(first, user, id)
    const key = await createKey(first, 'work', { key: user.key })
    const world = new World(id, user, key, via)
    await world.createDatabase('shop', 'here')
    return world
  }

  /** Creates a database whose records say where they are. */
  async createDatabase(name: string, mark: string): Promise<void> {
    const { change } = this
    await change('PUT', `/dbs/${name}`, { region: 'local' })
    await change('POST', `/db/${name}:main/schema/update`, { operations: addTables(TABLES) })
    for (const branch of BRANCHES) {
      if (branch !== 'main') await change('PUT', `/db/${name}:${branch}`, { from: 'main' })
      for (const [index, table] of Object.keys(TABLES).entries()) {
        await change('PUT', `/db/${name}:${branch}/tables/${table}/data/${branch}-${mark}`, {
          text: `${mark} ${table} of ${branch}`,
          other: `${branch} other`,
          n: index,
          photo: {
            name: 'a.txt',
            base64Content: btoa(`${mark} ${branch}`),
            mediaType: 'text/plain',
          },
        })
      }
    }
    const mapping = { gitBranch: 'feature', serviceBranch: mark === 'here' ? 'dev' : 'side' }
    await change('POST', `/dbs/${name}/gitBranches`, mapping)
  }

  /** Sends a request of the process that makes the changes, which must succeed. */
  readonly change = async (method: string, path: string, body?: unknown): Promise<Answer> =>
    expectOk(await this.send(method, path, { body, via: first, key: first.key }))

  /** Sends a request of the process that is tested. */
  send(
    method: string,
    path: string,
    options: {
      body?: unknown
      via?: TestService
      key?: string
      headers?: Record<string, string>
    } = {},
  ): Promise<Answer> {
    const { via = this.via, key = this.key, ...rest } = options
    const isControl = /^\/dbs\/[^/]*(\/rename)?$/.test(path) || path === ''
    const base = isControl ? `/workspaces/${this.workspaceId}` : `/${this.workspaceId}.local`
    return via.call(method, `${path.startsWith('/file/') ? '' : base}${path}`, { key, ...rest })
  }

  /** Sends requests of every kind. Returns their answers by name. */
  async sendAll(round: string): Promise<Record<string, unknown>> {
    const answers: Record<string, unknown> = {}
    for (const [name, method, path, body] of [...READS, ...WRITES]) {
      const sent = typeof body === 'function' ? body(this, round) : body
      const where = typeof path === 'function' ? path(this, round) : path
      const isKeyed = name.startsWith('a creation')
      const answer = await this.send(method, where, {
        body: sent,
        ...(isKeyed ? { headers: { 'idempotency-key': 'once' } } : {}),
      })
      answers[name] = this.#normalize(answer)
      if (round === 'before') this.#remember(name, answer)
    }
    for (const branch of BRANCHES) {
      const answer = await this.send('POST', `/db/shop:${branch}/tables/items/query`, {
        body: { columns: ['*'] },
      })
      answers[`the records of ${branch}`] = this.#normalize(answer)
    }
    return answers
  }

  /** Keeps what a client may use again. */
  #remember(name: string, { body }: Answer): void {
    if (name === 'a page') this.known.set('cursor', body.meta?.page?.cursor ?? '')
    const link = body?.photo?.url
    if (name === 'a record' && typeof link === 'string') {
      this.known.set('link', new URL(link).pathname)
    }
  }

  /** Removes what is new in every request: ids, times, links and cursors. */
  #normalize({ status, body }: Answer): unknown {
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    return [
      status,
      text
        .replaceAll(this.workspaceId, 'WORKSPACE')
        .replaceAll(/\b(req|rec|mig|bb|tbl|log|cp)_\w+/g, 'ID')
        .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z/g, 'TIME')
        // Tokens of conflicts cover the ids of columns.
        .replaceAll(/\b[0-9a-f]{64}\b/g, 'TOKEN')
        .replaceAll(/"cursor":"[^"]*"/g, '"cursor":"CURSOR"')
        .replaceAll(/\/file\/[^"?]*(\?[^"]*)?/g, '/file/LINK')
        .replaceAll(/"(size|sizeBytes|bytes)":\d+/g, '"$1":0'),
    ]
  }
}

type ByRound = (world: World, round: string) => unknown
type Request = readonly [
  name: string,
  method: string,
  path: string | ((world: World, round: string) => string),
  body?: object | ByRound,
]

const ITEMS = '/db/shop:dev/tables/items'

const READS: readonly Request[] = [
  ['a record', 'GET', `${ITEMS}/data/dev-here?columns=text,n,photo.url`],
  ['a record of the other database', 'GET', `${ITEMS}/data/dev-there`],
  ['a query', 'POST', `${ITEMS}/query`, { filter: { n: { $ge: 0 } }, sort: { text: 'asc' } }],
  ['a page', 'POST', `${ITEMS}/query`, { page: { size: 1 } }],
  [
    'a page by a cursor',
    'POST',
    `${ITEMS}/query`,
    ({ known }) => ({ page: { size: 1, after: known.get('cursor') ?? 'none' } }),
  ],
  ['a summary', 'POST', `${ITEMS}/summarize`, { summaries: { all: { count: '*' } } }],
  ['an aggregation', 'POST', `${ITEMS}/aggregate`, { aggs: { all: { count: '*' } } }],
  ['a search', 'POST', '/db/shop:dev/search', { query: 'other' }],
  ['a search of a table', 'POST', `${ITEMS}/search`, { query: 'here' }],
  ['SQL', 'POST', '/db/shop:dev/sql', { statement: 'select id, text from items order by id' }],
  ['a branch', 'GET', '/db/shop:dev'],
  ['the schema', 'GET', '/db/shop:dev/schema'],
  ['the branches', 'GET', '/dbs/shop'],
  ['a git branch', 'GET', '/dbs/shop/resolveBranch?gitBranch=feature'],
  ['a link', 'GET', ({ known }) => known.get('link') ?? '/file/none'],
  ['a file', 'GET', `${ITEMS}/data/dev-here/column/photo/file`],
  ['the difference', 'GET', '/db/shop:dev/diff'],
  ['the difference to another branch', 'GET', '/db/shop:dev/diff?against=side'],
  ['a preview of a merge', 'POST', '/db/shop:dev/merge', { into: 'side', dryRun: true }],
  ['a preview of a pull', 'POST', '/db/shop:dev/pull', { from: 'side', dryRun: true }],
  ['a preview of a reset', 'POST', '/db/shop:dev/reset', { to: 'side', dryRun: true }],
]

const WRITES: readonly Request[] = [
  ['a new record', 'PUT', (_, round) => `${ITEMS}/data/put-${round}`, { text: 'put' }],
  ['an update', 'PATCH', `${ITEMS}/data/dev-here`, (_, round) => ({ other: `patched ${round}` })],
  [
    'a bulk insert',
    'POST',
    `${ITEMS}/bulk`,
    (_, round) => ({ records: [{ id: `bulk-${round}`, text: 'bulk' }] }),
  ],
  [
    'a transaction',
    'POST',
    '/db/shop:dev/transaction',
    (_, round) => ({
      operations: [
        { insert: { table: 'items', record: { id: `tx-${round}`, text: 'tx' } } },
        { get: { table: 'items', id: 'dev-here', columns: ['text'] } },
      ],
    }),
  ],
  ['a creation with an idempotency key', 'POST', `${ITEMS}/data`, { text: 'once' }],
  [
    'a write by SQL',
    'POST',
    '/db/shop:dev/sql',
    (_, round) => ({ statement: `insert into items (id, text) values ('sql-${round}', 'sql')` }),
  ],
  [
    'a schema edit',
    'POST',
    '/db/shop:side/tables/items/columns',
    (_, round) => ({
      name: `new_${round}`,
      type: 'int',
    }),
  ],
  ['a fork', 'PUT', (_, round) => `/db/shop:fork-${round}`, { from: 'dev' }],
  [
    'the records of the fork',
    'POST',
    (_, round) => `/db/shop:fork-${round}/tables/items/query`,
    {},
  ],
  ['a merge', 'POST', '/db/shop:dev/merge', { into: 'side' }],
  ['a pull', 'POST', '/db/shop:main/pull', { from: 'side' }],
  ['a reset', 'POST', '/db/shop:again/reset', { to: 'dev' }],
  ['a deletion', 'DELETE', (_, round) => `${ITEMS}/data/put-${round}`],
  ['the deletion of a branch', 'DELETE', (_, round) => `/db/shop:fork-${round}`],
]

const CHANGES: readonly [name: string, change: (world: World) => Promise<unknown>][] = [
  [
    'another database takes the name of the database',
    async (world) => {
      await world.createDatabase('spare', 'there')
      await world.change('POST', '/dbs/shop/rename', { newName: 'old' })
      await world.change('POST', '/dbs/spare/rename', { newName: 'shop' })
    },
  ],
  [
    'the database is deleted and created again',
    async (world) => {
      await world.change('DELETE', '/dbs/shop')
      await world.createDatabase('shop', 'there')
    },
  ],
  [
    'the branches are deleted and forked again from others',
    async ({ change }) => {
      for (const branch of ['dev', 'side', 'again']) {
        await change('DELETE', `/db/shop:${branch}`)
        await change('PUT', `/db/shop:${branch}`, { from: 'main' })
        await change('PUT', `/db/shop:${branch}/tables/items/data/${branch}-new`, { text: 'new' })
      }
    },
  ],
  ['a branch is deleted', ({ change }) => change('DELETE', '/db/shop:side')],
  [
    'another table takes the name of the table',
    async ({ change }) => {
      for (const branch of ['dev', 'side']) {
        await change('PATCH', `/db/shop:${branch}/tables/items`, { name: 'old' })
        await change('PATCH', `/db/shop:${branch}/tables/spares`, { name: 'items' })
      }
    },
  ],
  [
    'the table is deleted and created again',
    async ({ change }) => {
      for (const branch of ['dev', 'side']) {
        await change('DELETE', `/db/shop:${branch}/tables/items`)
        await change('PUT', `/db/shop:${branch}/tables/items`)
        const schema = { columns: COLUMNS }
        await change('PUT', `/db/shop:${branch}/tables/items/schema`, schema)
        await change('PUT', `/db/shop:${branch}/tables/items/data/dev-here`, { text: 'new' })
      }
    },
  ],
  [
    'two columns exchange their names',
    async ({ change }) => {
      const rename = (oldName: string, name: string) =>
        change('PATCH', `/db/shop:dev/tables/items/columns/${oldName}`, { name })
      await rename('text', 'third')
      await rename('other', 'text')
      await rename('third', 'other')
    },
  ],
  [
    'a column is deleted and created again with another type',
    async ({ change }) => {
      const columns = '/db/shop:dev/tables/items/columns'
      await change('DELETE', `${columns}/n`)
      await change('POST', columns, { name: 'n', type: 'string' })
    },
  ],
  [
    'the key is revoked and created again',
    async ({ user }) => {
      expectOk(await first.call('DELETE', '/user/keys/work', { key: user.key }))
      await createKey(first, 'work', { key: user.key })
    },
  ],
  [
    'the user is deleted and created again',
    async ({ user }) => {
      expectOk(await first.call('DELETE', '/user', { key: user.key }))
      await createUser(first, user.email.replace('@example.com', ''))
    },
  ],
  ['the workspace is deleted', ({ change }) => change('DELETE', '')],
]

/** Changes that follow each other in one world, because to build a world costs most. Nothing can follow the second ones. */
const CHAINS = [
  ['two columns exchange their names', 'the key is revoked and created again'],
  [
    'the branches are deleted and forked again from others',
    'the user is deleted and created again',
  ],
  ['the table is deleted and created again', 'another database takes the name of the database'],
  ['a branch is deleted', 'the database is deleted and created again'],
  ['another table takes the name of the table', 'the workspace is deleted'],
  ['a column is deleted and created again with another type'],
]

describe('every request is answered as by a new process', () => {
  it('after every change', () => {
    expect(CHAINS.flat().sort()).toEqual(CHANGES.map(([name]) => name).sort())
  })

  // Building the worlds of a chain takes seconds. Each kind of place is in one of the first chains.
  it.each((LONG ? CHAINS : CHAINS.slice(0, 4)).map((names) => [names]))(
    'after %j',
    async (names) => {
      const [own, elsewhere, renewed] = [
        await World.create(first),
        await World.create(second),
        await World.create(first),
      ] as const
      const worlds = [own, elsewhere, renewed]
      let last = await own.sendAll('before')
      expect(await elsewhere.sendAll('before')).toEqual(last)
      expect(await renewed.sendAll('before')).toEqual(last)
      for (const [index, name] of names.entries()) {
        const change = new Map(CHANGES).get(name)
        await Promise.all(worlds.map((world) => change?.(world)))
        const fresh = await createTestService({ blobs, url: first.url })
        try {
          renewed.via = fresh
          const round = `after${index}`
          const expected = await renewed.sendAll(round)
          expect(expected).not.toEqual(last)
          expect.soft(await own.sendAll(round), `${name}: in the same process`).toEqual(expected)
          expect
            .soft(await elsewhere.sendAll(round), `${name}: in another process`)
            .toEqual(expected)
          last = expected
        } finally {
          await fresh.close()
        }
      }
    },
  )
})
