import type { MergeConflict } from '@offshoot/client'
import { describe, expect, it } from 'vitest'
import {
  decide,
  decidePart,
  decideTable,
  isReopened,
  isSettled,
  NO_DECISIONS,
  resolutionsOf,
  type Shown,
  tableTake,
  takesOfTable,
  withoutDecisions,
} from './decisions.js'

const token = 'ada 1'
const cells: MergeConflict = {
  kind: 'bothUpdated',
  table: 'users',
  id: 'ada',
  token,
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
  tokens: { ada: token, bob: 'bob 1' },
  value: 'x@example.com',
  message: '',
}
const schema: MergeConflict = {
  kind: 'schema',
  table: 'teams',
  token: 'teams 1',
  message: '',
  takes: ['theirs'],
}
const deleted: MergeConflict = {
  kind: 'deletedThere',
  table: 'users',
  id: 'eve',
  token: 'eve 1',
  base: {},
  ours: {},
  theirs: null,
}

/** The conflicts that are shown. A table has the token of its conflicts, and `hidden` ones that are not shown. */
const show = (conflicts: readonly MergeConflict[], { hidden = 0, of = 'users 1' } = {}): Shown => {
  const count = conflicts.filter((conflict) => conflict.table === 'users').length + hidden
  return {
    conflicts,
    tables: [
      { name: 'users', conflicts: count, token: of },
      { name: 'teams', conflicts: 1 },
    ],
  }
}

