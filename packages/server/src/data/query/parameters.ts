import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { type Parameter, type Slot, slot } from '../../postgres/statement.js'
import { requireScannedTables } from '../../rows/read.js'
import { invalidQuery } from './invalid-query.js'

/** PostgreSQL takes 65,535; some are left for the guard. */
const VALUES_MAX = 65_000

/** The values of a statement that is being composed. */
export class Parameters {
  readonly values: Parameter[] = []
  readonly #shared = new Map<string, Slot>()
  #comparisons = 0
  #scannedTables = 0

  add(value: Parameter): Slot {
    if (this.values.length === VALUES_MAX)
      throw invalidQuery('filter: compares with too many values')
    this.values.push(value)
    return slot(this.values.length - 1)
  }

  /** Each of them takes time here and in PostgreSQL, even before a row is looked at. */
  countComparison(): void {
    const { comparisonsMax } = QUERY_LIMITS
    if (++this.#comparisons <= comparisonsMax) return
    throw invalidQuery(
      `filter: takes more than ${comparisonsMax} comparisons; a list of values takes one`,
    )
  }

  /** Tables of PostgreSQL that the statement names. */
  countTables(count: number): void {
    this.#scannedTables += count
    requireScannedTables(this.#scannedTables)
  }

  /** The same parameter wherever the same text is asked for. */
  share(text: string): Slot {
    let known = this.#shared.get(text)
    if (known === undefined) {
      known = this.add(text)
      this.#shared.set(text, known)
    }
    return known
  }
}
