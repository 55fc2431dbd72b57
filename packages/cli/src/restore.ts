import { parseArgs } from 'node:util'
import { runRestore } from '@offshoot/server/backup'
import { refuse, show } from './usage.js'

const USAGE = `Usage: offshoot restore FILE

Fills an empty instance from a backup. If FILE is -, the backup is read from standard input.

The settings select the instance, as for offshoot start: OFFSHOOT_DATA_DIR or OFFSHOOT_DATABASE_URL.
Its service must not be running. The whole backup is verified. If it is damaged, the instance is left
empty.
`

/** `offshoot restore`: fills an empty instance from a backup. */
export async function restore(args: readonly string[]): Promise<number> {
  let files: readonly string[]
  try {
    const parsed = parseArgs({
      args: [...args],
      options: { help: { type: 'boolean', short: 'h' } },
      allowPositionals: true,
    })
    if (parsed.values.help) return show(USAGE)
    files = parsed.positionals
  } catch (error) {
    return refuse('restore', error, USAGE)
  }
  const [input, ...others] = files
  if (input === undefined || others.length > 0) {
    return refuse('restore', new Error('expected one FILE'), USAGE)
  }
  return runRestore({ input })
}
