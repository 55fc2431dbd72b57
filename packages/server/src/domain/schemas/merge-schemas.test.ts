import { LIMITS } from '@offshoot/contract/limits'
import { describe, expect, test } from 'vitest'
import type { StoredColumn, StoredSchema, StoredTable } from '../../rows/columns/stored-schema.js'
import type { MergeStrategy } from './merge-definitions.js'
import { mergeSchemas, type TableRule } from './merge-schemas.js'

const column = (id: number, name: string, more: Partial<StoredColumn> = {}): StoredColumn => ({
  id,
  name,
  type: 'string',
  ...more,
})
const table = (id: number, name: string, ...columns: StoredColumn[]): StoredTable => ({
  id,
  name,
  columns,
})
const schema = (...tables: StoredTable[]): StoredSchema => ({ tables })

interface Sides {
  base: StoredSchema
  ours: StoredSchema
  theirs: StoredSchema
}

type Rule = Partial<TableRule> & { of?: number; changed?: ReadonlyMap<number, number> }

function merge(sides: Sides, rule: Rule = {}, limits = {}) {
  const { of, changed = new Map(), ...rest } = rule
  const plain: TableRule = { strategy: 'fail', mode: 'merge' }
  return mergeSchemas(sides, {
    limits: { ...LIMITS, ...limits },
    ruleOf: (tableId) => (of === undefined || of === tableId ? { ...plain, ...rest } : plain),
    changedRecords: changed,
  })
}

/** Builds a schema from tables with the names of their columns. */
function namesOf({ tables }: StoredSchema): Record<string, string[]> {
  return Object.fromEntries(
    tables.map(({ name, columns }) => [name, columns.map((own) => own.name)]),
  )
}

const USERS = table(1, 'users', column(2, 'name'), column(3, 'age'))
const BASE = schema(USERS)
const renamed = (name: string) => schema(table(1, 'users', column(2, name), column(3, 'age')))

describe('one side', () => {
  const changed = schema(
    table(1, 'people', column(2, 'fullName'), column(4, 'mail')),
    table(5, 'new'),
  )

  test('that changed something alone is followed', () => {
    expect(merge({ base: BASE, ours: BASE, theirs: changed })).toEqual({
      schema: { ...changed, removedIds: [3] },
      conflicts: [],
    })
    expect(merge({ base: BASE, ours: changed, theirs: BASE })).toEqual({
      schema: changed,
      conflicts: [],
    })
  })

  test('that removed a table does not conflict with another order of its columns', () => {
    const other = schema(table(1, 'users', column(3, 'age'), column(2, 'name')))
    expect(merge({ base: BASE, ours: schema(), theirs: other }).conflicts).toEqual([])
    const merged = merge({ base: BASE, ours: other, theirs: schema() })
    expect(merged).toMatchObject({ schema: { tables: [] }, conflicts: [] })
  })

  test('that removed a table removes it from the result', () => {
    expect(merge({ base: BASE, ours: BASE, theirs: schema() })).toEqual({
      schema: { tables: [], removedIds: [1] },
      conflicts: [],
    })
    expect(merge({ base: BASE, ours: schema(), theirs: BASE })).toEqual({
      schema: schema(),
      conflicts: [],
    })
  })
})

