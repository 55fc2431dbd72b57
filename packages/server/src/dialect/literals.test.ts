import { describe, expect, it } from 'vitest'
import { findParameters, LITERALS_MAX, patternOf, withParameters } from './literals.js'
import { parseSql } from './parser.js'

/** Returns a query with parameters for its literals, and their values; undefined if it has no pattern. */
async function parametersOf(text: string) {
  const pattern = patternOf(text)
  if (pattern === undefined) return undefined
  const [node] = (await parseSql(text)).nodes
  if (node === undefined) throw new Error('a query must be parsed')
  const positions = findParameters(node, text, pattern)
  return {
    text: withParameters(text, pattern, { positions, from: 1 }),
    values: positions.map((position) => pattern.literals[position]?.value),
    types: positions.map((position) => pattern.literals[position]?.type),
  }
}

describe('literals of a query', () => {
  it.each([
    [`select * from t where id = 'a''b'`, `select * from t where id = $1 `, [`a'b`], [undefined]],
    ['select * from t where 5 < n', 'select * from t where $1  < n', ['5'], ['int4']],
    [
      `select * from t where a = 1 and (b >= 1.5 or not c <> '') and d = 2147483648`,
      'select * from t where a = $1  and (b >= $2  or not c <> $3 ) and d = $4 ',
      ['1', '1.5', '', '2147483648'],
      ['int4', 'numeric', undefined, 'int8'],
    ],
    [
      `select * from t where id in ('x', 'y') and n between 1 and 2e3`,
      'select * from t where id in ($1 , $2 ) and n between $3  and $4 ',
      ['x', 'y', '1', '2e3'],
      [undefined, undefined, 'int4', 'numeric'],
    ],
    [
      `select * from t where id = '6b1c'::uuid and d < '2026-01-01'::date`,
      'select * from t where id = $1 ::uuid and d < $2 ::date',
      ['6b1c', '2026-01-01'],
      [undefined, undefined],
    ],
    [
      `select * from "tä''1" where "ü" = 'ö' and t.n = 99999999999999999999`,
      `select * from "tä''1" where "ü" = $1  and t.n = $2 `,
      ['ö', '99999999999999999999'],
      [undefined, 'numeric'],
    ],
    [
      `select * from t where n = cast('5' as numeric(10, 2)) and active = true`,
      `select * from t where n = cast($1  as numeric(10, 2)) and active = true`,
      ['5'],
      [undefined],
    ],
  ])(
    'that are compared with columns can be parameters: %s',
    async (text, written, values, types) => {
      expect(await parametersOf(text)).toEqual({ text: written, values, types })
    },
  )

  it.each([
    `select 1, 'a' as b, n > 5 from t group by n > 5 order by 1 limit 10`,
    `select * from t where date '2026-01-01' < d`,
    `select * from t where n = -5`,
    `select * from t where n + 1 = 2 and lower(name) = 'x'`,
    `select * from t where name like 'a%' and name ~ '^b' and doc ->> 'k' = 'v'`,
    `select * from t where exists (select n = 5 from u group by n = 5)`,
  ])('that mean something else stay: %s', async (text) => {
    expect(await parametersOf(text)).toMatchObject({ text, values: [] })
  })

  it.each([
    'select * from t',
    `select * from t -- where id = 'a'`,
    `select * from t where id = E'a\\'b'`,
    `select * from t where id = $$a$$`,
    `select * from t where id = U&'a'`,
    `select * from t where id = b'1'`,
    `select * from t where id = 'a`,
    `select * from t where name = 'a'\n''`,
    'select * from t where n = 0x1F',
    'select * from t where n = 1_000',
    'select * from t where n = 1.5.2',
    `select * from t where /* 'a' */ id = 'b'`,
    `select * from t where id = 'a' \u0001t`,
  ])('that may be none leave a text without a pattern: %s', (text) => {
    expect(patternOf(text)).toBeUndefined()
  })

  it('are counted: a text with many has no pattern', () => {
    const textOf = (count: number) => `select * from t where n in (${Array(count).fill('1')})`
    expect(patternOf(textOf(LITERALS_MAX))?.literals).toHaveLength(LITERALS_MAX)
    expect(patternOf(textOf(LITERALS_MAX + 1))).toBeUndefined()
  })

  it('are all that texts of one pattern differ in', () => {
    const keyOf = (text: string) => patternOf(text)?.key
    const key = keyOf(`select * from t where id = 'a' and n = 1`)
    expect(keyOf(`select * from t where id = 'it''s' and n = 77`)).toBe(key)
    const others = [
      `select * from t where id = 'a' and n = 1.0`,
      `select * from t where id = 'a' and n = 3000000000`,
      `select * from t where id = 'a'  and n = 1`,
      `select * from t where id = 'a' or n = 1`,
      `select * from "'a'" where id = 'a' and n = 1`,
    ]
    expect(new Set([key, ...others.map(keyOf)]).size).toBe(others.length + 1)
  })
})
