import { useCallback, useState } from 'react'

/** How a table is shown on this device. It is no data, so it may stay in the browser. */
export interface Preferences {
  readonly order: readonly string[]
  readonly hidden: readonly string[]
  readonly widths: Readonly<Record<string, number>>
}

const METADATA_HIDDEN = ['service.version', 'service.createdAt', 'service.updatedAt']
const DEFAULT: Preferences = { order: [], hidden: METADATA_HIDDEN, widths: {} }

export function usePreferences(
  name: string,
): readonly [Preferences, (change: Partial<Preferences>) => void] {
  const key = `offshoot.table.${name}`
  const [preferences, setPreferences] = useState(() => read(key))
  const change = useCallback(
    (next: Partial<Preferences>) =>
      setPreferences((present) => {
        const all = { ...present, ...next }
        localStorage.setItem(key, JSON.stringify(all))
        return all
      }),
    [key],
  )
  return [preferences, change]
}

function read(key: string): Preferences {
  try {
    return { ...DEFAULT, ...(JSON.parse(localStorage.getItem(key) ?? '{}') as object) }
  } catch {
    return DEFAULT
  }
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
