import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import {
  CATALOGUE_OF_DATABASE,
  NOT_OF_DATABASE,
} from '../../packages/server/src/backup/catalogue-of-database.js'
import { createBackup, type DatabaseName } from '../../packages/server/src/backup/create-backup.js'
import { restoreBackup } from '../../packages/server/src/backup/restore-backup.js'
import { restoreDatabase } from '../../packages/server/src/backup/restore-database.js'
import { TarWriter } from '../../packages/server/src/backup/tar.js'
import type { Database } from '../../packages/server/src/postgres/database.js'
import { listAppliedMigrations } from '../../packages/server/src/postgres/migrate.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { inChunks, makeArchive, openForBackup } from '../support/archive.js'
import { TestBranches } from '../support/branches.js'
import { createTestDatabase } from '../support/database.js'
import { TYPE_COLUMNS, TYPE_VALUES } from '../support/every-type.js'
import {
  createFilled,
  fileOf,
  PHOTO,
  photoOf,
  readEverything,
  readLoad,
  rowsOf,
  startLoad,
  workOn,
} from '../support/filled-database.js'
import { createDatabase, createWorkspace } from '../support/people.js'
import { until } from '../support/process.js'
import { createTestService, REGIONS, type TestService } from '../support/service.js'
import { addTables, expectOk } from '../support/tables.js'

let service: TestService
/** Another instance. It has fewer tables, so its sequences are behind. */
let other: TestService
let still: TestBranches
let archive: Buffer
const cleanUps: (() => Promise<void>)[] = []

beforeAll(async () => {
  service = await createTestService({ limits: { automaticCheckpointsMax: 2 } })
  other = await createTestService()
  cleanUps.push(
    () => service.close(),
    () => other.close(),
  )
  still = await createFilled(service, 'still')
  const types = [
    ...TYPE_COLUMNS,
    { name: 'file', type: 'file' as const },
    { name: 'files', type: 'file[]' as const },
  ]
  await still.edit('main', ...addTables({ types }))
  const files = { file: fileOf(Buffer.from('one')), files: [fileOf(Buffer.from('two'))] }
  await still.put('main', 'types', 'other', {})
  await still.put('main', 'types', 'all', { ...TYPE_VALUES, ...files })
  await still.put('main', 'types', 'gone', {})
  await still.patch('main', 'types', 'gone', { bool: true })
  await still.remove('main', 'types', 'gone')
  await still.fork('typed')
  await still.patch('typed', 'types', 'all', { bool: true })
  // Pending background work would make the two databases differ.
  await runBackground(service)
  archive = await backUp(service, 'still')
})
afterAll(async () => {
  for (const cleanUp of cleanUps.reverse()) await cleanUp()
})

/** An entry of a log. */
interface Entry {
  readonly id: string
  readonly checkpoint: string
  readonly after: string
}

/** Connections of a test. They are closed after it, because the server allows only so many. */
const opened: Database[] = []
afterEach(async () => {
  for (const database of opened.splice(0)) await database.close()
})

function connect(url: string): Database {
  const database = openForBackup(url)
  opened.push(database)
  return database
}

function backUp(from: TestService, only: string | DatabaseName | undefined): Promise<Buffer> {
  return makeArchive({
    database: connect(from.url),
    blobs: from.files.blobs,
    only: typeof only === 'string' ? { name: only } : only,
  })
}

interface Names {
  readonly name?: string
  readonly as?: string
  readonly workspaceId?: string
}

function restore(
  into: TestService,
  source: Buffer | AsyncIterable<Buffer>,
  { name = 'still', ...names }: Names = {},
  databasesPerWorkspaceMax = 100,
) {
  return restoreDatabase({
    database: connect(into.url),
    blobs: into.files.blobs,
    source: Buffer.isBuffer(source) ? inChunks(source) : source,
    name,
    ...names,
    regions: REGIONS,
    limits: { ...LIMITS, databasesPerWorkspaceMax },
    onProgress: () => undefined,
    holdTimeoutMs: 60_000,
  })
}

