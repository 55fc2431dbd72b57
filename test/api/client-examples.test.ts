import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import {
  type AnySchema,
  type Client,
  createClient,
  type OffshootError,
} from '../../packages/client/src/index.js'
import {
  type CodeBlock,
  findBlocks,
  findExamples,
  findWithoutExample,
  splitImports,
} from '../support/examples.js'
import { createTestService, type TestService } from '../support/service.js'

/* The examples of the client are compiled against the package, and run against a real service. */

const execute = promisify(execFile)
const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const SOURCES = path.join(ROOT, 'packages', 'client', 'src')

/** Files with the classes and functions that users call. */
const FILES = [
  'account',
  'branch',
  'client',
  'database',
  'files',
  'git',
  'proposal',
  'sql',
  'table',
  'workspace',
]
const OTHERS = ['drizzle', 'errors', 'kysely', 'resolution-of']
/** Functions of these files that only the package itself calls. */
const INTERNAL = ['createSqlRunner', 'errorOf']

/** The schema that the examples assume. */
const TYPES = `import type { File, Link, WithDefault } from '@offshoot/client'

export interface Shop {
  teams: { name: string }
  users: {
    email: string
    name: string | null
    age: number | null
    visits: WithDefault<number>
    team: Link<'teams'> | null
    photo: File | null
    taste: number[] | null
  }
}
`

const COLUMNS = [
  { name: 'email', type: 'email', unique: true, notNull: true },
  { name: 'name', type: 'string' },
  { name: 'age', type: 'int' },
  { name: 'visits', type: 'int', notNull: true, defaultValue: '0' },
  { name: 'team', type: 'link', link: { table: 'teams' } },
  { name: 'photo', type: 'file' },
  { name: 'taste', type: 'vector', vector: { dimension: 2 } },
] as const

const sourceOf = (name: string) => readFile(path.join(SOURCES, `${name}.ts`), 'utf8')
const readmeOf = () => readFile(path.join(ROOT, 'packages', 'client', 'README.md'), 'utf8')

describe('every method of the client', () => {
  it.each(FILES)('in %s.ts has an example', async (name) => {
    const missing = findWithoutExample(name, await sourceOf(name))
    expect(missing.filter((each) => !INTERNAL.includes(each.split(' ')[1] ?? ''))).toEqual([])
  })
})

