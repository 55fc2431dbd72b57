/** Reads the literal of an array: the size of each level, and all elements. */
export function parseArray(text: string): { sizes: number[]; items: (string | null)[] } {
  const items: (string | null)[] = []
  const sizes: number[] = []
  const counts: number[] = []
  const tokens = /"((?:[^"\\]|\\.)*)"|([{},])|([^{},"]+)/gs
  const start = text.indexOf('{')
  for (const [, quoted, mark, plain] of text.slice(start).matchAll(tokens)) {
    if (mark === '{') {
      if (counts.length > 0) counts[counts.length - 1] = (counts.at(-1) ?? 0) + 1
      counts.push(0)
    } else if (mark === '}') {
      sizes[counts.length - 1] = counts.pop() ?? 0
    } else if (mark === undefined) {
      counts[counts.length - 1] = (counts.at(-1) ?? 0) + 1
      items.push(quoted?.replace(/\\(.)/gs, '$1') ?? (plain === 'NULL' ? null : (plain ?? '')))
    }
  }
  return items.length === 0 ? { sizes: [], items } : { sizes, items }
}