describe('both sides', () => {
  test('that made the same change have no conflict', () => {
    const both = renamed('fullName')
    expect(merge({ base: BASE, ours: both, theirs: both })).toEqual({
      schema: both,
      conflicts: [],
    })
    expect(merge({ base: BASE, ours: schema(), theirs: schema() }).conflicts).toEqual([])
  })

  test('that made different changes have all of them merged', () => {
    const ours = schema(table(1, 'people', column(2, 'name'), column(3, 'age'), column(4, 'here')))
    const theirs = schema(
      table(1, 'users', column(2, 'fullName'), column(5, 'there')),
      table(6, 'new'),
    )
    const merged = merge({ base: BASE, ours, theirs })
    expect(merged.conflicts).toEqual([])
    expect(namesOf(merged.schema)).toEqual({ people: ['fullName', 'here', 'there'], new: [] })
  })

  test('that have a table which the base lacks have its columns merged', () => {
    const ours = schema(table(1, 'users', column(2, 'name'), column(4, 'here')))
    const theirs = schema(table(1, 'users', column(2, 'name'), column(5, 'there')))
    const merged = merge({ base: schema(), ours, theirs })
    expect(namesOf(merged.schema)).toEqual({ users: ['name', 'here', 'there'] })
    expect(merged.conflicts).toEqual([])
  })

  test.each<[MergeStrategy, string, number]>([
    ['fail', 'here', 1],
    ['ours', 'here', 0],
    ['theirs', 'there', 0],
  ])('that renamed one thing differently go by the strategy %s', (strategy, name, conflicts) => {
    const columns = merge(
      { base: BASE, ours: renamed('here'), theirs: renamed('there') },
      { strategy },
    )
    expect(namesOf(columns.schema)).toEqual({ users: [name, 'age'] })
    expect(columns.conflicts).toHaveLength(conflicts)
    const tables = merge(
      {
        base: BASE,
        ours: schema({ ...USERS, name: 'here' }),
        theirs: schema({ ...USERS, name: 'there' }),
      },
      { strategy },
    )
    expect(Object.keys(namesOf(tables.schema))).toEqual([name])
    expect(tables.conflicts).toHaveLength(conflicts)
  })

  test.each<[MergeStrategy, string[], number]>([
    ['fail', ['users'], 1],
    ['ours', ['users'], 0],
    ['theirs', [], 0],
  ])('where theirs removed a table that ours changed go by %s', (strategy, names, conflicts) => {
    const merged = merge({ base: BASE, ours: renamed('here'), theirs: schema() }, { strategy })
    expect(Object.keys(namesOf(merged.schema))).toEqual(names)
    expect(merged.conflicts).toHaveLength(conflicts)
  })

  test.each<[MergeStrategy, string[], number]>([
    ['fail', ['here', 'age'], 1],
    ['ours', ['here', 'age'], 0],
    ['theirs', ['age'], 0],
  ])('where theirs removed a column that ours renamed go by %s', (strategy, names, conflicts) => {
    const theirs = schema(table(1, 'users', column(3, 'age')))
    const merged = merge({ base: BASE, ours: renamed('here'), theirs }, { strategy })
    expect(namesOf(merged.schema)).toEqual({ users: names })
    expect(merged.conflicts).toHaveLength(conflicts)
  })

  test.each<[MergeStrategy, number]>([
    ['fail', 1],
    ['ours', 0],
    // A merge cannot restore what the target has removed.
    ['theirs', 1],
  ])('where ours removed what theirs changed stay without it, by %s', (strategy, conflicts) => {
    const tables = merge({ base: BASE, ours: schema(), theirs: renamed('there') }, { strategy })
    expect(tables.schema.tables).toEqual([])
    expect(tables.conflicts).toHaveLength(conflicts)
    const ours = schema(table(1, 'users', column(3, 'age')))
    const columns = merge({ base: BASE, ours, theirs: renamed('there') }, { strategy })
    expect(namesOf(columns.schema)).toEqual({ users: ['age'] })
    expect(columns.conflicts).toHaveLength(conflicts)
  })
})

describe('a column that the merged branch has replaced by another one of its name', () => {
  const theirs = schema(table(1, 'users', column(3, 'age'), column(6, 'name', { type: 'int' })))
  const changed = new Map([[2, 7]])

  test.each<[MergeStrategy, number[], number[] | undefined, number]>([
    ['fail', [2, 3], undefined, 1],
    ['ours', [2, 3], [6], 0],
    ['theirs', [3, 6], [2], 0],
  ])('and the target has written to goes by %s', (strategy, ids, removed, conflicts) => {
    const merged = merge({ base: BASE, ours: BASE, theirs }, { strategy, changed })
    expect(merged.schema.tables[0]?.columns.map(({ id }) => id).sort()).toEqual(ids)
    expect(merged.conflicts).toHaveLength(conflicts)
    if (conflicts === 0) expect(merged.schema.removedIds).toEqual(removed)
  })
})

