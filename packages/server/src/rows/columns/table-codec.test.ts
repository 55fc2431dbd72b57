import { LIMITS, type Limits } from '@offshoot/contract/limits'
import { describe, expect, expectTypeOf, test } from 'vitest'
import { Fault } from './fault.js'
import type { EncodedUpdate } from './record-encoder.js'
import type { StoredColumn } from './stored-schema.js'
import { compileTable, isFaults, type TableCodecOptions } from './table-codec.js'

const now = '2026-01-31T09:30:00.000Z'
const origin = { now, userId: 'usr_test' }

function compile(columns: Omit<StoredColumn, 'id'>[], options: Partial<TableCodecOptions> = {}) {
  let id = 10
  const number = (column: Omit<StoredColumn, 'id'>): StoredColumn => ({
    ...column,
    id: id++,
    ...(column.columns && { columns: column.columns.map(number) }),
  })
  const table = { id: 1, name: 'users', columns: columns.map(number) }
  return compileTable(table, { limits: LIMITS, jsonAsText: false, ...options })
}

const withLimits = (limits: Partial<Limits>) => ({ limits: { ...LIMITS, ...limits } })
const faults = (...messages: string[]) =>
  messages.map((message) => {
    const missing = /^column \[(.*)\]: (?:cannot be null|a value is required)$/.exec(message)?.[1]
    return new Fault(message, missing, columnIn(message))
  })
const columnIn = (message: string) => /^column \[(.*?)\]: /.exec(message)?.[1]

const zip = { id: 0, name: 'zip', type: 'string' } as const
const lat = { id: 0, name: 'lat', type: 'float' } as const
const tags = { id: 0, name: 'tags', type: 'multiple' } as const
const geo = { id: 0, name: 'geo', type: 'object', columns: [lat] } as const
const people = compile([
  { name: 'name', type: 'string', notNull: true },
  { name: 'age', type: 'int' },
  { name: 'address', type: 'object', columns: [zip, geo, tags] },
  { name: 'score', type: 'float', defaultValue: '1.5' },
  { name: 'since', type: 'datetime', notNull: true, defaultValue: 'now' },
  { name: 'friend', type: 'link' },
])

describe('compileTable', () => {
  test('lists physical columns in schema order, objects before what is in them', () => {
    expect(
      people.physical.map(({ path, physicalName, sqlType }) => [
        path.join('.'),
        physicalName,
        sqlType,
      ]),
    ).toEqual([
      ['name', 'c10', 'text collate "C"'],
      ['age', 'c11', 'bigint'],
      ['address', 'c12', 'boolean'],
      ['address.zip', 'c13', 'text collate "C"'],
      ['address.geo', 'c14', 'boolean'],
      ['address.geo.lat', 'c15', 'double precision'],
      ['address.tags', 'c16', 'text[]'],
      ['score', 'c17', 'double precision'],
      ['since', 'c18', 'timestamptz'],
      ['friend', 'c19', 'text collate "C"'],
    ])
    expect(people.indexes.get('address.geo.lat')).toBe(5)
    expect(people.indexes.get('zip')).toBeUndefined()
  })

  test('does not compile a default that no schema edit lets through', () => {
    expect(() => compile([{ name: 'age', type: 'int', defaultValue: 'x' }])).toThrow()
  })

  test('compiles a table without columns', () => {
    const empty = compile([])
    expect(empty.encodeRecord({}, origin)).toEqual([])
    expect(isFaults(empty.encodeRecord({}, origin))).toBe(false)
    expect(empty.decodeRow([])).toBe('')
  })
})

