import { BREAK, letterPattern, WORD } from './word-pattern.js'

/** What is looked for: a word, or words that are joined by something else than a space. */
export interface Term {
  /** As it was written, in lower case. */
  readonly text: string
  /** A pattern for each character; what joins words counts as one. */
  readonly letters: readonly string[]
  /** Typing errors that are overlooked. */
  readonly edits: number
  /** Of a script that has no spaces: it is found inside of words too. */
  readonly isInside: boolean
}

export interface Terms {
  readonly terms: readonly Term[]
  readonly warnings: readonly string[]
}

export const TERMS_MAX = 32
/** What edits may cost, a letter with two of them four times that of one. */
const EDIT_COST_MAX = 160

const BREAKS = new RegExp(`${BREAK}+`, 'u')
const OUTER_BREAKS = new RegExp(`^${BREAK}+|${BREAK}+$`, 'gu')
const CHARACTERS = new RegExp(`${WORD}|${BREAK}+`, 'gu')
const WITHOUT_SPACES =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u

/** Splits a query at its spaces; what is written together is looked for together. */
export function readTerms(query: string, fuzziness: number): Terms {
  const chunks = query.split(/\s+/u).map((chunk) => chunk.replace(OUTER_BREAKS, '').toLowerCase())
  const distinct = [...new Set(chunks)].filter((chunk) => chunk !== '')
  const texts = distinct.slice(0, TERMS_MAX)
  const warnings =
    texts.length < distinct.length
      ? [`query: only the first ${TERMS_MAX} words are looked for`]
      : []
  let cost = 0
  let isStrict = false
  const terms = texts.map((text): Term => {
    const letters = readLetters(text)
    const isInside = WITHOUT_SPACES.test(text)
    // More of a word must be right than wrong, or every short word would be found for every other.
    const bearable = Math.floor((letters.length - 1) / 2)
    const wanted = isInside ? 0 : Math.min(fuzziness, bearable)
    const edits = [wanted, 1, 0].find((count) => cost + editCost(letters, count) <= EDIT_COST_MAX)
    isStrict ||= edits !== wanted
    cost += editCost(letters, edits ?? 0)
    return { text, letters, edits: Math.min(edits ?? 0, wanted), isInside }
  })
  if (isStrict)
    warnings.push('query: is long; typing errors in some of its words are not overlooked')
  return { terms, warnings }
}

function editCost(letters: readonly string[], edits: number): number {
  return letters.length * edits ** 2
}

function readLetters(text: string): string[] {
  const characters = text.match(CHARACTERS) ?? []
  return characters.map((part) => (BREAKS.test(part) ? `${BREAK}+` : letterPattern(part)))
}

/** Only these have a stem: English words, and not the shortest. */
export function hasStem({ text, isInside }: Term): boolean {
  return !isInside && /^[a-z]{3,}$/.test(text)
}

/**
 * How words with a stem start. The stem of `hoping` and `hope` is `hope`, that of `happy` and
 * `happiness` is `happi`: its last letter may have changed.
 */
export function stemStart(stem: string): string | undefined {
  const start = stem.replace(/[eiy]$/, '')
  return start.length < 3 ? undefined : start
}
