import { AppError } from '@offshoot/contract/errors'
import type { Sql } from './sql.js'

/** The protocol counts the parameters of a statement in two bytes. */
export const PARAMETERS_MAX = 65_535
/** Characters of a statement. PostgreSQL accepts longer ones, but takes minutes to plan them. */
export const TEXT_LENGTH_MAX = 4 * 1024 * 1024

/**
 * Refuses a statement that exceeds a limit of the protocol; sending it would break the connection.
 */
export function requireSendable(text: string, parameters: number): void {
  if (parameters > PARAMETERS_MAX) {
    throw new AppError(
      'query_too_costly',
      `the query is too costly: it takes ${parameters} parameters, and PostgreSQL takes ${PARAMETERS_MAX}`,
    )
  }
  if (text.length > TEXT_LENGTH_MAX) {
    throw new AppError(
      'query_too_costly',
      `the query is too costly: its statement has more than ${TEXT_LENGTH_MAX} characters`,
    )
  }
}

/** Placeholder in a template for a value that is given at each run. */
export class Slot {
  constructor(readonly position: number) {}
}

export const slot = (position: number): Slot => new Slot(position)

/** A statement that is compiled once and run often. */
export interface Statement {
  readonly text: string
  /**
   * For each parameter of the text: the position of its value among the values of a run, or a
   * constant text. Statements that differ only in constants share a prepared statement.
   */
  readonly slots: readonly (number | string)[]
}

/** Compiles a template whose values are slots or constant numbers. */
export function compileStatement(template: Sql): Statement {
  const slots = template.values.map((value) => {
    if (value instanceof Slot) return value.position
    if (typeof value === 'number') return String(value)
    throw new Error('a compiled statement takes slots and numbers, not other values')
  })
  return { text: template.text, slots }
}

/**
 * Compiles a template in which slots repeat: each slot gets one parameter number, so that
 * PostgreSQL recognises equal expressions.
 */
export function compileSharing(template: Sql): Statement {
  const slots: (number | string)[] = []
  const numbers = new Map<number, number>()
  let text = template.strings[0] ?? ''
  for (const [index, value] of template.values.entries()) {
    const position = value instanceof Slot ? value.position : undefined
    if (position === undefined && typeof value !== 'number') {
      throw new Error('a compiled statement takes slots and numbers, not other values')
    }
    let number = position === undefined ? undefined : numbers.get(position)
    if (number === undefined) {
      number = slots.push(position ?? String(value))
      if (position !== undefined) numbers.set(position, number)
    }
    text += `$${number}${template.strings[index + 1] ?? ''}`
  }
  return { text, slots }
}

/** A value in PostgreSQL's text form. */
export type Parameter = string | null

/** One run of a statement. */
export interface Call {
  readonly statement: Statement
  readonly values: readonly Parameter[]
  /** The data of a `copy ... from stdin`. */
  readonly input?: string
  /** Runs only once, so it is not kept prepared. */
  readonly isUnnamed?: boolean
  /**
   * The statement is described, not run: each row is a result column, with its name and the oid of
   * its type.
   */
  readonly describes?: boolean
}

/** A row as the texts of its values. */
export type TextRow = readonly (string | null)[]

/** The rows of one call. */
export type TextRows = readonly TextRow[]
