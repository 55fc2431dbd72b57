import { type Parameter, type Slot, slot } from '../../postgres/statement.js'

/** The values of a statement that is being composed. */
export class Parameters {
  readonly values: Parameter[] = []

  add(value: Parameter): Slot {
    this.values.push(value)
    return slot(this.values.length - 1)
  }
}
