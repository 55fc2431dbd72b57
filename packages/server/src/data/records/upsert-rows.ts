import { arrayLiteral } from '../../postgres/carriers.js'
import { sql } from '../../postgres/sql.js'
import { type Call, compileStatement, type TextRows } from '../../postgres/statement.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { WritableTable } from '../../rows/open-branch.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { Refusal } from '../../rows/writing/refusals.js'
import {
  columnTaken,
  findViolationFields,
  type InvalidRecord,
  type Violation,
  violationFields,
} from '../session/record-errors.js'
import { planColumns, type Session } from '../session/session.js'
import { amongRows, findUnevaluatedIn } from './failing-records.js'
import { givesUp, TakenValues, textOf } from './taken-values.js'
import type { UpsertKey, UpsertRecords, UpsertRow } from './upsert-records.js'

/*
 * Records that are inserted, or updated if they exist. They are found by their id, a unique column or constraint. All are
 * looked up and written by a few statements. One that is refused does not affect the others.
 */

/** What an upsert did with one record. */
export type UpsertResult =
  | { readonly id: string; readonly outcome: 'inserted' | 'updated' | 'unchanged' }
  | { readonly id?: string; readonly outcome: 'failed'; readonly error: InvalidRecord }

/** How often a request can name a record. Each further time takes more statements. */
export const UPSERT_REPEATS_MAX = 100

/** How often records are written again because others were refused. */
export const ATTEMPTS_MAX = 10

/**
 * How often records wait for values that others of the request give up. The rest of a longer chain is written together, which
 * takes less time than to look at it again and again.
 */
const VALUE_WAVES_MAX = 10

/** Why records are refused, by their positions in the request. */
export type RefusedRecords = ReadonlyMap<number, InvalidRecord>

/** Records link to others of the request that were refused. All have to be written again without them. */
export class DanglingLinksError extends Error {
  constructor(readonly refused: RefusedRecords) {
    super('records link to others that were refused')
  }
}

type MissingLinks = ReturnType<WritableTable['writer']['findMissing']>

/** Rows that one statement writes. */
interface RowGroup {
  readonly rows: readonly UpsertRow[]
  /** Whether all are expected to be new. Otherwise, they change the same columns of those that exist. */
  readonly areNew: boolean
}

interface PreparedRows extends RowGroup {
  readonly call: Call
}

/** Writes the records of one upsert, and keeps their results. */
export class Upsert {
  readonly #session: Session
  readonly #table: WritableTable
  readonly #records: UpsertRecords
  readonly #results: UpsertResult[]
  readonly #rows: readonly UpsertRow[]
  #taken = new TakenValues([])
  /** The positions of records that were refused because of values, without knowing who has them. */
  readonly #undecided = new Set<number>()
  /** The ids of records that have not been written or refused yet. */
  #expected = new Set<string>()
  readonly #written: UpsertRow[] = []
  /** Whether a record was written that links to one of the expected ones. */
  #isLinkedAhead = false
  readonly #mayLinkAhead: boolean
  readonly #isFinal: boolean
  readonly #refused: RefusedRecords

