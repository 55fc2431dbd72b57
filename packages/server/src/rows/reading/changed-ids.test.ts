import { describe, expect, test } from 'vitest'
import { toQuery } from '../../postgres/statement.js'
import { type Layout, type Level, withColumns, withoutRows } from '../layout/layout.js'
import { RowState } from '../row-state.js'
import { addedHeap, changedIds, mayDiffer } from './changed-ids.js'

/** A branch as of an epoch, or now, with the heaps of its tables. */
const level = (
  branchId: string,
  asOf: number | undefined,
  heaps: Record<number, string>,
): Level => ({
  branchId,
  asOf,
  heaps: new Map(
    Object.entries(heaps).map(([tableId, heapId]) => [
      Number(tableId),
      { databaseId: '1', heapId, columnIds: new Set([1, 2]) },
    ]),
  ),
  layers: new Map(),
})

const layout = (...levels: Level[]): Layout => ({
  branchId: levels[0]?.branchId ?? '',
  databaseId: '1',
  stamp: '1',
  schemaId: '1',
  epoch: 1,
  latestFork: 0,
  hasForks: false,
  resets: 0,
  levels,
})

const main = (asOf?: number) => level('main', asOf, { 7: '10', 8: '11' })
const dev = (asOf?: number) => level('dev', asOf, { 7: '20' })
const other = (asOf?: number) => level('other', asOf, { 8: '30' })

/** Returns the searched tables, as heap or past with the condition. */
function placesOf(left: Layout, right: Layout, tableId: number): string[] {
  const { text } = toQuery(changedIds(left, right, tableId))
  const places = text.matchAll(/from "offshoot_db_1"\."(\w+)"(?: where ([^)]*?))?(?= union|\)|$)/g)
  return [...places].map(([, table, condition]) => [table, condition].filter(Boolean).join(' '))
}

describe('two states', () => {
  test('that are the same differ nowhere', () => {
    const one = layout(dev(), main(3))
    expect(mayDiffer(one, one, 7)).toBe(false)
    expect(placesOf(one, one, 7)).toEqual([])
  })

  test('of a fork and where it started differ in what the fork wrote', () => {
    const start = layout(main(3))
    const fork = layout(dev(), main(3))
    expect(placesOf(start, fork, 7)).toEqual(['heap_20'])
    expect(mayDiffer(start, fork, 7)).toBe(true)
    expect(mayDiffer(start, fork, 8)).toBe(false)
    expect(placesOf(start, fork, 8)).toEqual([])
  })

  test('of a branch then and now differ in what it did since', () => {
    expect(placesOf(layout(main(3)), layout(main()), 7)).toEqual([
      'heap_10 epoch > 3 and epoch > 1',
      'past_10 until > 3',
    ])
  })

  test('of siblings differ in what each wrote and what the source did between', () => {
    const left = layout(dev(), main(3))
    const right = layout(other(), main(5))
    expect(placesOf(left, right, 7)).toEqual([
      'heap_20',
      'heap_10 epoch > 3 and epoch > 1',
      'past_10 until > 3',
    ])
    expect(placesOf(right, left, 8)).toEqual([
      'heap_30',
      'heap_11 epoch > 3 and epoch > 1',
      'past_11 until > 3',
    ])
  })

  test('of a branch now and a fork of it differ on both sides of the fork', () => {
    expect(placesOf(layout(dev(), main(3)), layout(main()), 7)).toEqual([
      'heap_20',
      'heap_10 epoch > 3 and epoch > 1',
      'past_10 until > 3',
    ])
  })

  test('share whatever both inherit as of the same epoch', () => {
    const left = layout(other(), dev(2), main(3))
    const right = layout(dev(4), main(3))
    expect(placesOf(left, right, 7)).toEqual([
      'heap_20 epoch > 2 and epoch > 1',
      'past_20 until > 2',
    ])
  })

  test('of which one has no rows differ in all of the other', () => {
    const fork = layout(dev(), main(3))
    expect(placesOf(withoutRows(fork), fork, 7)).toEqual(['heap_20', 'heap_10', 'past_10'])
  })

  test('differ by one heap of the second only if it inherits the first as it is', () => {
    const fork = layout(dev(), main(3))
    expect(addedHeap(layout(main(3)), fork, 7)).toMatchObject({ heapId: '20', asOf: undefined })
    const then = layout(dev(4), main(3))
    expect(addedHeap(layout(main(3)), then, 7)).toMatchObject({ heapId: '20', asOf: 4 })
    const heir = layout(other(), dev(4), main(3))
    expect(addedHeap(layout(main(3)), heir, 7)).toMatchObject({ heapId: '20', asOf: 4 })
    expect(addedHeap(withoutRows(fork), layout(main()), 7)).toMatchObject({ heapId: '10' })
    // The fork has not written to this table.
    expect(addedHeap(layout(main(3)), fork, 8)).toBeUndefined()
    expect(addedHeap(fork, layout(main(3)), 7)).toBeUndefined()
    expect(addedHeap(layout(main(2)), fork, 7)).toBeUndefined()
    expect(addedHeap(layout(dev(2), main(3)), then, 7)).toBeUndefined()
    expect(addedHeap(withoutRows(fork), fork, 7)).toBeUndefined()
  })

  test('are related when they share a branch', () => {
    expect(new RowState(layout(dev(), main(3))).isRelatedTo(layout(other(), main(5)))).toBe(true)
    expect(new RowState(layout(dev(), main(3))).isRelatedTo(layout(dev(2), main(3)))).toBe(true)
    expect(new RowState(layout(dev())).isRelatedTo(layout(other(), main(5)))).toBe(false)
  })
})

test('a state with some columns of a table has no values of the others, and no other tables', () => {
  const options = { tableId: 7, columnIds: new Set([2, 3]) }
  const state = withColumns(layout(dev(), main(3)), options)
  for (const { heaps } of state.levels) {
    expect([...heaps.keys()]).toEqual([7])
    for (const { columnIds } of heaps.values()) expect([...columnIds]).toEqual([2])
  }
})
