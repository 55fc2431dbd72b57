import { invalidSql } from '../../dialect/invalid-sql.js'
import { SentQuery } from './evaluate.js'
import type { Run } from './evaluators.js'
import { type NamedSequence, sequencesOf } from './sequence-names.js'
import type { SqlContext } from './sql-context.js'
import type { StatementPlan } from './statement-plan.js'

/**
 * Lets a sequence go on after a number, or returns its next one. It never goes back, because other branches may use the numbers.
 */
export async function setNumber(
  { context: { session }, evaluator, statement }: Run,
  plan: Extract<StatementPlan, { kind: 'setval' }>,
): Promise<{ next: readonly string[]; notices: readonly string[] }> {
  const { parameters } = statement
  const { name, itemId, max } = findSequence(session, plan.sequence)
  const taken = { itemId, max, of: `sequence [${name}]` }
  if (plan.number === undefined) {
    const { first } = await session.branch.takeNumbers({ ...taken, count: 1, above: 0 })
    return { next: [String(first)], notices: [] }
  }
  const sent = new SentQuery(plan.number, {
    valueCount: parameters.length,
    textOf: (query) => query,
  })
  const { rows } = await evaluator.read(sent, { parameters, rowsMax: 1 })
  const [number, isTaken] = JSON.parse(rows[0] ?? '[null]') as (string | null)[]
  const above = Number(number) - (isTaken === 'true' ? 0 : 1)
  if (!(Number.isSafeInteger(above) && above <= max)) {
    throw invalidSql('setval: the number is out of range')
  }
  if (above > 0) await session.branch.takeNumbers({ ...taken, count: 0, above })
  const last = Number((await session.branch.lastNumbers([itemId])).get(itemId) ?? 0)
  const notice = `sequence [${name}] goes on after ${last}: sequences never go back, because all branches use their numbers`
  return { next: [], notices: last > above ? [notice] : [] }
}

function findSequence({ schema }: SqlContext['session'], sequence: string): NamedSequence {
  for (const found of sequencesOf(schema)) if (found.name === sequence) return found
  throw invalidSql(`sequence [${sequence}] not found: it is called {table}_{column}_seq`)
}
