import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { TableLookup } from '../../rows/read-plan.js'
import { type Field, type FieldType, resolveField } from './field.js'
import { queryFault } from './query-fault.js'

export type Direction = 'asc' | 'desc'

/** `random` comes last: nothing can follow chance. */
export interface Sort {
  readonly keys: readonly { readonly field: Field; readonly direction: Direction }[]
  readonly isRandom: boolean
}

const SORTABLE: ReadonlySet<FieldType> = new Set(['text', 'int', 'float', 'bool', 'datetime'])
const KEYS_MAX = 16

/** `{a: "asc"}`, a list of such objects, or a list of names. */
export function parseSort(lookup: TableLookup, codec: TableCodec, sort: unknown): Sort {
  const entries = listEntries(sort)
  const keys: { field: Field; direction: Direction }[] = []
  let isRandom = false
  for (const [path, direction] of entries) {
    if (path === '*' && direction === 'random') {
      isRandom = true
      break
    }
    if (direction !== 'asc' && direction !== 'desc') {
      throw queryFault(`sort: column [${path}]: must be [asc] or [desc]`)
    }
    const field = resolveField(lookup, codec, path)
    if (!SORTABLE.has(field.type)) throw queryFault(`sort: column [${path}]: cannot be sorted by`)
    keys.push({ field, direction })
  }
  if (keys.length > KEYS_MAX) throw queryFault(`sort: takes at most ${KEYS_MAX} columns`)
  return { keys, isRandom }
}

function listEntries(sort: unknown): [string, unknown][] {
  if (sort === undefined || sort === null) return []
  if (typeof sort === 'string') return [[sort, 'asc']]
  if (Array.isArray(sort)) return sort.flatMap((item) => listEntries(item))
  if (typeof sort === 'object') return Object.entries(sort)
  throw queryFault('sort: expected an object or a list')
}
