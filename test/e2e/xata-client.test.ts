import { rm } from 'node:fs/promises'
import path from 'node:path'
import {
  buildClient,
  contains,
  ge,
  iContains,
  includesNone,
  lt,
  parseProviderString,
  type SchemaInference,
  XataApiClient,
  XataFile,
  type XataRecord,
} from '@xata.io/client'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { makeDataFolder } from '../support/data-folder.js'
import { type Banner, endAll, type OffshootProcess, startOffshoot } from '../support/process.js'

/*
 * Runs the published client of Xata Lite, unchanged, against the service as its users run it. The
 * expected answers are those of Xata.
 */

const TABLES = [
  {
    name: 'teams',
    columns: [
      { name: 'name', type: 'string' },
      { name: 'labels', type: 'multiple' },
      { name: 'index', type: 'int' },
      { name: 'rating', type: 'float' },
      { name: 'founded', type: 'datetime' },
      { name: 'email', type: 'email', unique: true },
      { name: 'config', type: 'json' },
      { name: 'owner', type: 'link', link: { table: 'users' } },
    ],
    revLinks: [{ table: 'users', column: 'team' }],
  },
  {
    name: 'users',
    columns: [
      { name: 'name', type: 'string' },
      { name: 'age', type: 'int', notNull: true, defaultValue: '18' },
      { name: 'vip', type: 'bool' },
      { name: 'team', type: 'link', link: { table: 'teams' } },
      { name: 'photo', type: 'file', file: { defaultPublicAccess: true } },
      { name: 'papers', type: 'file[]' },
    ],
    revLinks: [{ table: 'teams', column: 'owner' }],
  },
] as const
type Inferred = SchemaInference<typeof TABLES>
type Schema = {
  teams: Inferred['teams'] & XataRecord
  users: Inferred['users'] & XataRecord
}

const Base = buildClient()
/** Has the form that the client's code generator writes. */
class XataClient extends Base<Schema> {
  constructor(options: { databaseURL: string; apiKey: string; branch: string }) {
    super(options, TABLES)
  }
}

let folder: string
let service: OffshootProcess
let banner: Banner
let api: XataApiClient
let xata: XataClient
let workspace: string
let databaseURL: string
let apiKey: string
let host: NonNullable<ReturnType<typeof parseProviderString>>
const region = 'local'

beforeAll(async () => {
  folder = await makeDataFolder('xata')
  service = startOffshoot(path.join(folder, 'data'))
  banner = await service.ready()
  workspace = banner.workspaceId
  apiKey = banner.key ?? ''
  // The client treats addresses that contain `localhost` specially, and drops the workspace from
  // them.
  const address = banner.address.replace('localhost', '127.0.0.1')
  databaseURL = `${address}/${workspace}.${region}.xata.sh/db/shop`
  const provider = `${address},${address}/{workspaceId}.{region}.xata.sh`
  const parsed = parseProviderString(provider)
  if (parsed === null) throw new Error('the provider must be understood')
  host = parsed
  api = new XataApiClient({ apiKey, host })
  xata = new XataClient({ databaseURL, apiKey, branch: 'main' })
})
afterAll(async () => {
  await service?.end('SIGTERM')
  await endAll([path.join(folder, 'data')])
  await rm(folder, { recursive: true, force: true })
})

const branchPath = (dbBranchName: string) => ({ workspace, region, dbBranchName })

