import { randomFillSync } from 'node:crypto'
import { inTurns } from '../../../common/in-turns.js'
import {
  type Contained,
  countUntil,
  type Fork,
  type History,
  HistoryGraph,
  isIn,
  type Merge,
  type State,
  stateKey,
  tablesLeftOut,
} from './history.js'

interface Compaction {
  readonly removed: readonly Merge[]
  readonly added: readonly Merge[]
}

/** Work in steps, between which the event loop may run other work. */
type Steps<Result> = Generator<undefined, Result>

/**
 * Finds the merges that no pair of live branches can need to find a base, now or later, and the merges
 * that replace them. A branch observes the states that it contains. All states with the same observers
 * are equivalent for every pair, so only the latest of them can become a base. A base of several states
 * needs the bases of these states too, so needed states are also observers. A table that merges have
 * left out has its own history; a merge stays if any of these histories needs it.
 */
export function compactHistory(history: History, heads: readonly State[]): Promise<Compaction> {
  return inTurns(compactionSteps(history, heads))
}

export function* compactionSteps(history: History, heads: readonly State[]): Steps<Compaction> {
  const before = new Set(history.merges)
  let merges = history.merges
  let after: ReadonlySet<Merge> = before
  for (;;) {
    // A branch that was reachable only through a removed merge is no longer reachable.
    const forks = yield* reachedForks({ forks: history.forks, merges }, heads)
    const kept = yield* compact({ forks, merges }, heads)
    const known = after
    merges = kept
    after = new Set(kept)
    if (after.size === known.size && kept.every((merge) => known.has(merge))) break
  }
  return {
    removed: history.merges.filter((merge) => !after.has(merge)),
    added: merges.filter((merge) => !before.has(merge)),
  }
}

function* reachedForks(history: History, heads: readonly State[]): Steps<Fork[]> {
  const live = new Set(heads.map(({ branchId }) => branchId))
  const { observers } = observersOf(history, heads)
  const reached = yield* reachedFrom(new HistoryGraph(history), observers)
  return history.forks.filter(({ branchId }) => live.has(branchId) || reached.has(branchId))
}

interface Observers {
  readonly observers: readonly State[]
  /** The forks that an observer can contain. */
  readonly forks: readonly Fork[]
}

/**
 * Returns few states that stand for the heads. Most branches of a large database were never forked or merged. Such a branch
 * contains its parent as of its fork, and nothing that another branch contains besides. If two of them were forked from the
 * same parent with no merge into it in between, the later one contains all that the earlier one does, and differs only in
 * epochs of the parent. In the history of another branch, the base of the earlier one is either the state that it was
 * forked from, which every fork keeps, or the same as that of the later one. So the latest of them is enough.
 */
function observersOf({ forks, merges }: History, heads: readonly State[]): Observers {
  const involved = new Set(forks.map(({ parent }) => parent.branchId))
  for (const { into, from } of merges) involved.add(into.branchId).add(from.branchId)
  const parents = new Map(forks.map(({ branchId, parent }) => [branchId, parent]))
  const mergedAt = epochsByBranch(merges.map(({ into }) => into))
  const observers: State[] = []
  const latest = new Map<string, State>()
  const simple = new Set<string>()
  for (const head of heads) {
    if (involved.has(head.branchId)) {
      observers.push(head)
      continue
    }
    simple.add(head.branchId)
    const parent = parents.get(head.branchId)
    if (parent === undefined) continue
    const { branchId, epoch } = parent
    const key = `${branchId}/${countUntil(mergedAt.get(branchId) ?? [], epoch, (merged) => merged)}`
    if ((latest.get(key)?.epoch ?? -1) < epoch) latest.set(key, parent)
  }
  return {
    observers: [...observers, ...latest.values()],
    forks: forks.filter(({ branchId }) => !simple.has(branchId)),
  }
}

