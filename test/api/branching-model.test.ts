import type { Column, IdType } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { FOLDS_ALWAYS, foldBranches } from '../support/folding.js'
import {
  type Amendment,
  type Breach,
  breachesOf,
  brokenRules,
  type Change,
  type Counts,
  changesOf,
  effectsOnLinks,
  find,
  fits,
  listAdded,
  MergeModel,
  type MergeWish,
  type ModelBranch,
  type ModelColumn,
  type ModelConflict,
  type ModelConstraint,
  type ModelRow,
  type ModelTable,
  type RecordDecision,
  Refusal,
  type Rule,
  readBy,
  readValue,
  recordKey,
  recordOf,
  rules,
  type State,
  type Strategy,
  settleLinks,
  type Value,
  withoutAdded,
  withRestorable,
  writeRow,
} from '../support/merge-model.js'
import { createDatabase, createKey } from '../support/people.js'
import { SEED, STEPS, STEPS_TIMEOUT_MS } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { branchCall, expectOk } from '../support/tables.js'

/*
 * Model-based test: after any sequence of writes, forks, schema edits, merges, pulls, resets,
 * deletions and collections through two processes, every branch equals that of a model that copies
 * everything. There are two databases. Their branches, tables and columns have the same few names, which
 * are used again and again, and the databases exchange their names. So what a process remembers by name is often wrong.
 * OFFSHOOT_TEST_STEPS sets the number of steps, OFFSHOOT_TEST_SEED repeats a failed run.
 */

const BRANCHES_MAX = 7
const BRANCH_NAMES = Array.from({ length: BRANCHES_MAX + 1 }, (_, number) => `b${number}`)
const TABLES_MAX = 4
const COLUMNS_MAX = 6
const IDS_COUNT = 14
const idsBy = (idOf: (number: number) => string) =>
  Array.from({ length: IDS_COUNT }, (_, number) => idOf(number))
/** The ids of the records of a table, by their type. */
const IDS: Readonly<Record<IdType, readonly string[]>> = {
  string: idsBy((number) => `r${number}`),
  int: idsBy((number) => String(number - 3)),
  uuid: idsBy((number) => `0190a5c1-7d3e-7cc2-9f0b-${String(number).padStart(12, '0')}`),
}
const TABLE_NAMES = ['ants', 'bees', 'cats', 'dogs', 'eels']
const CONSTRAINTS_MAX = 2
const CONSTRAINT_NAMES = ['kept', 'held']
const COLUMN_NAMES = ['one', 'two', 'three', 'four', 'five', 'six', 'seven']

let first: TestService
let second: TestService

beforeAll(async () => {
  const limits = { automaticCheckpointsMax: 2 }
  first = await createTestService({ limits })
  // The second process compares the rows of most merges, and checks most rows for new rules, without locks.
  const unlocked = { mergeLockedRowsMax: 2, ruleLockedRowsMax: 1 }
  second = await createTestService({ url: first.url, limits: { ...limits, ...unlocked } })
})
afterAll(async () => {
  await second.close()
  await first.close()
})

const DEFINITIONS: readonly Omit<Column, 'name'>[] = [
  { type: 'string' },
  { type: 'int' },
  { type: 'float' },
  { type: 'multiple' },
  { type: 'json' },
  { type: 'datetime' },
  { type: 'string', unique: true },
  { type: 'int', notNull: true, defaultValue: '7' },
  { type: 'string', notNull: true, defaultValue: "it's \\ new" },
  { type: 'bool', defaultValue: 'true' },
  { type: 'decimal', decimal: { precision: 8, scale: 2 } },
  { type: 'decimal', decimal: { precision: 8, scale: 2 }, notNull: true, defaultValue: '1.50' },
  { type: 'date', unique: true },
  { type: 'time' },
  { type: 'uuid' },
  { type: 'enum', enum: { values: ['new', 'paid', 'gone'] } },
]
const DEFAULTS: ReadonlyMap<string, Value> = new Map<string, Value>([
  ['7', 7],
  ["it's \\ new", "it's \\ new"],
  ['true', true],
  ['1.50', '1.50'],
])

