import { isIP } from 'node:net'
import path from 'node:path'
import { LIMITS, type LimitName, type Limits, QUOTA_BYTES_MAX } from '@offshoot/contract/limits'
import type { Region } from '@offshoot/contract/workspaces'
import { type Host, parseHosts } from './common/postgres-hosts.js'
import { isStrongSecret, SECRET_LENGTH_MIN } from './common/secret-strength.js'

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** Origins whose pages may call the service from a browser. */
export type Origins = '*' | readonly string[]

/** A bucket and prefix in an S3-compatible store. */
interface S3Address {
  readonly bucket: string
  /** Prefix of every object name; empty, or ending with a slash. */
  readonly prefix: string
  readonly endpoint: string
  readonly region: string
}

interface Setting<Value> {
  readonly env: string
  readonly help: string
  /**
   * The default as the documentation shows it. `parse` gets undefined if the variable is not set.
   */
  readonly fallback: string
  /** Describes valid values, for error messages. */
  readonly allowed: string
  /** Keeps the value out of error messages. */
  readonly secret?: boolean
  /** Returns undefined if the text is invalid. */
  parse(text: string | undefined): Value | undefined
}

const REGION_PATTERN = /^[a-z0-9][a-z0-9-]{0,61}$/
const KEY_PATTERN = /^[A-Za-z0-9_]{1,255}$/

/** Advice in the error message for a weak secret. */
const HOW_TO_MAKE_ONE = 'make one with `openssl rand -hex 32`'

const DEFAULT_PORT = '6001'
const DEFAULT_PG_PORT = '6432'
const DEFAULT_HOST = '127.0.0.1'
/** Commands look for a running service and its key in this folder, if nothing else is set. */
export const DEFAULT_DATA_DIR = '.offshoot'

/** The port for clients of PostgreSQL. A default that is in use is not. */
interface PgPort {
  readonly port: number
  readonly isGiven: boolean
}

