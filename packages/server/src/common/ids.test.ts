import { afterEach, describe, expect, it, vi } from 'vitest'
import {
  newBranchId,
  newInviteId,
  newMigrationId,
  newRecordId,
  newUserId,
  newWorkspaceId,
  timeOrderedId,
} from './ids.js'

afterEach(() => vi.useRealTimers())

describe('ids', () => {
  it.each([
    ['record', newRecordId, /^rec_[0-9a-v]{20}$/],
    ['user', newUserId, /^usr_[0-9a-v]{20}$/],
    ['invite', newInviteId, /^inv_[0-9a-v]{20}$/],
    ['migration', newMigrationId, /^mig_[0-9a-v]{20}$/],
    ['branch', newBranchId, /^bb_[0-9a-v]{26}_[a-z0-9]{6}$/],
    ['workspace', () => newWorkspaceId('acme'), /^acme-[a-z0-9]{6}$/],
  ])('of a %s have their form', (_name, make, form) => {
    for (let count = 0; count < 100; count++) expect(make()).toMatch(form)
  })

  it('are all different and in order over a million calls', () => {
    let previous = ''
    for (let count = 0; count < 1_000_000; count++) {
      const id = timeOrderedId()
      // An assertion for each of them would take longer than all the rest.
      if (id <= previous || id.length !== 20) expect.fail(`[${id}] after [${previous}]`)
      previous = id
    }
  })

  it('are in order when one millisecond has more calls than the counter can count', () => {
    vi.useFakeTimers({ now: Date.now() + 60_000 })
    const count = 2 ** 20 + 2
    let previous = timeOrderedId()
    const first = previous
    for (let call = 1; call < count; call++) {
      const id = timeOrderedId()
      if (id <= previous) expect.fail(`[${id}] after [${previous}]`)
      previous = id
    }
    expect(previous.slice(0, 9) > first.slice(0, 9)).toBe(true)
  })

  it('are in order when the clock goes back', () => {
    vi.useFakeTimers({ now: Date.now() + 120_000 })
    const before = timeOrderedId()
    vi.setSystemTime(Date.now() - 3_600_000)
    const after = timeOrderedId()
    expect(after > before).toBe(true)
  })

  it('tell the time they were made at', () => {
    const time = Date.UTC(2100, 0, 1)
    vi.useFakeTimers({ now: time })
    expect(Number.parseInt(timeOrderedId().slice(0, 9), 32)).toBe(time)
  })

  it('sort as text in the order of time until the year 3084', () => {
    const last = 2 ** 45 - 1
    expect(new Date(last).getUTCFullYear()).toBe(3084)
    expect(last.toString(32)).toHaveLength(9)
  })
})
