import { setTimeout as delay } from 'node:timers/promises'
import { type EmbeddedPostgres, startEmbedded } from '@offshoot/embedded-postgres'

const RESTART_DELAY_MS = 1_000

export interface SupervisedPostgres {
  readonly version: string
  stop(): Promise<void>
}

export interface SupervisedStart {
  readonly dataDir: string
  /** Called while the start only waits for processes of PostgreSQL. */
  onWaiting?(): void
  onStart(connection: EmbeddedPostgres['connection']): void
  readonly log: { info(line: string): void; error(details: object, line: string): void }
}

/** Starts the embedded PostgreSQL, and restarts it whenever it ends unexpectedly. */
export async function superviseEmbedded(options: SupervisedStart): Promise<SupervisedPostgres> {
  const { dataDir, onStart, log } = options
  const onWaiting = () => options.onWaiting?.()
  let isStopping = false
  let restarting: Promise<void> | undefined

  const start = async (): Promise<EmbeddedPostgres> => {
    const postgres = await startEmbedded({ dataDir, onWaiting, log: (line) => log.info(line) })
    onStart(postgres.connection)
    void postgres.exited.then((ending) => {
      restarting = restart(ending)
    })
    return postgres
  }

  const restart = async (ending: object): Promise<void> => {
    log.error(ending, 'the embedded PostgreSQL ended unexpectedly; restarting it')
    while (!isStopping) {
      try {
        current = await start()
        return
      } catch (error) {
        log.error({ err: error }, 'the embedded PostgreSQL did not start; trying again')
        await delay(RESTART_DELAY_MS)
      }
    }
  }

  let current = await start()
  return {
    version: current.version,
    async stop() {
      isStopping = true
      // A restart in progress must finish first, or its server would keep running.
      await restarting
      await current.stop()
    },
  }
}
