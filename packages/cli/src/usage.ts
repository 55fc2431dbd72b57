/** What was asked for. */
export function show(usage: string): number {
  process.stdout.write(usage)
  return 0
}

/** Arguments that a command does not understand. */
export function refuse(command: string, error: unknown, usage: string): number {
  // What Node says goes on with advice about its own options, and begins in upper case.
  const [first = ''] = (error as Error).message.split('. ')
  const message = first.charAt(0).toLowerCase() + first.slice(1)
  process.stderr.write(`offshoot ${command}: ${message}\n\n${usage}`)
  return 2
}
