import {
  apply,
  type Branch,
  type BranchState,
  type Changes,
  type Inherited,
  type Row,
  writerOf,
} from './ledger.js'
import { DATABASE } from './service.js'
import { newRow, type Outcome, type Round, valuesOf, Writer } from './writer.js'

/** Maximum number of branches in an unknown state, before a writer waits for the next check. */
const PENDING_MAX = 5

/** A writer that creates and changes its own branches. */
abstract class BranchWriter extends Writer {
  #branches = 0

  protected newName(): string {
    return `${this.name}-${this.#branches++}`
  }

  /** Branches of the writer whose state is known. */
  protected branches(): Branch[] {
    return [...this.ledger.branches.values()].filter(
      (branch) => branch.name.startsWith(`${this.name}-`) && branch.pending === undefined,
    )
  }

  protected async changeBranch(
    round: Round,
    branch: Branch,
    request: { method: string; path: string; body?: unknown; state: BranchState | undefined },
  ): Promise<Outcome> {
    const { method, path, body, state } = request
    branch.pending = { state }
    this.ledger.branches.set(branch.name, branch)
    const url = `/db/${DATABASE}:${branch.name}${path}`
    const reply = await round.send(method, url, body === undefined ? {} : { body })
    const outcome = round.judge(reply, `${method} a branch ${path}`)
    if (outcome === 'unknown') return outcome
    branch.pending = undefined
    if (outcome === 'done') branch.state = state
    if (branch.state === undefined) this.ledger.branches.delete(branch.name)
    return outcome
  }

  /**
   * Forks a branch. The fork has the state of its source at some moment between request and answer.
   */
  protected async fork(round: Round, name: string, source?: Branch): Promise<Outcome> {
    const branch: Branch = { name, state: undefined, pending: undefined }
    const inherited = source?.state?.inherited ?? thisMoment()
    const state = {
      inherited,
      own: source?.state?.own ?? new Map(),
      hasVersions: source?.state?.hasVersions ?? true,
    }
    const from = source?.name ?? 'main'
    const outcome = await this.changeBranch(round, branch, {
      method: 'PUT',
      path: '',
      body: { from },
      state,
    })
    if (source === undefined && outcome === 'done') inherited.until = performance.now()
    return outcome
  }

  protected delete(round: Round, branch: Branch): Promise<Outcome> {
    return this.changeBranch(round, branch, { method: 'DELETE', path: '', state: undefined })
  }

  /** Changes records of a branch in one transaction. */
  protected async changeOwn(round: Round, branch: Branch, changes: Changes): Promise<Outcome> {
    const { state } = branch
    if (state === undefined) return 'refused'
    const operations = [...changes].map(([key, row]) => {
      const [table = '', id = ''] = key.split('/')
      return row === undefined
        ? { delete: { table, id, failIfMissing: true } }
        : { insert: { table, record: { id, ...valuesOf(row) } } }
    })
    const own = new Map([...state.own, ...changes])
    return this.changeBranch(round, branch, {
      method: 'POST',
      path: '/transaction',
      body: { operations },
      state: { ...state, own },
    })
  }

  protected newRows(count: number): Map<string, Row> {
    return new Map(
      Array.from({ length: count }, () => {
        const values = { value: this.random.below(1_000_000), payload: this.payload() }
        return [`items/${this.newId()}`, newRow(values)]
      }),
    )
  }

  /** The next check finds out the state of the branch; until then other branches are used. */
  protected override async lookAgain(round: Round): Promise<boolean> {
    const isPending = (branch: Branch) => branch.pending !== undefined
    const pending = [...this.ledger.branches.values()].filter(isPending).length
    return pending < PENDING_MAX && super.lookAgain(round)
  }
}

function thisMoment(): Inherited {
  return { from: performance.now(), until: Number.POSITIVE_INFINITY, seen: undefined }
}

const FORKS_MAX = 4

/** Forks the first branch and its forks, changes some of them, and deletes them. */
export class Forker extends BranchWriter {
  protected async step(round: Round): Promise<Outcome> {
    const branches = this.branches()
    if (branches.length === 0) return this.fork(round, this.newName())
    const branch = this.random.pick(branches)
    if (branches.length >= FORKS_MAX) return this.#useOrDelete(round, branch)
    return this.random.weighted<() => Promise<Outcome>>([
      [3, () => this.fork(round, this.newName())],
      [1, () => this.fork(round, this.newName(), branch)],
      [3, () => this.#useOrDelete(round, branch)],
    ])()
  }

  #useOrDelete(round: Round, branch: Branch): Promise<Outcome> {
    if (this.random.chance(0.4)) return this.delete(round, branch)
    return this.changeOwn(round, branch, this.#changesOf(branch))
  }

  /** Inserts records, and changes inherited ones once they are known. */
  #changesOf({ state }: Branch): Changes {
    const changes: Map<string, Row | undefined> = this.newRows(1 + this.random.below(20))
    const seen = state?.inherited.seen
    if (state === undefined || seen === undefined) return changes
    const keys = [...apply(seen.rows, state.own).keys()].filter(isChangeable)
    for (const key of this.random.some(keys, 0.02)) {
      const row = state.own.get(key) ?? seen.rows.get(key)
      const version = (row?.version ?? 0) + 1
      changes.set(
        key,
        this.random.chance(0.5) ? undefined : newRow({ value: this.random.below(100) }, version),
      )
    }
    return changes
  }
}

