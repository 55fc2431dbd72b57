import type { Transaction } from '../../postgres/run-transaction.js'
import { Fault } from '../../rows/columns/fault.js'
import { isFaults, type TableCodec } from '../../rows/columns/table-codec.js'
import type { TableComparison } from '../../rows/merging/comparison.js'
import type { RowResolution } from '../../rows/merging/settle.js'
import type { MergeStrategy, Take } from '../schemas/merge-definitions.js'
import { conflictPaths } from './merge-conflicts.js'
import type {
  CellDecision,
  GivenResolution,
  RecordResolution,
  Resolutions,
  TableResolution,
} from './resolutions.js'

type Cells = RowResolution['cells']
type RowConflict = Awaited<ReturnType<TableComparison['conflictsOf']>>[number]
type Cell = Cells extends ReadonlyMap<number, infer Item> ? Item : never

/** A value for a column that is not in conflict by itself, but may break a rule of its table. */
interface GivenCell {
  readonly index: number
  readonly id: string
  readonly path: string
  /** The physical column whose rule may be broken. */
  readonly column: number
  readonly cells: Cells
}

/** A record that is to exist after the merge, because others link to it. */
interface KeptRecord {
  readonly index: number
  readonly id: string
  /** The side that has it. */
  readonly take: Take
}

/** The resolutions for the records of one table. */
export class TableResolutions {
  readonly #compared: TableComparison
  readonly #codec: TableCodec
  readonly #requests: readonly RecordResolution[]
  /** Decides the conflicts that no other resolution decides. */
  readonly #rest: TableResolution | undefined
  /** The rule for conflicts that no resolution decides. */
  readonly #strategy: MergeStrategy
  readonly #resolutions: Resolutions
  #given: GivenCell[] = []
  #kept: KeptRecord[] = []
  #token: string | undefined

  constructor(
    compared: TableComparison,
    options: {
      requests: readonly GivenResolution[]
      rest: TableResolution | undefined
      strategy: MergeStrategy
      resolutions: Resolutions
    },
  ) {
    this.#compared = compared
    this.#codec = compared.codec
    this.#rest = options.rest
    this.#strategy = options.strategy
    this.#resolutions = options.resolutions
    this.#requests = this.#stored(options.requests)
  }

