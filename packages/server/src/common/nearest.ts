/** Longer names get no suggestion, so that the cost stays bounded. */
const LENGTH_MAX = 64

/**
 * Returns the candidate with the smallest edit distance, if that is small for the length of the
 * name.
 */
export function nearest(name: string, candidates: Iterable<string>): string | undefined {
  if (name.length > LENGTH_MAX) return undefined
  let best: string | undefined
  let bestDistance = Math.max(1, Math.floor(name.length / 3)) + 1
  for (const candidate of candidates) {
    if (Math.abs(candidate.length - name.length) >= bestDistance) continue
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase())
    if (distance < bestDistance) {
      best = candidate
      bestDistance = distance
    }
  }
  return best
}

/** Counts insertions, deletions and replacements; a swap of two neighbours counts as one. */
function editDistance(left: string, right: string): number {
  let [before, previous] = [[] as number[], Array.from({ length: right.length + 1 }, (_, i) => i)]
  for (let i = 1; i <= left.length; i++) {
    const current = [i]
    for (let j = 1; j <= right.length; j++) {
      const isSame = left[i - 1] === right[j - 1]
      const replaced = (previous[j - 1] ?? 0) + (isSame ? 0 : 1)
      let least = Math.min((previous[j] ?? 0) + 1, (current[j - 1] ?? 0) + 1, replaced)
      if (i > 1 && j > 1 && left[i - 1] === right[j - 2] && left[i - 2] === right[j - 1]) {
        least = Math.min(least, (before[j - 2] ?? 0) + 1)
      }
      current.push(least)
    }
    before = previous
    previous = current
  }
  return previous[right.length] ?? 0
}
