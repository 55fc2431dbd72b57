import { BREAK, letterPattern, WORD } from './word-pattern.js'

/** One search term: a word, or several words joined by characters other than spaces. */
export interface Term {
  /** The term in lower case. */
  readonly text: string
  /** A pattern for each character. Characters that join words count as one. */
  readonly letters: readonly string[]
  /** The number of typing errors that are tolerated. */
  readonly edits: number
  /** The term is of a script without spaces, so it also matches inside words. */
  readonly isInside: boolean
}

interface Terms {
  readonly terms: readonly Term[]
  readonly warnings: readonly string[]
}

export const TERMS_MAX = 32
/** The limit of the total cost of edits, which grows with their square. */
const EDIT_COST_MAX = 160

const BREAKS = new RegExp(`${BREAK}+`, 'u')
const OUTER_BREAKS = new RegExp(`^${BREAK}+|${BREAK}+$`, 'gu')
const CHARACTERS = new RegExp(`${WORD}|${BREAK}+`, 'gu')
const WITHOUT_SPACES =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u

/** Splits a query into terms at spaces. */
export function readTerms(query: string, fuzziness: number): Terms {
  const chunks = query.split(/\s+/u).map((chunk) => chunk.replace(OUTER_BREAKS, '').toLowerCase())
  const distinct = [...new Set(chunks)].filter((chunk) => chunk !== '')
  const texts = distinct.slice(0, TERMS_MAX)
  const warnings =
    texts.length < distinct.length
      ? [`query: only the first ${TERMS_MAX} words are searched for`]
      : []
  let cost = 0
  let isStrict = false
  const terms = texts.map((text): Term => {
    const letters = readLetters(text)
    const isInside = WITHOUT_SPACES.test(text)
    // More than half of the characters must match; otherwise short words would match any other.
    const bearable = Math.floor((letters.length - 1) / 2)
    const wanted = isInside ? 0 : Math.min(fuzziness, bearable)
    const edits = [wanted, 1, 0].find((count) => cost + editCost(letters, count) <= EDIT_COST_MAX)
    isStrict ||= edits !== wanted
    cost += editCost(letters, edits ?? 0)
    return { text, letters, edits: Math.min(edits ?? 0, wanted), isInside }
  })
  if (isStrict)
    warnings.push('query: is long; typing errors in some of its words are not tolerated')
  return { terms, warnings }
}

function editCost(letters: readonly string[], edits: number): number {
  return letters.length * edits ** 2
}

function readLetters(text: string): string[] {
  const characters = text.match(CHARACTERS) ?? []
  return characters.map((part) => (BREAKS.test(part) ? `${BREAK}+` : letterPattern(part)))
}

/** Returns whether a term can have a stem: English words of at least three letters. */
export function hasStem({ text, isInside }: Term): boolean {
  return !isInside && /^[a-z]{3,}$/.test(text)
}

/**
 * Returns the common prefix of words with a stem, or undefined if it is too short. The last letter of a stem
 * may differ from that of the word: `hope` is the stem of `hoping`, and `happi` that of `happy`.
 */
export function stemStart(stem: string): string | undefined {
  const start = stem.replace(/[eiy]$/, '')
  return start.length < 3 ? undefined : start
}
