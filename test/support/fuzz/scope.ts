import type { Column } from '@offshoot/contract/schema'
import type { Random } from '../seeded-random.js'
import type { Document } from './document.js'
import type { Stock } from './stock.js'

export type Tables = Readonly<Record<string, readonly Column[]>>

/** The context of generated values: the document, known names, and the current position. */
export interface Scope {
  readonly random: Random
  readonly document: Document
  readonly stock: Stock
  /** The tables of the branch of the request. */
  readonly tables: Tables
  readonly table: string | undefined
}

export function columnsOf({ tables, table }: Scope): readonly Column[] {
  return table !== undefined && Object.hasOwn(tables, table) ? (tables[table] ?? []) : []
}

export function freshName(random: Random): string {
  return `n${random.below(36 ** 5).toString(36)}`
}

/** Returns any JSON value. */
export function anyJson(random: Random, depth: number): unknown {
  const isLeaf = depth === 0 || random.chance(0.5)
  if (isLeaf) return random.pick([null, true, false, 0, -1.5, 42, '', 'text', '2026-01-01'])
  const items = Array.from({ length: random.below(4) }, () => anyJson(random, depth - 1))
  if (random.chance(0.5)) return items
  return Object.fromEntries(items.map((item) => [random.pick(['a', 'b', 'name', '$is']), item]))
}
