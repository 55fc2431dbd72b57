import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import {
  bind,
  errorCode,
  execute,
  int32,
  openWire,
  parse,
  query,
  type RawClient,
  sync,
  type WireService,
} from '../support/wire-clients.js'

/* What one client of PostgreSQL can cost the service. */

const MIB = 1024 * 1024

let service: TestService
let wire: WireService

beforeAll(async () => {
  service = await createTestService({
    limits: { stallTimeoutMs: 500, transferBytesPerSecondMin: 1000, bufferedBytesMax: 8 * MIB },
  })
  await TestBranches.create(service, 'shop', { people: [{ name: 'name', type: 'string' }] })
  wire = await openWire(service)
})
afterAll(async () => {
  await wire.close()
  await service.close()
})

const heldBytes = () => service.app.admission.budget.bytes

/** A query whose rows have 10,000 bytes each. */
const rowsOf = (count: number) => `select lpad('', 10000, 'x') from generate_series(1, ${count})`

/** The beginning of a message, without its end. */
const begun = (length: number, sent: number) =>
  Buffer.concat([Buffer.from('Q'), int32(length), Buffer.alloc(sent, 'x')])

describe('a client of PostgreSQL', () => {
  it('can use as many parameters as a request over HTTP, and no more', async () => {
    const raw = await wire.openRaw()
    for (const [number, code] of [
      [LIMITS.sqlParametersMax, undefined],
      [LIMITS.sqlParametersMax + 1, '54023'],
      [2 ** 31 - 1, '54023'],
    ] as const) {
      raw.send(parse(`select $${number}::text`), sync())
      expect(errorCode(await raw.until('Z'))).toBe(code)
    }
    raw.send(query(`select $${2 ** 31 - 1}`))
    expect(errorCode(await raw.until('Z'))).toBe('54023')
    raw.close()
  })

  it('can send as many characters of SQL as a request over HTTP, and no more', async () => {
    const raw = await wire.openRaw()
    const longest = `select 1 --${'x'.repeat(LIMITS.sqlLengthMax - 11)}`
    for (const messages of [[query(longest)], [parse(longest), sync()]]) {
      raw.send(...messages)
      expect(errorCode(await raw.until('Z'))).toBe(undefined)
    }
    // It would be a syntax error, if anybody looked at it.
    const tooLong = 'x'.repeat(LIMITS.sqlLengthMax + 1)
    for (const messages of [[query(tooLong)], [parse(tooLong), sync()]]) {
      raw.send(...messages)
      expect(errorCode(await raw.until('Z'))).toBe('54000')
    }
    raw.close()
  })

  it('gets many results before it asks for them with Sync', async () => {
    const raw = await wire.openRaw()
    raw.send(
      parse(rowsOf(5), 'a'),
      ...Array.from({ length: 4 }, () => [bind([], { name: 'a' }), execute()]).flat(),
    )
    await raw.until('C')
    raw.close()
  })

  it.each([
    [
      'a pipeline',
      (raw: RawClient) => {
        raw.send(
          parse(rowsOf(100), 'a'),
          ...Array.from({ length: 90 }, () => [bind([], { name: 'a' }), execute()]).flat(),
        )
      },
    ],
    [
      'many statements in one message',
      (raw: RawClient) => {
        raw.send(query(`${rowsOf(100)};`.repeat(90)))
      },
    ],
  ])('is disconnected if it does not read the results of %s', async (_name, send) => {
    const raw = await wire.openRaw()
    raw.socket.pause()
    send(raw)
    // Only a write tells a client that does not read of the end of its connection.
    const writing = setInterval(() => raw.socket.write(sync()), 50)
    await raw.closed()
    clearInterval(writing)
  })

  it('is disconnected if a message arrives too slowly, also if it keeps arriving', async () => {
    const raw = await wire.openRaw()
    raw.send(begun(2000, 0))
    const writing = setInterval(() => raw.socket.write('x'), 100)
    await raw.closed()
    clearInterval(writing)
  })

  it('counts with the messages that it is sending, and is refused if there is no room', async () => {
    const raw = await wire.openRaw()
    raw.send(begun(10 * MIB, 5 * MIB))
    await expect.poll(heldBytes).toBeGreaterThanOrEqual(5 * MIB)
    const other = await wire.openRaw()
    other.send(begun(10 * MIB, 5 * MIB))
    expect(errorCode(await other.until('E'))).toBe('53200')
    await other.closed()
    raw.close()
    await expect.poll(heldBytes).toBe(0)
  })

  it('counts with the values and rows of its portals', async () => {
    const raw = await wire.openRaw()
    const value = 'x'.repeat(3 * MIB)
    raw.send(parse('select $1::text', 'a'))
    for (const portal of ['b', 'c', 'd']) raw.send(bind([value], { name: 'a', portal }))
    raw.send(sync())
    expect(errorCode(await raw.until('Z'))).toBe('53200')
    expect(heldBytes()).toBe(0)
    raw.send(query('select 1'))
    expect(errorCode(await raw.until('Z'))).toBe(undefined)
    raw.close()
  })
})
