import { createHash } from 'node:crypto'
import type { MergeResult, Only } from '@offshoot/contract/branch-changes'
import type { DataLoss } from '@offshoot/contract/data-loss'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { MergeConflict, Resolution } from '@offshoot/contract/merge-conflicts'
import { allDone } from '../../common/all-done.js'
import { inTurns } from '../../common/in-turns.js'
import { toCanonicalJson } from '../../common/write-json.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { listOrigins, type StoredSchema } from '../../rows/columns/stored-schema.js'
import { UNDECIDED } from '../../rows/merging/compare-rows.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import { requireDirectChanges } from '../access/approvals.js'
import type { BranchAccess } from '../access/resolve.js'
import { type BranchState, getStartOf, getState, readState } from '../branches/branch-state.js'
import { getRequiredApprovals } from '../branches/queries.js'
import type { LongWork } from '../long-work/long-work.js'
import { compareSchemasById } from '../schemas/compare-schemas-by-id.js'
import { listRemovals, measureLoss, withoutColumns } from '../schemas/data-loss.js'
import type { MergeStrategy, Take } from '../schemas/merge-definitions.js'
import {
  mergeSchemas,
  type SchemaConflict,
  sameTable,
  type TableRule,
} from '../schemas/merge-schemas.js'
import { SchemasBeforeRoundTrips } from '../schemas/round-trips.js'
import { SameIds } from '../schemas/same-ids.js'
import type { ConflictPage } from './conflict-list.js'
import { type Contested, countContested } from './contested-removals.js'
import {
  type Base,
  type Bases,
  baseOfTable,
  baseSchema,
  type ComparedStates,
  findBases,
  findHistoryOf,
  getPin,
  nameBases,
  StateGoneError,
} from './merge-base.js'
import { isNamed, recordsByTable, requireKnownOnly } from './only.js'
import { readColumns, readColumnsOfBases } from './read-columns.js'
import { Resolutions } from './resolutions.js'
import { rememberRestored, restoreIds } from './restored-ids.js'
import { getStepStates, type Step } from './step-states.js'
import { findUnfit } from './unfit-values.js'

export interface MergeOptions {
  /** What the request is called in the log. */
  readonly kind: 'merge' | 'pull' | 'revert'
  readonly from: BranchAccess
  readonly into: BranchAccess
  readonly dryRun: boolean
  readonly strategy: MergeStrategy
  readonly tables: Readonly<Record<string, { strategy?: MergeStrategy; mode?: TableRule['mode'] }>>
  /** The change that a revert takes back. `from` is then the branch itself. */
  readonly step?: Step | undefined
  /** The part of the difference that is merged. undefined: all of it. */
  readonly only?: Only | undefined
  /** Whether the merge may remove tables and columns of the target that hold values. */
  readonly allowDataLoss: boolean
  readonly resolutions: readonly Resolution[]
  /** The conflicts to list. */
  readonly page: ConflictPage
  readonly limits: Limits
  /**
   * Called with the target locked, before anything is written; throws if the merge may not change it. By default, a target
   * that requires approvals is refused.
   */
  readonly admit?: ((transaction: Transaction) => Promise<void>) | undefined
  /** Tells how far the merge has come, and whether it was cancelled. */
  readonly work?: LongWork | undefined
  /** Called at the end of the transaction that publishes the merge. */
  readonly keep?: ((transaction: Transaction, result: MergeResult) => Promise<void>) | undefined
}

