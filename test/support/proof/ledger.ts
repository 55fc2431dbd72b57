/*
 * A record of all requests to a service and their answers, kept outside the service. Each writer has
 * its own records and sends one request at a time, so the ledger knows what a branch must contain: all
 * acknowledged changes, and all or nothing of the one unacknowledged request of each writer.
 */

export interface Row {
  /** The columns, as JSON with sorted keys. */
  readonly values: string
  readonly version: number
}

/** By table and id. */
export type Rows = ReadonlyMap<string, Row>

/** The changes of one request: records by table and id, undefined for deleted ones. */
export type Changes = ReadonlyMap<string, Row | undefined>

/** The content of a branch; undefined if the branch does not exist. */
export interface Found {
  readonly rows: Rows
  /** A sum that transactions of all writers add to. */
  readonly total: number
}

/** A request that changes records of the first branch. */
export interface Act {
  readonly changes: Changes
  /** The amount that it adds to the total. */
  readonly adds: number
  readonly startedAt: number
  endedAt: number | undefined
}

/** The records of one writer on the first branch. */
export class Line {
  /** The records at the last check. */
  settled: Rows = new Map()
  /** The requests since then, in order. Only the last can be unfinished. */
  acts: Act[] = []
  #rows = new Map<string, Row>()

  constructor(readonly writer: string) {}

  begin(changes: Changes, adds = 0): Act {
    if (this.pending !== undefined) throw new Error(`${this.writer} must be settled first`)
    const act: Act = { changes, adds, startedAt: performance.now(), endedAt: undefined }
    this.acts.push(act)
    return act
  }

  /** The request with an unknown outcome. */
  get pending(): Act | undefined {
    const last = this.acts.at(-1)
    return last?.endedAt === undefined ? last : undefined
  }

