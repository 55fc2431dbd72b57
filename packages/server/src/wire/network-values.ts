import { isIPv4, isIPv6 } from 'node:net'
import { invalidBinary } from './wire-error.js'

/* The binary forms of network addresses: family, bits of the network, kind, and the bytes of the address. */

const [IPV4, IPV6] = [2, 3]
const HEAD_BYTES = 4

export function encodeNetwork(text: string, { isCidr }: { isCidr: boolean }): Buffer {
  const [address = '', bits] = text.split('/')
  const bytes = isIPv4(address) ? bytesOfIPv4(address) : bytesOfIPv6(address)
  const family = bytes.length === 4 ? IPV4 : IPV6
  const head = [family, Number(bits ?? 8 * bytes.length), isCidr ? 1 : 0, bytes.length]
  return Buffer.from([...head, ...bytes])
}

export function decodeNetwork(bytes: Buffer): string {
  const [family, bits = 0, , size] = bytes
  const isKnown = (family === IPV4 && size === 4) || (family === IPV6 && size === 16)
  if (!isKnown || bytes.length !== HEAD_BYTES + size || bits > 8 * size) throw invalidBinary()
  const address = bytes.subarray(HEAD_BYTES)
  if (family === IPV4) return `${address.join('.')}/${bits}`
  return `${address.toString('hex').replace(/(....)(?=.)/g, '$1:')}/${bits}`
}

const bytesOfIPv4 = (address: string): number[] => address.split('.').map(Number)

function bytesOfIPv6(address: string): number[] {
  if (!isIPv6(address)) throw new Error('a network address must be one of IPv4 or IPv6')
  // The last groups can be written as an address of IPv4.
  const groups = address.replace(/[\d.]+$/, (end) => {
    if (!isIPv4(end)) return end
    return (Buffer.from(bytesOfIPv4(end)).toString('hex').match(/..../g) ?? []).join(':')
  })
  const [before = [], after = []] = groups
    .split('::')
    .map((side) => (side === '' ? [] : side.split(':')))
  const zeros = new Array<string>(8 - before.length - after.length).fill('0')
  const hex = [...before, ...zeros, ...after].map((group) => group.padStart(4, '0')).join('')
  return [...Buffer.from(hex, 'hex')]
}
