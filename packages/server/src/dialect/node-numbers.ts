/** Places in the text of a statement, in which equal expressions differ. */
const PLACES: ReadonlySet<string> = new Set(['location', 'rexpr_list_start', 'rexpr_list_end'])

/** Gives nodes numbers, equal ones to those that are written alike. Each node is read once. */
export class NodeNumbers {
  readonly #byNode = new WeakMap<object, number>()
  readonly #byForm = new Map<string, number>()

  /** Returns the number of a node or a value. The parser has limited how deeply nodes are nested. */
  of(value: unknown): number {
    const isNode = typeof value === 'object' && value !== null
    const known = isNode ? this.#byNode.get(value) : undefined
    if (known !== undefined) return known
    const number = this.#ofForm(isNode ? this.#formOf(value) : JSON.stringify(value))
    if (isNode) this.#byNode.set(value, number)
    return number
  }

  #formOf(node: object): string {
    const members = Object.entries(node).filter(([name]) => !PLACES.has(name))
    const parts = members.map(([name, member]) => `${name} ${this.of(member)}`)
    return `${Array.isArray(node) ? 'list' : 'node'} ${parts.join(' ')}`
  }

  #ofForm(form: string): number {
    const known = this.#byForm.get(form)
    if (known !== undefined) return known
    this.#byForm.set(form, this.#byForm.size)
    return this.#byForm.size - 1
  }
}
