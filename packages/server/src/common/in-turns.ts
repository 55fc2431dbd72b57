import { setImmediate as yieldToOthers } from 'node:timers/promises'

/** How long a piece of work may block the event loop. */
const TURN_MS = 10

/** Runs work that is divided into steps, and yields to the event loop between them. */
export async function inTurns<Result>(steps: Generator<unknown, Result>): Promise<Result> {
  let startedAt = performance.now()
  for (;;) {
    const step = steps.next()
    if (step.done) return step.value
    if (performance.now() - startedAt < TURN_MS) continue
    await yieldToOthers()
    startedAt = performance.now()
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
