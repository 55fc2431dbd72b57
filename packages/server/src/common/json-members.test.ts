import { expect, test } from 'vitest'
import { membersOf } from './json-members.js'

test.each([
  {},
  { a: 1 },
  { a: 'x', b: null, c: true },
  { 'a"b': 'c"d,e', 'back\\slash': '\\', 'comma,': '{' },
  { list: [1, [2, { x: '}' }]], object: { inner: { deep: ']' } }, last: 0 },
])('the members of %j keep their texts', (object) => {
  const members = membersOf(JSON.stringify(object))
  expect(Object.fromEntries([...members].map(([name, text]) => [name, JSON.parse(text)]))).toEqual(
    object,
  )
})

test('a number keeps all its digits', () => {
  expect(membersOf('{"n":12345678901234567890.10}').get('n')).toBe('12345678901234567890.10')
})
