import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { Turn } from '../../common/in-turns.js'
import { answerTooLarge } from '../../postgres/bounds.js'
import type { Database } from '../../postgres/database.js'
import { runTransaction, SNAPSHOT, type Transaction } from '../../postgres/run-transaction.js'
import type { TextRow } from '../../postgres/statement.js'
import {
  compileTable,
  enclosingObjects,
  type StoredSchema,
  type StoredTable,
  type TableCodec,
} from '../../rows/columns.js'
import {
  areRelated,
  type ComparedRow,
  changedColumns,
  countChanges,
  listCompared,
  mayDiffer,
  noRows,
} from '../../rows/merge.js'
import type { BranchRows } from '../../rows/tables.js'
import type { BranchAccess } from '../access/resolve.js'
import { compareSchemasById } from '../schemas/compare-schemas-by-id.js'
import { tableNotFound } from '../schemas/operations.js'
import { type BranchState, getForkState, getSource, getState } from './branch-state.js'

/** The state that a branch is compared with. */
export type Against = 'fork' | 'source' | BranchAccess

const CANDIDATES_PER_READ = 1000

export interface DifferenceOptions {
  readonly against: Against
  readonly limits: Limits
  readonly tableName: string | undefined
  readonly size: number
  readonly after: string | undefined
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
  return runTransaction(
    database,
    async (transaction) => {
      const after = await getState(transaction, access)
      const before = await resolveAgainst(transaction, access, { after, against: options.against })
      const operations = compareSchemasById(before.schema, after.schema)
      const tablesBefore = new Set(before.schema.tables.map(({ id }) => id))
      const tables: string[] = []
      const room = new AnswerRoom(options.limits.answerBytesMax)
      for (const table of tablesToShow(after, options.tableName)) {
        const had = tablesBefore.has(table.id) ? before.rows : noRows(before.rows)
        if (options.tableName === undefined && !mayDiffer(had, after.rows, table.id)) continue
        const codec = compileTable(table, { limits: options.limits, jsonAsText: false })
        const states = [had, after.rows] as const
        const columns = comparedColumns(codec, before.schema)
        tables.push(await describeTable(transaction, { codec, columns, states, room, ...options }))
      }
      return writeDifference({ access, before, operations, tables })
    },
    SNAPSHOT,
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

async function resolveAgainst(
  transaction: Transaction,
  access: BranchAccess,
  { after, against }: { after: BranchState; against: Against },
): Promise<{
  name: string | undefined
  at: 'fork' | 'now'
  rows: BranchRows
  schema: StoredSchema
}> {
  if (against === 'fork') {
    return { ...(await getForkState(transaction, access, after)), at: 'fork' }
  }
  const other = against === 'source' ? await getSource(transaction, access) : against
  const state = await getState(transaction, other)
  if (!areRelated(state.rows, after.rows)) {
    throw new AppError(
      'unrelated_branches',
      `branches [${access.branchName}] and [${other.branchName}] have no common ancestor that they inherit rows from`,
    )
  }
  return { ...state, name: other.branchName, at: 'now' }
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

async function describeTable(
  transaction: Transaction,
  options: {
    codec: TableCodec
    columns: ReadonlySet<number>
    states: readonly [BranchRows, BranchRows]
    size: number
    after: string | undefined
    room: AnswerRoom
  },
): Promise<string> {
  const { codec, columns, states, size, room } = options
  const [before, after] = states
  const counts = await countChanges(transaction, { codec, columns, before, after })
  const changes: string[] = []
  let cursor = options.after ?? ''
  let more = false
  const turn = new Turn()
  while (size > 0) {
    const { rows, next } = await listCompared(transaction, {
      codec,
      before: [before],
      after,
      form: 'json',
      afterId: cursor,
      limit: CANDIDATES_PER_READ,
    })
    for (const row of rows) {
      if (turn.isOver) await turn.end()
      const change = describeChange(codec, columns, row)
      if (change === undefined) continue
      // A change beyond the page size means that there are more.
      more = changes.length === size
      if (more) break
      changes.push(change)
      room.take(change)
      cursor = row.id
    }
    if (more || next === undefined) break
    cursor = next
  }
  const name = JSON.stringify(codec.table.name)
  const end = changes.length === 0 ? '' : `"cursor":${JSON.stringify(cursor)},`
  return `{"name":${name},"inserted":${counts.inserted},"updated":${counts.updated},"deleted":${counts.deleted},"changes":[${changes.join(',')}],${end}"more":${more}}`
}

function describeChange(
  codec: TableCodec,
  compared: ReadonlySet<number>,
  { id, before: [before], after }: ComparedRow,
): string | undefined {
  const record = (texts: TextRow) => `"record":{${codec.decodeRow(texts)}}`
  if (before === undefined) {
    return after === undefined ? undefined : `{"change":"inserted","id":"${id}",${record(after)}}`
  }
  if (after === undefined) {
    const known = before.map((text, index) => (compared.has(index) ? text : null))
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
  if (text == null || column === undefined) return 'null'
  if (column.column.type !== 'object') return column.codec.decode(text)
  const members = codec.physical.flatMap(({ path }, nested) => {
    const isMember = enclosingObjects(codec, nested).at(-1) === index && texts[nested] !== null
    return isMember ? `${JSON.stringify(path.at(-1))}:${writeValue(codec, nested, texts)}` : []
  })
  return `{${members.join(',')}}`
}

function writeDifference(options: {
  access: BranchAccess
  before: { name: string | undefined; at: 'fork' | 'now' }
  operations: readonly SchemaOperation[]
  tables: readonly string[]
}): string {
  const { access, before, operations, tables } = options
  const against = JSON.stringify({ branch: before.name, at: before.at })
  return `{"branch":${JSON.stringify(access.branchName)},"against":${against},"schema":{"operations":${JSON.stringify(operations)}},"tables":[${tables.join(',')}]}`
}
