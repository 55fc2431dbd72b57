import type pg from 'pg'
import { literal, type Sql, sql } from './sql.js'
import { type Call, compileStatement, toQuery } from './statement.js'

/*
 * Connections for SQL of users have settings of their own, from the moment they are opened: names resolve to pg_catalog
 * only, there are no parallel workers, memory and temporary files are limited, and what is not begun as a transaction
 * that writes is a snapshot that only reads. Statements of users cannot change settings, so none of this is sent again.
 */

/**
 * Statements that end soon do not wait for long ones, and neither waits for transactions that clients keep open: each kind
 * has connections of its own.
 */
export type Lane = 'quick' | 'long' | 'open'

/** A quick statement that takes longer is ended. */
const QUICK_MS_MAX = 250

/** The memory of one sort or hash before it uses temporary files, and the limit of those files. */
const WORK_MEMORY = '4MB'
const TEMPORARY_FILES_MAX = '256MB'

const LIMITS_OF_STATEMENTS: Readonly<Record<string, string>> = {
  search_path: 'pg_catalog',
  work_mem: WORK_MEMORY,
  hash_mem_multiplier: '1',
  max_parallel_workers_per_gather: '0',
  jit: 'off',
  // Clients of PostgreSQL read intervals and dates in the style of a server with default settings.
  IntervalStyle: 'postgres',
  DateStyle: 'ISO,MDY',
}

const ONLY_READS: Readonly<Record<string, string>> = {
  default_transaction_read_only: 'on',
  default_transaction_isolation: 'repeatable read',
}

/** Writes a statement that applies settings, and limits temporary files if the server permits it. */
function apply(settings: Readonly<Record<string, string>>, { isLocal }: { isLocal: boolean }): Sql {
  const scope = isLocal ? sql`true` : sql`false`
  const applied = Object.entries(settings).map(
    ([name, value]) => sql`set_config(${literal(name)}, ${literal(value)}, ${scope}), `,
  )
  return applied.reduceRight(
    (rest, each) => sql`${each}${rest}`,
    sql`case when has_parameter_privilege('temp_file_limit', 'set')
      then set_config('temp_file_limit', ${literal(TEMPORARY_FILES_MAX)}, ${scope})
    end`,
  )
}

/** The limits for one transaction, for connections that others have opened. */
export const LIMIT_TRANSACTION: Call = {
  statement: compileStatement(sql`select ${apply(LIMITS_OF_STATEMENTS, { isLocal: true })}`),
  values: [],
}

/** Applies the settings to a new connection for SQL of users. */
export async function prepareForUsers(
  client: pg.ClientBase,
  { lane, statementTimeoutMs }: { lane: Lane; statementTimeoutMs: number },
): Promise<void> {
  const quickMs = Math.min(QUICK_MS_MAX, statementTimeoutMs || QUICK_MS_MAX)
  const settings = {
    ...LIMITS_OF_STATEMENTS,
    ...ONLY_READS,
    ...(lane === 'quick' ? { statement_timeout: String(quickMs) } : {}),
  }
  await client.query(toQuery(sql`select ${apply(settings, { isLocal: false })}`))
}
