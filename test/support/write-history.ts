/*
 * Merging from its definition, without bases, epochs or bookkeeping of merges. Every write is
 * remembered together with the writes it was made on top of, and every branch with the set of writes
 * it contains. The base of a merge is what the writes that both sides contain leave behind.
 */

export type Value = string | null
export type Row = Readonly<Record<string, Value>>

interface Write {
  readonly value: Value
  /** Earlier writes of the same cell that the branch contained. */
  readonly onTopOf: ReadonlySet<Write>
}

/** The existence of a row is a cell of its own, beside those of its columns. */
const PRESENT = 'present'

export interface HistoryBranch {
  readonly name: string
  source: HistoryBranch | undefined
  /** By cell: `row/column`. */
  readonly writes: Map<string, ReadonlySet<Write>>
  readonly rows: Map<string, Row>
}

export type Strategy = 'fail' | 'ours' | 'theirs'

/** The value of the base, or a marker that the common writes do not determine it. */
type BaseValue = { readonly value: Value } | 'undecided'

interface BaseRow {
  readonly isPresent: boolean | 'undecided'
  readonly cells: Readonly<Record<string, BaseValue>>
}

export interface RowOutcome {
  readonly id: string
  /** Undefined if the row does not exist afterwards. */
  readonly row: Row | undefined
  readonly isConflict: boolean
  /** The definition allows several outcomes. */
  readonly isOpen: boolean
}

export class WriteHistory {
  readonly branches = new Map<string, HistoryBranch>()

  constructor(
    readonly columns: readonly string[],
    first: string,
  ) {
    this.branches.set(first, branchLike(undefined, first))
  }

  put(branch: HistoryBranch, id: string, values: Row): void {
    const before = branch.rows.get(id)
    if (before === undefined) this.#write(branch, `${id}/${PRESENT}`, 'yes')
    for (const column of this.columns) {
      const value = values[column]
      if (before === undefined || value !== undefined) {
        this.#write(branch, `${id}/${column}`, value ?? null)
      }
    }
    const none = Object.fromEntries(this.columns.map((column) => [column, null]))
    branch.rows.set(id, { ...(before ?? none), ...values })
  }

  delete(branch: HistoryBranch, id: string): void {
    if (branch.rows.delete(id)) this.#write(branch, `${id}/${PRESENT}`, null)
  }

  fork(source: HistoryBranch, name: string): void {
    this.branches.set(name, branchLike(source, name))
  }

  reset(branch: HistoryBranch, source: HistoryBranch): void {
    branch.writes.clear()
    for (const [cell, writes] of source.writes) branch.writes.set(cell, writes)
    branch.rows.clear()
    for (const [id, row] of source.rows) branch.rows.set(id, row)
  }

  /** Returns the outcome of every row that either side has or had. */
  outcomes(from: HistoryBranch, into: HistoryBranch, strategy: Strategy): RowOutcome[] {
    const cells = [...from.writes.keys(), ...into.writes.keys()]
    const ids = [...new Set(cells.map((cell) => cell.slice(0, cell.indexOf('/'))))].sort()
    return ids.map((id) => {
      const base = this.#baseRow(id, from, into)
      const sides = { theirs: from.rows.get(id), ours: into.rows.get(id) }
      return { id, ...decide({ ...sides, base, columns: this.columns, strategy }) }
    })
  }

  /** Joins the writes of both sides. `rows` are the rows of the target after the merge. */
  merge(from: HistoryBranch, into: HistoryBranch, rows: ReadonlyMap<string, Row>): void {
    for (const [cell, writes] of from.writes) {
      into.writes.set(cell, new Set([...(into.writes.get(cell) ?? []), ...writes]))
    }
    into.rows.clear()
    for (const [id, row] of rows) into.rows.set(id, row)
    // If the joined writes do not produce the outcome, the merge itself counts as a write.
    for (const [cell, writes] of [...into.writes]) {
      const [id = '', column = ''] = cell.split('/')
      const row = rows.get(id)
      const value =
        column === PRESENT ? (row === undefined ? null : 'yes') : (row?.[column] ?? null)
      if (row === undefined && column !== PRESENT) continue
      if (latest(writes).some((write) => write.value !== value)) this.#write(into, cell, value)
    }
  }

