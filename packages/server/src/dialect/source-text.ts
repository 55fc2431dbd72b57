/*
 * Expressions as they are written. The parser returns trees with the places of their parts, but not where an expression
 * ends. Whoever cuts a text out of a statement must parse it again, and compare the trees.
 */

/** Comments, quoted texts and names, words, and single characters. */
const TOKEN =
  /--[^\n]*|\/\*[\s\S]*?\*\/|[eE]'(?:[^'\\]|\\[\s\S]|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$[\s\S]*?\$\1\$|[A-Za-z_][\w$]*|[\s\S]/y

interface Token {
  readonly text: string
  readonly start: number
  readonly end: number
}

function* tokensOf(source: string, start: number): Generator<Token> {
  TOKEN.lastIndex = start
  for (let at = start; at < source.length; ) {
    TOKEN.lastIndex = at
    const [text = ''] = TOKEN.exec(source) ?? []
    yield { text, start: at, end: at + text.length }
    at += Math.max(text.length, 1)
  }
}

/** Where to look: after a place in bytes, and after a word behind it. */
interface Place {
  readonly from: number
  readonly after: string
}

/** Returns what is in the first parentheses after a word. */
export function readParentheses(source: string, { from, after }: Place): string | undefined {
  let start: number | undefined
  let depth = 0
  let isBehind = false
  for (const token of tokensOf(source, charactersOf(source, from))) {
    if (!isBehind) isBehind = token.text.toLowerCase() === after
    else if (token.text === '(') {
      depth++
      start ??= token.end
    } else if (token.text === ')' && --depth === 0) return source.slice(start, token.start)
  }
  return undefined
}

/** Returns the place behind the first parentheses after a place, in characters. */
export function endOfParentheses(source: string, from: number): number {
  let depth = 0
  for (const token of tokensOf(source, from)) {
    if (token.text === '(') depth++
    else if (token.text === ')' && --depth === 0) return token.end
  }
  return source.length
}

/** Returns a text from the first of some words outside of parentheses on. */
export function readFrom(source: string, words: ReadonlySet<string>): string | undefined {
  let depth = 0
  for (const token of tokensOf(source, 0)) {
    if (token.text === '(') depth++
    else if (token.text === ')') depth--
    else if (depth === 0 && words.has(token.text.toLowerCase())) return source.slice(token.start)
  }
  return undefined
}

/** Returns what follows a word outside of parentheses, up to the end. */
export function readRest(source: string, { from, after }: Place): string | undefined {
  let depth = 0
  for (const token of tokensOf(source, charactersOf(source, from))) {
    if (token.text === '(') depth++
    else if (token.text === ')') depth--
    else if (depth === 0 && token.text.toLowerCase() === after) return source.slice(token.end)
  }
  return undefined
}

/** Returns what follows a word, up to a comma, a semicolon or the end of the statement. */
export function readAfter(source: string, { from, after }: Place): string | undefined {
  let start: number | undefined
  let depth = 0
  for (const token of tokensOf(source, charactersOf(source, from))) {
    if (token.text === '(' || token.text === '[') depth++
    else if (token.text === ')' || token.text === ']') depth--
    else if (depth > 0) continue
    else if (start === undefined) {
      if (token.text.toLowerCase() === after) start = token.end
    } else if (token.text === ',' || token.text === ';') return source.slice(start, token.start)
  }
  return start === undefined ? undefined : source.slice(start)
}

/** Returns the number of characters in the first bytes of a text. */
function charactersOf(text: string, bytes: number): number {
  return Buffer.from(text).subarray(0, bytes).toString().length
}

/** The first part of a name with dots, such as a table before its column. */
const QUALIFIER = /^(?:"(?:[^"]|"")*"|[^\s."]+)\s*\.\s*/
/** Bytes of it, with room for quotes and spaces. */
const QUALIFIER_BYTES_MAX = 300

/** Leaves out the first parts of names at some places, in bytes. */
export function cutQualifiers(source: string, places: readonly number[]): string {
  const bytes = Buffer.from(source)
  const kept: Buffer[] = []
  let from = 0
  for (const place of [...places].sort((left, right) => left - right)) {
    kept.push(bytes.subarray(from, place))
    const name = bytes.subarray(place, place + QUALIFIER_BYTES_MAX).toString()
    from = place + Buffer.byteLength(QUALIFIER.exec(name)?.[0] ?? '')
  }
  return Buffer.concat([...kept, bytes.subarray(from)]).toString()
}
