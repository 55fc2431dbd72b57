import { describe, expect, it } from 'vitest'
import { requireFiniteNumbers } from './finite-numbers.js'
import { SLICE_BYTES } from './json-text.js'

function check(text: string): void {
  for (const _pause of requireFiniteNumbers(Buffer.from(text), JSON.parse(text)));
}

describe('numbers of a JSON text', () => {
  it.each([
    '1.7976931348623157e308',
    '-1.7976931348623157e+308',
    '1e-400',
    `1${'0'.repeat(308)}`,
    '{"id": "5e999", "n": 1}',
    '{"text": "n: 1e400, 2e400"}',
  ])('are accepted if a double can hold them: %s', (text) => {
    expect(() => check(text)).not.toThrow()
  })

  it.each([
    ['1e400', 'body:'],
    ['-1E+0400', 'body:'],
    ['[-1.5E+400]', 'body: field [0]:'],
    ['{"n":\n1e400}', 'body: field [n]:'],
    [`1${'0'.repeat(300)}e10`, 'body:'],
    [`0.${'1'.repeat(100)}e400`, 'body:'],
    [`1${'0'.repeat(309)}`, 'body:'],
    ['{"filter": {"n": 1e400}}', 'body: field [filter.n]:'],
    ['{"filter": {"n": {"$any": [1, 2e308]}}}', 'body: field [filter.n.$any.1]:'],
    ['{"__proto__": {"n": 1e400}}', 'body: field [__proto__.n]:'],
  ])('are refused if they are too large: %s', (text, place) => {
    expect(() => check(text)).toThrow(
      `${place} the number is beyond the range of 64-bit floating point`,
    )
  })

  it('are not looked for because of ids in hexadecimal', () => {
    const value = new Proxy(
      {},
      {
        ownKeys() {
          throw new Error('visited')
        },
      },
    )
    const look = (text: string) => {
      for (const _pause of requireFiniteNumbers(Buffer.from(text), value));
    }
    expect(() => look('{"id":"rec_3e456"}')).not.toThrow()
    expect(() => look('{"id":"3e456"}')).not.toThrow()
    expect(() => look('{"n":3e456}')).toThrow('visited')
  })

  it('are found wherever they are in a long text', () => {
    for (const before of [-4, -3, -2, -1, 0, 1]) {
      const padding = 'x'.repeat(SLICE_BYTES - '{"text":"","n":'.length + before)
      expect(() => check(`{"text":"${padding}","n":1e400}`)).toThrow('field [n]')
      const digits = `1${'0'.repeat(309)}`
      expect(() => check(`{"text":"${padding}","n":${digits}}`)).toThrow('field [n]')
    }
  })
})
