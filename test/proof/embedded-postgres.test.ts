import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmod,
  chown,
  cp,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import {
  findPackage,
  prepareBinaries,
  readPackage,
} from '../../packages/embedded-postgres/src/binaries.js'
import { exists } from '../../packages/embedded-postgres/src/files.js'
import {
  allows,
  chooseIdentity,
  parseAccounts,
  spawnIdentity,
} from '../../packages/embedded-postgres/src/identity.js'
import {
  compileForProcesses,
  type SeparateProcesses,
} from '../../packages/embedded-postgres/src/separate-process.js'
import {
  EmbeddedError,
  type EmbeddedOptions,
  type EmbeddedPostgres,
  startEmbedded,
  startFromPackage,
} from '../../packages/embedded-postgres/src/start-embedded.js'

const isRoot = process.geteuid?.() === 0
if (!isRoot) console.log('tests of running as root are skipped because this is not root')

let processes: SeparateProcesses
let preparedFolder: string
let folder: string
let dataDir: string
let cluster: string
let lines: string[]
const running: EmbeddedPostgres[] = []

beforeAll(async () => {
  processes = compileForProcesses('start-embedded')
  preparedFolder = await mkdtemp(join(tmpdir(), 'offshoot-test-'))
  const server = await startEmbedded({ dataDir: preparedFolder, log: () => {} })
  await query(server, ...makeTable)
  await server.stop()
})
afterAll(async () => {
  processes.remove()
  await rm(preparedFolder, { recursive: true, force: true })
})
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'offshoot-test-'))
  useDataFolder(join(folder, 'data'))
  lines = []
})
afterEach(async () => {
  await Promise.all(running.splice(0).map((server) => server.stop()))
  await rm(folder, { recursive: true, force: true })
})

function options(settings?: Record<string, string>): EmbeddedOptions {
  const log = (line: string) => {
    lines.push(line)
  }
  return settings ? { dataDir, log, settings } : { dataDir, log }
}

/** Saves the time of a first start in tests that do not test one. */
function usePreparedData(): void {
  useDataFolder(preparedFolder)
}

function useDataFolder(path: string): void {
  dataDir = path
  cluster = join(dataDir, 'postgres')
}

async function start(settings?: Record<string, string>): Promise<EmbeddedPostgres> {
  const server = await startEmbedded(options(settings))
  running.push(server)
  return server
}

async function query(server: EmbeddedPostgres, ...statements: string[]): Promise<unknown[]> {
  const client = new pg.Client(server.connection)
  // A server that restarts resets the connection, and the statement fails; handling that is enough.
  client.on('error', () => {})
  await client.connect()
  try {
    let rows: unknown[] = []
    for (const statement of statements) ({ rows } = await client.query(statement))
    return rows
  } finally {
    await client.end()
  }
}

const makeTable = ['CREATE TABLE kept (number int)', 'INSERT INTO kept VALUES (1), (2)']
const readTable = 'SELECT number FROM kept ORDER BY number'
const keptRows = [{ number: 1 }, { number: 2 }]

async function postmasterPid(): Promise<number> {
  return Number((await readFile(join(cluster, 'postmaster.pid'), 'utf8')).split('\n')[0])
}

async function isRunning(pid: number): Promise<boolean> {
  // A process that has ended stays in the list until its parent collects its exit status.
  try {
    const state = execFileSync('ps', ['-o', 'stat=', '-p', String(pid)], { encoding: 'utf8' })
    return !state.startsWith('Z')
  } catch {
    return false
  }
}

async function permissions(path: string): Promise<string> {
  return ((await stat(path)).mode & 0o777).toString(8)
}

const startAndTellPid = `
  import { readFileSync } from 'node:fs'
  import pg from 'pg'
  import { startEmbedded } from './start-embedded.js'
  const dataDir = process.argv[2]
  const server = await startEmbedded({ dataDir, log: () => {} })
  const client = new pg.Client(server.connection)
  client.on('error', () => {})
  await client.connect()
  await client.query(process.argv[3])
  const pid = readFileSync(dataDir + '/postgres/postmaster.pid', 'utf8').split('\\n')[0]
  console.log('folder ' + server.connection.host)
  console.log('pid ' + pid)
  process.stdin.once('data', () => { throw new Error('a bug') })
`

