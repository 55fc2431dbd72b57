import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { LIMITS, type Limits } from '@offshoot/contract/limits'
import type { FastifyInstance, InjectOptions } from 'fastify'
import { type AppOptions, buildApp } from '../../packages/server/src/app.js'
import type { BlobStore } from '../../packages/server/src/blobs/blob-store.js'
import { LocalStore } from '../../packages/server/src/blobs/local-store.js'
import { Files } from '../../packages/server/src/data/files/files.js'
import { Sessions } from '../../packages/server/src/data/session/sessions.js'
import { prepareFirstStart } from '../../packages/server/src/domain/first-start.js'
import { Refusals } from '../../packages/server/src/domain/log/refusals.js'
import { showBuilds } from '../../packages/server/src/domain/long-work/index-builds.js'
import { Quotas } from '../../packages/server/src/domain/quotas/quotas.js'
import type { KeyLimits } from '../../packages/server/src/http/admission/caller.js'
import { Lifecycle } from '../../packages/server/src/http/lifecycle.js'
// Declares `app.admission`.
import type {} from '../../packages/server/src/http/plugins/admission.js'
import type { Services } from '../../packages/server/src/http/services.js'
import { createBuildValidator } from '../../packages/server/src/http/validation.js'
import { Database, type StatementTracing } from '../../packages/server/src/postgres/database.js'
import { migrate } from '../../packages/server/src/postgres/migrate.js'
import { userConnectionsMax } from '../../packages/server/src/postgres/user-connections.js'
import { IndexBuilder } from '../../packages/server/src/rows/indexes/index-builder.js'
import { Storage } from '../../packages/server/src/rows/storage.js'
import { Metrics } from '../../packages/server/src/telemetry/metrics.js'
import { NEW_SECRETS } from './catalogue-template.js'
import { createTestDatabase } from './database.js'

export interface Answer {
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies of every shape.
  readonly body: any
  readonly headers: Readonly<Record<string, string | string[] | number | undefined>>
}

export interface CallOptions {
  readonly body?: unknown
  /** The API key; undefined for that of the first user, null for none. */
  readonly key?: string | null | undefined
  readonly headers?: Readonly<Record<string, string>>
}

/** The whole service on its own database, without a port. */
export interface TestService {
  readonly app: FastifyInstance
  readonly services: Services
  readonly database: Database
  readonly storage: Storage
  readonly sessions: Sessions
  readonly indexes: IndexBuilder
  readonly files: Files
  readonly refusals: Refusals
  readonly limits: Limits
  readonly lifecycle: Lifecycle
  readonly url: string
  readonly key: string
  readonly workspaceId: string
  /** Path form of the address of the first workspace, for data-plane calls. */
  readonly workspace: string
  call(method: string, path: string, options?: CallOptions): Promise<Answer>
  close(): Promise<void>
}

/** The part of a service that sends requests, in this process or another. */
export type CallableService = Pick<TestService, 'call' | 'key' | 'workspaceId' | 'workspace'>

export const REGIONS = [
  { id: 'local', name: 'Local' },
  { id: 'eu', name: 'Europe' },
]

/**
 * Long time limits that end only requests that hang, because answers are slow on a busy machine.
 */
const PATIENCE_MS = 200_000
const PATIENT: Partial<Limits> = {
  requestTimeoutMs: PATIENCE_MS,
  answerWithinMs: PATIENCE_MS,
  requestWaitMs: PATIENCE_MS,
  headersTimeoutMs: PATIENCE_MS,
  healthTimeoutMs: PATIENCE_MS,
  stallTimeoutMs: PATIENCE_MS,
  queryTimeoutMs: PATIENCE_MS,
  // A quick machine sends more requests without a key than a client does.
  addressRequestsPerSecondMax: 1_000_000,
  monitoringRequestsPerSecondMax: 1_000_000,
}

/** The services of a process share it, because compiling schemas is a large part of the work of a short test. */
const buildValidator = createBuildValidator()