/** Masks what must differ: the name of the database, ids of branches, and links to files. */
function comparable(everything: unknown): unknown {
  const text = JSON.stringify(everything).replaceAll(/bb_[0-9a-z_]+/g, 'branch')
  return JSON.parse(text, (key, value) =>
    ['databaseName', 'url', 'signedUrl'].includes(key) ? 'varies' : value,
  )
}

async function expectSame(copy: TestBranches): Promise<void> {
  expect(comparable(await readEverything(copy))).toEqual(comparable(await readEverything(still)))
  expect(await photoOf(copy, 'main', 'p1')).toEqual(PHOTO)
  expect((await photoOf(copy, 'deep', 'p2')).toString()).toBe('of dev')
}

async function listNames(via: TestService): Promise<string[]> {
  const { body } = expectOk(await via.call('GET', `/workspaces/${via.workspaceId}/dbs`))
  return body.databases.map(({ name }: { name: string }) => name)
}

async function listSchemas({ database }: Pick<TestService, 'database'>): Promise<string[]> {
  const rows = await database.query<{ name: string }>(sql`
    select nspname as name from pg_namespace where starts_with(nspname, 'offshoot_db_') order by 1`)
  return rows.map(({ name }) => name)
}

/** Lists the indexes of all tables of a database, without its ids. */
async function listIndexes(name: string): Promise<string[]> {
  const rows = await service.database.query<{ definition: string }>(sql`
    select pg_get_indexdef(i.indexrelid) as definition
    from offshoot.databases d
    join pg_namespace n on n.nspname = 'offshoot_db_' || d.id
    join pg_class t on t.relnamespace = n.oid and t.relkind = 'r'
    join pg_index i on i.indrelid = t.oid
    where d.name = ${name}`)
  return rows.map(({ definition }) => definition.replaceAll(/(_db|heap|past)_\d+/g, '$1')).sort()
}

/** Runs the background until these schemas are left, and checks that the databases are the same. */
async function expectOnly(before: { schemas: string[]; names: string[] }): Promise<void> {
  expect(await listNames(service)).toEqual(before.names)
  await until(async () => {
    await runBackground(service)
    return (await listSchemas(service)).join() === before.schemas.join()
  })
  expect(
    await service.database.query(sql`
      select tablename from pg_tables
      where schemaname = 'offshoot_work' and starts_with(tablename, 'restore_')`),
  ).toEqual([])
}

describe('a database whose branches have added the same column', () => {
  it('is restored, and its branches are merged as before', async () => {
    const branches = await TestBranches.create(service, 'same-column', {
      items: [{ name: 'price', type: 'int' }],
    })
    await branches.put('main', 'items', 'a', { price: 1 })
    await branches.fork('dev')
    const note = {
      addColumn: { table: 'items', column: { name: 'note', type: 'string' } },
    } as const
    await branches.edit('dev', note)
    await branches.edit('main', note)
    await branches.patch('dev', 'items', 'a', { note: 'from dev' })
    await branches.merge('dev')
    await branches.put('dev', 'items', 'b', { note: 'later' })
    await runBackground(service)
    await restore(other, await backUp(service, 'same-column'), { name: 'same-column' })
    const restored = new TestBranches(other, 'same-column')
    await restored.merge('dev')
    expect(await restored.read('main', 'items', ['a', 'b'])).toEqual({
      a: { price: 1, note: 'from dev' },
      b: { note: 'later' },
    })
  })
})

