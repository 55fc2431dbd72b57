import type { Node } from 'libpg-query'
import { contentOf, type NodeOf } from '../dialect/nodes.js'
import { readRest } from '../dialect/source-text.js'
import { ident, integer, type Sql, sql } from '../postgres/sql.js'
import { unsupported, WireError } from './wire-error.js'

/** How FETCH and MOVE move a cursor. */
export interface CursorMovement {
  readonly direction: 'forward' | 'backward' | 'absolute' | 'relative'
  /** Infinity: all rows that are left. */
  readonly count: number
}

/** What a statement about cursors does. */
export type CursorPlan =
  | {
      readonly kind: 'declare'
      readonly name: string
      /** What precedes the query. */
      readonly words: Sql
      readonly query: string
      /** Whether it lives on after its transaction. */
      readonly isHeld: boolean
      /** Whether it only goes forward. */
      readonly isForward: boolean
    }
  | {
      readonly kind: 'fetch'
      readonly name: string
      readonly movement: CursorMovement
      readonly isMove: boolean
    }
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
    movement: movementOf(fetch),
    isMove: fetch.ismove === true,
  }
}

function planDeclaration(
  { portalname: name = '', options = 0 }: NodeOf<'DeclareCursorStmt'>,
  text: string,
): CursorPlan {
  if ((options & BINARY) !== 0) {
    throw unsupported('DECLARE ... BINARY is not supported: ask for binary values in the protocol')
  }
  const query = readRest(text, { from: 0, after: 'for' })
  if (query === undefined) throw new WireError('42601', 'syntax error in DECLARE')
  const isForward = (options & NO_SCROLL) !== 0
  const scroll = (options & SCROLL) !== 0 ? sql` scroll` : isForward ? sql` no scroll` : sql``
  const words = sql`declare ${ident(name)}${scroll} cursor for`
  return { kind: 'declare', name, words, query, isHeld: (options & HOLD) !== 0, isForward }
}

const DIRECTIONS: Readonly<Record<string, CursorMovement['direction']>> = {
  FETCH_FORWARD: 'forward',
  FETCH_BACKWARD: 'backward',
  FETCH_ABSOLUTE: 'absolute',
  FETCH_RELATIVE: 'relative',
}

function movementOf({ direction: word, howMany }: NodeOf<'FetchStmt'>): CursorMovement {
  const direction = DIRECTIONS[word ?? '']
  const count = Number(howMany ?? 0)
  if (direction === undefined) throw unsupported('this form of FETCH is not supported')
  // PostgreSQL reads the largest number as ALL.
  return { direction, count: count >= Number.MAX_SAFE_INTEGER ? Number.POSITIVE_INFINITY : count }
}

const WORDS: Readonly<Record<CursorMovement['direction'], Sql>> = {
  forward: sql`forward`,
  backward: sql`backward`,
  absolute: sql`absolute`,
  relative: sql`relative`,
}

/** Returns the statement by which PostgreSQL moves a cursor. */
export function fetchSql(name: string, { direction, count }: CursorMovement): Sql {
  const many = Number.isFinite(count) ? integer(count) : sql`all`
  return sql`fetch ${WORDS[direction]} ${many} from ${ident(name)}`
}