  /** The request was acknowledged. */
  end(act: Act): void {
    act.endedAt = performance.now()
    change(this.#rows, act.changes)
  }

  /** The request was refused, so none of its changes may exist. */
  drop(act: Act): void {
    this.acts = this.acts.filter((other) => other !== act)
  }

  /** Returns the records after the given number of requests since the last check. */
  rowsAfter(count: number): Rows {
    const rows = new Map(this.settled)
    for (const { changes } of this.acts.slice(0, count)) change(rows, changes)
    return rows
  }

  /** The acknowledged records. */
  get rows(): Rows {
    return this.#rows
  }

  /**
   * Decides the outcome of the pending request by what was found. Returns whether the records are
   * as expected.
   */
  resolve(found: Rows): boolean {
    const { pending } = this
    if (pending !== undefined) {
      if (isSame(found, this.rowsAfter(this.acts.length))) this.end(pending)
      else this.drop(pending)
    }
    return isSame(found, this.rows)
  }

  /** Discards the requests so far. No state before this moment may be needed any more. */
  settle(): void {
    this.settled = new Map(this.#rows)
    this.acts = []
  }
}

/**
 * The inherited records of a branch: those of the first branch at some moment between `from` and
 * `until`, and known exactly after the first check.
 */
export interface Inherited {
  readonly from: number
  until: number
  seen: Found | undefined
}

/** The content of a branch as far as it is known. */
export interface BranchState {
  readonly inherited: Inherited
  /** Changes made on the branch itself. */
  readonly own: Changes
  /** False after a pull, because a pull combines several writes into one version. */
  readonly hasVersions: boolean
}

/** A branch other than the first. Its owner sends one request at a time. */
export interface Branch {
  readonly name: string
  /** Undefined if the branch does not exist. */
  state: BranchState | undefined
  /** The state after the pending request, if it succeeded. */
  pending: { readonly state: BranchState | undefined } | undefined
}

export class Ledger {
  readonly lines = new Map<string, Line>()
  readonly branches = new Map<string, Branch>()
  #settledTotal = 0

  line(writer: string): Line {
    const line = this.lines.get(writer) ?? new Line(writer)
    this.lines.set(writer, line)
    return line
  }

  /** Returns the faults of the first branch, and decides the outcome of pending requests. */
  checkMain(found: Found): string[] {
    const byWriter = groupByWriter(found.rows)
    const faults: string[] = []
    for (const writer of byWriter.keys()) {
      if (!this.lines.has(writer)) faults.push(`main: records of nobody: ${writer}`)
    }
    for (const [writer, line] of this.lines) {
      const rows = byWriter.get(writer) ?? new Map()
      const wasPending = line.pending !== undefined
      if (line.resolve(rows)) continue
      faults.push(...differences(`main: ${writer}`, line.rows, rows))
      if (wasPending) faults.push(`main: ${writer}: its last request is half there, or lost more`)
    }
    const total = this.#totalAfter((line) => line.acts.length)
    if (found.total !== total) {
      faults.push(`main: the total is ${found.total}, and must be ${total}`)
    }
    return faults
  }

  /** Returns the faults of another branch. The first branch must be checked before. */
  checkBranch(branch: Branch, found: Found | undefined): string[] {
    const candidates = [{ state: branch.state }, ...(branch.pending ? [branch.pending] : [])]
    const outcomes = candidates.map(({ state }) => ({
      state,
      faults: this.#checkState(branch.name, state, found),
    }))
    const match = outcomes.find(({ faults }) => faults.length === 0)
    if (match === undefined) return outcomes.flatMap(({ faults }) => faults)
    branch.state = match.state
    branch.pending = undefined
    if (match.state === undefined) this.branches.delete(branch.name)
    return []
  }

  /** Ends a check: its findings are the new starting point. */
  settle(): void {
    this.#settledTotal = this.#totalAfter((line) => line.acts.length)
    for (const line of this.lines.values()) line.settle()
  }

  #totalAfter(count: (line: Line) => number): number {
    let total = this.#settledTotal
    for (const line of this.lines.values()) {
      for (const { adds } of line.acts.slice(0, count(line))) total += adds
    }
    return total
  }

  #checkState(name: string, state: BranchState | undefined, found: Found | undefined): string[] {
    if (state === undefined)
      return found === undefined ? [] : [`${name}: was deleted, and is there`]
    if (found === undefined) return [`${name}: is missing`]
    const { inherited, own, hasVersions } = state
    const withoutOwn = new Map([...found.rows].filter(([key]) => !own.has(key)))
    const faults = differences(`${name}: own`, present(own), restrict(found.rows, own), hasVersions)
    const rest = { rows: withoutOwn, total: found.total }
    if (inherited.seen !== undefined) {
      const { rows, total } = inherited.seen
      const expected = new Map([...rows].filter(([key]) => !own.has(key)))
      if (total !== found.total) faults.push(`${name}: the total is ${found.total}, was ${total}`)
      return [...faults, ...differences(name, expected, withoutOwn, hasVersions)]
    }
    faults.push(...this.#checkMoment(name, state, rest))
    if (faults.length === 0)
      inherited.seen = { rows: this.#seenRows(state, found), total: found.total }
    return faults
  }

  /**
   * Returns the inherited records. Those that the branch has changed itself are hidden and not
   * needed.
   */
  #seenRows({ own }: BranchState, found: Found): Rows {
    return new Map([...found.rows].filter(([key]) => !own.has(key)))
  }

  /** Checks that a fork contains the changes of every writer up to one common moment. */
  #checkMoment(name: string, state: BranchState, found: Found): string[] {
    const { inherited, own, hasVersions } = state
    const byWriter = groupByWriter(found.rows)
    const counts = new Map<Line, Counts>()
    const faults: string[] = []
    for (const [writer, line] of this.lines) {
      const rows = byWriter.get(writer) ?? new Map()
      const least = line.acts.filter((act) => (act.endedAt ?? Infinity) < inherited.from).length
      const most = line.acts.filter((act) => act.startedAt < inherited.until).length
      const matching = range(least, most).filter((count) => {
        const expected = new Map([...line.rowsAfter(count)].filter(([key]) => !own.has(key)))
        return isSame(rows, expected, hasVersions)
      })
      const [first] = matching
      const last = matching.at(-1)
      if (first === undefined || last === undefined) {
        faults.push(
          `${name}: ${writer}: is at none of the moments ${least} to ${most} of its fork`,
          ...differences(`${name}: ${writer}`, line.rowsAfter(least), rows, hasVersions),
        )
      } else counts.set(line, { least: first, most: last })
    }
    if (faults.length > 0) return faults
    const total = this.#totalAfter((line) => counts.get(line)?.least ?? 0)
    if (total !== found.total) faults.push(`${name}: the total is ${found.total}, not ${total}`)
    return [...faults, ...checkOrder(name, counts)]
  }
}

