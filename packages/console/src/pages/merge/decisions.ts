import {
  type CellConflict,
  type CellResolution,
  type ConflictTable,
  type MergeConflict,
  type Resolution,
  type RuleConflict,
  resolutionOf,
  type Take,
} from '@offshoot/client'

/** The decision about one conflict: a side for all of it, or a decision for each column or record. */
export type Decision = Take | Readonly<Record<string, CellResolution>>

/**
 * Decisions by the key of their conflict, and sides for whole tables, each with the tokens of what was shown when it
 * was made. A decision counts only as long as the same is shown.
 */
export interface Decisions {
  readonly conflicts: ReadonlyMap<string, { readonly decision: Decision; readonly token: string }>
  readonly tables: ReadonlyMap<string, TableDecision>
}

interface TableDecision {
  readonly take: Take
  /** The token of all conflicts of records of the table. */
  readonly token: string | undefined
  /** The tokens of the conflicts that were shown, by their keys. */
  readonly seen: ReadonlyMap<string, string>
}

/** The conflicts that are shown, and all tables with conflicts. */
export interface Shown {
  readonly conflicts: readonly MergeConflict[]
  readonly tables: readonly ConflictTable[]
}

export const NO_DECISIONS: Decisions = { conflicts: new Map(), tables: new Map() }

/** Identifies a conflict, also after it was read again. */
export function keyOf(conflict: MergeConflict): string {
  const parts: unknown[] = [conflict.kind, conflict.table]
  if ('id' in conflict) parts.push(conflict.id)
  if ('column' in conflict) parts.push(conflict.column)
  if ('constraint' in conflict) parts.push(conflict.constraint)
  if ('ids' in conflict) parts.push(...conflict.ids)
  return JSON.stringify(parts)
}

/** Identifies what a conflict shows. */
function tokenOf(conflict: MergeConflict): string {
  return 'tokens' in conflict ? JSON.stringify(conflict.tokens) : conflict.token
}

/** The parts of a conflict that can be decided one by one: columns of a record, or records of a rule. */
function partsOf(conflict: MergeConflict): readonly string[] {
  if (isCells(conflict)) return Object.keys(conflict.columns)
  return isRule(conflict) ? conflict.ids : []
}

function isCells(conflict: MergeConflict): conflict is CellConflict {
  return conflict.kind === 'bothUpdated' || conflict.kind === 'bothInserted'
}

function isRule(conflict: MergeConflict): conflict is RuleConflict {
  return ['notUnique', 'notNull', 'limit', 'check', 'link'].includes(conflict.kind)
}

/**
 * The sides that can be taken for the whole conflict. No side decides the rule of a column. For a link, it is the side that
 * has the linked record.
 */
export function takesOf(conflict: MergeConflict): readonly Take[] {
  if (conflict.kind === 'schema') return conflict.takes
  if (conflict.kind === 'link') {
    return conflict.target?.token === undefined ? [] : conflict.target.takes
  }
  return isRule(conflict) ? [] : ['ours', 'theirs']
}

/** Returns the decision about what a conflict shows now. */
export function decisionOf(conflict: MergeConflict, decisions: Decisions): Decision | undefined {
  const decided = decisions.conflicts.get(keyOf(conflict))
  return decided?.token === tokenOf(conflict) ? decided.decision : undefined
}

/** Returns the side that was taken for all conflicts of records that a table has now. */
export function tableTake(
  table: string,
  decisions: Decisions,
  { tables }: Pick<Shown, 'tables'>,
): Take | undefined {
  const decided = decisions.tables.get(table)
  const token = tables.find(({ name }) => name === table)?.token
  return decided?.token === token ? decided?.take : undefined
}

/** The sides that settle a conflict if they are taken for its whole table. Conflicts that are not shown may be among them. */
export function takesOfTable(table: string, { conflicts, tables }: Shown): readonly Take[] {
  const ofTable = conflicts.filter((conflict) => conflict.table === table)
  const count = tables.find(({ name }) => name === table)?.conflicts ?? 0
  const settled = ofTable.flatMap((conflict) => (isRule(conflict) ? [] : takesOf(conflict)))
  return (['ours', 'theirs'] as const).filter(
    (take) => count > ofTable.length || settled.includes(take),
  )
}

/** Returns the side that a conflict has by the decision about its table. */
export function takeByTable(
  conflict: MergeConflict,
  decisions: Decisions,
  shown: Pick<Shown, 'tables'>,
): Take | undefined {
  const decided = decisions.tables.get(conflict.table)
  if (decided === undefined || isRule(conflict)) return undefined
  if (!takesOf(conflict).includes(decided.take)) return undefined
  const isSeen = decided.seen.get(keyOf(conflict)) === tokenOf(conflict)
  const isCovered =
    conflict.kind !== 'schema' && tableTake(conflict.table, decisions, shown) !== undefined
  return isSeen || isCovered ? decided.take : undefined
}

/** Returns whether a conflict is decided completely. */
export function isSettled(
  conflict: MergeConflict,
  decisions: Decisions,
  shown: Pick<Shown, 'tables'>,
): boolean {
  const decision = decisionOf(conflict, decisions)
  if (decision === undefined) return takeByTable(conflict, decisions, shown) !== undefined
  if (typeof decision === 'string') return true
  // For a rule, changing one of the records can be enough; the next dry run tells.
  return isRule(conflict)
    ? Object.keys(decision).length > 0
    : partsOf(conflict).every((name) => name in decision)
}

