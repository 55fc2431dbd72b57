import { expect, it } from 'vitest'
import { lineOf } from './export-lines.js'

it('writes lines of NDJSON that an import stores as they were', () => {
  const columns = [
    { name: 'id', type: 'string' },
    { name: 'label', type: 'string' },
    { name: 'doc', type: 'json' },
  ] as const
  const lines = [
    { id: 'a', doc: '12' },
    { id: 'b', label: '', doc: null },
    { id: 'c', label: 'x', doc: { a: 1 } },
  ].map((row) => JSON.parse(lineOf(row as never, columns, 'ndjson')))
  expect(lines).toEqual([
    // A column that is left out would get its default.
    { id: 'a', label: null, doc: '"12"' },
    { id: 'b', label: '', doc: 'null' },
    { id: 'c', label: 'x', doc: { a: 1 } },
  ])
})
