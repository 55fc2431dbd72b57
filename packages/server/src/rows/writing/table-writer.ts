import type { CachePart } from '../../common/shared-cache.js'
import { arrayLiteral, copyLine } from '../../postgres/carriers.js'
import { type Sql, sql } from '../../postgres/sql.js'
import {
  type Call,
  type Parameter,
  type Statement,
  type TextRow,
  type TextRows,
  toCall,
} from '../../postgres/statement.js'
import type { EncodedUpdate } from '../columns/record-encoder.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { CheckRule, LinkRule, UniqueKey } from '../columns/table-rules.js'
import type { Heap, Layout } from '../layout/layout.js'
import {
  type CopyCall,
  type Linking,
  type LinkingCall,
  MOMENT_VALUES,
  type MomentCall,
} from '../running/calls.js'
import { AbsorbCalls } from './absorb-calls.js'
import { updateOneStatement, updateStatement } from './change-statements.js'
import { deleteStatement } from './delete-statement.js'
import { findFailing, findFirstFailing, type Step, type TryCall } from './failing-calls.js'
import {
  copyStatement,
  insertDraftStatement,
  insertNewStatement,
  insertOneStatement,
  insertStatement,
} from './insert-statements.js'
import { missingTargetsStatement } from './link-statements.js'
import { missingLink, type Violation, violationOf } from './refusals.js'
import { replaceAnyStatement, replaceStatement } from './replace-statements.js'
import {
  deleteSetStatement,
  failedChangeStatement,
  oneRow,
  type RowSet,
  unstoredStatement,
  updateSetStatement,
} from './set-statements.js'
import {
  copyToStageStatement,
  countStageStatement,
  dropExistingStatement,
  failedStepStatement,
  inheritedStageStatement,
  insertStagePartStatement,
  insertStageStatement,
  repeatedIdStatement,
  replaceStagePartStatement,
  stagedPart,
  takenBesideStatement,
  takenIdStatement,
  takenValueStatement,
} from './stage-statements.js'
import { FIRST_COLUMN, IDS, type Returned, StatementParts } from './statement-parts.js'
import {
  failedRowsStatement,
  failedValuesStatement,
  holdersStatement,
  inheritedTwinOfStatement,
  inheritedTwinStatement,
  inheritedTwinsStatement,
  inheritedValuesStatement,
  repeatedValuesStatement,
  setTakerStatement,
  takerStatement,
  visibleValuesStatement,
} from './unique-statements.js'
import { presentIdsStatement, upsertStatement } from './upsert-statement.js'

/** One row to write: its id, the version it must have, and a text for each column. */
export interface RowInput {
  readonly id: string
  /** The id was generated for this row, so no other row ever had it. */
  readonly isNewId?: boolean
  readonly ifVersion?: number | undefined
  readonly values: readonly (string | null)[]
}

/** Changes of one row. */
interface UpdateInput {
  readonly id: string
  readonly ifVersion?: number | undefined
  readonly update: EncodedUpdate
}

/** A call to run after a write, in the same transaction. If it returns a row, the rule is violated. */
export interface RuleCheck {
  readonly violation: Violation
  readonly call: Call
  /** Returns the id of the written row that violates the rule. undefined: it was not given. */
  idOf?(row: TextRow): string | undefined
}

/** A row that was to get values of a unique key. */
interface TakingRow {
  readonly id: string
  /** The row exists, so that it may have the values already. */
  readonly exists: boolean
  /** The value of each column of the key. undefined: it stays as it is. */
  readonly values: readonly (string | null | undefined)[]
}

/** A row that may fail a check. */
type JudgedRow = Pick<RowInput, 'id' | 'values'> & {
  /** The columns that get their values if the row exists. undefined: all. */
  readonly columns?: readonly number[]
}

/** A row that fails a check, by its position. */
interface FailingRow {
  readonly row: number
  readonly violation: Violation
}

/** A row that would fail a check by a change. */
interface FailingChange {
  readonly record: string
  readonly violation: Violation
}

/** A call that finds the positions of rows with a link to a missing record. */
interface MissingLinks {
  readonly call: Call
  /** Whether the rows link to others of their table. */
  readonly isOwn: boolean
  targetOf(row: number): string
  violationOf(row: number): Violation
}

