import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'

/** Returns the folder of the built console, or undefined if it is not installed or not built. */
export function findConsole(): string | undefined {
  try {
    const page = createRequire(import.meta.url).resolve('@offshoot/console/index.html')
    return existsSync(page) ? path.dirname(page) : undefined
  } catch {
    return undefined
  }
}