describe('encodeRecord', () => {
  test('gives a text or null for each column, with defaults', () => {
    expect(people.encodeRecord({ name: 'Ada' }, origin)).toEqual([
      'Ada',
      null,
      null,
      null,
      null,
      null,
      null,
      '1.5',
      now,
      null,
    ])
  })

  test('takes keys in any order and values over defaults', () => {
    const record = {
      friend: { id: 'rec_1' },
      since: '2020-01-01T00:00:00Z',
      score: null,
      address: { tags: ['a'], geo: { lat: -0 }, zip: '1234' },
      age: 36,
      name: 'Ada',
    }
    expect(people.encodeRecord(record, origin)).toEqual([
      'Ada',
      '36',
      't',
      '1234',
      't',
      '-0',
      '{"a"}',
      null,
      '2020-01-01T00:00:00Z',
      'rec_1',
    ])
  })

  test('tells an empty object from none', () => {
    const encode = (address: unknown) =>
      people.encodeRecord({ name: 'Ada', address }, origin).slice(2, 7)
    expect(encode({})).toEqual(['t', null, null, null, null])
    expect(encode({ geo: {} })).toEqual(['t', null, 't', null, null])
    expect(encode({ geo: null, zip: null })).toEqual(['t', null, null, null, null])
    expect(encode(null)).toEqual([null, null, null, null, null])
    expect(encode(undefined)).toEqual([null, null, null, null, null])
  })

  test('ignores the id and metadata, whatever they hold', () => {
    const record = { id: 1, xata: { version: 9 }, service: 'x', name: 'Ada', age: 1 }
    expect(people.encodeRecord(record, origin)).toEqual(
      people.encodeRecord({ name: 'Ada', age: 1 }, origin),
    )
  })

  test('collects every fault', () => {
    const record = {
      age: '36',
      address: { zipp: 1, zip: 2, geo: { lat: 'x', long: 1 } },
      nickname: 'a',
      since: null,
      score: [],
    }
    expect(people.encodeRecord(record, origin)).toEqual(
      faults(
        'column [age]: expected a whole number, got a string',
        'column [address.zipp]: column not found',
        'column [address.zip]: expected a string, got a number',
        'column [address.geo.lat]: expected a number, got a string',
        'column [address.geo.long]: column not found',
        'column [nickname]: column not found',
        'column [since]: cannot be null',
        'column [score]: expected a number, got an array',
        'column [name]: a value is required',
      ),
    )
  })

  test('reports a column once', () => {
    expect(people.encodeRecord({ name: null }, origin)).toEqual(
      faults('column [name]: cannot be null'),
    )
    expect(people.encodeRecord({ name: 1 }, origin)).toEqual(
      faults('column [name]: expected a string, got a number'),
    )
    expect(people.encodeRecord({ name: undefined }, origin)).toEqual(
      faults('column [name]: a value is required'),
    )
  })

  test.each([[], 'x', 1, true])('refuses %j for an object', (value) => {
    expect(isFaults(people.encodeRecord({ name: 'Ada', address: value }, origin))).toBe(true)
  })

  test('refuses arithmetic, which needs a value to start from', () => {
    expect(people.encodeRecord({ name: 'Ada', age: { $increment: 1 } }, origin)).toEqual(
      faults('column [age]: expected a whole number, got an object'),
    )
  })

  test('is not fooled by names of the prototype', () => {
    for (const key of ['__proto__', 'constructor', 'toString', 'hasOwnProperty']) {
      const record = JSON.parse(`{"name":"Ada","${key}":"x"}`)
      expect(people.encodeRecord(record, origin)).toEqual(
        faults(`column [${key}]: column not found`),
      )
      const nested = JSON.parse(`{"name":"Ada","address":{"${key}":"x"}}`)
      expect(people.encodeRecord(nested, origin)).toEqual(
        faults(`column [address.${key}]: column not found`),
      )
      const table = compile([{ name: key, type: 'string' }])
      expect(table.encodeRecord({}, origin)).toEqual([null])
      expect(table.encodeRecord(JSON.parse(`{"${key}":"x"}`), origin)).toEqual(['x'])
      expect(JSON.parse(`{${table.decodeRow(['x'])}}`)).toEqual(JSON.parse(`{"${key}":"x"}`))
    }
    expect(people.encodeRecord(Object.create({ name: 'inherited' }), origin)).toEqual(
      faults('column [name]: a value is required'),
    )
  })

  test('cuts an absurd key in its message', () => {
    const [fault] = people.encodeRecord({ name: 'Ada', ['x'.repeat(100_000)]: 1 }, origin)
    expect(fault).toEqual(
      new Fault(`column [${'x'.repeat(255)}]: column not found`, undefined, 'x'.repeat(255)),
    )
  })

  test('hands files to the encoder of the call, else to that of the table', () => {
    const columns = [
      { name: 'photo', type: 'file' },
      { name: 'more', type: 'file[]' },
    ] as const
    const record = { photo: { name: 'a' }, more: [{}] }
    expect(compile([...columns]).encodeRecord(record, origin)).toEqual(
      faults(
        'column [photo]: file upload not permitted here',
        'column [more]: file upload not permitted here',
      ),
    )
    expect(compile([...columns]).encodeRecord({ photo: null }, origin)).toEqual([null, null])
    const codec = compile([...columns], { file: (column) => `"${column.name}"` })
    expect(codec.encodeRecord(record, origin)).toEqual(['"photo"', '"more"'])
    const refuse = () => new Fault('file upload not permitted in transaction')
    expect(codec.encodeRecord({ photo: {} }, origin, refuse)).toEqual(
      faults('column [photo]: file upload not permitted in transaction'),
    )
    expect(codec.encodeUpdate({ photo: {} }, origin, refuse)).toEqual(
      faults('column [photo]: file upload not permitted in transaction'),
    )
  })

  test.each(['a', 'é', '名', '😀'])('limits the bytes of a record made of %s', (character) => {
    const bytes = Buffer.byteLength(character)
    const codec = compile(
      [{ name: 'abc', type: 'text' }],
      withLimits({ recordBytesMax: 3 + bytes * 9 }),
    )
    expect(codec.encodeRecord({ abc: character.repeat(9) }, origin)).toEqual([character.repeat(9)])
    expect(codec.encodeRecord({ abc: character.repeat(10) }, origin)).toEqual(
      faults(`record is larger than the limit of ${3 + bytes * 9} bytes`),
    )
    expect(codec.encodeUpdate({ abc: character.repeat(10) }, origin)).toEqual(
      faults(`record is larger than the limit of ${3 + bytes * 9} bytes`),
    )
  })

  test('stops checking values when they exceed the size limit together', () => {
    const columns = ['a', 'b', 'c'].map((name) => ({ name, type: 'json' as const }))
    const codec = compile(
      [...columns, { name: 'list', type: 'multiple' }],
      withLimits({ recordBytesMax: 100 }),
    )
    const nul = '\0'
    // Faults up to the limit are reported, and later ones are not looked for.
    expect(codec.encodeRecord({ a: [nul], b: [nul] }, origin)).toEqual(
      faults(
        'column [a]: contains a NUL character, which cannot be stored',
        'column [b]: contains a NUL character, which cannot be stored',
      ),
    )
    const tooLarge = faults('record is larger than the limit of 100 bytes')
    const unread = {
      get length(): number {
        throw new Error('must not be read')
      },
    }
    for (const value of [
      'x'.repeat(40),
      ['x'.repeat(34)],
      Array(20).fill(1),
      { x: Array(16).fill(1) },
    ]) {
      const record = { a: value, b: value, c: value, list: unread }
      expect(codec.encodeRecord(record, origin)).toEqual(tooLarge)
      expect(codec.encodeUpdate(record, origin)).toEqual(tooLarge)
    }
    expect(codec.encodeRecord({ list: Array(34).fill('') }, origin)).toEqual(tooLarge)
    expect(codec.encodeRecord({ list: ['x'.repeat(98)] }, origin)).toEqual(tooLarge)
    expect(isFaults(codec.encodeRecord({ list: Array(31).fill('') }, origin))).toBe(false)
    expect(isFaults(codec.encodeRecord({ a: Array(49).fill(1) }, origin))).toBe(false)
  })

  test('counts neither files nor columns without a value', () => {
    const columns = [
      { name: 'a', type: 'text' },
      { name: 'b'.repeat(100), type: 'text' },
      { name: 'photo', type: 'file' },
    ] as const
    const codec = compile([...columns], {
      ...withLimits({ recordBytesMax: 10 }),
      file: () => JSON.stringify('x'.repeat(100)),
    })
    expect(isFaults(codec.encodeRecord({ a: '123456789', photo: {} }, origin))).toBe(false)
    expect(isFaults(codec.encodeRecord({ a: '1234567890', photo: {} }, origin))).toBe(true)
  })
})

