import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { until } from '../support/process.js'
import { EVERYTHING_KILLED, SERVICE_KILLED } from '../support/proof/faults.js'
import {
  describeReply,
  makeProofFolder,
  ProofService,
  type Reply,
  type SendOptions,
} from '../support/proof/service.js'
import { amount, ROUNDS_TIMEOUT_MS, SEED } from '../support/random.js'
import { Random } from '../support/seeded-random.js'

/** How often each operation is interrupted. */
const KILLS = amount('KILLS', { short: 1, long: 10 })
/** A kill comes at most this long after the request. */
const KILL_WITHIN_MS = 100
const KEPT = 3
const RECORDS = 300
const IDS = Array.from({ length: RECORDS }, (_, number) => `r${number}`)
/** Records of the partial merge. */
const PART = IDS.slice(0, 100)

type Prices = Readonly<Record<string, number>>
type Change = { request: [string, string, SendOptions]; after: Prices }

const random = new Random(SEED)
let folder: Awaited<ReturnType<typeof makeProofFolder>>
let service: ProofService
let price = 0

beforeAll(async () => {
  folder = await makeProofFolder()
  service = new ProofService(folder.path, {
    OFFSHOOT_BACKGROUND_PAUSE_MS: '100',
    OFFSHOOT_LIMIT_AUTOMATIC_CHECKPOINTS_MAX: String(KEPT),
  })
  await service.start()
  await done('PUT', `/workspaces/${service.workspaceId}/dbs/undo`, { body: { region: 'local' } })
  const operations = [
    { addTable: { table: 'items' } },
    { addColumn: { table: 'items', column: { name: 'price', type: 'int' } } },
  ]
  await done('POST', '/db/undo:main/schema/apply', { body: { edits: { operations } } })
  await load()
})
afterAll(() => folder.remove())

/** Sends a request that must succeed. */
async function done(method: string, url: string, options: SendOptions = {}) {
  const reply = await service.send(method, url, options)
  if (reply.status >= 300 || reply.status === 0) throw new Error(describeReply(reply))
  return reply.body
}

/** A request that gives records another price, or creates them. */
function loading(ids = IDS): Change {
  const next = ++price
  const lines = ids.map((id) => `${JSON.stringify({ id, price: next })}\n`)
  const options = {
    headers: { 'content-type': 'application/x-ndjson' },
    body: Buffer.from(lines.join('')),
  }
  return {
    request: ['POST', '/db/undo:main/tables/items/bulk?existing=replace', options],
    after: Object.fromEntries(ids.map((id) => [id, next])),
  }
}

/** Gives records another price, or creates them, and returns the entry of the log. */
async function load(ids = IDS): Promise<string> {
  await done(...loading(ids).request)
  return newest('bulk')
}

/** A request that gives all records, or those of a part, another price by a merge of the branch `dev`. */
async function merging(part?: readonly string[]): Promise<Change> {
  await done('PUT', '/db/undo:dev', body({ from: 'main' }))
  const next = ++price
  const update = body({ statement: `update items set price = ${next}` })
  await done('POST', '/db/undo:dev/sql', update)
  const only = part && { records: part.map((id) => ({ table: 'items', id })) }
  const changed = Object.fromEntries((part ?? IDS).map((id) => [id, next]))
  return {
    request: ['POST', '/db/undo:dev/merge', body({ into: 'main', only })],
    after: { ...(await prices()), ...changed },
  }
}

/** Gives all records another price by a merge, and returns the entry of the log. */
async function merge(): Promise<string> {
  const { request } = await merging()
  await done(...request)
  await done('DELETE', '/db/undo:dev')
  return newest('merge')
}

const newest = async (kind: string): Promise<string> =>
  (await done('GET', `/db/undo:main/log?kind=${kind}&size=1`)).entries[0]?.id ?? ''

