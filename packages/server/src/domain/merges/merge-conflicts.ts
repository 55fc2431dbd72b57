import type { MergeConflict } from '@offshoot/contract/merge-conflicts'
import type { TextRow } from '../../postgres/statement.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { UNDECIDED } from '../../rows/merging/compare-rows.js'
import type { TableComparison } from '../../rows/merging/comparison.js'

type Found<List extends (...parameters: never[]) => unknown> =
  ReturnType<List> extends AsyncIterable<infer Item> ? Item : Awaited<ReturnType<List>>

/** Describes a value of a unique column or constraint that several rows would have. */
export function describeClash(
  codec: TableCodec,
  { key, ids, tokens, texts }: Found<TableComparison['clashes']>['listed'][number],
): MergeConflict {
  const values = key.columns.map((column, index) => {
    const { path, codec: encoding } = codec.physical[column] ?? unknownColumn()
    return [path.join('.'), JSON.parse(encoding.decode(texts[index] ?? ''))] as const
  })
  const [[column, value] = unknownColumn()] = values
  return {
    table: codec.table.name,
    column,
    ...(key.name !== undefined && { constraint: key.name }),
    kind: 'notUnique',
    ids: [...ids],
    tokens,
    value: values.length === 1 ? value : Object.fromEntries(values),
    message:
      key.name === undefined
        ? `column [${column}]: is not unique after the merge`
        : `constraint [${key.name}]: the values are not unique after the merge`,
  }
}

/** Describes rows that would fail a check. */
export function describeFailure(
  codec: TableCodec,
  { check, ids, tokens, count, isAtLeast }: Found<TableComparison['failures']>[number],
): MergeConflict {
  const counted = count === 1 ? '1 record' : `${count} records`
  const records = isAtLeast ? `at least ${counted}` : counted
  const { path } = codec.physical[check.columns[0] ?? -1] ?? unknownColumn()
  if (check.computed !== undefined) {
    const { name, type } = check.computed
    return {
      table: codec.table.name,
      column: name,
      kind: 'check',
      ids: [...ids],
      tokens,
      records: count,
      message: `column [${name}]: is computed, and ${records} would have no value of type [${type}] after the merge`,
    }
  }
  return {
    table: codec.table.name,
    column: path.join('.'),
    constraint: check.name,
    kind: 'check',
    ids: [...ids],
    tokens,
    records: count,
    message: `constraint [${check.name}]: ${records} would fail the check after the merge`,
  }
}

/** Describes links to a record that would not exist. `target` is that record, in the merged table. */
export function describeLink(
  codec: TableCodec,
  { link, ids, tokens, count }: Found<TableComparison['brokenLinks']>['listed'][number],
  target: NonNullable<MergeConflict['target']>,
): MergeConflict {
  const column = (codec.physical[link.column] ?? unknownColumn()).path.join('.')
  const records = count === 1 ? '1 record' : `${count} records`
  return {
    table: codec.table.name,
    column,
    kind: 'link',
    ids: [...ids],
    tokens,
    records: count,
    target,
    message: `column [${column}]: ${records} would link to record [${target.id}] of table [${target.table}], which would not exist after the merge`,
  }
}

/** Describes rows that would have no value in a not-null column, or one that the column cannot have. */
export function describeRefused(
  codec: TableCodec,
  kind: 'notNull' | 'limit',
  { column, ids, tokens, count }: Found<TableComparison['missing']>[number],
): MergeConflict {
  const name = (codec.physical[column] ?? unknownColumn()).path.join('.')
  const records = count === 1 ? '1 record' : `${count} records`
  const fault =
    kind === 'notNull'
      ? `is required; ${records} would have no value after the merge`
      : `${records} would have a value after the merge that the column cannot have`
  return {
    table: codec.table.name,
    column: name,
    kind,
    ids: [...ids],
    tokens,
    records: count,
    message: `column [${name}]: ${fault}`,
  }
}

function unknownColumn(): never {
  throw new Error('a column must belong to the table')
}

/** Replaces values on which the states of the base disagree by null. */
function shownBase(row: TextRow | undefined): TextRow | undefined {
  return row?.map((text) => (text === UNDECIDED ? null : text))
}

/** Describes a row in conflict with the values of the base and of both sides. */
export function describeConflict(
  codec: TableCodec,
  conflict: Found<TableComparison['conflicts']>,
): MergeConflict {
  const { id, kind, columns, token } = conflict
  const named = { table: codec.table.name, id, kind }
  const recordOf = (texts: TextRow | undefined): Record<string, unknown> | null =>
    texts === undefined ? null : JSON.parse(`{${codec.decodeRow(texts)}}`)
  const records = {
    base: recordOf(shownBase(conflict.base)),
    ours: recordOf(conflict.ours),
    theirs: recordOf(conflict.theirs),
  }
  if (columns.length === 0) return { ...named, ...records, token }
  const paths = [...conflictPaths(codec, columns).keys()].map((path) => path.split('.'))
  const valuesAt = (path: readonly string[]) => ({
    base: valueAt(records.base, path),
    ours: valueAt(records.ours, path),
    theirs: valueAt(records.theirs, path),
  })
  return {
    ...named,
    columns: Object.fromEntries(paths.map((path) => [path.join('.'), valuesAt(path)])),
    token,
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
