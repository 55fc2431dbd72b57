import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { canStartCluster, type TestCluster } from '../support/cluster.js'
import { until } from '../support/process.js'
import { type OnCluster, startOnCluster } from '../support/proof/on-cluster.js'
import { DATABASE, type ProofService, type Reply } from '../support/proof/service.js'

/*
 * A merge changes rows on a node and the catalogue on the coordinator, and is committed in two phases. One of the two is
 * killed between the phases. Without OFFSHOOT_TEST_CLUSTER_BIN, the tests are skipped.
 */

let started: OnCluster
let cluster: TestCluster
let service: ProofService

const canStart = canStartCluster('a merge on a cluster between the phases of its commit')

describe.skipIf(!canStart)('a merge on a cluster between the phases of its commit', () => {
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

  it.each([
    { killed: 'worker', nodeOf: () => cluster.workerOf(DATABASE) },
    { killed: 'coordinator', nodeOf: async () => cluster.coordinator },
  ])('is not seen by halves if the $killed is killed', async ({ killed, nodeOf }) => {
    const branch = `from-${killed}`
    expect((await answerOf('PUT', branch, { from: 'main' })).status).toBe(201)
    const written = await answerOf('PUT', `${branch}/tables/items/data/${killed}`, { value: 7 })
    expect(written.status).toBe(201)
    const node = await nodeOf()
    const held = cluster
      .proxyOf(await cluster.workerOf(DATABASE))
      .holdAt('request', 'COMMIT PREPARED', { after: 'offshoot_node.run' })
    let merge = send('POST', `${branch}/merge`, {})
    // A connection of the coordinator to a worker that was killed before is noticed when it is used.
    await until(async () => {
      const answer = await Promise.race([held, merge])
      if (answer === undefined) return true
      expect(answer.body).toMatchObject({ code: 'unavailable' })
      merge = send('POST', `${branch}/merge`, {})
      return false
    })
    await cluster.kill(node)
    expect((await merge).body).toMatchObject({ code: 'commit_unknown' })
    await node.start()
    // The coordinator has committed the merge.
    const found = await answerOf('GET', `main/tables/items/data/${killed}`)
    expect(found.body).toMatchObject({ value: 7 })
    expect(await cluster.prepared()).toEqual([])
  })
})
