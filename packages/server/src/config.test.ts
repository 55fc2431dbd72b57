import path from 'node:path'
import { LIMITS, type LimitName } from '@offshoot/contract/limits'
import { describe, expect, it } from 'vitest'
import { ConfigError, readConfig, settingsTable } from './config.js'

const messageOf = (env: NodeJS.ProcessEnv): string => {
  try {
    readConfig(env)
    return ''
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError)
    return (error as Error).message
  }
}

describe('readConfig', () => {
  it('has a default for everything', () => {
    expect(readConfig({})).toEqual({
      port: 6001,
      pgPort: { port: 6432, isGiven: false },
      pgTlsCert: null,
      pgTlsKey: null,
      host: '127.0.0.1',
      dataDir: path.resolve('.offshoot'),
      databaseHosts: null,
      apiKey: null,
      regions: [{ id: 'local', name: 'local' }],
      publicUrl: null,
      origins: null,
      console: true,
      files: null,
      filesKeyId: null,
      filesSecret: null,
      logLevel: 'warn',
      requestIdHeader: null,
      metrics: true,
      metricsToken: null,
      metricsPort: null,
      tracesEndpoint: null,
      telemetryEndpoint: null,
      telemetryHeaders: {},
      serviceName: 'offshoot',
      traceSampleRatio: 1,
      databaseWaitSeconds: 60,
      poolMax: 20,
      distributesDatabases: true,
      keyRequestsPerSecond: 20_000,
      keyRequestsAtOnce: 500,
      workspaceBytesMax: null,
      trustedProxies: [],
      backgroundPauseMs: 5000,
      limits: LIMITS,
    })
  })

  it('takes an empty variable for one that is not set', () => {
    const env = Object.fromEntries(settingsTable().map((row) => [row.env, '']))
    expect(readConfig(env)).toEqual(readConfig({}))
  })

  it('leaves the variables of other programs alone', () => {
    expect(readConfig({ PATH: '/bin', PORT: 'x', OFFSHOOT: 'x', OFFSHOOT_TEST_X: 'x' })).toEqual(
      readConfig({}),
    )
  })

  it.each([
    ['OFFSHOOT_PORT', '0', { port: 0 }],
    ['OFFSHOOT_PORT', '65535', { port: 65535 }],
    ['OFFSHOOT_HOST', '0.0.0.0', { host: '0.0.0.0' }],
    ['OFFSHOOT_HOST', '::1', { host: '::1' }],
    ['OFFSHOOT_HOST', 'db.example.com', { host: 'db.example.com' }],
    ['OFFSHOOT_DATA_DIR', '/var/lib/off shoot', { dataDir: '/var/lib/off shoot' }],
    ['OFFSHOOT_DATA_DIR', 'here', { dataDir: path.resolve('here') }],
    [
      'OFFSHOOT_DATABASE_URL',
      'postgres://u:p@a,b:5433/d?sslmode=require',
      {
        databaseHosts: [
          { name: 'a:5432', url: 'postgres://u:p@a:5432/d?sslmode=require' },
          { name: 'b:5433', url: 'postgres://u:p@b:5433/d?sslmode=require' },
        ],
      },
    ],
    [
      'OFFSHOOT_DATABASE_URL',
      'postgresql:///d',
      { databaseHosts: [{ name: 'localhost:5432', url: 'postgresql:///d' }] },
    ],
    ['OFFSHOOT_API_KEY', 'k3Xv9QpL2mZr8TnB5wYc7HdF', { apiKey: 'k3Xv9QpL2mZr8TnB5wYc7HdF' }],
    ['OFFSHOOT_LIMIT_FILE_BYTES_MAX', '5368709120', { limits: LIMITS }],
    [
      'OFFSHOOT_API_KEY',
      `k3Xv9QpL2mZr8TnB5wYc7HdF${'x'.repeat(231)}`,
      { apiKey: `k3Xv9QpL2mZr8TnB5wYc7HdF${'x'.repeat(231)}` },
    ],
    ['OFFSHOOT_TRUSTED_PROXIES', '10.0.0.0/8, ::1', { trustedProxies: ['10.0.0.0/8', '::1'] }],
    ['OFFSHOOT_REGIONS', 'eu', { regions: [{ id: 'eu', name: 'eu' }] }],
    [
      'OFFSHOOT_REGIONS',
      'eu = Europe, us-east-1=The = East',
      {
        regions: [
          { id: 'eu', name: 'Europe' },
          { id: 'us-east-1', name: 'The = East' },
        ],
      },
    ],
    ['OFFSHOOT_PUBLIC_URL', 'https://db.example.com', { publicUrl: 'https://db.example.com' }],
    ['OFFSHOOT_PUBLIC_URL', 'HTTP://Db:80/', { publicUrl: 'http://db' }],
    ['OFFSHOOT_ORIGINS', '*', { origins: '*' }],
    [
      'OFFSHOOT_ORIGINS',
      'https://A.example.com, http://localhost:3000',
      { origins: ['https://a.example.com', 'http://localhost:3000'] },
    ],
    ['OFFSHOOT_LOG_LEVEL', 'debug', { logLevel: 'debug' }],
    ['OFFSHOOT_DISTRIBUTE_DATABASES', 'false', { distributesDatabases: false }],
    ['OFFSHOOT_POOL_MAX', '2', { poolMax: 2 }],
    ['OFFSHOOT_POOL_MAX', '1000', { poolMax: 1000 }],
    ['OFFSHOOT_KEY_REQUESTS_PER_SECOND', '1', { keyRequestsPerSecond: 1 }],
    ['OFFSHOOT_KEY_REQUESTS_AT_ONCE', '1000000', { keyRequestsAtOnce: 1_000_000 }],
    ['OFFSHOOT_WORKSPACE_BYTES_MAX', '0', { workspaceBytesMax: 0 }],
    [
      'OFFSHOOT_WORKSPACE_BYTES_MAX',
      '9007199254740991',
      { workspaceBytesMax: Number.MAX_SAFE_INTEGER },
    ],
    ['OFFSHOOT_REQUEST_ID_HEADER', 'X-Edge-Id', { requestIdHeader: 'X-Edge-Id' }],
    ['OFFSHOOT_METRICS', 'off', { metrics: false }],
    [
      'OFFSHOOT_METRICS_TOKEN',
      'k3Xv9QpL2mZr8TnB5wYc7HdF',
      { metricsToken: 'k3Xv9QpL2mZr8TnB5wYc7HdF' },
    ],
    ['OFFSHOOT_METRICS_PORT', '9100', { metricsPort: 9100 }],
    ['OFFSHOOT_DATABASE_WAIT_SECONDS', '0', { databaseWaitSeconds: 0 }],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'http://c:4318/', { telemetryEndpoint: 'http://c:4318' }],
    ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'https://c/x', { tracesEndpoint: 'https://c/x' }],
    [
      'OTEL_EXPORTER_OTLP_HEADERS',
      'api-key=a%20b, x.y = 1=2',
      { telemetryHeaders: { 'api-key': 'a b', 'x.y': '1=2' } },
    ],
    ['OTEL_SERVICE_NAME', 'mine', { serviceName: 'mine' }],
    ['OTEL_TRACES_SAMPLER_ARG', '0.25', { traceSampleRatio: 0.25 }],
  ])('reads %s=%s', (name, value, expected) => {
    expect(readConfig({ [name]: value })).toMatchObject(expected)
  })

  it.each([
    ['OFFSHOOT_PORT', '65536', 'a whole number from 0 to 65535'],
    ['OFFSHOOT_PORT', '-1', 'a whole number'],
    ['OFFSHOOT_PORT', '80.5', 'a whole number'],
    ['OFFSHOOT_PORT', '0x50', 'a whole number'],
    ['OFFSHOOT_PORT', ' 80', 'a whole number'],
    ['OFFSHOOT_HOST', 'a b', 'an IP address or a host name'],
    ['OFFSHOOT_HOST', 'http://x/', 'an IP address or a host name'],
    ['OFFSHOOT_DATA_DIR', 'a\0b', 'a path'],
    ['OFFSHOOT_DATABASE_URL', 'mysql://x/y', 'an address such as postgresql://'],
    ['OFFSHOOT_DATABASE_URL', 'postgresql://', 'an address such as postgresql://'],
    ['OFFSHOOT_API_KEY', 'k3Xv9QpL2mZr8TnB5wYc7Hd', '24 to 255 letters, digits and underscores'],
    ['OFFSHOOT_API_KEY', `k3Xv9QpL2mZr8TnB5wYc7HdF${'x'.repeat(232)}`, '24 to 255 letters'],
    ['OFFSHOOT_API_KEY', 'k3Xv9QpL2mZr8TnB5wYc7HdF-', '24 to 255 letters'],
    [
      'OFFSHOOT_API_KEY',
      'x'.repeat(64),
      '24 to 255 letters, digits and underscores, of many kinds and not a repeated pattern; make one with `openssl rand -hex 32`',
    ],
    ['OFFSHOOT_API_KEY', 'off_key_'.repeat(8), '24 to 255 letters'],
    ['OFFSHOOT_REGIONS', ',', 'a list of ids of lower-case letters'],
    ['OFFSHOOT_REGIONS', 'EU', 'a list of ids of lower-case letters'],
    ['OFFSHOOT_REGIONS', 'eu.west', 'a list of ids of lower-case letters'],
    ['OFFSHOOT_REGIONS', 'eu,eu', 'a list of ids of lower-case letters'],
    ['OFFSHOOT_REGIONS', 'eu,', 'a list of ids of lower-case letters'],
    ['OFFSHOOT_ORIGINS', 'app.example.com', 'a list of origins such as https://app.example.com'],
    ['OFFSHOOT_ORIGINS', 'https://a.example.com,', 'a list of origins such as'],
    ['OFFSHOOT_ORIGINS', 'https://a.example.com/app', 'a list of origins such as'],
    ['OFFSHOOT_ORIGINS', '*,https://a.example.com', 'a list of origins such as'],
    ['OFFSHOOT_PUBLIC_URL', 'db.example.com', 'an http or https address'],
    ['OFFSHOOT_PUBLIC_URL', 'ftp://x', 'an http or https address'],
    ['OFFSHOOT_PUBLIC_URL', 'https://x/path', 'an http or https address without a path'],
    ['OFFSHOOT_PUBLIC_URL', 'https://x/?a', 'an http or https address'],
    ['OFFSHOOT_PUBLIC_URL', 'https://x/#a', 'an http or https address'],
    ['OFFSHOOT_PUBLIC_URL', 'https://u:p@x', 'an http or https address'],
    ['OFFSHOOT_LOG_LEVEL', 'loud', 'one of fatal, error, warn, info, debug, trace, silent'],
    ['OFFSHOOT_POOL_MAX', '1', 'a whole number from 2 to 1000'],
    ['OFFSHOOT_POOL_MAX', '1001', 'a whole number from 2 to 1000'],
    ['OFFSHOOT_KEY_REQUESTS_PER_SECOND', '0', 'a whole number from 1 to 1000000'],
    ['OFFSHOOT_KEY_REQUESTS_AT_ONCE', '1000001', 'a whole number from 1 to 1000000'],
    ['OFFSHOOT_WORKSPACE_BYTES_MAX', '-1', 'a whole number from 0 to 9007199254740991'],
    [
      'OFFSHOOT_WORKSPACE_BYTES_MAX',
      '9007199254740992',
      'a whole number from 0 to 9007199254740991',
    ],
    ['OFFSHOOT_REQUEST_ID_HEADER', 'a b', 'the name of a header'],
    ['OFFSHOOT_METRICS', 'yes', 'on or off'],
    ['OFFSHOOT_METRICS_TOKEN', 'short', '24 to 255 characters without spaces'],
    ['OFFSHOOT_METRICS_TOKEN', 'short'.repeat(10), '24 to 255 characters without spaces'],
    ['OFFSHOOT_METRICS_PORT', '0', 'a whole number from 1 to 65535'],
    ['OFFSHOOT_DATABASE_WAIT_SECONDS', '86401', 'a whole number from 0 to 86400'],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'localhost:4317', 'an http or https address'],
    ['OTEL_EXPORTER_OTLP_HEADERS', 'secret', 'a list such as api-key=secret'],
    ['OTEL_TRACES_SAMPLER_ARG', '1.1', 'a number from 0 to 1'],
    ['OFFSHOOT_LIMIT_PAGE_SIZE_MAX', '0', 'a whole number from 1 to'],
    ['OFFSHOOT_LIMIT_REQUEST_TIMEOUT_MS', '1000000001', 'a whole number from 1 to 1000000000'],
    ['OFFSHOOT_LIMIT_REQUEST_BYTES_MAX', '64MB', 'a whole number from 1 to'],
  ])('names %s=%j with what is allowed', (name, value, allowed) => {
    expect(messageOf({ [name]: value })).toMatch(
      new RegExp(`^${name}: .* is not ${allowed.replace(/[./]/g, '\\$&')}`, 's'),
    )
  })

  it('does not repeat a secret that it refuses', () => {
    expect(messageOf({ OFFSHOOT_API_KEY: 'secret-with-hyphens' })).not.toContain('secret')
    const url = 'mysql://admin:hunter2@db/x'
    expect(messageOf({ OFFSHOOT_DATABASE_URL: url })).not.toContain('hunter2')
  })

  it('names every wrong setting at once, also those that do not exist', () => {
    const message = messageOf({
      OFFSHOOT_PORT: 'x',
      OFFSHOOT_LOG_LEVEL: 'y',
      OFFSHOOT_PROT: '6001',
    })
    expect(message.split('\n')).toEqual([
      'OFFSHOOT_PORT: [x] is not a whole number from 0 to 65535',
      expect.stringMatching(/^OFFSHOOT_LOG_LEVEL: \[y\] is not/),
      'OFFSHOOT_PROT: is not a setting of this version',
    ])
  })

  it.each([
    ['OFFSHOOT_LIMIT_KEYS_PER_USER_MAX', 'keysPerUserMax'],
    ['OFFSHOOT_LIMIT_REQUEST_TIMEOUT_MS', 'requestTimeoutMs'],
    ['OFFSHOOT_LIMIT_RECORD_BYTES_MAX', 'recordBytesMax'],
  ] as const)('reads the limit %s', (name, limit) => {
    const { limits } = readConfig({ [name]: '7' })
    expect(limits).toEqual({ ...LIMITS, [limit]: 7 })
  })

  it.each(['nameLengthMax', 'transactionOperationsMax', 'vectorDimensionMax'] as LimitName[])(
    'does not offer to change %s, which the interface fixes',
    (limit) => {
      const name = `OFFSHOOT_LIMIT_${limit.replace(/[A-Z]/g, '_$&').toUpperCase()}`
      expect(messageOf({ [name]: '7' })).toBe(`${name}: is not a setting of this version`)
    },
  )
})

