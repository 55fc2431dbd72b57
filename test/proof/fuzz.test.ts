import type { AddressInfo } from 'node:net'
import type { InjectOptions } from 'fastify'
import { request as httpRequest } from 'undici'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Document } from '../support/fuzz/document.js'
import { ANSWER_MS_MAX, type FuzzAnswer, faultsOf } from '../support/fuzz/judge.js'
import { Lane } from '../support/fuzz/lane.js'
import { exchange, malformedRequest } from '../support/fuzz/malformed-http.js'
import { type FuzzRequest, toCurl } from '../support/fuzz/requests.js'
import { amount, SEED } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import { createTestService, type TestService } from '../support/service.js'
import { everythingStored } from '../support/stored.js'
import { createTenant, type Tenant } from '../support/tenants.js'

/** Number of requests. */
const REQUESTS = amount('REQUESTS', { short: 2400, long: 20_000 })
const LANES = 4
/** Share of the operations that may be refused each time: some need what few requests happen to make. */
const REFUSED_SHARE_MAX = REQUESTS < 6000 ? 0.25 : 0.1
/** Number of requests that are not valid HTTP. */
const MALFORMED = REQUESTS / 20
const TIMEOUT_MS = 600_000 + REQUESTS * 200
/** Part of everything that the neighbour tenant stores, and of no request. */
const MARK = 'seen-nowhere-else-8d1f'

/** Limit of Node.js for the request line and headers, minus what the client adds. */
const HEAD_BYTES_MAX = 15_000

/** Low limits, so that random requests reach them. */
const limits = {
  keysPerUserMax: 12,
  workspacesPerUserMax: 12,
  databasesPerWorkspaceMax: 12,
  tablesPerBranchMax: 12,
  columnsPerTableMax: 30,
  bulkRecordsMax: 15,
  transactionOperationsMax: 30,
  requestBytesMax: 256 * 1024,
  fileBytesMax: 64 * 1024,
}

/** Operations that are refused to the tenants who send the requests. */
const FOR_ADMINISTRATORS: ReadonlySet<string> = new Set([
  'POST /linkKeys',
  'PUT /workspaces/{workspaceId}/quota',
])

let service: TestService
let document: Document
let neighbour: Tenant
let address: string
let before: Record<string, string[]>

beforeAll(async () => {
  service = await createTestService({ limits })
  document = new Document((await service.call('GET', '/openapi.json')).body)
  neighbour = await createTenant(service, { userName: 'neighbour', mark: MARK })
  before = await everythingStored(service)
  await service.app.listen({ port: 0, host: '127.0.0.1' })
  address = `http://127.0.0.1:${(service.app.server.address() as AddressInfo).port}`
})
afterAll(() => service.close())

async function inject({ method, url, headers, body }: FuzzRequest): Promise<FuzzAnswer> {
  const started = performance.now()
  const response = await service.app.inject({
    method: method as NonNullable<InjectOptions['method']>,
    url,
    headers,
    ...(body === undefined ? {} : { payload: body }),
  })
  const durationMs = performance.now() - started
  const { statusCode: status, rawPayload } = response
  return { status, headers: response.headers, body: rawPayload, durationMs }
}

async function send({ method, url, headers, body }: FuzzRequest): Promise<FuzzAnswer> {
  const started = performance.now()
  const response = await httpRequest(`${address}${url}`, {
    method: method as 'GET',
    headers,
    body: body ?? null,
  })
  const bytes = Buffer.from(await response.body.arrayBuffer())
  const durationMs = performance.now() - started
  return { status: response.statusCode, headers: response.headers, body: bytes, durationMs }
}

/** Returns whether an HTTP client can send the request. */
function isSendable({ method, url, headers }: FuzzRequest): boolean {
  return (
    method !== 'TRACE' &&
    /^\/[\x21-\x7e]*$/.test(url) &&
    headers.host === undefined &&
    Object.values(headers).every((value) => /^[\x20-\x7e]*$/.test(value)) &&
    url.length + JSON.stringify(headers).length < HEAD_BYTES_MAX
  )
}

function withinTime(answer: Promise<FuzzAnswer>): Promise<FuzzAnswer> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('there is no answer')), 3 * ANSWER_MS_MAX)
  })
  return Promise.race([answer, late]).finally(() => clearTimeout(timer))
}

const statuses = new Map<string, Map<number, number>>()
const faults = new Map<string, string>()

function note(request: FuzzRequest, status: number): void {
  const counts = statuses.get(request.operation.name) ?? new Map<number, number>()
  counts.set(status, (counts.get(status) ?? 0) + 1)
  statuses.set(request.operation.name, counts)
}

async function run(lane: Lane, count: number): Promise<void> {
  for (let number = 0; number < count; number++) {
    const request = await lane.next()
    const overSocket = number % 10 === 0 && isSendable(request)
    try {
      const answer = await withinTime(overSocket ? send(request) : inject(request))
      if (!request.isMisrouted) note(request, answer.status)
      lane.learn(request, answer)
      for (const fault of faultsOf(request, answer, { document, mark: MARK })) {
        report(request, fault, `${answer.status} ${answer.body.toString().slice(0, 500)}`)
      }
    } catch (error) {
      report(request, String(error), 'no answer')
    }
  }
}

/** Records the first request of each kind of fault. */
function report(request: FuzzRequest, fault: string, answer: string): void {
  const kind = `${request.operation.name}: ${fault}`
  if (!faults.has(kind)) faults.set(kind, `${kind}\n  ${toCurl(request)}\n  ${answer}`)
}

