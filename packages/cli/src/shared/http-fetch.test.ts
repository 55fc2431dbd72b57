import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer, text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { httpFetch } from './http-fetch.js'

describe('requests of commands', () => {
  let server: http.Server
  let url: string
  let ended: Promise<unknown>

  beforeAll(async () => {
    server = http.createServer(async (request, response) => {
      if (request.url === '/empty') response.writeHead(204).end()
      else if (request.url === '/elsewhere') response.writeHead(302, { location: '/' }).end()
      else if (request.url === '/refused') response.writeHead(413).end('too large')
      else if (request.url === '/slow') {
        ended = once(response, 'close')
        response.write('first')
      } else if (request.url === '/cut') {
        response.writeHead(200, { 'content-length': 10 }).write('first', () => response.destroy())
      } else {
        const { method, headers } = request
        const body = (await buffer(request)).toString('latin1')
        response.setHeader('content-type', 'application/json')
        response.end(JSON.stringify({ method, headers, body }))
      }
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  })
  afterAll(() => {
    server.closeAllConnections()
    server.close()
  })

  it.each([
    ['a text', () => 'a ü', { 'content-length': '4' }],
    ['bytes', () => new Uint8Array([97, 32, 195, 188]), { 'content-length': '4' }],
    ['a blob', () => new Blob(['a ', 'ü']), { 'content-length': '4' }],
    ['a stream', () => new Blob(['a ü']).stream(), { 'transfer-encoding': 'chunked' }],
  ])('send %s', async (_name, body, headers) => {
    const response = await httpFetch(`${url}/some?x=1`, {
      method: 'PUT',
      headers: { authorization: 'Bearer key' },
      body: body(),
    })
    expect(response).toMatchObject({ status: 200, ok: true })
    expect(response.headers.get('Content-Type')).toBe('application/json')
    expect(await response.json()).toMatchObject({
      method: 'PUT',
      headers: { authorization: 'Bearer key', ...headers },
      body: 'a \u00c3\u00bc',
    })
  })

  it('have answers without a body, and follow none to another place', async () => {
    const empty = await httpFetch(`${url}/empty`)
    expect(empty).toMatchObject({ status: 204, body: null })
    const moved = await httpFetch(`${url}/elsewhere`)
    expect(moved).toMatchObject({ status: 302, ok: false })
    expect(moved.headers.get('location')).toBe('/')
  })

  it('stop to send what the server has refused', async () => {
    let isCancelled = false
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(100_000)),
      cancel() {
        isCancelled = true
      },
    })
    const response = await httpFetch(`${url}/refused`, { method: 'POST', body: endless })
    expect(response.status).toBe(413)
    expect(await response.text()).toBe('too large')
    await expect.poll(() => isCancelled).toBe(true)
  })

  it('name the reason if there is no answer, or only a part of one', async () => {
    const other = http.createServer()
    await once(other.listen(0, '127.0.0.1'), 'listening')
    const { port } = other.address() as AddressInfo
    other.close()
    await once(other, 'close')
    await expect(httpFetch(`http://127.0.0.1:${port}`)).rejects.toMatchObject({
      name: 'TypeError',
      cause: { code: 'ECONNREFUSED' },
    })
    const cut = await httpFetch(`${url}/cut`)
    await expect(cut.text()).rejects.toThrow()
  })

  it('fail if their body does', async () => {
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        controller.error(new Error('the file is gone'))
      },
    })
    await expect(httpFetch(`${url}/some`, { method: 'POST', body })).rejects.toMatchObject({
      cause: { message: 'the file is gone' },
    })
  })

  it('end when they are cancelled, before and within the answer', async () => {
    const early = AbortSignal.abort(new Error('no longer needed'))
    await expect(httpFetch(url, { signal: early })).rejects.toThrow('no longer needed')
    const late = new AbortController()
    const response = await httpFetch(`${url}/slow`, { signal: late.signal })
    const rest = text(response.body as never)
    late.abort()
    await expect(rest).rejects.toThrow()
    await ended
  })
})