/** A planned merge: all that can be decided without comparing rows. */
export interface MergePlan extends MergeOptions {
  readonly theirs: BranchState
  readonly ours: BranchState
  /** The common ancestors of both branches. */
  readonly bases: Bases
  readonly ids: SameIds
  ruleOf(tableId: number): TableRule
  /** The records to merge, by table id. undefined: all of them. */
  readonly records: ReadonlyMap<number, readonly string[]> | undefined
  /** The merged schema. */
  readonly schema: StoredSchema
  /** The edits that turn the schema of the target into the merged one. */
  readonly operations: MergeResult['schema']['operations']
  /** The values that the target would lose with removed tables and columns. */
  readonly dataLoss: readonly DataLoss[]
  /** Conflicts of the schemas. */
  readonly conflicts: readonly MergeConflict[]
  /** Whether the merged schema is valid in spite of its conflicts, so that rows can be compared. */
  readonly isComparable: boolean
  /**
   * Tables and columns that one side removed, by id, with the number of records that the other side has
   * changed there since the base.
   */
  readonly changedRecords: ReadonlyMap<number, number>
  /** Ids of the tables among them from which records were deleted. */
  readonly deletedFrom: ReadonlySet<number>
  /** Ids of the tables whose rows are not merged. */
  readonly leftOut: readonly number[]
  /** New ids of tables and columns that a revert brings back, by their old ids. */
  readonly restored: ReadonlyMap<number, number>
  readonly decisions: Resolutions
}

/** States of both branches at one moment, which hidden forks keep. */
export interface Pins {
  readonly ours: string
  /** The merged state, and the name of the bases at that moment. undefined: the states of a revert are kept anyway. */
  readonly merged: { readonly pinId: string; readonly bases: string } | undefined
}

/** The states that a merge compares, and how it treats tables. */
export interface MergeSides extends Sides {
  readonly bases: Bases
  /** The ids by which all states are read: those of the target. */
  readonly ids: SameIds
  /** A bound of the number of rows that the merged branch has written. It can be infinite. */
  readonly ownRowsMax: number
  ruleOf(tableId: number): TableRule
  /** The records to merge, by table id. undefined: all of them. */
  readonly records: ReadonlyMap<number, readonly string[]> | undefined
  /** New ids of tables and columns that a revert brings back, by their old ids. */
  readonly restored: ReadonlyMap<number, number>
}

const UNBOUNDED = Promise.resolve(Number.POSITIVE_INFINITY)

/**
 * Finds the states to compare. Rows, schemas and history of both sides are of one moment: that of a snapshot, of locked
 * branches, or of the pins. Throws a `StateGoneError` if the history no longer shows the bases that pinned states had.
 */
export async function findSides(
  transaction: Transaction,
  options: MergeOptions,
  { locks, pins }: { locks: boolean; pins?: Pins },
): Promise<MergeSides> {
  const { step } = options
  const { there, here, bases, restored, ownRowsMax } =
    step === undefined
      ? await findBranches(transaction, options, { locks, pins })
      : await findStates(transaction, { ...options, step, locks, pinId: pins?.ours })
  const renamed = {
    ...there,
    schema: new Resolutions(options.resolutions).rename(there.schema),
  }
  const rules = rulesOf(options, { ours: here, theirs: there })
  const ids = new SameIds({ ours: here.schema, theirs: renamed.schema }).withAdded(
    baseSchema(bases),
    (tableId) => rules(tableId).mode !== 'skip',
  )
  const theirs = readState(renamed, ids)
  // The target is written, so its rows stay under their own ids, which are those that all others are read by.
  const ours = { rows: here.rows, schema: ids.read(here.schema) }
  const named = [...theirs.schema.tables, ...ours.schema.tables]
  return {
    theirs,
    ours,
    bases,
    ids,
    ownRowsMax,
    restored,
    ruleOf: rulesOf(options, { theirs, ours }),
    records: recordsByTable(options.only, named, options.limits),
  }
}

/** Throws if the merge may not change its target, which is locked. */
export async function admitMerge(
  transaction: Transaction,
  { into, admit }: Pick<MergeOptions, 'into' | 'admit'>,
): Promise<void> {
  if (admit !== undefined) return admit(transaction)
  const { branchName } = into
  const requiredApprovals = await getRequiredApprovals(transaction, into)
  requireDirectChanges({ branchName, requiredApprovals })
}

