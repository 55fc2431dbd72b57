import { isIPv4, isIPv6 } from 'node:net'

/** `reg-name` of RFC 3986: a host name, or an IPv4 address. */
const REGISTERED_NAME = /^(?:[\w.~!$&'()*+,;=-]|%[0-9a-f]{2})*$/i
const PORT_MAX = 65_535

export interface Host {
  /** In lower case; an IPv6 address with its brackets. */
  readonly name: string
  /** As written; empty if there is none. */
  readonly port: string
}

/** Parses `host [ ":" port ]` as defined by RFC 3986. Returns undefined if the text is invalid. */
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

/** Returns whether the host is `localhost`, a name below it, in 127.0.0.0/8, or ::1. */
export function isLoopback({ name }: Host): boolean {
  return (
    /^(?:.*\.)?localhost\.?$/.test(name) ||
    (isIPv4(name) && name.startsWith('127.')) ||
    name === '[::1]'
  )
}

/** Formats the address of a socket as the host of a URL. */
export function toHostName(address: string): string {
  const plain = address.replace(/^::ffff:(?=\d+\.)/, '').replace(/%.*$/, '')
  return isIPv6(plain) ? `[${plain}]` : plain
}
