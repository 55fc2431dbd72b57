import type { SimilarityFunction } from '@offshoot/contract/search'
import type { Extension } from '../../postgres/extension.js'
import { ident, raw, type Sql, sql } from '../../postgres/sql.js'

/** Up to this dimension, sums are unrolled, which is several times as fast as `unnest`. */
const WRITTEN_OUT_MAX = 2048

/** Two vectors, each a named array of double precision. */
interface Vectors {
  readonly own: Sql
  readonly query: Sql
  /** The Euclidean norm of the query vector. */
  readonly queryLength: Sql
  readonly dimension: number
}

/**
 * Returns the similarity of two vectors: 1 + cosine, or 1 / (1 + distance). The cosine with a zero vector
 * counts as 0.
 */
export function arraySimilarity(similarity: SimilarityFunction, vectors: Vectors): Sql {
  switch (similarity) {
    case 'cosineSimilarity': {
      const product = sumSql(vectors, (own, query) => `${own} * ${query}`)
      const ownLength = sumSql(vectors, (own) => `${own} * ${own}`)
      return sql`1 + coalesce(${product} / nullif(sqrt(${ownLength}) * ${vectors.queryLength}, 0), 0)`
    }
    case 'l1':
      return sql`1 / (1 + ${sumSql(vectors, (own, query) => `abs(${own} - ${query})`)})`
    case 'l2': {
      const squares = sumSql(vectors, (own, query) => `(${own} - ${query}) * (${own} - ${query})`)
      return sql`1 / (1 + sqrt(${squares}))`
    }
  }
}

/** Returns the sum of an expression over all components. */
function sumSql(
  { own, query, dimension }: Vectors,
  expression: (own: string, query: string) => string,
): Sql {
  if (dimension > WRITTEN_OUT_MAX) {
    return sql`(
      select sum(${raw(expression('c.own', 'c.query'))})
      from (select unnest(${own}) as own, unnest(${query}) as query) c
    )`
  }
  // A balanced tree, because PostgreSQL evaluates nested expressions recursively.
  function add(from: number, to: number): string {
    if (to - from === 1) return expression(`${own.text}[${to}]`, `${query.text}[${to}]`)
    const middle = Math.floor((from + to) / 2)
    return `(${add(from, middle)} + ${add(middle, to)})`
  }
  return raw(add(0, dimension))
}

const FUNCTIONS: Readonly<Record<SimilarityFunction, string>> = {
  cosineSimilarity: 'cosine_distance',
  l1: 'l1_distance',
  l2: 'l2_distance',
}

/**
 * Returns the similarity, calculated by pgvector. Its functions, unlike its operators, never use an index.
 */
export function extensionSimilarity(
  similarity: SimilarityFunction,
  { schema }: Extension,
  vectors: { readonly own: Sql; readonly query: Sql },
): Sql {
  const type = sql`${ident(schema)}.vector`
  const distance = sql`${ident(schema)}.${ident(FUNCTIONS[similarity])}(
    ${vectors.own}::${type}, ${vectors.query}::${type})`
  return similarityOf(similarity, distance)
}

export function similarityOf(similarity: SimilarityFunction, distance: Sql): Sql {
  // The cosine distance to a zero vector is NaN.
  if (similarity === 'cosineSimilarity') return sql`(2 - coalesce(nullif(${distance}, 'NaN'), 1))`
  return sql`(1 / (1 + ${distance}))`
}
