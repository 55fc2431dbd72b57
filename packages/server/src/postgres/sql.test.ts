import { describe, expect, it } from 'vitest'
import { ident, quoteIdent, sql } from './sql.js'

describe('ident', () => {
  it.each([
    ['users', '"users"'],
    ['Users', '"Users"'],
    ['a.b', '"a.b"'],
    ['a"b', '"a""b"'],
    ['"', '""""'],
    ['a b; drop table x --', '"a b; drop table x --"'],
    ["it's", '"it\'s"'],
    ['\\', '"\\"'],
    ['é', '"é"'],
    ['x'.repeat(63), `"${'x'.repeat(63)}"`],
  ])('quotes %j as %s', (name, expected) => {
    expect(quoteIdent(name)).toBe(expected)
    expect(sql`select ${ident(name)}`.text).toBe(`select ${expected}`)
  })

  it.each([
    ['nothing', ''],
    ['a NUL', 'a\0b'],
    ['64 bytes', 'x'.repeat(64)],
    ['more bytes than characters', 'é'.repeat(32)],
  ])('refuses %s', (_name, name) => {
    expect(() => ident(name)).toThrow('an SQL identifier must not')
  })
})

describe('sql', () => {
  it('sends values apart from the text', () => {
    const statement = sql`select ${"'; drop table x --"}, ${1} from ${ident('t')}`
    expect(statement.text).toBe('select $1, $2 from "t"')
    expect(statement.values).toEqual(["'; drop table x --", 1])
  })
})
