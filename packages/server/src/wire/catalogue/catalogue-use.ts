import type { Node } from 'libpg-query'
import { contentOf, type NodeOf, namesOf, visit } from '../../dialect/nodes.js'
import { unsupported, WireError } from '../wire-error.js'
import {
  ALLOWED_KINDS,
  CATALOGUE_RELATIONS,
  isAllowedFunction,
  isAllowedType,
  isCatalogueFunction,
  isCatalogueType,
  isInformationView,
} from './allowed-catalogue.js'

/*
 * Decides from the syntax tree whether a statement is one on the catalogue, and whether it may run. Such a statement reads
 * relations of `pg_catalog` and `information_schema`, and calls functions. It has no tables of the branch.
 */

/** Whether a name without a schema is one of PostgreSQL's catalogue, which is searched first. */
const isSystemName = (name: string): boolean => name.startsWith('pg_')

function isCatalogueRelation({ schemaname, relname = '' }: NodeOf<'RangeVar'>): boolean {
  if (schemaname === 'pg_catalog' || schemaname === 'information_schema') return true
  return schemaname === undefined && isSystemName(relname)
}

/** Returns whether a statement is one on the catalogue. Throws if it uses tables, too, or something that is not allowed. */
export function isCatalogueStatement(node: Node): boolean {
  if (contentOf(node, 'SelectStmt') === undefined) return false
  const relations: NodeOf<'RangeVar'>[] = []
  const queries = new Set<string>()
  let callsCatalogue = false
  visit(node, (kind, content) => {
    if (kind === 'RangeVar') relations.push(content as NodeOf<'RangeVar'>)
    if (kind === 'CommonTableExpr') {
      queries.add((content as NodeOf<'CommonTableExpr'>).ctename ?? '')
    }
    if (kind === 'FuncCall') {
      callsCatalogue ||= isCatalogueFunction(namesOf((content as NodeOf<'FuncCall'>).funcname))
    }
    if (kind === 'SQLValueFunction') callsCatalogue ||= isAboutSession(content)
    if (kind === 'typeName') {
      callsCatalogue ||= isCatalogueType(namesOf((content as NodeOf<'TypeName'>).names))
    }
  })
  const isQuery = ({ schemaname, relname = '' }: NodeOf<'RangeVar'>) =>
    schemaname === undefined && queries.has(relname)
  const others = relations.filter((relation) => !isQuery(relation))
  const catalogue = others.filter(isCatalogueRelation)
  if (catalogue.length === 0 && (others.length > 0 || !callsCatalogue)) return false
  if (catalogue.length < others.length) {
    throw unsupported('a statement cannot use tables and the catalogue together')
  }
  requireAllowed(node, catalogue)
  return true
}

const isAboutSession = (content: unknown): boolean =>
  /USER|ROLE|CATALOG|SCHEMA/.test((content as NodeOf<'SQLValueFunction'>).op ?? '')

function requireAllowed(node: Node, relations: readonly NodeOf<'RangeVar'>[]): void {
  for (const { catalogname, schemaname, relname = '' } of relations) {
    const isAllowed =
      schemaname === 'information_schema'
        ? isInformationView(relname)
        : CATALOGUE_RELATIONS.has(relname)
    if (catalogname !== undefined) throw unsupported('names of three parts are not supported')
    if (!isAllowed) throw new WireError('42501', `permission denied for relation ${relname}`)
  }
  visit(node, (kind, content) => {
    if (kind >= 'A' && kind < '[' && !ALLOWED_KINDS.has(kind)) {
      throw unsupported(`${kind} is not supported in a statement on the catalogue`)
    }
    if (kind === 'intoClause') throw unsupported('INTO is not supported')
    if (kind === 'FuncCall') {
      const names = namesOf((content as NodeOf<'FuncCall'>).funcname)
      if (!isAllowedFunction(names)) throw notAllowed('function', names)
    }
    if (kind === 'typeName') {
      const names = namesOf((content as NodeOf<'TypeName'>).names)
      if (!isAllowedType(names)) throw notAllowed('type', names)
    }
    if (kind === 'A_Expr') {
      const names = namesOf((content as NodeOf<'A_Expr'>).name)
      const isOwn = names.length === 1 || (names.length === 2 && names[0] === 'pg_catalog')
      if (!isOwn) throw notAllowed('operator', names)
    }
  })
}

function notAllowed(what: string, names: readonly (string | undefined)[]): WireError {
  return unsupported(
    `${what} [${names.join('.')}] is not supported in a statement on the catalogue`,
  )
}
