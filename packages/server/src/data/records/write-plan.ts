import type { Call, TextRows } from '../../postgres/statement.js'
import { arrayLiteral, copyLine } from '../../rows/columns/carriers.js'
import type { EncodedUpdate } from '../../rows/columns/record-encoder.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { guardValues } from '../../rows/running/guard.js'
import type { Returned, TableStatements } from '../../rows/writing/table-statements.js'
import type { BranchSession, Session, SessionTable } from './session.js'

/** One row to write: its id, the version it must have, and a text for each column. */
export interface RowInput {
  readonly id: string
  readonly ifVersion?: number | undefined
  readonly values: readonly (string | null)[]
}

const versionText = (row: RowInput): string | null =>
  row.ifVersion === undefined ? null : String(row.ifVersion)

/** The values of a statement that takes arrays: epoch, ids, versions, and one array per column. */
function arrays(session: BranchSession, rows: readonly RowInput[], columns: number): string[] {
  const values = [
    String(session.guard.layout.epoch),
    arrayLiteral(rows.map((row) => row.id)),
    arrayLiteral(rows.map(versionText)),
  ]
  for (let column = 0; column < columns; column++) {
    values.push(arrayLiteral(rows.map((row) => row.values[column] ?? null)))
  }
  return values
}

export interface WrittenRows {
  readonly codec: TableCodec
  readonly rows: readonly RowInput[]
  readonly returned: Returned
}

export function insertCall(
  session: BranchSession,
  statements: TableStatements,
  { codec, rows, returned }: WrittenRows,
): Call {
  return {
    statement: statements.insert(returned),
    values: arrays(session, rows, codec.physical.length),
  }
}

/** For rows with ids that were made for them. Nothing is returned: all are there, or it fails. */
export function copyCall(
  session: BranchSession,
  statements: TableStatements,
  rows: readonly RowInput[],
): Call {
  return { statement: statements.copy(), values: [], input: copyLines(session, rows) }
}

/** Rows as the copy statement of a table reads them. */
export function copyLines(session: BranchSession, rows: readonly RowInput[]): string {
  const { epoch } = session.guard.layout
  let lines = ''
  for (const { id, values } of rows) {
    const prefix = `${id}\t${epoch}`
    lines += values.length === 0 ? `${prefix}\n` : copyLine(values, `${prefix}\t`)
  }
  return lines
}

/** For one row with an id that nobody else has, or in a table that inherits nothing. */
export function insertOneCall(session: Session, statements: TableStatements, row: RowInput): Call {
  return {
    statement: statements.insertOne(),
    values: [
      String(session.guard.layout.epoch),
      row.id,
      null,
      ...row.values,
      ...guardValues(session.guard),
    ],
  }
}

export function replaceCall(
  session: BranchSession,
  statements: TableStatements,
  { codec, rows, returned }: WrittenRows,
): Call {
  const isConditional = rows.some((row) => row.ifVersion !== undefined)
  const statement = isConditional ? statements.replace(returned) : statements.replaceAny(returned)
  return { statement, values: arrays(session, rows, codec.physical.length) }
}

export function deleteCall(
  session: BranchSession,
  statements: TableStatements,
  ids: readonly string[],
): Call {
  return {
    statement: statements.delete(),
    values: [String(session.guard.layout.epoch), arrayLiteral(ids)],
  }
}

/** Rows that change the same columns, in the same way, without arithmetic. */
export function updateCall(
  session: BranchSession,
  statements: TableStatements,
  rows: readonly RowInput[],
  columns: readonly number[],
): Call {
  return { statement: statements.update(columns), values: arrays(session, rows, columns.length) }
}

/** One row with any kind of change. The guard is built in. */
export function updateOneCall(
  session: Session,
  statements: TableStatements,
  row: { id: string; ifVersion?: number | undefined; update: EncodedUpdate },
): Call {
  const { id, ifVersion, update } = row
  return {
    statement: statements.updateOne(update.columns, update.arithmetic),
    values: [
      String(session.guard.layout.epoch),
      id,
      ifVersion === undefined ? null : String(ifVersion),
      ...update.values,
      ...update.arithmetic.map((term) => term.operand),
      ...guardValues(session.guard),
    ],
  }
}

/**
 * Checks, to be run after a write, that its values of unique columns do not occur in rows the branch
 * inherits; its own rows have an index for that. `values` gives the texts written to a column.
 */
export function inheritedChecks(
  table: SessionTable,
  statements: TableStatements,
  values: (column: number) => readonly (string | null)[],
): { column: number; call: Call }[] {
  if (!table.isInherited) return []
  return table.uniqueColumns.flatMap((column) => {
    const given = values(column).filter((value) => value !== null)
    if (given.length === 0) return []
    const call = { statement: statements.inheritedValues(column), values: [arrayLiteral(given)] }
    return [{ column, call }]
  })
}

/** The same for updates. What arithmetic makes of a value, only the row that was written knows. */
export function updateChecks(
  table: SessionTable,
  statements: TableStatements,
  updates: readonly { readonly id: string; readonly update: EncodedUpdate }[],
): { column: number; call: Call }[] {
  const given = inheritedChecks(table, statements, (column) =>
    updates.map(({ update }) => update.values[update.columns.indexOf(column)] ?? null),
  )
  if (!table.isInherited) return given
  const reckoned = updates.flatMap(({ id, update }) =>
    update.arithmetic
      .filter(({ column }) => table.uniqueColumns.includes(column))
      .map(({ column }) => ({
        column,
        call: { statement: statements.inheritedTwin(column), values: [id] },
      })),
  )
  return [...given, ...reckoned]
}

/** The row of a statement that writes at most one. */
export function onlyRow(rows: TextRows | undefined): readonly (string | null)[] | undefined {
  return rows?.[0]
}