/** All settings: variable, default, validation and help. */
const SETTINGS = {
  port: setting({
    env: 'OFFSHOOT_PORT',
    help: 'Port to listen on. 0 picks a free one.',
    fallback: DEFAULT_PORT,
    allowed: 'a whole number from 0 to 65535',
    parse: (text) => wholeNumber(text ?? DEFAULT_PORT, 0, 65535),
  }),
  pgPort: setting<PgPort>({
    env: 'OFFSHOOT_PG_PORT',
    help: 'Port for clients of PostgreSQL. 0 turns it off.',
    fallback: DEFAULT_PG_PORT,
    allowed: 'a whole number from 0 to 65535',
    parse: (text) => {
      const port = wholeNumber(text ?? DEFAULT_PG_PORT, 0, 65535)
      return port === undefined ? undefined : { port, isGiven: text !== undefined }
    },
  }),
  pgTlsCert: setting<string | null>({
    env: 'OFFSHOOT_PG_TLS_CERT',
    help: 'File with the certificate for clients of PostgreSQL, in PEM form. Without it, they can only connect from the same machine.',
    fallback: 'none',
    allowed: 'a path',
    parse: (text) => (text === undefined ? null : text.includes('\0') ? undefined : text),
  }),
  pgTlsKey: setting<string | null>({
    env: 'OFFSHOOT_PG_TLS_KEY',
    help: 'File with the private key of OFFSHOOT_PG_TLS_CERT.',
    fallback: 'none',
    allowed: 'a path',
    parse: (text) => (text === undefined ? null : text.includes('\0') ? undefined : text),
  }),
  host: setting({
    env: 'OFFSHOOT_HOST',
    help: 'Address to listen on. `0.0.0.0` serves every network interface.',
    fallback: DEFAULT_HOST,
    allowed: 'an IP address or a host name',
    parse: (text = DEFAULT_HOST) => (/^[A-Za-z0-9.:_-]+$/.test(text) ? text : undefined),
  }),
  dataDir: setting({
    env: 'OFFSHOOT_DATA_DIR',
    help: 'Folder for the embedded PostgreSQL, files and the first API key.',
    fallback: DEFAULT_DATA_DIR,
    allowed: 'a path',
    parse: (text = DEFAULT_DATA_DIR) =>
      text === '' || text.includes('\0') ? undefined : path.resolve(text),
  }),
  databaseHosts: setting<readonly Host[] | null>({
    env: 'OFFSHOOT_DATABASE_URL',
    help: 'PostgreSQL 15 or later to use instead of the embedded one. Of several servers, the one that accepts writes is used.',
    fallback: 'the embedded PostgreSQL',
    allowed:
      'an address such as postgresql://user:password@host:5432/database or postgresql://user:password@host1,host2/database?target_session_attrs=read-write',
    secret: true,
    parse: (text) => (text === undefined ? null : parseHosts(text)),
  }),
  apiKey: setting<string | null>({
    env: 'OFFSHOOT_API_KEY',
    help: 'The first user’s API key, instead of a generated one.',
    fallback: 'generated at the first start',
    allowed: `${SECRET_LENGTH_MIN} to 255 letters, digits and underscores, of many kinds and not a repeated pattern; ${HOW_TO_MAKE_ONE}`,
    secret: true,
    parse: (text) =>
      text === undefined ? null : KEY_PATTERN.test(text) && isStrongSecret(text) ? text : undefined,
  }),
  regions: setting<readonly Region[]>({
    env: 'OFFSHOOT_REGIONS',
    help: 'Regions that databases can be created in: `id` or `id=name`, separated by commas.',
    fallback: 'local',
    allowed:
      'a list of ids of lower-case letters, digits and hyphens, such as local or eu=Europe,us=America',
    parse: (text) => parseRegions(text ?? 'local'),
  }),
  publicUrl: setting<string | null>({
    env: 'OFFSHOOT_PUBLIC_URL',
    help: 'Address that clients use to reach this service; links to files start with it. Required behind a proxy or for a host name.',
    fallback: 'the IP address or loopback name that a request came to',
    allowed: 'an http or https address without a path',
    parse: (text) => (text === undefined ? null : parseOrigin(text)),
  }),
  origins: setting<Origins | null>({
    env: 'OFFSHOOT_ORIGINS',
    help: 'Origins whose pages may call the service from a browser, separated by commas; `*` for any.',
    fallback: 'none',
    allowed: 'a list of origins such as https://app.example.com,http://localhost:3000, or *',
    parse: (text) => (text === undefined ? null : parseOrigins(text)),
  }),
  console: setting<boolean>({
    env: 'OFFSHOOT_CONSOLE',
    help: 'Whether to serve the web console: `on` or `off`.',
    fallback: 'on',
    allowed: 'on or off',
    parse: (text = 'on') => (text === 'on' ? true : text === 'off' ? false : undefined),
  }),
  files: setting<S3Address | null>({
    env: 'OFFSHOOT_FILES',
    help: 'S3-compatible store for the content of files.',
    fallback: 'the folder `files` in the data folder',
    allowed: 'an address such as s3://bucket/prefix?endpoint=https://s3.example.com&region=eu-1',
    parse: (text) => (text === undefined ? null : parseS3Address(text)),
  }),
  filesKeyId: setting<string | null>({
    env: 'OFFSHOOT_FILES_KEY_ID',
    help: 'Access key id for the store of OFFSHOOT_FILES.',
    fallback: 'none',
    allowed: 'a text without spaces',
    parse: (text) => (text === undefined ? null : /^\S+$/.test(text) ? text : undefined),
  }),
  filesSecret: setting<string | null>({
    env: 'OFFSHOOT_FILES_SECRET',
    help: 'Secret access key for the store of OFFSHOOT_FILES.',
    fallback: 'none',
    allowed: 'a text without spaces',
    secret: true,
    parse: (text) => (text === undefined ? null : /^\S+$/.test(text) ? text : undefined),
  }),
  logLevel: setting<LogLevel>({
    env: 'OFFSHOOT_LOG_LEVEL',
    help: 'Log level. `info` logs one line per request.',
    fallback: 'warn',
    allowed: `one of ${LOG_LEVELS.join(', ')}`,
    parse: (text) => LOG_LEVELS.find((level) => level === (text ?? 'warn')),
  }),
  requestIdHeader: setting<string | null>({
    env: 'OFFSHOOT_REQUEST_ID_HEADER',
    help: 'Header in which a proxy sends a request id, which is used in answers and logs.',
    fallback: 'none; every request gets a new id',
    allowed: 'the name of a header, such as x-request-id',
    parse: (text) =>
      text === undefined ? null : /^[A-Za-z0-9-]{1,64}$/.test(text) ? text : undefined,
  }),
  metrics: setting<boolean>({
    env: 'OFFSHOOT_METRICS',
    help: 'Whether metrics are collected and served at `/metrics`.',
    fallback: 'on',
    allowed: 'on or off',
    parse: (text = 'on') => (text === 'on' ? true : text === 'off' ? false : undefined),
  }),
  metricsToken: setting<string | null>({
    env: 'OFFSHOOT_METRICS_TOKEN',
    help: 'Bearer token that `/metrics` requires.',
    fallback: 'none; everyone who reaches the port can read it',
    allowed: `${SECRET_LENGTH_MIN} to 255 characters without spaces, of many kinds and not a repeated pattern; ${HOW_TO_MAKE_ONE}`,
    secret: true,
    parse: (text) =>
      text === undefined
        ? null
        : /^\S{1,255}$/.test(text) && isStrongSecret(text)
          ? text
          : undefined,
  }),
  metricsPort: setting<number | null>({
    env: 'OFFSHOOT_METRICS_PORT',
    help: 'Separate port for `/metrics`, on the same address.',
    fallback: 'the port of the service',
    allowed: 'a whole number from 1 to 65535',
    parse: (text) => (text === undefined ? null : wholeNumber(text, 1, 65535)),
  }),
  tracesEndpoint: setting<string | null>({
    env: 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
    help: 'URL that traces are sent to by OTLP over HTTP, including the path.',
    fallback: '`/v1/traces` at OTEL_EXPORTER_OTLP_ENDPOINT',
    allowed: 'an http or https address',
    parse: (text) => (text === undefined ? null : parseHttpUrl(text)),
  }),
  telemetryEndpoint: setting<string | null>({
    env: 'OTEL_EXPORTER_OTLP_ENDPOINT',
    help: 'OpenTelemetry collector. Requests are traced if it is set.',
    fallback: 'none; nothing is traced',
    allowed: 'an http or https address, such as http://localhost:4318',
    parse: (text) => (text === undefined ? null : parseHttpUrl(text)),
  }),
  telemetryHeaders: setting<Readonly<Record<string, string>>>({
    env: 'OTEL_EXPORTER_OTLP_HEADERS',
    help: 'HTTP headers for the collector.',
    fallback: 'none',
    allowed: 'a list such as api-key=secret,other=value',
    secret: true,
    parse: (text = '') => parseHeaders(text),
  }),
  serviceName: setting<string>({
    env: 'OTEL_SERVICE_NAME',
    help: 'Name of this service in traces.',
    fallback: 'offshoot',
    allowed: '1 to 255 characters',
    parse: (text = 'offshoot') => (text.length <= 255 ? text : undefined),
  }),
  traceSampleRatio: setting<number>({
    env: 'OTEL_TRACES_SAMPLER_ARG',
    help: 'Fraction of the requests without a `traceparent` header that is traced.',
    fallback: '1',
    allowed: 'a number from 0 to 1',
    parse: (text = '1') =>
      /^(0|1|[01]?\.\d+)$/.test(text) && Number(text) <= 1 ? Number(text) : undefined,
  }),
  databaseWaitSeconds: setting<number>({
    env: 'OFFSHOOT_DATABASE_WAIT_SECONDS',
    help: 'How long a start waits until the PostgreSQL of OFFSHOOT_DATABASE_URL accepts connections.',
    fallback: '60',
    allowed: 'a whole number from 0 to 86400',
    parse: (text = '60') => wholeNumber(text, 0, 86_400),
  }),
  poolMax: setting({
    env: 'OFFSHOOT_POOL_MAX',
    help: 'Maximum number of connections to PostgreSQL per process.',
    fallback: '20',
    allowed: 'a whole number from 2 to 1000',
    parse: (text) => wholeNumber(text ?? '20', 2, 1000),
  }),
  distributesDatabases: setting({
    env: 'OFFSHOOT_DISTRIBUTE_DATABASES',
    help: 'On a Citus cluster with workers, each new database is placed on one of its nodes. With false, it is placed on the coordinator.',
    fallback: 'true',
    allowed: 'true or false',
    parse: (text = 'true') => (['true', 'false'].includes(text) ? text === 'true' : undefined),
  }),
  keyRequestsPerSecond: setting<number>({
    env: 'OFFSHOOT_KEY_REQUESTS_PER_SECOND',
    help: 'Requests per second of one API key, per process.',
    fallback: '20000',
    allowed: 'a whole number from 1 to 1000000',
    parse: (text = '20000') => wholeNumber(text, 1, 1_000_000),
  }),
  keyRequestsAtOnce: setting<number>({
    env: 'OFFSHOOT_KEY_REQUESTS_AT_ONCE',
    help: 'Concurrent requests of one API key, including those that wait, per process.',
    fallback: '500',
    allowed: 'a whole number from 1 to 1000000',
    parse: (text = '500') => wholeNumber(text, 1, 1_000_000),
  }),
  workspaceBytesMax: setting<number | null>({
    env: 'OFFSHOOT_WORKSPACE_BYTES_MAX',
    help: 'Default storage quota of a workspace: bytes of rows and files.',
    fallback: 'unlimited',
    allowed: `a whole number from 0 to ${QUOTA_BYTES_MAX}`,
    parse: (text) => (text === undefined ? null : wholeNumber(text, 0, QUOTA_BYTES_MAX)),
  }),
  trustedProxies: setting<readonly string[]>({
    env: 'OFFSHOOT_TRUSTED_PROXIES',
    help: 'Addresses and networks of proxies, separated by commas. `X-Forwarded-For` is trusted only from these.',
    fallback: 'none; the address of a client is that of its connection',
    allowed: 'a list of IP addresses and networks such as 10.0.0.0/8,fd00::1',
    parse: (text) => (text === undefined ? [] : parseNetworks(text)),
  }),
  backgroundPauseMs: setting({
    env: 'OFFSHOOT_BACKGROUND_PAUSE_MS',
    help: 'Milliseconds between two rounds of background work.',
    fallback: '5000',
    allowed: 'a whole number from 10 to 3600000',
    parse: (text) => wholeNumber(text ?? '5000', 10, 3_600_000),
  }),
}