/** Returns the states that any of the given states contains. */
function* reachedFrom(graph: HistoryGraph, states: readonly State[]): Steps<Contained> {
  const reached = new Map<string, number>()
  for (const state of states) {
    // Its own walk would only find states that another walk has found.
    if (isIn(reached, state)) continue
    for (const [branchId, epoch] of graph.containedIn(state)) {
      reached.set(branchId, Math.max(epoch, reached.get(branchId) ?? -1))
    }
    yield
  }
  return reached
}

/** Returns the merges that stay, and those that replace others. */
function* compact(history: History, heads: readonly State[]): Steps<Merge[]> {
  const groups = tablesLeftOut(history)
  // One table stands for its group. Undefined stands for the tables that no merge has left out.
  const tableIds = [undefined, ...groups.map(([tableId]) => tableId)]
  const { observers, forks } = observersOf(history, heads)
  const candidates = candidatesOf({ forks, merges: history.merges }, observers)
  const needed = new Map<string, State>()
  yield
  for (const tableId of tableIds) {
    const graph = new HistoryGraph(history, tableId)
    for (const state of yield* neededStates(graph, candidates, observers)) {
      needed.set(stateKey(state), state)
    }
  }
  // A fork contains its parent state without any merge, so which states contain it must stay known.
  const targets = epochsByBranch([...needed.values(), ...history.forks.map(({ parent }) => parent)])
  const known = new Map(history.merges.map((merge) => [mergeKey(merge), merge]))
  const kept = new Map<string, Merge>()
  yield
  for (const tableId of tableIds) {
    const merges = history.merges.filter(
      ({ leftOut }) => tableId === undefined || !leftOut.includes(tableId),
    )
    const replaced = yield* replacements({ forks: history.forks, merges }, targets)
    const remaining = { forks: history.forks, merges: replaced }
    for (const [key, merge] of yield* withoutRedundant(remaining, [...needed.values()])) {
      kept.set(key, known.get(key) ?? merge)
    }
  }
  const added = [...kept].filter(([key]) => !known.has(key)).map(([, merge]) => merge)
  const leftOut = yield* leftOutOf(added, history, groups)
  return [...kept.values()].map((merge) => {
    const tables = leftOut.get(merge)
    return tables === undefined ? merge : { ...merge, leftOut: tables }
  })
}

/** Finds the tables that merges leave out: those whose history does not contain the merged state. */
function* leftOutOf(
  merges: readonly Merge[],
  history: History,
  groups: readonly (readonly number[])[],
): Steps<Map<Merge, number[]>> {
  const leftOut = new Map(merges.map((merge) => [merge, [] as number[]]))
  for (const group of groups) {
    const graph = new HistoryGraph(history, group[0])
    for (const [merge, tables] of leftOut) {
      if (!graph.contains(merge.into, merge.from)) tables.push(...group)
      yield
    }
  }
  return leftOut
}

/** Lists the states to classify: the observers of a branch change only at these epochs. */
function candidatesOf({ forks, merges }: History, observers: readonly State[]): State[] {
  const states = [
    ...observers,
    ...forks.map(({ parent }) => parent),
    ...merges.map(({ from }) => from),
  ]
  return [...new Map(states.map((state) => [stateKey(state), state])).values()]
}

function* neededStates(
  graph: HistoryGraph,
  candidates: readonly State[],
  observers: readonly State[],
): Steps<State[]> {
  const needed = new Map(observers.map((state) => [stateKey(state), state]))
  const observations = new Observations(epochsByBranch(candidates))
  let unseen = [...observers]
  while (unseen.length > 0) {
    for (const observer of unseen) {
      observations.add(graph.containedIn(observer))
      yield
    }
    unseen = []
    for (const alike of yield* observations.classes()) {
      // A single state is not contained in another one.
      for (const state of alike.length === 1 ? alike : graph.latest(alike)) {
        if (needed.has(stateKey(state))) continue
        needed.set(stateKey(state), state)
        unseen.push(state)
      }
      yield
    }
  }
  return [...needed.values()]
}

/** An epoch of a branch up to which an observer contains it, and the mark of that observer. */
interface Observation {
  readonly epoch: number
  readonly mark: Mark
}

