import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Origins } from '../../packages/server/src/config.js'
import { createTestService, type TestService } from '../support/service.js'

const PAGE = 'https://app.example.com'
const OTHER = 'https://evil.example.com'

async function ask(service: TestService, origin: string | undefined, key?: string) {
  const { statusCode, headers } = await service.app.inject({
    method: 'GET',
    url: '/user',
    headers: {
      ...(origin === undefined ? {} : { origin }),
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
    },
  })
  return { status: statusCode, headers }
}

/** Sends a CORS preflight request. */
async function askFirst(service: TestService, origin: string, url = '/user') {
  const { statusCode, headers } = await service.app.inject({
    method: 'OPTIONS',
    url,
    headers: {
      origin,
      'access-control-request-method': 'PUT',
      'access-control-request-headers': 'authorization,content-type,x-xata-agent',
    },
  })
  return { status: statusCode, headers }
}

async function serve(origins: Origins | null): Promise<TestService> {
  return createTestService({ app: { origins } })
}

describe('a service for pages of some origins', () => {
  let service: TestService
  beforeAll(async () => {
    service = await serve([PAGE, 'http://localhost:3000'])
  })
  afterAll(() => service.close())

  it('lets these call it, with any of its methods and headers', async () => {
    const { status, headers } = await askFirst(service, PAGE)
    expect(status).toBe(204)
    expect(headers).toMatchObject({
      'access-control-allow-origin': PAGE,
      'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
      'access-control-allow-headers': 'authorization,content-type,x-xata-agent',
      'access-control-max-age': '86400',
    })
    expect(headers).not.toHaveProperty('access-control-allow-credentials')
  })

  it('lets them upload to a link', async () => {
    const { status, headers } = await askFirst(service, PAGE, '/upload/some-link')
    expect(status).toBe(204)
    expect(headers).toMatchObject({ 'access-control-allow-origin': PAGE })
  })

  it('lets them read answers and refusals, with what they have to know of these', async () => {
    for (const [key, expected] of [
      [service.key, 200],
      ['wrong', 401],
    ] as const) {
      const { status, headers } = await ask(service, PAGE, key)
      expect(status).toBe(expected)
      expect(headers).toMatchObject({ 'access-control-allow-origin': PAGE })
      expect(headers['access-control-expose-headers']).toContain('x-request-id')
      expect(headers['access-control-expose-headers']).toContain('retry-after')
      expect(headers.vary).toContain('Origin')
    }
  })

  it('says nothing of the kind to others', async () => {
    const { headers } = await askFirst(service, OTHER)
    expect(headers).not.toHaveProperty('access-control-allow-origin')
    const answer = await ask(service, OTHER, service.key)
    expect(answer.headers).not.toHaveProperty('access-control-allow-origin')
  })

  it('gives no rights to anyone', async () => {
    expect((await ask(service, PAGE)).status).toBe(401)
  })
})

describe('a service for pages of any origin', () => {
  it('lets all call it', async () => {
    const service = await serve('*')
    expect((await askFirst(service, OTHER)).headers).toMatchObject({
      'access-control-allow-origin': '*',
    })
    await service.close()
  })
})

describe('a service that was told nothing', () => {
  it('lets no page call it', async () => {
    const service = await serve(null)
    const { status, headers } = await askFirst(service, PAGE)
    expect(status).toBe(405)
    expect(headers).not.toHaveProperty('access-control-allow-origin')
    const answer = await ask(service, PAGE, service.key)
    expect(answer).toMatchObject({ status: 200 })
    expect(answer.headers).not.toHaveProperty('access-control-allow-origin')
    await service.close()
  })
})
