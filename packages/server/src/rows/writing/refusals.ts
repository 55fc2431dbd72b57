import { AppError } from '@offshoot/contract/errors'
import { RECORD_ID_PATTERN } from '@offshoot/contract/names'
import { shownValue } from '../../common/shown-value.js'
import {
  CHECK_VIOLATION,
  codeOf,
  constraintOf,
  isDataException,
  UNIQUE_VIOLATION,
} from '../../postgres/failures.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { CheckRule, LinkRule, UniqueKey } from '../columns/table-rules.js'
import { ruleIdOf } from '../layout/layout.js'

/*
 * PostgreSQL reports rejected values by a SQLSTATE and the name of an index or a constraint. This module converts them
 * to messages with the names of columns and constraints.
 */

const NUMERIC_OUT_OF_RANGE = '22003'
const PROGRAM_LIMIT_EXCEEDED = '54000'

/** A row breaks a rule: its value of a unique key is taken, or it fails a check. */
export class BrokenRuleError extends Error {
  /** As PostgreSQL reports it. */
  readonly code: string

  constructor(
    /** The number of rows that were added before the invalid one. */
    readonly row: number,
    /** undefined: the id is taken. */
    readonly rule: UniqueKey | CheckRule | undefined,
    /** Whether a check has a result for the row. */
    readonly isEvaluated = true,
  ) {
    super('a row breaks a rule')
    this.code = rule !== undefined && 'expression' in rule ? CHECK_VIOLATION : UNIQUE_VIOLATION
  }
}

/** A transaction would end with a row that breaks a unique key or a check. */
export class RuleBrokenAtEndError extends AppError {
  readonly violation: Violation

  /** `values` are those of the first record in the columns of a unique key. */
  constructor(violation: Violation, records: readonly string[], values: readonly string[] = []) {
    const { kind, codec, columns, constraint } = violation
    const shown = values.length === 0 ? {} : { values: values.map(shownValue) }
    const rule = constraint === undefined ? { column: columns.join() } : { columns, constraint }
    super(
      kind === 'check' ? 'check_violation' : 'unique_violation',
      `invalid record: ${violation.message}`,
      { details: { table: codec.table.name, ...rule, record: records[0], ...shown } },
    )
    this.violation = { ...violation, records, values }
  }
}

/** A link that would be broken. */
interface BrokenLink {
  /** The table with the link. */
  readonly codec: TableCodec
  readonly link: LinkRule
  /** The record that does not exist. */
  readonly target: LinkTarget
  /** The ids of the first records with such a link. */
  readonly records: readonly string[]
  /** The number of these records. */
  readonly count: number
  /** Whether the transaction has deleted the target. Otherwise it has written the link. */
  readonly isDeleted: boolean
}

interface LinkTarget {
  readonly table: string
  readonly record: string
}

/** A transaction would end with links to records that do not exist. */
export class BrokenLinkError extends AppError {
  readonly violation: Violation

  constructor(broken: BrokenLink) {
    const { codec, link, target, records, count, isDeleted } = broken
    const column = codec.physical[link.column]?.path.join('.') ?? ''
    const linking = `${count === 1 ? '1 record' : `${count} records`} of table [${codec.table.name}]`
    const listed = records.map((id) => `[${id}]`).join(', ')
    const message = isDeleted
      ? `record [${target.record}] of table [${target.table}] cannot be deleted: ${linking} ` +
        `${count === 1 ? 'links' : 'link'} to it or to other deleted records by column [${column}]: ` +
        `${listed}${count > records.length ? ' and more' : ''}`
      : missingTarget(column, target)
    const { rule: constraint } = codec.physical[link.column]?.column ?? {}
    const details = {
      table: codec.table.name,
      column,
      ...(constraint && { constraint }),
      record: records[0],
      records,
      target,
    }
    super('link_violation', isDeleted ? message : `invalid record: ${message}`, { details })
    this.violation = { ...missingLink(codec, link, target), message, broken }
  }
}

function missingTarget(column: string, { table, record }: LinkTarget): string {
  return `column [${column}]: links to record [${record}] of table [${table}], which does not exist`
}

/** Returns the violation by a row that links to a record that does not exist. */
export function missingLink(codec: TableCodec, link: LinkRule, target: LinkTarget): Violation {
  const columns = [codec.physical[link.column]?.path.join('.') ?? '']
  const message = missingTarget(columns[0] ?? '', target)
  return { kind: 'link', codec, columns, constraint: undefined, message, target }
}

