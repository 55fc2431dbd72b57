import {
  type Fork,
  type History,
  HistoryGraph,
  type Merge,
  type State,
  stateKey,
  tablesLeftOut,
} from './history.js'

export interface Compaction {
  readonly removed: readonly Merge[]
  readonly added: readonly Merge[]
}

/** Observers that are processed before the event loop runs other work. */
const OBSERVERS_PER_TURN = 50

/**
 * Finds the merges that no pair of live branches can need to find a base, now or later, and the merges
 * that replace them. A branch observes the states that it contains. All states with the same observers
 * are equivalent for every pair, so only the latest of them can become a base. A base of several states
 * needs the bases of these states too, so needed states are also observers. A table that merges have
 * left out has its own history; a merge stays if any of these histories needs it.
 */
export async function compactHistory(
  history: History,
  heads: readonly State[],
  takeTurns: () => Promise<void>,
): Promise<Compaction> {
  let merges = history.merges
  for (;;) {
    // A branch that was reachable only through a removed merge is no longer reachable.
    const forks = reachedForks({ forks: history.forks, merges }, heads)
    const kept = await compact({ forks, merges }, heads, takeTurns)
    if (kept.length === merges.length && kept.every((merge) => merges.includes(merge))) break
    merges = kept
  }
  const before = new Set(history.merges)
  const after = new Set(merges)
  return {
    removed: history.merges.filter((merge) => !after.has(merge)),
    added: merges.filter((merge) => !before.has(merge)),
  }
}

function reachedForks(history: History, heads: readonly State[]): Fork[] {
  const graph = new HistoryGraph(history)
  const reached = new Set(heads.flatMap((head) => [...graph.containedIn(head).keys()]))
  return history.forks.filter(({ branchId }) => reached.has(branchId))
}

/** Returns the merges that stay, and those that replace others. */
async function compact(
  history: History,
  heads: readonly State[],
  takeTurns: () => Promise<void>,
): Promise<Merge[]> {
  const tableIds = tablesLeftOut(history)
  const graphs = [undefined, ...tableIds].map((tableId) => new HistoryGraph(history, tableId))
  const candidates = candidatesOf(history, heads)
  const needed: State[] = []
  for (const graph of graphs) {
    needed.push(...(await neededStates(graph, { candidates, heads, takeTurns })))
  }
  // A fork contains its parent state without any merge, so which states contain it must stay known.
  const targets = epochsByBranch([...needed, ...history.forks.map(({ parent }) => parent)])
  const known = new Map(history.merges.map((merge) => [mergeKey(merge), merge]))
  const kept = new Map<string, Merge>()
  for (const [index, graph] of graphs.entries()) {
    const tableId = tableIds[index - 1]
    const merges = history.merges.filter(
      ({ leftOut }) => tableId === undefined || !leftOut.includes(tableId),
    )
    const replaced = [...replacements(graph, merges, targets)]
    await takeTurns()
    for (const merge of withoutRedundant({ forks: history.forks, merges: replaced }, needed)) {
      kept.set(mergeKey(merge), known.get(mergeKey(merge)) ?? merge)
    }
  }
  const leftOutOf = ({ into, from }: Merge) =>
    tableIds.filter((_, index) => !graphs[index + 1]?.contains(into, from))
  return [...kept].map(([key, merge]) =>
    known.has(key) ? merge : { ...merge, leftOut: leftOutOf(merge) },
  )
}

/** Lists the states to classify: the observers of a branch change only at these epochs. */
function candidatesOf({ forks, merges }: History, heads: readonly State[]): State[] {
  const states = [...heads, ...forks.map(({ parent }) => parent), ...merges.map(({ from }) => from)]
  return [...new Map(states.map((state) => [stateKey(state), state])).values()]
}

async function neededStates(
  graph: HistoryGraph,
  options: {
    candidates: readonly State[]
    heads: readonly State[]
    takeTurns: () => Promise<void>
  },
): Promise<State[]> {
  const { candidates, heads, takeTurns } = options
  const needed = new Map(heads.map((head) => [stateKey(head), head]))
  const classes = new ObserverClasses(candidates)
  let unseen = [...heads]
  let turns = 0
  while (unseen.length > 0) {
    for (const observer of unseen) {
      classes.split((state) => graph.contains(observer, state))
      if (++turns % OBSERVERS_PER_TURN === 0) await takeTurns()
    }
    unseen = []
    for (const alike of classes.list()) {
      for (const state of graph.latest(latestOfEachBranch(alike))) {
        if (needed.has(stateKey(state))) continue
        needed.set(stateKey(state), state)
        unseen.push(state)
      }
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
  split(isObserved: (state: State) => boolean): void {
    const next = new Map<number, number>()
    this.#states.forEach((state, index) => {
      if (!isObserved(state)) return
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
function* replacements(
  graph: HistoryGraph,
  merges: readonly Merge[],
  targets: Epochs,
): Generator<Merge> {
  for (const { into, from } of merges) {
    const states: State[] = []
    for (const [branchId, epoch] of graph.containedIn(from)) {
      const within = (targets.get(branchId) ?? []).findLast((candidate) => candidate <= epoch)
      if (within !== undefined) states.push({ branchId, epoch: within })
    }
    for (const state of graph.latest(states)) yield { into, from: state, leftOut: [] }
  }
}

/**
 * Removes merges that are reachable from no needed state, and merges of states that the target
 * contains without them.
 */
function withoutRedundant({ forks, merges }: History, needed: readonly State[]): Merge[] {
  const distinct = [...new Map(merges.map((merge) => [mergeKey(merge), merge])).values()]
  const all = new HistoryGraph({ forks, merges: distinct })
  const reached = new Map<string, number>()
  for (const state of needed) {
    for (const [branchId, epoch] of all.containedIn(state)) {
      reached.set(branchId, Math.max(epoch, reached.get(branchId) ?? -1))
    }
  }
  const kept = distinct.filter(({ into }) => (reached.get(into.branchId) ?? -1) >= into.epoch)
  const graph = new HistoryGraph({ forks, merges: kept })
  return kept.filter((merge) => !graph.isRedundant(merge))
}

function mergeKey({ into, from }: Merge): string {
  return `${stateKey(into)}<${stateKey(from)}`
}