describe('a database with columns whose type was changed', () => {
  it('is restored, and values are converted as before', async () => {
    const branches = await TestBranches.create(service, 'changed-type', {
      items: [{ name: 'n', type: 'string' }],
    })
    await branches.put('main', 'items', 'a', { n: '1' })
    await branches.fork('dev')
    await branches.edit('dev', {
      alterColumn: { table: 'items', column: 'n', type: 'int', description: 'A number.' },
    })
    await branches.put('dev', 'items', 'b', { n: 2 })
    await branches.put('main', 'items', 'c', { n: '3' })
    await restore(other, await backUp(service, 'changed-type'), { name: 'changed-type' })
    const restored = new TestBranches(other, 'changed-type')
    expect(await restored.read('dev', 'items', ['a', 'b'])).toEqual({ a: { n: 1 }, b: { n: 2 } })
    expect(await restored.read('main', 'items', ['a'])).toEqual({ a: { n: '1' } })
    await restored.merge('dev')
    expect(await restored.read('main', 'items', ['a', 'b', 'c'])).toEqual({
      a: { n: 1 },
      b: { n: 2 },
      c: { n: 3 },
    })
  })
})

describe('a database with numbers as ids', () => {
  it('is restored with its sequences, and the indexes of ids and links', async () => {
    const branches = await TestBranches.create(service, 'numbered', {})
    await branches.edit(
      'main',
      { addTable: { table: 'makers', idType: 'int', idBits: 32 } },
      { addTable: { table: 'codes', hiddenId: true } },
      { addTable: { table: 'cars', idType: 'uuid' } },
      {
        addColumn: {
          table: 'cars',
          column: { name: 'maker', type: 'link', link: { table: 'makers' } },
        },
      },
    )
    const insert = async (service: TestService): Promise<string> => {
      const path = `${service.workspace}/db/numbered:main/tables/makers/data`
      return expectOk(await service.call('POST', path, { body: {} })).body.id
    }
    for (const id of ['1', '2']) expect(await insert(service)).toBe(id)
    const indexes = await listIndexes('numbered')
    expect(indexes.filter((index) => index.includes('bigint'))).toHaveLength(4)
    expect(indexes.filter((index) => index.includes('uuid'))).toHaveLength(2)
    const numbered = await backUp(service, 'numbered')
    await restore(service, numbered, { name: 'numbered', as: 'numbered-copy' })
    expect(await listIndexes('numbered-copy')).toEqual(indexes)
    await restore(other, numbered, { name: 'numbered' })
    expect(await insert(other)).toBe('3')
  })
})

describe('a database, restored under another name into its own instance', () => {
  it('has everything as it was, and all of it works', async () => {
    await restore(service, archive, { as: 'copy' })
    const copy = new TestBranches(service, 'copy')
    // The service creates indexes of extensions while it runs.
    await service.indexes.run()
    await expectSame(copy)
    const indexes = await listIndexes('copy')
    expect(indexes).toEqual(await listIndexes('still'))
    expect(indexes).toEqual(expect.arrayContaining([expect.stringMatching(/_c\d+_unique/)]))

    // A write to one is not seen in the other.
    await copy.patch('main', 'people', 'p20', { name: 'of the copy' })
    await still.patch('main', 'people', 'p20', { name: 'of the original' })
    expect(await copy.record('main', 'people', 'p20')).toMatchObject({ name: 'of the copy' })
    expect(await still.record('main', 'people', 'p20')).toMatchObject({ name: 'of the original' })
    for (const branches of [still, copy]) {
      await branches.patch('main', 'people', 'p20', { name: 'of both' })
    }

    await copy.put('main', 'types', 'gone', {})
    expect(await copy.record('main', 'types', 'gone')).toMatchObject({ service: { version: 0 } })
    await still.put('main', 'types', 'gone', {})

    // Merges find the same bases in the history of both.
    for (const branches of [still, copy]) await workOn(branches)
    expect(rowsOf(await readEverything(copy))).toEqual(rowsOf(await readEverything(still)))

    // New tables and columns have ids of their own in both.
    for (const branches of [still, copy]) {
      await branches.edit('main', ...addTables({ later: [{ name: 'word', type: 'string' }] }))
      await branches.put('main', 'later', 'one', { word: branches.database })
    }
    expect(await copy.record('main', 'later', 'one')).toMatchObject({ word: 'copy' })
    expect(await still.record('main', 'later', 'one')).toMatchObject({ word: 'still' })
  })

  it('can be deleted without a trace, and nothing of the original goes with it', async () => {
    const before = { schemas: await listSchemas(service), names: await listNames(service) }
    await restore(service, archive, { as: 'brief' })
    expect((await listSchemas(service)).length).toBe(before.schemas.length + 1)
    expectOk(await service.call('DELETE', `/workspaces/${service.workspaceId}/dbs/brief`))
    await expectOnly(before)
    expect(await photoOf(still, 'main', 'p1')).toEqual(PHOTO)
  })
})

