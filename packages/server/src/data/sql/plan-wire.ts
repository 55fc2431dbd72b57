import { AppError, type ErrorCode } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { Place } from '../../postgres/place.js'
import { Sql } from '../../postgres/sql.js'
import { Constant, Slot } from '../../postgres/statement.js'
import type { StoredTable } from '../../rows/columns/stored-schema.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import type { GivenParameters } from './parameters.js'
import type { StatementPlan } from './statement-plan.js'
import { StepRows } from './step-rows.js'

/*
 * The messages between the process and its thread for SQL. Instances of classes cannot be sent, so SQL is sent
 * as its parts. A statement is first parsed, which returns the tables that must be described before it can be
 * planned.
 */

export type PlanRequest =
  | {
      readonly kind: 'begin'
      readonly metadataKey: string | undefined
      readonly limits: Limits
    }
  | { readonly kind: 'parse'; readonly text: string; readonly parameterCount: number }
  | ({ readonly kind: 'table' } & TableDescription)
  /** The values of the enums that the statement names, by the names of their types. */
  | { readonly kind: 'enums'; readonly enums: ReadonlyMap<string, readonly string[]> }
  | ({ readonly kind: 'plan' } & GivenParameters)

export interface TableDescription {
  readonly table: StoredTable
  readonly rows: BranchRows
}

/** The answer to `parse`: the names of relations and of types in the statement. */
export interface ParseAnswer {
  readonly names: readonly string[]
  readonly typeNames: readonly string[]
}

/** The answer to `plan`: the plan, with SQL as its parts. */
export interface PlanAnswer {
  readonly plan: unknown
}

export interface ErrorAnswer {
  readonly error: { readonly code: ErrorCode | undefined; readonly message: string }
}

export function errorAnswer(error: unknown): ErrorAnswer {
  const message = error instanceof Error ? error.message : String(error)
  return { error: { code: error instanceof AppError ? error.code : undefined, message } }
}

/** Returns the answer, or throws the error that it contains. */
export function requireAnswer<Answer extends object>(answer: Answer | ErrorAnswer): Answer {
  if (!('error' in answer)) return answer
  const { code, message } = answer.error
  throw code === undefined ? new Error(message) : new AppError(code, message)
}

class SqlParts {
  readonly isSql = true
  constructor(
    readonly strings: readonly string[],
    readonly values: readonly WireValue[],
  ) {}
}

type WireValue =
  | number
  | { readonly slot: number }
  | { readonly step: number }
  | { readonly key: string; readonly value: number }
  | { readonly schema: string; readonly text: string; readonly isOnNode: boolean }

function toWireValue(value: unknown): WireValue {
  if (value instanceof Slot) return { slot: value.position }
  if (value instanceof StepRows) return { step: value.step }
  if (value instanceof Constant) return { key: value.key, value: value.value }
  if (value instanceof Place) return { ...value }
  return Number(value)
}

function fromWireValue(value: WireValue): Slot | StepRows | Constant | Place | number {
  if (typeof value === 'number') return value
  if ('step' in value) return new StepRows(value.step)
  if ('schema' in value) return new Place(value.schema, value.text, value.isOnNode)
  return 'slot' in value ? new Slot(value.slot) : new Constant(value.key, value.value)
}

export function toWire(value: unknown): unknown {
  if (value instanceof Sql) {
    return new SqlParts(value.strings, value.values.map(toWireValue))
  }
  return mapMembers(value, toWire)
}

export function fromWire(value: unknown): StatementPlan {
  return readWire(value) as StatementPlan
}

function readWire(value: unknown): unknown {
  if (!isSqlParts(value)) return mapMembers(value, readWire)
  return new Sql([...value.strings], value.values.map(fromWireValue))
}

function isSqlParts(value: unknown): value is SqlParts {
  return typeof value === 'object' && value !== null && 'isSql' in value
}

export function mapMembers(value: unknown, map: (member: unknown) => unknown): unknown {
  if (typeof value !== 'object' || value === null || value instanceof Set) return value
  if (Array.isArray(value)) return value.map(map)
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, map(member)]))
}
