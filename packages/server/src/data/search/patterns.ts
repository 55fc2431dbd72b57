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

/** In which way a word of a text is one that is looked for, the best way first. */
export type MatchKind = 'exact' | 'prefix' | 'edits' | 'stem'

/** A group of the pattern that finds words: which term it stands for, and in which way. */
export interface Match {
  readonly term: number
  readonly kind: MatchKind
  readonly edits: number
}

/** All that PostgreSQL is told about the words of a query. */
export interface Patterns {
  readonly terms: readonly Term[]
  /** By term; null where there is none. */
  readonly stems: readonly (string | null)[]
  /** Letters that are in every text which has one of the words; what an index can tell. */
  readonly indexed: string
  /** Found in every text that has one of the words, and in some that do not; for a first look. */
  readonly rough: string
  /** The same with fewer mistakes; undefined where the first look makes none. */
  readonly fine: string | undefined
  /** Finds each word, in the group that says why. */
  readonly words: string
  /** By group of `words`, from 1 on. */
  readonly matches: readonly Match[]
  /** The whole query as it is written, the last word being a beginning. */
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
  // The first group that fits is the one that is reported.
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

/** Terms of scripts without spaces come last, and need no break around them. */
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
