import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { arrayLiteral, copyLine } from './carriers.js'

const long = 'x'.repeat(200)

describe('copyLine', () => {
  test.each([
    [['a', 'b'], 'a\tb\n'],
    [[null, '\\N', ''], '\\N\t\\\\N\t\n'],
    [['\\', '\t', '\n', '\r'], '\\\\\t\\t\t\\n\t\\r\n'],
    [['\\.'], '\\\\.\n'],
    [
      [`${long}\t`, `${long}\\`, `\n${long}`, `\r${long}`, long],
      `${long}\\t\t${long}\\\\\t\\n${long}\t\\r${long}\t${long}\n`,
    ],
    [[], '\n'],
  ])('writes %j', (values, line) => expect(copyLine(values)).toBe(line))

  test('puts a prefix in front as it is', () => {
    expect(copyLine(['a'], 'id\t0\t')).toBe('id\t0\ta\n')
  })

  test('is one line that holds the values again', () => {
    const characters: Record<string, string> = {
      '\\\\': '\\',
      '\\t': '\t',
      '\\n': '\n',
      '\\r': '\r',
    }
    const unit = fc.constantFrom('\\', '\t', '\n', '\r', 'N', 't', '.', 'é', '\b')
    const value = fc.option(fc.string({ unit, maxLength: 100 }))
    fc.assert(
      fc.property(fc.array(value, { minLength: 1 }), (values) => {
        const line = copyLine(values)
        expect(line.indexOf('\n')).toBe(line.length - 1)
        const read = line
          .slice(0, -1)
          .split('\t')
          .map((field) =>
            field === '\\N'
              ? null
              : field.replace(/\\./g, (sequence) => characters[sequence] ?? sequence),
          )
        expect(read).toEqual(values)
      }),
    )
  })
})

describe('arrayLiteral', () => {
  test.each([
    [[], '{}'],
    [[null, 'NULL', 'null', ''], '{NULL,"NULL","null",""}'],
    [['a,b', '{c}', ' d '], '{"a,b","{c}"," d "}'],
    [['"', '\\', '\\"'], '{"\\"","\\\\","\\\\\\""}'],
    [[`${long}"`, `${long}\\`], `{"${long}\\"","${long}\\\\"}`],
  ])('writes %j', (values, literal) => expect(arrayLiteral(values)).toBe(literal))
})