describe('a database, restored into another instance', () => {
  it('has everything as it was, and all of it works', async () => {
    // Restored here first, because the original has been worked on.
    await restore(service, archive, { as: 'fresh' })
    const fresh = new TestBranches(service, 'fresh')
    await restore(other, archive)
    const moved = new TestBranches(other, 'still')
    expect(comparable(await readEverything(moved))).toEqual(comparable(await readEverything(fresh)))
    expect(await photoOf(moved, 'main', 'p1')).toEqual(PHOTO)
    const { body } = expectOk(
      await moved.call(
        'main',
        'GET',
        '/tables/types/data/all?columns=*,file.base64Content,files.base64Content',
      ),
    )
    expect(body).toMatchObject({
      ...TYPE_VALUES,
      link: { id: 'other' },
      file: { base64Content: Buffer.from('one').toString('base64') },
      files: [{ base64Content: Buffer.from('two').toString('base64') }],
    })
    for (const branches of [fresh, moved]) {
      await workOn(branches)
      await branches.edit('main', ...addTables({ later: [{ name: 'word', type: 'string' }] }))
      await branches.put('main', 'later', 'one', { word: 'new' })
      await branches.merge('typed')
      await branches.pull('typed')
    }
    expect(rowsOf(await readEverything(moved))).toEqual(rowsOf(await readEverything(fresh)))
  })

  it('gives no id of a table or column out again', async () => {
    const ids = async () => {
      const rows = await other.database.query<{ id: string }>(sql`
        select distinct i.id
        from offshoot.databases d
        join offshoot.schemas s on s.database_id = d.id,
          jsonb_path_query(s.document, '$.**.id') as i (id)
        where d.name = 'still' and jsonb_typeof(i.id) = 'number'`)
      return rows.map(({ id }) => Number(id))
    }
    const before = await ids()
    const moved = new TestBranches(other, 'still')
    await moved.edit('main', ...addTables({ newest: [{ name: 'word', type: 'string' }] }))
    const after = (await ids()).filter((id) => !before.includes(id))
    expect(after.length).toBe(2)
    expect(Math.min(...after)).toBeGreaterThan(Math.max(...before))
  })
})

