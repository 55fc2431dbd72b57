import { notice, print } from './shared/output.js'

/** Prints the help of a command. */
export function show(usage: string): number {
  print(usage)
  return 0
}

/** Reports invalid arguments of a command. */
export function refuse(command: string, error: unknown, usage: string): number {
  // Node's message starts in upper case and continues with advice about its own options.
  const [first = ''] = (error as Error).message.split('. ')
  const message = first.charAt(0).toLowerCase() + first.slice(1)
  notice(`offshoot ${command}: ${message}\n\n${usage.trimEnd()}`)
  return 2
}

/** The options of `parseArgs` that select a database. As in all other commands, it has two names. */
export const DATABASE_OPTIONS = {
  database: { type: 'string' },
  db: { type: 'string' },
  workspace: { type: 'string' },
} as const

/** Returns the database that the options select. Refuses options that need one without it. */
export function selectedDatabase(
  options: Readonly<Record<string, string | boolean | undefined>>,
): string | undefined {
  const name = options.database ?? options.db
  if (name === '') throw new Error("option '--database' needs a name")
  if (typeof name === 'string') return name
  const other = ['as', 'workspace'].find((option) => options[option] !== undefined)
  if (other !== undefined) throw new Error(`option '--${other}' needs '--database'`)
  return undefined
}
