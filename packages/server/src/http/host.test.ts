import { describe, expect, it } from 'vitest'
import { isLoopback, parseHost, toHostName } from './host.js'

describe('parseHost', () => {
  it.each([
    ['', '', ''],
    ['localhost', 'localhost', ''],
    ['LocalHost:6001', 'localhost', '6001'],
    ['a.b.example.com:', 'a.b.example.com', ''],
    ['127.0.0.1:65535', '127.0.0.1', '65535'],
    ['[::1]:80', '[::1]', '80'],
    ['[2001:DB8::1]', '[2001:db8::1]', ''],
    ['%C3%A9.example', '%c3%a9.example', ''],
    ["a!$&'()*+,;=~_-.b", "a!$&'()*+,;=~_-.b", ''],
  ])('reads %j', (text, name, port) => {
    expect(parseHost(text)).toEqual({ name, port })
  })

  it.each(['a"b<x>', 'a b', 'a@b', 'a/b', 'a?b', 'a#b', 'a:b', 'a:1:2', ':::', '[a]', '[::1', 'é'])(
    'finds no host in %j',
    (text) => {
      expect(parseHost(text)).toBeUndefined()
    },
  )

  it.each(['%', '%1', '%gg', '[fe80::1%eth0]', 'a\\b', 'a\u0000', 'a\n', '[::1]x', 'a:65536'])(
    'does not take %j either',
    (text) => {
      expect(parseHost(text)).toBeUndefined()
    },
  )
})

describe('isLoopback', () => {
  const isLocal = (text: string) => isLoopback(parseHost(text) ?? { name: '', port: '' })

  it.each([
    'localhost',
    'LOCALHOST:1',
    'a.b.localhost',
    'localhost.',
    '127.0.0.1',
    '127.9.9.9:1',
    '[::1]',
  ])('is true of %s', (text) => {
    expect(isLocal(text)).toBe(true)
  })

  it.each([
    '',
    'example.com',
    'notlocalhost',
    'localhost.example.com',
    '127.0.0.1.example.com',
    '10.0.0.1',
    '[::2]',
  ])('is false of %j', (text) => {
    expect(isLocal(text)).toBe(false)
  })
})

describe('toHostName', () => {
  it.each([
    ['127.0.0.1', '127.0.0.1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['::1', '[::1]'],
    ['fe80::1%eth0', '[fe80::1]'],
  ])('writes %s as %s', (address, name) => {
    expect(toHostName(address)).toBe(name)
  })
})
