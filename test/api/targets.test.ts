import { once } from 'node:events'
import { type AddressInfo, connect } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Route, watchRoutes } from '../support/routes.js'
import { createTestService, type TestService } from '../support/service.js'

let service: TestService
let fixed: Route[]
let port: number
const lines: string[] = []

beforeAll(async () => {
  const watched = watchRoutes()
  service = await createTestService({
    app: { logLevel: 'warn', logStream: { write: (line: string) => void lines.push(line) } },
  })
  watched.stop()
  // Only routes of the data plane can have a workspace in the path.
  fixed = watched.routes.filter(({ url }) => !/^\/dbs?\//.test(url))
  await service.app.listen({ host: '127.0.0.1', port: 0 })
  port = (service.app.server.address() as AddressInfo).port
})
afterAll(() => service.close())

/** Sends a request target unchanged. HTTP clients would normalize it. */
async function send(method: string, target: string, headers = 'host: localhost'): Promise<Sent> {
  const socket = connect(port, '127.0.0.1')
  const authorization = `authorization: Bearer ${service.key}`
  socket.write(`${method} ${target} HTTP/1.1\r\n${headers}\r\n${authorization}\r\n`)
  socket.write('connection: close\r\n\r\n')
  let text = ''
  socket.setEncoding('utf8').on('data', (chunk) => {
    text += chunk
  })
  await once(socket, 'close')
  const body = text.slice(text.indexOf('\r\n\r\n') + 4)
  return { status: Number(text.slice(9, 12)), body }
}
interface Sent {
  readonly status: number
  readonly body: string
}

const asPath = (url: string) => url.replace(/:\w+/g, 'aaaaaa').replace('*', 'index.html')
const encoded = (character: string) => `%${character.charCodeAt(0).toString(16)}`
const swapCase = (text: string) =>
  text.replace(/[a-z]/gi, (c) => (c === c.toLowerCase() ? c.toUpperCase() : c.toLowerCase()))

/** Spellings of a path that some servers and proxies treat as the same path. */
const SPELLINGS: Readonly<Record<string, (path: string) => string>> = {
  'a workspace in front': (path) => `/home-aaaaaa.local${path}`,
  'any two labels in front': (path) => `/a.b${path}`,
  'a dot segment in front': (path) => `/.${path}`,
  'a double dot segment in front': (path) => `/a.b/..${path}`,
  'a slash more in front': (path) => `/${path}`,
  'slashes doubled': (path) => path.replaceAll('/', '//'),
  'a backslash in front': (path) => `/\\${path.slice(1)}`,
  'its first letter encoded': (path) => `/${encoded(path[1] ?? '')}${path.slice(2)}`,
  'its slash encoded': (path) => `/%2f${path.slice(1)}`,
  'another case': (path) => `/${swapCase(path.slice(1))}`,
  'a dot segment behind': (path) => `${path}/.`,
  'a semicolon behind': (path) => `${path};a=b`,
  'a NUL behind': (path) => `${path}%00`,
  'a space behind': (path) => `${path}%20`,
  'a fragment behind': (path) => `${path}#x`,
}

describe('a route outside of the data plane', () => {
  it('has one spelling that a proxy can close', async () => {
    expect(fixed.length).toBeGreaterThan(30)
    const paths = [...new Set(fixed.map(({ url }) => asPath(url)))].filter((path) => path !== '/')
    const known = new Set(paths)
    const reached: string[] = []
    for (const path of paths) {
      for (const [name, spell] of Object.entries(SPELLINGS)) {
        const target = spell(path)
        // A path parameter accepts any text, so these spellings name another object.
        const isOther = known.has(target) || /aaaaaa[^/]*$|index\.html[^/]*$/.test(target)
        if (isOther && /behind$/.test(name)) continue
        const { status, body } = await send('GET', target)
        const isRefused = status === 400 || (status === 404 && body.includes('route_not_found'))
        if (!isRefused) reached.push(`${target} (${name}): ${status} ${body.slice(0, 80)}`)
      }
    }
    expect(reached).toEqual([])
  })

  it.each(['/metrics', '/health', '/docs', '/openapi.json'])(
    'is there as it is: %s',
    async (path) => {
      expect((await send('GET', path)).status).toBe(200)
      expect((await send('GET', `http://localhost${path}`)).status).toBe(200)
    },
  )

  it.each([
    '/metrics',
    '/health',
    '/docs/json',
    '/openapi.json',
    '/file/x',
    '/user',
    '/workspaces',
  ])(
    'is not there by a workspace in front of %s, and neither with a key nor without one',
    async (path) => {
      for (const key of [service.key, null]) {
        const answer = await service.call('GET', `${service.workspace}${path}`, { key })
        expect(answer).toMatchObject({ status: 404, body: { code: 'route_not_found' } })
      }
    },
  )
})

describe('a route of the data plane', () => {
  it('is not found when a fixed part of its path is encoded', async () => {
    await service.call('PUT', `/workspaces/${service.workspaceId}/dbs/shop`, {
      body: { region: 'local' },
    })
    expect((await send('GET', '/db/shop:main')).status).toBe(200)
    expect((await send('GET', '/db/%73hop%3Amain')).status).toBe(200)
    expect((await send('GET', '/d%62/shop:main')).status).toBe(404)
    expect((await send('GET', '/db/shop:main/%73tats')).status).toBe(404)
  })
})

describe('the host of a request', () => {
  it('is refused when there are two', async () => {
    const answer = await send('GET', '/health', 'host: localhost\r\nHost: example.com')
    expect(answer.status).toBe(400)
    expect(answer.body).toContain('header [host]')
  })

  it('is that of the target, where that has one', async () => {
    expect((await send('GET', 'http://a"b<x>/health')).status).toBe(400)
    expect((await send('GET', 'http://user@localhost/health')).status).toBe(400)
  })
})

/** More headers than Node keeps by default. */
const MANY_HEADERS = 'a:\r\n'.repeat(2100)

describe('a header behind many others', () => {
  it('is refused when it is the second host or the second key', async () => {
    const host = await send('GET', '/health', `host: localhost\r\n${MANY_HEADERS}Host: example.com`)
    expect(host.status).toBe(400)
    const key = `${MANY_HEADERS}Authorization: Bearer off_other`
    const answer = await send('GET', '/user', `host: localhost\r\n${key}`)
    expect(answer.status).toBe(401)
    expect(answer.body).toContain('header [authorization]: must be given once')
  })
})

describe('the key of a request', () => {
  it('is refused when there are two, also if both are the same', async () => {
    for (const key of ['off_other', service.key]) {
      // `send` adds a second header with a valid key.
      const headers = `host: localhost\r\nAuthorization: Bearer ${key}`
      const answer = await send('GET', '/user', headers)
      expect(answer.status).toBe(401)
      expect(answer.body).toContain('header [authorization]: must be given once')
    }
  })
})

describe('links to files without OFFSHOOT_PUBLIC_URL', () => {
  const linkFor = async (host: string): Promise<string> => {
    const path = `${service.workspace}/db/linked:main/tables/people/data/ada?columns=photo`
    const { body } = await send('GET', path, `host: ${host}`)
    return JSON.parse(body).photo.url
  }

  beforeAll(async () => {
    const db = `${service.workspace}/db/linked:main`
    await service.call('PUT', `/workspaces/${service.workspaceId}/dbs/linked`, {
      body: { region: 'local' },
    })
    await service.call('PUT', `${db}/tables/people`)
    await service.call('POST', `${db}/tables/people/columns`, {
      body: { name: 'photo', type: 'file' },
    })
    await service.call('PUT', `${db}/tables/people/data/ada`, {
      body: { photo: { base64Content: 'aGk=', name: 'a.txt', mediaType: 'text/plain' } },
    })
  })

  it.each([
    ['localhost', 'http://localhost/file/'],
    ['localhost:1234', 'http://localhost:1234/file/'],
    ['127.0.0.1:1234', 'http://127.0.0.1:1234/file/'],
    ['[::1]:1234', 'http://[::1]:1234/file/'],
  ])('keep the loopback address %s', async (host, start) => {
    expect(await linkFor(host)).toMatch(new RegExp(`^${start.replaceAll('[', '\\[')}`))
  })

  it('leave out the workspace of a name below localhost', async () => {
    const host = `${service.workspaceId}.local.localhost:1234`
    expect(await linkFor(host)).toMatch(/^http:\/\/localhost:1234\/file\//)
  })

  it('never start with a name that the caller chose, and a hint is logged once', async () => {
    lines.length = 0
    for (const host of ['evil.example', 'evil.example:80', 'localhost.evil.example', '10.9.8.7']) {
      const link = await linkFor(host)
      expect(link.startsWith(`http://127.0.0.1:${port}/file/`)).toBe(true)
    }
    const hints = lines.filter((line) => line.includes('OFFSHOOT_PUBLIC_URL'))
    expect(hints).toHaveLength(1)
    expect(hints[0]).not.toContain('evil')
  })
})

describe('the refusal of an address without a workspace', () => {
  it.each([
    ['localhost:7123', 'http://localhost:7123/{workspace}.{region}/db/...'],
    ['127.0.0.1:7123', 'http://127.0.0.1:7123/{workspace}.{region}/db/...'],
  ])('names the address that the request came to: %s', async (host, example) => {
    const { status, body } = await send('GET', '/db/nowhere:main', `host: ${host}`)
    expect(status).toBe(400)
    expect(JSON.parse(body).message).toContain(example)
    expect(body).not.toContain('6001')
  })
})
