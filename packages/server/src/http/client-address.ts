import type { IncomingMessage } from 'node:http'
import { BlockList, isIP, isIPv4 } from 'node:net'

/** The proxies whose `X-Forwarded-For` header is trusted. */
export class TrustedProxies {
  readonly #list = new BlockList()

  /**
   * Takes addresses and networks, such as `10.0.0.1` and `fd00::/8`. Throws if an entry is neither.
   */
  constructor(entries: readonly string[]) {
    for (const entry of entries) {
      const [address = '', bits] = entry.split('/')
      const family = familyOf(address)
      if (bits === undefined) this.#list.addAddress(address, family)
      else this.#list.addSubnet(address, Number(bits), family)
    }
  }

  has(address: string): boolean {
    return isIP(address) !== 0 && this.#list.check(address, familyOf(address))
  }
}

/**
 * Returns the address of the client: the last one in the chain that is not a trusted proxy. Entries
 * of `X-Forwarded-For` before it can be forged by the client.
 */
export function clientAddress(request: IncomingMessage, trusted: TrustedProxies): string {
  let address = plainAddress(request.socket.remoteAddress ?? '')
  if (!trusted.has(address)) return address
  const header = request.headers['x-forwarded-for']
  const hops = String(header ?? '').split(',')
  for (const hop of hops.reverse()) {
    const next = plainAddress(hop.trim())
    if (isIP(next) === 0) return address
    address = next
    if (!trusted.has(address)) return address
  }
  return address
}

/**
 * Returns the group that limits per address are counted for. An IPv6 address counts by its /64,
 * because a client usually controls all of that network.
 */
export function addressGroup(address: string): string {
  if (isIP(address) !== 6) return address
  const [head = '', tail] = address.split('::')
  const groups = (text: string) => (text === '' ? [] : text.split(':'))
  const front = groups(head)
  const back = tail === undefined ? [] : groups(tail)
  const zeros = Array.from({ length: Math.max(0, 8 - front.length - back.length) }, () => '0')
  const all = tail === undefined ? front : [...front, ...zeros, ...back]
  const prefix = all.slice(0, 4).map((group) => Number.parseInt(group, 16).toString(16))
  return `${prefix.join(':')}::/64`
}

/** Removes port and zone, and turns an IPv4-mapped IPv6 address into IPv4. */
export function plainAddress(text: string): string {
  const bare = /^\[([^\]]*)\](?::\d+)?$/.exec(text)?.[1] ?? /^([\d.]+):\d+$/.exec(text)?.[1] ?? text
  const [address = ''] = bare.toLowerCase().split('%')
  const mapped = /^::ffff:([\d.]+)$/.exec(address)?.[1]
  return mapped !== undefined && isIPv4(mapped) ? mapped : address
}

function familyOf(address: string): 'ipv4' | 'ipv6' {
  return isIPv4(address) ? 'ipv4' : 'ipv6'
}