describe('encodeUpdate', () => {
  test('gives only the columns named', () => {
    expect(people.encodeUpdate({ age: 37, id: 'x', xata: {}, service: {} }, origin)).toEqual({
      columns: [1],
      values: ['37'],
      arithmetic: [],
    })
    expect(people.encodeUpdate({}, origin)).toEqual({ columns: [], values: [], arithmetic: [] })
    expect(people.encodeUpdate({ age: undefined }, origin)).toEqual({
      columns: [],
      values: [],
      arithmetic: [],
    })
  })

  test('replaces an object as a whole', () => {
    expect(people.encodeUpdate({ address: { zip: '1' } }, origin)).toEqual({
      columns: [2, 3, 4, 5, 6],
      values: ['t', '1', null, null, null],
      arithmetic: [],
    })
    expect(people.encodeUpdate({ address: null, age: null }, origin)).toEqual({
      columns: [2, 3, 4, 5, 6, 1],
      values: [null, null, null, null, null, null],
      arithmetic: [],
    })
  })

  test('refuses null where a value must be', () => {
    expect(people.encodeUpdate({ name: null, since: null, nope: null }, origin)).toEqual(
      faults(
        'column [name]: cannot be null',
        'column [since]: cannot be null',
        'column [nope]: column not found',
      ),
    )
  })

  test.each([
    [{ age: { $increment: 2 } }, { column: 1, operator: '+', operand: '2' }],
    [{ age: { $decrement: -2 } }, { column: 1, operator: '-', operand: '-2' }],
    [{ age: { $multiply: 1.5 } }, { column: 1, operator: '*', operand: '1.5' }],
    [{ age: { $divide: 0.25 } }, { column: 1, operator: '/', operand: '0.25' }],
    [{ score: { $increment: 0.1 } }, { column: 7, operator: '+', operand: '0.1' }],
    [{ score: { $multiply: 1e300 } }, { column: 7, operator: '*', operand: '1e+300' }],
    [{ score: { $multiply: -0 } }, { column: 7, operator: '*', operand: '-0' }],
  ])('computes %j', (fields, arithmetic) => {
    expect(people.encodeUpdate(fields, origin)).toEqual({
      columns: [],
      values: [],
      arithmetic: [arithmetic],
    })
  })

  const operators = 'expected a number or one of $increment, $decrement, $multiply and $divide'
  const range = 'is not between -9007199254740991 and 9007199254740991'
  test.each([
    [{ age: {} }, `column [age]: ${operators}`],
    [{ age: { $power: 2 } }, `column [age]: ${operators}`],
    [{ age: { $increment: 1, $decrement: 1 } }, `column [age]: ${operators}`],
    [{ age: { $increment: '1' } }, 'column [age]: expected a number for $increment, got a string'],
    [
      { age: { $increment: 0.5 } },
      'column [age]: $increment: expected a whole number, got a fraction',
    ],
    [{ age: { $increment: 2 ** 53 } }, `column [age]: $increment: ${range}`],
    [{ age: { $multiply: 2 ** 53 } }, `column [age]: $multiply: ${range}`],
    [
      { score: { $multiply: Number.POSITIVE_INFINITY } },
      'column [score]: $multiply: is out of range',
    ],
    [{ age: { $divide: 0 } }, 'column [age]: cannot be divided by zero'],
    [{ score: { $divide: -0 } }, 'column [score]: cannot be divided by zero'],
    [{ name: { $increment: 1 } }, 'column [name]: expected a string, got an object'],
    [
      { address: { geo: { lat: { $increment: 1 } } } },
      'column [address.geo.lat]: expected a number, got an object',
    ],
  ])('refuses %j', (fields, message) => {
    expect(people.encodeUpdate(fields, origin)).toEqual(faults(message))
  })
})

