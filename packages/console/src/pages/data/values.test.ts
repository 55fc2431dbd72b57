import type { ColumnDefinition } from '@offshoot/client'
import { describe, expect, it } from 'vitest'
import { conditionsOf, filterOf } from './conditions.js'
import { guessColumn, recordOf } from './csv-file.js'
import { NOTHING, operationsOf, rebase, stageCell, stageDelete } from './staging.js'
import { longText, parseText, type Row, shortText } from './values.js'
import { formatView, parseView } from './view.js'

const column = (type: ColumnDefinition['type'], rest: Partial<ColumnDefinition> = {}) =>
  ({ name: 'c', type, ...rest }) as ColumnDefinition

const row = (version: number, fields: object = {}): Row => ({
  id: 'r',
  ...fields,
  service: { version, createdAt: '', updatedAt: '' },
})

describe('values', () => {
  it.each([
    ['int', '-42', -42],
    ['float', '1e3', 1000],
    ['bool', 'Yes', true],
    ['email', 'a@example.com', 'a@example.com'],
    ['datetime', '2026-01-02', '2026-01-02T00:00:00Z'],
    ['datetime', '2026-01-02 03:04+0530', '2026-01-02T03:04:00+05:30'],
    ['multiple', '["a,b", "c"]', ['a,b', 'c']],
    ['multiple', 'a, b', ['a', 'b']],
    ['json', '"text"', 'text'],
    ['object', '{"a": 1}', { a: 1 }],
    ['string', ' kept ', ' kept '],
    ['int', '', null],
  ] as const)('a %s reads %j', (type, text, value) => {
    expect(parseText(column(type), text)).toEqual({ value })
  })

  it.each([
    ['int', '1.5'],
    ['int', '9007199254740993'],
    ['float', 'many'],
    ['bool', 'perhaps'],
    ['email', 'nobody'],
    ['datetime', '2026-13-01'],
    ['datetime', '2026-02-31T10:00:00Z'],
    ['date', '2026-02-31'],
    ['json', '{'],
    ['object', '[1]'],
    ['string', 'x'.repeat(2049)],
  ] as const)('a %s refuses %.20j', (type, text) => {
    expect(parseText(column(type), text)).toHaveProperty('fault')
  })

  it('checks the number of components of a vector', () => {
    const vector = column('vector', { vector: { dimension: 2 } })
    expect(parseText(vector, '[1, 2]')).toEqual({ value: [1, 2] })
    expect(parseText(vector, '1 2 3')).toEqual({ fault: 'expected 2 numbers, got 3' })
    expect(shortText(vector, [0.12345, 2, 3, 4])).toBe('[0.123, 2, 3, …] 4')
  })

  it('writes values as text that reads as the same value', () => {
    for (const [type, value] of [
      ['json', 'a "text"'],
      ['multiple', ['a,b', '']],
      ['object', { a: { b: [1] } }],
      ['string', '=1+1'],
    ] as const) {
      expect(parseText(column(type), longText(column(type), value))).toEqual({ value })
    }
  })
})

describe('staged changes', () => {
  const name = { name: 'name', type: 'string' } as const
  const note = { name: 'note', type: 'json' } as const
  const table = { name: 't', columns: [name, note] }

  it('become operations that are refused if the record has changed', () => {
    let staged = stageCell(NOTHING, { row: row(3, { name: 'a' }) }, name, 'b')
    staged = stageCell(staged, { row: row(3, { name: 'a' }) }, note, 'text')
    expect(operationsOf(table, staged).map(({ operation }) => operation)).toEqual([
      { update: { table: 't', id: 'r', fields: { name: 'b', note: '"text"' }, ifVersion: 3 } },
    ])
    const kept = rebase(staged, row(5, { name: 'theirs' }))
    expect(operationsOf(table, kept)[0]?.operation).toMatchObject({ update: { ifVersion: 5 } })
    const deleted = stageDelete(staged, [{ row: row(3) }])
    expect(operationsOf(table, deleted).map(({ operation }) => operation)).toEqual([
      { update: { table: 't', id: 'r', fields: {}, ifVersion: 3 } },
      { delete: { table: 't', id: 'r', failIfMissing: true } },
    ])
  })

  it('vanish when the stored value is typed again', () => {
    const stored = { row: row(0, { name: 'a' }) }
    const staged = stageCell(stageCell(NOTHING, stored, name, 'b'), stored, name, 'a')
    expect(staged.edits.size).toBe(0)
    expect(stageCell(NOTHING, stored, name, 'a')).toBe(NOTHING)
  })
})

