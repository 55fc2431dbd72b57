import type { Column } from '@offshoot/contract/schema'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { TestBranches } from '../support/branches.js'
import { EXPLORES, ROUNDS, ROUNDS_TIMEOUT_MS, SEED } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * Three branches write at the same time, through two processes, and are merged in all directions meanwhile. Each has a
 * column and records of its own, so there is nothing that could conflict: at the end of a round, after merges in all
 * directions, every branch must have all that was acknowledged.
 */

const WRITERS = ['main', 'left', 'right'] as const
type Writer = (typeof WRITERS)[number]
/** A branch that nobody writes to. It is reset again and again, and merged like the others. */
const RELAY = 'relay'
const NAMES = [...WRITERS, RELAY]
const COLUMNS: readonly Column[] = NAMES.map((name) => ({ name, type: 'int' }))
/** Records that all branches have, and whose columns belong to different branches. */
const SHARED = ['s1', 's2', 's3', 's4']
/** Records of one branch, which creates, changes and deletes them. */
const ownIds = (writer: Writer): string[] => ['x', 'y'].map((letter) => `${writer}-${letter}`)
const IDS = [...SHARED, ...WRITERS.flatMap(ownIds)]

const ACTIONS = 6
/**
 * The connections of each process. With a single one, a merge waits between its transactions, and the others go on
 * meanwhile.
 */
const CONNECTIONS = 1

let services: readonly [TestService, TestService]
/** A process that does the background work, for which it needs two connections. */
let background: TestService
const held: pg.PoolClient[] = []

beforeAll(async () => {
  // A merge of more rows compares without locks.
  const limits = { mergeLockedRowsMax: 2 }
  const first = await createTestService({ limits })
  services = [first, await createTestService({ limits, url: first.url })]
  background = await createTestService({ limits, url: first.url })
  for (const { database } of services) {
    for (let count = CONNECTIONS; count < database.poolMax; count++) {
      held.push(await database.acquire())
    }
  }
})
afterAll(async () => {
  for (const client of held) client.release()
  for (const service of [background, ...[...services].reverse()]) await service.close()
})

type Row = Readonly<Record<string, number>>

class Team {
  readonly random: Random
  /** What was acknowledged, by record. */
  readonly wanted = new Map<string, Row>()
  readonly log: string[] = []
  #last = 0

  constructor(
    readonly branches: TestBranches,
    seed: number,
  ) {
    this.random = new Random(seed)
  }

  /** Returns the branches through one of the processes. */
  get #via(): TestBranches {
    return this.branches.through(this.random.pick(services))
  }

  async start(): Promise<void> {
    const records = SHARED.map((id) => ({ id, main: 0 }))
    await this.branches.bulk('main', 'items', records)
    for (const { id, ...row } of records) this.wanted.set(id, row)
    for (const name of NAMES) if (name !== 'main') await this.branches.fork(name)
  }

  async round(): Promise<void> {
    const writers = WRITERS.map(async (writer) => {
      for (let count = 0; count < ACTIONS; count++) await this.write(writer)
    })
    const mergers = NAMES.map(async (name) => {
      for (let count = 0; count < ACTIONS / 2; count++) await this.merge(name)
    })
    const others = [this.reset(), this.visit(), runBackground(background)]
    await allSettled([...writers, ...mergers, ...others])
    await this.settle()
  }

  /** Changes all shared records in one column, or creates, changes or deletes a record of the branch. */
  async write(writer: Writer): Promise<void> {
    const value = ++this.#last
    if (this.random.chance(0.5)) {
      const operations = SHARED.map((id) => ({
        update: { table: 'items', id, fields: { [writer]: value } },
      }))
      expectOk(await this.#via.call(writer, 'POST', '/transaction', { operations }))
      for (const id of SHARED) this.wanted.set(id, { ...this.wanted.get(id), [writer]: value })
    } else {
      const id = this.random.pick(ownIds(writer))
      if (this.wanted.has(id) && this.random.chance(0.4)) {
        await this.#via.remove(writer, 'items', id)
        this.wanted.delete(id)
      } else {
        await this.#via.put(writer, 'items', id, { [writer]: value })
        this.wanted.set(id, { [writer]: value })
      }
    }
    this.log.push(`${writer} has written ${value}`)
  }

  async merge(from: string, into = this.#other(from)): Promise<void> {
    const answer = this.random.chance(0.5)
      ? await this.#via.merging(from, { into })
      : await this.#via.pulling(into, { from })
    this.log.push(`${from} was merged into ${into}: ${answer.status}`)
    requireNoConflict(answer)
  }

  #other(name: string): string {
    return this.random.pick(NAMES.filter((other) => other !== name))
  }

  async reset(): Promise<void> {
    const to = this.random.pick(WRITERS)
    const answer = await this.#via.call(RELAY, 'POST', '/reset', { to })
    this.log.push(`${RELAY} was reset to ${to}: ${answer.status}`)
    requireNoConflict(answer)
  }

  /** Forks a branch, merges the fork into another one, and deletes it. */
  async visit(): Promise<void> {
    const from = this.random.pick(NAMES)
    await this.#via.fork('visitor', from)
    await this.merge('visitor')
    await this.#via.delete('visitor')
  }

  /** Merges all branches in all directions, and compares them with what was acknowledged. */
  async settle(): Promise<void> {
    for (const from of [...NAMES, ...NAMES]) {
      for (const into of NAMES) if (from !== into) await this.merge(from, into)
    }
    const found = await Promise.all(
      NAMES.map(async (name) => [name, await this.branches.read(name, 'items', IDS)]),
    )
    const wanted = Object.fromEntries(this.wanted)
    expect(Object.fromEntries(found)).toEqual(
      Object.fromEntries(NAMES.map((name) => [name, wanted])),
    )
  }
}

/** Waits for all, and then fails like the first that has failed. */
async function allSettled(work: readonly Promise<unknown>[]): Promise<void> {
  const results = await Promise.allSettled(work)
  for (const result of results) if (result.status === 'rejected') throw result.reason
}

/** A request may be refused because the history has changed meanwhile, but never because of a conflict. */
function requireNoConflict(answer: Answer): void {
  if (answer.body?.code !== 'retry_limit') expectOk(answer)
}

describe('branches that are merged in all directions at the same time', () => {
  it(
    'have all that was acknowledged',
    async () => {
      const rounds = EXPLORES ? ROUNDS : 4
      const branches = await TestBranches.create(services[0], 'crossing', { items: COLUMNS })
      const team = new Team(branches, SEED)
      await team.start()
      for (let round = 0; round < rounds; round++) {
        const before = team.log.length
        try {
          await team.round()
        } catch (error) {
          const notes = team.log.slice(before).join('\n  ')
          throw new Error(`seed ${SEED}, round ${round}: ${String(error)}\n  ${notes}`, {
            cause: error,
          })
        }
      }
    },
    ROUNDS_TIMEOUT_MS,
  )
})
