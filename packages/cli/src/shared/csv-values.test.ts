import { describe, expect, it } from 'vitest'
import { readCell, TypeInference } from './csv-values.js'

function definitionOf(texts: readonly string[]) {
  const inference = new TypeInference()
  for (const text of texts) inference.add(text)
  return inference.definition
}

it('sends a fraction that a number would round to the service, which refuses it', () => {
  expect(readCell('9007199254740990.6', 'int')).toBe('9007199254740990.6')
  expect(readCell('7.0', 'int')).toBe(7)
  // JSON has no infinite numbers, and null would leave the column empty.
  expect(readCell('1e999', 'float')).toBe('1e999')
  expect(readCell('-1e999', 'int')).toBe('-1e999')
  expect(readCell('1.5e1', 'int')).toBe(15)
  expect(readCell('12345678901234567.89', 'decimal')).toBe('12345678901234567.89')
})

describe('the type of a column of a CSV file', () => {
  it.each([
    [['1', '', '-3'], 'int'],
    [['1.5', '2'], 'float'],
    [['1.25e10', '2.50'], 'float'],
    [['0.30000000000000004', '1.5'], 'float'],
    [['0.1', '123456789012345678'], 'decimal'],
    [['1e5', '12345678901234567.89'], 'decimal'],
    [['1e5', '12345678901234567.89', 'x'], 'string'],
    [['9007199254740991', '-1'], 'int'],
    [['9007199254740993', '1'], 'decimal'],
    [['9007199254740993', '007'], 'string'],
    [['007'], 'string'],
    [['true', 'false'], 'bool'],
    [['2026-01-31'], 'date'],
    [['09:30', '10:30:15.5'], 'time'],
    [['2026-02-31'], 'string'],
    [['2024-02-29', '2026-02-29'], 'string'],
    [['0000-01-01'], 'string'],
    [['2026-01-31T09:30:00Z', '2026-01-31 09:30:00.5+02:00'], 'datetime'],
    [['2026-02-31T09:30:00Z'], 'string'],
    [['2026-01-31T24:00:00Z'], 'string'],
    [['2026-01-31 09:30:00'], 'string'],
    [['2026-01-31T09:30Z'], 'string'],
    [['0190a5c1-7d3e-7cc2-9f0b-2a6f1c3d4e5f'], 'uuid'],
    [['a@example.com'], 'email'],
    [[''], 'string'],
  ] as const)('of %j is %s', (texts, type) => {
    expect(definitionOf(texts)).toMatchObject({ type })
  })

  it('is a decimal with room for all digits, if a float would round one', () => {
    const texts = ['12345678901234567.89', '-0.1', '7', '0.1234567890123456']
    for (const given of [texts, texts.toReversed()]) {
      expect(definitionOf(given)).toEqual({
        type: 'decimal',
        decimal: { precision: 17 + 16, scale: 16 },
      })
    }
    expect(definitionOf(['1.0000000000000001'])).toEqual({
      type: 'decimal',
      decimal: { precision: 12 + 16, scale: 16 },
    })
    expect(definitionOf(['9007199254740993', '-1'])).toEqual({
      type: 'decimal',
      decimal: { precision: 16, scale: 0 },
    })
    for (const given of [
      ['1.5e20', '-12345678901234567e-30'],
      ['-12345678901234567e-30', '1.5e20'],
    ]) {
      expect(definitionOf(given)).toEqual({
        type: 'decimal',
        decimal: { precision: 21 + 30, scale: 30 },
      })
    }
    expect(definitionOf([`0.${'1'.repeat(1000)}`])).toEqual({ type: 'string' })
    expect(definitionOf(['9007199254740993', '1e1000'])).toEqual({ type: 'string' })
  })

  it('is an exact number if all have equally many digits after the point', () => {
    const decimal = { precision: 18, scale: 2 }
    expect(definitionOf(['', '12.50', '-0.99'])).toEqual({ type: 'decimal', decimal })
    for (const other of ['0.999', '7', '1e3', '1234567890123.00']) {
      expect(definitionOf(['12.50', other])).toEqual({ type: 'float' })
      expect(definitionOf([other, '12.50'])).toEqual({ type: 'float' })
    }
  })
})