describe('a removal', () => {
  const withoutName = schema(table(1, 'users', column(3, 'age')))
  const changed = new Map([
    [1, 5],
    [2, 7],
  ])

  test.each<[MergeStrategy, string[], string[]]>([
    ['fail', ['users'], ['name', 'age']],
    ['ours', ['users'], ['name', 'age']],
    ['theirs', [], ['age']],
  ])('there, of what the target has written to, goes by %s', (strategy, tables, columns) => {
    const whole = merge({ base: BASE, ours: BASE, theirs: schema() }, { strategy, changed })
    expect(Object.keys(namesOf(whole.schema))).toEqual(tables)
    const one = merge({ base: BASE, ours: BASE, theirs: withoutName }, { strategy, changed })
    expect(namesOf(one.schema)).toEqual({ users: columns })
    const message = 'was removed on the merged branch and changed on the target'
    const isConflict = strategy === 'fail'
    expect(whole.conflicts).toEqual(
      isConflict ? [{ id: 1, table: 'users', message, takes: ['ours', 'theirs'], records: 5 }] : [],
    )
    expect(one.conflicts).toEqual(
      isConflict
        ? [
            {
              id: 2,
              table: 'users',
              column: 'name',
              message,
              takes: ['ours', 'theirs'],
              records: 7,
            },
          ]
        : [],
    )
  })

  test.each<[MergeStrategy, number]>([
    ['fail', 1],
    ['ours', 0],
    ['theirs', 1],
  ])('here, of what the merged branch has written to, goes by %s', (strategy, conflicts) => {
    const whole = merge({ base: BASE, ours: schema(), theirs: BASE }, { strategy, changed })
    expect(whole.schema.tables).toEqual([])
    expect(whole.conflicts).toMatchObject([{ records: 5 }].slice(0, conflicts))
    const one = merge({ base: BASE, ours: withoutName, theirs: BASE }, { strategy, changed })
    expect(namesOf(one.schema)).toEqual({ users: ['age'] })
    expect(one.conflicts).toMatchObject([{ column: 'name', records: 7 }].slice(0, conflicts))
  })
})

describe('names', () => {
  test.each<MergeStrategy>(['fail', 'ours', 'theirs'])(
    'of different things are in conflict, whatever their case and the strategy %s',
    (strategy) => {
      const ours = schema(table(1, 'users', column(2, 'mail'), column(3, 'age')), table(5, 'new'))
      const theirs = schema(
        { ...USERS, columns: [...USERS.columns, column(6, 'Mail')] },
        table(7, 'NEW'),
      )
      expect(merge({ base: BASE, ours, theirs }, { strategy }).conflicts).toEqual([
        {
          id: 6,
          table: 'users',
          column: 'Mail',
          message:
            'two different columns have this name; rename one of them first, or give that of the merged branch another name',
          takes: [],
        },
        {
          table: 'NEW',
          message:
            'two different tables have this name; rename one of them first, or give that of the merged branch another name',
          takes: [],
        },
      ])
    },
  )

  test.each<[MergeStrategy, number, number[] | undefined]>([
    ['fail', 4, undefined],
    ['ours', 4, [6]],
    ['theirs', 6, [4]],
  ])('of columns that both sides added are decided by the strategy %s', (strategy, id, removed) => {
    const ours = schema({ ...USERS, columns: [...USERS.columns, column(4, 'mail')] })
    const number = column(6, 'mail', { type: 'int' })
    const theirs = schema({ ...USERS, columns: [...USERS.columns, number] })
    const { schema: merged, conflicts } = merge({ base: BASE, ours, theirs }, { strategy })
    expect(merged.tables[0]?.columns.map((each) => each.id)).toEqual([2, 3, id])
    expect(merged.removedIds).toEqual(removed)
    const conflict = {
      id: 4,
      table: 'users',
      column: 'mail',
      message:
        'both sides have added this column, with different definitions: {"name":"mail","type":"string"} on the ' +
        'target and {"name":"mail","type":"int"} on the merged branch; take one of them, or give that of the ' +
        'merged branch another name',
      takes: ['ours', 'theirs'],
      ours: { name: 'mail', type: 'string' },
      theirs: { name: 'mail', type: 'int' },
    }
    expect(conflicts).toEqual(strategy === 'fail' ? [conflict] : [])
  })

  test('that one side gave up can be used by the other side', () => {
    const ours = schema(table(1, 'people', column(2, 'name'), column(3, 'age')))
    const theirs = schema(USERS, table(4, 'people'))
    expect(merge({ base: BASE, ours, theirs }).conflicts).toHaveLength(1)
    const freed = schema(USERS, table(4, 'other'))
    expect(namesOf(merge({ base: BASE, ours, theirs: freed }).schema)).toEqual({
      people: ['name', 'age'],
      other: [],
    })
  })
})

