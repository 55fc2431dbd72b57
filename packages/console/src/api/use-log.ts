import type { CallOptions, LogEntry } from '@offshoot/client'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { useSearch } from 'wouter'

/** Entries that are read at once. */
const STEP = 200

/** The newest entries of a log. */
export interface ShownLog {
  /** The kind of entries that the address names; empty for all of them. */
  readonly kind: string
  readonly entries: readonly LogEntry[] | undefined
  readonly hasMore: boolean
  readonly error: unknown
  readonly isFetching: boolean
  readOlder(): void
  retry(): void
}

/** Reads the newest entries of a log, and older ones on demand. */
export function useLog({
  queryKey,
  read,
  enabled = true,
}: {
  queryKey: readonly unknown[]
  read: (options: CallOptions & { readonly kind?: string }) => AsyncIterable<LogEntry>
  enabled?: boolean
}): ShownLog {
  const kind = new URLSearchParams(useSearch()).get('kind') ?? ''
  const [size, setSize] = useState(STEP)
  const log = useQuery({
    queryKey: [...queryKey, kind, size],
    queryFn: ({ signal }) => take(read({ signal, ...(kind !== '' && { kind }) }), size),
    placeholderData: keepPreviousData,
    enabled,
  })
  return {
    kind,
    entries: log.data?.items,
    hasMore: log.data?.hasMore === true,
    error: log.error,
    isFetching: log.isFetching,
    readOlder: () => setSize(size + STEP),
    retry: () => void log.refetch(),
  }
}

/** Reads up to a number of items, and whether there are more. */
async function take<Item>(
  items: AsyncIterable<Item>,
  count: number,
): Promise<{ readonly items: readonly Item[]; readonly hasMore: boolean }> {
  const found: Item[] = []
  for await (const item of items) {
    if (found.length === count) return { items: found, hasMore: true }
    found.push(item)
  }
  return { items: found, hasMore: false }
}
