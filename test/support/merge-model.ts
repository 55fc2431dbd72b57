import type { Column, IdType } from '@offshoot/contract/schema'

/*
 * A naive model of merges: every branch is a full copy, and so is every state that can become the base of
 * a merge. A merge compares three copies row by row.
 */

export type Value = unknown

export interface ModelColumn {
  /** Identifies the column on all branches, whatever its name there. */
  readonly uid: number
  readonly name: string
  readonly definition: Omit<Column, 'name' | 'link'>
  readonly link?: number
  /** Linked records must exist. */
  readonly onDelete?: 'restrict' | 'setNull' | 'cascade'
  /** Value of the column in records that are older than it. */
  readonly fill?: Value
}

export interface ModelRow {
  readonly version: number
  /**
   * Values by uid of the column; missing ones are null. The value of a removed column stays until the row is written, and is
   * `LOST` then.
   */
  readonly values: ReadonlyMap<number, Value>
}

/** The value of a removed column in a row that was written since. The service may have kept it or not. */
const LOST = Symbol('lost')

/** A rule of a table. Columns are given by their uids. */
export interface ModelConstraint {
  readonly name: string
  /**
   * `unique`: no two records have the same values, unless one is missing. `notBoth`: one of two values is missing.
   * `either`: one of two values is there. `notNegative`: a number is not below zero.
   */
  readonly rule: 'unique' | 'notBoth' | 'either' | 'notNegative'
  readonly columns: readonly number[]
}

export interface ModelTable {
  readonly uid: number
  readonly name: string
  readonly idType: IdType
  readonly columns: readonly ModelColumn[]
  readonly constraints: readonly ModelConstraint[]
  readonly rows: ReadonlyMap<string, ModelRow>
}

export interface State {
  readonly tables: readonly ModelTable[]
  readonly removed: ReadonlySet<number>
}

interface Named {
  readonly uid: number
  readonly name: string
}

/** What the tables or columns of one side are compared with. */
interface Compared {
  readonly other: State
  readonly base: readonly Named[] | undefined
}

/** A branch from its creation or reset to its next reset or deletion. */
interface Line {
  readonly inheritsFrom: Line | undefined
}

interface Origin {
  readonly moment: Moment
  /** Tables to which this origin does not apply. */
  readonly leftOut: ReadonlySet<number>
}

/** A point in the history of a line. Only moments with a state can be the base of a merge. */
interface Moment {
  readonly number: number
  readonly line: Line
  readonly state: State | undefined
  readonly origins: readonly Origin[]
}

export interface ModelBranch {
  readonly name: string
  /** The branch that this one was forked from. */
  readonly source: ModelBranch | undefined
  line: Line
  last: Moment
  /** State at the fork. */
  start: State
  state: State
}

export type Strategy = 'fail' | 'ours' | 'theirs'
export interface Rule {
  readonly strategy?: Strategy
  readonly mode?: 'merge' | 'skip' | 'schema'
}
export interface MergeWish {
  readonly strategy: Strategy
  /** Rules by the name of the table on either side. */
  readonly tables: Readonly<Record<string, Rule>>
  /** The part that is merged: tables, or records, by the name of the table on either side. */
  readonly only?: ModelOnly
  /** Decisions about single records, by `recordKey`. */
  readonly resolutions?: ReadonlyMap<string, RecordDecision>
  /** Values for records that would break rules. */
  readonly amendments?: readonly Amendment[]
}

/** A value for a record that would break a rule of its table. */
export interface Amendment {
  /** The uid of the table. */
  readonly table: number
  readonly id: string
  /** The uid of the column. */
  readonly column: number
  readonly value: Value
}

type ModelOnly =
  | { readonly tables: readonly string[] }
  | { readonly records: readonly { readonly table: string; readonly id: string }[] }

/** A decision about a record, or decisions by the uids of columns. */
export type RecordDecision =
  | 'ours'
  | 'theirs'
  | ReadonlyMap<number, 'ours' | 'theirs' | { readonly value: Value }>

/** A record that both sides changed in conflicting ways. */
export interface ModelConflict {
  readonly table: ModelTable
  readonly id: string
  /** The columns in conflict. Empty if one side deleted the record. */
  readonly columns: readonly ModelColumn[]
}

/** A rule that records would break. */
export interface Breach {
  readonly kind: 'notUnique' | 'notNull' | 'limit' | 'check' | 'link'
  readonly table: ModelTable
  readonly columns: readonly ModelColumn[]
  /** The name of the constraint. undefined: the rule is one of a column. */
  readonly constraint: string | undefined
  /** All records that break it together, in order. */
  readonly ids: readonly string[]
}

export function recordKey(table: Pick<ModelTable, 'uid'>, id: string): string {
  return `${table.uid} ${id}`
}

export interface Counts {
  readonly inserted: number
  readonly updated: number
  readonly deleted: number
}
type MergeOutcome =
  | { readonly kind: 'unrelated' }
  | {
      readonly kind: 'refused'
      readonly why: string
      /** undefined: the schemas are in conflict. */
      readonly conflicts?: readonly ModelConflict[]
      readonly breaches?: readonly Breach[]
    }
  | { readonly kind: 'unneeded' }
  /** The outcome depends on a value that the service may have kept or not. */
  | { readonly kind: 'unknown' }
  | { readonly kind: 'merged'; readonly state: State; readonly tables: ReadonlyMap<string, Counts> }

/** The service must refuse the request, with one of these statuses if the request is about a single record. */
export class Refusal extends Error {
  constructor(
    message: string,
    readonly statuses: readonly number[] = [400],
  ) {
    super(message)
  }
}

export class MergeModel {
  readonly branches = new Map<string, ModelBranch>()
  #moments = 0
  #uids = 0

  constructor(mainName: string) {
    const line = { inheritsFrom: undefined }
    const state = { tables: [], removed: new Set<number>() }
    this.branches.set(mainName, {
      name: mainName,
      source: undefined,
      line,
      last: this.#moment(line, undefined, []),
      start: state,
      state,
    })
  }

  nextUid(): number {
    return ++this.#uids
  }

  isThere(branch: ModelBranch | undefined): branch is ModelBranch {
    return branch !== undefined && this.branches.get(branch.name) === branch
  }