describe('the examples of the client', () => {
  let folder: string
  let service: TestService
  let url: string
  let examples: CodeBlock[]

  beforeAll(async () => {
    service = await createTestService()
    url = await service.app.listen({ port: 0, host: '127.0.0.1' })
    folder = await realpath(await mkdtemp(path.join(tmpdir(), 'offshoot-examples-')))
    const sources = await Promise.all([...FILES, ...OTHERS].map(sourceOf))
    examples = sources.flatMap((text, index) =>
      findExamples(`${[...FILES, ...OTHERS][index]}.ts`, text),
    )
    await symlink(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'))
    await writeFile(path.join(folder, 'package.json'), '{"type": "module"}')
    await writeFile(path.join(folder, 'shop.ts'), TYPES)
    for (const [index, { code }] of examples.entries()) {
      await writeFile(path.join(folder, `example-${index}.ts`), moduleOf(code))
    }
    const blocks = findBlocks('README.md', await readmeOf(), 'ts')
    await writeFile(
      path.join(folder, 'readme.ts'),
      `${blocks.map(({ code }) => code).join('\n')}\nexport {}\n`,
    )
    await mkdir(path.join(folder, 'out'))
  })
  afterAll(async () => {
    await service?.close()
    if (folder !== undefined) await rm(folder, { recursive: true, force: true })
  })

  /** Creates a database with the tables and records that the examples assume, on the branch `seed`. */
  async function createShop() {
    const workspace = service.workspaceId
    const database = 'users'
    const client = createClient({
      ...{ url, apiKey: service.key, workspace, database, branch: 'main' },
    })
    await client.account.createDatabase(workspace, database)
    await client
      .branch()
      .applySchema([
        { addTable: { table: 'teams' } },
        { addColumn: { table: 'teams', column: { name: 'name', type: 'string', notNull: true } } },
        { addTable: { table: 'users' } },
        ...COLUMNS.map((column) => ({ addColumn: { table: 'users', column } })),
      ])
    await client.table('teams').create({ id: 'core', name: 'Core' })
    await client.table('users').create({
      ...{ id: 'ada', email: 'ada@example.org', name: 'Ada', age: 36, team: 'core' },
      photo: { name: 'ada.txt', mediaType: 'text/plain', base64Content: 'YWRh' },
    })
    await client.branch().fork('seed')
    return client
  }

  /** Undoes what the last example did. */
  async function restore(client: Client<AnySchema>) {
    await client.branch().reset({ to: 'seed' })
    await client
      .branch('dev')
      .delete()
      .catch((error: OffshootError) => expect(error.status).toBe(404))
    const dev = await client.branch().fork('dev')
    await dev.table('users').update('ada', { age: 37 })
  }

  it('compile in strict mode', async () => {
    const compiler = path.join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc')
    const files = [...examples.map((_, index) => `example-${index}.ts`), 'readme.ts']
    const { stdout } = await execute(
      process.execPath,
      [
        compiler,
        ...['--module', 'nodenext', '--target', 'es2023', '--lib', 'es2023,dom,dom.asynciterable'],
        ...['--strict', '--skipLibCheck', '--types', 'node', '--outDir', 'out', ...files],
      ],
      { cwd: folder },
    ).catch((error: { stdout: string }) => error)
    const named = stdout.replaceAll(/example-(\d+)\.ts/g, (_, n) => examples[n]?.place ?? '')
    expect(named).toBe('')
  })

  it('run', async () => {
    const log = vi.spyOn(console, 'log').mockImplementation(() => undefined)
    // An example reads the key from the environment, as a program does.
    vi.stubEnv('OFFSHOOT_API_KEY', service.key)
    vi.stubEnv('OFFSHOOT_BRANCH', 'dev')
    const failed: string[] = []
    try {
      const client = await createShop()
      for (const [index, { place }] of examples.entries()) {
        await restore(client)
        const file = pathToFileURL(path.join(folder, 'out', `example-${index}.js`)).href
        const { run } = await import(/* @vite-ignore */ file)
        await run(client).catch((error: unknown) => failed.push(`${place}: ${error}`))
      }
    } finally {
      log.mockRestore()
      vi.unstubAllEnvs()
    }
    expect(examples.length).toBeGreaterThan(60)
    expect(failed).toEqual([])
  })

  it('of the README make up a program that runs from start to end', async () => {
    const workspace = service.workspaceId
    const account = createClient({
      ...{ url, apiKey: service.key, workspace, database: 'shop', branch: 'main' },
    }).account
    await account.createDatabase(workspace, 'shop')
    const { stdout } = await execute(process.execPath, ['out/readme.js'], {
      cwd: folder,
      env: { ...process.env, OFFSHOOT_URL: url, OFFSHOOT_API_KEY: service.key },
    })
    const shown = findBlocks('README.md', await readmeOf(), 'text')
    expect(stdout).toBe(shown.map(({ code }) => code).join(''))
  })
})

/** A module with the code of an example as a function of a client. */
function moduleOf(code: string): string {
  const { imports, body } = splitImports(code)
  const declaresClient = /= create(?:Client|Account)\b/.test(body)
  return [
    "import { type Client, createClient, OffshootError } from '@offshoot/client'",
    "import type { Shop } from './shop.js'",
    imports,
    // An example that creates a client shows the address of a service that this test does not run.
    `export async function run(client: Client<Shop>) {`,
    declaresClient ? `void (async () => {\n${body}\n})` : body,
    '}',
    'void createClient; void OffshootError',
  ].join('\n')
}
