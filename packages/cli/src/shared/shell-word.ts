/** Quotes a text as one word of a POSIX shell. A single quote ends the word, so each is written outside of it. */
export function shellWord(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`
}
