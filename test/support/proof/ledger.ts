/*
 * What a service was asked and what it answered, kept outside of it. Each writer is the only one to
 * write its records and does one thing after the other, so the ledger always knows what a branch
 * must hold: everything that was acknowledged, and of the one request of each writer that was not,
 * all or nothing.
 */

export interface Row {
  /** The columns, as JSON with sorted keys. */
  readonly values: string
  readonly version: number
}

/** By table and id. */
export type Rows = ReadonlyMap<string, Row>

/** What one request changes: records by table and id, undefined for those it deletes. */
export type Changes = ReadonlyMap<string, Row | undefined>

/** What is found on a branch; undefined when there is no such branch. */
export interface Found {
  readonly rows: Rows
  /** A number that transactions of all writers add to. */
  readonly total: number
}

/** A request that changes records of the first branch. */
export interface Act {
  readonly changes: Changes
  /** What it adds to the total. */
  readonly adds: number
  readonly startedAt: number
  endedAt: number | undefined
}

/** The records of one writer on the first branch. */
export class Line {
  /** As of the last check. */
  settled: Rows = new Map()
  /** Since then, in order. Only the last can be without an end. */
  acts: Act[] = []
  #rows = new Map<string, Row>()

  constructor(readonly writer: string) {}

  begin(changes: Changes, adds = 0): Act {
    if (this.pending !== undefined) throw new Error(`${this.writer} must be settled first`)
    const act: Act = { changes, adds, startedAt: performance.now(), endedAt: undefined }
    this.acts.push(act)
    return act
  }

  /** The request whose outcome is not known. */
  get pending(): Act | undefined {
    const last = this.acts.at(-1)
    return last?.endedAt === undefined ? last : undefined
  }

  /** The request was acknowledged. */
  end(act: Act): void {
    act.endedAt = performance.now()
    change(this.#rows, act.changes)
  }

  /** The request was refused, so that nothing of it may be there. */
  drop(act: Act): void {
    this.acts = this.acts.filter((other) => other !== act)
  }

  /** The records after so many of the requests since the last check. */
  rowsAfter(count: number): Rows {
    const rows = new Map(this.settled)
    for (const { changes } of this.acts.slice(0, count)) change(rows, changes)
    return rows
  }

  /** What has been acknowledged. */
  get rows(): Rows {
    return this.#rows
  }

  /** Makes of the pending request what it became; says whether the records are as they must be. */
  resolve(found: Rows): boolean {
    const { pending } = this
    if (pending !== undefined) {
      if (isSame(found, this.rowsAfter(this.acts.length))) this.end(pending)
      else this.drop(pending)
    }
    return isSame(found, this.rows)
  }

  /** Forgets how the records came about; nothing may need a moment before this one any more. */
  settle(): void {
    this.settled = new Map(this.#rows)
    this.acts = []
  }
}

/** What a branch has of the first one: as of a moment within a time, and exactly once it was seen. */
export interface Inherited {
  readonly from: number
  until: number
  seen: Found | undefined
}

/** What a branch holds, as far as the ledger knows. */
export interface BranchState {
  readonly inherited: Inherited
  /** What was changed on the branch itself. */
  readonly own: Changes
  /** Versions count the writes of a branch, which a pull does not repeat one by one. */
  readonly hasVersions: boolean
}

/** A branch other than the first. Its owner does one thing with it after the other. */
export interface Branch {
  readonly name: string
  /** undefined: it does not exist. */
  state: BranchState | undefined
  /** What a request whose outcome is not known makes of it. */
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

  /** The faults of the first branch. Decides what became of pending requests. */
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

  /** The faults of another branch, after those of the first. */
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

  /** Ends a check: what was found is what everything goes on from. */
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

  /** What the branch itself has changed was not seen of what it inherits, and is not needed either. */
  #seenRows({ own }: BranchState, found: Found): Rows {
    return new Map([...found.rows].filter(([key]) => !own.has(key)))
  }

  /** A branch has, of each writer, what it had written up to one moment that is the same for all. */
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

/** How many requests of a writer a branch has: what one adds and the next removes leaves no trace. */
interface Counts {
  readonly least: number
  readonly most: number
}

/** What was over before something else began is there, if that is there. */
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

export function present(changes: Changes): Rows {
  return apply(new Map(), changes)
}

/** The writer that a record belongs to: ids are `table/writer-number`. */
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

/** A few are enough to see what is wrong. */
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
