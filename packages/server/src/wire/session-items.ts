import type { ClientStatement } from './client-statement.js'
import { NamedItems } from './named-items.js'
import { type Portal, type Prepared, portalBytes } from './portal.js'
import type { PreparedPlan } from './prepared-statement.js'
import { unsupported, WireError } from './wire-error.js'

/** Statements and portals of one connection. */
const NAMED_MAX = 1_000
/** Characters of all prepared statements of one connection. */
const NAMED_LENGTH_MAX = 4 * 1024 * 1024
/** Bytes that a parsed statement takes, for each character of its text. */
const PARSED_BYTES = 50

/** The statements that a client has prepared, and its portals. */
export class SessionItems {
  readonly #prepared = new NamedItems<Prepared>(({ statement }) => statement?.text.length ?? 0)
  readonly #portals = new NamedItems<Portal>(portalBytes)
  readonly #hold: (bytes: number) => boolean
  readonly #release: (portal: Portal) => void

  /** `hold` counts the bytes of all items, and returns whether there is room for them. `release` frees what a portal has. */
  constructor(options: { hold(bytes: number): boolean; release(portal: Portal): void }) {
    this.#hold = options.hold
    this.#release = options.release
  }

  /** Counts the items that are kept. Returns whether there is room for them. */
  count(): boolean {
    return this.#hold(this.#prepared.bytes * PARSED_BYTES + this.#portals.bytes)
  }

  /** Keeps a statement under its name. `statements` are those of its text. */
  prepare(
    { name, text, declaredIds }: Omit<Extract<PreparedPlan, { kind: 'prepare' }>, 'kind'>,
    [statement, ...others]: readonly ClientStatement[],
  ): void {
    if (others.length > 0) {
      throw new WireError('42601', 'cannot insert multiple commands into a prepared statement')
    }
    if (name !== '' && this.#prepared.get(name) !== undefined) {
      throw new WireError('42P05', `prepared statement "${name}" already exists`)
    }
    this.#prepared.delete(name)
    const length = this.#prepared.bytes + text.length
    if (this.#prepared.size >= NAMED_MAX || length > NAMED_LENGTH_MAX) {
      throw new WireError(
        '54000',
        `a connection can have at most ${NAMED_MAX} prepared statements of ${NAMED_LENGTH_MAX} characters in all`,
      )
    }
    this.#prepared.set(name, { statement, declaredIds })
    if (!this.count()) {
      this.#prepared.delete(name)
      throw new WireError('53200', 'the statements of this API key take too much memory')
    }
  }

  statement(name: string): Prepared {
    const prepared = this.#prepared.get(name)
    if (prepared !== undefined) return prepared
    throw new WireError('26000', `prepared statement "${name}" does not exist`)
  }

  /** Returns a statement that EXECUTE can run. It could execute itself otherwise. */
  executable(name: string): Prepared {
    const prepared = this.statement(name)
    if (prepared.statement?.kind !== 'prepared') return prepared
    throw unsupported('EXECUTE of a PREPARE or EXECUTE is not supported')
  }

  /** Forgets a statement, if there is one of this name. */
  forget(name: string): void {
    this.#prepared.delete(name)
  }

  forgetAll(): void {
    this.#prepared.clear()
  }

  /** Puts a new portal under its name. */
  bind(name: string, portal: Portal): void {
    if (this.#portals.size >= NAMED_MAX) {
      throw new WireError('54000', `a connection can have at most ${NAMED_MAX} portals`)
    }
    this.drop(name)
    this.keep(name, portal)
  }

  /** Keeps a portal, if there is room for its values and rows. */
  keep(name: string, portal: Portal): void {
    this.#portals.set(name, portal)
    if (this.count()) return
    this.#portals.delete(name)
    throw new WireError('53200', 'the portals of this API key take too much memory')
  }

  findPortal(name: string): Portal | undefined {
    return this.#portals.get(name)
  }

  portal(name: string): Portal {
    const portal = this.#portals.get(name)
    if (portal !== undefined) return portal
    throw new WireError('34000', `portal "${name}" does not exist`)
  }

  drop(name: string): void {
    const portal = this.#portals.get(name)
    if (portal !== undefined) this.#release(portal)
    this.#portals.delete(name)
  }

  /** The transaction has ended, and its portals with it. */
  clearPortals(): void {
    this.#portals.clear()
  }
}
