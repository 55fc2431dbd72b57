import { describe, expect, test } from 'vitest'
import { amount } from '../../../../../../test/support/random.js'
import { Random } from '../../../../../../test/support/seeded-random.js'
import { NO_COLUMN, UNDECIDED } from '../../../rows/merging/compare-rows.js'
import { compactHistory, compactionSteps } from './compact-history.js'
import {
  type Fork,
  findMergeBase,
  HistoryGraph,
  type Merge,
  type MergeBase,
  type State,
  stateKey,
} from './history.js'
import { type Row, virtualRow } from './virtual-row.js'

/** Number of random histories. */
const SEEDS = amount('HISTORIES', { short: 20, long: 60 })

/** A model of a database that records for every state the set of all states that it contains. */
class Model {
  readonly forks: Fork[] = []
  merges: Merge[] = []
  readonly epochs = new Map<string, number>([['b0', 1]])
  readonly contained = new Map<string, ReadonlySet<string>>([['b0@1', new Set(['b0@1'])]])
  readonly live = new Set(['b0'])
  leavesOut = false
  #made = 1

  head(branchId: string): State {
    return { branchId, epoch: this.epochs.get(branchId) ?? 0 }
  }

  setOf(state: State): ReadonlySet<string> {
    return this.contained.get(stateKey(state)) ?? new Set()
  }

  /** Closes the epoch of a branch; later writes belong to the next epoch. */
  close(branchId: string): State {
    const state = this.head(branchId)
    this.advance(branchId, [])
    return state
  }

  advance(branchId: string, merged: Iterable<string>): void {
    const before = this.head(branchId)
    const next = { branchId, epoch: before.epoch + 1 }
    this.epochs.set(branchId, next.epoch)
    this.contained.set(stateKey(next), new Set([...this.setOf(before), ...merged, stateKey(next)]))
  }

  fork(parentId: string): string {
    const branchId = `b${this.#made++}`
    const parent = this.close(parentId)
    this.forks.push({ branchId, parent })
    this.epochs.set(branchId, 1)
    this.contained.set(`${branchId}@1`, new Set([...this.setOf(parent), `${branchId}@1`]))
    this.live.add(branchId)
    return branchId
  }

  merge(fromId: string, intoId: string, leftOut: readonly number[] = []): void {
    const from = this.close(fromId)
    this.advance(intoId, this.setOf(from))
    this.merges.push({ into: this.head(intoId), from, leftOut })
  }

  /** Computes the bases by definition: the common states that no other common state contains. */
  lowestCommon(left: string, right: string): string[] {
    const theirs = this.setOf(this.head(right))
    const common = [...this.setOf(this.head(left))].filter((key) => theirs.has(key))
    return common
      .filter((key) =>
        common.every((other) => other === key || !this.contained.get(other)?.has(key)),
      )
      .sort()
  }

  step(random: Random): void {
    const live = [...this.live]
    const branch = random.pick(live)
    const what = random.next()
    if (live.length < 3 || what < 0.2) this.fork(branch)
    else if (what < 0.75) {
      const other = random.pick(live)
      if (other !== branch)
        this.merge(branch, other, this.leavesOut && random.chance(0.3) ? [7] : [])
    } else if (what < 0.85) this.live.delete(branch)
    else this.advance(branch, [])
  }
}

function describeBase(base: MergeBase | undefined): string {
  if (base === undefined) return 'none'
  if (base.kind === 'state') return stateKey(base.state)
  return `(${describeBase(base.left)} + ${describeBase(base.right)} over ${describeBase(base.base)})`
}

function pairs(model: Model): [string, string][] {
  const live = [...model.live]
  return live.flatMap((left) =>
    live.filter((right) => left < right).map((right): [string, string] => [left, right]),
  )
}

const baseOf = (graph: HistoryGraph, model: Model, [left, right]: [string, string]) =>
  describeBase(findMergeBase(graph, { ours: model.head(left), theirs: model.head(right) }))

