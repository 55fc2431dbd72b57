import type { MergeConflict } from '@offshoot/client'
import { describe, expect, it } from 'vitest'
import {
  decide,
  decidePart,
  decideTable,
  isSettled,
  NO_DECISIONS,
  resolutionsOf,
} from './decisions.js'

const versions = { ours: 2, theirs: 3 }
const cells: MergeConflict = {
  kind: 'bothUpdated',
  table: 'users',
  id: 'ada',
  versions,
  columns: {
    name: { base: 'a', ours: 'b', theirs: 'c' },
    age: { base: 1, ours: 2, theirs: 3 },
  },
}
const rule: MergeConflict = {
  kind: 'notUnique',
  table: 'users',
  column: 'email',
  ids: ['ada', 'bob'],
  versions: { ada: versions, bob: { ours: null, theirs: 1 } },
  value: 'x@example.com',
  message: '',
}
const schema: MergeConflict = { kind: 'schema', table: 'teams', message: '', takes: ['theirs'] }

describe('decisions about conflicts', () => {
  it('settle a record as a whole', () => {
    const decisions = decide(NO_DECISIONS, cells, 'theirs')
    expect(isSettled(cells, decisions)).toBe(true)
    expect(resolutionsOf([cells], decisions)).toEqual([
      { table: 'users', id: 'ada', take: 'theirs', versions },
    ])
  })

  it('settle a record only when every column is decided', () => {
    const half = decidePart(NO_DECISIONS, cells, { name: 'age', cell: { value: 41 } })
    expect(isSettled(cells, half)).toBe(false)
    const whole = decidePart(half, cells, { name: 'name', cell: { take: 'ours' } })
    expect(isSettled(cells, whole)).toBe(true)
    expect(resolutionsOf([cells], whole)).toEqual([
      {
        table: 'users',
        id: 'ada',
        columns: { age: { value: 41 }, name: { take: 'ours' } },
        versions,
      },
    ])
  })

  it('keep the side of the other columns when one of them is changed', () => {
    const decisions = decidePart(decide(NO_DECISIONS, cells, 'ours'), cells, {
      name: 'age',
      cell: { take: 'theirs' },
    })
    expect(resolutionsOf([cells], decisions)).toEqual([
      {
        table: 'users',
        id: 'ada',
        columns: { name: { take: 'ours' }, age: { take: 'theirs' } },
        versions,
      },
    ])
  })

  it('settle the records of a broken rule one by one', () => {
    const decisions = decidePart(NO_DECISIONS, rule, {
      name: 'bob',
      cell: { value: 'y@example.com' },
    })
    expect(resolutionsOf([rule], decisions)).toEqual([
      {
        table: 'users',
        id: 'bob',
        columns: { email: { value: 'y@example.com' } },
        versions: { ours: null, theirs: 1 },
      },
    ])
  })

  it('settle a whole table, except what has a decision of its own and what has no such side', () => {
    const decisions = decideTable(decide(NO_DECISIONS, cells, 'theirs'), 'users', 'ours')
    expect(isSettled(rule, decisions)).toBe(true)
    expect(resolutionsOf([cells, rule], decisions)).toEqual([
      { table: 'users', id: 'ada', take: 'theirs', versions },
      { table: 'users', take: 'ours' },
    ])
    expect(isSettled(schema, decideTable(NO_DECISIONS, 'teams', 'ours'))).toBe(false)
  })
})
