import { readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import pg from 'pg'
import { Agent, request } from 'undici'
import { makeDataFolder } from '../data-folder.js'
import { endAll, type OffshootProcess, postgresProcesses, runOffshoot, until } from '../process.js'

export interface Reply {
  /** 0 if there was no answer. */
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies of every shape.
  readonly body: any
  readonly bytes: Buffer
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  /** Why there was no answer. */
  readonly failure?: string
}

/** Describes an answer that was not expected. */
export function describeReply({ status, body, failure }: Reply): string {
  return `${status} ${failure ?? JSON.stringify(body)}`
}

export interface SendOptions {
  /** JSON, or bytes or a stream with a content type. */
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
}

/** A service that accepts requests. */
export interface Endpoint {
  send(method: string, path: string, options?: SendOptions): Promise<Reply>
}

const KEY = 'off_proof_Jq5Wz8RtVx3NbLc7'
export const DATABASE = 'proof'

const NO_ANSWER: Reply = { status: 0, body: undefined, bytes: Buffer.alloc(0), headers: {} }

/** Timeout that only a request that hangs exceeds; shorter than that of a test. */
const ANSWER_TIMEOUT_MS = 60_000

/** Characters of a log that are shown with a failure. */
const LOG_TAIL = 4000

/** Names an error of the network and its causes. */
function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const { code } = error as { code?: string }
  const cause = error.cause === undefined ? '' : `, caused by ${describeError(error.cause)}`
  return `${error.name} ${code ?? ''} ${error.message}${cause}`
}

/** The built service as a process that can be killed and restarted on its data folder. */
export class ProofService implements Endpoint {
  #process: OffshootProcess | undefined
  #agent = new Agent()
  #address = ''
  workspaceId = ''

  constructor(
    readonly dataDir: string,
    readonly env: Readonly<Record<string, string>> = {},
  ) {}

  async start(): Promise<void> {
    this.launch()
    const banner = await this.#running.ready()
    this.#address = banner.address
    this.workspaceId = banner.workspaceId
    this.#agent = new Agent()
  }

