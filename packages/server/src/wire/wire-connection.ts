import { randomInt } from 'node:crypto'
import type { Socket } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import { type SecureContext, TLSSocket } from 'node:tls'
import { NAME_PATTERN } from '@offshoot/contract/names'
import type { FastifyBaseLogger } from 'fastify'
import { plainAddress } from '../http/client-address.js'
import { MessageWriter } from '../postgres/message-writer.js'
import type { Tracer } from '../telemetry/tracer.js'
import { version } from '../version.js'
import type { AdvisoryLocks } from './advisory-locks.js'
import { BranchRunner, type WireContext } from './branch-runner.js'
import { ClientBytes } from './client-bytes.js'
import { ClientOutput } from './client-output.js'
import { ClientSession } from './client-session.js'
import { type Frame, FrameContent, FrameReader, ProtocolError } from './frames.js'
import { initialSettings, SessionSettings } from './session-settings.js'
import { errorMessage, toWireError, WireError } from './wire-error.js'

/** The numbers of the first message, which say what a client wants. */
const PROTOCOL_3 = 196_608
const TLS_WANTED = 80_877_103
const GSS_WANTED = 80_877_104
const CANCEL = 80_877_102

/** After this time of handling messages, others have their turn. */
const TURN_MS = 10
/** Bytes of a message before the key is known. */
const START_BYTES_MAX = 10_000
/** Bytes that may wait while a statement runs. Beyond that, the socket is not read. */
const WAITING_BYTES_MAX = 1024 * 1024

export interface WireOptions extends WireContext {
  readonly log: FastifyBaseLogger
  /** undefined: the service has no certificate. */
  readonly tls: SecureContext | undefined
  /** undefined: statements are not traced. */
  readonly tracer: Tracer | undefined
}

interface ConnectionOptions extends WireOptions {
  readonly locks: AdvisoryLocks
  readonly processId: number
  /** The name under which the address of the client is counted. */
  readonly group: string
  /** Cancels a statement of another connection. */
  cancel(processId: number, secret: number): void
  serverVersion(): Promise<string>
  /** Counts a statement by its SQLSTATE. */
  count(code: string): void
}

const NAME = new RegExp(NAME_PATTERN)
const NAME_LENGTH_MAX = 255
const SUCCESS = '00000'

/** The connection of a client: its start, its messages in order, and its end. */
export class WireConnection {
  readonly #options: ConnectionOptions
  readonly #secret = randomInt(-(2 ** 31), 2 ** 31)
  #reader = new FrameReader(START_BYTES_MAX)
  #socket: Socket
  #session: ClientSession | undefined
  /** What the client said about itself, until its key arrives. */
  #startup: ReadonlyMap<string, string> | undefined
  #isBusy = false
  /** The kinds of encryption that the client has asked for. */
  readonly #asked = new Set<number>()
  #isClosing = false
  /** Ends a connection that does not complete its start or a message in time. */
  #late: NodeJS.Timeout | undefined
  /** When the message began that has not arrived completely. */
  #begunAt: number | undefined
  #bytes: ClientBytes | undefined
  /** Bytes of the message that is being handled. */
  #handledBytes = 0

  constructor(socket: Socket, options: ConnectionOptions) {
    this.#options = options
    this.#socket = socket
    this.#listen(socket)
    const { headersTimeoutMs } = options.services.limits
    this.#late = setTimeout(() => this.#socket.destroy(), headersTimeoutMs)
  }

