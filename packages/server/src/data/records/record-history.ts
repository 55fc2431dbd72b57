import { AppError } from '@offshoot/contract/errors'
import { RECORD_STATES_MAX, VERSIONS_PAGE_SIZE } from '@offshoot/contract/record-history'
import { allDone } from '../../common/all-done.js'
import { membersOf } from '../../common/json-members.js'
import { listOtherNames } from '../../domain/branches/queries.js'
import { listCheckpoints } from '../../domain/checkpoints/queries.js'
import type { TextRow } from '../../postgres/statement.js'
import { isFileType } from '../../rows/columns/column-types.js'
import { Fault } from '../../rows/columns/fault.js'
import type { InputRecord } from '../../rows/columns/record-encoder.js'
import type { StoredColumn } from '../../rows/columns/stored-schema.js'
import type { BranchTable, OpenBranch } from '../../rows/open-branch.js'
import type { TableRead } from '../../rows/reading/table-read.js'
import { confirmed } from '../../rows/running/staleness.js'
import { invalidRecord } from '../session/record-errors.js'
import { planColumns, type Session } from '../session/session.js'
import { findId, type RecordContext, readRecord, updateRecord } from './records.js'

/*
 * The history of a record: its versions, if its table keeps them, and otherwise its states at the checkpoints of the branch
 * and on other branches.
 */

type RecordVersions = ReturnType<OpenBranch['versionsOf']>
type RecordVersion = ReturnType<RecordVersions['toVersion']>

/** Reads a state of the database: the branch at a checkpoint, or another branch. */
type ReadState = <Result>(
  state: { readonly at: string } | { readonly branchName: string },
  operation: (context: RecordContext) => Promise<Result>,
) => Promise<Result>

interface Page {
  readonly size?: number | undefined
  readonly cursor?: string | undefined
}

/** Ends the name of the version before the oldest change. */
const BEFORE = 'b'

/** A version as the answer lists it. */
interface ListedVersion
  extends Omit<RecordVersion, 'before' | 'after' | 'gapsBefore' | 'gapsAfter'> {
  readonly name: string
  readonly operation: 'insert' | 'update' | 'delete'
  readonly row: TextRow | undefined
  readonly gaps: RecordVersion['gapsAfter']
  /** The row before an update, if it is known. */
  readonly before: TextRow | undefined
}

/** Returns the history of a record as JSON. */
export async function readRecordHistory(
  context: RecordContext,
  options: Page & { id: string; readState: ReadState },
): Promise<string> {
  const { session, tableName } = context
  const table = session.table(tableName)
  const id = findId(table, options.id)
  if (table.codec.table.history === undefined) {
    return `{"versions":[],"states":[${(await listStates(context, { ...options, id })).join()}],"meta":{"more":false}}`
  }
  const read = planColumns(table, ['*'])
  const { size = VERSIONS_PAGE_SIZE, cursor } = options
  const { versions, more } = await listVersions(session, table, { id, size, cursor })
  if (versions.length === 0 && cursor === undefined) {
    // A record that nobody has changed since the history began has no versions, but it must exist.
    await readRecord({ ...context, columns: [] }, id)
  }
  const texts = versions.map((version) => writeVersion(session, read, version))
  const last = versions.at(-1)?.name
  const meta = `${last === undefined ? '' : `"cursor":"${last}",`}"more":${more}`
  return `{"versions":[${texts.join()}],"meta":{${meta}}}`
}

async function listVersions(
  session: Session,
  table: BranchTable,
  { id, size, cursor }: { id: string; size: number; cursor: string | undefined },
): Promise<{ versions: ListedVersion[]; more: boolean }> {
  // There is nothing before the oldest version.
  if (cursor?.endsWith(BEFORE)) return { versions: [], more: false }
  const { branch } = session
  const all = branch.versionsOf(table, planColumns(table, ['*']))
  const [kept = []] = await branch.runReads([all.findKept])
  const call = all.list(kept, { id, before: cursor, limit: size + 1 })
  const [rows = []] = call === undefined ? [] : await branch.runReads([call])
  const found = rows.map((row) => all.toVersion(row))
  const listed = found.map((version, index) => toListed(version, found[index + 1]))
  const oldest = found.at(-1)
  if (oldest === undefined) return { versions: [], more: false }
  if (found.length <= size) {
    const start = oldest.before ?? (await readStart(session, all, { id, oldest }))
    if (start !== undefined) {
      const last = listed.pop() as ListedVersion
      const operation = last.row === undefined ? last.operation : 'update'
      const gaps = oldest.before === undefined ? inheritedGaps(table) : oldest.gapsBefore
      listed.push({ ...last, operation, before: start }, { ...toStart(oldest, start), gaps })
    }
  }
  return { versions: listed.slice(0, size), more: listed.length > size }
}