describe('decisions about conflicts', () => {
  it('settle a record as a whole', () => {
    const decisions = decide(NO_DECISIONS, cells, 'theirs')
    expect(isSettled(cells, decisions, show([cells]))).toBe(true)
    expect(resolutionsOf(show([cells]), decisions)).toEqual([
      { table: 'users', id: 'ada', take: 'theirs', token },
    ])
  })

  it('settle a record only when every column is decided', () => {
    const half = decidePart(NO_DECISIONS, cells, { name: 'age', cell: { value: 41 } })
    expect(isSettled(cells, half, show([cells]))).toBe(false)
    const whole = decidePart(half, cells, { name: 'name', cell: { take: 'ours' } })
    expect(isSettled(cells, whole, show([cells]))).toBe(true)
    expect(resolutionsOf(show([cells]), whole)).toEqual([
      { table: 'users', id: 'ada', columns: { age: { value: 41 }, name: { take: 'ours' } }, token },
    ])
  })

  it('keep the side of the other columns when one of them is changed', () => {
    const decisions = decidePart(decide(NO_DECISIONS, cells, 'ours'), cells, {
      name: 'age',
      cell: { take: 'theirs' },
    })
    expect(resolutionsOf(show([cells]), decisions)).toEqual([
      {
        table: 'users',
        id: 'ada',
        columns: { name: { take: 'ours' }, age: { take: 'theirs' } },
        token,
      },
    ])
  })

  it('settle the records of a broken rule one by one', () => {
    const decisions = decidePart(NO_DECISIONS, rule, {
      name: 'bob',
      cell: { value: 'y@example.com' },
    })
    expect(resolutionsOf(show([rule]), decisions)).toEqual([
      { table: 'users', id: 'bob', columns: { email: { value: 'y@example.com' } }, token: 'bob 1' },
    ])
  })

  it('settle a broken link by the side that has the linked record, and not by its table', () => {
    const link: MergeConflict = {
      kind: 'link',
      table: 'users',
      column: 'team',
      ids: ['ada'],
      tokens: { ada: token },
      target: { table: 'teams', id: 'red', token: 'red 1', takes: ['theirs'] },
      message: '',
    }
    const shown = show([link])
    const byTable = decideTable(NO_DECISIONS, { table: 'users', take: 'theirs' }, shown)
    expect(isSettled(link, byTable, shown)).toBe(false)
    const decisions = decide(NO_DECISIONS, link, 'theirs')
    expect(isSettled(link, decisions, shown)).toBe(true)
    expect(resolutionsOf(shown, decisions)).toEqual([
      { table: 'teams', id: 'red', take: 'theirs', token: 'red 1' },
    ])
  })

  it('are one resolution for a record that is in conflict by itself and by a rule', () => {
    const decisions = decidePart(decide(NO_DECISIONS, cells, 'theirs'), rule, {
      name: 'ada',
      cell: { value: 'y@example.com' },
    })
    expect(resolutionsOf(show([cells, rule]), decisions)).toEqual([
      {
        table: 'users',
        id: 'ada',
        columns: {
          name: { take: 'theirs' },
          age: { take: 'theirs' },
          email: { value: 'y@example.com' },
        },
        token,
      },
    ])
  })

  it('settle a whole table, except what has a decision of its own and what has no such side', () => {
    const shown = show([cells, deleted, rule])
    const own = decide(NO_DECISIONS, cells, 'theirs')
    const decisions = decideTable(own, { table: 'users', take: 'ours' }, shown)
    expect(isSettled(deleted, decisions, shown)).toBe(true)
    expect(resolutionsOf(shown, decisions)).toEqual([
      { table: 'users', id: 'ada', take: 'theirs', token },
      { table: 'users', take: 'ours', token: 'users 1' },
    ])
    // No side decides a rule.
    expect(isSettled(rule, decisions, shown)).toBe(false)
    const teams = show([schema])
    const ofTeams = (take: 'ours' | 'theirs') =>
      decideTable(NO_DECISIONS, { table: 'teams', take }, teams)
    expect(isSettled(schema, ofTeams('ours'), teams)).toBe(false)
    expect(resolutionsOf(teams, ofTeams('theirs'))).toEqual([
      { table: 'teams', kind: 'schema', take: 'theirs', token: 'teams 1' },
    ])
  })

  it('about a table are not sent if each of its records has a decision of its own', () => {
    const own = decide(NO_DECISIONS, cells, 'theirs')
    const [one, more] = [show([cells]), show([cells], { hidden: 1 })]
    const table = { table: 'users', take: 'ours' } as const
    expect(resolutionsOf(one, decideTable(own, table, one))).toHaveLength(1)
    expect(resolutionsOf(more, decideTable(own, table, more))).toHaveLength(2)
  })

  it('count no more when a conflict shows something else', () => {
    const decisions = decide(NO_DECISIONS, cells, 'theirs')
    const later = { ...cells, token: 'ada 2' }
    const shown = show([later])
    expect(isSettled(later, decisions, shown)).toBe(false)
    expect(isReopened(later, decisions, shown)).toBe(true)
    expect(resolutionsOf(shown, decisions)).toEqual([])
    // A part of the new conflict does not bring back the side that was taken before.
    const part = decidePart(decisions, later, { name: 'age', cell: { take: 'ours' } })
    expect(isSettled(later, part, shown)).toBe(false)
  })

  it('about a table count for what was shown, when another conflict of the table has changed', () => {
    const before = show([cells, deleted], { hidden: 2 })
    const decisions = decideTable(NO_DECISIONS, { table: 'users', take: 'theirs' }, before)
    const later = { ...cells, token: 'ada 2' }
    const shown = show([later, deleted], { hidden: 2, of: 'users 2' })
    expect(tableTake('users', decisions, shown)).toBeUndefined()
    expect(isReopened(later, decisions, shown)).toBe(true)
    expect(isReopened(deleted, decisions, shown)).toBe(false)
    expect(isSettled(deleted, decisions, shown)).toBe(true)
    expect(resolutionsOf(shown, decisions)).toEqual([
      { table: 'users', id: 'eve', take: 'theirs', token: 'eve 1' },
    ])
  })

  it('that settled nothing are forgotten', () => {
    const decisions = decidePart(NO_DECISIONS, rule, { name: 'bob', cell: { value: 'x' } })
    expect(withoutDecisions(decisions, [cells])).toBe(decisions)
    expect(isSettled(rule, withoutDecisions(decisions, [rule]), show([rule]))).toBe(false)
  })
})

describe('the sides for a whole table', () => {
  it('are offered only if they settle a conflict', () => {
    expect(takesOfTable('users', show([cells, rule]))).toEqual(['ours', 'theirs'])
    expect(takesOfTable('users', show([rule]))).toEqual([])
    expect(takesOfTable('users', show([rule], { hidden: 1 }))).toEqual(['ours', 'theirs'])
    expect(takesOfTable('teams', show([schema]))).toEqual(['theirs'])
  })
})
