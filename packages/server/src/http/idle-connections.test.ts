import { once } from 'node:events'
import { createServer, request as httpRequest, type RequestListener } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { closeIdleConnections, keepWorkingConnections } from './idle-connections.js'
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
    let isOpen = true
    // A line break that arrives after the end is answered by a reset.
    const socket = connect(port, '127.0.0.1').on('error', () => undefined)
    socket.on('close', () => {
      isOpen = false
    })
    socket.resume().write(HEAD)
    while (isOpen) {
      socket.write('\r\n')
      await delay(10)
    }
    expect(isOpen).toBe(false)
  })

  /** A clock that only a test moves. */
  function startClock() {
    let checks = 0
    const clock = {
      time: 0,
      now: () => {
        checks++
        return clock.time
      },
      /** What has happened has been seen once a whole check has passed. */
      async checked() {
        for (const from = checks; checks < from + 2; ) await delay(5)
      },
    }
    return clock
  }

  it('is not closed while it is used', async () => {
    const clock = startClock()
    const used = createServer((_request, response) => response.end('hello'))
    closeIdleConnections(used, {
      idleMsMax: 100,
      checkMs: 5,
      answerOf: handleOneAtATime(used),
      now: clock.now,
    })
    used.listen(0, '127.0.0.1')
    await once(used, 'listening')
    const socket = connect((used.address() as AddressInfo).port, '127.0.0.1')
    const closed = new Promise<void>((resolve) => socket.on('close', () => resolve()))
    for (let count = 0; count < 5; count++) {
      socket.write(HEAD)
      const [answer] = await once(socket, 'data')
      expect(String(answer)).toMatch(/^HTTP\/1.1 200 /)
      await clock.checked()
      clock.time += 80
      await clock.checked()
    }
    clock.time += 80
    await closed
    used.close()
  })

  it('is not the connection of an answer that takes long', async () => {
    const clock = startClock()
    const slow = createServer(async (_request, response) => {
      response.write('a')
      await clock.checked()
      clock.time += 1000
      await clock.checked()
      response.end('b')
    })
    closeIdleConnections(slow, {
      idleMsMax: 50,
      checkMs: 10,
      answerOf: handleOneAtATime(slow),
      now: clock.now,
    })
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

describe('a silent connection', () => {
  const TIMEOUT_MS = 50

  /** Connects to a server with a timeout, whose requests are handled so. */
  async function connectTo(handle: RequestListener) {
    const server = createServer(handle)
    server.timeout = TIMEOUT_MS
    keepWorkingConnections(server, handleOneAtATime(server))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
    const closed = new Promise<void>((resolve) => socket.on('close', () => resolve()))
    return { server, socket, closed }
  }

  it('is kept while the service works on its request', async () => {
    const { server, socket } = await connectTo((_request, response) => {
      setTimeout(() => response.end('hello'), 6 * TIMEOUT_MS)
    })
    socket.write(HEAD)
    const [answer] = await once(socket, 'data')
    expect(String(answer)).toMatch(/^HTTP\/1.1 200 /)
    socket.destroy()
    server.close()
  })

  it.each([
    ['before a request', ''],
    ['in the middle of headers', HEAD.slice(0, 10)],
    ['after an answer has begun', HEAD],
  ])('is closed %s', async (_when, text) => {
    const { server, socket, closed } = await connectTo((_request, response) => response.write('a'))
    socket.resume().write(text)
    await closed
    server.close()
  })
})
