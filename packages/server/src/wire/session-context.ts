import type { Limits } from '@offshoot/contract/limits'
import type { ParameterTypes } from '../data/sql/parameters.js'
import type { Tracer } from '../telemetry/tracer.js'
import type { LockOwner } from './advisory-locks.js'
import type { BranchRunner, StatementRun } from './branch-runner.js'
import type { CatalogueRun } from './catalogue/catalogue.js'
import type { ClientBytes } from './client-bytes.js'
import type { ClientOutput } from './client-output.js'
import type { ClientStatement } from './client-statement.js'
import type { ParsedTexts } from './parsed-texts.js'
import type { Portal } from './portal.js'
import { PortalCursors } from './portal-cursors.js'
import type { SessionFacts } from './session-answers.js'
import { SessionItems } from './session-items.js'
import { SessionTypes } from './session-types.js'
import { TransactionBlock } from './transaction-block.js'
import { declaredName } from './values.js'
import { WireError } from './wire-error.js'

/** What a session needs of its connection. */
export interface ClientConnection {
  readonly output: ClientOutput
  readonly bytes: ClientBytes
  readonly runner: BranchRunner
  readonly texts: ParsedTexts
  readonly limits: Limits
  readonly facts: Omit<SessionFacts, 'parameters'>
  readonly locks: LockOwner
  /** Notes a statement that has ended, for the log and for metrics. */
  note(event: { kind: string; code: string | undefined; durationMs: number }): void
  /** undefined: statements are not traced. */
  readonly tracer: Tracer | undefined
  /** Notes an error that the client must not see. */
  hide(error: unknown): void
}

/** What the parts of a session share: its connection, its transaction, its statements, and the signal that ends one. */
export class SessionContext {
  readonly connection: ClientConnection
  readonly block: TransactionBlock
  readonly items: SessionItems
  readonly cursors: PortalCursors
  readonly types = new SessionTypes()
  #running = new AbortController()

  /** `copyBytes` returns the bytes of a COPY that the client is sending. */
  constructor(connection: ClientConnection, { copyBytes }: { copyBytes(): number }) {
    this.connection = connection
    const { runner, limits, facts, bytes } = connection
    this.block = new TransactionBlock(runner, limits, {
      settings: facts.settings,
      types: this.types,
    })
    this.cursors = new PortalCursors(this.block)
    this.items = new SessionItems({
      hold: (held) => bytes.holdNamed(held + this.block.heldBytes + copyBytes()),
      release: ({ cursor, executed }) => this.cursors.spend(cursor ?? executed?.cursor),
    })
  }

  /** Returns the statements of a text. */
  read(text: string): readonly ClientStatement[] | Promise<readonly ClientStatement[]> {
    const { texts, facts } = this.connection
    return texts.read(text, facts.database)
  }

  /** Returns the statements of the text of a message. */
  readMessage(text: string): readonly ClientStatement[] | Promise<readonly ClientStatement[]> {
    const { texts, facts } = this.connection
    return texts.readMessage(text, facts.database)
  }

  /** Returns how a statement runs with its parameters. */
  runOf(
    statement: StatementRun['statement'],
    declaredIds: readonly number[],
    parameters: readonly (string | null)[],
  ): StatementRun {
    const { settings } = this.connection.facts
    const { literals } = statement
    const declared = declaredIds.length === 0 ? NO_TYPES : declaredIds.map(declaredName)
    return {
      statement: literals?.query ?? statement,
      declared: literals === undefined ? declared : joinTypes(statement, declared, literals.types),
      parameters: literals === undefined ? parameters : [...parameters, ...literals.values],
      signal: this.signal,
      timeoutMs: settings.statementTimeoutMs,
      change: { allowDataLoss: settings.allowsDataLoss, types: this.types.known },
      timeZone: settings.timeZone,
    }
  }

  /** Returns how a statement about the catalogue runs. */
  catalogueRunOf(
    { text }: ClientStatement,
    given: { declaredIds: readonly number[] } & Partial<Pick<Portal, 'values' | 'formats'>>,
  ): CatalogueRun {
    const { facts } = this.connection
    return { text, values: [], formats: [], ...given, facts, signal: this.signal }
  }

  get signal(): AbortSignal {
    return this.#running.signal
  }

  /** Ends the statement that is running. */
  cancel(): void {
    this.#running.abort()
  }

  /** A signal that came too late for a statement must not end the next one. */
  forgetCancel(): void {
    if (this.#running.signal.aborted) this.#running = new AbortController()
  }

  /** Runs a statement that the client can cancel. */
  async cancellable<Result>(work: () => Promise<Result>): Promise<Result> {
    const running = this.#running
    try {
      return await work()
    } catch (error) {
      if (!running.signal.aborted) throw error
      throw new WireError('57014', 'canceling statement due to user request')
    } finally {
      // A signal works once.
      this.forgetCancel()
    }
  }
}

const NO_TYPES: ParameterTypes = []

/** Returns the types of the parameters of a statement, and of its literals. */
const joinTypes = (
  { parameterCount }: StatementRun['statement'],
  declared: ParameterTypes,
  literals: ParameterTypes,
): ParameterTypes => [
  ...Array.from({ length: parameterCount }, (_, index) => declared[index]),
  ...literals,
]
