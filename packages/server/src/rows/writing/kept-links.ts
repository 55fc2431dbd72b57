import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { CachePart } from '../../common/shared-cache.js'
import { arrayLiteral } from '../../postgres/carriers.js'
import { Sql } from '../../postgres/sql.js'
import type { Call, Statement, TextRows } from '../../postgres/statement.js'
import { isFaults, type TableCodec } from '../columns/table-codec.js'
import type { LinkRule } from '../columns/table-rules.js'
import type { Layout } from '../layout/layout.js'
import { isLinkingCall, type Linking } from '../running/calls.js'
import type {
  LinkEffect,
  LinkEffects,
  OpenTransaction,
  WriteTransaction,
} from '../running/transactions.js'
import { tryingInside } from './failing-calls.js'
import {
  brokenAmongStatement,
  brokenInStageStatement,
  brokenStatement,
  failIfLinkedStatement,
  failIfMissingStatement,
  type LinkColumn,
} from './link-statements.js'
import { BrokenLinkError, findViolation, RuleBrokenAtEndError } from './refusals.js'
import type { TableWriter } from './table-writer.js'

/*
 * Links whose records must exist are kept at the end of a transaction, so that the order of its writes does not matter.
 * Records that link to deleted ones are found by one statement for each column, whatever their number, and deleted or
 * changed by another one. What that deletes is looked at in the same way, level by level.
 */

/** The tables of a branch, as far as links depend on them. */
export interface LinkedTables {
  readonly layout: Layout
  readonly limits: Limits
  readonly statements: CachePart<Statement>
  tableById(id: number): TableCodec | undefined
  referrersOf(tableId: number): readonly TableCodec[]
  /** Throws a `LackingHeapError` if the branch has no storage for the table yet. */
  writerOf(codec: TableCodec): TableWriter
}

/** A statement about more records is planned for them, because PostgreSQL expects few. */
const PLANNED_TARGETS_MIN = 100

/** Records of a table that were deleted. `all`: too many to name. */
type Deleted = Set<string> | 'all'

/** The links of one transaction. */
export class KeptLinks {
  readonly #tables: LinkedTables
  readonly #transaction: OpenTransaction
  readonly #written = new Map<LinkRule, { codec: TableCodec; values: Set<string>; stages: Sql[] }>()
  readonly #deleted = new Map<number, Deleted>()
  readonly #effects = new Map<string, LinkEffect>()
  /** Nothing was noted since links were settled. */
  #isSettled = false

  constructor(tables: LinkedTables, transaction: OpenTransaction) {
    this.#tables = tables
    this.#transaction = transaction
  }

  /** Returns the transaction, with its calls noted. */
  watch(transaction: WriteTransaction): WriteTransaction {
    return {
      ...transaction,
      run: async (calls) => {
        const rows = await transaction.run(calls)
        this.note(calls, rows)
        return rows
      },
      noteLinks: (linking) => this.#noteOne(linking, []),
      settleLinks: () => this.#settleNow(),
    }
  }

  note(calls: readonly Call[], rows: readonly TextRows[]): void {
    for (const [index, call] of calls.entries()) {
      if (isLinkingCall(call)) this.#noteOne(call.linking, rows[index] ?? [])
    }
  }

  #noteOne({ codec, written = [], deleted }: Linking, rows: TextRows): void {
    this.#isSettled = false
    for (const { link, values } of written) {
      const known = this.#written.get(link) ?? { codec, values: new Set(), stages: [] }
      this.#written.set(link, known)
      if (values instanceof Sql) known.stages.push(values)
      else for (const value of values) if (value !== null) known.values.add(value)
    }
    if (deleted !== undefined) addDeleted(this.#deleted, codec, deleted.idsIn(rows))
  }

