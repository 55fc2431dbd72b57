import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { TableLookup } from '../../rows/reading/read-plan.js'
import type { TableRead } from '../../rows/reading/table-read.js'
import type { Position } from './cursor.js'
import type { Filter } from './filter.js'
import type { ReverseLink } from './reverse-link.js'
import type { Sort } from './sort.js'

/** A query with resolved names and validated values. */
export interface QueryPlan {
  readonly lookup: TableLookup
  readonly codec: TableCodec
  readonly read: TableRead
  readonly reverseLinks: readonly ReverseLink[]
  readonly filter: Filter
  readonly sort: Sort
  readonly seed: number
  readonly after: Position | undefined
  readonly before: Position | undefined
  readonly isBackward: boolean
  readonly limit: number
  readonly offset: number
}
