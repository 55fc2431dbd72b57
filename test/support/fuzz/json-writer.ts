/** JSON text that is inserted into a document unchanged. */
export class RawJson {
  constructor(readonly text: string) {}
}

/** `JSON.stringify` with raw parts, for any depth. */
export function writeJson(value: unknown): string {
  const parts: string[] = []
  // Stack of the remaining output: strings are text, boxed values are still to be written.
  const rest: (string | { readonly value: unknown })[] = [{ value }]
  while (rest.length > 0) {
    const next = rest.pop()
    if (typeof next === 'string') parts.push(next)
    else if (next !== undefined) rest.push(...partsOf(next.value).reverse())
  }
  return parts.join('')
}

function partsOf(value: unknown): (string | { readonly value: unknown })[] {
  if (value instanceof RawJson) return [value.text]
  if (typeof value !== 'object' || value === null) return [JSON.stringify(value ?? null)]
  if (Array.isArray(value)) {
    return ['[', ...value.flatMap((item, index) => [index === 0 ? '' : ',', { value: item }]), ']']
  }
  const entries = Object.entries(value).filter(([, item]) => item !== undefined)
  return [
    '{',
    ...entries.flatMap(([key, item], index) => [
      `${index === 0 ? '' : ','}${JSON.stringify(key)}:`,
      { value: item },
    ]),
    '}',
  ]
}
