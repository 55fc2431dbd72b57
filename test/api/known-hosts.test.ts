import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDatabase } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'

/*
 * A page can let its own name resolve to 127.0.0.1, and would read the answers of a service on the machine of its visitor
 * as those of its own origin.
 */

let plain: TestService
let proxied: TestService
beforeAll(async () => {
  plain = await createTestService({ isOnLoopback: true })
  proxied = await createTestService({
    url: plain.url,
    isOnLoopback: true,
    publicUrl: 'https://db.example.com',
  })
  await createDatabase(plain, 'shop')
})
afterAll(async () => {
  await proxied.close()
  await plain.close()
})

const ask = (service: TestService, host: string, key: string | null = null, url = '/health') =>
  service.call('GET', url, { key, headers: { host } })

describe('a service that listens on loopback', () => {
  it.each([
    'localhost',
    'localhost:6001',
    'w-abc123.local.localhost:6001',
    '127.0.0.1:6001',
    '[::1]:6001',
  ])('is served under the name %s', async (host) => {
    expect((await ask(plain, host)).status).toBe(200)
    expect((await ask(proxied, host)).status).toBe(200)
  })

  it.each([
    'evil.example',
    'evil.example:6001',
    'localhost.evil.example',
    '192.168.1.5',
    '127.0.0.1.evil.example',
  ])('refuses requests without a key to %s', async (host) => {
    for (const service of [plain, proxied]) {
      for (const url of ['/health', '/metrics', '/docs/json', '/user', '/nothing']) {
        const answer = await ask(service, host, null, url)
        expect([url, answer.status, answer.body.code]).toEqual([url, 421, 'unknown_host'])
        expect(answer.body.message).toContain('OFFSHOOT_PUBLIC_URL')
      }
    }
  })

  it('serves its public name and the names below it', async () => {
    for (const host of ['db.example.com', 'DB.example.com', 'w-abc123.local.db.example.com']) {
      expect((await ask(proxied, host)).status).toBe(200)
    }
    expect((await ask(proxied, 'example.com')).status).toBe(421)
    expect((await ask(proxied, 'evildb.example.com')).status).toBe(421)
  })

  it('serves requests with a key under any name, as a proxy on the machine sends them', async () => {
    const host = `${plain.workspaceId}.local.anything.example`
    const answer = await ask(plain, host, plain.key, '/db/shop:main')
    expect(answer.status).toBe(200)
    expect((await ask(plain, 'evil.example', 'off_wrong', '/user')).status).toBe(401)
  })
})

it('A service that listens on other addresses answers to any name', async () => {
  const open = await createTestService({ url: plain.url })
  expect((await ask(open, 'db.example.com')).status).toBe(200)
  await open.close()
})