test('the first start makes a cluster, and later starts keep its data', async () => {
  const first = await start()
  expect(first.version).toMatch(/^18\.\d+$/)
  expect(first.connection).toMatchObject({ user: 'offshoot', database: 'offshoot' })
  expect(await permissions(first.connection.host)).toBe('700')
  await query(first, ...makeTable)
  await Promise.all([first.stop(), first.stop()])
  expect(await exists(first.connection.host)).toBe(false)

  const second = await start()
  expect(await query(second, readTable)).toEqual(keptRows)
  expect(second.connection.password).toBe(first.connection.password)
  expect((await readdir(dataDir)).sort()).toEqual([
    'postgres',
    'postgres-password',
    'postgres-run',
    'postgres.log',
  ])
  expect(await permissions(dataDir)).toBe('700')
  expect(await permissions(cluster)).toBe('700')
  expect(await permissions(join(dataDir, 'postgres-password'))).toBe('600')
  expect(await permissions(join(dataDir, 'postgres.log'))).toBe('600')
})

test('the server is durable, private and sorts by code point', async () => {
  usePreparedData()
  const server = await start()
  const [row] = await query(
    server,
    `SELECT current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS commit,
       current_setting('full_page_writes') AS pages,
       current_setting('data_checksums') AS checksums,
       current_setting('listen_addresses') AS addresses,
       current_setting('TimeZone') AS zone,
       (SELECT array_agg(DISTINCT auth_method) FROM pg_hba_file_rules) AS methods,
       (SELECT concat_ws(' ', datlocprovider, datlocale, pg_encoding_to_char(encoding))
          FROM pg_database WHERE datname = current_database()) AS locale,
       upper('čaj') AS upper, 'Z' < 'a' AS sorted`,
  )
  expect(row).toEqual({
    fsync: 'on',
    commit: 'on',
    pages: 'on',
    checksums: 'on',
    addresses: '',
    zone: 'UTC',
    methods: ['scram-sha-256'],
    locale: 'b C.UTF-8 UTF8',
    upper: 'ČAJ',
    sorted: true,
  })
  const stranger = new pg.Client({ ...server.connection, password: 'wrong' })
  await expect(stranger.connect()).rejects.toMatchObject({ code: '28P01' })
})

test('what people store does not get into the log when their queries fail', async () => {
  usePreparedData()
  const server = await start()
  const client = new pg.Client(server.connection)
  await client.connect()
  const failing = [
    ['SELECT $1::text::int', 'secret-1'],
    ["SELECT 'secret-2'::uuid", undefined],
    ["DO $$BEGIN RAISE WARNING 'secret-3'; RAISE EXCEPTION 'secret-4'; END$$", undefined],
  ] as const
  for (const [text, value] of failing) {
    await expect(client.query(text, value === undefined ? [] : [value])).rejects.toThrow()
  }
  await client.end()
  await server.stop()
  const log = await readFile(join(dataDir, 'postgres.log'), 'utf8')
  expect(log).toContain('database system is ready')
  expect(log).not.toContain('secret-')
})

test('committed rows survive when PostgreSQL is killed, even while it is busy', async () => {
  usePreparedData()
  const server = await start()
  const busy = new pg.Client(server.connection)
  busy.on('error', () => {})
  await busy.connect()
  // This process survives the postmaster, because it never waits for anything.
  const answer = busy.query('SELECT count(*) FROM generate_series(1, 1e10::bigint)').catch(() => {})
  await delay(100)
  process.kill(await postmasterPid(), 'SIGKILL')
  expect(await server.exited).toEqual({ code: null, signal: 'SIGKILL' })

  expect(await query(await start(), readTable)).toEqual(keptRows)
  expect(await exists(server.connection.host)).toBe(false)
  await answer
  // A late call for the first run must not touch what belongs to the second one.
  await server.stop()
  expect(await exists(join(dataDir, 'postgres-run'))).toBe(true)
})

