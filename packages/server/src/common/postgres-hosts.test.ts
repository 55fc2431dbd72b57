import { describe, expect, it } from 'vitest'
import { parseHosts } from './postgres-hosts.js'

describe('an address of PostgreSQL', () => {
  it('with one server stays as it is', () => {
    const url = 'postgresql://me:secret@db.example:5433/app?sslmode=require'
    expect(parseHosts(url)).toEqual([{ name: 'db.example:5433', url }])
    expect(parseHosts('postgres://db')?.[0]?.name).toBe('db:5432')
    expect(parseHosts('postgres://localhost/app?host=/run/pg')?.[0]?.name).toBe('/run/pg:5432')
  })

  it('with several servers is split into one address for each', () => {
    expect(
      parseHosts(
        'postgresql://me:a%2Cb@one:5433,two,[::1]:5434/app?target_session_attrs=primary&x=1',
      ),
    ).toEqual([
      { name: 'one:5433', url: 'postgresql://me:a%2Cb@one:5433/app?x=1' },
      { name: 'two:5432', url: 'postgresql://me:a%2Cb@two:5432/app?x=1' },
      { name: '[::1]:5434', url: 'postgresql://me:a%2Cb@[::1]:5434/app?x=1' },
    ])
  })

  it('may list servers in its parameters, with one port for all or one for each', () => {
    expect(parseHosts('postgresql:///app?host=/run/a,two&port=6000')).toEqual([
      { name: '/run/a:6000', url: 'postgresql://localhost:6000/app?host=%2Frun%2Fa' },
      { name: 'two:6000', url: 'postgresql://two:6000/app' },
    ])
    expect(parseHosts('postgresql:///app?host=one,two&port=1,2')?.map(({ name }) => name)).toEqual([
      'one:1',
      'two:2',
    ])
  })

  it.each([
    'mysql://one/app',
    'postgresql://',
    'postgresql://one,/app',
    'postgresql://one:x,two/app',
    'postgresql:///app?host=one,two,three&port=1,2',
    'postgresql://one,two/app?target_session_attrs=standby',
  ])('is refused if it is %s', (url) => {
    expect(parseHosts(url)).toBeUndefined()
  })
})
