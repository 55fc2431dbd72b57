import { LIMITS } from '@offshoot/contract/limits'
import { expect, it } from 'vitest'
import { sql } from '../../postgres/sql.js'
import { compileTable } from '../columns/table-codec.js'
import type { Layout } from '../layout/layout.js'
import { selectVisible, visibleArms } from './arms.js'

const codec = compileTable(
  { id: 1, name: 'people', columns: [{ id: 2, name: 'age', type: 'int' }] },
  { limits: LIMITS, jsonAsText: false },
)

/** A fork of a fork, and so on, each of which has written to the table. */
function chain(depth: number): Layout {
  return {
    branchId: 'b0',
    databaseId: '1',
    gate: 0,
    stamp: '1',
    schemaId: '1',
    epoch: 1,
    hasForks: false,
    levels: Array.from({ length: depth + 1 }, (_, level) => ({
      branchId: `b${level}`,
      asOf: level === 0 ? undefined : 1,
      heaps: new Map([[1, { heapId: String(level), columnIds: new Set([2]) }]]),
    })),
  }
}

const count = (text: string, part: string) => text.split(part).length - 1

it('A row of a far arm is looked for in the nearer ones as in one relation', () => {
  // With a join for each pair of arms, planning took 20 seconds for a chain of 40 forks.
  const arms = visibleArms(chain(40), codec, sql`r`)
  expect(arms).toHaveLength(81)
  expect(arms.map(({ condition }) => count(condition.text, 'not exists'))).toEqual([
    0,
    ...Array(80).fill(1),
  ])
  expect(count(selectVisible(chain(40), codec).text, 'limit 1) is null')).toBe(80)
})
