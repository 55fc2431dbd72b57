import { setTimeout as delay } from 'node:timers/promises'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { OperationKind, OperationStarted } from '@offshoot/contract/operations'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { LongWork } from '../domain/long-work/long-work.js'
import { interrupted } from '../domain/long-work/operations.js'
import { errorBody, reportError } from './plugins/errors.js'
import type { Services } from './services.js'

/**
 * A merge has limits of its own for what keeps others waiting. Other work holds its branch until it ends, so without a place
 * among the operations it ends with its request.
 */
const MERGES: ReadonlySet<OperationKind> = new Set(['merge', 'pull', 'revert'])

function tooMany({ answerWithinMs, operationsAtOnceMax: max }: Limits): AppError {
  return new AppError(
    'timeout',
    `the request takes longer than ${answerWithinMs} ms, and ${max} operations are running already; nothing was applied, send it again later`,
  )
}

/** Answers requests whose work may take longer than a request may. */
export class LongAnswers {
  readonly #services: Pick<Services, 'database' | 'limits'>
  /** The work of this process whose requests are answered, and the end of each. */
  readonly #running = new Map<LongWork, Promise<void>>()

  constructor(services: Pick<Services, 'database' | 'limits'>) {
    this.#services = services
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
    const isLate = await delay(limits.answerWithinMs, true, { signal: ended.signal }).catch(
      () => false,
    )
    if (!isLate) return running
    if (this.#running.size >= limits.operationsAtOnceMax) {
      if (MERGES.has(kind)) return running
      work.cancel(tooMany(limits))
      return running.catch((error: unknown) => Promise.reject(work.cancelled ?? error))
    }
    const operation = await work.toOperation(running)
    if (operation === undefined) return running
    this.#running.set(work, this.#follow(request, { work, running }))
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
    } finally {
      this.#running.delete(work)
    }
  }

  /** Stops all work of the process. */
  async stop(): Promise<void> {
    for (const work of this.#running.keys()) work.cancel(interrupted())
    await Promise.all(this.#running.values())
  }
}
