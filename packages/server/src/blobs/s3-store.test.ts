import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import http from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { S3Store } from './s3-store.js'

const HASH = 'a'.repeat(64)

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'offshoot-s3-'))
})
afterAll(async () => {
  await rm(folder, { recursive: true, force: true })
})

/** A store with a server of its own behind it. */
async function withStore(
  answer: http.RequestListener,
  body: (store: S3Store) => Promise<void>,
): Promise<void> {
  const server = http.createServer(answer).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const store = new S3Store({
    endpoint: `http://127.0.0.1:${port}`,
    region: 'us-east-1',
    bucket: 'files',
    prefix: '',
    keyId: 'key',
    secret: 'secret',
    spoolFolder: folder,
  })
  try {
    await store.prepare()
    await body(store)
  } finally {
    server.closeAllConnections()
    server.close()
  }
}

describe('S3Store', () => {
  it('lists page by page, with what the store gave it to go on', async () => {
    const names = ['a', 'b', 'c'].map((letter) => letter.repeat(64))
    const answer: http.RequestListener = (request, response) => {
      const asked = new URL(`http://store${request.url}`).searchParams.get('continuation-token')
      const page = asked === null ? 0 : Number(asked.slice('a+/=&'.length))
      const next =
        page < 2 ? `<NextContinuationToken>a+/=&amp;${page + 1}</NextContinuationToken>` : ''
      response.end(`<List><Contents><Key>${names[page]}</Key></Contents>${next}</List>`)
    }
    await withStore(answer, async (store) => {
      const listed: string[] = []
      for await (const name of store.list()) listed.push(name)
      expect(listed).toEqual(names)
    })
  })

  it('asks again when the store has closed a connection that was kept', async () => {
    const used = new Set<Socket>()
    const received: string[] = []
    const answer: http.RequestListener = async (request, response) => {
      if (used.has(request.socket)) {
        request.socket.destroy()
        return
      }
      used.add(request.socket)
      let text = ''
      for await (const chunk of request) text += chunk
      received.push(`${request.method} ${text}`.trim())
      response.writeHead(request.method === 'HEAD' ? 404 : 200, { 'content-length': 0 }).end()
    }
    await withStore(answer, async (store) => {
      expect(await store.has(HASH)).toBe(false)
      // A connection is free again a moment after its answer.
      await delay(20)
      expect(await store.has(HASH)).toBe(false)
      await delay(20)
      await store.put(Readable.from([Buffer.from('content')]), { bytesMax: 100 })
      expect(received).toEqual(['HEAD', 'HEAD', 'HEAD', 'PUT content'])
    })
  })

  it.each([
    ['hangs up', (request: http.IncomingMessage) => void request.socket.destroy()],
    [
      'answers with a failure',
      (_request: http.IncomingMessage, response: http.ServerResponse) =>
        void response.writeHead(500).end(),
    ],
  ])('says that the store is at fault when it %s', async (_name, answer) => {
    await withStore(answer, async (store) => {
      const fault = { code: 'unavailable', message: 'the file store cannot be reached' }
      await expect(store.has(HASH)).rejects.toMatchObject(fault)
      await expect(store.get(HASH)).rejects.toMatchObject(fault)
      const content = Readable.from([Buffer.from('content')])
      await expect(store.put(content, { bytesMax: 100 })).rejects.toMatchObject(fault)
    })
  })
})
