import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { GATE_KEY } from '../../packages/server/src/postgres/advisory-keys.js'
import { collectGates } from '../../packages/server/src/rows/gates/gate.js'
import { TestBranches } from '../support/branches.js'
import { holdGate } from '../support/gates.js'
import { until } from '../support/process.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { branchCall } from '../support/tables.js'
import { watchQueries } from '../support/watch-queries.js'

let service: TestService
/** The opened gates of a test, so that a failure does not block the next test. */
let held: (() => Promise<void>)[] = []

beforeAll(async () => {
  service = await createTestService()
})
afterAll(async () => {
  await service.close()
})

const TABLES = { t: [{ name: 'n', type: 'int' }] } as const
const range = (length: number) => Array.from({ length }, (_, index) => index)
const statusesOf = (answers: readonly Answer[]) => [...new Set(answers.map(({ status }) => status))]

/** Runs a test while the gate of a branch is held, and opens it in any case. */
async function whileHeld<Result>(
  options: Parameters<typeof holdGate>[1],
  body: (open: () => Promise<void>) => Promise<Result>,
): Promise<Result> {
  const release = await holdGate(service.database.pool, options)
  held.push(release)
  const open = async () => {
    const own = held
    held = []
    for (const end of own) await end()
  }
  try {
    return await body(open)
  } finally {
    await open()
  }
}

const poolMax = () => service.database.poolState.max
/** Connections in use, without the one that holds the gate. */
const inUse = () => service.database.poolState.inUse - held.length

async function gatesOf(): Promise<string[]> {
  const { rows } = await service.database.pool.query(
    `select relname from pg_class
    where relnamespace = 'offshoot_work'::regnamespace and relname like 'gate%'`,
  )
  return rows.map(({ relname }) => relname)
}

describe('a gate that is closed for long', () => {
  it('keeps only the writers of its branch waiting', async () => {
    const branches = await TestBranches.create(service, 'apart', TABLES)
    const others = await TestBranches.create(service, 'others', TABLES)
    await branches.put('main', 't', 'a', { n: 1 })
    await branches.fork('dev')
    await whileHeld({ database: 'apart' }, async (open) => {
      const write = branches.call('main', 'PUT', '/tables/t/data/b', { n: 1 })
      await branches.put('dev', 't', 'b', { n: 2 })
      await branches.fork('of-dev', 'dev')
      await others.put('main', 't', 'b', { n: 3 })
      await others.fork('of-others')
      expect(await branches.record('main', 't', 'b')).toBeUndefined()
      await open()
      expect((await write).status).toBe(201)
    })
  })

  it('does not let the writers that wait for it use up the connections', async () => {
    const branches = await TestBranches.create(service, 'crowded', TABLES)
    const others = await TestBranches.create(service, 'bystanders', TABLES)
    await branches.put('main', 't', 'a', { n: 1 })
    await others.put('main', 't', 'a', { n: 1 })
    const count = 4 * poolMax()
    await whileHeld({ database: 'crowded' }, async (open) => {
      const writes = range(count).map((n) => {
        return branches.call('main', 'PUT', `/tables/t/data/w${n}`, { n })
      })
      await until(async () => inUse() >= Math.floor(poolMax() / 2))
      for (const n of range(20)) {
        await others.put('main', 't', `b${n}`, { n })
        expect(await others.record('main', 't', 'a')).toMatchObject({ n: 1 })
        expect(await branches.record('main', 't', 'a')).toMatchObject({ n: 1 })
        expect(inUse()).toBeLessThanOrEqual(Math.floor(poolMax() / 2))
      }
      await open()
      expect(statusesOf(await Promise.all(writes))).toEqual([201])
    })
  })

  it('does not let the forks that wait for it use up the connections', async () => {
    const branches = await TestBranches.create(service, 'forks', TABLES)
    await branches.put('main', 't', 'a', { n: 1 })
    await whileHeld({ database: 'forks' }, async (open) => {
      const forks = range(4 * poolMax()).map((n) => branches.call(`f${n}`, 'PUT', '', {}))
      for (const _ of range(20)) {
        expect(await branches.record('main', 't', 'a')).toMatchObject({ n: 1 })
        // Each fork reads its source first.
        await until(async () => inUse() <= 1)
      }
      await open()
      expect(statusesOf(await Promise.all(forks))).toEqual([201])
    })
  })
})

describe('a request that waits too long for a gate', () => {
  it('is refused with 503, and told when to try again', async () => {
    const branches = await TestBranches.create(service, 'refusing', TABLES)
    await branches.put('main', 't', 'a', { n: 1 })
    const { rows } = await service.database.pool.query(
      `select b.id from offshoot.branches b join offshoot.databases d on d.id = b.database_id
      where d.name = 'refusing'`,
    )
    const [queues, gate] = [service.storage.gates.queues, rows[0].id]
    expect(await queues.enter(gate, 'alone', 1000)).toBe(true)
    try {
      const answer = await branches.call('main', 'PUT', '/tables/t/data/b', { n: 2 })
      expect([answer.status, answer.body.code]).toEqual([503, 'timeout'])
      expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0)
    } finally {
      queues.leave(gate, 'alone')
    }
    expect(await branches.record('main', 't', 'b')).toBeUndefined()
    await branches.put('main', 't', 'b', { n: 3 })
  })
})

