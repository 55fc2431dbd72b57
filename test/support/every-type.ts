import type { Column } from '@offshoot/contract/schema'

/** One column of every type except files, for a table `types`. */
export const TYPE_COLUMNS: readonly Column[] = [
  { name: 'bool', type: 'bool' },
  { name: 'int', type: 'int' },
  { name: 'small', type: 'int', bits: 16 },
  { name: 'float', type: 'float' },
  { name: 'string', type: 'string', unique: true },
  { name: 'text', type: 'text' },
  { name: 'short', type: 'text', maxLength: 3 },
  { name: 'email', type: 'email' },
  { name: 'multiple', type: 'multiple' },
  { name: 'link', type: 'link', link: { table: 'types' } },
  { name: 'datetime', type: 'datetime' },
  { name: 'decimal', type: 'decimal', decimal: { precision: 30, scale: 10 } },
  { name: 'date', type: 'date' },
  { name: 'time', type: 'time' },
  { name: 'uuid', type: 'uuid' },
  { name: 'enum', type: 'enum', enum: { values: ['new', 'a,"\\b'] } },
  { name: 'vector', type: 'vector', vector: { dimension: 2 } },
  { name: 'json', type: 'json' },
  {
    name: 'object',
    type: 'object',
    columns: [
      { name: 'leaf', type: 'string' },
      { name: 'tags', type: 'multiple' },
      { name: 'inner', type: 'object', columns: [{ name: 'deep', type: 'json' }] },
    ],
  },
]

/** A value of each type that is easily damaged in transport. */
export const TYPE_VALUES = {
  bool: false,
  int: -9_007_199_254_740_991,
  small: -32_768,
  float: 1.7976931348623157e308,
  string: 'a"\\\n\tü😀{},NULL',
  text: '',
  short: '😀"\n',
  email: 'a@example.com',
  multiple: ['', 'y,"z\\', 'NULL'],
  link: 'other',
  datetime: '2026-01-31T09:30:00.123456Z',
  decimal: '-12345678901234567890.0123456789',
  date: '0001-01-01',
  time: '23:59:59.999999',
  uuid: '0190a5c1-7d3e-7cc2-9f0b-2a6f1c3d4e5f',
  enum: 'a,"\\b',
  vector: [0.1, -3.4e38],
  json: { a: [1, null, { b: 'c\\"' }], n: 12.5 },
  object: { leaf: 'x', tags: ['t'], inner: { deep: { k: [] } } },
}
