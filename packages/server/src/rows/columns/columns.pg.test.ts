import { createRequire } from 'node:module'
import { Readable, type Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { LIMITS } from '@offshoot/contract/limits'
import { RECORD_ID_PATTERN } from '@offshoot/contract/names'
import fc from 'fast-check'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../../../../../test/support/database.js'
import { arrayLiteral, copyLine } from '../../postgres/carriers.js'
import { ident } from '../../postgres/sql.js'
import { COLUMN_TYPE_ENTRIES } from './column-types.js'
import { Fault } from './fault.js'
import type { StoredColumn } from './stored-schema.js'
import { compileTable, isFaults } from './table-codec.js'

// The package has no type declarations.
const { from: copyFrom } = createRequire(import.meta.url)('pg-copy-streams') as {
  from(statement: string): Writable & pg.Submittable
}

const options = { limits: LIMITS, jsonAsText: false }
const now = '2026-01-31T09:30:00.000Z'
const origin = { now, userId: 'usr_test' }

/** The summary of a run names it; `OFFSHOOT_TEST_SEED` repeats it. */
const seed = Number(process.env.OFFSHOOT_TEST_SEED ?? Date.now() % 2 ** 31)

let database: TestDatabase
let client: pg.PoolClient

beforeAll(async () => {
  database = await createTestDatabase()
  client = await database.pool.connect()
  await client.query("set time zone 'UTC'")
})

afterAll(async () => {
  client?.release()
  await database?.close()
})

type Rows = readonly (readonly (string | null)[])[]

interface Target {
  readonly names: readonly string[]
  readonly sqlTypes: readonly string[]
}

/** The three ways in which values reach PostgreSQL. The table is `t`; `n` keeps the order. */
const carriers: Record<string, (target: Target, rows: Rows) => Promise<void>> = {
  async 'single parameters'({ names }, rows) {
    const places = names.map((_, index) => `$${index + 2}`)
    const statement = `insert into t (${['n', ...names]}) values (${['$1', ...places]})`
    for (const [n, row] of rows.entries()) await client.query(statement, [n, ...row])
  },

  async unnest({ names, sqlTypes }, rows) {
    const arrays = names.map((_, index) => `$${index + 2}::text[]`)
    const casts = names.map((name, index) => `u.${name}::${sqlTypes[index]}`)
    await client.query(
      `insert into t (${['n', ...names]})
       select ${['n', ...casts]} from unnest(${['$1::int[]', ...arrays]}) u(${['n', ...names]})`,
      [
        arrayLiteral(rows.map((_, n) => String(n))),
        ...names.map((_, index) => arrayLiteral(rows.map((row) => row[index] ?? null))),
      ],
    )
  },

  async COPY({ names }, rows) {
    const stream = client.query(copyFrom(`copy t (${['n', ...names]}) from stdin`))
    await pipeline(Readable.from(rows.map((row, n) => copyLine(row, `${n}\t`))), stream)
  },
}

async function readTexts(selections: readonly string[]): Promise<(string | null)[][]> {
  const result = await client.query({
    text: `select ${selections} from t order by n`,
    rowMode: 'array',
    types: { getTypeParser: () => (text: string) => text },
  })
  return result.rows
}

/** Returns whether PostgreSQL accepts the text as the type. */
async function reads(text: string, sqlType: string): Promise<boolean> {
  try {
    await client.query(`select $1::${sqlType}`, [text])
    return true
  } catch {
    return false
  }
}

const HOSTILE = [
  '',
  ' ',
  '\\',
  '\\\\',
  '\\N',
  '\\.',
  '\\t',
  '\t',
  '\n',
  '\r',
  '\r\n',
  '\b\f\v',
  '\u0001',
  '\u007f',
  'NULL',
  'null',
  '{}',
  '{',
  '}',
  ',',
  '"',
  '""',
  "'",
  '$1',
  "'; drop table t; --",
  '\u2028',
  '\ufeff',
  '\uffff',
  'é',
  'e\u0301',
  '名',
  '😀',
  'x'.repeat(100),
  `${'x'.repeat(100)}\\`,
  `${'x'.repeat(100)}"\t`,
]
const text = fc.oneof(
  fc.constantFrom(...HOSTILE),
  fc.string({ unit: fc.constantFrom(...HOSTILE), maxLength: 10 }),
  fc.string({ unit: 'binary' }).map((value) => value.replaceAll('\0', '')),
)
const recordId = fc
  .stringMatching(new RegExp(RECORD_ID_PATTERN))
  .filter((id) => id.length <= LIMITS.nameLengthMax)
const finite = fc.double({ noNaN: true, noDefaultInfinity: true })

/** A moment of any offset and precision, with the form in which it must come back. */
const moment = fc
  .record({
    ms: fc.integer({
      min: Date.parse('0001-01-02T00:00:00Z'),
      max: Date.parse('9999-12-30T23:59:59Z'),
    }),
    micros: fc.oneof(fc.constant(0), fc.nat({ max: 999 })),
    offset: fc.oneof(fc.constant(null), fc.integer({ min: -959, max: 959 })),
    zeros: fc.nat({ max: 12 }),
    lowerCase: fc.boolean(),
  })
  .map(({ ms, micros, offset, zeros, lowerCase }) => {
    const local = new Date(ms + (offset ?? 0) * 60_000).toISOString().slice(0, -1)
    const microseconds = micros === 0 ? '' : String(micros).padStart(3, '0')
    const size = Math.abs(offset ?? 0)
    const pair = (part: number) => String(part).padStart(2, '0')
    const sign = (offset ?? 0) < 0 ? '-' : '+'
    const mark = offset === null ? 'Z' : `${sign}${pair(Math.trunc(size / 60))}:${pair(size % 60)}`
    const sent = `${local}${microseconds}${'0'.repeat(zeros)}${mark}`
    return {
      sent: lowerCase ? sent.toLowerCase() : sent,
      read: `${new Date(ms).toISOString().slice(0, -1)}${microseconds}Z`,
    }
  })

/** Numbers at and around the middle between two neighbouring singles, where rounding is delicate. */
const single = fc.float({ noNaN: true, noDefaultInfinity: true })
const component = fc
  .oneof(
    single,
    finite,
    fc.double({ min: -1, max: 1, noNaN: true }),
    fc.constantFrom(-0, 0.1, 1e-45, 3.4028234663852886e38, 3.4028235677973362e38, 1 + 2 ** -24),
    single.map((value) => {
      const bits = new DataView(new ArrayBuffer(4))
      bits.setFloat32(0, value)
      bits.setUint32(0, bits.getUint32(0) ^ 1)
      return (value + bits.getFloat32(0)) / 2
    }),
  )
  .filter(
    (value) => Number.isFinite(Math.fround(value)) && (Math.fround(value) !== 0 || value === 0),
  )

function withoutNegativeZero(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value))
}