  /** Carries out what deletions cause, then throws if a link is broken. */
  async settle(): Promise<void> {
    if (this.#isSettled) return
    if (this.#deleted.size > 0) await this.#carryOut()
    await this.#requireKept()
  }

  /** Settles links before the end. Returns what deletions have caused. */
  async #settleNow(): Promise<LinkEffects> {
    await this.settle()
    this.#isSettled = true
    return this.#effects
  }

  #addEffect({ table: { name } }: TableCodec, effect: Partial<LinkEffect>): void {
    const { deleted, cleared } = this.#effects.get(name) ?? { deleted: 0, cleared: 0 }
    this.#effects.set(name, {
      deleted: deleted + (effect.deleted ?? 0),
      cleared: cleared + (effect.cleared ?? 0),
    })
  }

  async #requireKept(): Promise<void> {
    const checks = [...this.#checksOfWritten(), ...this.#checksOfDeleted()]
    if (checks.length === 0) return
    const { violationsListedMax, linkedRecordsMax } = this.#tables.limits
    const found = await this.#transaction.run(
      checks.map(({ targets, ...check }) =>
        this.#find(check, targets, {
          countedMax: linkedRecordsMax,
          listedMax: violationsListedMax,
        }),
      ),
    )
    for (const [index, { codec, link, isDeleted }] of checks.entries()) {
      const rows = found[index] ?? []
      const [first] = rows
      if (first === undefined) continue
      const [, target, count] = first
      throw new BrokenLinkError({
        codec,
        link,
        target: { table: this.#nameOf(link.tableId), record: target ?? '' },
        records: rows.flatMap(([id]) => id ?? []),
        count: Number(count),
        isDeleted,
      })
    }
  }

  #checksOfWritten() {
    return [...this.#written].flatMap(([link, { codec, values, stages }]) => {
      const targets = [...(values.size === 0 ? [] : [values]), ...stages]
      return targets.map((each) => ({ codec, link, targets: each, isDeleted: false }))
    })
  }

  #checksOfDeleted() {
    return [...this.#deleted].flatMap(([tableId, targets]) =>
      this.#columnsOf(tableId)
        .filter(({ link }) => link.onDelete === 'restrict')
        .map((column) => ({ ...column, targets, isDeleted: true })),
    )
  }

  /** Lists the columns that link to a table. */
  #columnsOf(tableId: number): { codec: TableCodec; link: LinkRule }[] {
    return this.#tables
      .referrersOf(tableId)
      .flatMap((codec) =>
        codec.links.filter((link) => link.tableId === tableId).map((link) => ({ codec, link })),
      )
  }

  async #carryOut(): Promise<void> {
    const room = { left: this.#tables.limits.linkedRecordsMax }
    let level = new Map(this.#deleted)
    while (level.size > 0) {
      const next = new Map<number, Deleted>()
      await this.#eachReferrer(level, { onDelete: 'cascade', room }, async (codec, ids) => {
        const writer = this.#tables.writerOf(codec)
        const [gone = []] = await this.#transaction.run([writer.delete(ids)])
        this.#addEffect(codec, { deleted: gone.length })
        addDeleted(
          next,
          codec,
          gone.flatMap(([id]) => id ?? []),
        )
      })
      for (const [tableId, ids] of next) {
        addDeleted(this.#deleted, { table: { id: tableId } }, ids === 'all' ? undefined : [...ids])
      }
      level = next
    }
    // Rows that are deleted by another of their links need not keep rules without this one.
    await this.#eachReferrer(
      this.#deleted,
      { onDelete: 'setNull', room },
      async (codec, ids, link) => {
        await this.#removeLinks({ codec, link }, ids)
        this.#addEffect(codec, { cleared: ids.length })
      },
    )
  }

  /** Finds the rows with links to deleted records that have the given effect. */
  async #eachReferrer(
    deleted: ReadonlyMap<number, Deleted>,
    { onDelete, room }: { onDelete: LinkRule['onDelete']; room: { left: number } },
    follow: (codec: TableCodec, ids: readonly string[], link: LinkRule) => Promise<void>,
  ): Promise<void> {
    const { linkedRecordsMax } = this.#tables.limits
    for (const [tableId, targets] of deleted) {
      for (const column of this.#columnsOf(tableId)) {
        if (column.link.onDelete !== onDelete) continue
        const max = room.left + 1
        const call = this.#find(column, targets, { countedMax: max, listedMax: max })
        const [rows = []] = await this.#transaction.run([call])
        room.left -= rows.length
        if (room.left < 0) throw tooMany(this.#nameOf(tableId), linkedRecordsMax)
        const ids = rows.flatMap(([id]) => id ?? [])
        if (ids.length > 0) await follow(column.codec, ids, column.link)
      }
    }
  }

  /** Removes links of rows. Throws if a row breaks a rule without its link. */
  async #removeLinks(
    { codec, link }: { codec: TableCodec; link: LinkRule },
    ids: readonly string[],
  ): Promise<void> {
    const writer = this.#tables.writerOf(codec)
    const touched = codec.encodeUpdate({}, { now: new Date().toISOString(), userId: '' })
    if (isFaults(touched)) throw new Error('an update without values must be valid')
    const columns = [...touched.columns, link.column]
    const values = [...touched.values, null]
    const call = writer.update(
      ids.map((id) => ({ id, values })),
      columns,
    )
    const tryCall = tryingInside(this.#transaction)
    const isChecked = codec.checks.length > 0
    const written = await (isChecked ? tryCall(call) : this.#transaction.run([call])).catch(
      (error: unknown) => {
        const violation = findViolation(error, [codec])
        throw violation === undefined ? error : new RuleBrokenAtEndError(violation, ids)
      },
    )
    if (written !== undefined) return
    const row = codec.stored.physical.map((_, index) => values[columns.indexOf(index)] ?? null)
    const rows = ids.map((id) => ({ id, values: row, columns }))
    const [failing] = await writer.findFailing(tryCall, rows)
    if (failing === undefined) throw new Error('a row must fail a check')
    throw new RuleBrokenAtEndError(failing.violation, [ids[failing.row] ?? ''])
  }

  #find(
    column: { codec: TableCodec; link: LinkRule },
    targets: Deleted | Sql,
    { countedMax, listedMax }: { countedMax: number; listedMax: number },
  ): Call {
    const { layout, statements } = this.#tables
    const of = { layout, ...column }
    const { id } = column.link
    const limits = [String(countedMax), String(listedMax)]
    if (targets instanceof Sql) {
      return {
        statement: brokenInStageStatement(of, targets),
        values: [null, ...limits],
        isUnnamed: true,
      }
    }
    if (targets === 'all') {
      return { statement: brokenStatement(of), values: [null, ...limits], isUnnamed: true }
    }
    const statement = cached(statements, `among ${id}`, () => brokenAmongStatement(of))
    const isUnnamed = targets.size >= PLANNED_TARGETS_MIN
    return { statement, values: [arrayLiteral([...targets]), ...limits], isUnnamed }
  }

  #nameOf(tableId: number): string {
    return this.#tables.tableById(tableId)?.table.name ?? ''
  }
}

