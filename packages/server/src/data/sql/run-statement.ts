import { tooCostly } from '../../dialect/invalid-sql.js'
import type { Parameter } from '../../postgres/statement.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { rowSet } from '../sets/row-set.js'
import { readySteps, requireNoArrayAsJson, type WithPlan } from './describe-sql.js'
import type { SentQuery } from './evaluate.js'
import type { Run } from './evaluators.js'
import { namingColumnIn } from './name-column.js'
import { PendingWrites } from './pending-writes.js'
import { NOTHING, type ResultForm } from './result-forms.js'
import { setNumber } from './set-number.js'
import type { SqlContext } from './sql-context.js'
import type { SinglePlan } from './statement-plan.js'
import { idsOf, planOperations, writeRecords } from './write-records.js'

export async function runQuery(run: Run, form: ResultForm): Promise<string> {
  const { plan, parameters } = run.statement
  if (plan.kind !== 'select') throw new Error('only a query can be run outside of a transaction')
  try {
    await requireNoArrayAsJson(run)
    const found = await form.read(run, plan.query, parameters)
    return await form.finish(run, { found, total: found.rows.length })
  } catch (error) {
    throw await namingColumnIn(run, error)
  }
}

type OpenRun = Run & { readonly transaction: OpenTransaction }

export async function runOne(run: OpenRun, form: ResultForm): Promise<string> {
  if (run.statement.plan.kind === 'select') return runQuery(run, form)
  try {
    return await runWriting(run, form)
  } catch (error) {
    throw await namingColumnIn(run, error)
  }
}

async function runWriting(run: OpenRun, form: ResultForm): Promise<string> {
  const { context, statement } = run
  const { plan, parameters } = statement
  if (plan.kind === 'select') throw new Error('a query writes nothing')
  await requireNoArrayAsJson(run)
  if (plan.kind === 'with') return runWith(run, plan, form)
  if (plan.kind === 'setval') {
    const { next, notices } = await setNumber(run, plan)
    const found = await form.read(run, plan.query, [...parameters, ...next])
    return form.finish(run, { found, total: found.rows.length, notices })
  }
  if (plan.kind === 'truncate') {
    for (const name of plan.tables) await truncate(context, run.transaction, name)
    return form.finish(run, { found: NOTHING, total: 0, notices: plan.notices })
  }
  const { returning } = plan
  const table = context.session.table(plan.table)
  const { onWritten } = form
  const write = { ...run, plan, table, parameters, onWritten }
  const written = await writeRecords(context, write, (ids) =>
    returning === undefined ? undefined : form.read(run, returning, [...parameters, ids]),
  )
  const { total, found = NOTHING } = written
  return form.finish(run, { found, total })
}

/**
 * Runs a statement whose WITH writes. All its parts see what was there before it, except for what RETURNING has returned. So
 * everything is read before it is written.
 */
async function runWith(
  run: Run & { readonly transaction: OpenTransaction },
  plan: WithPlan,
  form: ResultForm,
): Promise<string> {
  const { context, transaction, evaluator } = run
  const { steps, last } = await readySteps(run, plan)
  const given = run.statement.parameters
  const results: Parameter[] = steps.map(() => null)
  const pending = new PendingWrites(context, transaction)
  const plannedOf = async (own: Exclude<SinglePlan, { kind: 'select' }>) => {
    const table = context.session.table(own.table)
    const parameters = [...given, ...results]
    const write = { transaction, evaluator, plan: own, table, parameters }
    const operations = await planOperations(context, write)
    pending.add(write, operations)
    return operations
  }
  for (const [index, { name, plan: own, readLater, result }] of steps.entries()) {
    const operations = own.kind === 'select' ? undefined : await plannedOf(own)
    if (result === undefined) continue
    const values = [...given, ...results, ...(operations === undefined ? [] : [idsOf(operations)])]
    const read = () => readStep(run, { name, result, values })
    const isNew = own.kind === 'insert' || own.kind === 'update'
    results[index] = isNew ? await pending.readAfter(readLater, read) : await read()
  }
  const parameters = [...given, ...results]
  const ending = { ...run, statement: { ...run.statement, plan: last, parameters } }
  if (last.kind === 'select') {
    const found = await form.read(ending, last.query, parameters)
    await pending.flush()
    return form.finish(ending, { found, total: found.rows.length })
  }
  const operations = await plannedOf(last)
  const { returning } = last
  const read = async () =>
    returning && (await form.read(ending, returning, [...parameters, idsOf(operations)]))
  const before = last.kind === 'delete' ? await read() : undefined
  await pending.flush()
  const found = last.kind === 'delete' ? before : await read()
  return form.finish(ending, { found: found ?? NOTHING, total: operations.length })
}

/** Reads what a step returns, as JSON. */
async function readStep(
  { context, evaluator }: Run,
  step: { name: string; result: SentQuery; values: readonly Parameter[] },
): Promise<string> {
  const rowsMax = context.limits.sqlRowsMax
  const { rows, hasMore } = await evaluator.read(step.result, { parameters: step.values, rowsMax })
  if (hasMore) throw tooCostly(`WITH [${step.name}]: returns more than ${rowsMax} rows`)
  return `[${rows.join(',')}]`
}

async function truncate(
  { session }: SqlContext,
  transaction: OpenTransaction,
  name: string,
): Promise<void> {
  const { writer, codec } = session.table(name)
  if (writer === undefined) throw new Error('a written table must be writable')
  const rows = { codec, filter: undefined }
  await transaction.run([writer.deleteSet((firstSlot) => rowSet(session, rows, firstSlot))])
}
