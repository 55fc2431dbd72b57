import type pg from 'pg'

/** The target of connections: a URL, or the connection of the embedded server. */
export type Connection =
  | { readonly url: string }
  | {
      readonly host: string
      readonly port: number
      readonly user: string
      readonly password: string
      readonly database: string
    }

export const CONNECT_TIMEOUT_MS = 5_000
/** TCP keepalive: a machine that disappeared is noticed after about half a minute. */
const KEEPALIVE = { idleSeconds: 15, intervalSeconds: 5, count: 3 }

/**
 * Times are read and written as text in UTC, so a session must not depend on the server's settings. The names are those
 * of PostgreSQL.
 */
export const TEXT_SETTINGS = {
  TimeZone: 'UTC',
  DateStyle: 'ISO,YMD',
  IntervalStyle: 'iso_8601',
  extra_float_digits: '1',
} as const

/** Returns the same target with another database of the server. */
export function inDatabase(connection: Connection, database: string): Connection {
  if (!('url' in connection)) return { ...connection, database }
  const url = new URL(connection.url)
  url.pathname = `/${encodeURIComponent(database)}`
  return { url: url.href }
}

/** Returns the configuration of a connection. Its settings are applied by `prepareConnection`. */
export function clientConfig(
  connection: Connection,
  connectTimeoutMs = CONNECT_TIMEOUT_MS,
): pg.ClientConfig {
  return {
    // The embedded server is reached over a socket, whatever the environment says about TLS.
    ...('url' in connection ? { connectionString: connection.url } : { ...connection, ssl: false }),
    application_name: 'offshoot',
    connectionTimeoutMillis: connectTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEPALIVE.idleSeconds * 1000,
  }
}

/** Returns the settings of a session. Zero means no time limit. */
export function sessionSettings(statementTimeoutMs: number): Readonly<Record<string, string>> {
  return {
    ...TEXT_SETTINGS,
    client_min_messages: 'warning',
    statement_timeout: String(statementTimeoutMs),
    tcp_keepalives_idle: String(KEEPALIVE.idleSeconds),
    tcp_keepalives_interval: String(KEEPALIVE.intervalSeconds),
    tcp_keepalives_count: String(KEEPALIVE.count),
    idle_in_transaction_session_timeout: String(2 * statementTimeoutMs),
  }
}