test('an unlogged table that was rolled back right before a crash does not keep the server from starting', async () => {
  usePreparedData()
  const hasMetFile = () => lines.some((line) => line.includes('starting it again'))
  // On a very slow machine, the rollback may be written to the log before the crash after all.
  for (let attempt = 1; attempt <= 5 && !hasMetFile(); attempt++) {
    const server = await start({ wal_writer_delay: '10s' })
    await query(
      server,
      'CHECKPOINT',
      'BEGIN',
      'CREATE UNLOGGED TABLE staged (number int)',
      // Writes the log to the disk, as a commit of another transaction would.
      "SELECT pg_logical_emit_message(false, '', '', true)",
      'ROLLBACK',
    )
    process.kill(await postmasterPid(), 'SIGKILL')
    await server.exited
    const next = await start()
    expect(await query(next, readTable)).toEqual(keptRows)
    await next.stop()
  }
  expect(hasMetFile()).toBe(true)
})

test('a server that lost its parent is stopped, and its rows are kept', async () => {
  usePreparedData()
  const statement = 'CREATE TABLE late AS SELECT 3 AS number'
  const parent = processes.start(startAndTellPid, dataDir, statement)
  const pid = Number(await parent.line('pid '))
  const socketFolder = await parent.line('folder ')
  parent.child.kill('SIGKILL')
  await parent.ended
  expect(await isRunning(pid)).toBe(true)

  expect(await query(await start(), 'SELECT number FROM late')).toEqual([{ number: 3 }])
  expect(await isRunning(pid)).toBe(false)
  expect(await exists(socketFolder)).toBe(false)
  expect(lines).toEqual([expect.stringContaining(`(pid ${pid})`)])
})

test('an uncaught exception does not leave the server behind', async () => {
  usePreparedData()
  const parent = processes.start(startAndTellPid, dataDir, 'SELECT 1')
  const pid = Number(await parent.line('pid '))
  parent.child.stdin?.write('fail\n')
  await parent.ended
  await expect.poll(() => isRunning(pid)).toBe(false)
  expect(await exists(join(cluster, 'postmaster.pid'))).toBe(false)
})

test('a terminal that interrupts the whole process group does not reach the server', async () => {
  usePreparedData()
  await start()
  const pid = await postmasterPid()
  const groups = execFileSync('ps', ['-o', 'pgid=', '-p', String(pid)], { encoding: 'utf8' })
  expect(Number(groups)).toBe(pid)
})

test('a postmaster.pid with the number of an unrelated process is no obstacle', async () => {
  usePreparedData()
  // PostgreSQL itself would refuse to start if any live process of the same user had this id.
  const identity = await chooseIdentity(cluster)
  const unrelated = spawn('sleep', ['3600'], { ...spawnIdentity(identity), cwd: '/' })
  await once(unrelated, 'spawn')
  const file = join(cluster, 'postmaster.pid')
  await writeFile(file, `${unrelated.pid}\n${cluster}\n1\n5432\n/tmp\n\n  1  1\nready   \n`)
  if (identity.dropped) await chown(file, identity.uid, identity.gid)

  const server = await start()
  expect(await query(server, readTable)).toEqual(keptRows)
  expect(unrelated.exitCode).toBe(null)
  unrelated.kill()
  await server.stop()

  // A power failure can leave the file without its content.
  await writeFile(file, '')
  if (identity.dropped) await chown(file, identity.uid, identity.gid)
  expect(await query(await start(), readTable)).toEqual(keptRows)
})

test('a first start that was killed halfway is begun again', async () => {
  const parent = processes.start(startAndTellPid, dataDir, 'SELECT 1')
  const isUnderWay = async () =>
    (await readdir(dataDir).catch(() => [])).some((name) => name.startsWith('postgres.new-'))
  await expect.poll(isUnderWay, { interval: 10 }).toBe(true)
  parent.child.kill('SIGKILL')
  await parent.ended
  expect(await exists(cluster)).toBe(false)

  await query(await start(), ...makeTable)
  expect((await readdir(dataDir)).filter((name) => name.includes('.new-'))).toEqual([])
})

test('a lost password is replaced, and a wrong one is explained', async () => {
  usePreparedData()
  const passwordFile = join(dataDir, 'postgres-password')
  const lost = await readFile(passwordFile, 'utf8')
  await rm(passwordFile)
  const server = await start()
  expect(server.connection.password).not.toBe(lost)
  expect(await query(server, readTable)).toEqual(keptRows)
  await server.stop()

  await writeFile(passwordFile, 'wrong')
  await expect(start()).rejects.toThrow(`the password in [${passwordFile}] is not the one`)
  expect(await exists(join(cluster, 'postmaster.pid'))).toBe(false)
  await rm(passwordFile)
})

