import type { Bounds } from '../../postgres/bounds.js'
import type { Database, Queryable } from '../../postgres/database.js'
import {
  runTransaction,
  type Transaction,
  WRITABLE_SNAPSHOT,
} from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import { listNewRules } from '../columns/computed-columns.js'
import { narrows } from '../columns/conversions.js'
import {
  isFilled,
  listAllColumns,
  type StoredSchema,
  type StoredTable,
} from '../columns/stored-schema.js'
import { compileTable, type TableCodec, type TableCodecOptions } from '../columns/table-codec.js'
import { dropNewLayers, type NewLayer } from '../heaps/layers.js'
import type { SpareHeaps } from '../heaps/spare-heaps.js'
import { type Author, noteAuthor } from '../heaps/versions.js'
import { type BranchRows, layoutOf, ownHeap, ownLayer } from '../layout/layout.js'
import { changedIds, mayDiffer } from '../reading/changed-ids.js'
import {
  type BrokenLinks,
  findBrokenLinks,
  findLinkBreakers,
  findMissingTargets,
  findSides,
  keepDeleted,
  type OutcomeRows,
  restoreRows,
} from './check-links.js'
import {
  type FailedCheck,
  findFailedChecks,
  findMissingValues,
  findRuleBreakers,
  findUnfitValues,
  findUniqueClashes,
  type RefusedValues,
  type UniqueClash,
} from './check-stage.js'
import { listCompared, type RowTexts } from './compare-rows.js'
import {
  amendOutcome,
  buildOutcome,
  countOutcome,
  isCheckFailed,
  isRowWritten,
  isValueTaken,
  publishOutcomes,
} from './outcome-layer.js'
import { publishRows } from './publish-stage.js'
import { type RecordToken, readConflictsToken, readTokens } from './review-tokens.js'
import { type RowResolution, type RowStrategy, settleRest, settleRows } from './settle.js'
import {
  addUnchanged,
  boundStaged,
  countStaged,
  findConflicts,
  hasContested,
  listConflicts,
  type MergeTally,
  mapTally,
  NO_EFFECT,
  NOT_RESTAGED,
  type Restaged,
  type RowConflict,
  type RowMerge,
  restageRows,
  Stage,
  type StagedRows,
  settledRows,
  stageNothing,
  stageRows,
  stageUncontested,
} from './stage.js'
import {
  findEarlier,
  mergeColumns,
  rowsOfBase,
  rowsOfTable,
  rowsOfTarget,
  singleState,
  type TableSides,
  type TableState,
} from './table-states.js'

/** A table of a merge: its states, and the rule for its conflicts. */
interface ComparedTable extends TableSides {
  /** The table as it is after the merge. */
  readonly table: StoredTable
  readonly form: TableCodecOptions
  readonly strategy: RowStrategy
  /** Whether changes of theirs are merged. Otherwise only the rules of the columns are checked. */
  readonly mergesRows: boolean
  /** The ids of the rows that are merged. undefined: all rows. */
  readonly ids?: readonly string[] | undefined
}

/** Decisions about the rows of a table. */
interface RowDecisions {
  readonly rows: readonly RowResolution[]
  /** Decides the conflicts that are left, instead of the strategy of the merge. */
  readonly rest: RowStrategy | undefined
}

/** A row in conflict in all three states. A value on which the states of a virtual base disagree is `UNDECIDED`. */
interface ReviewedConflict extends RowConflict, Record<'base' | 'theirs' | 'ours', RowTexts> {
  /** Stands for the values of both sides. */
  readonly token: string
}

/** The tokens of records by id. */
type Tokened<Found> = Found & { readonly tokens: Readonly<Record<string, string>> }

/** Thrown if a comparison cannot be published, because the target has changed in a way that it does not allow for. */
export class OutdatedError extends Error {}

/**
 * The comparison of a branch with another one that it is merged into: what would change, and what is in conflict. It is
 * published in the transaction that has compared, or in a later one that may find that the target was written since.
 */
export class Comparison {
  readonly #tables: TableComparison[] = []
  readonly #layers = new Map<number, NewLayer>()
  readonly #stage: Stage
  readonly #others: OtherTables