/** The states that are compared, before the ids by which they are read are known. */
interface FoundStates {
  readonly there: BranchState
  readonly here: BranchState
  readonly bases: Bases
  readonly restored: ReadonlyMap<number, number>
  readonly ownRowsMax: number
}

const NOTHING_RESTORED: ReadonlyMap<number, number> = new Map()

/** Finds the states of two branches, and their bases. */
async function findBranches(
  transaction: Transaction,
  options: MergeOptions,
  { locks, pins }: { locks: boolean; pins: Pins | undefined },
): Promise<FoundStates> {
  const { from, into } = options
  const stateOf = (access: BranchAccess, pinId: string | undefined) =>
    pinId === undefined ? getState(transaction, access) : getStartOf(transaction, pinId)
  const states = pins && (await findPlaces(transaction, pins))
  const [there, here, history, ownRowsMax] = await allDone([
    stateOf(from, pins?.merged?.pinId),
    stateOf(into, pins?.ours),
    findHistoryOf(transaction, states ?? { theirs: from, ours: into }),
    locks ? new StoredBranch(transaction, from.branchId).boundRows() : UNBOUNDED,
  ])
  if (states && nameBases(history, { from, into }, states) !== pins?.merged?.bases) {
    throw new StateGoneError()
  }
  requireKnownTables(options, [there.schema, here.schema])
  const known = new SameIds({ ours: here.schema, theirs: there.schema })
  const bases = await findBases(
    transaction,
    { from, into },
    { history, locks, known: [there, here], states, ids: known },
  )
  return { there, here, bases, restored: NOTHING_RESTORED, ownRowsMax }
}

async function findPlaces(
  transaction: Transaction,
  { ours, merged }: Pins,
): Promise<ComparedStates | undefined> {
  if (merged === undefined) return undefined
  const [theirs, target] = await allDone([
    getPin(transaction, merged.pinId),
    getPin(transaction, ours),
  ])
  return { theirs, ours: target }
}

/** Finds the states of a revert: the one before the change is merged, and the one after it is the base. */
async function findStates(
  transaction: Transaction,
  options: MergeOptions & { step: Step; locks: boolean; pinId: string | undefined },
): Promise<FoundStates> {
  const { into, step, locks, pinId, limits } = options
  const here = await (pinId === undefined
    ? getState(transaction, into)
    : getStartOf(transaction, pinId))
  const found = await getStepStates(transaction, step, { now: here, locks, limits })
  const { before, after, loaded } = found
  requireKnownTables(options, [before.schema, here.schema])
  const { restored, ...states } = await restoreIds(transaction, { before, after, now: here })
  const known = new SameIds({ ours: here.schema, theirs: states.before.schema })
  const base = readState(states.after, known)
  const general: Base = {
    states: [base],
    schema: base.schema,
    rowOf: ([row]) => row,
    isUpToDate: false,
  }
  const ofTables = new Map<number, Base>()
  if (loaded !== undefined) ofTables.set(loaded.tableId, { ...general, loaded, rowOf: ofUnknown })
  const bases = { general, ofTables, isForkOfTarget: false }
  return { there: states.before, here, bases, restored, ownRowsMax: Number.POSITIVE_INFINITY }
}

/** The row of a base whose values are not known any more. */
const ofUnknown: Base['rowOf'] = ([row]) => row?.map(() => UNDECIDED)