describe('filters and addresses', () => {
  const columns = [column('int'), { ...column('string'), name: 'name' }]

  it('a filter that was built by hand can be read back', () => {
    const built = {
      match: 'any',
      conditions: [
        { column: 'c', operator: '$ge', text: '5' },
        { column: 'name', operator: '$notExists', text: '' },
      ],
    } as const
    const filter = filterOf(built, columns)
    expect(filter).toEqual({ $any: [{ c: { $ge: 5 } }, { $notExists: 'name' }] })
    expect(conditionsOf(filter)).toEqual(built)
    expect(conditionsOf({ $not: { c: 1 } })).toBeUndefined()
    expect(() =>
      filterOf(
        { match: 'all', conditions: [{ column: 'c', operator: '$is', text: 'x' }] },
        columns,
      ),
    ).toThrow('c: expected a whole number')
  })

  it('the address keeps the view, and a broken one is ignored', () => {
    const view = {
      filter: { c: 'a&b=?' },
      sort: [{ column: 'c', direction: 'desc' }],
      search: 'ü 😀',
      at: 'before-import',
    } as const
    expect(parseView(formatView(view))).toEqual(view)
    expect(parseView('filter={&sort=1')).toEqual({
      filter: undefined,
      sort: [],
      search: '',
      at: '',
    })
  })
})

describe('files of comma-separated values', () => {
  it.each([
    [['1', '', '-3'], 'int'],
    [['1.5', '2'], 'float'],
    [['007', '008'], 'string'],
    [['true', 'no'], 'bool'],
    [['0', '1'], 'int'],
    [['2026-01-01', '2026-01-01T10:00:00Z'], 'datetime'],
    [['a@example.com'], 'email'],
    [['{"a": 1}', '[]'], 'json'],
    [['two\nlines'], 'text'],
    [[''], 'string'],
  ] as const)('%j are guessed to be %s', (texts, type) => {
    expect(guessColumn(texts)).toEqual({ type })
  })

  it('have exact numbers if all have equally many digits after the point', () => {
    const decimal = { precision: 18, scale: 2 }
    expect(guessColumn(['12.50', '', '-0.99'])).toEqual({ type: 'decimal', decimal })
    expect(guessColumn(['12.50', '0.999'])).toEqual({ type: 'float' })
    expect(guessColumn(['12.50', '7'])).toEqual({ type: 'float' })
    expect(guessColumn(['12345678901234567.89', '7'])).toEqual({
      type: 'decimal',
      decimal: { precision: 19, scale: 2 },
    })
    expect(guessColumn(['0.30000000000000004', '7'])).toEqual({ type: 'float' })
    expect(guessColumn(['9007199254740993'])).toEqual({ type: 'string' })
    expect(guessColumn(['2026-02-31'])).toEqual({ type: 'string' })
  })

  it('makes records and names the cells that do not fit', () => {
    const targets = [column('int'), undefined, { ...column('bool'), name: 'b' }]
    expect(recordOf(['1', 'left out', ''], targets)).toEqual({ record: { c: 1 }, faults: [] })
    expect(recordOf(['x', '', 'y'], targets)).toEqual({
      record: { b: true },
      faults: ['c: expected a whole number, got “x”'],
    })
  })
})
