import type { Node } from 'libpg-query'
import { contentOf } from '../dialect/nodes.js'
import { readFrom } from '../dialect/source-text.js'
import { join, type Sql, sql } from '../postgres/sql.js'
import { argumentText } from './copy-statement.js'
import { unsupported, WireError } from './wire-error.js'

export interface ExplainPlan {
  /** The options, in parentheses. */
  readonly options: Sql
  /** Whether the statement is run. */
  readonly runs: boolean
  /** The statement that is explained. */
  readonly text: string
  readonly isJson: boolean
}

const EXPLAINED = new Set(['select', 'values', 'with', 'table', 'insert', 'update', 'delete'])

/** Options that are handed on. VERBOSE would only add names of the storage. */
const OPTIONS: Readonly<Record<string, Sql>> = {
  analyze: sql`analyze`,
  buffers: sql`buffers`,
  costs: sql`costs`,
  generic_plan: sql`generic_plan`,
  summary: sql`summary`,
  timing: sql`timing`,
}
const FORMATS: Readonly<Record<string, Sql>> = {
  text: sql`text`,
  json: sql`json`,
  xml: sql`xml`,
  yaml: sql`yaml`,
}

/** Returns what an EXPLAIN does. `text` is the statement. */
export function planExplain(node: Node, text: string): ExplainPlan {
  const inner = readFrom(text, EXPLAINED)
  if (inner === undefined) {
    throw unsupported('EXPLAIN is supported for SELECT, VALUES, INSERT, UPDATE and DELETE')
  }
  const options: Sql[] = []
  let runs = false
  let format = 'text'
  for (const option of contentOf(node, 'ExplainStmt')?.options ?? []) {
    const { defname = '', arg } = contentOf(option, 'DefElem') ?? {}
    const value = argumentText(arg)
    if (defname === 'verbose') continue
    if (defname === 'format') {
      format = value.toLowerCase()
      if (FORMATS[format] === undefined) {
        throw new WireError('22023', `unrecognized value for EXPLAIN option "format": "${value}"`)
      }
      continue
    }
    const known = OPTIONS[defname]
    if (known === undefined) throw unsupported(`EXPLAIN option "${defname}" is not supported`)
    const isOn = /^(?:on|true|1)$/i.test(value)
    if (defname === 'analyze') runs = isOn
    options.push(sql`${known} ${isOn ? sql`on` : sql`off`}`)
  }
  options.push(sql`format ${FORMATS[format] ?? sql`text`}`)
  return {
    options: sql`(${join(options, ', ')})`,
    runs,
    text: inner,
    isJson: format === 'json',
  }
}