describe('the API client', () => {
  it('creates a database with a schema', async () => {
    const user = await api.users.getUser({})
    expect(user.email).toContain('@')
    const { workspaces } = await api.workspaces.getWorkspacesList({})
    expect(workspaces.map(({ id }) => id)).toContain(workspace)
    const created = await api.databases.createDatabase({
      pathParams: { workspaceId: workspace, dbName: 'shop' },
      body: { region, branchName: 'main' },
    })
    expect(created).toMatchObject({ databaseName: 'shop', branchName: 'main', status: 'completed' })
    for (const table of TABLES) {
      const params = { ...branchPath('shop:main'), tableName: table.name }
      const { status } = await api.table.createTable({ pathParams: params })
      expect(status).toBe('completed')
    }
    const { edits } = await api.migrations.compareBranchWithUserSchema({
      pathParams: branchPath('shop:main'),
      body: { schema: { tables: JSON.parse(JSON.stringify(TABLES)) } },
    })
    expect(edits.operations).toHaveLength(14)
    const applied = await api.migrations.applyBranchSchemaEdit({
      pathParams: branchPath('shop:main'),
      body: { edits },
    })
    expect(applied.status).toBe('completed')
    const details = await api.branch.getBranchDetails({ pathParams: branchPath('shop:main') })
    expect(details.branchName).toBe('main')
    expect(details.schema.tables.map(({ name }) => name).sort()).toEqual(['teams', 'users'])
    const { databases } = await api.databases.getDatabaseList({
      pathParams: { workspaceId: workspace },
    })
    expect(databases.map(({ name }) => name)).toEqual(['shop'])
  })

  it('creates, lists and deletes branches, and maps those of git', async () => {
    const dbName = 'shop'
    const created = await api.branch.createBranch({
      pathParams: branchPath('shop:preview'),
      body: { from: 'main', metadata: { labels: ['x'] } },
    })
    expect(created).toMatchObject({ branchName: 'preview', status: 'completed' })
    const { branches } = await api.branch.getBranchList({
      pathParams: { workspace, region, dbName },
    })
    expect(branches.map(({ name }) => name).sort()).toEqual(['main', 'preview'])
    await api.branch.addGitBranchesEntry({
      pathParams: { workspace, region, dbName },
      body: { gitBranch: 'feature/one', xataBranch: 'preview' },
    })
    const { mapping } = await api.branch.getGitBranchesMapping({
      pathParams: { workspace, region, dbName },
    })
    expect(mapping).toEqual([{ gitBranch: 'feature/one', xataBranch: 'preview' }])
    const resolved = await api.branch.resolveBranch({
      pathParams: { workspace, region, dbName },
      queryParams: { gitBranch: 'feature/one' },
    })
    expect(resolved).toMatchObject({ branch: 'preview', reason: { code: 'FOUND_IN_MAPPING' } })
    const deleted = await api.branch.deleteBranch({ pathParams: branchPath('shop:preview') })
    expect(deleted.status).toBe('completed')
  })

  it('refuses a wrong key by the words that clients know', async () => {
    const wrong = new XataClient({ databaseURL, apiKey: 'nonsense', branch: 'main' })
    await expect(wrong.db.teams.getFirst()).rejects.toMatchObject({
      status: 401,
      message: 'Invalid API key',
    })
  })
})

describe('one record', () => {
  it('is created, read, updated, replaced and deleted', async () => {
    const founded = new Date('2026-01-31T09:30:00.500Z')
    const team = await xata.db.teams.create({
      name: 'Fruits',
      labels: ['apple', 'pear'],
      index: 1,
      rating: 0.5,
      founded,
      config: { color: 'red', sizes: [1, 2] },
    })
    expect(team).toMatchObject({ name: 'Fruits', labels: ['apple', 'pear'], index: 1, rating: 0.5 })
    expect(team.founded).toEqual(founded)
    expect(team.config).toEqual({ color: 'red', sizes: [1, 2] })
    expect(team.email).toBeNull()
    expect(team.getMetadata()).toMatchObject({ version: 0 })
    expect(team.getMetadata().createdAt).toBeInstanceOf(Date)

    const read = await xata.db.teams.read(team.id)
    expect(read?.toSerializable()).toEqual(team.toSerializable())
    expect((await xata.db.teams.readOrThrow(team.id, ['name'])).name).toBe('Fruits')
    expect(await xata.db.teams.read('nobody')).toBeNull()
    expect(await xata.db.teams.read('no id/at all')).toBeNull()
    await expect(xata.db.teams.readOrThrow('nobody')).rejects.toThrow('nobody')
    expect((await team.read())?.id).toBe(team.id)

    const updated = await xata.db.teams.update(team.id, { name: 'Fruit', index: { $increment: 4 } })
    expect(updated).toMatchObject({ name: 'Fruit', index: 5, labels: ['apple', 'pear'] })
    expect(updated?.getMetadata().version).toBe(1)
    expect(await xata.db.teams.update('nobody', { name: 'x' })).toBeNull()
    await expect(xata.db.teams.updateOrThrow('nobody', { name: 'x' })).rejects.toThrow()
    expect((await updated?.update({ rating: 2 }))?.rating).toBe(2)

    const replaced = await xata.db.teams.createOrReplace(team.id, { name: 'Greens' })
    expect(replaced).toMatchObject({ name: 'Greens', index: null, labels: null })
    const made = await xata.db.teams.createOrUpdate('greens', { name: 'More', index: 1 })
    expect(made).toMatchObject({ id: 'greens', name: 'More' })
    const changed = await xata.db.teams.createOrUpdate('greens', { index: 2 })
    expect(changed).toMatchObject({ id: 'greens', name: 'More', index: 2 })
    expect((await changed.replace({ name: 'Most' }))?.index).toBeNull()

    expect((await xata.db.teams.delete('greens'))?.name).toBe('Most')
    expect(await xata.db.teams.delete('greens')).toBeNull()
    await expect(xata.db.teams.deleteOrThrow('greens')).rejects.toThrow()
    expect((await team.delete())?.id).toBe(team.id)
    expect(await xata.db.teams.read(team.id)).toBeNull()
  })

  it('is created under an id only once', async () => {
    await xata.db.teams.create('same', { name: 'One' })
    await expect(xata.db.teams.create('same', { name: 'Two' })).rejects.toMatchObject({
      status: 422,
    })
    await xata.db.teams.delete('same')
  })

  it('is written only at the version that is expected', async () => {
    const team = await xata.db.teams.create({ name: 'Versions' })
    expect(await xata.db.teams.update(team.id, { name: 'x' }, { ifVersion: 1 })).toBeNull()
    const first = await xata.db.teams.update(team.id, { name: 'y' }, { ifVersion: 0 })
    expect(first?.name).toBe('y')
    await expect(
      xata.db.teams.createOrReplace(team.id, { name: 'z' }, { ifVersion: 0 }),
    ).rejects.toMatchObject({ status: 422, message: 'version condition not met' })
    expect((await xata.db.teams.read(team.id))?.name).toBe('y')
    await team.delete()
  })

  it('starts at version 0 again when it is created anew', async () => {
    const { teams } = xata.db
    const write: Readonly<Record<string, (ifVersion: number) => Promise<unknown>>> = {
      update: (ifVersion) => teams.update('anew', { name: 'x' }, { ifVersion }),
      upsert: (ifVersion) => teams.createOrUpdate('anew', { name: 'y' }, { ifVersion }),
      replace: (ifVersion) => teams.createOrReplace('anew', { name: 'z' }, { ifVersion }),
    }
    for (const [kind, change] of Object.entries(write)) {
      const created = await teams.create('anew', { name: 'Anew' })
      expect(created.getMetadata().version, kind).toBe(0)
      await change(0)
      expect((await teams.read('anew'))?.getMetadata().version, kind).toBe(1)
      await teams.delete('anew')
    }
  })

  it('has unique values, and only columns and values that its table takes', async () => {
    const team = await xata.db.teams.create({ email: 'a@example.com' })
    await expect(xata.db.teams.create({ email: 'a@example.com' })).rejects.toMatchObject({
      status: 400,
      message: 'invalid record: column [email]: is not unique',
    })
    const wrong = { nope: 1 } as object
    await expect(xata.db.teams.create(wrong)).rejects.toMatchObject({
      status: 400,
      message: 'invalid record: column [nope]: column not found',
    })
    await expect(xata.db.teams.create({ index: 'x' } as object)).rejects.toMatchObject({
      status: 400,
    })
    await team.delete()
  })
})

