import type {
  CellConflict,
  CellResolution,
  DeletedConflict,
  Resolution,
  SchemaConflict,
  Take,
} from './api.js'

/**
 * Returns the resolution of a conflict. It repeats the token of the conflict, so the merge is refused if the
 * record, or what the branches did to the schema, has changed since the conflict was read.
 *
 * @example
 * ```ts
 * import { type Resolution, resolutionOf } from '@offshoot/client'
 *
 * const resolutions: Resolution[] = []
 * for await (const conflict of client.branch('dev').mergeConflicts()) {
 *   if (conflict.kind === 'bothUpdated' && 'age' in conflict.columns) {
 *     resolutions.push(resolutionOf(conflict, { age: { value: 41 } }))
 *   }
 * }
 * await client.branch('dev').merge({ resolutions })
 * ```
 */
export function resolutionOf(
  conflict: CellConflict,
  decision: Take | Readonly<Record<string, CellResolution>>,
): Resolution
export function resolutionOf(
  conflict: CellConflict | DeletedConflict | SchemaConflict,
  decision: Take,
): Resolution
export function resolutionOf(
  conflict: CellConflict | DeletedConflict | SchemaConflict,
  decision: Take | Readonly<Record<string, CellResolution>>,
): Resolution {
  const { table, token } = conflict
  if (conflict.kind === 'schema') {
    const { column, constraint } = conflict
    const named = {
      ...(column === undefined ? {} : { column }),
      ...(constraint === undefined ? {} : { constraint }),
    }
    return { table, kind: 'schema', ...named, take: decision as Take, token }
  }
  const { id } = conflict
  return typeof decision === 'string'
    ? { table, id, take: decision, token }
    : { table, id, columns: decision, token }
}