const VALUES: Readonly<Record<string, readonly Value[]>> = {
  string: ['a', 'b', 'c', "d'\\\n", '', 'NULL', '{"x"}'],
  int: [0, 1, -2, 9_007_199_254_740_991],
  float: [0.5, -1.25, 1e100],
  multiple: [[], ['x'], ['x', 'y,"z']],
  json: [{ a: 1 }, [1, null, 'x'], { b: { c: [] } }],
  datetime: ['2026-01-31T09:30:00.123456Z', '1969-12-31T23:59:59.999Z', '0001-01-01T00:00:00.000Z'],
  bool: [true, false],
  decimal: ['0.00', '1.50', '-2.25', '999999.99'],
  date: ['2026-01-31', '0001-01-01', '9999-12-31'],
  time: ['09:30:00', '23:59:59.999999', '00:00:00'],
  uuid: ['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '0190a5c1-7d3e-7cc2-9f0b-2a6f1c3d4e5f'],
  enum: ['new', 'paid', 'gone'],
}
/** Records that links lead to. */
const LINKED_COUNT = 3

/** The types whose values are equal if their texts are. */
const COMPARABLE: ReadonlySet<string> = new Set([
  'string',
  'int',
  'float',
  'bool',
  'link',
  'decimal',
  'date',
  'time',
  'uuid',
  'enum',
])

const NUMBERS: ReadonlySet<string> = new Set(['int', 'float', 'decimal'])

/** Changes of a branch that may be reverted. */
const STEPS_KEPT = 3

/** A change of a branch: the states before and after it, what it has added to the schema, or the rows of a bulk load. */
type Step =
  | Record<'before' | 'after', State>
  | { readonly added: ReadonlySet<number> }
  | { readonly uid: number; readonly loaded: ModelTable['rows'] }

/**
 * Returns the states before and after a change of a branch. `needed`: something else needs what it has added. `unknown`: rows of a
 * bulk load were written since, and the model does not know whether they are still those of the load.
 */
function stepOn(
  state: State,
  step: Step,
): Record<'before' | 'after', State> | 'needed' | 'unknown' {
  if ('loaded' in step) return loadOn(state, step)
  if (!('added' in step)) return step
  const before = withoutAdded(state, step.added)
  return before === undefined ? 'needed' : { before, after: state }
}

function loadOn(
  state: State,
  { uid, loaded }: { readonly uid: number; readonly loaded: ModelTable['rows'] },
): Record<'before' | 'after', State> | 'unknown' {
  const table = state.tables.find((each) => each.uid === uid)
  if (table === undefined) return 'unknown'
  const rows = [...table.rows].filter(([id]) => loaded.has(id))
  if (rows.some(([id, row]) => loaded.get(id) !== row)) return 'unknown'
  const left = new Map([...table.rows].filter(([id]) => !loaded.has(id)))
  const tables = state.tables.map((each) => (each === table ? { ...table, rows: left } : each))
  return { before: { ...state, tables }, after: state }
}

/** Runs the model and the service side by side. */
class Run {
  model = new MergeModel('main')
  /** The checkpoints of branches, with full copies. */
  #checkpoints: {
    readonly name: string
    readonly branch: ModelBranch
    readonly pinned: ModelBranch
  }[] = []
  /**
   * The merges, bulk loads and edits that have taken effect, with full copies of the states before and after them, or with
   * what they have added.
   */
  #steps: {
    readonly entry: string
    readonly branch: ModelBranch
    readonly step: Step
  }[] = []
  #checkpointCount = 0
  /** The types of ids of all tables, by their uids. */
  readonly #idTypes = new Map<number, IdType>()
  readonly #keyName: string
  #key = first.key

  constructor(
    public database: string,
    readonly random: Random,
    readonly log: string[],
  ) {
    this.#keyName = `key-of-${database}`
  }

  /** Creates the database with its first tables, records and forks. */
  async start(): Promise<void> {
    this.note('create the database')
    await createDatabase(this.#via(), this.database, {
      workspaceId: first.workspaceId,
      key: first.key,
    })
    this.model = new MergeModel('main')
    this.#checkpoints = []
    this.#steps = []
    for (let count = 0; count < 2; count++) await this.#addTable(this.random.pick(this.branches()))
    for (let count = 0; count < 4; count++) await this.write()
    for (let count = 0; count < 3; count++) await this.fork()
  }

  async step(): Promise<void> {
    const { random } = this
    const action = random.weighted<() => Promise<unknown>>([
      [40, () => this.write()],
      [6, () => this.writeSet()],
      [5, () => this.upsert()],
      [9, () => this.fork()],
      [13, () => this.edit()],
      [5, () => this.remove()],
      [12, () => this.merge()],
      [9, () => this.pull()],
      [4, () => this.reset()],
      [5, () => this.revert()],
      [6, () => this.checkpoint()],
      [3, () => this.forkCheckpoint()],
      [3, () => this.resetToCheckpoint()],
      [3, () => this.deleteCheckpoint()],
      [8, () => this.collect()],
      [1, () => this.renew()],
      [2, () => this.renewKey()],
    ])
    await action()
    if (FOLDS_ALWAYS || random.chance(0.15)) await this.fold()
    for (const branch of this.branches()) await this.compare(branch)
    await this.compareDifference()
    await this.comparePast()
  }

  branches(): ModelBranch[] {
    return [...this.model.branches.values()]
  }

  note(text: string): void {
    this.log.push(`${this.database}: ${text}`)
  }

  #via(): TestService {
    return this.random.chance(0.5) ? first : second
  }

  /** Replaces the database by a new one of the same name. */
  async renew(): Promise<void> {
    this.note('delete the database')
    await control(this.#via(), 'DELETE', `/dbs/${this.database}`)
    await this.start()
  }

  /** Revokes the key of the requests and creates another one of the same name. */
  async renewKey(): Promise<void> {
    this.note('renew the key')
    const name = this.#keyName
    const old = this.#key
    if (old !== first.key) {
      expectOk(await this.#via().call('DELETE', `/user/keys/${name}`, { key: first.key }))
      for (const via of [first, second]) {
        const call = branchCall(first, this.database, { via })
        expect((await call('POST', '/transaction', { body: READ, key: old })).status).toBe(401)
      }
    }
    this.#key = await createKey(this.#via(), name, { key: first.key })
  }

  call(
    branch: Pick<ModelBranch, 'name'>,
    method: string,
    path: string,
    body?: unknown,
  ): Promise<Answer> {
    const call = branchCall(first, this.database, { branch: branch.name, via: this.#via() })
    return call(method, path, { key: this.#key, ...(body === undefined ? {} : { body }) })
  }

  /**
   * Applies a change to the model and to the service. The service must refuse it exactly when the
   * model does. If the status of success is given, the status of the answer is compared, too.
   */
  async both(
    change: () => void,
    request: () => Promise<Answer>,
    success?: number,
  ): Promise<Answer> {
    let refusal: Refusal | undefined
    try {
      change()
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      refusal = error
    }
    const answer = await request()
    const isRefused = answer.status >= 400 && answer.status < 500
    if (answer.status >= 500 || isRefused !== (refusal !== undefined)) {
      const wanted = refusal === undefined ? 'taken' : `refused: ${refusal.message}`
      throw new Error(`${answer.status} ${JSON.stringify(answer.body)}, should be ${wanted}`)
    }
    if (success === undefined) return answer
    const expected = refusal?.statuses ?? [success]
    expect(expected, JSON.stringify(answer.body)).toContain(answer.status)
    return answer
  }

  async fork(): Promise<void> {
    if (this.model.branches.size >= BRANCHES_MAX) return this.remove()
    const source = this.random.pick(this.branches())
    const name = this.random.pick(BRANCH_NAMES.filter((each) => !this.model.branches.has(each)))
    const data = this.random.chance(0.93)
    this.note(`fork ${source.name} ${name}${data ? '' : ' without rows'}`)
    expectOk(await this.call({ name }, 'PUT', '', { from: source.name, data }))
    this.model.fork(source, name, { data })
  }

  /** Picks a checkpoint of a branch that exists. */
  #pickCheckpoint() {
    this.#checkpoints = this.#checkpoints.filter(({ branch }) => this.model.isThere(branch))
    return this.#checkpoints.length === 0 ? undefined : this.random.pick(this.#checkpoints)
  }

  async checkpoint(): Promise<void> {
    const branch = this.random.pick(this.branches())
    const name = `c${this.#checkpointCount++}`
    this.note(`checkpoint ${branch.name} ${name}`)
    expectOk(await this.call(branch, 'POST', '/checkpoints', { name }))
    this.#checkpoints.push({ name, branch, pinned: this.model.pin(branch) })
  }

  async forkCheckpoint(): Promise<void> {
    const picked = this.#pickCheckpoint()
    if (picked === undefined || this.model.branches.size >= BRANCHES_MAX) return
    const { branch, name: at, pinned } = picked
    const name = this.random.pick(BRANCH_NAMES.filter((each) => !this.model.branches.has(each)))
    this.note(`fork ${branch.name} at ${at} ${name}`)
    expectOk(await this.call({ name }, 'PUT', '', { from: branch.name, at }))
    this.model.fork(pinned, name, { data: true, of: branch })
  }

  async resetToCheckpoint(): Promise<void> {
    const picked = this.#pickCheckpoint()
    if (picked === undefined) return
    const { branch: of, name: at, pinned } = picked
    const branch = this.random.chance(0.6) ? of : this.random.pick(this.branches())
    // In the end, `main` is expected to inherit from nothing.
    if (branch.name === 'main') return
    this.note(`reset ${branch.name} to ${of.name} at ${at}`)
    const body = { at, ...(branch === of ? {} : { to: of.name }) }
    expectOk(await this.call(branch, 'POST', '/reset', body))
    this.model.reset(branch, pinned)
  }

  async deleteCheckpoint(): Promise<void> {
    const picked = this.#pickCheckpoint()
    if (picked === undefined) return
    const { branch, name } = picked
    this.note(`delete checkpoint ${branch.name} ${name}`)
    expectOk(await this.call(branch, 'DELETE', `/checkpoints/${name}`))
    this.#checkpoints = this.#checkpoints.filter((each) => each !== picked)
    expect((await this.call(branch, 'GET', `?at=${name}`)).status).toBe(404)
  }

  /** Reads a checkpoint, and its difference from the present branch. */
  async comparePast(): Promise<void> {
    const picked = this.#pickCheckpoint()
    if (picked === undefined || !this.random.chance(0.5)) return
    const { branch, name, pinned } = picked
    for (const table of pinned.state.tables) {
      const path = `/tables/${table.name}/query?at=${name}`
      const body = { columns: ['*'], page: { size: IDS_COUNT } }
      const { records } = expectOk(await this.call(branch, 'POST', path, body)).body
      const found = new Map<string, unknown>()
      for (const { id, service, ...record } of records) {
        found.set(id, { ...record, version: service.version })
      }
      const wanted = new Map<string, unknown>()
      for (const [id, row] of table.rows) {
        wanted.set(id, { ...recordOf(row, table, table.columns), version: row.version })
      }
      expect(Object.fromEntries(found), `${branch.name} at ${name}`).toEqual(
        Object.fromEntries(wanted),
      )
    }
  }

  async remove(): Promise<void> {
    const others = this.branches().filter(({ name }) => name !== 'main')
    if (others.length === 0) return
    const branch = this.random.pick(others)
    this.note(`delete ${branch.name}`)
    expectOk(await this.call(branch, 'DELETE', ''))
    this.model.branches.delete(branch.name)
  }

  async collect(): Promise<void> {
    this.note('collect')
    await runBackground(this.#via())
  }

  async fold(): Promise<void> {
    const { database, random } = this
    const probability = FOLDS_ALWAYS ? 1 : 0.5
    const count = await foldBranches(first, { databaseName: database, random, probability })
    if (count > 0) this.note(`fold ${count}`)
  }

  async reset(): Promise<void> {
    const branch = this.random.pick(this.branches())
    const { source } = branch
    this.note(`reset ${branch.name} to ${source?.name}`)
    await this.both(
      () => {
        if (!this.model.isThere(source)) throw new Refusal('no source')
        this.model.reset(branch, source)
      },
      () => this.call(branch, 'POST', '/reset'),
    )
  }

  async merge(): Promise<void> {
    const { random } = this
    const from = random.pick(this.branches())
    const isDefault = random.chance(0.5)
    const into = isDefault ? from.source : this.#other(from)
    const wish = this.#wish(from, into)
    const body = { ...(isDefault ? {} : { into: into?.name }), ...wish, allowDataLoss: true }
    this.note(`merge ${from.name} into ${into?.name} ${JSON.stringify(body)}`)
    await this.#bringTogether({ from, into, wish, request: [from, '/merge', body] })
  }

  async pull(): Promise<void> {
    const { random } = this
    const into = random.pick(this.branches())
    const isDefault = random.chance(0.7)
    const from = isDefault ? into.source : this.#other(into)
    const wish = this.#wish(from, into)
    const body = { ...(isDefault ? {} : { from: from?.name }), ...wish, allowDataLoss: true }
    this.note(`pull ${from?.name} into ${into.name} ${JSON.stringify(body)}`)
    await this.#bringTogether({ from, into, wish, request: [into, '/pull', body] })
  }

  /** Picks another branch, and occasionally the same one. */
  #other(branch: ModelBranch): ModelBranch {
    const others = this.branches().filter((other) => other !== branch)
    return others.length === 0 || this.random.chance(0.03) ? branch : this.random.pick(others)
  }

  async #bringTogether(options: {
    from: ModelBranch | undefined
    into: ModelBranch | undefined
    wish: MergeWish
    request: readonly [ModelBranch, string, object]
  }): Promise<void> {
    const { from, into, wish, request } = options
    const [branch, path, body] = request
    const { model } = this
    if (!model.isThere(from) || !model.isThere(into) || from === into) {
      const answer = await this.call(branch, 'POST', path, body)
      expect(answer.status, JSON.stringify(answer.body)).toBe(from === into ? 400 : 409)
      return
    }
    if (model.haveSeveralBases(from, into) || model.needsNames(from, into)) return
    const isPreviewed = wish.only === undefined && this.random.chance(0.3)
    if (isPreviewed) await this.#preview(from, into, wish)
    const { state: before } = into
    const ruleOf = rules(from.state, into.state, wish)
    const entry = await this.#carryOut((decided) => model.merge(from, into, decided), {
      wish,
      ruleOf,
      request,
    })
    if (entry !== undefined) {
      this.#steps.push({ entry, branch: into, step: { before, after: into.state } })
    }
    if (isPreviewed && !model.haveSeveralBases(from, into)) {
      await this.#preview(from, into, withKnownTables(wish, [from, into]))
    }
  }

  /** Takes back what happened between two checkpoints, or by a merge, a bulk load or an edit. */
  async revert(): Promise<void> {
    const { random, model } = this
    const branch = random.pick(this.branches())
    const made = this.#checkpoints.filter((each) => each.branch === branch)
    const [from, to] = random.some(made, 0.6)
    const steps = this.#steps.filter((each) => each.branch === branch).slice(-STEPS_KEPT)
    const ofEntry = steps.length === 0 ? undefined : random.pick(steps)
    const isEntry = ofEntry !== undefined && (to === undefined || random.chance(0.5))
    if (!isEntry && (from === undefined || to === undefined)) return
    const step = isEntry
      ? stepOn(branch.state, ofEntry.step)
      : { before: from?.pinned.state ?? branch.state, after: to?.pinned.state ?? branch.state }
    if (step === 'unknown') return
    if (step === 'needed') {
      const body = { entry: ofEntry?.entry, allowDataLoss: true }
      const refused = await this.call(branch, 'POST', '/revert', body)
      expect(refused.body.code, JSON.stringify(refused.body)).toBe('not_revertible')
      return
    }
    const ours = withRestorable(branch.state, step)
    if (model.haveAddedSame({ ...branch, state: step.before }, { ...branch, state: ours })) return
    const named = isEntry ? { entry: ofEntry.entry } : { from: from?.name, to: to?.name }
    const wish = this.#wish({ ...branch, state: step.before }, branch)
    const body = { ...wish, ...named, allowDataLoss: true }
    this.note(`revert on ${branch.name} ${JSON.stringify(body)}`)
    if (isEntry) {
      const known = await this.call(branch, 'POST', '/revert', { ...body, dryRun: true })
      // The service keeps the states of the last changes only.
      if (known.body.code === 'state_collected') return
    }
    await this.#carryOut((decided) => model.revert(branch, step, decided), {
      wish,
      ruleOf: rules(step.before, ours, wish),
      request: [branch, '/revert', body],
    })
  }

  /** Compares a merge or a revert with the model, which carries it out. Returns its entry of the log. */
  async #carryOut(
    decide: (wish: MergeWish) => ReturnType<MergeModel['merge']>,
    {
      wish,
      ruleOf,
      request,
    }: {
      wish: MergeWish
      ruleOf: ReturnType<typeof rules>
      request: readonly [ModelBranch, string, object]
    },
  ): Promise<string | undefined> {
    const [branch, path, body] = request
    let outcome = decide(wish)
    if (outcome.kind === 'unknown') {
      this.note(outcome.kind)
      return undefined
    }
    let resolutions: readonly object[] = []
    if (outcome.kind === 'refused' && outcome.conflicts !== undefined && this.random.chance(0.7)) {
      const dryRun = () => this.call(branch, 'POST', path, { ...body, dryRun: true })
      const decided = await this.#resolve(outcome, ruleOf, dryRun)
      resolutions = decided.resolutions
      this.note(`resolve ${JSON.stringify(resolutions)}`)
      const { decisions, amendments } = decided
      outcome = decide({ ...wish, resolutions: decisions, amendments })
    }
    const answer = await this.call(branch, 'POST', path, { ...body, resolutions })
    this.note(outcome.kind === 'refused' ? `refused: ${outcome.why}` : outcome.kind)
    if (outcome.kind === 'merged') {
      if (answer.status !== 200) {
        throw new Error(`${answer.status} ${JSON.stringify(answer.body)}, should be merged`)
      }
      expectTallies(answer, outcome.tables)
    } else {
      const ofRecords = wish.only !== undefined && 'records' in wish.only
      const refusals = ofRecords ? ['merge_conflict', 'conflict'] : ['merge_conflict']
      const codes = {
        unrelated: ['unrelated_branches'],
        unneeded: ['invalid_resolution'],
        unknown: [],
      }
      const wanted = outcome.kind === 'refused' ? refusals : codes[outcome.kind]
      expect(wanted, JSON.stringify([answer.body, outcome])).toContain(answer.body.code)
    }
    return answer.body.entry
  }

  /** Compares previews of merges in both directions, by both requests, with the model. */
  async #preview(one: ModelBranch, other: ModelBranch, wish: MergeWish): Promise<void> {
    for (const [from, into] of [
      [one, other],
      [other, one],
    ] as const) {
      const outcome = this.model.outcome(from, into, wish)
      const body = { ...wish, allowDataLoss: true, dryRun: true }
      const answers = [
        await this.call(from, 'POST', '/merge', { ...body, into: into.name }),
        await this.call(into, 'POST', '/pull', { ...body, from: from.name }),
      ]
      for (const answer of answers) {
        const said = `preview of ${from.name} into ${into.name}: ${JSON.stringify(answer.body)}`
        if (outcome.kind === 'unknown') continue
        if (outcome.kind === 'unrelated') {
          expect(answer.body.code, said).toBe('unrelated_branches')
          continue
        }
        expect(answer.status, said).toBe(200)
        const wanted = outcome.kind === 'refused' ? countOf(outcome) : '0'
        expect(String(answer.body.conflictCount), `${said} ${JSON.stringify(outcome)}`).toEqual(
          wanted,
        )
        if (outcome.kind === 'merged') expectTallies(answer, outcome.tables)
      }
    }
    for (const branch of [one, other]) await this.compare(branch)
  }

  /** Gives values to some of the records that would break rules. */
  #settleBreaches(
    breaches: readonly Breach[],
    listed: readonly ListedBreach[],
    taken: ReadonlySet<string>,
  ): { resolutions: object[]; amendments: Amendment[] } {
    const { random } = this
    const given = new Map<string, { named: object; columns: Record<string, object> }>()
    const amendments: Amendment[] = []
    for (const breach of breaches) {
      const { table, columns, ids } = breach
      const text = textOf(breach)
      const found = listed.find((each) => listedText(each) === text)
      for (const id of ids.slice(0, IDS_LISTED)) {
        const key = recordKey(table, id)
        // A record in conflict has one resolution, which is about its conflict.
        if (taken.has(key) || !random.chance(0.6)) continue
        const column = random.pick(columns)
        const cells = given.get(key) ?? {
          named: { table: table.name, id, token: found?.tokens[id] },
          columns: {},
        }
        if (cells.columns[column.name] !== undefined) continue
        const { [column.name]: value = null } = this.#newValues({ ...table, columns: [column] }, 1)
        cells.columns[column.name] = { value }
        given.set(key, cells)
        amendments.push({ table: table.uid, id, column: column.uid, value })
      }
    }
    const resolutions = [...given.values()].map(({ named, columns }) => ({ ...named, columns }))
    return { resolutions, amendments }
  }

  /** Compares the conflicts of records and rules with those of the service, and decides them at random. */
  async #resolve(
    { conflicts = [], breaches = [] }: Partial<Conflicts>,
    ruleOf: ReturnType<typeof rules>,
    dryRun: () => Promise<Answer>,
  ): Promise<{
    resolutions: object[]
    decisions: Map<string, RecordDecision>
    amendments: Amendment[]
  }> {
    const { random } = this
    const { body } = expectOk(await dryRun())
    const broken: ListedBreach[] = body.conflicts.filter(
      ({ ids }: object & { ids?: unknown }) => ids,
    )
    expect(broken.map(listedText).sort()).toEqual(breaches.map(textOf).sort())
    const keyOf = (table: string, id: string) => `${table} ${id}`
    const listed = new Map<string, { token: string; columns?: Record<string, object> }>(
      body.conflicts.flatMap((conflict: { table: string; id?: string }) =>
        conflict.id === undefined ? [] : [[keyOf(conflict.table, conflict.id), conflict]],
      ),
    )
    expect(
      [...listed].map(([key, { columns = {} }]) => [key, Object.keys(columns).sort()]).sort(),
    ).toEqual(
      conflicts
        .map(({ table, id, columns }) => [
          keyOf(table.name, id),
          columns.map(({ name }) => name).sort(),
        ])
        .sort(),
    )
    const taken = new Set(conflicts.map(({ table, id }) => recordKey(table, id)))
    // Records of a table that is left out get no values. They may link to records that the merge deletes.
    const settled = breaches.filter(({ table }) => ruleOf(table.uid).mode !== 'skip')
    const { resolutions, amendments } = this.#settleBreaches(settled, broken, taken)
    const decisions = new Map<string, RecordDecision>()
    for (const { table, id, columns } of conflicts) {
      // A conflict that nothing decides still refuses the merge.
      if (random.chance(0.03)) continue
      const token = listed.get(keyOf(table.name, id))?.token
      const named = { table: table.name, id, token }
      const take = random.pick(['ours', 'theirs'] as const)
      if (columns.length === 0 || random.chance(0.4)) {
        resolutions.push({ ...named, take })
        decisions.set(recordKey(table, id), take)
        continue
      }
      const decided = columns.map((column) => {
        const isGiven = random.chance(0.5)
        const { [column.name]: value = null } = this.#newValues({ ...table, columns: [column] }, 1)
        return [
          column,
          isGiven ? { value } : { take: random.pick(['ours', 'theirs'] as const) },
        ] as const
      })
      resolutions.push({
        ...named,
        columns: Object.fromEntries(decided.map(([column, cell]) => [column.name, cell])),
      })
      decisions.set(
        recordKey(table, id),
        new Map(decided.map(([{ uid }, cell]) => [uid, cell.take ?? { value: cell.value }])),
      )
    }
    return { resolutions, decisions, amendments }
  }

  #wish(from: ModelBranch | undefined, into: ModelBranch | undefined): MergeWish {
    const { random } = this
    const strategy = random.weighted<Strategy>([
      [5, 'fail'],
      [2, 'ours'],
      [4, 'theirs'],
    ])
    const both = [from, into].flatMap((branch) => branch?.state.tables ?? [])
    const names = both.map(({ name }) => name)
    const chosen = random.chance(0.25) ? random.some([...new Set(names)], 0.3) : []
    const tables = chosen.map((name): [string, Rule] => [
      name,
      random.pick([
        { mode: 'skip' },
        { mode: 'schema' },
        { strategy: 'ours' },
        { strategy: 'theirs' },
      ]),
    ])
    return { strategy, tables: Object.fromEntries(tables), ...this.#only(both, chosen) }
  }

  /** Occasionally picks a part of a difference. It must name the tables that have rules. */
  #only(tables: readonly ModelTable[], ruled: readonly string[]): Pick<MergeWish, 'only'> {
    const { random } = this
    if (tables.length === 0 || !random.chance(0.3)) return {}
    const first = random.pick(tables)
    const named = tables.filter(({ name }) => ruled.includes(name))
    const some = [first, ...random.some(tables, 0.3), ...named]
    if (random.chance(0.5)) return { only: { tables: [...new Set(some.map(({ name }) => name))] } }
    const records = some.map((table) => ({ table: table.name, id: random.pick(idsOf(table)) }))
    const more = random.some(idsOf(first), 0.5).map((id) => ({ table: first.name, id }))
    return { only: { records: [...records, ...more] } }
  }

  async edit(): Promise<void> {
    const { random } = this
    const branch = random.pick(this.branches())
    const { tables } = branch.state
    const table = tables.length === 0 ? undefined : random.pick(tables)
    const kind = random.weighted([
      [tables.length < 2 ? 10 : 2, 'addTable'],
      [2, 'removeTable'],
      [2, 'renameTable'],
      [7, 'addColumn'],
      [3, 'removeColumn'],
      [4, 'renameColumn'],
      [6, 'resizeColumn'],
      [6, 'addConstraint'],
      [2, 'removeConstraint'],
    ] as const)
    const column =
      table === undefined || table.columns.length === 0 ? undefined : random.pick(table.columns)
    if (kind === 'addTable') return this.#addTable(branch)
    if (table === undefined) return
    if (kind === 'addColumn') return this.#addColumn(branch, table)
    if (kind === 'removeTable') return this.#removeTable(branch, table)
    if (kind === 'addConstraint') return this.#addConstraint(branch, table)
    if (kind === 'removeConstraint') return this.#removeConstraint(branch, table)
    if (kind === 'renameTable') {
      const newName = random.pick(TABLE_NAMES)
      const operation = { renameTable: { oldName: table.name, newName } }
      return this.#edit(branch, [operation], (state) => {
        requireFree(state.tables, newName, table.uid)
        return replaceTable(state, { ...table, name: newName })
      })
    }
    if (kind === 'resizeColumn') return this.#resizeColumn(branch, table)
    if (column === undefined) return
    const rest = table.columns.filter(({ uid }) => uid !== column.uid)
    if (kind === 'removeColumn') {
      const operation = { removeColumn: { table: table.name, column: column.name } }
      return this.#edit(branch, [operation], (state) => {
        if (table.constraints.some(({ columns }) => columns.includes(column.uid))) {
          throw new Refusal('is used by a constraint')
        }
        return {
          tables: replaceTable(state, { ...table, columns: rest }).tables,
          removed: new Set([...state.removed, column.uid]),
        }
      })
    }
    const newName = random.pick(COLUMN_NAMES)
    const operation = {
      renameColumn: { table: table.name, oldName: column.name, newName },
    }
    return this.#edit(branch, [operation], (state) => {
      requireFree(table.columns, newName, column.uid)
      const columns = table.columns.map((other) =>
        other.uid === column.uid ? { ...other, name: newName } : other,
      )
      return replaceTable(state, { ...table, columns })
    })
  }

  /** Changes the size of a column. Its values must have the new one. */
  async #resizeColumn(branch: ModelBranch, table: ModelTable): Promise<void> {
    const { random } = this
    const sizable = table.columns.filter(
      ({ definition: { type, defaultValue } }) =>
        (type === 'int' || type === 'string') && defaultValue === undefined,
    )
    if (sizable.length === 0) return
    const column = random.pick(sizable)
    const { bits: _, maxLength: __, ...rest } = column.definition
    const bits = random.pick([16, 32, null] as const)
    const maxLength = random.pick([1, 4, null] as const)
    const size = rest.type === 'int' ? { bits } : { maxLength }
    const definition = {
      ...rest,
      ...(rest.type === 'int' && bits && { bits }),
      ...(rest.type === 'string' && maxLength && { maxLength }),
    }
    const operation = { alterColumn: { table: table.name, column: column.name, ...size } }
    await this.#edit(branch, [operation], (state) => {
      const columns = table.columns.map((each) =>
        each.uid === column.uid ? { ...each, definition } : each,
      )
      const edited = { ...table, columns }
      if (brokenRules(edited).length > 0) throw new Refusal('values do not fit')
      return replaceTable(state, edited)
    })
  }

  async #addTable(branch: ModelBranch): Promise<void> {
    const { random, model } = this
    if (branch.state.tables.length >= TABLES_MAX) return
    const name = random.pick(TABLE_NAMES)
    const columns = random
      .some(COLUMN_NAMES, 0.4)
      .slice(0, 4)
      .map((columnName) => this.#newColumn(branch, columnName))
    const uid = model.nextUid()
    const idType = random.weighted<IdType>([
      [3, 'string'],
      [2, 'int'],
      [1, 'uuid'],
    ])
    this.#idTypes.set(uid, idType)
    const plain = { uid, name, idType, columns, constraints: [], rows: new Map() }
    const constraints = random.chance(0.5) ? this.#newConstraint(plain) : []
    const table: ModelTable = { ...plain, constraints }
    const operations = [
      { addTable: { table: name, idType } },
      ...columns.map((column) => ({
        addColumn: { table: name, column: toColumn(branch.state, column) },
      })),
      ...constraints.map((each) => addConstraint(table, each)),
    ]
    await this.#edit(branch, operations, (state) => {
      requireFree(state.tables, name)
      return { ...state, tables: [...state.tables, table] }
    })
  }

  async #removeTable(branch: ModelBranch, table: ModelTable): Promise<void> {
    const operation = { removeTable: { table: table.name } }
    await this.#edit(branch, [operation], (state) => {
      const tables = state.tables.filter(({ uid }) => uid !== table.uid)
      if (tables.some(({ columns }) => columns.some(({ link }) => link === table.uid))) {
        throw new Refusal('is linked')
      }
      return { tables, removed: new Set([...state.removed, table.uid]) }
    })
  }

  async #addColumn(branch: ModelBranch, table: ModelTable): Promise<void> {
    const { random } = this
    if (table.columns.length >= COLUMNS_MAX) return
    const column = this.#newColumn(branch, random.pick(COLUMN_NAMES), { isLate: true })
    const { notNull, defaultValue } = column.definition
    const operation = {
      addColumn: { table: table.name, column: toColumn(branch.state, column) },
    }
    await this.#edit(branch, [operation], (state) => {
      requireFree(table.columns, column.name)
      if (notNull && defaultValue === undefined && table.rows.size > 0) {
        throw new Refusal('records would have no value')
      }
      const rows = [...table.rows].map(([id, row]): [string, ModelRow] => {
        if (column.fill === undefined) return [id, row]
        return [id, { ...row, values: new Map([...row.values, [column.uid, column.fill]]) }]
      })
      const columns = [...table.columns, column]
      return replaceTable(state, { ...table, columns, rows: new Map(rows) })
    })
  }

  async #addConstraint(branch: ModelBranch, table: ModelTable): Promise<void> {
    const [constraint] = this.#newConstraint(table)
    if (constraint === undefined || table.constraints.length >= CONSTRAINTS_MAX) return
    await this.#edit(branch, [addConstraint(table, constraint)], (state) => {
      if (table.constraints.some(({ name }) => name === constraint.name)) {
        throw new Refusal('is taken')
      }
      const edited = { ...table, constraints: [...table.constraints, constraint] }
      if (brokenRules(edited).length > 0) throw new Refusal('records violate it')
      return replaceTable(state, edited)
    })
  }

  async #removeConstraint(branch: ModelBranch, table: ModelTable): Promise<void> {
    if (table.constraints.length === 0) return
    const { name } = this.random.pick(table.constraints)
    const operation = { removeConstraint: { table: table.name, constraint: name } }
    const constraints = table.constraints.filter((each) => each.name !== name)
    await this.#edit(branch, [operation], (state) => replaceTable(state, { ...table, constraints }))
  }

  /** Returns a constraint, or none if the table has no columns for it. */
  #newConstraint({ columns }: Pick<ModelTable, 'columns'>): ModelConstraint[] {
    const { random } = this
    const rule = random.weighted<ModelConstraint['rule']>([
      [5, 'unique'],
      [3, 'notBoth'],
      [2, 'either'],
      [3, 'notNegative'],
    ])
    const types = rule === 'unique' ? COMPARABLE : NUMBERS
    const isAny = rule === 'notBoth' || rule === 'either'
    const fit = columns.filter(({ definition }) => isAny || types.has(definition.type))
    const count = rule === 'notNegative' ? 1 : 2
    if (fit.length < count) return []
    const chosen = [random.pick(fit)]
    if (count === 2) chosen.push(random.pick(fit.filter((column) => column !== chosen[0])))
    return [{ name: random.pick(CONSTRAINT_NAMES), rule, columns: chosen.map(({ uid }) => uid) }]
  }

  #newColumn(branch: ModelBranch, name: string, options: { isLate?: boolean } = {}): ModelColumn {
    const { random, model } = this
    const uid = model.nextUid()
    const { tables } = branch.state
    if (tables.length > 0 && random.chance(0.25)) {
      const onDelete = random.pick(['none', 'restrict', 'setNull', 'cascade'] as const)
      const link = random.pick(tables).uid
      const definition = { type: 'link' } as const
      return { uid, name, definition, link, ...(onDelete !== 'none' && { onDelete }) }
    }
    if (options.isLate && random.chance(0.1)) {
      return { uid, name, definition: { type: 'string', notNull: true } }
    }
    const definition = random.pick(DEFINITIONS)
    const { notNull, defaultValue } = definition
    // Only a column added to an existing table has records to fill.
    if (!options.isLate || !notNull || defaultValue === undefined) return { uid, name, definition }
    return { uid, name, definition, fill: DEFAULTS.get(defaultValue) }
  }

  async #edit(
    branch: ModelBranch,
    operations: readonly SchemaOperation[],
    change: (state: State) => State,
  ): Promise<void> {
    this.note(`edit ${branch.name} ${JSON.stringify(operations)}`)
    const { state: before } = branch
    const { body } = await this.both(
      () => {
        branch.state = change(branch.state)
      },
      () =>
        this.call(branch, 'POST', '/schema/apply', { edits: { operations }, allowDataLoss: true }),
    )
    const { state: after } = branch
    const isAdding = operations.some((each) => 'addTable' in each || 'addColumn' in each)
    const isKnown = !operations.some((each) => 'addConstraint' in each)
    if (body.entry === undefined || !(isAdding || isKnown)) return
    const step = isAdding ? { added: listAdded(before, after) } : { before, after }
    this.#steps.push({ entry: body.entry, branch, step })
  }

  async write(): Promise<void> {
    const { random } = this
    const candidates = this.branches().filter(({ state }) => state.tables.length > 0)
    if (candidates.length === 0) return this.edit()
    const branch = random.pick(candidates)
    const kind = random.weighted([
      [5, 'one'],
      [2, 'bulk'],
      [1, 'increment'],
      [4, 'transaction'],
    ] as const)
    if (kind === 'bulk') return this.#bulk(branch)
    if (kind === 'increment') return this.#increment(branch)
    const count = kind === 'one' ? 1 : 1 + random.below(6)
    this.#isUnfit = kind === 'transaction' && random.chance(0.15)
    const writes = Array.from({ length: count }, () => this.#newWrite(branch.state))
    this.#isUnfit = false
    this.note(`write ${branch.name} ${JSON.stringify(writes)}`)
    const [only] = writes
    const change = () => {
      branch.state = applyWrites(branch.state, writes)
    }
    if (kind === 'one' && only !== undefined) {
      await this.#writeOne(branch, only, change)
      return
    }
    const operations = writes.map(toOperation)
    await this.both(change, () => this.call(branch, 'POST', '/transaction', { operations }))
  }

  async #writeOne(branch: ModelBranch, write: Write, change: () => void): Promise<void> {
    const { kind, table: name, id } = write
    const table = branch.state.tables.find((each) => each.name === name)
    const isThere = table?.rows.has(id) ?? false
    const path = `/tables/${name}/data/${id}`
    if (kind === 'delete') {
      // This route answers 404 for a missing record. In a transaction and in the model, the deletion is a no-op.
      if (!isThere) expect((await this.call(branch, 'DELETE', path)).status).toBe(404)
      else await this.both(change, () => this.call(branch, 'DELETE', path), 204)
      return
    }
    let query = ''
    if (kind === 'update' && isThere && this.random.chance(0.4)) {
      const { version } = expectOk(await this.call(branch, 'GET', path)).body.service
      const other = version > 0 && this.random.chance(0.5) ? version - 1 : version + 1
      const answer = await this.call(branch, 'PATCH', `${path}?ifVersion=${other}`, {})
      expect(answer.status, `version ${other} of ${id}`).toBe(422)
      query = `?ifVersion=${version}`
    }
    const success = isThere || kind === 'update' ? 200 : 201
    await this.both(change, () => this.#request(branch, write, query), success)
  }

  async #increment(branch: ModelBranch): Promise<void> {
    const { random } = this
    const table = random.pick(branch.state.tables)
    const numbers = table.columns.filter(({ definition }) => definition.type === 'int')
    if (numbers.length === 0) return
    const column = random.pick(numbers)
    const id = random.pick([...table.rows.keys(), random.pick(idsOf(table))])
    this.note(`increment ${table.name}.${column.name} of ${id} on ${branch.name}`)
    await this.both(
      () => {
        const row = table.rows.get(id)
        if (row === undefined) throw new Refusal('is not there', [404])
        const before = readValue(row, table, column)
        if (before === null) throw new Refusal('has no value')
        const values = { [column.name]: Number(before) - 1 }
        const write: Write = { kind: 'update', table: table.name, id, values }
        branch.state = applyWrites(branch.state, [write])
      },
      () =>
        this.call(branch, 'PATCH', `/tables/${table.name}/data/${id}`, {
          [column.name]: { $increment: -1 },
        }),
      200,
    )
  }

  async #bulk(branch: ModelBranch): Promise<void> {
    const { random } = this
    const table = random.pick(branch.state.tables)
    const isRefused = random.chance(0.05)
    const ids = random.some(idsOf(table).filter((id) => isRefused || !table.rows.has(id)))
    if (ids.length === 0) return
    const writes = ids.map(
      (id): Write => ({
        kind: 'create',
        table: table.name,
        id,
        values: this.#newValues(table, 0.7),
      }),
    )
    this.note(`bulk ${branch.name} ${JSON.stringify(writes)}`)
    const records = writes.map(({ id, values }) => ({ id, ...values }))
    const { state: before } = branch
    await this.both(
      () => {
        branch.state = applyWrites(branch.state, writes)
      },
      () => this.call(branch, 'POST', `/tables/${table.name}/bulk`, { records }),
    )
    if (branch.state === before) return
    const log = expectOk(await this.call(branch, 'GET', '/log?kind=bulk&size=1')).body
    const { uid } = table
    const rows = branch.state.tables.find((each) => each.uid === uid)?.rows ?? new Map()
    const loaded = new Map([...rows].filter(([id]) => ids.includes(id)))
    this.#steps.push({ entry: log.entries[0].id, branch, step: { uid, loaded } })
  }

  /** Upserts some records, by id or by a unique column. A record that is refused does not affect the others. */
  async upsert(): Promise<void> {
    const { random } = this
    const candidates = this.branches().filter(({ state }) => state.tables.length > 0)
    if (candidates.length === 0) return this.edit()
    const branch = random.pick(candidates)
    const table = random.pick(branch.state.tables)
    // An upsert checks links of a few records at a time, which may link to each other.
    if (table.columns.some(({ link, onDelete }) => onDelete && link === table.uid)) return
    const unique = table.columns.filter(({ definition }) => definition.unique)
    const key = unique.length > 0 && random.chance(0.5) ? random.pick(unique) : undefined
    const by = key?.name ?? 'id'
    const records = Array.from({ length: 1 + random.below(6) }, () => {
      const values = this.#newValues(table, 0.5)
      if (key === undefined || random.chance(0.3))
        return { id: random.pick(idsOf(table)), ...values }
      const given = this.#valuesOf(key)
      return { id: random.pick(idsOf(table)), ...values, [by]: random.pick(given) }
    })
    this.note(`${branch.name}: upsert ${table.name} by ${by} ${JSON.stringify(records)}`)
    const body = { records, by }
    const answer = expectOk(await this.call(branch, 'POST', `/tables/${table.name}/upsert`, body))
    const { results } = answer.body as { results: { id: string; outcome: string }[] }
    const isTaken = results.map(({ outcome }) => outcome !== 'failed')
    const wanted = this.#upsertAll(branch, { table: table.name, by, records }, isTaken)
    expect(
      results.map(({ id, outcome }) => [id, outcome]),
      JSON.stringify(answer.body),
    ).toEqual(wanted)
  }

  /**
   * Upserts records in the model. Returns their ids and the outcomes. Each record is written by itself, unless one is refused
   * because of a unique value that a later one may give up. Then those that the service has taken are written together: all that
   * can be written by themselves, and others only if no rule is broken in the end.
   */
  #upsertAll(
    branch: ModelBranch,
    { records, ...options }: { table: string; by: string; records: Record<string, Value>[] },
    isTaken: readonly boolean[],
  ): [unknown, string][] {
    const { state: before } = branch
    let isContested = false
    /** The records that were refused for nothing but values that are taken. */
    const waiting = new Set<number>()
    const each = records.map((record, index) => {
      const later = records.slice(index + 1).map(({ id }) => id)
      const isHeld = ({ kind, constraint, ids }: Breach, given: string) =>
        kind === 'notUnique' &&
        (constraint !== undefined || ids.some((id) => id !== given && later.includes(id)))
      const apply = (state: State, write: Write) => {
        const breaches = breachesOf(applyWrite(state, write))
        isContested ||= breaches.some((own) => isHeld(own, write.id))
        if (breaches.every(({ kind }) => kind === 'notUnique')) waiting.add(index)
        return applyWrites(state, [write])
      }
      return this.#upsertOne(branch, { ...options, record, apply })
    })
    if (!isContested) return each
    // A link that must exist is not looked at in the end, but with its record.
    const apply = (state: State, write: Write) => settleLinks(applyWrite(state, write), new Set())
    const together = (isMeant: (index: number) => boolean) => {
      branch.state = before
      const outcomes = records.map((record, index): [unknown, string] =>
        isMeant(index)
          ? this.#upsertOne(branch, { ...options, record, apply })
          : [String(record.id), 'failed'],
      )
      return { outcomes, isKept: breachesOf(branch.state).length === 0 }
    }
    const isAlone = (index: number) => each[index]?.[1] !== 'failed'
    const most = together((index) => isAlone(index) || waiting.has(index))
    if (most.isKept) return most.outcomes
    const taken = together((index) => isTaken[index] === true)
    expect(taken.isKept, 'no rule is broken in the end').toBe(true)
    expect(
      each.filter((_, index) => isAlone(index) && !isTaken[index]),
      'records that can be written by themselves and were refused',
    ).toEqual([])
    return taken.outcomes
  }

  /** Upserts a record in the model. Returns its id and the outcome. */
  #upsertOne(
    branch: ModelBranch,
    {
      table: name,
      by,
      record,
      apply,
    }: {
      table: string
      by: string
      record: Record<string, Value>
      apply(state: State, write: Write): State
    },
  ): [unknown, string] {
    const table = branch.state.tables.find((candidate) => candidate.name === name)
    if (table === undefined) throw new Error('an upsert must be to a table that is there')
    const { id: givenId, ...values } = record
    const column = table.columns.find((candidate) => candidate.name === by)
    const given = String(givenId)
    const found =
      column === undefined
        ? given
        : [...table.rows].find(([, row]) => readValue(row, table, column) === values[by])?.[0]
    const isKeyed = column === undefined || (values[by] ?? null) !== null
    if (!isKeyed || (found !== undefined && found !== given)) return [given, 'failed']
    if (found === undefined && table.rows.has(given)) return [given, 'failed']
    const before = table.rows.get(given)
    const isSame = (each: ModelColumn) =>
      before !== undefined &&
      (values[each.name] === undefined ||
        JSON.stringify(readValue(before, table, each) ?? null) ===
          JSON.stringify(values[each.name] ?? null))
    if (before !== undefined && table.columns.every(isSame)) return [given, 'unchanged']
    try {
      const write = { kind: 'upsert' as const, table: name, id: given, values }
      branch.state = apply(branch.state, write)
      return [given, before === undefined ? 'inserted' : 'updated']
    } catch (error) {
      if (error instanceof Refusal) return [given, 'failed']
      throw error
    }
  }

  /** Updates or deletes the records that meet a filter. */
  async writeSet(): Promise<void> {
    const { random } = this
    const candidates = this.branches().filter(({ state }) => state.tables.length > 0)
    if (candidates.length === 0) return this.edit()
    const branch = random.pick(candidates)
    const table = random.pick(branch.state.tables)
    const { set, isMet } = this.#newSet(table)
    const deletes = random.chance(0.3)
    const values = deletes ? {} : this.#newValues(table, 0.4)
    const dryRun = random.chance(0.1)
    const body = { ...set, ...(deletes ? {} : { set: values }), dryRun }
    this.note(
      `${branch.name}: ${deletes ? 'delete' : 'update'} ${table.name} ${JSON.stringify(body)}`,
    )
    const kind = deletes ? 'delete' : 'update'
    const found = [...table.rows].filter(([, row]) => isMet(row)).map(([id]) => id)
    let answer: Answer | undefined
    const before = branch.state
    let after: State | undefined
    await this.both(
      () => {
        if (!deletes && Object.keys(values).length === 0) throw new Refusal('sets nothing')
        const writes = found.map((id): Write => ({ kind, table: table.name, id, values }))
        // A dry run is refused like the request itself.
        after = applyWrites(before, writes)
        if (!dryRun) branch.state = after
      },
      async () => {
        answer = await this.call(
          branch,
          deletes ? 'DELETE' : 'PATCH',
          `/tables/${table.name}/data`,
          body,
        )
        return answer
      },
    )
    if (after === undefined) return
    const { linked = {}, ...counts } = answer?.body ?? {}
    expect(counts).toEqual({ [`${kind}d`]: found.length })
    const effects = deletes ? effectsOnLinks({ before, after, table, found }) : []
    expect(Object.keys(linked).sort()).toEqual(effects.map(({ name }) => name).sort())
    for (const { name, deleted, cleared } of effects) {
      const told = { deleted: 0, cleared: 0, ...linked[name] }
      expect(told.deleted, name).toBe(deleted)
      // A link can be cleared in a record that is then deleted because of another link.
      expect(told.cleared, name).toBeGreaterThanOrEqual(cleared.least)
      expect(told.cleared, name).toBeLessThanOrEqual(cleared.most)
    }
  }

  /** Returns a set of records of a table, and the condition of the model for it. */
  #newSet(table: ModelTable): { set: object; isMet(row: ModelRow): boolean } {
    const { random } = this
    if (table.columns.length === 0 || random.chance(0.1)) {
      return { set: { all: true }, isMet: () => true }
    }
    const column = random.pick(table.columns)
    const { name, definition } = column
    const valueIn = (row: ModelRow) => readValue(row, table, column) ?? null
    const candidates = COMPARABLE.has(definition.type) ? this.#valuesOf(column) : []
    if (candidates.length === 0 || random.chance(0.3)) {
      return random.chance(0.7)
        ? { set: { filter: { $exists: name } }, isMet: (row) => valueIn(row) !== null }
        : { set: { filter: { $notExists: name } }, isMet: (row) => valueIn(row) === null }
    }
    const listed = random.some(candidates, 0.5)
    return {
      set: { filter: { [name]: { $any: listed } } },
      isMet: (row) => listed.includes(valueIn(row)),
    }
  }

  #newWrite(state: State): Write {
    const { random } = this
    const table = random.pick(state.tables)
    const ids = [...table.rows.keys()]
    const kind = random.weighted<Write['kind']>([
      [4, 'create'],
      [5, 'update'],
      [3, 'replace'],
      [3, 'delete'],
      [1, 'upsert'],
    ])
    const isKnown = kind === 'create' ? random.chance(0.05) : random.chance(0.95)
    const known = ids.length > 0 && isKnown ? random.pick(ids) : random.pick(idsOf(table))
    const share = kind === 'update' || kind === 'upsert' ? 0.4 : 0.7
    const values = kind === 'delete' ? {} : this.#newValues(table, share)
    return { kind, table: table.name, id: known, values }
  }

  /** Whether values of the present write need not have the size of their columns. */
  #isUnfit = false

  /** Returns the values that the records of the test have in a column. */
  #valuesOf(column: ModelColumn): readonly Value[] {
    const { definition, link } = column
    if (link === undefined) {
      const values = VALUES[definition.type] ?? []
      return values.filter((value) => this.#isUnfit || fits(column, value))
    }
    return IDS[this.#idTypes.get(link) ?? 'string'].slice(0, LINKED_COUNT)
  }

  #newValues(table: ModelTable, share: number): Record<string, Value> {
    const { random } = this
    const columns = table.columns.filter(
      ({ definition }) =>
        random.chance(share) || (definition.notNull && definition.defaultValue === undefined),
    )
    return Object.fromEntries(
      columns.map((column) => [
        column.name,
        column.definition.notNull || random.chance(0.85)
          ? random.pick(this.#valuesOf(column))
          : null,
      ]),
    )
  }

  #request(
    branch: ModelBranch,
    { kind, table, id, values }: Write,
    query: string,
  ): Promise<Answer> {
    const path = `/tables/${table}/data/${id}`
    switch (kind) {
      case 'create':
        return this.call(branch, 'PUT', `${path}?createOnly=true`, values)
      case 'replace':
        return this.call(branch, 'PUT', path, values)
      case 'update':
        return this.call(branch, 'PATCH', `${path}${query}`, values)
      case 'upsert':
        return this.call(branch, 'POST', path, values)
      case 'delete':
        return this.call(branch, 'DELETE', path)
    }
  }

  /** Compares the records and the schema of a branch with the model. */
  async compare(branch: ModelBranch): Promise<void> {
    const { tables } = branch.state
    const operations = tables.flatMap((table) =>
      idsOf(table).map((id) => ({ get: { table: table.name, id, columns: ['*'] } })),
    )
    const wanted: Record<string, unknown> = {}
    for (const table of tables) {
      for (const [id, row] of table.rows) {
        const { version } = row
        wanted[`${table.name} ${id}`] = { ...recordOf(row, table, table.columns), version }
      }
    }
    const found: Record<string, unknown> = {}
    if (operations.length > 0) {
      const answer = expectOk(await this.call(branch, 'POST', '/transaction', { operations }))
      for (const [index, { columns }] of answer.body.results.entries()) {
        if (columns.id === undefined) continue
        const { id, service, ...record } = columns
        const key = `${operations[index]?.get.table} ${id}`
        found[key] = { ...record, version: service.version }
      }
    }
    expect(found, `branch ${branch.name}`).toEqual(wanted)
    if (!this.random.chance(0.2)) return
    const { body } = expectOk(await this.call(branch, 'GET', ''))
    const columnsOf = (columns: readonly Column[]) =>
      columns.map(({ name, type }) => `${name} ${type}`).sort()
    const shapes = body.schema.tables.map((table: { name: string; columns: Column[] }) => [
      table.name,
      columnsOf(table.columns),
    ])
    expect(Object.fromEntries(shapes)).toEqual(
      Object.fromEntries(
        tables.map(({ name, columns }) => [
          name,
          columnsOf(columns.map((column) => toColumn(branch.state, column))),
        ]),
      ),
    )
  }

  async compareDifference(): Promise<void> {
    const { random, model } = this
    const branch = random.pick(this.branches())
    const against = random.pick(['fork', 'source', random.pick(this.branches()).name])
    const other = against === 'source' ? branch.source : model.branches.get(against)
    const answer = await this.call(branch, 'GET', `/diff?size=1000&against=${against}`)
    if (against === 'fork' || against === 'source') {
      if (branch.source === undefined || (against === 'source' && !model.isThere(other))) {
        expect(answer.body.code).toBe('no_source')
        return
      }
    }
    if (against !== 'fork' && other !== undefined && !model.areRelated(branch, other)) {
      expect(answer.body.code).toBe('unrelated_branches')
      return
    }
    expect(answer.status, JSON.stringify(answer.body)).toBe(200)
    const before =
      against === 'fork' || other === undefined ? branch.start : readBy(branch.state, other.state)
    const found = new Map<string, { changes: readonly Change[] }>(
      answer.body.tables.map((table: { name: string }) => [table.name, table]),
    )
    for (const table of branch.state.tables) {
      const changes = changesOf(before, table)
      const kinds = changes.map(({ change }) => change)
      const countOf = (kind: Change['change']) => kinds.filter((own) => own === kind).length
      const { changes: listed = [], ...rest } = found.get(table.name) ?? {}
      expect(listed, `difference of ${branch.name} and ${against}: ${table.name}`).toEqual(changes)
      if (found.has(table.name)) {
        expect(rest).toMatchObject({
          inserted: countOf('inserted'),
          updated: countOf('updated'),
          deleted: countOf('deleted'),
        })
      }
    }
  }
}

