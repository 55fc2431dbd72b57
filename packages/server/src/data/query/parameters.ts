import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { type Parameter, type Slot, slot } from '../../postgres/statement.js'
import { requireScannedTables } from '../../rows/reading/read-plan.js'
import { invalidQuery } from './invalid-query.js'

/** PostgreSQL's limit is 65,535 parameters; some are left for the guard. */
const VALUES_MAX = 65_000

/** Collects the parameters of a statement. */
export class Parameters {
  readonly values: Parameter[] = []
  /** The slot of the first parameter: others of the statement come before it. */
  readonly #firstSlot: number
  readonly #shared = new Map<string, Slot>()
  #comparisons = 0
  #patterns = 0
  #scannedTables = 0

  constructor(firstSlot = 0) {
    this.#firstSlot = firstSlot
  }

  add(value: Parameter): Slot {
    if (this.values.length === VALUES_MAX)
      throw invalidQuery('filter: compares with too many values')
    this.values.push(value)
    return slot(this.#firstSlot + this.values.length - 1)
  }

  /** Counts a comparison. Each takes time for compiling and planning, even before a row is read. */
  countComparison(): void {
    const { comparisonsMax } = QUERY_LIMITS
    if (++this.#comparisons <= comparisonsMax) return
    throw invalidQuery(
      `filter: takes more than ${comparisonsMax} comparisons; a list of values takes one`,
    )
  }

  /** Counts a comparison that searches within a text. */
  countPattern(): void {
    const { patternsMax } = QUERY_LIMITS
    if (++this.#patterns <= patternsMax) return
    throw invalidQuery(
      `filter: takes more than ${patternsMax} comparisons that search within a text`,
    )
  }

  /** Counts physical tables in the statement. */
  countTables(count: number): void {
    this.#scannedTables += count
    requireScannedTables(this.#scannedTables)
  }

  /** Adds a text, or returns the existing parameter for an equal text. */
  share(text: string): Slot {
    let known = this.#shared.get(text)
    if (known === undefined) {
      known = this.add(text)
      this.#shared.set(text, known)
    }
    return known
  }
}
