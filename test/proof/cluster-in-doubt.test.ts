import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { canStartCluster, type TestCluster } from '../support/cluster.js'
import { until } from '../support/process.js'
import { type OnCluster, startOnCluster } from '../support/proof/on-cluster.js'
import { DATABASE, type ProofService, type Reply } from '../support/proof/service.js'

/*
 * Nodes of a cluster are killed, or hang, while a request waits for them at a certain point. A merge changes rows on a node
 * and the catalogue on the coordinator, and is committed in two phases; other writes of rows are committed in one. Without
 * OFFSHOOT_TEST_CLUSTER_BIN, the tests are skipped.
 */

let started: OnCluster
let cluster: TestCluster
let service: ProofService

const canStart = canStartCluster('writes on a cluster whose nodes are killed at a certain point')

describe.skipIf(!canStart)('a write on a cluster', () => {
  beforeAll(async () => {
    started = await startOnCluster({
      isProxied: true,
      isRecoveredByService: true,
      // Background work commits in two phases, too.
      backgroundPauseMs: 3_600_000,
    })
    ;({ cluster, service } = started)
  })
  afterAll(async () => {
    await started?.close()
  })

  const send = (method: string, url: string, body?: unknown) =>
    service.send(method, `/db/${DATABASE}:${url}`, { body })

  /** Repeats a request while the service asks to try it again. */
  async function answerOf(method: string, url: string, body?: unknown): Promise<Reply> {
    let reply = await send(method, url, body)
    await until(async () => {
      if (reply.status === 503) reply = await send(method, url, body)
      return reply.status !== 503
    })
    return reply
  }

  /** Sends a request until the connection of the coordinator to the worker is held. Returns its answer. */
  async function sendUntilHeld(held: Promise<unknown>, request: () => Promise<Reply>) {
    let answer = request()
    // A connection of the coordinator to a worker that was killed before is noticed when it is used.
    await until(async () => {
      const refused = await Promise.race([held.then(() => undefined), answer])
      if (refused === undefined) return true
      expect(refused.body).toMatchObject({ code: 'unavailable' })
      answer = request()
      return false
    })
    return { answer }
  }

  it.each([
    { killed: 'worker', nodeOf: () => cluster.workerOf(DATABASE) },
    { killed: 'coordinator', nodeOf: async () => cluster.coordinator },
  ])(
    'is not seen by halves if the $killed is killed between the phases of the commit of a merge',
    async ({ killed, nodeOf }) => {
      const branch = `from-${killed}`
      expect((await answerOf('PUT', branch, { from: 'main' })).status).toBe(201)
      const written = await answerOf('PUT', `${branch}/tables/items/data/${killed}`, { value: 7 })
      expect(written.status).toBe(201)
      const node = await nodeOf()
      const held = cluster
        .proxyOf(await cluster.workerOf(DATABASE))
        .holdAt('request', 'COMMIT PREPARED', { after: 'offshoot_node.run' })
      const { answer } = await sendUntilHeld(held, () => send('POST', `${branch}/merge`, {}))
      await cluster.kill(node)
      expect((await answer).body).toMatchObject({ code: 'commit_unknown' })
      await node.start()
      // The coordinator has committed the merge.
      const found = await answerOf('GET', `main/tables/items/data/${killed}`)
      expect(found.body).toMatchObject({ value: 7 })
      expect(await cluster.prepared()).toEqual([])
    },
  )

  const RUN = 'offshoot_node.run'
  /** As a whole message: transactions begin with a text that contains the word, too. */
  const COMMIT = 'COMMIT\0'

  it.each([
    {
      moment: 'a statement',
      code: 'unavailable',
      direction: 'request',
      text: RUN,
      after: RUN,
      status: 404,
    },
    {
      moment: 'a COMMIT',
      code: 'commit_unknown',
      direction: 'request',
      text: COMMIT,
      after: RUN,
      status: 404,
    },
    {
      moment: 'the answer to a COMMIT',
      code: 'commit_unknown',
      direction: 'response',
      text: COMMIT,
      after: '',
      status: 200,
    },
  ] as const)(
    'answers $code if the main process of the coordinator is killed while it waits for $moment',
    async (given) => {
      const { moment, code, direction, text, after, status } = given
      const url = `main/tables/items/data/${moment.replaceAll(' ', '-')}`
      const worker = await cluster.workerOf(DATABASE)
      const held = cluster.proxyOf(worker).holdAt(direction, text, { after })
      const { answer } = await sendUntilHeld(held, () => send('PUT', url, { value: 1 }))
      await cluster.killPostmaster(cluster.coordinator)
      expect((await answer).body).toMatchObject({ code })
      await cluster.kill(cluster.coordinator)
      await cluster.coordinator.start()
      expect((await answerOf('GET', url)).status).toBe(status)
      expect(await cluster.prepared()).toEqual([])
    },
  )

  it.each([
    { kind: 'merge', text: 'PREPARE TRANSACTION', hanging: 'worker' },
    { kind: 'merge', text: 'PREPARE TRANSACTION', hanging: 'coordinator' },
    { kind: 'record', text: COMMIT, hanging: 'worker' },
    { kind: 'record', text: COMMIT, hanging: 'coordinator' },
  ])(
    'does not commit a $kind after others were read, because the $hanging hung',
    async ({ kind, text, hanging }) => {
      const id = `${kind}-${hanging}`
      const branch = `hung-${id}`
      expect((await answerOf('PUT', branch, { from: 'main' })).status).toBe(201)
      const path = `tables/items/data/${id}`
      expect((await answerOf('PUT', `${branch}/${path}`, { value: 7 })).status).toBe(201)
      const worker = await cluster.workerOf(DATABASE)
      const held = cluster.proxyOf(worker).holdAt('request', text, { after: RUN })
      const { answer } = await sendUntilHeld(held, () =>
        kind === 'merge'
          ? send('POST', `${branch}/merge`, {})
          : send('PUT', `main/${path}`, { value: 7 }),
      )
      const release = await held
      const node = hanging === 'worker' ? worker : cluster.coordinator
      await cluster.pause(node)
      expect((await answer).status).toBe(503)
      await cluster.resume(node)
      const found = await answerOf('GET', `main/${path}`)
      release()
      // What was held has had the time to take effect.
      const after = await answerOf('PUT', `main/tables/items/data/after-${id}`, { value: 1 })
      expect(after.status).toBe(201)
      const later = await answerOf('GET', `main/${path}`)
      expect([found.status, later.status]).toEqual([404, 404])
      expect(await cluster.prepared()).toEqual([])
    },
  )
})
