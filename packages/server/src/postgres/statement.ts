import { createHash } from 'node:crypto'
import { AppError } from '@offshoot/contract/errors'
import { Place } from './place.js'
import { type Parameter, type TextRow, toArray } from './record-text.js'
import type { Sql } from './sql.js'

export type { Parameter, TextRow } from './record-text.js'

/** The protocol counts the parameters of a statement in two bytes. */
export const PARAMETERS_MAX = 65_535
/** `pg` reads the number of parameters in the description of a statement as a signed number. */
export const DESCRIBED_PARAMETERS_MAX = 32_767
/** Characters of a statement. PostgreSQL accepts longer ones, but takes minutes to plan them. */
export const TEXT_LENGTH_MAX = 4 * 1024 * 1024

/**
 * Refuses a statement that exceeds a limit of the protocol; sending it would break the connection.
 */
export function requireSendable(
  text: string,
  parameters: number,
  parametersMax = PARAMETERS_MAX,
): void {
  if (parameters > parametersMax) {
    throw new AppError(
      'query_too_costly',
      `the query is too costly: it takes ${parameters} parameters, and at most ${parametersMax} are possible`,
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
  /** undefined: it names no tables of a database. */
  readonly use?: TableUse | undefined
}

/** How a statement uses tables of a database. */
export interface TableUse {
  /** The schema of the database. */
  readonly schema: string
  readonly isWrite: boolean
  /** Only the node that has the schema can run the statement. */
  readonly isOnNode: boolean
  /** Where the text has the names of the tables. */
  readonly names: { readonly start: number; readonly end: number }[]
}

/**
 * A number of a statement that repeats, such as the epoch that a branch is read at. All constants of
 * a template with the same key take one parameter. Like other parameters, they are not part of the
 * text, so statements that differ only in their values share a prepared statement.
 */
export class Constant {
  constructor(
    readonly key: string,
    readonly value: number,
  ) {}
}

/** Compiles a template whose values are slots, constants or numbers. */
export function compileStatement(template: Sql): Statement {
  return toStatement(numberParameters(template, constantKey))
}

/**
 * Compiles a template in which slots repeat: each slot gets one parameter number, so that
 * PostgreSQL recognises equal expressions.
 */
export function compileSharing(template: Sql): Statement {
  const keyOf = (value: unknown) =>
    value instanceof Slot ? `slot ${value.position}` : constantKey(value)
  return toStatement(numberParameters(template, keyOf))
}

/** Templates whose statements are kept prepared. */
const prepareds = new WeakSet<Sql>()
/** The names of their statements, by text. */
const names = new Map<string, string>()

/**
 * Marks a template whose statement each connection keeps prepared, because parsing and planning it would take
 * longer than running it. It must find rows by a key, so that one plan is good for all values. Its text must not
 * contain names of tables of users, because a connection never forgets it.
 */
export function prepared(template: Sql): Sql {
  prepareds.add(template)
  return template
}

function nameOf(text: string): string {
  const name = names.get(text) ?? statementName('q', text)
  names.set(text, name)
  return name
}

/**
 * Returns the name of a prepared statement. It is derived from the text, so that it never means another statement, also if
 * a pooler gives a session the connection of another one.
 */
export function statementName(prefix: string, text: string): string {
  return prefix + createHash('sha256').update(text).digest('base64url')
}

/** Returns the text and the parameters of a template that is run once, and its name if it is kept prepared. */
export function toQuery(template: Sql): {
  readonly name?: string
  readonly text: string
  readonly values: unknown[]
  readonly use: TableUse | undefined
} {
  const { text, values, use } = numberParameters(template, constantKey)
  requireSendable(text, values.length)
  return {
    ...(prepareds.has(template) ? { name: nameOf(text) } : {}),
    text,
    use,
    values: values.map((value) => (value instanceof Constant ? value.value : value)),
  }
}

function constantKey(value: unknown): string | undefined {
  return value instanceof Constant ? `constant ${value.key}` : undefined
}

/** What precedes the name of a table that is written to. */
const WRITING = /(?:insert\s+into|update|delete\s+from)\s+$/
const WRITING_LENGTH_MAX = 100

type Mutable<Value> = { -readonly [Member in keyof Value]: Value[Member] }

interface NumberedText {
  readonly text: string
  readonly values: readonly unknown[]
  readonly use: TableUse | undefined
}

/** Numbers the parameters of a template. Values with the same key share a parameter. */
function numberParameters(
  { strings, values }: Sql,
  keyOf: (value: unknown) => string | undefined,
): NumberedText {
  const parameters: unknown[] = []
  const numbers = new Map<string, number>()
  let use: Mutable<TableUse> | undefined
  let text = strings[0] ?? ''
  for (const [index, value] of values.entries()) {
    if (value instanceof Place) {
      if (value.isOfDatabase) {
        use ??= { schema: value.schema, isWrite: false, isOnNode: false, names: [] }
        use.isWrite ||= WRITING.test(strings[index]?.slice(-WRITING_LENGTH_MAX) ?? '')
        use.isOnNode ||= value.isOnNode
        if (value.text !== '') {
          use.names.push({ start: text.length, end: text.length + value.text.length })
        }
      }
      text += value.text + (strings[index + 1] ?? '')
      continue
    }
    const key = keyOf(value)
    let number = key === undefined ? undefined : numbers.get(key)
    if (number === undefined) {
      number = parameters.push(value)
      if (key !== undefined) numbers.set(key, number)
    }
    text += `$${number}${strings[index + 1] ?? ''}`
  }
  return { text, values: parameters, use }
}

function toStatement(numbered: NumberedText): Statement {
  const slots = numbered.values.map((value) => {
    if (value instanceof Slot) return value.position
    if (value instanceof Constant) return String(value.value)
    if (typeof value === 'number') return String(value)
    throw new Error('a compiled statement takes slots, constants and numbers, not other values')
  })
  return { text: numbered.text, slots, use: numbered.use }
}

/** Returns a call of a template. */
export function toCall(template: Sql): Call {
  const { text, values, use } = toQuery(template)
  return {
    statement: { text, slots: values.map((_, index) => index), use },
    values: values.map(toParameter),
  }
}

/** Returns a value in the form that `pg` gives it. Objects become JSON. */
export function toParameter(value: unknown): Parameter {
  if (value === null || value === undefined) return null
  if (typeof value === 'string') return value
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  if (value instanceof Date) return value.toISOString()
  if (ArrayBuffer.isView(value)) {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength)
    return `\\x${bytes.toString('hex')}`
  }
  if (Array.isArray(value)) return toArray(value.map(toParameter))
  return JSON.stringify(value)
}

/** A column of a result. */
export interface Field {
  readonly name: string
  /** The oid of its type. */
  readonly dataTypeID: number
}

/** Receives rows as PostgreSQL sends them. */
export interface RowForward {
  /** The formats of the values, as in a Bind message: one for all columns, one for each, or none: texts. */
  readonly formats: readonly number[]
  /** The message stays as it is: its memory is not used again. */
  readonly row: (message: Buffer) => void
}

/** One run of a statement. */
export interface Call {
  readonly statement: Statement
  readonly values: readonly Parameter[]
  /** The data of a `copy ... from stdin`. */
  readonly input?: string | Buffer
  /** Runs only once, so it is not kept prepared. */
  readonly isUnnamed?: boolean
  /**
   * The statement is described, not run: each row is a result column, with its name and the oid of
   * its type.
   */
  readonly describes?: boolean
  /** With `describes`, receives the oids of the types of the parameters, in the order of the text. */
  describeParameters?(typeIds: readonly number[]): void
  /** Receives each row as it arrives. The rows are not returned then, and not limited. */
  receiveRow?(row: TextRow): void
  /** Receives the messages of rows instead, if the connection can hand them on. */
  readonly forward?: RowForward | undefined
  /** Receives the columns of the result before its rows, unless it has none. */
  describeRows?(fields: readonly Field[]): void
  /** On a cluster, the query is explained, not run: EXPLAIN with its options. */
  readonly explainedBy?: `explain ${string}`
  /** The text that the statement passes to a node of a cluster, for tracing. */
  readonly passedText?: string
  /** On a cluster, the statement runs on the node with this schema, as this role and in this zone. It must not write. */
  readonly node?: {
    readonly schema: string
    readonly role?: string | undefined
    readonly timeZone?: string | undefined
  }
  /** Calls that run before, in the same round trip. Their rows are not returned. */
  readonly before?: readonly Call[]
}

/** The rows of one call. */
export type TextRows = readonly TextRow[]
