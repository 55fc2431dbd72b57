import { randomUUID } from 'node:crypto'
import { arrayLiteral } from '../../postgres/carriers.js'
import { empty, ident, join, type Sql, sql } from '../../postgres/sql.js'
import { type Call, type TextRows, toCall } from '../../postgres/statement.js'
import { physicalName } from '../columns/column-tree.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type CheckRule, failsCheck, type UniqueKey } from '../columns/table-rules.js'
import { draftStatement } from '../heaps/heap-ddl.js'
import { BEGIN_MOVING, END_MOVING, keepLayerVersions } from '../heaps/versions.js'
import { type Heap, heapName, type Layout } from '../layout/layout.js'
import { joinVisible } from '../reading/arms.js'
import type { WriteTransaction } from '../running/transactions.js'
import { findFirstFailing, selectStep, type TryCall, tryingInside } from './failing-calls.js'
import { RuleBrokenAtEndError, violationOf } from './refusals.js'
import { StatementParts } from './statement-parts.js'
import type { TableWriter } from './table-writer.js'
import { twins } from './unique-statements.js'

/*
 * PostgreSQL keeps the rules of a heap with each row that it writes. A transaction whose rows break one on the way writes to
 * drafts instead: tables without rules that hide the rows of the branch, like those of a fork. When it ends, the rows of the
 * drafts are judged, and replace those of the branch.
 */

/** A table that a transaction writes to, with its rules. */
interface DraftedTable {
  readonly codec: TableCodec
  /** Writes to the branch itself. */
  readonly writer: TableWriter
}

export class Draft {
  /** The branch with the drafts in front of its own rows. */
  readonly layout: Layout
  /** The branch without the drafts. */
  readonly #below: Layout
  readonly #transaction: WriteTransaction
  readonly #tables: readonly (DraftedTable & { readonly heap: Heap })[]

  private constructor(
    transaction: WriteTransaction,
    layout: Layout,
    tables: readonly (DraftedTable & { heap: Heap })[],
  ) {
    this.#transaction = transaction
    this.#tables = tables
    this.#below = layout
    const heaps = new Map(tables.map(({ codec, heap }) => [codec.table.id, heap]))
    const level = { branchId: '', asOf: undefined, heaps, layers: new Map<number, never>() }
    // No fork sees a draft, so it keeps no old versions.
    this.layout = { ...layout, hasForks: false, levels: [level, ...layout.levels] }
  }

  /** Creates drafts of tables. They exist in the transaction only. */
  static async create(
    transaction: WriteTransaction,
    layout: Layout,
    tables: readonly DraftedTable[],
  ): Promise<Draft> {
    const { databaseId } = layout
    const drafted = tables.map((table) => {
      const heapId = `draft_${randomUUID().replaceAll('-', '')}`
      const columnIds = new Set(table.codec.physical.map(({ id }) => id))
      return { ...table, heap: { databaseId, heapId, columnIds } }
    })
    await transaction.run(
      drafted.map(({ heap, codec }) => once(draftStatement(heap, codec.table.columns))),
    )
    return new Draft(transaction, layout, drafted)
  }

  /** The transaction, for calls that write to drafts. Their statements are not kept prepared. */
  get transaction(): WriteTransaction {
    return {
      ...this.#transaction,
      run: (calls) => this.#transaction.run(calls.map((call) => ({ ...call, isUnnamed: true }))),
    }
  }

  /** Throws a `RuleBrokenAtEndError` if rows break a rule. Otherwise they replace those of the branch. */
  async publish(): Promise<void> {
    for (const table of this.#tables) {
      await this.#judge(table)
      await this.#replace(table)
    }
    const names = this.#tables.map(({ heap }) => heapName(heap))
    await this.#transaction.run([once(sql`drop table ${join(names, ', ')}`)])
  }

  async #judge({ codec, heap }: DraftedTable & { heap: Heap }): Promise<void> {
    const parts = new StatementParts(this.layout, codec, heap, { isLocked: false })
    for (const key of codec.uniqueKeys) {
      const breakers = sql`${repeated(parts, key)} union all ${twins(parts, key, IS_MINE)}`
      const [found = []] = await this.#transaction.run([listBreakers(breakers)])
      if (found.length > 0) await this.#refuse(parts, key, found)
    }
    const tryCall = tryingInside(this.#transaction)
    for (const check of codec.checks) {
      const found = await tryCall(listBreakers(failing(parts, check)))
      if (found === undefined) await this.#refuseFailing(parts, check, tryCall)
      else if (found.length > 0) await this.#refuse(parts, check, found)
    }
  }