/** A random number of 96 bits. */
type Mark = Uint32Array

/** Groups states by their observers. The sum of the marks of a set of observers identifies the set. */
class Observations {
  readonly #candidates: Epochs
  readonly #ofBranch = new Map<string, Observation[]>()

  constructor(candidates: Epochs) {
    this.#candidates = candidates
  }

  add(contained: Contained): void {
    const mark = randomFillSync(new Uint32Array(3))
    for (const [branchId, epoch] of contained) {
      const known = this.#ofBranch.get(branchId)
      if (known === undefined) this.#ofBranch.set(branchId, [{ epoch, mark }])
      else known.push({ epoch, mark })
    }
  }

  /** Returns the latest state of each branch in each class. States without an observer are in no class. */
  *classes(): Steps<State[][]> {
    const classes = new Map<string, State[]>()
    for (const [branchId, observations] of this.#ofBranch) {
      observations.sort((left, right) => right.epoch - left.epoch)
      for (const [key, epoch] of latestSeen(observations, this.#candidates.get(branchId) ?? [])) {
        const known = classes.get(key)
        if (known === undefined) classes.set(key, [{ branchId, epoch }])
        else known.push({ branchId, epoch })
      }
      yield
    }
    return [...classes.values()]
  }
}

/** Returns the latest of those candidates of one branch that have the same observers, by the sum of their marks. */
function latestSeen(
  observations: readonly Observation[],
  candidates: readonly number[],
): Map<string, number> {
  const latest = new Map<string, number>()
  const sum = new Uint32Array(3)
  let seen = 0
  for (const epoch of candidates.toReversed()) {
    for (; (observations[seen]?.epoch ?? -1) >= epoch; seen++) {
      const { mark } = observations[seen] as Observation
      for (const index of sum.keys()) sum[index] = (sum[index] ?? 0) ^ (mark[index] ?? 0)
    }
    if (seen === 0) continue
    const key = sum.join()
    if (!latest.has(key)) latest.set(key, epoch)
  }
  return latest
}

type Epochs = ReadonlyMap<string, readonly number[]>

function epochsByBranch(states: readonly State[]): Epochs {
  const epochs = new Map<string, number[]>()
  for (const { branchId, epoch } of states) {
    const known = epochs.get(branchId)
    if (known === undefined) epochs.set(branchId, [epoch])
    else known.push(epoch)
  }
  for (const known of epochs.values()) known.sort((left, right) => left - right)
  return epochs
}

/** Replaces the merged state of every merge by the latest targets that it contains. */
function* replacements(history: History, targets: Epochs): Steps<Merge[]> {
  const graph = new HistoryGraph(history)
  const replaced: Merge[] = []
  for (const { into, from } of history.merges) {
    const states: State[] = []
    for (const [branchId, epoch] of graph.containedIn(from)) {
      const epochs = targets.get(branchId) ?? []
      const within = epochs[countUntil(epochs, epoch, (target) => target) - 1]
      if (within !== undefined) states.push({ branchId, epoch: within })
    }
    for (const state of graph.latest(states)) replaced.push({ into, from: state, leftOut: [] })
    yield
  }
  return replaced
}

/**
 * Removes merges that are reachable from no needed state, and merges of states that the target
 * contains without them. Returns the others by their keys.
 */
function* withoutRedundant(
  { forks, merges }: History,
  needed: readonly State[],
): Steps<Map<string, Merge>> {
  const distinct = new Map(merges.map((merge) => [mergeKey(merge), merge]))
  const all = new HistoryGraph({ forks, merges: [...distinct.values()] })
  yield
  const reached = yield* reachedFrom(all, needed)
  const kept = new Map([...distinct].filter(([, { into }]) => isIn(reached, into)))
  const graph = new HistoryGraph({ forks, merges: [...kept.values()] })
  for (const [key, merge] of kept) {
    if (graph.isRedundant(merge)) kept.delete(key)
    yield
  }
  return kept
}

function mergeKey({ into, from }: Merge): string {
  return `${stateKey(into)}<${stateKey(from)}`
}
