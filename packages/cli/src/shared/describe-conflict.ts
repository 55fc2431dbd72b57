import type { MergeConflict } from '@offshoot/client'
import { oneLine } from './output.js'

/** Says in words what a conflict is about: a line, and one more for each column. */
export function describeConflict(conflict: MergeConflict): string[] {
  const { table, kind } = conflict
  const where = 'id' in conflict ? `${table}/${oneLine(conflict.id)}` : table
  const first = `conflict in ${where}: ${'message' in conflict ? conflict.message : kind}`
  if (!('columns' in conflict)) return [first]
  const columns = Object.entries(conflict.columns).map(
    ([name, { ours, theirs }]) =>
      `    ${name}: ours ${oneLine(ours ?? null)}, theirs ${oneLine(theirs ?? null)}`,
  )
  return [first, ...columns]
}
