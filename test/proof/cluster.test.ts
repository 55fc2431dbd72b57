import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ClusterNode } from '../../scripts/cluster.js'
import { canStartCluster, startTestCluster, type TestCluster } from '../support/cluster.js'
import { until } from '../support/process.js'
import { Proof } from '../support/proof/proof.js'
import {
  createProofDatabase,
  DATABASE,
  makeProofFolder,
  ProofService,
} from '../support/proof/service.js'
import { Round } from '../support/proof/writer.js'
import { AWAY_ROUNDS, ROUNDS_TIMEOUT_MS, SEED } from '../support/random.js'

/*
 * A service on a Citus cluster of its own, whose nodes are killed. If Citus is not installed, the tests are skipped.
 */

/** Number of changes that must be acknowledged after a node has come back before a round ends. */
const ACKNOWLEDGED_AFTERWARDS = 20
/** Number of requests that must have noticed the outage before the node is started again. */
const NOTICED = 5
/** Characters of the log that are shown with a failure. */
const LOG_TAIL = 4000

let folder: Awaited<ReturnType<typeof makeProofFolder>>
let cluster: TestCluster
let service: ProofService

const canStart = canStartCluster('a service on a cluster whose nodes are killed')

describe.skipIf(!canStart)(`a service on a cluster (seed ${SEED})`, () => {
  beforeAll(async () => {
    folder = await makeProofFolder()
    cluster = await startTestCluster()
    service = new ProofService(path.join(folder.path, 'service'), {
      OFFSHOOT_DATABASE_URL: cluster.coordinator.url,
      OFFSHOOT_DISTRIBUTE_DATABASES: 'true',
      OFFSHOOT_BACKGROUND_PAUSE_MS: '200',
    })
    await service.start()
    await createProofDatabase(service, service.workspaceId)
  })
  afterAll(async () => {
    await service?.kill()
    await cluster?.close()
    await folder?.remove()
  })

  const owner = () => cluster.workerOf(DATABASE)
  const other = async () => {
    const { port } = await owner()
    const found = cluster.workers.find((worker) => worker.port !== port)
    if (found === undefined) throw new Error('there must be another worker')
    return found
  }

  /** Kills a node under load, and starts it again when requests have noticed. */
  async function strikeNode(round: Round, node: ClusterNode): Promise<void> {
    await cluster.kill(node)
    await until(async () => round.unknown >= NOTICED)
    await node.start()
  }

  async function strikeService(): Promise<void> {
    await service.kill()
    await service.start()
  }

  const FAULTS = [
    {
      name: 'the worker with the rows is killed',
      mayVanish: false,
      strike: async (round: Round) => strikeNode(round, await owner()),
    },
    {
      name: 'the other worker is killed',
      mayVanish: false,
      strike: async (round: Round) => strikeNode(round, await other()),
    },
    {
      name: 'the coordinator is killed',
      mayVanish: false,
      strike: (round: Round) => strikeNode(round, cluster.coordinator),
    },
    { name: 'the service is killed', mayVanish: true, strike: strikeService },
  ]

  it('has everything it acknowledged, and nothing by halves or twice, whatever is killed', {
    timeout: ROUNDS_TIMEOUT_MS,
  }, async () => {
    const proof = new Proof(SEED)
    for (let number = 0; number < AWAY_ROUNDS * FAULTS.length; number++) {
      const fault = FAULTS[number % FAULTS.length]
      if (fault === undefined) throw new Error('there must be a fault')
      const { name, mayVanish, strike } = fault
      const round = new Round(service, { mayVanish })
      const faults = await proof.play([round], {
        check: service,
        async happen() {
          await proof.randomMoment(round)
          await strike(round)
          if (mayVanish) return
          const before = round.acknowledged
          await until(async () => round.acknowledged >= before + ACKNOWLEDGED_AFTERWARDS)
        },
      })
      const log = faults.length === 0 ? '' : service.log.slice(-LOG_TAIL)
      expect(faults, `${name}, round ${number}, seed ${SEED}: ${log}`).toEqual([])
      expect(['unavailable', 'commit_unknown']).toEqual(
        expect.arrayContaining([...round.codes.keys()]),
      )
      const answers = [...round.codes].map(([code, count]) => `${count} ${code}`).join(', ')
      console.log(`${name}: ${round.acknowledged} acknowledged, ${answers}`)
      // The cluster itself ends transactions that a crash has left prepared.
      await until(async () => (await cluster.prepared()).length === 0)
    }
    console.log(`nodes of a cluster killed: ${proof.summary()}`)
  })

  it('has each table where the catalogue has it', async () => {
    let misplaced: string[] = []
    await until(async () => {
      misplaced = await cluster.findMisplaced()
      return misplaced.length === 0
    }).catch(() => undefined)
    expect(misplaced).toEqual([])
  })
})
