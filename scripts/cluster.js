/*
 * A Citus cluster on this machine, for tests: a coordinator and workers, each with a folder and a port of its own. It needs
 * the programs of PostgreSQL, and Citus installed with them; CONTRIBUTING.md has a recipe.
 */
import { spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chownSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'

/** Where Debian installs the programs of PostgreSQL. */
export const PROGRAMS = '/usr/lib/postgresql/15/bin'

const HOST = '127.0.0.1'
const USER = 'offshoot'
const DATABASE = 'offshoot'

const SETTINGS = {
  listen_addresses: HOST,
  shared_preload_libraries: 'citus',
  max_connections: 300,
  // Transactions that change the tables of several nodes are committed in two phases.
  max_prepared_transactions: 300,
  // A schema is moved to another worker by logical replication, while it is written to.
  wal_level: 'logical',
  max_locks_per_transaction: 256,
  // Citus has a maintenance worker for each PostgreSQL database, and warns in a COMMIT if it cannot start it.
  max_worker_processes: 128,
  // All nodes are on this machine.
  ssl: 'off',
  'citus.node_conninfo': 'sslmode=disable',
}

/** Returns whether Citus is installed with the programs of PostgreSQL in a folder. */
export function hasCitus(bin = PROGRAMS) {
  const asked = spawnSync(join(bin, 'pg_config'), ['--sharedir'], { encoding: 'utf8' })
  return asked.status === 0 && existsSync(join(asked.stdout.trim(), 'extension', 'citus.control'))
}

/** PostgreSQL refuses to run as root. */
const account = process.getuid?.() === 0 ? findAccount('postgres') : undefined

function findAccount(name) {
  const line = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((entry) => entry.startsWith(`${name}:`))
  if (line === undefined) return undefined
  const [, , uid, gid] = line.split(':')
  return { uid: Number(uid), gid: Number(gid) }
}

function own(path) {
  if (account !== undefined) chownSync(path, account.uid, account.gid)
}

/** One server of a cluster. */
class Node {
  #server
  #stopped = false

  constructor(name, { port, folder, bin, password, log }) {
    this.name = name
    this.port = port
    this.dataDir = join(folder, name)
    this.url = urlOf({ password, port, database: DATABASE })
    this.#options = { folder, bin, password, log }
  }

  #options

  initialise() {
    const { bin, folder } = this.#options
    if (existsSync(this.dataDir)) return
    const options = ['-U', USER, '-A', 'scram-sha-256', '-E', 'UTF8', '--locale=C.UTF-8', '-N']
    const made = spawnSync(
      join(bin, 'initdb'),
      ['-D', this.dataDir, `--pwfile=${passwordFileIn(folder)}`, ...options],
      { ...account, encoding: 'utf8' },
    )
    if (made.status !== 0) throw new Error(made.error?.message ?? made.stderr)
  }

  /** Starts the server, and waits until it accepts connections. */
  async start() {
    const { folder, bin, password, log } = this.#options
    const given = { ...SETTINGS, port: this.port, unix_socket_directories: folder }
    const parameters = Object.entries(given).flatMap(([key, value]) => ['-c', `${key}=${value}`])
    const server = spawn(join(bin, 'postgres'), ['-D', this.dataDir, ...parameters], {
      ...account,
      env: { ...process.env, HOME: folder, PGPASSFILE: passFileIn(folder) },
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    this.#server = server
    this.#stopped = false
    let lastWords = ''
    server.stderr.on('data', (text) => {
      lastWords = text.toString()
      log?.(lastWords.replaceAll(/^(?=.)/gm, `${this.name}: `))
    })
    server.on('exit', (code) => {
      if (!this.#stopped) log?.(`${this.name} has ended with code ${code}\n`)
    })
    const url = urlOf({ password, port: this.port, database: 'postgres' })
    for (let left = 600; ; left--) {
      try {
        await ask(url, ['select 1'])
        return
      } catch (error) {
        if (server.exitCode !== null) throw new Error(`${this.name} has ended: ${lastWords}`)
        if (left === 0) throw error
        await new Promise((resolve) => setTimeout(resolve, 100))
      }
    }
  }

  /** Sends a signal to the server; SIGINT stops it in an orderly way. Resolves when it has ended. */
  async stop(signal = 'SIGINT') {
    this.#stopped = true
    const server = this.#server
    if (server === undefined || server.exitCode !== null || server.signalCode !== null) return
    const ended = once(server, 'exit')
    server.kill(signal)
    await ended
  }

  /** Creates the database and the extension of a new node. */
  async prepare() {
    const url = urlOf({ password: this.#options.password, port: this.port, database: 'postgres' })
    await ask(url, [`create database ${DATABASE}`]).catch((error) => {
      if (error.code !== '42P04') throw error
    })
    await ask(this.url, ['create extension if not exists citus'])
  }
}

const passwordFileIn = (folder) => join(folder, 'password')
const passFileIn = (folder) => join(folder, 'pgpass')

const urlOf = ({ password, port, database }) =>
  `postgresql://${USER}:${password}@${HOST}:${port}/${database}`

function preparePassword(folder) {
  const passwordFile = passwordFileIn(folder)
  if (!existsSync(passwordFile)) {
    const password = randomBytes(18).toString('base64url')
    writeFileSync(passwordFile, password, { mode: 0o600 })
    // Nodes connect to each other with this file.
    writeFileSync(passFileIn(folder), `*:*:*:*:${password}\n`, { mode: 0o600 })
    own(passwordFile)
    own(passFileIn(folder))
  }
  return readFileSync(passwordFile, 'utf8')
}

async function ask(url, statements) {
  const client = new pg.Client({ connectionString: url })
  // A server that is starting or stopping cuts connections.
  client.on('error', () => undefined)
  await client.connect()
  try {
    for (const statement of statements) await client.query(statement)
  } finally {
    await client.end()
  }
}

/**
 * Starts a cluster in a folder, which keeps it. The ports of the nodes are given, that of the coordinator first. `reachedAt`
 * are ports at which nodes connect to each other, if something is in between. Returns the nodes.
 */
export async function startCluster({ folder, ports, reachedAt = ports, bin = PROGRAMS, log }) {
  mkdirSync(folder, { recursive: true })
  own(folder)
  const password = preparePassword(folder)
  const nodes = ports.map(
    (port, number) =>
      new Node(number === 0 ? 'coordinator' : `worker-${number}`, {
        port,
        folder,
        bin,
        password,
        log,
      }),
  )
  const stop = () => Promise.all(nodes.map((node) => node.stop()))
  try {
    for (const node of nodes) node.initialise()
    await Promise.all(nodes.map((node) => node.start()))
    for (const node of nodes) await node.prepare()
    const [first, ...others] = reachedAt
    await ask(nodes[0].url, [
      `select citus_set_coordinator_host('${HOST}', ${first})`,
      ...others.map((port) => `select citus_add_node('${HOST}', ${port})`),
    ])
  } catch (error) {
    await stop()
    throw error
  }
  return { nodes, stop }
}
