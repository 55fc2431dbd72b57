import { randomBytes } from 'node:crypto'
import pg from 'pg'

/* The databases of a PostgreSQL that the tests use. */

/** A server of the cluster besides the coordinator. */
export interface Worker {
  readonly host: string
  readonly port: number
}

export function newDatabaseName(): string {
  return `test_${randomBytes(8).toString('hex')}`
}

export function databaseUrl(server: string, name: string): string {
  const url = new URL(server)
  url.pathname = `/${name}`
  return url.href
}

export async function query(url: string, statement: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query(statement)).rows
  } finally {
    await client.end()
  }
}

/** Lists the workers, if the server is the coordinator of a Citus cluster. */
export async function listWorkersOf(server: string): Promise<Worker[]> {
  const [found] = await query(
    server,
    `select to_regclass('pg_dist_node') is not null as "isCluster"`,
  )
  if (found?.isCluster !== true) return []
  const rows = await query(
    server,
    `select nodename as host, nodeport as port from pg_dist_node where groupid > 0 order by nodeport`,
  )
  return rows as unknown as Worker[]
}

const OBJECT_IN_USE = '55006'
const DROPS_MAX = 20

/** Drops a database. PostgreSQL ends its connections, but gives up if that takes long on a busy machine. */
export async function dropDatabase(server: string, name: string): Promise<void> {
  for (let count = 1; ; count++) {
    try {
      await query(server, `drop database ${name} with (force)`)
      return
    } catch (error) {
      if ((error as pg.DatabaseError).code !== OBJECT_IN_USE || count === DROPS_MAX) throw error
    }
  }
}