/** The statements for one stage. */
interface StageStatements {
  readonly copy: Statement
  readonly count: Statement
  readonly insert: Call
  insertPart(firstLine: number, lastLine: number): Call
  /** Returns the metadata of rows, and whether they existed. */
  replacePart(firstLine: number, lastLine: number): Call
  idsOfPart(firstLine: number, lastLine: number): Call
  /** Removes the rows whose ids exist from the stage. Returns their number. */
  readonly dropExisting: Statement
  readonly findRepeatedId: Statement
  /** Finds the first line whose unique value is taken, if rows with existing ids are skipped or replaced. */
  findTakenBeside(key: UniqueKey, existing: 'skip' | 'replace'): Statement
  readonly findTakenId: Statement
  findTakenValue(key: UniqueKey): Statement
  findInherited(key: UniqueKey): Statement
  /** Finds the first line of a step that fails a check. */
  findFailed(check: CheckRule, step: Step): Call
}

/** Rows that are looked for if a check cannot be evaluated. Each takes several calls. */
const UNEVALUATED_MAX = 100

/** Fewer new rows are inserted by a statement, because a COPY takes a further round trip. */
const COPIED_ROWS_MIN = 32

/**
 * Creates the calls that write a table on a branch. Each statement is compiled on first use. Only this class
 * and the statements know the order of the values.
 */
export class TableWriter {
  readonly uniqueKeys: readonly UniqueKey[]
  readonly checks: readonly CheckRule[]
  readonly links: readonly LinkRule[]
  readonly #codec: TableCodec
  readonly #parts: StatementParts
  /** undefined: the table has no layer. */
  readonly #absorb: AbsorbCalls | undefined
  readonly #statements: CachePart<Statement>
  readonly #isLinked: boolean
  readonly #nameOf: (tableId: number) => string

  constructor(
    layout: Layout,
    codec: TableCodec,
    {
      heap,
      statements,
      isLinked,
      nameOf,
    }: {
      heap: Heap
      statements: CachePart<Statement>
      /** Whether columns of other tables require that rows which they link to exist. */
      isLinked: boolean
      /** Returns the name of a table. */
      nameOf(tableId: number): string
    },
  ) {
    this.uniqueKeys = codec.uniqueKeys
    this.checks = codec.checks
    this.links = codec.links
    this.#isLinked = isLinked
    this.#nameOf = nameOf
    this.#codec = codec
    this.#statements = statements
    this.#parts = new StatementParts(layout, codec, heap, { isLocked: false })
    this.#absorb = AbsorbCalls.find(layout, codec)
  }

  /**
   * Whether new rows can be inserted with COPY. This requires that the indexes of the heap are enough to check
   * ids and unique values. On a branch that inherits rows, they must also be compared with inherited rows, and in
   * a table with a layer with its rows.
   */
  get takesCopies(): boolean {
    return this.#parts.isPlain && this.#absorb === undefined
  }

  /** Whether unique values must be compared with inherited rows after each statement. */
  get comparesAfterWrites(): boolean {
    return !this.#parts.isPlain && this.uniqueKeys.length > 0
  }

  /** Inserts rows. Returns no row for an id that is taken. */
  insert(rows: readonly RowInput[], returned: Returned): Call {
    const statement = this.#statement(`insert ${returned}`, () =>
      insertStatement(this.#parts, returned),
    )
    const values = this.#arrays(rows, this.#codec.physical.length)
    return this.#call(statement, values, { ...this.#beforeRows(rows), ...this.#writes(rows) })
  }