export async function createTestService(
  options: {
    limits?: Partial<Limits>
    keyLimits?: KeyLimits
    url?: string
    blobs?: BlobStore
    publicUrl?: string
    isOnLoopback?: boolean
    statementTimeoutMs?: number
    app?: Partial<AppOptions>
    tracing?: StatementTracing
    workspaceBytesMax?: number
    consoleFolder?: string
    /** The port for clients of PostgreSQL that the console names. */
    postgresPort?: number
    /** Spare heaps of each database. They are created after requests, so tests that count tables need none. */
    spareHeapsMax?: number
    /** Whether databases are on the nodes, if the server is a cluster; true by default. */
    distributes?: boolean
  } = {},
): Promise<TestService> {
  const own =
    options.url === undefined ? await createTestDatabase({ copiesCatalogue: true }) : undefined
  const url = options.url ?? own?.url ?? ''
  // Checkpoints keep storage that many tests expect to be removed. Tests of checkpoints and the models of branching ask for them.
  const limits = { ...LIMITS, ...PATIENT, automaticCheckpointsMax: 0, ...options.limits }
  const database = new Database({
    poolMax: 10,
    distributes: options.distributes ?? true,
    userPoolMax: userConnectionsMax(limits),
    statementTimeoutMs: options.statementTimeoutMs ?? PATIENCE_MS,
    connectTimeoutMs: PATIENCE_MS,
    answerBytesMax: limits.answerBytesMax,
    bufferedBytesMax: limits.bufferedBytesMax,
    onIdleError: () => undefined,
    tracing: options.tracing,
  })
  database.connect({ url })
  if (own?.hasCatalogue) await database.query(NEW_SECRETS)
  const storage = new Storage(database, { spareHeapsMax: options.spareHeapsMax ?? 0 })
  await migrate(database)
  const { newKey, workspaceId } = await prepareFirstStart(database, { apiKey: null })
  const key = newKey ?? ''
  const lifecycle = new Lifecycle('ready')
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-files-'))
  const blobs = options.blobs ?? new LocalStore(folder)
  if (options.blobs === undefined) await blobs.prepare()
  const files = new Files(database, blobs, limits)
  const sessions = new Sessions(
    storage,
    limits,
    files.links,
    new Quotas(database, { bytesMaxDefault: options.workspaceBytesMax ?? null }),
  )
  const refusals = new Refusals()
  const indexes = new IndexBuilder(storage, showBuilds(database), () => undefined)
  const services: Services = {
    database,
    storage,
    sessions,
    files,
    indexes,
    refusals,
    lifecycle,
    limits,
    regions: REGIONS,
    publicHost: options.publicUrl === undefined ? undefined : new URL(options.publicUrl).hostname,
    publicUrl: options.publicUrl,
    isOnLoopback: options.isOnLoopback ?? false,
    keyLimits: options.keyLimits ?? {},
    consoleFolder: options.consoleFolder,
    postgresPort: () => options.postgresPort,
  }
  const app = await buildApp(
    services,
    // Metrics are always those of the moment, because tests request them in quick succession.
    {
      logLevel: 'silent',
      metrics: new Metrics({ renderShareMax: 1 }),
      buildValidator,
      ...options.app,
    },
  )
  return {
    app,
    services,
    database,
    storage,
    sessions,
    indexes,
    files,
    refusals,
    limits,
    lifecycle,
    url,
    key,
    workspaceId: workspaceId ?? '',
    workspace: `/${workspaceId}.local`,
    call: (method, path, callOptions) => call(app, method, path, { key, ...callOptions }),
    async close() {
      await app.close()
      await rm(folder, { recursive: true, force: true })
      await database.close()
      await own?.close()
    },
  }
}

/** Starts another process on the PostgreSQL of a service, with the key and the workspace of that service. */
export async function createServiceBeside(
  service: TestService,
  options: { limits?: Partial<Limits> },
): Promise<TestService> {
  const other = await createTestService({ ...options, url: service.url })
  const { key, workspace, workspaceId } = service
  return {
    ...other,
    key,
    workspace,
    workspaceId,
    call: (method, path, callOptions) => other.call(method, path, { key, ...callOptions }),
  }
}

async function call(
  app: FastifyInstance,
  method: string,
  url: string,
  { body, key, headers }: CallOptions,
): Promise<Answer> {
  const isText = typeof body === 'string'
  const response = await app.inject({
    method: method as NonNullable<InjectOptions['method']>,
    url,
    headers: {
      ...(key === null || key === undefined ? {} : { authorization: `Bearer ${key}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { payload: isText ? body : JSON.stringify(body) }),
  })
  const isJson = String(response.headers['content-type'] ?? '').includes('json')
  return {
    status: response.statusCode,
    body: isJson && response.body !== '' ? JSON.parse(response.body) : response.body,
    headers: response.headers,
  }
}