  /** Keeps the present state of a branch. It can be forked, and branches can be reset to it. */
  pin(branch: ModelBranch): ModelBranch {
    return { ...branch, last: this.#note(branch) }
  }

  /** With `of`, the source is a pinned state of that branch. */
  fork(
    source: ModelBranch,
    name: string,
    options: { data: boolean; of?: ModelBranch },
  ): ModelBranch {
    const moment = this.#note(source)
    const start = options.data ? source.state : withoutRows(source.state)
    const line = { inheritsFrom: options.data ? source.line : undefined }
    const branch: ModelBranch = {
      name,
      source: options.of ?? source,
      line,
      last: options.data ? moment : this.#moment(line, undefined, []),
      start,
      state: start,
    }
    this.branches.set(name, branch)
    return branch
  }

  reset(branch: ModelBranch, source: ModelBranch): void {
    branch.last = this.#note(source)
    branch.line = { inheritsFrom: source.line }
    branch.start = source.state
    branch.state = source.state
  }

  /** Returns whether the two branches have a common ancestor. */
  areRelated(left: ModelBranch, right: ModelBranch): boolean {
    const lines = new Set(lineage(left.line))
    return lineage(right.line).some((line) => lines.has(line))
  }

  /** Merges a branch into another one, unless the merge is refused. */
  merge(from: ModelBranch, into: ModelBranch, wish: MergeWish): MergeOutcome {
    const outcome = this.outcome(from, into, wish)
    if (outcome.kind !== 'merged') return outcome
    // A merge of single records is not part of the history.
    if (wish.only && 'records' in wish.only) {
      into.state = outcome.state
      return outcome
    }
    const ruleOf = rules(from.state, into.state, wish)
    const leftOut = new Set([...uidsOf(from, into)].filter((uid) => ruleOf(uid).mode !== 'merge'))
    const moment = this.#note(from)
    into.last = this.#moment(into.line, undefined, [
      { moment: into.last, leftOut: new Set() },
      { moment, leftOut },
    ])
    into.state = outcome.state
    return outcome
  }

  /** Returns what a merge would do. */
  outcome(from: ModelBranch, into: ModelBranch, wish: MergeWish): MergeOutcome {
    const known = uidsOf(from, into)
    const general = this.#base(from, into, undefined)
    if (general === undefined) return { kind: 'unrelated' }
    const bases = new Map<number, State>()
    for (const uid of known) {
      const base = this.#base(from, into, uid)
      if (base === undefined) return { kind: 'unrelated' }
      bases.set(uid, base)
    }
    return mergeStates({
      baseOf: (uid) => bases.get(uid) ?? general,
      theirs: from.state,
      ours: into.state,
      ruleOf: rules(from.state, into.state, wish),
      recordsOf: recordsIn(from.state, into.state, wish),
      resolutions: wish.resolutions ?? new Map(),
      amendments: wish.amendments ?? [],
    })
  }

  /** Takes back what has happened between two states of a branch, unless that is refused. */
  revert(branch: ModelBranch, step: Record<'before' | 'after', State>, wish: MergeWish) {
    const { before, after } = step
    const ours = withRestorable(branch.state, step)
    const outcome = mergeStates({
      baseOf: () => after,
      theirs: before,
      ours,
      ruleOf: rules(before, ours, wish),
      recordsOf: recordsIn(before, ours, wish),
      resolutions: wish.resolutions ?? new Map(),
      amendments: wish.amendments ?? [],
    })
    if (outcome.kind !== 'merged') return outcome
    const restored = listRestorable(branch.state, step)
    const ruleOf = rules(before, ours, wish)
    const merged = this.#withNew(branch.state, outcome.state, (table, uid) => {
      return ruleOf(table).mode === 'schema' && restored.has(uid)
    })
    // What was not brought back is still removed.
    const live = new Set(uidsIn(merged))
    const removed = [...branch.state.removed].filter((uid) => !live.has(uid))
    const state = { ...merged, removed: new Set([...merged.removed, ...removed]) }
    branch.state = state
    return { ...outcome, state }
  }

  /** Makes tables and columns of a state new ones, whose rows were there before. What was brought back without its rows is not what it was. */
  #withNew(before: State, state: State, isNew: (table: number, uid: number) => boolean): State {
    const uids = new Map(
      state.tables.flatMap(({ uid: table, columns }) =>
        [table, ...columns.map(({ uid }) => uid)]
          .filter((uid) => isNew(table, uid))
          .map((uid) => [uid, this.nextUid()] as const),
      ),
    )
    const uidOf = (uid: number) => uids.get(uid) ?? uid
    const tables = state.tables.map((table) => ({
      ...table,
      uid: uidOf(table.uid),
      columns: table.columns.map(({ link, ...column }) => ({
        ...column,
        uid: uidOf(column.uid),
        ...(link !== undefined && { link: uidOf(link) }),
      })),
      constraints: table.constraints.map((each) => ({
        ...each,
        columns: each.columns.map(uidOf),
      })),
      rows: new Map(
        [...table.rows].map(([id, row]) => {
          // The value from before the removal stays, too.
          const old = find(before, table.uid)?.rows.get(id)?.values ?? row.values
          const values = [...row.values].map(([uid, value]) => [uidOf(uid), value] as const)
          const kept = [...uids.keys()].flatMap((uid) =>
            old.has(uid) ? [[uid, old.get(uid)] as const] : [],
          )
          return [id, { ...row, values: new Map([...kept, ...values]) }]
        }),
      ),
    }))
    return { ...state, tables }
  }

  /**
   * Returns whether the branches have more than one latest common state, for any table. The model
   * of writes covers merges with several bases; this one covers schemas and values of all types.
   */
  haveSeveralBases(from: ModelBranch, into: ModelBranch): boolean {
    return [undefined, ...uidsOf(from, into)].some((uid) => this.#bases(from, into, uid).length > 1)
  }

  /**
   * Returns whether both branches have added a table or column of one name. The model of writes covers what a merge makes
   * of them. One that the other branch has removed counts if the base does not have it: `baseOf` returns that of a table.
   */
  haveAddedSame(
    { state: theirs }: ModelBranch,
    { state: ours }: ModelBranch,
    baseOf?: (uid: number) => State | undefined,
  ): boolean {
    const isAdded = (uid: number, own: readonly Named[], { other, base }: Compared) =>
      own.every((item) => item.uid !== uid) &&
      (!other.removed.has(uid) || (base !== undefined && !base.some((item) => item.uid === uid)))
    const areSame = (there: readonly Named[], here: readonly Named[], base?: readonly Named[]) =>
      there.some((one) =>
        here.some(
          (other) =>
            one.name === other.name &&
            isAdded(one.uid, here, { other: ours, base }) &&
            isAdded(other.uid, there, { other: theirs, base }),
        ),
      )
    return (
      areSame(theirs.tables, ours.tables) ||
      theirs.tables.some(({ uid, columns }) => {
        const base = baseOf?.(uid)
        const before = base && find(base, uid)?.columns
        return areSame(columns, find(ours, uid)?.columns ?? [], before)
      })
    )
  }

  /** Returns whether a merge has to decide between tables or columns of one name. */
  needsNames(from: ModelBranch, into: ModelBranch): boolean {
    return this.haveAddedSame(from, into, (uid) => this.#base(from, into, uid))
  }

  #base(left: ModelBranch, right: ModelBranch, uid: number | undefined): State | undefined {
    return this.#bases(left, right, uid)[0]?.state
  }

  /** Returns the latest common moments: those that are not an origin of another one. */
  #bases(left: ModelBranch, right: ModelBranch, uid: number | undefined): Moment[] {
    const theirs = originsOf(right.last, uid)
    const common = [...originsOf(left.last, uid)].filter(
      (moment) => moment.state !== undefined && theirs.has(moment),
    )
    const covered = new Set(
      common.flatMap((moment) => [...originsOf(moment, uid)].filter((origin) => origin !== moment)),
    )
    return common.filter((moment) => !covered.has(moment))
  }

  /** Records the current state of a branch, so that it can be the base of a merge. */
  #note(branch: ModelBranch): Moment {
    const origin = { moment: branch.last, leftOut: new Set<number>() }
    branch.last = this.#moment(branch.line, branch.state, [origin])
    return branch.last
  }

  #moment(line: Line, state: State | undefined, origins: readonly Origin[]): Moment {
    return { number: ++this.#moments, line, state, origins }
  }
}

