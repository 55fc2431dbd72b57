import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmod,
  chown,
  mkdir,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { connect } from 'node:net'
import { userInfo } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { startEmbedded } from '../../packages/embedded-postgres/src/index.js'
import { makeDataFolder } from '../support/data-folder.js'
import { inLongForm } from '../support/long-form.js'
import {
  type Banner,
  CHECKOUT_PROGRAM,
  endAll,
  freePort,
  type OffshootProcess,
  PROGRAM,
  postgresProcesses,
  request,
  runOffshoot,
  START_MESSAGE_END,
  startOffshoot,
  until,
} from '../support/process.js'
import { LONG } from '../support/random.js'

const run = promisify(execFile)
const isRoot = process.getuid?.() === 0

let folder: string
const dataDirs: string[] = []
const newDataDir = (name: string) => {
  const dataDir = path.join(folder, name)
  dataDirs.push(dataDir)
  return dataDir
}

beforeAll(async () => {
  folder = await makeDataFolder('start')
})
afterAll(async () => {
  await endAll(dataDirs)
  await rm(folder, { recursive: true, force: true })
})

const databaseUrl = (banner: Banner, name: string) =>
  `/workspaces/${banner.workspaceId}/dbs/${name}`
const createDatabase = (banner: Banner, name: string, key: string | undefined) =>
  request(banner.address, 'PUT', databaseUrl(banner, name), { key, body: { region: 'local' } })

/** Opens a request whose body is sent in two parts, so that the test decides how long it runs. */
async function openRequest(banner: Banner, name: string, key: string) {
  const { hostname, port } = new URL(banner.address)
  const body = '{"region":"local"}'
  const socket = connect(Number(port), hostname)
  await once(socket, 'connect')
  socket.write(
    `PUT ${databaseUrl(banner, name)} HTTP/1.1\r\nhost: ${hostname}\r\n` +
      `authorization: Bearer ${key}\r\ncontent-type: application/json\r\n` +
      `content-length: ${body.length}\r\n\r\n${body.slice(0, 5)}`,
  )
  return {
    async finish(): Promise<string> {
      socket.write(body.slice(5))
      const chunks: Buffer[] = []
      for await (const chunk of socket) chunks.push(chunk)
      return Buffer.concat(chunks).toString()
    },
  }
}

/** Other ways to end a launcher, for the long form. */
const OTHER_LAUNCHERS = [
  ['npm start', 'SIGINT', 0],
  ['npm start', 'SIGKILL', null],
  ['npx offshoot start', 'SIGTERM', null],
] as const

describe('a service that npm has started', () => {
  const ROOT = fileURLToPath(new URL('../..', import.meta.url))

  /** One folder for all of them. To create its cluster takes twice as long as to start. */
  let dataDir: string
  let launches = 0

  beforeAll(() => {
    dataDir = newDataDir('launched')
  })

  /** Starts it and returns when it is ready. `launcher` is the process that a user or a supervisor knows. */
  async function launch(command: 'npm start' | 'npx offshoot start') {
    let cwd = ROOT
    if (command === 'npx offshoot start') {
      cwd = path.join(folder, `project${launches++}`)
      await mkdir(path.join(cwd, 'node_modules', '.bin'), { recursive: true })
      await writeFile(path.join(cwd, 'package.json'), '{"name": "project", "version": "1.0.0"}')
      await chmod(CHECKOUT_PROGRAM, 0o755)
      await symlink(CHECKOUT_PROGRAM, path.join(cwd, 'node_modules', '.bin', 'offshoot'))
    }
    const [program = '', ...args] = command.split(' ')
    const launcher = spawn(program, args, {
      cwd,
      env: {
        ...process.env,
        OFFSHOOT_DATA_DIR: dataDir,
        OFFSHOOT_PORT: '0',
        OFFSHOOT_PG_PORT: '0',
      },
      stdio: ['ignore', 'pipe', 'inherit'],
      // As a terminal does, so that a test can signal all processes.
      detached: true,
    })
    const ended = once(launcher, 'exit') as Promise<[number | null, NodeJS.Signals | null]>
    let stdout = ''
    launcher.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text
    })
    await until(async () => START_MESSAGE_END.test(stdout) || launcher.exitCode !== null)
    const lock = JSON.parse(await readFile(path.join(dataDir, 'offshoot.lock'), 'utf8'))
    const pid = lock.pid as number
    onTestFinished(() => {
      for (const left of [launcher.pid ?? 0, pid]) if (isAlive(left)) process.kill(left, 'SIGKILL')
    })
    return { launcher, pid, ended }
  }

  /** Waits until the service has shut down in good order: PostgreSQL has ended, and the folder is free. */
  async function shutDown({ pid }: { pid: number }) {
    await until(async () => !isAlive(pid))
    expect(await postgresProcesses(dataDir)).toEqual([])
    expect(await readdir(dataDir)).not.toContain('offshoot.lock')
  }

  const isAlive = (pid: number) => {
    try {
      process.kill(pid, 0)
      return true
    } catch {
      return false
    }
  }

  it.each([
    ['npm start', 'SIGTERM', 0],
    ['npx offshoot start', 'SIGKILL', null],
    ...(LONG ? OTHER_LAUNCHERS : []),
  ] as const)('ends with its launcher: %s, %s', async (command, signal, code) => {
    const launched = await launch(command)
    launched.launcher.kill(signal)
    expect(await launched.ended).toEqual([code, code === null ? signal : null])
    await shutDown(launched)
  })

  it('ends in good order if the terminal sends Ctrl-C to all processes', async () => {
    const launched = await launch('npm start')
    process.kill(-(launched.launcher.pid ?? 0), 'SIGINT')
    expect(await launched.ended).toEqual([0, null])
    await shutDown(launched)
  })

  inLongForm('ends in good order if its terminal is closed', async () => {
    const service = startOffshoot(dataDir)
    await service.ready()
    expect(await service.end('SIGHUP')).toEqual({ code: 0, signal: null })
    await shutDown({ pid: service.child.pid ?? 0 })
  })
})