describe('a fork that waits for a long write', () => {
  it('lets other writers pass', async () => {
    const branches = await TestBranches.create(service, 'patient', TABLES)
    await branches.put('main', 't', 'a', { n: 1 })
    await whileHeld({ database: 'patient', mode: 'row share' }, async (open) => {
      let isForked = false
      const fork = branches.fork('dev').then(() => {
        isForked = true
      })
      for (const n of range(10)) await branches.put('main', 't', `w${n}`, { n })
      expect(isForked).toBe(false)
      await open()
      await fork
    })
    expect(await branches.record('dev', 't', 'w9')).toMatchObject({ n: 9 })
  })
})

describe('a fork', () => {
  let counted: TestService
  let roundTrips = 0
  beforeAll(async () => {
    const tracing = watchQueries(() => {
      roundTrips++
    })
    counted = await createTestService({ tracing })
  })
  afterAll(() => counted.close())

  const costOf = async (branches: TestBranches, name: string, source: string) => {
    const before = roundTrips
    await branches.fork(name, source)
    return roundTrips - before
  }

  it('of a branch that nobody has written to takes no more round trips than one of a branch that has a gate', async () => {
    const branches = await TestBranches.create(counted, 'counted', TABLES)
    await branches.fork('written')
    await branches.put('written', 't', 'a', { n: 1 })
    await branches.fork('fresh')
    await branches.fork('fresher', 'fresh')
    const usual = await costOf(branches, 'of-written', 'written')
    expect(await costOf(branches, 'of-fresher', 'fresher')).toBe(usual)
    expect(await costOf(branches, 'second', 'fresher')).toBe(usual)
  })

  it('of a branch that was just forked or created takes no more round trips than one of the default branch', async () => {
    const branches = await TestBranches.create(counted, 'likely', TABLES)
    await branches.fork('staging')
    const usual = await costOf(branches, 'of-main', 'main')
    expect(await costOf(branches, 'of-new', 'of-main')).toBe(usual)
    expect(await costOf(branches, 'of-staging', 'staging')).toBe(usual)
    expect(await costOf(branches, 'again', 'staging')).toBe(usual)
  })

  it('of a branch whose name belongs to another branch now is one of that branch', async () => {
    const branches = await TestBranches.create(counted, 'renewed', TABLES)
    await branches.fork('dev')
    await branches.put('dev', 't', 'a', { n: 1 })
    await branches.fork('of-first', 'dev')
    await branches.delete('dev')
    const missing = await branches.call('of-none', 'PUT', '', { from: 'dev' })
    expect(missing).toMatchObject({ status: 400, body: { code: 'unknown_source_branch' } })
    await branches.fork('dev')
    await branches.put('dev', 't', 'b', { n: 2 })
    await branches.fork('of-second', 'dev')
    expect(await branches.read('of-second', 't', ['a', 'b'])).toMatchObject({ b: { n: 2 } })
    expect(await branches.read('of-second', 't', ['a'])).toEqual({})
  })
})