/** Returns the uids of the tables of both branches. */
function uidsOf(from: ModelBranch, into: ModelBranch): Set<number> {
  return new Set([...from.state.tables, ...into.state.tables].map((table) => table.uid))
}

function lineage(line: Line): Line[] {
  return line.inheritsFrom === undefined ? [line] : [line, ...lineage(line.inheritsFrom)]
}

function originsOf(moment: Moment, uid: number | undefined): Set<Moment> {
  const found = new Set<Moment>()
  const waiting = [moment]
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    if (found.has(next)) continue
    found.add(next)
    for (const origin of next.origins) {
      if (uid === undefined || !origin.leftOut.has(uid)) waiting.push(origin.moment)
    }
  }
  return found
}

export function find(state: State, uid: number): ModelTable | undefined {
  return state.tables.find((table) => table.uid === uid)
}

function withoutRows({ tables, removed }: State): State {
  return { removed, tables: tables.map((table) => ({ ...table, rows: new Map() })) }
}

export function readValue(
  row: ModelRow,
  table: ModelTable | undefined,
  column: ModelColumn,
): Value | null {
  const isThere = table?.columns.some(({ uid }) => uid === column.uid) ?? false
  return (isThere ? row.values.get(column.uid) : column.fill) ?? null
}

/**
 * Reads a value of a base. That of a column which the base has removed is what both sides had before the removal, as long as the
 * row was not written since.
 */
function readBase(
  row: ModelRow,
  table: ModelTable | undefined,
  column: ModelColumn,
  removed: ReadonlySet<number>,
): Value | null {
  const isThere = table?.columns.some(({ uid }) => uid === column.uid) ?? false
  if (isThere || !removed.has(column.uid)) return readValue(row, table, column)
  if (row.values.has(column.uid)) return row.values.get(column.uid)
  // A new row has no value, unless the column gives one to rows that are older than it.
  return column.fill === undefined ? null : LOST
}

function isSame(left: Value, right: Value): boolean {
  return JSON.stringify(left ?? null) === JSON.stringify(right ?? null)
}

function uidsIn({ tables }: State): number[] {
  return tables.flatMap(({ uid, columns }) => [uid, ...columns.map((column) => column.uid)])
}

/** Returns the tables and columns that only the later of two states has. A new table stands for its columns. */
export function listAdded(before: State, after: State): ReadonlySet<number> {
  const known = new Set(uidsIn(before))
  return new Set(
    after.tables.flatMap(({ uid, columns }) =>
      known.has(uid) ? columns.map((column) => column.uid).filter((each) => !known.has(each)) : uid,
    ),
  )
}

/** Returns a state without tables and columns. undefined: something else needs them. */
export function withoutAdded(state: State, added: ReadonlySet<number>): State | undefined {
  const tables = state.tables
    .filter(({ uid }) => !added.has(uid))
    .map((table) => ({
      ...table,
      columns: table.columns.filter(({ uid }) => !added.has(uid)),
    }))
  const isNeeded = tables.some(
    ({ columns, constraints }) =>
      columns.some(({ link }) => link !== undefined && added.has(link)) ||
      constraints.some((each) => each.columns.some((uid) => added.has(uid))),
  )
  const lost = uidsIn(state).filter((uid) => added.has(uid))
  return isNeeded ? undefined : { tables, removed: new Set([...state.removed, ...lost]) }
}

/** Returns a state in which a revert can bring back what the reverted change has removed. */
export function withRestorable(state: State, step: Record<'before' | 'after', State>): State {
  const restorable = listRestorable(state, step)
  return { ...state, removed: new Set([...state.removed].filter((uid) => !restorable.has(uid))) }
}

/** Returns the tables and columns that a change has removed and that are not there. */
function listRestorable(
  state: State,
  { before, after }: Record<'before' | 'after', State>,
): ReadonlySet<number> {
  const kept = new Set([...uidsIn(after), ...uidsIn(state)])
  return new Set(uidsIn(before).filter((uid) => !kept.has(uid)))
}

/** Returns the records of a table that are merged. undefined: all of them. */
function recordsIn(
  theirs: State,
  ours: State,
  { only }: MergeWish,
): (uid: number) => ReadonlySet<string> | undefined {
  if (only === undefined || !('records' in only)) return () => undefined
  return (uid) => {
    const names = [find(theirs, uid)?.name, find(ours, uid)?.name]
    return new Set(only.records.flatMap(({ table, id }) => (names.includes(table) ? [id] : [])))
  }
}