function idsOf({ idType }: Pick<ModelTable, 'idType'>): readonly string[] {
  return IDS[idType]
}

/** The conflicts of records and of rules. */
interface Conflicts {
  readonly conflicts: readonly ModelConflict[]
  readonly breaches: readonly Breach[]
}

/** Records that would break a rule, as the service lists them. */
interface ListedBreach {
  readonly kind: string
  readonly table: string
  readonly column: string
  readonly constraint?: string
  readonly ids: readonly string[]
  readonly tokens: Readonly<Record<string, string>>
}

/** The service lists so many records of a breach. */
const IDS_LISTED = 10

function listedText({ kind, table, column, constraint, ids }: ListedBreach): string {
  return JSON.stringify([kind, table, constraint ?? column, ids])
}

function textOf({ kind, table, columns, constraint, ids }: Breach): string {
  const rule = constraint ?? columns[0]?.name
  return JSON.stringify([kind, table.name, rule, ids.slice(0, IDS_LISTED)])
}

/** Returns the number of conflicts. Those of schemas are not counted by the model. */
function countOf({ conflicts, breaches = [] }: Partial<Conflicts>) {
  if (conflicts === undefined) return expect.not.stringMatching(/^0$/)
  return String(conflicts.length + breaches.length)
}

/** Reads a record that need not exist. */
const READ = { operations: [{ get: { table: 'ants', id: 'r0' } }] }

