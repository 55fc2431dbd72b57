import type { ResultColumn } from '../data/sql/evaluate.js'
import { findBranchCalls, withoutBranchCalls } from './branch-calls.js'
import type { StatementRun } from './branch-runner.js'
import type { ClientStatement } from './client-statement.js'
import { planCursor } from './cursor-statement.js'
import { type ExplainPlan, planExplain } from './explain-statement.js'
import { textIn } from './frames.js'
import { describeLocks, readLocks } from './lock-statement.js'
import { isPlanned, type Portal, type Prepared } from './portal.js'
import { planPrepared } from './prepared-statement.js'
import { answerSession } from './session-answers.js'
import type { SessionContext } from './session-context.js'
import { fromBinary } from './values.js'
import { unsupported } from './wire-error.js'

const [TEXT_ID, JSON_ID] = [25, 114]

/** The types of the parameters of a statement, and the columns of its result. */
interface StatementDescription {
  readonly typeIds: readonly number[]
  readonly columns: readonly ResultColumn[]
  /** Of an EXECUTE: the statement that it executes. */
  readonly executed?: Prepared
}

export const explainColumn = ({ isJson }: ExplainPlan): ResultColumn => ({
  name: 'QUERY PLAN',
  typeId: String(isJson ? JSON_ID : TEXT_ID),
})

const toTexts = (values: Portal['values'], typeIds: readonly number[]): (string | null)[] =>
  values.map(({ bytes, format }, index) => {
    if (bytes === null) return null
    return format === 1 ? fromBinary(typeIds[index] ?? TEXT_ID, bytes) : textIn(bytes)
  })

/** Describes the statements of a session. */
export class StatementDescriptions {
  readonly #context: SessionContext

  constructor(context: SessionContext) {
    this.#context = context
  }

  async describe(prepared: Prepared): Promise<StatementDescription> {
    const { statement, declaredIds } = prepared
    if (statement === undefined || statement.kind === 'transaction' || statement.kind === 'copy') {
      return { typeIds: [], columns: [] }
    }
    const { block, connection } = this.#context
    block.requireUsable()
    if (statement.kind === 'prepared') return this.#describePrepared(statement)
    if (statement.kind === 'cursor') return this.#describeCursor(statement, declaredIds)
    if (statement.kind === 'branches') return this.#describeBranches(statement, declaredIds)
    if (statement.kind === 'explain') return this.#describeExplain(statement, declaredIds)
    const given = new Array<null>(statement.parameterCount).fill(null)
    const typeIdOf = (index: number, found: string | undefined) =>
      declaredIds[index] || Number(found ?? TEXT_ID)
    if (statement.kind === 'locks') {
      return describeLocks(readLocks(statement.node)?.calls ?? [], statement.parameterCount)
    }
    if (statement.kind === 'session') {
      const facts = { ...connection.facts, parameters: given }
      const { columns } = answerSession(statement, facts, { isDescribed: true })
      return { typeIds: given.map((_, index) => typeIdOf(index, undefined)), columns }
    }
    const { parameterTypeIds, columns } =
      statement.kind === 'catalogue'
        ? await block.describeCatalogue(this.#context.catalogueRunOf(statement, { declaredIds }))
        : await block.describe(this.#context.runOf(statement, declaredIds, given))
    return { typeIds: given.map((_, index) => typeIdOf(index, parameterTypeIds[index])), columns }
  }

  /** Throws if a statement that gets a name cannot run, because it names what does not exist. */
  async judge([statement, ...others]: readonly ClientStatement[], declaredIds: readonly number[]) {
    if (others.length > 0 || !isPlanned(statement)) return
    if (statement?.kind === 'query') {
      const given = new Array<null>(statement.parameterCount).fill(null)
      await this.#context.block.judge(this.#context.runOf(statement, declaredIds, given))
    } else await this.describe({ statement, declaredIds })
  }

  /** Returns the texts of the parameters of a portal. Only values in binary form have to wait for their types. */
  textsOf({ prepared, values }: Portal): (string | null)[] | Promise<(string | null)[]> {
    const isBinary = values.some(({ bytes, format }) => bytes !== null && format === 1)
    return isBinary
      ? this.describe(prepared).then(({ typeIds }) => toTexts(values, typeIds))
      : toTexts(values, [])
  }

  /** Returns the calls about branches of a statement, and the statement without them, with their results as parameters. */
  async withoutCalls(
    { node, text, parameterCount }: ClientStatement,
    declaredIds: readonly number[],
  ): Promise<{ calls: ReturnType<typeof findBranchCalls>; run: StatementRun }> {
    const calls = findBranchCalls(node, text)
    const written = withoutBranchCalls(text, { calls, parameterCount })
    const [statement] = await this.#context.read(written)
    if (statement?.kind === 'query') {
      return { calls, run: this.#context.runOf(statement, declaredIds, []) }
    }
    throw unsupported('functions about branches cannot be mixed with the catalogue')
  }

  async #describePrepared({ node, text }: ClientStatement): Promise<StatementDescription> {
    const plan = planPrepared(node, text)
    if (plan.kind === 'prepare') return { typeIds: [], columns: [] }
    const executed = this.#context.items.executable(plan.name)
    const { columns } = await this.describe(executed)
    return { typeIds: [], columns, executed }
  }

  async #describeCursor(
    { node, text }: ClientStatement,
    declaredIds: readonly number[],
  ): Promise<StatementDescription> {
    const plan = planCursor(node, text)
    if (plan.kind === 'fetch') {
      const columns = plan.isMove ? [] : this.#context.block.cursorColumns(plan.name)
      return { typeIds: [], columns }
    }
    if (plan.kind === 'close') return { typeIds: [], columns: [] }
    const [statement] = await this.#context.read(plan.query)
    const { typeIds } = await this.describe({ statement, declaredIds })
    return { typeIds, columns: [] }
  }

  async #describeExplain(
    { node, text }: ClientStatement,
    declaredIds: readonly number[],
  ): Promise<StatementDescription> {
    const plan = planExplain(node, text)
    const [statement] = await this.#context.read(plan.text)
    const { typeIds } = await this.describe({ statement, declaredIds })
    return { typeIds, columns: [explainColumn(plan)] }
  }

  async #describeBranches(
    statement: ClientStatement,
    declaredIds: readonly number[],
  ): Promise<StatementDescription> {
    const { run } = await this.withoutCalls(statement, declaredIds)
    const given = new Array<null>(run.statement.parameterCount).fill(null)
    const { columns } = await this.#context.block.describe({ ...run, parameters: given })
    // Parameters of calls are texts.
    const typeIds = Array.from(
      { length: statement.parameterCount },
      (_, index) => declaredIds[index] || TEXT_ID,
    )
    return { typeIds, columns }
  }
}
