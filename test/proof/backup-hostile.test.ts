import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { DEFINITION_BYTES_MAX } from '../../packages/server/src/backup/archive.js'
import { restoreBackup } from '../../packages/server/src/backup/restore-backup.js'
import { restoreDatabase } from '../../packages/server/src/backup/restore-database.js'
import type { BlobStore } from '../../packages/server/src/blobs/blob-store.js'
import type { Database } from '../../packages/server/src/postgres/database.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import {
  type ArchiveContent,
  type ArchivedTable,
  alterColumn,
  forgeArchive,
  inChunks,
  makeArchive,
  openForBackup,
  tableIn,
} from '../support/archive.js'
import { TestBranches } from '../support/branches.js'
import { createTestDatabase } from '../support/database.js'
import { openLocalStore } from '../support/file-store.js'
import { fileOf } from '../support/filled-database.js'
import { LONG } from '../support/random.js'
import { createTestService, REGIONS, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * Archives that were made to do harm. Their hashes are right, and PostgreSQL would accept most of what they say.
 */

let service: TestService
let shop: TestBranches
/** A database of somebody else. */
let other: TestBranches
let archive: Buffer
let whole: Buffer
const cleanUps: (() => Promise<void>)[] = []

const SECRET = Buffer.from('the content of somebody else')

beforeAll(async () => {
  service = await createTestService()
  cleanUps.push(() => service.close())
  const tables = {
    people: [
      { name: 'name', type: 'string' as const },
      { name: 'email', type: 'email' as const, unique: true },
      { name: 'place', type: 'vector' as const, vector: { dimension: 3 } },
      { name: 'extra', type: 'json' as const },
      { name: 'photo', type: 'file' as const },
    ],
  }
  shop = await TestBranches.create(service, 'shop', tables)
  await shop.put('main', 'people', 'p1', { name: 'Ann', photo: fileOf(Buffer.from('of the shop')) })
  await shop.fork('dev')
  await shop.patch('dev', 'people', 'p1', { name: 'Bob' })
  expectOk(
    await service.call('PUT', `${service.workspace}/dbs/shop/branchRules`, {
      body: { rules: [{ pattern: 'preview-*', ttl: 60 }] },
    }),
  )
  other = await TestBranches.create(service, 'other', tables)
  await other.put('main', 'people', 'p1', { name: 'Eve', photo: fileOf(SECRET) })
  archive = await backUp('shop')
  whole = await backUp(undefined)
})
afterAll(async () => {
  for (const cleanUp of cleanUps.reverse()) await cleanUp()
})

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

function backUp(name: string | undefined): Promise<Buffer> {
  const { blobs } = service.files
  return makeArchive({ database: connect(service.url), blobs, only: name ? { name } : undefined })
}

let count = 0

function restore(forged: Buffer, as = `forged${++count}`, limits = {}) {
  return restoreDatabase({
    database: connect(service.url),
    blobs: service.files.blobs,
    source: inChunks(forged),
    name: 'shop',
    as,
    regions: REGIONS,
    limits: { ...LIMITS, ...limits },
    onProgress: () => undefined,
    holdTimeoutMs: 60_000,
  })
}

/** An empty database and an empty file store, for an instance. */
interface Place {
  readonly url: string
  readonly blobs: BlobStore
}

/** A place that a refused restore has left empty, for the next one. */
let empty: Place | undefined

async function takeEmptyPlace(): Promise<Place> {
  const taken = empty
  empty = undefined
  if (taken !== undefined) return taken
  const own = await createTestDatabase()
  cleanUps.push(() => own.close())
  const store = await openLocalStore()
  cleanUps.push(() => store.close())
  return { url: own.url, blobs: store.blobs }
}

async function restoreWhole(forged: Buffer): Promise<{ database: Database; blobs: BlobStore }> {
  const place = await takeEmptyPlace()
  const { url, blobs } = place
  const database = connect(url)
  try {
    await restoreBackup({
      database,
      blobs,
      source: inChunks(forged),
      onProgress: () => undefined,
    })
    return { database, blobs }
  } catch (error) {
    const left = await database.query(sql`
      select nspname from pg_namespace where nspname like 'offshoot%'`)
    expect(left).toEqual([])
    for await (const name of blobs.list()) expect.unreachable(`content ${name} is left`)
    empty = place
    throw error
  }
}

/** Returns everything that a restore of a database must leave as it is. */
async function stateOf({ database }: TestService): Promise<unknown> {
  return database.query(sql`
    select
      array(select nspname::text from pg_namespace where nspname ~ '^offshoot_db_' order by 1) as schemas,
      array(select tablename::text from pg_tables where tablename ~ '^restore_' order by 1) as stages,
      array(select name from offshoot.databases order by 1) as databases,
      array(select id from offshoot.branches order by 1) as branches,
      array(select id::text from offshoot.schemas order by 1) as documents,
      array(select id::text from offshoot.heaps order by 1) as heaps,
      (select last_value from offshoot.object_ids) as "objectIds",
      to_regclass('public.harmed') as harmed`)
}

const heapIn = (content: ArchiveContent): ArchivedTable => {
  const found = content.tables.find(
    ({ definition, rows }) => /^heap_/.test(definition.name) && rows.length > 0,
  )
  if (found === undefined) throw new Error('an archive must have rows')
  return found
}
const HARM = `create table public.harmed ()`
/** An expression that would run as the role of the restore. */
const CALL = `(query_to_xml('${HARM}', true, false, '') is not null)`

type Forgery = (content: ArchiveContent) => void

/** Alters the definition of a table of rows. */
const define =
  (
    alter: (definition: ArchivedTable['definition']) => Partial<ArchivedTable['definition']>,
  ): Forgery =>
  (content) => {
    const heap = heapIn(content)
    heap.definition = { ...heap.definition, ...alter(heap.definition) }
  }
const indexed = (index: (name: string) => string) =>
  define((table) => ({
    indexes: [...table.indexes, index(`${table.name}_x ON ${table.schema}.${table.name}`)],
  }))
const constrained = (definition: string, suffix = '_x') =>
  define(({ name, constraints }) => ({
    constraints: [...constraints, { name: `${name}${suffix}`, definition }],
  }))
const column = (alter: Record<string, unknown>): Forgery =>
  define(({ columns }) => ({
    columns: columns.map((each, index) =>
      index === columns.length - 1 ? { ...each, ...alter } : each,
    ),
  }))

const DEFINITIONS: [string, Forgery][] = [
  ['a check constraint', constrained(`CHECK (${CALL})`)],
  ['a check constraint behind a primary key', constrained(`PRIMARY KEY (id), ADD CHECK (${CALL})`)],
  ['a second primary key', constrained('PRIMARY KEY (id)')],
  ['an exclusion constraint', constrained('EXCLUDE USING btree (id WITH =)')],
  ['a constraint with a name of another table', constrained('PRIMARY KEY (id)', '"; --')],
  ['an index on an expression', indexed((x) => `CREATE INDEX ${x} USING btree (${CALL})`)],
  ['an index with a condition', indexed((x) => `CREATE INDEX ${x} USING btree (id) WHERE ${CALL}`)],
  [
    'an index with parameters',
    indexed((x) => `CREATE INDEX ${x} USING btree (id) WITH (fillfactor='9')`),
  ],
  [
    'an index with a second statement',
    indexed((x) => `CREATE INDEX ${x} USING btree (id); ${HARM}`),
  ],
  ['an index of another method', indexed((x) => `CREATE INDEX ${x} USING hash (id)`)],
  ['an index on no column', indexed((x) => `CREATE INDEX ${x} USING btree (nothing)`)],
  [
    'an index on another table',
    indexed(() => 'CREATE INDEX users_x ON offshoot.users USING btree (id)'),
  ],
  ['a statement instead of an index', indexed(() => HARM)],
  ['a default that calls a function', column({ fallback: CALL })],
  ['a default with a second statement', column({ fallback: `0); ${HARM}; select (1` })],
  ['another type', column({ type: 'xml' })],
  ['a type with a default', column({ type: `text default ${CALL}` })],
  ['a type of a schema', column({ type: 'public.harmful' })],
  ['an array of tables', column({ type: 'offshoot.users[]' })],
  ['another collation', column({ type: 'text', collation: 'en_US' })],
  ['a collation with a quote', column({ type: 'text', collation: `C" default ${CALL} --` })],
  ['a column with a quote', column({ name: `c1" text default ${CALL} --` })],
  ['a column of no kind', column({ name: 'tableoid' })],
  ['a column without a name', column({ name: '' })],
  ['a column twice', column({ name: 'id', type: 'text' })],
  [
    'an important column of another type',
    define(({ columns }) => ({
      columns: columns.map((each) => (each.name === 'epoch' ? { ...each, type: 'text' } : each)),
    })),
  ],
  [
    'without a column that all have',
    define(({ columns }) => ({
      columns: columns.filter(({ name }) => name !== 'version'),
    })),
  ],
  ['no columns', define(() => ({ columns: [] }))],
  ['a storage parameter', define(() => ({ options: ['user_catalog_table=true'] }))],
  ['a storage parameter with more', define(() => ({ options: [`fillfactor=9); ${HARM}; --`] }))],
  [
    'more columns than PostgreSQL has',
    define(({ columns }) => ({
      columns: [
        ...columns,
        ...Array.from({ length: 2000 }, (_, n) => ({
          name: `c${n + 5000}`,
          type: 'text',
          collation: 'C',
          notNull: false,
          fallback: null,
        })),
      ],
    })),
  ],
  ['the name of another table', define(() => ({ name: 'secrets' }))],
  ['the name of the answers to requests', define(() => ({ name: 'idempotency_keys' }))],
  ['a name with a quote', define(({ name }) => ({ name: `${name}" (id text); ${HARM}; --` }))],
  ['a schema of others', define(() => ({ schema: 'public' }))],
  ['a table twice', (content) => void content.tables.push(heapIn(content))],
]

interface ForgedColumn {
  id: unknown
  name: unknown
  type: unknown
  vector?: { dimension: unknown }
  bits?: unknown
  columns?: ForgedColumn[]
  other?: unknown
}
interface ForgedTable {
  columns: ForgedColumn[]
}

/** Alters the schemas of an archive. */
const document =
  (alter: (schema: { tables: ForgedTable[] }) => void): Forgery =>
  (content) =>
    alterColumn(tableIn(content, 'schemas'), 'document', (text) => {
      const schema = JSON.parse(text.replaceAll('\\\\', '\\'))
      alter(schema)
      return JSON.stringify(schema).replaceAll('\\', '\\\\')
    })
const firstColumn = (alter: (column: ForgedColumn) => void): Forgery =>
  document(({ tables }) => {
    for (const { columns } of tables) for (const each of columns.slice(0, 1)) alter(each)
  })

const value =
  (table: string, name: string, alter: (value: string, row: number) => string): Forgery =>
  (content) =>
    alterColumn(tableIn(content, table), name, alter)

const CATALOGUE: [string, Forgery][] = [
  ['a schema that is no object', value('schemas', 'document', () => '[]')],
  [
    'a column id that is a text',
    firstColumn((c) => {
      c.id = `1" = 1 or ${CALL} --`
    }),
  ],
  [
    'a column id that is a fraction',
    firstColumn((c) => {
      c.id = 1.5
    }),
  ],
  [
    'a column id that is too large',
    firstColumn((c) => {
      c.id = 2 ** 41
    }),
  ],
  [
    'an id twice',
    document(({ tables }) => {
      for (const { columns } of tables) for (const each of columns) each.id = columns[0]?.id
    }),
  ],
  [
    'a column type that there is not',
    firstColumn((c) => {
      c.type = `text); ${HARM}; --`
    }),
  ],
  [
    'a column type of an object',
    firstColumn((c) => {
      c.type = 'constructor'
    }),
  ],
  [
    'a column type that its values do not have',
    firstColumn((c) => {
      c.type = 'int'
    }),
  ],
  [
    'a file column that the catalogue does not call one',
    document(({ tables: [table] }) => {
      for (const c of table?.columns ?? []) if (c.name === 'extra') c.type = 'file'
    }),
  ],
  [
    'a dimension that is a text',
    document(({ tables: [table] }) => {
      for (const c of table?.columns ?? []) if (c.vector) c.vector.dimension = `3); ${HARM}; --`
    }),
  ],
  [
    'a size that is a text',
    firstColumn((c) => {
      c.bits = `16); ${HARM}; --`
    }),
  ],
  [
    'a size that the type does not have',
    firstColumn((c) => {
      Object.assign(c, { type: 'string', bits: 16 })
    }),
  ],
  [
    'ids of texts with a size',
    document(({ tables: [table] }) => {
      Object.assign(table ?? {}, { idType: undefined, idBits: 16 })
    }),
  ],
  [
    'a column with a field that there is not',
    firstColumn((c) => {
      c.other = 1
    }),
  ],
  [
    'a column with an odd name',
    firstColumn((c) => {
      c.name = 'a b"'
    }),
  ],
  [
    'columns that are no list',
    document(({ tables }) => {
      for (const table of tables) Object.assign(table, { columns: {} })
    }),
  ],
  [
    'columns in columns in columns',
    firstColumn((c) => {
      let at = c
      for (let depth = 0; depth < 200; depth++) {
        const nested = { id: 10_000 + depth, name: 'x', type: 'object' }
        at.columns = [nested]
        at = nested
      }
    }),
  ],
  ['a file column that is called none', value('heaps', 'file_column_ids', () => '{}')],
  [
    'columns that a table does not have',
    value('heaps', 'column_ids', () => '{1,2,3,4,5,6,7,8,9,10,99}'),
  ],
  ['a table of rows of no kind', value('heaps', 'kind', () => 'view')],
  [
    'a branch that inherits from itself',
    (content) => {
      const branches = tableIn(content, 'branches')
      const id = branches.definition.columns.findIndex(({ name }) => name === 'id')
      alterColumn(branches, 'parent_id', (_value, row) => branches.rows[row]?.split('\t')[id] ?? '')
    },
  ],
  ['branches with odd names', value('branches', 'name', (_name, row) => `a/b\\u001b${row}`)],
  ['odd metadata of a branch', value('branches', 'metadata', () => '{"labels": 1}')],
  ['a source that is no object', value('branches', 'started_from', () => '7')],
  [
    'a source with an odd name',
    value('branches', 'started_from', () => '{"branchName": 7, "dbBranchID": "x"}'),
  ],
  ['an odd rule for branches', value('branch_rules', 'pattern', () => '(a+)+')],
  ['odd settings of a rule', value('branch_rules', 'settings', () => '{"ttl": "x"}')],
  ['an odd repository', value('databases', 'repository', () => '{"owner": 7}')],
  ['a branch of another database', value('heaps', 'branch_id', () => 'bb_of_another')],
  ['a schema of another database', value('branches', 'schema_id', () => '999999')],
]

describe('a database in an archive is refused, and nothing of it is left, if it has', () => {
  it.each([...DEFINITIONS, ...CATALOGUE])('%s', async (_name, forge) => {
    const before = await stateOf(service)
    const forged = await forgeArchive(archive, forge)
    await expect(restore(forged)).rejects.toThrow(/^the archive cannot be used: /)
    expect(await stateOf(service)).toEqual(before)
  })

  it('a table of the catalogue that is not of a database', async () => {
    const before = await stateOf(service)
    for (const name of ['api_keys', 'users', 'catalogue_migrations', 'link_keys']) {
      const forged = await forgeArchive(archive, (content) => {
        tableIn(content, 'branch_rules').definition.name = name
      })
      await expect(restore(forged)).rejects.toThrow(`unexpected table [offshoot.${name}]`)
    }
    expect(await stateOf(service)).toEqual(before)
  })

  it('rows that mention the content of somebody else, or no content', async () => {
    const theirs = await other.call('main', 'GET', '/tables/people/data/p1')
    expect(theirs.status).toBe(200)
    const [blob] = await service.database.query<{ sha256: string }>(sql`
      select encode(sha256, 'hex') as sha256 from offshoot.blobs where sha256 = sha256(${SECRET}::bytea)`)
    const before = await stateOf(service)
    for (const hash of [blob?.sha256, '../../../etc/passwd', '0'.repeat(64)]) {
      const forged = await forgeArchive(archive, (content) => {
        for (const table of content.tables) {
          if (!/^(heap|past)_/.test(table.definition.name)) continue
          table.rows = table.rows.map((row) =>
            row.replace(/"sha256": "[^"]*"/, `"sha256": "${hash}"`),
          )
        }
      })
      await expect(restore(forged)).rejects.toThrow(
        'the archive cannot be used: a row mentions the content of a file that is not in it',
      )
    }
    expect(await stateOf(service)).toEqual(before)
  })

  it('ids that would use up those of the instance, or be given out again', async () => {
    const before = await stateOf(service)
    for (const value of ['9223372036854775807', String(2 ** 40 + 1), '1', '-1', 'x']) {
      const forged = await forgeArchive(archive, ({ header }) => {
        for (const sequence of header.sequences) sequence.value = value
      })
      await expect(restore(forged)).rejects.toThrow(/^the archive cannot be used: /)
    }
    expect(await stateOf(service)).toEqual(before)
  })

  it('a definition that is larger than any of offshoot', async () => {
    const sized = (bytes: number) =>
      forgeArchive(
        archive,
        define((table) => {
          const own = JSON.stringify({ ...table, options: [''] }).length
          return { options: ['x'.repeat(bytes - own)] }
        }),
      )
    await expect(restore(await sized(DEFINITION_BYTES_MAX))).rejects.toThrow(
      'a storage parameter is not one that offshoot creates',
    )
    await expect(restore(await sized(DEFINITION_BYTES_MAX + 1))).rejects.toThrow('is too large')
  })

  it('more tables or columns than the instance allows', async () => {
    const before = await stateOf(service)
    await expect(restore(archive, 'limited', { columnsPerTableMax: 4 })).rejects.toThrow(
      'table [people]: columns: it has 5, and this instance allows 4',
    )
    await expect(restore(archive, 'limited', { columnsPerBranchMax: 4 })).rejects.toThrow(
      'columns of a branch: it has 5, and this instance allows 4',
    )
    await expect(restore(archive, 'limited', { tablesPerBranchMax: 0 })).rejects.toThrow(
      'tables of a branch: it has 1, and this instance allows 0',
    )
    expect(await stateOf(service)).toEqual(before)
  })
})

describe('a database in an archive that names a branch of somebody else as a source', () => {
  it('is restored without it', async () => {
    const [theirs] = await service.database.query<{ id: string }>(sql`
      select b.id from offshoot.branches b
      join offshoot.databases d on d.id = b.database_id
      where d.name = 'other' and b.name = 'main'`)
    const source = { branchName: 'main', dbBranchID: theirs?.id, migrationID: 'mig_x' }
    const forged = await forgeArchive(
      archive,
      value('branches', 'started_from', () => JSON.stringify(source)),
    )
    await restore(forged, 'sourced')
    const sourced = new TestBranches(service, 'sourced')
    const diff = await sourced.call('dev', 'GET', '/diff')
    expect(JSON.stringify(diff.body)).not.toContain('Eve')
    const { body } = expectOk(await sourced.call('main', 'GET', ''))
    expect(body.startedFrom.dbBranchID).not.toBe(theirs?.id)
    const merged = await sourced.call('main', 'POST', '/merge', {})
    expect(merged.status).toBeGreaterThanOrEqual(400)
  })
})

const OF_INSTANCES: readonly [string, Forgery][] = [
  ...DEFINITIONS.filter(([name]) => !/answers to requests/.test(name)),
  ...CATALOGUE.filter(([name]) => /column|schema that|source|branch that|id twice|rule/.test(name)),
]

/**
 * One forgery of each check. Archives of databases pass the same checks and are tested with all forgeries, but a restore
 * of an instance runs all migrations.
 */
const ONE_OF_EACH = [
  'a check constraint',
  'an index on an expression',
  'a default that calls a function',
  'the name of another table',
  'a schema of others',
  'a schema that is no object',
  'a column id that is a text',
  'a column type that its values do not have',
  'a branch that inherits from itself',
  'an odd rule for branches',
].map((name) => {
  const found = OF_INSTANCES.find(([each]) => each === name)
  if (found === undefined) throw new Error(`there must be a forgery [${name}]`)
  return found
})

describe('an archive of an instance is refused, and nothing of it is left, if it has', () => {
  it.each(LONG ? OF_INSTANCES : ONE_OF_EACH)('%s', async (_name, forge) => {
    await expect(restoreWhole(await forgeArchive(whole, forge))).rejects.toThrow(
      /^the archive cannot be used: /,
    )
  })

  it('a table that is not of the catalogue', async () => {
    for (const name of ['catalogue_migrations', 'unfinished_restore', 'pg_authid', 'nothing']) {
      const forged = await forgeArchive(whole, (content) => {
        tableIn(content, 'branch_rules').definition.name = name
      })
      await expect(restoreWhole(forged)).rejects.toThrow(/^the archive cannot be used: /)
    }
  })

  it('a sequence that is not of the catalogue', async () => {
    for (const alter of [
      { schema: 'public' },
      { name: 'users' },
      { name: 'x"; --' },
      { value: 'x' },
    ]) {
      const forged = await forgeArchive(whole, ({ header }) => {
        Object.assign(header.sequences[0] ?? {}, alter)
      })
      await expect(restoreWhole(forged)).rejects.toThrow(/^the archive cannot be used: /)
    }
  })

  it('rows that mention a content that is not in it', async () => {
    const forged = await forgeArchive(whole, (content) => void content.files.pop())
    await expect(restoreWhole(forged)).rejects.toThrow(
      'a row mentions the content of a file that is not in it',
    )
  })
})

describe('an archive that was read and written again', () => {
  it('is restored', async () => {
    await restore(await forgeArchive(archive, () => undefined), 'same')
    const same = new TestBranches(service, 'same')
    expect(await same.record('dev', 'people', 'p1')).toMatchObject({ name: 'Bob' })
    const { database } = await restoreWhole(await forgeArchive(whole, () => undefined))
    const [row] = await database.query<{ count: number }>(sql`
      select count(*)::integer as count from offshoot.databases where name in ('shop', 'other')`)
    expect(row?.count).toBe(2)
  })
})
