import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Limits } from '@offshoot/contract/limits'
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect } from 'vitest'
import { createTestService, type TestService } from '../support/service.js'

const PLACES = [
  process.env.OFFSHOOT_TEST_CHROMIUM ?? '',
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
]

const executablePath = PLACES.find((place) => place !== '' && existsSync(place))
/** Tests of the console are skipped on a machine without Chromium, and say so. */
export const hasChromium = executablePath !== undefined
if (!hasChromium) {
  process.stderr.write(
    'the tests of the console are skipped: install chromium, or set OFFSHOOT_TEST_CHROMIUM\n',
  )
}

const FOLDER = fileURLToPath(new URL('../../packages/console/dist', import.meta.url))
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js')
/** Only ends tests that hang: the machine may be busy. */
export const PATIENCE_MS = 60_000

/** A service that listens on a port of its own, and a browser. */
interface TestConsole {
  readonly service: TestService
  readonly url: string
  /**
   * Opens an address. Without options, in the page that the tests of a file share: it is signed in with the
   * first key and goes to the address as a link does, because loading a page anew costs most of the time of a
   * short test. With options, in a browser profile of its own, which is closed after the test.
   */
  open(address: string, options?: OpenOptions): Promise<WatchedPage>
}

export interface OpenOptions {
  /** The key to sign in with; null to stay signed out. */
  readonly key?: string | null
  readonly viewport?: { readonly width: number; readonly height: number }
  readonly colorScheme?: 'light' | 'dark'
}

export interface WatchedPage {
  readonly page: Page
  readonly context: BrowserContext
  /** Errors of the page and requests to other hosts. Tests that cause errors on purpose empty it. */
  readonly faults: string[]
  /** Goes to an address as a link does, without loading the page anew. */
  visit(address: string): Promise<void>
  /** Fails on any fault so far. Also run after each test, on each of its pages. */
  expectNoFaults(): void
  /** Fails on any fault, and on anything that axe finds. */
  expectClean(): Promise<void>
}

interface ServiceOptions {
  readonly limits?: Partial<Limits>
  /** The port for clients of PostgreSQL that the console names. */
  readonly postgresPort?: number
}

/** Starts a service for the tests of a file; call it inside of `describe`. */
export function testConsole(options: ServiceOptions = {}): TestConsole {
  let running: Running | undefined
  let shared: WatchedPage | undefined
  let opened: WatchedPage[] = []
  const get = () => {
    if (running === undefined) throw new Error('the console is started before the first test')
    return running
  }
  beforeAll(async () => {
    running = await start(options)
  })
  afterEach(async ({ task }) => {
    const watched = shared === undefined ? opened : [...opened, shared]
    const faults = watched.flatMap((one) => one.faults.splice(0))
    const leftover = opened
    opened = []
    // A page on which a test has failed may be in any state.
    if (task.result?.state === 'fail' && shared !== undefined) {
      leftover.push(shared)
      shared = undefined
    }
    for (const { context } of leftover) await context.close()
    expect(faults.join('\n')).toBe('')
  })
  afterAll(async () => {
    await shared?.context.close()
    running?.service.app.server.closeAllConnections()
    await running?.service.close()
  })
  return {
    get service() {
      return get().service
    },
    get url() {
      return get().url
    },
    async open(address, options) {
      if (options !== undefined) {
        const { url, service } = get()
        const { key = service.key } = options
        const own = await openPage({ url, key }, address, options)
        opened.push(own)
        return own
      }
      if (shared === undefined) {
        const { url, service } = get()
        shared = await openPage({ url, key: service.key }, address)
      } else await shared.visit(address)
      return shared
    },
  }
}

interface Running {
  readonly service: TestService
  readonly url: string
}

async function start(options: ServiceOptions): Promise<Running> {
  if (!existsSync(path.join(FOLDER, 'index.html'))) {
    throw new Error('the console is not built: run `npm run build` first')
  }
  const service = await createTestService({ consoleFolder: FOLDER, ...options })
  await service.app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = service.app.server.address() as AddressInfo
  return { service, url: `http://127.0.0.1:${port}` }
}

let browser: Promise<Browser> | undefined
/** One browser for all files that a process runs. It ends with the process, which holds the pipe that it reads. */
function launchBrowser(): Promise<Browser> {
  browser ??= chromium.launch({
    ...(executablePath === undefined ? {} : { executablePath }),
    // A container has no namespaces for the sandbox, and little shared memory.
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--in-process-gpu'],
  })
  return browser
}

/** Opens an address of any service in a browser profile of its own, signed in with the key. */
export async function openPage(
  { url, key }: { readonly url: string; readonly key: string | null },
  address: string,
  { viewport, colorScheme }: Omit<OpenOptions, 'key'> = {},
): Promise<WatchedPage> {
  const context = await (await launchBrowser()).newContext({
    baseURL: url,
    viewport: viewport ?? { width: 1280, height: 800 },
    reducedMotion: 'reduce',
    permissions: ['clipboard-read', 'clipboard-write'],
    ...(colorScheme === undefined ? {} : { colorScheme }),
  })
  context.setDefaultTimeout(PATIENCE_MS)
  if (key !== null) {
    const answer = await context.request.post('/console/session', {
      headers: { 'x-offshoot-console': '1', origin: url, authorization: `Bearer ${key}` },
    })
    expect(answer.status()).toBe(201)
  }
  const page = await context.newPage()
  const faults: string[] = []
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) faults.push(message.text())
  })
  page.on('pageerror', (error) => faults.push(String(error)))
  page.on('request', (request) => {
    const { origin, protocol } = new URL(request.url())
    if (!['blob:', 'data:'].includes(protocol) && origin !== url) faults.push(request.url())
  })
  await page.goto(address)
  const expectNoFaults = () => expect(faults.join('\n')).toBe('')
  return {
    page,
    context,
    faults,
    expectNoFaults,
    async visit(next) {
      await page.evaluate(`history.pushState(null, '', ${JSON.stringify(next)})`)
    },
    async expectClean() {
      expectNoFaults()
      await expect
        .poll(async () => (await violations(page)).join('\n'), { timeout: PATIENCE_MS })
        .toBe('')
    },
  }
}

/** Runs axe on the page and describes what it finds. */
async function violations(page: Page): Promise<string[]> {
  // Evaluated by the debugger, which the content security policy of the page does not bind.
  if (await page.evaluate("!('axe' in window)")) await page.evaluate(await readAxe())
  const found = await page.evaluate(async () => {
    const { axe } = globalThis as unknown as {
      axe: {
        run(options: { resultTypes: string[]; preload: boolean }): Promise<{
          violations: {
            id: string
            help: string
            nodes: { html: string; failureSummary: string }[]
          }[]
        }>
      }
    }
    // Details of what passes, and style sheets as text, take time and change no violation.
    return (await axe.run({ resultTypes: ['violations'], preload: false })).violations
  })
  return found.flatMap(({ id, help, nodes }) =>
    nodes.map(
      ({ html, failureSummary }) => `${id}: ${help}: ${html.slice(0, 300)} ${failureSummary}`,
    ),
  )
}

let axe: string | undefined
async function readAxe(): Promise<string> {
  const { readFile } = await import('node:fs/promises')
  axe ??= await readFile(AXE, 'utf8')
  return axe
}
