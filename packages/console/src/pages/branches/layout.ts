import type { BranchSummary } from '@offshoot/client'

/** A branch in the list, with its place in the tree. */
export interface BranchRow {
  readonly branch: BranchSummary
  readonly depth: number
  /** The row of the source of the branch; undefined for a root. */
  readonly parent: number | undefined
  /** The number of branches below this one. */
  readonly below: number
}

export interface BranchLayout {
  readonly rows: readonly BranchRow[]
  /** The row of each branch that is shown. */
  readonly rowOf: ReadonlyMap<string, number>
}

/**
 * Orders branches as a tree: each below its source, in the order in which they were forked. A branch whose
 * source is gone, or that the session may not see, is a root. Branches below a collapsed one are left out.
 */
export function layOutBranches(
  branches: readonly BranchSummary[],
  collapsed: ReadonlySet<string>,
): BranchLayout {
  const known = new Set(branches.map(({ name }) => name))
  const children = new Map<string, BranchSummary[]>()
  const roots: BranchSummary[] = []
  for (const branch of branches) {
    // A branch that was reset to one of its own forks must not become its own ancestor.
    const source = branch.from
    if (source === undefined || !known.has(source) || source === branch.name) roots.push(branch)
    else {
      const forks = children.get(source)
      if (forks === undefined) children.set(source, [branch])
      else forks.push(branch)
    }
  }
  const byAge = (left: BranchSummary, right: BranchSummary) =>
    Number(right.default) - Number(left.default) ||
    left.createdAt.localeCompare(right.createdAt) ||
    left.name.localeCompare(right.name)
  const rows: {
    branch: BranchSummary
    depth: number
    parent: number | undefined
    below: number
  }[] = []
  const rowOf = new Map<string, number>()
  const seen = new Set<string>()

  // Without recursion: chains of forks can be thousands of branches long.
  const stack: { branch: BranchSummary; depth: number; parent: number | undefined }[] = []
  const visit = (start: readonly BranchSummary[]) => {
    for (const branch of [...start].sort(byAge).reverse()) {
      stack.push({ branch, depth: 0, parent: undefined })
    }
    for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
      const { branch, depth, parent } = next
      if (seen.has(branch.name)) continue
      seen.add(branch.name)
      const row = rows.length
      rows.push({ branch, depth, parent, below: 0 })
      rowOf.set(branch.name, row)
      if (collapsed.has(branch.name)) {
        const hidden = markBelow(branch.name, children, seen)
        const entry = rows[row]
        if (entry !== undefined) entry.below = hidden
        continue
      }
      const forks = children.get(branch.name) ?? []
      for (const fork of [...forks].sort(byAge).reverse()) {
        stack.push({ branch: fork, depth: depth + 1, parent: row })
      }
    }
  }
  visit(roots)
  // Branches that are each other's source have no root.
  visit(branches.filter(({ name }) => !seen.has(name)))

  for (let row = rows.length - 1; row >= 0; row--) {
    const entry = rows[row]
    const above = entry?.parent === undefined ? undefined : rows[entry.parent]
    if (entry !== undefined && above !== undefined) above.below += entry.below + 1
  }
  return { rows, rowOf }
}

/** Marks all branches below one as placed, and counts them. */
function markBelow(
  name: string,
  children: ReadonlyMap<string, readonly BranchSummary[]>,
  seen: Set<string>,
): number {
  let count = 0
  const stack = [...(children.get(name) ?? [])]
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    if (seen.has(next.name)) continue
    seen.add(next.name)
    count++
    stack.push(...(children.get(next.name) ?? []))
  }
  return count
}
