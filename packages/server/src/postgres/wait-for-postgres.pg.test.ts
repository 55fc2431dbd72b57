import { once } from 'node:events'
import { createServer, connect as openSocket, type Server } from 'node:net'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../../../../test/support/database.js'
import { freePort } from '../../../../test/support/process.js'
import { Database } from './database.js'
import { waitForPostgres } from './wait-for-postgres.js'

let own: TestDatabase
let target: { host: string; port: number; user: string; password: string; database: string }
let database: Database
let server: Server | undefined

beforeAll(async () => {
  own = await createTestDatabase()
  const { host, port, user, password, database: name } = new pg.Client(own.url)
  target = { host, port, user: user ?? '', password: password ?? '', database: name ?? '' }
})
afterEach(async () => {
  await database.close()
  server?.close()
})
afterAll(() => own.close())

/** A PostgreSQL that comes up later: nothing listens there before `open`. */
async function connectLate(options: { password?: string } = {}) {
  const port = await freePort()
  database = new Database({ poolMax: 2, statementTimeoutMs: 5_000, onIdleError: () => undefined })
  database.connect({ ...target, host: '127.0.0.1', port, ...options })
  return {
    async open() {
      server = createServer((socket) => {
        const path = `${target.host}/.s.PGSQL.${target.port}`
        const upstream = openSocket(target.host.startsWith('/') ? { path } : target)
        socket.pipe(upstream).pipe(socket)
        for (const end of [socket, upstream]) end.on('error', () => undefined)
      }).listen(port, '127.0.0.1')
      await once(server, 'listening')
    },
  }
}

describe('waiting for PostgreSQL', () => {
  it('ends as soon as it answers, and says meanwhile what it waits for', async () => {
    const late = await connectLate()
    const reports: { code: string | undefined; secondsLeft: number }[] = []
    const waiting = waitForPostgres(database, {
      waitMs: 200_000,
      signal: new AbortController().signal,
      onWait: (details) => reports.push(details),
    })
    await expect.poll(() => reports.length).toBeGreaterThan(0)
    expect(reports[0]?.code).toBe('ECONNREFUSED')
    expect(reports[0]?.secondsLeft).toBeGreaterThan(0)
    expect(reports[0]?.secondsLeft).toBeLessThanOrEqual(200)
    await late.open()
    await waiting
  })

  it('ends with the failure when the time is over', async () => {
    await connectLate()
    const options = { signal: new AbortController().signal, onWait: () => undefined }
    const startedAt = performance.now()
    await expect(waitForPostgres(database, { ...options, waitMs: 700 })).rejects.toThrow(
      'ECONNREFUSED',
    )
    expect(performance.now() - startedAt).toBeGreaterThan(600)
    await expect(waitForPostgres(database, { ...options, waitMs: 0 })).rejects.toThrow(
      'ECONNREFUSED',
    )
  })

  it('does not wait for what will not change, nor when it is told to stop', async () => {
    const late = await connectLate({ password: 'wrong' })
    await late.open()
    const never = { waitMs: 60_000, onWait: () => undefined }
    const { signal } = new AbortController()
    await expect(waitForPostgres(database, { ...never, signal })).rejects.toThrow(/password/)
    await database.close()
    server?.close()
    await connectLate()
    const stopping = AbortSignal.timeout(100)
    await expect(waitForPostgres(database, { ...never, signal: stopping })).rejects.toThrow()
  })
})
