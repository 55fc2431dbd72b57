import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { freePort, until } from './process.js'

const PLACES = [
  process.env.OFFSHOOT_TEST_PGBOUNCER ?? '',
  '/usr/sbin/pgbouncer',
  '/usr/bin/pgbouncer',
  '/usr/local/bin/pgbouncer',
]
const program = PLACES.find((place) => place !== '' && existsSync(place))
/** Tests of poolers are skipped on a machine without PgBouncer, and say so. */
export const hasPgBouncer = program !== undefined
if (!hasPgBouncer) {
  process.stderr.write(
    'the tests of poolers are skipped: install pgbouncer, or set OFFSHOOT_TEST_PGBOUNCER\n',
  )
}

export type PoolMode = 'session' | 'transaction' | 'statement'

/** A PgBouncer in front of a database. */
export interface PgBouncer {
  readonly url: string
  /** Changes the mode while clients are connected. */
  setMode(mode: PoolMode): Promise<void>
  stop(): Promise<void>
}

/** Starts a PgBouncer on a free port of loopback. It accepts everybody, and connects as the user of the address. */
export async function startPgBouncer(
  target: string,
  options: { mode: PoolMode; settings?: Readonly<Record<string, string | number>> },
): Promise<PgBouncer> {
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-pgbouncer-'))
  const file = path.join(folder, 'pgbouncer.ini')
  const port = await freePort()
  const write = (mode: PoolMode) =>
    writeFile(file, configuration(target, { ...options.settings, pool_mode: mode, port }))
  await write(options.mode)
  await chmod(folder, 0o755)
  // PgBouncer refuses to run as root. PostgreSQL does, too, so its sockets belong to somebody else.
  const isRoot = process.getuid?.() === 0
  const args = [...(isRoot ? ['-u', userOf(socketOf(target))] : []), file]
  const child = spawn(program ?? 'pgbouncer', args, { stdio: ['ignore', 'ignore', 'pipe'] })
  let log = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    log += text
  })
  await until(async () => {
    if (child.exitCode !== null) throw new Error(`pgbouncer ended: ${log}`)
    return isListening(port)
  })
  return {
    url: `postgresql://pooled@127.0.0.1:${port}/pooled`,
    async setMode(mode) {
      await write(mode)
      const before = log.length
      child.kill('SIGHUP')
      await until(async () => log.slice(before).includes('re-reading config'))
    },
    async stop() {
      await end(child)
      await rm(folder, { recursive: true, force: true })
    },
  }
}

function configuration(
  target: string,
  { port, ...settings }: Readonly<Record<string, string | number>>,
): string {
  const url = new URL(target)
  const values = {
    host: socketOf(target),
    port: url.port,
    user: decodeURIComponent(url.username),
    password: decodeURIComponent(url.password),
    dbname: url.pathname.slice(1),
  }
  const pairs = Object.entries(values).map(([name, value]) => `${name}='${value}'`)
  const lines = {
    listen_addr: '127.0.0.1',
    listen_port: port,
    unix_socket_dir: '',
    auth_type: 'any',
    max_client_conn: 500,
    default_pool_size: 50,
    ...settings,
  }
  return [
    '[databases]',
    `pooled = ${pairs.join(' ')}`,
    '[pgbouncer]',
    ...Object.entries(lines).map(([name, value]) => `${name} = ${value}`),
    '',
  ].join('\n')
}

/** The folder of the socket, or the host. */
function socketOf(target: string): string {
  const { searchParams, hostname } = new URL(target)
  return searchParams.get('host') ?? hostname
}

function userOf(folder: string): string {
  if (!folder.startsWith('/')) return 'nobody'
  return execFileSync('stat', ['--format=%U', folder], { encoding: 'utf8' }).trim()
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
      .once('connect', () => {
        socket.destroy()
        resolve(true)
      })
      .once('error', () => resolve(false))
  })
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  await ended
}
