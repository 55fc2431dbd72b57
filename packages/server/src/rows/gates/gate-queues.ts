/** `shared`: a writer, together with others. `alone`: a fork, a schema edit, a merge. */
export type GateMode = 'shared' | 'alone'

interface Waiting {
  readonly mode: GateMode
  start(): void
}

interface Gate {
  shared: number
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
    const gate = this.#gates.get(name) ?? { shared: 0, isAlone: false, waiting: [] }
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
    })
  }

  leave(name: string, mode: GateMode): void {
    const gate = this.#gates.get(name)
    if (gate === undefined) throw new Error('a gate must be entered before it is left')
    if (mode === 'alone') gate.isAlone = false
    else gate.shared--
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
    if (gate.shared === 0 && !gate.isAlone && gate.waiting.length === 0) this.#gates.delete(name)
  }

  #mayStart({ shared, isAlone }: Gate, mode: GateMode): boolean {
    return !isAlone && (mode === 'alone' ? shared === 0 : shared < this.#sharedMax)
  }
}

function take(gate: Gate, mode: GateMode): void {
  if (mode === 'alone') gate.isAlone = true
  else gate.shared++
}
