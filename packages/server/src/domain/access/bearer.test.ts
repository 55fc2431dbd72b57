import { describe, expect, it } from 'vitest'
import { readBearer } from './bearer.js'

describe('an Authorization header', () => {
  it.each(['Bearer off_key', 'bearer off_key', 'BEARER off_key'])('has a key: %s', (header) => {
    expect(readBearer(header)).toEqual({ key: 'off_key', fault: undefined })
  })

  it('has a key of up to 255 characters', () => {
    expect(readBearer(`Bearer ${'x'.repeat(255)}`).key).toBe('x'.repeat(255))
    expect(readBearer(`Bearer ${'x'.repeat(256)}`).fault).toContain('1 to 255 letters')
  })

  it.each([
    [undefined, 'is missing'],
    ['', 'is missing'],
    ['off_key', 'must be the word Bearer'],
    ['Xxxxxx off_key', 'must be the word Bearer'],
    ['Bearers off_key', 'must be the word Bearer'],
    ['Bearer', 'an API key must follow'],
    ['Bearer ', 'an API key must follow'],
    ['Bearer  off_key', 'an API key must follow'],
    ['Bearer off_key\n', 'an API key must follow'],
    ['Bearer off-key', 'an API key must follow'],
  ])('is refused with what is wrong, and no key: %s', (header, fault) => {
    expect(readBearer(header)).toEqual({ key: '', fault: expect.stringContaining(fault) })
  })
})
