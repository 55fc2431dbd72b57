import { describe, expect, test } from 'vitest'
import { decide, type MergeColumn, type RowStrategy } from './decide.js'

type Texts = readonly (string | null)[] | undefined

const PLAIN: readonly MergeColumn[] = [
  { isTheirs: true, objects: [] },
  { isTheirs: true, objects: [] },
]

function outcome(
  states: { base: Texts; theirs: Texts; ours: Texts },
  strategy: RowStrategy,
  columns = PLAIN,
): unknown {
  const { base, theirs, ours } = states
  const { insert, update, remove, conflict } = decide(
    { id: 'r', states: [base, theirs, ours] },
    strategy,
    columns,
  )
  if (insert !== undefined) return ['insert', ...insert.values]
  if (update !== undefined) return ['update', ...update.values]
  if (remove !== undefined) return 'remove'
  if (conflict !== undefined) return [conflict.kind, ...conflict.columns]
  return 'nothing'
}

/** The states of a row (base, theirs, ours), and the expected results of `fail`, `ours` and `theirs`. */
const CASES: readonly (readonly [name: string, Texts, Texts, Texts, unknown, unknown, unknown])[] =
  [
    ['nowhere', undefined, undefined, undefined, 'nothing', 'nothing', 'nothing'],
    [
      'only theirs',
      undefined,
      ['x', '1'],
      undefined,
      ['insert', 'x', '1'],
      ['insert', 'x', '1'],
      ['insert', 'x', '1'],
    ],
    ['only ours', undefined, undefined, ['x', '1'], 'nothing', 'nothing', 'nothing'],
    ['inserted alike', undefined, ['x', '1'], ['x', '1'], 'nothing', 'nothing', 'nothing'],
    [
      'inserted differently',
      undefined,
      ['x', '1'],
      ['x', '2'],
      ['bothInserted', 1],
      'nothing',
      ['update', 'x', '1'],
    ],
    [
      'inserted with more values',
      undefined,
      ['x', '1'],
      ['x', null],
      ['bothInserted', 1],
      'nothing',
      ['update', 'x', '1'],
    ],
    ['unchanged', ['x', '1'], ['x', '1'], ['x', '1'], 'nothing', 'nothing', 'nothing'],
    [
      'changed by theirs',
      ['x', '1'],
      ['x', '2'],
      ['x', '1'],
      ['update', 'x', '2'],
      ['update', 'x', '2'],
      ['update', 'x', '2'],
    ],
    [
      'cleared by theirs',
      ['x', '1'],
      ['x', null],
      ['x', '1'],
      ['update', 'x', null],
      ['update', 'x', null],
      ['update', 'x', null],
    ],
    ['changed by ours', ['x', '1'], ['x', '1'], ['x', '2'], 'nothing', 'nothing', 'nothing'],
    ['changed alike', ['x', '1'], ['x', '2'], ['x', '2'], 'nothing', 'nothing', 'nothing'],
    [
      'changed in different columns',
      ['x', '1'],
      ['y', '1'],
      ['x', '2'],
      ['update', 'y', '2'],
      ['update', 'y', '2'],
      ['update', 'y', '2'],
    ],
    [
      'changed in one column differently',
      ['x', '1'],
      ['x', '2'],
      ['x', '3'],
      ['bothUpdated', 1],
      'nothing',
      ['update', 'x', '2'],
    ],
    [
      'changed in both columns, one differently',
      ['x', '1'],
      ['y', '2'],
      ['x', '3'],
      ['bothUpdated', 1],
      ['update', 'y', '3'],
      ['update', 'y', '2'],
    ],
    [
      'changed in both columns, one alike',
      ['x', '1'],
      ['y', '2'],
      ['y', '3'],
      ['bothUpdated', 1],
      'nothing',
      ['update', 'y', '2'],
    ],
    [
      'changed and cleared',
      ['x', '1'],
      ['x', null],
      ['x', '3'],
      ['bothUpdated', 1],
      'nothing',
      ['update', 'x', null],
    ],
    ['deleted by theirs', ['x', '1'], undefined, ['x', '1'], 'remove', 'remove', 'remove'],
    ['deleted by ours', ['x', '1'], ['x', '1'], undefined, 'nothing', 'nothing', 'nothing'],
    ['deleted by both', ['x', '1'], undefined, undefined, 'nothing', 'nothing', 'nothing'],
    [
      'deleted by theirs, changed by ours',
      ['x', '1'],
      undefined,
      ['x', '2'],
      ['deletedThere'],
      'nothing',
      'remove',
    ],
    [
      'changed by theirs, deleted by ours',
      ['x', '1'],
      ['x', '2'],
      undefined,
      ['deletedHere'],
      'nothing',
      ['insert', 'x', '2'],
    ],
  ]

