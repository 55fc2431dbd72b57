import { describe, expect, it } from 'vitest'
import { fromRecord, toArray } from './record-text.js'

describe('the text form of rows', () => {
  it.each([
    ['()', [null]],
    ['(a)', ['a']],
    ['(a,b)', ['a', 'b']],
    ['(,)', [null, null]],
    ['("")', ['']],
    ['("",,"x y")', ['', null, 'x y']],
    ['("a""b","c\\\\d",e)', ['a"b', 'c\\d', 'e']],
    ['("(1,"",2)","line\nbreak")', ['(1,",2)', 'line\nbreak']],
    ['("{a,\\\\""b}")', ['{a,\\"b}']],
  ])('reads %s', (text, fields) => {
    expect(fromRecord(text)).toEqual(fields)
  })

  it('refuses other texts', () => {
    expect(() => fromRecord('(a"b)')).toThrow('text form')
  })
})

describe('the text form of arrays', () => {
  it('quotes elements', () => {
    expect(toArray(['a', null, '', 'NULL', '{"b\\c"}'])).toBe(
      '{"a",NULL,"","NULL","{\\"b\\\\c\\"}"}',
    )
  })
})
