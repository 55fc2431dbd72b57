import { requireValueOf } from '../../dialect/declared-types.js'
import { textLength } from '../../postgres/place.js'
import { empty, type Sql } from '../../postgres/sql.js'
import type { Parameter } from '../../postgres/statement.js'
import type { WrittenColumn, WrittenKey } from './branch-tables.js'
import type { ComparedParameter } from './select-sql.js'

/** The query of a statement, and what to write afterwards. Plain data that can be sent between threads. */
export type StatementPlan = (
  | SinglePlan
  /** Deletes all records of some tables, by their names in the schema. */
  | {
      readonly kind: 'truncate'
      readonly tables: readonly string[]
      /** Whether tables with required links to them are emptied, too. */
      readonly cascades: boolean
      readonly notices: readonly string[]
    }
  /** Lets a sequence go on after a number, or takes its next one. */
  | {
      readonly kind: 'setval'
      /** The name of the sequence. */
      readonly sequence: string
      /** A query for a row of JSON text: the number, and whether it is taken. undefined: the next number. */
      readonly number: Sql | undefined
      /** Returns the number. The next one is in the slot after the parameters. */
      readonly query: Sql
    }
  /** A statement whose WITH writes. What the steps return follows the parameters, and precedes other values. */
  | {
      readonly kind: 'with'
      readonly steps: readonly WithStep[]
      readonly last: SinglePlan
      /** The statement has no WITH that writes. Its only step reads the rows that it joins, which RETURNING has. */
      readonly isPlain?: boolean
    }
) & { readonly compared?: readonly ComparedParameter[] }

/** A query of a WITH that writes. */
export interface WithStep {
  readonly name: string
  readonly plan: SinglePlan
  /** The tables that are read by later steps or by the last one. */
  readonly readLater: readonly string[]
}

/** A plan without other plans. */
export type SinglePlan =
  | {
      readonly kind: 'select'
      readonly query: Sql
      /** Whether it finds one record by its id, so that it never takes long. */
      readonly isLookup: boolean
    }
  | ({
      readonly kind: 'insert'
      readonly values: InsertValues
      readonly conflict: ConflictPlan | undefined
    } & WritePlan)
  | ({
      readonly kind: 'update'
      /** The written columns, in the order of their values after the id. */
      readonly columns: readonly WrittenColumn[]
      /** A query for rows of JSON texts, one for each record: its id and the new values. */
      readonly rows: Sql
    } & WritePlan)
  | ({ readonly kind: 'delete'; readonly rows: Sql } & WritePlan)

interface WritePlan {
  /** The name of the table in the schema. */
  readonly table: string
  /** A query for the written records. Their ids are in the slot after the parameters. */
  readonly returning: Sql | undefined
}

export interface InsertValues {
  readonly columns: readonly WrittenColumn[]
  /** A query for rows of JSON texts, one for each record. undefined: one record with only default values. */
  readonly rows: Sql | undefined
  /** The values that are DEFAULT, as `defaultKey` of row and column. */
  readonly defaults: ReadonlySet<string>
  /** The numbers of parameters that are documents. Their type in the query is text. */
  readonly documents: readonly number[]
}

/** The plan of ON CONFLICT, for records that conflict with existing ones. */
export interface ConflictPlan {
  /** The unique keys that are checked for conflicts. */
  readonly keys: readonly WrittenKey[]
  /**
   * A query for rows of JSON texts, one for each conflict: the position of the record (from 1), the id of the
   * existing record, and for an update whether to change it and its new values. The records to insert are in
   * the slot after the parameters, and their values of each key in the following slots.
   */
  readonly rows: Sql
  /** The columns to update in the existing record. undefined: DO NOTHING. */
  readonly update: readonly WrittenColumn[] | undefined
}

/** Throws if a parameter that is compared with an enum is none of its values. */
export function requireCompared(
  { compared = [] }: StatementPlan,
  parameters: readonly Parameter[],
): void {
  for (const { number, name, values } of compared) {
    const text = parameters[number - 1]
    if (typeof text === 'string') requireValueOf({ kind: 'enum', name, values }, text)
  }
}

/** Returns the length of the queries of a plan. */
export function lengthOf(plan: StatementPlan): number {
  if (plan.kind === 'select') return textLength(plan.query)
  if (plan.kind === 'truncate') return 0
  if (plan.kind === 'setval') {
    return textLength(plan.number ?? empty) + textLength(plan.query)
  }
  if (plan.kind === 'with') {
    return plan.steps.reduce((length, step) => length + lengthOf(step.plan), lengthOf(plan.last))
  }
  const read = plan.kind === 'insert' ? plan.values.rows : plan.rows
  const conflict = plan.kind === 'insert' ? plan.conflict?.rows : undefined
  return [read, conflict, plan.returning].reduce(
    (length, query) => length + (query === undefined ? 0 : textLength(query)),
    0,
  )
}

/** Returns the names of the tables that a statement writes to. */
export function writtenTables(plan: StatementPlan): readonly string[] {
  if (plan.kind === 'select' || plan.kind === 'setval') return []
  if (plan.kind === 'with') return singlePlans(plan).flatMap(writtenTables)
  return plan.kind === 'truncate' ? plan.tables : [plan.table]
}

/** Lists the plans of a statement whose WITH writes, in order. */
export const singlePlans = ({
  steps,
  last,
}: Extract<StatementPlan, { kind: 'with' }>): readonly SinglePlan[] => [
  ...steps.map(({ plan }) => plan),
  last,
]

export const defaultKey = (row: number, column: number): string => `${row} ${column}`
