import type { Node } from 'libpg-query'
import { contentOf, type NodeOf, namesOf, visit } from '../../dialect/nodes.js'
import { parseSql } from '../../dialect/parser.js'
import { quoteIdent } from '../../postgres/sql.js'
import { SHOWN_FUNCTIONS, SHOWN_RELATIONS } from '../../shapes/shown-catalogue.js'
import { unsupported } from '../wire-error.js'

/*
 * Names of relations and functions that tell about the whole server are replaced by those of the shape. The text is changed
 * at the places that the syntax tree tells. Then it is parsed again, and must have the same tree with the other names: so
 * what runs is what was checked.
 */

/** A change of a text. Places and lengths are counted in characters. */
interface Edit {
  readonly start: number
  readonly removed: number
  readonly inserted: string
}

export interface RewrittenText {
  readonly text: string
  /** Returns the place in the original text, from 1. */
  originalPosition(position: number): number
}

const VALUE_FUNCTIONS: Readonly<Record<string, string>> = {
  SVFOP_CURRENT_USER: 'current_user',
  SVFOP_CURRENT_ROLE: 'current_role',
  SVFOP_SESSION_USER: 'session_user',
  SVFOP_USER: 'user',
  SVFOP_CURRENT_CATALOG: 'current_catalog',
}

/** Replaces names in a statement on the catalogue. `shown` is the schema of the replacements. */
export async function rewriteCatalogue(text: string, shown: string): Promise<RewrittenText> {
  const { nodes } = await parseSql(text)
  const [node] = nodes
  if (node === undefined || nodes.length > 1) throw new Error('one statement was expected')
  const edits = listEdits(node, { text, shown })
  const rewritten = applyEdits(text, edits)
  const { nodes: found } = await parseSql(rewritten)
  const expected = JSON.stringify(replaceNames(node, shown))
  if (found.length !== 1 || JSON.stringify(replaceNames(found[0], shown)) !== expected) {
    throw unsupported('names of the catalogue must be written plainly')
  }
  return { text: rewritten, originalPosition: (position) => toOriginal(edits, position) }
}

function isReplaced(schema: string | undefined, name: string): boolean {
  return schema === 'information_schema' || name in SHOWN_RELATIONS
}

function listEdits(node: Node, { text, shown }: { text: string; shown: string }): Edit[] {
  const edits: Edit[] = []
  const bytes = Buffer.from(text)
  const replace = (location: number | undefined, pattern: RegExp, inserted: string) => {
    const start = bytes.subarray(0, location ?? 0).toString().length
    const [found] = pattern.exec(text.slice(start)) ?? []
    if (found === undefined) throw unsupported('names of the catalogue must be written plainly')
    edits.push({ start, removed: found.length, inserted })
  }
  const schema = quoteIdent(shown)
  visit(node, (kind, content) => {
    if (kind === 'RangeVar') {
      const { schemaname, relname = '', location } = content as NodeOf<'RangeVar'>
      if (!isReplaced(schemaname, relname)) return
      replace(location, namePattern(schemaname, relname), `${schema}.${quoteIdent(relname)}`)
    }
    if (kind === 'FuncCall') {
      const { funcname, location } = content as NodeOf<'FuncCall'>
      const names = namesOf(funcname)
      const replaced = replacedFunction(content as NodeOf<'FuncCall'>)
      if (replaced === undefined) return
      replace(
        location,
        namePattern(names.length === 2 ? names[0] : undefined, names.at(-1) ?? ''),
        `${schema}.${quoteIdent(replaced)}`,
      )
    }
    if (kind === 'SQLValueFunction') {
      const { op = '', location } = content as NodeOf<'SQLValueFunction'>
      const name = VALUE_FUNCTIONS[op]
      if (name !== undefined) replace(location, /^\w+/, `${schema}.${quoteIdent(name)}()`)
    }
    if (kind === 'ColumnRef') {
      const { fields, location } = content as NodeOf<'ColumnRef'>
      const [first, second = ''] = namesOf(fields)
      if (isReplacedColumn(fields)) {
        replace(location, namePattern(first, second), `${schema}.${quoteIdent(second)}`)
      }
    }
  })
  return edits.sort((left, right) => left.start - right.start)
}