describe('a record that was read', () => {
  it('can be sent back, alone and among others', async () => {
    const team = await xata.db.teams.create({ name: 'Back' })
    await xata.db.users.create('back', { name: 'Back', team: team.id })
    const user = await xata.db.users.readOrThrow('back', ['*', 'team.*'])
    expect(user).toMatchObject({ photo: null, papers: [], team: { name: 'Back' } })
    const changed = await xata.db.users.update({ ...user, name: 'Changed' })
    expect(changed).toMatchObject({ name: 'Changed', team: { id: team.id }, papers: [] })
    const [other] = await xata.db.users.update([{ ...user, name: 'Among others' }])
    expect(other).toMatchObject({ id: 'back', name: 'Among others', papers: [] })
    const { id, ...copied } = user
    const copies = await xata.db.users.create([copied, { ...copied, name: 'Second' }])
    expect(copies).toMatchObject([{ name: 'Back' }, { name: 'Second' }])
    expect(await user.replace({ ...user, name: 'Replaced' })).toMatchObject({ name: 'Replaced' })
    await xata.db.users.delete([id, ...copies.map((copy) => copy.id)])
    await team.delete()
  })
})

describe('many records', () => {
  it('are created, read, updated and deleted together', async () => {
    const teams = await xata.db.teams.create([
      { name: 'One', index: 1 },
      { id: 'two', name: 'Two', index: 2 },
    ])
    expect(teams.map(({ name }) => name)).toEqual(['One', 'Two'])
    const ids = teams.map(({ id }) => id)
    expect((await xata.db.teams.read([...ids, 'nobody'])).map((team) => team?.name)).toEqual([
      'One',
      'Two',
      undefined,
    ])
    const updated = await xata.db.teams.update(ids.map((id) => ({ id, rating: 1.5 })))
    expect(updated.map((team) => [team?.name, team?.rating])).toEqual([
      ['One', 1.5],
      ['Two', 1.5],
    ])
    const upserted = await xata.db.teams.createOrUpdate([
      { id: 'two', index: 22 },
      { id: 'three', name: 'Three' },
    ])
    expect(upserted.map(({ name, index }) => [name, index])).toEqual([
      ['Two', 22],
      ['Three', null],
    ])
    const replaced = await xata.db.teams.createOrReplace([{ id: 'two', name: 'Two again' }])
    expect(replaced[0]).toMatchObject({ name: 'Two again', index: null, rating: null })
    const deleted = await xata.db.teams.delete([...ids, 'three', 'nobody'])
    expect(deleted.map((team) => team?.name)).toEqual(['One', 'Two again', 'Three', undefined])
    expect(await xata.db.teams.getAll()).toHaveLength(0)
  })

  it('are refused together, each fault by its place', async () => {
    const bad = [{ name: 'fine' }, { name: 1 }, { name: 2 }] as object[]
    await expect(xata.db.teams.create(bad)).rejects.toMatchObject({
      status: 400,
      errors: [{ index: 1 }, { index: 2 }],
    })
    expect(await xata.db.teams.getAll()).toHaveLength(0)
  })

  it('go through transactions', async () => {
    const { results } = await xata.transactions.run([
      { insert: { table: 'teams', record: { id: 'tx', name: 'Before' } } },
      { update: { table: 'teams', id: 'tx', fields: { name: 'After' } } },
      { get: { table: 'teams', id: 'tx', columns: ['id', 'name'] } },
      { delete: { table: 'teams', id: 'tx', columns: ['name'] } },
    ])
    expect(results).toEqual([
      { operation: 'insert', id: 'tx', rows: 1, columns: {} },
      { operation: 'update', id: 'tx', rows: 1, columns: {} },
      { operation: 'get', columns: { id: 'tx', name: 'After' } },
      { operation: 'delete', rows: 1, columns: expect.objectContaining({ name: 'After' }) },
    ])
    await expect(
      xata.transactions.run([
        { insert: { table: 'teams', record: { id: 'gone', name: 'x' } } },
        { delete: { table: 'teams', id: 'nobody', failIfMissing: true } },
      ]),
    ).rejects.toMatchObject({
      status: 400,
      errors: [{ index: 1, message: 'table [teams]: no rows deleted' }],
    })
    expect(await xata.db.teams.read('gone')).toBeNull()
  })
})