  /** Starts the process without waiting for it to be ready. */
  launch(): void {
    // Uses the default time limits, because recovery depends on them.
    this.#process = runOffshoot(['start'], {
      env: {
        OFFSHOOT_PORT: '0',
        OFFSHOOT_PG_PORT: '0',
        OFFSHOOT_DATA_DIR: this.dataDir,
        OFFSHOOT_API_KEY: KEY,
        // During an outage, every writer keeps asking whether the service is ready.
        OFFSHOOT_LIMIT_MONITORING_REQUESTS_PER_SECOND_MAX: '1000000',
        ...this.env,
      },
    })
  }

  get isRunning(): boolean {
    return this.#process?.child.exitCode === null && this.#process.child.signalCode === null
  }

  /** The output on standard error. */
  get log(): string {
    return this.#running.stderr
  }

  /** Lines of the log that tell of failures of the service itself, and the end of the log. */
  get failures(): string {
    const failed = this.log.split('\n').filter((line) => line.startsWith('{"level":50'))
    return [...failed, this.log.slice(-LOG_TAIL)].join('\n')
  }

  get pid(): number {
    return this.#running.child.pid ?? 0
  }

  get #running(): OffshootProcess {
    if (this.#process === undefined) throw new Error('the service must be started first')
    return this.#process
  }

  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    await this.#running.end(signal)
    await this.#agent.destroy()
  }

  async send(method: string, url: string, options: SendOptions = {}): Promise<Reply> {
    const { body } = options
    const isRaw = body === undefined || Buffer.isBuffer(body) || body instanceof Readable
    const started = performance.now()
    try {
      const response = await request(`${this.#address}${this.#locate(url)}`, {
        method: method as 'GET',
        dispatcher: this.#agent,
        headersTimeout: ANSWER_TIMEOUT_MS,
        bodyTimeout: ANSWER_TIMEOUT_MS,
        headers: {
          authorization: `Bearer ${KEY}`,
          ...(isRaw ? {} : { 'content-type': 'application/json' }),
          ...options.headers,
        },
        ...(body === undefined ? {} : { body: isRaw ? body : JSON.stringify(body) }),
      })
      const bytes = Buffer.from(await response.body.arrayBuffer())
      const isJson = String(response.headers['content-type'] ?? '').startsWith('application/json')
      const value = isJson && bytes.length > 0 ? JSON.parse(bytes.toString()) : undefined
      return { status: response.statusCode, headers: response.headers, body: value, bytes }
    } catch (error) {
      if (error instanceof SyntaxError) throw error
      return {
        ...NO_ANSWER,
        failure: `${describeError(error)} after ${performance.now() - started} ms`,
      }
    }
  }

  /** Adds the workspace to paths of branches; it is unknown before the start. */
  #locate(url: string): string {
    return url.startsWith('/db/') ? `/${this.workspaceId}.local${url}` : url
  }

  async isReady(): Promise<boolean> {
    return (await this.send('GET', '/health')).status === 200
  }

  async untilReady(timeoutMs?: number): Promise<void> {
    await until(() => this.isReady(), timeoutMs)
  }

  /** Returns the processes of the embedded PostgreSQL, the postmaster first. */
  postgres(): Promise<number[]> {
    return postgresProcesses(this.dataDir)
  }

  /** Calls the function. If it fails, the error also tells how far service and PostgreSQL have come. */
  async explain<Value>(act: () => Promise<Value>): Promise<Value> {
    try {
      return await act()
    } catch (error) {
      const file = path.join(this.dataDir, 'postgres.log')
      const postgresLog = await readFile(file, 'utf8').catch(describeError)
      const processes = await this.postgres()
      throw new Error(
        `${describeError(error)}\n` +
          `end of the log of the service:\n${this.log.slice(-LOG_TAIL)}\n` +
          `end of postgres.log:\n${postgresLog.slice(-LOG_TAIL)}\n` +
          `processes of PostgreSQL: ${processes.join(' ')}`,
        { cause: error },
      )
    }
  }

  /** Runs a statement in the embedded PostgreSQL directly. */
  async sql(text: string): Promise<pg.QueryResultRow[]> {
    const client = new pg.Client({ ...(await this.connection()), ssl: false })
    client.on('error', () => undefined)
    await client.connect()
    try {
      return (await client.query(text)).rows
    } finally {
      await client.end()
    }
  }

  /** Finds the embedded PostgreSQL. */
  async connection() {
    const read = async (name: string) =>
      (await readFile(path.join(this.dataDir, name), 'utf8')).trim()
    return {
      host: await read('postgres-run'),
      port: 5432,
      user: 'offshoot',
      password: await read('postgres-password'),
      database: 'offshoot',
    }
  }
}

/** Creates the database and tables of all writers. */
export async function createProofDatabase(endpoint: Endpoint, workspaceId: string): Promise<void> {
  const column = (table: string, name: string, type: string) => ({
    addColumn: { table, column: { name, type } },
  })
  const operations = [
    { addTable: { table: 'items' } },
    column('items', 'value', 'int'),
    column('items', 'payload', 'text'),
    { addTable: { table: 'files' } },
    column('files', 'label', 'string'),
    column('files', 'content', 'file'),
  ]
  const steps = [
    ['PUT', `/workspaces/${workspaceId}/dbs/${DATABASE}`, { region: 'local' }],
    ['POST', `/db/${DATABASE}:main/schema/update`, { operations }],
    ['PUT', `/db/${DATABASE}:main/tables/items/data/total`, { value: 0 }],
  ] as const
  for (const [method, url, body] of steps) {
    const reply = await endpoint.send(method, url, { body })
    if (reply.status >= 300 || reply.status === 0) {
      throw new Error(`${method} ${url}: ${describeReply(reply)}`)
    }
  }
}

/** Creates a data folder for services that are killed. */
export async function makeProofFolder(): Promise<{ path: string; remove(): Promise<void> }> {
  const folder = await makeDataFolder('proof')
  return {
    path: folder,
    async remove() {
      await endAll([folder])
      await rm(folder, { recursive: true, force: true })
    },
  }
}
