import { inTurns } from '../../../common/in-turns.js'
import {
  type Contained,
  type Fork,
  type History,
  HistoryGraph,
  isIn,
  type Merge,
  type State,
  stateKey,
  tablesLeftOut,
} from './history.js'

export interface Compaction {
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
  return inTurns(compactUntilStable(history, heads))
}

function* compactUntilStable(history: History, heads: readonly State[]): Steps<Compaction> {
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
  const reached = yield* reachedFrom(new HistoryGraph(history), heads)
  return history.forks.filter(({ branchId }) => reached.has(branchId))
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
  const candidates = candidatesOf(history, heads)
  const needed = new Map<string, State>()
  yield
  for (const tableId of tableIds) {
    const graph = new HistoryGraph(history, tableId)
    for (const state of yield* neededStates(graph, candidates, heads)) {
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
function candidatesOf({ forks, merges }: History, heads: readonly State[]): State[] {
  const states = [...heads, ...forks.map(({ parent }) => parent), ...merges.map(({ from }) => from)]
  return [...new Map(states.map((state) => [stateKey(state), state])).values()]
}

function* neededStates(
  graph: HistoryGraph,
  candidates: readonly State[],
  heads: readonly State[],
): Steps<State[]> {
  const needed = new Map(heads.map((head) => [stateKey(head), head]))
  const classes = new ObserverClasses(candidates)
  let unseen = [...heads]
  while (unseen.length > 0) {
    for (const observer of unseen) {
      classes.split(graph.containedIn(observer))
      yield
    }
    unseen = []
    for (const alike of classes.list()) {
      for (const state of graph.latest(latestOfEachBranch(alike))) {
        if (needed.has(stateKey(state))) continue
        needed.set(stateKey(state), state)
        unseen.push(state)
      }
      yield
    }
  }
  return [...needed.values()]
}

/** Groups states by their observers. States without an observer are in no group. */
class ObserverClasses {
  readonly #states: readonly State[]
  readonly #classOf: Int32Array
  #classes = 1

  constructor(states: readonly State[]) {
    this.#states = states
    this.#classOf = new Int32Array(states.length)
  }

  /** Splits each class into observed and other states. Class 0 has the states without an observer. */
  split(observed: Contained): void {
    const next = new Map<number, number>()
    this.#states.forEach((state, index) => {
      if (!isIn(observed, state)) return
      const before = this.#classOf[index] ?? 0
      let after = next.get(before)
      if (after === undefined) {
        after = this.#classes++
        next.set(before, after)
      }
      this.#classOf[index] = after
    })
  }

  list(): State[][] {
    const groups = new Map<number, State[]>()
    this.#states.forEach((state, index) => {
      const number = this.#classOf[index] ?? 0
      if (number === 0) return
      const group = groups.get(number)
      if (group === undefined) groups.set(number, [state])
      else group.push(state)
    })
    return [...groups.values()]
  }
}

function latestOfEachBranch(states: readonly State[]): State[] {
  const latest = new Map<string, State>()
  for (const state of states) {
    const known = latest.get(state.branchId)
    if (known === undefined || known.epoch < state.epoch) latest.set(state.branchId, state)
  }
  return [...latest.values()]
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
      const within = targets.get(branchId)?.findLast((candidate) => candidate <= epoch)
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
