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
