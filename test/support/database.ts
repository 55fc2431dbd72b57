import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { inject } from 'vitest'
import type { PostgresServer } from './global-setup.js'

export interface TestDatabase {
  readonly pool: pg.Pool
  readonly url: string
  close(): Promise<void>
}

/** Returns the server that the files of this process use; none in a project without one. */
export function serverOfWorker(): PostgresServer | undefined {
  const servers = inject('postgresServers') ?? []
  return servers[(Number(process.env.VITEST_POOL_ID) - 1) % servers.length]
}

function serverUrl(): string {
  const server = serverOfWorker()
  if (server === undefined) throw new Error('tests of this project have no PostgreSQL')
  return server.url
}

/** A fresh, empty PostgreSQL database of the caller's own. On a cluster, it is one on each node. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const name = `test_${randomBytes(8).toString('hex')}`
  const workers = await listWorkers()
  const servers = [serverUrl(), ...workers.map(urlOf)]
  await Promise.all(servers.map((server) => query(server, `create database ${name}`)))
  const url = databaseUrl(serverUrl(), name)
  if (workers.length > 0) {
    await Promise.all(
      servers.map((server) => query(databaseUrl(server, name), 'create extension citus')),
    )
    const { hostname, port } = new URL(url)
    await query(url, `select citus_set_coordinator_host('${hostname}', ${port})`)
    for (const worker of workers) {
      await query(url, `select citus_add_node('${worker.host}', ${worker.port})`)
    }
  }
  const pool = new pg.Pool({ connectionString: url })
  // A pool has ended before its connections are closed, and dropping the database may cut them. Then the pool has an
  // error, too.
  pool.on('connect', (client) => client.on('error', () => undefined))
  pool.on('error', () => undefined)
  return {
    pool,
    url,
    async close() {
      await pool.end()
      for (const server of servers) await dropDatabase(server, name)
    },
  }
}

const OBJECT_IN_USE = '55006'
const DROPS_MAX = 20

/** Drops a database. PostgreSQL ends its connections, but gives up if that takes long on a busy machine. */
async function dropDatabase(server: string, name: string): Promise<void> {
  for (let count = 1; ; count++) {
    try {
      await query(server, `drop database ${name} with (force)`)
      return
    } catch (error) {
      if ((error as pg.DatabaseError).code !== OBJECT_IN_USE || count === DROPS_MAX) throw error
    }
  }
}

interface Worker {
  readonly host: string
  readonly port: number
}

/** Lists the workers, if the server that the tests run on is the coordinator of a Citus cluster. */
export async function listWorkers(): Promise<Worker[]> {
  const url = serverUrl()
  const [found] = await query(url, `select to_regclass('pg_dist_node') is not null as "isCluster"`)
  if (found?.isCluster !== true) return []
  const rows = await query(
    url,
    `select nodename as host, nodeport as port from pg_dist_node where groupid > 0 order by nodeport`,
  )
  return rows as unknown as Worker[]
}

/** Workers have the user and the password of the coordinator. */
function urlOf({ host, port }: Worker): string {
  const url = new URL(serverUrl())
  url.host = `${host}:${port}`
  return url.href
}

async function query(url: string, statement: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query(statement)).rows
  } finally {
    await client.end()
  }
}

function databaseUrl(server: string, name: string): string {
  const url = new URL(server)
  url.pathname = `/${name}`
  return url.href
}