/** Returns the record as the branch has inherited it, if its oldest version has replaced that. */
async function readStart(
  { branch }: Session,
  all: RecordVersions,
  { id, oldest }: { id: string; oldest: RecordVersion },
): Promise<TextRow | undefined> {
  if (oldest.after !== undefined && versionOf(oldest.after) === 0) return undefined
  const call = all.readStart(id)
  const [rows = []] = call === undefined ? [] : await branch.runReads([call])
  return rows[0]
}

/** An inherited record does not tell which of its columns without a value have one that does not convert. */
function inheritedGaps({ codec }: BranchTable): RecordVersion['gapsAfter'] {
  const converted = codec.table.columns.filter(({ from }) => from !== undefined)
  return { unconverted: [], missing: converted.map(({ name }) => name) }
}

/** `previous` is the version before, if it is known. What it says comes first: a merge may write a row in two steps. */
function toListed(version: RecordVersion, previous: RecordVersion | undefined): ListedVersion {
  const { before, after, gapsBefore: _, gapsAfter: gaps, ...others } = version
  const old = previous === undefined ? before : previous.after
  const isNew = previous === undefined ? isFirst(version) : previous.after === undefined
  const operation = after === undefined ? 'delete' : isNew ? 'insert' : 'update'
  return { ...others, name: version.time, operation, row: after, before: old, gaps }
}

const isFirst = ({ before, after }: RecordVersion): boolean =>
  before === undefined && after !== undefined && versionOf(after) === 0

const versionOf = (row: TextRow): number => Number(row[1])

/** Returns the state before the oldest version. Nobody knows who has written it. */
function toStart(oldest: RecordVersion, row: TextRow): Omit<ListedVersion, 'gaps'> {
  return {
    name: `${oldest.time}${BEFORE}`,
    time: `${Date.parse(`${row[3]}`)}000`,
    operation: versionOf(row) === 0 ? 'insert' : 'update',
    ...{ userId: null, email: null, keyName: null, cause: null },
    row,
    before: undefined,
  }
}

function writeVersion(session: Session, read: TableRead, version: ListedVersion): string {
  const { row, before, operation, gaps } = version
  const record = row === undefined ? 'null' : read.writeRecord(row, session.metadata)
  const known = {
    version: version.name,
    at: new Date(Number(version.time) / 1000).toISOString(),
    operation,
    ...(version.cause === null ? {} : { cause: version.cause }),
    ...(version.userId === null ? {} : { user: version.userId }),
    ...(version.email === null ? {} : { email: version.email }),
    ...(version.keyName === null ? {} : { key: version.keyName }),
    ...(gaps.unconverted.length > 0 && { unconverted: Object.fromEntries(gaps.unconverted) }),
  }
  const changes =
    operation !== 'update' || row === undefined || before === undefined
      ? ''
      : `,"changes":${writeChanges(read.writeRecord(before, session.metadata), record, session)}`
  return `${JSON.stringify(known).slice(0, -1)},"record":${record}${changes}}`
}

/** Writes the columns in which two texts of a record differ. */
function writeChanges(before: string, after: string, { metadata }: Session): string {
  const [from, to] = [membersOf(before), membersOf(after)]
  const changed = [...new Set([...from.keys(), ...to.keys()])].filter(
    (name) => name !== metadata.key && from.get(name) !== to.get(name),
  )
  const members = changed.map(
    (name) =>
      `${JSON.stringify(name)}:{"from":${from.get(name) ?? 'null'},"to":${to.get(name) ?? 'null'}}`,
  )
  return `{${members.join()}}`
}

/** States of a record that are read at the same time. */
const STATES_AT_ONCE = 10

