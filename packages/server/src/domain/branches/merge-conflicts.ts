import type { MergeConflict } from '@offshoot/contract/merge-conflicts'
import type { Transaction } from '../../postgres/run-transaction.js'
import type { TableCodec } from '../../rows/columns.js'
import {
  listCompared,
  listConflicts,
  type MergeSides,
  type MissingValues,
  type ReviewedSides,
  type RowConflict,
  type RowTexts,
  readTokens,
  type StagedTable,
  UNDECIDED,
  type UniqueClash,
} from '../../rows/merge.js'
import type { PlacedConflict } from './conflict-list.js'

/** A table after the merge, and on both sides. */
interface ReviewedTable {
  readonly codec: TableCodec
  readonly sides: ReviewedSides
}

/** Describes values that several rows would have in a unique column. */
export async function describeClashes(
  transaction: Transaction,
  { codec, sides }: ReviewedTable,
  clashes: readonly UniqueClash[],
): Promise<MergeConflict[]> {
  const tokensOf = await tokensByIds(transaction, sides, clashes)
  return clashes.map((clash) => {
    const { path, codec: column } = codec.physical[clash.column] ?? unknownColumn()
    const name = path.join('.')
    return {
      table: codec.table.name,
      column: name,
      kind: 'notUnique',
      ids: [...clash.ids],
      tokens: tokensOf(clash.ids),
      value: JSON.parse(column.decode(clash.text)),
      message: `column [${name}]: is not unique after the merge`,
    }
  })
}

/** Describes rows that would have no value in a not-null column. */
export async function describeMissing(
  transaction: Transaction,
  { codec, sides }: ReviewedTable,
  missing: readonly MissingValues[],
): Promise<MergeConflict[]> {
  const tokensOf = await tokensByIds(transaction, sides, missing)
  return missing.map(({ column, ids, count }) => {
    const name = (codec.physical[column] ?? unknownColumn()).path.join('.')
    const records = count === 1 ? '1 record' : `${count} records`
    return {
      table: codec.table.name,
      column: name,
      kind: 'notNull',
      ids: [...ids],
      tokens: tokensOf(ids),
      records: count,
      message: `column [${name}]: is required; ${records} would have no value after the merge`,
    }
  })
}

/** Reads the tokens of the rows of several conflicts. Returns a function for those of one conflict. */
async function tokensByIds(
  transaction: Transaction,
  sides: ReviewedSides,
  conflicts: readonly { readonly ids: readonly string[] }[],
): Promise<(ids: readonly string[]) => Record<string, string>> {
  const all = [...new Set(conflicts.flatMap(({ ids }) => ids))]
  const tokens = await readTokens(transaction, sides, all)
  return (ids) => Object.fromEntries(ids.map((id) => [id, tokens.get(id)?.token ?? '']))
}

function unknownColumn(): never {
  throw new Error('a column must belong to the table')
}

/**
 * Describes conflicts of rows with the values of the base and of both sides, in the order of ids and starting
 * after an id.
 */
export async function* describeConflicts(
  transaction: Transaction,
  { staged, merge, reviewed }: Pick<StagedTable, 'staged' | 'merge'> & { reviewed: ReviewedSides },
  { after, limit }: { after: string | undefined; limit: number },
): AsyncGenerator<PlacedConflict> {
  const { codec } = staged
  const sides: MergeSides = merge
  const conflicts = await listConflicts(transaction, staged, { after, limit })
  const byId = new Map(conflicts.map((conflict) => [conflict.id, conflict]))
  const tokens = await readTokens(transaction, reviewed, [...byId.keys()])
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
      const described = describeConflict(codec, conflict, { base, theirs, ours: beside[0] })
      yield { conflict: { ...described, token: tokens.get(id)?.token ?? '' }, position: id }
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
  const paths = [...conflictPaths(codec, columns).keys()].map((path) => path.split('.'))
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

/**
 * Returns the columns in conflict by their dotted paths, each with its physical columns in conflict. An object
 * that is in conflict as a whole includes the columns in it.
 */
export function conflictPaths(
  codec: TableCodec,
  columns: readonly number[],
): Map<string, readonly number[]> {
  const pathOf = (column: number) => codec.physical[column]?.path ?? []
  const paths = outermost(columns.map(pathOf))
  return new Map(
    paths.map((path) => [
      path.join('.'),
      columns.filter((column) => path.every((name, index) => pathOf(column)[index] === name)),
    ]),
  )
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