describe('a backup of a database', () => {
  it('is of one moment, while everything is written to, forked, edited and dropped', async () => {
    const load = await startLoad(service)
    await until(async () => load.pairs() > 20 && load.forks() > 2)
    const before = load.pairs()
    const moment = await backUp(service, 'busy')
    const after = load.pairs()
    // The instance is in use while the database is restored, too.
    await restore(service, moment, { name: 'busy', as: 'calm' })
    await load.stop()
    const newest = await readLoad(new TestBranches(service, 'calm'))
    expect(newest).toBeGreaterThanOrEqual(before)
    expect(newest).toBeLessThanOrEqual(after + 1)
  })

  it('has nothing of other databases', async () => {
    const hidden = await TestBranches.create(service, 'confidential', {
      notes: [
        { name: 'text', type: 'text' },
        { name: 'file', type: 'file' },
      ],
    })
    const file = fileOf(Buffer.from('file of the other'))
    await hidden.put('main', 'notes', 'one', { text: 'row of the other', file })
    await TestBranches.create(service, 'plain', { notes: [{ name: 'text', type: 'text' }] })
    const text = (await backUp(service, 'plain')).toString('latin1')
    expect((await backUp(service, 'confidential')).toString('latin1')).toContain(
      'file of the other',
    )
    for (const word of ['row of the other', 'file of the other', 'confidential', service.key]) {
      expect(text).not.toContain(word)
    }
    expect(text).not.toContain('tables/offshoot.users')
  })

  it('has the constraints of tables, which are kept after a restore', async () => {
    const ruled = await TestBranches.create(service, 'ruled', {
      items: [
        { name: 'size', type: 'int' },
        { name: 'kind', type: 'string' },
        { name: 'part', type: 'link', link: { table: 'items', onDelete: 'restrict' } },
        { name: 'share', type: 'int', computed: '6 / size' },
      ],
    })
    await ruled.edit(
      'main',
      { addConstraint: { table: 'items', constraint: { name: 'one', unique: ['size', 'kind'] } } },
      { addConstraint: { table: 'items', constraint: { name: 'small', check: 'size < 10' } } },
    )
    await ruled.put('main', 'items', 'a', { size: 1, kind: 'x' })
    await ruled.put('main', 'items', 'whole', { part: 'a' })
    await ruled.fork('dev')
    await ruled.put('dev', 'items', 'b', { size: 2, kind: 'x' })
    await restore(service, await backUp(service, 'ruled'), { name: 'ruled', as: 'ruled2' })
    const copy = new TestBranches(service, 'ruled2')
    for (const branch of ['main', 'dev']) {
      expect(await copy.read(branch, 'items', ['a'])).toMatchObject({ a: { share: 6 } })
      const divided = await copy.call(branch, 'PUT', '/tables/items/data/c', { size: 0 })
      expect([divided.status, divided.body.message]).toEqual([
        400,
        expect.stringContaining('[share]'),
      ])
      const large = await copy.call(branch, 'PUT', '/tables/items/data/c', { size: 10 })
      expect(large).toMatchObject({ status: 400, body: { code: 'check_violation' } })
      const taken = await copy.call(branch, 'PUT', '/tables/items/data/c', { size: 1, kind: 'x' })
      expect(taken).toMatchObject({ status: 400, body: { code: 'unique_violation' } })
      const broken = { status: 400, body: { code: 'link_violation' } }
      const linking = { part: 'nowhere' }
      expect(await copy.call(branch, 'PUT', '/tables/items/data/c', linking)).toMatchObject(broken)
      expect(await copy.call(branch, 'DELETE', '/tables/items/data/a')).toMatchObject(broken)
    }
  })

  it('is refused for a database that there is not', async () => {
    await expect(backUp(service, 'nothing')).rejects.toThrow(
      'there is no database [nothing] in this instance',
    )
    await expect(backUp(service, { name: 'still', workspaceId: 'none' })).rejects.toThrow(
      'there is no database [still] in workspace [none]',
    )
  })

  it('needs the workspace if several have a database of this name', async () => {
    const { id } = await createWorkspace(service, 'second')
    await createDatabase(service, 'twice')
    await createDatabase(service, 'twice', { workspaceId: id })
    await expect(backUp(service, 'twice')).rejects.toThrow(
      'several workspaces have a database [twice]: choose one with --workspace: ',
    )
    const twice = await backUp(service, { name: 'twice', workspaceId: id })
    await restore(service, twice, { name: 'twice', as: 'thrice' })
    const { body } = expectOk(await service.call('GET', `/workspaces/${id}/dbs`))
    expect(body.databases.map(({ name }: { name: string }) => name)).toEqual(['thrice', 'twice'])
    // Without the workspace of the archive, there is a choice only if there are several.
    await restore(other, twice, { name: 'twice' })
    expect(await listNames(other)).toContain('twice')
    await createWorkspace(other, 'second')
    await expect(restore(other, twice, { name: 'twice', as: 'more' })).rejects.toThrow(
      `the instance does not have the workspace [${id}] of the archive: choose one with --workspace`,
    )
    await restore(other, twice, { name: 'twice', as: 'more', workspaceId: other.workspaceId })
    expect(await listNames(other)).toContain('more')
  })
})

