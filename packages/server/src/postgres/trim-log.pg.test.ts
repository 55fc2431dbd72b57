import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type EmbeddedPostgres, startEmbedded } from '@offshoot/embedded-postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { endAll, until } from '../../../../test/support/process.js'
import { Database } from './database.js'
import { literal, sql } from './sql.js'
import { OFF_FOR_A_CHECKPOINT, trimLog } from './trim-log.js'

const MIB = 1024 * 1024

let dataDir: string
let postgres: EmbeddedPostgres
let database: Database

beforeAll(async () => {
  dataDir = await realpath(await mkdtemp(path.join(tmpdir(), 'offshoot-log-')))
  postgres = await startEmbedded({ dataDir, log: () => undefined })
})
afterAll(async () => {
  await database.close()
  await postgres.stop()
  await endAll([dataDir])
  await rm(dataDir, { recursive: true, force: true })
})
// A process knows nothing of earlier rounds when it starts.
beforeEach(async () => {
  await database?.close()
  database = new Database({
    poolMax: 2,
    statementTimeoutMs: 200_000,
    onIdleError: () => undefined,
  })
  database.connect(postgres.connection)
})

async function write(mebibytes: number): Promise<void> {
  await database.query(sql`
    select pg_logical_emit_message(false, '', repeat('x', ${MIB})) from generate_series(1, ${mebibytes})`)
}

async function logBytes(): Promise<number> {
  const [row] = await database.query<{ bytes: number }>(sql`
    select sum(size)::float8 as bytes from pg_ls_waldir()`)
  return row?.bytes ?? 0
}

async function recycles(): Promise<boolean> {
  const [row] = await database.query<{ recycles: boolean }>(sql`
    select current_setting('wal_recycle')::boolean as recycles`)
  return row?.recycles ?? false
}

describe('the log of the embedded PostgreSQL', () => {
  it('becomes small when the server rests after a large import', async () => {
    await write(200)
    expect(await logBytes()).toBeGreaterThan(200 * MIB)
    expect(await trimLog(database)).toBe(false)
    // PostgreSQL writes by itself at times, such as for statistics.
    await until(() => trimLog(database))
    expect(await logBytes()).toBeLessThan(64 * MIB)
    await until(recycles)
    expect(await trimLog(database)).toBe(false)
  })

  it('stays as it is while the server writes', async () => {
    await write(200)
    for (let round = 0; round < 3; round++) {
      expect(await trimLog(database)).toBe(false)
      await write(2)
    }
    expect(await logBytes()).toBeGreaterThan(200 * MIB)
  })

  it('stays as it is if it is not large', async () => {
    await until(() => trimLog(database))
    await write(40)
    expect(await trimLog(database)).toBe(false)
    expect(await trimLog(database)).toBe(false)
  })

  it('is kept for reuse again if a process has ended during its checkpoint', async () => {
    await database.query(sql`alter system set wal_recycle = ${literal(OFF_FOR_A_CHECKPOINT)}`)
    await database.query(sql`select pg_reload_conf()`)
    await until(async () => !(await recycles()))
    await trimLog(database)
    await until(recycles)
  })

  it('is not kept for reuse if an administrator has decided so', async () => {
    await database.query(sql`alter system set wal_recycle = off`)
    await database.query(sql`select pg_reload_conf()`)
    await until(async () => !(await recycles()))
    await write(200)
    for (let round = 0; round < 3; round++) expect(await trimLog(database)).toBe(false)
    const setting = await database.query(sql`
      select setting from pg_file_settings where name = 'wal_recycle'`)
    expect(setting).toEqual([{ setting: 'off' }])
    await database.query(sql`alter system reset wal_recycle`)
    await database.query(sql`select pg_reload_conf()`)
    await until(recycles)
  })
})