/**
 * Returns calls that fail if the given ones may break links, to run in the same round trip. Returns undefined if that
 * takes more than looking.
 */
export function linkChecks(tables: LinkedTables, calls: readonly Call[]): Call[] | undefined {
  const { layout, statements } = tables
  const checks: Call[] = []
  for (const call of calls) {
    if (!isLinkingCall(call)) continue
    const { codec, written = [], deleted } = call.linking
    for (const { link, values } of written) {
      if (values instanceof Sql) return undefined
      const column: LinkColumn = { layout, codec, link }
      const statement = cached(statements, `missing ${link.id}`, () =>
        failIfMissingStatement(column),
      )
      for (const value of values) if (value !== null) checks.push({ statement, values: [value] })
    }
    if (deleted === undefined) continue
    for (const referrer of tables.referrersOf(codec.table.id)) {
      for (const link of referrer.links.filter(({ tableId }) => tableId === codec.table.id)) {
        if (link.onDelete !== 'restrict' || deleted.given === undefined) return undefined
        const statement = cached(statements, `linked ${link.id}`, () =>
          failIfLinkedStatement({ layout, codec: referrer, link }),
        )
        for (const id of deleted.given) checks.push({ statement, values: [id] })
      }
    }
  }
  return checks
}

function cached(
  statements: CachePart<Statement>,
  key: string,
  compile: () => Statement,
): Statement {
  const known = statements.get(key)
  if (known !== undefined) return known
  const statement = compile()
  statements.set(key, statement)
  return statement
}

/** Adds deleted rows. undefined: too many to name. */
function addDeleted(
  deleted: Map<number, Deleted>,
  { table }: { readonly table: { readonly id: number } },
  ids: readonly string[] | undefined,
): void {
  const known = deleted.get(table.id)
  if (ids === undefined) deleted.set(table.id, 'all')
  else if (ids.length > 0 && known !== 'all') {
    const all = known ?? new Set()
    for (const id of ids) all.add(id)
    deleted.set(table.id, all)
  }
}

function tooMany(table: string, max: number): AppError {
  return new AppError(
    'limit_reached',
    `table [${table}]: more than ${max} records link to the deleted ones, directly or through others; ` +
      'delete them first, in parts; nothing was changed',
  )
}
