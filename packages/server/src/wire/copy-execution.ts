import { CopyLoad } from '../data/sql/copy-load.js'
import type { StatementRun } from './branch-runner.js'
import type { ClientStatement } from './client-statement.js'
import { CopyIn } from './copy-in.js'
import { copyReader, copyResponse, copyStream } from './copy-messages.js'
import { type CopyPlan, planCopy } from './copy-statement.js'
import type { Portal } from './portal.js'
import type { PortalAnswers } from './portal-answers.js'
import type { SessionContext } from './session-context.js'
import { unsupported } from './wire-error.js'

/** Executes COPY. */
export class CopyExecution {
  readonly #context: SessionContext
  readonly #answers: PortalAnswers

  constructor(context: SessionContext, answers: PortalAnswers) {
    this.#context = context
    this.#answers = answers
  }

  /** Sends the rows of a COPY TO, or returns what takes those of a COPY FROM. */
  run(portal: Portal, { node, text }: ClientStatement): Promise<CopyIn | undefined> {
    if (portal.isDescribing) this.#answers.begin(portal, [], false)
    const plan = planCopy(node, text)
    return plan.isFrom ? this.#begin(plan) : this.#send(plan)
  }

  /** Asks the client for the rows of a COPY. They are one transaction. */
  async #begin(plan: CopyPlan): Promise<CopyIn> {
    const { block, connection } = this.#context
    block.requireWritable('COPY FROM')
    const table = { ...(await this.#runOf(plan.query, [])), copied: plan.copied }
    const { columns } = await block.describe(table)
    const names = columns.map(({ name }) => name)
    const statement = plan.insert(names)
    const inserting = await this.#runOf(statement, new Array<null>(columns.length).fill(null))
    block.beginImplicit()
    const load = new CopyLoad(plan.into)
    const rows = new CopyIn({
      reader: copyReader(plan, { columns, bytesMax: connection.limits.transactionBytesMax }),
      table: plan.into,
      names,
      insert: (parameters) =>
        this.#context.cancellable(() => {
          const run = { ...inserting, parameters, load, signal: this.#context.signal }
          return block.run(run, load)
        }),
    })
    this.#answers.write(copyResponse('G', columns.length, plan))
    await connection.output.send()
    return rows
  }

  async #send(plan: CopyPlan): Promise<undefined> {
    const { output, limits } = this.#context.connection
    const { stream, end } = copyStream(plan, { output, bytesMax: limits.answerBytesMax })
    const run = { ...(await this.#runOf(plan.query, [])), copied: plan.copied }
    await this.#context.cancellable(() => this.#context.block.run(run, stream))
    for (const row of stream.take(0)) this.#answers.write(row)
    for (const message of end()) this.#answers.write(message)
    this.#answers.complete(`COPY ${stream.count}`)
  }

  /** Returns a run of the statement that a COPY stands for. */
  async #runOf(text: string, parameters: readonly null[]): Promise<StatementRun> {
    const [statement] = await this.#context.read(text)
    if (statement?.kind === 'query') return this.#context.runOf(statement, [], parameters)
    throw unsupported('COPY can only send the rows of a table or a query')
  }
}
