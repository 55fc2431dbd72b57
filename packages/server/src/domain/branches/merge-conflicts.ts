import type { Queryable } from '../../postgres/database.js'
import type { TableCodec } from '../../rows/columns.js'
import {
  type ComparedPage,
  listCompared,
  type MergeSides,
  type RowConflict,
  type RowTexts,
} from '../../rows/merge.js'
import { UNDECIDED } from './history/virtual-row.js'

/** A conflict in the form of responses. */
export type MergeConflict = Readonly<Record<string, unknown>>

/** Describes conflicts of rows with the values of the base and of both sides. */
export async function describeConflicts(
  transaction: Queryable,
  options: { codec: TableCodec; sides: MergeSides; conflicts: readonly RowConflict[] },
): Promise<MergeConflict[]> {
  const { codec, sides, conflicts } = options
  if (conflicts.length === 0) return []
  const ids = conflicts.map((conflict) => conflict.id)
  const byId = new Map<string, Sides>()
  for (let afterId: string | undefined = ''; afterId !== undefined; ) {
    const page: ComparedPage = await listCompared(transaction, {
      codec,
      before: sides.base.states,
      after: sides.theirs,
      beside: [sides.ours],
      form: 'json',
      afterId,
      limit: ids.length,
      ids,
    })
    for (const { id, before, after: theirs, beside } of page.rows) {
      const base = shownBase(sides.base.rowOf(before))
      byId.set(id, { base, theirs, ours: beside[0] })
    }
    afterId = page.next
  }
  return conflicts.map((conflict) => {
    const rows = byId.get(conflict.id) ?? { base: undefined, ours: undefined, theirs: undefined }
    return describeConflict(codec, conflict, rows)
  })
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
