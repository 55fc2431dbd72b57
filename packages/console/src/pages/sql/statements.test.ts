import { describe, expect, it } from 'vitest'
import { splitStatements } from './statements.js'

const texts = (sql: string) => splitStatements(sql).map(({ text }) => text)

describe('splitStatements', () => {
  it('splits at semicolons and leaves out empty statements', () => {
    expect(texts(' select 1 ;; select 2; ')).toEqual(['select 1', 'select 2'])
    expect(texts('')).toEqual([])
    expect(texts('-- only a comment')).toEqual([])
  })

  it.each([
    "select ';', 'it''s;'",
    'select ";"" ;"',
    "select e'\\';'",
    'select $$;$$, $tag$ ; $$ ; $tag$',
    'select 1 -- ; \n + 1',
    'select /* ; /* ; */ ; */ 1',
    "select 'not closed ;",
  ])('keeps %s together', (sql) => {
    expect(texts(sql)).toEqual([sql])
  })

  it('knows where statements are', () => {
    const sql = ' select 1;\n select 2'
    expect(splitStatements(sql).map(({ start, end }) => sql.slice(start, end))).toEqual([
      'select 1',
      'select 2',
    ])
  })
})