describe('a row', () => {
  test.each(CASES)('%s', (_name, base, theirs, ours, fail, keep, take) => {
    const states = { base, theirs, ours }
    expect([outcome(states, 'fail'), outcome(states, 'ours'), outcome(states, 'theirs')]).toEqual([
      fail,
      keep,
      take,
    ])
  })

  test('is decided for every combination as the rule says', () => {
    const values: readonly Texts[] = [undefined, ['a', 'a'], ['a', 'b'], ['b', 'b'], ['b', null]]
    for (const base of values) {
      for (const theirs of values) {
        for (const ours of values) {
          const [fail, keep, take] = (['fail', 'ours', 'theirs'] as const).map((strategy) =>
            outcome({ base, theirs, ours }, strategy),
          )
          const isConflict = Array.isArray(fail) && fail[0] !== 'insert' && fail[0] !== 'update'
          // Strategies only matter for conflicts, and settle all of them.
          if (!isConflict) expect([keep, take]).toEqual([fail, fail])
          expect(JSON.stringify([keep, take])).not.toMatch(/both|deleted/)
          if (JSON.stringify(base) === JSON.stringify(theirs)) expect(fail).toBe('nothing')
          if (JSON.stringify(theirs) === JSON.stringify(ours)) expect(fail).toBe('nothing')
          const after = applied(ours, take)
          // Taking theirs, every column that theirs has changed is theirs.
          for (const column of [0, 1]) {
            if (
              theirs?.[column] !== base?.[column] ||
              (base === undefined) !== (theirs === undefined)
            ) {
              expect(after?.[column]).toBe(theirs?.[column])
            } else if (ours !== undefined && after !== undefined) {
              expect(after[column]).toBe(ours[column])
            }
          }
        }
      }
    }
  })
})

function applied(ours: Texts, decision: unknown): Texts {
  if (decision === 'remove') return undefined
  if (!Array.isArray(decision)) return ours
  return decision.slice(1)
}

describe('a column', () => {
  test('that theirs does not have is left as it is', () => {
    const columns = [PLAIN[0], { isTheirs: false, objects: [] }] as MergeColumn[]
    const states = { base: ['x', '1'], theirs: ['y', null], ours: ['x', '1'] }
    expect(outcome(states, 'fail', columns)).toEqual(['update', 'y', '1'])
    expect(outcome({ ...states, theirs: ['x', null] }, 'fail', columns)).toBe('nothing')
    expect(outcome({ ...states, ours: undefined, theirs: ['x', '2'] }, 'fail', columns)).toBe(
      'nothing',
    )
    // But its change here is one that a deletion there meets.
    const deleted = { base: ['x', null], theirs: undefined, ours: ['x', '1'] }
    expect(outcome(deleted, 'fail', columns)).toEqual(['deletedThere'])
  })
})

describe('an object', () => {
  // Two leaves, the object with two leaves inside, and one around it all.
  const columns: readonly MergeColumn[] = [
    { isTheirs: true, objects: [] },
    { isTheirs: true, objects: [0] },
    { isTheirs: true, objects: [0] },
    { isTheirs: true, objects: [] },
  ]
  const base = ['t', 'a', 'b', 'x']
  const decideObject = (theirs: Texts, ours: Texts, strategy: RowStrategy = 'fail') =>
    outcome({ base, theirs, ours }, strategy, columns)

  test('that both keep is merged column by column', () => {
    expect(decideObject(['t', 'c', 'b', 'x'], ['t', 'a', 'd', 'x'])).toEqual([
      'update',
      't',
      'c',
      'd',
      'x',
    ])
    expect(decideObject(['t', 'c', 'b', 'x'], ['t', 'd', 'b', 'x'])).toEqual(['bothUpdated', 1])
  })

  test('that one side takes away is in conflict with any change of the other inside', () => {
    const gone = [null, null, null, 'x']
    expect(decideObject(gone, ['t', 'a', 'd', 'x'])).toEqual(['bothUpdated', 0, 1, 2])
    expect(decideObject(['t', 'a', 'd', 'x'], gone)).toEqual(['bothUpdated', 0, 1, 2])
    expect(decideObject(gone, ['t', 'a', 'd', 'x'], 'theirs')).toEqual([
      'update',
      null,
      null,
      null,
      'x',
    ])
    expect(decideObject(['t', 'a', 'd', 'x'], gone, 'ours')).toBe('nothing')
    expect(decideObject(['t', 'a', 'd', 'x'], gone, 'theirs')).toEqual([
      'update',
      't',
      'a',
      'd',
      'x',
    ])
  })

  test('that one side takes away goes when the other leaves it alone', () => {
    const gone = [null, null, null, 'x']
    expect(decideObject(gone, ['t', 'a', 'b', 'y'])).toEqual(['update', null, null, null, 'y'])
    expect(decideObject(['t', 'a', 'b', 'y'], gone)).toEqual(['update', null, null, null, 'y'])
    expect(decideObject(gone, gone)).toBe('nothing')
  })

  test('that both give counts as a whole', () => {
    const none = [null, null, null, 'x']
    const give = (theirs: Texts, ours: Texts) =>
      outcome({ base: none, theirs, ours }, 'fail', columns)
    expect(give(['t', 'a', null, 'x'], ['t', null, 'b', 'x'])).toEqual(['bothUpdated', 1, 2])
    expect(give(['t', 'a', null, 'x'], ['t', 'a', null, 'x'])).toBe('nothing')
  })
})
