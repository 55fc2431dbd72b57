import { isIPv4, isIPv6 } from 'node:net'

/** RFC 3986, `reg-name`: the name that a DNS or another registry knows. IPv4 addresses are of that form. */
const REGISTERED_NAME = /^(?:[\w.~!$&'()*+,;=-]|%[0-9a-f]{2})*$/i
const PORT_MAX = 65_535

export interface Host {
  /** In lower case; an IPv6 address with its brackets. */
  readonly name: string
  /** As it was written; empty when none was. */
  readonly port: string
}

/** Reads `host [ ":" port ]` as RFC 3986 defines it; undefined when the text is nothing of the kind. */
export function parseHost(text: string): Host | undefined {
  const match = /^(\[[^\]]*\]|[^:[\]]*)(?::(\d*))?$/.exec(text)
  if (match === null) return undefined
  const [, name = '', port = ''] = match
  if (Number(port) > PORT_MAX) return undefined
  const isValid = name.startsWith('[')
    ? isIPv6(name.slice(1, -1)) && !name.includes('%')
    : REGISTERED_NAME.test(name)
  return isValid ? { name: name.toLowerCase(), port } : undefined
}

/** `localhost` and the names below it, 127.0.0.0/8 and ::1. */
export function isLoopback({ name }: Host): boolean {
  return (
    /^(?:.*\.)?localhost\.?$/.test(name) ||
    (isIPv4(name) && name.startsWith('127.')) ||
    name === '[::1]'
  )
}

/** The form that an address of a socket has in a URL. */
export function toHostName(address: string): string {
  const plain = address.replace(/^::ffff:(?=\d+\.)/, '').replace(/%.*$/, '')
  return isIPv6(plain) ? `[${plain}]` : plain
}
