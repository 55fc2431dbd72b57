import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  bind,
  describeStatement,
  errorCode,
  execute,
  openShop,
  parse,
  type RawClient,
  type Received,
  sync,
  type WireShop,
} from '../support/wire-clients.js'

/* Values in binary form, compared with those of PostgreSQL. */

let shop: WireShop
let raw: RawClient

beforeAll(async () => {
  shop = await openShop({})
  raw = await shop.wire.openRaw()
})
afterAll(async () => {
  raw?.close()
  await shop?.close()
})

/** Returns the first value of the first row. */
function firstValue(messages: readonly Received[]): Buffer | null {
  const row = messages.find(({ type }) => type === 'D')
  if (row === undefined) throw new Error(`no row: ${messages.map(({ body }) => body)}`)
  const length = row.body.readInt32BE(2)
  return length === -1 ? null : row.body.subarray(6, 6 + length)
}

function firstType(messages: readonly Received[]): number {
  const { body } = messages.find(({ type }) => type === 'T') ?? { body: Buffer.alloc(0) }
  return body.readInt32BE(body.indexOf(0, 2) + 7)
}

const ask = (
  text: string,
  values: readonly Buffer[] = [],
  { typeIds = [] as readonly number[], resultFormat = 0 } = {},
): Promise<Received[]> => {
  raw.send(
    parse(text, '', typeIds),
    describeStatement(),
    bind(values, { resultFormats: [resultFormat] }),
    execute(),
    sync(),
  )
  return raw.until('Z')
}

const VALUES: Readonly<Record<string, readonly string[]>> = {
  inet_send: [
    `'10.0.0.1'::inet`,
    `'10.0.0.1/8'::inet`,
    `'::1'::inet`,
    `'2001:db8::ff00:42:8329/64'::inet`,
    `'::ffff:1.2.3.4'::inet`,
    `'::'::inet`,
  ],
  cidr_send: [`'10.0.0.0/8'::cidr`, `'2001:db8::/32'::cidr`],
  range_send: [
    'int4range(1, 5)',
    'int4range(null, 5)',
    `'empty'::int4range`,
    `int8range(1, 5, '[]')`,
    `numrange(1.5, 2.5, '(]')`,
    `daterange('2026-01-01', '2026-02-01')`,
    `tstzrange('2026-01-01', '2026-02-01 12:00:00.5')`,
    'tsrange(null, null)',
  ],
  multirange_send: ['multirange(int4range(1, 3))', `multirange('empty'::daterange)`],
  interval_send: [
    `'1 year 2 mons -3 days 04:05:06.7'::interval`,
    `'-1 mon'::interval`,
    `'-03:04:05.000001'::interval`,
    `'100:00:00'::interval`,
    `'0'::interval`,
    `'1 day ago'::interval`,
  ],
  numeric_send: [
    `'NaN'::numeric`,
    `'Infinity'::numeric`,
    `'-Infinity'::numeric`,
    '0::numeric',
    '1e-10::numeric',
    '-12345678901234567890.123456789',
    '1e20::numeric',
    '10000.0001',
  ],
  timetz_send: [`'03:04:05.6+02'::timetz`, `'03:04:05-00:15:30'::timetz`],
  timestamp_send: [`'1999-12-31 23:59:59.999999'::timestamp`],
  date_send: [`'0044-03-15 BC'::date`, `'infinity'::date`],
  macaddr_send: [`'08:00:2b:01:02:03'::macaddr`],
  cash_send: ['12.34::money', '(-0.05)::money'],
  array_send: [
    `array['10.0.0.1', null]::inet[]`,
    `array[int4range(1, 5), 'empty'::int4range, null]`,
    `array[tstzrange('2026-01-01', null)]`,
    `array['1 day', '2 hours']::interval[]`,
    `array[1.5, null, 'NaN']::numeric[]`,
    'array[[1, 2], [3, 4]]',
    `'[0:1]={5,6}'::int[]`,
    `'{}'::int[]`,
    `array['a"b', 'c\\d', 'NULL', null, '']`,
  ],
}

