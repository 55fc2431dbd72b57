import type pg from 'pg'
import { sessionSettings } from './client-config.js'
import { codeOf, INVALID_PARAMETER_VALUE } from './failures.js'
import { join, type Sql, sql } from './sql.js'
import { toQuery } from './statement.js'

/**
 * `client_connection_check_interval`: how often PostgreSQL checks that this process is still
 * connected. The locks of a dead process must be released soon, because others may wait for them.
 */
const CLIENT_CHECK_MS = 1_000

/**
 * Applies the settings of the service to a new connection. They are not sent with the connection request, because poolers
 * refuse or ignore them there, and because `options` of a URL would replace them. Returns undefined, or the id of the
 * backend if the connection goes through a pooler. Then nothing was applied yet, because others might get the settings:
 * call it again with the id when the pooler is known to keep sessions.
 */
export async function prepareConnection(
  client: pg.ClientBase,
  { statementTimeoutMs, backendId }: { statementTimeoutMs: number; backendId?: number },
): Promise<number | undefined> {
  const { processID } = client as unknown as { processID: number | null }
  const settings = sessionSettings(statementTimeoutMs)
  const expected = backendId ?? processID ?? 0
  const watched = { ...settings, client_connection_check_interval: String(CLIENT_CHECK_MS) }
  const found = await apply(client, expected, watched).catch((error: unknown) => {
    // Some platforms do not support the last setting.
    if (codeOf(error) !== INVALID_PARAMETER_VALUE) throw error
    return apply(client, expected, settings)
  })
  return found === expected ? undefined : found
}

async function apply(
  client: pg.ClientBase,
  expected: number,
  settings: Readonly<Record<string, string>>,
): Promise<number> {
  const applied: Sql[] = Object.entries(settings).map(
    ([name, value]) => sql`set_config(${name}, ${value}, false)`,
  )
  const statement = sql`
    select pg_backend_pid() as id,
      case when pg_backend_pid() = ${expected} then ${join(applied, ' || ')} end`
  const { rows } = await client.query<{ id: number }>(toQuery(statement))
  return rows[0]?.id ?? 0
}