/** Sends a request of the control plane, which must succeed. */
async function control(via: TestService, method: string, path: string, body?: object) {
  const url = `/workspaces/${first.workspaceId}${path}`
  expectOk(await via.call(method, url, { key: first.key, ...(body && { body }) }))
}

/** Leaves out the rules of tables that none of the branches has. A merge can remove or rename a table on both. */
function withKnownTables(wish: MergeWish, branches: readonly ModelBranch[]): MergeWish {
  const names = new Set(branches.flatMap(({ state }) => state.tables.map(({ name }) => name)))
  const tables = Object.entries(wish.tables).filter(([name]) => names.has(name))
  return { ...wish, tables: Object.fromEntries(tables) }
}

function expectTallies(answer: Answer, tables: ReadonlyMap<string, Counts>): void {
  const found = new Map<string, object>(
    answer.body.tables.map(({ name, ...tally }: { name: string }) => [name, tally]),
  )
  for (const [name, tally] of tables) {
    expect(found.get(name) ?? { inserted: 0, updated: 0, deleted: 0 }, name).toEqual(tally)
  }
}

interface Write {
  readonly kind: 'create' | 'replace' | 'update' | 'upsert' | 'delete'
  readonly table: string
  readonly id: string
  readonly values: Readonly<Record<string, Value>>
}