type SettingValues = {
  readonly [Name in keyof typeof SETTINGS]: Exclude<
    ReturnType<(typeof SETTINGS)[Name]['parse']>,
    undefined
  >
}
export type Config = SettingValues & { readonly limits: Limits }

export class ConfigError extends Error {}

/** Variables of the command line and of clients. Both may run in the same environment as the service. */
const CLIENT_VARIABLES = [
  'OFFSHOOT_URL',
  'OFFSHOOT_WORKSPACE',
  'OFFSHOOT_DATABASE',
  'OFFSHOOT_BRANCH',
]

/** Reads all settings. Throws an error that lists every invalid one with its valid values. */
export function readConfig(env: NodeJS.ProcessEnv): Config {
  const faults: string[] = []
  const read = <Value>(entry: Setting<Value>): Value | undefined => {
    const { env: name, allowed, secret, parse } = entry
    // Shells and compose files pass an unset variable as an empty one.
    const value = parse(env[name] === '' ? undefined : env[name])
    const shown = secret === true ? 'the value' : `[${env[name]}]`
    if (value === undefined) faults.push(`${name}: ${shown} is not ${allowed}`)
    return value
  }
  const values = Object.fromEntries(
    Object.entries(SETTINGS).map(([name, entry]) => [name, read(entry as Setting<unknown>)]),
  )
  const limits = {
    ...LIMITS,
    ...Object.fromEntries(limitSettings().map(([name, entry]) => [name, read(entry)])),
  } as Limits
  const known = new Set([...settingsTable().map((row) => row.env), ...CLIENT_VARIABLES])
  for (const name of Object.keys(env)) {
    if (name.startsWith('OFFSHOOT_') && !name.startsWith('OFFSHOOT_TEST_') && !known.has(name)) {
      faults.push(`${name}: is not a setting of this version`)
    }
  }
  if (values.files && (values.filesKeyId === null || values.filesSecret === null)) {
    faults.push('OFFSHOOT_FILES: needs OFFSHOOT_FILES_KEY_ID and OFFSHOOT_FILES_SECRET')
  }
  if (values.pgTlsCert !== null && values.pgTlsKey === null) {
    faults.push('OFFSHOOT_PG_TLS_CERT: needs OFFSHOOT_PG_TLS_KEY')
  }
  if (faults.length > 0) throw new ConfigError(faults.join('\n'))
  return { ...(values as unknown as SettingValues), limits }
}

