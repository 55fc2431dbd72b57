import { describe, expect, it } from 'vitest'
import { nodeTableIn, onNode, tableIn } from './place.js'
import { ident, literal, sql } from './sql.js'
import { compileStatement, slot, toQuery } from './statement.js'

const HEAP = tableIn('offshoot_db_7', 'heap_1')
const id = slot(0)

describe('a statement', () => {
  it.each([
    ['a query', sql`select * from ${HEAP}`],
    ['a query that locks rows', sql`select id from ${HEAP} h for update of h`],
    ['a query about words', sql`select ${literal('insert into')} from ${HEAP}`],
    ['a definition', sql`create table ${HEAP} (id text)`],
    ['a copy', sql`copy ${HEAP} (id) from stdin`],
  ])('knows the schema of its tables: %s', (_what, template) => {
    expect(compileStatement(template).use).toMatchObject({
      schema: 'offshoot_db_7',
      isWrite: false,
      isOnNode: false,
    })
  })

  it.each([
    sql`insert into ${HEAP} values (${id})`,
    sql`insert into
      ${HEAP} as h values (${id})`,
    sql`update ${HEAP} h set id = ${id}`,
    sql`with gone as (delete from ${HEAP} returning id) select id from gone`,
    sql`with u as (select 1 from ${HEAP}) insert into ${HEAP} select * from u`,
  ])('knows that it writes %#', (template) => {
    expect(compileStatement(template).use?.isWrite).toBe(true)
  })

  it.each([
    ['the catalogue', sql`insert into offshoot.heaps (id) values (${id})`],
    ['other schemas', sql`insert into ${tableIn('offshoot_work', 'stage')} values (${id})`],
    ['names in constants', sql`select ${literal('"offshoot_db_7"."heap_1"')}`],
    ['columns of that name', sql`select ${ident('offshoot_db_7')} from t`],
  ])('uses no tables of a database: %s', (_what, template) => {
    expect(compileStatement(template).use).toBeUndefined()
  })

  it('knows that only a node can run it', () => {
    const table = nodeTableIn('offshoot_db_7', 'node_ab12_ids')
    expect(toQuery(sql`select n from ${table}`).use?.isOnNode).toBe(true)
    const pinned = toQuery(sql`${onNode('offshoot_db_7')} select pg_current_snapshot()`)
    expect(pinned.text).toBe(' select pg_current_snapshot()')
    expect(pinned.use).toEqual({
      schema: 'offshoot_db_7',
      isWrite: false,
      isOnNode: true,
      names: [],
    })
  })

  it('knows where its text has the names of tables', () => {
    const past = tableIn('offshoot_db_7', 'past_1')
    const { text, use } = compileStatement(sql`
      select ${id}, ${literal('"offshoot_db_7"."heap_1"')} from ${HEAP} h join ${past} p using (id)`)
    expect(use?.names.map(({ start, end }) => text.slice(start, end))).toEqual([
      '"offshoot_db_7"."heap_1"',
      '"offshoot_db_7"."past_1"',
    ])
  })
})
