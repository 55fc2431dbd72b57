import { LIMITS } from '@offshoot/contract/limits'
import { COLUMN_TYPES, type Column, type ColumnType } from '@offshoot/contract/schema'
import { describe, expect, test } from 'vitest'
import { type ColumnChecks, checkColumn, checkColumnName, countColumns } from './check-column.js'

const checks: ColumnChecks = {
  limits: LIMITS,
  checkDefault: (_column, text) => (text === 'bad' ? 'is bad' : undefined),
}

/** Builds a column of the type, with all fields that the type requires. */
function columnOf(type: ColumnType, rest: Partial<Column> = {}): Column {
  return {
    name: 'c',
    type,
    ...(type === 'link' && { link: { table: 'users' } }),
    ...(type === 'vector' && { vector: { dimension: 3 } }),
    ...(type === 'decimal' && { decimal: { precision: 10, scale: 2 } }),
    ...(type === 'enum' && { enum: { values: ['fine'] } }),
    ...(type === 'object' && { columns: [{ name: 'n', type: 'string' }] }),
    ...rest,
  }
}

function objectOf(columns: readonly Column[]): Column {
  return { name: 'o', type: 'object', columns }
}

function nest(depth: number): Column {
  return depth === 0 ? { name: 'leaf', type: 'int' } : objectOf([nest(depth - 1)])
}

describe('names', () => {
  test.each(['a', 'A-b_c~9', 'identity', '__proto__', 'x'.repeat(255)])('accepts %s', (name) => {
    expect(checkColumn({ name, type: 'int' }, checks)).toBeUndefined()
    expect(checkColumnName(name, LIMITS)).toBeUndefined()
  })

  test.each([
    ['', 'name is empty'],
    ['a.b', 'name may hold only letters, digits, underscores, hyphens and ~'],
    ['a b', 'name may hold only letters, digits, underscores, hyphens and ~'],
    ['a\n', 'name may hold only letters, digits, underscores, hyphens and ~'],
    ['é', 'name may hold only letters, digits, underscores, hyphens and ~'],
    ['x'.repeat(256), 'name is longer than 255 characters'],
    ['id', 'name is reserved'],
    ['Xata', 'name is reserved'],
    ['SERVICE', 'name is reserved'],
  ])('refuses %j', (name, fault) => {
    expect(checkColumn({ name, type: 'int' }, checks)).toBe(`column [${name}]: ${fault}`)
    expect(checkColumnName(name, LIMITS)).toBe(fault)
  })
})

describe('types', () => {
  test.each(COLUMN_TYPES)('accepts %s with its required fields', (type) => {
    expect(checkColumn(columnOf(type), checks)).toBeUndefined()
  })

  test.each(['number', '', 'constructor'])('refuses the unknown type %j', (type) => {
    expect(checkColumn({ name: 'c', type: type as ColumnType }, checks)).toBe(
      `column [c]: type [${type}] is unknown`,
    )
  })

  const fields: [keyof Column, ColumnType, Partial<Column>][] = [
    ['link', 'link', { link: { table: 'users' } }],
    ['vector', 'vector', { vector: { dimension: 3 } }],
    ['decimal', 'decimal', { decimal: { precision: 10, scale: 2 } }],
    ['bits', 'int', { bits: 16 }],
    ['enum', 'enum', { enum: { values: ['fine'] } }],
    ['file', 'file', { file: {} }],
    ['file[]', 'file[]', { 'file[]': { defaultPublicAccess: true } }],
    ['columns', 'object', { columns: [{ name: 'n', type: 'int' }] }],
  ]
  for (const [field, owner, rest] of fields) {
    test.each(COLUMN_TYPES)(`${field} is for ${owner}, given for %s`, (type) => {
      expect(checkColumn({ ...columnOf(type), ...rest }, checks)).toBe(
        type === owner
          ? undefined
          : `column [c]: type mismatch: type [${type}] is not valid for field [${field}]`,
      )
    })
  }

  test.each([
    [{ name: 'c', type: 'link' }, 'field [link] is required for type [link]'],
    [{ name: 'c', type: 'vector' }, 'field [vector] is required for type [vector]'],
    [{ name: 'c', type: 'decimal' }, 'field [decimal] is required for type [decimal]'],
    [{ name: 'c', type: 'enum' }, 'field [enum] is required for type [enum]'],
    [{ name: 'c', type: 'object' }, 'field [columns] is required for type [object]'],
    [{ name: 'c', type: 'object', columns: [] }, 'field [columns] is required for type [object]'],
  ] satisfies [Column, string][])('refuses %j', (column, fault) => {
    expect(checkColumn(column, checks)).toBe(`column [c]: ${fault}`)
  })

  test.each([
    [1, false],
    [2, true],
    [10_000, true],
    [10_001, false],
    [2.5, false],
    [Number.NaN, false],
  ])('a vector of %d dimensions', (dimension, fits) => {
    expect(checkColumn(columnOf('vector', { vector: { dimension } }), checks)).toBe(
      fits ? undefined : 'column [c]: vector dimension must be a whole number from 2 to 10000',
    )
  })
})

