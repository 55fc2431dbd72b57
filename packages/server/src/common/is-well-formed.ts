/** Every supported Node.js has this method; the TypeScript `lib` setting does not declare it. */
type WellFormed = string & { isWellFormed(): boolean }

/** Returns whether a text has no half of a surrogate pair. UTF-8 has none, so it would become another character. */
export function isWellFormed(text: string): boolean {
  return (text as WellFormed).isWellFormed()
}
