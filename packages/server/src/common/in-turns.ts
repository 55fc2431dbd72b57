import { setImmediate as yieldToOthers } from 'node:timers/promises'

/** How long a piece of work may block the event loop. */
const TURN_MS = 10

/**
 * Measures how long a loop has blocked the event loop. For loops that cannot be divided into steps
 * because they wait for something else in between.
 */
export class Turn {
  #startedAt = performance.now()

  get isOver(): boolean {
    return performance.now() - this.#startedAt >= TURN_MS
  }

  /** Yields to the event loop, and starts the next turn. */
  async end(): Promise<void> {
    await yieldToOthers()
    this.#startedAt = performance.now()
  }
}

/** Runs work that is divided into steps, and yields to the event loop between them. */
export async function inTurns<Result>(steps: Generator<unknown, Result>): Promise<Result> {
  const turn = new Turn()
  for (;;) {
    const step = steps.next()
    if (step.done) return step.value
    if (turn.isOver) await turn.end()
  }
}

/** Maps a list, and yields to the event loop between items if it takes long. */
export function mapInTurns<Item, Result>(
  items: readonly Item[],
  map: (item: Item) => Result,
): Promise<Result[]> {
  return inTurns(mapSteps(items, map))
}

function* mapSteps<Item, Result>(
  items: readonly Item[],
  map: (item: Item) => Result,
): Generator<undefined, Result[]> {
  const results: Result[] = []
  for (const item of items) {
    results.push(map(item))
    yield
  }
  return results
}
