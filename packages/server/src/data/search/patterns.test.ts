import { describe, expect, it } from 'vitest'
import { makePatterns } from './patterns.js'
import { readTerms } from './terms.js'

function patternsOf(
  query: string,
  options: { fuzziness?: number; stems?: Record<string, string>; isPrefix?: boolean } = {},
) {
  const { fuzziness = 0, stems = {}, isPrefix = false } = options
  return makePatterns(readTerms(query, fuzziness).terms, {
    stems: new Map(Object.entries(stems)),
    isPrefix,
  })
}

/** Matches the patterns with JavaScript, which interprets them as PostgreSQL does. */
function find(text: string, ...query: Parameters<typeof patternsOf>) {
  const { words, matches } = patternsOf(...query)
  return [...text.matchAll(new RegExp(words, 'gu'))].map(([, ...groups]) => {
    const group = groups.findIndex((word) => word !== undefined)
    const { term, kind, edits } = matches[group] ?? {}
    return [groups[group], term, edits ? `${kind} ${edits}` : kind]
  })
}

describe('the pattern of words', () => {
  it('finds each word in the group that fits best', () => {
    const text = 'Hope, hopes hoping; hops hopeful HOPE'
    expect(find(text, 'hope', { fuzziness: 1, stems: { hope: 'hope' } })).toEqual([
      ['Hope', 0, 'exact'],
      ['hopes', 0, 'edits 1'],
      ['hoping', 0, 'stem'],
      ['hops', 0, 'edits 1'],
      ['hopeful', 0, 'stem'],
      ['HOPE', 0, 'exact'],
    ])
  })

  it('finds words side by side, and none inside of others', () => {
    expect(find('a a aa a', 'a')).toEqual([
      ['a', 0, 'exact'],
      ['a', 0, 'exact'],
      ['a', 0, 'exact'],
    ])
  })

  it('gives a word to the term that it is, before those that it is like', () => {
    expect(find('bat cat', 'cat bat', { fuzziness: 1 })).toEqual([
      ['bat', 1, 'exact'],
      ['cat', 0, 'exact'],
    ])
  })

  it('takes the last term for a beginning when told so', () => {
    expect(find('news yorkshire york', 'new york', { isPrefix: true })).toEqual([
      ['yorkshire', 1, 'prefix'],
      ['york', 1, 'exact'],
    ])
  })

  it('finds what is joined by another sign', () => {
    expect(find('Carrie.Anne carrie anne carrieanne', 'carrie-anne')).toEqual([
      ['Carrie.Anne', 0, 'exact'],
      ['carrie anne', 0, 'exact'],
    ])
  })

  it('finds scripts without spaces anywhere, beside others', () => {
    expect(find('in 東京物語', '東京 in')).toEqual([
      ['in', 1, 'exact'],
      ['東京', 0, 'exact'],
    ])
  })
})

describe('the patterns of a first look', () => {
  it('are one where there is nothing to be mistaken about', () => {
    expect(patternsOf('new york').fine).toBeUndefined()
    expect(patternsOf('new york', { fuzziness: 1 }).fine).toBeDefined()
  })

  it.each([
    ['keanu', 'KEANU!'],
    ['keanu', '(kanu)'],
    ['hope', 'hoping'],
    ['new yo', 'york'],
    ['東京', '東京物語'],
  ])('for %s are found in %s', (query, text) => {
    const { rough, fine } = patternsOf(query, {
      fuzziness: 1,
      isPrefix: true,
      stems: { hope: 'hope' },
    })
    expect(new RegExp(rough, 'u').test(text)).toBe(true)
    expect(new RegExp(fine ?? '', 'u').test(text)).toBe(true)
  })
})

it('the phrase is the query as it is written, with an open end', () => {
  const { phrase } = patternsOf('new yo', { isPrefix: true })
  expect(new RegExp(phrase ?? '', 'u').test('in New, York')).toBe(true)
  expect(new RegExp(phrase ?? '', 'u').test('york new')).toBe(false)
  expect(new RegExp(phrase ?? '', 'u').test('renew york')).toBe(false)
  expect(patternsOf('new', { isPrefix: true }).phrase).toBeUndefined()
  expect(patternsOf('new yo').phrase).toBeUndefined()
})