  /** Inserts rows with ids that are free, such as generated ones; fails otherwise. The returned rows have no meaning. */
  insertNew(rows: readonly RowInput[]): Call | CopyCall {
    const before = { ...this.#beforeRows(rows), ...this.#writes(rows) }
    const withoutCopy = () => {
      const statement = this.#statement('insert new', () => insertNewStatement(this.#parts))
      return this.#call(statement, this.#arrays(rows, this.#codec.physical.length), before)
    }
    if (rows.length < COPIED_ROWS_MIN) return withoutCopy()
    return {
      withoutCopy,
      ...before,
      statement: this.copyStatement,
      values: [],
      linesIn: (epoch) => this.copyLines(rows, epoch),
    }
  }

  get copyStatement(): Statement {
    return this.#statement('copy', () => copyStatement(this.#parts))
  }

  /** Returns rows as lines for the COPY statement. */
  copyLines(rows: readonly RowInput[], epoch: number): string {
    let lines = ''
    for (const { id, values } of rows) {
      const prefix = `${id}\t${epoch}`
      lines += values.length === 0 ? `${prefix}\n` : copyLine(values, `${prefix}\t`)
    }
    return lines
  }

  /** Returns the statements for a stage, see `StagedRows`. */
  stage(name: Sql): StageStatements {
    const parts = this.#parts
    const callPart = (statement: Statement, firstLine: number, lastLine: number) => {
      const values = [firstLine, lastLine].map(String)
      const before = this.#before((absorb) =>
        absorb.forSource(stagedPart(name), [...NO_MOMENT, ...values]),
      )
      return this.#call(statement, values, { ...before, ...this.#stages(name) })
    }
    const insertPart = insertStagePartStatement(parts, name)
    const replacePart = replaceStagePartStatement(parts, name)
    return {
      copy: copyToStageStatement(parts, name),
      count: countStageStatement(name),
      insert: {
        ...this.#call(insertStageStatement(parts, name), [], this.#stages(name)),
        isUnnamed: true,
      },
      insertPart: (firstLine, lastLine) => callPart(insertPart, firstLine, lastLine),
      replacePart: (firstLine, lastLine) => callPart(replacePart, firstLine, lastLine),
      idsOfPart: (firstLine, lastLine) => {
        const ids = sql`select s.id from ${name} s where s.line between ${firstLine} and ${lastLine}`
        return { ...toCall(ids), isUnnamed: true }
      },
      dropExisting: dropExistingStatement(parts, name),
      findRepeatedId: repeatedIdStatement(name),
      findTakenBeside: (key, existing) => takenBesideStatement(parts, name, { key, existing }),
      findTakenId: takenIdStatement(parts, name),
      findTakenValue: (key) => takenValueStatement(parts, name, key),
      findInherited: (key) => inheritedStageStatement(parts, name, key),
      findFailed: (check, { after, size, evaluates }) => ({
        statement: failedStepStatement(name, check, { evaluates }),
        values: [after, String(size)],
        isUnnamed: true,
      }),
    }
  }

