import { LIMITS } from '@offshoot/contract/limits'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Fault } from './fault.js'
import { JSON_DEPTH_MAX } from './json-text.js'
import { fileArrayType, fileType, jsonType } from './json-types.js'

const options = { limits: LIMITS, jsonAsText: false }
const column = { id: 1, name: 'c', type: 'json' } as const
const codec = jsonType.compile(column, options)

const nul = 'contains a NUL character, which cannot be stored'
const half = 'contains half of a surrogate pair, which cannot be stored'
const tooLong = 'contains a number with more digits than can be stored'
const tooDeep = `is nested deeper than ${JSON_DEPTH_MAX} levels`
const notJson = 'is not JSON: a string is read as JSON text'
const inexact =
  'contains a whole number beyond 2^53-1 in size; send the document as JSON text to keep it exactly'

const nest = (levels: number) => '['.repeat(levels) + ']'.repeat(levels)

describe('a value', () => {
  test.each([
    [{}, '{}'],
    [[], '[]'],
    [{ a: [1, 'b', null, true] }, '{"a":[1,"b",null,true]}'],
    [42, '42'],
    [false, 'false'],
    [Number.MAX_SAFE_INTEGER, '9007199254740991'],
    [JSON.parse('{"__proto__":{"a":1},"constructor":2}'), '{"__proto__":{"a":1},"constructor":2}'],
    [{ toJSON: 'text' }, '{"toJSON":"text"}'],
  ])('%j is stored as it is', (value, text) => expect(codec.encode(value)).toBe(text))

  test.each([
    [{ a: [2 ** 53] }, inexact],
    [1e300, inexact],
    [[-(2 ** 53)], inexact],
    [
      [Number.POSITIVE_INFINITY],
      'contains a number out of range; send the document as JSON text to keep it',
    ],
    [['a\0'], nul],
    [{ 'a\0': 1 }, nul],
    [{ a: ['\ud83d'] }, half],
    [{ '\ude00': 1 }, half],
    [[undefined], 'expected a JSON value, got nothing'],
    [[10n], 'expected a JSON value, got a bigint'],
  ])('is refused', (value, message) => expect(codec.encode(value)).toEqual(new Fault(message)))

  test('is nested at most so deep', () => {
    const text = nest(JSON_DEPTH_MAX)
    expect(codec.encode(JSON.parse(text))).toBe(text)
    expect(codec.encode(JSON.parse(nest(JSON_DEPTH_MAX + 1)))).toEqual(new Fault(tooDeep))
    expect(codec.encode(JSON.parse(nest(100_000)))).toEqual(new Fault(tooDeep))
  })

  test('comes out of its text again', () => {
    fc.assert(
      fc.property(fc.jsonValue({ stringUnit: 'binary' }), (value) => {
        const text = codec.encode(value)
        fc.pre(typeof value !== 'string' && typeof text === 'string')
        expect(text).toBe(JSON.stringify(value))
      }),
    )
  })
})

