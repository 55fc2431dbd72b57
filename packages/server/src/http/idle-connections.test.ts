import { once } from 'node:events'
import { createServer, request as httpRequest } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { closeIdleConnections } from './idle-connections.js'
import { handleOneAtATime } from './one-at-a-time.js'

const HEAD = 'GET / HTTP/1.1\r\nhost: localhost\r\n\r\n'

const server = createServer((_request, response) => response.end('hello'))
let port: number

beforeAll(async () => {
  const answerOf = handleOneAtATime(server)
  closeIdleConnections(server, { idleMsMax: 100, checkMs: 20, answerOf })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  port = (server.address() as AddressInfo).port
})
afterAll(() => server.close())

describe('an idle connection', () => {
  it('is closed although its client sends line breaks', async () => {
    const socket = connect(port, '127.0.0.1').on('error', () => undefined)
    const closed = once(socket, 'close')
    socket.resume().write(HEAD)
    let isOpen = true
    void closed.then(() => {
      isOpen = false
    })
    while (isOpen) {
      socket.write('\r\n')
      await delay(10)
    }
    expect(isOpen).toBe(false)
  })

  it('is not closed while it is used', async () => {
    const socket = connect(port, '127.0.0.1')
    for (let count = 0; count < 20; count++) {
      socket.write(HEAD)
      const [answer] = await once(socket, 'data')
      expect(String(answer)).toMatch(/^HTTP\/1.1 200 /)
    }
    socket.destroy()
  })

  it('is not the connection of an answer that takes long', async () => {
    const slow = createServer((_request, response) => {
      response.write('a')
      setTimeout(() => response.end('b'), 400)
    })
    closeIdleConnections(slow, { idleMsMax: 50, checkMs: 10, answerOf: handleOneAtATime(slow) })
    slow.listen(0, '127.0.0.1')
    await once(slow, 'listening')
    const outgoing = httpRequest({ port: (slow.address() as AddressInfo).port, host: '127.0.0.1' })
    outgoing.end()
    const [response] = await once(outgoing, 'response')
    const parts: Buffer[] = []
    for await (const part of response) parts.push(part)
    expect(Buffer.concat(parts).toString()).toBe('ab')
    slow.close()
    slow.closeAllConnections()
  })
})
