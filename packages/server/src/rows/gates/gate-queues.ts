/**
 * `shared`: a writer, together with others. `open`: a transaction that waits for its client between statements, also
 * together with others. `alone`: a fork, a schema edit, a merge.
 */
export type GateMode = 'shared' | 'open' | 'alone'

interface Waiting {
  readonly mode: GateMode
  start(): void
}

interface Gate {
  shared: number
  open: number
  isAlone: boolean
  /** In the order of arrival, so that neither writers nor forks starve. */
  readonly waiting: Waiting[]
}

/**
 * The queues in front of the gates, in the memory of this process. Requests wait here without a connection to
 * PostgreSQL, so that they do not use up what others need. The gate in PostgreSQL then only waits for other
 * processes.
 */
export class GateQueues {
  readonly #sharedMax: number
  readonly #gates = new Map<string, Gate>()
  /** Whom to tell that a transaction waits which has to be alone. */
  readonly #watching = new Map<string, Set<() => void>>()

  /** `sharedMax`: the number of writers of one gate that may have a connection. */
  constructor({ sharedMax }: { sharedMax: number }) {
    this.#sharedMax = sharedMax
  }

  /** The number of gates that are in use. */
  get size(): number {
    return this.#gates.size
  }

  /** Enters a gate. Returns or resolves to false if that takes too long. Successful calls must `leave`. */
  enter(name: string, mode: GateMode, waitMs: number): boolean | Promise<boolean> {
    const gate = this.#gates.get(name) ?? { shared: 0, open: 0, isAlone: false, waiting: [] }
    this.#gates.set(name, gate)
    if (gate.waiting.length === 0 && this.#mayStart(gate, mode)) {
      take(gate, mode)
      return true
    }
    return new Promise((resolve) => {
      const waiting = {
        mode,
        start: () => {
          clearTimeout(timer)
          resolve(true)
        },
      }
      const timer = setTimeout(() => {
        gate.waiting.splice(gate.waiting.indexOf(waiting), 1)
        // Requests that were waiting behind this one may be able to start now.
        this.#startNext(name, gate)
        resolve(false)
      }, waitMs)
      gate.waiting.push(waiting)
      if (mode === 'alone') for (const tell of this.#watching.get(name) ?? []) tell()
    })
  }

  /** Calls `tell` each time that a transaction has to wait which needs the gate alone. Returns how to stop that. */
  watch(name: string, tell: () => void): () => void {
    const watching = this.#watching.get(name) ?? new Set()
    this.#watching.set(name, watching.add(tell))
    return () => {
      watching.delete(tell)
      if (watching.size === 0 && this.#watching.get(name) === watching) this.#watching.delete(name)
    }
  }

  /**
   * Lets nobody enter a gate that an open transaction has entered together with others. These are told. Returns false if
   * another one has done so. Successful calls must `reopen` before they leave.
   */
  close(name: string): boolean {
    const gate = this.#gates.get(name)
    if (gate === undefined) throw new Error('a gate must be entered before it is closed')
    if (gate.isAlone) return false
    gate.isAlone = true
    for (const tell of this.#watching.get(name) ?? []) tell()
    return true
  }

  reopen(name: string): void {
    this.leave(name, 'alone')
  }

  leave(name: string, mode: GateMode): void {
    const gate = this.#gates.get(name)
    if (gate === undefined) throw new Error('a gate must be entered before it is left')
    if (mode === 'alone') gate.isAlone = false
    else gate[mode]--
    this.#startNext(name, gate)
  }

  #startNext(name: string, gate: Gate): void {
    for (
      let [next] = gate.waiting;
      next && this.#mayStart(gate, next.mode);
      [next] = gate.waiting
    ) {
      gate.waiting.shift()
      take(gate, next.mode)
      next.start()
    }
    if (gate.shared === 0 && gate.open === 0 && !gate.isAlone && gate.waiting.length === 0)
      this.#gates.delete(name)
  }

  #mayStart({ shared, open, isAlone }: Gate, mode: GateMode): boolean {
    if (isAlone) return false
    if (mode === 'alone') return shared === 0 && open === 0
    // Open transactions have connections of their own.
    return mode === 'open' || shared < this.#sharedMax
  }
}

function take(gate: Gate, mode: GateMode): void {
  if (mode === 'alone') gate.isAlone = true
  else gate[mode]++
}
