import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../../../../../test/support/database.js'
import { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { empty, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { compileTable } from '../columns/table-codec.js'
import { UNDECIDED } from './compare-rows.js'
import { type RowResolution, type RowStrategy, settleRest, settleRows } from './settle.js'
import {
  joinGiven,
  type MergeColumn,
  STAGE_COLUMNS,
  selectDecisions,
  valueNames,
} from './stage-sql.js'

/* The rule of a merge, row by row: what the states of a row in the base, in theirs and in ours lead to. */

let own: TestDatabase
let database: Database

beforeAll(async () => {
  own = await createTestDatabase()
  database = new Database({ poolMax: 1, statementTimeoutMs: 0, onIdleError: () => undefined })
  database.connect({ url: own.url })
})
afterAll(async () => {
  await database?.close()
  await own?.close()
})

type Texts = readonly (string | null)[] | undefined
interface States {
  readonly base: Texts
  readonly theirs: Texts
  readonly ours: Texts
}

const plain = (count: number): MergeColumn[] =>
  Array.from({ length: count }, () => ({ isTheirs: true, isOurs: true, objects: [] }))

interface Options {
  readonly columns?: readonly MergeColumn[]
  readonly cells?: RowResolution['cells']
}

/** Returns the outcome of each row with a strategy. */
async function outcomes(
  rows: readonly States[],
  strategy: RowStrategy,
  { columns = plain(2), cells = new Map() }: Options = {},
): Promise<unknown[]> {
  const codec = compileTable(
    {
      id: 1,
      name: 'rows',
      columns: columns.map((_, index) => ({ id: index + 2, name: `n${index}`, type: 'text' })),
    },
    { limits: LIMITS, jsonAsText: false },
  )
  const names = valueNames(codec)
  const idOf = (index: number) => `r${index}`
  const given = (side: keyof States) =>
    rows.flatMap((row, index) => {
      const texts = row[side]
      return texts === undefined ? [] : { id: idOf(index), texts }
    })
  const joinAs = (alias: string, side: keyof States): Sql => {
    const { join: joined } = joinGiven(given(side), names)
    return sql`left join lateral (
      select b.* from (select k.id) k ${joined}
    ) ${raw(alias)} on ${raw(alias)}.id = k.id`
  }
  const stage = sql`pg_temp.stage`
  const ours = joinAs('o', 'ours')
  return runTransaction(database, async (transaction) => {
    const types = names.map((name) => sql`, ${name} text`)
    const list = join([empty, ...names.map((name) => sql`, ${name}`)], '')
    await transaction.query(sql`
      create temporary table stage (
        n bigint, id text, decision text, taken boolean[], clashing boolean[]${join([empty, ...types], '')}
      ) on commit drop`)
    const candidates = sql`(
      select u.n, u.id from unnest(${rows.map((_, index) => idOf(index))}::text[])
        with ordinality u (id, n)
    )`
    const sides = {
      columns,
      names,
      base: joinGiven(given('base'), names),
      theirs: joinAs('t', 'theirs'),
      ours,
    }
    await transaction.query(sql`
      insert into ${stage} (${STAGE_COLUMNS}${list}) ${selectDecisions(sides, candidates)}`)
    const settled = { name: stage, codec, ours }
    if (cells.size > 0) {
      const resolutions = rows.map((_, index) => ({ id: idOf(index), cells }))
      await settleRows(transaction, settled, resolutions)
    }
    if (strategy !== 'fail') await settleRest(transaction, settled, strategy)
    const staged = await transaction.query<{
      id: string
      decision: string
      clashing: boolean[]
      texts: (string | null)[]
    }>(sql`select id, decision, clashing, array[${join(names, ', ')}] as texts from ${stage}`)
    const byId = new Map(staged.map((row) => [row.id, row]))
    return rows.map((_, index) => {
      const row = byId.get(idOf(index))
      if (row === undefined || row.decision === 'same') return 'nothing'
      if (row.decision === 'delete') return 'remove'
      if (row.decision === 'insert' || row.decision === 'update') {
        return [row.decision, ...row.texts]
      }
      const isWhole = row.decision.startsWith('deleted')
      return [
        row.decision,
        ...(isWhole ? [] : row.clashing.flatMap((is, column) => (is ? column : []))),
      ]
    })
  })
}

async function outcome(states: States, strategy: RowStrategy, options?: Options): Promise<unknown> {
  const [only] = await outcomes([states], strategy, options)
  return only
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
  test.each(['fail', 'ours', 'theirs'] as const)(
    'in each combination of states is decided by %s',
    async (strategy) => {
      const states = CASES.map(([, base, theirs, ours]) => ({ base, theirs, ours }))
      const results = await outcomes(states, strategy)
      const expected = CASES.map(([name, , , , fail, keep, take]) => [
        name,
        { fail, ours: keep, theirs: take }[strategy],
      ])
      expect(results.map((result, index) => [CASES[index]?.[0], result])).toEqual(expected)
    },
  )

  test('is decided for every combination as the rule says', async () => {
    const values: readonly Texts[] = [undefined, ['a', 'a'], ['a', 'b'], ['b', 'b'], ['b', null]]
    const all = values.flatMap((base) =>
      values.flatMap((theirs) => values.map((ours) => ({ base, theirs, ours }))),
    )
    const fails = await outcomes(all, 'fail')
    const keeps = await outcomes(all, 'ours')
    const takes = await outcomes(all, 'theirs')
    for (const [index, { base, theirs, ours }] of all.entries()) {
      const [fail, keep, take] = [fails[index], keeps[index], takes[index]]
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
  })
})

function applied(ours: Texts, decision: unknown): Texts {
  if (decision === 'remove') return undefined
  if (!Array.isArray(decision)) return ours
  return decision.slice(1)
}

describe('a column', () => {
  test('that theirs does not have is left as it is', async () => {
    const columns = [...plain(1), { isTheirs: false, isOurs: true, objects: [] }]
    const states = { base: ['x', '1'], theirs: ['y', null], ours: ['x', '1'] }
    // But its change here is one that a deletion there meets.
    const deleted = { base: ['x', null], theirs: undefined, ours: ['x', '1'] }
    expect(
      await outcomes(
        [
          states,
          { ...states, theirs: ['x', null] },
          { ...states, ours: undefined, theirs: ['x', '2'] },
          deleted,
        ],
        'fail',
        { columns },
      ),
    ).toEqual([['update', 'y', '1'], 'nothing', 'nothing', ['deletedThere']])
  })

  test('that ours does not have comes from theirs, and is never in conflict', async () => {
    const columns = [...plain(1), { isTheirs: true, isOurs: false, objects: [] }]
    // Ours reads a default there, which it has not written.
    const ours = ['x', '7']
    expect(
      await outcomes(
        [
          { base: undefined, theirs: ['x', '1'], ours },
          { base: undefined, theirs: ['x', '7'], ours },
          { base: ['x', null], theirs: ['x', '1'], ours },
          { base: ['x', '7'], theirs: undefined, ours },
        ],
        'ours',
        { columns },
      ),
    ).toEqual([['update', 'x', '1'], 'nothing', ['update', 'x', '1'], 'remove'])
  })

  test('on which the states of a virtual base disagree is in conflict, unless both sides agree', async () => {
    const base = [UNDECIDED, '1']
    expect(
      await outcomes(
        [
          { base, theirs: ['x', '1'], ours: ['y', '1'] },
          { base, theirs: ['x', '1'], ours: [null, '1'] },
          { base, theirs: ['x', '2'], ours: ['x', '1'] },
          { base, theirs: undefined, ours: ['x', '1'] },
        ],
        'fail',
      ),
    ).toEqual([['bothUpdated', 0], ['bothUpdated', 0], ['update', 'x', '2'], ['deletedThere']])
  })

  test('is decided by a side or a value, before the strategy decides the others', async () => {
    const states = { base: ['a', 'b'], theirs: ['t', 'u'], ours: ['o', 'p'] }
    const decide = (cells: RowResolution['cells'], strategy: RowStrategy = 'fail') =>
      outcome(states, strategy, { cells })
    expect(await decide(new Map([[0, 'ours']]))).toEqual(['bothUpdated', 1])
    expect(await decide(new Map([[0, 'ours']]), 'theirs')).toEqual(['update', 'o', 'u'])
    expect(await decide(new Map([[0, 'theirs']]), 'ours')).toEqual(['update', 't', 'p'])
    expect(await decide(new Map([[0, { text: 'x' }]]), 'ours')).toEqual(['update', 'x', 'p'])
    expect(await decide(new Map([[0, { text: null }]]), 'theirs')).toEqual(['update', null, 'u'])
    const both = new Map([
      [0, { text: 'o' }],
      [1, { text: 'p' }],
    ])
    expect(await decide(both)).toBe('nothing')
  })
})

describe('an object', () => {
  // An object with two columns inside, and one beside it.
  const columns: readonly MergeColumn[] = [
    { isTheirs: true, isOurs: true, objects: [] },
    { isTheirs: true, isOurs: true, objects: [0] },
    { isTheirs: true, isOurs: true, objects: [0] },
    { isTheirs: true, isOurs: true, objects: [] },
  ]
  const base = ['t', 'a', 'b', 'x']
  const gone = [null, null, null, 'x']
  const decideObject = (theirs: Texts, ours: Texts, strategy: RowStrategy = 'fail') =>
    outcome({ base, theirs, ours }, strategy, { columns })

  test('that both keep is merged column by column', async () => {
    expect(await decideObject(['t', 'c', 'b', 'x'], ['t', 'a', 'd', 'x'])).toEqual([
      'update',
      't',
      'c',
      'd',
      'x',
    ])
    expect(await decideObject(['t', 'c', 'b', 'x'], ['t', 'd', 'b', 'x'])).toEqual([
      'bothUpdated',
      1,
    ])
  })

  test('that one side takes away is in conflict with any change of the other inside', async () => {
    const changed = ['t', 'a', 'd', 'x']
    expect(await decideObject(gone, changed)).toEqual(['bothUpdated', 0, 1, 2])
    expect(await decideObject(changed, gone)).toEqual(['bothUpdated', 0, 1, 2])
    expect(await decideObject(gone, changed, 'theirs')).toEqual(['update', ...gone])
    expect(await decideObject(changed, gone, 'ours')).toBe('nothing')
    expect(await decideObject(changed, gone, 'theirs')).toEqual(['update', ...changed])
  })

  test('that one side takes away goes when the other leaves it alone', async () => {
    expect(await decideObject(gone, ['t', 'a', 'b', 'y'])).toEqual([
      'update',
      null,
      null,
      null,
      'y',
    ])
    expect(await decideObject(['t', 'a', 'b', 'y'], gone)).toEqual([
      'update',
      null,
      null,
      null,
      'y',
    ])
    expect(await decideObject(gone, gone)).toBe('nothing')
  })

  test('that both give counts as a whole', async () => {
    const give = (theirs: Texts, ours: Texts) =>
      outcome({ base: gone, theirs, ours }, 'fail', { columns })
    expect(await give(['t', 'a', null, 'x'], ['t', null, 'b', 'x'])).toEqual(['bothUpdated', 1, 2])
    expect(await give(['t', 'a', null, 'x'], ['t', 'a', null, 'x'])).toBe('nothing')
  })
})
