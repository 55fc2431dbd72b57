import { describe, expect, it } from 'vitest'
import { likePattern } from './filter-sql.js'

describe('likePattern', () => {
  it.each([
    ['', ''],
    ['plain', 'plain'],
    ['*', '%'],
    ['a?c*', 'a_c%'],
    ['100%', '100\\%'],
    ['a_b', 'a\\_b'],
    ['\\*', '*'],
    ['\\?\\*', '?*'],
    ['\\\\', '\\\\'],
    ['\\%', '\\%'],
    ['\\a', 'a'],
    // A trailing backslash matches itself.
    ['end\\', 'end\\\\'],
  ])('turns %j into %j', (pattern, like) => {
    expect(likePattern(pattern)).toBe(like)
  })
})
