import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import type { Database } from '../../postgres/database.js'
import { runTransaction, type Transaction } from '../../postgres/run-transaction.js'
import { mayDiffer } from '../../rows/changed-ids.js'
import { compileTable, type TableCodec } from '../../rows/columns/table-codec.js'
import {
  type ComparedRow,
  changedColumns,
  countChanges,
  listCompared,
} from '../../rows/compare-rows.js'
import type { Layout } from '../../rows/layout.js'
import type { StoredSchema, StoredTable } from '../../rows/stored-schema.js'
import type { BranchAccess } from '../access/resolve.js'
import { tableNotFound } from '../schemas/operations.js'
import { schemaDifference } from '../schemas/schema-difference.js'
import { type BranchState, getForkState, getSource, getState } from './branch-state.js'

/** What a branch is compared with. */
export type Against = 'fork' | 'source' | BranchAccess

const CANDIDATES_PER_READ = 1000

export interface DifferenceOptions {
  readonly against: Against
  readonly limits: Limits
  readonly tableName: string | undefined
  readonly size: number
  readonly after: string | undefined
}

/** The difference of a branch as JSON text: schema edits, counts, and a page of changed records. */
export async function readDifference(
  database: Database,
  access: BranchAccess,
  options: DifferenceOptions,
): Promise<string> {
  if (options.after !== undefined && options.tableName === undefined) {
    throw new AppError('invalid_request', 'query: parameter [after]: needs the parameter [table]')
  }
  // One snapshot for all of it, so that counts and records agree.
  return runTransaction(
    database,
    async (transaction) => {
      const after = await getState(transaction, access)
      const before = await resolveAgainst(transaction, access, { after, against: options.against })
      const operations = schemaDifference(before.schema, after.schema)
      const tables: string[] = []
      for (const table of tablesToShow(after, before.layout, options.tableName)) {
        const codec = compileTable(table, { limits: options.limits, jsonAsText: false })
        const states = [before.layout, after.layout] as const
        tables.push(await describeTable(transaction, { codec, states, ...options }))
      }
      return writeDifference({ access, before, operations, tables })
    },
    { isolation: 'repeatable read', readOnly: true },
  )
}

async function resolveAgainst(
  transaction: Transaction,
  access: BranchAccess,
  { after, against }: { after: BranchState; against: Against },
): Promise<{ name: string; at: 'fork' | 'now'; layout: Layout; schema: StoredSchema }> {
  if (against === 'fork') {
    return { ...(await getForkState(transaction, access, after)), at: 'fork' }
  }
  const other = against === 'source' ? await getSource(transaction, access) : against
  const state = await getState(transaction, other)
  return { ...state, name: other.branchName, at: 'now' }
}

function tablesToShow(
  { schema, layout }: BranchState,
  before: Layout,
  tableName: string | undefined,
): StoredTable[] {
  if (tableName === undefined) {
    return schema.tables.filter((table) => mayDiffer(before, layout, table.id))
  }
  const table = schema.tables.find(({ name }) => name === tableName)
  if (table === undefined) throw tableNotFound(tableName)
  return [table]
}

async function describeTable(
  transaction: Transaction,
  options: {
    codec: TableCodec
    states: readonly [Layout, Layout]
    size: number
    after: string | undefined
  },
): Promise<string> {
  const { codec, states, size } = options
  const counts = await countChanges(transaction, { codec, before: states[0], after: states[1] })
  const changes: string[] = []
  let cursor = options.after ?? ''
  let more = false
  while (size > 0) {
    const rows = await listCompared(transaction, {
      codec,
      states,
      form: 'json',
      after: cursor,
      limit: CANDIDATES_PER_READ,
    })
    for (const row of rows) {
      const change = describeChange(codec, row)
      if (change === undefined) continue
      // One more than asked for tells that there is more.
      more = changes.length === size
      if (more) break
      changes.push(change)
      cursor = row.id
    }
    const last = rows.at(-1)
    if (more || last === undefined || rows.length < CANDIDATES_PER_READ) break
    cursor = last.id
  }
  const name = JSON.stringify(codec.table.name)
  const end = changes.length === 0 ? '' : `"cursor":${JSON.stringify(cursor)},`
  return `{"name":${name},"inserted":${counts.inserted},"updated":${counts.updated},"deleted":${counts.deleted},"changes":[${changes.join(',')}],${end}"more":${more}}`
}

function describeChange(codec: TableCodec, { id, states }: ComparedRow): string | undefined {
  const [before, after] = states
  const record = (texts: readonly (string | null)[]) => `"record":{${codec.decodeRow(texts)}}`
  if (before === undefined) {
    return after === undefined ? undefined : `{"change":"inserted","id":"${id}",${record(after)}}`
  }
  if (after === undefined) return `{"change":"deleted","id":"${id}",${record(before)}}`
  const columns = changedColumns(before, after)
  if (columns.length === 0) return undefined
  return `{"change":"updated","id":"${id}","columns":{${columns
    .map((index) => describeColumn(codec, index, { from: before[index], to: after[index] }))
    .join(',')}}}`
}

/** `"age":{"from":36,"to":37}` */
function describeColumn(
  codec: TableCodec,
  index: number,
  values: { from: string | null | undefined; to: string | null | undefined },
): string {
  const column = codec.physical[index]
  const write = (text: string | null | undefined) =>
    text === null || text === undefined ? 'null' : (column?.codec.decode(text) ?? 'null')
  return `${JSON.stringify(column?.path.join('.'))}:{"from":${write(values.from)},"to":${write(values.to)}}`
}

function writeDifference(options: {
  access: BranchAccess
  before: { name: string; at: 'fork' | 'now' }
  operations: readonly SchemaOperation[]
  tables: readonly string[]
}): string {
  const { access, before, operations, tables } = options
  const against = JSON.stringify({ branch: before.name, at: before.at })
  return `{"branch":${JSON.stringify(access.branchName)},"against":${against},"schema":{"operations":${JSON.stringify(operations)}},"tables":[${tables.join(',')}]}`
}
