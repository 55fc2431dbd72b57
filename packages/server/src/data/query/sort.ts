import { type Field, type FieldResolver, type FieldType, SQL_TYPES } from './field.js'
import { invalidQuery } from './invalid-query.js'

export type Direction = 'asc' | 'desc'

export interface SortKey {
  readonly field: Field
  readonly direction: Direction
}

/** A random order is always last, because keys after it would have no effect. */
export interface Sort {
  readonly keys: readonly SortKey[]
  readonly isRandom: boolean
}

/** Types whose values have an order. */
export const SORTABLE: ReadonlySet<FieldType> = new Set(Object.keys(SQL_TYPES) as FieldType[])
const KEYS_MAX = 16

export function parseSort(resolve: FieldResolver, sort: unknown): Sort {
  const keys: SortKey[] = []
  for (const { path, direction } of listSort(sort)) {
    if (direction === 'random') return { keys, isRandom: true }
    const field = resolve(path)
    const isSortable = SORTABLE.has(field.type) && field.source.kind !== 'json'
    if (!isSortable) throw invalidQuery(`sort: column [${path}]: cannot be sorted by`)
    keys.push({ field, direction })
  }
  return { keys, isRandom: false }
}

/** Parses the sort of records. Ids break ties, as texts; numbers have another order than their texts. */
export function parseRecordSort(resolve: FieldResolver, given: unknown): Sort {
  const sort = parseSort(resolve, given)
  const id = resolve('id')
  const isOrdered = id.ids?.type !== 'int' || sort.keys.some(({ field }) => field.path === id.path)
  if (isOrdered || sort.isRandom) return sort
  return { ...sort, keys: [...sort.keys, { field: id, direction: 'asc' }] }
}

/** Parses a sort: `{a: "asc"}`, a list of such objects, or a list of names. */
export function listSort(sort: unknown): { path: string; direction: Direction | 'random' }[] {
  const entries = listEntries(sort)
  if (entries.length > KEYS_MAX) throw invalidQuery(`sort: takes at most ${KEYS_MAX} columns`)
  return entries.map(([path, direction]) => {
    if (path === '*' && direction === 'random') return { path, direction }
    if (direction === 'asc' || direction === 'desc') return { path, direction }
    throw invalidQuery(`sort: column [${path}]: must be [asc] or [desc]`)
  })
}

function listEntries(sort: unknown): [string, unknown][] {
  if (sort === undefined || sort === null) return []
  if (typeof sort === 'string') return [[sort, 'asc']]
  if (Array.isArray(sort)) return sort.flatMap((item) => listEntries(item))
  if (typeof sort === 'object') return Object.entries(sort)
  throw invalidQuery('sort: expected an object or a list')
}