  constructor(
    session: Session,
    table: WritableTable,
    {
      records,
      refused,
      mayLinkAhead,
      isFinal,
    }: {
      records: UpsertRecords
      refused: RefusedRecords
      /** Whether records can link to others that the request has after them. */
      mayLinkAhead: boolean
      /** Whether the results are final. Otherwise, contested records can be written again, all together. */
      isFinal: boolean
    },
  ) {
    this.#session = session
    this.#table = table
    this.#records = records
    this.#refused = refused
    this.#isFinal = isFinal
    const linksToOwn = table.writer.links.some(({ tableId }) => tableId === table.codec.table.id)
    this.#mayLinkAhead = mayLinkAhead && linksToOwn
    this.#results = new Array(records.count)
    for (const { error, ...record } of records.invalid) this.#fail(record, error)
    this.#rows = records.rows.filter((row) => {
      const error = refused.get(row.position)
      if (error !== undefined) this.#fail({ position: row.position, id: row.givenId }, error)
      return error === undefined
    })
  }

  /**
   * Whether a record was refused because of a unique value that another record of the request may have given up later, such as
   * two records that exchange their values.
   */
  get isContested(): boolean {
    if (this.#rows.length <= 1 || (this.#taken.isEmpty && this.#undecided.size === 0)) return false
    const refused = this.refusedAlone
    const isOpen = (position: number) => !refused.has(position)
    return [...this.#results.keys()].some(
      (position) =>
        (this.#taken.has(position) || this.#undecided.has(position)) && isOpen(position),
    )
  }

  get hasFailed(): boolean {
    return this.#results.some(({ outcome }) => outcome === 'failed')
  }

  /** The records that are refused in any order of the writes, with the reasons. */
  get refusedAlone(): RefusedRecords {
    return this.withLost(
      this.#refusedIf(
        ({ error }, position) =>
          error.code !== 'link_violation' &&
          !this.#taken.has(position) &&
          !this.#undecided.has(position),
      ),
    )
  }

  /** Adds the records whose values refused ones keep. */
  withLost(refused: RefusedRecords): RefusedRecords {
    const lost = new Set(this.#taken.listLost((position) => refused.has(position)))
    return new Map([...refused, ...this.#refusedIf((_, position) => lost.has(position))])
  }

  /** The records that were refused and would break a rule in the end; those that were refused because of it, if there are any. */
  refusedBy(violation: Violation, { without }: { without: RefusedRecords }): RefusedRecords {
    const given = new Set(violation.records)
    const among = this.#refusedIf(
      ({ id = '' }, position) => given.has(id) && !without.has(position),
    )
    const rule = ruleIn(violationFields(violation))
    const because = [...among].filter(([, error]) => ruleIn(error) === rule)
    return because.length > 0 ? new Map(because) : among
  }

  #refusedIf(
    isMeant: (result: Extract<UpsertResult, { outcome: 'failed' }>, position: number) => boolean,
  ): RefusedRecords {
    return new Map(
      [...this.#results.entries()].flatMap(([position, result]) =>
        result.outcome === 'failed' && isMeant(result, position)
          ? [[position, result.error] as const]
          : [],
      ),
    )
  }

  /** The records that were not refused, with the ids that they have now. */
  *stored(): Generator<Pick<UpsertRow, 'id' | 'values'>> {
    for (const { position, values } of this.#rows) {
      const result = this.#results[position]
      if (result !== undefined && result.outcome !== 'failed') yield { id: result.id, values }
    }
  }

  /** Why the others were refused. */
  *broken(): Generator<InvalidRecord> {
    for (const result of this.#results) if (result.outcome === 'failed') yield result.error
  }

  /** Writes the records in a transaction, and returns the results of all of them. */
  async write(transaction: OpenTransaction): Promise<readonly UpsertResult[]> {
    let pending = this.#rows
    for (let wave = 1; pending.length > 0; wave++) {
      if (wave > UPSERT_REPEATS_MAX) {
        const message = `the request has the record more than ${UPSERT_REPEATS_MAX} times`
        for (const row of pending) this.#fail(row, { message })
        break
      }
      const found = await this.#find(transaction, pending)
      if (wave === 1) this.#taken = new TakenValues(found)
      this.#expected = new Set(this.#mayLinkAhead ? found.map(({ id = '' }) => id) : [])
      const { ready, deferred, isChain } = await this.#plan(transaction, found)
      // The next rows are prepared while PostgreSQL writes.
      let writing: Promise<void> | undefined
      for (const group of this.#groups(ready, { isFirst: wave === 1 })) {
        const prepared = this.#prepare(group)
        await writing
        writing = this.#writeRows(transaction, prepared)
        writing.catch(() => undefined)
      }
      await writing
      pending = deferred
      if (isChain && wave >= VALUE_WAVES_MAX && !this.#isFinal) {
        this.#leaveUndecided(deferred)
        break
      }
    }
    await this.#requireLinked(transaction)
    return this.#results
  }

  #leaveUndecided(rows: readonly UpsertRow[]): void {
    const { codec, writer } = this.#table
    const [column = -1] = writer.uniqueKeys[0]?.columns ?? []
    const error = takenError(codec, codec.physical[column]?.path.join('.') ?? '')
    for (const row of rows) {
      this.#fail(row, error)
      this.#undecided.add(row.position)
    }
  }

  /** Throws if a record links to another one of the request that was to be written after it, and was refused. */
  async #requireLinked(transaction: OpenTransaction): Promise<void> {
    if (!this.#isLinkedAhead) return
    const rows = this.#written
    const links = this.#table.writer.findMissing(rows).filter(({ isOwn }) => isOwn)
    const missing = await transaction.run(links.map(({ call }) => call))
    const refused = new Map<number, InvalidRecord>()
    const lost = new Set<string>()
    const refuse = (index: number, { violationOf }: MissingLinks[number]) => {
      const { position = -1, id = '' } = rows[index] ?? {}
      if (refused.has(position)) return
      refused.set(position, missingError(violationOf(index)))
      if (this.#results[position]?.outcome === 'inserted') lost.add(id)
    }
    for (const [index, link] of links.entries()) {
      for (const [row] of missing[index] ?? []) refuse(Number(row), link)
    }
    // Records that link to those are refused, too.
    for (let count = -1; count < lost.size; ) {
      count = lost.size
      for (const link of links) {
        for (const index of rows.keys()) if (lost.has(link.targetOf(index))) refuse(index, link)
      }
    }
    if (refused.size > 0) throw new DanglingLinksError(new Map([...this.#refused, ...refused]))
  }

  /** Finds the ids of records by their column. */
  async #find(
    transaction: OpenTransaction,
    rows: readonly UpsertRow[],
  ): Promise<readonly UpsertRow[]> {
    const { key, by } = this.#records
    if (key === undefined) return rows
    const holders = await this.#holders(transaction, key, rows)
    const found: UpsertRow[] = []
    for (const [index, row] of rows.entries()) {
      const { givenId } = row
      const holder = holders.get(index)
      if (holder === undefined) {
        const isNew = givenId !== undefined
        const id = givenId ?? this.#records.newIdOf(row)
        found.push(rowWithId(row, { id, isNew, isNewId: !isNew }))
      } else if (givenId !== undefined && givenId !== holder) {
        const kind = key.name === undefined ? 'column' : 'constraint'
        const values = key.columns.length === 1 ? 'this value' : 'these values'
        const message = `invalid record: ${kind} [${by}]: the record with ${values} has the id [${holder}]`
        this.#fail(row, { message })
      } else found.push(rowWithId(row, { id: holder, isNew: false, isNewId: false }))
    }
    return found
  }

  async #holders(
    transaction: OpenTransaction,
    key: UpsertKey,
    rows: readonly UpsertRow[],
  ): Promise<Map<number, string>> {
    const [found = []] = await transaction.run([this.#table.writer.findHolders(key, rows)])
    return new Map(found.map(([position, id]) => [Number(position), id ?? '']))
  }

  /**
   * Separates the records that can be written now from those that come after them: the same record again, or one with a
   * unique value that an earlier one has or had. Refuses those whose unique values are taken. `isChain`: all of the others
   * wait for values.
   */
  async #plan(
    transaction: OpenTransaction,
    rows: readonly UpsertRow[],
  ): Promise<{ ready: UpsertRow[]; deferred: UpsertRow[]; isChain: boolean }> {
    const { codec } = this.#table
    const present = await this.#readPresent(transaction, rows)
    const unique = await this.#readUnique(transaction, rows)
    const ready: UpsertRow[] = []
    const deferred: UpsertRow[] = []
    let hasRepeated = false
    let hasWaiting = false
    const usedIds = new Set<string>()
    const released = new ReleasedValues(this.#table.writer.uniqueKeys, rows)
    for (const [index, row] of rows.entries()) {
      const id = row.id ?? ''
      const isRepeated = usedIds.has(id)
      usedIds.add(id)
      // Unique columns have no defaults, so that a value was given.
      const isUsed = unique.some(({ key, used }) => used.has(textOf(row, key)))
      const taken = unique.find(({ holders }) => (holders.get(index) ?? id) !== id)
      if (isRepeated || isUsed || released.has(row)) deferred.push(row)
      else if (row.isNew && present.has(id)) this.#fail(row, takenError(codec, 'id'))
      else if (row.missing !== undefined && !present.has(id)) {
        this.#fail(row, row.missing)
      } else if (taken !== undefined && usedIds.has(taken.holders.get(index) ?? '')) {
        deferred.push(row)
      } else if (taken !== undefined) {
        const [column = -1] = taken.key.columns
        this.#fail(row, takenError(codec, codec.physical[column]?.path.join('.') ?? ''))
        this.#taken.add({ row, key: taken.key, holder: taken.holders.get(index) ?? '' })
      } else ready.push(row)
      if (isRepeated) hasRepeated = true
      else hasWaiting ||= deferred.at(-1) === row
      // A record that has failed just now has none of its values.
      if (ready.at(-1) !== row && deferred.at(-1) !== row) continue
      released.add(row)
      for (const { key, used } of unique) {
        const text = textOf(row, key)
        if (text !== undefined) used.add(text)
      }
    }
    return { ready, deferred, isChain: hasWaiting && !hasRepeated }
  }

  /** Reads which records exist, of those for which it makes a difference. */
  async #readPresent(
    transaction: OpenTransaction,
    rows: readonly UpsertRow[],
  ): Promise<ReadonlySet<string>> {
    const ids = rows.flatMap(({ id, isNew, missing }) =>
      id !== undefined && (isNew || missing !== undefined) ? [id] : [],
    )
    if (ids.length === 0) return new Set()
    const { many } = planColumns(this.#table, [])
    const [found = []] = await transaction.run([{ statement: many, values: [arrayLiteral(ids)] }])
    return new Set(found.map(([id]) => id ?? ''))
  }

  /** Reads which records have the unique values. The column that records are found by is known already. */
  async #readUnique(transaction: OpenTransaction, rows: readonly UpsertRow[]) {
    const unique: {
      key: UpsertKey
      holders: Map<number, string>
      used: Set<string | undefined>
    }[] = []
    // Other constraints are checked after the write: they may have columns that the request does not name.
    const keys = this.#table.writer.uniqueKeys.filter(
      ({ id, name }) => name === undefined || id === this.#records.key?.id,
    )
    for (const key of keys) {
      const isKey = key.id === this.#records.key?.id
      const holders = isKey ? new Map() : await this.#holders(transaction, key, rows)
      unique.push({ key, holders, used: new Set() })
    }
    return unique
  }

  /**
   * Groups rows, in steps: those that change the same columns, and those that are new. The others come first, because a new one
   * can have values that they give up.
   */
  *#groups(rows: readonly UpsertRow[], { isFirst }: { isFirst: boolean }): Generator<RowGroup> {
    const records = this.#records
    const created: UpsertRow[] = []
    const changed = new Map<readonly number[], UpsertRow[]>()
    for (const row of rows) {
      // Later, a record may exist because the request has it twice.
      const isNew = row.isNewId || (isFirst && records.seemsNew(row))
      const group = isNew ? created : changed.get(row.columns)
      if (group === undefined) changed.set(row.columns, [row])
      else group.push(row)
    }
    const step = this.#table.codec.rowsPerStep
    for (const group of [...changed.values(), created]) {
      for (let start = 0; start < group.length; start += step) {
        yield { rows: group.slice(start, start + step), areNew: group === created }
      }
    }
  }

  /** Returns rows with the call that writes them. */
  #prepare({ rows, areNew }: RowGroup): PreparedRows {
    const { writer } = this.#table
    const inputs = rows.map(({ id = '', isNewId, values }) => ({ id, isNewId, values }))
    const call = areNew ? writer.insertNew(inputs) : writer.upsert(inputs, rows[0]?.columns ?? [])
    return { rows, areNew, call }
  }

  /** Writes rows. If PostgreSQL refuses one of them, finds it by writing halves. */
  async #writeRows(
    transaction: OpenTransaction,
    { rows, areNew, call }: PreparedRows,
  ): Promise<void> {
    const { codec, writer } = this.#table
    const checks = writer.checkWritten(rows.map(({ id = '' }) => id))
    const links = writer.findMissing(rows)
    let written: TextRows = []
    try {
      const looks = [...checks, ...links].map((look) => look.call)
      const after = looks.length === 0 ? [RELEASE] : looks
      const found = await transaction.run([SAVEPOINT, call, ...after])
      written = found[1] ?? []
      const broken = checks.find((_, index) => (found[index + 2]?.length ?? 0) > 0)?.violation
      if (broken !== undefined) {
        await transaction.run([ROLL_BACK])
        const fault = { message: `invalid record: ${broken.message}`, ...violationFields(broken) }
        await this.#writeRefused(transaction, { rows, areNew }, { fault, key: broken.key })
        return
      }
      const missing = this.#withoutExpected(rows, links, found.slice(2 + checks.length))
      if (missing.some(({ length }) => length > 0)) {
        await transaction.run([ROLL_BACK])
        await this.#writeLinked(transaction, { rows, areNew }, { links, missing })
        return
      }
      if (looks.length > 0) await transaction.run([RELEASE])
    } catch (error) {
      const refusal = Refusal.of(error, [codec])
      if (refusal === undefined) throw error
      await transaction.run([ROLL_BACK])
      if (areNew && refusal.isTaken && rows.some(({ isNewId }) => !isNewId)) {
        // Others may have created records since it was looked for new ones.
        this.#records.forgetFree()
        for (const group of this.#groups(rows, { isFirst: true })) {
          await this.#writeRows(transaction, this.#prepare(group))
        }
        return
      }
      const failing =
        rows.length > 1
          ? undefined
          : await findUnevaluatedIn(this.#session, this.#table, {
              transaction,
              error,
              find: amongRows(rows.map(({ id = '', ...row }) => ({ ...row, id }))),
            })
      const message = `invalid record: ${failing?.violation.message ?? refusal.message}`
      const fields = failing
        ? violationFields(failing.violation)
        : findViolationFields(error, new Set([codec]))
      const fault = fields ? { message, ...fields } : { message }
      const { key } = refusal.violation ?? {}
      await this.#writeRefused(transaction, { rows, areNew }, { fault, key })
      return
    }
    const existed = new Map(written.map(([id, isThere]) => [id, isThere === 't']))
    for (const { position, id = '' } of rows) {
      const isThere = areNew ? false : existed.get(id)
      this.#expected.delete(id)
      const outcome = isThere === undefined ? 'unchanged' : isThere ? 'updated' : 'inserted'
      this.#results[position] = { id, outcome }
    }
    if (links.some(({ isOwn }) => isOwn)) for (const row of rows) this.#written.push(row)
  }

  /** Leaves out links to records that the request has not written yet. They are looked at in the end. */
  #withoutExpected(
    rows: readonly UpsertRow[],
    links: MissingLinks,
    missing: readonly TextRows[],
  ): TextRows[] {
    const own = new Set(rows.map(({ id = '' }) => id))
    return links.map(({ isOwn, targetOf }, index) =>
      (missing[index] ?? []).filter(([position]) => {
        const target = targetOf(Number(position))
        const isExpected = isOwn && this.#expected.has(target) && !own.has(target)
        this.#isLinkedAhead ||= isExpected
        return !isExpected
      }),
    )
  }

  /** Fails the rows that link to missing records, whose positions are given, and writes the others. */
  async #writeLinked(
    transaction: OpenTransaction,
    { rows, areNew }: RowGroup,
    { links, missing }: { links: MissingLinks; missing: readonly TextRows[] },
  ): Promise<void> {
    const failed = new Set<UpsertRow>()
    for (const [index, { violationOf }] of links.entries()) {
      for (const [position] of missing[index] ?? []) {
        const row = rows[Number(position)]
        if (row === undefined || failed.has(row)) continue
        failed.add(row)
        this.#fail(row, missingError(violationOf(Number(position))))
      }
    }
    const others = rows.filter((row) => !failed.has(row))
    if (others.length > 0) {
      await this.#writeRows(transaction, this.#prepare({ rows: others, areNew }))
    }
  }

  /**
   * Writes rows of which one was refused. If the values of a unique key are taken, a look at who has them finds all others with
   * the same fault; any other row is found by writing halves.
   */
  async #writeRefused(
    transaction: OpenTransaction,
    group: RowGroup,
    { fault, key }: { fault: InvalidRecord; key: UpsertKey | undefined },
  ): Promise<void> {
    const { rows, areNew } = group
    if (key !== undefined) {
      const { free, later } = await this.#separate(transaction, rows, { fault, key })
      if (free.length < rows.length) {
        for (const part of [free, later]) {
          if (part.length === 0) continue
          await this.#writeRows(transaction, this.#prepare({ rows: part, areNew }))
        }
        return
      }
    }
    const [first] = rows
    if (rows.length === 1 && first !== undefined) {
      this.#fail(first, fault)
      if (key !== undefined) this.#undecided.add(first.position)
      return
    }
    const middle = Math.ceil(rows.length / 2)
    for (const half of [rows.slice(0, middle), rows.slice(middle)]) {
      await this.#writeRows(transaction, this.#prepare({ rows: half, areNew }))
    }
  }

  /**
   * Fails the rows whose values of a key another record has that no earlier row makes give them up. Returns the others: those
   * that can be written, and those with the values of an earlier one.
   */
  async #separate(
    transaction: OpenTransaction,
    rows: readonly UpsertRow[],
    { fault, key }: { fault: InvalidRecord; key: UpsertKey },
  ): Promise<{ free: UpsertRow[]; later: UpsertRow[] }> {
    const given = rows.filter((row) => textOf(row, key) !== undefined)
    const holders = await this.#holders(transaction, key, given)
    const holderOf = new Map<UpsertRow | undefined, string>()
    /** The texts of the values that records have. */
    const held = new Map<string, Set<string>>()
    for (const [index, id] of holders) {
      const row = given[index]
      holderOf.set(row, id)
      const text = row && textOf(row, key)
      if (text !== undefined) held.set(id, (held.get(id) ?? new Set()).add(text))
    }
    const [free, later]: [UpsertRow[], UpsertRow[]] = [[], []]
    const used = new Set<string>()
    const freed = new Set<string>()
    for (const row of rows) {
      const text = textOf(row, key)
      const holder = holderOf.get(row)
      if (holder !== undefined && holder !== row.id && !freed.has(`${holder} ${text}`)) {
        this.#fail(row, fault)
        this.#taken.add({ row, key, holder })
        continue
      }
      if (text !== undefined && used.has(text)) later.push(row)
      else free.push(row)
      if (text !== undefined) used.add(text)
      for (const other of held.get(row.id ?? '') ?? []) {
        if (givesUp(row, key, other)) freed.add(`${row.id} ${other}`)
      }
    }
    return { free, later }
  }

  #fail({ position, id }: Pick<UpsertRow, 'position' | 'id'>, error: InvalidRecord): void {
    if (id !== undefined) this.#expected.delete(id)
    this.#results[position] = { ...(id === undefined ? {} : { id }), outcome: 'failed', error }
  }
}

