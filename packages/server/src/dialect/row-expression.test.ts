import { AppError } from '@offshoot/contract/errors'
import { LIMITS } from '@offshoot/contract/limits'
import { expect, it } from 'vitest'
import { ident } from '../postgres/sql.js'
import {
  bindRowExpression,
  columnIdsIn,
  type ExpressionParts,
  expressionSql,
  expressionText,
  parseRowExpressions,
} from './row-expression.js'
import { EXPRESSION_CALLS_MAX } from './sql-limits.js'

const COLUMNS = [
  { id: 7, name: 'price' },
  { id: 8, name: 'Unit' },
  { id: 9, name: 'größe' },
  { id: 10, name: 'address.city' },
]

async function bind(text: string) {
  const parsed = (await parseRowExpressions([text])).get(text)
  if (parsed === undefined || parsed instanceof AppError) throw parsed
  return bindRowExpression(parsed, COLUMNS)
}

const sqlOf = async (text: string) =>
  expressionSql((await bind(text)).sql as ExpressionParts, (id) => ident(`c${id}`)).text

it('writes SQL from the syntax tree, with columns by id', async () => {
  expect(await sqlOf('price >= 0 -- free is fine')).toBe('("c7" >= 0)')
  expect(await sqlOf(`unit = 'kg' or "address.city" is null`)).toBe(
    `(("c8" = E'kg') or ("c10" is null))`,
  )
})

it('keeps the text, whose columns can be renamed', async () => {
  const names = new Map([
    [7, 'order'],
    [8, 'unit'],
    [9, 'size'],
  ])
  const { text } = await bind(`größe < price and price < length(UNIT) and 'price' <> "Unit"`)
  expect(columnIdsIn(text)).toEqual([9, 7, 8])
  expect(expressionText(text, (id) => names.get(id) ?? '')).toBe(
    `size < "order" and "order" < length(unit) and 'price' <> unit`,
  )
  const known = new Map(COLUMNS.map(({ id, name }) => [id, name]))
  expect(expressionText(text, (id) => known.get(id) ?? '')).toBe(
    `"größe" < price and price < length("Unit") and 'price' <> "Unit"`,
  )
})

it.each([
  ['price >=', 'syntax error at or near ")" at position 9'],
  ['', 'syntax error at or near ")"'],
  ['price > 0) , (1', 'one expression is expected'],
  ['1) from (select 1', 'an expression: [fromClause] is not supported'],
  ['cost > 0', 'column "cost" does not exist at position 1'],
  ['items.price > 0', 'missing FROM-clause entry'],
  ['(select 1) = 1', 'an expression cannot have subqueries'],
  ['exists (select 1)', 'an expression cannot have subqueries'],
  ['price > $1', 'an expression cannot have parameters'],
  ['sum(price) > 0', 'function [sum] is not possible in an expression over one row'],
  ['array_agg(price) is null', 'function [array_agg] is not possible'],
  ['unnest(price) > 0', 'function [unnest] is not possible'],
  ['pg_sleep(1) is null', 'function [pg_sleep] is not supported'],
  [`price::regclass = 'x'`, 'type [regclass] is not supported'],
  ['repeat(unit, 1000) || repeat(unit, 1000) ~ unit', 'too large'],
])('refuses %s', async (text, message) => {
  await expect(bind(text)).rejects.toThrow(message)
})

