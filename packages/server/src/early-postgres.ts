import {
  type SupervisedPostgres,
  type SupervisedStart,
  superviseEmbedded,
} from './postgres/supervise-embedded.js'
import { tellPerson } from './tell-person.js'

type Follower = Pick<SupervisedStart, 'onStart' | 'log'>

/** The embedded PostgreSQL, which can start before the service is loaded. */
export interface EarlyPostgres {
  /** Starts PostgreSQL once. Resolves when it accepts connections. */
  start(): Promise<SupervisedPostgres>
  /** Starts PostgreSQL. Resolves when it works on its own, or has failed: the service can be loaded. */
  startAhead(): Promise<void>
  /** Passes events to the service, those that have happened before included. */
  follow(follower: Follower): void
  stop(): Promise<void>
}

export function createEarlyPostgres(dataDir: string): EarlyPostgres {
  let follower: Follower | undefined
  const missed: ((follower: Follower) => void)[] = []
  const tell = (event: (follower: Follower) => void) => {
    if (follower === undefined) missed.push(event)
    else event(follower)
  }
  let running: Promise<SupervisedPostgres> | undefined
  const start = (onWaiting: () => void) => {
    running ??= superviseEmbedded({
      dataDir,
      onWaiting,
      onStart: (connection) => tell(({ onStart }) => onStart(connection)),
      log: {
        // The first start takes long, so its steps are shown.
        info: (line) => {
          tellPerson(line)
          tell(({ log }) => log.info(line))
        },
        error: (details, line) => tell(({ log }) => log.error(details, line)),
      },
    })
    return running
  }
  return {
    start: () => start(() => {}),
    // The service calls `start` later, and gets an error then.
    startAhead: () =>
      new Promise((resolve) =>
        start(resolve).then(
          () => resolve(),
          () => resolve(),
        ),
      ),
    follow(next) {
      follower = next
      for (const event of missed.splice(0)) event(next)
    },
    async stop() {
      await (await running?.catch(() => undefined))?.stop()
    },
  }
}