/**
 * Values of unique constraints that a record may have for a while, because the request gives it other ones later. A record
 * that is given after them, with such values, has to be written after them.
 */
class ReleasedValues {
  readonly #keys: readonly UpsertKey[]
  readonly #repeated: ReadonlySet<string>
  readonly #used = new Set<string>()

  constructor(keys: readonly UpsertKey[], rows: readonly UpsertRow[]) {
    this.#keys = keys.filter(({ name }) => name !== undefined)
    const seen = new Set<string>()
    const isSeen = (id: string) => seen.has(id) || !seen.add(id)
    this.#repeated = new Set(
      this.#keys.length === 0 ? [] : rows.flatMap(({ id = '' }) => (isSeen(id) ? id : [])),
    )
  }

  add(row: UpsertRow): void {
    if (!this.#repeated.has(row.id ?? '')) return
    for (const value of this.#valuesOf(row)) this.#used.add(value)
  }

  has(row: UpsertRow): boolean {
    return this.#repeated.size > 0 && this.#valuesOf(row).some((value) => this.#used.has(value))
  }

  /** The values of constraints of which a row gives all columns. */
  #valuesOf({ values, columns }: UpsertRow): string[] {
    return this.#keys.flatMap((key) => {
      if (!key.columns.every((column) => columns.includes(column))) return []
      return JSON.stringify([key.id, ...key.columns.map((column) => values[column] ?? null)])
    })
  }
}