test('a server that does not start is explained by the end of its log', async () => {
  usePreparedData()
  const attempt = start({ shared_buffers: 'plenty' })
  await expect(attempt).rejects.toThrow(EmbeddedError)
  await expect(attempt).rejects.toThrow(/instead of starting:\n.*shared_buffers.*plenty/)
  expect(await exists(join(dataDir, 'postgres-run'))).toBe(false)
})

test('a cluster of another version or foreign files are left alone', async () => {
  await mkdir(cluster, { recursive: true })
  await writeFile(join(cluster, 'notes.txt'), '')
  await expect(start()).rejects.toThrow(`the folder [${cluster}] has files but no`)
  await writeFile(join(cluster, 'PG_VERSION'), '17\n')
  await expect(start()).rejects.toThrow('is of PostgreSQL [17] and this offshoot brings [18]')
  expect((await readdir(cluster)).sort()).toEqual(['PG_VERSION', 'notes.txt'])
})

test('a log that has grown large is put aside', async () => {
  usePreparedData()
  await writeFile(join(dataDir, 'postgres.log'), Buffer.alloc(11 * 1024 * 1024, 'x'))
  await start()
  expect((await stat(join(dataDir, 'postgres.log'))).size).toBeLessThan(10_000)
  expect((await stat(join(dataDir, 'postgres.log.1'))).size).toBe(11 * 1024 * 1024)
})

test('a platform without a package is told how to go on', async () => {
  await expect(findPackage('win32-x64')).rejects.toThrow(
    new EmbeddedError(
      'no embedded PostgreSQL for win32-x64: set OFFSHOOT_DATABASE_URL to use your own',
    ),
  )
})

/** A copy of the package as npm unpacks it, before its install script creates the links. */
async function copyPackage(to: string) {
  const installed = await findPackage()
  await cp(installed.folder, to, {
    recursive: true,
    filter: async (source) => !source.endsWith('.a') && !(await lstat(source)).isSymbolicLink(),
  })
  return readPackage(to, installed.target)
}

test('missing links and executable bits of the package are made in place', async () => {
  await chmod(folder, 0o755)
  const binaryPackage = await copyPackage(join(folder, 'package'))
  const native = join(binaryPackage.folder, 'native')
  for (const name of await readdir(join(native, 'bin')))
    await chmod(join(native, 'bin', name), 0o644)
  const links = JSON.parse(await readFile(join(native, 'pg-symlinks.json'), 'utf8'))
  expect(await exists(join(binaryPackage.folder, links[0].target))).toBe(false)

  running.push(await startFromPackage(binaryPackage, options()))
  expect((await lstat(join(binaryPackage.folder, links[0].target))).isSymbolicLink()).toBe(true)
  expect(lines.filter((line) => line.includes('copied'))).toEqual([])
})

test('a package that cannot be used in place is copied once, also by two at a time', async () => {
  await chmod(folder, 0o755)
  const outer = join(folder, 'closed')
  const binaryPackage = await copyPackage(join(outer, 'package'))
  // Root can write anywhere, but runs the programs as a user who cannot access this folder.
  const closed = isRoot ? outer : join(binaryPackage.folder, 'native', 'lib')
  await chmod(closed, isRoot ? 0o700 : 0o500)
  const identity = await chooseIdentity(cluster)
  const cacheFolder = join(folder, 'cache')
  const fallbackFolder = join(folder, 'fallback')
  const prepare = (cache: string | undefined) => {
    const log = (line: string) => {
      lines.push(line)
    }
    return prepareBinaries({ binaryPackage, identity, cacheFolder: cache, fallbackFolder, log })
  }

  const [one, two] = await Promise.all([prepare(cacheFolder), prepare(cacheFolder)])
  expect(one.postgres).toBe(two.postgres)
  expect(one.postgres.startsWith(`${cacheFolder}/postgresql-${binaryPackage.version}`)).toBe(true)
  const copy = dirname(dirname(one.postgres))
  const made = (await stat(copy)).ino
  const version = () =>
    execFileSync(one.postgres, ['--version'], { ...spawnIdentity(identity), encoding: 'utf8' })
  expect(version()).toContain('PostgreSQL) 18')

  await prepare(cacheFolder)
  expect((await stat(copy)).ino).toBe(made)

  await rm(join(copy, '.complete'))
  await rm(join(copy, 'share'), { recursive: true })
  await prepare(cacheFolder)
  expect(await readdir(cacheFolder)).toEqual([copy.slice(cacheFolder.length + 1)])
  expect(await exists(join(copy, 'share'))).toBe(true)

  await writeFile(join(folder, 'file'), '')
  const elsewhere = await prepare(join(folder, 'file', 'cache'))
  expect(elsewhere.postgres.startsWith(fallbackFolder)).toBe(true)
  await chmod(closed, 0o755)
})

