import { connect, type Socket } from 'node:net'
import type { SecureContext } from 'node:tls'
import type { Limits } from '@offshoot/contract/limits'
import type { Column } from '@offshoot/contract/schema'
import pg from 'pg'
import { collectShapes } from '../../packages/server/src/shapes/shape-databases.js'
import type { Tracer } from '../../packages/server/src/telemetry/tracer.js'
import { WireServer } from '../../packages/server/src/wire/wire-server.js'
import { TestBranches } from './branches.js'
import { createTestService, type TestService } from './service.js'

/** A service that clients of PostgreSQL can connect to. */
export interface WireService {
  readonly port: number
  readonly server: WireServer
  url(place: string, options?: { key?: string; workspace?: string }): string
  connect(place: string, options?: { key?: string }): Promise<pg.Client>
  openRaw(place?: string, key?: string): Promise<RawClient>
  close(): Promise<void>
}

export async function openWire(
  service: TestService,
  { tls, tracer }: { tls?: SecureContext; tracer?: Tracer } = {},
): Promise<WireService> {
  const { app } = service
  const server = new WireServer({
    services: service.services,
    engine: app.sqlEngine,
    admission: app.admission,
    log: app.log,
    metrics: null,
    tls,
    tracer,
  })
  const port = await server.listen({ host: '127.0.0.1', port: 0 })
  const open = new Set<pg.Client>()
  const url: WireService['url'] = (place, options = {}) =>
    `postgresql://${options.workspace ?? service.workspaceId}:${options.key ?? service.key}@127.0.0.1:${port}/${place}`
  return {
    port,
    server,
    url,
    async connect(place, options) {
      const client = new pg.Client({ connectionString: url(place, options) })
      client.on('error', () => undefined)
      open.add(client)
      await client.connect()
      return client
    },
    openRaw: (database = 'shop:main', key = service.key) =>
      RawClient.open(port, { user: service.workspaceId, database, key }),
    async close() {
      await Promise.all([...open].map((client) => client.end().catch(() => undefined)))
      await server.close()
      await collectShapes(service.database, { unusedMs: 0 })
    },
  }
}

/** A service with the database [shop], and a client of PostgreSQL on its branch [main]. */
export interface WireShop {
  readonly service: TestService
  readonly branches: TestBranches
  readonly wire: WireService
  readonly client: pg.Client
  close(): Promise<void>
}

export async function openShop(
  tables: Readonly<Record<string, readonly Column[]>>,
  options: {
    limits?: Partial<Limits>
    /** Prepares the branches before the client connects. */
    fill?: (branches: TestBranches) => Promise<unknown>
  } = {},
): Promise<WireShop> {
  const { fill, ...limited } = options
  const service = await createTestService(limited)
  const branches = await TestBranches.create(service, 'shop', tables)
  await fill?.(branches)
  const wire = await openWire(service)
  const client = await wire.connect('shop:main')
  return {
    service,
    branches,
    wire,
    client,
    async close() {
      await wire.close()
      await service.close()
    },
  }
}

/** A message of the server: its letter and its content. */
export interface Received {
  readonly type: string
  readonly body: Buffer
}

/** A client that sends messages as they are given. */
export class RawClient {
  readonly socket: Socket
  #rest = Buffer.alloc(0)
  readonly received: Received[] = []
  #wake: () => void = () => undefined
  isClosed = false

  constructor(port: number) {
    this.socket = connect({ host: '127.0.0.1', port })
    this.socket.on('data', (chunk) => {
      this.#rest = Buffer.concat([this.#rest, chunk])
      while (this.#rest.length >= 5 && this.#rest.length > this.#rest.readInt32BE(1)) {
        const end = 1 + this.#rest.readInt32BE(1)
        this.received.push({
          type: String.fromCharCode(this.#rest[0] ?? 0),
          body: this.#rest.subarray(5, end),
        })
        this.#rest = this.#rest.subarray(end)
      }
      this.#wake()
    })
    this.socket.on('error', () => undefined)
    this.socket.on('close', () => {
      this.isClosed = true
      this.#wake()
    })
  }

  static async open(
    port: number,
    { user, database, key }: { user: string; database: string; key: string },
  ): Promise<RawClient> {
    const client = new RawClient(port)
    client.socket.write(startup({ user, database }))
    client.socket.write(message('p', Buffer.from(`${key}\0`)))
    await client.until('Z')
    return client
  }

  send(...messages: Buffer[]): void {
    this.socket.write(Buffer.concat(messages))
  }

  /** Waits for a message of a kind, or for the end of the connection. Returns all messages until then. */
  async until(type: string): Promise<Received[]> {
    for (;;) {
      const found = this.received.findIndex((each) => each.type === type)
      if (found !== -1) return this.received.splice(0, found + 1)
      if (this.isClosed) return this.received.splice(0)
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }

  async closed(): Promise<void> {
    while (!this.isClosed) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }

  close(): void {
    this.socket.destroy()
  }
}

export function int16(value: number): Buffer {
  const bytes = Buffer.alloc(2)
  bytes.writeInt16BE(value)
  return bytes
}

export function int32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(value)
  return bytes
}

export function message(type: string, body: Buffer = Buffer.alloc(0)): Buffer {
  return Buffer.concat([Buffer.from(type), int32(body.length + 4), body])
}

export function startup(values: Readonly<Record<string, string>>, code = 196_608): Buffer {
  const texts = Object.entries(values).flatMap(([name, value]) => [`${name}\0`, `${value}\0`])
  const body = Buffer.concat([int32(code), Buffer.from(`${texts.join('')}\0`)])
  return Buffer.concat([int32(body.length + 4), body])
}

const text = (value: string): Buffer => Buffer.from(`${value}\0`)

export const parse = (sql: string, name = '', typeIds: readonly number[] = []): Buffer =>
  message('P', Buffer.concat([text(name), text(sql), int16(typeIds.length), ...typeIds.map(int32)]))

/** Binds texts, or binary values if they are buffers. */
export function bind(
  values: readonly (string | Buffer | null)[],
  options: { name?: string; portal?: string; resultFormats?: readonly number[] } = {},
): Buffer {
  const { resultFormats = [0] } = options
  const formats = values.map((value) => int16(Buffer.isBuffer(value) ? 1 : 0))
  const items = values.flatMap((value) => {
    if (value === null) return [int32(-1)]
    const bytes = Buffer.from(value as string)
    return [int32(bytes.length), bytes]
  })
  return message(
    'B',
    Buffer.concat([
      text(options.portal ?? ''),
      text(options.name ?? ''),
      int16(formats.length),
      ...formats,
      int16(values.length),
      ...items,
      int16(resultFormats.length),
      ...resultFormats.map(int16),
    ]),
  )
}

export const describeStatement = (name = ''): Buffer =>
  message('D', Buffer.concat([Buffer.from('S'), text(name)]))
export const execute = (rowsMax = 0, portal = ''): Buffer =>
  message('E', Buffer.concat([text(portal), int32(rowsMax)]))
export const sync = (): Buffer => message('S')
export const query = (sql: string): Buffer => message('Q', text(sql))

/** Returns the SQLSTATE of the first error among messages. */
export function errorCode(messages: readonly Received[]): string | undefined {
  const error = messages.find(({ type }) => type === 'E')
  const fields = error?.body.toString().split('\0') ?? []
  return fields.find((field) => field.startsWith('C'))?.slice(1)
}
