import { AppError } from '@offshoot/contract/errors'
import type { Node } from 'libpg-query'
import { contentOf, type NodeOf, namesOf, visit } from '../../dialect/nodes.js'
import { parseSql } from '../../dialect/parser.js'
import { cutName, findName } from '../../dialect/scope.js'
import { LENGTH_AT_ONCE_MAX } from '../../dialect/sql-limits.js'
import { codeOf } from '../../postgres/failures.js'
import type { Parameter } from '../../postgres/statement.js'
import { isFileType } from '../../rows/columns/column-types.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { Session } from '../session/session.js'
import { TableNames } from './branch-tables.js'
import type { Run } from './evaluators.js'

/*
 * PostgreSQL says of a text that it is no value of a type, and not for which column. That is found when it was said, so that
 * statements without a fault pay nothing.
 */

/** SQLSTATEs of texts that are no value of a type. */
const NO_VALUE: ReadonlySet<string | undefined> = new Set(['22P02', '22003', '22007', '22008'])

interface Given {
  readonly text: string
  readonly parameters: readonly Parameter[]
}

/** A column of a statement, by the names that it has there, and a value beside it. */
interface Pair {
  readonly table: string | undefined
  readonly column: string
  readonly value: Node | undefined
}

/** Returns an error of PostgreSQL about a text with the only column that the text is given for. Returns others unchanged. */
async function namingColumn({ schema }: Session, given: Given, error: unknown): Promise<unknown> {
  if (!(error instanceof AppError) || error.code !== 'invalid_sql') return error
  const [, start = '', fault = '', value] =
    /^(invalid SQL: )?(.*"(.*)".*)$/s.exec(error.message) ?? []
  if (value === undefined || !NO_VALUE.has(codeOf(error.cause))) return error
  if (given.text.length > LENGTH_AT_ONCE_MAX) return error
  const { nodes } = await parseSql(given.text)
  const isValue = (node: Node | undefined): boolean => {
    const { number } = contentOf(node, 'ParamRef') ?? {}
    if (number !== undefined) return given.parameters[number - 1] === value
    return contentOf(node, 'A_Const')?.sval?.sval === value
  }
  const tables = tablesOf(nodes, schema)
  const places = listPairs(nodes, tables)
    .filter((pair) => isValue(pair.value))
    .map(({ table, column }) => placeOf(tables, { table, column }))
  const [place, ...others] = new Set(places)
  if (place === undefined || others.length > 0) return error
  const { details, cause } = error
  return new AppError('invalid_sql', `${start}${place}: ${fault}`, {
    cause,
    ...(details && { details }),
  })
}

/** Names the column in an error of a run. */
export const namingColumnIn = (
  { context, statement }: Pick<Run, 'context' | 'statement'>,
  error: unknown,
): Promise<unknown> =>
  namingColumn(
    context.session,
    { text: statement.planned.text, parameters: statement.parameters },
    error,
  )

/** The tables of a statement, by the names that they have in it. */
type Tables = ReadonlyMap<string, TableCodec>

function tablesOf(nodes: readonly Node[], schema: Session['schema']): Tables {
  const names = new TableNames(schema.tableNames)
  const tables = new Map<string, TableCodec>()
  const add = ({ relname = '', alias }: NodeOf<'RangeVar'>) => {
    const name = names.find(relname)
    const codec = name === undefined ? undefined : schema.tableByName(name)
    if (codec !== undefined) tables.set(alias?.aliasname ?? relname, codec)
  }
  visit(nodes, (kind, content) => {
    if (kind === 'RangeVar' || kind === 'relation') add(content as NodeOf<'RangeVar'>)
  })
  return tables
}

/** Returns the words for a column. undefined: it is not the column of one table. */
function placeOf(
  tables: Tables,
  { table, column }: Pick<Pair, 'table' | 'column'>,
): string | undefined {
  const named = table === undefined ? [...tables.values()] : [tables.get(table)]
  const places = named.flatMap((codec) => {
    if (codec === undefined) return []
    const found = findName(listColumns(codec), column, (name) => name)
    return found === undefined ? [] : [`table [${codec.table.name}]: column [${found}]`]
  })
  const [place, ...others] = new Set(places)
  return others.length === 0 ? place : undefined
}

const listColumns = ({ inOrder, physical }: TableCodec): string[] => [
  'id',
  ...inOrder.flatMap((index) => {
    const { column, path = [] } = physical[index] ?? {}
    const isValue = column !== undefined && column.type !== 'object' && !isFileType(column.type)
    return isValue ? [cutName(path.join('.'))] : []
  }),
]

/** Lists the columns and the values that are compared with them, or written to them. */
function listPairs(nodes: readonly Node[], tables: Tables): Pair[] {
  const pairs: Pair[] = []
  const compare = (one: Node | undefined, other: Node | undefined) => {
    const names = namesOf(contentOf(one, 'ColumnRef')?.fields)
    const column = names.at(-1)
    if (column === undefined) return
    const values = contentOf(other, 'List')?.items ?? [other]
    pairs.push(...values.map((value) => ({ table: names.at(-2), column, value })))
  }
  const assign = (relation: NodeOf<'RangeVar'> | undefined, targets: readonly Node[] = []) => {
    for (const { name: column = '', val: value } of targets.map(targetOf)) {
      pairs.push({ table: nameOf(relation), column, value })
    }
  }
  visit(nodes, (kind, content) => {
    if (kind === 'A_Expr') {
      const { lexpr, rexpr } = content as NodeOf<'A_Expr'>
      compare(lexpr, rexpr)
      compare(rexpr, lexpr)
    } else if (kind === 'UpdateStmt') {
      const { relation, targetList } = content as NodeOf<'UpdateStmt'>
      assign(relation, targetList)
    } else if (kind === 'InsertStmt') {
      const { relation, cols, selectStmt, onConflictClause } = content as NodeOf<'InsertStmt'>
      assign(relation, onConflictClause?.targetList)
      const table = nameOf(relation)
      const codec = tables.get(table ?? '')
      const columns = cols?.map((each) => targetOf(each).name) ?? (codec && targetsOf(codec)) ?? []
      for (const row of contentOf(selectStmt, 'SelectStmt')?.valuesLists ?? []) {
        for (const [index, value] of (contentOf(row, 'List')?.items ?? []).entries()) {
          pairs.push({ table, column: columns[index] ?? '', value })
        }
      }
    }
  })
  return pairs
}

const targetOf = (node: Node): NodeOf<'ResTarget'> => contentOf(node, 'ResTarget') ?? {}

const nameOf = (relation: NodeOf<'RangeVar'> | undefined): string | undefined =>
  relation?.alias?.aliasname ?? relation?.relname

/** The columns of an INSERT without a list of them. */
const targetsOf = (codec: TableCodec): string[] =>
  listColumns(codec).slice(codec.table.hiddenId === true ? 1 : 0)
