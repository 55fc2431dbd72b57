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
import { type ByteBudget, SMALL_ANSWER_BYTES } from '../../common/byte-budget.js'
import { type Bearer, readBearer, requireBearer } from '../../domain/access/bearer.js'
import type { Principal } from '../../domain/access/principal.js'
import { type Caller, Callers, type Refusal, Strangers } from '../admission/caller.js'
import { Lane } from '../admission/lane.js'
import { Quota } from '../admission/quota.js'
import { overloaded, Ticket } from '../admission/ticket.js'
import { addressGroup, clientAddress, TrustedProxies } from '../client-address.js'
import type { Services } from '../services.js'
import { readSessionCookie } from '../session-cookie.js'

/**
 * Lanes are separate limits on concurrent requests, so that slow requests leave room for fast ones.
 */
type LaneName = 'work' | 'control' | 'imports' | 'files' | 'strangers'

/** The state of admission, for metrics. */
export interface Admission {
  readonly lanes: Readonly<Record<LaneName, Lane>>
  readonly budget: ByteBudget
  /** The keys that are known, and what they may do. */
  readonly callers: Callers
  /** Counts requests without a known key, by address. */
  readonly strangers: Strangers
  /** Requests refused by a limit of their key, address or link, since the start. */
  readonly rateLimited: number
}

declare module 'fastify' {
  interface FastifyInstance {
    admission: Admission
    /**
     * Authenticates a request. A key that was invalid moments ago is refused without asking
     * PostgreSQL.
     */
    identify(
      request: FastifyRequest,
      reply: FastifyReply,
      look: () => Principal | Promise<Principal>,
    ): Promise<Principal>
  }
  interface FastifyRequest {
    /** The API key in the request, valid or not. */
    bearer: Bearer
    /** The resources that the request holds. Undefined for routes that are always open. */
    ticket: Ticket | undefined
  }
  interface FastifyContextConfig {
    /** The lane of the route; `work` by default. See `useLane`. */
    lane?: LaneName | ((request: FastifyRequest) => LaneName)
  }
}

/** Monitoring must work above all under overload. */
const ALWAYS_OPEN: ReadonlySet<string | undefined> = new Set(['/health', '/metrics'])
/**
 * Share of the permits for requests whose key is not known yet, so that invalid keys do not displace
 * valid ones.
 */
const STRANGERS_PART = 0.25
const RETRY_AFTER_SECONDS = 1
const LOG_INTERVAL_MS = 10_000

/**
 * Admits as many requests as can be served, and refuses the others before any work is done for
 * them.
 */
