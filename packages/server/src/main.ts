import { acquireDataLock, hasCluster } from '@offshoot/embedded-postgres'
import { type Config, ConfigError, readConfig } from './config.js'
import { createEarlyPostgres } from './early-postgres.js'

/*
 * Loading the service takes longer than starting PostgreSQL. So this module loads little, starts
 * PostgreSQL, and loads the service meanwhile.
 */

/**
 * A person needs longer than this to press Ctrl-C again. npm passes on a signal that the terminal has sent to all
 * processes, so one press can arrive twice.
 */
const SAME_SIGNAL_MS = 500

export interface MainOptions {
  /** Stops the service like a signal. */
  readonly stop?: AbortSignal
}

/** Runs the service until it is told to stop. Resolves with the exit code. */
export async function main(options: MainOptions = {}): Promise<number> {
  const startedAt = performance.now()
  nameRuntime()
  let config: Config
  try {
    config = readConfig(process.env)
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    process.stderr.write(`offshoot: invalid settings\n${indent(error.message)}\n`)
    return 1
  }
  const stopping = stopSignal(options.stop)
  const cleanUps: (() => Promise<void>)[] = []
  try {
    const lock = await acquireDataLock(config.dataDir)
    cleanUps.push(() => lock.release())
    const { dataDir, databaseHosts } = config
    const embedded = databaseHosts === null ? createEarlyPostgres(dataDir) : undefined
    if (embedded !== undefined) {
      cleanUps.push(() => embedded.stop())
      // A first start creates nothing before it is known that the port is free.
      if (await hasCluster(dataDir)) await embedded.startAhead()
    }
    const { serve } = await import('./serve.js')
    await serve(config, { startedAt, stopping, cleanUps, embedded, lock })
    return 0
  } catch (error) {
    const { explainStart } = await import('./explain-start.js')
    process.stderr.write(`offshoot: cannot start: ${explainStart(error, config)}\n`)
    return 1
  } finally {
    // In reverse order: requests, connections, PostgreSQL, data folder.
    for (const cleanUp of cleanUps.reverse()) {
      await cleanUp().catch(async (error: unknown) => {
        const { explainStart } = await import('./explain-start.js')
        process.stderr.write(
          `offshoot: error while shutting down: ${explainStart(error, config)}\n`,
        )
      })
    }
  }
}

/**
 * Sets `navigator` as Node does since version 21. Without it, `pg` finds out whether it runs at Cloudflare by
 * creating a `Response`, which loads all of `fetch`.
 */
function nameRuntime(): void {
  if ('navigator' in globalThis) return
  const userAgent = `Node.js/${process.versions.node.split('.')[0]}`
  Object.defineProperty(globalThis, 'navigator', { value: { userAgent }, configurable: true })
}

/** Resolves at the first signal to stop; a second one ends the process immediately. */
function stopSignal(stop: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    let askedAt: number | undefined
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
      process.on(signal, () => {
        askedAt ??= performance.now()
        if (performance.now() - askedAt > SAME_SIGNAL_MS) process.exit(1)
        // The terminal is gone, so nothing can be written to it.
        if (signal === 'SIGHUP') for (const stream of STREAMS) stream.on('error', () => {})
        resolve()
      })
    }
    stop?.addEventListener('abort', () => resolve(), { once: true })
  })
}

const STREAMS = [process.stdout, process.stderr]

function indent(text: string): string {
  return text.replace(/^/gm, '  ')
}
