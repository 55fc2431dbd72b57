import pg from 'pg'
import type { PostgresServer } from './global-setup.js'
import {
  databaseUrl,
  dropDatabase,
  listWorkersOf,
  newDatabaseName,
  query,
  type Worker,
} from './server-databases.js'
import { serverOfWorker } from './server-of-worker.js'

export interface TestDatabase {
  readonly pool: pg.Pool
  readonly url: string
  /** Whether the database is a copy of one with a catalogue. */
  readonly hasCatalogue: boolean
  close(): Promise<void>
}

function requireServer(): PostgresServer {
  const server = serverOfWorker()
  if (server === undefined) throw new Error('tests of this project have no PostgreSQL')
  return server
}

/**
 * A fresh PostgreSQL database of the caller's own: an empty one, or a copy of one with a catalogue if the server has it.
 * On a cluster, it is one on each node.
 */
export async function createTestDatabase({ copiesCatalogue = false } = {}): Promise<TestDatabase> {
  const { url: server, template, pid } = requireServer()
  const name = newDatabaseName()
  const workers = await listWorkers()
  const servers = [server, ...workers.map(urlOf)]
  // To copy files takes a third of the time of a copy through the log, if a checkpoint costs nothing: the embedded server
  // does not wait for the disk.
  const strategy = pid === undefined ? '' : ' strategy file_copy'
  const from = copiesCatalogue && template !== undefined ? ` template ${template}${strategy}` : ''
  await Promise.all(servers.map((each) => query(each, `create database ${name}${from}`)))
  const url = databaseUrl(server, name)
  if (workers.length > 0) {
    await Promise.all(
      servers.map((each) => query(databaseUrl(each, name), 'create extension citus')),
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
    hasCatalogue: from !== '',
    async close() {
      await pool.end()
      for (const each of servers) await dropDatabase(each, name)
    },
  }
}

/** Lists the workers, if the server that the tests run on is the coordinator of a Citus cluster. */
export async function listWorkers(): Promise<Worker[]> {
  const { url, template } = requireServer()
  // Only a cluster has no template.
  return template === undefined ? listWorkersOf(url) : []
}

/** Workers have the user and the password of the coordinator. */
function urlOf({ host, port }: Worker): string {
  const url = new URL(requireServer().url)
  url.host = `${host}:${port}`
  return url.href
}
