import { LIMITS } from '@offshoot/contract/limits'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Fault } from './fault.js'
import { boolType, floatType, intType, vectorType } from './number-types.js'

const options = { limits: LIMITS, jsonAsText: false }
const column = { id: 1, name: 'c', type: 'int' } as const

describe('bool', () => {
  const codec = boolType.compile(column, options)

  test('is written and read', () => {
    expect(codec.encode(true)).toBe('t')
    expect(codec.encode(false)).toBe('f')
    expect(['t', 'true', 'f', 'false'].map(codec.decode)).toEqual([
      'true',
      'true',
      'false',
      'false',
    ])
  })

  test.each([
    ['true', 'a string'],
    [1, 'a number'],
    [0, 'a number'],
    [{}, 'an object'],
    [[], 'an array'],
  ])('refuses %j', (value, kind) => {
    expect(codec.encode(value)).toEqual(new Fault(`expected a boolean, got ${kind}`))
  })

  test('has the default true or false', () => {
    expect(boolType.parseDefault('true', column, options)).toBe('t')
    expect(boolType.parseDefault('false', column, options)).toBe('f')
    for (const text of ['', 't', 'TRUE', '1', ' true']) {
      expect(boolType.parseDefault(text, column, options)).toBeInstanceOf(Fault)
    }
  })
})

describe('int', () => {
  const codec = intType.compile(column, options)
  const outOfRange = 'is not between -9007199254740991 and 9007199254740991'

  test.each([
    [0, '0'],
    [-0, '0'],
    [1, '1'],
    [-42, '-42'],
    [Number.MAX_SAFE_INTEGER, '9007199254740991'],
    [Number.MIN_SAFE_INTEGER, '-9007199254740991'],
    [1e15, '1000000000000000'],
  ])('writes %d', (value, text) => expect(codec.encode(value)).toBe(text))

  test.each([
    [Number.MAX_SAFE_INTEGER + 1, outOfRange],
    [Number.MIN_SAFE_INTEGER - 1, outOfRange],
    [1e300, outOfRange],
    [Number.POSITIVE_INFINITY, outOfRange],
    [1.5, 'expected a whole number, got a fraction'],
    [5e-324, 'expected a whole number, got a fraction'],
    ['1', 'expected a whole number, got a string'],
    [true, 'expected a whole number, got a boolean'],
    [[1], 'expected a whole number, got an array'],
    [{}, 'expected a whole number, got an object'],
  ])('refuses %j', (value, message) => {
    expect(codec.encode(value)).toEqual(new Fault(message))
  })

  test.each([
    ['42', '42'],
    ['-1', '-1'],
    ['0', '0'],
    ['9007199254740991', '9007199254740991'],
  ])('takes the default %s', (text, stored) => {
    expect(intType.parseDefault(text, column, options)).toBe(stored)
  })

  test.each(['', ' 1', '1 ', '+1', '01', '1.0', '1e3', '0x10', 'now', '9007199254740992', '９'])(
    'refuses the default %j',
    (text) => expect(intType.parseDefault(text, column, options)).toBeInstanceOf(Fault),
  )
})

describe('float', () => {
  const codec = floatType.compile(column, options)

  test('is written as the shortest text that reads the same', () => {
    fc.assert(
      fc.property(fc.double({ noDefaultInfinity: true, noNaN: true }), (value) => {
        expect(Object.is(Number(codec.encode(value)), value)).toBe(true)
      }),
    )
    expect(codec.encode(-0)).toBe('-0')
    expect(codec.encode(0)).toBe('0')
    expect(codec.encode(0.1)).toBe('0.1')
  })

  test.each([
    [Number.POSITIVE_INFINITY, 'is out of range'],
    [Number.NEGATIVE_INFINITY, 'is out of range'],
    [Number.NaN, 'is out of range'],
    ['1', 'expected a number, got a string'],
    [false, 'expected a number, got a boolean'],
    [[], 'expected a number, got an array'],
  ])('refuses %j', (value, message) => {
    expect(codec.encode(value)).toEqual(new Fault(message))
  })

  test.each([
    ['1.5', '1.5'],
    ['42', '42'],
    ['-0', '-0'],
    ['1e3', '1000'],
    ['5e-324', '5e-324'],
    ['0.0e-999', '0'],
  ])('takes the default %s', (text, stored) => {
    expect(floatType.parseDefault(text, column, options)).toBe(stored)
  })

  test.each(['', '.5', '1.', '+1', 'NaN', 'Infinity', '1e400', '1e-400', ' 1', '1_000', '0x1'])(
    'refuses the default %j',
    (text) => expect(floatType.parseDefault(text, column, options)).toBeInstanceOf(Fault),
  )
})

describe('vector', () => {
  const ofDimension = (dimension: number) =>
    vectorType.compile({ ...column, type: 'vector', vector: { dimension } }, options)

  test('has exactly as many numbers as its column says', () => {
    const codec = ofDimension(3)
    expect(codec.encode([1, 2.5, -3])).toBe('{1,2.5,-3}')
    for (const length of [0, 1, 2, 4]) {
      expect(codec.encode(Array(length).fill(1))).toEqual(
        new Fault(`expected 3 numbers, got ${length}`),
      )
    }
  })

  test('may be as long as the limit', () => {
    const dimension = LIMITS.vectorDimensionMax
    const codec = ofDimension(dimension)
    expect(codec.encode(Array(dimension).fill(0.5))).toBeTypeOf('string')
    expect(codec.encode(Array(dimension + 1).fill(0.5))).toBeInstanceOf(Fault)
  })

  test.each([
    ['[1,2]', 'expected an array of numbers, got a string'],
    [{ length: 2 }, 'expected an array of numbers, got an object'],
    [[1, '2'], 'element [1]: expected a number, got a string'],
    [[null, 1], 'element [0]: expected a number, got null'],
    [[1, Number.NaN], 'element [1]: is out of the range of single precision'],
    [[1e39, 1], 'element [0]: is out of the range of single precision'],
    [[3.4028235677973366e38, 1], 'element [0]: is out of the range of single precision'],
    [[1, 1e-46], 'element [1]: is out of the range of single precision'],
    [[1, -1e-46], 'element [1]: is out of the range of single precision'],
  ])('refuses %j', (value, message) => {
    expect(ofDimension(2).encode(value)).toEqual(new Fault(message))
  })

  test('writes a text on the same side of the middle between two singles as the number', () => {
    // Halfway between 1 and the next single: ties go to even, and so must the text.
    expect(ofDimension(2).encode([1 + 2 ** -24, 1 + 3 * 2 ** -24])).toBe('{1,1.000000238418579}')
    expect(ofDimension(2).encode([0.1, -0])).toBe('{0.1,-0}')
  })
})
