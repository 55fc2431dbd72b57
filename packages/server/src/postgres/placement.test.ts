import { describe, expect, it } from 'vitest'
import { placeText } from './placement.js'

const HEAP = '"offshoot_db_7"."heap_1"'

describe('the place of a statement', () => {
  it.each([
    ['a query', `select * from ${HEAP}`],
    ['a query that locks rows', `select id from ${HEAP} for update skip locked`],
    ['a query about words', `select 'insert into x; delete from y' from ${HEAP} -- update z`],
    ['the catalogue', 'insert into offshoot.heaps (id) values ($1)'],
    ['a definition', `create table ${HEAP} (id text)`],
    ['a lock', `lock table ${HEAP} in access share mode`],
    ['a copy', `copy ${HEAP} (id) from stdin`],
  ])('is the coordinator for %s', (_what, text) => {
    expect(placeText(text).placement).toBeUndefined()
  })

  it.each([
    [`insert into ${HEAP} values ($1)`, 'nothing'],
    [`insert into ${HEAP} values ($1) returning id`, 'rows'],
    [`update ${HEAP} h set id = $1`, 'nothing'],
    [`delete from ${HEAP} where id in (select id from u)`, 'nothing'],
    [`with g as (delete from ${HEAP} returning id) select id from g`, 'rows'],
    [`with u as (select 1) insert into ${HEAP} select * from u on conflict do nothing`, 'nothing'],
    [
      `with k as (insert into ${HEAP} values (1) returning id) update ${HEAP} set id = 2`,
      'nothing',
    ],
  ])('is the node of the schema for %s', (text, kind) => {
    expect(placeText(text).placement).toEqual({ schema: 'offshoot_db_7', kind, isWrite: true })
  })

  it('is the node for tables that exist there only', () => {
    const table = '"offshoot_db_7"."node_ab12_ids"'
    expect(placeText(`select n from ${table}`).placement).toEqual({
      schema: 'offshoot_db_7',
      kind: 'rows',
      isWrite: false,
    })
    expect(placeText(`create unlogged table ${table} (n bigint)`).placement).toEqual({
      schema: 'offshoot_db_7',
      kind: 'utility',
      isWrite: true,
    })
  })
})

describe('the parts of a statement', () => {
  const tablesOf = (text: string) => placeText(text).parts.filter((_, index) => index % 2 === 1)

  it('are the names of tables, and what is between them', () => {
    const text = `select * from ${HEAP} h join "offshoot_db_7".past_1 p on p.id = h.id`
    expect(tablesOf(text)).toEqual([HEAP, '"offshoot_db_7".past_1'])
    expect(placeText(text).parts.join('')).toBe(text)
  })

  it.each([
    `select '${HEAP}'`,
    `select E'it''s \\'${HEAP}'`,
    `select 1 -- ${HEAP}`,
    `select 1 /* ${HEAP} */`,
    'select * from "offshoot_db_x"."heap_1"',
    'select "offshoot_db_7" from t',
  ])('have no table in %s', (text) => {
    expect(tablesOf(text)).toEqual([])
    expect(placeText(text).parts).toEqual([text])
  })
})
