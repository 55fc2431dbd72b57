import { connect } from 'node:net'
import type { Random } from '../seeded-random.js'

const TARGETS = ['/', '/user', '/workspaces', '/db/shop:main/transaction', '/health', '*', '']
const METHODS = [
  'GET',
  'POST',
  'PUT',
  'get',
  'FOO',
  'GET\t',
  '',
  'POST POST',
  'CONNECT',
  'PRI',
  'G\u00e9T',
]
const VERSIONS = [
  'HTTP/1.1',
  'HTTP/1.0',
  'HTTP/2.0',
  'HTTP/9.9',
  'http/1.1',
  'HTTP/1.1 ',
  '',
  'HTTP/1.',
]
const HEADERS = [
  'Host: localhost',
  'Host: a\r\nHost: b',
  'Host:',
  'Content-Length: 5',
  'Content-Length: -1',
  'Content-Length: 5, 5',
  'Content-Length: 99999999999999999999',
  'Content-Length: 0x5',
  'Content-Length: 1\r\nContent-Length: 2',
  'Content-Length: 5\r\nTransfer-Encoding: chunked',
  'Transfer-Encoding: chunked',
  'Transfer-Encoding: chunked, chunked',
  'Transfer-Encoding: gzip',
  'Transfer-Encoding : chunked',
  'Transfer-Encoding:\x0bchunked',
  'Content-Type: application/json',
  'Content-Type: application/json\r\n folded',
  'Expect: 100-continue',
  'Expect: nonsense',
  'Connection: upgrade\r\nUpgrade: websocket',
  'Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__',
  'No colon here',
  ': no name',
  'Bad\u0000Name: a',
  'A: \u0000',
  'A: \u00ff\u00fe',
  `Long: ${'a'.repeat(20_000)}`,
  `${'a'.repeat(20_000)}: b`,
  Array.from({ length: 3_000 }, (_, number) => `H${number}: a`).join('\r\n'),
]
const BODIES = [
  '',
  'hello',
  '5\r\nhello\r\n0\r\n\r\n',
  '5\r\nhel',
  'zz\r\nhello\r\n0\r\n\r\n',
  '-1\r\n\r\n',
  'ffffffffffffffffffff\r\nhello\r\n0\r\n\r\n',
  `5;${'a'.repeat(20_000)}\r\nhello\r\n0\r\n\r\n`,
  '0\r\nTrailer: a\r\n\r\n',
  '{"operations":[',
  'GET /user HTTP/1.1\r\nHost: a\r\n\r\n',
]

/** Byte sequences that are almost HTTP. */
export function malformedRequest(random: Random): Buffer {
  if (random.chance(0.1)) {
    return Buffer.from(Array.from({ length: random.below(300) }, () => random.below(256)))
  }
  const lineEnd = random.weighted([
    [8, '\r\n'],
    [1, '\n'],
    [1, '\r'],
  ])
  const head = [
    `${random.pick(METHODS)} ${random.pick(TARGETS)} ${random.pick(VERSIONS)}`,
    ...random.some(HEADERS, 0.12),
  ].join(lineEnd)
  const end = random.chance(0.9) ? `${lineEnd}${lineEnd}` : ''
  return Buffer.from(`${head}${end}${random.pick(BODIES)}`, 'latin1')
}

/** Returns everything received until the connection closes; the client closes its side. */
export function exchange(port: number, bytes: Buffer, timeoutMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1')
    const received: Buffer[] = []
    const timer = setTimeout(() => {
      socket.destroy()
      reject(new Error(`the connection was still open after ${timeoutMs} ms`))
    }, timeoutMs)
    socket.on('data', (chunk) => received.push(chunk))
    // The server may close the connection during a write.
    socket.on('error', () => undefined)
    socket.on('close', () => {
      clearTimeout(timer)
      resolve(Buffer.concat(received).toString('latin1'))
    })
    socket.end(bytes)
  })
}
