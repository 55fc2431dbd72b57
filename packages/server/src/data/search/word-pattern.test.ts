import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { BREAK, editPattern, letterPattern, piecesPattern, WORD } from './word-pattern.js'

const SEED = Number(process.env.OFFSHOOT_TEST_SEED ?? Date.now() % 2 ** 31)

/** The edit distance by its definition. */
function distance(one: readonly string[], other: readonly string[]): number {
  if (one.length === 0) return other.length
  if (other.length === 0) return one.length
  const [first, ...rest] = one
  const [otherFirst, ...otherRest] = other
  if (first === otherFirst) return distance(rest, otherRest)
  return 1 + Math.min(distance(rest, other), distance(one, otherRest), distance(rest, otherRest))
}

const word = (maxLength: number) =>
  fc.array(fc.constantFrom('a', 'b', 'ä', '1', '語'), { minLength: 1, maxLength })
const patterns = (letters: readonly string[]) => letters.map(letterPattern)

describe('editPattern', () => {
  it('matches exactly what is so many edits away', () => {
    fc.assert(
      fc.property(word(5), word(6), fc.constantFrom(0, 1, 2), (letters, other, edits) => {
        const pattern = new RegExp(`^${editPattern(patterns(letters), edits)}$`, 'u')
        return pattern.test(other.join('')) === distance(letters, other) <= edits
      }),
      { seed: SEED, numRuns: 1000 },
    )
  })

  it('matches nothing but characters of words', () => {
    const pattern = new RegExp(`^${editPattern(patterns(['a', 'b']), 1)}$`, 'u')
    expect(
      ['ab', 'AB', 'xab', 'axb', 'abx', 'xb', 'ax', 'b', 'a'].every((text) => pattern.test(text)),
    ).toBe(true)
    expect([' ab', 'a b', 'a-b', 'ab.', '', 'xx', 'axxb'].some((text) => pattern.test(text))).toBe(
      false,
    )
  })

  it('grows little faster than the word', () => {
    const size = (length: number) =>
      editPattern(new Array(length).fill('x'), 2).replaceAll(WORD, '.').length
    expect(size(40)).toBeLessThan(size(10) * 8)
  })
})

describe('piecesPattern', () => {
  it('is found wherever the exact pattern is', () => {
    fc.assert(
      fc.property(
        word(5).filter(({ length }) => length > 2),
        fc.array(word(6), { minLength: 1, maxLength: 3 }),
        fc.constantFrom(0, 1, 2),
        (letters, words, edits) => {
          const isNear = words.some((other) => distance(letters, other) <= edits)
          const text = words.map((other) => other.join('')).join(' ')
          return !isNear || new RegExp(piecesPattern(patterns(letters), edits), 'u').test(text)
        },
      ),
      { seed: SEED, numRuns: 1000 },
    )
  })

  it('is not found in what shares nothing with the word', () => {
    const pattern = new RegExp(piecesPattern(patterns([...'keanu']), 1), 'u')
    expect(pattern.test('it is kept by manual work')).toBe(true)
    expect(pattern.test('it is taken by hand')).toBe(false)
  })
})

it.each([
  ['letters', 'aZß9éЖ語あ한กß', true],
  ['marks that belong to letters', 'e\u0301', true],
  ['spaces and signs', ' \t\n.,;:!?()[]{}<>/\\|"\'`~@#$%^&*-_=+', false],
  ['signs of other scripts', '«»„“”‘’…—¿¡،؟।。、！？', false],
  ['pictures', '🎉→✓€', false],
])('words are made of %s: %s', (_what, characters, expected) => {
  for (const character of characters) {
    expect(new RegExp(`^${WORD}$`, 'u').test(character), character).toBe(expected)
    expect(new RegExp(`^${BREAK}$`, 'u').test(character), character).toBe(!expected)
  }
})

it.each([
  ['a', '[aA]'],
  ['Ä', '[Ää]'],
  ['1', '1'],
  ['ß', 'ß'],
  ['語', '語'],
])('the letter %s is found as %s', (letter, pattern) => {
  expect(letterPattern(letter)).toBe(pattern)
})