async function prices(query = ''): Promise<Prices> {
  const body = { columns: ['price'], page: { size: 1000 } }
  const { records } = await done('POST', `/db/undo:main/tables/items/query${query}`, { body })
  return Object.fromEntries(
    records.map((record: { id: string; price: number }) => [record.id, record.price]),
  )
}

/** Sends a request, and kills the service in the middle of it. */
async function interrupt(request: [string, string, SendOptions]): Promise<Reply> {
  const sent = service.send(...request)
  await delay(random.below(KILL_WITHIN_MS))
  await random.pick([SERVICE_KILLED, EVERYTHING_KILLED]).strike(service, random)
  return sent
}

/** Interrupts a change, and expects that it has taken effect with its entry of the log, or not at all. */
async function expectWhole(kind: string, { request, after }: Change): Promise<void> {
  const [before, last] = [await prices(), await newest(kind)]
  const reply = await interrupt(request)
  const now = await prices()
  const isDone = (await newest(kind)) !== last
  expect(now, `${kind}: ${describeReply(reply)}`).toEqual(isDone ? after : before)
  if (reply.status === 200) expect(isDone).toBe(true)
}

const body = (value: object): SendOptions => ({ body: value })

describe(`a service that is killed while it undoes changes (seed ${SEED})`, () => {
  const OPERATIONS: Record<string, () => Promise<void>> = {
    'a bulk load': () => expectWhole('bulk', loading()),
    async 'a revert of a merge'() {
      const before = await prices()
      const entry = await merge()
      await expectWhole('revert', {
        request: ['POST', '/db/undo:main/revert', body({ entry })],
        after: before,
      })
    },
    async 'a revert of a bulk load'() {
      const before = await prices()
      const entry = await load(IDS.map((id) => `new-${id}`))
      const request: Change['request'] = ['POST', '/db/undo:main/revert', body({ entry })]
      await expectWhole('revert', { request, after: before })
      // The load can be taken back again, whether or not it was.
      await done(...request)
      expect(await prices()).toEqual(before)
    },
    async 'a checkpoint'() {
      const name = `named-${++price}`
      const now = await prices()
      const reply = await interrupt(['POST', '/db/undo:main/checkpoints', body({ name })])
      const found = await service.send('GET', `/db/undo:main/checkpoints/${name}`)
      if (reply.status === 201) expect(found.status).toBe(200)
      await load()
      if (found.status === 200) expect(await prices(`?at=${name}`)).toEqual(now)
    },
    async 'a partial merge'() {
      await expectWhole('merge', await merging(PART))
      await done('DELETE', '/db/undo:dev')
    },
    async 'a reset to a checkpoint'() {
      const name = `reset-${++price}`
      await done('POST', '/db/undo:main/checkpoints', body({ name }))
      const after = await prices()
      await load()
      await expectWhole('reset', {
        request: ['POST', '/db/undo:main/reset', body({ at: name })],
        after,
      })
    },
    async 'the collection of checkpoints'() {
      for (let count = 0; count < KEPT; count++) await merge()
      await interrupt((await merging()).request)
      await done('DELETE', '/db/undo:dev')
      const now = await prices()
      const automatic = async () => {
        const { checkpoints } = await done('GET', '/db/undo:main/checkpoints')
        return checkpoints.filter((each: { before?: string }) => each.before === 'merge')
      }
      await until(async () => (await automatic()).length <= KEPT)
      for (const { id } of await automatic()) {
        expect(Object.keys(await prices(`?at=${id}`)).length).toBe(RECORDS)
      }
      expect(await prices()).toEqual(now)
      // The newest merge has kept its states, and can still be reverted.
      const entry = await merge()
      await done('POST', '/db/undo:main/revert', body({ entry }))
      expect(await prices()).toEqual(now)
    },
  }

  it.each(Object.entries(OPERATIONS))(
    'has all or nothing of %s',
    {
      timeout: ROUNDS_TIMEOUT_MS,
    },
    async (_, operation) => {
      for (let count = 0; count < KILLS; count++) await operation()
    },
  )
})