function toOperation({ kind, table, id, values }: Write): object {
  switch (kind) {
    case 'create':
      return { insert: { table, record: { id, ...values }, createOnly: true } }
    case 'replace':
      return { insert: { table, record: { id, ...values } } }
    case 'update':
      return { update: { table, id, fields: values } }
    case 'upsert':
      return { update: { table, id, fields: values, upsert: true } }
    case 'delete':
      return { delete: { table, id } }
  }
}

/** Applies the writes of one transaction. Links, unique keys and checks are looked at when it ends. */
function applyWrites(state: State, writes: readonly Write[]): State {
  const deleted = new Set<string>()
  let written = state
  for (const write of writes) {
    const table = written.tables.find(({ name }) => name === write.table)
    if (write.kind === 'delete' && table?.rows.has(write.id)) {
      deleted.add(recordKey(table, write.id))
    }
    written = applyWrite(written, write)
  }
  const settled = settleLinks(written, deleted)
  const [broken] = breachesOf(settled)
  if (broken !== undefined) throw new Refusal(nameOf(broken))
  return settled
}

function nameOf({ kind, columns, constraint }: Breach): string {
  return `${kind} ${constraint ?? columns[0]?.name}`
}

function applyWrite(state: State, { kind, table: name, id, values }: Write): State {
  const table = state.tables.find((candidate) => candidate.name === name)
  if (table === undefined) throw new Error('a write must be to a table that is there')
  const rows = new Map(table.rows)
  const before = rows.get(id)
  if (kind === 'delete') {
    rows.delete(id)
    return replaceTable(state, { ...table, rows })
  }
  if (kind === 'update' && before === undefined) throw new Refusal('is not there', [404])
  const isWhole = kind === 'create' || kind === 'replace' || before === undefined
  const given = table.columns.flatMap((column): [number, Value][] => {
    const value = values[column.name]
    if (value !== undefined) return [[column.uid, value]]
    if (!isWhole)
      return before === undefined ? [] : [[column.uid, readValue(before, table, column)]]
    const { defaultValue } = column.definition
    return defaultValue === undefined ? [] : [[column.uid, DEFAULTS.get(defaultValue)]]
  })
  const row = writeRow(before, table, new Map(given.filter(([, value]) => value !== null)))
  const written = { ...table, rows: rows.set(id, row) }
  const broken = brokenRules(written)
  if (kind === 'create' && before !== undefined) {
    // A record whose id is taken and that breaks a rule is refused for either reason.
    throw new Refusal('is there already', broken.length === 0 ? [422] : [422, 400])
  }
  // A value that must be there, or has a size, is looked at with each write, all other rules when the transaction ends.
  const missing = broken.find(({ kind: rule }) => rule === 'notNull' || rule === 'limit')
  if (missing !== undefined) throw new Refusal(nameOf(missing))
  return replaceTable(state, written)
}