describe('a removed table or column', () => {
  test('is not restored by a side that has it while the base lacks it, which is a conflict', () => {
    const ours: StoredSchema = { ...BASE, removedIds: [4, 5] }
    const theirs = schema(
      { ...USERS, columns: [...USERS.columns, column(4, 'old')] },
      table(5, 'old'),
    )
    const kept = {
      message: 'was removed on the target and kept on the merged branch; a merge cannot restore it',
      takes: ['ours'],
      records: 0,
    }
    expect(merge({ base: BASE, ours, theirs })).toEqual({
      schema: ours,
      conflicts: [
        { id: 4, table: 'users', column: 'old', ...kept },
        { id: 5, table: 'old', ...kept },
      ],
    })
    expect(merge({ base: BASE, ours, theirs }, { strategy: 'ours' })).toMatchObject({
      schema: ours,
      conflicts: [],
    })
  })

  test('is recorded when a merge removes it', () => {
    const theirs = schema(table(1, 'users', column(2, 'name')))
    expect(merge({ base: BASE, ours: BASE, theirs }).schema.removedIds).toEqual([3])
  })
})

describe('links', () => {
  const link = column(4, 'by', { type: 'link', link: { tableId: 1 } })

  test('must have a target after the merge', () => {
    const ours = schema(USERS, table(5, 'orders', link))
    expect(merge({ base: BASE, ours, theirs: schema() }).conflicts).toEqual([
      {
        table: 'orders',
        column: 'by',
        message: 'links to a table that would not exist after the merge',
        takes: [],
      },
    ])
  })

  test('inside objects must have a target after the merge too', () => {
    const object = column(6, 'place', { type: 'object', columns: [link] })
    const theirs = schema(USERS, table(5, 'orders', object))
    const merged = merge({ base: schema(), ours: schema(), theirs }, { mode: 'skip', of: 1 })
    expect(merged.conflicts).toMatchObject([{ table: 'orders', column: 'place.by' }])
  })
})

describe('rules', () => {
  const theirs = schema(table(1, 'people', column(2, 'fullName')), table(4, 'new'))

  test.each<[TableRule['mode'], string[]]>([
    ['skip', ['users', 'new']],
    ['schema', ['people', 'new']],
    ['merge', ['people', 'new']],
  ])('of mode %s', (mode, names) => {
    const merged = merge({ base: BASE, ours: BASE, theirs }, { mode, of: 1 })
    expect(Object.keys(namesOf(merged.schema))).toEqual(names)
  })

  test('can leave out a new table and the removal of a table', () => {
    expect(
      merge({ base: BASE, ours: BASE, theirs }, { mode: 'skip', of: 4 }).schema.tables,
    ).toHaveLength(1)
    expect(merge({ base: BASE, ours: BASE, theirs: schema() }, { mode: 'skip' }).schema).toEqual(
      BASE,
    )
  })

  test('resolve conflicts of one table and not of another', () => {
    const other = table(7, 'other', column(8, 'x'))
    const both = (name: string) =>
      schema(table(1, 'users', column(2, name), column(3, 'age')), {
        ...other,
        columns: [column(8, name)],
      })
    const merged = merge(
      { base: schema(USERS, other), ours: both('here'), theirs: both('there') },
      { strategy: 'theirs', of: 7 },
    )
    expect(merged.conflicts).toMatchObject([{ table: 'users' }])
    expect(namesOf(merged.schema)).toMatchObject({ other: ['there'] })
  })
})

