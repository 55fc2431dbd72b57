import { setImmediate as turn } from 'node:timers/promises'
import type { Limits } from '@offshoot/contract/limits'
import type { Node } from 'libpg-query'
import type { Session } from '../data/session/session.js'
import { TableNames } from '../data/sql/branch-tables.js'
import type { ParameterTypes } from '../data/sql/parameters.js'
import { wordsOf, writingWith } from '../data/sql/parse-statement.js'
import { isSchemaNode } from '../data/sql/schema/parse-schema.js'
import { readNextNumber, readSetval } from '../data/sql/setval-call.js'
import { contentOf, kindOf, type NodeOf, namesOf, visit } from '../dialect/nodes.js'
import { parseSql, SqlSyntaxError } from '../dialect/parser.js'
import { cutName } from '../dialect/scope.js'
import { cutQualifiers } from '../dialect/source-text.js'
import { LENGTH_AT_ONCE_MAX } from '../dialect/sql-limits.js'
import { ident, join, sql } from '../postgres/sql.js'
import { compileStatement } from '../postgres/statement.js'
import type { StoredColumn } from '../rows/columns/stored-schema.js'
import type { TableCodec } from '../rows/columns/table-codec.js'
import { callsBranches } from './branch-calls.js'
import { isCatalogueStatement } from './catalogue/catalogue-use.js'
import { readSequenceState } from './catalogue/sequence-state.js'
import { readLocks } from './lock-statement.js'
import { unsupported, WireError } from './wire-error.js'

interface ClientQuery {
  readonly kind: 'query'
  readonly isWrite: boolean
  readonly namesMetadata: boolean
  /** The query that runs instead, whose last parameters are literals of the text. */
  readonly literals?: {
    readonly query: Extract<ClientStatement, { kind: 'query' }>
    readonly values: readonly string[]
    readonly types: ParameterTypes
  }
}

/** A statement of a client, by what has to be done with it. */
export type ClientStatement = {
  readonly text: string
  readonly node: Node
  readonly parameterCount: number
} & (
  | ClientQuery
  | { readonly kind: 'session' }
  | { readonly kind: 'locks' }
  | { readonly kind: 'catalogue' }
  | { readonly kind: 'transaction' }
  | { readonly kind: 'copy' }
  | { readonly kind: 'prepared' }
  | { readonly kind: 'cursor' }
  | { readonly kind: 'branches' }
  | { readonly kind: 'explain' }
)

/** Statements about the session, which never reach PostgreSQL. */
const SESSION_KINDS = new Set([
  'VariableSetStmt',
  'VariableShowStmt',
  'DiscardStmt',
  'DeallocateStmt',
  'LockStmt',
  'VacuumStmt',
  'UnlistenStmt',
  'ConstraintsSetStmt',
  'AlterOwnerStmt',
])
const CURSOR_KINDS = new Set(['DeclareCursorStmt', 'FetchStmt', 'ClosePortalStmt'])
const WRITE_KINDS = new Set(['InsertStmt', 'UpdateStmt', 'DeleteStmt', 'TruncateStmt'])

/** What statements are read with. */
interface ReadingOptions extends Pick<Limits, 'sqlLengthMax' | 'sqlParametersMax'> {
  /** The name of the database, as the client knows it: `{database}:{branch}`. */
  readonly database: string
}

/** Parses the statements of a text. What is too long is refused before it costs anything. */
export async function parseStatements(
  text: string,
  { sqlLengthMax, sqlParametersMax, database }: ReadingOptions,
): Promise<ClientStatement[]> {
  if (text.length > sqlLengthMax) {
    throw new WireError('54000', `a message can have at most ${sqlLengthMax} characters of SQL`)
  }
  const parsed = await parseSql(text).catch((error: unknown) => {
    if (!(error instanceof SqlSyntaxError)) throw error
    throw new WireError('42601', error.message, { position: error.position })
  })
  if (text.length > LENGTH_AT_ONCE_MAX) await turn()
  const places = placesOfDatabase(parsed.nodes, database)
  const { nodes, texts } =
    places.length === 0 ? parsed : await parseSql(cutQualifiers(text, places))
  return nodes.map((node, index) => {
    const parameterCount = countParameters(node)
    if (parameterCount > sqlParametersMax) {
      throw new WireError('54023', `a statement can have at most ${sqlParametersMax} parameters`)
    }
    return toStatement({ node, text: texts[index] ?? '', parameterCount })
  })
}

