import { LIMITS } from '@offshoot/contract/limits'
import { EMAIL_PATTERN } from '@offshoot/contract/names'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { cpuMsOf } from '../../../../../test/support/cpu-time.js'
import type { ColumnTypeEntry } from './column-type.js'
import { Fault } from './fault.js'
import {
  checkText,
  emailType,
  multipleType,
  quoteJson,
  stringType,
  textType,
} from './text-types.js'

const options = { limits: LIMITS, jsonAsText: false }
const column = { id: 1, name: 'c', type: 'string' } as const
const compile = (entry: ColumnTypeEntry) => entry.compile(column, options)
const wrongKinds: [unknown, string][] = [
  [1, 'a number'],
  [true, 'a boolean'],
  [{}, 'an object'],
  [['a'], 'an array'],
]

describe.each([
  ['string', stringType],
  ['text', textType],
])('%s', (_name, entry) => {
  const codec = compile(entry)

  test.each([
    '',
    ' ',
    '\\N',
    'NULL',
    '\t\n\r\b\f\v',
    "'; drop table x; --",
    '😀',
    '\u0001',
    '\uffff',
  ])('keeps %j as it is', (text) => expect(codec.encode(text)).toBe(text))

  test.each(wrongKinds)('refuses %j', (value, kind) => {
    expect(codec.encode(value)).toEqual(new Fault(`expected a string, got ${kind}`))
  })

  test('refuses what PostgreSQL cannot hold', () => {
    const nul = new Fault('contains a NUL character, which cannot be stored')
    const half = new Fault('contains half of a surrogate pair, which cannot be stored')
    expect(codec.encode('a\0b')).toEqual(nul)
    expect(codec.encode('\ud83d')).toEqual(half)
    expect(codec.encode('\ude00\ud83d')).toEqual(half)
  })

  test('takes a default as it stands, an empty one too', () => {
    expect(entry.parseDefault('now', column, options)).toBe('now')
    expect(entry.parseDefault('', column, options)).toBe('')
    expect(entry.parseDefault('\0', column, options)).toBeInstanceOf(Fault)
  })
})

test('a string has at most so many characters, whatever UTF-16 makes of them', () => {
  const codec = compile(stringType)
  const max = LIMITS.stringLengthMax
  for (const character of ['a', 'é', '名', '😀']) {
    for (const length of [0, 1, max]) {
      expect(codec.encode(character.repeat(length))).toBe(character.repeat(length))
    }
    expect(codec.encode(character.repeat(max + 1))).toEqual(
      new Fault(`is longer than ${max} characters`),
    )
  }
  expect(codec.encode(`${'a'.repeat(max - 1)}😀`)).toBeTypeOf('string')
  expect(compile(textType).encode('a'.repeat(max + 1))).toBeTypeOf('string')
})

test('checkText refuses exactly what UTF-8 without NUL cannot carry', () => {
  fc.assert(
    fc.property(
      fc.string({ unit: fc.nat({ max: 0xffff }).map((c) => String.fromCharCode(c)) }),
      (text) => {
        const survives = Buffer.from(text, 'utf8').toString('utf8') === text && !text.includes('\0')
        expect(checkText(text) === undefined).toBe(survives)
      },
    ),
    { numRuns: 2000 },
  )
})

test('quoteJson writes what JSON.stringify writes', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      expect(quoteJson(text)).toBe(JSON.stringify(text))
    }),
    { numRuns: 2000 },
  )
})

describe('email', () => {
  const codec = compile(emailType)

  test.each(['a@b', 'ada@example.com', "o'neil+tag@sub.example.co.uk", 'a@b-c.d1'])(
    'takes %s',
    (email) => expect(codec.encode(email)).toBe(email),
  )

  test.each([
    '',
    'a',
    '@b',
    'a@',
    'a b@c',
    'a@-b',
    'a@b-',
    'a@b..c',
    'ä@b.c',
    'a@b.c\n',
    'a@b\0',
    `a@${'b'.repeat(64)}`,
  ])('refuses %j', (email) =>
    expect(codec.encode(email)).toEqual(new Fault('is not an email address')),
  )

  test.each(wrongKinds)('refuses %j', (value, kind) => {
    expect(codec.encode(value)).toEqual(new Fault(`expected a string, got ${kind}`))
  })

  test('has at most so many characters', () => {
    const max = LIMITS.emailLengthMax
    const ofLength = (length: number) => `${'a'.repeat(length - 2)}@b`
    expect(codec.encode(ofLength(max))).toBe(ofLength(max))
    expect(codec.encode(ofLength(max + 1))).toEqual(new Fault(`is longer than ${max} characters`))
  })

  test('reads hostile input in no time', () => {
    const hostile = `a@${'a-'.repeat(125)}`
    const cpuMs = cpuMsOf(() => {
      for (let run = 0; run < 100; run++) codec.encode(hostile)
    })
    expect(cpuMs).toBeLessThan(1000)
  })

  test('takes every address of its pattern', () => {
    fc.assert(
      fc.property(fc.stringMatching(new RegExp(EMAIL_PATTERN)), (email) => {
        fc.pre(email.length <= LIMITS.emailLengthMax)
        expect(codec.encode(email)).toBe(email)
        expect(codec.decode(email)).toBe(JSON.stringify(email))
      }),
    )
  })

  test('takes an address as default', () => {
    expect(emailType.parseDefault('a@b.c', column, options)).toBe('a@b.c')
    expect(emailType.parseDefault('', column, options)).toBeInstanceOf(Fault)
    expect(emailType.parseDefault('now', column, options)).toBeInstanceOf(Fault)
  })
})

describe('multiple', () => {
  const codec = compile(multipleType)

  test.each([
    [[], '{}'],
    [[''], '{""}'],
    [['a', 'NULL', 'b,c', '{}'], '{"a","NULL","b,c","{}"}'],
    [['"', '\\'], '{"\\"","\\\\"}'],
  ])('writes %j as an array literal', (value, literal) => {
    expect(codec.encode(value)).toBe(literal)
  })

  test.each([
    ['a', 'expected an array of strings, got a string'],
    [{ 0: 'a' }, 'expected an array of strings, got an object'],
    [['a', 1], 'element [1]: expected a string, got a number'],
    [[null], 'element [0]: expected a string, got null'],
    [['a', '\0'], 'element [1]: contains a NUL character, which cannot be stored'],
    [['\ud800'], 'element [0]: contains half of a surrogate pair, which cannot be stored'],
  ])('refuses %j', (value, message) => {
    expect(codec.encode(value)).toEqual(new Fault(message))
  })
})
