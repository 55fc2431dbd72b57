import type { Limits } from '@offshoot/contract/limits'
import { BoundedCache } from '../common/bounded-cache.js'
import { findParameters, patternOf, type TextPattern, withParameters } from '../dialect/literals.js'
import { type ClientStatement, parseStatements } from './client-statement.js'

/** Texts whose statements are kept. */
const TEXTS_MAX = 2_000
/** Characters of all texts that are kept. Their statements take about fifty bytes for each. */
const LENGTH_MAX = 512 * 1024
/** A longer text is not kept: it takes long to run, too. */
export const TEXT_LENGTH_MAX = 16 * 1024

const KEPT = {
  max: TEXTS_MAX,
  maxSize: LENGTH_MAX,
  sizeOf: (_: unknown, key: string) => key.length,
}

type Query = Extract<ClientStatement, { kind: 'query' }>

/** The literals of a pattern that are parameters: their positions, and the number of the first parameter. */
interface LiteralParameters {
  readonly positions: readonly number[]
  readonly from: number
}

/** A text with its pattern. */
interface GivenText {
  readonly text: string
  readonly database: string
  readonly pattern: TextPattern
}

/**
 * The statements of texts. Many clients send the same text again with each run, or one that differs only in literals, and
 * parsing it would take longer than a read by id. A statement depends on nothing but its text and the name of the database.
 */
export class ParsedTexts {
  readonly #limits: Limits
  readonly #kept = new BoundedCache<readonly ClientStatement[]>(KEPT)
  readonly #patterns = new BoundedCache<LiteralParameters>(KEPT)

  constructor(limits: Limits) {
    this.#limits = limits
  }

  /** Returns the statements of a text. `database` is the name that the client knows: `{database}:{branch}`. */
  read(
    text: string,
    database: string,
  ): readonly ClientStatement[] | Promise<readonly ClientStatement[]> {
    if (text.length > TEXT_LENGTH_MAX) return this.#parse(text, database)
    const key = `${database}\n${text}`
    return this.#kept.get(key) ?? this.#parseKept(key, { text, database })
  }

  /** Returns the statements of a text that may be one of many which differ in literals. */
  readMessage(
    text: string,
    database: string,
  ): readonly ClientStatement[] | Promise<readonly ClientStatement[]> {
    if (text.length > TEXT_LENGTH_MAX) return this.#parse(text, database)
    const kept = this.#kept.get(`${database}\n${text}`)
    if (kept !== undefined) return kept
    const pattern = patternOf(text)
    if (pattern === undefined) return this.read(text, database)
    const patternKey = `${database}\n${pattern.key}`
    const parameters = this.#patterns.get(patternKey)
    if (parameters === undefined) return this.#parseFirst(patternKey, { text, database, pattern })
    const { positions } = parameters
    if (positions.length === 0) return this.read(text, database)
    // No database has a name that begins so.
    const queryKey = `\n${patternKey}\n${othersOf(pattern, positions)}`
    const [query] = this.#kept.get(queryKey) ?? []
    if (query?.kind === 'query') return [withLiterals(query, pattern, positions)]
    return this.#parsePattern(queryKey, { text, database, pattern }, parameters)
  }

  async #parseKept(
    key: string,
    { text, database }: { text: string; database: string },
  ): Promise<readonly ClientStatement[]> {
    const statements = await this.#parse(text, database)
    this.#kept.set(key, statements)
    return statements
  }

  /** Parses the first text of a pattern, and notes which literals of the others can be parameters. */
  async #parseFirst(
    key: string,
    { text, database, pattern }: GivenText,
  ): Promise<readonly ClientStatement[]> {
    const statements = await this.read(text, database)
    const [statement, ...others] = statements
    const isQuery = statement?.kind === 'query' && !statement.isWrite && others.length === 0
    const positions = isQuery ? findParameters(statement.node, text, pattern) : []
    const from = (statement?.parameterCount ?? 0) + 1
    const isTooMany = from - 1 + positions.length > this.#limits.sqlParametersMax
    this.#patterns.set(key, { positions: isTooMany ? [] : positions, from })
    return statements
  }

  /** Parses the query of a pattern. */
  async #parsePattern(
    key: string,
    { text, database, pattern }: GivenText,
    parameters: LiteralParameters,
  ): Promise<readonly ClientStatement[]> {
    const written = withParameters(text, pattern, parameters)
    const [query] = await this.#parse(written, database)
    if (query?.kind !== 'query') throw new Error('a query with parameters must be a query')
    this.#kept.set(key, [query])
    return [withLiterals(query, pattern, parameters.positions)]
  }

  #parse(text: string, database: string): Promise<ClientStatement[]> {
    const { sqlLengthMax, sqlParametersMax } = this.#limits
    return parseStatements(text, { sqlLengthMax, sqlParametersMax, database })
  }
}

/** Returns the literals that are not parameters, as one text. */
function othersOf({ literals }: TextPattern, positions: readonly number[]): string {
  if (positions.length === literals.length) return ''
  const parameters = new Set(positions)
  return JSON.stringify(
    literals.filter((_, position) => !parameters.has(position)).map(({ value }) => value),
  )
}

/** Returns the statement that a query with literals in the place of its last parameters is. */
function withLiterals(query: Query, pattern: TextPattern, positions: readonly number[]): Query {
  const literals = positions.flatMap((position) => pattern.literals[position] ?? [])
  return {
    ...query,
    parameterCount: query.parameterCount - literals.length,
    literals: {
      query,
      values: literals.map(({ value }) => value),
      types: literals.map(({ type }) => type),
    },
  }
}