/** Plans a merge: merges the schemas, and counts the values that removals would lose. */
export async function planMerge(
  transaction: Transaction,
  options: MergeOptions,
  { theirs, ours, bases, ids, ruleOf, records, restored }: MergeSides,
): Promise<MergePlan> {
  const { limits } = options
  const base = baseSchema(bases)
  const before = new SchemasBeforeRoundTrips({ base, ours: ours.schema, theirs: theirs.schema })
  const { sides } = before
  const contested = await countContested(transaction, {
    ours,
    theirs,
    baseSchema: base,
    baseOf: (tableId) => baseOfTable(bases, tableId),
    ruleOf,
    limits,
  })
  const { deletedFrom } = contested
  const changedRecords = before.byFirstIds(contested.changedRecords)
  const digests = before.byFirstIds(contested.digests)
  const decisions = new Resolutions(options.resolutions)
  const takes = decideSchemas(sides, { limits, ruleOf, changedRecords, digests, decisions })
  const merged = mergeSchemas(sides, { limits, ruleOf, changedRecords, takes })
  const mergedSchema = before.restore(merged.schema)
  decisions.markRenames(sides, limits)
  const unfit = await findUnfit(transaction, {
    ours,
    theirs,
    merged: mergedSchema,
    bases,
    ruleOf,
    limits,
  })
  const conflicts = [...merged.conflicts, ...unfit]
  if (records !== undefined) requireSameSchema(sides, merged, [...records.keys()])
  const stored = ids.store(records === undefined ? mergedSchema : ours.schema)
  const schema = rememberRestored(stored, restored, {
    idOf: (id) => ids.idOf(id),
    hasRows: (tableId) => ruleOf(tableId).mode === 'merge',
  })
  // Tables and columns in conflict are not removed.
  const removals = withoutColumns(
    listRemovals(ours.schema, schema),
    isMadeAgain({ schema, restored, changedRecords, ruleOf, idsOf: (id) => ids.allOf([id]) }),
  )
  return {
    ...options,
    theirs: readColumns(theirs, schema),
    ours,
    dataLoss: await measureLoss(transaction, ours.rows, { removals, limits }),
    bases: readColumnsOfBases(bases, schema),
    ids,
    restored,
    ruleOf,
    records,
    schema,
    decisions,
    // No edits lead to a schema in conflict.
    operations: conflicts.length > 0 ? [] : await inTurns(compareSchemasById(ours.schema, schema)),
    changedRecords,
    deletedFrom,
    // A removal in conflict leaves the schema as the target has it, and so does a column that both added.
    isComparable: conflicts.every(
      ({ records, theirs }) => records !== undefined || theirs !== undefined,
    ),
    conflicts: conflicts.map((conflict) => {
      const { id: _, takes, ...described } = conflict
      return {
        ...described,
        takes: [...takes],
        kind: 'schema',
        token: schemaToken(conflict, digests),
      }
    }),
    leftOut: ids.allOf(listTables({ theirs, ours }).filter((id) => ruleOf(id).mode !== 'merge')),
  }
}

/**
 * Returns whether the merged schema has the values of a removed column in another form. Its type is changed back, which converts
 * what was written since. Or an expression has made other values of them, which a revert takes back, and nobody has written to
 * them since.
 */
function isMadeAgain({
  schema,
  restored,
  changedRecords,
  ruleOf,
  idsOf,
}: Pick<MergePlan, 'schema' | 'restored' | 'changedRecords' | 'ruleOf'> & {
  /** Returns all ids of a column. */
  idsOf(id: number): readonly number[]
}): Parameters<typeof withoutColumns>[1] {
  const columns = schema.tables.flatMap((table) => table.columns)
  const live = new Set(columns.map(({ id }) => id))
  const broughtBack = new Set([...restored].flatMap(([old, id]) => (live.has(id) ? [old] : [])))
  const replaced = new Set(columns.flatMap((column) => (column.replaced ?? []).flatMap(idsOf)))
  return (column, table) => {
    // Without its rows, the merged table has no values of the other form.
    if (ruleOf(table.id).mode !== 'merge') return false
    if (listOrigins(column).some(({ id }) => broughtBack.has(id))) return true
    const isRewritten =
      replaced.has(column.id) || column.replaced?.some((id) => broughtBack.has(id)) === true
    return isRewritten && (changedRecords.get(column.id) ?? 0) === 0
  }
}