/** Lists the states of a record at the last checkpoints of its branch, and on other branches. */
async function listStates(
  { session, database }: RecordContext,
  { id, readState }: { id: string; readState: ReadState },
): Promise<string[]> {
  const { access } = session
  const limit = RECORD_STATES_MAX
  const [checkpoints, branchNames] = await allDone([
    listCheckpoints(database, access.branchId, { after: undefined, limit }),
    listOtherNames(database, access, limit),
  ])
  const wanted = [
    ...checkpoints.map(({ id: at, name, createdAt }) => ({
      state: { at },
      named: { checkpoint: { id: at, name, createdAt: createdAt.toISOString() } },
    })),
    ...branchNames.map((branchName) => ({ state: { branchName }, named: { branch: branchName } })),
  ]
  const states: string[] = []
  for (let start = 0; start < wanted.length; start += STATES_AT_ONCE) {
    // Reads that arrive together share a round trip.
    const found = await allDone(
      wanted.slice(start, start + STATES_AT_ONCE).map(async ({ state, named }) => {
        const record = await readKnown(id, (read) => readState(state, read))
        return record === undefined
          ? []
          : [`${JSON.stringify(named).slice(0, -1)},"record":${record}}`]
      }),
    )
    states.push(...found.flat())
  }
  return states
}

/** Codes of a state that has no such record, and of one that is gone or that the key does not reach. */
const ABSENT: readonly string[] = ['record_not_found', 'table_not_found']
const UNKNOWN: readonly string[] = ['checkpoint_not_found', 'branch_not_found', 'key_scope']

/** Reads a record of another state. Returns undefined if the state cannot be read. */
async function readKnown(
  id: string,
  read: (operation: (context: RecordContext) => Promise<string>) => Promise<string>,
): Promise<string | undefined> {
  try {
    return await read((context) => readRecord(context, id))
  } catch (error) {
    const code = error instanceof AppError ? error.code : ''
    if (ABSENT.includes(code)) return 'null'
    if (UNKNOWN.includes(code)) return undefined
    throw error
  }
}

/** Characters of a value that an error shows. */
const SHOWN_LENGTH = 100

/** Gives a record the values of one of its versions, by an ordinary update. Returns the answer to that. */
export async function restoreRecordVersion(
  context: RecordContext,
  options: { id: string; version: string },
): Promise<{ answer: string; created: boolean }> {
  const { session, tableName } = context
  const table = session.table(tableName)
  const id = requireId(table, options.id)
  const found = await findVersion(session, table, { ...options, id })
  if (found === undefined) {
    throw confirmed(
      new AppError(
        'version_not_found',
        `table [${tableName}]: record [${id}]: version [${options.version}] not found`,
      ),
    )
  }
  if (found.row === undefined) {
    throw new AppError(
      'invalid_request',
      `version [${options.version}]: the record was deleted then; delete it instead`,
    )
  }
  const { unconverted, missing } = found.gaps
  const place = `table [${tableName}]: record [${id}]: version [${options.version}]`
  for (const [name, value] of unconverted) {
    const type = table.codec.physical.find(({ path }) => path.join('.') === name)?.column.type
    const shown = JSON.stringify(value.slice(0, SHOWN_LENGTH))
    const fault = `column [${name}]: the value then, ${shown}, does not convert to [${type}]`
    throw confirmed(new AppError('invalid_request', `${place}: ${fault}; nothing was changed`))
  }
  const text = planColumns(table, ['*']).writeRecord(found.row, session.metadata)
  const record = JSON.parse(text) as InputRecord
  // Whether they had a value then is not known.
  const columns = table.codec.table.columns.filter(
    ({ name }) => !missing.includes(name) || Object.hasOwn(record, name),
  )
  const fields = fieldsOf(columns, record)
  return updateRecord(context, { id, fields, ifVersion: undefined, upserts: true })
}

async function findVersion(
  session: Session,
  table: BranchTable,
  { id, version }: { id: string; version: string },
): Promise<ListedVersion | undefined> {
  if (table.codec.table.history === undefined) return undefined
  // The version itself is the first one before the next microsecond.
  const time = version.replace(BEFORE, '')
  const cursor = String(BigInt(time) + 1n)
  const { versions } = await listVersions(session, table, { id, size: 2, cursor })
  return versions.find(({ name }) => name === version)
}

/** Returns a value for each column that can be written, so that an update leaves nothing of the present record but files. */
function fieldsOf(columns: readonly StoredColumn[], record: InputRecord): InputRecord {
  const kept = columns.filter(({ type, computed }) => !isFileType(type) && computed === undefined)
  return Object.fromEntries(
    kept.map(({ name, columns: nested }) => {
      const value = record[name] ?? null
      const isObject = nested !== undefined && value !== null
      return [name, isObject ? fieldsOf(nested, value as InputRecord) : value]
    }),
  )
}

function requireId(table: BranchTable, id: string): string {
  const text = table.codec.encodeId(id)
  if (text instanceof Fault) throw invalidRecord(table.codec, [text])
  return text
}
