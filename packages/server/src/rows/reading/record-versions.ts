import { join, raw, type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileStatement, slot, type TextRow } from '../../postgres/statement.js'
import { isFileType } from '../columns/column-types.js'
import type { TableCodec } from '../columns/table-codec.js'
import { schemaName } from '../layout/database-schema.js'
import {
  type BranchRows,
  type Heap,
  type Layout,
  layoutOf,
  versionsName,
  withoutOwnRows,
} from '../layout/layout.js'
import { type FormerIds, joinVisible, jsonRowGaps, selectJsonRow } from './arms.js'
import type { TableRead } from './table-read.js'
import { recordAs } from './table-rows.js'

/*
 * The versions of a record. A branch has those that it has made itself, and those that its ancestors had made when it was
 * forked. Rows of a version are JSON, and are read as rows of the heap that they were in: so a column that was added or
 * converted since has the value that it would have had. Versions have no files: nothing keeps their contents.
 */

/** A heap with versions, and the epoch up to which the branch has them. */
interface KeptHeap {
  readonly heap: Heap
  readonly asOf: number | undefined
}

/** What a version does not tell of the columns that the table has now. */
interface VersionGaps {
  /** Names of columns, and the texts of values that do not convert to their types. */
  readonly unconverted: readonly (readonly [string, string])[]
  /** Names of columns that were added since, or whose values were made anew. */
  readonly missing: readonly string[]
}

const NO_GAPS: VersionGaps = { unconverted: [], missing: [] }

/** One version of a record. */
interface RecordVersion {
  /** Microseconds since 1970. */
  readonly time: string
  readonly userId: string | null
  readonly email: string | null
  readonly keyName: string | null
  readonly cause: string | null
  /** The texts of the record before and after the change. undefined: it did not exist, or it is not known. */
  readonly before: TextRow | undefined
  readonly after: TextRow | undefined
  readonly gapsBefore: VersionGaps
  readonly gapsAfter: VersionGaps
}

const MICROSECONDS = 1_000_000
/** The texts of a version in front of those of its rows. */
const OWN_TEXTS = 9

/** The versions of the records of a table on a branch. */
export class RecordVersions {
  readonly #layout: Layout
  readonly #codec: TableCodec
  readonly #read: TableRead
  readonly #ids: FormerIds

  /** `read` reads all columns. */
  constructor(
    rows: BranchRows,
    { codec, read, ids }: { codec: TableCodec; read: TableRead; ids: FormerIds },
  ) {
    this.#layout = layoutOf(rows)
    this.#ids = ids
    this.#codec = codec
    this.#read = read
  }

  /** The heaps of the branch and of its ancestors, the nearest first. */
  get #heaps(): KeptHeap[] {
    return this.#layout.levels.flatMap(({ heaps, asOf }) => {
      const heap = heaps.get(this.#codec.table.id)
      return heap === undefined || heap.isGone ? [] : [{ heap, asOf }]
    })
  }

  /** Asks which of the heaps have versions. */
  get findKept(): Call {
    const names = this.#heaps.map(({ heap }) => `versions_${heap.heapId}`)
    return {
      statement: compileStatement(sql`
        select c.relname
        from pg_class c
        where c.relnamespace = to_regnamespace(${slot(0)}::text) and c.relname = any(${slot(1)}::text[])`),
      values: [schemaName(this.#layout.databaseId), `{${names.join(',')}}`],
    }
  }

  /** Lists versions, newest first. `kept` has the rows of `findKept`. Returns undefined if there are none at all. */
  list(
    kept: readonly TextRow[],
    { id, before, limit }: { id: string; before: string | undefined; limit: number },
  ): Call | undefined {
    const names = new Set(kept.map(([name]) => name))
    const heaps = this.#heaps.filter(({ heap }) => names.has(`versions_${heap.heapId}`))
    if (heaps.length === 0) return undefined
    const selects = heaps.map((each) => sql`(${this.#selectFrom(each)} limit ${slot(2)}::integer)`)
    return {
      statement: compileStatement(sql`
        select * from (${join(selects, ' union all ')}) v order by 1 desc limit ${slot(2)}::integer`),
      values: [id, before ?? null, String(limit)],
      isUnnamed: true,
    }
  }

  #selectFrom({ heap, asOf }: KeptHeap): Sql {
    const [before, after] = [sql`old`, sql`new`].map((alias) =>
      this.#read.selectOwn(recordAs(this.#codec, alias)).map((value) => sql`${value}::text`),
    )
    const inEpoch = asOf === undefined ? sql`true` : sql`v.epoch <= ${raw(String(asOf))}`
    const time = (at: Sql) =>
      sql`(extract(epoch from ${at}) * ${raw(String(MICROSECONDS))})::bigint`
    return sql`
      select ${time(sql`v.at`)}, v.user_id, u.email, v.key_name, v.cause,
        v.old_row is not null, v.new_row is not null,
        ${this.#gapsOf(heap, sql`v.old_row`)}::text, ${this.#gapsOf(heap, sql`v.new_row`)}::text,
        ${join([...(before ?? []), ...(after ?? [])], ', ')}
      from ${versionsName(heap)} v
      left join offshoot.users u on u.id = v.user_id
      cross join lateral (${this.#selectRow(heap, sql`v.old_row`)}) old
      cross join lateral (${this.#selectRow(heap, sql`v.new_row`)}) new
      where v.id = ${slot(0)}::text and ${inEpoch} and (${slot(1)}::bigint is null
        or v.at < timestamptz 'epoch' + ${slot(1)}::bigint * interval '1 microsecond')
      order by v.at desc`
  }

  #selectRow(heap: Heap, json: Sql): Sql {
    return selectJsonRow(json, this.#codec, this.#rowOf(heap))
  }

  #gapsOf(heap: Heap, json: Sql): Sql {
    return jsonRowGaps(json, this.#codec, this.#rowOf(heap))
  }

  #rowOf(heap: Heap): Parameters<typeof jsonRowGaps>[2] {
    const isLeftOut = new Set(
      this.#codec.physical.flatMap(({ column }) => (isFileType(column.type) ? column.id : [])),
    )
    return { heap, isLeftOut, ids: this.#ids }
  }

  toVersion(row: TextRow): RecordVersion {
    const [time, userId, email, keyName, cause, hadRow, hasRow, before, after] = row
    const count = this.#read.ownCount
    const texts = row.slice(OWN_TEXTS)
    return {
      time: time ?? '',
      userId: userId ?? null,
      email: email ?? null,
      keyName: keyName ?? null,
      cause: cause ?? null,
      before: hadRow === 't' ? texts.slice(0, count) : undefined,
      after: hasRow === 't' ? texts.slice(count) : undefined,
      gapsBefore: readGaps(before),
      gapsAfter: readGaps(after),
    }
  }

  /** Reads the record as the branch had it when it was forked. undefined: the branch is no fork. */
  readStart(id: string): Call | undefined {
    if (this.#layout.levels.length < 2) return undefined
    const alias = sql`r0`
    const joined = joinVisible(withoutOwnRows(this.#layout), this.#codec, { id: sql`k.id`, alias })
    const texts = this.#read.selectOwn(recordAs(this.#codec, alias))
    return {
      statement: compileStatement(sql`
        select ${join(texts, ', ')} from (select ${slot(0)}::text as id) k ${joined}`),
      values: [id],
      isUnnamed: true,
    }
  }
}

function readGaps(text: string | null | undefined): VersionGaps {
  return text == null ? NO_GAPS : (JSON.parse(text) as VersionGaps)
}