export function rules(
  theirs: State,
  ours: State,
  wish: MergeWish,
): (uid: number) => Required<Rule> {
  const { only } = wish
  const named =
    only && ('tables' in only ? only.tables : only.records.map((record) => record.table))
  return (uid) => {
    const names = [find(theirs, uid)?.name, find(ours, uid)?.name]
    if (named && !names.some((name) => named.includes(name ?? ''))) {
      return { strategy: wish.strategy, mode: 'skip' }
    }
    const rule = names.map((name) => wish.tables[name ?? '']).find((found) => found !== undefined)
    return { strategy: rule?.strategy ?? wish.strategy, mode: rule?.mode ?? 'merge' }
  }
}

interface Sides {
  /** Returns the state that is the base of a table. */
  baseOf(uid: number): State
  readonly theirs: State
  readonly ours: State
  ruleOf(uid: number): Required<Rule>
  /** The records of a table that are merged. undefined: all of them. */
  recordsOf(uid: number): ReadonlySet<string> | undefined
  readonly resolutions: ReadonlyMap<string, RecordDecision>
  readonly amendments: readonly Amendment[]
}

function mergeStates(sides: Sides): MergeOutcome {
  const shaped = mergeShapes(sides)
  if (typeof shaped === 'string') return { kind: 'refused', why: shaped }
  const { tables: shapes, rejected } = shaped
  const { baseOf, theirs, ours, ruleOf } = sides
  for (const uid of new Set([...theirs.tables, ...ours.tables].map((table) => table.uid))) {
    if (!sides.recordsOf(uid)?.size) continue
    const [before, after] = [find(ours, uid), shapes.find((shape) => shape.uid === uid)]
    const isSameShape =
      before && after && before.name === after.name && shapeText(before) === shapeText(after)
    if (!isSameShape) return { kind: 'refused', why: 'another schema' }
  }
  const removed = new Set([...ours.removed, ...rejected])
  for (const table of ours.tables) {
    const kept = shapes.find(({ uid }) => uid === table.uid)
    if (kept === undefined) removed.add(table.uid)
    for (const { uid } of table.columns) {
      if (kept?.columns.every((column) => column.uid !== uid)) removed.add(uid)
    }
  }
  const conflicts: ModelConflict[] = []
  let isUnknown = false
  // A value for a column in conflict comes before the strategy, so that it is there before rules are looked at.
  const decided = new Set<Amendment>()
  const merged = shapes.map((shape): ModelTable => {
    const mine = find(ours, shape.uid)
    const other = find(theirs, shape.uid)
    const rows = new Map<string, ModelRow>()
    for (const [id, row] of mine?.rows ?? []) {
      const values = shape.columns.map((column) => [column, readValue(row, mine, column)] as const)
      rows.set(id, { ...row, values: new Map([...removedValues(row, shape), ...compact(values)]) })
    }
    const { mode, strategy } = ruleOf(shape.uid)
    if (mode !== 'merge' || other === undefined) return { ...shape, rows }
    const baseState = baseOf(shape.uid)
    const base = find(baseState, shape.uid)
    const named = sides.recordsOf(shape.uid)
    for (const id of new Set([...(base?.rows.keys() ?? []), ...other.rows.keys()])) {
      if (named?.has(id) === false) continue
      const decision = mergeRow({
        shape,
        base,
        removed: baseState.removed,
        other,
        mine: { ...shape, rows },
        hasColumn: ({ uid }) => mine?.columns.some((column) => column.uid === uid) ?? false,
        id,
        strategy,
        resolution: sides.resolutions.get(recordKey(shape, id)),
        amend: (column) => {
          const found = sides.amendments.find(
            (each) => each.table === shape.uid && each.id === id && each.column === column.uid,
          )
          if (found !== undefined) decided.add(found)
          return found
        },
      })
      if (Array.isArray(decision)) conflicts.push({ table: shape, id, columns: decision })
      else if (decision === 'delete') rows.delete(id)
      else if (decision === 'unknown') isUnknown = true
      else if (decision instanceof Map) rows.set(id, writeRow(rows.get(id), shape, decision))
    }
    return { ...shape, rows }
  })
  if (isUnknown) return { kind: 'unknown' }
  const left = sides.amendments.filter((each) => !decided.has(each))
  const { state, isNeeded } = amend({ tables: merged, removed }, ours, left)
  if (!isNeeded) return { kind: 'unneeded' }
  const breaches = breachesOf(state)
  if (conflicts.length > 0 || breaches.length > 0) {
    const [breach] = breaches
    const why =
      breach === undefined
        ? 'records'
        : `${breach.kind} ${breach.constraint ?? breach.columns[0]?.name}`
    return { kind: 'refused', why, conflicts, breaches }
  }
  const counts = state.tables.map((table) => [
    table.name,
    countChanges(find(ours, table.uid), table),
  ])
  return { kind: 'merged', state, tables: new Map(counts as [string, Counts][]) }
}

function countChanges(before: ModelTable | undefined, { rows }: ModelTable): Counts {
  const old = before?.rows ?? new Map<string, ModelRow>()
  const kept = [...rows].filter(([id]) => old.has(id))
  return {
    inserted: rows.size - kept.length,
    updated: kept.filter(([id, { version }]) => old.get(id)?.version !== version).length,
    deleted: old.size - kept.length,
  }
}

/** Rounds of giving values. One that settles a breach can cause another one, which the next value settles. */
const ROUNDS = 10

/** Gives values to records as long as these break rules. Returns whether all values were needed. */
function amend(
  outcome: State,
  ours: State,
  amendments: readonly Amendment[],
): { state: State; isNeeded: boolean } {
  let state = outcome
  let left = amendments
  for (let round = 0; round < ROUNDS && left.length > 0; round++) {
    const before = left.length
    for (const { uid } of outcome.tables) {
      const breaches = breachesOf(state)
      const needed = left.filter(({ table, id, column }) =>
        breaches.some(
          (breach) =>
            table === uid &&
            breach.table.uid === table &&
            breach.ids.includes(id) &&
            breach.columns.some((each) => each.uid === column),
        ),
      )
      for (const amendment of needed) state = giveValue(state, ours, amendment)
      left = left.filter((each) => !needed.includes(each))
    }
    if (left.length === before) break
  }
  return { state, isNeeded: left.length === 0 }
}