interface Sample {
  readonly column: Omit<StoredColumn, 'id' | 'name'>
  readonly value: fc.Arbitrary<unknown>
  /** Returns the value that is expected when read back, if it differs from the written one. */
  readonly read?: (sent: never) => unknown
}

const jsonCodec = COLUMN_TYPE_ENTRIES.json.compile({ id: 1, name: 'v', type: 'json' }, options)
const document = fc
  .jsonValue({ stringUnit: 'binary' })
  .filter((value) => typeof value !== 'string' && value !== null)
  .filter((value) => typeof jsonCodec.encode(value) === 'string')

const samples: Record<string, Sample> = {
  bool: { column: { type: 'bool' }, value: fc.boolean() },
  int: {
    column: { type: 'int' },
    value: fc.oneof(fc.maxSafeInteger(), fc.constantFrom(0, -0, 2 ** 53 - 1, 1 - 2 ** 53)),
    read: withoutNegativeZero,
  },
  float: {
    column: { type: 'float' },
    value: fc.oneof(finite, fc.constantFrom(0, -0, 5e-324, -Number.MAX_VALUE, 1e-7, 1e21)),
  },
  string: { column: { type: 'string' }, value: text },
  text: {
    column: { type: 'text' },
    value: fc.oneof(
      text,
      text.map((value) => value.repeat(99)),
    ),
  },
  email: {
    column: { type: 'email' },
    value: fc.emailAddress(),
  },
  multiple: { column: { type: 'multiple' }, value: fc.array(text, { maxLength: 5 }) },
  link: { column: { type: 'link' }, value: recordId, read: (id: string) => ({ id }) },
  datetime: {
    column: { type: 'datetime' },
    value: moment,
    read: ({ read }: { read: string }) => read,
  },
  vector: {
    column: { type: 'vector', vector: { dimension: 4 } },
    value: fc.array(component, { minLength: 4, maxLength: 4 }),
    read: (sent: number[]) => sent.map(Math.fround),
  },
  file: {
    column: { type: 'file' },
    value: fc.record({ name: text, size: fc.nat() }, { noNullPrototype: true }),
  },
  'file[]': {
    column: { type: 'file[]' },
    value: fc.array(fc.record({ id: recordId, name: text }, { noNullPrototype: true }), {
      maxLength: 3,
    }),
  },
  json: { column: { type: 'json' }, value: document, read: withoutNegativeZero },
  'json as text': {
    column: { type: 'json' },
    value: document.map((value) => JSON.stringify(value, null, 1)),
    read: (sent: string) => withoutNegativeZero(JSON.parse(sent)),
  },
}

