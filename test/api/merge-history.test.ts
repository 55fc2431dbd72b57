import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { FOLDS_ALWAYS, foldBranches } from '../support/folding.js'
import { SEED, STEPS, STEPS_TIMEOUT_MS } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { branchCall, createTables, expectOk } from '../support/tables.js'
import {
  type HistoryBranch,
  type Row,
  type Strategy,
  type Value,
  WriteHistory,
} from '../support/write-history.js'

/*
 * Simulates months of a team: a few branches write to the same cells, merge and pull in all
 * directions, are reset, deleted and forked again. Every result must match the definition of a
 * merge. OFFSHOOT_TEST_STEPS sets the number of steps, OFFSHOOT_TEST_SEED repeats a run.
 */

const COLUMNS = ['one', 'two']
const IDS = ['r1', 'r2', 'r3']
const VALUES: readonly Value[] = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']
const BRANCHES_MAX = 6

let service: TestService

beforeAll(async () => {
  service = await createTestService()
})
afterAll(async () => {
  await service.close()
})

class Run {
  readonly model = new WriteHistory(COLUMNS, 'main')
  readonly log: string[] = []
  merges = 0
  open = 0
  #names = 0

  constructor(
    readonly database: string,
    readonly random: Random,
  ) {}

  async step(): Promise<void> {
    const action = this.random.weighted<() => Promise<unknown>>([
      [40, () => this.write()],
      [8, () => this.fork()],
      [36, () => this.merge()],
      [5, () => this.reset()],
      [5, () => this.remove()],
      [4, () => this.collect()],
    ])
    await action()
    const probability = FOLDS_ALWAYS ? 1 : 0.1
    await foldBranches(service, { databaseName: this.database, random: this.random, probability })
  }

  branches(): HistoryBranch[] {
    return [...this.model.branches.values()]
  }

  call(branch: { name: string }, method: string, path: string, body?: unknown): Promise<Answer> {
    const call = branchCall(service, this.database, { branch: branch.name })
    return call(method, path, body === undefined ? {} : { body })
  }

  async write(): Promise<void> {
    const branch = this.random.pick(this.branches())
    const id = this.random.pick(IDS)
    if (branch.rows.has(id) && this.random.chance(0.2)) {
      this.log.push(`delete ${id} on ${branch.name}`)
      expectOk(await this.call(branch, 'DELETE', `/tables/t/data/${id}`))
      this.model.delete(branch, id)
      return
    }
    const values = Object.fromEntries(
      this.random.some(COLUMNS).map((column) => [column, this.random.pick(VALUES)]),
    )
    this.log.push(`put ${id} on ${branch.name} ${JSON.stringify(values)}`)
    expectOk(await this.call(branch, 'POST', `/tables/t/data/${id}`, values))
    this.model.put(branch, id, values)
  }

  async fork(): Promise<void> {
    if (this.model.branches.size >= BRANCHES_MAX) return this.remove()
    const source = this.random.pick(this.branches())
    const name = `b${++this.#names}`
    this.log.push(`fork ${name} from ${source.name}`)
    expectOk(await this.call({ name }, 'PUT', '', { from: source.name }))
    this.model.fork(source, name)
  }

  async remove(): Promise<void> {
    const others = this.branches().filter(({ name }) => name !== 'main')
    if (others.length < 2) return this.fork()
    const branch = this.random.pick(others)
    this.log.push(`remove ${branch.name}`)
    expectOk(await this.call(branch, 'DELETE', ''))
    this.model.branches.delete(branch.name)
  }

  async reset(): Promise<void> {
    const branch = this.random.pick(this.branches())
    const others = this.branches().filter((other) => other !== branch)
    const { source } = branch
    const hasSource = source !== undefined && this.model.branches.get(source.name) === source
    // Without a target, a reset goes to the source. With one, it also resets `main`.
    const target = hasSource && this.random.chance(0.5) ? source : undefined
    const to = target ?? (others.length === 0 ? undefined : this.random.pick(others))
    if (to === undefined) return
    this.log.push(`reset ${branch.name} to ${to.name}`)
    const body = target === undefined ? { to: to.name } : undefined
    expectOk(await this.call(branch, 'POST', '/reset', body))
    this.model.reset(branch, to)
  }

  async collect(): Promise<void> {
    this.log.push('collect')
    await runBackground(service)
  }

  async merge(): Promise<void> {
    if (this.model.branches.size < 2) return
    const from = this.random.pick(this.branches())
    const into = this.random.pick(this.branches().filter((branch) => branch !== from))
    const strategy = this.random.weighted<Strategy>([
      [3, 'fail'],
      [2, 'ours'],
      [2, 'theirs'],
    ])
    this.log.push(`merge ${from.name} into ${into.name} (${strategy})`)
    const outcomes = this.model.outcomes(from, into, strategy)
    const answer = await this.call(from, 'POST', '/merge', { into: into.name, strategy })
    const rows = await this.rows(into)
    this.merges++
    const isOpen = outcomes.some((outcome) => outcome.isOpen)
    if (isOpen) this.open++
    const isConflict = outcomes.some((outcome) => outcome.isConflict && !outcome.isOpen)
    const said = JSON.stringify({ status: answer.status, body: answer.body, outcomes })
    if (answer.status === 409) {
      expect(answer.body.code, said).toBe('merge_conflict')
      expect(isConflict || isOpen, said).toBe(true)
      expect(rows, said).toEqual(into.rows)
      return
    }
    expect(answer.status, said).toBe(200)
    expect(isConflict, said).toBe(false)
    for (const outcome of outcomes) {
      if (!outcome.isOpen) expect(rows.get(outcome.id), said).toEqual(outcome.row)
    }
    this.model.merge(from, into, rows)
  }

  async rows(branch: HistoryBranch): Promise<Map<string, Row>> {
    const answer = expectOk(
      await this.call(branch, 'POST', '/tables/t/query', { columns: COLUMNS }),
    )
    const records: (Record<string, Value> & { id: string })[] = answer.body.records
    return new Map(
      records.map((record) => [
        record.id,
        Object.fromEntries(COLUMNS.map((column) => [column, record[column] ?? null])),
      ]),
    )
  }

  async compare(): Promise<void> {
    for (const branch of this.branches()) {
      expect(await this.rows(branch), branch.name).toEqual(branch.rows)
    }
  }
}

const RUN_STEPS = 60
const RUNS = Math.max(1, Math.round(STEPS / RUN_STEPS))

describe('merging over a long history', () => {
  test(
    `leaves what its definition says (seed ${SEED})`,
    async () => {
      let merges = 0
      let open = 0
      for (let number = 0; number < RUNS; number++) {
        const run = new Run(`months-${number}`, new Random(SEED + number))
        await createTables(service, run.database, {
          t: COLUMNS.map((name) => ({ name, type: 'string' as const })),
        })
        try {
          for (let step = 0; step < RUN_STEPS; step++) await run.step()
          await run.compare()
        } catch (error) {
          const steps = run.log.join('\n')
          throw new Error(`seed ${SEED + number}, after\n${steps}\n${String(error)}`, {
            cause: error,
          })
        }
        merges += run.merges
        open += run.open
      }
      // If the definition leaves too many merges undecided, the test proves nothing.
      if (merges >= 100) expect(open / merges).toBeLessThan(0.2)
    },
    STEPS_TIMEOUT_MS,
  )
})