function replaceTable(state: State, table: ModelTable): State {
  return {
    ...state,
    tables: state.tables.map((other) => (other.uid === table.uid ? table : other)),
  }
}

function requireFree(
  items: readonly { readonly uid: number; readonly name: string }[],
  name: string,
  self?: number,
): void {
  if (items.some((item) => item.name === name && item.uid !== self)) throw new Refusal('is taken')
}

function addConstraint(
  table: Pick<ModelTable, 'name' | 'columns'>,
  { name, rule, columns }: ModelConstraint,
): SchemaOperation {
  const names = columns.flatMap((uid) => table.columns.find((each) => each.uid === uid)?.name ?? [])
  const [first, second] = names.map((each) => `"${each}"`)
  const checks = {
    notBoth: `${first} is null or ${second} is null`,
    either: `${first} is not null or ${second} is not null`,
    notNegative: `${first} >= 0`,
  }
  const definition = rule === 'unique' ? { unique: names } : { check: checks[rule] }
  return { addConstraint: { table: table.name, constraint: { name, ...definition } } }
}

function toColumn(state: State, { name, definition, link, onDelete }: ModelColumn): Column {
  const table = link === undefined ? undefined : find(state, link)
  if (table === undefined) return { name, ...definition }
  return { name, ...definition, link: { table: table.name, ...(onDelete && { onDelete }) } }
}

