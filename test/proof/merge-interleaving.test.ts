import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { LONG, ROUNDS_TIMEOUT_MS } from '../support/random.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { Steps } from '../support/steps.js'
import { expectOk } from '../support/tables.js'

/*
 * A merge of many rows takes several transactions. These tests merge `dev` into `main` as often as that takes
 * transactions, and each time something else happens after another one of them, in another process. `main` writes only
 * the column `m`, and `dev` only the column `d`, so nothing conflicts.
 */

const COLUMNS: readonly Column[] = [
  { name: 'm', type: 'string' },
  { name: 'd', type: 'string' },
]
const IDS = ['a', 'b', 'c', 'e']
/** Merges of more rows compare without locks. */
const limits = { mergeLockedRowsMax: 2 }

let first: TestService
let second: TestService
/** Merges with locked branches. */
let third: TestService
let number = 0

beforeAll(async () => {
  first = await createTestService({ limits })
  second = await createTestService({ url: first.url, limits })
  third = await createTestService({ url: first.url })
})
afterAll(async () => {
  await third.close()
  await second.close()
  await first.close()
})

/** Creates `main` and its forks `dev` and `third`, and writes to `main` and `dev`. */
async function open(): Promise<TestBranches> {
  const branches = await TestBranches.create(first, `between${++number}`, { items: COLUMNS })
  const records = IDS.map((id) => ({ id, m: 'old', d: 'old' }))
  await branches.bulk('main', 'items', records)
  for (const name of ['dev', 'third']) await branches.fork(name)
  const elsewhere = branches.through(second)
  await write(elsewhere, 'main', { m: 'new' })
  await write(elsewhere, 'dev', { d: 'new' })
  return elsewhere
}

async function write(branches: TestBranches, branch: string, values: object): Promise<void> {
  const operations = IDS.map((id) => ({ update: { table: 'items', id, fields: values } }))
  expectOk(await branches.call(branch, 'POST', '/transaction', { operations }))
}

/** Returns what a branch has, such as `new old` if all records have these values in `m` and `d`. */
async function contentOf(branches: TestBranches, branch: string): Promise<string> {
  const records = await branches.read(branch, 'items', IDS)
  const contents = IDS.map((id) => {
    const { m, d } = records[id] as { m?: string; d?: string }
    return `${m} ${d}`
  })
  return [...new Set(contents)].join(', ')
}

/** What happens during a merge. */
type Event = (branches: TestBranches) => Promise<unknown>
/** Returns the state after the merge. */
type Look = (branches: TestBranches, answer: Answer) => Promise<string>

/** The short form tries every third place, and starts with another one in the next test. */
const STRIDE = LONG ? 1 : 3
let tests = 0

/** Returns the states after merges with an event at different places. Each has a list of the places. */
async function betweenSteps(event: Event, look: Look): Promise<Record<string, number[]>> {
  const found: Record<string, number[]> = {}
  let isInside = true
  for (let place = tests++ % STRIDE; isInside; place += STRIDE) {
    const branches = await open()
    const steps = await Steps.take(first.database)
    const merging = branches.through(first).merging('dev', { allowDataLoss: true })
    try {
      for (let count = 0; count < place && isInside; count++) isInside = await steps.step(merging)
      await event(branches)
    } finally {
      steps.end()
    }
    const state = await look(branches, await merging)
    found[state] = [...(found[state] ?? []), place]
  }
  return found
}

const statusOf = ({ status, body }: Answer): string =>
  status === 200 ? 'merged' : `${status} ${body.code}`

/** Merges both branches in both directions. Afterwards they must have the same content. */
const mergeBoth: Look = async (branches, answer) => {
  const quick = branches.through(third)
  const sides = [
    ['main', 'dev'],
    ['dev', 'main'],
  ] as const
  for (const [from, into] of sides) {
    const { status, body } = await quick.merging(from, { into })
    if (status !== 200) return `${from} into ${into}: ${body.code}`
  }
  const contents = await Promise.all(['main', 'dev'].map((name) => contentOf(quick, name)))
  return [statusOf(answer), ...new Set(contents)].join(': ')
}

describe('a large merge keeps what both branches have written', () => {
  it.each<[string, string, Event]>([
    ['a merge in the other direction', 'new new', (b) => b.merge('main', { into: 'dev' })],
    [
      'a merge in the other direction by way of a third branch',
      'new new',
      async (b) => {
        await b.pull('third', { from: 'main' })
        await b.pull('dev', { from: 'third' })
      },
    ],
    [
      'merges and writes in both directions',
      'newer newer',
      async (b) => {
        await b.merge('dev')
        await write(b, 'main', { m: 'newer' })
        await b.merge('main', { into: 'dev' })
        await write(b, 'dev', { d: 'newer' })
      },
    ],
  ])(
    'despite %s',
    async (_name, content, event) => {
      expect(await betweenSteps(event, mergeBoth)).toEqual({
        [`merged: ${content}`]: expect.any(Array),
      })
    },
    ROUNDS_TIMEOUT_MS,
  )
})

const lookAtBoth: Look = async (branches, answer) => {
  const [main, dev] = await Promise.all(['main', 'dev'].map((name) => contentOf(branches, name)))
  return `${statusOf(answer)}: main ${main}, dev ${dev}`
}

describe('a large merge is before or after', () => {
  it.each<[string, readonly string[], Event]>([
    [
      'a reset of the merged branch to the target',
      [
        'merged: main new new, dev new new',
        'merged: main new new, dev new old',
        'merged: main new old, dev new old',
      ],
      (b) => b.reset('dev', 'main'),
    ],
    [
      'a reset of the target to the merged branch',
      ['merged: main old new, dev old new'],
      (b) => b.reset('main', 'dev'),
    ],
    [
      'the merged branch is deleted and created again from the target',
      [
        '404 branch_not_found: main new old, dev new old',
        'merged: main new new, dev new new',
        'merged: main new new, dev new old',
        'merged: main new old, dev new old',
      ],
      async (b) => {
        await b.delete('dev')
        await b.fork('dev', 'main')
      },
    ],
  ])(
    '%s',
    async (_name, possible, event) => {
      const found = await betweenSteps(event, lookAtBoth)
      const wrong = Object.entries(found).filter(([state]) => !possible.includes(state))
      expect(wrong).toEqual([])
    },
    ROUNDS_TIMEOUT_MS,
  )
})