describe('proposals of a restored database', () => {
  it('keep their comments, reviews and differences, and can be merged', async () => {
    const branches = await TestBranches.create(service, 'offers', {
      items: [{ name: 'price', type: 'int' }],
    })
    await branches.put('main', 'items', 'a', { price: 1 })
    for (const name of ['sale', 'gone']) {
      await branches.fork(name)
      await branches.patch(name, 'items', 'a', { price: 2 })
      const body = { from: name, title: name }
      expectOk(await service.call('POST', `${service.workspace}/dbs/offers/proposals`, { body }))
    }
    await branches.delete('gone')
    const path = `${service.workspace}/dbs/offers/proposals`
    expectOk(await service.call('POST', `${path}/1/comments`, { body: { body: 'Why?' } }))
    const source = await backUp(service, 'offers')
    await restore(service, source, { name: 'offers', as: 'offers-copy' })
    const copy = `${service.workspace}/dbs/offers-copy/proposals`
    for (const part of ['/1', '/1/comments', '/1/diff', '/2/diff', '?state=all']) {
      const [before, after] = [
        await service.call('GET', `${path}${part}`),
        await service.call('GET', `${copy}${part}`),
      ]
      const text = JSON.stringify(expectOk(before).body).replaceAll(/com_\w+/g, 'com')
      expect(JSON.stringify(expectOk(after).body).replaceAll(/com_\w+/g, 'com')).toBe(text)
    }
    expectOk(await service.call('POST', `${copy}/1/merge`, { body: {} }))
    expect((await service.call('GET', `${copy}/1`)).body.state).toBe('merged')
    expect((await service.call('GET', `${path}/1`)).body.state).toBe('open')
  })
})

describe('the history of a restored database', () => {
  it('is its own: checkpoints, reverts of merges and of loads, and what refers to entries', async () => {
    const branches = await TestBranches.create(service, 'past', {
      items: [{ name: 'price', type: 'int' }],
    })
    await branches.put('main', 'items', 'a', { price: 1 })
    expectOk(await branches.call('main', 'POST', '/checkpoints', {}))
    await branches.fork('sale')
    await branches.patch('sale', 'items', 'a', { price: 2 })
    const dbs = `${service.workspace}/dbs`
    const body = { from: 'sale', title: 'sale' }
    expectOk(await service.call('POST', `${dbs}/past/proposals`, { body }))
    expectOk(await service.call('POST', `${dbs}/past/proposals/1/merge`, { body: {} }))
    await branches.bulk('main', 'items', [{ id: 'b' }, { id: 'c' }])
    const source = await backUp(service, 'past')
    await restore(service, source, { name: 'past', as: 'past-copy' })
    // The copy reads nothing of the database that it was copied from.
    expectOk(await service.call('DELETE', `/workspaces/${service.workspaceId}/dbs/past`))
    await runBackground(service)

    const copy = new TestBranches(service, 'past-copy')
    const call = async (method: string, path: string, sent?: object) =>
      expectOk(await copy.call('main', method as 'GET', path, sent)).body
    const { entries } = await call('GET', '/log')
    const entryOf = (kind: string): Entry =>
      entries.find((entry: { kind: string }) => entry.kind === kind)
    const [load, merge, kept] = [entryOf('bulk'), entryOf('merge'), entryOf('checkpoint')]
    const { checkpoints } = await call('GET', '/checkpoints')
    expect(checkpoints).toMatchObject([
      { id: merge.checkpoint, name: merge.checkpoint, before: 'merge' },
      { id: kept.checkpoint, name: kept.checkpoint, kind: 'manual' },
    ])
    expect(kept).toMatchObject({ name: kept.checkpoint })
    const merged = await service.call('GET', `${dbs}/past-copy/proposals/1`)
    expect(expectOk(merged).body.entry).toBe(merge.id)

    expect((await call('POST', '/revert', { entry: load.id })).tables).toMatchObject([
      { deleted: 2 },
    ])
    const reverted = await call('POST', '/revert', { entry: merge.id })
    expect(await copy.read('main', 'items', ['a', 'b'])).toEqual({ a: { price: 1 } })
    expect((await call('POST', '/revert', { entry: reverted.entry })).merged).toBe(true)
    // The state after a change is deleted with the one before it.
    await call('GET', `/checkpoints/${merge.after}`)
    await call('DELETE', `/checkpoints/${merge.checkpoint}`)
    expect((await copy.call('main', 'GET', `/checkpoints/${merge.after}`)).status).toBe(404)
  })
})

