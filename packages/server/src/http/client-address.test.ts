import type { IncomingMessage } from 'node:http'
import { describe, expect, it } from 'vitest'
import { addressGroup, clientAddress, TrustedProxies } from './client-address.js'

const from = (remoteAddress: string, forwarded?: string) =>
  ({
    socket: { remoteAddress },
    headers: forwarded === undefined ? {} : { 'x-forwarded-for': forwarded },
  }) as unknown as IncomingMessage

const trusted = new TrustedProxies(['10.0.0.0/8', '192.168.1.1', 'fd00::/8'])

describe('the address of a client', () => {
  it.each([
    ['a connection', '203.0.113.7', undefined, '203.0.113.7'],
    ['IPv4 in IPv6', '::ffff:203.0.113.7', undefined, '203.0.113.7'],
    ['a stranger who claims another', '203.0.113.7', '198.51.100.1', '203.0.113.7'],
    ['a trusted proxy', '10.1.2.3', '198.51.100.1', '198.51.100.1'],
    ['a trusted proxy by IPv6', 'fd00::1', '2001:db8::1', '2001:db8::1'],
    ['two trusted proxies', '10.1.2.3', '198.51.100.1, 192.168.1.1', '198.51.100.1'],
    ['a claim before a trusted proxy', '10.1.2.3', '1.1.1.1, 198.51.100.1', '198.51.100.1'],
    ['a port', '10.1.2.3', '198.51.100.1:4711', '198.51.100.1'],
    ['a port of IPv6', '10.1.2.3', '[2001:db8::1]:4711', '2001:db8::1'],
    ['nonsense', '10.1.2.3', 'unknown', '10.1.2.3'],
    ['no header', '10.1.2.3', undefined, '10.1.2.3'],
    ['only proxies', '10.1.2.3', '10.9.9.9', '10.9.9.9'],
  ])('is read from %s', (_name, remote, forwarded, expected) => {
    expect(clientAddress(from(remote, forwarded), trusted)).toBe(expected)
  })

  it.each([
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:db8:1:2::9', '2001:db8:1:2::/64'],
    ['2001:0DB8::1', '2001:db8:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['2001:db8:1:2:3::', '2001:db8:1:2::/64'],
    ['203.0.113.7', '203.0.113.7'],
  ])('counts as one with its neighbours: %s', (address, group) => {
    expect(addressGroup(address)).toBe(group)
  })

  it.each(['10.0.0.0/33', 'nonsense', '10.0.0', ''])('is no proxy: %s', (entry) => {
    expect(() => new TrustedProxies([entry])).toThrow()
  })
})