/** Faster than a spread, which makes objects whose properties V8 looks up by name. */
function rowWithId(
  { position, givenId, values, columns, missing }: UpsertRow,
  { id, isNew, isNewId }: Pick<UpsertRow, 'id' | 'isNew' | 'isNewId'>,
): UpsertRow {
  return { position, givenId, id, isNewId, isNew, values, columns, missing }
}

const withoutValues = (template: Parameters<typeof compileStatement>[0]) => ({
  statement: compileStatement(template),
  values: [],
})
const SAVEPOINT = withoutValues(sql`savepoint upsert`)
const RELEASE = withoutValues(sql`release savepoint upsert`)
const ROLL_BACK = withoutValues(sql`rollback to savepoint upsert`)

function takenError(codec: TableCodec, path: string): InvalidRecord {
  const message = `invalid record: column [${path}]: is not unique`
  return { message, ...violationFields(columnTaken(codec, path)) }
}

function missingError(violation: ReturnType<MissingLinks[number]['violationOf']>): InvalidRecord {
  const message = `invalid record: ${violation.message}`
  return { message, ...violationFields(violation) }
}

/** Returns a text that is equal for errors about the same rule of a table. */
function ruleIn(error: Pick<InvalidRecord, 'code'>): string {
  const { code, column, constraint } = error as {
    code?: string
    column?: string
    constraint?: string
  }
  return JSON.stringify([code, column, constraint])
}
