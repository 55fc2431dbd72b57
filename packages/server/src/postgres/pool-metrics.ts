import { type Family, gauge } from '../telemetry/metrics.js'
import type { Database } from './database.js'

/** Metrics of the connections to PostgreSQL. */
export function poolMetrics(database: Database): readonly Family[] {
  return [
    gauge('offshoot_postgres_server', 'The PostgreSQL server in use, in the label.', () => [
      { labels: { server: database.serverName }, value: 1 },
    ]),
    gauge('offshoot_pool_connections_max', 'Connections that may be opened.', () => {
      return database.poolState.max
    }),
    gauge('offshoot_pool_connections', 'Connections that are open.', () => database.poolState.open),
    gauge('offshoot_pool_connections_in_use', 'Connections that are in use.', () => {
      return database.poolState.inUse
    }),
    gauge('offshoot_pool_waiting', 'Requests that wait for a connection.', () => {
      return database.poolState.waiting
    }),
  ]
}
