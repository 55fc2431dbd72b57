import { UsageError } from './failure.js'

/** An address in one spelling, so that a key is found again, and compared with nothing else. */
export function normalizeAddress(address: string): string {
  const url = URL.canParse(address) ? new URL(address) : undefined
  const isHttp = url?.protocol === 'http:' || url?.protocol === 'https:'
  if (url === undefined || !isHttp || url.username || url.password || url.search || url.hash) {
    throw new UsageError(
      `[${address}] is not the address of a server, such as http://127.0.0.1:6001`,
    )
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`
}
