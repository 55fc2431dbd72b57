import { describe, expect, it } from 'vitest'
import { PageStore, type SourcePage } from './page-store.js'

/** A source of the numbers below `count`. */
function numbers(source: { count: number; reads: number }, pageMax = Number.POSITIVE_INFINITY) {
  return async (after: string | undefined, size: number): Promise<SourcePage<number>> => {
    source.reads++
    if (size > pageMax) throw new Error('too large')
    const first = after === undefined ? 0 : Number(after) + 1
    const length = Math.max(0, Math.min(size, source.count - first))
    const records = Array.from({ length }, (_, index) => first + index)
    return { records, cursor: String(records.at(-1)), hasMore: first + length < source.count }
  }
}

const OPTIONS = {
  firstSize: 5,
  size: 10,
  pagesMax: 3,
  isTooLarge: (error: unknown) => String(error).includes('too large'),
}

/** Waits until nothing changes any more. */
const settled = () => new Promise((resolve) => setTimeout(resolve, 0))

async function scrollTo(store: PageStore<number>, row: number): Promise<void> {
  for (let known = -1; known < store.knownRows && store.get(row) === undefined; ) {
    known = store.knownRows
    store.view(Math.min(row, known), Math.min(row, known))
    await settled()
  }
}

describe('PageStore', () => {
  it('starts with a first page that is known already, and goes on after it', async () => {
    const source = { count: 200, reads: 0 }
    const read = numbers(source)
    const store = new PageStore(read, { ...OPTIONS, first: await read(undefined, 5) })
    expect(store.get(4)).toBe(4)
    expect(source.reads).toBe(1)
    store.view(0, 3)
    await settled()
    expect(store.get(5)).toBe(5)
    expect(source.reads).toBe(2)
    store.refresh()
    await settled()
    expect(store.get(0)).toBe(0)
    expect(source.reads).toBeGreaterThan(2)
  })

  it('reads pages as they are scrolled to, and drops those far away', async () => {
    const source = { count: 200, reads: 0 }
    const store = new PageStore(numbers(source), OPTIONS)
    store.view(0, 3)
    await settled()
    expect(store.get(3)).toBe(3)
    expect(store.isComplete).toBe(false)
    await scrollTo(store, 199)
    expect(store.get(199)).toBe(199)
    expect(store.isComplete).toBe(true)
    expect(store.knownRows).toBe(200)
    expect(store.loadedRows).toBeLessThanOrEqual(30)
    expect(store.get(0)).toBeUndefined()
    store.view(0, 3)
    await settled()
    expect(store.get(0)).toBe(0)
    expect(store.knownRows).toBe(200)
  })

  it('sees rows that were added and removed when it reads again', async () => {
    const source = { count: 12, reads: 0 }
    const store = new PageStore(numbers(source), OPTIONS)
    store.view(0, 11)
    await settled()
    expect(store.knownRows).toBe(12)
    source.count = 20
    store.refresh()
    await settled()
    store.view(0, 19)
    await settled()
    expect(store.knownRows).toBe(20)
    source.count = 3
    store.refresh()
    await settled()
    expect(store.knownRows).toBe(3)
    expect(store.isComplete).toBe(true)
  })

  it('reads smaller pages if rows are too large', async () => {
    const source = { count: 9, reads: 0 }
    const store = new PageStore(numbers(source, 2), OPTIONS)
    store.view(0, 8)
    await settled()
    await scrollTo(store, 8)
    expect(store.get(8)).toBe(8)
  })

  it('stops at an error until it is told to try again', async () => {
    let isBroken = true
    const source = { count: 3, reads: 0 }
    const read = numbers(source)
    const store = new PageStore<number>(async (after, size) => {
      if (isBroken) throw new Error('away')
      return read(after, size)
    }, OPTIONS)
    store.view(0, 0)
    await settled()
    expect(store.error).toEqual(new Error('away'))
    isBroken = false
    store.retry()
    await settled()
    expect(store.error).toBeNull()
    expect(store.get(2)).toBe(2)
  })

  it('reads on when it is opened again', async () => {
    const source = { count: 3, reads: 0 }
    const store = new PageStore<number>(numbers(source), OPTIONS)
    store.close()
    store.view(0, 0)
    await settled()
    expect(source.reads).toBe(0)
    store.open()
    await settled()
    expect(store.get(2)).toBe(2)
  })
})
