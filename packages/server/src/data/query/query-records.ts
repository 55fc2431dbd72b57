import { type Limits, QUERY_LIMITS } from '@offshoot/contract/limits'
import { mapInTurns } from '../../common/in-turns.js'
import { type JsonText, listJson } from '../../common/write-json.js'
import type { Bounds } from '../../postgres/bounds.js'
import type { TextRow } from '../../postgres/statement.js'
import { encodeOperand } from '../../rows/columns/column-types.js'
import { decodeDatetime } from '../../rows/columns/datetime-type.js'
import { Fault } from '../../rows/columns/fault.js'
import { checkText } from '../../rows/columns/text-types.js'
import type { BranchTable } from '../../rows/open-branch.js'
import type { TableLookup } from '../../rows/reading/read-plan.js'
import type { TableRead } from '../../rows/reading/table-read.js'
import type { Files } from '../files/files.js'
import { planColumns, type Session } from '../session/session.js'
import { type CursorScope, invalidCursor, otherSide, type Position, writeCursor } from './cursor.js'
import { type FieldType, resolveField } from './field.js'
import { parseFilter } from './filter.js'
import { invalidQuery } from './invalid-query.js'
import { type Page, type QueryRequest, readPage } from './page.js'
import type { QueryPlan } from './query-plan.js'
import { querySql } from './query-sql.js'
import { isReverseLink, parseReverseLink, type ReverseLink } from './reverse-link.js'
import { parseRecordSort } from './sort.js'
import { sortTypes } from './sort-sql.js'

export interface QueryContext {
  readonly files: Files
  readonly session: Session
  readonly tableName: string
  readonly limits: Limits
  readonly bounds?: Bounds
}

/** Returns a page of the records that meet a filter, as JSON text. */
export async function queryRecords(
  context: QueryContext,
  request: QueryRequest,
): Promise<JsonText> {
  const { session, limits } = context
  const scope = cursorScope(session, session.table(context.tableName).codec.table.id)
  const page = readPage(request, { limits, scope })
  const plan = planQuery(context, page)
  const rows = await run(context, plan)
  const hasMore = !page.isTail && rows.length > page.size
  const shown = page.isTail ? [] : rows.slice(0, page.size)
  if (plan.isBackward) shown.reverse()
  const ends =
    shown.length > 0
      ? { first: positionOf(plan, shown[0]), last: positionOf(plan, shown.at(-1)) }
      : await endsOfEmpty(context, { page, plan, tail: page.isTail ? rows[0] : undefined })
  const { filter, sort, columns, size, seed } = page
  const cursor = writeCursor(scope, { filter, sort, columns, size, seed, ...ends })
  await loadFound(plan, shown, context)
  const records = await mapInTurns(shown, (row) => writeFound(plan, row, session))
  const meta = `{"page":{"cursor":"${cursor}","more":${hasMore},"size":${size}}}`
  return listJson('{"records":[', records, `],"meta":${meta}}`)
}

export function planQuery(context: QueryContext, page: Page): QueryPlan {
  const { session, limits } = context
  const table = session.table(context.tableName)
  const { codec } = table
  const lookup = lookupOf(session)
  const { names, others } = splitColumns(page.columns)
  if (others.length > QUERY_LIMITS.relationsMax) throw tooManyRelations()
  const resolve = (path: string) => resolveField(lookup, codec, path)
  const sort = parseRecordSort(resolve, page.sort)
  for (const position of [page.after, page.before]) checkPosition(position, sortTypes(sort))
  const reverseLinks = others.map((given) =>
    parseReverseLink(
      {
        lookup,
        codec,
        pageSizeMax: limits.pageSizeMax,
        tableByName: (name) => session.findTable(name)?.codec,
        planColumns: (linking, columns) => planColumns(session.table(linking.table.name), columns),
      },
      given,
    ),
  )
  requireDistinct(reverseLinks)
  const read = planRecord(table, names)
  requireRelations([read, ...reverseLinks.map((link) => link.read)])
  return {
    lookup,
    codec,
    read,
    reverseLinks,
    filter: parseFilter(resolve, page.filter ?? {}),
    sort,
    seed: page.seed,
    after: page.after,
    before: page.before,
    isBackward: page.isBackward || page.isTail,
    // One additional record tells whether there are more.
    limit: page.isTail ? 1 : page.size + 1,
    offset: page.isTail ? 0 : page.offset,
  }
}

/** A cursor is valid only for the branch and table that it was created for. */
export function cursorScope({ cursorSecret, branch }: Session, tableId: number): CursorScope {
  return { secret: cursorSecret, branchId: branch.rows.branchId, tableId }
}

/** Returns the tables of the branch, to resolve paths of a query. */
export function lookupOf({ branch }: Session): TableLookup {
  return branch
}

function planRecord(table: BranchTable, names: readonly string[]): TableRead {
  return planColumns(table, names)
}

/** Separates names of columns from reverse links. */
function splitColumns(columns: unknown): { names: string[]; others: unknown[] } {
  if (columns === undefined) return { names: ['*'], others: [] }
  if (!Array.isArray(columns)) throw invalidQuery('columns: expected a list')
  if (columns.length === 0) return { names: ['*'], others: [] }
  const names: string[] = []
  const others: unknown[] = []
  let count = 0
  for (const column of columns) {
    const paths = typeof column === 'string' ? [column] : pathsOf(column)
    count += paths?.length ?? 1 + countNames(column)
    if (count > QUERY_LIMITS.columnsMax) {
      throw invalidQuery(`columns: there are more than ${QUERY_LIMITS.columnsMax} names`)
    }
    if (paths === undefined) others.push(column)
    else names.push(...paths)
  }
  return { names, others }
}

