import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { allDone } from '../../common/all-done.js'
import { inTurns, Turn } from '../../common/in-turns.js'
import { answerTooLarge } from '../../postgres/bounds.js'
import type { Database } from '../../postgres/database.js'
import { runTransaction, SNAPSHOT, type Transaction } from '../../postgres/run-transaction.js'
import type { TextRow } from '../../postgres/statement.js'
import {
  compileTable,
  EMPTY_SCHEMA,
  enclosingObjects,
  type StoredSchema,
  type StoredTable,
  type TableCodec,
} from '../../rows/columns.js'
import {
  areRelated,
  type ChangeCounts,
  changedColumns,
  countChanges,
  listCompared,
  mayDiffer,
  noRows,
  type RowBase,
  type RowTexts,
  UNDECIDED,
} from '../../rows/merge.js'
import { confirmKey, keyGuardCall } from '../../rows/read.js'
import type { BranchRows } from '../../rows/tables.js'
import type { BranchAccess } from '../access/resolve.js'
import { scopeReachesBranch } from '../access/scope.js'
import { compareSchemasById } from '../schemas/compare-schemas-by-id.js'
import { tableNotFound } from '../schemas/operations.js'
import { SameIds } from '../schemas/same-ids.js'
import {
  type BranchState,
  findSource,
  getForkState,
  getSource,
  getState,
  readState,
} from './branch-state.js'
import { findHistoryWithSource, type StoredHistory } from './history/queries.js'
import { baseSchema, tryFindBases, unrelated } from './merge-base.js'

/** The state that a branch is compared with. */
type Against = 'base' | 'fork' | 'source' | BranchAccess

const CANDIDATES_PER_READ = 1000

interface DifferenceOptions {
  readonly against: Against
  /** Whether the branch may be compared with one that it shares no rows with. */
  readonly mayBeUnrelated?: boolean
  readonly limits: Limits
  readonly tableName?: string | undefined
  readonly size: number
  readonly after?: string | undefined
}

/**
 * Returns the difference of a branch as JSON text: schema edits, and for each table the numbers of
 * changes and a page of changed records.
 */
export async function readDifference(
  database: Database,
  access: BranchAccess,
  options: DifferenceOptions,
): Promise<string> {
  if (options.after !== undefined && options.tableName === undefined) {
    throw new AppError('invalid_request', 'query: parameter [after]: needs the parameter [table]')
  }
  // All statements use one snapshot, so that counts and records agree.
  const reading = runTransaction(
    database,
    async (transaction) => {
      const [after, source] = await allDone([
        getState(transaction, access),
        options.against === 'base' ? readSource(transaction, access) : NO_SOURCE,
      ])
      const before = await resolveAgainst(transaction, access, { state: after, source, ...options })
      const operations = await inTurns(compareSchemasById(before.schema, after.schema))
      const tables: string[] = []
      const room = new AnswerRoom(options.limits.answerBytesMax)
      const turn = new Turn()
      for (const table of tablesToShow(after, options.tableName)) {
        if (turn.isOver) await turn.end()
        const base = before.rowsOf(table.id)
        const canDiffer = base.states.some((rows) => mayDiffer(rows, after.rows, table.id))
        if (options.tableName === undefined && !canDiffer) continue
        const codec = compileTable(table, { limits: options.limits, jsonAsText: false })
        const compared = { base, after: after.rows, columns: comparedColumns(codec, before.schema) }
        tables.push(await describeTable(transaction, { codec, compared, room, ...options }))
      }
      return writeDifference({ access, before, operations, tables })
    },
    { ...SNAPSHOT, beginsLate: true, opening: [keyGuardCall(access.principal)] },
  )
  return confirmKey(reading)
}

/** Budget for the bytes of one response. */
class AnswerRoom {
  #bytesLeft: number

  constructor(readonly bytesMax: number) {
    this.#bytesLeft = bytesMax
  }

