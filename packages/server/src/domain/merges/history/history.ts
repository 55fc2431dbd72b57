/**
 * The history of a database is a graph of states. A state is a branch as of an epoch. It contains the
 * earlier states of its branch, the state that the branch was forked from, all states merged into it
 * until then, and all states that these contain.
 */
export interface State {
  readonly branchId: string
  readonly epoch: number
}

export interface Fork {
  readonly branchId: string
  readonly parent: State
}

export interface Merge {
  /** The first state that contains the merged one. */
  readonly into: State
  readonly from: State
  /** Ids of the tables that were not merged. */
  readonly leftOut: readonly number[]
}

export interface History {
  readonly forks: readonly Fork[]
  readonly merges: readonly Merge[]
}

const epochOfMerge = ({ into }: Merge): number => into.epoch

/** A set of states, as the latest epoch of each branch. All earlier epochs are in the set too. */
export type Contained = ReadonlyMap<string, number>

/**
 * A history, indexed for walks from a state to the states that it contains. With a table id, merges
 * that left out the table are ignored.
 */
export class HistoryGraph {
  readonly #parents = new Map<string, State>()
  /** The merges into each branch, in the order of their epochs. */
  readonly #merges = new Map<string, Merge[]>()

  constructor({ forks, merges }: History, tableId?: number) {
    for (const { branchId, parent } of forks) this.#parents.set(branchId, parent)
    for (const merge of merges) {
      if (tableId !== undefined && merge.leftOut.includes(tableId)) continue
      const { branchId } = merge.into
      const known = this.#merges.get(branchId)
      if (known === undefined) this.#merges.set(branchId, [merge])
      else known.push(merge)
    }
    for (const known of this.#merges.values()) {
      known.sort((left, right) => left.into.epoch - right.into.epoch)
    }
  }

  /** Walks to the states that a state contains, including itself. */
  containedIn(state: State): Contained {
    return this.#walk([state])
  }

  contains(state: State, other: State): boolean {
    return isIn(this.containedIn(state), other)
  }

  /** Returns the lowest common ancestors: the common states that no other common state contains. */
  lowestCommon(left: Contained, right: Contained): State[] {
    const common: State[] = []
    for (const [branchId, epoch] of left) {
      const other = right.get(branchId)
      if (other !== undefined) common.push({ branchId, epoch: Math.min(epoch, other) })
    }
    return this.latest(common)
  }

  /** Returns the states that no other given state contains. At most one state per branch is given. */
  latest(states: readonly State[]): State[] {
    // One walk from the direct predecessors of all states is enough, because the graph has no cycles.
    const reached = this.#walk(states.flatMap((state) => [...this.#predecessors(state)]))
    return states.filter((state) => !isIn(reached, state)).sort(compareStates)
  }

  /** Returns whether the target of a merge would contain the merged state without that merge. */
  isRedundant({ into, from }: Merge): boolean {
    if (from.branchId === into.branchId) return true
    const others = [...this.#predecessors(into)].filter((state) => state !== from)
    return isIn(this.#walk(others), from)
  }

  /**
   * Yields the states of other branches that a state contains directly: its parent, and the states
   * merged after epoch `after`.
   */
  *#predecessors({ branchId, epoch }: State, after = -1): Generator<State> {
    const parent = this.#parents.get(branchId)
    if (parent !== undefined && after < 0) yield parent
    const merges = this.#merges.get(branchId) ?? []
    for (let index = countUntil(merges, after, epochOfMerge); index < merges.length; index++) {
      const { into, from } = merges[index] as Merge
      if (into.epoch > epoch) return
      yield from
    }
  }

  #walk(states: readonly State[]): Contained {
    const contained = new Map<string, number>()
    const waiting = [...states]
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      const seen = contained.get(next.branchId) ?? -1
      if (seen >= next.epoch) continue
      contained.set(next.branchId, next.epoch)
      for (const state of this.#predecessors(next, seen)) waiting.push(state)
    }
    return contained
  }
}

