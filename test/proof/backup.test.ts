import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { gunzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { createBackup } from '../../packages/server/src/backup/create-backup.js'
import { restoreBackup } from '../../packages/server/src/backup/restore-backup.js'
import { TarWriter } from '../../packages/server/src/backup/tar.js'
import type { BlobStore } from '../../packages/server/src/blobs/blob-store.js'
import { INSERTED_ROWS_MAX } from '../../packages/server/src/data/records/stream-layer.js'
import type { Database } from '../../packages/server/src/postgres/database.js'
import {
  createCatalogue,
  listAppliedMigrations,
  migrate,
} from '../../packages/server/src/postgres/migrate.js'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import { inChunks, makeArchive, openForBackup } from '../support/archive.js'
import { TestBranches } from '../support/branches.js'
import { createTestDatabase } from '../support/database.js'
import { openLocalStore, openS3Store, type TestStore } from '../support/file-store.js'
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
import { createKey, createUser } from '../support/people.js'
import { until } from '../support/process.js'
import { LONG } from '../support/random.js'
import { createTestService, type TestService } from '../support/service.js'

let service: TestService
/** Not written to while a backup runs, so it must be restored exactly as it is. */
let still: TestBranches
let scopedKey: string
const cleanUps: (() => Promise<void>)[] = []

beforeAll(async () => {
  service = await createTestService()
  still = await createFilled(service, 'still')
  scopedKey = await createKey(service, 'scoped', { fields: { scope: { branches: ['dev*'] } } })
  await createUser(service, 'second')
})
afterAll(async () => {
  for (const cleanUp of cleanUps.reverse()) await cleanUp()
  await service.close()
})

function connect(url: string): Database {
  const database = openForBackup(url)
  cleanUps.push(() => database.close())
  return database
}

function backUp(from: TestService): Promise<Buffer> {
  return makeArchive({ database: connect(from.url), blobs: from.files.blobs })
}

async function openStore(open: () => Promise<TestStore>): Promise<BlobStore> {
  const store = await open()
  cleanUps.push(() => store.close())
  return store.blobs
}

/** Creates an empty database and file store to restore into. */
async function newPlace(given?: BlobStore) {
  const own = await createTestDatabase()
  cleanUps.push(() => own.close())
  const database = connect(own.url)
  const blobs = given ?? (await openStore(openLocalStore))
  return {
    url: own.url,
    database,
    blobs,
    restore: (archive: Buffer) =>
      restoreBackup({ database, blobs, source: inChunks(archive), onProgress: () => undefined }),
    /** Starts a service on the restored data. It is used with the keys of the original service. */
    async start(key = service.key): Promise<TestService> {
      const started = await createTestService({ url: own.url, blobs })
      expect(started.key).toBe('')
      cleanUps.push(() => started.close())
      return {
        ...started,
        key,
        call: (method, url, options) => started.call(method, url, { key, ...options }),
      }
    },
  }
}

async function expectEmpty(place: Awaited<ReturnType<typeof newPlace>>): Promise<void> {
  const schemas = await place.database.query(sql`
    select nspname from pg_namespace where nspname like 'offshoot%'`)
  expect(schemas).toEqual([])
  for await (const name of place.blobs.list()) expect.unreachable(`content ${name} is left`)
}

async function listAll(blobs: BlobStore): Promise<string[]> {
  const names: string[] = []
  for await (const name of blobs.list()) names.push(name)
  return names.sort()
}

/** Reads the definition of every table, column, rule and index. */
async function physicalShape(database: Database) {
  return database.query(sql`
    select t.oid::regclass::text as table,
      array(
        select format('%s %s %s %s', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
          pg_get_expr(d.adbin, d.adrelid))
        from pg_attribute a
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
        order by a.attname
      ) as columns,
      array(
        select pg_get_indexdef(i.indexrelid) from pg_index i where i.indrelid = t.oid order by 1
      ) as indexes,
      array(
        select pg_get_constraintdef(c.oid) from pg_constraint c where c.conrelid = t.oid order by 1
      ) as constraints
    from pg_class t
    join pg_namespace n on n.oid = t.relnamespace
    -- Gates are created when they are first needed.
    where n.nspname like 'offshoot%' and n.nspname <> 'offshoot_work' and t.relkind = 'r'
    order by 1`)
}

describe('a backup, restored into an empty instance', () => {
  it('has everything as it was, and all of it works', async () => {
    const place = await newPlace()
    await place.restore(await backUp(service))
    const started = await place.start()
    // The service creates indexes of extensions while it runs.
    await started.indexes.run()
    expect(await physicalShape(place.database)).toEqual(await physicalShape(service.database))
    const restored = new TestBranches(started, 'still')
    expect(await readEverything(restored)).toEqual(await readEverything(still))
    expect(await photoOf(restored, 'main', 'p1')).toEqual(PHOTO)
    expect((await photoOf(restored, 'deep', 'p2')).toString()).toBe('of dev')

    // Keys, their scopes and users are restored too.
    const read = (branch: string) =>
      restored.call(branch, 'GET', '/tables/people/data/p1', undefined, { key: scopedKey })
    expect((await read('dev')).status).toBe(200)
    expect((await read('main')).status).toBe(404)

    // Later operations have the same result on both sides.
    for (const branches of [still, restored]) await workOn(branches)
    expect(rowsOf(await readEverything(restored))).toEqual(rowsOf(await readEverything(still)))
  })

  it('has the rows of a long stream that are not yet in their heap', async () => {
    const long = await TestBranches.create(service, 'layered', {
      t: [{ name: 'code', type: 'string', unique: true }],
    })
    await long.put('main', 't', 'before', { code: 'b' })
    await long.fork('dev')
    const lines = Array.from({ length: INSERTED_ROWS_MAX + 1 }, (_, index) =>
      JSON.stringify({ id: `r${index}`, code: `c${index}`.padEnd(150, '.') }),
    )
    const headers = { 'content-type': 'application/x-ndjson' }
    const inserted = await long.call('main', 'POST', '/tables/t/bulk', lines.join('\n'), {
      headers,
    })
    expect(inserted.body).toMatchObject({ inserted: lines.length })
    const place = await newPlace()
    await place.restore(await backUp(service))
    const layers = await place.database.query(sql`
      select from offshoot.heaps where kind = 'layer' and next_branch_id = branch_id`)
    expect(layers).toHaveLength(1)
    const restored = new TestBranches(await place.start(), 'layered')
    const ids = ['before', 'r0', 'r1']
    const content = { before: { code: 'b' }, r0: { code: 'c0'.padEnd(150, '.') } }
    expect(await restored.read('main', 't', ids)).toMatchObject(content)
    await restored.patch('main', 't', 'r1', { code: 'new' })
    await restored.merge('dev')
    expect(await restored.read('main', 't', ids)).toMatchObject({ ...content, r1: { code: 'new' } })
    expect(await restored.read('dev', 't', ids)).toEqual({ before: { code: 'b' } })
  })

  it('is of one moment, while everything is written to, forked, edited and dropped', async () => {
    const load = await startLoad(service)
    await until(async () => load.pairs() > 20 && load.forks() > 2)
    const before = { pairs: load.pairs() }
    const archive = await backUp(service)
    const after = { pairs: load.pairs() }
    await load.stop()
    const place = await newPlace()
    await place.restore(archive)
    const restored = await place.start()
    const busy = new TestBranches(restored, 'busy')
    const newest = await readLoad(busy)
    expect(newest).toBeGreaterThanOrEqual(before.pairs)
    expect(newest).toBeLessThanOrEqual(after.pairs + 1)
    await busy.put('main', 'lefts', 'new', { number: 1 })
  })

  it('is upgraded when it comes from an earlier version', async () => {
    const old = await createTestDatabase()
    cleanUps.push(() => old.close())
    await old.pool.query(
      await readFile(new URL('../fixtures/catalogue-001.sql', import.meta.url), 'utf8'),
    )
    const archive = await backUp({ ...service, url: old.url })
    const place = await newPlace()
    await place.restore(archive)
    expect(await listAppliedMigrations(place.database)).toEqual(
      await listAppliedMigrations(service.database),
    )
    const started = await place.start()
    const shop = new TestBranches(
      { ...started, key: 'off_fixture_of_the_first_catalogue_0000000000001' },
      'shop',
    )
    expect(await shop.record('deep', 'people', 'p1')).toMatchObject({ nick: 'deepest' })
    await shop.merge('dev', { strategy: 'theirs' })
    expect(await shop.record('main', 'people', 'p2')).toMatchObject({ name: 'Changed on dev' })
  })
})

/** The key of the instance in the fixture. */
const FIXTURE_KEY = 'off_xUxMS9bryaMNLhROZZsycOdkIMvZKUj96rmCzy2B12uZ'

describe('an archive that an earlier version has written', () => {
  it('is restored with everything that it has', async () => {
    const file = new URL('../fixtures/backup-022.tar.gz', import.meta.url)
    const place = await newPlace()
    await place.restore(gunzipSync(await readFile(file)))
    const started = await place.start(FIXTURE_KEY)
    await started.indexes.run()
    const shop = new TestBranches(started, 'shop')
    // That version remembered the versions of deleted records.
    const remembered = await place.database.query(sql`
      select from pg_tables where tablename = 'deleted_records'`)
    expect(remembered).toEqual([])
    expect(await shop.record('main', 'people', 'p1')).toMatchObject({
      ...{ name: 'Ann', email: 'ann@example.com', tags: ['a'], extra: { n: 1 }, place: [1, 2, 3] },
      seen: '2026-01-01T00:00:00.000Z',
    })
    expect(await shop.record('main', 'orders', 'o1')).toMatchObject({ buyer: { id: 'p1' } })
    expect((await photoOf(shop, 'deeper', 'p1')).toString()).toBe('of Ann')
    expect(await shop.record('deeper', 'people', 'p1')).toMatchObject({ name: 'Ann of dev' })
    expect(await shop.record('deeper', 'people', 'p2')).toMatchObject({ name: 'Bob of deep' })
    expect(await shop.record('main', 'people', 'p2')).toMatchObject({ name: 'Bob of main' })
    await shop.merge('dev')
    expect(await shop.record('main', 'people', 'p1')).toMatchObject({ name: 'Ann of dev' })
    const [indexes] = await place.database.query<{ names: string[] }>(sql`
      select array_agg(distinct regexp_replace(indexname, '^(heap|past)_[0-9]+_', '\\1 ')) as names
      from pg_indexes
      where schemaname ~ '^offshoot_db_'`)
    expect(indexes?.names).toEqual(
      expect.arrayContaining([
        ...['heap pkey', 'past pkey', 'heap epoch_idx', 'past until_idx'],
        ...['heap jsonb_path_query_array_idx', 'past jsonb_path_query_array_idx'],
        ...[
          expect.stringMatching(/^heap c\d+_unique$/),
          expect.stringMatching(/^heap c\d+_index$/),
        ],
      ]),
    )
  })
})

describe('while a backup is made', () => {
  it('nothing that it will need is removed for good, and everything can be edited', async () => {
    const branches = await TestBranches.create(service, 'held', {
      short: [{ name: 'name', type: 'string' }],
    })
    await branches.put('main', 'short', 'one', { name: 'kept' })
    await runBackground(service)
    let resume = () => undefined as unknown
    const paused = new Promise((resolve) => {
      resume = () => resolve(undefined)
    })
    let isWaiting = false
    const chunks: Buffer[] = []
    const database = connect(service.url)
    const running = createBackup({
      database,
      blobs: service.files.blobs,
      async sink(chunk) {
        chunks.push(Buffer.from(chunk))
        isWaiting = true
        await paused
      },
      onProgress: () => undefined,
    })
    await until(async () => isWaiting)
    const countTables = async () => {
      const [row] = await service.database.query<{ count: number }>(sql`
        select count(*)::integer as count from pg_tables
        where starts_with(schemaname, 'offshoot_db_')`)
      return row?.count ?? 0
    }
    const before = await countTables()
    await branches.edit('main', { removeTable: { table: 'short' } })
    await branches.edit('main', { addTable: { table: 'other' } })
    await runBackground(service)
    expect(await countTables()).toBe(before + 2)
    const second = createBackup({
      database,
      blobs: service.files.blobs,
      sink: async () => undefined,
      onProgress: () => undefined,
      holdTimeoutMs: 50,
    })
    await expect(second).rejects.toThrow('another backup of this instance is running')
    resume()
    await running
    await runBackground(service)
    expect(await countTables()).toBe(before)
    const place = await newPlace()
    await place.restore(Buffer.concat(chunks))
    const restored = new TestBranches(await place.start(), 'held')
    expect(await restored.record('main', 'short', 'one')).toMatchObject({ name: 'kept' })
  })

  it('content that is missing from the store is reported, if a record mentions it', async () => {
    const one = await createTestService()
    cleanUps.push(() => one.close())
    const branches = await TestBranches.create(one, 'lost', {
      people: [{ name: 'photo', type: 'file' }],
    })
    await branches.put('main', 'people', 'one', { photo: fileOf(Buffer.from('lost')) })
    // Content of an upload that never finished may be missing.
    await one.database.query(sql`
      insert into offshoot.blobs (sha256, size) values (sha256('never'::bytea), 5)`)
    await backUp(one)
    for await (const sha256 of one.files.blobs.list()) await one.files.blobs.delete(sha256)
    await expect(backUp(one)).rejects.toThrow(/content \[[0-9a-f]{64}\] of a file is missing/)
  })
})

describe('an archive that is not as it was written', () => {
  let archive: Buffer
  beforeAll(async () => {
    archive = await backUp(service)
  })

  const damage = (at: number) => {
    const copy = Buffer.from(archive)
    copy.writeUInt8(copy.readUInt8(at) ^ 1, at)
    return copy
  }
  /** Returns the position after a text, which must occur in the archive. */
  const behind = (text: string, from = 0) => {
    const at = archive.indexOf(text, from)
    expect(at, text).toBeGreaterThan(0)
    return at + text.length
  }

  const DAMAGES: readonly (readonly [string, () => Buffer])[] = [
    ['cut before its manifest', () => archive.subarray(0, archive.lastIndexOf('manifest.json'))],
    ['something else', () => Buffer.from('x'.repeat(2000))],
    ['altered in a row', () => damage(behind('p30@example.co', behind('"name":"heap_')))],
    ['without one of its files', () => cut(archive, /^files\//)],
    ['without a part of a table', () => cut(archive, /^tables\/offshoot\.users\/0+1$/)],
  ]
  const FURTHER_DAMAGES: typeof DAMAGES = [
    ['cut in the middle', () => archive.subarray(0, archive.length / 2)],
    ['empty', () => Buffer.alloc(0)],
    ['altered in its head', () => damage(behind('"createdAt": "202'))],
    ['altered in a definition', () => damage(behind('"name":"heap_'))],
    ['altered in a file', () => damage(archive.indexOf(PHOTO.subarray(1000, 1020)))],
    ['altered in its manifest', () => damage(behind('"sha256":"', behind('"header":"')))],
    ['without a table', () => cut(archive, /^tables\/offshoot\.git_branches\//)],
  ]

  it.each([...DAMAGES, ...(LONG ? FURTHER_DAMAGES : [])])(
    'is refused when it is %s, and nothing is left of it',
    async (_name, make) => {
      const place = await newPlace()
      await expect(place.restore(make())).rejects.toThrow(/^the archive cannot be used: /)
      await expectEmpty(place)
    },
  )

  it('is refused when it is of a version that is not known', async () => {
    const header = {
      offshoot: '9.9.9',
      postgres: '18.4',
      createdAt: '',
      catalogue: [{ number: 1, name: 'from-the-future' }],
      sequences: [],
    }
    const restore = async (format: number) => {
      const chunks: Buffer[] = []
      const tar = new TarWriter(async (chunk) => void chunks.push(chunk))
      await tar.add('backup.json', Buffer.from(JSON.stringify({ ...header, format })))
      await tar.end()
      const place = await newPlace()
      await expectEmpty(place)
      return place.restore(Buffer.concat(chunks)).finally(() => expectEmpty(place))
    }
    await expect(restore(2)).rejects.toThrow('the archive has format 2')
    await expect(restore(1)).rejects.toThrow('has migration 1 [from-the-future]')
  })
})

describe('of an instance with its files in S3', () => {
  /** The last one is too large for a single chunk. */
  const CONTENTS = [...Array.from({ length: 9 }, (_, number) => `file ${number}`), 'x'.repeat(3e6)]
  let source: TestService
  let archive: Buffer

  beforeAll(async () => {
    source = await createTestService({ blobs: await openStore(openS3Store) })
    cleanUps.push(() => source.close())
    const album = await TestBranches.create(source, 'album', {
      photos: [
        { name: 'one', type: 'file' },
        { name: 'many', type: 'file[]' },
      ],
    })
    const records = CONTENTS.map((content, number) => ({
      id: `p${number}`,
      one: fileOf(Buffer.from(content)),
    }))
    await album.bulk('main', 'photos', records)
    await album.fork('dev')
    await album.patch('dev', 'photos', 'p0', { many: [fileOf(Buffer.from('of dev'))] })
    await album.remove('main', 'photos', 'p1')
    archive = await backUp(source)
  })

  const read = (via: TestService, branch: string, file: string) => {
    const url = `/tables/photos/data/${file}`
    return new TestBranches(via, 'album').call(branch, 'GET', url)
  }
  async function expectWhole(restored: TestService): Promise<void> {
    const album = new TestBranches(restored, 'album')
    const of = new TestBranches(source, 'album')
    expect(await readEverything(album)).toEqual(await readEverything(of))
    for (const number of CONTENTS.keys()) {
      const { status, body } = await read(restored, 'dev', `p${number}/column/one/file`)
      expect(status).toBe(200)
      expect(String(body)).toBe(CONTENTS[number])
    }
    const { body } = await read(restored, 'dev', 'p0?columns=many.base64Content')
    expect(Buffer.from(body.many[0].base64Content, 'base64').toString()).toBe('of dev')
    const { status } = await read(restored, 'main', 'p1/column/one/file')
    expect(status).toBe(404)
  }

  it.each([['S3', openS3Store] as const, ...(LONG ? [['a folder', openLocalStore] as const] : [])])(
    'a backup is whole when it is restored into one with its files in %s',
    async (_name, open) => {
      const place = await newPlace(await openStore(open))
      await place.restore(archive)
      const restored = await place.start(source.key)
      await expectWhole(restored)
      // Restore the copy back to S3.
      const back = await newPlace(await openStore(openS3Store))
      await back.restore(await backUp(restored))
      await expectWhole(await back.start(source.key))
    },
  )

  it('a damaged archive leaves nothing in S3', async () => {
    const place = await newPlace(await openStore(openS3Store))
    const cutShort = archive.subarray(0, archive.lastIndexOf('manifest.json'))
    await expect(place.restore(cutShort)).rejects.toThrow(/^the archive cannot be used: /)
    await expectEmpty(place)
  })

  it('a damaged archive takes nothing away from others who keep their files there', async () => {
    const { blobs } = source.files
    const before = await listAll(blobs)
    expect(before.length).toBe(CONTENTS.length + 1)
    // Put the content of one file under the name of another.
    const swapped = Buffer.from(archive)
    const name = `files/${createHash('sha256').update('file 2').digest('hex')}`
    expect(swapped.write('file 3', archive.indexOf(name) + 512)).toBe(6)
    const place = await newPlace(blobs)
    await expect(place.restore(swapped)).rejects.toThrow(/^the archive cannot be used: /)
    expect(await listAll(blobs)).toEqual(before)
  })

  it('a backup says which content is missing from S3', async () => {
    const { blobs } = source.files
    const sha256 = createHash('sha256').update('file 5').digest('hex')
    await blobs.delete(sha256)
    await expect(backUp(source)).rejects.toThrow(`content [${sha256}] of a file is missing`)
  })
})

/** Returns the archive without the entries whose names match. */
function cut(archive: Buffer, names: RegExp): Buffer {
  const kept: Buffer[] = []
  for (let at = 0; at < archive.length; ) {
    const name = archive.toString('latin1', at, at + 100).replace(/\0.*$/s, '')
    const size = Number.parseInt(archive.toString('latin1', at + 124, at + 135), 8) || 0
    const end = at + 512 + Math.ceil(size / 512) * 512
    if (!names.test(name)) kept.push(archive.subarray(at, end))
    at = end
  }
  return Buffer.concat(kept)
}

describe('an instance', () => {
  it('is not restored into when it is not empty', async () => {
    const archive = await backUp(service)
    const other = await createTestService()
    cleanUps.push(() => other.close())
    const restoring = restoreBackup({
      database: connect(other.url),
      blobs: other.files.blobs,
      source: inChunks(archive),
      onProgress: () => undefined,
    })
    await expect(restoring).rejects.toThrow('the instance is not empty')
    expect((await other.call('GET', '/user')).status).toBe(200)
  })

  it('of which a restore was interrupted does not start, and can be restored again', async () => {
    const archive = await backUp(service)
    const place = await newPlace()
    // Leave the database as a process that was killed during a restore does.
    await createCatalogue(place.database, await listAppliedMigrations(service.database))
    await place.database.query(sql`create schema offshoot_db_1`)
    await place.database.query(sql`create table offshoot_db_1.${ident('heap_1')} (id text)`)
    await expect(migrate(place.database)).rejects.toThrow(
      'a restore into this database has not finished',
    )
    await place.restore(archive)
    const restored = new TestBranches(await place.start(), 'still')
    expect(await restored.record('main', 'people', 'p1')).toBeDefined()
  })
})
