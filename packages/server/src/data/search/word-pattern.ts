/*
 * Regular expressions for words, in PostgreSQL's syntax. They need no extension and no index, and do not
 * depend on the locale of the server.
 */

/**
 * The characters of words, as the content of a character class: letters, digits and marks of any script. The
 * ranges are explicit, because PostgreSQL's classes depend on the locale. They are coarse, because patterns
 * repeat them.
 */
const WORD_CHARACTERS = [
  '0-9A-Za-z\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6',
  // Alphabetic scripts, without their punctuation.
  '\u00f8-\u037d\u037f-\u0386\u0388-\u0559\u0560-\u0588\u058b-\u05bd\u05bf\u05c1-\u05f2',
  '\u0610-\u061a\u0620-\u0669\u066e-\u06d3\u06d5-\u0963\u0966-\u1fff\u2c00-\u2dff',
  // East Asian scripts and compatibility forms.
  '\u3005-\u3007\u3021-\u302f\u3031-\u3035\u3038-\ud7ff\uf900-\ufe2f\ufe50-\ufefe',
  '\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffef',
  // Supplementary planes, without the emoji at 1F000 to 1FFFF.
  '\u{10000}-\u{1efff}\u{20000}-\u{3ffff}',
].join('')

/** WORD matches one character of a word, BREAK any other character. */
export const WORD = `[${WORD_CHARACTERS}]`
export const BREAK = `[^${WORD_CHARACTERS}]`

export const WORD_START = `(?:^|${BREAK})`
export const WORD_END = `(?:$|${BREAK})`
/** Word end as a lookahead. It does not consume the character, which may precede the next word. */
export const WORD_ENDS = `(?!${WORD})`

/** Returns a pattern that matches a character in upper and lower case. */
export function letterPattern(character: string): string {
  const cases = [character, character.toLowerCase(), character.toUpperCase()]
  // Skip case variants of more than one character, such as the upper case of `ß`.
  const single = cases.filter((text) => [...text].length === 1)
  const distinct = [...new Set(single)]
  return distinct.length === 1 ? character : `[${distinct.join('')}]`
}

/** Returns a pattern for up to `count` inserted or replaced characters. */
function upTo(count: number): string {
  if (count === 0) return ''
  return count === 1 ? `${WORD}?` : `${WORD}{0,${count}}`
}

/**
 * Returns a pattern for all words within an edit distance: each edit inserts, deletes or replaces one
 * character. The word is split into halves and the edits are distributed between them, so that the pattern
 * grows only slightly faster than the word.
 */
export function editPattern(letters: readonly string[], edits: number): string {
  if (edits === 0) return letters.join('')
  const [only, ...others] = letters
  if (only === undefined) return upTo(edits)
  const shares = Array.from({ length: edits + 1 }, (_, index) => [index, edits - index] as const)
  if (others.length === 0) {
    const around = shares.map(([before, after]) => `${upTo(before)}${only}${upTo(after)}`)
    return `(?:${[...around, upTo(edits)].join('|')})`
  }
  const half = Math.floor(letters.length / 2)
  const [left, right] = [letters.slice(0, half), letters.slice(half)]
  const halves = shares.map(([before, after]) => {
    return `${editPattern(left, before)}${editPattern(right, after)}`
  })
  return `(?:${halves.join('|')})`
}

/**
 * Returns a cheap pattern that matches wherever the exact one does. The word is split into one more piece than
 * there are edits, so at least one piece is unchanged. Most rows need no other pattern.
 */
export function piecesPattern(letters: readonly string[], edits: number): string {
  const pieces = piecesOf(letters, edits).map((piece, index) => {
    return `${index === 0 ? WORD_START : ''}${piece}${index === edits ? WORD_END : ''}`
  })
  return pieces.join('|')
}

/** Splits a word into `edits + 1` pieces, without word boundaries. */
export function piecesOf(letters: readonly string[], edits: number): string[] {
  const count = edits + 1
  return Array.from({ length: count }, (_, index) => {
    const [start, end] = [index, index + 1].map((at) => Math.floor((letters.length * at) / count))
    return letters.slice(start, end).join('')
  })
}
