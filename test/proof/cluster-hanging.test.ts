import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ClusterNode } from '../../scripts/cluster.js'
import { canStartCluster, type TestCluster } from '../support/cluster.js'
import { until } from '../support/process.js'
import { type OnCluster, startOnCluster } from '../support/proof/on-cluster.js'
import { Proof } from '../support/proof/proof.js'
import { DATABASE, describeReply, type ProofService } from '../support/proof/service.js'
import { Round } from '../support/proof/writer.js'
import { ROUNDS_TIMEOUT_MS, SEED } from '../support/random.js'

/*
 * A service on a Citus cluster of its own, whose nodes hang instead of refusing connections: all their processes are stopped.
 * Without OFFSHOOT_TEST_CLUSTER_BIN, the tests are skipped.
 */

/** Number of changes that must be acknowledged after a node has come back before a round ends. */
const ACKNOWLEDGED_AFTERWARDS = 20
/** Number of requests that must have noticed that a node hangs. */
const NOTICED = 5
/** Requests of each client of the other database that are answered while a node hangs. */
const ASIDE = 50
const CLIENTS_ASIDE = 4
/** Kinds of requests are sent this often, so that each is also sent when the node is known to hang. */
const TIMES = 2

let started: OnCluster
let cluster: TestCluster
let service: ProofService
let proof: Proof
let aside: string

const canStart = canStartCluster('a service on a cluster whose nodes hang')

