import { SEARCH_LIMITS } from '@offshoot/contract/search'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { BranchTable } from '../../rows/open-branch.js'
import type { TableLookup } from '../../rows/reading/read-plan.js'
import { SearchedText } from '../../rows/reading/searched-text.js'
import type { TableRead } from '../../rows/reading/table-read.js'
import { resolveField } from '../query/field.js'
import { type Filter, parseFilter } from '../query/filter.js'
import { invalidQuery } from '../query/invalid-query.js'
import { planColumns } from '../session/session.js'
import { type Booster, type BoosterRequest, parseBooster } from './booster.js'

/** A searched column. */
export interface SearchColumn {
  readonly path: readonly string[]
  /** Index into the physical columns. */
  readonly index: number
  /** Indexes of the enclosing objects. */
  readonly objects: readonly number[]
  readonly text: SearchedText
  readonly weight: number
}

/** A searched table, with its names resolved. */
export interface TablePlan {
  readonly codec: TableCodec
  readonly read: TableRead
  readonly columns: readonly SearchColumn[]
  readonly filter: Filter
  readonly boosters: readonly Booster[]
}

type Target = string | { readonly column: string; readonly weight?: number }

interface TableRequest {
  readonly filter?: unknown
  readonly target?: readonly Target[]
  readonly boosters?: readonly BoosterRequest[]
}

export function planTable(
  lookup: TableLookup,
  table: BranchTable,
  request: TableRequest,
): TablePlan {
  const { codec } = table
  const resolve = (path: string) => resolveField(lookup, codec, path)
  return {
    codec,
    read: planColumns(table, ['*']),
    columns: planTargets(codec, request.target ?? []),
    filter: parseFilter(resolve, request.filter ?? {}),
    boosters: (request.boosters ?? []).map((booster) => parseBooster(resolve, booster)),
  }
}

/** Resolves the targets to columns. The weight of a named column takes precedence over that of `*`. */
function planTargets(codec: TableCodec, targets: readonly Target[]): SearchColumn[] {
  const weights = new Map<number, { weight: number; isNamed: boolean }>()
  for (const target of targets.length === 0 ? ['*'] : targets) {
    const { column, weight = 1 } = typeof target === 'string' ? { column: target } : target
    const isNamed = column !== '*'
    for (const index of listColumns(codec, column)) {
      if (isNamed || weights.get(index)?.isNamed !== true) weights.set(index, { weight, isNamed })
    }
  }
  return [...weights].flatMap(([index, { weight }]): SearchColumn[] => {
    const physical = codec.physical[index]
    const text = physical && SearchedText.of(physical.column.type)
    if (physical === undefined || text === undefined) return []
    const objects = codec.enclosingObjects(index)
    return [{ path: physical.path, index, objects, text, weight }]
  })
}

/** Resolves one target. `*` selects all text columns, and an object those nested in it. */
function listColumns(codec: TableCodec, target: string): number[] {
  if (target === '*') return searchable(codec, '')
  const path = target.replace(/\.\*$/, '')
  const index = codec.indexes.get(path)
  const column = index === undefined ? undefined : codec.physical[index]?.column
  const invalid = (message: string) =>
    invalidQuery(`target: table [${codec.table.name}]: column [${target}]: ${message}`)
  if (index === undefined || column === undefined) throw invalid('column not found')
  if (column.type === 'object') return searchable(codec, `${path}.`)
  if (path !== target) throw invalid('column not found')
  if (SearchedText.of(column.type) === undefined) {
    throw invalid(`cannot be searched, it is of type [${column.type}]`)
  }
  return [index]
}

function searchable(codec: TableCodec, prefix: string): number[] {
  return codec.physical.flatMap(({ path, column }, index) => {
    const isInside = path.join('.').startsWith(prefix)
    return isInside && SearchedText.of(column.type) !== undefined ? [index] : []
  })
}

/** The requested part of the results. */
export interface SearchPage {
  readonly size: number
  readonly offset: number
}

export function readSearchPage(page: { size?: number; offset?: number } = {}): SearchPage {
  return { size: page.size ?? SEARCH_LIMITS.pageSize, offset: page.offset ?? 0 }
}