function giveValue(state: State, ours: State, { table: uid, id, column, value }: Amendment): State {
  const tables = state.tables.map((table) => {
    const row = table.rows.get(id)
    if (table.uid !== uid || row === undefined) return table
    const mine = find(ours, uid)
    const before = mine?.rows.get(id)
    const changed = new Map(row.values)
    if (value === null) changed.delete(column)
    else changed.set(column, value)
    const after = writeRow(before, table, changed)
    const isUnchanged =
      before !== undefined &&
      table.columns.every((each) =>
        isSame(readValue(before, mine, each), readValue(after, table, each)),
      )
    const version = isUnchanged ? before.version : after.version
    return { ...table, rows: new Map(table.rows).set(id, { ...after, version }) }
  })
  return { ...state, tables }
}

/** Returns the version of a record after a change. A new record has version 0. */
export function nextVersion(before: ModelRow | undefined): number {
  return before === undefined ? 0 : before.version + 1
}

/** Returns a row after a write. */
export function writeRow(
  before: ModelRow | undefined,
  table: ModelTable,
  values: ReadonlyMap<number, Value>,
): ModelRow {
  const lost = [...removedValues(before, table).keys()].map((uid) => [uid, LOST] as const)
  return { version: nextVersion(before), values: new Map([...values, ...lost]) }
}

/** Returns what a row has of columns that are not in its table any more. */
function removedValues(
  row: ModelRow | undefined,
  { columns }: ModelTable,
): ReadonlyMap<number, Value> {
  const uids = new Set(columns.map(({ uid }) => uid))
  return new Map([...(row?.values ?? [])].filter(([uid]) => !uids.has(uid)))
}

function compact(
  values: readonly (readonly [ModelColumn, Value | null])[],
): ReadonlyMap<number, Value> {
  return new Map(
    values.flatMap(([column, value]) => (value === null ? [] : [[column.uid, value] as const])),
  )
}

/** Returns the new values of a record, or the columns in conflict. */
function mergeRow(options: {
  shape: ModelTable
  base: ModelTable | undefined
  /** The columns that the base does not have any more, although its rows have their values. */
  removed: ReadonlySet<number>
  other: ModelTable
  mine: ModelTable
  /** Whether the target has a column before the merge. */
  hasColumn(column: ModelColumn): boolean
  id: string
  strategy: Strategy
  resolution: RecordDecision | undefined
  /** Returns the value that a column in conflict is given. */
  amend(column: ModelColumn): { readonly value: Value | null } | undefined
}): ReadonlyMap<number, Value> | 'delete' | 'unknown' | ModelColumn[] | undefined {
  const { shape, base, other, mine, id, resolution } = options
  const strategy = typeof resolution === 'string' ? resolution : options.strategy
  const before = base?.rows.get(id)
  const theirs = other.rows.get(id)
  const ours = mine.rows.get(id)
  const shared = shape.columns.filter(({ uid }) => other.columns.some((own) => own.uid === uid))
  /** Whether a side has changed a record since the base, which may have removed some of the columns. */
  const isChanged = (
    then: ModelRow,
    columns: readonly ModelColumn[],
    [row, table]: readonly [ModelRow, ModelTable],
  ): boolean | 'unknown' => {
    const compared = columns.map((column) => {
      const value = readBase(then, base, column, options.removed)
      return value === LOST ? 'unknown' : !isSame(value, readValue(row, table, column))
    })
    return compared.includes(true) || (compared.includes('unknown') && 'unknown')
  }
  if (theirs === undefined) {
    if (before === undefined || ours === undefined) return undefined
    const isChangedHere = isChanged(before, shape.columns, [ours, mine])
    if (isChangedHere === 'unknown') return 'unknown'
    if (!isChangedHere || strategy === 'theirs') return 'delete'
    return strategy === 'fail' ? [] : undefined
  }
  const theirValues = () =>
    compact(shape.columns.map((column) => [column, readValue(theirs, other, column)] as const))
  if (ours === undefined) {
    if (before === undefined) return theirValues()
    const isChangedThere = isChanged(before, shared, [theirs, other])
    if (isChangedThere === 'unknown') return 'unknown'
    if (!isChangedThere) return undefined
    if (strategy === 'fail') return []
    return strategy === 'theirs' ? theirValues() : undefined
  }
  const clashing: ModelColumn[] = []
  const changed = new Map<ModelColumn, Value | null>()
  for (const column of shared) {
    const [now, there] = [readValue(ours, mine, column), readValue(theirs, other, column)]
    if (isSame(now, there)) continue
    if (!options.hasColumn(column)) {
      changed.set(column, there)
      continue
    }
    const then = before === undefined ? undefined : readBase(before, base, column, options.removed)
    if (then === LOST) return 'unknown'
    if (before !== undefined && isSame(then, there)) continue
    if (before !== undefined && isSame(then, now)) {
      changed.set(column, there)
      continue
    }
    const cell = resolution instanceof Map ? resolution.get(column.uid) : undefined
    const decision = cell ?? options.amend(column) ?? strategy
    if (decision === 'fail') clashing.push(column)
    else if (decision === 'theirs') changed.set(column, there)
    else if (decision !== 'ours' && !isSame(decision.value, now)) {
      changed.set(column, decision.value)
    }
  }
  if (clashing.length > 0) return clashing
  if (changed.size === 0) return undefined
  return compact(
    shape.columns.map((column) => [
      column,
      changed.has(column) ? (changed.get(column) ?? null) : readValue(ours, mine, column),
    ]),
  )
}

/** Finds the rules of a table that its records break, except for links. */
export function brokenRules(table: ModelTable): Breach[] {
  const columnOf = (uid: number) => table.columns.filter((column) => column.uid === uid)
  const rules = [
    ...table.columns.flatMap((column) => [
      ...(column.definition.notNull ? [{ rule: 'notNull', columns: [column] } as const] : []),
      ...(sizeOf(column) === '' ? [] : [{ rule: 'limit', columns: [column] } as const]),
      ...(column.definition.unique ? [{ rule: 'unique', columns: [column] } as const] : []),
    ]),
    ...table.constraints.map((each) => ({ ...each, columns: each.columns.flatMap(columnOf) })),
  ]
  const rows = [...table.rows].sort(([one], [other]) => (one < other ? -1 : 1))
  return rules.flatMap(({ rule, columns, ...named }): Breach[] => {
    const constraint = 'name' in named ? named.name : undefined
    const valuesOf = (row: ModelRow) => columns.map((column) => readValue(row, table, column))
    const [first] = columns
    const breach = (kind: Breach['kind'], ids: readonly string[]): Breach[] =>
      ids.length === 0 ? [] : [{ kind, table, columns, constraint, ids }]
    if (rule === 'limit') {
      const isUnfit = (row: ModelRow) =>
        first !== undefined && !fits(first, valuesOf(row)[0] ?? null)
      return breach(
        'limit',
        rows.filter(([, row]) => isUnfit(row)).map(([id]) => id),
      )
    }
    if (rule !== 'unique') {
      const failing = rows.filter(([, row]) => isFailed(rule, valuesOf(row))).map(([id]) => id)
      return breach(rule === 'notNull' ? 'notNull' : 'check', failing)
    }
    const holders = new Map<string, string[]>()
    for (const [id, row] of rows) {
      const values = valuesOf(row)
      if (values.includes(null)) continue
      const key = JSON.stringify(values)
      holders.set(key, [...(holders.get(key) ?? []), id])
    }
    return [...holders.values()].flatMap((ids) => (ids.length > 1 ? breach('notUnique', ids) : []))
  })
}

