import type { Node } from 'libpg-query'
import { contentOf, type NodeOf } from '../dialect/nodes.js'
import { readParentheses } from '../dialect/source-text.js'
import { ident, join, type Sql, sql } from '../postgres/sql.js'
import { compileStatement, slot } from '../postgres/statement.js'
import type { Columns, CopyFormat } from './copy-format.js'
import { unsupported, WireError } from './wire-error.js'

/** A COPY from or to the client. */
export interface CopyPlan {
  readonly isFrom: boolean
  readonly isBinary: boolean
  /** Of texts. */
  readonly format: CopyFormat
  /** The rows that are sent, or those of the table that gets rows. */
  readonly query: string
  /** The table, if no columns are named. A computed column is not among those of a COPY. */
  readonly copied: string | undefined
  /** The table that gets rows. */
  readonly into: string
  /** Returns the statement that inserts rows. Its parameters are the columns, as arrays of texts. */
  insert(columns: readonly string[]): string
}

/** Returns what a COPY does. `text` is the statement. */
export function planCopy(node: Node, text: string): CopyPlan {
  const copy = contentOf(node, 'CopyStmt') ?? {}
  if (copy.is_program || copy.filename !== undefined) {
    throw unsupported('COPY can only read from STDIN and write to STDOUT')
  }
  if (copy.whereClause !== undefined) throw unsupported('COPY with WHERE is not supported')
  const isFrom = copy.is_from === true
  const table = tableOf(copy)
  return {
    isFrom,
    ...formatOf(copy.options ?? [], isFrom),
    query:
      table === undefined ? innerQuery(text) : textOf(sql`select ${columnsOf(copy)} from ${table}`),
    copied: copy.attlist === undefined ? copy.relation?.relname : undefined,
    into: copy.relation?.relname ?? '',
    insert: (columns) => textOf(insertRows(table ?? sql``, columns)),
  }
}

const textOf = (statement: Sql): string => compileStatement(statement).text

function tableOf({ relation }: NodeOf<'CopyStmt'>): Sql | undefined {
  if (relation === undefined) return undefined
  const { schemaname = 'public', relname = '' } = relation
  if (schemaname === 'public') return ident(relname)
  throw new WireError('42P01', `relation "${schemaname}.${relname}" does not exist`)
}

function columnsOf({ attlist }: NodeOf<'CopyStmt'>): Sql {
  if (attlist === undefined) return sql`*`
  const names = attlist.map((item) => ident(contentOf(item, 'String')?.sval ?? ''))
  return join(names, ', ')
}

function insertRows(table: Sql, columns: readonly string[]): Sql {
  const names = columns.map((_, index) => ident(`v${index}`))
  const arrays = columns.map((_, index) => sql`${slot(index)}::text[]`)
  return sql`
    insert into ${table} (${join(columns.map(ident), ', ')})
    select ${join(names, ', ')} from unnest(${join(arrays, ', ')}) as r (${join(names, ', ')})`
}

/** Returns the query of `copy (query) to stdout`. It is planned as a statement of its own. */
function innerQuery(text: string): string {
  const query = readParentheses(text, { from: 0, after: 'copy' })
  if (query === undefined) throw new WireError('42601', 'syntax error in COPY')
  return query
}

function formatOf(
  options: readonly Node[],
  isFrom: boolean,
): Pick<CopyPlan, 'isBinary' | 'format'> {
  const given = new Map<string, string>()
  const forced = new Map<string, Columns>()
  for (const option of options) {
    const { defname = '', arg } = contentOf(option, 'DefElem') ?? {}
    if (FORCES.has(defname)) forced.set(defname, columnsIn(arg))
    else given.set(defname, argumentText(arg))
  }
  const kind = given.get('format') ?? 'text'
  if (!['text', 'csv', 'binary'].includes(kind)) {
    throw new WireError('22023', `COPY format "${kind}" not recognized`)
  }
  const isCsv = kind === 'csv'
  const unknown = [...given.keys()].find((name) => !KNOWN_OPTIONS.has(name))
  if (unknown !== undefined) throw unsupported(`COPY option "${unknown}" is not supported`)
  if (!/^utf-?8$/i.test(given.get('encoding') ?? 'utf8')) {
    throw unsupported('only the encoding UTF8 is supported')
  }
  const letter = (name: string, value: string) => {
    const found = given.get(name) ?? value
    if (/^[\x20-\x7e\t]$/.test(found)) return found
    throw new WireError('22023', `COPY ${name} must be a single one-byte character`)
  }
  const quote = letter('quote', '"')
  const matchesHeader = /^match$/i.test(given.get('header') ?? 'off')
  if (matchesHeader && !isFrom) {
    throw new WireError('0A000', 'cannot use "match" with HEADER in COPY TO')
  }
  for (const [name, { isOfFrom }] of FORCES) {
    if (!forced.has(name)) continue
    const option = `COPY ${name.toUpperCase()}`
    if (!isCsv) throw unsupported(`${option} requires CSV mode`)
    if (isFrom === isOfFrom) continue
    throw unsupported(`${option} cannot be used with COPY ${isFrom ? 'FROM' : 'TO'}`)
  }
  return {
    isBinary: kind === 'binary',
    format: {
      isCsv,
      delimiter: letter('delimiter', isCsv ? ',' : '\t'),
      nullText: given.get('null') ?? (isCsv ? '' : '\\N'),
      hasHeader: /^(?:true|on|1|match)$/i.test(given.get('header') ?? 'off'),
      matchesHeader,
      quote,
      escaping: letter('escape', quote),
      force: {
        quote: forced.get('force_quote') ?? [],
        null: forced.get('force_null') ?? [],
        notNull: forced.get('force_not_null') ?? [],
      },
    },
  }
}

const KNOWN_OPTIONS = new Set([
  'format',
  'delimiter',
  'null',
  'header',
  'quote',
  'escape',
  'encoding',
  'freeze',
])

/** Options that name columns, and whether they are those of COPY FROM. */
const FORCES: ReadonlyMap<string, { readonly isOfFrom: boolean }> = new Map([
  ['force_quote', { isOfFrom: false }],
  ['force_null', { isOfFrom: true }],
  ['force_not_null', { isOfFrom: true }],
])

/** Reads a list of columns. `*` stands for all. */
function columnsIn(node: Node | undefined): Columns {
  if (contentOf(node, 'A_Star') !== undefined) return 'all'
  const { items = [] } = contentOf(node, 'List') ?? {}
  return items.map((item) => contentOf(item, 'String')?.sval ?? '')
}

/** An option without a value is on. */
export function argumentText(node: Node | undefined): string {
  if (node === undefined) return 'on'
  const boolean = contentOf(node, 'Boolean')
  if (boolean !== undefined) return boolean.boolval ? 'on' : 'off'
  const integer = contentOf(node, 'Integer')
  if (integer !== undefined) return String(integer.ival ?? 0)
  return contentOf(node, 'String')?.sval ?? ''
}
