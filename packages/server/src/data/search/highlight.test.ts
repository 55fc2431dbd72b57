import { describe, expect, it } from 'vitest'
import { SearchedText } from '../../rows/reading/searched-text.js'
import { MARK_END, MARK_START, type Part, writeFragment, writeHighlight } from './highlight.js'

/** `{` and `}` stand for the marks. */
const marked = (text: string) => text.replaceAll('{', MARK_START).replaceAll('}', MARK_END)
const part = (text: string, isCutBefore = false, isCutAfter = false): Part => [
  marked(text),
  isCutBefore,
  isCutAfter,
]

describe('writeFragment', () => {
  it.each<[string, Part, string | undefined]>([
    ['a whole text', part('one {two} three'), 'one <em>two</em> three'],
    [
      'signs of HTML',
      part('a<b {&} "c" \'d\''),
      'a&lt;b <em>&amp;</em> &quot;c&quot; &#x27;d&#x27;',
    ],
    ['a start in the midst of a word', part('ord one {two}', true), 'one <em>two</em>'],
    ['a start without a space', part('wo{rd}', true), 'wo<em>rd</em>'],
    ['a start in the midst of what was found', part('o} and {two}', true), 'and <em>two</em>'],
    ['an end in the midst of a word', part('{one} two thr', false, true), '<em>one</em> two'],
    ['an end right after the word', part('{one} tw', false, true), '<em>one</em>'],
    [
      'an end in the midst of what was found',
      part('{one} and {tw', false, true),
      '<em>one</em> and',
    ],
    ['an end in the midst of all there is', part('{on', false, true), '<em>on</em>'],
    ['nothing that was found', part('o} rest', true), undefined],
  ])('writes %s', (_what, given, expected) => {
    expect(writeFragment(given, { encodeHTML: true })).toBe(expected)
  })

  it('leaves signs of HTML as they are when told so', () => {
    expect(writeFragment(part('<b>{x}</b>'), { encodeHTML: false })).toBe('<b><em>x</em></b>')
  })
})

it('columns of objects are inside of these, and those without a word are left out', () => {
  const column = (path: string) => ({
    path: path.split('.'),
    index: 0,
    objects: [],
    text: new SearchedText('text'),
    weight: 1,
  })
  const columns = ['a', 'b.c', 'b.d.e', 'f'].map(column)
  const parts = [[part('{x}')], [part('{y}'), part('{z}')], [part('{"}')], null]
  expect(JSON.parse(writeHighlight(columns, parts, { encodeHTML: false }))).toEqual({
    a: ['<em>x</em>'],
    b: { c: ['<em>y</em>', '<em>z</em>'], d: { e: ['<em>"</em>'] } },
  })
})