/** Records with generated ids are identified by another name here. */
function isChangeable(key: string): boolean {
  return key.startsWith('items/') && !writerOf(key).startsWith('create')
}

const MERGED_ROWS_MAX = 200

/** Forks a branch, changes records, merges it into the first branch, and deletes it. */
export class Merger extends BranchWriter {
  /** The acknowledged merges. */
  readonly merged: { readonly rows: number; readonly ms: number }[] = []
  reverts = 0
  /** The entry of the log that the last merge has made. */
  #entry: string | undefined
  /** The merge or revert that has no answer yet. */
  merging: { readonly rows: number } | undefined

  protected async step(round: Round): Promise<Outcome> {
    for (const left of this.branches()) {
      const outcome = await this.delete(round, left)
      if (outcome !== 'done') return outcome
    }
    const name = this.newName()
    const forked = await this.fork(round, name)
    const branch = this.ledger.branches.get(name)
    if (forked !== 'done' || branch === undefined) return forked
    const changes = this.#changes()
    const changed = await this.changeOwn(round, branch, changes)
    if (changed !== 'done') return changed
    const before = new Map(this.line.rows)
    const merged = await this.#merge(round, name, changes)
    if (merged !== 'done') return merged
    const deleted = await this.delete(round, branch)
    if (deleted !== 'done' || this.#entry === undefined || this.random.chance(0.7)) return deleted
    return this.#revert(round, this.#entry, undoing(before, changes))
  }

  /** Takes back a merge. */
  async #revert(round: Round, entry: string, changes: Changes): Promise<Outcome> {
    const act = this.line.begin(changes)
    const url = `/db/${DATABASE}:main/revert`
    this.merging = { rows: changes.size }
    const reply = await round.send('POST', url, { body: { entry } })
    this.merging = undefined
    const outcome = round.judge(reply, 'POST a branch /revert')
    this.close(act, outcome)
    if (outcome === 'done') this.reverts++
    return outcome
  }

  async #merge(round: Round, name: string, changes: Changes): Promise<Outcome> {
    this.#entry = undefined
    const act = this.line.begin(changes)
    const url = `/db/${DATABASE}:${name}/merge`
    this.merging = { rows: changes.size }
    const reply = await round.send('POST', url, { body: {} })
    this.merging = undefined
    const outcome = round.judge(reply, 'POST a branch /merge')
    this.close(act, outcome)
    const ms = performance.now() - act.startedAt
    this.#entry = reply.body?.entry
    if (outcome === 'done') this.merged.push({ rows: changes.size, ms })
    return outcome
  }

  #changes(): Changes {
    const { rows } = this.line
    const changes: Map<string, Row | undefined> = this.newRows(1 + this.random.below(40))
    const old = [...rows.keys()].sort()
    for (const key of old.slice(0, Math.max(0, old.length - MERGED_ROWS_MAX))) {
      changes.set(key, undefined)
    }
    for (const key of this.random.some(old.slice(-MERGED_ROWS_MAX), 0.1)) {
      const row = rows.get(key)
      const version = (row?.version ?? 0) + 1
      // The value must differ, because an unchanged value is not a change for a merge.
      const value = (valuesOf(row).value as number) + 1 + this.random.below(100)
      changes.set(key, newRow({ value }, version))
    }
    return changes
  }
}

/** Returns what a revert of changes does to the rows that were there before. */
function undoing(before: ReadonlyMap<string, Row>, changes: Changes): Changes {
  return new Map(
    [...changes].map(([key, row]) => {
      const old = before.get(key)
      // A row that comes back is a new one.
      const version = row === undefined ? 0 : row.version + 1
      return [key, old && newRow(valuesOf(old), version)]
    }),
  )
}

/** Changes one long-lived branch, which follows the first one by pulls and resets. */
export class Follower extends BranchWriter {
  pulls = 0
  resets = 0

  protected async step(round: Round): Promise<Outcome> {
    const name = `${this.name}-branch`
    const branch = this.ledger.branches.get(name)
    if (branch === undefined) return this.fork(round, name)
    if (branch.pending !== undefined) return 'unknown'
    return this.random.weighted<() => Promise<Outcome>>([
      [6, () => this.changeOwn(round, branch, this.newRows(1 + this.random.below(30)))],
      [3, () => this.#follow(round, branch, 'pull')],
      [1, () => this.#follow(round, branch, 'reset')],
    ])()
  }

  async #follow(round: Round, branch: Branch, way: 'pull' | 'reset'): Promise<Outcome> {
    const inherited = thisMoment()
    const own: Changes = way === 'pull' ? (branch.state?.own ?? new Map()) : new Map()
    const outcome = await this.changeBranch(round, branch, {
      method: 'POST',
      path: `/${way}`,
      ...(way === 'pull' ? { body: {} } : {}),
      state: {
        inherited,
        own,
        hasVersions: way === 'reset',
      },
    })
    if (outcome === 'done') {
      inherited.until = performance.now()
      if (way === 'pull') this.pulls++
      else this.resets++
    }
    return outcome
  }

  /** Its only branch must be checked before it can continue. */
  protected override async lookAgain(): Promise<boolean> {
    return false
  }
}