describe('a value in binary form', () => {
  it.for(Object.entries(VALUES))('has the bytes of %s', async ([send, expressions]) => {
    for (const expression of expressions) {
      const {
        rows: [expected],
      } = await shop.service.database.pool.query(
        `select encode(${send}(${expression}), 'hex') as bytes, (${expression})::text as text`,
      )
      const found = await ask(`select ${expression}`, [], { resultFormat: 1 })
      const bytes = firstValue(found) ?? Buffer.alloc(0)
      expect([expression, bytes.toString('hex')]).toEqual([expression, expected.bytes])
      const back = await ask(`select ($1)::text`, [bytes], { typeIds: [firstType(found)] })
      // The pool shows intervals in a style of its own, and clients get that of PostgreSQL.
      if (send === 'interval_send' || expression.includes('interval')) continue
      expect([expression, firstValue(back)?.toString()]).toEqual([expression, expected.text])
    }
  })

  it.each([
    ['a range with a cut bound', 3904, '0200000004000000'],
    ['a range with more bytes', 3904, '0100'],
    ['a multirange with too many ranges', 4451, '7fffffff'],
    ['an address of another family', 869, '0920000401020304'],
    ['an address with too many bits', 869, '0221000401020304'],
    ['a time in a zone without a zone', 1266, '0000000000000000'],
  ])('is refused: %s', async (_, typeId, hex) => {
    const answers = await ask('select ($1)::text', [Buffer.from(hex, 'hex')], { typeIds: [typeId] })
    expect(errorCode(answers)).toBe('22P03')
  })
})

describe('a value that a column cannot have', () => {
  it.each([
    ['big', `'x'`, '22P02'],
    ['big', '9007199254740993', '22003'],
    ['tone', `'c'`, '22P02'],
  ])('has the class of PostgreSQL for data: %s = %s', async (column, value, code) => {
    await shop.client.query("create type tone as enum ('a', 'b')").catch(() => undefined)
    await shop.client.query('create table if not exists kinds (big bigint, tone tone)')
    await expect(
      shop.client.query(`insert into kinds (${column}) values (${value})`),
    ).rejects.toMatchObject({ code })
  })
})

describe('an interval', () => {
  it('has the style of PostgreSQL, as text and in binary form', async () => {
    const text = `select '1 year 2 mons -3 days 04:05:06.7'::interval as span`
    const { rows } = await shop.client.query(text)
    expect(rows[0].span).toMatchObject({ years: 1, months: 2, days: -3, hours: 4 })
    expect((await shop.client.query('show intervalstyle')).rows).toEqual([
      { IntervalStyle: 'postgres' },
    ])
    const binary = firstValue(await ask(text, [], { resultFormat: 1 }))
    expect(
      firstValue(
        await ask('select ($1)::text', [binary ?? Buffer.alloc(0)], { typeIds: [1186] }),
      )?.toString(),
    ).toBe('1 year 2 mons -3 days +04:05:06.7')
    await shop.client.query('begin')
    expect(
      (await shop.client.query({ text: `select '1 day'::interval`, rowMode: 'array' })).rows[0],
    ).toMatchObject([{ days: 1 }])
    await shop.client.query('rollback')
  })
})

describe('a jsonpath', () => {
  const DOCUMENT = `'{"a": [{"x": 1, "y": "foo"}, {"x": 5, "y": "bar"}], "b": 2}'::jsonb`
  const asked = async (text: string) =>
    (await shop.client.query({ text, rowMode: 'array' })).rows.flat()

  it.each([
    [`select jsonb_path_query(${DOCUMENT}, '$.a[*] ? (@.x > 2).y')`, ['bar']],
    [`select jsonb_path_exists(${DOCUMENT}, '$.a[*] ? (@.y == "foo" && @.x < 2)')`, [true]],
    [
      `select jsonb_path_query_first(${DOCUMENT}, '$.a[*] ? (@.y like_regex "^B" flag "i").x')`,
      [5],
    ],
    [`select jsonb_path_query_array(${DOCUMENT}, '$.a[*].x ? (@ >= 1)')`, [[1, 5]].flat()],
    [`select jsonb_path_match(${DOCUMENT}, '$.b == 2')`, [true]],
    [`select ${DOCUMENT} @? '$.a[*] ? (@.x == 5)', ${DOCUMENT} @@ '$.b == 3'`, [true, false]],
  ])('filters: %s', async (text, expected) => {
    expect((await asked(text)).flat()).toEqual(expected)
    expect((await shop.client.query({ text, values: [], rowMode: 'array' })).rows.flat(2)).toEqual(
      expected,
    )
  })

  it.each([
    `select jsonb_path_query('1', '$${'[0,0,0,0,0,0,0,0,0,0]'.repeat(8)}')`,
    `select jsonb_path_query('{}', '$${'.keyvalue()'.repeat(20)}')`,
    `select ${DOCUMENT} @? '$.**'`,
    `select ${DOCUMENT} @? $1`,
    `select ${DOCUMENT} @@ '$.a == $.b'`,
  ])('whose cost has no bound is refused: %s', async (text) => {
    const values = text.includes('$1') ? ['$'] : []
    await expect(shop.client.query(text, values)).rejects.toThrow(/must be/)
  })
})
