/** Prints a message for a person at a terminal. It is not part of the log. */
export function tellPerson(message: string): void {
  if (process.stderr.isTTY) process.stderr.write(`offshoot: ${message}\n`)
}