/**
 * Bounds of the number of requests that a branch includes. It is not exact, because requests can
 * undo each other.
 */
interface Counts {
  readonly least: number
  readonly most: number
}

/** Checks that if a request is included, all requests that ended before it started are, too. */
function checkOrder(name: string, counts: ReadonlyMap<Line, Counts>): string[] {
  const included = [...counts].flatMap(([line, { least }]) => line.acts.slice(0, least))
  const latest = Math.max(0, ...included.map((act) => act.startedAt))
  return [...counts].flatMap(([line, { most }]) =>
    line.acts
      .slice(most)
      .filter((act) => (act.endedAt ?? Infinity) < latest)
      .map(
        ({ changes }) =>
          `${name}: ${line.writer}: lacks what was over before something it has began: ` +
          [...changes.keys()].slice(0, DIFFERENCES_MAX).join(', '),
      ),
  )
}

export function apply(rows: Rows, changes: Changes): Rows {
  const result = new Map(rows)
  change(result, changes)
  return result
}

function change(rows: Map<string, Row>, changes: Changes): void {
  for (const [key, row] of changes) {
    if (row === undefined) rows.delete(key)
    else rows.set(key, row)
  }
}

function present(changes: Changes): Rows {
  return apply(new Map(), changes)
}

/** Returns the writer of a record; ids are `table/writer-number`. */
export function writerOf(key: string): string {
  return key.slice(key.indexOf('/') + 1).split('-', 1)[0] ?? ''
}

function groupByWriter(rows: Rows): Map<string, Map<string, Row>> {
  const groups = new Map<string, Map<string, Row>>()
  for (const [key, row] of rows) {
    const writer = writerOf(key)
    const group = groups.get(writer) ?? new Map<string, Row>()
    groups.set(writer, group.set(key, row))
  }
  return groups
}

function restrict(rows: Rows, to: Changes): Rows {
  return new Map([...rows].filter(([key]) => to.has(key)))
}

function range(first: number, last: number): number[] {
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index)
}

function isSame(left: Rows, right: Rows, withVersions = true): boolean {
  if (left.size !== right.size) return false
  for (const [key, row] of left) {
    if (!isSameRow(row, right.get(key), withVersions)) return false
  }
  return true
}

function isSameRow(left: Row, right: Row | undefined, withVersions: boolean): boolean {
  if (left.values !== right?.values) return false
  return !withVersions || left.version === right.version
}

/** Maximum number of differences in a message. */
const DIFFERENCES_MAX = 3

function differences(label: string, expected: Rows, found: Rows, withVersions = true): string[] {
  const lost = [...expected.keys()].filter((key) => !found.has(key))
  const extra = [...found.keys()].filter((key) => !expected.has(key))
  const changed = [...expected].filter(([key, row]) => {
    const other = found.get(key)
    return other !== undefined && !isSameRow(row, other, withVersions)
  })
  const some = (items: readonly string[]) =>
    `${items.slice(0, DIFFERENCES_MAX).join(', ')}${items.length > DIFFERENCES_MAX ? ', ...' : ''}`
  return [
    ...(lost.length > 0 ? [`${label}: ${lost.length} lost: ${some(lost)}`] : []),
    ...(extra.length > 0 ? [`${label}: ${extra.length} too many: ${some(extra)}`] : []),
    ...changed
      .slice(0, DIFFERENCES_MAX)
      .map(
        ([key, row]) =>
          `${label}: ${key} must be ${JSON.stringify(row)}, is ${JSON.stringify(found.get(key))}`,
      ),
  ]
}
