import { describe, expect, it } from 'vitest'
import { contentOf } from '../../dialect/nodes.js'
import { isLookup } from './lookup.js'
import { parseStatement } from './parse-statement.js'

async function decide(text: string): Promise<boolean> {
  const select = contentOf((await parseStatement(text, 0)).node, 'SelectStmt')
  if (select === undefined) throw new Error('the statement must be a query')
  return isLookup(select)
}

describe('a lookup', () => {
  it.each([
    'select * from users where id = $1',
    'select name, "age" as a from users where $1 = id',
    `select u.* from users u where u.id = 'a'`,
    'select u.name from users as u where (u.id = $1::text and 1 = 1) limit $2 offset $3',
    'select id from users where id = $1 and team = $2 order by name limit 1',
  ])('finds a record by its id: %s', async (text) => {
    expect(await decide(text)).toBe(true)
  })

  it.each([
    'select * from users',
    'select * from users where name = $1',
    'select * from users where id = name',
    'select * from users where id > $1',
    'select * from users where id = $1 or true',
    'select * from users where id = $1 and age > (select count(*) from users)',
    'select * from users where id = lower($1)',
    'select upper(name) from users where id = $1',
    'select (select count(*) from users) from users where id = $1',
    'select distinct name from users where id = $1',
    'select name from users where id = $1 group by name',
    'select * from users where id = $1 limit (select 1)',
    'select * from users where id = $1 order by upper(name)',
    'select * from users where id = $1 union all select * from users',
    'select * from users u, teams t where u.id = $1',
    'select * from users u join teams t on true where u.id = $1',
    'select * from (select * from users) u where u.id = $1',
    'with u as (select 1 as id) select * from u where id = $1',
    'select * from generate_series(1, 1000) as s(id) where id = $1',
    'values (1)',
  ])('is not what can take long: %s', async (text) => {
    expect(await decide(text)).toBe(false)
  })
})