/** The size of a column, as a text that is equal for equal sizes. */
function sizeOf({ definition: { bits, maxLength } }: ModelColumn): string {
  return `${bits ?? ''}${maxLength ?? ''}`
}

/** Whether a value has the size of its column. */
export function fits({ definition }: ModelColumn, value: Value | null): boolean {
  const { bits, maxLength } = definition
  if (typeof value === 'number' && bits !== undefined) {
    return value >= -(2 ** (bits - 1)) && value < 2 ** (bits - 1)
  }
  return typeof value !== 'string' || maxLength === undefined || [...value].length <= maxLength
}

/** Sets the size of a column to that of another version of it. */
function withSize(
  column: ModelColumn,
  { definition: { bits, maxLength } }: ModelColumn,
): ModelColumn {
  const { bits: _, maxLength: __, ...rest } = column.definition
  const definition = { ...rest, ...(bits && { bits }), ...(maxLength && { maxLength }) }
  return { ...column, definition }
}

function isFailed(
  rule: Exclude<ModelConstraint['rule'], 'unique'> | 'notNull',
  [first, second]: readonly (Value | null)[],
): boolean {
  switch (rule) {
    case 'notNull':
      return first === null
    case 'notBoth':
      return first !== null && second !== null
    case 'either':
      return first === null && second === null
    case 'notNegative':
      return first !== null && Number(first) < 0
  }
}

/** Finds all rules that records of a state break. */
export function breachesOf(state: State): Breach[] {
  const links = new Map<string, Breach>()
  for (const { table, column, id, target } of brokenLinks(state)) {
    const key = `${table.uid} ${column.uid} ${target}`
    const ids = [...(links.get(key)?.ids ?? []), id].sort()
    links.set(key, { kind: 'link', table, columns: [column], constraint: undefined, ids })
  }
  return [...state.tables.flatMap(brokenRules), ...links.values()]
}

/** A record whose link must lead to a record and does not. */
interface BrokenLink {
  readonly table: ModelTable
  readonly column: ModelColumn
  readonly id: string
  readonly row: ModelRow
  /** The missing record, as `recordKey` names it. */
  readonly target: string
}

/** Finds the links that must exist and do not. */
function brokenLinks(state: State): BrokenLink[] {
  return state.tables.flatMap((table) =>
    table.columns.flatMap((column) => {
      if (column.link === undefined || column.onDelete === undefined) return []
      const { link } = column
      return [...table.rows].flatMap(([id, row]): BrokenLink[] => {
        const value = readValue(row, table, column)
        if (value === null || find(state, link)?.rows.has(String(value))) return []
        return [{ table, column, id, row, target: recordKey({ uid: link }, String(value)) }]
      })
    }),
  )
}

/** The records of a table that a deletion has deleted or changed through links. */
interface LinkEffects {
  readonly name: string
  readonly deleted: number
  readonly cleared: { readonly least: number; readonly most: number }
}

/** Lists what a deletion of the records `found` of a table has caused by links. */
export function effectsOnLinks({
  before,
  after,
  table,
  found,
}: {
  before: State
  after: State
  table: ModelTable
  found: readonly string[]
}): LinkEffects[] {
  const isLeft = (uid: number, id: string) => find(after, uid)?.rows.has(id) === true
  const given = new Set(found.map((id) => recordKey(table, id)))
  return before.tables.flatMap((each): LinkEffects[] => {
    const clearing = each.columns.filter(({ onDelete }) => onDelete === 'setNull')
    let [deleted, least, most] = [0, 0, 0]
    for (const [id, row] of each.rows) {
      const isKept = isLeft(each.uid, id)
      if (!isKept && !given.has(recordKey(each, id))) deleted++
      for (const column of clearing) {
        const value = readValue(row, each, column)
        const { link } = column
        if (value === null || link === undefined || isLeft(link, String(value))) continue
        most++
        if (isKept) least++
      }
    }
    const { name } = each
    return deleted + least === 0 ? [] : [{ name, deleted, cleared: { least, most } }]
  })
}

/** Deletes or changes the records that link to deleted ones, one by one. Throws if a link that must exist does not. */
export function settleLinks(state: State, deleted: ReadonlySet<string>): State {
  const gone = new Set(deleted)
  const isFollowed = ({ column, target }: BrokenLink) =>
    column.onDelete !== 'restrict' && gone.has(target)
  let settled = state
  for (;;) {
    const broken = brokenLinks(settled)
    const next = broken.find(isFollowed)
    if (next === undefined && broken.length > 0) throw new Refusal('a link to nothing')
    if (next === undefined) return settled
    const { table, column, id, row } = next
    const rows = new Map(table.rows)
    if (column.onDelete === 'cascade') {
      rows.delete(id)
      gone.add(recordKey(table, id))
    } else {
      const values = new Map(row.values)
      values.delete(column.uid)
      rows.set(id, writeRow(row, table, values))
    }
    const tables = settled.tables.map((each) =>
      each.uid === table.uid ? { ...table, rows } : each,
    )
    settled = { ...settled, tables }
  }
}

/**
 * Returns the tables after a merge, without rows, and the columns of the other side that it decides against, or the reason of
 * a refusal.
 */
