/** What was asked for. */
export function show(usage: string): number {
  process.stdout.write(usage)
  return 0
}

/** Arguments that a command does not understand. */
export function refuse(command: string, error: unknown, usage: string): number {
  const [message] = (error as Error).message.split('. ')
  process.stderr.write(`offshoot ${command}: ${message}\n\n${usage}`)
  return 2
}
