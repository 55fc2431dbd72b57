import { AppError } from '@offshoot/contract/errors'
import { LIMITS } from '@offshoot/contract/limits'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { sliceRecords } from './record-slices.js'

const SLICE_BYTES = 64 * 1024

type Outcome = { readonly records: unknown[] } | { readonly code: string }

function outcomeOf(body: Buffer): Outcome {
  try {
    return { records: [...sliceRecords(body, LIMITS)].flat() }
  } catch (error) {
    if (error instanceof AppError) return { code: error.code }
    throw error
  }
}

/** The expected outcome: that of parsing the body as a whole. */
function expectedOf(text: string): Outcome {
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch {
    return { code: 'invalid_json' }
  }
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    return { code: 'invalid_request' }
  }
  const { records, ...others } = body as { records?: unknown }
  if (!Array.isArray(records) || Object.keys(others).length > 0) return { code: 'invalid_request' }
  return { records }
}

/** Strings with quotes, backslashes, brackets, and multi-byte characters. */
const text = fc.oneof(
  fc.string(),
  fc.string({ unit: fc.constantFrom('"', '\\', '{', '}', '[', ']', ',', ':', 'é', '𝔘', '\n') }),
)
const value = fc.jsonValue({ depthSize: 'small', stringUnit: 'grapheme' })
const record = fc.dictionary(text, fc.oneof(text, value), { maxKeys: 5 })
const space = fc.string({ unit: fc.constantFrom(' ', '\n', '\r', '\t'), maxLength: 3 })

/** Filler of about the size of a slice, so that bodies are cut, or of nearly no size. */
const filler = fc
  .constantFrom(0, 1, SLICE_BYTES / 2, SLICE_BYTES, SLICE_BYTES + 1)
  .map((length) => ({ filler: '"\\'.repeat(length / 2) }))

const records = fc
  .tuple(fc.array(fc.oneof(record, filler, value), { maxLength: 12 }), filler)
  .map(([list, last]) => [...list, last])

/** The body with white space between all of its tokens. */
function write(list: readonly unknown[], gaps: readonly string[]): string {
  let next = 0
  const gap = () => gaps[next++ % gaps.length] ?? ''
  const items = list.map((item) => `${gap()}${JSON.stringify(item)}${gap()}`)
  return `${gap()}{${gap()}"records"${gap()}:${gap()}[${items.join(',')}]${gap()}}${gap()}`
}

