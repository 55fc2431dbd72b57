import type { BranchSummary } from '@offshoot/client'
import { describe, expect, it } from 'vitest'
import { layOutBranches } from './layout.js'

const NONE: ReadonlySet<string> = new Set()

const branch = (name: string, from?: string, age = 0): BranchSummary => ({
  name,
  id: name,
  createdAt: new Date(age * 1000).toISOString(),
  default: name === 'main',
  ...(from === undefined ? {} : { from }),
})

const draw = (branches: readonly BranchSummary[], collapsed = NONE) =>
  layOutBranches(branches, collapsed).rows.map(
    ({ branch: { name }, depth, below }) => `${' '.repeat(depth)}${name} ${below}`,
  )

describe('layOutBranches', () => {
  it('puts each branch below its source, the oldest first', () => {
    const branches = [
      branch('b', 'main', 2),
      branch('c', 'b', 3),
      branch('a', 'main', 9),
      branch('main'),
    ]
    expect(draw(branches)).toEqual(['main 3', ' b 1', '  c 0', ' a 0'])
  })

  it('leaves out what is below a collapsed branch, and counts it', () => {
    const branches = [branch('main'), branch('b', 'main'), branch('c', 'b'), branch('d', 'c')]
    expect(draw(branches, new Set(['b']))).toEqual(['main 3', ' b 2'])
  })

  it('shows branches without a visible source as roots', () => {
    expect(draw([branch('x', 'deleted'), branch('main')])).toEqual(['main 0', 'x 0'])
  })

  it('shows every branch once, also if branches are each other’s source', () => {
    const rows = draw([branch('a', 'b'), branch('b', 'a'), branch('self', 'self')])
    expect(rows).toHaveLength(3)
  })

  it('lays out a chain of ten thousand branches', () => {
    const branches = Array.from({ length: 10_000 }, (_, i) =>
      branch(`b${i}`, i === 0 ? undefined : `b${i - 1}`),
    )
    const { rows } = layOutBranches(branches, NONE)
    expect(rows.at(-1)?.depth).toBe(9999)
    expect(rows[0]?.below).toBe(9999)
  })
})