describe('the judge', () => {
  const operation = () => {
    const found = document.operations.find(({ name }) => name === 'GET /user')
    if (found === undefined) throw new Error('there must be such an operation')
    return found
  }
  const request = (fields: Partial<FuzzRequest> = {}): FuzzRequest => ({
    operation: operation(),
    mode: 'valid',
    method: 'GET',
    url: '/user',
    headers: {},
    body: undefined,
    isMisrouted: false,
    isForeign: false,
    values: {},
    ...fields,
  })
  const answer = (status: number, body: unknown, durationMs = 1): FuzzAnswer => ({
    status,
    headers: { 'content-type': 'application/json; charset=utf-8', 'x-request-id': 'req_1' },
    body: Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)),
    durationMs,
  })
  const judge = (asked: FuzzRequest, given: FuzzAnswer) =>
    faultsOf(asked, given, { document, mark: MARK })
  const user = { id: 'u', email: 'ada@example.com', fullname: 'Ada', image: '' }
  const error = { id: 'req_1', message: 'body: is malformed', code: 'invalid_request' }

  it('has nothing against answers that are right', () => {
    expect(judge(request(), answer(200, user))).toEqual([])
    expect(judge(request(), answer(400, error))).toEqual([])
  })

  it.each<[string, RegExp, () => string[]]>([
    ['a failure', /failure of the server/, () => judge(request(), answer(500, error))],
    ['a late answer', /took/, () => judge(request(), answer(200, user, ANSWER_MS_MAX + 1))],
    [
      'a field of the wrong type',
      /not as documented/,
      () => judge(request(), answer(200, { ...user, id: 1 })),
    ],
    ['a status of its own', /not documented/, () => judge(request(), answer(418, error))],
    [
      'an error in another form',
      /no message/,
      () => judge(request(), answer(400, { error: 'no' })),
    ],
    [
      'an error that is not JSON',
      /not a JSON object/,
      () => judge(request(), answer(400, '<html>')),
    ],
    ['a code of another status', /does not belong/, () => judge(request(), answer(403, error))],
    [
      'a message from inside',
      /the inside/,
      () => judge(request(), answer(400, { ...error, message: 'relation "heap_1"' })),
    ],
    [
      'a value of the neighbour',
      /of the neighbour/,
      () => judge(request(), answer(200, { ...user, fullname: MARK })),
    ],
    [
      'a stranger let in',
      /a stranger/,
      () => judge(request({ isForeign: true }), answer(200, user)),
    ],
  ])('sees %s', (_name, fault, faults) => {
    expect(faults().join()).toMatch(fault)
  })
})

describe(`requests of every form, from seed ${SEED}`, () => {
  it(
    'are answered as documented, without failing, hanging or showing what is not theirs',
    async () => {
      const lanes = Array.from(
        { length: LANES },
        (_, number) =>
          new Lane({
            name: `lane-${number}`,
            seed: SEED + number * 7919,
            first: Math.floor((number * document.operations.length) / LANES),
            service,
            document,
            neighbour,
          }),
      )
      const started = performance.now()
      await Promise.all(lanes.map((lane) => run(lane, Math.ceil(REQUESTS / LANES))))
      const seconds = (performance.now() - started) / 1000
      console.info(`${REQUESTS} requests in ${seconds.toFixed(1)} s, seed ${SEED}`)
      expect([...faults.values()].join('\n\n')).toBe('')
    },
    TIMEOUT_MS,
  )

  it('are refused when they are not even HTTP, and no connection is left open', async () => {
    const random = new Random(SEED)
    const { port } = service.app.server.address() as AddressInfo
    const wrong: string[] = []
    const one = async () => {
      const bytes = malformedRequest(random)
      const text = await exchange(port, bytes, ANSWER_MS_MAX).catch(String)
      const statuses = [...text.matchAll(/^HTTP\/1\.1 (\d+)/gm)].map(([, status]) => Number(status))
      const isRight = text === '' || (statuses.length > 0 && statuses.every((s) => s < 500))
      if (!isRight) wrong.push(`${JSON.stringify(bytes.toString('latin1'))}: ${text}`)
    }
    for (let sent = 0; sent < MALFORMED; sent += 20) {
      await Promise.all(Array.from({ length: 20 }, one))
    }
    expect(wrong).toEqual([])
  })

  it('reach every operation, and nearly all of them with success', () => {
    const unreached = document.operations.filter(({ name }) => !statuses.has(name))
    expect(unreached.map(({ name }) => name)).toEqual([])
    const refused = [...statuses].filter(
      ([name, counts]) => !FOR_ADMINISTRATORS.has(name) && ![...counts.keys()].some((s) => s < 300),
    )
    console.info(`never with success: ${refused.map(([name]) => name).join(', ')}`)
    expect(refused.length).toBeLessThan(document.operations.length * REFUSED_SHARE_MAX)
  })

  it('leave everything of the neighbour as it was', async () => {
    const after = await everythingStored(service)
    for (const [table, rows] of Object.entries(before)) {
      // Other tenants may add rows to the catalogue, but not to the neighbour's tables.
      if (table.startsWith('offshoot_db_')) expect(after[table]).toEqual(rows)
      const now = new Set(after[table])
      expect(rows.filter((row) => !now.has(row))).toEqual([])
    }
  })

  it('leave the service in good health, and the objects of the process as they were', async () => {
    expect((await service.call('GET', '/health')).status).toBe(200)
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined()
    expect(Object.keys(Object.prototype)).toEqual([])
  })
})
