import { describe, expect, it } from 'vitest'
import { hasStem, readTerms, stemStart, TERMS_MAX } from './terms.js'

const texts = (query: string) => readTerms(query, 1).terms.map(({ text }) => text)

describe('readTerms', () => {
  it.each([
    ['New York', ['new', 'york']],
    ['  new\n\tyork  ', ['new', 'york']],
    ['"new", (york)!', ['new', 'york']],
    ['new NEW New', ['new']],
    ['ada@example.com', ['ada@example.com']],
    ['Carrie-Anne', ['carrie-anne']],
    ['8.7', ['8.7']],
    ['!? - ', []],
    ['ÄRGER', ['ärger']],
  ])('splits %j', (query, expected) => {
    expect(texts(query)).toEqual(expected)
  })

  it('takes what joins two words for one character', () => {
    const [term] = readTerms('a--b', 1).terms
    expect(term?.letters).toHaveLength(3)
    expect(term?.letters[1]).toMatch(/^\[\^.*\]\+$/u)
  })

  it.each([
    ['a', 2, 0],
    ['ab', 2, 0],
    ['abc', 2, 1],
    ['abcd', 2, 1],
    ['abcde', 2, 2],
    ['abcde', 1, 1],
    ['abcde', 0, 0],
    ['東京物語の', 2, 0],
  ])('overlooks errors in %s, asked for %i, as many as %i', (query, fuzziness, edits) => {
    expect(readTerms(query, fuzziness).terms[0]?.edits).toBe(edits)
  })

  it('takes no more words than it can', () => {
    const words = (count: number) => Array.from({ length: count }, (_, at) => `w${at}`).join(' ')
    expect(readTerms(words(TERMS_MAX), 0)).toMatchObject({ warnings: [] })
    const { terms, warnings } = readTerms(words(TERMS_MAX + 1), 0)
    expect(terms).toHaveLength(TERMS_MAX)
    expect(warnings).toEqual(['query: only the first 32 words are searched for'])
  })

  it('overlooks fewer errors where there are many letters', () => {
    const edits = (query: string) => readTerms(query, 2).terms.map(({ edits: count }) => count)
    expect(edits('a234567890')).toEqual([2])
    expect(edits('a234567890 b234567890 c234567890 d234567890')).toEqual([2, 2, 2, 2])
    expect(edits('a234567890 b234567890 c234567890 d234567890 e')).toEqual([2, 2, 2, 2, 0])
    expect(edits(`${'x'.repeat(30)} ${'y'.repeat(30)} ${'z'.repeat(30)}`)).toEqual([2, 1, 0])
    expect(readTerms('x'.repeat(200), 1).warnings).toHaveLength(1)
  })
})

it.each([
  ['running', true],
  ['at', false],
  ['ärger', false],
  ['a-b-c', false],
  ['abc1', false],
])('%s has a stem: %s', (query, expected) => {
  const [term] = readTerms(query, 1).terms
  expect(term && hasStem(term)).toBe(expected)
})

it.each([
  ['run', 'run'],
  ['happi', 'happ'],
  ['hope', 'hop'],
  ['sky', undefined],
  ['', undefined],
])('words of the stem %s start with %s', (stem, start) => {
  expect(stemStart(stem)).toBe(start)
})
