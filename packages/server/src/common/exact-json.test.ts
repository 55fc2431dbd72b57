import { expect, it } from 'vitest'
import { parseExactly, roundedIn } from './exact-json.js'

const LONG = '12345678901234567.89'

it('knows the members that were rounded, at any depth, and parses like JSON.parse', () => {
  const texts = [
    '{"a":100000000000000000.1,"b":1}',
    `{"a": -${LONG},"b":[{"c":{"d":9007199254740990.6e0}}]}`,
    '{"a":\n 0.1000000000000000055,"__proto__":1.00000000000000001}',
    '{"a":9007199254740993,"b":"x"}',
    '[{"a":1e400000000000000,"b":123456789012345678901234567890}]',
  ]
  const found = texts.map((text) => {
    const value = parseExactly(text)
    expect(JSON.stringify(value)).toBe(JSON.stringify(JSON.parse(text)))
    return listRounded(value)
  })
  expect(found).toEqual([
    ['a=100000000000000000.1'],
    [`a=-${LONG}`, 'd=9007199254740990.6e0'],
    ['a=0.1000000000000000055', '__proto__=1.00000000000000001'],
    ['a=9007199254740993'],
    ['a=1e400000000000000', 'b=123456789012345678901234567890'],
  ])
})

it('takes numbers as they are that a double is written as, and what texts contain', () => {
  for (const text of [
    '{"a":0.30000000000000004,"b":1.7976931348623157e308,"c":5e-324,"d":-0,"e":1e21}',
    '{"a":9007199254740991.0000000000,"b":1000000000000000000000,"c":0.000000000000000000010}',
    `{"a":"${LONG}","b":"c: ${LONG}, \\":${LONG}","${LONG}":"\\\\"}`,
    `[${LONG}]`,
    LONG,
    '"x"',
    '{}',
  ]) {
    const value = parseExactly(text)
    expect(JSON.stringify(value)).toBe(JSON.stringify(JSON.parse(text)))
    expect(listRounded(value)).toEqual([])
  }
  const value = parseExactly(`{"a":${LONG},"b":[${LONG},"${LONG}"]}`)
  expect(JSON.stringify(value)).toBe(`{"a":${Number(LONG)},"b":[${Number(LONG)},"${LONG}"]}`)
})

it('knows elements of lists only if that is asked for', () => {
  const text = `[${LONG}, 1,[0.5,-${LONG} ],{"a":[${LONG}],"b":${LONG}},"1,${LONG}"]`
  expect(listRounded(parseExactly(text))).toEqual([`b=${LONG}`])
  const value = parseExactly(text, 'elements')
  expect(JSON.stringify(value)).toBe(JSON.stringify(JSON.parse(text)))
  expect(listRounded(value)).toEqual([`0=${LONG}`, `1=-${LONG}`, `b=${LONG}`, `0=${LONG}`])
})

it('throws the error of JSON.parse', () => {
  for (const text of ['', '{', `{"a":${LONG}`, `{"a":${LONG}.1}`, `{"a:${LONG}}`]) {
    expect(() => parseExactly(text)).toThrow(SyntaxError)
  }
})

function listRounded(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return []
  const own = [...(roundedIn(value) ?? [])].map(([name, text]) => `${name}=${text}`)
  return [...own, ...Object.values(value).flatMap(listRounded)]
}
