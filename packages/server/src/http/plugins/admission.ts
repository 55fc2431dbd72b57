import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type {
  FastifyContextConfig,
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  RouteOptions,
} from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { type Bearer, readBearer, requireBearer } from '../../domain/access/bearer.js'
import type { Principal } from '../../domain/access/principal.js'
import { ByteBudget } from '../admission/byte-budget.js'
import { type Caller, Callers, type Refusal, Strangers } from '../admission/caller.js'
import { Lane } from '../admission/lane.js'
import { Quota } from '../admission/quota.js'
import { overloaded, Ticket } from '../admission/ticket.js'
import { addressGroup, clientAddress, TrustedProxies } from '../client-address.js'
import type { Services } from '../services.js'

/** Requests take different lanes, so that what takes long leaves room for what does not. */
export type LaneName = 'work' | 'imports' | 'files' | 'strangers'

/** How full the service is. */
export interface Admission {
  readonly lanes: Readonly<Record<LaneName, Lane>>
  readonly budget: ByteBudget
  /** Requests that went beyond the limits of their key, address or link, since the start. */
  readonly rateLimited: number
}

declare module 'fastify' {
  interface FastifyInstance {
    admission: Admission
    /**
     * Finds out who makes a request. A key that was wrong a moment ago is refused without looking.
     */
    identify(
      request: FastifyRequest,
      reply: FastifyReply,
      look: () => Promise<Principal>,
    ): Promise<Principal>
  }
  interface FastifyRequest {
    /** The key that the request carries, whether or not it is a valid one. */
    bearer: Bearer
    /** What the request holds. Those that are always let in have none. */
    ticket: Ticket | undefined
  }
  interface FastifyContextConfig {
    /** The lane of the route, unless it is `work`. */
    lane?: LaneName | ((request: FastifyRequest) => LaneName)
  }
}

/** Whoever watches the service must see it most of all when it is full. */
const ALWAYS_OPEN: ReadonlySet<string | undefined> = new Set(['/health', '/metrics'])
/** Of all places, for requests whose key is not known yet: wrong keys do not crowd out right ones. */
const STRANGERS_PART = 0.25
const RETRY_AFTER_SECONDS = 1
/** Answers up to this size are not counted: the system takes them off our hands. */
const SMALL_ANSWER_BYTES = 64 * 1024
const LOG_INTERVAL_MS = 10_000

/**
 * Lets in as many requests as can be served, before anything is done for them, and refuses the rest.
 * What is refused here was not executed.
 */