/** Returns the decisions about the schemas, if the conflicts are those that were reviewed. */
function decideSchemas(
  sides: Parameters<typeof mergeSchemas>[0],
  options: Omit<Parameters<typeof mergeSchemas>[1], 'takes'> & {
    digests: Contested['digests']
    decisions: Resolutions
  },
): ReadonlyMap<number, Take> {
  const { ruleOf, digests, decisions } = options
  if (!decisions.hasSchemas) return new Map()
  const { conflicts } = mergeSchemas(sides, {
    ...options,
    ruleOf: (tableId) => ({ ...ruleOf(tableId), strategy: 'fail' }),
  })
  return decisions.ofSchemas(
    sides,
    conflicts.map((conflict) => ({ id: conflict.id, token: schemaToken(conflict, digests) })),
  )
}

/** Returns the token of a conflict of the schemas. It covers the records that a removal would lose. */
function schemaToken(conflict: SchemaConflict, digests: Contested['digests']): string {
  const written = conflict.id === undefined ? undefined : digests.get(conflict.id)
  return createHash('sha256')
    .update(toCanonicalJson([conflict, written]))
    .digest('hex')
}

interface Sides {
  readonly theirs: BranchState
  readonly ours: BranchState
}

/** Lists the ids of the tables of both sides. */
function listTables({ theirs, ours }: Sides): number[] {
  return [...new Set([...theirs.schema.tables, ...ours.schema.tables].map(({ id }) => id))]
}

/**
 * Throws if single records are to be merged, and the merged branch has changed the schema of their table, or the target does
 * not have the table.
 */
function requireSameSchema(
  { ours, theirs }: Record<'ours' | 'theirs', StoredSchema>,
  { schema, conflicts }: ReturnType<typeof mergeSchemas>,
  tableIds: readonly number[],
): void {
  for (const tableId of tableIds) {
    const [before, after, there] = [ours, schema, theirs].map(({ tables }) =>
      tables.find(({ id }) => id === tableId),
    )
    const name = before?.name ?? there?.name
    if (before === undefined && after === undefined) {
      throw new AppError(
        'conflict',
        `table [${name}]: the target does not have the table, so single records cannot be merged`,
      )
    }
    const isSame = before !== undefined && after !== undefined && sameTable(before, after)
    if (isSame && !conflicts.some(({ table }) => table === name)) continue
    throw new AppError(
      'conflict',
      `table [${name}]: the merged branch has changed its schema, so single records cannot be merged; merge the table first, or its schema alone with the mode [schema]`,
    )
  }
}

function requireKnownTables(
  { tables, only }: MergeOptions,
  schemas: readonly StoredSchema[],
): void {
  const names = new Set(schemas.flatMap((schema) => schema.tables.map((table) => table.name)))
  requireKnownOnly(only, names)
  for (const name of Object.keys(tables)) {
    if (!names.has(name)) {
      throw new AppError(
        'invalid_request',
        `body: field [tables.${name}]: table [${name}] not found`,
      )
    }
  }
}

/** Returns the rules by table id. A request can use the table name of either side. */
function rulesOf(options: MergeOptions, { theirs, ours }: Sides): (tableId: number) => TableRule {
  const rules = new Map(Object.entries(options.tables))
  const byId = new Map<number, TableRule>()
  for (const { id, name } of [...ours.schema.tables, ...theirs.schema.tables]) {
    if (!isNamed(options.only, name)) continue
    const rule = rules.get(name)
    // A table that both sides name differently may have its rule by either name.
    if (rule === undefined && (options.only === undefined || byId.has(id))) continue
    byId.set(id, { strategy: rule?.strategy ?? options.strategy, mode: rule?.mode ?? 'merge' })
  }
  const rest: TableRule = {
    strategy: options.strategy,
    mode: options.only === undefined ? 'merge' : 'skip',
  }
  return (tableId) => byId.get(tableId) ?? rest
}
