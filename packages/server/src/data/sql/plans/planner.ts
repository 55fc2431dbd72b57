import type { Node } from 'libpg-query'
import { typeOnceShown } from '../../../dialect/declared-types.js'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { contentOf, kindOf, type NodeOf, requireKnown } from '../../../dialect/nodes.js'
import { tooDeep } from '../../../dialect/parser.js'
import { type ColumnTypes, cutName, type NamedQuery } from '../../../dialect/scope.js'
import { ident, type Sql, sql } from '../../../postgres/sql.js'
import { slot } from '../../../postgres/statement.js'
import type { WritableTables } from '../branch-tables.js'
import { isLookup } from '../lookup.js'
import type { GivenParameters } from '../parameters.js'
import { type ParsedStatement, wordsOf, writingWith } from '../parse-statement.js'
import { otherRelations, returnsOthers } from '../returned-relations.js'
import { partsOf } from '../select-sql.js'
import { readNextNumber, readSetval, type SetvalCall } from '../setval-call.js'
import type { SinglePlan, StatementPlan, WithStep } from '../statement-plan.js'
import { shownQuery } from '../written-query.js'
import { planDelete, planUpdate } from './change-plans.js'
import { planInsert } from './insert-plan.js'
import { type SourceStep, STEP_NAME } from './kept-rows.js'
import { PlanContext, type PlannedWrite } from './plan-context.js'
import { requireSingleRows } from './single-rows.js'

/** Rewrites a statement for the tables of a branch. */
export function planStatement(
  statement: ParsedStatement,
  options: { tables: WritableTables } & GivenParameters,
): StatementPlan {
  const parameterCount = options.parameterSizes.length
  const planner = new Planner(new PlanContext(statement, options), { parameterCount })
  try {
    return planner.plan(statement.node)
  } catch (error) {
    if (error instanceof RangeError) throw tooDeep()
    throw error
  }
}

/** A plan, the columns of its result if it has one, and the tables that it reads. */
interface PlannedPart {
  readonly plan: SinglePlan
  readonly columns: readonly string[] | undefined
  readonly types?: ColumnTypes | undefined
  readonly reads: ReadonlySet<string>
  /** The query for what it writes, if that is a step of its own. */
  readonly source?: Sql | undefined
}

class Planner {
  readonly #context: PlanContext
  readonly #parameterCount: number

  constructor(context: PlanContext, { parameterCount }: { parameterCount: number }) {
    this.#context = context
    this.#parameterCount = parameterCount
  }

  plan(node: Node): StatementPlan {
    const plan = this.#plan(node)
    this.#context.writer.requireParameters(this.#parameterCount)
    const { compared } = this.#context.writer
    return compared.length === 0 ? plan : { ...plan, compared }
  }

  #plan(node: Node): StatementPlan {
    const clause = writingWith(node)
    if (clause !== undefined) return this.#planSteps(node, clause)
    const truncate = contentOf(node, 'TruncateStmt')
    if (truncate !== undefined) return this.#truncate(truncate)
    const call = readSetval(node)
    if (call !== undefined) return this.#setval(node, call)
    if (returnsOthers(node)) return { ...this.#planSteps(node, undefined), isPlain: true }
    const next = readNextNumber(node)
    if (next !== undefined) {
      const query = sql`select ${slot(this.#context.valueCount)}::bigint as ${ident(next.name)}`
      return { kind: 'setval', sequence: next.sequence, number: undefined, query }
    }
    const part = this.#part(node)
    // The records to be deleted are read before they are.
    if (part.plan.kind !== 'delete') this.#requireEarlyReads([part])
    return part.plan
  }