describe('decodeRow', () => {
  const texts = [
    'Ada "the" 1st',
    '36',
    't',
    '1234',
    't',
    '-0',
    '["a"]',
    '1.5',
    '2026-01-31 09:30:00+00',
    'rec_1',
  ]

  test('writes the members of the record', () => {
    expect(people.decodeRow(texts)).toBe(
      '"name":"Ada \\"the\\" 1st","age":36,' +
        '"address":{"zip":"1234","geo":{"lat":-0},"tags":["a"]},' +
        '"score":1.5,"since":"2026-01-31T09:30:00.000Z","friend":{"id":"rec_1"}',
    )
  })

  test('leaves nulls out, not empty objects', () => {
    const nulls: (string | null)[] = texts.map(() => null)
    expect(people.decodeRow(nulls)).toBe('')
    expect(people.decodeRow(nulls.with(2, 't'))).toBe('"address":{}')
    expect(people.decodeRow(nulls.with(2, 't').with(4, 't'))).toBe('"address":{"geo":{}}')
    expect(people.decodeRow(nulls.with(3, 'filled later'))).toBe('')
  })

  test.each([
    [['name'], [0], '"name":"Ada \\"the\\" 1st"'],
    [['friend', 'age', 'age'], [1, 9], '"age":36,"friend":{"id":"rec_1"}'],
    [['address.zip'], [2, 3], '"address":{"zip":"1234"}'],
    [['address.geo'], [2, 4, 5], '"address":{"geo":{"lat":-0}}'],
    [['address.geo.lat', 'address.zip'], [2, 3, 4, 5], '"address":{"zip":"1234","geo":{"lat":-0}}'],
    [['address.*'], [2, 3, 4, 5, 6], '"address":{"zip":"1234","geo":{"lat":-0},"tags":["a"]}'],
    [[], [], ''],
  ])('selects %j', (paths, columns, json) => {
    const projection = people.project(paths)
    if (isFaults(projection)) throw new Error('unexpected faults')
    expect(projection.columns).toEqual(columns)
    const selected = columns.map((column) => texts[column] ?? null)
    expect(people.decodeRow(selected, projection)).toBe(json)
  })

  test('selects everything with a star', () => {
    const projection = people.project(['age', '*'])
    if (isFaults(projection)) throw new Error('unexpected faults')
    expect(people.decodeRow(texts, projection)).toBe(people.decodeRow(texts))
  })

  test('knows no other columns', () => {
    expect(
      people.project(['nope', 'name', 'name.*', 'address.nope', 'address.*.zip', 'zip', '', '*.*']),
    ).toEqual(
      ['nope', 'name.*', 'address.nope', 'address.*.zip', 'zip', '', '*.*'].map(
        (path) => new Fault(`column [${path}]: column not found`),
      ),
    )
  })
})

test('encodeId takes what a link takes as a string', () => {
  expect(people.encodeId('rec_1')).toBe('rec_1')
  expect(people.encodeId('a'.repeat(255))).toBe('a'.repeat(255))
  expect(people.encodeId('a'.repeat(256))).toEqual(
    new Fault('column [id]: is longer than 255 characters', undefined, 'id'),
  )
  expect(people.encodeId('')).toBeInstanceOf(Fault)
  expect(people.encodeId('a b')).toBeInstanceOf(Fault)
  expect(people.encodeId({ id: 'rec_1' })).toBeInstanceOf(Fault)
  expect(people.encodeId(null)).toEqual(
    new Fault('column [id]: expected a record id, got null', undefined, 'id'),
  )
})

test('isFaults narrows both ways', () => {
  const update = people.encodeUpdate({}, origin)
  if (isFaults(update)) expectTypeOf(update).toEqualTypeOf<Fault[]>()
  else expectTypeOf(update).toEqualTypeOf<EncodedUpdate>()
})