test.skipIf(!isRoot)('root can keep the data where the other user cannot get', async () => {
  const closed = join(folder, 'closed')
  await mkdir(closed, { mode: 0o700 })
  useDataFolder(join(closed, 'project', '.offshoot'))
  const server = await start({ min_parallel_table_scan_size: '0', parallel_setup_cost: '0' })
  const [{ path }] = (await query(server, `SELECT current_setting('data_directory') AS path`)) as [
    { path: string },
  ]
  expect(path).toBe('/proc/self/fd/3')
  expect((await stat(cluster)).uid).not.toBe(0)
  await query(
    server,
    ...makeTable,
    'CHECKPOINT',
    'CREATE DATABASE another STRATEGY file_copy',
    "ALTER SYSTEM SET work_mem = '7MB'",
    'SELECT pg_reload_conf()',
    'CREATE EXTENSION pg_trgm',
    'CREATE TABLE large AS SELECT generate_series(1, 50000) AS number',
    'VACUUM ANALYZE large',
  )
  const plan = await query(server, 'EXPLAIN ANALYZE SELECT count(*) FROM large')
  expect(JSON.stringify(plan)).toMatch(/Workers Launched: [12]/)

  // If one process of the server crashes, the server restarts all of them.
  const victim = new pg.Client(server.connection)
  victim.on('error', () => {})
  await victim.connect()
  const { rows } = await victim.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  process.kill(rows[0]?.pid ?? 0, 'SIGKILL')
  const read = () => query(server, readTable).catch(() => undefined)
  await expect.poll(read).toEqual(keptRows)

  process.kill(await postmasterPid(), 'SIGKILL')
  await server.exited
  const again = await start()
  expect(await query(again, readTable)).toEqual(keptRows)
  expect(await query(again, 'SHOW work_mem')).toEqual([{ work_mem: '7MB' }])
})

test.skipIf(!isRoot)('root uses plain paths where the other user can get', async () => {
  usePreparedData()
  await chmod(dataDir, 0o755)
  const sql = `SELECT current_setting('data_directory') AS path`
  const server = await start()
  expect(await query(server, sql)).toEqual([{ path: cluster }])
})

test.skipIf(!isRoot)('root hands a cluster with a wrong owner to the other user', async () => {
  usePreparedData()
  const { uid } = await stat(cluster)
  execFileSync('chown', ['-R', '0:0', cluster])
  await chmod(cluster, 0o755)
  expect(await query(await start(), readTable)).toEqual(keptRows)
  expect((await stat(join(cluster, 'global', 'pg_control'))).uid).toBe(uid)
})

test('permission bits are read for the owner, the group or all others', () => {
  const identity = { uid: 10, gid: 20 }
  expect(allows({ mode: 0o100, uid: 10, gid: 20 }, identity, 1)).toBe(true)
  expect(allows({ mode: 0o011, uid: 10, gid: 20 }, identity, 1)).toBe(false)
  expect(allows({ mode: 0o010, uid: 0, gid: 20 }, identity, 1)).toBe(true)
  expect(allows({ mode: 0o101, uid: 0, gid: 20 }, identity, 1)).toBe(false)
  expect(allows({ mode: 0o001, uid: 0, gid: 0 }, identity, 1)).toBe(true)
  expect(allows({ mode: 0o001, uid: 0, gid: 0 }, identity, 5)).toBe(false)
})

test('accounts are read without root and with the unsigned numbers of macos', () => {
  const text = '# comment\nroot:x:0:0::/:/bin/sh\nnobody:*:-2:-2::/:/bin/false\nbroken\n'
  expect(parseAccounts(text)).toEqual([{ name: 'nobody', uid: 4294967294, gid: 4294967294 }])
})