describe.each(Object.entries(samples))('%s', (_name, { column, value, read }) => {
  const stored: StoredColumn = { ...column, id: 1, name: 'v' }
  const entry = COLUMN_TYPE_ENTRIES[column.type]
  const codec = entry.compile(stored, options)

  beforeAll(async () => {
    await client.query(`create table t (n int, v ${entry.sqlType})`)
  })

  afterAll(async () => {
    await client.query('drop table t')
  })

  test.each(Object.keys(carriers))('comes out of %s as it went in', async (carrier) => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.option(value), { minLength: 1, maxLength: 20 }),
        async (sent) => {
          await client.query('truncate t')
          const rows = sent.map((item) => {
            const input =
              column.type === 'datetime' ? (item as { sent: string } | null)?.sent : item
            if (input === null || input === undefined) return [null]
            const encoded = codec.encode(input)
            if (encoded instanceof Fault) throw new Error(encoded.message)
            return [encoded]
          })
          await carriers[carrier]?.({ names: ['v'], sqlTypes: [entry.sqlType] }, rows)
          const texts = await readTexts([entry.select(ident('v')).text])
          const result = texts.map(([item]) => {
            const json: unknown = typeof item === 'string' ? JSON.parse(codec.decode(item)) : null
            // PostgreSQL writes a single as briefly as possible, which names another double.
            return column.type === 'vector' && json !== null
              ? (json as number[]).map(Math.fround)
              : json
          })
          expect(result).toStrictEqual(
            sent.map((item) => (item === null || read === undefined ? item : read(item as never))),
          )
        },
      ),
      { seed, numRuns: 40 },
    )
  })
})

describe('json text', () => {
  const pieces = fc.constantFrom(
    'a',
    '\\\\',
    '\\"',
    '\\n',
    '\\u0041',
    '\\u0000',
    '\\u0001',
    '\\ud83d',
    '\\uD83D',
    '\\ude00',
    '\\uDFFF',
    '\\udbff\\udc00',
    '😀',
    'u0000',
    'é',
  )

  test('is refused for its strings exactly when PostgreSQL refuses it', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(pieces, { maxLength: 5 }), async (parts) => {
        for (const document of [`"${parts.join('')}"`, `[{"${parts.join('')}": "x"}]`]) {
          const accepted = typeof jsonCodec.encode(document) === 'string'
          expect(await reads(document, 'jsonb')).toBe(accepted)
        }
      }),
      { seed, numRuns: 300 },
    )
  })

  test('is refused for its numbers exactly when PostgreSQL refuses it', async () => {
    const digits = fc.stringMatching(/^[0-9]{1,20}$/)
    const exponent = fc.oneof(
      fc.integer({ min: -30, max: 30 }),
      fc.integer({ min: 131_072 - 25, max: 131_072 + 25 }),
      fc.integer({ min: -16_383 - 25, max: -16_383 + 25 }),
      fc.constantFrom(-400_000, 400_000, -(2 ** 31), 2 ** 31, 2 ** 70),
    )
    const number = fc.record({
      sign: fc.constantFrom('', '-'),
      whole: digits.map((value) => value.replace(/^0+(?=.)/, '')),
      fraction: fc.option(digits),
      exponent,
    })
    await fc.assert(
      fc.asyncProperty(number, async ({ sign, whole, fraction, exponent }) => {
        const mantissa = `${whole}${fraction === null ? '' : `.${fraction}`}`
        // Skip zeros with extreme exponents.
        fc.pre(/[1-9]/.test(mantissa))
        const document = `${sign}${mantissa}e${exponent}`
        const accepted = typeof jsonCodec.encode(document) === 'string'
        expect(await reads(document, 'jsonb')).toBe(accepted)
      }),
      { seed, numRuns: 500 },
    )
  })

  test('keeps digits that no double has', async () => {
    for (const document of ['9007199254740993', '0.12345678901234567890123', '[1.10, -2.500]']) {
      const { rows } = await client.query({
        text: 'select $1::jsonb::text',
        values: [document],
        rowMode: 'array',
      })
      expect(rows).toEqual([[document]])
    }
  })

  test('of the deepest nesting and the longest numbers allowed can be stored and read', async () => {
    const deepest = '['.repeat(256) + ']'.repeat(256)
    for (const document of [deepest, '9'.repeat(131_072), `0.${'9'.repeat(16_383)}`]) {
      expect(jsonCodec.encode(document)).toBe(document)
      const { rows } = await client.query({
        text: 'select $1::jsonb::text',
        values: [document],
        rowMode: 'array',
      })
      expect(rows).toEqual([[document]])
    }
  })
})

