import type { Node } from 'libpg-query'
import { empty, type Sql, sql } from '../../postgres/sql.js'
import { invalidSql } from '../invalid-sql.js'
import type { NodeOf } from '../nodes.js'

/** Writes the frame of a window, if it has one. */
export function writeFrame(
  { frameOptions = 0, startOffset, endOffset }: NodeOf<'WindowDef'>,
  write: (node: Node | undefined) => Sql,
): Sql[] {
  if ((frameOptions & FRAME.isGiven) === 0) return []
  const unit = FRAME_UNITS.find(([bit]) => (frameOptions & bit) !== 0)?.[1] ?? sql`range`
  const bound = (bounds: typeof FRAME_STARTS, offset: Node | undefined): Sql => {
    const found = bounds.find(([bit]) => (frameOptions & bit) !== 0)
    if (found === undefined) throw invalidSql('a window frame is not supported')
    const [, words, hasOffset] = found
    return hasOffset ? sql`${write(offset)} ${words}` : words
  }
  const start = bound(FRAME_STARTS, startOffset)
  const extent =
    (frameOptions & FRAME.isBetween) === 0
      ? start
      : sql`between ${start} and ${bound(FRAME_ENDS, endOffset)}`
  const excluded = FRAME_EXCLUSIONS.find(([bit]) => (frameOptions & bit) !== 0)?.[1] ?? empty
  return [sql`${unit} ${extent}${excluded}`]
}

/** Bits of `frameOptions`, as PostgreSQL defines them. */
const FRAME = { isGiven: 0x1, isBetween: 0x10 } as const

const FRAME_UNITS: readonly (readonly [bit: number, words: Sql])[] = [
  [0x2, sql`range`],
  [0x4, sql`rows`],
  [0x8, sql`groups`],
]

type FrameBound = readonly [bit: number, words: Sql, hasOffset: boolean]

const FRAME_STARTS: readonly FrameBound[] = [
  [0x20, sql`unbounded preceding`, false],
  [0x80, sql`unbounded following`, false],
  [0x200, sql`current row`, false],
  [0x800, sql`preceding`, true],
  [0x2000, sql`following`, true],
]

const FRAME_ENDS: readonly FrameBound[] = [
  [0x40, sql`unbounded preceding`, false],
  [0x100, sql`unbounded following`, false],
  [0x400, sql`current row`, false],
  [0x1000, sql`preceding`, true],
  [0x4000, sql`following`, true],
]

const FRAME_EXCLUSIONS: readonly (readonly [bit: number, words: Sql])[] = [
  [0x8000, sql` exclude current row`],
  [0x10000, sql` exclude group`],
  [0x20000, sql` exclude ties`],
]
