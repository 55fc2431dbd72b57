import type { Limits } from '@offshoot/contract/limits'
import { LRUCache } from 'lru-cache'
import { type ClientStatement, parseStatements } from './client-statement.js'

/** Texts whose statements are kept. */
const TEXTS_MAX = 2_000
/** Characters of all texts that are kept. Their statements take about fifty bytes for each. */
const LENGTH_MAX = 512 * 1024
/** A longer text is not kept: it takes long to run, too. */
export const TEXT_LENGTH_MAX = 16 * 1024

/**
 * The statements of texts. Many clients send the same text again with each run, and parsing it would take longer than a
 * read by id. A statement depends on nothing but its text and the name of the database.
 */
export class ParsedTexts {
  readonly #limits: Limits
  readonly #kept = new LRUCache<string, readonly ClientStatement[]>({
    max: TEXTS_MAX,
    maxSize: LENGTH_MAX,
    sizeCalculation: (_, key) => key.length,
  })

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

  async #parseKept(
    key: string,
    { text, database }: { text: string; database: string },
  ): Promise<readonly ClientStatement[]> {
    const statements = await this.#parse(text, database)
    this.#kept.set(key, statements)
    return statements
  }

  #parse(text: string, database: string): Promise<ClientStatement[]> {
    const { sqlLengthMax, sqlParametersMax } = this.#limits
    return parseStatements(text, { sqlLengthMax, sqlParametersMax, database })
  }
}
