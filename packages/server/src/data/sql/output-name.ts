import type { Node } from 'libpg-query'
import { otherMetadataName } from '../../dialect/expressions/columns.js'
import { catalogueName, contentOf, kindOf, namesOf } from '../../dialect/nodes.js'
import type { Scope } from '../../dialect/scope.js'

const UNNAMED = '?column?'

/** Returns the name that PostgreSQL gives to a result column without an alias. */
export function outputName(node: Node | undefined, scope: Scope): string {
  return nameOf(node, scope) ?? UNNAMED
}

const FIXED_NAMES: Readonly<Record<string, string>> = {
  CoalesceExpr: 'coalesce',
  A_ArrayExpr: 'array',
  RowExpr: 'row',
  GroupingFunc: 'grouping',
  JsonObjectConstructor: 'json_object',
  JsonArrayConstructor: 'json_array',
  JsonObjectAgg: 'json_objectagg',
  JsonArrayAgg: 'json_arrayagg',
}

function nameOf(node: Node | undefined, scope: Scope): string | undefined {
  if (node === undefined) return undefined
  const column = contentOf(node, 'ColumnRef')
  if (column !== undefined) return columnName(namesOf(column.fields).at(-1), scope)
  const call = contentOf(node, 'FuncCall')
  if (call !== undefined) return catalogueName(call.funcname)
  const cast = contentOf(node, 'TypeCast')
  if (cast !== undefined) {
    return strongNameOf(cast.arg, scope) ?? namesOf(cast.typeName?.names).at(-1)
  }
  const choice = contentOf(node, 'CaseExpr')
  if (choice !== undefined) return strongNameOf(choice.defresult, scope) ?? 'case'
  const element = contentOf(node, 'A_Indirection')
  if (element !== undefined) return nameOf(element.arg, scope)
  const collated = contentOf(node, 'CollateClause')
  if (collated !== undefined) return nameOf(collated.arg, scope)
  if (contentOf(node, 'A_Expr')?.kind === 'AEXPR_NULLIF') return 'nullif'
  const extreme = contentOf(node, 'MinMaxExpr')
  if (extreme !== undefined) return extreme.op === 'IS_GREATEST' ? 'greatest' : 'least'
  const time = contentOf(node, 'SQLValueFunction')
  if (time !== undefined) return time.op?.replace(/^SVFOP_|_N$/g, '').toLowerCase()
  return contentOf(node, 'SubLink') === undefined ? FIXED_NAMES[kindOf(node)] : subqueryName(node)
}

/** Returns a name that a cast or a CASE around it keeps. Their own names are given up for another one. */
function strongNameOf(node: Node | undefined, scope: Scope): string | undefined {
  const collated = contentOf(node, 'CollateClause') ?? contentOf(node, 'A_Indirection')
  if (collated !== undefined) return strongNameOf(collated.arg, scope)
  const cast = contentOf(node, 'TypeCast')
  if (cast !== undefined) return strongNameOf(cast.arg, scope)
  const choice = contentOf(node, 'CaseExpr')
  if (choice !== undefined) return strongNameOf(choice.defresult, scope)
  return nameOf(node, scope)
}

/** Returns the name as the table spells it. Metadata columns keep the name that the statement uses. */
function columnName(name: string | undefined, scope: Scope): string | undefined {
  if (name === undefined || otherMetadataName(name) !== undefined) return name
  return scope.findColumn(name) ?? name
}

function subqueryName(node: Node): string | undefined {
  const link = contentOf(node, 'SubLink')
  if (link?.subLinkType === 'EXISTS_SUBLINK') return 'exists'
  if (link?.subLinkType === 'ARRAY_SUBLINK') return 'array'
  if (link?.subLinkType !== 'EXPR_SUBLINK') return undefined
  const [target] = contentOf(link.subselect, 'SelectStmt')?.targetList ?? []
  const first = contentOf(target, 'ResTarget')
  // The tables of the subquery are not known here.
  return first?.name ?? (first && (nameOf(first.val, NOTHING) ?? UNNAMED))
}

const NOTHING = { findColumn: () => undefined } as unknown as Scope
