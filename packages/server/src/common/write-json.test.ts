import fc from 'fast-check'
import { expect, test } from 'vitest'
import { writeJson } from './write-json.js'

function write(value: unknown): { text: string; steps: number } {
  const writing = writeJson(value)
  for (let steps = 1; ; steps++) {
    const step = writing.next()
    if (step.done) return { text: step.value, steps }
  }
}

test('JSON that is written in steps is the same as JSON that is written at once', () => {
  const values = fc.oneof(fc.jsonValue(), fc.object({ maxDepth: 6, withNullPrototype: false }))
  fc.assert(
    fc.property(values, (value) => {
      expect(write(value).text).toBe(JSON.stringify(value))
    }),
  )
})

test('long lists and objects take many steps, wherever they are', () => {
  const list = Array.from({ length: 10_000 }, (_, index) => index)
  const object = Object.fromEntries(list.map((index) => [`name${index}`, index]))
  for (const long of [list, object, list.map((index) => ({ index }))]) {
    for (const value of [
      long,
      { long },
      [[[[[[long]]]]]],
      { a: [{ b: { c: { d: { long } } } }] },
    ]) {
      expect(write(value).steps).toBeGreaterThan(50)
    }
  }
})
