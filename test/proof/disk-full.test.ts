import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtemp, open, readdir, realpath, rm, statfs } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { endAll, until } from '../support/process.js'
import { checkLedger } from '../support/proof/check.js'
import { Proof } from '../support/proof/proof.js'
import { createProofDatabase, DATABASE, ProofService } from '../support/proof/service.js'
import { Round } from '../support/proof/writer.js'
import { SEED } from '../support/random.js'

const run = promisify(execFile)

/** The SQLSTATE of a full disk. */
const DISK_FULL = '53100'

/** Size of the disk. A new cluster takes about 60 MB. */
const DISK_MB = 256

/** Size of a segment of the log. */
const LOG_BYTES = 16 * 1024 * 1024

/** Mounts a separate disk in memory. Returns undefined if mounting is not permitted. */
async function mountDisk(): Promise<string | undefined> {
  const folder = await realpath(await mkdtemp(path.join(tmpdir(), 'offshoot-proof-disk-')))
  try {
    await run('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MB}m`, 'tmpfs', folder])
    return folder
  } catch {
    await rm(folder, { recursive: true })
    return undefined
  }
}

const disk = await mountDisk()
if (disk === undefined) {
  console.warn('skipped: what happens when the disk is full; mounting a small one is not permitted')
}

describe.skipIf(disk === undefined)(`a service whose disk is full (seed ${SEED})`, () => {
  const folder = disk ?? ''
  const dataDir = path.join(folder, 'data')
  const ballast = path.join(folder, 'ballast')
  const service = new ProofService(dataDir, { OFFSHOOT_BACKGROUND_PAUSE_MS: '200' })
  const proof = new Proof(SEED)
  const items = `/db/${DATABASE}:main/tables/items`

  beforeAll(async () => {
    await service.start()
    await createProofDatabase(service, service.workspaceId)
    // Without recycled WAL segments, the moment at which the log runs out of space is predictable.
    await switchOff('wal_recycle')
  })
  afterAll(async () => {
    await endAll([dataDir])
    await until(async () => (await service.postgres()).length === 0)
    await run('umount', ['-l', folder])
    await rm(folder, { recursive: true, force: true })
  })

  async function switchOff(setting: 'wal_recycle' | 'restart_after_crash'): Promise<void> {
    await service.sql(`alter system set ${setting} = off`)
    await service.sql('select pg_reload_conf()')
    await until(async () => {
      const [row] = await service.sql(`show ${setting}`)
      return row?.[setting] === 'off'
    })
  }

  /** Fills the disk except for this many bytes. */
  async function fill(leftBytes: number): Promise<void> {
    const { bavail, bsize } = await statfs(folder)
    const bytes = Math.max(0, bavail * bsize - leftBytes)
    const file = await open(ballast, 'a')
    const block = Buffer.alloc(64 * 1024)
    for (let written = 0; written < bytes; written += block.length) {
      const part = block.subarray(0, Math.min(block.length, bytes - written))
      await file.write(part).catch(() => undefined)
    }
    await file.close()
  }

  const free = () => rm(ballast, { force: true })

  // A test that fails in the middle must not leave the disk full for the next one.
  afterEach(free)

  /** Starts a WAL segment, so that the WAL needs no space on the disk for the next 16 MB. */
  const startSegment = () => service.sql('select pg_switch_wal(); checkpoint')

  const upload = (content: Buffer) =>
    service.send('PUT', `/db/${DATABASE}:main/tables/files/data/disk-0/column/content/file`, {
      body: content,
      headers: { 'content-type': 'application/octet-stream' },
    })

  it('refuses a file with a clear answer, and leaves nothing of it behind', async () => {
    const url = `/db/${DATABASE}:main/tables/files/data/disk-0`
    expect((await service.send('PUT', url, { body: { label: 'a' } })).status).toBe(201)
    const content = Buffer.alloc(8 * 1024 * 1024, 'x')
    await startSegment()
    await fill(4 * 1024 * 1024)
    const refused = await upload(content)
    expect(refused.status).toBe(503)
    expect(refused.body).toMatchObject({
      code: 'storage_full',
      message: 'there is no space left to store the file',
    })
    expect(refused.headers['retry-after']).toBeDefined()
    expect(await readdir(path.join(dataDir, 'files', 'incoming'))).toEqual([])
    const record = await service.send('GET', url)
    expect(record.body.content).toBeUndefined()
    await free()
    expect((await upload(content)).status).toBe(201)
    const { bytes } = await service.send('GET', `${url}/column/content/file`)
    const hash = (value: Buffer) => createHash('sha256').update(value).digest('hex')
    expect(hash(bytes)).toBe(hash(content))
    expect((await service.send('DELETE', url)).status).toBe(204)
  })

  it('refuses writes with a clear answer while reads go on, if there is space for the log', async () => {
    await startSegment()
    await fill(0)
    const records = Array.from({ length: 2000 }, (_, n) => ({
      id: `disk-${n}`,
      value: n,
      payload: 'x'.repeat(500),
    }))
    const refused = await service.send('POST', `${items}/bulk`, { body: { records } })
    expect(refused.status).toBe(503)
    expect(refused.body).toMatchObject({
      code: 'storage_full',
      message: 'there is no space left on the disk of the database; nothing was applied',
    })
    expect(refused.headers['retry-after']).toBeDefined()
    expect((await service.send('GET', `${items}/data/total`)).status).toBe(200)
    await free()
    const accepted = await service.send('POST', `${items}/bulk`, { body: { records } })
    expect(accepted.status).toBe(200)
    const operations = records.slice(0, 1000).map(({ id }) => ({ delete: { table: 'items', id } }))
    const others = records.slice(1000).map(({ id }) => ({ delete: { table: 'items', id } }))
    for (const part of [operations, others]) {
      const deleted = await service.send('POST', `/db/${DATABASE}:main/transaction`, {
        body: { operations: part },
      })
      expect(deleted.status).toBe(200)
    }
  })

  it('refuses requests while PostgreSQL has no space to accept connections', async () => {
    await startSegment()
    const client = new pg.Client({ ...(await service.connection()), ssl: false })
    client.on('error', () => undefined)
    await client.connect()
    const { rows } = await client.query('select oid from pg_database')
    const folders = ['global', ...rows.map(({ oid }) => `base/${oid}`)]
    // PostgreSQL removes these files when it recovers. The next connection writes them, or fails.
    const caches = folders.map((name) => path.join(dataDir, 'postgres', name, 'pg_internal.init'))
    await service.explain(() =>
      until(async () => {
        for (const cache of caches) await rm(cache, { force: true })
        await fill(0)
        await client.query(
          `select pg_terminate_backend(pid, 60000) from pg_stat_activity
           where backend_type = 'client backend' and pid <> pg_backend_pid()`,
        )
        await fill(0)
        const refusal = await service.sql('select 1').catch(({ code }) => code)
        return refusal === DISK_FULL && !(await service.isReady())
      }),
    )
    await client.end()
    for (const [method, body] of [['GET'], ['PUT', { value: 1 }]] as const) {
      const refused = await service.send(method, `${items}/data/total`, { body })
      expect(refused.status).toBe(503)
      expect(refused.body.code).toBe('storage_full')
      expect(refused.headers['retry-after']).toBeDefined()
    }
    await free()
    await service.untilReady()
    expect((await service.send('GET', `${items}/data/total`)).body.value).toBe(0)
  })

  it.each([
    { space: 'tables', end: endTables, codes: ['storage_full'] },
    // Tables may have space inside, so that the log runs out before a table has to grow.
    { space: 'log', end: endLog, codes: ['storage_full', 'unavailable', 'commit_unknown'] },
  ])(
    'loses nothing when there is no more space for the $space, and goes on when there is',
    async ({ space, end, codes }) => {
      // PostgreSQL would restart its processes itself if one of them fails. Depending on where its log
      // ends, it then recovers on the full disk, runs on without accepting connections, and the log
      // never ends.
      await switchOff('restart_after_crash')
      const round = new Round(service, { mayVanish: false })
      const faults = await proof.play([round], {
        check: service,
        happen: () =>
          service.explain(async () => {
            await until(async () => round.acknowledged > 50)
            await startSegment()
            await until(async () => round.acknowledged > 60)
            await fill(0)
            await end(round)
            await free()
            await service.untilReady()
            const before = round.acknowledged
            await until(async () => round.acknowledged > before + 20)
          }),
      })
      expect(faults, `seed ${SEED}`).toEqual([])
      expect(service.isRunning).toBe(true)
      expect(codes).toEqual(expect.arrayContaining([...round.codes.keys()]))
      console.log(
        `no space for the ${space}: seed ${SEED}, ${round.acknowledged} acknowledged changes ` +
          `checked, ${round.unknown} with unknown outcome`,
      )
    },
  )

  /**
   * Waits until writers were refused because tables cannot grow. Tables may have space inside; then it ends before the
   * log does.
   */
  async function endTables(round: Round): Promise<void> {
    const position = async () => {
      const [row] = await service.sql(`select pg_current_wal_lsn() - '0/0' as bytes`)
      return Number(row?.bytes)
    }
    const start = await position()
    await until(
      async () =>
        (round.codes.get('storage_full') ?? 0) > 10 || (await position()) > start + LOG_BYTES / 2,
    )
  }

  /** Fills the disk until PostgreSQL stops because it cannot write its WAL, and cannot restart. */
  async function endLog(round: Round): Promise<void> {
    await until(async () => {
      // Use up segments that were created in advance.
      const use = `select pg_logical_emit_message(false, '', 'x'), pg_switch_wal()`
      await service.sql(use).catch(() => undefined)
      // PostgreSQL removes files, also during recovery. Fill that space again, or it would continue
      // for a while.
      await fill(0)
      return service.log.includes('the embedded PostgreSQL did not start')
    })
    expect((await service.send('GET', '/health')).status).toBe(503)
    expect((await service.send('GET', `${items}/data/total`)).body.code).toBe('unavailable')
    await untilWritersWait(round)
  }

  /** Waits until most writers do not know the outcome of a change. Each waits to find it out. */
  async function untilWritersWait(round: Round): Promise<void> {
    await until(async () => round.unknown > 10)
  }

  it('has all of it after a restart', async () => {
    await service.kill()
    await service.start()
    expect(await checkLedger(service, proof.ledger)).toEqual([])
    await service.kill('SIGTERM')
  })
})
