import { useState } from 'react'

export interface PastRun {
  readonly sql: string
  readonly at: string
}

const RUNS_MAX = 100
const SQL_LENGTH_MAX = 20_000

/** The statements that ran in this browser, newest first. */
export function useRuns(name: string) {
  const key = `offshoot.sql.${name}`
  const [runs, setRuns] = useState<readonly PastRun[]>(() => read(key))
  const add = (run: PastRun) => {
    if (run.sql.length > SQL_LENGTH_MAX) return
    const next = [run, ...runs.filter(({ sql }) => sql !== run.sql)].slice(0, RUNS_MAX)
    localStorage.setItem(key, JSON.stringify(next))
    setRuns(next)
  }
  return { runs, add }
}

function read(key: string): readonly PastRun[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(key) ?? '[]')
    return Array.isArray(stored) ? (stored as PastRun[]) : []
  } catch {
    return []
  }
}