describe('the history of a database', () => {
  test.each(Array.from({ length: SEEDS }, (_, seed) => seed))(
    'has the lowest common ancestors of the definition (seed %i)',
    (seed) => {
      const random = new Random(seed)
      const model = new Model()
      for (let step = 0; step < 50; step++) model.step(random)
      const graph = new HistoryGraph(model)
      for (const [left, right] of pairs(model)) {
        const found = graph.lowestCommon(
          graph.containedIn(model.head(left)),
          graph.containedIn(model.head(right)),
        )
        expect(found.map(stateKey).sort()).toEqual(model.lowestCommon(left, right))
      }
    },
  )

  test.each(Array.from({ length: SEEDS }, (_, seed) => seed))(
    'gives the same bases whether or not it is compacted (seed %i)',
    async (seed) => {
      const random = new Random(seed + 1000)
      const model = new Model()
      model.leavesOut = seed % 2 === 1
      let merges: Merge[] = []
      for (let step = 0; step < 50; step++) {
        const known = model.merges.length
        model.step(random)
        merges.push(...model.merges.slice(known))
        if (step % 3 === 0) {
          const heads = [...model.live].map((id) => model.head(id))
          const { removed, added } = await compactHistory({ forks: model.forks, merges }, heads)
          merges = [...merges.filter((merge) => !removed.includes(merge)), ...added]
        }
        for (const tableId of [undefined, 7]) {
          const full = new HistoryGraph(model, tableId)
          const compact = new HistoryGraph({ forks: model.forks, merges }, tableId)
          for (const pair of pairs(model)) {
            expect(baseOf(compact, model, pair)).toBe(baseOf(full, model, pair))
          }
        }
      }
    },
  )

  test('stays small when branches merge and pull for a long time', async () => {
    const model = new Model()
    const branches = Array.from({ length: 20 }, () => model.fork('b0'))
    for (let round = 0; round < 60; round++) {
      for (const branch of branches) {
        model.merge(branch, 'b0')
        model.merge('b0', branch)
      }
      const heads = [...model.live].map((id) => model.head(id))
      const { removed, added } = await compactHistory(model, heads)
      model.merges = [...model.merges.filter((merge) => !removed.includes(merge)), ...added]
      expect(model.merges.length).toBeLessThanOrEqual(4 * branches.length)
    }
  })
})

describe('a compaction', () => {
  /** Counts the steps of a compaction with this many forks before, between and after merges. */
  function countSteps(forks: number): number {
    const model = new Model()
    const merged = model.fork('b0')
    for (let round = 0; round < 3; round++) {
      for (let count = 0; count < forks; count++) model.fork('b0')
      model.merge(merged, 'b0')
    }
    for (let count = 0; count < forks; count++) model.fork('b0')
    const heads = [...model.live].map((id) => model.head(id))
    let steps = 0
    for (const run = compactionSteps(model, heads); !run.next().done; ) steps++
    return steps
  }

  test('takes as many steps for many forks that were never merged as for a few', () => {
    expect(countSteps(300)).toBe(countSteps(3))
  })
})

describe('the row of a virtual base', () => {
  const state = (branchId: string): MergeBase => ({ kind: 'state', state: { branchId, epoch: 1 } })
  const base: MergeBase = {
    kind: 'virtual',
    left: state('left'),
    right: state('right'),
    base: state('origin'),
  }
  const merged = (origin: Row, left: Row, right: Row) =>
    virtualRow(base, ({ branchId }) => ({ origin, left, right })[branchId])

  test('has the changes of both states', () => {
    expect(merged(['a', 'b'], ['c', 'b'], ['a', 'd'])).toEqual(['c', 'd'])
    expect(merged(['a'], undefined, ['a'])).toBeUndefined()
    expect(merged(undefined, ['a'], undefined)).toEqual(['a'])
  })

  test('has the values of the state that has the column, if the other one never had it', () => {
    expect(merged(undefined, ['a', 'b'], ['a', NO_COLUMN])).toEqual(['a', 'b'])
    expect(merged(undefined, [NO_COLUMN], ['b'])).toEqual(['b'])
    expect(merged([NO_COLUMN], [NO_COLUMN], ['b'])).toEqual(['b'])
    expect(merged([NO_COLUMN], [null], ['b'])).toEqual(['b'])
    expect(merged([NO_COLUMN], undefined, [null])).toBeUndefined()
  })

  test('is undecided where the states disagree', () => {
    expect(merged(['a', 'b'], ['c', 'b'], ['d', 'b'])).toEqual([UNDECIDED, 'b'])
    expect(merged(['a', 'b'], undefined, ['d', 'b'])).toEqual([UNDECIDED, UNDECIDED])
    expect(merged(undefined, ['a'], ['b'])).toEqual([UNDECIDED])
  })
})