/** Lists all settings for `--help` and the reference page. */
export function settingsTable(): readonly Omit<Setting<unknown>, 'parse'>[] {
  return [...Object.values(SETTINGS), ...limitSettings().map(([, entry]) => entry)]
}

/**
 * Limits that are part of the interface and stated in its schemas, so they cannot be configured.
 */
const FIXED_LIMITS = [
  'nameLengthMax',
  'gitBranchLengthMax',
  'labelLengthMax',
  'labelsMax',
  'ttlSecondsMax',
  'branchRulesMax',
  'vectorDimensionMin',
  'vectorDimensionMax',
  'decimalPrecisionMax',
  'enumValuesMax',
  'enumValueLengthMax',
  'expressionLengthMax',
  'constraintsPerTableMax',
  'constraintColumnsMax',
  'violationsListedMax',
  'filesPerArrayMax',
  'base64LengthMax',
  'fileNameLengthMax',
  'mediaTypeLengthMin',
  'mediaTypeLengthMax',
  'urlSecondsMax',
  'transactionOperationsMax',
  'resolutionsMax',
  'onlyMax',
] as const satisfies readonly LimitName[]
type SetLimitName = Exclude<LimitName, (typeof FIXED_LIMITS)[number]>

const LIMIT_HELP: Readonly<Record<SetLimitName, string>> = {
  keysPerUserMax: 'API keys of one user.',
  workspacesPerUserMax: 'Workspaces of one user.',
  databasesPerWorkspaceMax: 'Databases in one workspace.',
  checkpointsPerBranchMax: 'Checkpoints of one branch that users have made.',
  openProposalsMax: 'Open proposals of one database.',
  commentsPerProposalMax: 'Comments of one proposal.',
  automaticCheckpointsMax:
    'Merges, resets and other changes of one branch whose checkpoints are kept: the service makes one before and one after each. 0: it makes none.',
  tablesPerBranchMax: 'Tables of one branch.',
  columnsPerTableMax: 'Columns of one table.',
  columnsPerBranchMax: 'Columns of all tables of one branch.',
  indexesPerTableMax: 'Indexed columns of one table.',
  schemaOperationsMax: 'Operations in one schema edit.',
  objectDepthMax: 'Depth of columns inside `object` columns.',
  stringLengthMax: 'Characters in a `string` column.',
  emailLengthMax: 'Characters in an `email` column.',
  recordBytesMax: 'Bytes of one record as JSON, without its files.',
  bulkRecordsMax: 'Records in one bulk insert.',
  dataLossRecordsMax:
    'Records of a table that are checked for values before columns or tables are removed.',
  pageSizeMax: 'Records on one page of a query.',
  answerBytesMax: 'Bytes of rows that may be read for one request.',
  requestBytesMax: 'Bytes of one request body.',
  transactionBytesMax: 'Bytes of the body of a transaction, or of SQL with its parameters.',
  mergeBytesMax: 'Bytes of the body of a merge or a pull, with its resolutions.',
  mergeLockedRowsMax:
    'Changed rows of a merge that locks both branches. A larger merge compares without locks, and locks the target only to publish the outcome.',
  ruleLockedRowsMax:
    'Records of a table that a new constraint or rule of a column is checked for while writers of the branch wait. More are checked without a lock before, and then only those that were written meanwhile.',
  queryBytesMax: 'Bytes of the body of a query, a calculation or a search.',
  controlBytesMax: 'Bytes of a request body without records, such as a schema.',
  jsonDepthMax: 'Nesting depth of a JSON body.',
  jsonValuesMax: 'Values in a JSON body; in a bulk insert, values in one record.',
  jsonStringBytesMax: 'Bytes of one string in a JSON body.',
  requestTimeoutMs: 'Milliseconds that one request may take.',
  answerWithinMs:
    'Milliseconds after which a merge, a change of many records or an edit of a schema that is still running is answered by an operation, and goes on.',
  operationTimeoutMs: 'Milliseconds that each statement of such work may take.',
  operationsAtOnceMax:
    'Operations that go on after the answer to their request, in one process. One workspace gets at most three quarters of them.',
  connectionsMax: 'Concurrent connections of clients.',
  connectionsPerAddressMax: 'Concurrent connections from one address.',
  addressRequestsPerSecondMax: 'Requests per second without a valid API key from one address.',
  monitoringRequestsPerSecondMax:
    'Requests per second to `/health` and `/metrics` from one address.',
  filesPerLinkMax: 'Concurrent file transfers of one link.',
  filesPerAddressMax: 'Concurrent file transfers of one address without an API key.',
  filesPerKeyMax: 'Concurrent file transfers of one API key.',
  requestsAtOnceMax: 'Concurrent requests.',
  requestsWaitingMax: 'Requests that wait for admission.',
  requestWaitMs: 'Milliseconds that a request may wait for admission.',
  importsAtOnceMax: 'Concurrent streams of records; at most half of `OFFSHOOT_POOL_MAX`.',
  filesAtOnceMax: 'Concurrent file transfers.',
  bufferedBytesMax: 'Bytes of request bodies and large answers that may be in memory.',
  headersBytesMax: 'Bytes of the request line and all headers.',
  headersTimeoutMs: 'Milliseconds in which the headers of a request must arrive.',
  healthTimeoutMs:
    'Milliseconds in which PostgreSQL must answer, or /health reports the service as unavailable.',
  stallTimeoutMs: 'Milliseconds without progress after which a body or an answer is aborted.',
  transferBytesPerSecondMin:
    'Minimum average transfer rate of a body or an answer, in bytes per second.',
  queryTimeoutMs: 'Milliseconds that one query, calculation or SQL request may run.',
  sqlLengthMax: 'Characters of SQL in one request.',
  sqlConnectionsMax:
    'Connections to PostgreSQL for long SQL requests, in addition to `OFFSHOOT_POOL_MAX`.',
  sqlConnectionsPerWorkspaceMax:
    'Connections to PostgreSQL for long SQL requests of one workspace.',
  sqlQuickConnectionsMax:
    'Connections to PostgreSQL for short SQL requests, in addition to those for long ones.',
  sqlQuickConnectionsPerWorkspaceMax:
    'Connections to PostgreSQL for short SQL requests of one workspace.',
  sqlTransactionsMax:
    'Transactions that clients of PostgreSQL keep open, each with a connection of its own.',
  sqlTransactionsPerWorkspaceMax:
    'Transactions that clients of PostgreSQL keep open in one workspace.',
  sqlTransactionIdleMs:
    'Milliseconds that a transaction of a client of PostgreSQL may wait for its next statement.',
  sqlTransactionMs: 'Milliseconds that a transaction of a client of PostgreSQL may take.',
  sqlWaitingMax: 'SQL requests that wait for a connection; further ones get 503.',
  sqlWaitingPerWorkspaceMax: 'SQL requests of one workspace that wait for a connection.',
  sqlWaitMs: 'Milliseconds that a SQL request waits for a connection.',
  sqlStatementsMax: 'Statements in one batch of SQL.',
  sqlScriptStatementsMax:
    'Statements of a SQL request that changes the schema and the records. Neighbours that change the schema are one.',
  sqlParametersMax: 'Parameters of one SQL statement.',
  sqlRowsMax: 'Rows in the result of one SQL statement, and records that it writes and returns.',
  sqlResultBytesMax: 'Bytes of JSON in the answer to one SQL request.',
  fileBytesMax: 'Bytes of one file.',
  inviteDaysMax: 'Days in which an invite can be accepted.',
  linkedRecordsMax:
    'Records that a deletion deletes or changes, because they link to deleted ones.',
}