describe('datetime', () => {
  const codec = COLUMN_TYPE_ENTRIES.datetime.compile(
    { id: 1, name: 'v', type: 'datetime' },
    options,
  )

  test.each([
    ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00.000Z'],
    ['0001-01-01T15:59:00+15:59', '0001-01-01T00:00:00.000Z'],
    ['9999-12-31T23:59:59.999999Z', '9999-12-31T23:59:59.999999Z'],
    ['9999-12-31T08:00:59.999999-15:59', '9999-12-31T23:59:59.999999Z'],
    ['1969-12-31T23:59:59.999999Z', '1969-12-31T23:59:59.999999Z'],
    ['2024-02-29t12:00:00.5z', '2024-02-29T12:00:00.500Z'],
  ])('%s is read as %s', async (sent, read) => {
    const encoded = codec.encode(sent)
    const { rows } = await client.query({
      text: 'select $1::timestamptz',
      values: [encoded],
      rowMode: 'array',
      types: { getTypeParser: () => (item: string) => item },
    })
    expect(codec.decode(rows[0]?.[0])).toBe(JSON.stringify(read))
  })
})

describe('a table', () => {
  const nested = (id: number, name: string, type: StoredColumn['type']) => ({ id, name, type })
  const codec = compileTable(
    {
      id: 1,
      name: 'things',
      columns: [
        nested(1, 'name', 'string'),
        nested(2, 'count', 'int'),
        {
          ...nested(3, 'place', 'object'),
          columns: [
            nested(4, 'city', 'text'),
            { ...nested(5, 'deep', 'object'), columns: [nested(6, 'flag', 'bool')] },
            nested(7, 'tags', 'multiple'),
          ],
        },
        nested(8, 'ratio', 'float'),
        nested(9, 'document', 'json'),
        { ...nested(10, 'vector', 'vector'), vector: { dimension: 2 } },
        { ...nested(11, 'since', 'datetime'), defaultValue: 'now' },
      ],
    },
    options,
  )
  const partial = <T>(model: { [K in keyof T]: fc.Arbitrary<T[K]> }) =>
    fc.record(model, { requiredKeys: [], noNullPrototype: true })
  const record = partial({
    name: text,
    count: fc.integer(),
    place: partial({
      city: text,
      deep: partial({ flag: fc.boolean() }),
      tags: fc.array(text, { maxLength: 3 }),
    }),
    ratio: finite,
    document: document.map(withoutNegativeZero),
    vector: fc.array(fc.integer({ min: -999, max: 999 }), { minLength: 2, maxLength: 2 }),
    since: moment.map(({ read }) => read),
  })

  beforeAll(async () => {
    const columns = codec.physical.map((column) => `${column.physicalName} ${column.sqlType}`)
    await client.query(`create table t (${['n int', ...columns]})`)
  })

  afterAll(async () => {
    await client.query('drop table t')
  })

  test.each(Object.keys(carriers))(
    'gives back through %s the records it was given',
    async (carrier) => {
      const target = {
        names: codec.physical.map((column) => column.physicalName),
        sqlTypes: codec.physical.map((column) => column.sqlType),
      }
      const selections = codec.physical.map(
        ({ column, physicalName }) =>
          COLUMN_TYPE_ENTRIES[column.type].select(ident(physicalName)).text,
      )
      await fc.assert(
        fc.asyncProperty(fc.array(record, { minLength: 1, maxLength: 10 }), async (records) => {
          await client.query('truncate t')
          const rows = records.map((item) => {
            const encoded = codec.encodeRecord(item, origin)
            if (isFaults(encoded)) throw new Error(encoded[0]?.message)
            return encoded
          })
          await carriers[carrier]?.(target, rows)
          const texts = await readTexts(selections)
          const result = texts.map((row) => JSON.parse(`{${codec.decodeRow(row)}}`))
          // The generator makes objects without a prototype, which JSON has no form for.
          const expected = records.map((item) => ({ since: now, ...structuredClone(item) }))
          expect(result).toEqual(expected)
        }),
        { seed, numRuns: 60 },
      )
    },
  )
})
