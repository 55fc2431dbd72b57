import { setTimeout as delay } from 'node:timers/promises'
import { EmbeddedError } from './errors.js'
import type { Identity } from './identity.js'
import { readPostmasterFile } from './orphan.js'
import { describeEnding, type Ending, openPlace, type RunningProcess, spawnAs } from './run.js'
import { openServerLog } from './server-log.js'

/** A server process that accepts connections. */
export interface Server {
  stop(): Promise<void>
  /** Settles if the server ends without a call of stop(). */
  readonly exited: Promise<Ending>
}

interface ServerOptions {
  /** The path of the program. */
  readonly postgres: string
  readonly cluster: string
  readonly identity: Identity
  readonly settings: Readonly<Record<string, string>>
  readonly logFile: string
  readonly log: (line: string) => void
  /** Called when the server process runs. */
  onWaiting(): void
}

/** The status of a server that accepts connections: a primary, or a standby that can be read. */
const ACCEPTING = new Set<string | undefined>(['ready', 'standby'])
const readyPollMilliseconds = 10
const patienceMilliseconds = 10_000
const abortAfterMilliseconds = 60_000

/** Starts the server. Resolves when it accepts connections; a recovery may take any time. */
export async function startServer(options: ServerOptions): Promise<Server> {
  const serverLog = await openServerLog(options.logFile)
  try {
    const place = await openPlace(options.cluster, options.identity)
    const settings = Object.entries(options.settings).flatMap(([name, value]) => [
      '-c',
      `${name}=${value}`,
    ])
    const running = await spawnAs(options.postgres, ['-D', place.path, ...settings], {
      identity: options.identity,
      place,
      standardStreams: ['ignore', serverLog.descriptor, serverLog.descriptor],
      // Ctrl-C in a terminal signals all processes of its group. In the same group, the server
      // would stop before this process has finished its work with it.
      detached: true,
    }).finally(() => place.close())
    const server = supervise(running, options.log)
    options.onWaiting()
    const ending = await waitUntilReady(running, options).catch(async (error: unknown) => {
      await server.stop()
      throw error
    })
    if (!ending) return server
    throw new EmbeddedError(
      `PostgreSQL ended with ${describeEnding(ending)} instead of starting` +
        `${await serverLog.tail()}`,
    )
  } finally {
    await serverLog.close()
  }
}

function supervise({ child, ended }: RunningProcess, log: (line: string) => void): Server {
  // An uncaught exception must not leave the server behind.
  const stopAtExit = () => {
    child.kill('SIGINT')
  }
  process.once('exit', stopAtExit)

  let stopping: Promise<void> | undefined
  const stop = async () => {
    child.kill('SIGINT')
    const timer = setTimeout(() => {
      log('PostgreSQL does not stop: aborting it')
      child.kill('SIGQUIT')
    }, abortAfterMilliseconds)
    await ended
    clearTimeout(timer)
  }
  return {
    stop() {
      stopping ??= stop()
      return stopping
    },
    exited: new Promise((resolve) => {
      void ended.then((ending) => {
        process.off('exit', stopAtExit)
        if (!stopping) resolve(ending)
      })
    }),
  }
}

/** Resolves with undefined when the server is ready, or with how it ended. */
async function waitUntilReady(
  { child, ended }: RunningProcess,
  { cluster, log }: ServerOptions,
): Promise<Ending | undefined> {
  const start = performance.now()
  let isPatient = true
  for (;;) {
    // Connection attempts during a long recovery would each write a line to the server log.
    const file = await readPostmasterFile(cluster)
    if (file?.pid === child.pid && ACCEPTING.has(file?.status)) return undefined
    const ending = await Promise.race([ended, delay(readyPollMilliseconds, undefined)])
    if (ending) return ending
    if (isPatient && performance.now() - start > patienceMilliseconds) {
      isPatient = false
      log('PostgreSQL is still starting, most likely because it recovers from a crash')
    }
  }
}