export const admissionPlugin = fastifyPlugin(async (app: FastifyInstance, services: Services) => {
  const lanes = createLanes(services.limits, services.database.poolMax)
  const { budget } = services.database
  const callers = new Callers(services.keyLimits ?? {}, budget)
  const strangers = new Strangers(services.limits.addressRequestsPerSecondMax)
  const monitors = new Strangers(services.limits.monitoringRequestsPerSecondMax)
  const trusted = new TrustedProxies(services.trustedProxies ?? [])
  const transfers = new Quota()
  const counts = { rateLimited: 0 }
  const noteRefusal = refusalLog(app)
  app.decorate('admission', {
    lanes,
    budget,
    callers,
    strangers,
    get rateLimited() {
      return counts.rateLimited
    },
  })
  app.decorateRequest('ticket', undefined)
  app.decorateRequest('bearer')

  const hasConsole = services.consoleFolder !== undefined
  const readCredentials = (request: FastifyRequest): Bearer => {
    const { authorization, cookie } = request.headers
    if (hasConsole && authorization === undefined && cookie !== undefined) {
      return readSessionCookie(request) ?? readBearer(undefined)
    }
    return readBearer(authorization)
  }

  const laneOf = (request: FastifyRequest, { lane = 'work' }: FastifyContextConfig): Lane =>
    lanes[typeof lane === 'function' ? lane(request) : lane]

  /** Counts the request for its caller. Returns an error if it exceeds a limit. */
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

  /**
   * Requests without a known key are counted by address. Monitoring is counted apart from other requests,
   * so that these never keep it from being answered.
   */
  const startForStranger = (
    request: FastifyRequest,
    reply: FastifyReply,
    counted: Strangers,
  ): AppError | undefined => {
    const refusal = counted.start(addressOf(request), performance.now())
    return refusal && rateLimited(refusal, reply)
  }

  /**
   * A client can take any time to transfer a file, so transfers are limited per link, address and
   * key.
   */
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
      const message = `${who} can have at most ${held.atOnceMax} concurrent file transfers`
      return { message, afterSeconds: RETRY_AFTER_SECONDS }
    }
    return undefined
  }

  app.addHook('onRequest', (request, reply, done) => {
    const { url, config } = request.routeOptions
    request.bearer = readCredentials(request)
    const caller = callers.find(request.bearer.key)
    const isOpen = ALWAYS_OPEN.has(url)
    const counted = isOpen ? monitors : caller === undefined ? strangers : undefined
    const excess = counted && startForStranger(request, reply, counted)
    if (excess !== undefined) {
      done(excess)
      return
    }
    if (request.is404) {
      // A request that matches no route holds nothing, and its body is not read.
      done(app.notFoundError(request, reply))
      return
    }
    if (isOpen) {
      done()
      return
    }
    const lane = laneOf(request, config)
    const ticket = new Ticket({
      bearer: request.bearer,
      lane,
      budget,
      address: () => addressOf(request),
    })
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
    // A missing or malformed key is refused without a lookup.
    const key = requireBearer(ticket.bearer)
    const { caller } = ticket
    if (caller === undefined && callers.isRefused(key)) {
      throw new AppError('invalid_api_key', 'Invalid API key')
    }
    ticket.startWork()
    try {
      const principal = await look()
      if (caller === undefined) {
        const refusal = startFor(ticket, callers.learn(key, principal), reply)
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

  // A request gives up its permit while its body arrives, so that slow clients hold none.
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    const { ticket, raw } = request
    if (ticket === undefined) {
      done()
      return
    }
    const { lane } = ticket
    const isStream = lane === lanes.imports || lane === lanes.files
    if (ticket.admittedTo !== lane || !(isStream || raw.complete)) ticket.leave()
    done()
  })
  app.addHook('preValidation', (request, _reply, done) => {
    const { ticket } = request
    if (ticket === undefined || ticket.admittedTo !== undefined) done()
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
  const halfOfPool = Math.max(1, Math.floor(poolMax / 2))
  return {
    work: lane(limits.requestsAtOnceMax),
    // The other connections are for shorter requests.
    control: lane(Math.min(limits.requestsAtOnceMax, halfOfPool)),
    imports: lane(Math.min(limits.importsAtOnceMax, halfOfPool)),
    files: lane(limits.filesAtOnceMax),
    strangers: lane(Math.ceil(limits.requestsAtOnceMax * STRANGERS_PART)),
  }
}

/**
 * Wraps a handler so that the permit is freed when it ends. File transfers last longer than their
 * handler and keep the permit until the answer is sent.
 */
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

/** Sets the lane of all routes that are registered after it and have none of their own. */
export function useLane(app: FastifyInstance, lane: LaneName): void {
  app.addHook('onRoute', (route) => {
    route.config = { lane, ...route.config }
  })
}

/** Returns the API key of an authenticated request. */
export function apiKeyOf(request: FastifyRequest): string {
  return requireBearer(request.bearer)
}

function tellWhenToTryAgain(reply: FastifyReply): void {
  if (!reply.hasHeader('retry-after')) reply.header('retry-after', RETRY_AFTER_SECONDS)
  if (!reply.hasHeader('x-ratelimit-reset')) reply.header('x-ratelimit-reset', RETRY_AFTER_SECONDS)
}

/**
 * Logs refusals at most once per interval, because a line per refusal would add to the overload.
 */
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
