import { setTimeout as delay } from 'node:timers/promises'
import { until } from '../process.js'
import type { Random } from '../seeded-random.js'
import type { ProofService } from './service.js'

/**
 * A fault that is injected into a service and its embedded PostgreSQL. Resolves when it is over.
 */
export interface Fault {
  readonly name: string
  /** The service process itself ends. */
  readonly mayVanish: boolean
  strike(service: ProofService, random: Random): Promise<void>
}

/** Kills the service and leaves its PostgreSQL running. */
export const SERVICE_KILLED: Fault = {
  name: 'the service is killed',
  mayVanish: true,
  async strike(service) {
    await service.kill()
    await service.start()
  },
}

/** Kills all processes at once, like a power failure. */
export const EVERYTHING_KILLED: Fault = {
  name: 'the service and its PostgreSQL are killed',
  mayVanish: true,
  async strike(service) {
    const killed = service.kill()
    for (const pid of await service.postgres()) kill(pid, 'SIGKILL')
    await killed
    await service.start()
  },
}

export const START_KILLED: Fault = {
  name: 'the service is killed, and again while it starts',
  mayVanish: true,
  async strike(service, random) {
    await service.kill()
    service.launch()
    await delay(random.below(1500))
    await service.kill()
    await service.start()
  },
}

export const POSTGRES_KILLED: Fault = postgresFault('PostgreSQL is killed', async (service) => {
  const pids = await service.postgres()
  const [postmaster = 0] = pids
  kill(postmaster, 'SIGKILL')
  await untilEnded(service, pids)
})

/**
 * Kills a backend. The postmaster ends the other backends, because shared memory may be damaged,
 * and recovers.
 */
export const BACKEND_KILLED: Fault = postgresFault(
  'a process of PostgreSQL is killed',
  async (service, random) => {
    const [, ...others] = await service.postgres()
    if (others.length === 0) return
    kill(random.pick(others), 'SIGKILL')
    await untilEnded(service, others)
  },
)

/**
 * Waits until processes of PostgreSQL have ended. On a busy machine, some of them could still answer after the crash,
 * and the service would seem to be ready again.
 */
async function untilEnded(service: ProofService, pids: readonly number[]): Promise<void> {
  await until(async () => {
    const running = await service.postgres()
    return !running.some((pid) => pids.includes(pid))
  })
}

export const IMMEDIATE_RESTART: Fault = postgresFault('PostgreSQL is aborted', async (service) => {
  const [postmaster = 0] = await service.postgres()
  kill(postmaster, 'SIGQUIT')
})

export const FAST_RESTART: Fault = postgresFault('PostgreSQL is stopped', async (service) => {
  const [postmaster = 0] = await service.postgres()
  kill(postmaster, 'SIGINT')
})

export const CONNECTIONS_CUT: Fault = postgresFault('all connections are cut', async (service) => {
  await service.sql(`
    select pg_terminate_backend(pid)
    from pg_stat_activity
    where application_name = 'offshoot' and pid <> pg_backend_pid()`)
})

/** The service keeps running and has to recover. */
function postgresFault(
  name: string,
  strike: (service: ProofService, random: Random) => Promise<void>,
): Fault {
  return {
    name,
    mayVanish: false,
    async strike(service, random) {
      await strike(service, random)
      // A request that follows at once may still succeed.
      await delay(100)
      await service.untilReady()
    },
  }
}

function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch {
    // The process has already ended.
  }
}
