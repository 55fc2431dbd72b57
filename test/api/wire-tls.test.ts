import { createSecureContext } from 'node:tls'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createCertificate } from '../support/certificate.js'
import { createTestService, type TestService } from '../support/service.js'
import { openWire, query, RawClient, startup, type WireService } from '../support/wire-clients.js'

/* Clients of PostgreSQL that connect over TLS. */

const TLS_WANTED = 80_877_103

const { cert, key } = createCertificate()
let service: TestService
let wire: WireService

beforeAll(async () => {
  service = await createTestService()
  await TestBranches.create(service, 'shop', { items: [{ name: 'name', type: 'text' }] })
  wire = await openWire(service, { tls: createSecureContext({ cert, key }) })
})
afterAll(async () => {
  await wire.close()
  await service.close()
})

describe('a connection over TLS', () => {
  it('is encrypted, and runs statements of any size', async () => {
    const client = new pg.Client({ connectionString: wire.url('shop:main'), ssl: { ca: cert } })
    await client.connect()
    const name = 'x'.repeat(50_000)
    await client.query('insert into items (id, name) values ($1, $2)', ['a', name])
    const { rows } = await client.query('select name from items')
    expect(rows).toEqual([{ name }])
    await client.end()
  })

  it('is refused by a client that does not trust the certificate', async () => {
    const client = new pg.Client({ connectionString: wire.url('shop:main'), ssl: {} })
    await expect(client.connect()).rejects.toMatchObject({ code: 'DEPTH_ZERO_SELF_SIGNED_CERT' })
  })

  it('is offered once, and so is the refusal without a certificate', async () => {
    const plain = await openWire(service)
    const gssWanted = 80_877_104
    for (const code of [TLS_WANTED, gssWanted]) {
      const raw = new RawClient(plain.port)
      const request = startup({}, code).subarray(0, 8)
      raw.socket.write(Buffer.concat([Buffer.from([0, 0, 0, 8]), request.subarray(4)]))
      raw.socket.write(Buffer.concat([Buffer.from([0, 0, 0, 8]), request.subarray(4)]))
      await raw.closed()
      expect(raw.isClosed).toBe(true)
    }
    await plain.close()
  })

  it('ends if something was sent before the handshake', async () => {
    const raw = new RawClient(wire.port)
    raw.send(startup({}, TLS_WANTED).subarray(0, 8), query('select 1'))
    raw.socket.write(Buffer.from([0, 0, 0, 8]))
    await raw.closed()
    expect(raw.isClosed).toBe(true)
  })
})
