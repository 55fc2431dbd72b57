/** How a table is shown on this device. It is no data, so it may stay in the browser. */
export interface Preferences {
  readonly order: readonly string[]
  readonly hidden: readonly string[]
  readonly widths: Readonly<Record<string, number>>
}

const METADATA_HIDDEN = ['service.version', 'service.createdAt', 'service.updatedAt']
const DEFAULT: Preferences = { order: [], hidden: METADATA_HIDDEN, widths: {} }

const keyOf = (name: string) => `offshoot.table.${name}`

export function readPreferences(name: string): Preferences {
  try {
    return { ...DEFAULT, ...(JSON.parse(localStorage.getItem(keyOf(name)) ?? '{}') as object) }
  } catch {
    return DEFAULT
  }
}

export function writePreferences(name: string, preferences: Preferences): void {
  localStorage.setItem(keyOf(name), JSON.stringify(preferences))
}

/** Puts columns into the preferred order. Columns without a place come last. */
export function inOrder<Item extends { readonly name: string }>(
  columns: readonly Item[],
  order: readonly string[],
): readonly Item[] {
  const rank = (name: string) => {
    const place = order.indexOf(name)
    return place < 0 ? order.length : place
  }
  return columns.toSorted((left, right) => rank(left.name) - rank(right.name))
}