  /** Returns the requests with ids as the table stores them. Refuses ids that it cannot have. */
  #stored(requests: readonly GivenResolution[]): RecordResolution[] {
    const byId = new Map<string, RecordResolution>()
    for (const { table, ...request } of requests) {
      const id = this.#codec.encodeId(request.id)
      if (id instanceof Fault) {
        const message = `table [${table}]: record [${request.id}]: ${id.message}`
        this.#resolutions.refuse(request.index, message)
        continue
      }
      const earlier = byId.get(id)
      // The id was written in two forms, or its table has another name on the other side.
      if (earlier !== undefined) this.#resolutions.refuseSame(request.index, earlier.index)
      else byId.set(id, { ...request, id })
    }
    return [...byId.values()]
  }

  /** The token of all conflicts of the table. undefined: there are none, or a strategy decides them. */
  get token(): string | undefined {
    return this.#token
  }

  /** Decides the conflicts of the rows of the table. */
  async carryOut(transaction: Transaction): Promise<void> {
    const rest = await this.#resolveRest(transaction)
    const rows = await this.#resolveRows(transaction)
    const decided = await this.#compared.decide(transaction, { rows, rest })
    if (this.#rest !== undefined && decided > 0) this.#resolutions.markUsed(this.#rest)
  }

  /** Returns the decision about the table, or `fail` if its conflicts are not those that were reviewed. */
  async #resolveRest(transaction: Transaction): Promise<MergeStrategy | undefined> {
    const rest = this.#rest
    if (rest !== undefined || this.#strategy === 'fail') {
      this.#token = await this.#compared.conflictsToken(transaction)
    }
    if (rest === undefined || rest.token === this.#token) return rest?.take
    const message = `the conflicts of table [${this.#codec.table.name}] have changed since`
    this.#resolutions.refuse(rest.index, message, 'outdated_resolution')
    return 'fail'
  }

  /** Decisions about rows without a conflict are kept, because a value may be needed for the rule of its column. */
  async #resolveRows(transaction: Transaction): Promise<RowResolution[]> {
    if (this.#requests.length === 0) return []
    const ids = this.#requests.map(({ id }) => id)
    const tokens = await this.#compared.tokens(transaction, ids)
    const conflicts = await this.#compared.conflictsOf(transaction, ids)
    const byId = new Map(conflicts.map((conflict) => [conflict.id, conflict]))
    return this.#requests.flatMap((request) => {
      const { index, id } = request
      const now = tokens.get(id)
      const conflict = byId.get(id)
      if (conflict === undefined && now?.isFound !== true) {
        this.#refuse(request, `record [${id}] not found on either branch`)
        return []
      }
      if (request.token !== now?.token) {
        const message = `record [${id}] of table [${this.#codec.table.name}] has changed since`
        this.#resolutions.refuse(index, message, 'outdated_resolution')
        return []
      }
      return this.#decide(request, conflict) ?? []
    })
  }

  #decide(request: RecordResolution, conflict: RowConflict | undefined): RowResolution | undefined {
    const { id, take, columns = NO_COLUMNS } = request
    if (conflict?.kind === 'deletedHere' || conflict?.kind === 'deletedThere') {
      return this.#decideDeleted(request, conflict)
    }
    if (conflict === undefined) {
      // Records of other tables may link to it.
      if (take !== undefined) this.#kept.push({ index: request.index, id, take })
      for (const [path, cell] of columns) this.#keep(request, path, cell)
      return undefined
    }
    const paths = conflictPaths(this.#codec, conflict.columns)
    const cells = new Map<number, Cell>(
      take === undefined ? [] : conflict.columns.map((column) => [column, take]),
    )
    for (const [path, cell] of columns) {
      const columns = paths.get(path)
      const decided =
        columns === undefined ? undefined : this.#decideColumn(request, { path, cell, columns })
      if (columns === undefined) this.#keep(request, path, cell)
      for (const [column, value] of decided ?? []) cells.set(column, value)
    }
    if (take !== undefined) return { id, take, cells }
    return cells.size === 0 ? undefined : { id, cells }
  }

  /** Decides about a record that one side has deleted: whether it is there, and which values it gets then. */
  #decideDeleted(request: RecordResolution, conflict: RowConflict): RowResolution | undefined {
    const { id, take, columns } = request
    if (take === undefined) {
      if (this.#strategy === 'fail' && this.#rest === undefined) {
        this.#refuse(
          request,
          `one side deleted record [${id}]; use [take] instead of [columns], or both to keep it with other values`,
        )
        return undefined
      }
      // The strategy decides whether the record is there. If it is, a value may be needed for a rule.
      for (const [path, cell] of columns ?? NO_COLUMNS) this.#keep(request, path, cell)
      return undefined
    }
    if (columns === undefined) {
      return { id, take, cells: new Map(conflict.columns.map((column) => [column, take])) }
    }
    if (take !== (conflict.kind === 'deletedHere' ? 'theirs' : 'ours')) {
      this.#refuse(request, `[take] deletes record [${id}], so it has no [columns]`)
      return undefined
    }
    // The record keeps all other values of the side that has it.
    const cells = new Map<number, Cell>(
      take === 'ours' ? this.#codec.physical.map((_, column) => [column, take]) : [],
    )
    for (const [path, cell] of columns) {
      if ('take' in cell) {
        this.#refuse(request, `column [${path}]: the other side has no value; use [value]`)
        return undefined
      }
      for (const [column, value] of this.#encode(request, path, cell.value) ?? []) {
        cells.set(column, value)
      }
    }
    return { id, take, cells }
  }

  /** Decides a column in conflict, which can be an object with several physical columns. */
  #decideColumn(
    request: RecordResolution,
    { path, cell, columns }: { path: string; cell: CellDecision; columns: readonly number[] },
  ): Cells | undefined {
    if ('take' in cell) return new Map(columns.map((column) => [column, cell.take]))
    return this.#encode(request, path, cell.value)
  }

  #encode(request: RecordResolution, path: string, value: unknown): Cells | undefined {
    const encoded = this.#codec.encodeColumn(path, value)
    if (isFaults(encoded)) {
      this.#refuse(request, encoded.map(({ message }) => message).join('; '))
      return undefined
    }
    const { columns, values } = encoded
    const numbered = this.#codec.sequences.find(({ name }) => name === path)
    const number = Number(values[0] ?? 0)
    if (numbered?.follows(number)) this.#resolutions.noteNumber(numbered.id, number)
    return new Map(columns.map((column, at) => [column, { text: values[at] ?? null }]))
  }

  /** Keeps a value for a column that is not in conflict. */
  #keep(request: RecordResolution, path: string, cell: CellDecision): void {
    const { index, id } = request
    const column = this.#codec.indexes.get(path)
    const physical = column === undefined ? undefined : this.#codec.physical[column]
    if (column === undefined || physical === undefined) {
      this.#refuse(request, `column [${path}] not found`)
      return
    }
    const { uniqueKeys, checks, links } = this.#codec
    const rules = [...uniqueKeys, ...checks, ...links]
    const { notNull, decimal, bits, maxLength, enum: values, link } = physical.column
    const limit = decimal ?? bits ?? maxLength ?? values ?? link?.idBits
    const hasRule =
      notNull === true ||
      limit !== undefined ||
      rules.some(({ columns }) => columns.includes(column))
    if ('take' in cell || !hasRule) {
      this.#refuse(request, notInConflict(path, id))
      return
    }
    const cells = this.#encode(request, path, cell.value)
    if (cells !== undefined) this.#given.push({ index, id, path, column, cells })
  }

  /**
   * Gives values to records that would break a rule of their table, and keeps those that `tables` link to. Returns whether
   * something was decided.
   */
  async settleRules(
    transaction: Transaction,
    tables: readonly TableComparison[],
  ): Promise<boolean> {
    const isAmended = this.#given.length > 0 && (await this.#amend(transaction))
    const isKept = this.#kept.length > 0 && (await this.#keepRecords(transaction, tables))
    return isAmended || isKept
  }

  async #amend(transaction: Transaction): Promise<boolean> {
    const needed = new Set<GivenCell>()
    for (const column of new Set(this.#given.map((cell) => cell.column))) {
      const cells = this.#given.filter((cell) => cell.column === column)
      const ids = cells.map(({ id }) => id)
      const found = new Set(await this.#compared.breakers(transaction, { column, ids }))
      for (const cell of cells) if (found.has(cell.id)) needed.add(cell)
    }
    if (needed.size === 0) return false
    await this.#compared.amend(transaction, byRecord([...needed]))
    this.#given = this.#given.filter((cell) => !needed.has(cell))
    return true
  }

  async #keepRecords(
    transaction: Transaction,
    tables: readonly TableComparison[],
  ): Promise<boolean> {
    const tableId = this.#codec.table.id
    const ids = this.#kept.map(({ id }) => id)
    const missing = new Set<string>()
    for (const table of tables) {
      for (const id of await table.missingTargets(transaction, { tableId, ids })) missing.add(id)
    }
    if (missing.size === 0) return false
    const records = await this.#compared.missingRecords(transaction, [...missing])
    const needed = this.#kept.filter(({ id, take }) => records.get(id)?.takes.includes(take))
    for (const take of ['ours', 'theirs'] as const) {
      const taken = needed.filter((each) => each.take === take).map(({ id }) => id)
      if (taken.length > 0) await this.#compared.keepRecords(transaction, take, taken)
    }
    this.#kept = this.#kept.filter((each) => !needed.includes(each))
    return needed.length > 0
  }

  /** Refuses decisions that turned out to settle no conflict. */
  refuseUnneeded(): void {
    for (const { index, path, id } of this.#given) {
      this.#refuse({ index }, notInConflict(path, id))
    }
    for (const { index, id } of this.#kept) {
      this.#refuse({ index }, `record [${id}] is not in conflict`)
    }
  }

  #refuse({ index }: Pick<RecordResolution, 'index'>, message: string): void {
    this.#resolutions.refuse(index, `table [${this.#codec.table.name}]: ${message}`)
  }
}

const NO_COLUMNS: ReadonlyMap<string, CellDecision> = new Map()

function notInConflict(path: string, id: string): string {
  return `column [${path}] of record [${id}] is not in conflict`
}

function byRecord(given: readonly GivenCell[]): RowResolution[] {
  const byId = new Map<string, Map<number, Cell>>()
  for (const { id, cells } of given) {
    byId.set(id, new Map([...(byId.get(id) ?? []), ...cells]))
  }
  return [...byId].map(([id, cells]) => ({ id, cells }))
}