/** A rule of a table that a row breaks. */
export interface Violation {
  readonly kind: 'unique' | 'check' | 'link'
  /** The table. */
  readonly codec: TableCodec
  /** The dotted paths of the columns. */
  readonly columns: readonly string[]
  /** The name of the constraint. undefined: the rule is one of a column. */
  readonly constraint: string | undefined
  /** What is wrong with the row. */
  readonly message: string
  /** The unique key whose value is taken. undefined: it is the id, or the rule is another one. */
  readonly key?: UniqueKey
  /** For a link: the linked record. */
  readonly target?: LinkTarget
  /** For a unique key or a check that a whole transaction would have broken: the ids of the rows that break it. */
  readonly records?: readonly string[]
  /** The values of the unique key that the first of these has. */
  readonly values?: readonly string[]
  /** For a link that a whole transaction would have broken. */
  readonly broken?: BrokenLink
}

/** Returns the rule that a row of one of the tables breaks. undefined for any other error. */
export function findViolation(error: unknown, codecs: Iterable<TableCodec>): Violation | undefined {
  if (error instanceof BrokenLinkError || error instanceof RuleBrokenAtEndError) {
    return error.violation
  }
  const code = codeOf(error)
  if (isUnevaluated(error)) return onlyUnevaluated([...codecs], code)
  if (code !== UNIQUE_VIOLATION && code !== CHECK_VIOLATION) return undefined
  const id = error instanceof BrokenRuleError ? error.rule?.id : ruleIdOf(constraintOf(error) ?? '')
  const [first] = codecs
  for (const codec of codecs) {
    const rule = [...codec.uniqueKeys, ...codec.checks].find((each) => each.id === id)
    if (rule === undefined) continue
    return violationOf(codec, rule, {
      isEvaluated: !(error instanceof BrokenRuleError) || error.isEvaluated,
    })
  }
  // No rule is known that fails: the id is taken. A check that no schema defines is a failure of the service.
  return code === CHECK_VIOLATION ? undefined : first && violationOf(first, undefined)
}

/** Returns whether an expression has failed: that of a check, or arithmetic of an update. */
function isUnevaluated(error: unknown): boolean {
  return isDataException(error) && !isVersionOverflow(error)
}

/** Returns the violation of the only check of the tables. A result that is out of range may be one of arithmetic instead. */
function onlyUnevaluated(
  codecs: readonly TableCodec[],
  code: string | undefined,
): Violation | undefined {
  const checked = codecs.filter(({ checks }) => checks.length > 0)
  const [codec] = checked
  const [check] = codec?.checks ?? []
  const isOnly = checked.length === 1 && codec?.checks.length === 1
  if (codec === undefined || !isOnly || code === NUMERIC_OUT_OF_RANGE) return undefined
  return violationOf(codec, check, { isEvaluated: false })
}

/** Returns the violation of a rule of a table. undefined: the id is taken. */
export function violationOf(
  codec: TableCodec,
  rule: UniqueKey | CheckRule | undefined,
  { isEvaluated } = { isEvaluated: true },
): Violation {
  if (rule !== undefined && 'expression' in rule && rule.computed !== undefined) {
    const { name, type } = rule.computed
    const fault = isEvaluated ? `has no value of type [${type}] for` : 'cannot be calculated of'
    const message = `column [${name}]: is computed, and ${fault} these values`
    return { kind: 'check', codec, columns: [name], constraint: undefined, message }
  }
  const columns = rule?.columns.map((index) => codec.physical[index]?.path.join('.') ?? '') ?? [
    'id',
  ]
  const kind = rule !== undefined && 'expression' in rule ? 'check' : 'unique'
  const violation = { kind, codec, columns, constraint: rule?.name } as const
  const key = rule === undefined || 'expression' in rule ? {} : { key: rule }
  return { ...violation, ...key, message: describeViolation(violation, { isEvaluated }) }
}

function describeViolation(
  { kind, columns, constraint }: Pick<Violation, 'kind' | 'columns' | 'constraint'>,
  { isEvaluated }: { isEvaluated: boolean },
): string {
  if (constraint === undefined) return `column [${columns.join('.')}]: is not unique`
  const place = `${columns.length === 1 ? 'column' : 'columns'} [${columns.join(', ')}]`
  const failure = isEvaluated ? 'the check fails' : 'the check cannot be evaluated for these values'
  const fault = kind === 'check' ? failure : 'the values are not unique'
  return `constraint [${constraint}]: ${place}: ${fault}`
}

/** The largest version of a row. */
const ROW_VERSION_MAX = 2 ** 31 - 1

/** The function of PostgreSQL that calculates the version of a row. Arithmetic of users never uses it. */
const VERSION_ROUTINE = 'int4pl'

/**
 * A node of a cluster reports the message, in English, and not the function. Arithmetic of users never yields this one:
 * their numbers are larger.
 */