describe('settingsTable', () => {
  it('says of each setting what it means, its default and what is allowed', () => {
    const rows = settingsTable()
    expect(new Set(rows.map((row) => row.env)).size).toBe(rows.length)
    for (const row of rows) {
      expect(row.env).toMatch(/^(OFFSHOOT|OTEL)_[A-Z0-9_]+$/)
      expect(row.help).toMatch(/^[A-Z0-9].*\.$/)
      expect(row.fallback).not.toBe('')
      expect(row.allowed).not.toBe('')
    }
  })

  it.each([
    [
      's3://files',
      { prefix: '', endpoint: 'https://s3.us-east-1.amazonaws.com', region: 'us-east-1' },
    ],
    [
      's3://files/a/b/?endpoint=http://localhost:9000&region=eu-1',
      { prefix: 'a/b/', endpoint: 'http://localhost:9000', region: 'eu-1' },
    ],
  ])('reads where files are kept: %s', (address, expected) => {
    const env = {
      OFFSHOOT_FILES: address,
      OFFSHOOT_FILES_KEY_ID: 'id',
      OFFSHOOT_FILES_SECRET: 'secret',
    }
    expect(readConfig(env).files).toEqual({ bucket: 'files', ...expected })
    expect(() => readConfig({ OFFSHOOT_FILES: address })).toThrow('needs OFFSHOOT_FILES_KEY_ID')
  })

  it.each(['files', 's3://', 's3://a', 's3://FILES', 's3://files?x=1', 's3://files?endpoint=x'])(
    'refuses a place for files that is none: %s',
    (address) => {
      expect(() => readConfig({ OFFSHOOT_FILES: address })).toThrow('OFFSHOOT_FILES: [')
    },
  )
})