  /** Cancels the running statement, if there is one and the caller knows the secret of the connection. */
  cancelBy(secret: number): void {
    if (secret === this.#secret && this.#isBusy) this.#session?.cancel()
  }

  /** Ends the connection, because the service stops. */
  shutDown(): void {
    this.#end(new WireError('57P01', 'the service is shutting down'))
  }

  #listen(socket: Socket): void {
    socket.on('data', (chunk) => {
      this.#reader.push(chunk)
      if (!this.#holdMessages()) return
      if (this.#isBusy) {
        if (this.#reader.bytes > WAITING_BYTES_MAX) socket.pause()
        return
      }
      void this.#work()
    })
    socket.on('error', () => socket.destroy())
    socket.on('end', () => this.#session?.cancel())
    socket.on('close', () => {
      clearTimeout(this.#late)
      this.#session?.close()
      this.#isClosing = true
      this.#bytes?.close()
    })
  }

  /** Counts the messages that have arrived. Ends the connection and returns false if there is no room for them. */
  #holdMessages(): boolean {
    if (this.#isClosing) return false
    if (this.#bytes?.holdMessages(this.#reader.bytes + this.#handledBytes) !== false) return true
    this.#end(noRoom())
    return false
  }

  /** Handles the messages that have arrived, one after the other. */
  async #work(): Promise<void> {
    this.#isBusy = true
    let turnAt = performance.now()
    try {
      for (let frame = this.#reader.next(); frame !== undefined; frame = this.#reader.next()) {
        if (this.#session !== undefined) clearTimeout(this.#late)
        this.#begunAt = undefined
        this.#handledBytes = frame.body.length
        // Most messages need not wait for anything, and waiting costs more than some of them.
        const handled = this.#handle(frame)
        if (!(typeof handled === 'boolean' ? handled : await handled)) {
          this.#socket.end()
          return
        }
        this.#handledBytes = 0
        if (performance.now() - turnAt < TURN_MS) continue
        await turn()
        turnAt = performance.now()
      }
      this.#holdMessages()
    } catch (error) {
      this.#fail(error)
      return
    } finally {
      this.#isBusy = false
    }
    if (this.#socket.isPaused()) this.#socket.resume()
    this.#watchRest()
  }

  /** A message that has begun must arrive in time, at the rate that a body must have at least. */
  #watchRest(): void {
    if (this.#session === undefined) return
    clearTimeout(this.#late)
    if (this.#reader.bytes === 0) return
    const now = performance.now()
    this.#begunAt ??= now
    const { stallTimeoutMs, transferBytesPerSecondMin } = this.#options.services.limits
    const allowedMs = (1000 * this.#reader.expectedBytes) / transferBytesPerSecondMin
    const leftMs = this.#begunAt + stallTimeoutMs + allowedMs - now
    this.#late = setTimeout(() => this.#socket.destroy(), Math.min(leftMs, TIMER_MS_MAX))
  }

  #fail(error: unknown): void {
    if (error instanceof ProtocolError) {
      this.#end(new WireError('08P01', error.message))
      return
    }
    const { shown, hidden } = toWireError(error)
    if (hidden !== undefined) this.#options.log.error({ err: hidden }, 'a connection failed')
    this.#end(shown)
  }

  #end(error: WireError): void {
    if (this.#isClosing) return
    this.#isClosing = true
    this.#session?.close()
    this.#bytes?.close()
    this.#reader.takeRest()
    this.#socket.end(errorMessage(error, 'FATAL'))
    const socket = this.#socket
    // A client that does not close its side keeps nothing.
    setTimeout(() => socket.destroy(), CLOSE_MS).unref()
  }

  /** Returns false if the connection ends. */
  #handle(frame: Frame): boolean | Promise<boolean> {
    if (this.#isClosing) return false
    if (this.#session !== undefined) {
      if (frame.type === 'X') return false
      return this.#session.handle(frame)?.then(isGoingOn) ?? true
    }
    if (this.#startup === undefined) return this.#start(new FrameContent(frame.body))
    if (frame.type !== 'p') throw new ProtocolError('a password was expected')
    return this.#logIn(this.#startup, new FrameContent(frame.body).text()).then(isGoingOn)
  }

  #start(content: FrameContent): boolean {
    const code = content.int32()
    if (code === TLS_WANTED || code === GSS_WANTED) {
      // The answer stays the same, and a stranger must not ask for it again and again.
      if (this.#asked.has(code)) throw new ProtocolError('encryption was refused already')
      this.#asked.add(code)
    }
    if (code === TLS_WANTED) {
      this.#offerTls()
      return true
    }
    if (code === GSS_WANTED) {
      this.#socket.write('N')
      return true
    }
    if (code === CANCEL) {
      this.#options.cancel(content.int32(), content.int32())
      return false
    }
    if (code >> 16 !== 3)
      throw new ProtocolError('unsupported version of the protocol: only 3.0 is')
    const startup = new Map<string, string>()
    while (!content.isAtEnd) {
      const name = content.text()
      if (name === '') break
      startup.set(name, content.text())
    }
    const unknown = [...startup.keys()].filter((name) => name.startsWith('_pq_.'))
    if (code !== PROTOCOL_3 || unknown.length > 0) {
      const writer = new MessageWriter('v').int32(PROTOCOL_3 & 0xffff).int32(unknown.length)
      for (const name of unknown) writer.text(name)
      this.#socket.write(writer.toBuffer())
    }
    if (!isEncrypted(this.#socket) && !isLocal(this.#socket)) {
      throw new WireError(
        '28000',
        'an API key is only accepted over TLS or from the same machine: use sslmode=require, and set OFFSHOOT_PG_TLS_CERT and OFFSHOOT_PG_TLS_KEY of the service',
      )
    }
    if (startup.has('replication')) throw new WireError('0A000', 'replication is not supported')
    this.#startup = startup
    this.#reader.isStarting = false
    // Asks for the password as a text.
    this.#socket.write(new MessageWriter('R').int32(3).toBuffer())
    return true
  }

  #offerTls(): void {
    const { tls } = this.#options
    if (tls === undefined || isEncrypted(this.#socket)) {
      this.#socket.write('N')
      return
    }
    // What was sent before the handshake could come from somebody between client and service.
    if (this.#reader.takeRest().length > 0) {
      throw new ProtocolError('unencrypted data after a request for TLS')
    }
    const plain = this.#socket
    plain.removeAllListeners('data')
    plain.write('S')
    const secure = new TLSSocket(plain, { isServer: true, secureContext: tls })
    this.#socket = secure
    this.#reader = new FrameReader(START_BYTES_MAX)
    this.#listen(secure)
  }

  async #logIn(startup: ReadonlyMap<string, string>, apiKey: string): Promise<void> {
    const user = startup.get('user') ?? ''
    const { services, processId, group, log } = this.#options
    const { workspaceId, databaseName, branchName } = placeOf(user, startup.get('database') ?? user)
    const request = {
      apiKey: /^\w{1,255}$/.test(apiKey) ? apiKey : '-',
      address: { workspaceId, region: undefined },
      databaseName,
      branchName,
      isXataClient: false,
      origin: services.publicUrl ?? '',
    }
    const runner = new BranchRunner(this.#options, { request, addressGroup: group })
    const share = await runner.open()
    const bytes = new ClientBytes({
      budget: this.#options.admission.budget,
      share,
      abort: () => this.#end(noRoom()),
    })
    this.#bytes = bytes
    const serverVersion = await this.#options.serverVersion()
    const settings = new SessionSettings({
      ...initialSettings(startup),
      server_version: serverVersion,
      server_version_num: versionNumber(serverVersion),
      session_authorization: user,
    })
    const subject = () => ({
      workspace: workspaceId,
      database: databaseName,
      branch: runner.branchName,
    })
    this.#session = new ClientSession({
      output: new ClientOutput(this.#socket, { stallMs: services.limits.stallTimeoutMs }),
      bytes,
      runner,
      texts: this.#options.texts,
      limits: services.limits,
      locks: this.#options.locks.open(user, () => this.#end(lostLocks())),
      facts: {
        settings,
        user,
        get database() {
          return `${databaseName}:${runner.branchName}`
        },
        processId,
        version: `PostgreSQL ${serverVersion} (Offshoot ${version})`,
      },
      note: ({ kind, code = SUCCESS, durationMs }) => {
        this.#options.count(code)
        const rounded = Math.round(durationMs * 100) / 100
        log.info(
          { protocol: 'postgresql', kind, code, durationMs: rounded, ...subject() },
          'statement',
        )
      },
      tracer: this.#options.tracer,
      hide: (error) => log.error({ err: error, ...subject() }, 'a statement failed'),
    })
    this.#startup = new Map()
    clearTimeout(this.#late)
    this.#reader.bytesMax = services.limits.transactionBytesMax
    this.#socket.write(
      Buffer.concat([
        new MessageWriter('R').int32(0).toBuffer(),
        ...settings.reported.map(([name, value]) =>
          new MessageWriter('S').text(name).text(value).toBuffer(),
        ),
        new MessageWriter('K').int32(processId).int32(this.#secret).toBuffer(),
      ]),
    )
    await this.#session.start()
  }
}

const lostLocks = () =>
  new WireError('57P01', 'the advisory locks of this connection were lost; connect again')

const isGoingOn = () => true

/** How long a client may take to close its side of a connection. */
const CLOSE_MS = 5_000
const TIMER_MS_MAX = 2 ** 31 - 1

const noRoom = () =>
  new WireError('53200', 'the messages of this API key take too much memory; try again later')

function isEncrypted(socket: Socket): boolean {
  return socket instanceof TLSSocket
}

function isLocal({ remoteAddress = '' }: Socket): boolean {
  const address = plainAddress(remoteAddress)
  return address === '::1' || address.startsWith('127.')
}

/** Returns what the user and the database of a client mean: `{workspace}` and `{database}:{branch}`. */
function placeOf(
  workspaceId: string,
  text: string,
): { workspaceId: string; databaseName: string; branchName: string } {
  // Some clients send what they find in a URL as it is.
  const [databaseName = '', branchName = 'main', ...others] = text.replace(/%3A/i, ':').split(':')
  const isValid = [workspaceId, databaseName, branchName].every(
    (name) => name.length <= NAME_LENGTH_MAX && NAME.test(name),
  )
  if (isValid && others.length === 0) return { workspaceId, databaseName, branchName }
  throw new WireError(
    '3D000',
    'the address must be postgresql://{workspace}:{API key}@host:port/{database}:{branch}',
  )
}

/** Returns 180001 for 18.1. */
function versionNumber(text: string): string {
  const [, major = '0', minor = '0'] = /^(\d+)(?:\.(\d+))?/.exec(text) ?? []
  return String(Number(major) * 10_000 + Number(minor))
}