describe('a text', () => {
  test.each([
    '{}',
    ' [ 1 , 2 ]\n',
    'null',
    '"text"',
    '""',
    '-0',
    '1.10',
    '9007199254740993',
    '0.1234567890123456789012345',
    '1e400',
    '{"a":1,"a":2}',
    '"\\ud83d\\ude00 \\u0001 \\\\u0000 \\" \\/"',
    '{"\\\\":"\\\\"}',
    '"1e999999 [[[ {"',
    '1e131071',
    '9.99e131071',
    '0.001e131074',
    '1e-16383',
    '10e-16383',
    '0e-16383',
    '-0.0e5',
    '1E+5',
    nest(JSON_DEPTH_MAX),
    `[${'[],'.repeat(1000)}{}]`,
  ])('is stored as it stands: %s', (text) => expect(codec.encode(text)).toBe(text))

  test.each([
    ['', notJson],
    ['text', notJson],
    ["{'a':1}", notJson],
    ['{"a":1', notJson],
    ['[1,]', notJson],
    ['NaN', notJson],
    ['01', notJson],
    ['"\0"', notJson],
    ['\ufeff{}', notJson],
    ['"\\u0000"', nul],
    ['{"a\\u0000":1}', nul],
    ['"\\\\\\u0000"', nul],
    ['"\ud83d"', half],
    ['"\\ud83d"', half],
    ['"\\ud83d\\n"', half],
    ['"\\ud83d\\ud83d"', half],
    ['"\\ude00"', half],
    ['"\\ud83d\ude00"', half],
    ['"\\uD83Dx"', half],
    ['1e400000', tooLong],
    ['1e131072', tooLong],
    ['10e131071', tooLong],
    ['0.01e131074', tooLong],
    ['1e-16384', tooLong],
    ['0.1e-16383', tooLong],
    ['0e-16384', tooLong],
    [`1e${'9'.repeat(400)}`, tooLong],
    [`0e${'9'.repeat(400)}`, tooLong],
    [`1e-${'9'.repeat(400)}`, tooLong],
    ['1'.repeat(131_073), tooLong],
    [`0.${'1'.repeat(16_384)}`, tooLong],
    ['[1,{"a":-1e400000}]', tooLong],
    [nest(JSON_DEPTH_MAX + 1), tooDeep],
    [`${'{"a":'.repeat(JSON_DEPTH_MAX + 1)}1${'}'.repeat(JSON_DEPTH_MAX + 1)}`, tooDeep],
    [nest(100_000), tooDeep],
  ])('is refused', (text, message) => expect(codec.encode(text)).toEqual(new Fault(message)))

  test('does not grow beyond the size of a record by being read', () => {
    const message = `is larger than ${LIMITS.recordBytesMax} bytes with its numbers written out`
    expect(codec.encode(`[${'1e131071,'.repeat(7)}1]`)).toBeTypeOf('string')
    expect(codec.encode(`[${'1e131071,'.repeat(8)}1]`)).toEqual(new Fault(message))
    expect(codec.encode(Array(4000).fill(1e-300))).toEqual(new Fault(message))
    expect(codec.encode(Array(3000).fill(1e-300))).toBeTypeOf('string')
  })

  test('is accepted when its value is, except for what only text keeps', () => {
    fc.assert(
      fc.property(fc.json({ stringUnit: 'binary' }), (text) => {
        const value: unknown = JSON.parse(text)
        fc.pre(typeof value !== 'string' && typeof codec.encode(value) === 'string')
        expect(codec.encode(text)).toBe(text)
      }),
    )
  })
})

test('is read as it is, and as a string for Xata clients', () => {
  expect(codec.decode('{"a": 1}')).toBe('{"a": 1}')
  const asText = jsonType.compile(column, { ...options, jsonAsText: true })
  expect(asText.decode('{"a": 1}')).toBe('"{\\"a\\": 1}"')
  expect(asText.encode('{"a":1}')).toBe('{"a":1}')
})

test('has JSON text as default', () => {
  expect(jsonType.parseDefault('{"a":1}', column, options)).toBe('{"a":1}')
  expect(jsonType.parseDefault('text', column, options)).toEqual(new Fault(notJson))
})

test('files keep what is known about them', () => {
  const file = fileType.compile({ ...column, type: 'file' }, options)
  const files = fileArrayType.compile({ ...column, type: 'file[]' }, options)
  expect(file.encode({ name: 'a.txt', size: 3 })).toBe('{"name":"a.txt","size":3}')
  expect(files.encode([{ id: 'a' }])).toBe('[{"id":"a"}]')
  expect(files.encode([])).toBe('[]')
  expect(file.encode('{}')).toEqual(new Fault('expected an object, got a string'))
  expect(file.encode([])).toEqual(new Fault('expected an object, got an array'))
  expect(files.encode({})).toEqual(new Fault('expected an array, got an object'))
  expect(file.encode({ name: '\0' })).toEqual(new Fault(nul))
})
