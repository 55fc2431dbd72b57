import type { LogEntry, LogOptions } from './api.js'
import type { CallOptions, Transport } from './http.js'

/** Entries per request. */
const PAGE_SIZE = 200

/** Iterates over the entries of a log, newest first. */
export async function* readLog(
  transport: Transport,
  path: string,
  { signal, kind }: LogOptions & CallOptions,
): AsyncIterableIterator<LogEntry> {
  for (let after: string | undefined; ; ) {
    const { entries, meta } = await transport.json<{
      entries: readonly LogEntry[]
      meta: { cursor?: string; more: boolean }
    }>({
      method: 'GET',
      path,
      query: {
        size: PAGE_SIZE,
        ...(kind === undefined ? {} : { kind }),
        ...(after === undefined ? {} : { after }),
      },
      isRead: true,
      signal,
    })
    yield* entries
    if (!meta.more) return
    after = meta.cursor
  }
}
