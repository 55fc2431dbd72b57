import type { IncomingMessage } from 'node:http'
import { describe, expect, it } from 'vitest'
import { hostAddress, rewriteUrl } from './address.js'

const options = { regionIds: new Set(['local', 'eu']), publicHost: 'db.eu.example.com' }

describe('hostAddress', () => {
  it.each([
    ['home-abc123.local.localhost:6001', 'home-abc123', 'local'],
    ['home-abc123.local.localhost', 'home-abc123', 'local'],
    ['HOME-ABC123.LOCAL.LOCALHOST:6001', 'home-abc123', 'local'],
    ['home-abc123.mars.localhost', 'home-abc123', 'mars'],
    ['home-abc123.eu.db.example.com:443', 'home-abc123', 'eu'],
    ['home-abc123.mars.db.example.com', 'home-abc123', 'mars'],
    ['home-abc123.eu.upload.db.example.com', 'home-abc123', 'eu'],
    ['anything.eu.example.com', 'anything', 'eu'],
    ['a.b.localhost', 'a', 'b'],
  ])('reads workspace and region of %s', (host, workspaceId, region) => {
    expect(hostAddress(host, options)).toEqual({ workspaceId, region })
  })

  it.each([
    undefined,
    '',
    'localhost',
    'localhost:6001',
    'eu.localhost',
    'example.com',
    'api.example.com',
    'db.eu.example.com',
    'DB.EU.example.com:8443',
    '127.0.0.1',
    '127.0.0.1:6001',
    '[::1]:6001',
    '[::ffff:1.2.3.4]',
    'home-abc123.eu',
  ])('finds none in %s', (host) => {
    expect(hostAddress(host, options)).toBeUndefined()
  })
})

describe('rewriteUrl', () => {
  it.each([
    ['/home-abc123.local/db/shop:main', '/db/shop:main'],
    ['/home-abc123.local.xata.sh/db/shop:main?a=b.c', '/db/shop:main?a=b.c'],
    ['/home-abc123.local/dbs/shop', '/dbs/shop'],
    ['/home-abc123.local/', '/home-abc123.local/'],
    ['/home-abc123.local/metrics', '/home-abc123.local/metrics'],
    ['/home-abc123.local/file/x', '/home-abc123.local/file/x'],
    ['/home-abc123.local/workspaces', '/home-abc123.local/workspaces'],
    ['/home-abc123.local/dbsx/shop', '/home-abc123.local/dbsx/shop'],
    ['/home-abc123.local/a.b/db/shop:main', '/home-abc123.local/a.b/db/shop:main'],
    ['http://localhost/metrics?x', '/metrics?x'],
    ['HTTPS://localhost', '/'],
    ['/home-abc123.local', '/home-abc123.local'],
    ['/openapi.json', '/openapi.json'],
    ['/openapi.json?x=/y', '/openapi.json?x=/y'],
    ['/docs/static/index.css', '/docs/static/index.css'],
    ['/db/shop:main', '/db/shop:main'],
    ['/db?x=a.b/c', '/db?x=a.b/c'],
    ['/a.b//db/c', '/a.b//db/c'],
    ['*', '*'],
    ['', ''],
  ])('makes of %s the path %s', (url, expected) => {
    expect(rewriteUrl({ url, headers: {} } as IncomingMessage)).toBe(expected)
  })

  it('takes the host of a target instead of the header', () => {
    const request = { url: 'http://b:1/db/x', headers: { host: 'a' } } as IncomingMessage
    expect(rewriteUrl(request)).toBe('/db/x')
    expect(request.headers.host).toBe('b:1')
  })
})