describe.skipIf(!canStart)(`a service on a cluster whose nodes hang (seed ${SEED})`, () => {
  beforeAll(async () => {
    started = await startOnCluster()
    ;({ cluster, service } = started)
    aside = await createDatabaseAside()
    proof = new Proof(SEED)
  })
  afterAll(async () => {
    for (const node of cluster?.nodes ?? []) await cluster.resume(node)
    await started?.close()
  })

  const TABLE = {
    operations: [
      { addTable: { table: 'items' } },
      { addColumn: { table: 'items', column: { name: 'value', type: 'int' } } },
    ],
  }

  /** Creates a database that is not on the worker of the other one. Citus places databases in turns. */
  async function createDatabaseAside(): Promise<string> {
    const owner = await cluster.workerOf(DATABASE)
    for (let number = 0; ; number++) {
      const name = `aside-${number}`
      await sendFine('PUT', `/workspaces/${service.workspaceId}/dbs/${name}`, { region: 'local' })
      if ((await cluster.workerOf(name)) === owner) continue
      await sendFine('POST', `/db/${name}:main/schema/update`, TABLE)
      await sendFine('PUT', `/db/${name}:main/tables/items/data/total`, { value: 0 })
      return name
    }
  }

  async function sendFine(method: string, url: string, body?: unknown): Promise<void> {
    const reply = await service.send(method, url, { body })
    expect(reply.status, describeReply(reply)).toBeLessThan(300)
  }

  /** Reads and writes the other database until told to stop. Returns what was not as expected. */
  class Bystander {
    answered = 0
    slowestMs = 0
    readonly faults: string[] = []
    #isOver = false
    readonly #running: Promise<unknown>

    constructor() {
      const clients = Array.from({ length: CLIENTS_ASIDE }, (_, number) => this.#run(number))
      this.#running = Promise.all(clients)
    }

    async #run(number: number): Promise<void> {
      for (let value = 1; !this.#isOver; value++) {
        const url = `/db/${aside}:main/tables/items/data/client-${number}`
        const startedAt = performance.now()
        const written = await service.send('PUT', url, { body: { value } })
        const read = await service.send('GET', url)
        this.slowestMs = Math.max(this.slowestMs, performance.now() - startedAt)
        for (const reply of [written, read]) {
          if (reply.status >= 300 || reply.status === 0) this.faults.push(describeReply(reply))
          else this.answered++
        }
        if (read.status < 300 && read.body?.value !== value && written.status < 300) {
          this.faults.push(`${JSON.stringify(read.body)} instead of ${value}`)
        }
      }
    }

    async end(): Promise<void> {
      this.#isOver = true
      await this.#running
    }
  }

  /** Makes a node hang under load. Returns what was answered by then. */
  async function hang(node: ClusterNode, during: (bystander: Bystander) => Promise<void>) {
    const round = new Round(service, { mayVanish: false })
    const bystander = new Bystander()
    const faults = await proof.play([round], {
      check: service,
      async happen() {
        await proof.randomMoment(round)
        await until(async () => bystander.answered >= ASIDE)
        await cluster.pause(node)
        try {
          const noticedBefore = round.unknown
          await until(async () => round.unknown >= noticedBefore + NOTICED)
          await during(bystander)
        } finally {
          await cluster.resume(node)
        }
        const before = round.acknowledged
        await until(async () => round.acknowledged >= before + ACKNOWLEDGED_AFTERWARDS)
        await bystander.end()
      },
    })
    const log = faults.length === 0 ? '' : service.failures
    expect(faults, `seed ${SEED}: ${log}`).toEqual([])
    const answers = [...round.codes].map(([code, count]) => `${count} ${code}`).join(', ')
    console.log(
      `${node.name} hung: ${round.acknowledged} acknowledged, ${answers}; the other database: ` +
        `${bystander.answered} answers, the slowest pair took ${Math.round(bystander.slowestMs)} ms`,
    )
    await until(async () => (await cluster.prepared()).length === 0)
    return { round, bystander }
  }

  it('goes on with the databases of other workers, refuses those of one that hangs, and loses nothing', {
    timeout: ROUNDS_TIMEOUT_MS,
  }, async () => {
    const { round, bystander } = await hang(await cluster.workerOf(DATABASE), async (aside) => {
      const before = aside.answered
      await until(async () => aside.answered >= before + CLIENTS_ASIDE * ASIDE)
      expect(await service.isReady()).toBe(true)
    })
    expect(bystander.faults).toEqual([])
    expect(['unavailable', 'commit_unknown']).toEqual(
      expect.arrayContaining([...round.codes.keys()]),
    )
  })

  it('answers 503 while the coordinator hangs, and loses nothing', {
    timeout: ROUNDS_TIMEOUT_MS,
  }, async () => {
    const { round } = await hang(cluster.coordinator, async () => {
      expect(await service.isReady()).toBe(false)
    })
    expect(['unavailable', 'commit_unknown']).toEqual(
      expect.arrayContaining([...round.codes.keys()]),
    )
  })

  it('answers requests of every kind while a worker hangs', {
    timeout: ROUNDS_TIMEOUT_MS,
  }, async () => {
    const owner = await cluster.workerOf(DATABASE)
    for (const name of [DATABASE, aside]) {
      for (let time = 0; time < TIMES; time++) {
        await sendFine('PUT', `/db/${name}:fork-${time}`, { from: 'main' })
      }
    }
    const answers = new Map<string, Record<string, string>>()
    await cluster.pause(owner)
    try {
      for (let time = 0; time < TIMES; time++) {
        answers.set(`its worker ${time}`, await askAll(DATABASE, time))
        answers.set(`another worker ${time}`, await askAll(aside, time))
      }
    } finally {
      await cluster.resume(owner)
    }
    console.table(Object.fromEntries(answers))
    const isRefused = expect.stringMatching(/^503 (unavailable|commit_unknown|timeout)/)
    const isFine = expect.stringMatching(/^20[01] /)
    const definitions = {
      'first write': isRefused,
      'new table': isRefused,
      'new database': isRefused,
    }
    for (const [name, found] of answers) {
      const rows = name.startsWith('another') ? isFine : isRefused
      expect(found, name).toEqual({
        get: rows,
        put: rows,
        bulk: rows,
        transaction: rows,
        query: rows,
        fork: isFine,
        ...definitions,
      })
    }
    await until(async () => (await cluster.prepared()).length === 0)
    for (const name of [DATABASE, aside]) {
      await until(async () => {
        const url = `/db/${name}:main/tables/items/data/afterwards`
        return (await service.send('PUT', url, { body: { value: 1 } })).status < 300
      })
    }
  })

  /** Sends a request of each kind to a database. Returns what they answer, and how long it took. */
  async function askAll(name: string, time: number): Promise<Record<string, string>> {
    const items = `/db/${name}:main/tables/items`
    const id = `hanging-${time}`
    const insert = { insert: { table: 'items', record: { id: `${id}-2`, value: 2 } } }
    const newTable = { operations: [{ addTable: { table: id } }] }
    const requests: Record<string, [method: string, url: string, body?: unknown]> = {
      get: ['GET', `${items}/data/total`],
      put: ['PUT', `${items}/data/${id}`, { value: 1 }],
      bulk: ['POST', `${items}/bulk`, { records: [{ id: `${id}-1`, value: 1 }] }],
      transaction: ['POST', `/db/${name}:main/transaction`, { operations: [insert] }],
      query: ['POST', `${items}/query`, {}],
      fork: ['PUT', `/db/${name}:${id}`, { from: 'main' }],
      'first write': ['PUT', `/db/${name}:fork-${time}/tables/items/data/${id}`, { value: 1 }],
      'new table': ['POST', `/db/${name}:main/schema/update`, newTable],
      'new database': [
        'PUT',
        `/workspaces/${service.workspaceId}/dbs/new-${name}-${time}`,
        { region: 'local' },
      ],
    }
    const answers: Record<string, string> = {}
    for (const [kind, [method, url, body]] of Object.entries(requests)) {
      const startedAt = performance.now()
      const reply = await service.send(method, url, { body })
      const answer = [reply.status, reply.body?.code ?? ''].join(' ')
      answers[kind] = `${answer} after ${Math.round(performance.now() - startedAt)} ms`
    }
    return answers
  }
})
