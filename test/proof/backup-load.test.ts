import { setTimeout as delay } from 'node:timers/promises'
import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import type { DatabaseName } from '../../packages/server/src/backup/create-backup.js'
import { restoreBackup } from '../../packages/server/src/backup/restore-backup.js'
import { restoreDatabase } from '../../packages/server/src/backup/restore-database.js'
import type { Database } from '../../packages/server/src/postgres/database.js'
import { inChunks, makeArchive, openForBackup } from '../support/archive.js'
import { TestBranches } from '../support/branches.js'
import { createTestDatabase } from '../support/database.js'
import { openLocalStore } from '../support/file-store.js'
import { until } from '../support/process.js'
import { amount } from '../support/random.js'
import { createTestService, REGIONS, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * Backups of databases in use: clients move money between tables, fork and merge. In each restored database, the sums
 * are right on all branches, and the history agrees with the rows. On a cluster, databases are on several nodes.
 */

/** Backups in a normal run. On a cluster, a few hundred are a good proof of a change. */
const BACKUPS = amount('BACKUPS', { short: 2, long: 20 })
const ACCOUNTS = ['a', 'b', 'c']
const SUM = 1000
/** Forks that exist at the same time. */
const FORKS_MAX = 4
/** Pause between two writes, so that other requests are served. */
const PAUSE_MS = 5

let service: TestService
let loads: Load[]
const cleanUps: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  service = await createTestService({ spareHeapsMax: 4 })
  cleanUps.push(() => service.close())
  loads = [await Load.create('first'), await Load.create('second')]
})
afterAll(async () => {
  for (const cleanUp of cleanUps.reverse()) await cleanUp()
})

const operationsOf = (id: string, [left, right]: readonly [number, number]) => ({
  operations: [
    { insert: { table: 'lefts', record: { id, amount: left } } },
    { insert: { table: 'rights', record: { id, amount: right } } },
  ],
})

/** Clients of one database. */
class Load {
  #isOver = false
  /** Transfers on main, and merges into it. */
  readonly #done = { transfers: 0, merges: 0 }

  private constructor(readonly branches: TestBranches) {}

  static async create(name: string): Promise<Load> {
    const columns = [{ name: 'amount', type: 'int' }] as const
    const branches = await TestBranches.create(service, name, { lefts: columns, rights: columns })
    for (const id of ACCOUNTS) {
      expectOk(await branches.call('main', 'POST', '/transaction', operationsOf(id, [SUM, 0])))
    }
    return new Load(branches)
  }