export const admissionPlugin = fastifyPlugin(async (app: FastifyInstance, services: Services) => {
  const lanes = createLanes(services.limits, services.database.poolMax)
  const budget = new ByteBudget(services.limits.bufferedBytesMax)
  const callers = new Callers(services.keyLimits ?? {})
  const strangers = new Strangers(services.limits.addressRequestsPerSecondMax)
  const trusted = new TrustedProxies(services.trustedProxies ?? [])
  const transfers = new Quota()
  const counts = { rateLimited: 0 }
  const noteRefusal = refusalLog(app)
  app.decorate('admission', {
    lanes,
    budget,
    get rateLimited() {
      return counts.rateLimited
    },
  })
  app.decorateRequest('ticket', undefined)
  app.decorateRequest('bearer')

  const laneOf = (request: FastifyRequest, { lane = 'work' }: FastifyContextConfig): Lane =>
    lanes[typeof lane === 'function' ? lane(request) : lane]

  /** The error to refuse with, when there is one. */
  const startFor = (ticket: Ticket, caller: Caller, reply: FastifyReply): AppError | undefined => {
    const now = performance.now()
    const refusal = caller.start(now)
    if (caller.isRateLimited) {
      const { limit, remaining, resetSeconds } = caller.allowance(now)
      reply.header('x-ratelimit-limit', limit)
      reply.header('x-ratelimit-remaining', remaining)
      reply.header('x-ratelimit-reset', resetSeconds)
    }
    if (refusal === undefined) {
      ticket.belongTo(caller)
      return undefined
    }
    return rateLimited(refusal, reply)
  }

  const rateLimited = ({ message, afterSeconds }: Refusal, reply: FastifyReply): AppError => {
    counts.rateLimited++
    reply.header('retry-after', afterSeconds)
    reply.header('x-ratelimit-reset', afterSeconds)
    return new AppError('rate_limited', `${message}; nothing was executed`)
  }

  const addressOf = (request: FastifyRequest) => addressGroup(clientAddress(request.raw, trusted))

  /** Whoever is not known is counted by address. */
  const startForStranger = (request: FastifyRequest, reply: FastifyReply): AppError | undefined => {
    const refusal = strangers.start(addressOf(request), performance.now())
    return refusal && rateLimited(refusal, reply)
  }

  /** Files are on their way for as long as the client likes, so that nobody may have most of them. */
  const holdTransfer = (
    request: FastifyRequest,
    ticket: Ticket,
    caller: Caller | undefined,
  ): Refusal | undefined => {
    const { filesPerLinkMax, filesPerAddressMax, filesPerKeyMax } = services.limits
    const { accessId } = request.params as { accessId?: string }
    const holder =
      caller === undefined
        ? {
            name: `address ${addressOf(request)}`,
            atOnceMax: filesPerAddressMax,
            who: 'an address',
          }
        : { name: `key ${ticket.bearer.key}`, atOnceMax: filesPerKeyMax, who: 'an API key' }
    const holders =
      accessId === undefined
        ? [holder]
        : [holder, { name: `link ${accessId}`, atOnceMax: filesPerLinkMax, who: 'a link' }]
    for (const { who, ...held } of holders) {
      if (ticket.hold(transfers, held)) continue
      const message = `${who} can have at most ${held.atOnceMax} files on their way at once`
      return { message, afterSeconds: RETRY_AFTER_SECONDS }
    }
    return undefined
  }

  app.addHook('onRequest', (request, reply, done) => {
    const { url, config } = request.routeOptions
    request.bearer = readBearer(request.headers.authorization)
    const caller = callers.find(request.bearer.key)
    const isOpen = ALWAYS_OPEN.has(url)
    const excess = caller === undefined && !isOpen ? startForStranger(request, reply) : undefined
    if (excess !== undefined) {
      done(excess)
      return
    }
    if (request.is404) {
      // Nothing is held for an address that does not exist, and nothing of its body is read.
      done(app.notFoundError(request, reply))
      return
    }
    if (isOpen) {
      done()
      return
    }
    const lane = laneOf(request, config)
    const ticket = new Ticket({ bearer: request.bearer, lane, budget })
    request.ticket = ticket
    reply.raw.once('close', () => ticket.close())
    const refusal = caller && startFor(ticket, caller, reply)
    if (refusal !== undefined) {
      done(refusal)
    } else if (caller !== undefined && budget.isSpentFor(caller.held)) {
      done(overloaded())
    } else {
      const busy = lane === lanes.files ? holdTransfer(request, ticket, caller) : undefined
      if (busy !== undefined) {
        done(rateLimited(busy, reply))
        return
      }
      ticket.enter(caller === undefined ? lanes.strangers : lane, done)
    }
  })

  app.decorate('identify', async (request, reply, look) => {
    const { ticket } = request
    if (ticket === undefined) return look()
    // Without a key there is nothing to look for, and nobody waits for its turn to hear that.
    const key = requireBearer(ticket.bearer)
    const { caller } = ticket
    if (caller === undefined && callers.isRefused(key)) {
      throw new AppError('invalid_api_key', 'Invalid API key')
    }
    ticket.startWork()
    try {
      const principal = await look()
      if (caller === undefined) {
        const refusal = startFor(ticket, callers.learn(key, principal.scope), reply)
        if (refusal !== undefined) throw refusal
      }
      return principal
    } catch (error) {
      if (error instanceof AppError && error.code === 'invalid_api_key') callers.refuse(key)
      throw error
    } finally {
      ticket.endWork()
    }
  })

  // Nobody has to make room for a client that takes its time to send the body.
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    const { ticket, raw } = request
    if (ticket === undefined) {
      done()
      return
    }
    const { lane } = ticket
    if (ticket.place !== lane || (lane === lanes.work && !raw.complete)) ticket.leave()
    done()
  })
  app.addHook('preValidation', (request, _reply, done) => {
    const { ticket } = request
    if (ticket === undefined || ticket.place !== undefined) done()
    else ticket.enter(ticket.lane, done, { isReturning: true })
  })

  app.addHook('onRoute', (route) => {
    route.handler = whileTicketHolds(route.handler, lanes.files)
  })

  app.addHook('onSend', (request, reply, payload, done) => {
    const bytes = typeof payload === 'string' || Buffer.isBuffer(payload) ? payload.length : 0
    if (bytes > SMALL_ANSWER_BYTES) request.ticket?.addBytes(bytes)
    if (reply.statusCode === 429 || reply.statusCode === 503) {
      tellWhenToTryAgain(reply)
      noteRefusal(lanes)
    }
    done()
  })
})

