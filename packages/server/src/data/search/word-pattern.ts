/*
 * Words are found by regular expressions of PostgreSQL's own kind, made here. They need no extension,
 * no locale and no index, and one pattern says the same on every server.
 */

/**
 * What words are made of: letters, digits and their marks in any script, as the inside of a character
 * class. It is written out, because what PostgreSQL takes for a letter depends on its locale, and
 * coarse, because it is repeated in patterns.
 */
const WORD_CHARACTERS = [
  '0-9A-Za-z\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6',
  // Scripts of words, without the punctuation marks among them.
  '\u00f8-\u037d\u037f-\u0386\u0388-\u0559\u0560-\u0588\u058b-\u05bd\u05bf\u05c1-\u05f2',
  '\u0610-\u061a\u0620-\u0669\u066e-\u06d3\u06d5-\u0963\u0966-\u1fff\u2c00-\u2dff',
  // East Asia, and forms of compatibility.
  '\u3005-\u3007\u3021-\u302f\u3031-\u3035\u3038-\ud7ff\uf900-\ufe2f\ufe50-\ufefe',
  '\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffef',
  // Beyond the first plane; in between are pictures.
  '\u{10000}-\u{1efff}\u{20000}-\u{3ffff}',
].join('')

/** One character of a word, and one that is between words. */
export const WORD = `[${WORD_CHARACTERS}]`
export const BREAK = `[^${WORD_CHARACTERS}]`

export const WORD_START = `(?:^|${BREAK})`
export const WORD_END = `(?:$|${BREAK})`
/** The same without taking the character: it may be what the next word starts after. */
export const WORD_ENDS = `(?!${WORD})`

/** A pattern of one character, in either case. */
export function letterPattern(character: string): string {
  const cases = [character, character.toLowerCase(), character.toUpperCase()]
  // Some letters become two in the other case; these are taken as they are.
  const single = cases.filter((text) => [...text].length === 1)
  const distinct = [...new Set(single)]
  return distinct.length === 1 ? character : `[${distinct.join('')}]`
}

/** Inserted, or in the place of another: any character of a word, up to so many times. */
function upTo(count: number): string {
  if (count === 0) return ''
  return count === 1 ? `${WORD}?` : `${WORD}{0,${count}}`
}

/**
 * Everything that becomes the given sequence of patterns by at most so many edits, each of which
 * inserts, drops or replaces one character. A sequence is halved and the edits are shared out, so
 * that the pattern grows little faster than the word.
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
 * A simpler pattern that is found wherever the exact one is: of one more piece than there are edits,
 * one is left as it was. It costs a fraction, and most rows need no other.
 */
export function piecesPattern(letters: readonly string[], edits: number): string {
  const pieces = piecesOf(letters, edits).map((piece, index) => {
    return `${index === 0 ? WORD_START : ''}${piece}${index === edits ? WORD_END : ''}`
  })
  return pieces.join('|')
}

/** The pieces alone. */
export function piecesOf(letters: readonly string[], edits: number): string[] {
  const count = edits + 1
  return Array.from({ length: count }, (_, index) => {
    const [start, end] = [index, index + 1].map((at) => Math.floor((letters.length * at) / count))
    return letters.slice(start, end).join('')
  })
}
