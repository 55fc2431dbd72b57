import { describe, expect, it } from 'vitest'
import { TypeInference } from './csv-values.js'

function definitionOf(texts: readonly string[]) {
  const inference = new TypeInference()
  for (const text of texts) inference.add(text)
  return inference.definition
}

describe('the type of a column of a CSV file', () => {
  it.each([
    [['1', '', '-3'], 'int'],
    [['1.5', '2'], 'float'],
    [['1.25e10', '2.50'], 'float'],
    [['9007199254740991', '-1'], 'int'],
    [['9007199254740993', '1'], 'string'],
    [['007'], 'string'],
    [['true', 'false'], 'bool'],
    [['2026-01-31'], 'date'],
    [['09:30', '10:30:15.5'], 'time'],
    [['2026-01-31T09:30:00Z'], 'datetime'],
    [['0190a5c1-7d3e-7cc2-9f0b-2a6f1c3d4e5f'], 'uuid'],
    [['a@example.com'], 'email'],
    [[''], 'string'],
  ] as const)('of %j is %s', (texts, type) => {
    expect(definitionOf(texts)).toEqual({ type })
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
