import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core'
import { publint } from 'publint'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { endAll, startOffshoot } from '../support/process.js'
import { LONG } from '../support/random.js'

const execute = promisify(execFile)

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const PACKAGES = ['contract', 'embedded-postgres', 'client', 'console', 'server', 'cli']

const manifestOf = async (name: string) =>
  JSON.parse(await readFile(path.join(ROOT, 'packages', name, 'package.json'), 'utf8'))

/** A program of a user of the client. */
const PROGRAM_TEXT = `
import { createClient, type Link, OffshootError } from '@offshoot/client'

interface Shop {
  users: { name: string | null; boss: Link<'users'> | null }
}
const [url = '', apiKey = ''] = process.argv.slice(2)
const client = createClient<Shop>({ url, apiKey, database: 'shop', branch: 'main' })
const users = client.table('users')
await users.create({ id: 'ada', name: 'Ada' })
await users.create({ id: 'bob', boss: 'ada' })
const bob = await users.read('bob', { columns: { boss: { name: true } } })
const name: string | undefined = bob?.boss?.name
console.log(name)
// @ts-expect-error: there is no such column
await users.create({ nme: 'x' }).catch((error) => console.log((error as OffshootError).code))
`

describe.runIf(LONG)('the packages, installed from their archives into an empty folder', () => {
  let folder: string
  let app: string
  let dataDir: string

  beforeAll(async () => {
    folder = await realpath(await mkdtemp(path.join(tmpdir(), 'offshoot-packages-')))
    app = path.join(folder, 'app')
    dataDir = path.join(app, '.offshoot')
    await mkdir(app)
    const env = { ...process.env, npm_config_update_notifier: 'false' }
    const workspaces = PACKAGES.map((name) => `--workspace=packages/${name}`)
    const pack = ['pack', '--silent', '--pack-destination', folder, ...workspaces]
    await execute('npm', pack, { cwd: ROOT, env })
    const archives = (await readdir(folder)).filter((name) => name.endsWith('.tgz'))
    await writeFile(path.join(app, 'package.json'), '{"type": "module", "private": true}')
    await execute(
      'npm',
      [
        ...['install', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund'],
        ...archives.map((name) => path.join(folder, name)),
      ],
      { cwd: app, env },
    )
  })
  afterAll(async () => {
    await endAll([dataDir])
    await rm(folder, { recursive: true, force: true })
  })

  const program = () => path.join(app, 'node_modules', '.bin', 'offshoot')

  it('contain the bundles of the server and the commands, with the licenses of their parts', async () => {
    for (const [name, module, part] of [
      ['@offshoot/server', 'main.js', 'fastify'],
      ['offshoot', 'program.js', 'commander'],
    ] as const) {
      const bundle = path.join(app, 'node_modules', name, 'bundle')
      expect(await readdir(bundle)).toContain(module)
      expect(await readFile(path.join(bundle, 'LICENSES.txt'), 'utf8')).toMatch(
        new RegExp(`^${part} \\d.* \\(MIT\\)$`, 'm'),
      )
    }
  })

  it('contain no tests, and everything that they refer to', async () => {
    for (const name of PACKAGES) {
      const manifest = await manifestOf(name)
      const installed = path.join(app, 'node_modules', manifest.name)
      const files = await readdir(installed, { recursive: true })
      expect(files.filter((file) => file.includes('.test.'))).toEqual([])
      for (const entry of Object.values(manifest.exports ?? {}) as Record<string, string>[]) {
        for (const file of Object.values(entry).filter((target) => !target.includes('*'))) {
          expect(files, manifest.name).toContain(path.normalize(file))
        }
      }
    }
  })

  it('have a licence, a README, and fields that publint finds no fault with', async () => {
    for (const name of PACKAGES) {
      const { name: packageName, ...manifest } = await manifestOf(name)
      const installed = path.join(app, 'node_modules', packageName)
      const files = await readdir(installed)
      expect(files, name).toEqual(expect.arrayContaining(['LICENSE', 'README.md']))
      expect(manifest, name).toMatchObject({ license: 'Apache-2.0', engines: { node: '>=20.19' } })
      const { messages } = await publint({ pkgDir: installed, pack: false, strict: true })
      expect(messages.map(({ code, path: at }) => `${name}: ${code} ${at.join('.')}`)).toEqual([])
    }
  })

  it('have types that every kind of module resolution finds', async () => {
    for (const name of ['client', 'embedded-postgres']) {
      const { name: packageName, version } = await manifestOf(name)
      const archive = `${packageName.replace('@', '').replace('/', '-')}-${version}.tgz`
      const data = await readFile(path.join(folder, archive))
      const checked = await checkPackage(createPackageFromTarballData(new Uint8Array(data)))
      if (!checked.types) throw new Error(`${name} has no types`)
      // An ES module cannot be required by older versions of Node, and `exports` need a newer resolution.
      const { problems } = checked
      const faults = problems.filter(
        (problem) =>
          problem.kind !== 'CJSResolvesToESM' &&
          !('resolutionKind' in problem && problem.resolutionKind === 'node10'),
      )
      expect(faults, name).toEqual([])
    }
  })

  it('print their version', async () => {
    const { version } = await manifestOf('cli')
    expect((await execute(program(), ['--version'])).stdout).toBe(`${version}\n`)
  })

  it('run nothing of a project that has folders like their own repository', async () => {
    const packages = path.join(app, 'packages')
    for (const name of ['cli', 'console'])
      await mkdir(path.join(packages, name), { recursive: true })
    await writeFile(path.join(packages, 'cli', 'tsconfig.json'), '{}')
    await writeFile(path.join(packages, 'console', 'build.js'), "throw new Error('it was run')")
    try {
      const { stderr } = await execute(program(), ['start', '--help'])
      expect(stderr).toBe('')
    } finally {
      await rm(packages, { recursive: true })
    }
  })

  it('start the service, and a typed program works with it', async () => {
    const banner = await startOffshoot(dataDir, { cwd: app, program: program() }).ready()
    const page = await (await fetch(`${banner.address}/console/`)).text()
    const [, script = ''] = /src="([^"]+\.js)"/.exec(page) ?? []
    expect((await fetch(new URL(script, banner.address))).status).toBe(200)
    const apiKey = banner.key ?? ''
    const env = {
      PATH: process.env.PATH ?? '',
      HOME: app,
      OFFSHOOT_URL: banner.address,
      OFFSHOOT_API_KEY: apiKey,
      OFFSHOOT_DATABASE: 'shop',
    }
    await execute(program(), ['db', 'create', 'shop'], { env, cwd: app })
    await writeFile(path.join(app, 'users.csv'), 'id,name,boss\nroot,Root,\n')
    const table = ['--table', 'users', '--create', '--yes']
    await execute(program(), ['import', 'users.csv', ...table], { env, cwd: app })
    const schema = path.join(app, 'offshoot.schema.json')
    const link = { name: 'boss', type: 'link', link: { table: 'users' } }
    const columns = [{ name: 'name', type: 'string' }, link]
    await writeFile(schema, JSON.stringify({ tables: [{ name: 'users', columns }] }))
    await execute(program(), ['schema', 'apply', '--yes', '--allow-data-loss'], { env, cwd: app })
    await writeFile(path.join(app, 'use.ts'), PROGRAM_TEXT)
    const compiler = path.join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc')
    const options = ['--module', 'nodenext', '--target', 'es2023', '--strict', '--types', 'node']
    const types = ['--typeRoots', path.join(ROOT, 'node_modules', '@types')]
    await execute(process.execPath, [compiler, ...options, ...types, 'use.ts'], { cwd: app })
    const { stdout } = await execute(process.execPath, [
      path.join(app, 'use.js'),
      banner.address,
      apiKey,
    ])
    expect(stdout).toBe('Ada\ninvalid_record\n')
  })
})

describe.runIf(LONG)('the build of the console', () => {
  it('is the same if NODE_ENV is development', async () => {
    const parent = await mkdtemp(path.join(tmpdir(), 'offshoot-console-'))
    try {
      const into = path.join(parent, 'dist')
      const build = new URL('../../packages/console/build.js', import.meta.url).href
      const program = `const { buildConsole } = await import(${JSON.stringify(build)})
        await buildConsole(${JSON.stringify(into)})`
      const env = { ...process.env, NODE_ENV: 'development' }
      await execute(process.execPath, ['--input-type=module', '-e', program], { env })
      // Names have hashes of the contents.
      const built = await readdir(path.join(into, 'assets'))
      const known = await readdir(path.join(ROOT, 'packages', 'console', 'dist', 'assets'))
      expect(built.sort()).toEqual(known.sort())
    } finally {
      await rm(parent, { recursive: true, force: true })
    }
  })
})