/** Returns whether a conflict was decided, and shows something else now or was not there yet. */
export function isReopened(conflict: MergeConflict, decisions: Decisions, shown: Shown): boolean {
  if (isSettled(conflict, decisions, shown)) return false
  const own = decisions.conflicts.get(keyOf(conflict))
  if (own !== undefined) return own.token !== tokenOf(conflict)
  const ofTable = decisions.tables.get(conflict.table)
  return ofTable !== undefined && !isRule(conflict) && takesOf(conflict).includes(ofTable.take)
}

export function decide(
  decisions: Decisions,
  conflict: MergeConflict,
  decision: Decision,
): Decisions {
  const decided = { decision, token: tokenOf(conflict) }
  return { ...decisions, conflicts: new Map(decisions.conflicts).set(keyOf(conflict), decided) }
}

/** Decides one column, or one record of a rule. A side for the whole conflict is replaced. */
export function decidePart(
  decisions: Decisions,
  conflict: MergeConflict,
  part: { readonly name: string; readonly cell: CellResolution },
): Decisions {
  const before = decisionOf(conflict, decisions)
  const cells = typeof before === 'string' && isCells(conflict) ? cellsOf(conflict, before) : before
  return decide(decisions, conflict, {
    ...(typeof cells === 'string' ? {} : cells),
    [part.name]: part.cell,
  })
}

/** Returns the same side for each column of a conflict. */
function cellsOf(conflict: CellConflict, take: Take): Record<string, CellResolution> {
  return Object.fromEntries(partsOf(conflict).map((name) => [name, { take }]))
}

/** Decides all conflicts of a table that have no decision of their own. */
export function decideTable(
  decisions: Decisions,
  { table, take }: { readonly table: string; readonly take: Take },
  shown: Shown,
): Decisions {
  const ofTable = shown.conflicts.filter((conflict) => conflict.table === table)
  return {
    ...decisions,
    tables: new Map(decisions.tables).set(table, {
      take,
      token: shown.tables.find(({ name }) => name === table)?.token,
      seen: new Map(ofTable.map((conflict) => [keyOf(conflict), tokenOf(conflict)])),
    }),
  }
}

/** Forgets the decisions about conflicts that they did not settle. */
export function withoutDecisions(
  decisions: Decisions,
  conflicts: readonly MergeConflict[],
): Decisions {
  const left = new Map(decisions.conflicts)
  for (const conflict of conflicts) left.delete(keyOf(conflict))
  return left.size === decisions.conflicts.size ? decisions : { ...decisions, conflicts: left }
}

/** Returns the resolutions for a merge. They have the tokens of what was shown. */
export function resolutionsOf(shown: Shown, decisions: Decisions): readonly Resolution[] {
  const resolutions: Resolution[] = []
  /** A record can be in conflict by itself and by rules, and needs a single resolution. */
  const byRecord = new Map<string, Record<string, CellResolution>>()
  for (const conflict of shown.conflicts) {
    const decision = decisionOf(conflict, decisions)
    if (!isRule(conflict) || typeof decision !== 'object') continue
    for (const [id, cell] of Object.entries(decision)) {
      const key = JSON.stringify([conflict.table, id])
      byRecord.set(key, { ...byRecord.get(key), [conflict.column]: cell })
    }
  }
  const inConflict = new Set<string>()
  for (const conflict of shown.conflicts) {
    if (isRule(conflict)) continue
    const key = 'id' in conflict ? JSON.stringify([conflict.table, conflict.id]) : ''
    const values = byRecord.get(key)
    const isByTable = tableTake(conflict.table, decisions, shown) !== undefined
    const decision =
      decisionOf(conflict, decisions) ??
      // The decision about the table includes the records that need nothing else.
      (isByTable && values === undefined && conflict.kind !== 'schema'
        ? undefined
        : takeByTable(conflict, decisions, shown))
    if (decision === undefined) continue
    inConflict.add(key)
    if (!isCells(conflict)) {
      if (typeof decision === 'string') resolutions.push(resolutionOf(conflict, decision))
      continue
    }
    const cells = typeof decision === 'string' ? cellsOf(conflict, decision) : decision
    const whole = values === undefined ? decision : { ...cells, ...values }
    resolutions.push(resolutionOf(conflict, whole))
  }
  for (const conflict of shown.conflicts) {
    if (!isRule(conflict)) continue
    const { table } = conflict
    for (const id of conflict.ids) {
      const key = JSON.stringify([table, id])
      const columns = byRecord.get(key)
      const token = conflict.tokens[id]
      if (columns === undefined || token === undefined || inConflict.has(key)) continue
      inConflict.add(key)
      resolutions.push({ table, id, columns, token })
    }
  }
  for (const conflict of shown.conflicts) {
    const decision = decisionOf(conflict, decisions)
    if (conflict.kind !== 'link' || typeof decision !== 'string') continue
    const { table, id, token } = conflict.target ?? {}
    if (table === undefined || id === undefined || token === undefined) continue
    const key = JSON.stringify([table, id])
    if (inConflict.has(key)) continue
    inConflict.add(key)
    resolutions.push({ table, id, take: decision, token })
  }
  for (const { name: table, token } of shown.tables) {
    const take = tableTake(table, decisions, shown)
    if (take === undefined || token === undefined) continue
    if (hasOthers(table, shown, inConflict)) resolutions.push({ table, take, token })
  }
  return resolutions
}

/** Returns whether a table has conflicts of records without a resolution of their own. They need not be shown. */
function hasOthers(table: string, shown: Shown, resolved: ReadonlySet<string>): boolean {
  const ofTable = shown.conflicts.filter((conflict) => conflict.table === table)
  const count = shown.tables.find(({ name }) => name === table)?.conflicts ?? 0
  return (
    count > ofTable.length ||
    ofTable.some(
      (conflict) => 'id' in conflict && !resolved.has(JSON.stringify([table, conflict.id])),
    )
  )
}
