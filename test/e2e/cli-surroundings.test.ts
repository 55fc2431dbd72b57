import { execFile, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import {
  chmod,
  chown,
  copyFile,
  mkdir,
  mkdtemp,
  readFile,
  realpath,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createClient } from '../../packages/client/src/index.js'
import { inLongForm } from '../support/long-form.js'
import {
  type Banner,
  endAll,
  type OffshootProcess,
  PROGRAM,
  startOffshoot,
  until,
} from '../support/process.js'

/* The command `offshoot` among files, listeners and branches of git that others have made. */

const execute = promisify(execFile)

interface Outcome {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

interface Context {
  readonly cwd: string
  readonly env?: NodeJS.ProcessEnv
}

/** Runs a program without a terminal. Only the given variables are set, and those that every program needs. */
function run(program: string, args: readonly string[], { cwd, env = {} }: Context) {
  return new Promise<Outcome>((resolve) => {
    const child = spawn(program, args, {
      cwd,
      env: { PATH: process.env.PATH ?? '', HOME: home, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let stdout = ''
    let stderr = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text
    })
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr += text
    })
    child.once('close', (code) => resolve({ code, stdout, stderr }))
  })
}

const offshoot = (args: readonly string[], context: Context) =>
  run(process.execPath, [PROGRAM, ...args], context)

let folder: string
let home: string
let folders = 0

beforeAll(async () => {
  folder = await realpath(await mkdtemp(path.join(tmpdir(), 'offshoot-surroundings-')))
  home = path.join(folder, 'home')
  await mkdir(home)
})
afterAll(() => rm(folder, { recursive: true, force: true }))

async function newFolder(name = `folder${folders++}`): Promise<string> {
  const created = path.join(folder, name)
  await mkdir(created, { recursive: true })
  return created
}

/** A server of somebody else. It keeps the keys that it gets, and answers like a service with hostile texts. */
class Listener {
  readonly keys: string[] = []
  message = 'refused'
  /** Whether requests get no answer. */
  isSilent = false
  #server: Server | undefined

  async start(port = 0): Promise<string> {
    this.#server = createServer((request, response) => {
      this.keys.push(String(request.headers.authorization))
      if (this.isSilent) return
      response.writeHead(400, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ message: this.message, code: 'invalid_request', id: 'x' }))
    })
    await new Promise<void>((resolve) => this.#server?.listen(port, '127.0.0.1', resolve))
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async stop(): Promise<void> {
    this.#server?.closeAllConnections()
    await new Promise((resolve) => this.#server?.close(resolve))
  }
}

let listener: Listener
let foreign: string
beforeEach(async () => {
  listener = new Listener()
  foreign = await listener.start()
})
afterEach(() => listener.stop())

describe('the key of a service', () => {
  let dataDir: string
  let project: string
  let service: OffshootProcess
  let banner: Banner

  beforeAll(async () => {
    project = await newFolder('project')
    dataDir = path.join(project, '.offshoot')
    service = startOffshoot(dataDir)
    banner = await service.ready()
  })
  afterAll(() => endAll([dataDir]))

  it('is found by commands in its folder, on whatever port the service listens', async () => {
    const outcome = await offshoot(['db', 'create', 'shop'], { cwd: project })
    expect(outcome).toMatchObject({ code: 0, stdout: '' })
    const below = path.join(project, 'src', 'deep')
    await mkdir(below, { recursive: true })
    expect((await offshoot(['link', 'shop'], { cwd: project })).code).toBe(0)
    const who = await offshoot(['whoami', '--json'], { cwd: below })
    expect(JSON.parse(who.stdout)).toMatchObject({ url: banner.address })
  })

  it('is not sent where a file of a project or a flag points', async () => {
    const file = path.join(project, '.offshoot.json')
    const before = await readFile(file, 'utf8')
    await writeFile(file, JSON.stringify({ url: foreign, database: 'shop' }))
    for (const args of [['db', 'ls'], ['status'], ['checkout', '-c', 'dev']]) {
      const outcome = await offshoot(args, { cwd: project })
      expect(outcome.code).toBe(2)
      expect(outcome.stderr).toContain(`no API key for ${foreign}`)
      expect(outcome.stderr).toContain(`The service of this folder is at ${banner.address}`)
    }
    await writeFile(file, before)
    expect((await offshoot(['db', 'ls', '--url', foreign], { cwd: project })).code).toBe(2)
    const env = { OFFSHOOT_URL: foreign }
    expect((await offshoot(['db', 'ls'], { cwd: project, env })).code).toBe(2)
    expect(listener.keys).toEqual([])
  })

  it('of the environment is sent to the address of the environment only', async () => {
    const cwd = await newFolder()
    await writeFile(path.join(cwd, '.offshoot.json'), JSON.stringify({ url: foreign }))
    const key = 'off_environment'
    const alone = await offshoot(['db', 'ls'], { cwd, env: { OFFSHOOT_API_KEY: key } })
    expect(alone.code).toBe(2)
    expect(alone.stderr).toContain('OFFSHOOT_API_KEY is for http://127.0.0.1:6001')
    const pair = { OFFSHOOT_API_KEY: key, OFFSHOOT_URL: banner.address }
    const other = await offshoot(['db', 'ls', '--url', foreign], { cwd, env: pair })
    expect(other.code).toBe(2)
    expect(other.stderr).toContain(`OFFSHOOT_API_KEY is for ${banner.address}`)
    expect(listener.keys).toEqual([])
    // The user names the address.
    for (const [args, url] of [
      [['db', 'ls', '--url', foreign], ''],
      [['db', 'ls'], foreign],
    ] as const) {
      await offshoot(args, { cwd, env: { OFFSHOOT_API_KEY: key, OFFSHOOT_URL: url } })
      expect(listener.keys.splice(0)).toEqual([`Bearer ${key}`])
    }
  })

  it('of a login is sent to the address of the login only, in any spelling', async () => {
    const cwd = await newFolder()
    const key = banner.key ?? ''
    const config = { XDG_CONFIG_HOME: path.join(cwd, 'config') }
    const client = spawn(process.execPath, [PROGRAM, 'login', '--url', `${banner.address}/`], {
      cwd,
      env: { PATH: process.env.PATH ?? '', HOME: home, ...config },
      stdio: ['pipe', 'ignore', 'ignore'],
    })
    client.stdin.end(key)
    await new Promise((resolve) => client.once('close', resolve))
    const address = banner.address.replace('http:', 'HTTP:')
    const found = await offshoot(['whoami', '--url', address], { cwd, env: config })
    expect(found.code).toBe(0)
    await writeFile(path.join(cwd, '.offshoot.json'), JSON.stringify({ url: foreign }))
    expect((await offshoot(['whoami'], { cwd, env: config })).code).toBe(2)
    expect(listener.keys).toEqual([])
  })

  it('is asked for at the address of the settings of the service', async () => {
    const cwd = await newFolder()
    const { port } = new URL(foreign)
    const env = { OFFSHOOT_PORT: port, OFFSHOOT_API_KEY: 'off_x' }
    await offshoot(['db', 'ls'], { cwd, env })
    expect(listener.keys).toEqual(['Bearer off_x'])
  })

  inLongForm('makes a file for a project that works on other machines', async () => {
    const linked = JSON.parse(await readFile(path.join(project, '.offshoot.json'), 'utf8'))
    expect(linked).toEqual({ database: 'shop' })
    // Another folder of this machine remembers the address, but not in the file.
    const cwd = await newFolder()
    const env = { XDG_CONFIG_HOME: path.join(cwd, 'config') }
    const pair = { ...env, OFFSHOOT_API_KEY: banner.key, OFFSHOOT_URL: banner.address }
    expect((await offshoot(['link', 'shop'], { cwd, env: pair })).code).toBe(0)
    const file = await readFile(path.join(cwd, '.offshoot.json'), 'utf8')
    expect(JSON.parse(file)).toEqual({ database: 'shop' })
    const key = { ...env, OFFSHOOT_API_KEY: banner.key }
    const who = await offshoot(['whoami', '--json'], { cwd, env: key })
    expect(JSON.parse(who.stdout)).toMatchObject({ url: banner.address })
  })

  it('is not used from a folder that other users can write to', async () => {
    await chmod(dataDir, 0o777)
    try {
      for (const env of [{}, { OFFSHOOT_DATA_DIR: dataDir }]) {
        const outcome = await offshoot(['db', 'ls', '--url', banner.address], { cwd: project, env })
        expect(outcome.code).toBe(2)
      }
    } finally {
      await chmod(dataDir, 0o700)
    }
    expect((await offshoot(['db', 'ls'], { cwd: project })).code).toBe(0)
  })

  it('is not sent to another listener on the port of a service that has ended', async () => {
    const { port } = new URL(banner.address)
    await service.end('SIGTERM')
    const other = new Listener()
    expect(await other.start(Number(port))).toBe(banner.address)
    try {
      for (const env of [{}, { OFFSHOOT_URL: banner.address }, { OFFSHOOT_PORT: port }]) {
        const outcome = await offshoot(['db', 'ls'], { cwd: project, env })
        expect(outcome.code).toBe(2)
        expect(outcome.stderr).toContain(`The service of ${dataDir} is not running`)
      }
      // The service was killed, and could not tidy up.
      await other.stop()
      service = startOffshoot(dataDir, { env: { OFFSHOOT_PORT: port } })
      await service.ready()
      expect((await offshoot(['db', 'ls'], { cwd: project })).code).toBe(0)
      await service.end('SIGKILL')
      await other.start(Number(port))
      expect((await offshoot(['db', 'ls'], { cwd: project })).code).toBe(2)
      expect(other.keys).toEqual([])
    } finally {
      await other.stop()
    }
  })
})

describe('a file of a project', () => {
  const isRoot = process.getuid?.() === 0

  it.runIf(isRoot)('of another user is ignored, with a word', async () => {
    const above = await newFolder()
    const cwd = path.join(above, 'own', 'project')
    await mkdir(cwd, { recursive: true })
    const file = path.join(above, '.offshoot.json')
    await writeFile(file, '{"database": "theirs"}')
    const env = { OFFSHOOT_URL: foreign, OFFSHOOT_API_KEY: 'off_x' }
    await chown(file, 12345, 12345)
    const outcome = await offshoot(['status'], { cwd, env })
    expect(outcome.stderr).toContain(`ignored ${file}, because it belongs to another user`)
    expect(outcome.stderr).toContain('no database')
    const called = await offshoot(['branch', 'ls'], { cwd, env: { ...env, SUDO_UID: '12345' } })
    expect(called.stderr).not.toContain('ignored')
    // A data folder of another user names any service.
    const data = path.join(cwd, '.offshoot')
    await mkdir(data)
    await writeFile(path.join(data, 'api-key'), 'off_theirs')
    await chown(data, 12345, 12345)
    expect((await offshoot(['db', 'ls'], { cwd })).stderr).not.toContain(data)
  })

  it('is not looked for above the work tree of git, or above the home folder', async () => {
    const above = await newFolder()
    await writeFile(path.join(above, '.offshoot.json'), '{"database": "above"}')
    const repository = path.join(above, 'repository')
    const cwd = path.join(repository, 'src')
    await mkdir(cwd, { recursive: true })
    const env = { OFFSHOOT_URL: foreign, OFFSHOOT_API_KEY: 'off_x' }
    expect((await offshoot(['branch', 'ls'], { cwd, env })).stderr).toContain('refused')
    const inHome = { ...env, HOME: repository }
    expect((await offshoot(['branch', 'ls'], { cwd, env: inHome })).stderr).toContain('no database')
    await execute('git', ['init', '-q', repository])
    expect((await offshoot(['branch', 'ls'], { cwd, env })).stderr).toContain('no database')
    await writeFile(path.join(repository, '.offshoot.json'), '{"database": "top"}')
    expect((await offshoot(['branch', 'ls'], { cwd, env })).stderr).toContain('refused')
  })
})

describe('a terminal', () => {
  it('gets no control character from a server, a name or an argument', async () => {
    const cwd = await newFolder()
    listener.message = 'a\u001b]0;title\u0007b\u009b2Jc\u0085d\u202ee'
    const env = { OFFSHOOT_URL: foreign, OFFSHOOT_API_KEY: 'off_x', OFFSHOOT_DATABASE: 'x' }
    for (const args of [
      ['db', 'ls'],
      ['branch', 'ls', '--url', `${foreign}\u009b2J`],
      ['import', 'x\u009b2J\u001b[2J.csv', '--table', 't'],
      ['brnch\u009b2J'],
      ['branch', 'rm', 'x\u009b2J'],
    ]) {
      const { stdout, stderr } = await offshoot(args, { cwd, env })
      expect(stderr).not.toBe('')
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are looked for
      expect(stdout + stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/)
    }
    const { stderr } = await offshoot(['db', 'ls'], { cwd, env })
    expect(stderr).toContain('b\\u009b2Jc')
  })
})

describe('the git hook', () => {
  let dataDir: string
  let banner: Banner
  let databases = 0

  beforeAll(async () => {
    dataDir = path.join(await newFolder(), 'data')
    banner = await startOffshoot(dataDir).ready()
  })
  afterAll(() => endAll([dataDir]))

  /** A repository with one commit on `main`, and a database for it. */
  async function createRepository(name?: string) {
    const top = await newFolder(name)
    const database = `hooked${databases++}`
    const apiKey = banner.key ?? ''
    const client = createClient({ url: banner.address, apiKey, database, branch: 'main' })
    await client.account.createDatabase(banner.workspaceId, database)
    const env = {
      XDG_CONFIG_HOME: path.join(home, 'config'),
      OFFSHOOT_URL: banner.address,
      OFFSHOOT_API_KEY: apiKey,
      OFFSHOOT_DATABASE: database,
      GIT_AUTHOR_NAME: 'A',
      GIT_AUTHOR_EMAIL: 'a@example.com',
      GIT_COMMITTER_NAME: 'A',
      GIT_COMMITTER_EMAIL: 'a@example.com',
    }
    const git = (...args: string[]) => run('git', args, { cwd: top, env })
    await git('init', '-q', '-b', 'main')
    await git('commit', '-q', '--allow-empty', '-m', 'first')
    const hook = (action: 'install' | 'uninstall', cwd = top) =>
      offshoot(['hook', action], { cwd, env })
    const names = async () => (await client.database.branches()).map((branch) => branch.name)
    const created = (name: string) => until(async () => (await names()).includes(name))
    const file = path.join(top, '.git', 'hooks', 'post-checkout')
    return { top, env, git, hook, names, created, file }
  }

  it('creates the branch, and runs no code of the branch that is checked out', async () => {
    const { top, git, hook, created } = await createRepository('it\'s a "folder" $(x) `y`')
    // What `npx` and `npm` would run.
    const trap = path.join(top, 'trap')
    const script = `#!/bin/sh\ntouch '${folder}/trapped'\n`
    await git('checkout', '-q', '-b', 'evil')
    await mkdir(path.join(top, 'node_modules', '.bin'), { recursive: true })
    for (const file of [trap, path.join(top, 'node_modules', '.bin', 'offshoot')]) {
      await writeFile(file, script)
      await chmod(file, 0o755)
    }
    await writeFile(path.join(top, '.npmrc'), `script-shell=${trap}\n`)
    await writeFile(path.join(top, 'package.json'), '{"dependencies": {"offshoot": "*"}}')
    await git('add', '-A', '-f')
    await git('commit', '-q', '-m', 'evil')
    await git('checkout', '-q', 'main')
    expect((await hook('install')).code).toBe(0)
    expect(await git('checkout', '-q', 'evil')).toMatchObject({ code: 0, stderr: '' })
    await created('evil')
    expect(existsSync(path.join(folder, 'trapped'))).toBe(false)
  })

  it('runs no command in node_modules that a branch has brought', async () => {
    const { top, git, hook, env, names, created } = await createRepository()
    const installed = path.join(top, 'node_modules', 'offshoot', 'bin', 'offshoot.js')
    await mkdir(path.dirname(installed), { recursive: true })
    await writeFile(path.join(top, '.gitignore'), 'node_modules\n')
    await git('add', '-A')
    await git('commit', '-q', '-m', 'ignore')
    await git('checkout', '-q', '-b', 'evil')
    await writeFile(installed, `require('fs').writeFileSync('${folder}/trapped-too', '')`)
    await git('add', '-f', 'node_modules')
    await git('commit', '-q', '-m', 'evil')
    await git('checkout', '-q', 'main')
    await mkdir(path.dirname(installed), { recursive: true })
    await writeFile(installed, `import('${PROGRAM}')\n`)
    const install = await run(process.execPath, [installed, 'hook', 'install'], { cwd: top, env })
    expect(install).toMatchObject({ code: 0 })
    await git('checkout', '-q', '-b', 'good')
    await created('good')
    const outcome = await git('checkout', '-q', 'evil')
    expect(outcome.code).toBe(0)
    expect(outcome.stderr).toMatch(/^offshoot: the git hook has done nothing: .*\n$/)
    expect(existsSync(path.join(folder, 'trapped-too'))).toBe(false)
    expect(await names()).not.toContain('evil')
    // A command among the files of the repository is not accepted at all.
    await copyFile(installed, path.join(top, 'own.js'))
    await writeFile(path.join(top, 'own.js'), `import('${PROGRAM}')\n`)
    const own = await run(process.execPath, [path.join(top, 'own.js'), 'hook', 'install'], {
      cwd: top,
      env,
    })
    expect(own.code).toBe(1)
    expect(own.stderr).toContain('npm install --global offshoot')
    expect((await hook('uninstall')).code).toBe(0)
  })

  inLongForm(
    'works in folders below the top, in worktrees, and with another folder of hooks',
    async () => {
      const { top, git, hook, names, created } = await createRepository()
      for (const name of ['one', 'two']) {
        await mkdir(path.join(top, 'apps', name), { recursive: true })
        await writeFile(path.join(top, 'apps', name, '.offshoot.json'), '{}')
      }
      await git('config', 'core.hooksPath', 'hooks here')
      expect((await hook('install', path.join(top, 'apps', 'one'))).code).toBe(0)
      expect((await hook('install', path.join(top, 'apps', 'two'))).code).toBe(0)
      expect(existsSync(path.join(top, 'hooks here', 'post-checkout'))).toBe(true)
      await rm(path.join(top, 'apps', 'two'), { recursive: true })
      expect(await git('checkout', '-q', '-b', 'below')).toMatchObject({ code: 0, stderr: '' })
      await created('below')
      await git('config', '--unset', 'core.hooksPath')
      await hook('install', path.join(top, 'apps', 'one'))
      await git('add', 'apps')
      await git('commit', '-q', '-m', 'apps')
      // The previous commit of a new worktree is all zeros.
      const tree = `${top}-tree`
      expect((await git('worktree', 'add', '-q', '-b', 'in-tree', tree)).code).toBe(0)
      await created('in-tree')
      // Without a git branch there is nothing to create.
      const before = await names()
      expect(await git('checkout', '-q', '--detach')).toMatchObject({ code: 0, stderr: '' })
      expect(await git('checkout', '-q', '--', 'apps')).toMatchObject({ code: 0, stderr: '' })
      await git('checkout', '-q', '-b', 'last')
      await created('last')
      expect((await names()).filter((name) => !before.includes(name))).toEqual(['last'])
      const kept = await hook('uninstall', path.join(top, 'apps', 'one'))
      expect(kept.stderr).toContain('Kept the hooks for other folders of the repository: apps/two')
    },
  )

  inLongForm.each([
    [
      'a program in Python',
      '#!/usr/bin/env python3\nimport sys\nprint("theirs", sys.argv[3])\nsys.exit(4)\n',
    ],
    [
      'a program in JavaScript',
      '#!/usr/bin/env node\nconsole.log("theirs", process.argv[4])\nprocess.exit(4)\n',
    ],
    ['a shell script that ends early', '#!/bin/sh\necho theirs $3\nexit 4\necho never\n'],
  ])('runs the hook that was there, and restores it: %s', async (_kind, text) => {
    const { git, hook, created, file } = await createRepository()
    await mkdir(path.dirname(file), { recursive: true })
    await writeFile(file, text)
    await chmod(file, 0o755)
    expect((await hook('install')).code).toBe(0)
    expect((await hook('install')).code).toBe(0)
    const outcome = await git('checkout', '-q', '-b', 'beside')
    // git fails because their hook fails, as without ours.
    expect(outcome.code).toBe(1)
    expect(outcome.stdout + outcome.stderr).toBe('theirs 1\n')
    await created('beside')
    expect((await hook('uninstall')).code).toBe(0)
    expect(await readFile(file, 'utf8')).toBe(text)
    expect(existsSync(`${file}.before-offshoot`)).toBe(false)
    expect((await hook('uninstall')).code).toBe(0)
    expect(await readFile(file, 'utf8')).toBe(text)
  })

  inLongForm('runs a binary that was there, through the link that leads to it', async () => {
    const { git, hook, file } = await createRepository()
    await mkdir(path.dirname(file), { recursive: true })
    // A copy: a hook that is written through the link must not damage the machine.
    const program = path.join(folder, 'echo')
    await copyFile('/bin/echo', program)
    await symlink(program, file)
    await hook('install')
    const outcome = await git('checkout', '-q', '-b', 'beside')
    expect(outcome.stdout + outcome.stderr).toMatch(/^\w{40} \w{40} 1\n$/)
    await hook('uninstall')
    expect(await realpath(file)).toBe(await realpath(program))
  })

  inLongForm('replaces the lines that earlier versions have added', async () => {
    const { git, hook, created, file } = await createRepository()
    const old = [
      '# offshoot: start',
      'if [ "$3" = 1 ]; then',
      '  (npx --no-install offshoot checkout -c </dev/null >/dev/null 2>&1 &)',
      'fi',
      '# offshoot: end',
      '',
    ].join('\n')
    await mkdir(path.dirname(file), { recursive: true })
    await writeFile(file, `#!/bin/sh\necho mine\n${old}`)
    await chmod(file, 0o755)
    expect((await hook('install')).code).toBe(0)
    expect(await readFile(file, 'utf8')).not.toContain('npx')
    expect(await readFile(`${file}.before-offshoot`, 'utf8')).toBe('#!/bin/sh\necho mine\n')
    const outcome = await git('checkout', '-q', '-b', 'newer')
    expect(outcome.stdout + outcome.stderr).toBe('mine\n')
    await created('newer')
    await hook('uninstall')
    expect(await readFile(file, 'utf8')).toBe('#!/bin/sh\necho mine\n')
    // A file that only has the lines is removed with them.
    await writeFile(file, `#!/bin/sh\n${old}`)
    await hook('install')
    expect(existsSync(`${file}.before-offshoot`)).toBe(false)
    await hook('uninstall')
    expect(existsSync(file)).toBe(false)
  })

  it('reports a failure in one line, and neither refuses nor delays the checkout', async () => {
    const { top, env, hook } = await createRepository()
    await hook('install')
    const refusing = { ...env, OFFSHOOT_URL: foreign }
    listener.message = 'a\nb\u009bc'
    const refused = await run('git', ['checkout', '-q', '-b', 'refused'], {
      cwd: top,
      env: refusing,
    })
    expect(refused).toEqual({
      code: 0,
      stdout: '',
      stderr: 'offshoot: no branch for the git branch [refused]: a\n',
    })
    const { OFFSHOOT_API_KEY: _key, ...keyless } = env
    const without = await run('git', ['checkout', '-q', '-b', 'keyless'], {
      cwd: top,
      env: keyless,
    })
    expect(without.code).toBe(0)
    expect(without.stderr).toMatch(/^offshoot: no branch for .*: no API key for http:\S+\n$/)
    // git ends while the hook still waits for an answer.
    listener.isSilent = true
    listener.keys.length = 0
    const child = spawn('git', ['checkout', '-q', '-b', 'silent'], {
      cwd: top,
      env: { PATH: process.env.PATH ?? '', HOME: home, ...refusing },
      stdio: 'ignore',
    })
    expect(await new Promise((resolve) => child.once('exit', resolve))).toBe(0)
    await until(async () => listener.keys.length > 0)
  })
})
