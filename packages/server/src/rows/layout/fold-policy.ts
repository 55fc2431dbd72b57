import { type Layout, type Tier, tiersOf } from './layout.js'

/*
 * A branch reads a table from one tier for each level of its chain that has written to it. To keep chains
 * short, the nearest inherited tiers are condensed into one table, a fold, as in a log-structured merge
 * tree. Inherited states never change, so a fold is built without any lock that others wait for, and is
 * published at the end. It belongs to the state that it starts with: all branches that inherit this state
 * read it. A fold of all tiers needs no further ones, and the chain ends there.
 */

/** How many tiers a table may have, and how many inherited ones stay behind a new fold. */
export interface FoldPolicy {
  /** A table with more tiers, the own heap of the branch included, is folded. */
  readonly sourcesMax: number
  /** Inherited tiers that a fold leaves, at most. */
  readonly leftMax: number
}

/** The policy of the background. */
export const BACKGROUND: FoldPolicy = { sourcesMax: 4, leftMax: 2 }

/**
 * A branch that would read a table from more tiers than this has it folded before its first write to the
 * table. Otherwise statements could outgrow PostgreSQL's lock table while the background is busy.
 */
export const SOURCES_MAX = 12

/**
 * A tier that is at most this many times as large as the nearer ones together is folded with them. So each
 * row is copied rarely, and the sizes of folds grow geometrically.
 */
const SIZE_FACTOR = 2

/** Returns how many of the inherited tiers to fold, by their sizes, the nearest first. */
export function countFolded(sizes: readonly number[], { leftMax }: FoldPolicy): number {
  let count = Math.max(1, sizes.length - leftMax)
  let total = sizes.slice(0, count).reduce((sum, size) => sum + size, 0)
  for (let next = sizes[count]; next !== undefined; next = sizes[count]) {
    if (next > SIZE_FACTOR * total) break
    total += next
    count++
  }
  return count
}

/** Returns whether a table of a branch has too many tiers. */
export function needsFold(layout: Layout, tableId: number, { sourcesMax }: FoldPolicy): boolean {
  const inherited = inheritedTiers(layout, tableId)
  return inherited.length + 1 > sourcesMax && inherited.length > 0 && !isFolded(layout, tableId)
}

/** Lists the tiers of a table that a branch inherits, the nearest first. */
export function inheritedTiers(layout: Layout, tableId: number): Tier[] {
  return tiersOf(layout, tableId).filter(({ level }) => level > 0)
}

/** Whether the state that a branch started with has a fold. */
function isFolded({ levels: [, start] }: Layout, tableId: number): boolean {
  const layer = start?.layers.get(tableId)
  return layer !== undefined && layer.nextBranchId !== start?.branchId
}
