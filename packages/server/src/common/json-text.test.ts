import { describe, expect, it } from 'vitest'
import { finish } from '../../../../test/support/finish.js'
import { parseJsonSteps, parseShortJson, SLICE_BYTES, scanJson } from './json-text.js'

const LIMITS = { jsonDepthMax: 20, jsonValuesMax: 5_000_000, jsonStringBytesMax: 4_000_000 }

function parse(text: string | Buffer, limits = LIMITS): unknown {
  return finish(parseJsonSteps(Buffer.from(text), limits))
}

const long = 'x'.repeat(SLICE_BYTES + 1)
const many = <Item>(count: number, make: (index: number) => Item) =>
  Array.from({ length: count }, (_, index) => make(index))

describe('a long JSON text', () => {
  it.each<[string, unknown]>([
    ['objects in a list', { records: many(5000, (id) => ({ id, name: `n${id}`, list: [1, {}] })) }],
    ['numbers', many(100_000, (number) => number / 7)],
    ['one long text', { text: long }],
    ['long texts between short ones', ['a', long, 'b', 'c', `${long}${long}`, 'd']],
    ['long values of names', { a: 1, b: many(40_000, String), c: 2, d: { e: long, f: [long] } }],
    ['many names', Object.fromEntries(many(30_000, (n) => [`name ${n}`, n]))],
    ['nested long lists', [[many(30_000, String), 1], [[many(30_000, String)]], 2]],
    ['characters of all lengths', ['aä€😀'.repeat(50_000), '\u{1f600}'.repeat(20_001)]],
    [
      'escapes',
      ['\\'.repeat(100_000), '"'.repeat(99_999), '\u0001'.repeat(50_000), '\n\\"'.repeat(70_000)],
    ],
    ['brackets in texts', [`]}{[,":${'[{'.repeat(70_000)}`, ']'.repeat(70_000)]],
    ['empty ones', [many(40_000, () => ({})), many(40_000, () => []), {}, []]],
  ])('is parsed like any other: %s', (_name, value) => {
    for (const text of [JSON.stringify(value), JSON.stringify(value, null, 2)]) {
      expect(parse(text)).toEqual(value)
    }
    const escaped = JSON.stringify(value).replace(
      /[^\x20-\x7e]/g,
      (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
    )
    expect(parse(escaped)).toEqual(value)
  })

  it('keeps the last of equal names, and a name that means something to objects', () => {
    const text = `{"a":1,"__proto__":{"b":"${long}"},"c":"${long}","a":2}`
    const value = parse(text) as Record<string, unknown>
    expect(value).toEqual(JSON.parse(text))
    expect(Object.keys(value)).toEqual(['a', '__proto__', 'c'])
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype)
  })

  it.each([
    ['a comma at the end', `["${long}",]`],
    ['a comma at the start', `[,"${long}"]`],
    ['two commas', `["${long}",,"${long}"]`],
    ['a digit before a long value', `[1"${long}"]`],
    ['a digit after a long value', `[["${long}"]1]`],
    ['a digit before a long value of a name', `{"a":1["${long}"]}`],
    ['a digit before all of it', `1["${long}"]`],
    ['a digit after all of it', `["${long}"]1`],
    ['a missing comma', `["${long}" "${long}"]`],
    ['a name without a value', `{"a":"${long}","b"}`],
    ['a value without a name', `{"${long}"}`],
    ['brackets that do not match', `["${long}"}`],
    ['an end too early', `{"a":["${long}"]`],
    ['a text without an end', `["${long}`],
    ['something after the end', `["${long}"] 1`],
    ['a second value', `["${long}"]["${long}"]`],
    ['something before', `1 ["${long}"]`],
    ['a wrong escape', `["${long}\\x"]`],
    ['a line break in a text', `["${long}\n"]`],
    ['a word', `["${long}", undefined]`],
    ['a name that is no text', `{"a":"${long}",b:1}`],
    ['a colon in a list', `["${long}":1]`],
  ])('is refused with %s', (_name, text) => {
    expect(() => JSON.parse(text)).toThrow()
    expect(() => parse(text)).toThrow(/body: is not valid JSON/)
  })

  it('that is not UTF-8 is refused', () => {
    expect(() => parse(Buffer.from([0x22, 0xff, 0x22]))).toThrow('body: is not valid UTF-8')
  })

  it('never takes a step over more than a few slices', () => {
    const texts = [
      `["${long.repeat(20)}"]`,
      `[${'[0],'.repeat(400_000)}1]`,
      `["${'\\"'.repeat(600_000)}"]`,
    ]
    for (const text of texts) {
      let steps = 0
      for (const _ of parseJsonSteps(Buffer.from(text), LIMITS)) steps++
      expect(steps).toBeGreaterThan(text.length / SLICE_BYTES / 2)
    }
  })
})

describe('limits of JSON', () => {
  const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`

  it('hold for depth at its edge, in short and in long texts', () => {
    expect(parseShortJson(Buffer.from(nested(20)), LIMITS)).toBeDefined()
    expect(() => parseShortJson(Buffer.from(nested(21)), LIMITS)).toThrow(
      'body: is nested too deeply: jsonDepthMax is 20',
    )
    expect(parse(`["${long}",${nested(19)}]`)).toBeDefined()
    expect(() => parse(`["${long}",${nested(20)}]`)).toThrow('jsonDepthMax is 20')
  })

  it('hold for the number of values at its edge', () => {
    const limits = { ...LIMITS, jsonValuesMax: 9 }
    const nine = '{"a":[1,"b",{}, [ ]],"c":{"d":null},"e":2}'
    expect(parseShortJson(Buffer.from(nine), limits)).toBeDefined()
    expect(() => parseShortJson(Buffer.from(nine.replace('2}', '2,"f":3}')), limits)).toThrow(
      'body: has more values than jsonValuesMax, 9',
    )
    expect(() => parseShortJson(Buffer.from(nine.replace('{}', '[1]')), limits)).toThrow(
      'jsonValuesMax',
    )
  })

  it('hold for the length of a text at its edge', () => {
    const limits = { ...LIMITS, jsonStringBytesMax: 100_000 }
    expect(parse(`["${'x'.repeat(100_000)}"]`, limits)).toBeDefined()
    expect(() => parse(`["${'x'.repeat(100_001)}"]`, limits)).toThrow(
      'body: a string is longer than jsonStringBytesMax, 100000 bytes',
    )
  })

  it('hold for what cannot be cut', () => {
    expect(parse(`["${long}",${' '.repeat(60_000)}1${'0'.repeat(300)}]`)).toBeDefined()
    expect(() => parse(`[${' '.repeat(SLICE_BYTES)}1]`)).toThrow('a run of white space is longer')
    expect(() => parse(`[${'1'.repeat(SLICE_BYTES + 1)}]`)).toThrow('a number or')
    expect(() => parse(`{"${long}" : 1}`)).toThrow('a name is longer than 65536 bytes')
    const members = (count: number) => `{${many(count, (n) => `"${n}":0`).join()}}`
    expect(parse(members(50_000))).toBeDefined()
    expect(() => parse(members(50_001))).toThrow('an object has more than 50000 members')
  })

  it('are checked without parsing', () => {
    const steps = scanJson(Buffer.from('[1,nonsense,[2'.repeat(1)), LIMITS)
    expect(() => {
      while (!steps.next().done);
    }).toThrow('it is incomplete')
  })
})