it('calculates with many columns, up to a number of functions and operators', async () => {
  const small = [
    { id: 1, name: 'a', bytesMax: 16 },
    { id: 2, name: 'b', bytesMax: 1000 },
  ]
  const write = async (text: string) => {
    const parsed = (await parseRowExpressions([text])).get(text)
    if (parsed === undefined || parsed instanceof AppError) throw parsed
    const written = bindRowExpression(parsed, small).sql as ExpressionParts
    return expressionSql(written, (id) => ident(`c${id}`)).text
  }
  for (const operator of ['+', '-', '*', '/']) {
    const chain = (count: number) => `a${`${operator}b`.repeat(count)}`
    const written = await write(chain(EXPRESSION_CALLS_MAX))
    expect(written.replaceAll(/[()" ]/g, '')).toBe(
      chain(EXPRESSION_CALLS_MAX).replaceAll('a', 'c1').replaceAll('b', 'c2'),
    )
    await expect(write(chain(EXPRESSION_CALLS_MAX + 1))).rejects.toThrow(
      'an expression can have at most 200 functions and operators, and this one has 201',
    )
  }
  for (const text of [
    'coalesce(a, 0) - coalesce(b, a)',
    'round(b, 2) - abs(a) - greatest(a, b) - least(a, 1)',
    'extract(epoch from a::timestamptz - b::timestamptz) - 1',
    '(case when a > b then a else b end) - b::numeric - nullif(a, b)',
  ]) {
    expect(await write(text)).not.toContain('offshoot_sql')
  }
  // Keys can be removed from a document, which may be large.
  await expect(bind('unit::jsonb - unit')).rejects.toThrow('too large')
})

it.each([
  'mod(a, 2) = 0',
  'mod(d, 5) = 0',
  'sqrt(a * a + b * b) < 10 and ln(a) > 0 and log(2, b) > 0 and log(d) > 0 and exp(a) > 0',
  'div(a, b) = 1 and gcd(a, b) = 1 and lcm(a, b) > 0',
  'power(a, 2) > b ^ 2 and a ^ b > power(b, a)',
  'mod(a, 1e100) = 0 and sqrt(round(a / b, 4) * trunc(a, 10)) > 1.5e-10',
  'sqrt(power(a - b, 2) + (b - 1) ^ 2) < 5 and sqrt(power(a, -0.5)) > 0',
  `t similar to '[0-9]{4}-[0-9]{2}-[0-9]{2}' and t not similar to '(x|y)%' and t similar to 'a#%' escape '#'`,
  `t like 'a#%' escape '#'`,
  `lower(s) like '%@%' and upper(trim(s)) not like '%!%' and initcap(s) ilike 'a%'`,
  `u::text like '0%' and u::varchar(8) ~ '^[0-9a-f]+$' and (a::text) like '1%'`,
  `split_part(lower(s), '@', 2) like '%.org' and (lower(s) collate "C") ~ '^[a-z]+$'`,
  `strpos(lower(s::text), '@') > 1 and cast(d as text) like '%.50'`,
  `replace(replace(s, '.', ''), ',', '.')::numeric > 0`,
  `replace(regexp_replace(s, '[.]', '', 'g'), ',', '.')::numeric > 0`,
  `trim(s || ' ' || coalesce(s2, '')) <> '' and trim(concat_ws(' ', s, s2, 'x')) <> ''`,
  `replace(lower(trim(s)), ' ', '-') = s and translate(nullif(s, ''), 'ab', 'cd') like '%c%'`,
  `replace(case when a > 1 then s else lower(s2) end, 'abc', 'abc') like '%a%'`,
  `upper(replace(a::text, '1', '${'a'.repeat(1000)}')) like '%@%'`,
])('accepts %s, whose cost has a bound', async (text) => {
  const columns = [
    { id: 1, name: 'a', bytesMax: 16 },
    { id: 2, name: 'b', bytesMax: 16 },
    { id: 3, name: 'd', bytesMax: 516 },
    { id: 4, name: 't' },
    { id: 5, name: 's', isText: true },
    { id: 6, name: 'u', bytesMax: 16 },
    { id: 7, name: 's2', isText: true },
  ]
  const parsed = (await parseRowExpressions([text])).get(text)
  if (parsed === undefined || parsed instanceof AppError) throw parsed
  expect(columnIdsIn(bindRowExpression(parsed, columns).sql)).not.toEqual([])
})

it.each([
  'mod(price, 2) = 0',
  'sqrt(a ^ 1000) > 1',
  'sqrt(a ^ b) > 1',
  'ln(exp(a)) > 1',
  'sqrt(a * 1e100000) > 1',
  'gcd(a * 77, 1e100_000) > 1',
  `gcd(a, '1e100000') > 1`,
  'sqrt(round(a, 2000) * round(a, b))',
  'power(power(power(a, 100), 100), 100) > 1',
  'price ^ price > 1',
  `price similar to '${'a'.repeat(100)}%'`,
  `lower(price) like '%1%'`,
  `price::text like '%1%'`,
  `mod(s::numeric, 2) = 0`,
  `s like lower(s)`,
  `lower(repeat(s, 1000)) like '%@%'`,
  `(s || s) like '%@%'`,
  `upper(replace(replace(a::text, '1', '${'a'.repeat(1000)}'), 'a', '${'1'.repeat(900)}')) like '%@%'`,
  `replace(replace(s, 'a', 'bbbbbb'), 'b', 'c') = ''`,
  `replace(regexp_replace(s, 'a*', 'bbbbbb', 'g'), 'b', 'c') = ''`,
  `replace(regexp_replace(s, '(a+)', '\\1\\1\\1', 'g'), 'b', 'c') = ''`,
  `trim(s || s || s || s || s) = ''`,
  `strpos(s || s, '${'a'.repeat(600)}') = 0`,
  `replace(replace(s, s, 'bbbbbb'), 'b', 'c') = ''`,
  `s::text[] && string_to_array(s, ',')`,
])('refuses %s, whose cost has none', async (text) => {
  const columns = [
    { id: 1, name: 'a', bytesMax: 16 },
    { id: 2, name: 'b', bytesMax: 16 },
    { id: 3, name: 'price' },
    { id: 4, name: 's', isText: true },
  ]
  const parsed = (await parseRowExpressions([text])).get(text)
  if (parsed === undefined || parsed instanceof AppError) throw parsed
  expect(() => bindRowExpression(parsed, columns)).toThrow(/can be too large|more than 1000 bytes/)
})

it('limits the length of an expression', async () => {
  const text = (length: number) => `price > 0${' '.repeat(length - 9)}`
  await bind(text(LIMITS.expressionLengthMax))
  await expect(bind(text(LIMITS.expressionLengthMax + 1))).rejects.toThrow(
    'at most 2000 characters',
  )
})