  take(text: string): void {
    this.#bytesLeft -= Buffer.byteLength(text)
    if (this.#bytesLeft < 0) throw answerTooLarge(this.bytesMax)
  }
}

/** The other side of a difference. */
interface Before {
  /** Undefined if the scope of the key excludes the branch. */
  readonly name: string | undefined
  readonly at: 'base' | 'fork' | 'now'
  readonly schema: StoredSchema
  rowsOf(tableId: number): RowBase
}

async function resolveAgainst(
  transaction: Transaction,
  access: BranchAccess,
  options: Pick<DifferenceOptions, 'against' | 'mayBeUnrelated'> & {
    state: BranchState
    source: Source | undefined
  },
): Promise<Before> {
  const { state: after, source, against, mayBeUnrelated = false } = options
  const before = source && (await findBase(transaction, access, { after, source }))
  if (before !== undefined) return before
  if (against === 'base' || against === 'fork') {
    const { name, ...state } = await getForkState(transaction, access, after)
    return { name, at: 'fork', ...inState(state) }
  }
  const other = against === 'source' ? await getSource(transaction, access) : against
  const state = await getState(transaction, other)
  if (!mayBeUnrelated && !areRelated(state.rows, after.rows))
    throw unrelated(access.branchName, other.branchName)
  const schemas = { ours: after.schema, theirs: state.schema }
  const ids = new SameIds(schemas).withAdded(EMPTY_SCHEMA)
  return { name: other.branchName, at: 'now', ...inState(readState(state, ids)) }
}

function inState(state: BranchState): Pick<Before, 'schema' | 'rowsOf'> {
  return {
    schema: state.schema,
    rowsOf: rowsIn([state], ([row]) => row),
  }
}

/** Returns a function for the rows of a table. A state that does not have the table has no rows of it. */
function rowsIn(
  states: readonly BranchState[],
  rowOf: RowBase['rowOf'],
): (tableId: number) => RowBase {
  const known = states.map(({ rows, schema }) => ({
    rows,
    tables: new Set(schema.tables.map(({ id }) => id)),
  }))
  return (tableId) => ({
    states: known.map(({ rows, tables }) => (tables.has(tableId) ? rows : noRows(rows))),
    rowOf,
  })
}

/** The source of a branch, and the history of both. */
interface Source {
  readonly branch: BranchAccess
  readonly history: StoredHistory
}

const NO_SOURCE: Promise<Source | undefined> = Promise.resolve(undefined)

async function readSource(
  transaction: Transaction,
  access: BranchAccess,
): Promise<Source | undefined> {
  const [branch, history] = await allDone([
    findSource(transaction, access),
    findHistoryWithSource(transaction, access.branchId),
  ])
  return branch && { branch, history }
}

/**
 * Finds the last state that a branch has in common with its source, as a merge would. Returns undefined
 * if they have no rows in common.
 */
async function findBase(
  transaction: Transaction,
  access: BranchAccess,
  { after, source }: { after: BranchState; source: Source },
): Promise<Before | undefined> {
  const { branch: from, history } = source
  // The branch contains its base, and knows what the base knows.
  const ids = new SameIds({ ours: after.schema, theirs: after.schema })
  const options = { history, locks: false, known: [after], ids }
  const bases = await tryFindBases(transaction, { from, into: access }, options)
  if (bases === undefined) return undefined
  const isShown = scopeReachesBranch(access.principal.scope, from.branchName)
  const general = rowsIn(bases.general.states, bases.general.rowOf)
  return {
    name: isShown ? from.branchName : undefined,
    at: bases.isForkOfTarget ? 'fork' : 'base',
    schema: withNames(baseSchema(bases), after.schema),
    rowsOf(tableId) {
      const own = bases.ofTables.get(tableId)
      return own === undefined ? general(tableId) : rowsIn(own.states, own.rowOf)(tableId)
    },
  }
}

/** Replaces names on which the states of a virtual base disagree by those of the branch. */
function withNames(base: StoredSchema, after: StoredSchema): StoredSchema {
  const known = new Map(
    after.tables.flatMap((table) => [table, ...table.columns]).map(({ id, name }) => [id, name]),
  )
  const named = <Item extends { readonly id: number; readonly name: string }>(
    item: Item,
  ): Item[] => {
    const name = item.name === UNDECIDED ? known.get(item.id) : item.name
    return name === undefined ? [] : [{ ...item, name }]
  }
  const tables = base.tables
    .flatMap(named)
    .map((table) => ({ ...table, columns: table.columns.flatMap(named) }))
  return { ...base, tables }
}

function tablesToShow(
  { schema }: BranchState,
  tableName: string | undefined,
): readonly StoredTable[] {
  if (tableName === undefined) return schema.tables
  const table = schema.tables.find(({ name }) => name === tableName)
  if (table === undefined) throw tableNotFound(tableName)
  return [table]
}

/**
 * Returns the indexes of the columns to compare. Columns that the other side has removed are left out,
 * because its rows may still store values of them.
 */
function comparedColumns(codec: TableCodec, before: StoredSchema): ReadonlySet<number> {
  const removed = new Set(before.removedIds)
  return new Set(codec.physical.flatMap(({ id }, index) => (removed.has(id) ? [] : [index])))
}

interface Compared {
  readonly base: RowBase
  readonly after: BranchRows
  /** Indexes of the columns to compare. */
  readonly columns: ReadonlySet<number>
}

async function describeTable(
  transaction: Transaction,
  options: {
    codec: TableCodec
    compared: Compared
    size: number
    after?: string | undefined
    room: AnswerRoom
  },
): Promise<string> {
  const { codec, compared, size, room } = options
  const { base, columns } = compared
  const changes: string[] = []
  const counted = { inserted: 0, updated: 0, deleted: 0 }
  // Changes before a cursor are not read, so they cannot be counted here.
  const counts = options.after === undefined
  let isWhole = false
  let cursor = options.after ?? ''
  let more = false
  const turn = new Turn()
  while (size > 0) {
    const { rows, next } = await listCompared(transaction, {
      codec,
      before: base.states,
      after: compared.after,
      form: 'json',
      afterId: cursor,
      limit: CANDIDATES_PER_READ,
    })
    for (const row of rows) {
      if (turn.isOver) await turn.end()
      const sides = { before: base.rowOf(row.before), after: row.after }
      if (changes.length === size) {
        // A change beyond the page size means that there are more. The others of this read are only counted.
        if (!differs(columns, sides)) continue
        more = true
        if (!counts) break
        counted[kindOf(sides)]++
        continue
      }
      const change = describeChange(codec, columns, { id: row.id, ...sides })
      if (change === undefined) continue
      changes.push(change)
      counted[kindOf(sides)]++
      room.take(change)
      cursor = row.id
    }
    isWhole = counts && next === undefined
    if (more || next === undefined) break
    cursor = next
  }
  const { inserted, updated, deleted } = isWhole
    ? counted
    : await countChanges(transaction, { codec, ...compared })
  const name = JSON.stringify(codec.table.name)
  const end = changes.length === 0 ? '' : `"cursor":${JSON.stringify(cursor)},`
  return `{"name":${name},"inserted":${inserted},"updated":${updated},"deleted":${deleted},"changes":[${changes.join(',')}],${end}"more":${more}}`
}

/** Returns how a row that differs has changed. */
function kindOf({ before, after }: { before: RowTexts; after: RowTexts }): keyof ChangeCounts {
  if (before === undefined) return 'inserted'
  return after === undefined ? 'deleted' : 'updated'
}

/** Returns whether a row differs in one of the compared columns. */
function differs(
  compared: ReadonlySet<number>,
  { before, after }: { before: RowTexts; after: RowTexts },
): boolean {
  if (before === undefined || after === undefined) return before !== after
  return changedColumns(before, after).some((index) => compared.has(index))
}

function describeChange(
  codec: TableCodec,
  compared: ReadonlySet<number>,
  { id, before, after }: { id: string; before: RowTexts; after: RowTexts },
): string | undefined {
  const record = (texts: TextRow) => `"record":{${codec.decodeRow(texts)}}`
  if (before === undefined) {
    return after === undefined ? undefined : `{"change":"inserted","id":"${id}",${record(after)}}`
  }
  if (after === undefined) {
    const known = before.map((text, index) =>
      compared.has(index) && text !== UNDECIDED ? text : null,
    )
    return `{"change":"deleted","id":"${id}",${record(known)}}`
  }
  const columns = changedColumns(before, after).filter((index) => compared.has(index))
  if (columns.length === 0) return undefined
  const changed = new Set(columns)
  const described = columns.flatMap((index) => {
    const objects = enclosingObjects(codec, index)
    // An object that was set or cleared is described as a whole, so its members are skipped.
    if (objects.some((object) => changed.has(object))) return []
    return [describeColumn(codec, index, { before, after })]
  })
  return `{"change":"updated","id":"${id}","columns":{${described.join(',')}}}`
}

/** Writes a changed column, such as `"age":{"from":36,"to":37}`. */
function describeColumn(
  codec: TableCodec,
  index: number,
  { before, after }: { before: TextRow; after: TextRow },
): string {
  const path = codec.physical[index]?.path.join('.')
  const [from, to] = [writeValue(codec, index, before), writeValue(codec, index, after)]
  return `${JSON.stringify(path)}:{"from":${from},"to":${to}}`
}

function writeValue(codec: TableCodec, index: number, texts: TextRow): string {
  const text = texts[index]
  const column = codec.physical[index]
  // An undecided value is one on which the states of a virtual base disagree.
  if (text == null || text === UNDECIDED || column === undefined) return 'null'
  if (column.column.type !== 'object') return column.codec.decode(text)
  const members = codec.physical.flatMap(({ path }, nested) => {
    const isMember = enclosingObjects(codec, nested).at(-1) === index && texts[nested] !== null
    return isMember ? `${JSON.stringify(path.at(-1))}:${writeValue(codec, nested, texts)}` : []
  })
  return `{${members.join(',')}}`
}

function writeDifference(options: {
  access: BranchAccess
  before: Pick<Before, 'name' | 'at'>
  operations: readonly SchemaOperation[]
  tables: readonly string[]
}): string {
  const { access, before, operations, tables } = options
  const against = JSON.stringify({ branch: before.name, at: before.at })
  return `{"branch":${JSON.stringify(access.branchName)},"against":${against},"schema":{"operations":${JSON.stringify(operations)}},"tables":[${tables.join(',')}]}`
}
