import { expect, it } from 'vitest'
import { isBoundedPath } from './json-path.js'

it.each([
  '$',
  ' strict $.a[*].b ',
  'lax $."a b"[0, 2 to last - 1].*.size()',
  '$.a[*] ? (@.x > 2).y',
  '$.a[*] ? (@.x == 1 && (@.y == "q\\"" || !(@.z <> null)))',
  '$[*] ? (exists(@.a[*].b))',
  '$.** ? (@ == 1)'.replace('**', '*'),
  '$[*] ? (@.name like_regex "^a" flag "i").id',
  '$[*] ? (@.name starts with "a")',
  '$[*] ? ((@.x > -1.5e3) is unknown)',
  '$.b == 2',
  'exists($.a) || !($.b > 1)',
  '$[*].datetime("YYYY") ? (@ < "2027-01-01".datetime())',
  '$.keyvalue()',
])('a path has a bound: %s', (path) => {
  expect(isBoundedPath(path)).toBe(true)
})

it.each([
  '',
  'a',
  '$.**',
  '$ $',
  `$${'[0,0,0,0,0,0,0,0,0,0]'.repeat(2)}`,
  `$${'.keyvalue()'.repeat(2)}`,
  '$.a[*] ? (@.x == @.y)',
  '$.a[*] ? (@.x == $.y)',
  '$.a[*] ? (@.x > $min)',
  '$.a[*] ? (@.b[*] ? (@ == 1) == 1)',
  '$.a + $.b',
  '-$.a',
  '$.a * 2 > 3',
  '$[$.a]',
  '$[*] ? (@.a)',
  '$[*] ? (@.a like_regex @.b)',
  `$[*] ? (${new Array(6).fill('@ == 1').join(' || ')})`,
  `$[*] ? ${'('.repeat(30)}@ == 1${')'.repeat(30)}`,
  '$.a /* comment */',
])('a path has no known bound: %s', (path) => {
  expect(isBoundedPath(path)).toBe(false)
})