  async #refuse(parts: StatementParts, rule: UniqueKey | CheckRule, found: TextRows) {
    const records = found.flatMap(([id]) => id ?? [])
    const values = 'expression' in rule ? undefined : await this.#taker(parts, rule, records)
    const [first, ...shown] = values ?? records.slice(0, 1)
    const others = records.filter((id) => id !== first)
    const violation = violationOf(parts.codec, rule)
    throw new RuleBrokenAtEndError(violation, [first ?? '', ...others], shown)
  }

  /** Refuses the first row that fails a check, which cannot be evaluated for one of them. */
  async #refuseFailing({ own, codec }: StatementParts, check: CheckRule, tryCall: TryCall) {
    const rows = sql`select * from ${own} mine where ${IS_MINE}`
    const isFailed = failsCheck(check, (id) => sql`r.${ident(physicalName({ id }))}`)
    const found = await findFirstFailing(tryCall, {
      before: '',
      callOf: ({ after, size, evaluates }) =>
        once(
          selectStep(rows, {
            key: 'id',
            failed: evaluates ? isFailed : sql`false`,
            slots: { after: sql`${after}`, size: sql`${size}` },
          }),
        ),
    })
    if (found === undefined) throw new Error('a row must fail the check')
    const { key, isEvaluated } = found
    throw new RuleBrokenAtEndError(violationOf(codec, check, { isEvaluated }), [key])
  }

  /** Returns the id of the first row that has changed its value of a key, if one has, and the value of each column. */
  async #taker(
    parts: StatementParts,
    { columns }: UniqueKey,
    ids: readonly string[],
  ): Promise<readonly string[] | undefined> {
    const { codec } = parts
    const before = joinVisible(this.#below, codec, { id: sql`d.id`, alias: sql`r`, outer: true })
    const names = columns.map((index) => parts.name(index))
    const isKept = names.map((name) => sql`d.${name} is not distinct from r.${name}`)
    const values = names.map((name) => sql`, concat(d.${name})`)
    const found = sql`
      select d.id${join([empty, ...values], '')}
      from ${parts.own} d
      ${before}
      where d.id = any(${arrayLiteral(ids)}::text[])
      order by ${join(isKept, ' and ')}, d.id
      limit 1`
    const [[row] = []] = await this.#transaction.run([once(found)])
    return row?.map((value) => value ?? '')
  }

  /** Deletes all rows first, so that values can move between them. */
  async #replace({ heap, codec, writer }: DraftedTable & { heap: Heap }): Promise<void> {
    const name = heapName(heap)
    const [rows = []] = await this.#transaction.run([once(sql`select d.id from ${name} d`)])
    const ids = rows.flatMap(([id]) => id ?? [])
    if (ids.length === 0) return
    const replaced = [writer.delete(ids), writer.insertDraft(name)]
    await this.#transaction.run(this.#keepVersions({ heap, codec }, replaced))
  }

  /** Adds statements that keep one version of each row, and not one for its deletion and one for its return. */
  #keepVersions(draft: Pick<DraftedTable, 'codec'> & { heap: Heap }, calls: Call[]): Call[] {
    const { table } = draft.codec
    const heap = this.layout.levels[1]?.heaps.get(table.id)
    if (table.history === undefined || heap === undefined) return calls
    const epoch = sql`(
      select b.epoch
      from offshoot.heaps h
      join offshoot.branches b on b.id = h.branch_id
      where h.id = ${heap.heapId}::bigint
    )`
    return [
      once(keepLayerVersions({ heap, layer: draft.heap, epoch })),
      once(BEGIN_MOVING),
      ...calls,
      once(END_MOVING),
    ]
  }
}

/** Rows that break a rule which are looked at, to find the last operation that has written one of them. */
const BREAKERS_MAX = 1000

function listBreakers(breakers: Sql): Call {
  return once(sql`select b.id from (${breakers}) b order by b.id limit ${BREAKERS_MAX}`)
}

/** A statement of a draft runs once. */
function once(statement: Sql): Call {
  return { ...toCall(statement), isUnnamed: true }
}

const IS_MINE = sql`not mine.deleted`

/** Selects the ids of rows of a draft that have the same value of a key as another one. */
function repeated({ own, codec }: StatementParts, { columns }: UniqueKey): Sql {
  const same = columns.flatMap((index) => {
    const column = codec.physical[index]
    if (column === undefined) return []
    const name = ident(column.physicalName)
    return [sql`other.${name} = mine.${name}`]
  })
  return sql`
    select mine.id
    from ${own} mine
    join ${own} other on ${join(same, ' and ')} and other.id <> mine.id and not other.deleted
    where ${IS_MINE}`
}

function failing({ own }: StatementParts, check: CheckRule): Sql {
  const columnSql = (id: number) => sql`mine.${ident(physicalName({ id }))}`
  return sql`select mine.id from ${own} mine where ${IS_MINE} and ${failsCheck(check, columnSql)}`
}