describe('sizes', () => {
  const textMax = LIMITS.recordBytesMax

  test.each(COLUMN_TYPES)('maxLength is for texts, given for %s', (type) => {
    const isText = type === 'string' || type === 'text'
    expect(checkColumn(columnOf(type, { maxLength: 1 }), checks)).toBe(
      isText
        ? undefined
        : `column [c]: type mismatch: type [${type}] is not valid for field [maxLength]`,
    )
  })

  test.each([
    ['string', 0, false],
    ['string', 1, true],
    ['string', 2048, true],
    ['string', 2049, false],
    ['string', 1.5, false],
    ['text', 2049, true],
    ['text', textMax, true],
    ['text', textMax + 1, false],
  ] as const)('a %s of %d characters', (type, maxLength, fits) => {
    const max = type === 'string' ? 2048 : textMax
    expect(checkColumn(columnOf(type, { maxLength }), checks)).toBe(
      fits
        ? undefined
        : `column [c]: maxLength of type [${type}] must be a whole number from 1 to ${max}`,
    )
  })

  test.each([0, 8, 31, 64, Number.NaN])('refuse %d bits', (bits) => {
    expect(checkColumn(columnOf('int', { bits: bits as 16 }), checks)).toBe(
      'column [c]: bits must be 16 or 32',
    )
  })

  test.each([
    ['uuid', 35, 36],
    ['user', 23, 24],
  ] as const)('leave room for [%s]', (generate, tooShort, length) => {
    const column = (maxLength: number) => columnOf('string', { generate, maxLength })
    expect(checkColumn(column(length), checks)).toBeUndefined()
    expect(checkColumn(column(tooShort), checks)).toBe(
      `column [c]: field [maxLength]: values of [${generate}] have ${length} characters`,
    )
  })

  test.each(['bits', 'maxLength'] as const)('[%s] is not for computed columns', (field) => {
    const type = field === 'bits' ? 'int' : 'string'
    expect(checkColumn(columnOf(type, { [field]: 16, computed: 'a' }), checks)).toBe(
      `column [c]: a column cannot have both fields [computed] and [${field}]`,
    )
  })
})