/**
 * Counts the items of an epoch or earlier ones. They are in the order of their epochs. Searches by halves, because walks
 * visit a branch repeatedly.
 */
export function countUntil<Item>(
  items: readonly Item[],
  epoch: number,
  epochOf: (item: Item) => number,
): number {
  let low = 0
  let high = items.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (epochOf(items[middle] as Item) <= epoch) low = middle + 1
    else high = middle
  }
  return low
}

export function isIn(contained: Contained, { branchId, epoch }: State): boolean {
  return (contained.get(branchId) ?? -1) >= epoch
}

/**
 * The base of a three-way merge: a state, or the merge of several states whose own base is found in
 * the same way (git's recursive strategy).
 */
export type MergeBase =
  | { readonly kind: 'state'; readonly state: State }
  | {
      readonly kind: 'virtual'
      readonly left: MergeBase
      readonly right: MergeBase
      /** Undefined if the two have no common ancestor. */
      readonly base: MergeBase | undefined
    }

/** States that a virtual base may consist of. Criss-cross merges seldom need more than four. */
const BASE_STATES_MAX = 64

/** Thrown when a virtual base would need more than `BASE_STATES_MAX` states. */
export class TooManyBasesError extends Error {}

/** Finds the merge base of two states. Returns undefined if they have no common ancestor. */
export function findMergeBase(
  graph: HistoryGraph,
  states: { readonly ours: State; readonly theirs: State },
): MergeBase | undefined {
  let left = BASE_STATES_MAX
  const baseOf = (ours: Contained, theirs: Contained): MergeBase | undefined => {
    const [first, ...others] = graph.lowestCommon(ours, theirs)
    if (first === undefined) return undefined
    left -= 1 + others.length
    if (left < 0) throw new TooManyBasesError('the branches have too many common ancestors')
    let base: MergeBase = { kind: 'state', state: first }
    let contained = graph.containedIn(first)
    for (const state of others) {
      const next = graph.containedIn(state)
      base = {
        kind: 'virtual',
        left: base,
        right: { kind: 'state', state },
        base: baseOf(contained, next),
      }
      contained = union(contained, next)
    }
    return base
  }
  return baseOf(graph.containedIn(states.ours), graph.containedIn(states.theirs))
}

/** Lists the distinct states that a base consists of. */
export function statesOf(base: MergeBase | undefined): State[] {
  const states = new Map<string, State>()
  const waiting = [base]
  while (waiting.length > 0) {
    const next = waiting.pop()
    if (next === undefined) continue
    if (next.kind === 'state') states.set(stateKey(next.state), next.state)
    else waiting.push(next.left, next.right, next.base)
  }
  return [...states.values()].sort(compareStates)
}

export function stateKey({ branchId, epoch }: State): string {
  return `${branchId}@${epoch}`
}

function compareStates(left: State, right: State): number {
  if (left.branchId !== right.branchId) return left.branchId < right.branchId ? -1 : 1
  return left.epoch - right.epoch
}

function union(left: Contained, right: Contained): Contained {
  const all = new Map(left)
  for (const [branchId, epoch] of right) {
    all.set(branchId, Math.max(epoch, all.get(branchId) ?? epoch))
  }
  return all
}

/**
 * Lists the ids of the tables that merges have left out. Tables that were left out of the same merges
 * have the same history and are in one group.
 */
export function tablesLeftOut({ merges }: Pick<History, 'merges'>): number[][] {
  const leftOutOf = new Map<number, number[]>()
  for (const [index, { leftOut }] of merges.entries()) {
    for (const tableId of leftOut) {
      const known = leftOutOf.get(tableId)
      if (known === undefined) leftOutOf.set(tableId, [index])
      else known.push(index)
    }
  }
  const groups = new Map<string, number[]>()
  for (const [tableId, indexes] of leftOutOf) {
    const key = indexes.join()
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [tableId])
    else group.push(tableId)
  }
  return [...groups.values()]
}
