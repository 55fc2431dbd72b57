import type { Node } from 'libpg-query'
import { contentOf, type NodeOf } from '../dialect/nodes.js'
import { readRest } from '../dialect/source-text.js'
import { ident, integer, type Sql, sql } from '../postgres/sql.js'
import { unsupported, WireError } from './wire-error.js'

/** What a statement about cursors does. */
type CursorPlan =
  | {
      readonly kind: 'declare'
      readonly name: string
      /** What precedes the query. */
      readonly words: Sql
      readonly query: string
    }
  | { readonly kind: 'fetch'; readonly name: string; readonly fetch: Sql; readonly isMove: boolean }
  /** Without a name, all are closed. */
  | { readonly kind: 'close'; readonly name: string | undefined }

/** Bits of the options of DECLARE. */
const [BINARY, SCROLL, NO_SCROLL, HOLD] = [0x1, 0x2, 0x4, 0x20]

/** Returns what a statement about cursors does. `text` is the statement. */
export function planCursor(node: Node, text: string): CursorPlan {
  const declaration = contentOf(node, 'DeclareCursorStmt')
  if (declaration !== undefined) return planDeclaration(declaration, text)
  const fetch = contentOf(node, 'FetchStmt')
  if (fetch === undefined)
    return { kind: 'close', name: contentOf(node, 'ClosePortalStmt')?.portalname }
  const name = fetch.portalname ?? ''
  return {
    kind: 'fetch',
    name,
    fetch: sql`fetch ${directionOf(fetch)} from ${ident(name)}`,
    isMove: fetch.ismove === true,
  }
}

function planDeclaration(
  { portalname: name = '', options = 0 }: NodeOf<'DeclareCursorStmt'>,
  text: string,
): CursorPlan {
  if ((options & HOLD) !== 0) throw unsupported('DECLARE ... WITH HOLD is not supported')
  if ((options & BINARY) !== 0) {
    throw unsupported('DECLARE ... BINARY is not supported: ask for binary values in the protocol')
  }
  const query = readRest(text, { from: 0, after: 'for' })
  if (query === undefined) throw new WireError('42601', 'syntax error in DECLARE')
  const scroll =
    (options & SCROLL) !== 0 ? sql` scroll` : (options & NO_SCROLL) !== 0 ? sql` no scroll` : sql``
  return { kind: 'declare', name, words: sql`declare ${ident(name)}${scroll} cursor for`, query }
}

const DIRECTIONS: Readonly<Record<string, Sql>> = {
  FETCH_FORWARD: sql`forward`,
  FETCH_BACKWARD: sql`backward`,
  FETCH_ABSOLUTE: sql`absolute`,
  FETCH_RELATIVE: sql`relative`,
}

function directionOf({ direction, howMany }: NodeOf<'FetchStmt'>): Sql {
  const words = DIRECTIONS[direction ?? '']
  const count = Number(howMany ?? 0)
  if (words === undefined) throw unsupported('this form of FETCH is not supported')
  // PostgreSQL reads the largest number as ALL.
  return count >= Number.MAX_SAFE_INTEGER ? sql`${words} all` : sql`${words} ${integer(count)}`
}
