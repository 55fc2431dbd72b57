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
  EMPTY_SCHEMA,
  listOrigins,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { UNDECIDED } from '../../rows/merging/compare-rows.js'
import { Difference } from '../../rows/merging/difference.js'
import type { TableBase, TableState } from '../../rows/merging/table-states.js'
import { RowState } from '../../rows/row-state.js'
import { guardedByKey } from '../../rows/running/staleness.js'
import type { BranchAccess } from '../access/resolve.js'
import { scopeReachesBranch } from '../access/scope.js'
import {
  type BranchState,
  findSource,
  getForkState,
  getSource,
  getStartOf,
  getState,
  readState,
} from '../branches/branch-state.js'
import { getCheckpointAt } from '../checkpoints/find-at.js'
import { compareSchemasById } from '../schemas/compare-schemas-by-id.js'
import { tableNotFound } from '../schemas/operations.js'
import { SchemasBeforeRoundTrips } from '../schemas/round-trips.js'
import { SameIds } from '../schemas/same-ids.js'
import { findHistoryWithSource, type StoredHistory } from './history/queries.js'
import {
  baseOfTable,
  baseSchema,
  type ComparedStates,
  findHistoryOf,
  getPin,
  stateOf,
  tableBase,
  tryFindBases,
  unrelated,
} from './merge-base.js'
import { readColumns, readColumnsOfBases } from './read-columns.js'

/** The state that a branch is compared with. */
type Against = 'base' | 'fork' | 'source' | BranchAccess | CommonState

/** The last state that the branch has in common with another one. */
interface CommonState {
  readonly commonWith: BranchAccess
  /** Hidden forks that keep states of both branches, which are compared instead of the present ones. */
  readonly pins?: { readonly own: string; readonly other: string } | undefined
}

const isCommonState = (against: Against): against is CommonState =>
  typeof against === 'object' && 'commonWith' in against

const CANDIDATES_PER_READ = 1000