/** An upper bound for limits: twice this number still fits into 32 bits. */
const LIMIT_MAX = 1_000_000_000
/** Limits with another upper bound. Files are streamed, so only the store limits their size. */
const LIMIT_MAXIMA: Readonly<Partial<Record<LimitName, number>>> = {
  fileBytesMax: LIMITS.fileBytesMax,
}

/** Limits that can be 0. */
const LIMIT_MINIMA: Readonly<Partial<Record<LimitName, number>>> = { automaticCheckpointsMax: 0 }

function limitSettings(): [LimitName, Setting<number>][] {
  const names = (Object.keys(LIMITS) as LimitName[]).filter((name) => name in LIMIT_HELP)
  return (names as SetLimitName[]).map((name) => [
    name,
    {
      env: `OFFSHOOT_LIMIT_${name.replace(/([A-Z0-9]+)/g, '_$1').toUpperCase()}`,
      help: LIMIT_HELP[name],
      fallback: String(LIMITS[name]),
      allowed: `a whole number from ${LIMIT_MINIMA[name] ?? 1} to ${LIMIT_MAXIMA[name] ?? LIMIT_MAX}`,
      parse: (text) =>
        wholeNumber(
          text ?? String(LIMITS[name]),
          LIMIT_MINIMA[name] ?? 1,
          LIMIT_MAXIMA[name] ?? LIMIT_MAX,
        ),
    },
  ])
}