  #baseRow(id: string, from: HistoryBranch, into: HistoryBranch): BaseRow {
    const baseOf = (column: string): BaseValue => {
      const cell = `${id}/${column}`
      const theirs = from.writes.get(cell)
      const common = [...(into.writes.get(cell) ?? [])].filter((write) => theirs?.has(write))
      const values = new Set(latest(new Set(common)).map((write) => write.value))
      if (values.size > 1) return 'undecided'
      return { value: [...values][0] ?? null }
    }
    const presence = baseOf(PRESENT)
    return {
      isPresent: presence === 'undecided' ? presence : presence.value !== null,
      cells: Object.fromEntries(this.columns.map((column) => [column, baseOf(column)])),
    }
  }

  #write(branch: HistoryBranch, cell: string, value: Value): void {
    const onTopOf = branch.writes.get(cell) ?? new Set<Write>()
    branch.writes.set(cell, new Set([...onTopOf, { value, onTopOf }]))
  }
}

function branchLike(source: HistoryBranch | undefined, name: string): HistoryBranch {
  return { name, source, writes: new Map(source?.writes), rows: new Map(source?.rows) }
}

/** Returns the writes that no other write was made on top of. */
function latest(writes: ReadonlySet<Write>): Write[] {
  const covered = new Set([...writes].flatMap((write) => [...write.onTopOf]))
  return [...writes].filter((write) => !covered.has(write))
}

interface Sides {
  readonly base: BaseRow
  readonly theirs: Row | undefined
  readonly ours: Row | undefined
  readonly columns: readonly string[]
  readonly strategy: Strategy
}

function decide(sides: Sides): Omit<RowOutcome, 'id'> {
  const { base, theirs, ours, columns, strategy } = sides
  const plain = (row: Row | undefined) => ({ row, isConflict: false, isOpen: false })
  const clash = (resolved: Row | undefined) =>
    strategy === 'fail'
      ? { row: ours, isConflict: true, isOpen: false }
      : plain(strategy === 'theirs' ? resolved : ours)
  if (theirs === undefined && ours === undefined) return plain(undefined)
  const isSame =
    theirs !== undefined &&
    ours !== undefined &&
    columns.every((column) => theirs[column] === ours[column])
  if (isSame) return plain(ours)
  const isUndecided =
    base.isPresent === 'undecided' || columns.some((column) => base.cells[column] === 'undecided')
  if (isUndecided) return { row: ours, isConflict: true, isOpen: true }
  const before = (column: string) => {
    const cell = base.cells[column]
    return cell === undefined || cell === 'undecided' ? null : cell.value
  }
  const isChanged = (row: Row) => columns.some((column) => row[column] !== before(column))
  if (!base.isPresent) {
    if (theirs === undefined) return plain(ours)
    return ours === undefined ? plain(theirs) : clash(theirs)
  }
  if (theirs === undefined) {
    if (ours === undefined) return plain(undefined)
    return isChanged(ours) ? clash(undefined) : plain(undefined)
  }
  if (ours === undefined) return isChanged(theirs) ? clash(theirs) : plain(undefined)
  const merged: Record<string, Value> = { ...ours }
  let isClash = false
  for (const column of columns) {
    const value = theirs[column] ?? null
    if (value === before(column) || value === ours[column]) continue
    if (ours[column] !== before(column)) {
      isClash = true
      if (strategy !== 'theirs') continue
    }
    merged[column] = value
  }
  if (isClash && strategy === 'fail') return { row: ours, isConflict: true, isOpen: false }
  return plain(merged)
}