describe('sliceRecords', () => {
  it('gives the records that parsing the whole body gives', () => {
    fc.assert(
      fc.property(records, fc.array(space, { minLength: 1, maxLength: 5 }), (list, gaps) => {
        const body = write(list, gaps)
        expect(outcomeOf(Buffer.from(body))).toEqual({ records: JSON.parse(body).records })
      }),
      { numRuns: 80 },
    )
  })

  it('refuses a damaged body exactly when parsing the whole of it does', () => {
    const damage = fc.record({
      at: fc.double({ min: 0, max: 1, noNaN: true }),
      removed: fc.nat({ max: 3 }),
      inserted: fc.string({
        unit: fc.constantFrom('"', '\\', '{', '}', '[', ']', ',', ':', ' ', '1', 'e'),
        maxLength: 3,
      }),
    })
    fc.assert(
      fc.property(
        records,
        fc.array(space, { minLength: 1, maxLength: 3 }),
        damage,
        (list, gaps, cut) => {
          const whole = write(list, gaps)
          const at = Math.floor(cut.at * whole.length)
          const body = `${whole.slice(0, at)}${cut.inserted}${whole.slice(at + cut.removed)}`
          // Skip bodies that are not well-formed: a cut may have split a surrogate pair.
          fc.pre(Buffer.from(body).toString() === body)
          expect(outcomeOf(Buffer.from(body))).toEqual(expectedOf(body))
        },
      ),
      { numRuns: 150 },
    )
  })

  it('cuts a large body into slices of about the same size', () => {
    const list = Array.from({ length: 5000 }, (_, number) => ({ number, text: 'x'.repeat(100) }))
    const sizes = [...sliceRecords(Buffer.from(JSON.stringify({ records: list })), LIMITS)].map(
      (slice) => JSON.stringify(slice).length,
    )
    expect(sizes.length).toBeGreaterThan(5)
    for (const size of sizes) expect(size).toBeLessThan(SLICE_BYTES + 200)
  })

  const big = JSON.stringify({ a: 'x'.repeat(SLICE_BYTES) })
  const list = `[${big},${big},{"last":1}]`

  it.each<[string, string]>([
    ['nothing', ''],
    ['no object', '[]'],
    ['null', 'null'],
    ['no list', '{}'],
    ['an object for the list', '{"records":{}}'],
    ['no list and much else', `{"other":${list}}`],
    ['an object for the list, large', `{"records":{"a":${list}}}`],
    ['a text in front', `x{"records":${list}}`],
    ['a byte order mark in front', `\ufeff{"records":${list}}`],
    ['a text behind', `{"records":${list}} x`],
    ['a second body behind', `{"records":${list}}{"records":[]}`],
    ['a field in front', `{"a":1,"records":${list}}`],
    ['a field behind', `{"records":${list},"a":1}`],
    ['a comma behind the list', `{"records":${list},}`],
    ['a comma behind the last record', `{"records":[${big},${big},]}`],
    ['a comma in front of the first record', `{"records":[,${big},${big}]}`],
    ['two commas', `{"records":[${big},,${big}]}`],
    ['a record that is not closed', `{"records":[${big},{"a":1,${big}]}`],
    ['a list that is not closed', `{"records":[${big},${big}`],
    ['a list that a brace closes', `{"records":[${big},${big}}}`],
    ['a string that is not closed', `{"records":[${big},{"a":"b}]}`],
    ['a raw line break in a string', `{"records":[${big},{"a":"\n"}]}`],
    ['a bad escape', `{"records":[${big},{"a":"\\x"}]}`],
    ['a number that is none', `{"records":[${big},{"a":01}]}`],
    ['brackets that do not match', `{"records":[${big},{"a":[1}]}]}`],
    ['two records without a comma', `{"records":[${big} ${big}]}`],
  ])('refuses %s', (_name, body) => {
    const outcome = outcomeOf(Buffer.from(body))
    expect(outcome).toEqual(expectedOf(body))
    expect(outcome).toHaveProperty('code')
  })

  it.each<[string, string]>([
    ['an empty list', '{"records":[]}'],
    ['an empty list in much space', `{"records":[${' '.repeat(SLICE_BYTES)}]}`],
    [
      'one record in much space',
      `{"records":[${' '.repeat(SLICE_BYTES)}{}${'\n'.repeat(SLICE_BYTES)}]}`,
    ],
    ['the key with an escape', `{"\\u0072ecords":${list}}`],
    ['brackets and quotes inside strings', `{"records":[${big},{"a":"]}\\\\\\"],{"},${big}]}`],
    ['a string that ends in backslashes', `{"records":[${big},{"a":"\\\\\\\\"},${big}]}`],
    ['records that are no objects', `{"records":[${big},1,"a",null,[${big}],${big}]}`],
  ])('takes %s as it is', (_name, body) => {
    expect(outcomeOf(Buffer.from(body))).toEqual({ records: JSON.parse(body).records })
  })

  it('refuses a large body that gives the list twice: the first may have been stored', () => {
    for (const second of ['[]', '[{"b":1}]', list]) {
      const body = Buffer.from(`{"records":${list},"records":${second}}`)
      expect(outcomeOf(body)).toEqual({ code: 'invalid_request' })
    }
  })

  it('gives the first slice out without looking at the rest', () => {
    const slices = sliceRecords(Buffer.from(`{"records":[${big},${big},broken`), LIMITS)
    let first = slices.next().value
    // An empty slice is a pause.
    while (first.length === 0) first = slices.next().value
    expect(first).toHaveLength(1)
    expect(() => [...slices]).toThrow(AppError)
  })

  it('refuses bytes that are no UTF-8, wherever they stand', () => {
    for (const size of [10, SLICE_BYTES + 10]) {
      const body = Buffer.from(`{"records":[{"a":"${'x'.repeat(size)}"}]}`)
      body[20] = 0xff
      expect(outcomeOf(body)).toEqual({ code: 'invalid_json' })
    }
  })

  it('are bounded in depth at its edge, in short and in long bodies', () => {
    const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`
    const inner = LIMITS.jsonDepthMax - 2
    for (const fill of ['', `"${'x'.repeat(2 * SLICE_BYTES)}",`]) {
      const body = (depth: number) => Buffer.from(`{"records":[${fill}${nested(depth)}]}`)
      expect(outcomeOf(body(inner))).toHaveProperty('records')
      expect(outcomeOf(body(inner + 1))).toEqual({ code: 'invalid_request' })
    }
  })

  it('pauses while it looks through one that is long', () => {
    const record = { list: Array.from({ length: 400_000 }, (_, number) => number) }
    const body = Buffer.from(JSON.stringify({ records: [{ a: 1 }, record, { b: 2 }] }))
    const slices = [...sliceRecords(body, LIMITS)]
    expect(slices.flat()).toEqual([{ a: 1 }, record, { b: 2 }])
    expect(slices.filter((slice) => slice.length === 0).length).toBeGreaterThan(3)
  })
})