describe('queries', () => {
  const USERS = 45

  beforeAll(async () => {
    const owner = await xata.db.users.create('owner', { name: 'Owner', age: 60, vip: true })
    await xata.db.teams.create([
      { id: 'fruits', name: 'Team fruits', labels: ['apple', 'banana'], index: 1, owner: owner.id },
      { id: 'animals', name: 'Team animals', labels: ['lion', 'banana'], founded: new Date(0) },
      { id: 'mixed', name: 'Mixed fruits & animals', config: { plan: 'free', seats: 5 } },
    ])
    await xata.db.users.create(
      Array.from({ length: USERS - 1 }, (_, index) => ({
        id: `user-${String(index).padStart(2, '0')}`,
        name: `User ${index}`,
        age: 20 + (index % 10),
        team: index % 2 === 0 ? 'fruits' : 'animals',
      })),
    )
  })

  const names = (records: Iterable<{ name?: string | null | undefined }>) =>
    Array.from(records, ({ name }) => name)

  it('filter by values, operators, lists, links and JSON', async () => {
    const { teams } = xata.db
    expect(names(await teams.filter('name', 'Team fruits').getAll())).toEqual(['Team fruits'])
    const fruits = teams.filter('name', iContains('FRUITS')).sort('name', 'asc')
    expect(names(await fruits.getMany())).toEqual(['Mixed fruits & animals', 'Team fruits'])
    expect(names(await teams.filter({ name: contains('Team'), index: 1 }).getAll())).toHaveLength(1)
    expect(await teams.filter('labels', includesNone('lion')).getAll()).toHaveLength(1)
    expect(await teams.filter({ 'owner.name': 'Owner' }).getAll()).toHaveLength(1)
    expect(await teams.filter({ owner: 'owner' }).getAll()).toHaveLength(1)
    expect(await teams.filter({ 'config->plan': 'free' }).getAll()).toHaveLength(1)
    expect(await teams.filter({ 'config->seats': { $gt: 4 } }).getAll()).toHaveLength(1)
    expect(await teams.filter({ founded: lt(new Date('1970-01-02')) }).getAll()).toHaveLength(1)
    expect(await teams.not(teams.filter('name', 'Team fruits')).getAll()).toHaveLength(2)
    expect(
      await teams.any(teams.filter('id', 'mixed'), teams.filter('id', 'fruits')).getAll(),
    ).toHaveLength(2)
    expect(await xata.db.users.filter({ age: { $ge: 25, $lt: 27 } }).getAll()).toHaveLength(8)
    expect(await xata.db.users.filter('age', ge(60)).getFirst()).toMatchObject({ id: 'owner' })
    expect(await teams.filter('xata.version', 0).getAll()).toHaveLength(3)
  })

  it('sort, also by chance', async () => {
    const users = await xata.db.users.sort('age', 'desc').sort('name', 'asc').getAll()
    expect(names(users).slice(0, 3)).toEqual(['Owner', 'User 19', 'User 29'])
    const random = await xata.db.users.sort('*', 'random').getAll()
    expect(new Set(random.map(({ id }) => id)).size).toBe(USERS)
  })

  it('select columns and links', async () => {
    const user = await xata.db.users
      .select(['name', 'team.name', 'team.owner.*'])
      .filter('id', 'user-00')
      .getFirstOrThrow()
    expect(user.toSerializable()).toMatchObject({
      id: 'user-00',
      name: 'User 0',
      team: { id: 'fruits', name: 'Team fruits', owner: { id: 'owner', age: 60, vip: true } },
    })
    expect(user.team?.owner?.getMetadata().version).toBe(0)
    expect('age' in user.toSerializable()).toBe(false)
    const [owner] = await xata.db.users
      .select([
        '*',
        {
          name: '<-teams.owner',
          as: 'owned',
          columns: ['name'],
          sort: [{ name: 'desc' }],
          limit: 5,
        },
      ])
      .filter('id', 'owner')
      .getAll()
    expect(owner?.owned?.records.map(({ name }) => name)).toEqual(['Team fruits'])
  })

  it('get the first, or fail', async () => {
    expect((await xata.db.users.getFirst())?.id).toBe('owner')
    const nobody = xata.db.users.filter('id', 'nobody')
    expect(await nobody.getFirst()).toBeNull()
    await expect(nobody.getFirstOrThrow()).rejects.toThrow('No results found')
  })

  it('go page by page', async () => {
    const size = 30
    const first = await xata.db.users.getPaginated({ pagination: { size } })
    const second = await first.nextPage()
    const third = await second.nextPage()
    expect([first, second, third].map((page) => page.records.length)).toEqual([30, 15, 0])
    expect([first, second, third].map((page) => page.hasNextPage())).toEqual([true, false, false])
    expect((await third.startPage()).records.map(({ id }) => id)).toEqual(
      first.records.map(({ id }) => id),
    )
    expect((await first.endPage()).records).toHaveLength(30)
    expect((await second.previousPage()).records.map(({ id }) => id)).toEqual(
      first.records.map(({ id }) => id),
    )
    expect((await first.nextPage(10)).records).toHaveLength(10)
    const seen: (string | undefined)[] = []
    for await (const chunk of xata.db.users.sort('name', 'desc').getIterator({ batchSize: 7 })) {
      seen.push(...chunk.map(({ id }) => id))
    }
    expect(new Set(seen).size).toBe(USERS)
    expect(await xata.db.users.getAll({ batchSize: 4 })).toHaveLength(USERS)
    const many = await xata.db.users.getMany({ pagination: { size: 10, offset: 40 } })
    expect(many).toHaveLength(5)
  })

  it('refuse pages that are too large or too far by the words that clients know', async () => {
    const pages = (pagination: object) => xata.db.users.getPaginated({ pagination })
    await expect(pages({ size: 1001 })).rejects.toThrow('page size exceeds max limit of 1000')
    await expect(pages({ offset: 49_001 })).rejects.toThrow('page offset must not exceed 49000')
    const { meta } = await pages({ size: 5 })
    await expect(
      xata.db.users.getPaginated({
        pagination: { after: meta.page.cursor },
        sort: { column: 'name', direction: 'asc' },
      } as object),
    ).rejects.toMatchObject({ status: 400 })
  })

  it('summarize groups', async () => {
    const { summaries } = await xata.db.users.summarize({
      columns: ['team.name', 'vip'],
      summaries: { people: { count: '*' }, oldest: { max: 'age' } },
      sort: [
        { column: 'people', direction: 'desc' },
        { column: 'team.name', direction: 'asc' },
      ],
    })
    expect(summaries).toEqual([
      { team: { name: 'Team animals' }, vip: null, people: 22, oldest: 29 },
      { team: { name: 'Team fruits' }, vip: null, people: 22, oldest: 28 },
      { team: { name: null }, vip: true, people: 1, oldest: 60 },
    ])
    const grouped = await xata.db.users.select(['vip']).filter('age', ge(25)).summarize()
    expect(grouped.summaries).toEqual([{ vip: true }, { vip: null }])
  })

  it('aggregate', async () => {
    expect(await xata.db.users.aggregate()).toEqual({ aggs: { count: USERS } })
    const { aggs } = await xata.db.users.aggregate(
      {
        unique: { uniqueCount: { column: 'age' } },
        mean: { average: { column: 'age' } },
        ages: { numericHistogram: { column: 'age', interval: 5 } },
        top: { topValues: { column: 'name', size: 1 } },
      },
      { 'team.name': 'Team fruits' },
    )
    expect(aggs).toEqual({
      unique: 5,
      mean: expect.closeTo(522 / 22, 10),
      ages: {
        values: [
          { $key: 20, $count: 14 },
          { $key: 25, $count: 8 },
        ],
      },
      top: { values: [{ $key: 'User 0', $count: 1 }] },
    })
  })

  it('see on a branch what was there and what changed since', async () => {
    await api.branch.createBranch({
      pathParams: branchPath('shop:forked'),
      body: { from: 'main', data: true } as object,
    })
    const forked = new XataClient({ databaseURL, apiKey, branch: 'forked' })
    await forked.db.teams.update('fruits', { name: 'Team vegetables' })
    await forked.db.teams.delete('mixed')
    expect(names(await forked.db.teams.sort('name', 'asc').getAll())).toEqual([
      'Team animals',
      'Team vegetables',
    ])
    expect(await forked.db.users.filter('team.name', 'Team vegetables').getAll()).toHaveLength(22)
    expect(await xata.db.teams.getAll()).toHaveLength(3)
    await api.branch.createBranch({ pathParams: branchPath('shop:empty'), body: { from: 'main' } })
    const empty = new XataClient({ databaseURL, apiKey, branch: 'empty' })
    expect(await empty.db.users.getAll()).toEqual([])
  })
})

