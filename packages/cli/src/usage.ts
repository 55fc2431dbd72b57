/** Prints the help of a command. */
export function show(usage: string): number {
  process.stdout.write(usage)
  return 0
}

/** Reports invalid arguments of a command. */
export function refuse(command: string, error: unknown, usage: string): number {
  // Node's message starts in upper case and continues with advice about its own options.
  const [first = ''] = (error as Error).message.split('. ')
  const message = first.charAt(0).toLowerCase() + first.slice(1)
  process.stderr.write(`offshoot ${command}: ${message}\n\n${usage}`)
  return 2
}

/** Refuses options that need `--database` without it. */
export function requireDatabase(
  options: Readonly<Record<string, string | boolean | undefined>>,
): void {
  if (options.database === '') throw new Error("option '--database' needs a name")
  if (options.database !== undefined) return
  const other = ['as', 'workspace'].find((name) => options[name] !== undefined)
  if (other !== undefined) throw new Error(`option '--${other}' needs '--database'`)
}
