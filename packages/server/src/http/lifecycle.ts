export type LifecycleState = 'starting' | 'ready' | 'draining'

/** Where the process is in its life; requests are served only in the middle of it. */
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