describe('SQL', () => {
  it('is a template, whose values are parameters', async () => {
    const { records, columns, warning } = await xata.sql<{ id: string; name: string }>`
      SELECT * FROM teams WHERE id = ${'fruits'}`
    expect(warning).toBeUndefined()
    expect(records).toMatchObject([{ id: 'fruits', name: 'Team fruits', 'xata.version': 0 }])
    expect(columns).toEqual([
      { name: 'id', type: 'text' },
      { name: 'name', type: 'text' },
      { name: 'labels', type: '_text' },
      { name: 'index', type: 'int8' },
      { name: 'rating', type: 'float8' },
      { name: 'founded', type: 'timestamptz' },
      { name: 'email', type: 'text' },
      { name: 'config', type: 'jsonb' },
      { name: 'owner', type: 'text' },
      { name: 'xata.version', type: 'int4' },
      { name: 'xata.createdAt', type: 'timestamptz' },
      { name: 'xata.updatedAt', type: 'timestamptz' },
    ])
    const found =
      await xata.sql`SELECT count(*) FROM users WHERE id = ANY(${['user-01', 'user-02']})`
    expect(found.records).toEqual([{ count: 2 }])
  })

  it('writes', async () => {
    const { records, warning } = await xata.sql<{ id: string; name: string }>({
      statement: `INSERT INTO teams (name, labels, config, index) VALUES ($1, $2, $3, $4) RETURNING *`,
      params: ['Team ships 2', ['a', 'b'], { deep: [1] }, 7],
    })
    expect(warning).toBeUndefined()
    expect(records).toHaveLength(1)
    const id = records[0]?.id ?? ''
    const team = await xata.db.teams.read(id)
    expect(team).toMatchObject({ name: 'Team ships 2', labels: ['a', 'b'], index: 7 })
    await xata.sql`UPDATE teams SET name = ${'Team boats'}, index = index + 1 WHERE id = ${id}`
    expect(await xata.db.teams.read(id)).toMatchObject({ name: 'Team boats', index: 8 })
    await xata.sql`DELETE FROM teams WHERE id = ${id}`
    expect(await xata.db.teams.read(id)).toBeNull()
  })

  it('runs in batches and in rows', async () => {
    const { results } = await xata.sql.batch({
      statements: [
        { statement: "SELECT name FROM teams WHERE id = 'fruits'" },
        { statement: 'SELECT $1::int + 1', params: [1] },
      ],
      responseType: 'array',
    })
    expect(results).toMatchObject([{ rows: [['Team fruits']] }, { rows: [[2]] }])
  })

  it('refuses what is no parameter, in the words of the client', async () => {
    await expect(xata.sql`SELECT * FROM teams ORDER BY name ${'ASC'}`).rejects.toThrow(
      'invalid SQL: unused parameters: used 0 of 1 parameters',
    )
    const { records } = await xata.sql({ statement: 'SELECT * FROM teams ORDER BY name ASC' })
    expect(records).toHaveLength(3)
    await expect(xata.sql`SELECT * FROM pg_class`).rejects.toThrow('table [pg_class] not found')
  })
})

