import type pg from 'pg'
import type { StatementTracing } from '../../packages/server/src/postgres/database.js'

/** Calls `seen` for each query that a service sends, with the texts of its statements. One query is one round trip. */
export function watchQueries(seen: (statements: readonly string[]) => void): StatementTracing {
  return {
    startCall: () => undefined,
    watch(client: pg.ClientBase) {
      const query = client.query.bind(client) as (...parts: unknown[]) => unknown
      Object.assign(client, {
        query(...parts: readonly unknown[]) {
          const [first] = parts as [string | { text?: string; statements?: readonly string[] }]
          seen(typeof first === 'string' ? [first] : (first.statements ?? [first.text ?? '']))
          return query(...parts)
        },
      })
    },
  }
}