describe('the order of tables', () => {
  test('survives renames, with new tables last', () => {
    const first = table(1, 'first')
    const second = table(2, 'second')
    const base = schema(first, second)
    const ours = { ...base, tablesOrder: ['second', 'first'] }
    const theirs = schema({ ...first, name: 'primary' }, second, table(3, 'third'))
    expect(merge({ base, ours, theirs }).schema.tablesOrder).toEqual(['second', 'primary', 'third'])
    expect(merge({ base, ours, theirs: schema(first) }).schema.tablesOrder).toEqual(['first'])
  })

  test('is not set if the target has none', () => {
    const theirs = { ...schema(USERS), tablesOrder: ['users'] }
    expect(merge({ base: BASE, ours: BASE, theirs }).schema).not.toHaveProperty('tablesOrder')
  })
})

describe('limits', () => {
  const wide = (from: number, count: number) =>
    Array.from({ length: count }, (_, index) => column(from + index, `c${from + index}`))

  test('apply to the sum of what both sides add', () => {
    const ours = schema({ ...USERS, columns: [...USERS.columns, ...wide(100, 3)] })
    const theirs = schema({ ...USERS, columns: [...USERS.columns, ...wide(200, 3)] })
    const at = (columnsPerTableMax: number) =>
      merge({ base: BASE, ours, theirs }, {}, { columnsPerTableMax }).conflicts
    expect(at(8)).toEqual([])
    expect(at(7)).toEqual([
      { table: 'users', message: 'a table cannot have more than 7 columns', takes: [] },
    ])
    const tables = { base: schema(), ours: schema(table(1, 'a')), theirs: schema(table(2, 'b')) }
    expect(merge(tables, {}, { tablesPerBranchMax: 2 }).conflicts).toEqual([])
    expect(merge(tables, {}, { tablesPerBranchMax: 1 }).conflicts).toHaveLength(1)
  })

  test('do not prevent a merge into a schema that already exceeds them', () => {
    const base = schema(table(1, 'users', ...wide(100, 5)))
    const theirs = schema(table(1, 'people', ...wide(100, 5)))
    expect(merge({ base, ours: base, theirs }, {}, { columnsPerTableMax: 3 }).conflicts).toEqual([])
  })
})

describe('indexes', () => {
  const indexed = (index: boolean | undefined, nested?: boolean) =>
    schema(
      table(
        1,
        'users',
        column(2, 'name', {
          ...(index === undefined ? {} : { index }),
          type: 'object',
          columns: [column(3, 'first', nested === undefined ? {} : { index: nested })],
        }),
      ),
    )

  test.each<[string, boolean | undefined, boolean | undefined, boolean | undefined, unknown]>([
    ['asked for there', undefined, undefined, true, true],
    ['asked for here', undefined, true, undefined, true],
    ['asked for on both sides', undefined, true, true, true],
    ['removed there', true, true, false, false],
    ['removed here', true, false, true, false],
    ['changed there after it was changed here', undefined, true, false, false],
  ])('%s are taken, at any depth', (_name, base, ours, theirs, merged) => {
    const sides = {
      base: indexed(base, base),
      ours: indexed(ours, ours),
      theirs: indexed(theirs, theirs),
    }
    const { schema: result, conflicts } = merge(sides)
    const [found] = result.tables[0]?.columns ?? []
    expect([found?.index, found?.columns?.[0]?.index]).toEqual([merged, merged])
    expect(conflicts).toEqual([])
  })

  test('do not conflict with a removal on the other side', () => {
    const sides = { base: indexed(undefined), ours: indexed(true), theirs: schema() }
    expect(merge(sides)).toMatchObject({ schema: { tables: [] }, conflicts: [] })
  })
})