/** Exchanges the names of two databases. */
async function exchangeNames([one, other]: readonly [Run, Run]): Promise<void> {
  const names = [one.database, other.database] as const
  one.note('exchange the names of the databases')
  const rename = (oldName: string, newName: string) =>
    control(one.random.pick([first, second]), 'POST', `/dbs/${oldName}/rename`, { newName })
  await rename(names[0], 'between')
  await rename(names[1], names[0])
  await rename('between', names[1])
  ;[other.database, one.database] = names
  for (const run of [one, other]) for (const branch of run.branches()) await run.compare(branch)
}

describe('branches', () => {
  const steps = async () => {
    const log: string[] = []
    const random = new Random(SEED)
    const runs = [new Run('one', random, log), new Run('two', random, log)] as const
    try {
      for (const run of runs) await run.start()
      for (let step = 0; step < STEPS; step++) {
        if (random.chance(0.05)) await exchangeNames(runs)
        await random.pick(runs).step()
      }
      await expectNothingLeft(runs)
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      const notes = log.slice(-40).join('\n  ')
      const hint = `OFFSHOOT_TEST_SEED=${SEED} OFFSHOOT_TEST_STEPS=${STEPS} repeats this`
      throw new Error(`${reason}\n${hint}; the last of ${log.length} notes:\n  ${notes}`, {
        cause: error,
      })
    }
  }
  it('are what full copies would be, whatever is done to them', steps, STEPS_TIMEOUT_MS)
})

