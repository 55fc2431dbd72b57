import { useCallback, useState } from 'react'
import { type Preferences, readPreferences, writePreferences } from './preferences.js'

/** The preferences of a table, and a function that changes and keeps them. */
export function usePreferences(
  name: string,
): readonly [Preferences, (change: Partial<Preferences>) => void] {
  const [preferences, setPreferences] = useState(() => readPreferences(name))
  const change = useCallback(
    (next: Partial<Preferences>) =>
      setPreferences((present) => {
        const all = { ...present, ...next }
        writePreferences(name, all)
        return all
      }),
    [name],
  )
  return [preferences, change]
}
