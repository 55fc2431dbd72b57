/*
 * Reads a jsonpath, to bound what it costs. PostgreSQL keeps all that a path finds in memory, and what a filter compares.
 * So a path may find each part of a document few times, and a filter compares parts of it with constants only.
 */

/** How often a path may find the same part of a document. */
const REPEATS_MAX = 4
/** Comparisons in all filters of a path. */
const COMPARISONS_MAX = 5
/** An object of three members stands for each member. */
const KEY_VALUE_PARTS = 4
const DEPTH_MAX = 20

const TOKEN =
  /\s*(?:("(?:[^"\\]|\\["\\/bfnrt])*")|(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(\*\*|&&|\|\||==|<>|!=|<=|>=|[$@.*?()[\],!<>-]))/y

const COMPARISONS = new Set(['==', '<>', '!=', '<', '>', '<=', '>='])

class NotBounded extends Error {}

/** Returns whether a path has a known form, and its cost a bound. */
export function isBoundedPath(text: string): boolean {
  try {
    new PathReader(text).read()
    return true
  } catch (error) {
    if (error instanceof NotBounded) return false
    throw error
  }
}

class PathReader {
  readonly #tokens: string[] = []
  #at = 0
  #repeats = 1
  #comparisons = 0
  #depth = 0

  constructor(text: string) {
    const end = text.trimEnd().length
    TOKEN.lastIndex = 0
    while (TOKEN.lastIndex < end) {
      const token = TOKEN.exec(text)?.[0].trimStart()
      if (token === undefined) throw new NotBounded()
      this.#tokens.push(token)
    }
  }

  read(): void {
    if (this.#next === 'strict' || this.#next === 'lax') this.#at++
    this.#condition('$')
    if (this.#at < this.#tokens.length) throw new NotBounded()
  }

  get #next(): string | undefined {
    return this.#tokens[this.#at]
  }

  #take(token: string): boolean {
    if (this.#next !== token) return false
    this.#at++
    return true
  }

  #expect(token: string): void {
    if (!this.#take(token)) throw new NotBounded()
  }

  #isString(): boolean {
    return this.#next?.startsWith('"') === true
  }

  #expectString(): void {
    if (!this.#isString()) throw new NotBounded()
    this.#at++
  }

  /** Reads a path, or conditions on paths that begin with `root`. */
  #condition(root: '$' | '@'): void {
    do this.#part(root)
    while (this.#take('&&') || this.#take('||'))
  }

  #part(root: '$' | '@'): void {
    if (++this.#depth > DEPTH_MAX) throw new NotBounded()
    if (this.#take('!')) {
      if (this.#next !== '(' && this.#next !== 'exists') throw new NotBounded()
      this.#part(root)
    } else if (this.#take('(')) {
      this.#condition(root)
      this.#expect(')')
      if (this.#take('is')) this.#expect('unknown')
    } else if (this.#take('exists')) {
      this.#expect('(')
      this.#count()
      this.#path(root)
      this.#expect(')')
    } else this.#comparison(root)
    this.#depth--
  }

  #count(): void {
    if (++this.#comparisons > COMPARISONS_MAX) throw new NotBounded()
  }

  #comparison(root: '$' | '@'): void {
    const isPath = this.#next === root
    this.#operand(root)
    if (this.#take('like_regex')) {
      this.#expectString()
      if (this.#take('flag')) this.#expectString()
    } else if (this.#take('starts')) {
      this.#expect('with')
      this.#expectString()
    } else if (COMPARISONS.has(this.#next ?? '')) {
      this.#at++
      // Two paths would be compared part by part.
      if (isPath && this.#next === root) throw new NotBounded()
      this.#operand(root)
    } else if (isPath && root === '$') return
    else throw new NotBounded()
    this.#count()
  }

  #operand(root: '$' | '@'): void {
    if (this.#next === root) {
      this.#path(root)
      return
    }
    this.#take('-')
    if (!/^(?:"|\d|true$|false$|null$)/.test(this.#next ?? '')) throw new NotBounded()
    this.#at++
    while (this.#take('.')) this.#method()
  }

  #path(root: '$' | '@'): void {
    this.#expect(root)
    for (;;) {
      if (this.#take('.')) this.#member()
      else if (this.#take('[')) this.#subscripts()
      else if (this.#next === '?' && root === '$') this.#filter()
      else return
      if (this.#repeats > REPEATS_MAX) throw new NotBounded()
    }
  }

  #filter(): void {
    this.#expect('?')
    this.#expect('(')
    this.#condition('@')
    this.#expect(')')
  }

  #member(): void {
    if (this.#take('*')) return
    if (this.#isString()) this.#at++
    else if (this.#tokens[this.#at + 1] === '(') this.#method()
    else if (/^\w/.test(this.#next ?? '')) this.#at++
    else throw new NotBounded()
  }

  #method(): void {
    if (!/^[a-z_]+$/.test(this.#next ?? '')) throw new NotBounded()
    if (this.#next === 'keyvalue') this.#repeats *= KEY_VALUE_PARTS
    this.#at++
    this.#expect('(')
    if (this.#isString()) this.#at++
    this.#expect(')')
  }

  /** Reads `*`, or places such as `0, 2 to last - 1`. */
  #subscripts(): void {
    if (!this.#take('*')) {
      let count = 0
      do {
        count++
        this.#place()
        if (this.#take('to')) this.#place()
      } while (this.#take(','))
      this.#repeats *= count
    }
    this.#expect(']')
  }

  #place(): void {
    const isLast = this.#take('last')
    if (isLast && !this.#take('-')) return
    if (!isLast) this.#take('-')
    if (!/^\d+$/.test(this.#next ?? '')) throw new NotBounded()
    this.#at++
  }
}