function createLanes(limits: Limits, poolMax: number): Record<LaneName, Lane> {
  const lane = (atOnceMax: number) =>
    new Lane({ atOnceMax, waitingMax: limits.requestsWaitingMax, waitMs: limits.requestWaitMs })
  return {
    work: lane(limits.requestsAtOnceMax),
    // The other half is for those who are done sooner.
    imports: lane(Math.min(limits.importsAtOnceMax, Math.max(1, Math.floor(poolMax / 2)))),
    files: lane(limits.filesAtOnceMax),
    strangers: lane(Math.ceil(limits.requestsAtOnceMax * STRANGERS_PART)),
  }
}

/** A handler at whose end its place is free. Files are on their way for longer than that. */
function whileTicketHolds(handler: RouteOptions['handler'], files: Lane): RouteOptions['handler'] {
  return function (request, reply) {
    const { ticket } = request
    if (ticket === undefined) return handler.call(this, request, reply)
    const end = () => {
      if (ticket.lane !== files) ticket.leave()
      ticket.endWork()
    }
    ticket.startWork()
    let result: unknown
    try {
      result = handler.call(this, request, reply)
    } catch (error) {
      end()
      throw error
    }
    if (result instanceof Promise) result.then(end, end)
    else end()
    return result
  }
}

/** The API key of a request that was let in by one. */
export function apiKeyOf(request: FastifyRequest): string {
  return requireBearer(request.bearer)
}

function tellWhenToTryAgain(reply: FastifyReply): void {
  if (!reply.hasHeader('retry-after')) reply.header('retry-after', RETRY_AFTER_SECONDS)
  if (!reply.hasHeader('x-ratelimit-reset')) reply.header('x-ratelimit-reset', RETRY_AFTER_SECONDS)
}

/** One line in a while: a line for each refusal would be work that there is no room for. */
function refusalLog(app: FastifyInstance): (lanes: Readonly<Record<LaneName, Lane>>) => void {
  let loggedAt = Number.NEGATIVE_INFINITY
  let known = 0
  return (lanes) => {
    const now = performance.now()
    if (now - loggedAt < LOG_INTERVAL_MS) return
    const entries = Object.entries(lanes)
    const refused = entries.reduce((sum, [, lane]) => sum + lane.refused, 0)
    if (refused === known) return
    const state = entries.map(([name, { inside, waiting }]) => [name, { inside, waiting }])
    app.log.warn({ refused: refused - known, ...Object.fromEntries(state) }, 'overloaded')
    known = refused
    loggedAt = now
  }
}
