import { NO_ROWS } from '../data/sql/row-sink.js'
import type { ClientStatement } from './client-statement.js'
import { type CursorPlan, planCursor } from './cursor-statement.js'
import type { Execution, Portal } from './portal.js'
import type { PortalAnswers } from './portal-answers.js'
import type { SessionContext } from './session-context.js'
import type { StatementDescriptions } from './statement-descriptions.js'
import { unsupported, WireError } from './wire-error.js'

/** Executes statements about cursors. */
export class CursorExecution {
  readonly #context: SessionContext
  readonly #answers: PortalAnswers
  readonly #descriptions: StatementDescriptions

  constructor(
    context: SessionContext,
    parts: { answers: PortalAnswers; descriptions: StatementDescriptions },
  ) {
    this.#context = context
    this.#answers = parts.answers
    this.#descriptions = parts.descriptions
  }

  /** Runs a statement. The portal of a FETCH has its rows afterwards; the others are complete. */
  async run(portal: Portal, { node, text }: ClientStatement, options: Execution): Promise<void> {
    const { block, items } = this.#context
    const plan = planCursor(node, text)
    if (plan.kind === 'declare') {
      await this.#declare(portal, plan)
      this.#answers.done(portal, 'DECLARE CURSOR')
      return
    }
    if (plan.kind === 'close') {
      await block.closeCursor(plan.name)
      items.count()
      this.#answers.done(portal, plan.name === undefined ? 'CLOSE CURSOR ALL' : 'CLOSE CURSOR')
      return
    }
    await this.#fetch(portal, plan, options)
  }

  async #declare(portal: Portal, plan: Extract<CursorPlan, { kind: 'declare' }>): Promise<void> {
    const { block, items } = this.#context
    const { declaredIds } = portal.prepared
    const [statement] = await this.#context.read(plan.query)
    if (statement?.kind === 'catalogue') {
      const given = { declaredIds, values: portal.values }
      const run = this.#context.catalogueRunOf(statement, given)
      await this.#context.cancellable(() => block.declareCatalogue(run, plan))
      return
    }
    if (statement?.kind !== 'query') {
      throw unsupported('a cursor can only have a query for tables of the branch')
    }
    if (statement.isWrite) {
      throw unsupported('DECLARE CURSOR must not contain data-modifying statements in WITH')
    }
    const parameters = await this.#descriptions.textsOf(portal)
    const run = this.#context.runOf(statement, declaredIds, parameters)
    await this.#context.cancellable(() => block.declare(run, plan))
    if (items.count()) return
    await block.closeCursor(plan.name)
    throw new WireError('53200', 'the cursors of this API key take too much memory')
  }

  async #fetch(
    portal: Portal,
    { name, movement, isMove }: Extract<CursorPlan, { kind: 'fetch' }>,
    options: Execution,
  ): Promise<void> {
    const { block, connection, signal } = this.#context
    const { statementTimeoutMs: timeoutMs, timeZone } = connection.facts.settings
    const columns = block.cursorColumns(name)
    const fetch = { name, movement, columns, signal, timeoutMs, timeZone }
    if (isMove) {
      let count = 0
      const counting = { ...NO_ROWS, row: () => void count++ }
      await this.#context.cancellable(() => block.fetch(fetch, counting))
      this.#answers.done(portal, `MOVE ${count}`)
      return
    }
    const stream = this.#answers.streamOf(portal, options)
    await this.#context.cancellable(() => block.fetch(fetch, stream))
    portal.stream = stream
    portal.verb = 'FETCH'
  }
}