describe('an enum type', () => {
  const of = (id: number, values: string, type = 'm') =>
    column(id, `c${id}`, { type: 'enum', enum: { values: [...values], type } })
  const tableOf = (id: number, values: string, type?: string) =>
    table(id, `t${id}`, of(id + 1, values, type))
  const lists = ({ tables }: StoredSchema) =>
    tables.map(({ columns }) => columns.map(({ enum: list }) => list?.values.join('')).join())
  const BASE = schema(tableOf(10, 'ab'))

  test.each<[string, StoredSchema, StoredSchema, string[]]>([
    [
      'values, and a table',
      schema(tableOf(10, 'abc')),
      schema(tableOf(10, 'ab'), tableOf(20, 'ab')),
      ['abc', 'abc'],
    ],
    [
      'values, and a table and values',
      schema(tableOf(10, 'cab')),
      schema(tableOf(10, 'abd'), tableOf(20, 'abd')),
      ['cabd', 'cabd'],
    ],
    [
      'tables and values',
      schema(tableOf(10, 'cab'), tableOf(30, 'cab')),
      schema(tableOf(10, 'abd'), tableOf(20, 'abd')),
      ['cabd', 'cabd', 'cabd'],
    ],
    [
      'another name, and values and a table',
      schema(tableOf(10, 'ab', 'n'), tableOf(30, 'ab', 'n')),
      schema(tableOf(10, 'abc')),
      ['abc', 'abc'],
    ],
  ])('has one list if the sides have added %s', (_, one, other, expected) => {
    for (const sides of [
      { ours: one, theirs: other },
      { ours: other, theirs: one },
    ]) {
      const merged = merge({ base: BASE, ...sides })
      expect(merged.conflicts).toEqual([])
      expect(lists(merged.schema)).toEqual(expected)
    }
  })

  test('that both sides have made has the values of both, in one order', () => {
    const made = (ours: string, theirs: string) =>
      merge({
        base: schema(),
        ours: schema(tableOf(10, ours)),
        theirs: schema(tableOf(20, theirs)),
      })
    expect(lists(made('bc', 'ab').schema)).toEqual(['abc', 'abc'])
    expect(made('ab', 'bca')).toMatchObject({
      conflicts: [
        { table: 't20', column: 'c21', takes: [], message: expect.stringContaining('[m]') },
      ],
    })
    const { conflicts } = merge(
      { base: schema(), ours: schema(tableOf(10, 'ab')), theirs: schema(tableOf(20, 'cd')) },
      {},
      { enumValuesMax: 3 },
    )
    expect(conflicts).toHaveLength(1)
  })

  test('is a conflict if one side has removed values that new columns of the other can have', () => {
    const ours = schema(tableOf(10, 'ab'), tableOf(20, 'ab'))
    const theirs = schema(tableOf(10, 'a'))
    expect(merge({ base: BASE, ours, theirs }).conflicts).toMatchObject([
      { table: 't20', takes: [] },
    ])
  })

  test('follows the decision about a column that both sides have changed', () => {
    const base = schema(tableOf(10, 'abc'))
    const sides = {
      base,
      ours: schema(tableOf(10, 'bac'), tableOf(20, 'bac')),
      theirs: schema(tableOf(10, 'acb')),
    }
    expect(merge(sides).conflicts).toMatchObject([{ column: 'c11', takes: ['ours', 'theirs'] }])
    for (const [strategy, values] of [
      ['ours', 'bac'],
      ['theirs', 'acb'],
    ] as const) {
      const merged = merge(sides, { strategy })
      expect(merged.conflicts).toEqual([])
      expect(lists(merged.schema)).toEqual([values, values])
    }
  })

  test('whose columns have had different values stays as it is', () => {
    const apart = schema(tableOf(10, 'ab'), tableOf(20, 'ax'))
    const merged = merge({
      base: apart,
      ours: apart,
      theirs: schema(tableOf(10, 'abc'), tableOf(20, 'ax')),
    })
    expect(merged.conflicts).toEqual([])
    expect(lists(merged.schema)).toEqual(['abc', 'ax'])
  })
})