describe('a client without generated types', () => {
  it('reads the schema of the branch', async () => {
    const plain = new Base({ databaseURL, apiKey, branch: 'main' })
    const user = await (plain.db as Record<string, typeof xata.db.users>).users
      ?.select(['*', 'team.*'])
      .filter('id', 'user-01')
      .getFirst()
    expect(user).toMatchObject({ name: 'User 1', team: { name: 'Team animals' } })
  })
})

describe('files', () => {
  const content = ['photo.*', 'photo.base64Content', 'papers.*', 'papers.base64Content'] as const
  const text = (body: string, type = 'text/plain') => new Blob([body], { type })
  const photoOf = (record: string) => ({ table: 'users', column: 'photo', record }) as const
  const papersOf = (record: string) => ({ table: 'users', column: 'papers', record }) as const

  it('come with a record, with and without names', async () => {
    const user = await xata.db.users.create(
      {
        name: 'Files',
        photo: await XataFile.fromBlob(text('hello'), { name: 'hello.txt' }),
        papers: [
          XataFile.fromString('one', { name: 'one.txt', mediaType: 'text/csv' }),
          XataFile.fromBase64('dHdv'),
        ],
      },
      [...content],
    )
    expect(user.photo).toMatchObject({ name: 'hello.txt', size: 5, version: 0 })
    expect(user.photo?.toString()).toBe('hello')
    expect(user.photo?.toBlob().type).toBe('text/plain')
    expect(user.papers).toMatchObject([
      { id: expect.any(String), name: 'one.txt', mediaType: 'text/csv', enablePublicUrl: false },
      { id: expect.any(String), name: '', mediaType: 'application/octet-stream' },
    ])
    expect(user.papers?.map((paper) => paper.toString())).toEqual(['one', 'two'])
    const nameless = await xata.db.users.update(user.id, {
      photo: await XataFile.fromBlob(text('other')),
    })
    expect(nameless?.photo).toMatchObject({ name: 'hello.txt', size: 5, version: 1 })
    expect(nameless?.photo?.base64Content).toBeUndefined()
    const bare = await xata.db.users.create({
      photo: await XataFile.fromBlob(text('x')),
      papers: [
        await XataFile.fromBlob(new Blob(['%PDF-1.7'])),
        await XataFile.fromBlob(new Blob(['x'])),
      ],
    })
    expect(bare.photo).toMatchObject({ name: '', size: 1, enablePublicUrl: true })
    expect(bare.papers?.map(({ mediaType }) => mediaType)).toEqual([
      'application/pdf',
      'application/octet-stream',
    ])
    expect((await user.update({ photo: null, papers: [] }))?.toSerializable()).toMatchObject({
      photo: null,
      papers: [],
    })
    await xata.db.users.delete([user.id, bare.id])
  })

  it('are uploaded, downloaded and deleted as bytes', async () => {
    const { id } = await xata.db.users.create({ name: 'Bytes' })
    const csv = text('a,b', 'text/csv')
    const untyped = await xata.files.upload(photoOf(id), new Blob(['hello']))
    expect(untyped).toMatchObject({ mediaType: 'application/octet-stream' })
    expect(await xata.files.upload(photoOf(id), csv)).toMatchObject({ mediaType: 'text/csv' })
    const again = await xata.files.upload(photoOf(id), csv, { mediaType: 'text/plain' })
    expect(again).toMatchObject({ mediaType: 'text/plain', version: 2 })
    expect(await (await xata.files.download(photoOf(id))).text()).toBe('a,b')
    const added = await xata.files.upload(papersOf(id), await XataFile.fromBlob(csv))
    expect(added.id).toEqual(expect.any(String))
    const paper = { ...papersOf(id), fileId: added.id ?? '' }
    expect(await (await xata.files.download(paper)).text()).toBe('a,b')
    expect(await xata.files.delete(paper)).toMatchObject({ size: 3 })
    expect(await xata.files.delete(photoOf(id))).toMatchObject({ size: 3 })
    expect((await xata.db.users.read(id))?.photo).toBeNull()
    await expect(xata.files.download(paper)).rejects.toMatchObject({ status: 404 })
    await xata.db.users.delete(id)
  })

  it('have links for everybody, for a while and to upload by', async () => {
    const user = await xata.db.users.create(
      {
        photo: { name: 'pic.png', base64Content: '' },
        papers: [{ name: 'a', base64Content: 'eA==' }],
      },
      ['*', 'photo.uploadUrl', 'papers.signedUrl'],
    )
    const { uploadUrl = '' } = user.photo ?? {}
    const png = text('hello', 'image/png')
    expect((await fetch(uploadUrl, { method: 'PUT', body: png })).status).toBe(201)
    const { photo, papers } = await xata.db.users.readOrThrow(user.id)
    expect(photo).toMatchObject({ name: 'pic.png', mediaType: 'image/png', size: 5 })
    expect(await (await fetch(photo?.url ?? '')).text()).toBe('hello')
    expect((await fetch(papers?.[0]?.url ?? '')).status).toBe(403)
    expect(await (await fetch(user.papers?.[0]?.signedUrl ?? '')).text()).toBe('x')
    expect(await xata.db.users.filter('photo.mediaType', 'image/png').getAll()).toHaveLength(1)
    await user.delete()
  })

  it('are refused in transactions, by the words that clients know', async () => {
    const file = XataFile.fromString('a', { name: 'a' })
    await expect(xata.db.users.create([{ photo: file }, { papers: [file] }])).rejects.toMatchObject(
      {
        status: 400,
        errors: [
          { index: 0, message: 'column [photo]: file upload not permitted in transaction' },
          {
            index: 1,
            message: 'column [papers]: file entry [0]: file upload not permitted in transaction',
          },
        ],
      },
    )
  })
})