function toStatement(
  found: Pick<ClientStatement, 'text' | 'node' | 'parameterCount'>,
): ClientStatement {
  const { node, text } = found
  const kind = kindOf(node)
  if (kind === 'TransactionStmt') return { ...found, kind: 'transaction' }
  // The parameters are those of the statement that is prepared.
  if (kind === 'PrepareStmt') return { ...found, kind: 'prepared', parameterCount: 0 }
  if (kind === 'ExecuteStmt') return { ...found, kind: 'prepared' }
  if (kind === 'ExplainStmt') return { ...found, kind: 'explain' }
  if (readLocks(node) !== undefined) return { ...found, kind: 'locks' }
  if (callsBranches(node)) return { ...found, kind: 'branches' }
  if (CURSOR_KINDS.has(kind)) return { ...found, kind: 'cursor' }
  if (kind === 'CopyStmt') return { ...found, kind: 'copy' }
  if (SESSION_KINDS.has(kind) || isSessionSelect(node)) return { ...found, kind: 'session' }
  const state = readSequenceState(node)
  if (state !== undefined) return { ...found, text: state, kind: 'catalogue' }
  const isSetval = readSetval(node) !== undefined || readNextNumber(node) !== undefined
  if (!isSetval && isCatalogueStatement(node)) return { ...found, kind: 'catalogue' }
  const isWrite =
    WRITE_KINDS.has(kind) || isSchemaNode(node) || isSetval || writingWith(node) !== undefined
  if (kind !== 'SelectStmt' && !isWrite) {
    throw unsupported(
      `${wordsOf(node)} is not supported: only SELECT, INSERT, UPDATE, DELETE, TRUNCATE, COPY, changes of the schema and settings are`,
    )
  }
  return {
    ...found,
    kind: 'query',
    isWrite,
    namesMetadata: /(?:service|xata)\./i.test(text),
  }
}

/** Returns where tables and columns have the name of the database before that of the schema, in bytes. */
function placesOfDatabase(nodes: readonly Node[], database: string): number[] {
  const names = new Set([database, database.split(':')[0]])
  const places: number[] = []
  visit(nodes, (_, content) => {
    const { catalogname, fields, location } = (content ?? {}) as Partial<
      NodeOf<'RangeVar'> & NodeOf<'ColumnRef'>
    >
    if (location === undefined) return
    const isColumn = fields?.length === 4 && names.has(namesOf(fields)[0] ?? '')
    if (isColumn || (catalogname !== undefined && names.has(catalogname))) places.push(location)
  })
  return places
}

const changesSchema = ({ node }: ClientStatement): boolean => isSchemaNode(node)

/** Makes neighbours that change the schema one statement, because they are one migration. */
export function joinSchemaStatements(
  statements: readonly ClientStatement[],
): readonly ClientStatement[] {
  if (statements.filter(changesSchema).length < 2) return statements
  const runs: [ClientStatement, ...ClientStatement[]][] = []
  for (const statement of statements) {
    const run = runs.at(-1)
    if (run !== undefined && changesSchema(run[0]) && changesSchema(statement)) run.push(statement)
    else runs.push([statement])
  }
  return runs.map((run) => {
    if (run.length === 1) return run[0]
    return { ...run[0], text: run.map(({ text }) => text).join('\n;\n') }
  })
}

function countParameters(node: Node): number {
  let count = 0
  visit(node, (kind, content) => {
    if (kind !== 'ParamRef') return
    count = Math.max(count, (content as { number?: number }).number ?? 0)
  })
  return count
}

/** Functions that are answered from the session. */
const SESSION_FUNCTIONS = new Set([
  'version',
  'current_schema',
  'current_database',
  'current_setting',
  'set_config',
  'pg_backend_pid',
  'pg_is_in_recovery',
])
export const SESSION_VALUES: Readonly<Record<string, 'user' | 'database' | 'schema'>> = {
  SVFOP_CURRENT_USER: 'user',
  SVFOP_CURRENT_ROLE: 'user',
  SVFOP_SESSION_USER: 'user',
  SVFOP_USER: 'user',
  SVFOP_CURRENT_CATALOG: 'database',
  SVFOP_CURRENT_SCHEMA: 'schema',
}

/** Returns the name of a function of the session. */
export function sessionFunction(node: Node | undefined): string | undefined {
  const names = namesOf(contentOf(node, 'FuncCall')?.funcname)
  const [name] = names.slice(names[0] === 'pg_catalog' ? 1 : 0)
  return name !== undefined && SESSION_FUNCTIONS.has(name) ? name : undefined
}

/**
 * Whether a query only asks about the session, without any calculation: it has no tables, and one function of the session at
 * least. Only the session can set something.
 */
function isSessionSelect(node: Node): boolean {
  const { targetList, limitOption: _, op: __, ...rest } = contentOf(node, 'SelectStmt') ?? {}
  if (targetList === undefined || Object.values(rest).some((each) => each !== undefined))
    return false
  const values = targetList.map((target) => contentOf(target, 'ResTarget')?.val)
  if (values.some((value) => sessionFunction(value) === 'set_config')) return true
  const asks = values.filter(isSessionValue)
  const given = values.filter((value) => isGiven(value))
  return asks.length > 0 && asks.length + given.length === values.length
}

function isSessionValue(node: Node | undefined): boolean {
  const value = contentOf(node, 'SQLValueFunction')
  if (value !== undefined) return (value.op ?? '') in SESSION_VALUES
  if (sessionFunction(node) === undefined) return false
  return (contentOf(node, 'FuncCall')?.args ?? []).every(
    (argument) => isGiven(argument) || isGiven(contentOf(argument, 'TypeCast')?.arg),
  )
}

/** Whether an expression is a constant or a parameter. */
const isGiven = (node: Node | undefined): boolean =>
  contentOf(node, 'A_Const') !== undefined || contentOf(node, 'ParamRef') !== undefined

