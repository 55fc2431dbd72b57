import { setTimeout as delay } from 'node:timers/promises'
import { type Environment, headers } from './environment.js'
import type { Request } from './measure.js'
import { compareRates, createDatabase, pageOf, rateDetail, rowId } from './people.js'
import { type Figure, figure } from './report.js'

/*
 * Measures requests to the last branch of a long chain of forks, each of which has changed a record, against
 * requests to the first fork.
 */

interface Sizes {
  /** Depths to measure. The chain is as long as the last one. */
  readonly depths: readonly number[]
  readonly rounds: number
  readonly durationMs: number
}

const ROWS = 20_000
const RATIO_MAX = 3
const POLL_MS = 500

export async function benchDepth(environment: Environment, sizes: Sizes): Promise<Figure[]> {
  await createDatabase(environment, {
    name: 'deep',
    tables: ['people'],
    rows: ROWS,
    indexes: ['seen'],
  })
  await createChain(environment, Math.max(...sizes.depths))
  await foldAll(environment)
  const figures: Figure[] = []
  for (const depth of sizes.depths) {
    for (const { name, requestOf } of KINDS) {
      const rates = await compareRates(environment, sizes, {
        ours: requestOf(depth),
        baseline: requestOf(1),
      })
      figures.push(
        figure(`${name} at depth ${depth.toLocaleString('en')} against depth 1`, {
          ratio: rates.baseline / rates.ours,
          atMost: RATIO_MAX,
          detail: `${rateDetail(rates, 'at depth 1')}, ${ROWS.toLocaleString('en')} rows`,
        }),
      )
    }
  }
  return figures
}

const branchAt = (depth: number): string => `deep:fork${depth}`

async function createChain(environment: Environment, depth: number): Promise<void> {
  for (let level = 1; level <= depth; level++) {
    const from = level === 1 ? 'main' : `fork${level - 1}`
    await environment.call('PUT', `/db/${branchAt(level)}`, { from })
    await update(environment, level)
  }
}

function update(environment: Environment, level: number): Promise<unknown> {
  const path = `/db/${branchAt(level)}/tables/people/data/${scattered(level)}`
  return environment.call('PATCH', path, { name: `changed at depth ${level}` })
}

/** Waits until the background has folded the chain. */
async function foldAll({ direct }: Environment): Promise<void> {
  for (;;) {
    const { rows } = await direct.query("select from offshoot.work where kind = 'fold' limit 1")
    if (rows.length === 0) return
    await delay(POLL_MS)
  }
}

const scattered = (number: number): string => rowId(1 + ((number * 6_181) % ROWS))

const KINDS: readonly { name: string; requestOf(depth: number): () => Request }[] = [
  {
    name: 'get by id',
    requestOf: (depth) => () => ({
      method: 'GET',
      path: `/db/${branchAt(depth)}/tables/people/data/${rowId(1 + Math.floor(Math.random() * ROWS))}`,
      headers: headers(),
    }),
  },
  { name: 'page of 20', requestOf: (depth) => pageOf({ branch: branchAt(depth), rows: ROWS }) },
  {
    name: 'count',
    requestOf: (depth) => () => ({
      method: 'POST',
      path: `/db/${branchAt(depth)}/tables/people/summarize`,
      headers: headers(''),
      body: JSON.stringify({ summaries: { all: { count: '*' } } }),
    }),
  },
  {
    name: 'update',
    requestOf: (depth) => {
      let count = 0
      return () => ({
        method: 'PATCH',
        path: `/db/${branchAt(depth)}/tables/people/data/${scattered(count++)}`,
        headers: headers(''),
        body: JSON.stringify({ age: count % 90 }),
      })
    },
  },
]
