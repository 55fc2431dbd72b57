/**
 * Runs work for each item. An item that fails does not keep the others from their turn. Returns how many
 * succeeded; throws the first failure if none did.
 */
export async function eachApart<Item>(
  items: readonly Item[],
  run: (item: Item) => Promise<void>,
): Promise<number> {
  const failures: unknown[] = []
  for (const item of items) {
    try {
      await run(item)
    } catch (error) {
      failures.push(error)
    }
  }
  if (failures.length > 0 && failures.length === items.length) throw failures[0]
  return items.length - failures.length
}
