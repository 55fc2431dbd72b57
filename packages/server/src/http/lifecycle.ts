type LifecycleState = 'starting' | 'ready' | 'draining'

/** The state of the process. Requests are served only while it is `ready`. */
export class Lifecycle {
  #state: LifecycleState

  constructor(state: LifecycleState = 'starting') {
    this.#state = state
  }

  get state(): LifecycleState {
    return this.#state
  }

  enter(state: LifecycleState): void {
    this.#state = state
  }
}
