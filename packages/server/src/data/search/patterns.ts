import { hasStem, stemStart, type Term } from './terms.js'
import {
  BREAK,
  editPattern,
  letterPattern,
  piecesOf,
  piecesPattern,
  WORD,
  WORD_END,
  WORD_ENDS,
  WORD_START,
} from './word-pattern.js'

/** How a word of a text matches a term, best first. */
type MatchKind = 'exact' | 'prefix' | 'edits' | 'stem'

/** A group of the pattern `words`: the term that it matches, and how. */
interface Match {
  readonly term: number
  readonly kind: MatchKind
  readonly edits: number
}

/** The regular expressions for the words of a query. */
export interface Patterns {
  readonly terms: readonly Term[]
  /** Stems by term. null: the term has no stem. */
  readonly stems: readonly (string | null)[]
  /** A necessary condition that a trigram index can evaluate. */
  readonly indexed: string
  /** A cheap necessary condition: matches all texts with one of the words, and some others. */
  readonly rough: string
  /** A stricter necessary condition. undefined if `rough` is as strict. */
  readonly fine: string | undefined
  /** Matches each word. The group tells the term and the kind of match. */
  readonly words: string
  /** The meaning of each group of `words`; group 1 is first. */
  readonly matches: readonly Match[]
  /** The whole query as a phrase, of which the last word is a prefix. */
  readonly phrase: string | undefined
}

export function makePatterns(
  terms: readonly Term[],
  options: { stems: ReadonlyMap<string, string>; isPrefix: boolean },
): Patterns {
  const stems = terms.map((term) => (hasStem(term) ? (options.stems.get(term.text) ?? null) : null))
  const last = options.isPrefix ? terms.length - 1 : -1
  const indexed: string[] = []
  const rough: string[] = []
  const fine: string[] = []
  const groups: { match: Match; pattern: string; rank: number }[] = []

  function add(term: number, kind: MatchKind, pattern: string, edits = 0): void {
    const rank = terms[term]?.isInside ? Number.POSITIVE_INFINITY : RANKS[kind] + edits
    groups.push({ match: { term, kind, edits }, pattern, rank })
  }

  for (const [index, term] of terms.entries()) {
    const { letters, edits, isInside } = term
    const whole = letters.join('')
    add(index, 'exact', whole)
    indexed.push(...piecesOf(letters, edits))
    if (isInside) {
      rough.push(whole)
      fine.push(whole)
      continue
    }
    rough.push(piecesPattern(letters, edits))
    fine.push(`${WORD_START}${editPattern(letters, edits)}${WORD_END}`)
    for (let count = 1; count <= edits; count++) {
      add(index, 'edits', editPattern(letters, count), count)
    }
    const starts: string[] = []
    if (index === last) {
      add(index, 'prefix', `${whole}${WORD}+`)
      starts.push(whole)
    }
    const start = stemStart(stems[index] ?? '')
    if (start !== undefined) {
      const beginning = [...start].map(letterPattern).join('')
      add(index, 'stem', `${beginning}${WORD}*`)
      starts.push(beginning)
    }
    for (const beginning of starts) {
      indexed.push(beginning)
      rough.push(`${WORD_START}${beginning}`)
      fine.push(`${WORD_START}${beginning}`)
    }
  }
  // PostgreSQL reports the first group that matches, so better kinds of match come first.
  groups.sort((one, other) => one.rank - other.rank)
  const isRough = terms.some(({ edits }) => edits > 0)
  return {
    terms,
    stems,
    indexed: indexed.join('|'),
    rough: rough.join('|'),
    fine: isRough ? fine.join('|') : undefined,
    words: wordsPattern(groups),
    matches: groups.map(({ match }) => match),
    phrase: options.isPrefix && terms.length > 1 ? phrasePattern(terms) : undefined,
  }
}

const RANKS: Readonly<Record<MatchKind, number>> = { exact: 0, prefix: 1, edits: 2, stem: 9 }

/** Terms of scripts without spaces come last. They match inside words. */
function wordsPattern(groups: readonly { pattern: string; rank: number }[]): string {
  const isInside = ({ rank }: { rank: number }) => rank === Number.POSITIVE_INFINITY
  const group = ({ pattern }: { pattern: string }) => `(${pattern})`
  const whole = groups.filter((entry) => !isInside(entry)).map(group)
  const inside = groups.filter(isInside).map(group)
  const alternatives =
    whole.length === 0 ? inside : [`${WORD_START}(?:${whole.join('|')})${WORD_ENDS}`, ...inside]
  return alternatives.join('|')
}

function phrasePattern(terms: readonly Term[]): string {
  const words = terms.map(({ letters }) => letters.join(''))
  return `${terms[0]?.isInside ? '' : WORD_START}${words.join(`${BREAK}+`)}`
}
