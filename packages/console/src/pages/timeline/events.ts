import type { Checkpoint, LogEntry } from '@offshoot/client'

/** A line of the timeline: an entry of the log, a checkpoint, or both. */
export interface TimelineEvent {
  readonly id: string
  readonly at: string
  readonly entry?: LogEntry
  /** The checkpoint that was made then, if it still exists. */
  readonly checkpoint?: Checkpoint
  /** The checkpoint from before the change, if it still exists. */
  readonly before?: Checkpoint
}

/**
 * Puts checkpoints among the entries of the log, newest first. A checkpoint without an entry of its own is made by the
 * schedule. If there are entries that were not read, checkpoints that are older than the last one wait for them.
 */
export function eventsOf(
  entries: readonly LogEntry[],
  checkpoints: readonly Checkpoint[],
  { hasMore }: { hasMore: boolean },
): readonly TimelineEvent[] {
  const byId = new Map(checkpoints.map((checkpoint) => [checkpoint.id, checkpoint]))
  const shown = new Set<string>()
  const events = entries.map((entry): TimelineEvent => {
    const { id, at, kind } = entry
    const named = byId.get(String(entry.checkpoint))
    if (named === undefined || kind === 'checkpointDeleted') return { id, at, entry }
    shown.add(named.id)
    return kind === 'checkpoint'
      ? { id, at, entry, checkpoint: named }
      : { id, at, entry, before: named }
  })
  const oldest = entries.at(-1)?.at
  const others = checkpoints.filter(
    ({ id, createdAt }) =>
      !shown.has(id) && (!hasMore || oldest === undefined || createdAt >= oldest),
  )
  return [
    ...events,
    ...others.map((checkpoint) => ({
      id: checkpoint.id,
      at: checkpoint.createdAt,
      checkpoint,
    })),
  ].sort((left, right) => (left.at < right.at ? 1 : left.at > right.at ? -1 : 0))
}
