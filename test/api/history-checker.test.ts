import { describe, expect, it } from 'vitest'
import { checkHistory } from '../support/serial/check-history.js'
import { type History, MISSING, type Observed } from '../support/serial/history.js'

/** Makes a transaction. Each of `reads` and `writes` is `key version value`. */
function transaction(
  id: string,
  parts: {
    reads?: readonly string[]
    writes?: readonly string[]
    outcome?: Observed['outcome']
  },
): Observed {
  const { reads = [], writes = [], outcome = 'committed' } = parts
  const split = (text: string) => {
    const [key = '', version = '', value] = text.split(' ')
    return { key, version: Number(version), value }
  }
  return {
    id,
    outcome,
    reads: reads.map(split),
    writes: writes.map(split).map((write) => ({ ...write, value: write.value ?? '' })),
  }
}

const start = transaction('start', { writes: ['x 0 x0', 'y 0 y0'] })
const kindsOf = (...history: History) => checkHistory(history).map(({ kind }) => kind)

describe('a history', () => {
  it('of one transaction after the other is free of anomalies', () => {
    expect(
      kindsOf(
        start,
        transaction('a', { reads: ['x 0 x0'], writes: ['y 1 a'] }),
        transaction('b', { reads: ['x 0 x0', 'y 1 a'], writes: ['x 1 b'] }),
        transaction('c', { reads: ['x 1 b', 'y 1 a'] }),
      ),
    ).toEqual([])
  })

  it('in which concurrent transactions can be put into an order is free of them', () => {
    // The reader did not see the writes, so it comes first in the serial order.
    expect(
      kindsOf(
        start,
        transaction('writer', { writes: ['x 1 w', 'y 1 w2'] }),
        transaction('reader', { reads: ['x 0 x0', 'y 0 y0'] }),
      ),
    ).toEqual([])
  })

  it('may have transactions of which nobody knows whether they happened', () => {
    const lost = {
      ...transaction('lost', { outcome: 'unknown' }),
      writes: [{ key: 'x', version: undefined, value: 'l' }],
    }
    expect(kindsOf(start, lost, transaction('a', { reads: ['x 0 x0'] }))).toEqual([])
    expect(kindsOf(start, lost, transaction('a', { reads: ['x 1 l'] }))).toEqual([])
  })
})

describe('the checker finds', () => {
  it('G0: two transactions that each overwrite the other', () => {
    expect(
      kindsOf(
        start,
        transaction('a', { writes: ['x 1 a1', 'y 2 a2'] }),
        transaction('b', { writes: ['x 2 b1', 'y 1 b2'] }),
      ),
    ).toEqual(['G0'])
  })

  it('G1a: a value that was rolled back', () => {
    const aborted = {
      ...transaction('a', { outcome: 'aborted' }),
      writes: [{ key: 'x', version: undefined, value: 'a1' }],
    }
    expect(kindsOf(start, aborted, transaction('b', { reads: ['x 1 a1'] }))).toContain('G1a')
  })

  it('G1b: a value that its transaction has replaced', () => {
    expect(
      kindsOf(
        start,
        transaction('a', { writes: ['x 1 a1', 'x 2 a2'] }),
        transaction('b', { reads: ['x 1 a1'] }),
      ),
    ).toContain('G1b')
  })

  it('G1c: two transactions that each see the other', () => {
    expect(
      kindsOf(
        start,
        transaction('a', { writes: ['x 1 a'], reads: ['y 1 b'] }),
        transaction('b', { writes: ['y 1 b'], reads: ['x 1 a'] }),
      ),
    ).toEqual(['G1c'])
  })

  it('G1c: one that sees a transaction which it is overwritten by', () => {
    expect(
      kindsOf(
        start,
        transaction('a', { writes: ['x 1 a'], reads: ['y 1 b'] }),
        transaction('b', { writes: ['x 2 b2', 'y 1 b'] }),
      ),
    ).toEqual(['G1c'])
  })

  it('G-single: a reader that sees half of a transaction', () => {
    expect(
      kindsOf(
        start,
        transaction('a', { writes: ['x 1 a1', 'y 1 a2'] }),
        transaction('b', { reads: ['x 1 a1', 'y 0 y0'] }),
      ),
    ).toEqual(['G-single'])
  })

  it('G-single: an update that is lost', () => {
    expect(
      kindsOf(
        start,
        transaction('a', { reads: ['x 0 x0'], writes: ['x 1 a'] }),
        transaction('b', { reads: ['x 0 x0'], writes: ['x 2 b'] }),
      ),
    ).toEqual(['G-single'])
  })

  it('G2: two transactions that each write what the other has read', () => {
    expect(
      kindsOf(
        start,
        transaction('a', { reads: ['x 0 x0', 'y 0 y0'], writes: ['x 1 a'] }),
        transaction('b', { reads: ['x 0 x0', 'y 0 y0'], writes: ['y 1 b'] }),
      ),
    ).toEqual(['G2'])
  })

  it('G2: two transactions that each insert what the other has looked for', () => {
    expect(
      kindsOf(
        transaction('a', { reads: [`x ${MISSING}`], writes: ['y 0 a'] }),
        transaction('b', { reads: [`y ${MISSING}`], writes: ['x 0 b'] }),
      ),
    ).toEqual(['G2'])
  })

  it('G2: a reader that sees the second of two transactions without the first', () => {
    // Without the reader, `late` could come before `early`.
    expect(
      kindsOf(
        start,
        transaction('late', { reads: ['y 0 y0'], writes: ['x 1 l'] }),
        transaction('early', { writes: ['y 1 e'] }),
        transaction('reader', { reads: ['x 0 x0', 'y 1 e'] }),
      ),
    ).toEqual(['G2'])
  })

  it('circles of many transactions', () => {
    const count = 50
    const ring = Array.from({ length: count }, (_, number) =>
      transaction(`t${number}`, {
        reads: [`k${number} ${MISSING}`],
        writes: [`k${(number + 1) % count} 0 v${number}`],
      }),
    )
    expect(kindsOf(...ring)).toEqual(['G2'])
    expect(kindsOf(...ring.slice(1))).toEqual([])
  })

  it('versions that contradict each other', () => {
    expect(
      kindsOf(
        start,
        transaction('a', { writes: ['x 1 a'] }),
        transaction('b', { writes: ['x 1 b'] }),
      ),
    ).toEqual(['garbled'])
    expect(kindsOf(start, transaction('a', { reads: ['x 1 nobody'] }))).toEqual(['garbled'])
  })

  it('says who is in the circle, and by what', () => {
    const [anomaly] = checkHistory([
      start,
      transaction('a', { writes: ['x 1 a1', 'y 1 a2'] }),
      transaction('b', { reads: ['x 1 a1', 'y 0 y0'] }),
    ])
    expect(anomaly?.explanation).toBe('b did not see a in y, a was seen by b in x')
  })
})
