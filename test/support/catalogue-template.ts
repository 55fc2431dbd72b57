import { Database } from '../../packages/server/src/postgres/database.js'
import { migrate } from '../../packages/server/src/postgres/migrate.js'
import { type Sql, sql } from '../../packages/server/src/postgres/sql.js'
import { databaseUrl, listWorkersOf, newDatabaseName, query } from './server-databases.js'

/**
 * Creates a database with a catalogue, and returns its name. To copy it takes a tenth of the time of all migrations.
 * There is none on a cluster, because a copy would belong to the nodes of the original.
 */
export async function createTemplate(server: string): Promise<string | undefined> {
  if ((await listWorkersOf(server)).length > 0) return undefined
  const name = newDatabaseName()
  await query(server, `create database ${name}`)
  const database = new Database({
    poolMax: 1,
    distributes: false,
    statementTimeoutMs: 0,
    onIdleError: () => undefined,
  })
  database.connect({ url: databaseUrl(server, name) })
  await migrate(database)
  await database.close()
  return name
}

/** Gives a copy of a catalogue secrets and an identity of its own, as the migrations do. */
export const NEW_SECRETS: Sql = sql`
  with link_keys as (
    update offshoot.link_keys
    set secret = sha256(convert_to(gen_random_uuid()::text || gen_random_uuid(), 'UTF8'))
  ), secrets as (
    update offshoot.secrets
    set secret = sha256(convert_to(gen_random_uuid()::text || gen_random_uuid(), 'UTF8'))
  )
  update offshoot_work.identity
  set id = substr(replace(gen_random_uuid()::text, '-', ''), 1, 12)`