  /** Keeps clients busy while `body` runs. */
  async during<Result>(body: () => Promise<Result>): Promise<Result> {
    this.#isOver = false
    const before = { ...this.#done }
    const clients = Promise.all([...ACCOUNTS.map((id) => this.#transfer(id)), this.#fork()])
    const busy = async () => {
      await until(async () => {
        const { transfers, merges } = this.#done
        return transfers > before.transfers + 10 && merges > before.merges
      })
      const result = await body()
      this.#isOver = true
      return result
    }
    try {
      // A client that fails ends the test.
      const [result] = await Promise.all([busy(), clients])
      return result
    } finally {
      this.#isOver = true
    }
  }

  /** Writes a record to both tables. Forks and merges may exhaust the retries of a write, which then has no effect. */
  async #write(branch: string, id: string, amounts: readonly [number, number]): Promise<void> {
    const body = operationsOf(id, amounts)
    for (;;) {
      const answer = await this.branches.call(branch, 'POST', '/transaction', body)
      if (answer.body.code !== 'retry_limit') return void expectOk(answer)
    }
  }

  async #transfer(id: string): Promise<void> {
    while (!this.#isOver) {
      const moved = this.#done.transfers++ % SUM
      await this.#write('main', id, [SUM - moved, moved])
      await delay(PAUSE_MS)
    }
  }

  /** A fork gets a record in both tables, main gets them by a merge, and changes them. */
  async #fork(): Promise<void> {
    while (!this.#isOver) {
      const count = this.#done.merges + 1
      const [name, id] = [`fork-${count}`, `merged-${count}`]
      await this.branches.fork(name)
      await this.#write(name, id, [1, -1])
      await this.branches.merge(name)
      await this.#write('main', id, [2, -2])
      if (count > FORKS_MAX) await this.branches.delete(`fork-${count - FORKS_MAX}`)
      this.#done.merges = count
      await runBackground(service)
    }
  }
}

/** Makes a backup while both databases are in use. */
function backUp(database: Database, only?: DatabaseName): Promise<Buffer> {
  const { blobs } = service.files
  return loads.reduce(
    (work, load) => () => load.during(work),
    () => makeArchive({ database, blobs, only }),
  )()
}

async function amountsOf(branches: TestBranches, branch: string, table: string) {
  const body = { columns: ['amount'], page: { size: 1000 } }
  const { records } = expectOk(
    await branches.call(branch, 'POST', `/tables/${table}/query`, body),
  ).body
  return new Map<string, number>(
    records.map(({ id, amount }: { id: string; amount: number }) => [id, amount]),
  )
}

/** Checks each record of a branch. Returns the amounts in the first table. */
async function checkSums(branches: TestBranches, branch: string) {
  const [lefts, rights] = [
    await amountsOf(branches, branch, 'lefts'),
    await amountsOf(branches, branch, 'rights'),
  ]
  expect([...lefts.keys()].sort(), branch).toEqual([...rights.keys()].sort())
  for (const [id, left] of lefts) {
    const sum = ACCOUNTS.includes(id) ? SUM : 0
    expect(left + (rights.get(id) ?? Number.NaN), `${branch} ${id}`).toBe(sum)
  }
  return lefts
}

async function checkRestored(branches: TestBranches): Promise<void> {
  const { service: via, database } = branches
  const found = expectOk(await via.call('GET', `${via.workspace}/dbs/${database}`)).body
  const names: string[] = found.branches.map(({ name }: { name: string }) => name)
  const main = await checkSums(branches, 'main')
  for (const name of names.filter((other) => other !== 'main')) {
    const id = name.replace('fork', 'merged')
    const onFork = (await checkSums(branches, name)).get(id)
    // Main has changed the record since the merge. So a merge that the history lacks would be a conflict, and one
    // that is only in the history would not bring the record again.
    expect(await branches.merge(name), name).toMatchObject({ conflictCount: 0 })
    expect((await checkSums(branches, 'main')).get(id), name).toBe(main.get(id) ?? onFork)
  }
  await branches.fork('new')
  await branches.put('new', 'lefts', 'own', { amount: 0 })
  await branches.put('new', 'rights', 'own', { amount: 0 })
  await checkSums(branches, 'new')
}

const onProgress = () => undefined

/** Restores an instance into an empty one, and checks all databases. */
async function checkInstance(archive: Buffer): Promise<void> {
  const place = await createTestDatabase()
  const store = await openLocalStore()
  const database = openForBackup(place.url)
  try {
    const { blobs } = store
    await restoreBackup({ database, blobs, source: inChunks(archive), onProgress })
    const restored = await createTestService({ url: place.url, blobs })
    const { key, workspaceId, workspace } = service
    const call: TestService['call'] = (method, url, options) =>
      restored.call(method, url, { key, ...options })
    const via = { ...restored, key, workspaceId, workspace, call }
    for (const { branches } of loads) await checkRestored(new TestBranches(via, branches.database))
    await restored.close()
  } finally {
    await database.close()
    await store.close()
    await place.close()
  }
}

/** Restores a database beside the original, and checks it. */
async function checkDatabase(database: Database, archive: Buffer, name: string): Promise<void> {
  const { blobs } = service.files
  const [as, source] = ['restored', inChunks(archive)]
  const limits = LIMITS
  await restoreDatabase({ database, blobs, source, name, as, regions: REGIONS, limits, onProgress })
  await checkRestored(new TestBranches(service, as))
  expectOk(await service.call('DELETE', `/workspaces/${service.workspaceId}/dbs/${as}`))
}

describe('a backup of databases in use', () => {
  it.each(Array.from({ length: BACKUPS }, (_, index) => index + 1))(
    'has the rows and the history of one moment (%d)',
    async (round) => {
      const database = openForBackup(service.url)
      try {
        const name = round % 4 === 2 ? 'first' : 'second'
        if (round % 2 === 1) await checkInstance(await backUp(database))
        else await checkDatabase(database, await backUp(database, { name }), name)
      } finally {
        await database.close()
      }
    },
  )
})
