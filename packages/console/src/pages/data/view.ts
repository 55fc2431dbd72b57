import type { AnySchema, Filter } from '@offshoot/client'

type Direction = 'asc' | 'desc'

export interface SortTerm {
  readonly column: string
  readonly direction: Direction
}

export type AnyFilter = Filter<AnySchema, string>

/** The part of a table that the page shows. It is in the address, so that a link shows the same. */
export interface View {
  readonly filter: AnyFilter | undefined
  readonly sort: readonly SortTerm[]
  readonly search: string
  /** The checkpoint that is shown: its id, its name, or a time. Empty: the present. */
  readonly at: string
}

export function parseView(text: string): View {
  const parameters = new URLSearchParams(text)
  const filter = parse(parameters.get('filter'))
  const sort = parse(parameters.get('sort'))
  return {
    filter: isObject(filter) ? (filter as AnyFilter) : undefined,
    sort: Array.isArray(sort)
      ? sort.filter(isObject).flatMap((term) =>
          Object.entries(term).map(([column, direction]) => ({
            column,
            direction: direction === 'desc' ? ('desc' as const) : ('asc' as const),
          })),
        )
      : [],
    search: parameters.get('search') ?? '',
    at: parameters.get('at') ?? '',
  }
}

export function formatView({ filter, sort, search, at }: View): string {
  const parameters = new URLSearchParams()
  if (filter !== undefined) parameters.set('filter', JSON.stringify(filter))
  if (sort.length > 0) parameters.set('sort', JSON.stringify(sortOf(sort)))
  if (search !== '') parameters.set('search', search)
  if (at !== '') parameters.set('at', at)
  return parameters.toString()
}

/** The sort as the service takes it. */
export function sortOf(sort: readonly SortTerm[]): Record<string, Direction>[] {
  return sort.map(({ column, direction }) => ({ [column]: direction }))
}

function parse(text: string | null): unknown {
  try {
    return text === null ? undefined : JSON.parse(text)
  } catch {
    return undefined
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