describe('a fork of a branch that nobody has written to', () => {
  it('can be one of many at the same time, in several processes', async () => {
    const second = await createTestService({ url: service.url })
    try {
      const branches = await TestBranches.create(service, 'crowd', TABLES)
      await branches.put('main', 't', 'a', { n: 1 })
      for (const round of range(5)) {
        await branches.fork(`fresh${round}`)
        const forks = range(8).map((n) => {
          const via = n % 2 === 0 ? service : second
          const call = branchCall(service, 'crowd', { branch: `f${round}-${n}`, via })
          return call('PUT', '', { body: { from: `fresh${round}` } })
        })
        expect(statusesOf(await Promise.all(forks))).toEqual([201])
      }
    } finally {
      await second.close()
    }
  })

  it('creates no table', async () => {
    const branches = await TestBranches.create(service, 'tableless', TABLES)
    await branches.put('main', 't', 'a', { n: 1 })
    const before = await gatesOf()
    await branches.fork('fresh')
    await branches.fork('of-fresh', 'fresh')
    await branches.delete('of-fresh')
    expect(await gatesOf()).toEqual(before)
  })

  it('makes the first write wait until it has ended', async () => {
    const branches = await TestBranches.create(service, 'first-write', TABLES)
    await branches.fork('fresh')
    const end = await begin('enter_alone', 'first-write', 'fresh')
    const write = branches.put('fresh', 't', 'a', { n: 1 })
    await until(isWaiting)
    expect(await branches.read('fresh', 't', ['a'])).toEqual({})
    await end()
    await write
    expect(await branches.read('fresh', 't', ['a'])).toMatchObject({ a: { n: 1 } })
  })

  it('waits for the first writer, and then for later ones', async () => {
    const branches = await TestBranches.create(service, 'first-writer', TABLES)
    await branches.fork('fresh')
    const endWriter = await begin('create_gate', 'first-writer', 'fresh')
    const fork = begin('enter_alone', 'first-writer', 'fresh')
    await until(isWaiting)
    await endWriter()
    const endFork = await fork
    const { rows } = await service.database.pool.query(
      `select b.name
      from pg_locks l
      join offshoot.branches b on l.relation = to_regclass('offshoot_work."gate_' || b.id || '"')
      where l.mode = 'ExclusiveLock' and l.granted`,
    )
    await endFork()
    expect(rows).toEqual([{ name: 'fresh' }])
  })

  it('is not changed by first writes at the same time, in several processes', async () => {
    const second = await createTestService({ url: service.url })
    try {
      const branches = await TestBranches.create(service, 'racing', TABLES)
      await branches.put('main', 't', 'a', { n: 1 })
      const ids = ['a', ...range(8).map((n) => `w${n}`)]
      for (const round of range(10)) {
        await branches.fork(`fresh${round}`)
        const seen = await Promise.all(
          range(8).map(async (n) => {
            const via = branches.through(n % 4 < 2 ? service : second)
            if (n % 2 === 0) await via.put(`fresh${round}`, 't', `w${n}`, { n })
            else await via.fork(`f${round}-${n}`, `fresh${round}`)
            return n % 2 === 0 ? undefined : via.read(`f${round}-${n}`, 't', ids)
          }),
        )
        for (const n of [1, 3, 5, 7]) {
          expect(await branches.read(`f${round}-${n}`, 't', ids)).toEqual(seen[n])
        }
        const all = await branches.read(`fresh${round}`, 't', ids)
        expect(Object.keys(all).sort()).toEqual(['a', 'w0', 'w2', 'w4', 'w6'])
      }
    } finally {
      await second.close()
    }
  })
})

/** Begins a transaction that calls a function for the gate of a branch. Returns a function that ends it. */
async function begin(
  name: 'enter_alone' | 'create_gate',
  database: string,
  branch: string,
): Promise<() => Promise<void>> {
  const client = await service.database.pool.connect()
  await client.query('begin')
  await client.query(
    `select offshoot_work.${name}(b.id)
    from offshoot.branches b
    join offshoot.databases d on d.id = b.database_id
    where d.name = $1 and b.name = $2`,
    [database, branch],
  )
  return async () => {
    await client.query('commit')
    client.release()
  }
}

async function isWaiting(): Promise<boolean> {
  const { rows } = await service.database.pool.query(
    `select from pg_locks where locktype = 'advisory' and not granted and classid = ${GATE_KEY}`,
  )
  return rows.length > 0
}

describe('a gate', () => {
  it('is created when it is first needed, as after a restore', async () => {
    const branches = await TestBranches.create(service, 'lacking', TABLES)
    await branches.put('main', 't', 'a', { n: 1 })
    const drop = async () => {
      for (const gate of await gatesOf()) {
        await service.database.pool.query(`drop table offshoot_work."${gate}"`)
      }
    }
    await drop()
    const writes = range(8).map((n) => branches.put('main', 't', `w${n}`, { n }))
    await Promise.all(writes)
    expect(await gatesOf()).toHaveLength(1)
    await drop()
    await Promise.all(range(3).map((n) => branches.fork(`f${n}`)))
    await branches.put('main', 't', 'b', { n: 2 })
    expect(await gatesOf()).toHaveLength(1)
  })

  it('is dropped with its branch or database', async () => {
    const branches = await TestBranches.create(service, 'dropped', TABLES)
    await branches.fork('dev')
    await branches.put('dev', 't', 'a', { n: 1 })
    await collectGates(service.database)
    const before = await gatesOf()
    await branches.delete('dev')
    await collectGates(service.database)
    expect(await gatesOf()).toHaveLength(before.length - 1)
    const answer = await service.call('DELETE', `/workspaces/${service.workspaceId}/dbs/dropped`)
    expect(answer.status).toBe(200)
    await collectGates(service.database)
    expect(await gatesOf()).toHaveLength(before.length - 2)
  })

  it('of a branch that was deleted meanwhile is a branch that does not exist', async () => {
    const branches = await TestBranches.create(service, 'vanishing', TABLES)
    await branches.fork('dev')
    await branches.put('dev', 't', 'a', { n: 1 })
    await branches.delete('dev')
    await collectGates(service.database)
    const answers = [
      await branches.call('dev', 'PUT', '/tables/t/data/a', { n: 2 }),
      await branches.call('dev', 'POST', '/merge'),
      await branches.call('dev', 'POST', '/schema/update', { operations: [] }),
    ]
    expect(statusesOf(answers)).toEqual([404])
  })
})
