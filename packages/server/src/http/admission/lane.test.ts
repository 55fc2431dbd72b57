import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Lane, type Waiting } from './lane.js'

const WAIT_MS = 300

/** The clock only moves when a test says so. */
const pass = (ms: number) => vi.advanceTimersByTime(ms)
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

interface Visitor extends Waiting {
  state: string
}

let visitors = 0

/** A request of its own owner, unless one is given. */
function visitor(owner = `owner ${++visitors}`): Visitor {
  return {
    owner,
    state: '',
    admit() {
      this.state = 'admitted'
    },
    refuse() {
      this.state = 'refused'
    },
  }
}

function createLane(atOnceMax: number, waitingMax: number) {
  const lane = new Lane({ atOnceMax, waitingMax, waitMs: WAIT_MS })
  const enter = ({
    isReturning = false,
    owner,
  }: {
    isReturning?: boolean
    owner?: string
  } = {}) => {
    const guest = visitor(owner)
    guest.state = lane.enter(guest, { isReturning })
    return guest
  }
  return { lane, enter }
}

describe('a lane', () => {
  it('lets in as many as it has room for, and as many wait as it says', () => {
    const { lane, enter } = createLane(2, 3)
    const states = Array.from({ length: 7 }, () => enter().state)
    expect(states).toEqual([
      ...['inside', 'inside'],
      ...['waiting', 'waiting', 'waiting'],
      ...['refused', 'refused'],
    ])
    expect(lane).toMatchObject({ inside: 2, waiting: 3, refused: 2 })
  })

  it('passes a permit on to the one that has waited longest', () => {
    const { lane, enter } = createLane(1, 3)
    const { owner } = enter()
    const [first, second] = [enter(), enter()]
    lane.leave(owner)
    expect([first.state, second.state]).toEqual(['admitted', 'waiting'])
    lane.leave(first.owner)
    lane.leave(second.owner)
    expect(second.state).toBe('admitted')
    expect(lane).toMatchObject({ inside: 0, waiting: 0 })
  })

  it('lets those go first that were in before', () => {
    const { lane, enter } = createLane(1, 3)
    const { owner } = enter()
    const [waiting, returning] = [enter(), enter({ isReturning: true })]
    lane.leave(owner)
    expect([waiting.state, returning.state]).toEqual(['waiting', 'admitted'])
  })

  it('has no permit for one that no longer waits', () => {
    const { lane, enter } = createLane(1, 3)
    const { owner } = enter()
    const [gone, next] = [enter(), enter()]
    lane.abandon(gone)
    lane.leave(owner)
    expect([gone.state, next.state]).toEqual(['waiting', 'admitted'])
  })

  it('refuses those that have waited for too long, and none before', () => {
    const { lane, enter } = createLane(1, 3)
    enter()
    const late = enter()
    pass(WAIT_MS / 2)
    const later = enter()
    expect(late.state).toBe('waiting')
    pass(WAIT_MS / 2 + 100)
    expect([late.state, later.state]).toEqual(['refused', 'waiting'])
    expect(lane).toMatchObject({ inside: 1, waiting: 1, refused: 1 })
  })

  it('has less patience when there has been a queue for long', () => {
    const { lane, enter } = createLane(1, 10)
    const { owner } = enter()
    for (let round = 0; round < 15; round++) {
      enter()
      pass(WAIT_MS / 6)
    }
    const last = enter()
    pass(WAIT_MS / 2)
    expect(last.state).toBe('refused')
    lane.leave(owner)
    pass(WAIT_MS * 1.2)
    enter()
    const calm = enter()
    pass(WAIT_MS / 2)
    expect(calm.state).toBe('waiting')
  })

  it('keeps a quarter of its permits and of its queue for other owners', () => {
    const { lane, enter } = createLane(4, 8)
    const greedy = Array.from({ length: 10 }, () => enter({ owner: 'greedy' }).state)
    expect(greedy).toEqual([
      ...Array.from({ length: 3 }, () => 'inside'),
      ...Array.from({ length: 6 }, () => 'waiting'),
      'refused',
    ])
    expect(enter({ owner: 'other' }).state).toBe('inside')
    expect(enter({ owner: 'other' }).state).toBe('waiting')
    expect(lane).toMatchObject({ inside: 4, waiting: 7 })
  })

  it('admits owners by turns', () => {
    const { lane, enter } = createLane(1, 10)
    enter({ owner: 'busy' })
    const busy = [enter({ owner: 'busy' }), enter({ owner: 'busy' })]
    const calm = enter({ owner: 'calm' })
    lane.leave('busy')
    expect(busy[0]?.state).toBe('admitted')
    lane.leave('busy')
    expect([busy[1]?.state, calm.state]).toEqual(['waiting', 'admitted'])
  })
})
