import type { Queryable } from '../../postgres/database.js'
import type { TableCodec } from '../../rows/columns.js'
import {
  listCompared,
  type MergeSides,
  type MissingValues,
  type RowConflict,
  type RowTexts,
  type UniqueClash,
} from '../../rows/merge.js'
import { UNDECIDED } from './history/virtual-row.js'

/** A conflict in the form of responses. */
export type MergeConflict = Readonly<Record<string, unknown>>

/** Maximum size of the listed conflicts as JSON. The first conflict is always listed. */
export const CONFLICTS_BYTES_MAX = 4 * 1024 * 1024

/** The conflicts of a merge. All of them are counted, and the first ones are listed. */
export class ConflictList {
  readonly listed: MergeConflict[] = []
  count = 0
  #bytesLeft = CONFLICTS_BYTES_MAX

  constructor(conflicts: readonly MergeConflict[]) {
    this.count = conflicts.length
    for (const conflict of conflicts) this.#list(conflict)
  }

  /** Adds conflicts. `count` may be larger than their number. Stops reading them when the list is full. */
  async add(
    conflicts: AsyncIterable<MergeConflict> | Iterable<MergeConflict>,
    count: number,
  ): Promise<void> {
    this.count += count
    for await (const conflict of conflicts) {
      if (!this.#list(conflict)) return
    }
  }

  /** Returns whether there is room for more. */
  #list(conflict: MergeConflict): boolean {
    this.#bytesLeft -= Buffer.byteLength(JSON.stringify(conflict))
    if (this.#bytesLeft < 0 && this.listed.length > 0) return false
    this.listed.push(conflict)
    return this.#bytesLeft > 0
  }
}

/** Describes a value that several rows would have in a unique column. */
export function describeClash(codec: TableCodec, clash: UniqueClash): MergeConflict {
  const { path, codec: column } = codec.physical[clash.column] ?? unknownColumn()
  const name = path.join('.')
  return {
    table: codec.table.name,
    column: name,
    kind: 'notUnique',
    ids: clash.ids,
    value: JSON.parse(column.decode(clash.text)),
    message: `column [${name}]: is not unique after the merge`,
  }
}

/** Describes rows that would have no value in a not-null column. */
export function describeMissing(codec: TableCodec, missing: MissingValues): MergeConflict {
  const name = (codec.physical[missing.column] ?? unknownColumn()).path.join('.')
  const records = missing.count === 1 ? '1 record' : `${missing.count} records`
  return {
    table: codec.table.name,
    column: name,
    kind: 'notNull',
    ids: missing.ids,
    records: missing.count,
    message: `column [${name}]: is required; ${records} would have no value after the merge`,
  }
}

function unknownColumn(): never {
  throw new Error('a column must belong to the table')
}

/** Describes conflicts of rows with the values of the base and of both sides. They are in the order of ids. */
export async function* describeConflicts(
  transaction: Queryable,
  options: { codec: TableCodec; sides: MergeSides; conflicts: readonly RowConflict[] },
): AsyncGenerator<MergeConflict> {
  const { codec, sides, conflicts } = options
  const byId = new Map(conflicts.map((conflict) => [conflict.id, conflict]))
  for (let ids = [...byId.keys()]; ids.length > 0; ) {
    const page = await listCompared(transaction, {
      codec,
      before: sides.base.states,
      after: sides.theirs,
      beside: [sides.ours],
      form: 'json',
      afterId: '',
      limit: ids.length,
      ids,
    })
    for (const { id, before, after: theirs, beside } of page.rows) {
      const conflict = byId.get(id)
      if (conflict === undefined) continue
      const base = shownBase(sides.base.rowOf(before))
      yield describeConflict(codec, conflict, { base, theirs, ours: beside[0] })
    }
    ids = ids.slice(page.rows.length)
  }
}

/** Replaces values on which the states of the base disagree by null. */
function shownBase(row: RowTexts): RowTexts {
  return row?.map((text) => (text === UNDECIDED ? null : text))
}

type Sides = Readonly<Record<'base' | 'ours' | 'theirs', RowTexts>>

function describeConflict(codec: TableCodec, conflict: RowConflict, sides: Sides): MergeConflict {
  const { id, kind, columns } = conflict
  const named = { table: codec.table.name, id, kind }
  const recordOf = (texts: RowTexts): Record<string, unknown> | null =>
    texts === undefined ? null : JSON.parse(`{${codec.decodeRow(texts)}}`)
  const records = {
    base: recordOf(sides.base),
    ours: recordOf(sides.ours),
    theirs: recordOf(sides.theirs),
  }
  if (columns.length === 0) return { ...named, ...records }
  const paths = outermost(columns.map((column) => codec.physical[column]?.path ?? []))
  const valuesAt = (path: readonly string[]) => ({
    base: valueAt(records.base, path),
    ours: valueAt(records.ours, path),
    theirs: valueAt(records.theirs, path),
  })
  return {
    ...named,
    columns: Object.fromEntries(paths.map((path) => [path.join('.'), valuesAt(path)])),
  }
}

/** Removes paths inside objects whose own path is in the list. */
function outermost(paths: readonly (readonly string[])[]): (readonly string[])[] {
  const isInside = (path: readonly string[], other: readonly string[]) =>
    other.length < path.length && other.every((name, index) => path[index] === name)
  return paths.filter((path) => !paths.some((other) => isInside(path, other)))
}

function valueAt(record: Record<string, unknown> | null, path: readonly string[]): unknown {
  let value: unknown = record
  for (const name of path) value = (value as Record<string, unknown> | null)?.[name] ?? null
  return value
}