describe('constraints', () => {
  const unique: readonly ColumnType[] = [
    ...['string', 'email', 'int', 'float', 'datetime', 'link'],
    ...['decimal', 'date', 'time', 'uuid', 'enum'],
  ] as ColumnType[]
  const valued: readonly ColumnType[] = [
    ...['string', 'text', 'email', 'int', 'float', 'bool', 'datetime', 'json', 'multiple'],
    ...['decimal', 'date', 'time', 'uuid', 'enum'],
  ] as ColumnType[]

  const refusal = (type: ColumnType, field: string) =>
    `column [c]: type mismatch: type [${type}] is not valid for field [${field}]`

  test.each(COLUMN_TYPES)('unique on %s', (type) => {
    expect(checkColumn(columnOf(type, { unique: true }), checks)).toBe(
      unique.includes(type) ? undefined : refusal(type, 'unique'),
    )
  })

  test.each(COLUMN_TYPES)('notNull on %s', (type) => {
    expect(checkColumn(columnOf(type, { notNull: true }), checks)).toBe(
      valued.includes(type) ? undefined : refusal(type, 'notNull'),
    )
  })

  test.each(COLUMN_TYPES)('a default value on %s', (type) => {
    expect(checkColumn(columnOf(type, { defaultValue: 'fine' }), checks)).toBe(
      valued.includes(type) ? undefined : refusal(type, 'defaultValue'),
    )
  })

  test.each(COLUMN_TYPES)('constraints that are false are accepted for %s', (type) => {
    expect(checkColumn(columnOf(type, { unique: false, notNull: false }), checks)).toBeUndefined()
  })

  test('the column type validates the default value', () => {
    expect(checkColumn(columnOf('int', { defaultValue: 'bad' }), checks)).toBe(
      'column [c]: default value: is bad',
    )
  })

  test('unique can be combined with notNull, but not with a default value', () => {
    expect(checkColumn(columnOf('string', { unique: true, notNull: true }), checks)).toBeUndefined()
    expect(checkColumn(columnOf('string', { unique: true, defaultValue: 'x' }), checks)).toBe(
      'column [c]: a unique column cannot have a default value',
    )
  })
})

describe('nested columns', () => {
  test.each(COLUMN_TYPES)('%s inside an object', (type) => {
    const isFile = type === 'file' || type === 'file[]'
    expect(checkColumn(objectOf([columnOf(type)]), checks)).toBe(
      isFile ? `column [o]: column [c]: type [${type}] is not allowed inside an object` : undefined,
    )
  })

  test.each([
    ['notNull', { notNull: true }],
    ['unique', { unique: true }],
    ['defaultValue', { defaultValue: 'fine' }],
  ] satisfies [string, Partial<Column>][])('%s is not allowed inside an object', (field, rest) => {
    expect(checkColumn(objectOf([columnOf('string', rest)]), checks)).toBe(
      `column [o]: column [c]: field [${field}] is not allowed inside an object`,
    )
  })

  test('names are unique among siblings only, ignoring case', () => {
    const inner = objectOf([{ name: 'a', type: 'int' }])
    expect(checkColumn(objectOf([{ name: 'a', type: 'int' }, inner]), checks)).toBeUndefined()
    expect(
      checkColumn(
        objectOf([
          { name: 'a', type: 'int' },
          { name: 'A', type: 'int' },
        ]),
        checks,
      ),
    ).toBe('column [o]: column [A]: name is taken')
  })

  test('the rules for names and types apply inside objects', () => {
    expect(checkColumn(objectOf([{ name: 'Id', type: 'int' }]), checks)).toBe(
      'column [o]: column [Id]: name is reserved',
    )
    expect(checkColumn(objectOf([objectOf([{ name: 'l', type: 'link' }])]), checks)).toBe(
      'column [o]: column [o]: column [l]: field [link] is required for type [link]',
    )
  })

  test('objects nest 8 deep and not deeper', () => {
    expect(checkColumn(nest(8), checks)).toBeUndefined()
    expect(checkColumn(nest(9), checks)).toMatch(/objects are nested more than 8 deep$/)
  })

  test('extreme nesting is refused without a stack overflow', () => {
    let column: Column = { name: 'leaf', type: 'int' }
    for (let depth = 0; depth < 100_000; depth += 1) column = objectOf([column])
    expect(checkColumn(column, checks)).toMatch(/objects are nested more than 8 deep$/)
  })

  test('an object and the columns in it are all counted', () => {
    expect(countColumns(nest(0))).toBe(1)
    expect(countColumns(nest(3))).toBe(4)
  })
})
