import {
  type CellResolution,
  type ConflictVersions,
  type MergeConflict,
  type Resolution,
  resolutionOf,
  type Take,
} from '@offshoot/client'

/** The decision about one conflict: a side for all of it, or a decision for each column or record. */
export type Decision = Take | Readonly<Record<string, CellResolution>>

/** Decisions by the key of their conflict, and sides for whole tables. */
export interface Decisions {
  readonly conflicts: ReadonlyMap<string, Decision>
  readonly tables: ReadonlyMap<string, Take>
}

export const NO_DECISIONS: Decisions = { conflicts: new Map(), tables: new Map() }

/** Identifies a conflict, also after it was read again. */
export function keyOf(conflict: MergeConflict): string {
  const parts: unknown[] = [conflict.kind, conflict.table]
  if ('id' in conflict) parts.push(conflict.id)
  if ('column' in conflict) parts.push(conflict.column)
  if ('ids' in conflict) parts.push(...conflict.ids)
  return JSON.stringify(parts)
}

/** The parts of a conflict that can be decided one by one: columns of a record, or records of a rule. */
export function partsOf(conflict: MergeConflict): readonly string[] {
  if (conflict.kind === 'bothUpdated' || conflict.kind === 'bothInserted') {
    return Object.keys(conflict.columns)
  }
  return conflict.kind === 'notUnique' || conflict.kind === 'notNull' ? conflict.ids : []
}

/** The sides that can be taken for the whole conflict. */
export function takesOf(conflict: MergeConflict): readonly Take[] {
  return conflict.kind === 'schema' ? conflict.takes : ['ours', 'theirs']
}

/** Returns whether a conflict is decided completely. */
export function isSettled(conflict: MergeConflict, decisions: Decisions): boolean {
  const decision = decisions.conflicts.get(keyOf(conflict))
  if (decision === undefined) {
    const take = decisions.tables.get(conflict.table)
    return take !== undefined && takesOf(conflict).includes(take)
  }
  if (typeof decision === 'string') return true
  // For a rule, changing one of the records can be enough; the next dry run tells.
  const isRule = conflict.kind === 'notUnique' || conflict.kind === 'notNull'
  return isRule
    ? Object.keys(decision).length > 0
    : partsOf(conflict).every((name) => name in decision)
}

export function decide(
  decisions: Decisions,
  conflict: MergeConflict,
  decision: Decision,
): Decisions {
  return { ...decisions, conflicts: new Map(decisions.conflicts).set(keyOf(conflict), decision) }
}

/** Decides one column, or one record of a rule. A side for the whole conflict is replaced. */
export function decidePart(
  decisions: Decisions,
  conflict: MergeConflict,
  part: { readonly name: string; readonly cell: CellResolution },
): Decisions {
  const before = decisions.conflicts.get(keyOf(conflict))
  const isCells = conflict.kind === 'bothUpdated' || conflict.kind === 'bothInserted'
  const cells =
    typeof before === 'string' && isCells
      ? Object.fromEntries(partsOf(conflict).map((name) => [name, { take: before }]))
      : typeof before === 'string'
        ? {}
        : before
  return decide(decisions, conflict, { ...cells, [part.name]: part.cell })
}

/** Decides all conflicts of a table that have no decision of their own. */
export function decideTable(decisions: Decisions, table: string, take: Take): Decisions {
  return { ...decisions, tables: new Map(decisions.tables).set(table, take) }
}

/** Returns the resolutions for a merge. They name the versions of the records that were shown. */
export function resolutionsOf(
  conflicts: readonly MergeConflict[],
  decisions: Decisions,
): readonly Resolution[] {
  const resolutions: Resolution[] = []
  for (const conflict of conflicts) {
    const decision = decisions.conflicts.get(keyOf(conflict))
    if (decision === undefined) continue
    if ('ids' in conflict) {
      resolutions.push(...ruleResolutions(conflict, decision))
    } else if ('columns' in conflict) {
      resolutions.push(resolutionOf(conflict, decision))
    } else if (typeof decision === 'string') {
      resolutions.push(resolutionOf(conflict, decision))
    }
  }
  for (const [table, take] of decisions.tables) resolutions.push({ table, take })
  return resolutions
}

function ruleResolutions(
  {
    table,
    column,
    ids,
    versions,
  }: {
    readonly table: string
    readonly column: string
    readonly ids: readonly string[]
    readonly versions: Readonly<Record<string, ConflictVersions>>
  },
  decision: Decision,
): Resolution[] {
  return ids.flatMap((id): Resolution[] => {
    const cell = typeof decision === 'string' ? { take: decision } : decision[id]
    const seen = versions[id]
    const known = seen === undefined ? {} : { versions: seen }
    if (cell === undefined) return []
    return 'take' in cell
      ? [{ table, id, take: cell.take, ...known }]
      : [{ table, id, columns: { [column]: cell }, ...known }]
  })
}
