import { invalidSql } from '../../../dialect/invalid-sql.js'
import type { NodeOf } from '../../../dialect/nodes.js'
import { type NamedQuery, Scope } from '../../../dialect/scope.js'
import { ident, type Sql, sql } from '../../../postgres/sql.js'
import type {
  StatementTable,
  TargetColumn,
  WritableTables,
  WrittenColumn,
} from '../branch-tables.js'
import type { GivenParameters } from '../parameters.js'
import type { ParsedStatement } from '../parse-statement.js'
import { type NamedParts, namesSql, QueryWriter, withSql } from '../select-sql.js'
import type { SinglePlan } from '../statement-plan.js'
import { StepRows } from '../step-rows.js'
import type { WrittenQuery } from '../written-query.js'

/** A plan that writes, and what it returns. */
export interface PlannedWrite {
  readonly plan: Exclude<SinglePlan, { kind: 'select' }>
  readonly returned: WrittenQuery | undefined
  /** The query for what it writes, if that is a step of its own. */
  readonly source?: Sql | undefined
}

const NO_PARTS: NamedParts = { parts: [], isRecursive: false }

/** The writer, the tables and the steps that the plans of all parts of a statement share. */
export class PlanContext {
  readonly writer: QueryWriter
  readonly #tables: WritableTables
  /** The parameters and the results of steps, which precede other values. */
  valueCount: number
  /** The names of the steps of a WITH that writes. */
  readonly steps: NamedQuery[] = []
  /** The tables that queries of RETURNING read. */
  readonly readAfter = new Set<string>()

  constructor(
    statement: ParsedStatement,
    { tables, ...given }: { tables: WritableTables } & GivenParameters,
  ) {
    this.writer = new QueryWriter(statement, tables, given)
    this.#tables = tables
    this.valueCount = given.parameterSizes.length
  }

  tableOf(relation: NodeOf<'RangeVar'> | undefined): StatementTable {
    if (relation === undefined) throw invalidSql('a table is missing')
    const { name } = this.writer.table(relation)
    const table = this.#tables.find(name)
    if (table === undefined) throw invalidSql(`table [${name}] not found`)
    return table
  }

  /** Creates the scope of a query, which can refer to earlier steps. */
  newScope(): Scope {
    const scope = new Scope(undefined)
    scope.queries.push(...this.steps.map((step) => ({ ...step })))
    return scope
  }

  /** Creates the scope of a query that uses a step. */
  scopeWith(step: number): Scope {
    const scope = this.newScope()
    const query = scope.queries[step]
    if (query !== undefined) query.isUsed = true
    return scope
  }

  /** Writes the WITH clause of a query: the steps that it refers to, and its own queries. */
  with(scope: Scope, { parts, isRecursive }: NamedParts = NO_PARTS): Sql {
    const used = this.steps.flatMap(({ alias, columns }, index) =>
      scope.queries[index]?.isUsed === true
        ? [sql`${ident(alias)}${namesSql(columns)} as materialized (${new StepRows(index)})`]
        : [],
    )
    return withSql({ parts: [...used, ...parts], isRecursive })
  }
}

/** Returns columns without what only a plan needs, so that they can be sent between threads. */
export const plainColumns = (columns: readonly TargetColumn[]): WrittenColumn[] =>
  columns.map(({ name, path, lengthMax }) => ({ name, path, ...(lengthMax && { lengthMax }) }))

/** The alias of the query of a statement that writes. */
export const SOURCE = sql`source`