/** Deletes every branch but `main`, and all checkpoints, and expects that only its data is still stored. */
async function expectNothingLeft(runs: readonly Run[]): Promise<void> {
  for (const run of runs) {
    for (const branch of run.branches()) {
      if (branch.name === 'main') {
        const { checkpoints } = expectOk(await run.call(branch, 'GET', '/checkpoints')).body
        for (const { id } of checkpoints) {
          expectOk(await run.call(branch, 'DELETE', `/checkpoints/${id}`))
        }
        continue
      }
      expectOk(await run.call(branch, 'DELETE', ''))
      run.model.branches.delete(branch.name)
    }
  }
  for (let round = 0; round < 5; round++) await runBackground(round % 2 === 0 ? first : second)
  for (const run of runs) for (const main of run.branches()) await run.compare(main)
  const tableCount = runs
    .flatMap((run) => run.branches())
    .reduce((sum, { state }) => sum + state.tables.length, 0)
  const count = async (table: ReturnType<typeof sql>) => {
    const [row] = await first.database.query<{ count: number }>(
      sql`select count(*)::integer as count from ${table}`,
    )
    return row?.count
  }
  const heaps = await first.database.query<{ name: string }>(sql`
    select relname as name from pg_class
    where relkind = 'r' and relname ~ '^(heap|past)_'`)
  expect({
    branches: await count(sql`offshoot.branches`),
    merges: await count(sql`offshoot.merges`),
    work: await count(sql`offshoot.work where database_id > 0`),
    heaps: await count(sql`offshoot.heaps`),
    tables: heaps.length,
    schemas: await count(sql`offshoot.schemas`),
  }).toEqual({
    branches: runs.length,
    merges: 0,
    work: 0,
    heaps: tableCount,
    tables: 2 * tableCount,
    schemas: runs.length,
  })
}