function isVersionOverflow(error: unknown): boolean {
  const { routine, message } = error as { routine?: unknown; message?: unknown }
  return routine === VERSION_ROUTINE || (routine === NODE_ROUTINE && message === INTEGER_OVERFLOW)
}
const NODE_ROUTINE = 'ReportResultError'
const INTEGER_OVERFLOW = 'integer out of range'

/** PostgreSQL, or a check of the service, has rejected the values of a row. */
export class Refusal {
  /** Returns undefined for other failures. */
  static of(error: unknown, codecs: Iterable<TableCodec>): Refusal | undefined {
    const violation = findViolation(error, codecs)
    const message = violation?.message ?? describeRefusal(error, codecs)
    return message === undefined
      ? undefined
      : new Refusal(message, violation, {
          isUnevaluated: isUnevaluated(error),
          rowsBefore: rowsBefore(error),
          record: failingId(error),
          taken: takenText(error),
        })
  }

  /** Whether an expression has failed. Which check it belongs to, or which row, can be looked for. */
  readonly isUnevaluated: boolean
  /** The number of rows before the one that made a sink fail, if known. */
  readonly rowsBefore: number | undefined
  /** The id of a row that fails a check, if known. */
  readonly record: string | undefined
  /** The values of the unique key that are taken, as PostgreSQL writes them together, if known. */
  readonly taken: string | undefined

  private constructor(
    /** The reason. */
    readonly message: string,
    /** The rule that the row breaks. undefined: the value itself is refused. */
    readonly violation: Violation | undefined,
    known: Pick<Refusal, 'isUnevaluated' | 'rowsBefore' | 'record' | 'taken'>,
  ) {
    this.isUnevaluated = known.isUnevaluated
    this.rowsBefore = known.rowsBefore
    this.record = known.record
    this.taken = known.taken
  }

  /** Whether another row has the id, or the values of a unique key. */
  get isTaken(): boolean {
    return this.violation?.kind === 'unique'
  }
}

/** Reads the taken values from the detail. The names of columns, which precede them, have no parentheses. */
function takenText(error: unknown): string | undefined {
  const { detail } = error as { detail?: unknown }
  if (codeOf(error) !== UNIQUE_VIOLATION || typeof detail !== 'string') return undefined
  return /^Key \([^)]*\)=\((.*)\) already exists\.$/s.exec(detail)?.[1]
}

/** The columns of a heap that precede the id: version, epoch, two times and whether the row is deleted. */
const COLUMNS_BEFORE_ID = 5

/** Reads the id of a row that fails a check from the detail, which has its values. None of those before the id has a comma. */
function failingId(error: unknown): string | undefined {
  const { detail } = error as { detail?: unknown }
  if (codeOf(error) !== CHECK_VIOLATION || typeof detail !== 'string') return undefined
  const values = /^Failing row contains \(([^)]*)/.exec(detail)?.[1]?.split(', ')
  const id = values?.[COLUMNS_BEFORE_ID]
  return id !== undefined && RECORD_ID.test(id) ? id : undefined
}
const RECORD_ID = new RegExp(RECORD_ID_PATTERN)

function describeRefusal(error: unknown, codecs: Iterable<TableCodec>): string | undefined {
  switch (codeOf(error)) {
    case NUMERIC_OUT_OF_RANGE:
      return isVersionOverflow(error)
        ? `the versions of the record are used up; the last one is ${ROW_VERSION_MAX}; delete it and create it again`
        : 'the result is out of range'
    case PROGRAM_LIMIT_EXCEEDED:
      return 'a value of a unique column is too long; about 2700 bytes can be indexed'
    default:
      return isDataException(error) ? describeChecks([...codecs]) : undefined
  }
}

/** Names the checks of which one cannot be evaluated. undefined: the tables have no checks. */
function describeChecks(codecs: readonly TableCodec[]): string | undefined {
  const checks = codecs.flatMap((codec) => codec.checks)
  if (checks.length === 0) return undefined
  const named = checks.map(
    ({ name, computed }) =>
      `${computed === undefined ? 'constraint' : 'computed column'} [${name}]`,
  )
  const [first = '', ...others] = named
  const which = others.length === 0 ? first : `one of ${named.join(', ')}`
  return `${which} cannot be evaluated for these values`
}

function rowsBefore(error: unknown): number | undefined {
  if (error instanceof BrokenRuleError) return error.row
  const { where } = error as { where?: unknown }
  // PostgreSQL reports the line of the COPY that has a taken value.
  const line = typeof where === 'string' ? /, line (\d+)/.exec(where)?.[1] : undefined
  return line === undefined ? undefined : Number(line) - 1
}