/** Returns the function that stands for another one, or undefined. */
function replacedFunction({ funcname, args }: NodeOf<'FuncCall'>): string | undefined {
  const names = namesOf(funcname)
  const name = names.at(-1) ?? ''
  if (names[0] === 'information_schema') return undefined
  if (SHOWN_FUNCTIONS.has(name)) return name
  const isCatalogue = namesOf(contentOf(args?.[0], 'ColumnRef')?.fields).at(-1) === 'table_catalog'
  return name === 'quote_ident' && isCatalogue ? 'quote_catalog' : undefined
}

/** `pg_catalog.pg_database.datname` */
function isReplacedColumn(fields: readonly Node[] | undefined): boolean {
  const [first, second = ''] = namesOf(fields)
  const isQualified = (fields?.length ?? 0) > 2
  const isSystem = first === 'pg_catalog' || first === 'information_schema'
  return isQualified && isSystem && isReplaced(first, second)
}

/** Names are letters, digits and underscores. They can be quoted. */
function namePattern(schema: string | undefined, name: string): RegExp {
  const quoted = (each: string) => `(?:"${each}"|${each}(?![\\w$]))`
  const prefix = schema === undefined ? '' : `${quoted(schema)}\\s*\\.\\s*`
  return new RegExp(`^${prefix}${quoted(name)}`, 'i')
}

function applyEdits(text: string, edits: readonly Edit[]): string {
  let result = ''
  let end = 0
  for (const { start, removed, inserted } of edits) {
    result += text.slice(end, start) + inserted
    end = start + removed
  }
  return result + text.slice(end)
}

function toOriginal(edits: readonly Edit[], position: number): number {
  let shift = 0
  for (const { start, removed, inserted } of edits) {
    const begin = start + shift
    if (position <= begin) break
    if (position <= begin + inserted.length) return start + 1
    shift += inserted.length - removed
  }
  return position - shift
}

/** The members of nodes that tell places in the text. */
const PLACES = /(?:location|list_start|list_end)$/

/** Returns a tree without places, in which names are replaced. */
function replaceNames(value: unknown, shown: string): unknown {
  if (Array.isArray(value)) return value.map((each) => replaceNames(each, shown))
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).filter(([name]) => !PLACES.test(name))
  return Object.fromEntries(entries.map(([kind, content]) => replaceIn(kind, content, shown)))
}

function replaceIn(kind: string, content: unknown, shown: string): [string, unknown] {
  const walked = replaceNames(content, shown)
  const name = (text: string) => ({ String: { sval: text } })
  if (kind === 'RangeVar') {
    const { schemaname, relname = '' } = content as NodeOf<'RangeVar'>
    if (!isReplaced(schemaname, relname)) return [kind, walked]
    const { relname: _, schemaname: __, ...rest } = walked as NodeOf<'RangeVar'>
    return [kind, { schemaname: shown, relname, ...rest }]
  }
  if (kind === 'FuncCall') {
    const replaced = replacedFunction(content as NodeOf<'FuncCall'>)
    if (replaced === undefined) return [kind, walked]
    return [kind, { ...(walked as object), funcname: [name(shown), name(replaced)] }]
  }
  if (kind === 'SQLValueFunction') {
    const replaced = VALUE_FUNCTIONS[(content as NodeOf<'SQLValueFunction'>).op ?? '']
    if (replaced === undefined) return [kind, walked]
    const funcname = [name(shown), name(replaced)]
    return ['FuncCall', { funcname, funcformat: 'COERCE_EXPLICIT_CALL' }]
  }
  const fields = kind === 'ColumnRef' ? (content as NodeOf<'ColumnRef'>).fields : undefined
  if (!isReplacedColumn(fields)) return [kind, walked]
  const [, ...rest] = (walked as { fields: unknown[] }).fields
  return [kind, { ...(walked as object), fields: [name(shown), ...rest] }]
}
