import type { BranchLayout } from './layout.js'

export const ROW_HEIGHT = 44
const STEP = 18
const LEFT = 14
const RADIUS = 8
/** How far the curve of a merge bends to the right. */
const MERGE_BEND = 16
/** The button that folds the branches below is behind the lines, beside the name. */
export const FOLD_WIDTH = 26
/** Deeper branches are drawn at this depth; their names say the rest. */
const DEPTH_MAX = 12

const depthX = (depth: number) => LEFT + Math.min(depth, DEPTH_MAX) * STEP

/** The width that the graph of a layout needs. */
export function graphWidth({ rows }: BranchLayout): number {
  let depth = 0
  for (const row of rows) depth = Math.max(depth, row.depth)
  return depthX(depth) + MERGE_BEND + FOLD_WIDTH
}

/**
 * The lines between the branches in a range of rows: a curve from each source to its forks, and a dashed one
 * for each merge. Only what crosses the range is drawn, so ten thousand branches cost no more than a screenful.
 */
export function BranchGraph({
  layout,
  first,
  last,
  width,
}: {
  layout: BranchLayout
  first: number
  last: number
  width: number
}) {
  const top = first * ROW_HEIGHT
  const height = (last - first + 1) * ROW_HEIGHT
  const y = (row: number) => row * ROW_HEIGHT + ROW_HEIGHT / 2 - top
  const forks: string[] = []
  const merges: { key: string; path: string; title: string }[] = []
  const seen = new Set<string>()
  for (const [row, { branch, depth, parent }] of layout.rows.entries()) {
    const source = parent === undefined ? undefined : layout.rows[parent]
    if (parent !== undefined && source !== undefined && row >= first && parent <= last) {
      const [px, cx] = [depthX(source.depth), depthX(depth)]
      forks.push(
        px === cx
          ? `M${px} ${y(parent)}V${y(row)}`
          : `M${px} ${y(parent)}V${y(row) - RADIUS}Q${px} ${y(row)} ${px + RADIUS} ${y(row)}H${cx}`,
      )
    }
    for (const { from } of branch.merges ?? []) {
      const other = layout.rowOf.get(from)
      const lower = Math.min(row, other ?? row)
      const upper = Math.max(row, other ?? row)
      if (other === undefined || upper < first || lower > last) continue
      const key = `${from} ${branch.name}`
      if (seen.has(key)) continue
      seen.add(key)
      const x = depthX(Math.max(depth, layout.rows[other]?.depth ?? 0)) + MERGE_BEND
      merges.push({
        key,
        title: `${from} was merged into ${branch.name}`,
        path: `M${depthX(layout.rows[other]?.depth ?? 0) + 6} ${y(other)}C${x} ${y(other)} ${x} ${y(row)} ${depthX(depth) + 8} ${y(row)}`,
      })
    }
  }
  return (
    <svg
      className="branch-graph"
      width={width}
      height={height}
      style={{ top }}
      role="img"
      aria-label="Graph of forks and merges"
    >
      <defs>
        <marker
          id="merge-arrow"
          viewBox="0 0 6 6"
          refX="5"
          refY="3"
          markerWidth="6"
          markerHeight="6"
          orient="auto"
        >
          <path className="merge-head" d="M0 0L6 3L0 6z" />
        </marker>
      </defs>
      {forks.map((path) => (
        <path key={path} className="fork-line" d={path} />
      ))}
      {merges.map(({ key, path, title }) => (
        <path key={key} className="merge-line" d={path} markerEnd="url(#merge-arrow)">
          <title>{title}</title>
        </path>
      ))}
      {layout.rows.slice(first, last + 1).map(({ branch, depth, below }, i) => (
        <circle
          key={branch.name}
          className={`branch-node ${branch.protected ? 'protected' : ''} ${branch.default ? 'default' : ''}`}
          cx={depthX(depth)}
          cy={y(first + i)}
          r={below > 0 ? 6 : 5}
        />
      ))}
    </svg>
  )
}
