import { BoundedCache } from '../../common/bounded-cache.js'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

const STEMS_MAX = 10_000
const STEMS_LENGTH_MAX = 1024 * 1024
/** Stems never change. Words without a stem, such as `the`, are cached as an empty text. */
const known = new BoundedCache<string>({
  max: STEMS_MAX,
  maxSize: STEMS_LENGTH_MAX,
  sizeOf: (stem, word) => word.length + stem.length,
})

/** Returns the English stems of lower-case words, by word. Words without a stem are left out. */
export async function findStems(
  database: Queryable,
  words: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const unknown = words.filter((word) => known.get(word) === undefined)
  if (unknown.length > 0) {
    const rows = await database.query<{ word: string; stem: string | null }>(sql`
      select w.word, (ts_lexize('pg_catalog.english_stem', w.word))[1] as stem
      from unnest(${unknown}::text[]) as w (word)`)
    for (const { word, stem } of rows) known.set(word, stem ?? '')
  }
  const stems = words.map((word) => [word, known.get(word) ?? ''] as const)
  return new Map(stems.filter(([, stem]) => stem !== ''))
}