  #setval(node: Node, { sequence, targets }: SetvalCall): StatementPlan {
    const targetList = targets.map((val): Node => ({ ResTarget: { val } }))
    const { plan } = this.#part({ SelectStmt: { ...contentOf(node, 'SelectStmt'), targetList } })
    if (plan.kind !== 'select') throw new Error('a query must be planned as one')
    const values = sql`(${plan.query}) as q(number, taken)`
    return {
      kind: 'setval',
      sequence,
      number: sql`
        select to_json(array[q.number::bigint::text, q.taken::boolean::text])::text as row from ${values}`,
      query: sql`select q.number::bigint as setval from ${values}`,
    }
  }

  /** Plans a statement whose WITH writes. */
  #planSteps(
    node: Node,
    clause: NodeOf<'WithClause'> | undefined,
  ): Extract<StatementPlan, { kind: 'with' }> {
    const isRecursive = clause?.recursive === true
    const given = clause === undefined ? [] : partsOf(clause)
    const queries = given.map((query) => ({ query, ...this.#context.writer.nameQuery(query) }))
    const rest = clause === undefined ? node : withoutWith(node)
    let count = 0
    const places = [...given.map(({ ctequery }) => ctequery), rest].map((inner) => {
      const hasSource = inner !== undefined && returnsOthers(inner)
      const source = hasSource ? { step: count++, others: otherRelations(inner) } : undefined
      return { source, own: count++ }
    })
    // The last part is not a step.
    this.#context.valueCount += count - 1
    const early = (name: string) => `WITH [${name}]: cannot be used before it has run`
    if (isRecursive) {
      for (let step = 0; step < count - 1; step++) this.#context.steps.push(NO_STEP)
      for (const [index, { name, alias }] of queries.entries()) {
        const own = places[index]?.own ?? 0
        this.#context.steps[own] = { name, alias, columns: [], weight: 1, refusal: early(name) }
      }
    }
    const parts = queries.map(({ query, name, alias, columnsOf }, index) => {
      const { source, own = 0 } = places[index] ?? {}
      const inner = query.ctequery
      if (inner === undefined) throw invalidSql(`WITH [${name}]: a query is missing`)
      const part =
        contentOf(inner, 'SelectStmt') === undefined
          ? this.#part(inner, source)
          : this.#selectStep(query, isRecursive)
      const refusal =
        part.columns === undefined
          ? `WITH query "${name}" does not have a RETURNING clause`
          : undefined
      const columns = columnsOf(part.columns ?? [])
      this.#context.steps[own] = { name, alias, columns, types: part.types, weight: 1, refusal }
      return { name, ...part }
    })
    const last = this.#part(rest, places.at(-1)?.source)
    this.#requireEarlyReads([...parts, last])
    const all = [...parts, { name: '', ...last }]
    const steps = all.flatMap(({ name, plan, source }, index): WithStep[] => {
      const later = all.slice(index + 1).flatMap(({ reads }) => [...reads])
      const query = source && ({ kind: 'select', query: source, isLookup: false } as const)
      return [
        ...(query === undefined ? [] : [{ name: 'FROM', plan: query, readLater: [] }]),
        { name, plan, readLater: [...new Set(later)] },
      ]
    })
    return { kind: 'with', steps: steps.slice(0, -1), last: last.plan }
  }

  /** RETURNING is read when its statement has written, but PostgreSQL shows its queries what was there before. */
  #requireEarlyReads(parts: readonly Pick<PlannedPart, 'plan'>[]): void {
    const written = new Set(
      parts.flatMap(({ plan }) => (plan.kind === 'select' ? [] : cutName(plan.table))),
    )
    const table = [...this.#context.readAfter].find((name) => written.has(name))
    if (table === undefined) return
    throw invalidSql(
      `RETURNING: a query on table [${table}] is not supported, because the statement writes to it`,
    )
  }

  /** Plans a query of WITH that reads, which can refer to itself. */
  #selectStep(query: NodeOf<'CommonTableExpr'>, isRecursive: boolean): PlannedPart {
    this.#context.writer.reads.clear()
    const scope = this.#context.newScope()
    const own = this.#context.writer.writeWith(
      { ctes: [{ CommonTableExpr: query }], recursive: isRecursive },
      scope,
    )
    const known = scope.queries.at(-1)
    if (known === undefined) throw new Error('a query of WITH must have a name')
    const text = sql`${this.#context.with(scope, own)}select * from ${ident(known.alias)}`
    return {
      plan: { kind: 'select', query: text, isLookup: false },
      columns: known.columns,
      types: known.types,
      reads: new Set(this.#context.writer.reads),
    }
  }

  /** Plans a statement, or a part of one. */
  #part(node: Node, place?: SourceStep): PlannedPart {
    this.#context.writer.reads.clear()
    const select = contentOf(node, 'SelectStmt')
    if (select === undefined) {
      const { plan, returned, source } = this.#write(node, place)
      const reads = new Set(this.#context.writer.reads)
      const types = returned?.types?.map(typeOnceShown)
      return { plan, columns: returned?.columns, types, reads, source }
    }
    const scope = this.#context.newScope()
    const written = this.#context.writer.select(select, scope)
    const query = shownQuery(sql`${this.#context.with(scope)}${written.text}`, written)
    return {
      plan: { kind: 'select', query, isLookup: isLookup(select) },
      columns: written.columns,
      reads: new Set(this.#context.writer.reads),
    }
  }

  #write(node: Node, place: SourceStep | undefined): PlannedWrite {
    requireSingleRows(node, (location) => this.#context.writer.positionOf(location))
    const insert = contentOf(node, 'InsertStmt')
    if (insert !== undefined) return planInsert(this.#context, insert)
    const update = contentOf(node, 'UpdateStmt')
    if (update !== undefined) return planUpdate(this.#context, update, place)
    const remove = contentOf(node, 'DeleteStmt')
    if (remove !== undefined) return planDelete(this.#context, remove, place)
    throw invalidSql(`${wordsOf(node)} is not supported`)
  }

  #truncate(statement: NodeOf<'TruncateStmt'>): StatementPlan {
    requireKnown(statement, 'TRUNCATE', ['relations', 'behavior', 'restart_seqs'])
    const tables = (statement.relations ?? []).map((node) => {
      return this.#context.tableOf(contentOf(node, 'RangeVar')).fullName
    })
    const cascades = statement.behavior === 'DROP_CASCADE'
    const notices = statement.restart_seqs === true ? [NO_RESTART] : []
    return { kind: 'truncate', tables: [...new Set(tables)], cascades, notices }
  }
}

/** Stands for a step that is not planned yet, and that no query names. */
const NO_STEP: NamedQuery = { name: STEP_NAME, alias: '', columns: [], weight: 1 }

const NO_RESTART =
  'RESTART IDENTITY has no effect: sequences never go back, because all branches use their numbers'

/** Returns a statement without its WITH clause. */
function withoutWith(node: Node): Node {
  const kind = kindOf(node)
  const { withClause: _, ...content } = Object.values(node)[0] as NodeOf<'SelectStmt'>
  return { [kind]: content } as unknown as Node
}