describe('the control plane', () => {
  it('makes users known, and keys that end when they are deleted', async () => {
    expect(await api.users.getUser({})).toMatchObject({ email: expect.stringContaining('@') })
    const { key } = await api.authentication.createUserAPIKey({ pathParams: { keyName: 'extra' } })
    const other = new XataApiClient({ apiKey: key, host })
    const { keys } = await other.authentication.getUserAPIKeys({})
    expect(keys.map(({ name }) => name)).toContain('extra')
    await api.authentication.deleteUserAPIKey({ pathParams: { keyName: 'extra' } })
    await expect(other.users.getUser({})).rejects.toMatchObject({
      status: 401,
      message: 'Invalid API key',
    })
  })

  it('makes, changes and deletes workspaces, their members and invites', async () => {
    const { id } = await api.workspaces.createWorkspace({ body: { name: 'Second', slug: 'two' } })
    const pathParams = { workspaceId: id }
    const renamed = await api.workspaces.updateWorkspace({ pathParams, body: { name: 'Renamed' } })
    expect(renamed).toMatchObject({ id, name: 'Renamed', memberCount: 1 })
    const body = { email: 'grace@example.com', role: 'maintainer' as const }
    const { inviteId } = await api.invites.inviteWorkspaceMember({ pathParams, body })
    const { members, invites } = await api.workspaces.getWorkspaceMembersList({ pathParams })
    expect([members.length, invites]).toMatchObject([1, [{ inviteId, role: 'maintainer' }]])
    await api.invites.cancelWorkspaceMemberInvite({ pathParams: { ...pathParams, inviteId } })
    await api.workspaces.deleteWorkspace({ pathParams })
    // Xata clients get 401 for a workspace that does not exist.
    await expect(api.workspaces.getWorkspace({ pathParams })).rejects.toMatchObject({ status: 401 })
  })

  it('makes, changes, lists, renames and deletes databases', async () => {
    const inWorkspace = { workspaceId: workspace }
    const named = (dbName: string) => ({ pathParams: { ...inWorkspace, dbName } })
    const { regions } = await api.databases.listRegions({ pathParams: inWorkspace })
    expect(regions).toEqual([{ id: region, name: region }])
    const body = { region, branchName: 'trunk', ui: { color: 'RED' } }
    await api.databases.createDatabase({ ...named('books'), body })
    const color = { ui: { color: 'BLUE' } }
    expect(await api.databases.updateDatabaseMetadata({ ...named('books'), body: color })).toEqual(
      expect.objectContaining({ name: 'books', region, ...color }),
    )
    await api.databases.renameDatabase({ ...named('books'), body: { newName: 'library' } })
    const { databases } = await api.databases.getDatabaseList({ pathParams: inWorkspace })
    expect(databases.map(({ name }) => name)).toEqual(['library', 'shop'])
    const path = { workspace, region, dbName: 'library' }
    expect(await api.branch.resolveBranch({ pathParams: path })).toEqual({
      branch: 'trunk',
      reason: { code: 'DEFAULT_BRANCH', message: 'Default branch for this database' },
    })
    expect(await api.databases.deleteDatabase(named('library'))).toEqual({ status: 'completed' })
  })

  it('keeps what is known about branches', async () => {
    const pathParams = branchPath('shop:main')
    const metadata = { repository: 'github.com/a/b', stage: 'live', labels: ['x'] }
    await api.branch.updateBranchMetadata({ pathParams, body: metadata })
    expect(await api.branch.getBranchMetadata({ pathParams })).toEqual(metadata)
    const branch = await api.branch.getBranchDetails({ pathParams })
    expect(branch).toMatchObject({ databaseName: 'shop', branchName: 'main', metadata })
  })

  it('edits tables and columns, and remembers how', async () => {
    const pathParams = { ...branchPath('shop:main'), tableName: 'drafts' }
    await api.table.createTable({ pathParams })
    const columns = [
      { name: 'title', type: 'string' as const },
      { name: 'writer', type: 'link' as const, link: { table: 'users' } },
    ]
    await api.table.setTableSchema({ pathParams, body: { columns } })
    await api.table.addTableColumn({ pathParams, body: { name: 'pages', type: 'int' } })
    const renaming = { pathParams: { ...pathParams, columnName: 'pages' }, body: { name: 'size' } }
    await api.table.updateColumn(renaming)
    expect(await api.table.getTableSchema({ pathParams })).toEqual({
      columns: [...columns, { name: 'size', type: 'int' }],
    })
    const { logs } = await api.migrations.getBranchSchemaHistory({
      pathParams: branchPath('shop:main'),
      body: { page: { size: 1 } },
    })
    expect(logs[0]?.operations).toEqual([
      { renameColumn: { table: 'drafts', oldName: 'pages', newName: 'size' } },
    ])
    await api.table.deleteTable({ pathParams })
    await expect(api.table.getTableSchema({ pathParams })).rejects.toMatchObject({
      status: 404,
      message: 'table [drafts] not found',
    })
  })
})
