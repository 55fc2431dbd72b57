import { type Parameter, type Slot, slot } from '../../postgres/statement.js'
import { queryFault } from './query-fault.js'

/** PostgreSQL takes 65,535; some are left for the guard. */
const VALUES_MAX = 65_000

/** The values of a statement that is being composed. */
export class Parameters {
  readonly values: Parameter[] = []
  readonly #shared = new Map<string, Slot>()

  add(value: Parameter): Slot {
    if (this.values.length === VALUES_MAX) throw queryFault('filter: compares with too many values')
    this.values.push(value)
    return slot(this.values.length - 1)
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