function mergeShapes({
  baseOf,
  theirs,
  ours,
  ruleOf,
}: Sides): { tables: ModelTable[]; rejected: ReadonlySet<number> } | string {
  const rejected = new Set<number>()
  let conflict: string | undefined
  const refuse = (why: string) => {
    conflict ??= why
  }
  const rename = (
    names: { before: string | undefined; here: string; there: string },
    strategy: Strategy,
  ): string => {
    const { before, here, there } = names
    if (there === before || there === here) return here
    if (here === before || strategy === 'theirs') return there
    if (strategy === 'fail') refuse(`${here} and ${there}`)
    return here
  }
  const same = (left: ModelTable, right: ModelTable) =>
    isSame(shapeText(left), shapeText(right)) && left.name === right.name

  const tables: ModelTable[] = []
  for (const table of ours.tables) {
    const { strategy, mode } = ruleOf(table.uid)
    const base = find(baseOf(table.uid), table.uid)
    const other = find(theirs, table.uid)
    if (mode === 'skip' || (other === undefined && base === undefined)) tables.push(table)
    else if (other === undefined) {
      const isUnchanged =
        base !== undefined && same(base, table) && !isWritten(table, base, 'records')
      if (isUnchanged || strategy === 'theirs') continue
      if (strategy === 'fail') refuse(`${table.name} was removed there`)
      tables.push(table)
    } else tables.push(mergeShape(table, other, base))
  }
  for (const table of theirs.tables) {
    const { strategy, mode } = ruleOf(table.uid)
    if (mode === 'skip' || find(ours, table.uid) !== undefined) continue
    const base = find(baseOf(table.uid), table.uid)
    if (base === undefined) {
      if (!ours.removed.has(table.uid)) tables.push(table)
      else if (strategy !== 'ours') refuse(`${table.name} was removed here and kept there`)
    } else if (strategy !== 'ours') {
      const isChanged = mode === 'merge' && isWritten(table, base, 'records')
      if (isChanged || !same(base, table)) refuse(`${table.name} was removed here`)
    }
  }
  requireNames(tables, refuse)
  for (const table of tables) requireNames(table.columns, refuse)
  for (const { link } of tables.flatMap((table) => table.columns)) {
    if (link !== undefined && tables.every(({ uid }) => uid !== link)) refuse('a link to nowhere')
  }
  return conflict ?? { tables: tables.map((table) => ({ ...table, rows: new Map() })), rejected }

  function mergeShape(
    table: ModelTable,
    other: ModelTable,
    base: ModelTable | undefined,
  ): ModelTable {
    const { strategy, mode } = ruleOf(table.uid)
    const isChanged = (before: ModelColumn, column: ModelColumn, own: ModelTable) =>
      before.name !== column.name ||
      sizeOf(before) !== sizeOf(column) ||
      ((own === table || mode === 'merge') && isWritten(own, base, [column]))
    const columns: ModelColumn[] = []
    for (const column of table.columns) {
      const before = base?.columns.find(({ uid }) => uid === column.uid)
      const there = other.columns.find(({ uid }) => uid === column.uid)
      if (there !== undefined) {
        const names = { before: before?.name, here: column.name, there: there.name }
        const sized = mergeSize(column, there, { before, strategy })
        columns.push({ ...sized, name: rename(names, strategy) })
      } else if (before === undefined) columns.push(column)
      else if (isChanged(before, column, table) && strategy !== 'theirs') {
        if (strategy === 'fail') refuse(`${column.name} was removed there`)
        columns.push(column)
      }
    }
    for (const column of other.columns) {
      if (table.columns.some(({ uid }) => uid === column.uid)) continue
      const before = base?.columns.find(({ uid }) => uid === column.uid)
      if (before === undefined) {
        // The other side has replaced a column that the target keeps.
        const isReplacement = columns.some(
          ({ uid, name }) =>
            name.toLowerCase() === column.name.toLowerCase() &&
            base?.columns.some((each) => each.uid === uid) &&
            other.columns.every((each) => each.uid !== uid),
        )
        const isRemoved = ours.removed.has(column.uid)
        if (!isRemoved && isReplacement && strategy === 'ours') rejected.add(column.uid)
        else if (!isRemoved) columns.push(column)
        else if (strategy !== 'ours') refuse(`${column.name} was removed here and kept there`)
      } else if (isChanged(before, column, other) && strategy !== 'ours') {
        refuse(`${column.name} was removed here`)
      }
    }
    const names = { before: base?.name, here: table.name, there: other.name }
    const shape = withUsedColumns(
      { columns, constraints: mergeConstraints(table, other, base) },
      { table, other, strategy },
    )
    return { ...table, name: rename(names, strategy), ...shape }
  }

  /**
   * Settles constraints of columns that the other side has removed. Those of the target keep their columns by `ours`, and are
   * left out by `theirs`. Those of the merged branch are left out by `ours`.
   */
  function withUsedColumns(
    shape: Pick<ModelTable, 'columns' | 'constraints'>,
    { table, other, strategy }: { table: ModelTable; other: ModelTable; strategy: Strategy },
  ): Pick<ModelTable, 'columns' | 'constraints'> {
    const lacks = ({ columns }: ModelConstraint) =>
      columns.some((used) => shape.columns.every(({ uid }) => uid !== used))
    const broken = shape.constraints.find(lacks)
    if (broken === undefined) return shape
    const [mine, theirs] = [table, other].map(({ constraints }) =>
      constraints.find(({ name }) => name === broken.name),
    )
    const isOurs = isSame(mine, broken)
    if (strategy === 'fail' || (strategy === 'theirs' && !isOurs)) {
      refuse(`${broken.name} has no column`)
    }
    const settled = { ...shape }
    if (isOurs && strategy === 'ours') {
      for (const column of table.columns) {
        const isThere = settled.columns.some(({ uid }) => uid === column.uid)
        if (isThere || !broken.columns.includes(column.uid)) continue
        // The merged branch may have another column of the name.
        const isRival = ({ uid, name }: ModelColumn) =>
          name.toLowerCase() === column.name.toLowerCase() &&
          table.columns.every((each) => each.uid !== uid)
        for (const { uid } of settled.columns.filter(isRival)) rejected.add(uid)
        settled.columns = [...settled.columns.filter((each) => !isRival(each)), column]
      }
    } else {
      settled.constraints = shape.constraints.flatMap((each) =>
        each === broken ? ((isOurs ? theirs : mine) ?? []) : each,
      )
    }
    return withUsedColumns(settled, { table, other, strategy })
  }

  /** Returns a column with the merged size. */
  function mergeSize(
    column: ModelColumn,
    there: ModelColumn,
    { before, strategy }: { before: ModelColumn | undefined; strategy: Strategy },
  ): ModelColumn {
    const [old, mine, other] = [before ? sizeOf(before) : '', sizeOf(column), sizeOf(there)]
    if (other === old || other === mine) return column
    if (mine === old || strategy === 'theirs') return withSize(column, there)
    if (strategy === 'fail') refuse(`the size of ${column.name} was changed on both sides`)
    return column
  }

  /** Constraints are merged by their names. */
  function mergeConstraints(
    table: ModelTable,
    other: ModelTable,
    base: ModelTable | undefined,
  ): ModelConstraint[] {
    const { strategy } = ruleOf(table.uid)
    const names = new Set([...table.constraints, ...other.constraints].map(({ name }) => name))
    return [...names].flatMap((name) => {
      const [before, here, there] = [base, table, other].map((each) =>
        each?.constraints.find((constraint) => constraint.name === name),
      )
      if (isSame(there, before) || isSame(there, here)) return here ?? []
      if (isSame(here, before)) return there ?? []
      if (strategy === 'fail') refuse(`${name} was changed on both sides`)
      return (strategy === 'theirs' ? there : here) ?? []
    })
  }
}