describe('while a database is restored', () => {
  it('nobody sees it, nothing removes it, and no backup can be made', async () => {
    let resume = () => undefined as unknown
    const paused = new Promise((resolve) => {
      resume = () => resolve(undefined)
    })
    let isWaiting = false
    const source = async function* () {
      const manifest = archive.lastIndexOf('manifest.json')
      yield* inChunks(archive.subarray(0, manifest))
      isWaiting = true
      await paused
      yield* inChunks(archive.subarray(manifest))
    }
    const before = { schemas: await listSchemas(service), names: await listNames(service) }
    const restoring = restore(service, source(), { as: 'slow' })
    await until(async () => isWaiting)
    await until(async () => (await listSchemas(service)).length > before.schemas.length)
    await runBackground(service)
    expect((await listSchemas(service)).length).toBe(before.schemas.length + 1)
    expect(await listNames(service)).toEqual(before.names)
    const backup = createBackup({
      database: connect(service.url),
      blobs: service.files.blobs,
      sink: async () => undefined,
      onProgress: () => undefined,
      holdTimeoutMs: 50,
    })
    await expect(backup).rejects.toThrow('or a restore into it')
    resume()
    await restoring
    await runBackground(service)
    const slow = new TestBranches(service, 'slow')
    expect(await slow.record('dev', 'people', 'p2')).toMatchObject({ name: 'dev' })
    expect(await photoOf(slow, 'main', 'p1')).toEqual(PHOTO)
  })

  it('its name can be taken by another, which stays', async () => {
    const source = async function* () {
      const manifest = archive.lastIndexOf('manifest.json')
      yield* inChunks(archive.subarray(0, manifest))
      await createDatabase(service, 'wanted')
      yield* inChunks(archive.subarray(manifest))
    }
    await expect(restore(service, source(), { as: 'wanted' })).rejects.toThrow(
      'has a database [wanted] already: choose another name with --as',
    )
    const { body } = expectOk(await service.call('GET', `${service.workspace}/dbs/wanted`))
    expect(body.branches.map(({ name }: { name: string }) => name)).toEqual(['main'])
  })

  it('a broken connection ends it, and nothing is left', async () => {
    const before = { schemas: await listSchemas(service), names: await listNames(service) }
    const source = async function* () {
      const manifest = archive.lastIndexOf('manifest.json')
      yield* inChunks(archive.subarray(0, manifest))
      await service.database.query(sql`
        select pg_terminate_backend(l.pid)
        from pg_locks l
        join pg_database d on d.oid = l.database and d.datname = current_database()
        where l.locktype = 'advisory' and l.mode = 'ExclusiveLock' and l.pid <> pg_backend_pid()`)
      yield* inChunks(archive.subarray(manifest))
    }
    await expect(restore(service, source(), { as: 'broken' })).rejects.toThrow()
    await expectOnly(before)
  })
})

