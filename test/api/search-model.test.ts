import type { Column } from '@offshoot/contract/schema'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { SEED } from '../support/random.js'
import { createTestService, type TestService } from '../support/service.js'
import { type BranchCall, branchCall, createTables, expectOk } from '../support/tables.js'

/*
 * Compares random searches with an evaluator that splits texts into words and computes edit
 * distances. The evaluator shares no code with the service.
 */

const RUNS = 40

/** Letters that form no English words, so that stemming does not change them. */
const LETTERS = ['ä', 'b', '1', 'Ж', '\u{10400}']
const SIGNS = [' ', '  ', '. ', '\n', '-', ' – ', '“']

const word = fc
  .array(fc.constantFrom(...LETTERS), { minLength: 1, maxLength: 6 })
  .map((letters) => letters.join(''))
const text = fc
  .array(fc.tuple(fc.constantFrom(...SIGNS), word), { maxLength: 5 })
  .map((parts) => parts.flat().join(''))

function distance(one: readonly string[], other: readonly string[]): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index)
  for (const [index, letter] of one.entries()) {
    const next = [index + 1]
    for (const [at, otherLetter] of other.entries()) {
      const replaced = (row[at] ?? 0) + (letter === otherLetter ? 0 : 1)
      next.push(Math.min(replaced, (row[at + 1] ?? 0) + 1, (next[at] ?? 0) + 1))
    }
    row = next
  }
  return row.at(-1) ?? 0
}

function isFound(
  row: { a?: string; b?: string[] },
  words: readonly string[],
  search: Search,
): boolean {
  const texts = [row.a ?? '', ...(row.b ?? [])]
  const found = texts
    .flatMap((value) => value.toLowerCase().split(/[^\p{L}\p{N}]+/u))
    .filter(Boolean)
  return words.some((sought, index) =>
    found.some((candidate) => {
      const [one, other] = [[...sought], [...candidate]]
      const edits = distance(one, other)
      if (edits <= Math.min(search.fuzziness, Math.floor((one.length - 1) / 2))) return true
      return (
        search.prefix === 'phrase' && index === words.length - 1 && candidate.startsWith(sought)
      )
    }),
  )
}

interface Search {
  readonly query: string
  readonly fuzziness: number
  readonly prefix: 'phrase' | 'disabled'
}

const search: fc.Arbitrary<Search> = fc.record({
  query: fc.array(word, { minLength: 1, maxLength: 3 }).map((words) => words.join(' ')),
  fuzziness: fc.constantFrom(0, 1, 2),
  prefix: fc.constantFrom('phrase', 'disabled'),
})

let service: TestService
let main: BranchCall
let fork: BranchCall
/**
 * A table with the same rows and a search index, in a service that uses the index wherever
 * possible.
 */
let indexed: BranchCall
let eager: TestService
let rows: { id: string; a?: string; b?: string[] }[]

const COLUMNS: readonly Column[] = [
  { name: 'a', type: 'text' },
  { name: 'b', type: 'multiple' },
]

beforeAll(async () => {
  service = await createTestService()
  main = await createTables(service, 'model', { rows: COLUMNS })
  const eagerUrl = new URL(service.url)
  eagerUrl.searchParams.set('options', '-c enable_seqscan=off')
  eager = await createTestService({ url: eagerUrl.href })
  await createTables(service, 'indexed', { rows: COLUMNS })
  indexed = branchCall(service, 'indexed', { via: eager })
  expectOk(await indexed('PUT', '/tables/rows/searchIndex'))
  const row = fc.record({ a: text, b: fc.array(text, { maxLength: 3 }) }, { requiredKeys: [] })
  rows = fc
    .sample(row, { numRuns: 120, seed: SEED })
    .map((values, index) => ({ id: `r${String(index).padStart(3, '0')}`, ...values }))
  expectOk(await main('POST', '/tables/rows/bulk', { body: { records: rows.slice(0, 80) } }))
  expectOk(
    await service.call('PUT', `${service.workspace}/db/model:fork`, { body: { from: 'main' } }),
  )
  fork = branchCall(service, 'model', { branch: 'fork' })
  expectOk(await fork('POST', '/tables/rows/bulk', { body: { records: rows.slice(80) } }))
  expectOk(await main('POST', '/tables/rows/bulk', { body: { records: rows.slice(80) } }))
  expectOk(await indexed('POST', '/tables/rows/bulk', { body: { records: rows } }))
})

afterAll(async () => {
  await eager.close()
  await service.close()
})

it('finds what a reader finds, on a branch, on a fork, and with an index', async () => {
  await fc.assert(
    fc.asyncProperty(search, async (body) => {
      const words = [...new Set(body.query.toLowerCase().split(' '))]
      const expected = rows.filter((row) => isFound(row, words, body)).map(({ id }) => id)
      for (const call of [main, fork, indexed]) {
        const answer = await call('POST', '/tables/rows/search', {
          body: { ...body, page: { size: 200 } },
        })
        const found = expectOk(answer).body.records.map(({ id }: { id: string }) => id)
        expect(found.sort()).toEqual(expected)
        expect(answer.body.totalCount).toBe(expected.length)
        for (const { service: metadata } of answer.body.records) {
          expect(metadata.score).toBeGreaterThan(0)
          expect(JSON.stringify(metadata.highlight)).toContain('<em>')
        }
      }
    }),
    { seed: SEED, numRuns: RUNS },
  )
})