/**
 * Returns whether records were inserted or changed since the base. For given columns, only values in
 * these columns count.
 */
function isWritten(
  table: ModelTable,
  base: ModelTable | undefined,
  what: 'records' | readonly ModelColumn[],
): boolean {
  const columns = what === 'records' ? table.columns : what
  return [...table.rows].some(([id, row]) => {
    const before = base?.rows.get(id)
    if (before === undefined && what === 'records') return true
    return columns.some((column) => {
      const then = before === undefined ? null : readValue(before, base, column)
      return !isSame(then, readValue(row, table, column))
    })
  })
}

/** Returns what a schema edit changes. The order of columns is no part of it. */
function shapeText({ columns, constraints }: ModelTable): string {
  const sorted = [...columns].sort((one, other) => one.uid - other.uid)
  const rules = [...constraints].sort((one, other) => (one.name < other.name ? -1 : 1))
  return JSON.stringify([sorted.map((column) => [column.uid, column.name, sizeOf(column)]), rules])
}

function requireNames(
  items: readonly { readonly name: string }[],
  refuse: (why: string) => void,
): void {
  const names = items.map((item) => item.name.toLowerCase())
  if (new Set(names).size < names.length) refuse('two of one name')
}

export interface Change {
  readonly change: 'inserted' | 'updated' | 'deleted'
  readonly id: string
  readonly record?: Readonly<Record<string, Value>>
  readonly columns?: Readonly<Record<string, { readonly from: Value; readonly to: Value }>>
}

/** The expected difference of one table. */
export function changesOf(before: State, table: ModelTable): Change[] {
  const old = find(before, table.uid)
  const columns = table.columns.filter(({ uid }) => !before.removed.has(uid))
  const ids = new Set([...(old?.rows.keys() ?? []), ...table.rows.keys()])
  return [...ids].sort().flatMap((id): Change[] => {
    const [from, to] = [old?.rows.get(id), table.rows.get(id)]
    if (to === undefined) {
      if (from === undefined) return []
      return [{ change: 'deleted', id, record: recordOf(from, old, columns) }]
    }
    if (from === undefined) {
      return [{ change: 'inserted', id, record: recordOf(to, table, table.columns) }]
    }
    const changed = columns.flatMap((column) => {
      const values = { from: readValue(from, old, column), to: readValue(to, table, column) }
      if (isSame(values.from, values.to)) return []
      const shown = { from: show(column, values.from), to: show(column, values.to) }
      return [[column.name, shown] as const]
    })
    if (changed.length === 0) return []
    return [{ change: 'updated', id, columns: Object.fromEntries(changed) }]
  })
}

/**
 * Reads a state by the uids of another one. Tables of one name that the other state does not know are the same table,
 * and so are columns of one name and definition in tables that both have.
 */
export function readBy(other: State, state: State): State {
  const tableUids = pairAdded(state.tables, other.tables, {
    state,
    other,
    areSame: (one, another) => one.idType === another.idType,
  })
  const tableUidOf = (uid: number) => tableUids.get(uid) ?? uid
  const tables = state.tables.map((table): ModelTable => {
    const uid = tableUidOf(table.uid)
    const columns = table.columns.map((column) =>
      column.link === undefined ? column : { ...column, link: tableUidOf(column.link) },
    )
    const uids = pairAdded(columns, find(other, uid)?.columns ?? [], {
      state,
      other,
      areSame: (one, another) => isSame(definitionOf(one), definitionOf(another)),
    })
    const uidOf = (columnUid: number) => uids.get(columnUid) ?? columnUid
    const rows = [...table.rows].map(([id, row]): [string, ModelRow] => [
      id,
      { ...row, values: new Map([...row.values].map(([key, value]) => [uidOf(key), value])) },
    ])
    return {
      ...table,
      uid,
      columns: columns.map((column) => ({ ...column, uid: uidOf(column.uid) })),
      rows: new Map(rows),
    }
  })
  return { ...state, tables }
}

function definitionOf({ definition, link, onDelete }: ModelColumn): Value {
  return { ...definition, link, onDelete }
}

/** Returns, by the uids of a state, those of the items that another state has added under the same names. */
function pairAdded<Item extends Named>(
  own: readonly Item[],
  others: readonly Item[],
  {
    state,
    other,
    areSame,
  }: { state: State; other: State; areSame(one: Item, another: Item): boolean },
): ReadonlyMap<number, number> {
  const unknownTo = (items: readonly Named[], removed: ReadonlySet<number>, { uid }: Named) =>
    !removed.has(uid) && items.every((item) => item.uid !== uid)
  return new Map(
    own
      .filter((item) => unknownTo(others, other.removed, item))
      .flatMap((item) => {
        const same = others.find(
          (each) =>
            each.name === item.name && unknownTo(own, state.removed, each) && areSame(item, each),
        )
        return same === undefined ? [] : [[item.uid, same.uid] as const]
      }),
  )
}

/** A record as clients read it. */
export function recordOf(
  row: ModelRow,
  table: ModelTable | undefined,
  columns: readonly ModelColumn[],
): Record<string, Value> {
  return Object.fromEntries(
    columns.flatMap((column) => {
      const value = readValue(row, table, column)
      return value === null ? [] : [[column.name, show(column, value)]]
    }),
  )
}

/** Links are written as ids and read as records. */
function show(column: ModelColumn, value: Value | null): Value {
  return column.link === undefined || value === null ? value : { id: value }
}