/** The types that clients know for columns whose values are not texts. */
const COLUMN_TYPES: Readonly<Record<string, string>> = {
  bool: 'bool',
  int: 'int8',
  float: 'float8',
  multiple: 'text[]',
  datetime: 'timestamptz',
  decimal: 'numeric',
  date: 'date',
  time: 'time',
  uuid: 'uuid',
  vector: 'float4[]',
  json: 'jsonb',
}

const INT_TYPES = { 16: 'int2', 32: 'int4' } as const

/** Returns the type that clients know for a column. undefined: its values are texts. */
function clientType({ type, link, bits, withoutZone }: StoredColumn): string | undefined {
  if (withoutZone) return 'timestamp'
  if (link !== undefined) return idType(link)
  return bits === undefined ? COLUMN_TYPES[type] : INT_TYPES[bits]
}

/** Returns the type of ids, or of links to them. */
function idType({
  idType: type,
  idBits,
}: Omit<NonNullable<StoredColumn['link']>, 'tableId'>): string | undefined {
  return idBits === undefined ? COLUMN_TYPES[type ?? ''] : INT_TYPES[idBits]
}

/**
 * Returns the types of parameters that are values of columns: `insert into t (a) values ($1)`, `insert into t (a) select $1`
 * and `update t set a = $1`.
 * PostgreSQL could not infer them from the statement that is sent.
 */
export function columnTypes(node: Node, session: Session): ParameterTypes {
  const types: (string | undefined)[] = []
  const queries = (writingWith(node)?.ctes ?? []).flatMap(
    (each) => contentOf(each, 'CommonTableExpr')?.ctequery ?? [],
  )
  for (const each of [...queries, node]) addTypes(types, each, session)
  return Array.from(types)
}

function addTypes(types: (string | undefined)[], node: Node, session: Session): void {
  const typeOf = columnsOf(node, session)
  if (typeOf === undefined) return
  const put = (value: Node | undefined, column: string | undefined) => {
    const number = contentOf(value, 'ParamRef')?.number
    if (number !== undefined && column !== undefined) types[number - 1] ??= typeOf.find(column)
  }
  const insert = contentOf(node, 'InsertStmt')
  const named = insert?.cols?.map((column) => contentOf(column, 'ResTarget')?.name)
  const source = contentOf(insert?.selectStmt, 'SelectStmt')
  const rows = (source?.valuesLists ?? []).map((row) => contentOf(row, 'List')?.items ?? [])
  rows.push((source?.targetList ?? []).map((each) => contentOf(each, 'ResTarget')?.val ?? each))
  for (const row of rows) {
    for (const [index, value] of row.entries()) put(value, (named ?? typeOf.names)[index])
  }
  const conflict = insert?.onConflictClause?.targetList ?? []
  for (const target of [...conflict, ...(contentOf(node, 'UpdateStmt')?.targetList ?? [])]) {
    const { name, val } = contentOf(target, 'ResTarget') ?? {}
    const { source: list, colno = 1 } = contentOf(val, 'MultiAssignRef') ?? {}
    put(list === undefined ? val : contentOf(list, 'RowExpr')?.args?.[colno - 1], name)
  }
}

function columnsOf(node: Node, session: Session) {
  const relation =
    contentOf(node, 'InsertStmt')?.relation ?? contentOf(node, 'UpdateStmt')?.relation
  const codec = relation && tableOf(session, relation.relname ?? '')
  if (codec === undefined) return undefined
  const columns = shownColumns(codec)
  const types = new Map([
    ['id', idType(codec.table)],
    ...columns.map(({ path, column }): [string, string | undefined] => [
      path.join('.').toLowerCase(),
      clientType(column),
    ]),
  ])
  return {
    names: givenColumns(codec),
    find: (column: string) => types.get(column.toLowerCase()),
  }
}

function tableOf({ schema }: Session, name: string): TableCodec | undefined {
  const found = new TableNames(schema.tableNames).find(name)
  return found === undefined ? undefined : schema.tableByName(found)
}

/** Lists the columns of a table in their order, without the id. */
const shownColumns = ({ physical, inOrder }: TableCodec) =>
  inOrder.flatMap((index) => {
    const found = physical[index]
    return found === undefined || found.column.type === 'object' ? [] : [found]
  })

/** Lists the names of the columns that a statement without a list of columns has: all but computed ones and a hidden id. */
function givenColumns(codec: TableCodec): string[] {
  const names = shownColumns(codec).flatMap(({ path, column }) =>
    column.computed === undefined ? path.join('.') : [],
  )
  // A COPY needs a column.
  return codec.table.hiddenId && names.length > 0 ? names : ['id', ...names]
}

/** Returns the query for all rows of a table, with the columns that a COPY has. */
export function copiedRows(session: Session, table: string): string | undefined {
  const codec = tableOf(session, table)
  if (codec === undefined) return undefined
  const columns = givenColumns(codec).map((name) => ident(cutName(name)))
  return compileStatement(sql`select ${join(columns, ', ')} from ${ident(table)}`).text
}
