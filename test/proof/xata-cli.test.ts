import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { makeDataFolder } from '../support/data-folder.js'
import { inLongForm } from '../support/long-form.js'
import { endAll, type OffshootProcess, request, startOffshoot } from '../support/process.js'
import { installPrograms } from '../support/programs.js'

/*
 * Runs the published command line of Xata Lite, unchanged, against the service as its users run it.
 * It always exits with code 0, so the tests check its output.
 */

const PACKAGES = fileURLToPath(new URL('../../node_modules', import.meta.url))

const INSTALL_TIMEOUT_MS = 300_000

const SCHEMA = {
  tables: [
    {
      name: 'teams',
      columns: [
        { name: 'name', type: 'string', notNull: true, defaultValue: 'Nameless' },
        { name: 'slogan', type: 'text', notNull: true, defaultValue: '' },
        { name: 'labels', type: 'multiple' },
      ],
    },
    {
      name: 'people',
      columns: [
        { name: 'email', type: 'email', unique: true },
        { name: 'age', type: 'int' },
        { name: 'joined', type: 'datetime' },
        { name: 'team', type: 'link', link: { table: 'teams' } },
        { name: 'config', type: 'json' },
        { name: 'photo', type: 'file' },
        { name: 'shape', type: 'vector', vector: { dimension: 3 } },
      ],
    },
  ],
}

/** An application that uses the generated client. */
const APPLICATION = `
  import { getXataClient } from './xata.js'
  const { db } = getXataClient()
  const team = await db.teams.create({ labels: ['red'] })
  await db.people.create({ email: 'ada@example.com', joined: new Date(0), team, config: { a: [1] } })
  const people = await db.people.select(['*', 'team.*']).filter('team.labels', 'red').getAll()
  console.log(JSON.stringify(people.map(({ email, joined, team, config }) =>
    [email, joined, team.name, config])))`

let program: string
let folder: string
let app: string
let service: OffshootProcess
let address: string
let workspace: string
let key: string
let provider: string

beforeAll(async () => {
  program = path.join(await installPrograms(), '@xata.io/cli/bin/run.js')
  folder = await makeDataFolder('xata-cli')
  app = path.join(folder, 'app')
  await mkdir(app)
  await symlink(PACKAGES, path.join(app, 'node_modules'))
  await writeFile(path.join(app, 'package.json'), '{"name":"app","type":"module"}')
  service = startOffshoot(path.join(folder, 'data'))
  const banner = await service.ready()
  workspace = banner.workspaceId
  key = banner.key ?? ''
  address = banner.address
  const { port } = new URL(address)
  provider = `http://localhost:${port},http://{workspaceId}.{region}.localhost:${port}`
}, INSTALL_TIMEOUT_MS)
afterAll(async () => {
  await service?.end('SIGTERM')
  await endAll([path.join(folder, 'data')])
  await rm(folder, { recursive: true, force: true })
})

async function run(args: readonly string[], options: { cwd?: string; env?: object } = {}) {
  const child = spawn(process.execPath, args, {
    cwd: options.cwd ?? app,
    env: {
      PATH: process.env.PATH,
      HOME: folder,
      XATA_API_KEY: key,
      XATA_API_PROVIDER: provider,
      CI: '1',
      NO_COLOR: '1',
      OCLIF_COLUMNS: '400',
      ...options.env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let printed = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      printed += text
    })
  }
  await once(child, 'close')
  return printed
}

const xata = (...args: readonly string[]) => run([program, ...args])
const urlOf = (database: string) =>
  `http://${workspace}.local.localhost:${new URL(address).port}/db/${database}`
/** Returns the options for a database and, if given, a branch. */
const on = (database: string, branch?: string) => [
  '--db',
  urlOf(database),
  ...(branch === undefined ? [] : ['-b', branch]),
]
const call = async (method: string, url: string, body?: unknown) =>
  (await request(address, method, url, { key, body })).body
const api = (method: string, url: string, body?: unknown) =>
  call(method, `/${workspace}.local${url}`, body)

async function createDatabase(name: string): Promise<void> {
  await call('PUT', `/workspaces/${workspace}/dbs/${name}`, { region: 'local' })
}

/**
 * A command takes a second of CPU time to start. The short form logs in, uploads a schema, uses a generated client and
 * imports a file.
 */

