import type { Random } from '../seeded-random.js'
import { RawJson } from './json-writer.js'

/** Texts that are known to break software. */
const TEXTS = [
  '',
  ' ',
  '.',
  '..',
  '../../etc/passwd',
  '..\\..\\windows',
  '/',
  '//',
  '\\',
  '%',
  '%00',
  '%2e%2e%2f',
  '*',
  '?',
  '#',
  '&a=b',
  ';',
  ':',
  'a:b:c',
  "'",
  '"',
  '`',
  "' or '1'='1",
  "'; drop table users; --",
  '"; drop schema offshoot cascade; --',
  '$1',
  '$$',
  '$1::regclass',
  '\\x00',
  'E\\\\047',
  '{{7*7}}',
  // biome-ignore lint/suspicious/noTemplateCurlyInString: that is the point of it.
  '${7*7}',
  '<script>alert(1)</script>',
  'null',
  'undefined',
  'true',
  'NaN',
  'Infinity',
  '0',
  '-1',
  '1e400',
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
  'valueOf',
  'length',
  'then',
  '$ref',
  '$set',
  '$where',
  'id',
  'service',
  'xata',
  'service.version',
  'xata.version',
  'a.b.c.d.e.f',
  '.a',
  'a.',
  'a..b',
  '*.*',
  'a->b->c',
  '->',
  '<-users.team',
  '<-',
  '\u0000',
  'a\u0000b',
  '\ud83c',
  '\udf4e\ud83c',
  'a\ud800',
  '\u{1f34e}',
  '\ufeff',
  '\u202e',
  '\u2028',
  '\uffff',
  '\u0001',
  '\r\n',
  '\r\nset-cookie: a=b',
  '\t',
  '\u007f',
  'é',
  'é'.normalize('NFD'),
  'İ',
  'ß',
  'ﷺ',
  '１２',
  'Z̸̢̛͎',
  '9999-12-31T23:59:59.999Z',
  '0000-00-00T00:00:00Z',
  '10000-01-01T00:00:00Z',
  '2026-02-30T00:00:00Z',
  '2026-01-01T24:00:00Z',
  '-infinity',
  'now',
  'epoch',
  '1970-01-01',
  '1'.repeat(40),
  'a'.repeat(255),
  'a'.repeat(256),
  'a'.repeat(2049),
  'é'.repeat(3000),
  '%'.repeat(300),
  '*a'.repeat(100),
  '(((((((((a+)+)+)+)+)+)+)+)+)+$',
]

/** Numbers as text, because most of them change when they are parsed. */
const NUMBERS = [
  '0',
  '-0',
  '0.0',
  '-0.0',
  '1',
  '-1',
  '0.1',
  '1.5',
  '1E+2',
  '1e-2',
  '1e400',
  '-1e400',
  '1e-400',
  '1e308',
  '1.7976931348623157e308',
  '5e-324',
  '3.4028236e38',
  '2147483647',
  '2147483648',
  '-2147483649',
  '4294967296',
  '9007199254740991',
  '9007199254740992',
  '9007199254740993',
  '-9007199254740993',
  '9223372036854775807',
  '9223372036854775808',
  '-9223372036854775809',
  '123456789012345678901234567890',
  `0.${'1'.repeat(400)}`,
  '9'.repeat(400),
]

const KEYS = ['__proto__', 'constructor', 'prototype', 'toString', '', '$ref', 'a.b', '\u0000', '*']

export const hostileText = (random: Random): string => random.pick(TEXTS)

/** Returns a value that is most likely not of the expected type. */
export function hostileValue(random: Random): unknown {
  return random.weighted<() => unknown>([
    [6, () => hostileText(random)],
    [4, () => new RawJson(random.pick(NUMBERS))],
    [1, () => null],
    [1, () => random.chance(0.5)],
    [1, () => []],
    [1, () => ({})],
    [1, () => [hostileText(random), null, [[]]]],
    [1, () => hostileObject(random)],
    [1, () => nested(random, 3 + random.below(60))],
    [0.2, () => nested(random, 5_000)],
    [0.2, () => Array.from({ length: 2_000 }, () => 'a')],
    [0.2, () => 'a'.repeat(100_000)],
  ])()
}

export function hostileKey(random: Random): string {
  return random.chance(0.7) ? random.pick(KEYS) : hostileText(random)
}

function hostileObject(random: Random): unknown {
  // Built from entries, because assigning `__proto__` sets the prototype.
  return Object.fromEntries([
    [hostileKey(random), hostileText(random)],
    [hostileKey(random), { polluted: true, admin: true }],
  ])
}

function nested(random: Random, depth: number): unknown {
  const isList = random.chance(0.5)
  let value: unknown = 1
  for (let level = 0; level < depth; level++) value = isList ? [value] : { a: value }
  return value
}
