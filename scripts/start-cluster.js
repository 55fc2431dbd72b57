#!/usr/bin/env node
/*
 * Starts a Citus cluster on this machine, for tests: a coordinator and workers, each with a folder and a port of its
 * own. It needs the programs of PostgreSQL, and Citus installed with them; CONTRIBUTING.md has a recipe. Prints the
 * URL of the coordinator. The cluster runs until this process ends; the folder keeps it.
 *
 *   node scripts/start-cluster.js [--folder FOLDER] [--port PORT] [--workers COUNT] [--bin FOLDER]
 */
import { spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chownSync, existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import pg from 'pg'

const { values: options } = parseArgs({
  options: {
    folder: { type: 'string' },
    port: { type: 'string', default: '5500' },
    workers: { type: 'string', default: '2' },
    bin: { type: 'string', default: '/usr/lib/postgresql/15/bin' },
  },
})
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

/** PostgreSQL refuses to run as root. */
const account = process.getuid?.() === 0 ? findAccount('postgres') : undefined

function findAccount(name) {
  const line = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((entry) => entry.startsWith(`${name}:`))
  if (line === undefined) throw new Error(`as root, this needs a user [${name}]`)
  const [, , uid, gid] = line.split(':')
  return { uid: Number(uid), gid: Number(gid) }
}

function own(path) {
  if (account !== undefined) chownSync(path, account.uid, account.gid)
}

const folder = options.folder ?? mkdtempSync(join(tmpdir(), 'offshoot-cluster-'))
mkdirSync(folder, { recursive: true })
own(folder)
const passwordFile = join(folder, 'password')
const passFile = join(folder, 'pgpass')
if (!existsSync(passwordFile)) {
  const password = randomBytes(18).toString('base64url')
  writeFileSync(passwordFile, password, { mode: 0o600 })
  // Nodes connect to each other with this file.
  writeFileSync(passFile, `*:*:*:*:${password}\n`, { mode: 0o600 })
  own(passwordFile)
  own(passFile)
}
const password = readFileSync(passwordFile, 'utf8')

const nodes = Array.from({ length: Number(options.workers) + 1 }, (_, number) => ({
  name: number === 0 ? 'coordinator' : `worker-${number}`,
  port: Number(options.port) + number,
}))

const urlOf = ({ port }) => `postgresql://${USER}:${password}@${HOST}:${port}/${DATABASE}`

function initialise({ name }) {
  const data = join(folder, name)
  if (existsSync(data)) return
  const made = spawnSync(
    join(options.bin, 'initdb'),
    [
      '-D',
      data,
      '-U',
      USER,
      '-A',
      'scram-sha-256',
      `--pwfile=${passwordFile}`,
      '-E',
      'UTF8',
      '--locale=C.UTF-8',
      '-N',
    ],
    { ...account, encoding: 'utf8' },
  )
  if (made.status !== 0) throw new Error(made.error?.message ?? made.stderr)
}

function start({ name, port }) {
  const settings = Object.entries({ ...SETTINGS, port, unix_socket_directories: folder })
  const server = spawn(
    join(options.bin, 'postgres'),
    ['-D', join(folder, name), ...settings.flatMap(([key, value]) => ['-c', `${key}=${value}`])],
    {
      ...account,
      env: { ...process.env, HOME: folder, PGPASSFILE: passFile },
      stdio: ['ignore', 'ignore', 'pipe'],
    },
  )
  server.stderr.on('data', (text) =>
    process.stderr.write(text.toString().replaceAll(/^(?=.)/gm, `${name}: `)),
  )
  return server
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

async function untilReady({ port }) {
  const url = `postgresql://${USER}:${password}@${HOST}:${port}/postgres`
  for (let left = 600; ; left--) {
    try {
      await ask(url, ['select 1'])
      return url
    } catch (error) {
      if (left === 0) throw error
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }
}

for (const node of nodes) initialise(node)
const servers = nodes.map(start)
let isStopping = false
const stop = () => {
  isStopping = true
  for (const server of servers) server.kill('SIGINT')
}
process.on('SIGINT', stop)
process.on('SIGTERM', stop)
for (const [index, server] of servers.entries()) {
  server.on('exit', (code) => {
    if (!isStopping) console.error(`${nodes[index].name} has ended with code ${code}`)
  })
}

try {
  for (const node of nodes) {
    const url = await untilReady(node)
    await ask(url, [`create database ${DATABASE}`]).catch((error) => {
      if (error.code !== '42P04') throw error
    })
    await ask(urlOf(node), ['create extension if not exists citus'])
  }
  const [coordinator, ...workers] = nodes
  await ask(urlOf(coordinator), [
    `select citus_set_coordinator_host('${HOST}', ${coordinator.port})`,
    ...workers.map(({ port }) => `select citus_add_node('${HOST}', ${port})`),
  ])
  console.log(urlOf(coordinator))
} catch (error) {
  stop()
  throw error
}
