type Results<Work extends readonly Promise<unknown>[]> = {
  -readonly [Index in keyof Work]: Awaited<Work[Index]>
}

/**
 * Waits until all work has ended. Throws the first error, in the order of the list. `Promise.all` throws while the rest
 * still goes on, which may use the same transaction.
 */
export async function allDone<const Work extends readonly Promise<unknown>[]>(
  work: Work,
): Promise<Results<Work>> {
  const results = await Promise.allSettled(work)
  return results.map((result) => {
    if (result.status === 'rejected') throw result.reason
    return result.value
  }) as Results<Work>
}