describe('a restore of a database is refused', () => {
  it.each([
    ['cut before its manifest', () => archive.subarray(0, archive.lastIndexOf('manifest.json'))],
    ['altered in a row', () => altered(archive.indexOf('p30@example.com'))],
    ['altered in a file', () => altered(archive.indexOf(PHOTO.subarray(1000, 1020)))],
  ])('if the archive is %s, and nothing is left of it', async (_name, make) => {
    const before = { schemas: await listSchemas(service), names: await listNames(service) }
    await expect(restore(service, make(), { as: 'damaged' })).rejects.toThrow(
      /^the archive cannot be used: /,
    )
    await expectOnly(before)
  })

  function altered(at: number): Buffer {
    const copy = Buffer.from(archive)
    copy.writeUInt8(copy.readUInt8(at) ^ 1, at)
    return copy
  }

  it('if a name is taken, or the archive has something else', async () => {
    const cases: [Buffer, Names, string][] = [
      [archive, {}, 'has a database [still] already: choose another name with --as'],
      [archive, { name: 'shop' }, 'the archive has the database [still], and not [shop]'],
      [archive, { as: 'a/b' }, '[a/b] is not a valid name of a database'],
      [archive, { as: '' }, '[] is not a valid name of a database'],
      [archive, { as: 'x', workspaceId: 'none' }, 'there is no workspace [none]'],
      [await backUp(service, undefined), { as: 'x' }, 'the archive has a whole instance'],
    ]
    for (const [source, names, message] of cases) {
      await expect(restore(service, source, names)).rejects.toThrow(message)
    }
    expect(await listNames(service)).not.toContain('x')
  })

  it('if the workspace can have no more databases', async () => {
    const { count } = { count: (await listNames(service)).length }
    await expect(restore(service, archive, { as: 'last' }, count)).rejects.toThrow(
      `has ${count} databases, and can have no more`,
    )
    await restore(service, archive, { as: 'last' }, count + 1)
    expect(await listNames(service)).toContain('last')
  })

  it('if the archive or the instance is of another version', async () => {
    const applied = await listAppliedMigrations(service.database)
    const header = {
      format: 1,
      offshoot: '0.0.1',
      postgres: '18.4',
      createdAt: '',
      database: { name: 'still', workspaceId: service.workspaceId },
      catalogue: applied.slice(0, -1),
      sequences: [],
    }
    const earlier: Buffer[] = []
    const tar = new TarWriter(async (chunk) => void earlier.push(Buffer.from(chunk)))
    await tar.add('backup.json', Buffer.from(JSON.stringify(header)))
    await tar.end()
    const [before, newest] = applied.slice(-2).map(({ number }) => number)
    await expect(restore(service, Buffer.concat(earlier), { as: 'x' })).rejects.toThrow(
      `the archive has version ${before} of the catalogue, and the instance has version ${newest}`,
    )
    const empty = await createTestDatabase()
    cleanUps.push(() => empty.close())
    await expect(restore({ ...service, url: empty.url }, archive)).rejects.toThrow(
      'there is no instance in this database',
    )
  })

  it('if it is to fill an empty instance', async () => {
    const empty = await createTestDatabase()
    cleanUps.push(() => empty.close())
    const restoring = restoreBackup({
      database: connect(empty.url),
      blobs: other.files.blobs,
      source: inChunks(archive),
      onProgress: () => undefined,
    })
    await expect(restoring).rejects.toThrow(
      'the archive has only the database [still]: restore it into an instance with --database still',
    )
  })
})

describe('the catalogue', () => {
  it('has no table or column of which a backup of a database does not know what to do', async () => {
    const rows = await service.database.query<{ table: string; columns: string[] }>(sql`
      select table_name::text as table, array_agg(column_name::text order by column_name) as columns
      from information_schema.columns
      where table_schema = 'offshoot'
      group by table_name
      order by table_name`)
    const carried = CATALOGUE_OF_DATABASE.map(({ name, columns }) => ({
      table: name,
      columns: Object.keys(columns).sort(),
    }))
    expect(rows.filter(({ table }) => !NOT_OF_DATABASE.includes(table))).toEqual(
      carried.sort((left, right) => (left.table < right.table ? -1 : 1)),
    )
    expect(rows.map(({ table }) => table)).toEqual(expect.arrayContaining([...NOT_OF_DATABASE]))
  })
})
