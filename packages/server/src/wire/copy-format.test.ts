import { describe, expect, it } from 'vitest'
import { type CopyFormat, CopyReader, type CopyRow, formatRow } from './copy-format.js'

const TEXT: CopyFormat = {
  isCsv: false,
  delimiter: '\t',
  nullText: '\\N',
  hasHeader: false,
  matchesHeader: false,
  quote: '"',
  escaping: '"',
  force: { quote: [], null: [], notNull: [] },
}
const CSV: CopyFormat = { ...TEXT, isCsv: true, delimiter: ',', nullText: '' }

/** Reads a text that arrives in parts of a size. */
function read(text: string, format: CopyFormat, size = text.length): CopyRow[] {
  const reader = new CopyReader(format, { columns: ['a', 'b'], lengthMax: 1000 })
  const rows: CopyRow[] = []
  for (let at = 0; at < text.length; at += size)
    rows.push(...reader.push(text.slice(at, at + size)))
  return [...rows, ...reader.end()]
}

const ROWS: readonly CopyRow[] = [
  ['a', 'b'],
  [null, ''],
  ['\\N', '\\.'],
  ['tab\there', 'line\nend\r\nand "quotes" and, commas'],
  ['back\\slash', 'ünï🎉'],
  ['"', '\b\f\v'],
]

describe.each([
  ['text', TEXT],
  ['csv', CSV],
  [
    'csv with other characters',
    { ...CSV, delimiter: ';', quote: "'", escaping: '\\', nullText: 'NULL' },
  ],
] as const)('COPY as %s', (_name, format) => {
  it.each([1, 2, 7, 1000])('reads what it writes, in parts of %i', (size) => {
    const text = ROWS.map((row) => formatRow(row, format)).join('')
    expect(read(text, format, size)).toEqual(ROWS)
  })
})

describe('COPY', () => {
  it('reads what other programs write', () => {
    expect(read('a,"b ""c"""\r\n,""\n', CSV)).toEqual([
      ['a', 'b "c"'],
      [null, ''],
    ])
    expect(read('h1,h2\n1,2', { ...CSV, hasHeader: true })).toEqual([['1', '2']])
    expect(read('a\\tb\\x41\\101\t\\N\n\\.\nignored\n', TEXT)).toEqual([['a\tbAA', null]])
    expect(read('a\tb\\', TEXT)).toEqual([['a', 'b']])
    expect(read('a|b\\|c\n', { ...TEXT, delimiter: '|' })).toEqual([['a', 'b|c']])
    const marked = { ...CSV, delimiter: '^', quote: ']', escaping: ']' }
    expect(read('a^]b]]\n^c]\n', marked)).toEqual([['a', 'b]\n^c']])
  })

  it('refuses a value without an end, and a line that is too long', () => {
    expect(() => read('a,"b\n', CSV)).toThrow('unterminated')
    expect(() => read('x'.repeat(1001), TEXT)).toThrow('at most 1000')
    expect(read('x'.repeat(1000), TEXT)).toHaveLength(1)
  })
})

describe('CSV with forced columns', () => {
  const NULLS: CopyFormat = { ...CSV, nullText: 'N' }

  it('has quotes around all values of some but null', () => {
    expect(formatRow(['1', 'x', null], CSV, [true, false, true])).toBe('"1",x,\n')
  })

  it('reads a text for null in quotes as null, or without as a text', () => {
    const text = 'N,N\n"N","N"\n'
    const forced = (force: Partial<CopyFormat['force']>) =>
      read(text, { ...NULLS, force: { ...NULLS.force, ...force } })
    expect(forced({})).toEqual([
      [null, null],
      ['N', 'N'],
    ])
    expect(forced({ null: ['b'] })).toEqual([
      [null, null],
      ['N', null],
    ])
    expect(forced({ notNull: 'all' })).toEqual([
      ['N', 'N'],
      ['N', 'N'],
    ])
    expect(() => forced({ null: ['c'] })).toThrow('column "c" is not one')
  })
})