interface DifferenceOptions {
  readonly against: Against
  /** A checkpoint of the branch; undefined: its present state. */
  readonly at?: string | undefined
  /** A checkpoint of the branch that it is compared with. */
  readonly againstAt?: string | undefined
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
  return guardedByKey(access.principal, (check) =>
    runTransaction(
      database,
      async (transaction) => {
        const { against } = options
        const common = isCommonState(against) ? against : undefined
        const [{ checkpoint, ...after }, source] = await allDone([
          common?.pins === undefined
            ? getStateAt(transaction, access, options.at)
            : getPinned(transaction, common.pins.own),
          common !== undefined
            ? readCommon(transaction, access, common)
            : against === 'base'
              ? readSource(transaction, access)
              : NO_SOURCE,
        ])
        const before = await resolveAgainst(transaction, access, {
          state: after,
          source,
          ...options,
        })
        const { sides } = new SchemasBeforeRoundTrips({
          base: before.schema,
          ours: after.schema,
          theirs: after.schema,
        })
        const operations = await inTurns(compareSchemasById(sides.base, sides.ours))
        const tables: string[] = []
        const room = new AnswerRoom(options.limits.answerBytesMax)
        const turn = new Turn()
        for (const table of tablesToShow(after, options.tableName)) {
          if (turn.isOver) await turn.end()
          const present = before.columnsOf(table)
          const difference = new Difference({
            table,
            form: { limits: options.limits, jsonAsText: false },
            // The rows of the other side may still store values of columns that it has removed.
            leftOut: before.schema.removedIds?.filter((id) => !present.has(id)),
            base: before.baseOf(table),
            after: { rows: after.rows, table },
            isRestricted: false,
          })
          if (options.tableName === undefined && !difference.canDiffer) continue
          tables.push(await describeTable(transaction, { difference, room, ...options }))
        }
        return writeDifference({ access, checkpoint, before, operations, tables })
      },
      { ...SNAPSHOT, beginsLate: true, opening: [check] },
    ),
  )
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

/** Returns the state of a branch, or of a checkpoint of it. */
async function getStateAt(
  transaction: Transaction,
  access: BranchAccess,
  at: string | undefined,
): Promise<BranchState & { checkpoint?: string }> {
  if (at === undefined) return getState(transaction, access)
  const { id, pinId } = await getCheckpointAt(transaction, access, at)
  return { ...(await getStartOf(transaction, pinId)), checkpoint: id }
}

const getPinned = (
  transaction: Transaction,
  pinId: string,
): Promise<BranchState & { checkpoint?: string }> => getStartOf(transaction, pinId)

/** The other side of a difference. */
interface Before {
  /** Undefined if the scope of the key excludes the branch. */
  readonly name: string | undefined
  readonly checkpoint?: string | undefined
  readonly at: 'base' | 'fork' | 'now' | 'checkpoint'
  readonly schema: StoredSchema
  baseOf(table: StoredTable): TableBase | TableState
  /** Returns the ids of the columns of a later table whose values the state has in a column. */
  columnsOf(table: StoredTable): ReadonlySet<number>
}

/** Returns the ids of the columns of a later table that were made of a column of a state, or in whose place one is read. */
function columnsIn({ table, readAs }: TableState, later: StoredTable): ReadonlySet<number> {
  const known = new Set(table?.columns.map(({ id }) => id))
  const present = later.columns.filter(
    (column) =>
      readAs?.has(column.id) || [column, ...listOrigins(column)].some(({ id }) => known.has(id)),
  )
  return new Set(present.map(({ id }) => id))
}

/** Returns a table in a state, without values of columns that the state has removed. */
function ownColumnsOf(state: TableState): TableState {
  const { rows, table } = state
  return table === undefined ? state : { ...state, rows: new RowState(rows).ofTable(table) }
}

async function resolveAgainst(
  transaction: Transaction,
  access: BranchAccess,
  options: Pick<DifferenceOptions, 'against' | 'againstAt' | 'mayBeUnrelated'> & {
    state: BranchState
    source: Source | undefined
  },
): Promise<Before> {
  const { state: after, source, against, againstAt, mayBeUnrelated = false } = options
  const before = source && (await findBase(transaction, access, { after, source }))
  if (before !== undefined) return before
  if (isCommonState(against)) throw unrelated(access.branchName, against.commonWith.branchName)
  if (against === 'base' || against === 'fork') {
    const { name, ...state } = await getForkState(transaction, access, after)
    return { name, at: 'fork', ...inState(readState(state, idsOfPast(after)), after) }
  }
  const other = against === 'source' ? await getSource(transaction, access) : against
  const { checkpoint, ...state } = await getStateAt(transaction, other, againstAt)
  const isOwn = other.branchId === access.branchId
  if (!mayBeUnrelated && !isOwn && !new RowState(state.rows).isRelatedTo(after.rows))
    throw unrelated(access.branchName, other.branchName)
  const schemas = { ours: after.schema, theirs: state.schema }
  const ids = new SameIds(schemas).withAdded(EMPTY_SCHEMA)
  const at = checkpoint === undefined ? 'now' : 'checkpoint'
  return { name: other.branchName, checkpoint, at, ...inState(readState(state, ids), after) }
}

/**
 * Returns the ids by which an earlier state of a branch is read. The branch contains that state, and knows what it
 * knows. A table or column that a revert or a merge has brought back may have had another id then.
 */
function idsOfPast({ schema }: BranchState): SameIds {
  return new SameIds({ ours: schema, theirs: schema })
}

function inState(
  state: BranchState,
  { schema }: BranchState,
): Pick<Before, 'schema' | 'baseOf' | 'columnsOf'> {
  const read = readColumns(state, schema)
  return {
    schema: state.schema,
    baseOf: (table) => ownColumnsOf(stateOf(read, table)),
    columnsOf: (table) => columnsIn(stateOf(read, table), table),
  }
}

/** The source of a branch, and the history of both. */
interface Source {
  readonly branch: BranchAccess
  readonly history: StoredHistory
  /** The states that are compared; by default the current ones. */
  readonly states?: ComparedStates
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

async function readCommon(
  transaction: Transaction,
  access: BranchAccess,
  { commonWith: branch, pins }: CommonState,
): Promise<Source> {
  if (pins === undefined) {
    const history = await findHistoryOf(transaction, { theirs: branch, ours: access })
    return { branch, history }
  }
  const [theirs, ours] = await allDone([
    getPin(transaction, pins.other),
    getPin(transaction, pins.own),
  ])
  const states = { theirs, ours }
  return { branch, states, history: await findHistoryOf(transaction, states) }
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
  const { branch: from, history, states } = source
  const options = { history, states, locks: false, known: [after], ids: idsOfPast(after) }
  const bases = await tryFindBases(transaction, { from, into: access }, options)
  if (bases === undefined) return undefined
  const read = readColumnsOfBases(bases, after.schema)
  const isShown = scopeReachesBranch(access.principal.scope, from.branchName)
  return {
    name: isShown ? from.branchName : undefined,
    at: bases.isForkOfTarget ? 'fork' : 'base',
    schema: withNames(baseSchema(bases), after.schema),
    baseOf: (table) => {
      const base = tableBase(baseOfTable(read, table.id), table)
      return { ...base, states: base.states.map(ownColumnsOf) }
    },
    columnsOf(table) {
      const { states } = baseOfTable(read, table.id)
      return new Set(states.flatMap((state) => [...columnsIn(stateOf(state, table), table)]))
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

async function describeTable(
  transaction: Transaction,
  options: {
    difference: Difference
    size: number
    after?: string | undefined
    room: AnswerRoom
  },
): Promise<string> {
  const { difference, size, room } = options
  const changes: string[] = []
  const counted = { inserted: 0, updated: 0, deleted: 0 }
  // Changes before a cursor are not read, so they cannot be counted here.
  const counts = options.after === undefined
  let isWhole = false
  let cursor = options.after ?? ''
  let more = false
  const turn = new Turn()
  while (size > 0) {
    const { rows, next } = await difference.list(transaction, {
      form: 'json',
      afterId: cursor,
      limit: CANDIDATES_PER_READ,
    })
    for (const row of rows) {
      if (turn.isOver) await turn.end()
      const kind = difference.kindOf(row)
      if (kind === undefined) continue
      if (changes.length === size) {
        // A change beyond the page size means that there are more. The others of this read are only counted.
        more = true
        if (!counts) break
        counted[kind]++
        continue
      }
      const change = describeChange(difference, row)
      counted[kind]++
      changes.push(change)
      room.take(change)
      cursor = row.id
    }
    isWhole = counts && next === undefined
    if (more || next === undefined) break
    cursor = next
  }
  const { inserted, updated, deleted } = isWhole ? counted : await difference.count(transaction)
  const name = JSON.stringify(difference.codec.table.name)
  const end = changes.length === 0 ? '' : `"cursor":${JSON.stringify(cursor)},`
  return `{"name":${name},"inserted":${inserted},"updated":${updated},"deleted":${deleted},"changes":[${changes.join(',')}],${end}"more":${more}}`
}

/** Describes a row that differs. */
function describeChange(
  difference: Difference,
  { id, before, after }: { id: string; before: TextRow | undefined; after: TextRow | undefined },
): string {
  const { codec, columns: compared } = difference
  const record = (texts: TextRow) => `"record":{${codec.decodeRow(texts)}}`
  if (before === undefined) return `{"change":"inserted","id":"${id}",${record(after ?? [])}}`
  if (after === undefined) {
    const known = before.map((text, index) =>
      compared.has(index) && text !== UNDECIDED ? text : null,
    )
    return `{"change":"deleted","id":"${id}",${record(known)}}`
  }
  const columns = difference.changedColumns(before, after)
  const changed = new Set(columns)
  const described = columns.flatMap((index) => {
    const objects = codec.enclosingObjects(index)
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
    const isMember = codec.enclosingObjects(nested).at(-1) === index && texts[nested] !== null
    return isMember ? `${JSON.stringify(path.at(-1))}:${writeValue(codec, nested, texts)}` : []
  })
  return `{${members.join(',')}}`
}

function writeDifference(options: {
  access: BranchAccess
  checkpoint: string | undefined
  before: Pick<Before, 'name' | 'checkpoint' | 'at'>
  operations: readonly SchemaOperation[]
  tables: readonly string[]
}): string {
  const { access, checkpoint, before, operations, tables } = options
  const against = JSON.stringify({
    branch: before.name,
    checkpoint: before.checkpoint,
    at: before.at,
  })
  const shown = checkpoint === undefined ? '' : `"checkpoint":${JSON.stringify(checkpoint)},`
  return `{"branch":${JSON.stringify(access.branchName)},${shown}"against":${against},"schema":{"operations":${JSON.stringify(operations)}},"tables":[${tables.join(',')}]}`
}