describe('the published command line', () => {
  it('logs in with a key of the service, and with no other', async () => {
    const login = (apiKey: string, home: string) => {
      const args = [program, 'auth', 'login', '--host', provider, '--api-key', apiKey]
      return run(args, { env: { HOME: path.join(folder, home) } })
    }
    expect(await login(key, 'a')).toContain('All set!')
    expect(await login('wrong', 'b')).toContain('Invalid API key')
  })

  inLongForm('creates, lists and deletes workspaces', async () => {
    expect(await xata('workspace', 'create', 'Second place')).toContain('successfully created')
    const list = JSON.parse(await xata('workspace', 'list', '--json'))
    expect(list).toMatchObject([
      { name: 'Home', role: 'owner' },
      { name: 'Second place', role: 'owner' },
    ])
    const deleted = await xata('workspace', 'delete', '--workspace', list[1].id, '-f')
    expect(deleted).toContain('successfully deleted')
    expect((await call('GET', '/workspaces')).workspaces).toHaveLength(1)
  })

  inLongForm('creates, renames, lists and deletes databases', async () => {
    const inWorkspace = ['--workspace', workspace]
    const created = await xata('dbs', 'create', 'first', ...inWorkspace, '--region', 'local')
    expect(created).toContain('Database first successfully created')
    const renamed = await xata('dbs', 'rename', 'first', 'second', ...inWorkspace, '-f')
    expect(renamed).toContain('successfully renamed')
    const list = JSON.parse(await xata('dbs', 'list', ...inWorkspace, '--json'))
    expect(list).toMatchObject([{ name: 'second', region: 'local' }])
    const deleted = await xata('dbs', 'delete', 'second', ...inWorkspace, '-f')
    expect(deleted).toContain('successfully deleted')
    const nobody = await xata('dbs', 'list', '--workspace', 'nobody-abc123')
    expect(nobody).toContain('workspace [nobody-abc123] not found')
  })

  it('uploads a schema, which makes and drops what is different', async () => {
    await createDatabase('shop')
    const operations = [
      { addTable: { table: 'teams' } },
      { addColumn: { table: 'teams', column: { name: 'old', type: 'text' } } },
    ]
    await api('POST', '/db/shop:main/schema/update', { operations })
    await writeFile(path.join(app, 'schema.json'), JSON.stringify(SCHEMA))
    const uploaded = await xata('schema', 'upload', 'schema.json', ...on('shop', 'main'), '--yes')
    expect(uploaded).toContain('CREATE table  people')
    expect(uploaded).toContain('ADD column  people.team')
    expect(uploaded).toContain('DROP column  teams.old')
    expect((await api('GET', '/db/shop:main')).schema).toMatchObject(SCHEMA)
  })

  inLongForm('dumps a schema without its indexes, and uploads it without losing them', async () => {
    const asked = await api('PUT', '/db/shop:main/tables/people/columns/age/index')
    expect(asked).toMatchObject({ column: 'age' })
    await xata('schema', 'dump', ...on('shop', 'main'), '-f', 'dumped.json')
    expect(await readFile(path.join(app, 'dumped.json'), 'utf8')).not.toContain('"index')
    const uploaded = await xata('schema', 'upload', 'dumped.json', ...on('shop', 'main'), '--yes')
    expect(uploaded).toContain('Schema is up to date')
    const { indexes } = await api('GET', '/db/shop:main/tables/people/indexes')
    expect(indexes).toContainEqual(asked)
  })

  it('generates a client that works with the database', async () => {
    expect(await xata('codegen', ...on('shop', 'main'), '-o', 'xata.js')).toContain('Generated')
    const generated = await readFile(path.join(app, 'xata.js'), 'utf8')
    expect(generated).toContain(`databaseURL: "${urlOf('shop')}"`)
    await writeFile(path.join(app, 'app.js'), APPLICATION)
    expect(JSON.parse(await run(['app.js'], { env: { XATA_BRANCH: 'main' } }))).toEqual([
      ['ada@example.com', '1970-01-01T00:00:00.000Z', 'Nameless', { a: [1] }],
    ])
  })

  inLongForm('creates, lists and deletes branches', async () => {
    const shop = on('shop')
    expect(await xata('branch', 'create', 'dev', ...shop)).toContain('dev successfully created')
    await xata('branch', 'create', 'later', '--from', 'dev', ...shop)
    const list = JSON.parse(await xata('branch', 'list', ...shop, '--json'))
    expect(list).toMatchObject([{ name: 'dev' }, { name: 'later' }, { name: 'main' }])
    expect(await xata('branch', 'delete', 'later', ...shop, '-f')).toContain('successfully deleted')
    expect((await api('GET', '/dbs/shop')).branches).toHaveLength(2)
  })

  inLongForm(
    'imports CSV into a table of its own making, without the rows that do not fit',
    async () => {
      await createDatabase('imports')
      const rows = [
        'id,name,price,since,active',
        'chair,Chair,12.5,2024-05-01T10:00:00Z,true',
        'not an id,Bad,1,2024-05-01T10:00:00Z,true',
        `stool,${'x'.repeat(2049)},3,2024-05-01T10:00:00Z,false`,
        'table,Table,100,2024-05-02T10:00:00Z,false',
      ]
      await writeFile(path.join(app, 'products.csv'), rows.join('\n'))
      const types = ['--types', 'string,string,float,datetime,bool']
      const options = ['--table', 'products', '--create', '--columns', rows[0] ?? '', ...types]
      const printed = await xata(
        'import',
        'csv',
        'products.csv',
        ...options,
        ...on('imports', 'main'),
      )
      expect(printed).toContain('2 rows successfully imported 2 errors')
      expect(printed).toContain('not an id')
      const { records } = await api('POST', '/db/imports:main/tables/products/query', {})
      expect(records).toMatchObject([
        {
          id: 'chair',
          name: 'Chair',
          price: 12.5,
          since: '2024-05-01T10:00:00.000Z',
          active: true,
        },
        { id: 'table', name: 'Table', price: 100, active: false },
      ])
    },
  )

  inLongForm('imports CSV with types that it guesses, in several transactions', async () => {
    const rows = Array.from({ length: 2500 }, (_, index) => `${index},city ${index},${index / 2}`)
    await writeFile(path.join(app, 'cities.csv'), ['rank,name,size', ...rows].join('\n'))
    const options = ['--table', 'cities', '--create', ...on('imports', 'main')]
    const printed = await xata('import', 'csv', 'cities.csv', ...options)
    expect(printed).toContain('2500 rows successfully imported 0 errors')
    const { aggs } = await api('POST', '/db/imports:main/tables/cities/aggregate', {
      aggs: { ranks: { sum: { column: 'rank' } }, sizes: { max: { column: 'size' } } },
    })
    expect(aggs).toEqual({ ranks: (2499 * 2500) / 2, sizes: 1249.5 })
  })

  inLongForm('fills tables with random data of every type', async () => {
    const printed = await xata('random-data', ...on('shop', 'dev'), '--records', '20')
    expect(printed).toContain('Inserted 40 random records across 2 tables')
    const { aggs } = await api('POST', '/db/shop:dev/tables/people/aggregate', {})
    expect(aggs).toEqual({ count: 20 })
  })

  inLongForm('pulls migrations from one branch and pushes them to another', async () => {
    const shop = on('shop')
    const addColumn = { table: 'teams', column: { name: 'motto', type: 'text' } }
    await api('POST', '/db/shop:dev/schema/update', { operations: [{ addColumn }] })
    expect(await xata('pull', 'dev', ...shop)).toContain('pulled 4 migrations from dev')
    expect(await xata('diff', 'main', ...shop)).toContain('+ teams.motto')
    expect(await xata('push', 'main', ...shop, '-y')).toContain('Pushed 1 migrations to main')
    const { schema } = await api('GET', '/db/shop:main')
    expect(schema.tables[0].columns.at(-1)).toEqual(addColumn.column)
  })

  inLongForm('sets up a project for a database, and dumps its schema', async () => {
    await createDatabase('fresh')
    // Without a package.json, the command does not install the client.
    const project = path.join(folder, 'project')
    await mkdir(project)
    await writeFile(path.join(project, 'schema.json'), JSON.stringify(SCHEMA))
    const init = ['init', ...on('fresh'), '--schema', 'schema.json', '--sdk', '-y']
    const printed = await run([program, ...init], { cwd: project })
    expect(printed).toContain('Project setup with Xata')
    const read = (file: string) => readFile(path.join(project, file), 'utf8')
    expect(JSON.parse(await read('.xatarc'))).toMatchObject({ databaseURL: urlOf('fresh') })
    expect(await read('.env')).toContain(`XATA_API_KEY=${key}`)
    // From now on, the command reads the database from the project's files.
    const dumped = await run([program, 'schema', 'dump'], { cwd: project })
    expect(JSON.parse(dumped)).toMatchObject(SCHEMA)
  })
})
