import { setTimeout as delay } from 'node:timers/promises'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { OperationKind, OperationStarted } from '@offshoot/contract/operations'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { Shares } from '../common/shares.js'
import { LongWork } from '../domain/long-work/long-work.js'
import { interrupted } from '../domain/long-work/operations.js'
import { errorBody, reportError } from './plugins/errors.js'
import type { Services } from './services.js'

/**
 * Merges and imports have limits of their own for what keeps others waiting. Other work holds its branch until it ends, so
 * without a permit among the operations it ends with its request.
 */
const PATIENT: ReadonlySet<OperationKind> = new Set(['merge', 'pull', 'revert', 'import'])

function tooMany({ answerWithinMs }: Limits): AppError {
  return new AppError(
    'timeout',
    `the request takes longer than ${answerWithinMs} ms, and too many operations are running already; nothing was applied, send it again later`,
  )
}

/** Answers requests whose work may take longer than a request may. */
export class LongAnswers {
  readonly #services: Pick<Services, 'database' | 'limits'>
  /** The work of this process whose requests are answered, and the end of each. */
  readonly #running = new Map<LongWork, Promise<void>>()
  /** The permits of that work. Workspaces share them, so that the work of one leaves permits for the others. */
  readonly #permits: Shares

  constructor(services: Pick<Services, 'database' | 'limits'>) {
    this.#services = services
    this.#permits = new Shares(services.limits.operationsAtOnceMax)
  }

  /** Answers with the result of the work, or with an operation if it does not end in time. */
  async answer<Result extends object>(
    request: FastifyRequest,
    reply: FastifyReply,
    kind: OperationKind,
    run: (work: LongWork) => Promise<Result>,
  ): Promise<Result | OperationStarted> {
    const { database, limits } = this.#services
    const work = new LongWork(database, { kind, limits })
    const running = run(work)
    const ended = new AbortController()
    running.finally(() => ended.abort()).catch(() => undefined)
    const isLate = () =>
      delay(limits.answerWithinMs, true, { signal: ended.signal }).catch(() => false)
    const end = () => running.catch((error: unknown) => Promise.reject(work.cancelled ?? error))
    if (!(await isLate())) return end()
    const access = await work.findBranch(running)
    if (access === undefined) return end()
    let following: Promise<void> | undefined
    if (kind === 'import') {
      // The operation shows how many records have arrived. The request is answered after the last of them.
      if (await work.toOperation(access)) following = this.#follow(request, { work, running })
      await Promise.race([work.uploaded, end().catch(() => undefined)])
      if (!(await isLate())) return end()
    }
    const { workspaceId } = access
    if (!this.#permits.hasRoom(workspaceId)) {
      if (!PATIENT.has(kind)) work.cancel(tooMany(limits))
      return end()
    }
    this.#permits.take(workspaceId)
    const operation = await work.toOperation(access)
    if (operation === undefined) {
      this.#permits.give(workspaceId)
      return end()
    }
    following ??= this.#follow(request, { work, running })
    this.#running.set(
      work,
      following.finally(() => {
        this.#running.delete(work)
        this.#permits.give(workspaceId)
      }),
    )
    return reply
      .code(202)
      .header('location', `/operations/${operation.id}`)
      .send({ operation }) as unknown as OperationStarted
  }

  /** Stores how the work ends. */
  async #follow(
    request: FastifyRequest,
    { work, running }: { work: LongWork; running: Promise<object> },
  ): Promise<void> {
    try {
      await work.end({ state: 'done', result: await running })
    } catch (error) {
      const known = work.cancelled ?? reportError(error, request)
      const state = known.code === 'operation_cancelled' ? 'cancelled' : 'failed'
      await work.end({ state, error: { ...errorBody(known, request), status: known.status } })
    }
  }

  /** Stops all work of the process. */
  async stop(): Promise<void> {
    for (const work of this.#running.keys()) work.cancel(interrupted())
    await Promise.all(this.#running.values())
  }
}
