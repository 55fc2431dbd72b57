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

it.each(['csv', 'ndjson'] as const)(
  'finds no values for names of %s that objects inherit',
  (format) => {
    const columns = [
      { name: 'n', type: 'int' },
      { name: 'constructor', type: 'text' },
      { name: '__proto__', type: 'json' },
      { name: 'toString', type: 'string' },
    ] as const
    const line = lineOf({ n: 1 } as never, columns, format)
    expect(line).toBe(
      {
        csv: '1,,,\r\n',
        ndjson: '{"n":1,"constructor":null,"__proto__":null,"toString":null}\n',
      }[format],
    )
  },
)
