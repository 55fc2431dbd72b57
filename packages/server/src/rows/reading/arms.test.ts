import { LIMITS } from '@offshoot/contract/limits'
import { expect, it } from 'vitest'
import { sql } from '../../postgres/sql.js'
import { compileSharing, compileStatement, toQuery } from '../../postgres/statement.js'
import { compileTable } from '../columns/table-codec.js'
import type { Layout } from '../layout/layout.js'
import { NEAR_LEVELS_MAX, selectVisible } from './arms.js'
import { TableRows } from './table-rows.js'

const codec = compileTable(
  { id: 1, name: 'people', columns: [{ id: 2, name: 'age', type: 'int' }] },
  { limits: LIMITS, jsonAsText: false },
)

/** A fork of a fork, and so on, each of which has written to the table. */
function chain(depth: number): Layout {
  return {
    branchId: 'b0',
    databaseId: '1',
    stamp: '1',
    schemaId: '1',
    epoch: 1,
    latestFork: 0,
    hasForks: false,
    resets: 0,
    levels: Array.from({ length: depth + 1 }, (_, level) => ({
      branchId: `b${level}`,
      asOf: level === 0 ? undefined : 1,
      heaps: new Map([[1, { databaseId: '1', heapId: String(level), columnIds: new Set([2]) }]]),
      layers: new Map(),
    })),
  }
}

const count = (text: string, part: string) => text.split(part).length - 1

it('A row of a far arm is looked for in the nearer ones as in one relation', () => {
  // With a join for each pair of arms, planning took 20 seconds for a chain of 40 forks.
  const depth = NEAR_LEVELS_MAX - 1
  const arms = new TableRows(chain(depth), codec).arms(sql`r`)
  expect(arms).toHaveLength(1 + 2 * depth)
  expect(arms.map(({ condition }) => count(condition.text, 'not exists'))).toEqual([
    0,
    ...Array(2 * depth).fill(1),
  ])
  expect(count(selectVisible(chain(depth), codec).text, 'limit 1) is null')).toBe(2 * depth)
})

it('Levels beyond the nearest ones form one arm', () => {
  const arms = new TableRows(chain(40), codec).arms(sql`r`)
  expect(arms).toHaveLength(1 + 2 * (NEAR_LEVELS_MAX - 1) + 1)
  expect(count(arms.at(-1)?.table.text ?? '', 'union all')).toBe(2 * (41 - NEAR_LEVELS_MAX) - 1)
  // One far level is an arm like the others.
  expect(new TableRows(chain(NEAR_LEVELS_MAX), codec).arms(sql`r`)).toHaveLength(
    1 + 2 * NEAR_LEVELS_MAX,
  )
})

it('The length of statements grows linearly with the depth of a branch', () => {
  const lengths = [250, 500, 1000].map((depth) => selectVisible(chain(depth), codec).text.length)
  const [quarter = 0, half = 0, whole = 0] = lengths
  expect((whole - half) / (half - quarter)).toBeCloseTo(2, 1)
  expect(compileStatement(selectVisible(chain(1000), codec)).text.length).toBeLessThan(500_000)
})

it('A level takes one parameter, however often a statement refers to it', () => {
  const rows = selectVisible(chain(10), codec)
  const { slots, text } = compileStatement(sql`${rows} union all ${rows}`)
  expect(slots).toEqual(Array(10).fill('1'))
  expect(count(text, '$11')).toBe(0)
  expect(compileSharing(rows).slots).toHaveLength(10)
  expect(toQuery(rows).values).toEqual(Array(10).fill(1))
})

it('The number of scanned tables is that of the statement', () => {
  for (const depth of [0, 1, 3, NEAR_LEVELS_MAX, NEAR_LEVELS_MAX + 1, 40]) {
    const { text } = compileStatement(selectVisible(chain(depth), codec))
    expect(new TableRows(chain(depth), codec).scanCount).toBe(count(text, 'offshoot_db_1'))
  }
})