  /** Inserts one row. Returns the metadata, and no row if the id is taken. */
  insertOne(row: RowInput): Call {
    const parts = this.#parts
    const { isNewId = false } = row
    const statement = this.#statement(isNewId ? 'insert new one' : 'insert one', () =>
      isNewId || parts.isPlain
        ? insertOneStatement(parts, { isNewId })
        : insertStatement(parts, 'metadata', parts.givenOne()),
    )
    return this.#call(statement, this.#valuesOfOne(row), this.#aroundRow(row))
  }

  #aroundRow(row: RowInput): Around {
    return { ...this.#beforeRows([row]), ...this.#writes([row]) }
  }

  /** Inserts or replaces one row. Returns the metadata, and whether the row existed. */
  replaceOne(row: RowInput): Call {
    const parts = this.#parts
    const statement =
      row.ifVersion === undefined
        ? this.#statement('replace any one', () =>
            replaceAnyStatement(parts, 'metadata', parts.givenOne()),
          )
        : this.#statement('replace one', () =>
            replaceStatement(parts, 'metadata', parts.givenOne()),
          )
    return this.#call(statement, this.#valuesOfOne(row), this.#aroundRow(row))
  }

  #valuesOfOne({ id, ifVersion, values }: RowInput): Parameter[] {
    return [id, versionText(ifVersion), ...values]
  }

  /** Inserts or replaces whole rows. Returns no row for one that does not have the expected version. */
  replace(rows: readonly RowInput[], returned: Returned): Call {
    const isConditional = rows.some((row) => row.ifVersion !== undefined)
    const statement = isConditional
      ? this.#statement(`replace ${returned}`, () => replaceStatement(this.#parts, returned))
      : this.#statement(`replace any ${returned}`, () => replaceAnyStatement(this.#parts, returned))
    const values = this.#arrays(rows, this.#codec.physical.length)
    return this.#call(statement, values, { ...this.#beforeRows(rows), ...this.#writes(rows) })
  }

  /** Inserts the rows of a draft, whose ids are those of deleted rows or new ones. */
  insertDraft(draft: Sql): Call {
    return { ...this.#call(insertDraftStatement(this.#parts, draft), []), isUnnamed: true }
  }

  /** Deletes rows. Returns the ids of deleted rows. */
  delete(ids: readonly string[]): Call {
    const before = { ...this.#before((absorb) => absorb.forRows(ids)), ...this.#deletes(ids) }
    const [id] = ids
    if (id !== undefined && ids.length === 1) {
      // An array of known length, so that PostgreSQL does not plan every call again.
      const statement = this.#statement('delete one', () =>
        deleteStatement(this.#parts, sql`array[${IDS}::text]`),
      )
      return this.#call(statement, [id], before)
    }
    const statement = this.#statement('delete', () => deleteStatement(this.#parts))
    return this.#call(statement, [arrayLiteral(ids)], before)
  }

  /** Changes the same columns of all rows, without arithmetic. Returns the ids. */
  update(rows: readonly RowInput[], columns: readonly number[]): Call {
    const statement = this.#statement(`update ${columns.join()}`, () =>
      updateStatement(this.#parts, columns),
    )
    const values = this.#arrays(rows, columns.length)
    return this.#call(statement, values, {
      ...this.#beforeRows(rows, columns),
      ...this.#writes(rows, columns),
    })
  }

  /**
   * Inserts whole rows, or changes the given columns of those whose id exists. Returns the id of each row that is
   * written, and whether it existed. Unique values must be looked up before.
   */
  upsert(rows: readonly RowInput[], columns: readonly number[]): Call {
    const statement = this.#statement(`upsert ${columns.join()}`, () =>
      upsertStatement(this.#parts, columns),
    )
    const values = this.#arrays(rows, this.#codec.physical.length)
    const before = this.#takesUnknown(columns)
      ? this.#before((absorb) => absorb.forAll())
      : this.#beforeRows(rows)
    return this.#call(statement, values, { ...before, ...this.#writes(rows) })
  }

  /**
   * Finds which ids the heap has. Returns them as one text. The statement is planned for the ids: PostgreSQL would expect few,
   * and compare each row of the table with all of them.
   */
  findPresent(ids: readonly string[]): Call {
    const statement = this.#statement('present ids', () => presentIdsStatement(this.#parts))
    return { statement, values: [arrayLiteral(ids)], isUnnamed: true }
  }

  /** Changes one row, also by arithmetic. Returns the metadata. */
  updateOne({ id, ifVersion, update }: UpdateInput): Call {
    const { columns, values, arithmetic } = update
    const key = arithmetic.map(({ column, operator }) => `${column}${operator}`)
    const statement = this.#statement(`update one ${columns.join()} ${key.join()}`, () =>
      updateOneStatement(this.#parts, columns, arithmetic),
    )
    const operands = arithmetic.map((term) => term.operand)
    return this.#call(statement, [id, versionText(ifVersion), ...values, ...operands], {
      ...this.#before((absorb) =>
        this.#takesUnknown(columns, arithmetic)
          ? absorb.forAll()
          : absorb.forRows([id], (column) => [values[columns.indexOf(column)] ?? null]),
      ),
      ...this.#writes([{ values }], columns),
    })
  }

  /**
   * Changes columns of all rows of a set, also by arithmetic. Returns the number of changed rows, and with arithmetic
   * that of all rows of the set. `setFrom` returns the set, whose parameters start at the given slot.
   */
  updateSet(
    { columns, values, arithmetic }: EncodedUpdate,
    setFrom: (firstSlot: number) => RowSet,
  ): Call {
    const own = [...values, ...arithmetic.map((term) => term.operand)]
    const set = setFrom(FIRST_COLUMN + own.length)
    const statement = updateSetStatement(this.#parts, { columns, arithmetic }, set)
    const changed = [...columns, ...arithmetic.map(({ column }) => column)]
    const isUnique = this.uniqueKeys.some((key) =>
      key.columns.some((each) => changed.includes(each)),
    )
    const call = this.#setCall(statement, { values: [...own, ...set.values], setFrom, isUnique })
    return { ...call, ...this.#writes([{ values }], columns) }
  }

  /** Deletes all rows of a set. Returns their number. */
  deleteSet(setFrom: (firstSlot: number) => RowSet): Call {
    const set = setFrom(FIRST_COLUMN)
    const namesMax = this.#isLinked ? NAMED_ROWS_MAX : undefined
    const statement = deleteSetStatement(this.#parts, set, namesMax)
    const call = this.#setCall(statement, { values: set.values, setFrom, isUnique: false })
    return { ...call, ...this.#deletes(undefined) }
  }

  /** A set has a statement of its own, which is planned for its values. */
  #setCall(
    statement: Statement,
    options: {
      values: readonly Parameter[]
      setFrom: (firstSlot: number) => RowSet
      isUnique: boolean
    },
  ): Call {
    const before = this.#before((absorb) => {
      if (options.isUnique) return absorb.forAll()
      const set = options.setFrom(0)
      const ids = sql`select f.id from (${set.select([])}) f`
      return absorb.forIds(ids, set.values)
    })
    return { ...this.#call(statement, [...NO_ROW, ...options.values], before), isUnnamed: true }
  }

  /** Returns the checks for an updated set. */
  checkSet({ columns, values, arithmetic }: EncodedUpdate): RuleCheck[] {
    if (!this.comparesAfterWrites) return NO_CHECKS
    return this.uniqueKeys.flatMap((key) => {
      const [column] = key.columns
      const isGiven = key.columns.some((each) => columns.includes(each))
      if (column !== undefined && key.columns.length === 1 && isGiven) {
        const given = { values: [values[columns.indexOf(column)] ?? null] }
        return this.#checkValues({ ...key, columns: [0] }, [given], key)
      }
      if (!isGiven && !changes(arithmetic, key)) return []
      const statement = inheritedTwinsStatement(this.#parts, key)
      return [{ violation: violationOf(this.#codec, key), call: { statement, values: [] } }]
    })
  }

  /** Returns a call of a statement that writes. The transaction adds the moment, unless the layout has it. */
  #call(
    statement: Statement,
    values: readonly Parameter[],
    around: Around = NOTHING_BEFORE,
  ): Call | MomentCall {
    const call = { statement, values: [...NO_MOMENT, ...values], ...around }
    return this.#parts.layout.hasForks ? { ...call, takesMoment: true } : call
  }

  /** Notes the links that are written. `columns` are those of the values, by default all. */
  #writes(
    rows: readonly Pick<RowInput, 'values'>[],
    columns = this.#parts.all,
  ): Partial<Pick<LinkingCall, 'linking'>> {
    const written = this.links.flatMap((link) => {
      const position = columns.indexOf(link.column)
      if (position === -1) return []
      return [{ link, values: rows.map(({ values }) => values[position] ?? null) }]
    })
    return written.length === 0 ? {} : { linking: { codec: this.#codec, written } }
  }

  /** Returns the links of rows that are written by COPY. */
  linkingOf(rows: readonly RowInput[]): Linking | undefined {
    return this.#writes(rows).linking
  }

  /** Notes rows that are deleted, if others may link to them. */
  #deletes(given: readonly string[] | undefined): Partial<Pick<LinkingCall, 'linking'>> {
    if (!this.#isLinked) return {}
    const idsIn = (rows: TextRows) =>
      given === undefined ? namedRows(rows) : rows.flatMap(([id]) => id ?? [])
    return { linking: { codec: this.#codec, deleted: { given, idsIn } } }
  }

  /** Notes the links of rows that come from a stage. */
  #stages(stage: Sql): Partial<Pick<LinkingCall, 'linking'>> {
    const written = this.links.map((link) => ({ link, values: stage }))
    return written.length === 0 ? {} : { linking: { codec: this.#codec, written } }
  }

  /** Returns the calls to run before rows are written. Their values are those of `columns`, by default of all. */
  #beforeRows(
    rows: readonly Pick<RowInput, 'id' | 'isNewId' | 'values'>[],
    columns = this.#parts.all,
  ): Pick<Call, 'before'> {
    return this.#before((absorb) => {
      const ids = rows.flatMap(({ id, isNewId }) => (isNewId ? [] : id))
      if (ids.length === 0 && this.uniqueKeys.length === 0) return []
      if (this.#takesUnknown(columns)) return absorb.forAll()
      return absorb.forRows(ids, (column) =>
        rows.map((row) => row.values[columns.indexOf(column)] ?? null),
      )
    })
  }

  #before(callsOf: (absorb: AbsorbCalls) => Call[]): Pick<Call, 'before'> {
    return this.#absorb === undefined ? NOTHING_BEFORE : { before: callsOf(this.#absorb) }
  }

  /** Returns the checks for inserted or replaced rows. */
  checkRows(rows: readonly GivenRow[]): RuleCheck[] {
    if (!this.comparesAfterWrites) return NO_CHECKS
    return this.uniqueKeys.flatMap((key) => this.#checkValues(key, rows))
  }

  /** Returns the checks for updated rows. Values that are not given are read from the written row. */
  checkUpdates(updates: readonly UpdateInput[]): RuleCheck[] {
    if (!this.comparesAfterWrites) return NO_CHECKS
    return this.uniqueKeys.flatMap((key) => {
      const [column] = key.columns
      if (column !== undefined && key.columns.length === 1) {
        const given = updates.map(({ id, update }) => ({
          id,
          values: [update.values[update.columns.indexOf(column)] ?? null],
        }))
        const calculated = updates.filter(({ update }) => changes(update.arithmetic, key))
        return [
          ...this.#checkValues({ ...key, columns: [0] }, given, key),
          ...this.#checkTwins(key, calculated),
        ]
      }
      const changed = updates.filter(
        ({ update }) =>
          changes(update.arithmetic, key) ||
          update.columns.some((index) => key.columns.includes(index)),
      )
      return this.#checkTwins(key, changed)
    })
  }

  /** `given` is the key in terms of the values of the rows. */
  #checkValues(given: UniqueKey, rows: readonly GivenRow[], key: UniqueKey = given): RuleCheck[] {
    const present = rows.filter(({ values }) => hasAll(given, values))
    if (present.length === 0) return []
    const statement = this.#statement(`inherited ${key.id}`, () =>
      inheritedValuesStatement(this.#parts, key),
    )
    const violation = violationOf(this.#codec, key)
    const call = { statement, values: arraysOf(given, present) }
    return [{ violation, call, idOf: ([position]) => present[Number(position)]?.id }]
  }

  /** Returns the checks of unique constraints for rows that were written, of which not all values are known. */
  checkWritten(ids: readonly string[]): RuleCheck[] {
    if (!this.comparesAfterWrites) return NO_CHECKS
    return this.uniqueKeys
      .filter(({ name }) => name !== undefined)
      .map((key) => ({
        violation: violationOf(this.#codec, key),
        call: {
          statement: inheritedTwinOfStatement(this.#parts, key),
          values: [arrayLiteral(ids)],
        },
      }))
  }

  #checkTwins(key: UniqueKey, updates: readonly UpdateInput[]): RuleCheck[] {
    const violation = violationOf(this.#codec, key)
    return updates.map(({ id }) => ({
      violation,
      call: { statement: inheritedTwinStatement(this.#parts, key), values: [id] },
      idOf: () => id,
    }))
  }

  /** Whether an update writes values of a unique key that depend on the row: by arithmetic, or of some columns only. */
  #takesUnknown(
    columns: readonly number[],
    arithmetic: readonly { readonly column: number }[] = [],
  ): boolean {
    return this.uniqueKeys.some((key) => {
      const given = key.columns.filter((column) => columns.includes(column))
      return changes(arithmetic, key) || (given.length > 0 && given.length < key.columns.length)
    })
  }

  /** Returns whether a row has a value of a unique key: of all of its columns. */
  hasValue(key: UniqueKey, values: RowInput['values']): boolean {
    return hasAll(key, values)
  }

  /** Returns the violation by a row whose value of a key is taken. */
  violationOf(key: UniqueKey): Violation {
    return violationOf(this.#codec, key)
  }

  /** Finds the rows that fail checks, or for which they cannot be evaluated. */
  async findFailing(tryCall: TryCall, rows: readonly JudgedRow[]): Promise<FailingRow[]> {
    const failing: FailingRow[] = []
    for (const check of this.checks) {
      const { failed, unevaluated } = await findFailing(tryCall, rows.length, {
        callOf: (start, end) => this.findFailed(check, rows.slice(start, end)),
        max: UNEVALUATED_MAX,
      })
      const add = (positions: readonly number[], isEvaluated: boolean) => {
        if (positions.length === 0) return
        const violation = violationOf(this.#codec, check, { isEvaluated })
        for (const row of positions) failing.push({ row, violation })
      }
      add(failed, true)
      add(unevaluated, false)
    }
    return failing.toSorted((left, right) => left.row - right.row)
  }

  /** Finds the first row of a set that would fail a check by a change, or for which it could not be evaluated. */
  async findFailingChange(
    tryCall: TryCall,
    update: EncodedUpdate,
    setFrom: (firstSlot: number) => RowSet,
  ): Promise<FailingChange | undefined> {
    const find = (check: CheckRule | undefined) =>
      findFirstFailing(tryCall, {
        before: '',
        callOf: (step) => this.#failedChange(check, { update, setFrom, step }),
      })
    // A result of arithmetic that is out of range is not a fault of a check.
    if (update.arithmetic.length > 0 && (await find(undefined)) !== undefined) return undefined
    for (const check of this.checks) {
      const failing = await find(check)
      if (failing === undefined) continue
      const { key: record, isEvaluated } = failing
      return { record, violation: violationOf(this.#codec, check, { isEvaluated }) }
    }
    return undefined
  }

  /** Like `findFailingChange`, for one row. */
  findFailingUpdate(
    tryCall: TryCall,
    { id, update }: UpdateInput,
  ): Promise<FailingChange | undefined> {
    return this.findFailingChange(tryCall, update, (firstSlot) =>
      oneRow(this.#parts, id, firstSlot),
    )
  }

  #failedChange(
    check: CheckRule | undefined,
    {
      update: { columns, values, arithmetic },
      setFrom,
      step: { after, size, evaluates },
    }: { update: EncodedUpdate; setFrom: (firstSlot: number) => RowSet; step: Step },
  ): Call {
    const own = [...values, ...arithmetic.map((term) => term.operand)]
    const set = setFrom(FIRST_COLUMN + own.length)
    const statement = failedChangeStatement(this.#parts, check, {
      change: { columns, arithmetic },
      set,
      firstSlot: FIRST_COLUMN + own.length,
      evaluates,
    })
    return {
      statement,
      values: [...NO_MOMENT, ...NO_ROW, ...own, ...set.values, after, String(size)],
      isUnnamed: true,
    }
  }

  /** Finds the positions of the rows whose value of a key already exists on the branch. */
  findValues(key: UniqueKey, rows: readonly Pick<RowInput, 'values'>[]): Call {
    return { statement: visibleValuesStatement(this.#parts, key), values: arraysOf(key, rows) }
  }

  /** Finds the positions of rows with the same value as an earlier one, as PostgreSQL compares them, with the first. */
  findRepeated(key: UniqueKey, rows: readonly Pick<RowInput, 'values'>[]): Call {
    return { statement: repeatedValuesStatement(this.#parts, key), values: arraysOf(key, rows) }
  }

  /** Finds the positions of the rows that fail a check. The call fails if it cannot be evaluated for one of them. */
  findFailed(check: CheckRule, rows: readonly JudgedRow[]): Call {
    const readsRows = rows.some(({ columns }) => columns !== undefined)
    const arrays = arraysOf(check, rows)
    if (!readsRows) return { statement: failedValuesStatement(this.#parts, check), values: arrays }
    const given = check.columns.map((column) =>
      arrayLiteral(rows.map(({ columns }) => String(columns?.includes(column) ?? true))),
    )
    return {
      statement: failedRowsStatement(this.#parts, check),
      values: [arrayLiteral(rows.map(({ id }) => id)), ...arrays, ...given],
    }
  }

  /** Returns calls that find the positions of the rows that link to missing records. */
  findMissing(rows: readonly Pick<RowInput, 'values'>[]): MissingLinks[] {
    return this.links.map((link) => {
      const targetOf = (row: number) => rows[row]?.values[link.column] ?? ''
      const { layout, codec } = this.#parts
      return {
        call: {
          statement: missingTargetsStatement(layout, link),
          values: arraysOf(link, rows),
        },
        isOwn: link.tableId === codec.table.id,
        targetOf,
        violationOf: (row) => {
          const target = { table: this.#nameOf(link.tableId), record: targetOf(row) }
          return missingLink(codec, link, target)
        },
      }
    })
  }

  /** Finds the rows that have the values of a key that given rows have. Returns the positions of the given rows, and the ids. */
  findHolders(key: UniqueKey, rows: readonly Pick<RowInput, 'values'>[]): Call {
    return { statement: holdersStatement(this.#parts, key), values: arraysOf(key, rows) }
  }

  /**
   * Finds which of the given rows was to get the values of a key that are taken. Returns its id and the values. `taken` is
   * what PostgreSQL says they are; undefined: those of any of the rows.
   */
  findTaker(key: UniqueKey, rows: readonly TakingRow[], taken: string | undefined): Call {
    const readsRows =
      rows.some(({ values }) => values.includes(undefined)) ||
      (rows.length > 1 && rows.some(({ exists }) => exists))
    const positions = key.columns.map((_, position) => position)
    const arrayOf = (textOf: (row: TakingRow) => string | null) => arrayLiteral(rows.map(textOf))
    return {
      statement: takerStatement(this.#parts, key, { readsRows }),
      values: [
        arrayOf(({ id }) => id),
        ...positions.map((position) => arrayOf(({ values }) => values[position] ?? null)),
        ...positions.map((position) =>
          arrayOf(({ values }) => String(values[position] !== undefined)),
        ),
        taken ?? null,
      ],
      isUnnamed: true,
    }
  }

  /** Finds a row of a set that cannot get its new values of a key. Returns its id and the values. */
  findSetTaker(
    key: UniqueKey,
    { columns, values }: Pick<EncodedUpdate, 'columns' | 'values'>,
    setFrom: (firstSlot: number) => RowSet,
  ): Call {
    const set = setFrom(FIRST_COLUMN + values.length)
    const statement = setTakerStatement(this.#parts, key, { columns, set })
    return {
      statement,
      values: [...NO_MOMENT, ...NO_ROW, ...values, ...set.values],
      isUnnamed: true,
    }
  }

  /**
   * Finds the first rows of a set whose results of arithmetic cannot be stored. Returns their ids, and the present value of each
   * calculated column.
   */
  findUnstored(
    { columns, values, arithmetic }: EncodedUpdate,
    setFrom: (firstSlot: number) => RowSet,
    max: number,
  ): Call {
    const own = [...values, ...arithmetic.map((term) => term.operand)]
    const set = setFrom(FIRST_COLUMN + own.length)
    const statement = unstoredStatement(this.#parts, { columns, arithmetic }, { set, max })
    return { statement, values: [...NO_MOMENT, ...NO_ROW, ...own, ...set.values], isUnnamed: true }
  }

  /** Returns ids, expected versions, and one array for each column. */
  #arrays(rows: readonly RowInput[], columns: number): string[] {
    const values = [
      arrayLiteral(rows.map((row) => row.id)),
      arrayLiteral(rows.map((row) => versionText(row.ifVersion))),
    ]
    for (let column = 0; column < columns; column++) {
      values.push(arrayLiteral(rows.map((row) => row.values[column] ?? null)))
    }
    return values
  }

  #statement(key: string, compile: () => Statement): Statement {
    let statement = this.#statements.get(key)
    if (statement === undefined) {
      statement = compile()
      this.#statements.set(key, statement)
    }
    return statement
  }
}

/** A row that was written, with its id if it is known. */
type GivenRow = Pick<RowInput, 'values'> & Partial<Pick<RowInput, 'id'>>

/** What belongs to a call besides its statement. */
type Around = Pick<Call, 'before'> & Partial<Pick<LinkingCall, 'linking'>>

/** Deleted rows of a set that are named, because others may link to them. If there are more, all links are looked at. */
const NAMED_ROWS_MAX = 10_000

const NOTHING_BEFORE: Around = {}
const NO_CHECKS: RuleCheck[] = []
/** Places for the values of the moment. */
const NO_MOMENT: readonly Parameter[] = new Array<null>(MOMENT_VALUES).fill(null)
/** Places for the ids and expected versions, which a set does not have. */
const NO_ROW: readonly Parameter[] = new Array<null>(FIRST_COLUMN - MOMENT_VALUES).fill(null)

/** Returns the ids of the deleted rows of a set. undefined: there are too many. */
function namedRows([row]: TextRows): string[] | undefined {
  const [count, ids] = row ?? []
  if (count === '0') return []
  return ids?.split(' ')
}

function hasAll({ columns }: UniqueKey, values: RowInput['values']): boolean {
  return columns.every((column) => (values[column] ?? null) !== null)
}

/** Returns the values of the columns of a key, as an array for each. */
function arraysOf(
  { columns }: Pick<UniqueKey, 'columns'>,
  rows: readonly Pick<RowInput, 'values'>[],
): string[] {
  return columns.map((column) => arrayLiteral(rows.map(({ values }) => values[column] ?? null)))
}

function changes(arithmetic: readonly { readonly column: number }[], { columns }: UniqueKey) {
  return arithmetic.some(({ column }) => columns.includes(column))
}

/** Returns the version that a row must have. Null: any. */
function versionText(ifVersion: number | undefined): string | null {
  return ifVersion === undefined ? null : String(ifVersion)
}