  /** With `pinId`, the comparison is kept for later transactions, until it is dropped. It belongs to this hidden branch. */
  constructor(
    transaction: Transaction,
    owner: { databaseId: string; pinId?: string | undefined },
    target: { ours: BranchRows; schema: StoredSchema },
  ) {
    this.#stage = new Stage(transaction, owner)
    const tables = target.schema.tables.flatMap(({ columns }) =>
      listAllColumns(columns).flatMap(({ link, onDelete }) =>
        onDelete === undefined ? [] : (link?.tableId ?? []),
      ),
    )
    this.#others = {
      linkedIds: new Set(tables),
      rowsOf: (tableId) =>
        this.#tables.find(({ codec }) => codec.table.id === tableId)?.outcome ?? {
          ours: target.ours,
          staged: undefined,
        },
    }
  }

  /** The tables that may change. */
  get tables(): readonly TableComparison[] {
    return this.#tables.filter(({ isStaged }) => isStaged)
  }

  /** Whether a row of the target changes. */
  get hasEffect(): boolean {
    return this.#tables.some((table) => table.hasEffect)
  }

  /** Compares a table in three states. */
  async compare(transaction: Transaction, table: ComparedTable): Promise<TableComparison> {
    const compared = new TableComparison(table, this.#stage, this.#others)
    await compared.compare(transaction)
    this.#tables.push(compared)
    return compared
  }

  /**
   * Prepares publishing, so that at most `rowsMax` rows are left to be written while the target is locked: writes the
   * outcome for the largest tables to layers. `onTable` is called before each, with the number of tables before it.
   */
  async prepare(
    database: Database,
    options: {
      rowsMax: number
      bounds: Bounds | undefined
      onTable: (name: string, count: number) => void
    },
  ): Promise<void> {
    const { rowsMax, bounds, onTable } = options
    let rows = 0
    for (const table of this.tables) await table.bound(database, rowsMax)
    const tables = [...this.tables].sort((left, right) => left.effects - right.effects)
    for (const table of tables) {
      rows += table.effects
      if (rows <= rowsMax || !table.takesLayer) continue
      onTable(table.name, this.#layers.size)
      const layer = await runTransaction(database, (transaction) => table.buildLayer(transaction), {
        ...WRITABLE_SNAPSHOT,
        bounds,
      })
      this.#layers.set(table.codec.table.id, layer)
    }
  }

  /**
   * Brings the comparison up to date with a target that is locked now, and returns what is to be published. Throws an
   * `OutdatedError` if everything must be compared again. Has no effect on the comparison itself.
   */
  async renew(
    transaction: Transaction,
    oursOf: (table: StoredTable) => TableState,
  ): Promise<Outcome> {
    const tables: OutcomeTable[] = []
    for (const compared of this.tables) {
      const { table } = compared.codec
      const layer = this.#layers.get(table.id)
      tables.push(await compared.renew(transaction, oursOf(table), layer))
    }
    return new Outcome(tables)
  }

  /** Counts the effects that are otherwise counted when they are published. */
  async count(transaction: Transaction): Promise<void> {
    for (const table of this.tables) await table.count(transaction)
  }

  /** Drops what a comparison that is kept has stored and not published. */
  async drop(database: Database): Promise<void> {
    await this.#stage.drop(database)
    await dropNewLayers(database, [...this.#layers.values()])
  }
}

/** The other tables of a merge. */
interface OtherTables {
  /** The ids of the tables whose records must exist if they are linked. */
  readonly linkedIds: ReadonlySet<number>
  /** Returns the rows of a table after the merge. */
  rowsOf(tableId: number): OutcomeRows
}

/** The comparison of one table. */
export class TableComparison {
  readonly codec: TableCodec
  readonly #others: OtherTables
  readonly #stage: Stage
  readonly #compared: ComparedTable
  /** Takes over the strategy that decides conflicts in the end. */
  #merge: RowMerge
  #staged: StagedRows | undefined
  #tally = NO_EFFECT
  /** The number of rows that are not counted yet, or one more than a bound. */
  #bounded: number | undefined
  /** Ids of the rows that were decided one by one. */
  readonly #resolved: string[] = []
  /** Whether the strategy is a decision about the conflicts that were there, and not about whatever comes. */
  #isReviewed = false

  constructor(compared: ComparedTable, stage: Stage, others: OtherTables) {
    this.#others = others
    const { table, form, theirs, strategy, ids } = compared
    this.codec = compileTable(table, form).stored
    this.#compared = compared
    this.#stage = stage
    this.#merge = {
      codec: this.codec,
      columns: mergeColumns(this.codec, compared),
      strategy,
      base: rowsOfBase(compared.base, this.codec, { theirs, form }),
      theirs: rowsOfTable(theirs),
      ours: rowsOfTarget(this.codec, compared),
      ids,
    }
  }

  get name(): string {
    return this.codec.table.name
  }

  /** The effect of the merge on the table. Until it is counted, only `changed` tells whether there is any. */
  get tally(): MergeTally {
    return this.#tally
  }

  /** The number of rows that the merge writes or deletes. If they are not counted yet, it is bounded. */
  get effects(): number {
    return this.#bounded ?? effectsOf(this.#tally)
  }

  /** Counts up to one row more than `rowsMax`, if the rows are not counted yet. */
  async bound(database: Queryable, rowsMax: number): Promise<void> {
    if (this.#staged?.isQuery) this.#bounded = await boundStaged(database, this.#staged, rowsMax)
  }

  /** Whether a row of the table changes. */
  get hasEffect(): boolean {
    return this.#staged !== undefined && isWritten({ staged: this.#staged, tally: this.#tally })
  }

  /** Whether rows of the table may change. */
  get isStaged(): boolean {
    return this.#staged !== undefined
  }

  /** Stages the changes of theirs since the base, if there can be any. */
  async compare(transaction: Transaction): Promise<void> {
    const { mergesRows, theirs } = this.#compared
    const { base, columns } = this.#merge
    if (!mergesRows || theirs.table === undefined) return
    const canDiffer =
      base.states.some((state) => mayDiffer(state, theirs.rows, this.codec.table.id)) ||
      columns.some(({ restored, isReread }) => restored !== undefined || isReread)
    if (!canDiffer) return
    const { staged, tally } =
      (await this.#stageUncontested(transaction)) ??
      (await stageRows(transaction, this.#stage, this.#merge))
    this.#staged = staged
    this.#tally = tally
  }

  /** Stages without a table, if there is nothing to decide. */
  async #stageUncontested(transaction: Transaction) {
    const { base, theirs, ours, table } = this.#compared
    const only = singleState(this.#merge.base)
    // Links are compared with the stages of several tables.
    const hasLinks = this.codec.links.length > 0 || this.#others.linkedIds.has(table.id)
    const isReread = this.#merge.columns.some((column) => column.isReread)
    if (only === undefined || hasLinks || isReread) return undefined
    if (this.#compared.ids || base.loaded) return undefined
    const rulesOf = ({ columns, constraints }: StoredTable) =>
      JSON.stringify([columns, constraints])
    const rules = rulesOf(table)
    const isSame = (state: TableState) =>
      state.table !== undefined && rulesOf(state.table) === rules
    const before = [...base.states, ours]
    // A table that theirs has added has all of its rows from theirs.
    const isAdded = before.every((state) => state.table === undefined)
    if (!isSame(theirs) || !(isAdded || before.every(isSame))) return undefined
    return stageUncontested(transaction, this.#merge, only)
  }

  async count(transaction: Transaction): Promise<void> {
    if (!this.#staged?.isQuery || this.#tally.changed === 0) return
    this.#tally = await countStaged(transaction, this.#staged)
  }

  /** Returns the token of all rows in conflict. undefined: there are none. */
  async conflictsToken(transaction: Queryable): Promise<string | undefined> {
    if (this.#staged === undefined || this.#tally.conflictCount === 0) return undefined
    return readConflictsToken(transaction, this.#compared, this.#staged)
  }

  /** Reads the tokens of records by id. */
  tokens(transaction: Queryable, ids: readonly string[]): Promise<Map<string, RecordToken>> {
    return readTokens(transaction, this.#compared, ids)
  }

  /** Finds those of the given rows that are in conflict. */
  async conflictsOf(transaction: Transaction, ids: readonly string[]): Promise<RowConflict[]> {
    if (this.#staged === undefined || this.#tally.conflictCount === 0) return []
    return findConflicts(transaction, this.#staged, ids)
  }

  /** Lists rows in conflict in the order of ids, starting after an id. */
  async *conflicts(
    transaction: Transaction,
    page: { after: string | undefined; limit: number },
  ): AsyncGenerator<ReviewedConflict> {
    if (this.#staged === undefined || this.#tally.conflictCount === 0) return
    const { base, theirs } = this.#merge
    const ours = rowsOfTable(this.#compared.ours)
    const conflicts = await listConflicts(transaction, this.#staged, page)
    const byId = new Map(conflicts.map((conflict) => [conflict.id, conflict]))
    const tokens = await this.tokens(transaction, [...byId.keys()])
    for (let ids = [...byId.keys()]; ids.length > 0; ) {
      const { rows } = await listCompared(transaction, {
        codec: this.codec,
        before: base.states,
        after: theirs,
        beside: [ours],
        form: 'json',
        afterId: '',
        limit: ids.length,
        ids,
      })
      for (const { id, before, after, beside } of rows) {
        const conflict = byId.get(id)
        if (conflict === undefined) continue
        const texts = { base: base.rowOf(before), theirs: after, ours: beside[0] }
        yield { ...conflict, ...texts, token: tokens.get(id)?.token ?? '' }
      }
      ids = ids.slice(rows.length)
    }
  }

  /**
   * Decides conflicts: some one by one, and the others by the strategy. Returns the number of conflicts that the strategy
   * has decided.
   */
  async decide(transaction: Transaction, { rows, rest }: RowDecisions): Promise<number> {
    const strategy = rest ?? this.#merge.strategy
    this.#merge = { ...this.#merge, strategy }
    this.#isReviewed = rest !== undefined
    const isSettled = rows.length > 0 || (strategy !== 'fail' && this.#tally.conflictCount > 0)
    if (this.#staged === undefined || !isSettled) return 0
    const settled = settledRows(this.#staged, this.#merge.ours)
    await settleRows(transaction, settled, rows)
    this.#resolved.push(...rows.map(({ id }) => id))
    const decided = strategy === 'fail' ? 0 : await settleRest(transaction, settled, strategy)
    this.#tally = await countStaged(transaction, this.#staged)
    return decided
  }

  /** Gives rows values in single columns. They may be rows that theirs has not changed. */
  async amend(transaction: Transaction, resolutions: readonly RowResolution[]): Promise<void> {
    const ids = resolutions.map(({ id }) => id)
    const staged = this.#staged ?? (await stageNothing(transaction, this.#stage, this.codec))
    this.#staged = await addUnchanged(transaction, staged, ids)
    await settleRows(transaction, settledRows(this.#staged, this.#merge.ours), resolutions)
    this.#resolved.push(...ids)
    this.#tally = await countStaged(transaction, this.#staged)
  }

  /** The outcome that is checked. undefined: all of its rows come from branches with the same rules. */
  get #checked() {
    if (this.#staged?.isQuery) return undefined
    const idsOf = (columns: readonly PhysicalColumn[]) => columns.map(({ id }) => id)
    return {
      codec: this.codec,
      staged: this.#staged,
      ours: this.#merge.ours,
      newlyRequired: new Set(idsOf(this.#listNew('notNull'))),
      narrowed: { ours: this.#narrowed('ours'), theirs: this.#narrowed('theirs') },
      limits: this.#compared.form.limits,
      newRules: new Set([
        ...idsOf(this.#listNew('unique')),
        ...this.#newLinks,
        ...this.#newConstraints,
      ]),
      targetsOf: this.#others.rowsOf,
    }
  }

  /** Lists the columns with a rule that the target does not have yet. */
  #listNew(rule: 'notNull' | 'unique'): PhysicalColumn[] {
    const { table } = this.#compared.ours
    return this.codec.physical.filter(({ id, column }) => {
      const before = findEarlier(table, column)
      return column[rule] === true && (before?.[rule] !== true || before.id !== id)
    })
  }

  /** The ids of the columns that can have fewer values than on a side. */
  #narrowed(side: 'ours' | 'theirs'): ReadonlySet<number> {
    const { table } = this.#compared[side]
    const ids = this.codec.physical.flatMap(({ id, column }) => {
      const before = findEarlier(table, column)
      return before?.id === id && narrows(before, column) ? [id] : []
    })
    return new Set(ids)
  }

  /** The ids of the columns whose linked records must exist, and need not on the target. */
  get #newLinks(): number[] {
    const { table } = this.#compared.ours
    return this.codec.links.flatMap(({ id, column }) => {
      const physical = this.codec.physical[column]
      const before = physical && findEarlier(table, physical.column)
      return before?.onDelete === undefined || before.id !== id ? [id] : []
    })
  }

  /** The rows of the table after the merge. */
  get outcome(): OutcomeRows {
    return { ours: this.#merge.ours, staged: this.#staged }
  }

  /** The ids of the constraints and checks that the merge adds to the table of the target, or changes there. */
  get #newConstraints(): number[] {
    return listNewRules(this.#compared.ours.table, this.codec.table)
  }

  /**
   * Whether the outcome can be written to a layer. The heap below it keeps stale rows, to which a rule cannot be added.
   */
  get takesLayer(): boolean {
    const { table } = this.#compared.ours
    if (table === undefined) return true
    const isStored = ({ column }: PhysicalColumn) =>
      isFilled(column) || findEarlier(table, column) !== undefined
    return this.#newConstraints.length === 0 && !this.#listNew('unique').some(isStored)
  }

  /**
   * Finds the values of unique keys that several rows would have. All of them are counted, and `limit` of them are
   * listed, without the first `offset`.
   */
  async clashes(
    transaction: Transaction,
    page: { offset: number; limit: number },
  ): Promise<{ count: number; listed: Tokened<UniqueClash>[] }> {
    const { inserted, updated } = this.#tally
    const checked = this.#checked
    const mayClash = inserted + updated > 0 || (checked?.newRules.size ?? 0) > 0
    if (checked === undefined || !mayClash) return { count: 0, listed: [] }
    const { count, listed } = await findUniqueClashes(transaction, checked, page)
    return { count, listed: await this.#withTokens(transaction, listed) }
  }

  /** Finds the not-null columns in which rows would have no value. */
  async missing(transaction: Transaction): Promise<Tokened<RefusedValues>[]> {
    if (this.#checked === undefined) return []
    return this.#withTokens(transaction, await findMissingValues(transaction, this.#checked))
  }

  /** Finds the columns in which rows would have values that these cannot have. */
  async unfit(transaction: Transaction): Promise<Tokened<RefusedValues>[]> {
    if (this.#checked === undefined) return []
    return this.#withTokens(transaction, await findUnfitValues(transaction, this.#checked))
  }

  /** Finds the checks that rows would fail. */
  async failures(transaction: Transaction): Promise<Tokened<FailedCheck>[]> {
    if (this.#checked === undefined) return []
    return this.#withTokens(transaction, await findFailedChecks(transaction, this.#checked))
  }

  /** Finds the linked records that would not exist, all or a page of them. */
  async brokenLinks(
    transaction: Transaction,
    page: { offset: number; limit: number },
  ): Promise<{ count: number; listed: Tokened<BrokenLinks>[] }> {
    const checked = this.#checked
    if (checked === undefined || this.codec.links.length === 0) return { count: 0, listed: [] }
    const { count, listed } = await findBrokenLinks(transaction, checked, page)
    return { count, listed: await this.#withTokens(transaction, listed) }
  }

  /** Finds those of the given records of another table that links refer to, and that would not exist. */
  async missingTargets(
    transaction: Transaction,
    targets: { tableId: number; ids: readonly string[] },
  ): Promise<string[]> {
    if (this.#checked === undefined) return []
    return findMissingTargets(transaction, this.#checked, targets)
  }

  /** Finds the tokens of missing records that are linked, and the side that has them. */
  async missingRecords(
    transaction: Transaction,
    ids: readonly string[],
  ): Promise<Map<string, { token: string; takes: ('ours' | 'theirs')[] }>> {
    const { ours, theirs } = this.#merge
    const { mergesRows, ids: merged } = this.#compared
    const sides = await findSides(transaction, this.codec, { ours, theirs, ids })
    const tokens = await this.tokens(transaction, ids)
    return new Map(
      ids.map((id) => {
        const { isOurs = false, isTheirs = false } = sides.get(id) ?? {}
        const isTaken = isTheirs && mergesRows && (merged === undefined || merged.includes(id))
        const takes: ('ours' | 'theirs')[] = isOurs ? ['ours'] : isTaken ? ['theirs'] : []
        return [id, { token: tokens.get(id)?.token ?? '', takes }]
      }),
    )
  }

  /** Keeps records that theirs has deleted, or takes records again that the target has deleted. */
  async keepRecords(
    transaction: Transaction,
    take: 'ours' | 'theirs',
    ids: readonly string[],
  ): Promise<void> {
    const staged = this.#staged ?? (await stageNothing(transaction, this.#stage, this.codec))
    if (take === 'ours') await keepDeleted(transaction, staged, ids)
    this.#staged =
      take === 'ours'
        ? staged
        : await restoreRows(transaction, staged, { theirs: this.#merge.theirs, ids })
    this.#resolved.push(...ids)
    this.#tally = await countStaged(transaction, this.#staged)
  }

  /** Finds those of the given rows that would break a rule which the column is a part of. */
  async breakers(
    transaction: Transaction,
    cells: { column: number; ids: readonly string[] },
  ): Promise<string[]> {
    const checked = this.#checked
    if (checked === undefined) return []
    const breakers = await findRuleBreakers(transaction, checked, cells)
    return [...breakers, ...(await findLinkBreakers(transaction, checked, cells))]
  }

  async #withTokens<Found extends { readonly ids: readonly string[] }>(
    transaction: Transaction,
    found: readonly Found[],
  ): Promise<Tokened<Found>[]> {
    const tokens = await this.tokens(transaction, [...new Set(found.flatMap(({ ids }) => ids))])
    return found.map((each) => ({
      ...each,
      tokens: Object.fromEntries(each.ids.map((id) => [id, tokens.get(id)?.token ?? ''])),
    }))
  }

  /** Writes the outcome to a layer. */
  async buildLayer(transaction: Transaction): Promise<NewLayer> {
    if (this.#staged === undefined || !this.#stage.isShared) throw new Error('nothing is kept')
    await this.#requireRows(transaction)
    const layer = await buildOutcome(transaction, { staged: this.#staged, ours: this.#merge.ours })
    if (this.#staged.isQuery) {
      const counts = await countOutcome(transaction, layer)
      this.#tally = { ...this.#tally, ...counts, changed: effectsOf(counts) }
    }
    return layer
  }

  /** Throws if staged rows are gone: PostgreSQL empties unlogged tables after a crash, and the merge goes on. */
  async #requireRows(transaction: Queryable): Promise<void> {
    if (this.#staged === undefined || this.#staged.isQuery) return
    if (!this.#stage.isShared || this.#tally.changed === 0) return
    const rows = await transaction.query(sql`select from ${this.#staged.name} limit 1`)
    if (rows.length === 0) throw new OutdatedError('the staged rows were lost in a crash')
  }

  /** Decides again about staged rows that the target, which is locked now, has changed since they were staged. */
  async renew(
    transaction: Transaction,
    state: TableState,
    layer: NewLayer | undefined,
  ): Promise<OutcomeTable> {
    if (this.#staged === undefined) throw new Error('the table must be staged')
    await this.#requireRows(transaction)
    const { codec } = this
    const oursBefore = this.#merge.ours
    const ours = rowsOfTarget(codec, { base: this.#compared.base, ours: state })
    const staged = this.#staged
    const { since, before, after } = staged.isQuery
      ? await this.#requireUncontested(transaction, ours, layer)
      : await this.#restage(transaction, staged, ours)
    const tally = mapTally((count) => this.#tally[count] - before[count] + after[count])
    if (tally.conflictCount > 0) throw new OutdatedError('rows in conflict were written')
    if (layer !== undefined) {
      if (ownLayer(layoutOf(state.rows), codec.table.id) !== undefined) {
        throw new OutdatedError('another merge has a layer')
      }
      if (since !== undefined) await amendOutcome(transaction, layer, { staged, ours, since })
      const isBroken =
        (await isValueTaken(transaction, layer, { codec, ours, oursBefore })) ||
        (since !== undefined && (await isCheckFailed(transaction, layer, { codec, since })))
      if (isBroken) {
        throw new OutdatedError('the outcome breaks a rule')
      }
    }
    const isOpened =
      state.table !== undefined && ownHeap(layoutOf(state.rows), codec.table.id) === undefined
    return { staged, tally, layer, isOpened: isOpened && isWritten({ staged, tally }) }
  }

  /** Throws if the target has changed rows that theirs has changed, too, since they were compared. */
  async #requireUncontested(
    transaction: Transaction,
    ours: BranchRows,
    layer: NewLayer | undefined,
  ): Promise<Restaged> {
    const { codec } = this
    const { ours: oursBefore, theirs } = this.#merge
    if (mayDiffer(oursBefore, ours, codec.table.id)) {
      const isWritten =
        layer === undefined
          ? await hasContested(transaction, { codec, theirs, ours }, oursBefore)
          : await isRowWritten(transaction, layer, { codec, ours, oursBefore })
      if (isWritten) throw new OutdatedError('rows must be decided again')
    }
    return NOT_RESTAGED
  }

  async #restage(
    transaction: Transaction,
    staged: StagedRows,
    ours: BranchRows,
  ): Promise<Restaged> {
    const { ours: oursBefore } = this.#merge
    const { id: tableId } = this.codec.table
    if (!mayDiffer(oursBefore, ours, tableId)) {
      return NOT_RESTAGED
    }
    if (this.#resolved.length > 0) {
      const written = await transaction.query(sql`
        select from (${changedIds(oursBefore, ours, tableId)}) c
        where c.id = any(${this.#resolved}::text[])
        limit 1`)
      if (written.length > 0) throw new OutdatedError('rows that were decided were written')
    }
    const restaged = await restageRows(transaction, staged, { ...this.#merge, ours, oursBefore })
    // Whether these rows are those that were reviewed is known when everything is compared again.
    if (restaged === undefined || (this.#isReviewed && restaged.since !== undefined)) {
      throw new OutdatedError('rows must be decided again')
    }
    return restaged
  }
}

/** What a merge writes to a table. */
interface OutcomeTable {
  readonly staged: StagedRows
  readonly tally: MergeTally
  /** Has the rows already. undefined: they are written. */
  readonly layer: NewLayer | undefined
  /** The target has the table, and has not written to it before. */
  readonly isOpened: boolean
}

/** What a merge writes to a locked target. */
export class Outcome {
  #tables: readonly OutcomeTable[]

  constructor(tables: readonly OutcomeTable[]) {
    this.#tables = tables
  }

  /** The effects on tables, which are counted by the time they are published. */
  get tables(): { readonly name: string; readonly tally: MergeTally }[] {
    return this.#tables.map(({ staged, tally }) => ({ name: staged.codec.table.name, tally }))
  }

  /** Writes the rows to the target, in the name of `author`. Its schema must be that of the outcome by now. */
  async publish(transaction: Transaction, target: BranchRows, author: Author): Promise<void> {
    const layout = layoutOf(target)
    const written = this.#tables.map(({ staged }) => staged.codec.table)
    await noteAuthor(transaction, written, author)
    const built = this.#tables.flatMap(({ layer }) => layer ?? [])
    const unlayered = this.#tables.filter((table) => table.layer === undefined && isWritten(table))
    const tallies = await publishRows(transaction, unlayered, layout)
    this.#tables = this.#tables.map((table) => {
      const tally = tallies.get(table.staged)
      return tally === undefined ? table : { ...table, tally }
    })
    if (!(await publishOutcomes(transaction, built, layout.branchId))) {
      throw new OutdatedError('a layer was dropped')
    }
  }

  /** Creates spare heaps for tables that the target has written to for the first time. Does not wait for it. */
  refillSpares(spares: SpareHeaps, databaseId: string): void {
    const opened = this.#tables.filter(({ isOpened }) => isOpened)
    spares.refill({ databaseId, tables: opened.map(({ staged }) => staged.codec.table) })
  }
}

/** Returns whether there is something to write. The changes of a query are counted when they are written. */
function isWritten({ staged, tally }: Pick<OutcomeTable, 'staged' | 'tally'>): boolean {
  return staged.isQuery ? tally.changed > 0 : effectsOf(tally) > 0
}

function effectsOf({
  inserted,
  updated,
  deleted,
}: Pick<MergeTally, 'inserted' | 'updated' | 'deleted'>): number {
  return inserted + updated + deleted
}
