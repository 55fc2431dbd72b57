import { describe, expect, it } from 'vitest'
import { parseExactly } from './exact-json.js'

describe('exact JSON', () => {
  it.each([
    ['9007199254740991', 9007199254740991],
    ['9007199254740992', 9007199254740992],
    ['9007199254740993', '9007199254740993'],
    ['-9007199254740993', '-9007199254740993'],
    ['100000000000000000000', 1e20],
    ['0.1', 0.1],
    ['1.10', 1.1],
    ['0.30000000000000004', 0.1 + 0.2],
    ['0.300000000000000041', '0.300000000000000041'],
    ['1234567890.1234567', 1234567890.1234567],
    ['1234567890.12345678', '1234567890.12345678'],
    ['1e+22', 1e22],
    ['9.999999999999999e+22', 1e23],
    ['1e400', '1e400'],
    ['1e-400', '1e-400'],
    ['0e-400', 0],
    ['-0', -0],
    [`0.${'0'.repeat(20)}1`, 1e-21],
  ])('has %s as %j', (text, value) => {
    expect(parseExactly(text)).toBe(value)
    expect(parseExactly(`{"a":[${text},null]}`)).toEqual({ a: [value, null] })
  })

  it('leaves texts and names as they are', () => {
    const value = {
      '9007199254740993': 'a "9007199254740993" \\',
      b: '\\"9007199254740993',
      c: ['', '1e400', true, null],
    }
    expect(parseExactly(JSON.stringify(value))).toEqual(value)
    expect(parseExactly(`${JSON.stringify(value).slice(0, -1)},"n":9007199254740993}`)).toEqual({
      ...value,
      n: '9007199254740993',
    })
  })

  it('refuses what is not JSON', () => {
    for (const text of ['', '{', '9007199254740993 9007199254740993', '"9007199254740993']) {
      expect(() => parseExactly(text)).toThrow(SyntaxError)
    }
  })
})