function setting<Value>(entry: Setting<Value>): Setting<Value> {
  return entry
}

function wholeNumber(text: string, min: number, max: number): number | undefined {
  if (!/^\d{1,16}$/.test(text)) return undefined
  const value = Number(text)
  return value >= min && value <= max ? value : undefined
}

function parseRegions(text: string): readonly Region[] | undefined {
  const regions = text.split(',').map((part) => {
    const [id = '', ...name] = part.split('=')
    return { id: id.trim(), name: name.join('=').trim() || id.trim() }
  })
  const ids = new Set(regions.map((region) => region.id))
  const valid = regions.every((region) => REGION_PATTERN.test(region.id))
  return valid && ids.size === regions.length ? regions : undefined
}

function parseNetworks(text: string): readonly string[] | undefined {
  const networks = text.split(',').map((part) => part.trim())
  const isNetwork = (network: string) => {
    const [address = '', bits, ...rest] = network.split('/')
    const bitsMax = isIP(address) === 4 ? 32 : 128
    const hasBits = bits === undefined || wholeNumber(bits, 0, bitsMax) !== undefined
    return isIP(address) !== 0 && hasBits && rest.length === 0
  }
  return networks.every(isNetwork) ? networks : undefined
}

function parseS3Address(text: string): S3Address | undefined {
  const match = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/([^?#]*))?(?:\?([^#]*))?$/.exec(
    text,
  )
  if (match === null) return undefined
  const [, bucket = '', path = '', query = ''] = match
  const parameters = new URLSearchParams(query)
  for (const name of parameters.keys()) {
    if (name !== 'endpoint' && name !== 'region') return undefined
  }
  const region = parameters.get('region') ?? 'us-east-1'
  const endpoint = parseOrigin(parameters.get('endpoint') ?? `https://s3.${region}.amazonaws.com`)
  const prefix = path.replace(/^\/+|\/+$/g, '')
  if (endpoint === undefined || !/^[a-z0-9-]+$/i.test(region)) return undefined
  if (!/^[\w./-]*$/.test(prefix)) return undefined
  return { bucket, prefix: prefix === '' ? '' : `${prefix}/`, endpoint, region }
}

function parseHttpUrl(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined
  return url !== undefined && /^https?:$/.test(url.protocol) ? text.replace(/\/+$/, '') : undefined
}

/** Parses headers with percent-encoded values, as OpenTelemetry specifies. */
function parseHeaders(text: string): Readonly<Record<string, string>> | undefined {
  const headers: Record<string, string> = {}
  for (const part of text.split(',').filter((entry) => entry.trim() !== '')) {
    const [, name, value = ''] = /^\s*([\w.-]+)\s*=\s*(\S.*?)\s*$/.exec(part) ?? []
    if (name === undefined) return undefined
    try {
      headers[name] = decodeURIComponent(value)
    } catch {
      return undefined
    }
  }
  return headers
}

function parseOrigins(text: string): Origins | undefined {
  if (text.trim() === '*') return '*'
  const origins = text.split(',').map((part) => parseOrigin(part.trim()))
  return origins.every((origin) => origin !== undefined) ? origins : undefined
}

function parseOrigin(text: string): string | undefined {
  try {
    const url = new URL(text)
    const isOrigin = /^https?:$/.test(url.protocol) && url.href === `${url.origin}/`
    return isOrigin ? url.origin : undefined
  } catch {
    return undefined
  }
}
