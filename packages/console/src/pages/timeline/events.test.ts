import type { Checkpoint, LogEntry } from '@offshoot/client'
import { expect, it } from 'vitest'
import { eventsOf } from './events.js'

const made = (id: string, createdAt: string): Checkpoint => ({
  id,
  name: id,
  kind: 'manual',
  createdAt,
})
const monday = made('monday', '2026-01-05T09:00:00Z')
const nightly = made('nightly', '2026-01-06T00:00:00Z')
const before = made('before', '2026-01-07T09:00:00Z')
const entries: readonly LogEntry[] = [
  { id: 'log3', kind: 'merge', at: '2026-01-07T09:00:01Z', checkpoint: 'before', after: 'after' },
  { id: 'log2', kind: 'checkpoint', at: '2026-01-05T09:00:00Z', checkpoint: 'monday' },
  { id: 'log1', kind: 'checkpoint', at: '2026-01-04T09:00:00Z', checkpoint: 'gone' },
]

it('checkpoints are among the entries: their own, that of the change, or by their time', () => {
  const events = eventsOf(entries, [before, nightly, monday], { hasMore: false })
  expect(events.map(({ id, checkpoint, before }) => [id, checkpoint?.id, before?.id])).toEqual([
    ['log3', undefined, 'before'],
    ['nightly', 'nightly', undefined],
    ['log2', 'monday', undefined],
    ['log1', undefined, undefined],
  ])
})

it('checkpoints that are older than the entries that were read wait for the others', () => {
  const events = eventsOf(entries.slice(0, 1), [nightly], { hasMore: true })
  expect(events.map(({ id }) => id)).toEqual(['log3'])
  expect(eventsOf(entries.slice(0, 1), [nightly], { hasMore: false })).toHaveLength(2)
})