function countNames(reverseLink: unknown): number {
  const { columns } = (reverseLink ?? {}) as Readonly<Record<string, unknown>>
  return Array.isArray(columns) ? columns.length : 0
}

/** Checks the number of relations: each followed link and each reverse link counts as one. */
function requireRelations([read, ...reverse]: readonly TableRead[]): void {
  const links = [read, ...reverse].reduce(
    (count, plan) => count + (plan === undefined ? 0 : plan.linkedTables.length),
    reverse.length,
  )
  if (links > QUERY_LIMITS.relationsMax) throw tooManyRelations()
}

function tooManyRelations() {
  const { relationsMax } = QUERY_LIMITS
  return invalidQuery(
    `columns: a query cannot follow more than ${relationsMax} links and reverse links`,
  )
}

/** `{name: "owner", columns: ["name"]}` is another way to write `owner.name`. */
function pathsOf(given: unknown): string[] | undefined {
  const { name, columns = [], ...rest } = (given ?? {}) as Readonly<Record<string, unknown>>
  if (typeof name !== 'string' || isReverseLink(name) || Object.keys(rest).length > 0)
    return undefined
  if (!Array.isArray(columns) || !columns.every((column) => typeof column === 'string')) {
    return undefined
  }
  return columns.length === 0 ? [name] : columns.map((column) => `${name}.${column}`)
}

function requireDistinct(reverseLinks: readonly ReverseLink[]): void {
  const keys = reverseLinks.map(({ key }) => key)
  const repeated = keys.find((key, index) => keys.indexOf(key) !== index)
  if (repeated !== undefined) throw invalidQuery(`columns: the name [${repeated}] is taken twice`)
}

async function run(context: QueryContext, plan: QueryPlan): Promise<TextRow[]> {
  const { session, bounds } = context
  const [rows = []] = await session.branch.runReads([querySql(plan)], bounds)
  return [...rows]
}

/** Returns the positions of an empty page: the end of the searched records, so that paging can continue. */
async function endsOfEmpty(
  context: QueryContext,
  options: { page: Page; plan: QueryPlan; tail: TextRow | undefined },
): Promise<{ first?: Position; last?: Position }> {
  const { page, plan, tail } = options
  let row = tail
  if (page.offset > 0 && !page.isTail) {
    const reverse = { ...plan, reverseLinks: [], isBackward: !plan.isBackward }
    const rows = await run(context, { ...reverse, limit: 1, offset: 0 })
    row = rows[0]
  }
  if (page.isBackward) {
    const first = row === undefined ? page.before : positionOf(plan, row)
    return first === undefined ? {} : { first, last: otherSide(first) }
  }
  const last = row === undefined ? page.after : positionOf(plan, row)
  return last === undefined ? {} : { first: otherSide(last), last }
}

function positionOf({ read, sort }: QueryPlan, row: TextRow = []): Position {
  const start = read.textCount
  const end = start + sortTypes(sort).length
  return { keys: row.slice(start, end), id: row[end] ?? '' }
}

/** Loads the requested contents of files, which are not in the rows. */
async function loadFound(
  plan: QueryPlan,
  rows: readonly TextRow[],
  { files, session: { metadata } }: QueryContext,
): Promise<void> {
  if (plan.read.hasContents) await files.loadContents(metadata, plan.read, rows)
  for (const [index, { read }] of plan.reverseLinks.entries()) {
    if (!read.hasContents) continue
    const linking = rows.flatMap((row) => linkingRows(plan, row, index))
    await files.loadContents(metadata, read, linking)
  }
}

/** Returns the records of a reverse link to a found record. */
function linkingRows(plan: QueryPlan, row: TextRow, index: number): TextRow[] {
  const start = plan.read.textCount + sortTypes(plan.sort).length + 1
  return JSON.parse(row[start + index] ?? '[]') as TextRow[]
}

function writeFound(plan: QueryPlan, row: TextRow, { metadata }: Session): string {
  const record = plan.read.writeRecord(row, metadata)
  if (plan.reverseLinks.length === 0) return record
  const members = plan.reverseLinks.map(({ key, read }, index) => {
    const records = linkingRows(plan, row, index).map((texts) => read.writeRecord(texts, metadata))
    return `,${JSON.stringify(key)}:{"records":[${records.join(',')}]}`
  })
  return `${record.slice(0, -1)}${members.join('')}}`
}

/** The type of a column may have changed since a cursor was created, so its values are checked again. */
const IS_KEY: Readonly<Partial<Record<FieldType, (text: string) => boolean>>> = {
  text: (text) => checkText(text) === undefined,
  int: (text) => /^-?\d{1,19}$/.test(text) && BigInt.asIntN(64, BigInt(text)) === BigInt(text),
  float: (text) => /^-?\d+(\.\d+)?(e[+-]\d+)?$/.test(text) && Number.isFinite(Number(text)),
  decimal: (text) => !(encodeOperand('decimal', text) instanceof Fault),
  date: (text) => !(encodeOperand('date', text) instanceof Fault),
  time: (text) => !(encodeOperand('time', text) instanceof Fault),
  uuid: (text) => !(encodeOperand('uuid', text) instanceof Fault),
  bool: (text) => text === 't' || text === 'f',
  datetime: (text) =>
    /^.{10} .{8}.*\+00$/.test(text) &&
    !(encodeOperand('datetime', decodeDatetime(text)) instanceof Fault),
}

function checkPosition(position: Position | undefined, types: readonly FieldType[]): void {
  if (position === undefined) return
  const { keys, id } = position
  const isValid =
    keys.length === types.length &&
    checkText(id) === undefined &&
    types.every((type, index) => {
      const key = keys[index] ?? null
      return key === null || IS_KEY[type]?.(key) === true
    })
  if (!isValid) throw invalidCursor()
}