describe('offshoot start', () => {
  let dataDir: string
  let service: OffshootProcess
  let banner: Banner
  let key: string
  let pgPort: number
  const laterStarts: number[] = []

  beforeAll(() => {
    dataDir = newDataDir('data')
  })

  it('answers health with 503 while it starts, and with 200 when it is ready', async () => {
    const port = await freePort()
    pgPort = await freePort()
    const env = { OFFSHOOT_PORT: String(port), OFFSHOOT_PG_PORT: String(pgPort) }
    service = startOffshoot(dataDir, { env })
    const address = `http://127.0.0.1:${port}`
    const seen: string[] = []
    await until(async () => {
      const { status, body } = await request(address, 'GET', '/health')
      const entry = status === 0 ? 'refused' : `${status} ${body.status}`
      if (seen.at(-1) !== entry) seen.push(entry)
      return status === 200
    })
    // On a busy machine, PostgreSQL can take longer to answer than a health request waits.
    const states = seen.filter((entry) => entry !== 'refused' && entry !== '503 unavailable')
    expect(states).toEqual(['503 starting', '200 ready'])
    banner = await service.ready()
    expect(banner.address).toBe(address)
  })

  it('prints its address, the workspace and the file of the key, and no secret to a log', async () => {
    expect(banner.text).toMatch(/Offshoot \d+\.\d+\.\d+ ready in \d+\.\d s/)
    expect(banner.text).toContain(`Data       ${dataDir} (embedded PostgreSQL 18.`)
    expect(banner.workspaceId).toMatch(/^home-[a-z0-9]{6}$/)
    expect(banner.key).toMatch(/^off_[A-Za-z0-9]{40,}$/)
    key = banner.key ?? ''
    expect(banner.text).not.toContain(key)
    expect(banner.text).not.toContain('#token=')
    expect(banner.text).toContain(`Console    ${banner.address}/console/ (sign in with an API key)`)
    expect(banner.keyFile).toBe(path.join(dataDir, 'api-key'))
    const file = banner.keyFile ?? ''
    expect(await readFile(file, 'utf8')).toBe(`${key}\n`)
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect((await stat(dataDir)).mode & 0o777).toBe(0o700)
    expect(service.stderr).toBe('')
    expect((await request(banner.address, 'GET', '/user', { key })).status).toBe(200)
    expect((await request(banner.address, 'GET', '/docs/json')).status).toBe(200)
  })

  it('tells the console the port for clients of PostgreSQL', async () => {
    const { body } = await request(banner.address, 'GET', '/console/session', { key })
    expect(body.session.postgresPort).toBe(pgPort)
  })

  it('shows the first key and a link that signs in to a terminal', async () => {
    const terminal = newDataDir('first-key')
    const env = {
      ...process.env,
      OFFSHOOT_PORT: '0',
      OFFSHOOT_PG_PORT: '0',
      OFFSHOOT_DATA_DIR: terminal,
    }
    // `script` gives the command a terminal.
    const command = `exec ${process.execPath} ${PROGRAM} start`
    const child = spawn('script', ['-qefc', command, '/dev/null'], {
      env,
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    let text = ''
    child.stdout.setEncoding('utf8').on('data', (part: string) => {
      text += part
    })
    const ended = once(child, 'close')
    try {
      await until(async () => text.includes('"region"'))
      const shown = await readFile(path.join(terminal, 'api-key'), 'utf8')
      expect(text).toContain(shown.trim())
      expect(text).toMatch(/\/console\/#token=[A-Za-z0-9]{20,}/)
    } finally {
      // Ctrl-C.
      child.stdin.write('\u0003')
      await ended
    }
  })

  it('prints a command that works when it is pasted into a shell', async () => {
    const { stdout } = await run('sh', ['-c', banner.command])
    expect(JSON.parse(stdout)).toEqual({
      databaseName: 'shop',
      branchName: 'main',
      status: 'completed',
    })
    const path = `/${banner.workspaceId}.local/db/shop:main`
    expect((await request(banner.address, 'GET', path, { key })).status).toBe(200)
  })

  it('does not start a second time on the same data folder', async () => {
    const second = startOffshoot(dataDir)
    expect(await second.ended).toEqual({ code: 1, signal: null })
    expect(second.stdout).toBe('')
    expect(second.stderr).toBe(
      `offshoot: cannot start: data folder [${dataDir}] is in use by another offshoot ` +
        `(pid ${service.child.pid}): stop it first, or set OFFSHOOT_DATA_DIR to another folder\n`,
    )
    expect((await request(banner.address, 'GET', '/health')).status).toBe(200)
  })

  it('does not start on a port that is in use, and leaves nothing running', async () => {
    const { port } = new URL(banner.address)
    const other = newDataDir('port-in-use')
    const second = startOffshoot(other, { env: { OFFSHOOT_PORT: port } })
    expect(await second.ended).toEqual({ code: 1, signal: null })
    expect(second.stderr).toBe(
      `offshoot: cannot start: port ${port} is in use: stop the process that listens on it, or set OFFSHOOT_PORT\n`,
    )
    expect(await postgresProcesses(other)).toEqual([])
    expect(await readdir(other)).toEqual([])
  })

  it('finishes what is running when it is asked to stop, and leaves nothing behind', async () => {
    const open = await openRequest(banner, 'last-minute', key)
    await until(async () => (await request(banner.address, 'GET', '/health')).status === 200)
    const stopped = service.end('SIGTERM')
    await until(async () => (await request(banner.address, 'GET', '/health')).status !== 200)
    expect((await request(banner.address, 'GET', '/user', { key })).status).not.toBe(200)
    const answer = await open.finish()
    expect(answer).toMatch(/^HTTP\/1.1 201 /)
    expect(answer.toLowerCase()).toContain('connection: close')
    expect(await stopped).toEqual({ code: 0, signal: null })
    // A request that still reaches the service is refused, and the refusal is logged.
    const logged = service.stderr.split('\n').filter((line) => line !== '')
    expect(logged.filter((line) => JSON.parse(line).code !== 'draining')).toEqual([])
    expect(await postgresProcesses(dataDir)).toEqual([])
    expect(await readdir(dataDir)).not.toContain('offshoot.lock')
  })

  it('starts again with everything there, and without showing the key again', async () => {
    service = startOffshoot(dataDir)
    const again = await service.ready()
    laterStarts.push(again.seconds)
    expect(again.workspaceId).toBe(banner.workspaceId)
    expect(again.text).not.toContain(key)
    expect(again.text).not.toContain('shown this once')
    expect(again.keyFile).toBe(banner.keyFile)
    banner = again
    for (const name of ['shop', 'last-minute']) {
      expect(
        (await request(banner.address, 'GET', databaseUrl(banner, name), { key })).status,
      ).toBe(200)
    }
  })

  it('gets over the sudden death of its PostgreSQL without being started again', async () => {
    await createDatabase(banner, 'before-crash', key)
    const [postmaster = 0] = await postgresProcesses(dataDir)
    const seen = new Set<string>()
    let isOver = false
    const ask = async (url: string) => {
      while (!isOver)
        seen.add(`${url} ${(await request(banner.address, 'GET', url, { key })).status}`)
    }
    const asking = ['/user', '/health'].map(ask)
    process.kill(postmaster, 'SIGKILL')
    await until(async () => {
      const [current] = await postgresProcesses(dataDir)
      const { status } = await request(banner.address, 'GET', '/health')
      return current !== undefined && current !== postmaster && status === 200
    })
    isOver = true
    await Promise.all(asking)
    expect([...seen].sort()).toEqual(['/health 200', '/health 503', '/user 200', '/user 503'])
    const kept = await request(banner.address, 'GET', databaseUrl(banner, 'before-crash'), { key })
    expect(kept.status).toBe(200)
    expect((await createDatabase(banner, 'after-crash', key)).status).toBe(201)
    expect(service.child.exitCode).toBeNull()
    expect((await postgresProcesses(dataDir))[0]).not.toBe(postmaster)
    expect(service.stderr).toContain('the embedded PostgreSQL ended unexpectedly; restarting it')
    expect(service.stderr).not.toContain(key)
  })

  it('stops when it is interrupted from the keyboard, too', async () => {
    expect(await service.end('SIGINT')).toEqual({ code: 0, signal: null })
    expect(await postgresProcesses(dataDir)).toEqual([])
  })

  it('has everything it ever acknowledged after it was killed in the middle of work', async () => {
    service = startOffshoot(dataDir)
    banner = await service.ready()
    laterStarts.push(banner.seconds)
    const acknowledged: string[] = []
    const write = async (worker: number) => {
      for (let number = 0; ; number++) {
        const name = `killed-${worker}-${number}`
        const { status } = await createDatabase(banner, name, key)
        if (status !== 201) return
        acknowledged.push(name)
      }
    }
    const writers = [1, 2, 3].map(write)
    await until(async () => acknowledged.length >= 25)
    expect(await service.end('SIGKILL')).toEqual({ code: null, signal: 'SIGKILL' })
    await Promise.all(writers)
    service = startOffshoot(dataDir)
    banner = await service.ready()
    laterStarts.push(banner.seconds)
    const dbs = `/workspaces/${banner.workspaceId}/dbs`
    const { body } = await request(banner.address, 'GET', dbs, { key })
    const names = body.databases.map((database: { name: string }) => database.name)
    expect(names).toEqual(expect.arrayContaining(acknowledged))
    const last = `/${banner.workspaceId}.local/db/${acknowledged.at(-1)}:main`
    expect((await request(banner.address, 'GET', last, { key })).status).toBe(200)
    await service.end('SIGTERM')
    expect(await postgresProcesses(dataDir)).toEqual([])
  })

  it('takes the key of the settings instead of the one it made', async () => {
    const given = 'my_own_key_Zt4Vq9XwLr2Nb6Kc'
    const env = { OFFSHOOT_API_KEY: given, OFFSHOOT_LOG_LEVEL: 'info' }
    service = startOffshoot(dataDir, { env })
    banner = await service.ready()
    laterStarts.push(banner.seconds)
    expect(banner.text).not.toContain(given)
    expect((await request(banner.address, 'GET', '/user', { key: given })).status).toBe(200)
    const refused = await request(banner.address, 'GET', '/user', { key })
    expect(refused.status).toBe(401)
    expect(await readFile(path.join(dataDir, 'api-key'), 'utf8')).toBe(`${given}\n`)
    const { stdout } = await run('sh', ['-c', banner.command])
    expect(JSON.parse(stdout)).toMatchObject({ message: 'database [shop] already exists' })
    await service.end('SIGTERM')
    // The id in an answer is in the log, and the log contains no secrets.
    const lines = service.stderr
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    const logged = lines.find((line) => line.requestId === refused.body.id)
    expect(logged).toMatchObject({ method: 'GET', route: '/user', status: 401 })
    for (const secret of [given, key]) expect(service.stderr).not.toContain(secret)
  })

  // The duration depends on the load of the machine, so only its presence is tested.
  it('says how long each later start took', () => {
    expect(laterStarts.length).toBeGreaterThan(2)
    for (const seconds of laterStarts) expect(seconds).toBeGreaterThan(0)
  })
})

describe.concurrent('a start that is interrupted', () => {
  it('ends without leaving anything running', async () => {
    const dataDir = newDataDir('interrupted')
    const service = startOffshoot(dataDir)
    const lock = path.join(dataDir, 'offshoot.lock')
    await until(() => stat(lock).then(Boolean, () => false))
    expect(await service.end('SIGTERM')).toEqual({ code: 0, signal: null })
    expect(await postgresProcesses(dataDir)).toEqual([])
    expect(await readdir(dataDir)).not.toContain('offshoot.lock')
  })
})

describe.concurrent('settings that are wrong', () => {
  it('are all named with what is allowed, before anything is touched', async () => {
    const dataDir = newDataDir('never-made')
    const service = startOffshoot(dataDir, {
      env: { OFFSHOOT_PORT: 'abc', OFFSHOOT_LOG_LEVEL: 'loud', OFFSHOOT_PROT: '1' },
    })
    expect(await service.ended).toEqual({ code: 1, signal: null })
    expect(service.stdout).toBe('')
    expect(service.stderr).toBe(
      [
        'offshoot: invalid settings',
        '  OFFSHOOT_PORT: [abc] is not a whole number from 0 to 65535',
        '  OFFSHOOT_LOG_LEVEL: [loud] is not one of fatal, error, warn, info, debug, trace, silent',
        '  OFFSHOOT_PROT: is not a setting of this version',
        '',
      ].join('\n'),
    )
    await expect(stat(dataDir)).rejects.toThrow('ENOENT')
  })

  it('are named when PostgreSQL is not where they say, without the password', async () => {
    const service = startOffshoot(newDataDir('no-postgres'), {
      env: {
        OFFSHOOT_DATABASE_URL: 'postgresql://me:hunter2@127.0.0.1:1/none',
        OFFSHOOT_DATABASE_WAIT_SECONDS: '0',
      },
    })
    expect(await service.ended).toEqual({ code: 1, signal: null })
    expect(service.stderr).toMatch(
      /^offshoot: cannot start: the PostgreSQL of OFFSHOOT_DATABASE_URL cannot be reached: .*ECONNREFUSED/,
    )
    expect(service.stderr).not.toContain('hunter2')
  })

  it('are named when the data folder cannot be one', async () => {
    const messageFor = async (dataDir: string) => {
      const service = startOffshoot(dataDir)
      expect((await service.ended).code).toBe(1)
      return service.stderr
    }
    const advice = 'set OFFSHOOT_DATA_DIR to another folder\n'
    expect(await messageFor('/dev/null/data')).toBe(
      `offshoot: cannot start: data folder [/dev/null/data] is not below a folder: ${advice}`,
    )
    expect(await messageFor('/etc/passwd')).toBe(
      `offshoot: cannot start: data folder [/etc/passwd] is not a folder: ${advice}`,
    )
  })

  it('are named when the address is not one of this machine', async () => {
    const env = { OFFSHOOT_HOST: '192.0.2.1' }
    const service = startOffshoot(newDataDir('elsewhere'), { env })
    expect((await service.ended).code).toBe(1)
    expect(service.stderr).toContain(
      'cannot start: [192.0.2.1] is not an address of this machine: set OFFSHOOT_HOST',
    )
  })
})

describe.concurrent('the command line', () => {
  const outcome = async (...args: string[]) => {
    const command = runOffshoot(args)
    const { code } = await command.ended
    return { code, stdout: command.stdout, stderr: command.stderr }
  }

  it('prints the version', async () => {
    const { version } = JSON.parse(
      await readFile(new URL('../../packages/cli/package.json', import.meta.url), 'utf8'),
    )
    expect(await outcome('--version')).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' })
  })

  it('prints the commands, and every setting of the service', async () => {
    const { code, stdout } = await outcome('--help')
    expect(code).toBe(0)
    for (const word of ['start', 'backup', 'branch', 'offshoot start --help']) {
      expect(stdout).toContain(word)
    }
    expect((await outcome()).stdout).toBe(stdout)
    const settings = await outcome('start', '--help')
    expect(settings.code).toBe(0)
    for (const word of ['offshoot start', 'OFFSHOOT_PORT', 'OFFSHOOT_DATABASE_URL', '6001']) {
      expect(settings.stdout).toContain(word)
    }
  })

  it.each([
    [['fly'], "offshoot: unknown command 'fly'\n"],
    [['constructor'], "offshoot: unknown command 'constructor'\n"],
    [['strt'], "offshoot: unknown command 'strt'\n(Did you mean start?)\n"],
    [
      ['start', '--port', '1'],
      'offshoot start: unknown option [--port]: set OFFSHOOT_PORT in the environment instead\n',
    ],
    [
      ['start', '--fast'],
      'offshoot start: unknown option [--fast]: settings come from the environment, see offshoot start --help\n',
    ],
  ])('refuses %j', async (args, stderr) => {
    expect(await outcome(...args)).toEqual({ code: 2, stdout: '', stderr })
  })
})

describe.concurrent('several services on one PostgreSQL', () => {
  it('share everything, and each goes on without the other', async () => {
    const shared = newDataDir('shared-postgres')
    const postgres = await startEmbedded({ dataDir: shared, log: () => undefined })
    try {
      const { user, password, host, port, database } = postgres.connection
      const url =
        `postgresql://${user}:${encodeURIComponent(password)}@localhost:${port}/${database}` +
        `?host=${encodeURIComponent(host)}`
      const dirs = [newDataDir('shared-1'), newDataDir('shared-2')]
      const services = dirs.map((dataDir) =>
        startOffshoot(dataDir, { env: { OFFSHOOT_DATABASE_URL: url } }),
      )
      const [one, two] = await Promise.all(services.map((service) => service.ready()))
      if (one === undefined || two === undefined) throw new Error('both must start')
      expect(one.text).toContain('(PostgreSQL at OFFSHOOT_DATABASE_URL)')
      expect(one.text + two.text).not.toContain(password)
      expect(one.workspaceId).toBe(two.workspaceId)
      const keys = [one.key, two.key].filter((key) => key !== undefined)
      expect(keys).toHaveLength(1)
      const [key] = keys
      expect((await createDatabase(one, 'shared', key)).status).toBe(201)
      const path = databaseUrl(one, 'shared')
      expect((await request(two.address, 'GET', path, { key })).status).toBe(200)
      expect(await services[0]?.end('SIGTERM')).toEqual({ code: 0, signal: null })
      expect((await request(two.address, 'GET', path, { key })).status).toBe(200)
      expect(await services[1]?.end('SIGTERM')).toEqual({ code: 0, signal: null })
      expect((await postgresProcesses(shared)).length).toBeGreaterThan(0)
    } finally {
      await postgres.stop()
    }
  })
})

describe.concurrent('as another user than root', () => {
  it.runIf(isRoot)('starts in a folder of its own', async () => {
    const { uid, gid } = await account('nobody')
    const home = path.join(folder, 'of-nobody')
    await mkdir(home)
    await chown(home, uid, gid)
    // Mode 711: other users may traverse the folder, but not list it.
    await run('chmod', ['711', folder])
    const dataDir = newDataDir('of-nobody/data')
    const service = startOffshoot(dataDir, { uid, gid, cwd: home, env: { HOME: home } })
    const banner = await service.ready()
    const file = banner.keyFile ?? ''
    expect(await stat(file)).toMatchObject({ uid })
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    const [postmaster] = await postgresProcesses(dataDir)
    expect((await stat(`/proc/${postmaster}`)).uid).toBe(uid)
    expect((await createDatabase(banner, 'shop', banner.key)).status).toBe(201)
    expect(await service.end('SIGTERM')).toEqual({ code: 0, signal: null })
    expect(await postgresProcesses(dataDir)).toEqual([])
  })

  it.runIf(isRoot)('is told when the folder is not its own', async () => {
    const { uid, gid } = await account('nobody')
    const service = startOffshoot(path.join(folder, 'of-root'), { uid, gid, cwd: '/' })
    expect((await service.ended).code).toBe(1)
    expect(service.stderr).toMatch(
      /^offshoot: cannot start: data folder \[.*of-root\] is not writable for this user: set /,
    )
  })
})

async function account(name: string): Promise<{ uid: number; gid: number }> {
  const lines = (await readFile('/etc/passwd', 'utf8')).split('\n')
  const fields = lines.find((line) => line.startsWith(`${name}:`))?.split(':') ?? []
  if (fields.length === 0) throw new Error(`there is no ${name}; this is ${userInfo().username}`)
  return { uid: Number(fields[2]), gid: Number(fields[3]) }
}
