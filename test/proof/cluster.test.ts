import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ClusterNode } from '../../scripts/cluster.js'
import { canStartCluster, onNode, type TestCluster } from '../support/cluster.js'
import { until } from '../support/process.js'
import { type OnCluster, startOnCluster } from '../support/proof/on-cluster.js'
import { Proof } from '../support/proof/proof.js'
import { DATABASE, type ProofService } from '../support/proof/service.js'
import { Round } from '../support/proof/writer.js'
import { AWAY_ROUNDS, ROUNDS_TIMEOUT_MS, SEED } from '../support/random.js'

/*
 * A service on a Citus cluster of its own, whose nodes are killed. Without OFFSHOOT_TEST_CLUSTER_BIN, the tests are skipped.
 */

/** Number of changes that must be acknowledged after a node has come back before a round ends. */
const ACKNOWLEDGED_AFTERWARDS = 20
/** Number of requests that must have noticed the outage before the node is started again. */
const NOTICED = 5
/** Records that are written to each of two databases. */
const LOADED = 50

let started: OnCluster
let cluster: TestCluster
let service: ProofService
let proof: Proof

const canStart = canStartCluster('a service on a cluster whose nodes are killed')

describe.skipIf(!canStart)(`a service on a cluster (seed ${SEED})`, () => {
  beforeAll(async () => {
    started = await startOnCluster()
    ;({ cluster, service } = started)
    proof = new Proof(SEED)
  })
  afterAll(async () => {
    await started?.close()
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
      const log = faults.length === 0 ? '' : service.failures
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

  it('moves a database to another worker under load, and loses nothing', {
    timeout: ROUNDS_TIMEOUT_MS,
  }, async () => {
    for (let number = 0; number < 2 * AWAY_ROUNDS; number++) {
      const target = await other()
      const round = new Round(service, { mayVanish: false })
      let during = 0
      const faults = await proof.play([round], {
        check: service,
        async happen() {
          await proof.randomMoment(round)
          const before = round.acknowledged
          await cluster.move(DATABASE, target)
          during = round.acknowledged - before
          await until(async () => round.acknowledged >= before + during + ACKNOWLEDGED_AFTERWARDS)
        },
      })
      const log = faults.length === 0 ? '' : service.failures
      expect(faults, `round ${number}, seed ${SEED}: ${log}`).toEqual([])
      expect(await owner()).toBe(target)
      const codes = [...round.codes].map(([code, count]) => `${count} ${code}`).join(', ')
      console.log(
        `moved: ${during} of ${round.acknowledged} acknowledged meanwhile, ${codes || 'no refusal'}`,
      )
    }
    await until(async () => (await cluster.prepared()).length === 0)
  })

  it('uses the workers of all databases that are loaded at once', async () => {
    const places = await Promise.all(
      cluster.workers.map(async (worker) => ({ worker, name: await createDatabaseOn(worker) })),
    )
    const before = await Promise.all(places.map(readCounters))
    await Promise.all(
      places.map(async ({ name }) => {
        for (let number = 0; number < LOADED; number++) {
          const url = `/db/${name}:main/tables/items/data/${number}`
          await untilFine('PUT', url, { value: number })
        }
      }),
    )
    // A server counts what a connection has done a moment later.
    await until(async () => {
      const after = await Promise.all(places.map(readCounters))
      return after.every(
        ({ inserted, committed }, index) =>
          inserted - (before[index]?.inserted ?? 0) >= LOADED &&
          committed - (before[index]?.committed ?? 0) >= LOADED,
      )
    })
  })

  /** Reads how many rows a worker has inserted into tables of a database, and how many transactions it has committed. */
  async function readCounters({ worker, name }: { worker: ClusterNode; name: string }) {
    const schema = await cluster.schemaOf(name)
    const [row] = await onNode<{ inserted: string; committed: string }>(
      worker,
      `select
        (
          select coalesce(sum(n_tup_ins), 0)
          from pg_stat_user_tables
          where schemaname = '${schema}' and relname ~ '^heap_'
        ) as inserted,
        (select xact_commit from pg_stat_database where datname = current_database()) as committed`,
    )
    return { inserted: Number(row?.inserted), committed: Number(row?.committed) }
  }

  it('goes on with the databases of other workers while one is down', async () => {
    const near = DATABASE
    const far = await createDatabaseOn(await other())
    const answers = new Map<string, Record<string, string>>()
    for (const node of [await owner(), cluster.coordinator]) {
      for (const name of [near, far]) await untilFine('PUT', `/db/${name}:to-${node.name}`, FORK)
      await cluster.kill(node)
      const isWorker = node !== cluster.coordinator
      answers.set(isWorker ? 'its worker' : 'the coordinator', await askAll(near, node.name))
      if (isWorker) answers.set('another worker', await askAll(far, node.name))
      await node.start()
      for (const name of [near, far])
        await untilFine('GET', `/db/${name}:main/tables/items/data/total`)
    }
    console.table(Object.fromEntries(answers))
    const isRefused = expect.stringMatching(/^503 (unavailable|commit_unknown)$/)
    const refused = { get: isRefused, put: isRefused, bulk: isRefused, transaction: isRefused }
    const fine = { get: '200', put: '201', bulk: '200', transaction: '200' }
    const definitions = {
      'first write': isRefused,
      'new table': isRefused,
      'new database': isRefused,
    }
    expect(Object.fromEntries(answers)).toEqual({
      'its worker': { ...refused, fork: '201', ...definitions },
      'another worker': { ...fine, fork: '201', ...definitions },
      'the coordinator': { ...refused, fork: isRefused, ...definitions },
    })
  })

  it('measures workspaces and forgets answers on other workers while one is down', async () => {
    const workspace = await service.send('POST', '/workspaces', { body: { name: 'Measured' } })
    const workspaceId: string = workspace.body.id
    const name = await createDatabaseOn(await other(), workspaceId)
    const answered = await service.send(
      'POST',
      `/${workspaceId}.local/db/${name}:main/transaction`,
      {
        body: { operations: [{ get: { table: 'items', id: 'total' } }] },
        headers: { 'idempotency-key': 'kept' },
      },
    )
    expect(answered.status).toBe(200)
    const answers = `${await cluster.schemaOf(name)}.idempotency_keys`
    const worker = await owner()
    await cluster.kill(worker)
    await onNode(
      cluster.coordinator,
      `update ${answers} set created_at = '2020-01-01'`,
      // The workspace whose worker is down is due first.
      `update offshoot.workspace_usage
      set measured_at = null,
        due_at = now() - case when workspace_id = '${workspaceId}' then interval '0' else interval '1 hour' end`,
    )
    await until(async () => {
      const [found] = await onNode<{ isMeasured: boolean; answers: number }>(
        cluster.coordinator,
        `select measured_at is not null as "isMeasured",
          (select count(*)::integer from ${answers}) as answers
        from offshoot.workspace_usage
        where workspace_id = '${workspaceId}'`,
      )
      return found?.isMeasured === true && found.answers === 0
    })
    await worker.start()
    await untilFine('GET', `/db/${DATABASE}:main/tables/items/data/total`)
  })

  const FORK = { from: 'main' }
  let created = 0

  /** Creates a database with a table on a worker. Citus places databases in turns. */
  async function createDatabaseOn(
    worker: ClusterNode,
    workspaceId = service.workspaceId,
  ): Promise<string> {
    for (;;) {
      const name = `aside-${created++}`
      await untilFine('PUT', `/workspaces/${workspaceId}/dbs/${name}`, { region: 'local' })
      if ((await cluster.workerOf(name)) !== worker) continue
      const main = `/${workspaceId}.local/db/${name}:main`
      await untilFine('POST', `${main}/schema/update`, newTable('items'))
      await untilFine('PUT', `${main}/tables/items/data/total`, { value: 0 })
      return name
    }
  }

  function newTable(table: string) {
    const column = { name: 'value', type: 'int' }
    return { operations: [{ addTable: { table } }, { addColumn: { table, column } }] }
  }

  /** Repeats a request while the service asks to try it again. */
  async function untilFine(method: string, url: string, body?: unknown): Promise<void> {
    await until(async () => {
      const reply = await service.send(method, url, { body })
      if (reply.status !== 503) expect(reply.status, JSON.stringify(reply.body)).toBeLessThan(300)
      return reply.status !== 503
    })
  }

  /** Sends a request of each kind to a database while a node is down. Returns what they answer. */
  async function askAll(name: string, downName: string): Promise<Record<string, string>> {
    const items = `/db/${name}:main/tables/items`
    const id = `down-${downName}`
    const insert = { insert: { table: 'items', record: { id: `${id}-2`, value: 2 } } }
    const requests: Record<string, [method: string, url: string, body?: unknown]> = {
      get: ['GET', `${items}/data/total`],
      put: ['PUT', `${items}/data/${id}`, { value: 1 }],
      bulk: ['POST', `${items}/bulk`, { records: [{ id: `${id}-1`, value: 1 }] }],
      transaction: ['POST', `/db/${name}:main/transaction`, { operations: [insert] }],
      fork: ['PUT', `/db/${name}:while-${downName}`, FORK],
      'first write': ['PUT', `/db/${name}:to-${downName}/tables/items/data/${id}`, { value: 1 }],
      'new table': ['POST', `/db/${name}:main/schema/update`, newTable(id)],
      'new database': [
        'PUT',
        `/workspaces/${service.workspaceId}/dbs/new-${name}-${downName}`,
        { region: 'local' },
      ],
    }
    const answers: Record<string, string> = {}
    for (const [kind, [method, url, body]] of Object.entries(requests)) {
      const reply = await service.send(method, url, { body })
      answers[kind] = [reply.status, reply.body?.code].filter(Boolean).join(' ')
    }
    return answers
  }
})
